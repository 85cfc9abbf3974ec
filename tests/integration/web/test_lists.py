"""Lists over real HTTP: what is proposed, found and done by the palette, the filter bar, bulk changes and files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from integration.api.serving import Api
from integration.web import asking
from integration.web.test_pages import get, post, sign_in
from noonbell.cli.task_files import tasks_in
from noonbell.model.request import TaskQuery
from noonbell.service.bulk_operations import change_tasks
from noonbell.web.task_list import declared_in

JSON = {"accept": "application/json"}


async def told(api: Api, path: str) -> Any:
    answer = await api.call("GET", f"/{path}", headers=JSON)
    assert answer.status == 200, answer.text
    return answer.body


async def test_values_are_proposed_from_what_there_is(everywhere):
    api = everywhere
    await api.create(name="invoices", labels={"team": "billing"})
    await api.create(name="job", target_url=None, job_type="x", queue="pdf")
    await api.trigger(2)

    async def proposed(**asked: str) -> list[str]:
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        return [each["value"] for each in (await told(api, f"/suggest?{query}"))["items"]]

    assert await proposed(**{"for": "tasks", "text": "s"}) == ["status:"]
    assert await proposed(**{"for": "tasks", "key": "label", "text": "bill"}) == ["team=billing"]
    assert await proposed(**{"for": "tasks", "key": "status", "text": "pau"}) == ["DISABLED"]
    assert await proposed(**{"for": "runs", "key": "queue", "text": "pd"}) == ["pdf"]
    assert await proposed(**{"for": "runs", "key": "task", "text": "voi"}) == ["invoices"]
    assert (await proposed(**{"for": "runs", "key": "status", "text": "fail"}))[0] == "failed"
    assert await proposed(**{"for": "runs", "key": "origin", "text": "manual"}) == ["trigger"]
    assert await proposed(**{"for": "runs", "key": "nonsense"}) == []
    assert (await api.call("GET", "//suggest?for=nothing", headers=JSON)).status == 400


async def test_a_viewer_is_offered_no_act_in_the_palette(guarded):
    await guarded.services.tasks.create({"name": "a", "target_url": "http://127.0.0.1:9/x"})
    for role, acts in (("viewer", set()), ("operator", {"Run now: a", "Pause: a"})):
        cookie = await sign_in(guarded, role)
        guarded.session.cookie_jar.clear()
        answer = await guarded.call("GET", "//palette?q=a", headers={**JSON, "cookie": cookie})
        labels = {each["label"] for each in answer.body["items"] if each["kind"] == "act"}
        assert labels == acts
        assert ("Activity" in {each["label"] for each in answer.body["items"]}) is False


async def test_a_bulk_delete_without_its_number_deletes_nothing(everywhere):
    api = everywhere
    for name in ("x-1", "x-2", "y"):
        await api.create(name=name)
    path = "/tasks/bulk?act=delete&name=x-"
    for wrong in ({}, {"confirm": "3"}, {"confirm": "x"}):
        assert (await post(api, path, wrong))[0] == 400
    assert (await api.good("GET", "/tasks"))["total"] == 3
    status, headers, _ = await post(api, path, {"confirm": "2"})
    assert status == 303
    assert (await carried_out(api, headers["location"]))["done"] == 2
    assert [task["name"] for task in (await api.good("GET", "/tasks"))["items"]] == ["y"]
    actions = [entry["action"] for entry in (await api.good("GET", "/audit"))["items"]]
    assert actions.count("delete_tasks") == 1


async def carried_out(api: Api, location: str) -> dict[str, Any]:
    """The operation whose page that is, when it has ended."""
    number = int(location.rpartition("/")[2])
    while (found := await api.good("GET", f"/bulk/{number}"))["status"] == "RUNNING":
        await api.services.bulk_loop.tick()
    return dict(found)


async def test_a_bulk_operation_has_a_page_that_says_how_far_it_is_and_what_it_skipped(everywhere):
    api = everywhere
    for number in range(5):
        await api.create(name=f"t{number}", cron_expr="0 2 * * *")
    await api.good("POST", "/tasks/3/disable")
    status, headers, _ = await post(api, "/tasks/bulk?act=disable&name=t", {})
    assert status == 303
    place = f"/bulk/{headers['location'].rpartition('/')[2]}"
    assert "0 of 5" in (await get(api, place))[1]
    ended = await carried_out(api, place)
    assert (ended["done"], ended["reasons"], ended["filter"]) == (4, {"already": 1}, {"name": "t"})
    _, page, _ = await get(api, place)
    assert "4 of 5 paused, 1 skipped: already in that state (1)" in page
    assert "t2 (3)" in page
    assert "<code>t</code>" in page
    skipped = await api.call("GET", f"/{place}/skipped")
    assert skipped.text.splitlines() == ["id,name,why", "3,t2,already in that state"]
    assert "4 of 5 paused" in (await get(api, "/bulk"))[1]
    before = (await api.good("GET", "/audit"))["items"]
    assert (await post(api, f"{place}/cancel", {}))[0] == 303
    await api.good("POST", f"{place}/cancel")
    assert (await api.good("GET", "/audit"))["items"] == before, "it had ended: nothing was changed"
    status, headers, _ = await post(api, f"{place}/undo", {})
    undone = await carried_out(api, headers["location"])
    assert (undone["kind"], undone["done"]) == ("enable_tasks", 4)
    assert (await api.good("GET", "/tasks?status=DISABLED"))["total"] == 1


async def test_the_page_of_a_bulk_retry_leads_to_the_runs_that_it_made(api):
    task = await api.create(name="a")
    await api.good("POST", f"/runs/{await api.trigger(task)}/cancel")
    _, headers, _ = await post(api, f"/runs/bulk?act=retry&task={task}&status=CANCELED", {})
    assert (await carried_out(api, headers["location"]))["done"] == 1
    page = (await get(api, f"/bulk/{headers['location'].rpartition('/')[2]}"))[1]
    assert f"/runs?task={task}&amp;origin=retry" in page


async def test_a_change_of_many_that_makes_no_sense_is_asked_for_again_as_it_was_filled_in(api):
    await api.create(name="a")
    path = "/tasks/bulk?act=change&name=a"
    status, _, page = await post(api, path, {"timeout_seconds": "-3", "set_queue": "slow"})
    assert status == 400
    assert 'value="-3"' in page
    assert 'value="slow"' in page
    assert (await post(api, path, {}))[0] == 400
    assert (await api.good("GET", "/bulk"))["items"] == []


async def test_ticked_rows_are_changed_in_the_answer(everywhere):
    api = everywhere
    for name in ("a", "b", "c"):
        await api.create(name=name)
    listed = (await api.services.store.tasks(TaskQuery(sort="id"))).items
    await api.good("DELETE", f"/tasks/{listed[1].id}")
    step = await change_tasks(api.services, "disable", listed)
    assert [name for _, name in step.done] == ["a", "c"]
    assert [(left.name, left.why) for left in step.left] == [("b", "gone")]
    assert (await api.good("GET", "/bulk"))["items"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected `tasks:`"),
        ("tasks: 3", "expected `tasks:`"),
        ("tasks: [a: [}", "neither YAML nor JSON"),
        ("a: &a [x]\ntasks: [*a]", "alias"),
        ("tasks:\n- name: a\n  target_url: nonsense\n", "target_url"),
        ("tasks:\n- !!python/object/apply:os.system [ls]\n", "neither YAML nor JSON"),
    ],
)
async def test_a_text_that_makes_no_sense_says_why_and_changes_nothing(api, text, problem):
    status, _, page = await post(api, "/tasks/import", {"text": text, "sure": "1"})
    assert status == 400
    assert problem in page
    assert (await api.good("GET", "/tasks"))["total"] == 0


async def test_what_is_exported_is_imported_without_a_change_and_keeps_its_secrets(everywhere):
    api = everywhere
    of_the_shell = {"body_template": "${HOME} costs $5"}
    await api.create(name="a", cron_expr="0 2 * * *", headers={"Authorization": "Bearer s3cret"}, **of_the_shell)
    status, text, headers = await get(api, "/tasks/export")
    assert tasks_in("export", text)[0]["body_template"] == "${HOME} costs $5", "as `noonbell apply` reads it"
    assert (status, "s3cret" in text) == (200, False)
    assert headers["content-disposition"].startswith("attachment")
    _, _, page = await post(api, "/tasks/import", {"text": text})
    assert "Nothing to change." in page
    changed = text.replace("0 2 * * *", "0 3 * * *")
    assert (await post(api, "/tasks/import", {"text": changed, "sure": "1"}))[0] == 303
    task = await api.services.tasks.get(1)
    assert (task.version, task.spec.headers["Authorization"]) == (2, "Bearer s3cret")


async def test_a_task_that_a_file_manages_is_imported_only_when_it_is_taken_over(api):
    await api.create(name="a", managed_by="file:billing")
    text = "tasks:\n- name: a\n  target_url: http://127.0.0.1:9/y\n"
    status, _, page = await post(api, "/tasks/import", {"text": text, "sure": "1"})
    assert (status, "belongs to file:billing" in page) == (400, True)
    assert (await post(api, "/tasks/import", {"text": text, "sure": "1", "adopt": "1"}))[0] == 303
    assert (await api.good("GET", "/tasks/1"))["managed_by"] == "api"


async def test_json_is_yaml_too():
    assert await declared_in('{"tasks": [{"name": "a"}]}') == [{"name": "a"}]


async def test_a_task_under_way_again_still_needs_somebody(everywhere):
    api = everywhere
    task = await api.create(name="a")
    for name in ("b", "c"):
        await api.create(name=name)
    await api.trigger(task)
    await api.finish(await api.claim(), "FAILED", error_message="no")
    await api.trigger(task)
    await api.claim()
    text = (await get(api, "/tasks"))[1]
    assert re.search(r"1 needs attention", text)
    assert (await api.good("GET", f"/tasks/{task}"))["last_run_status"] == "RUNNING"


async def test_failures_of_a_deleted_task_need_nobody(everywhere):
    api = everywhere
    gone, there = await api.create(name="gone"), await api.create(name="there")
    for task in (gone, there):
        await api.trigger(task)
        await api.finish(await api.claim(), "FAILED", error_message=f"no {task}")
    assert f"no {gone}" in (await get(api, "/"))[1]
    await api.good("DELETE", f"/tasks/{gone}")
    text = (await get(api, "/"))[1]
    assert f"no {gone}" not in text
    assert f"no {there}" in text


async def test_an_export_of_many_tasks_is_one_text_and_comes_in_pieces(api):
    """More than one piece, none of the tasks twice, and what comes back is what `noonbell apply` takes."""
    assert yaml.safe_load((await get(api, "/tasks/export"))[1]) == {"tasks": []}
    names = [f"task {number:03d}" for number in range(120)]
    for name in names:
        await api.create(name=name, body_template="é: [1, 2]\n" * 3)
    status, text, headers = await get(api, "/tasks/export")
    tasks = yaml.safe_load(text)["tasks"]
    assert (status, [task["name"] for task in tasks]) == (200, names)
    assert {task["body_template"] for task in tasks} == {"é: [1, 2]\n" * 3}
    assert "content-length" not in headers, "nobody has the whole of it in memory"


async def test_many_tasks_are_changed_together_and_what_is_left_empty_stays(everywhere):
    api = everywhere
    for number in range(3):
        await api.create(name=f"m-{number}", labels={"team": "a", "old": "x"}, timeout_seconds=5, jitter_seconds=number)
    await api.create(name="n-1", timeout_seconds=5)
    page = await asking.get(api, "/tasks/bulk?act=change&name=m-&jitter_seconds=30")
    assert 'value="30"' in page
    sent = {"set_labels": "tier=gold\r\nold=", "timeout_seconds": "9", "max_retries": "1", "jitter_seconds": "30"}
    headers = {"accept": "application/json"}
    _, _, told = await asking.post(api, "/tasks/bulk?act=change&name=m-", sent, **headers)
    assert (await carried_out(api, json.loads(told)["go"]))["done"] == 3
    for task in (await api.good("GET", "/tasks?name=m-"))["items"]:
        assert task["labels"] == {"team": "a", "tier": "gold"}
        assert (task["timeout_seconds"], task["jitter_seconds"], task["retry_policy"]["max_retries"]) == (9, 30, 1)
    assert (await api.good("GET", "/tasks?name=n-"))["items"][0]["timeout_seconds"] == 5
    _, _, told = await asking.post(api, "/tasks/bulk?act=change&name=m-", sent, **headers)
    assert (await carried_out(api, json.loads(told)["go"]))["reasons"] == {"already": 3}
    for wrong in ({}, {"timeout_seconds": "long"}, {"set_labels": "no mark"}, {"max_retries": "-1"}):
        status, _, _ = await asking.post(api, "/tasks/bulk?act=change&name=m-", wrong, **headers)
        assert status == 400, wrong


async def test_a_task_of_a_file_is_left_out_of_a_change_of_many(api):
    await api.good(
        "POST", "/tasks/apply", {"owner": "billing", "tasks": [{"name": "filed", "target_url": "http://127.0.0.1:9/"}]}
    )
    _, _, told = await post(
        api, "/tasks/bulk?act=change&name=filed", {"timeout_seconds": "9"}, accept="application/json"
    )
    assert (await carried_out(api, json.loads(told)["go"]))["reasons"] == {"managed": 1}
