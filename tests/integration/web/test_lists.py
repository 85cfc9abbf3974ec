"""Lists over real HTTP: what is proposed, found and done by the palette, the filter bar, bulk changes and files."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from integration.api.serving import Api
from integration.web.test_pages import get, post, sign_in
from noonbell.model.request import RunQuery, TaskQuery
from noonbell.service.bulk import BulkStep, change_tasks, runs_step, tasks_step
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
    assert await proposed(**{"for": "runs", "key": "origin", "text": "hand"}) == ["trigger"]
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
    assert (await post(api, path, {"confirm": "2"}))[0] == 303
    assert [task["name"] for task in (await api.good("GET", "/tasks"))["items"]] == ["y"]
    actions = [entry["action"] for entry in (await api.good("GET", "/audit"))["items"]]
    assert actions.count("delete_tasks") == 1


async def test_steps_follow_each_other_to_the_end_and_say_what_they_left(everywhere):
    api = everywhere
    for number in range(5):
        await api.create(name=f"t{number}", cron_expr="0 2 * * *")
    await api.good("POST", "/tasks/3/disable")
    steps: list[BulkStep] = []
    while not steps or steps[-1].next is not None:
        place = steps[-1].next if steps else None
        steps.append(await tasks_step(api.services, "disable", TaskQuery(), place, size=2))
    assert [[number for number, _ in step.done] for step in steps] == [[1, 2], [4], [5]]
    assert [(left.id, left.why) for step in steps for left in step.left] == [(3, "already")]
    assert {task["status"] for task in (await api.good("GET", "/tasks"))["items"]} == {"DISABLED"}


async def test_of_tasks_that_are_deleted_together_one_that_is_gone_keeps_only_itself(everywhere):
    api = everywhere
    for name in ("a", "b", "c"):
        await api.create(name=name)
    listed = (await api.services.store.tasks(TaskQuery(sort="id"))).items
    await api.good("DELETE", f"/tasks/{listed[1].id}")
    step = await change_tasks(api.services, "delete", listed)
    assert [name for _, name in step.done] == ["a", "c"]
    assert [(left.name, left.why) for left in step.left] == [("b", "gone")]
    assert (await api.good("GET", "/tasks"))["total"] == 0


async def test_a_step_of_runs_does_not_find_what_the_one_before_has_made(everywhere):
    api = everywhere
    task = await api.create(name="a", max_concurrency=None)
    runs = [await api.trigger(task) for _ in range(5)]
    for run in runs:
        await api.good("POST", f"/runs/{run}/cancel")
    steps: list[BulkStep] = []
    while not steps or steps[-1].next is not None:
        place = steps[-1].next if steps else None
        steps.append(await runs_step(api.services, "retry", RunQuery(), place, size=2))
    assert [number for step in steps for number, _ in step.done] == runs[::-1]
    assert (await api.good("GET", "/runs"))["total"] == 10


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
    await api.create(name="a", cron_expr="0 2 * * *", headers={"Authorization": "Bearer s3cret"})
    status, text, headers = await get(api, "/tasks/export")
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
