"""What the activity pages say of changes that were made over the API: by name or by id, over real HTTP."""

from __future__ import annotations

import re

from integration.web.asking import get
from noonbell.clock import Instant
from noonbell.model.access import AuditAction
from noonbell.model.alert import AlertState, AlertStep
from noonbell.stores.sql.events import tell


def lines(text: str) -> list[str]:
    """The rows of a table, as a reader sees them."""
    found = re.findall(r'<tr data-row="\d+".*?</tr>', text, re.DOTALL)
    return [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)) for row in found]


async def test_changes_that_name_a_task_are_in_its_own_log_with_id_link_and_difference(everywhere):
    api = everywhere
    task = await api.create(name="old/export")
    await api.create(name="another")
    await api.good("POST", "/tasks/name:old%2Fexport/disable")
    await api.good("PATCH", "/tasks/name:old%2Fexport", {"priority": 3})
    await api.good("PATCH", "/tasks/name:old%2Fexport", {"name": "new-export"})
    await api.good("POST", "/tasks/name:new-export/trigger")
    entries = (await api.good("GET", "/audit"))["items"][:4]
    assert [entry["action"] for entry in entries] == ["trigger_task", "patch_task", "patch_task", "disable_task"]
    assert {re.sub(r"/(disable|trigger)$", "", entry["subject"]) for entry in entries} == {f"/api/v1/tasks/{task}"}
    assert [entry["details"].get("task") for entry in entries] == ["new-export", *["old/export"] * 3]
    own = lines(await get(api, f"/tasks/{task}/activity"))
    assert len(own) == 5, own
    page = await get(api, "/activity")
    assert page.count(f'href="./tasks/{task}">new-export') == 5
    assert "priority" in await get(api, f"/activity/{entries[2]['id']}")


async def test_a_name_that_no_task_has_is_not_found_and_leaves_no_line(api):
    told = await api.call("POST", "/tasks/name:nobody/disable")
    assert told.status == 404
    assert (await api.good("GET", "/audit"))["items"] == []


async def test_activity_names_what_was_changed_instead_of_a_path_of_the_api(api):
    task = await api.create(name="nightly")
    run = await api.trigger(task)
    await api.good("POST", f"/runs/{run}/cancel")
    await api.good("PUT", "/queues/mail%2Fout", {"concurrency": 3})
    await api.good("POST", "/runs/batch", {"runs": [{"task": "nightly"}, {"task": "nightly"}]})
    await api.good("DELETE", f"/tasks/{task}")
    await api.good("PUT", "/calendars/china", {})
    await api.good("POST", "/subscriptions", {"name": "hook", "url": "http://127.0.0.1:8099/"}, 201)
    text = await get(api, "/activity")
    assert 'href="./calendars/china">Calendar china</a>' in text
    assert 'href="./settings/subscriptions/hook">Subscription hook</a>' in text
    assert "/api/v1" not in re.sub(r"<[^>]*>", " ", text)
    assert f'href="./tasks/{task}">nightly</a>' in text
    assert f'href="./runs/{run}">Run {run}</a>' in text
    assert 'href="./queues/mail%2Fout">Queue mail/out</a>' in text
    assert "concurrency: 3" in text
    assert "runs: 2" in text


async def test_lines_that_older_releases_wrote_by_name_are_in_the_log_of_the_task_too(api):
    task = await api.create(name="kept")
    line = AuditAction(actor="ada", action="disable_task", subject="/api/v1/tasks/name:kept/disable", peer="")
    await api.parts.access.note(line)
    assert len(lines(await get(api, f"/tasks/{task}/activity"))) == 2
    assert (await get(api, "/activity")).count(f'href="./tasks/{task}">kept</a>') == 2


async def test_system_events_name_what_they_are_about_and_tell_times_and_alerts_in_the_readers_words(api):
    await api.good("PUT", "/calendars/china", {})
    await api.good("POST", "/subscriptions", {"name": "hook", "url": "http://127.0.0.1:8099/"}, 201)
    await api.good("POST", "/queues/mail/pause")
    said = {"worker": "w 1", "run": 7}
    lost_with = AlertState(
        rule="r",
        subject="w",
        since=Instant(1),
        message="worker w 1 was lost with run 7",
        code="worker_lost",
        facts=said,
    )
    before = AlertState(rule="r", subject="x", since=Instant(1), message="from before there were codes")
    duty = await api.store.take_duty("alerts", "me", 60)
    step = AlertStep(told=[("alert.raised", lost_with), ("alert.raised", before)])
    assert await api.store.alert(duty, duty.position, step)
    lost = {"worker_id": "w 1", "heartbeat_at": 1_767_261_600_000_000}
    await api.store._write(lambda _: tell("worker.lost", [(None, None, lost)]))
    await api.store.events(0)  # numbers what was written
    for lang, calendar, hook, told in (
        ("en", "Calendar china", "Subscription hook", "worker w 1 was lost with run 7"),
        ("zh", "日历 china", "订阅 hook", "工作节点 w 1 失联，当时持有执行 7"),
    ):
        text = await get(api, "/activity?view=system", lang)
        assert f'href="./calendars/china">{calendar}</a>' in text
        assert f'href="./settings/subscriptions/hook">{hook}</a>' in text
        assert 'href="./queues/mail">mail</a>' in text
        assert 'href="./workers/w%201">w 1</a>' in text
        assert f"message: {told}" in text
        assert "message: from before there were codes" in text
        assert "1767261600000000" not in text
