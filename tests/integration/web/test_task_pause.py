"""A task that is paused with a reason and an end: by the API, by its page, by files; what lists and pages then show."""

from __future__ import annotations

import pytest

from integration.web.test_details import page, post, words
from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.engine.sweeper import Sweeper
from noonbell.model.request import TaskChange
from noonbell.model.task import TaskId, TaskPause, TaskStatus
from noonbell.service.task_files import reconcile

DAY = 86_400


async def after(api, seconds: float) -> str:
    return rfc3339(Instant(await api.store.now() + round(seconds * SECOND)))


async def test_a_pause_is_told_by_the_answer_by_the_task_and_by_the_list(everywhere):
    api = everywhere
    task = await api.create(name="a", cron_expr="0 2 * * *")
    told = await api.good("POST", f"/tasks/{task}/pause", {"reason": " the vendor is down ", "for_seconds": 7200})
    assert told["status"] == "DISABLED"
    assert told["pause"]["reason"] == "the vendor is down"
    assert (await api.good("GET", f"/tasks/{task}"))["pause"] == told["pause"]
    assert (await api.good("GET", "/tasks"))["items"][0]["pause"] == told["pause"]
    for path in ("/tasks", f"/tasks/{task}"):
        text = await page(api, path)
        assert "the vendor is down" in words(text), path
        assert f'datetime="{told["pause"]["until"][:16]}' in text, path
    explained = await api.good("GET", f"/tasks/{task}/explain")
    assert "the vendor is down" in explained["message"]
    assert await api.good("POST", f"/tasks/{task}/resume") == {"status": "ENABLED"}
    assert (await api.good("GET", f"/tasks/{task}"))["pause"] is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"until": -60}, "until"),
        ({"until": 400 * DAY}, "until"),
        ({"until": 60, "for_seconds": 60}, "until"),
        ({"until": "soon"}, "until"),
        ({"for_seconds": 0}, "for_seconds"),
        ({"for_seconds": 367 * DAY}, "for_seconds"),
        ({"for_seconds": "2h"}, "for_seconds"),
        ({"reason": "x" * 501}, "reason"),
        ({"reason": 7}, "reason"),
        ({"because": "x"}, "because"),
    ],
)
async def test_a_pause_that_makes_no_sense_names_the_field_and_changes_nothing(api, given, field):
    task = await api.create(name="a", cron_expr="0 2 * * *")
    if isinstance(given.get("until"), int):
        given = {**given, "until": await after(api, given["until"])}
    before = await api.good("GET", f"/tasks/{task}")
    told = await api.call("POST", f"/tasks/{task}/pause", given)
    assert told.status == 400
    assert field in told.body["details"]
    assert await api.good("GET", f"/tasks/{task}") == before


async def test_a_second_pause_replaces_reason_and_end_and_one_sent_back_as_read_does_not(api):
    task = await api.create(name="a", cron_expr="0 2 * * *")
    await api.good("POST", f"/tasks/{task}/pause", {"reason": "one", "until": await after(api, 60)})
    shown = await api.good("GET", f"/tasks/{task}")
    await api.good("PUT", f"/tasks/{task}", {**shown, "priority": 3})
    assert (await api.good("GET", f"/tasks/{task}"))["pause"] == shown["pause"]
    await api.good("POST", "/tasks/disable", {"all": True})
    assert (await api.good("GET", f"/tasks/{task}"))["pause"] == shown["pause"]
    assert await api.good("POST", f"/tasks/{task}/pause") == {"status": "DISABLED"}
    assert (await api.good("GET", f"/tasks/{task}"))["pause"] is None


async def test_the_form_of_a_task_pauses_it_until_a_moment_of_the_chosen_zone(api):
    task = await api.create(name="a", cron_expr="0 2 * * *")
    assert "Pause until…" in words(await page(api, f"/tasks/{task}"))
    until = (await after(api, DAY))[:16]
    status, told = await post(api, f"/tasks/{task}/disable", reason="why not", for_seconds="", until=until)
    assert status == 200, told
    pause = (await api.good("GET", f"/tasks/{task}"))["pause"]
    assert (pause["reason"], pause["until"][:16]) == ("why not", until)
    text = await page(api, f"/tasks/{task}")
    assert "Change pause…" in words(text)
    assert 'value="why not"' in text
    (entry,) = [one for one in (await api.good("GET", "/audit"))["items"] if one["action"] == "disable_task"]
    assert entry["details"]["reason"] == "why not"
    later = (await after(api, 2 * DAY))[:16]
    status, told = await post(api, f"/tasks/{task}/disable", reason="", for_seconds="60", until=later)
    assert status == 400, told
    assert (await post(api, f"/tasks/{task}/disable", until="soon"))[0] == 400
    assert (await api.good("GET", f"/tasks/{task}"))["pause"] == pause
    assert f'value="{until.replace("T", " ")}:00"' in text
    status, told = await post(api, f"/tasks/{task}/disable", for_seconds="3600", until=f"{until}:00")
    assert status == 200, "the end that the form was filled in with gives way to a span"
    assert (await api.good("GET", f"/tasks/{task}"))["pause"]["until"] < pause["until"]
    assert (await post(api, f"/tasks/{task}/disable"))[0] == 200
    assert (await api.good("GET", f"/tasks/{task}"))["pause"] is None


async def test_a_file_that_says_enabled_leaves_a_pause_with_an_end_and_ends_one_without(api):
    declared = [{"name": "a", "cron_expr": "0 2 * * *", "target_url": "http://target.test/", "status": "ENABLED"}]
    await reconcile(api.services, "file:x", declared, by="file:x")
    task = (await api.services.tasks.get("a")).id
    await api.good("POST", f"/tasks/{task}/pause", {"for_seconds": 60})
    report = await reconcile(api.services, "file:x", declared, by="file:x")
    assert report.unchanged == ("a",)
    changed = [{**declared[0], "priority": 7}]
    await reconcile(api.services, "file:x", changed, by="file:x")
    stored = await api.services.tasks.get(task)
    assert (stored.status, stored.spec.priority) == (TaskStatus.DISABLED, 7)
    assert stored.pause is not None
    await api.good("POST", f"/tasks/{task}/pause", {"reason": "without an end"})
    await reconcile(api.services, "file:x", changed, by="file:x")
    stored = await api.services.tasks.get(task)
    assert (stored.status, stored.pause) == (TaskStatus.ENABLED, None)


async def test_the_audit_log_and_the_activity_of_the_task_say_that_the_scheduler_resumed_it(api):
    task = await api.create(name="a", cron_expr="0 2 * * *")
    await api.good("POST", f"/tasks/{task}/pause", {"for_seconds": 3600})
    sweeper = Sweeper(api.store, api.services.wakeup, draw=lambda: 0.5)
    await sweeper.tick()
    assert (await api.good("GET", f"/tasks/{task}"))["status"] == "DISABLED"
    over = TaskPause(until=await api.store.now(), at=await api.store.now())
    await api.store.change_task(
        TaskId(task), lambda now: TaskChange(spec=now.spec, status=TaskStatus.DISABLED, pause=over)
    )
    await sweeper.tick()
    assert (await api.good("GET", f"/tasks/{task}"))["status"] == "ENABLED"
    newest = (await api.good("GET", "/audit"))["items"][0]
    assert (newest["actor"], newest["action"], newest["subject"]) == ("scheduler", "resume_task", f"/tasks/{task}")
    for path in ("/activity", f"/tasks/{task}/activity"):
        assert "scheduler" in words(await page(api, path)), path
