"""Many tasks in one call: created, changed, deleted; all of them or none, with every problem named by its place."""

from __future__ import annotations

import pytest

from integration.api.serving import HTTP, JOB, Api


async def three(api: Api) -> list[int]:
    tasks = [{**JOB, "name": name, "cron_expr": "@hourly"} for name in ("a", "b", "c")]
    told = await api.good("POST", "/tasks/batch", {"tasks": tasks}, 201)
    return [each["id"] for each in told["tasks"]]


async def versions(api: Api) -> dict[str, int]:
    return {task["name"]: task["version"] for task in (await api.good("GET", "/tasks"))["items"]}


async def test_a_batch_creates_changes_and_deletes(api_everywhere: Api):
    api = api_everywhere
    tasks = [
        {**HTTP, "name": "x", "cron_expr": "@daily", "headers": {"Authorization": "s3cret"}},
        {**JOB, "name": "y", "status": "DISABLED"},
    ]
    made = (await api.good("POST", "/tasks/batch", {"tasks": tasks}, 201))["tasks"]
    assert [(each["name"], each["next_fire_at"] is None) for each in made] == [("x", False), ("y", True)]
    x, y = (each["id"] for each in made)
    shown = await api.good("GET", f"/tasks/{x}")
    assert (shown["headers"], shown["next_fire_at"]) == ({"Authorization": "***"}, made[0]["next_fire_at"])

    edits = [
        {"id": y, "status": "ENABLED", "queue": "slow"},
        {"id": x, "version": 1, "retry_policy": {"max_retries": 2}},
    ]
    told = await api.good("PATCH", "/tasks/batch", {"tasks": edits})
    assert told == {"tasks": [{"id": y, "version": 2}, {"id": x, "version": 2}]}
    assert (await api.good("GET", f"/tasks/{y}"))["queue"] == "slow"
    assert (await api.good("GET", f"/tasks/{x}"))["retry_policy"]["max_retries"] == 2

    gone = {"tasks": [{"id": x, "version": 2}, {"id": y}]}
    assert await api.good("DELETE", "/tasks/batch?cancel_running=true", gone) == {"deleted": 2}
    assert await versions(api) == {}


async def test_as_many_as_a_batch_may_have(quick_api: Api):
    tasks = [{**JOB, "name": f"t{number}"} for number in range(10_000)]
    made = (await quick_api.good("POST", "/tasks/batch", {"tasks": tasks}, 201))["tasks"]
    assert [each["name"] for each in made] == [each["name"] for each in tasks]
    assert (await quick_api.good("GET", "/tasks"))["total"] == 10_000


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, {"tasks"}),
        ({"tasks": []}, {"tasks"}),
        ({"tasks": {"name": "a"}}, {"tasks"}),
        ({"tasks": [{**JOB, "name": "n"}] * 10_001}, {"tasks"}),
        ({"tasks": [{**JOB, "name": "n"}], "runs": []}, {"runs"}),
        (
            {
                "tasks": [
                    "x",
                    {**JOB, "name": "n", "cron_expr": "nope"},
                    {**JOB, "name": "m", "nope": 1, "priority": "x"},
                ]
            },
            {"tasks[0]", "tasks[1].cron_expr", "tasks[2].nope", "tasks[2].priority"},
        ),
    ],
)
async def test_a_wrong_batch_creates_nothing_and_names_each_problem(quick_api: Api, body, named):
    told = await quick_api.call("POST", "/tasks/batch", body)
    assert (told.status, set(told.body["details"])) == (400, named)
    assert await versions(quick_api) == {}


async def test_names_that_are_taken_are_named(api_everywhere: Api):
    await three(api_everywhere)
    tasks = [{**JOB, "name": name} for name in ("new", "b", "c", "new")]
    told = await api_everywhere.call("POST", "/tasks/batch", {"tasks": tasks})
    assert (told.status, told.code) == (409, "ALREADY_EXISTS")
    assert set(told.body["details"]) == {"tasks[1].name", "tasks[2].name", "tasks[3].name"}
    assert set(await versions(api_everywhere)) == {"a", "b", "c"}


async def test_a_wrong_batch_of_changes_changes_nothing(api_everywhere: Api):
    api = api_everywhere
    a, b, c = await three(api)
    for edits, status, named in (
        ([{"id": a, "priority": 5}, {"id": b, "priority": "x"}, {"id": c, "nope": 1}], 400, ["tasks[1].priority", "tasks[2].nope"]),
        ([{"id": a, "priority": 5}, {"id": 999, "priority": 5}, {"id": b, "version": 7}], 404, ["tasks[1]", "tasks[2]"]),
        ([{"id": a, "priority": 5}, {"id": b, "version": 7}], 412, ["tasks[1]"]),
        ([{"id": a, "priority": 5}, {"id": b, "name": "c"}], 409, ["tasks[1].name"]),
        ([{"id": a, "priority": 5}, {"id": a, "priority": 6}], 400, ["tasks[1].id"]),
        ([{"priority": 5}, {"id": "b"}, {"id": True}, {"id": b, "version": "x"}], 400,
         ["tasks[0].id", "tasks[1].id", "tasks[2].id", "tasks[3].version"]),
    ):  # fmt: skip
        told = await api.call("PATCH", "/tasks/batch", {"tasks": edits})
        assert (told.status, sorted(told.body["details"])) == (status, named), told.text
        assert await versions(api) == {"a": 1, "b": 1, "c": 1}


async def test_a_wrong_batch_of_deletions_deletes_nothing(api_everywhere: Api):
    api = api_everywhere
    a, b, _ = await three(api)
    for tasks, status, named in (
        ([{"id": a}, {"id": 999}], 404, ["tasks[1]"]),
        ([{"id": a}, {"id": b, "version": 2}], 412, ["tasks[1]"]),
        ([{"id": a}, {"id": a}], 400, ["tasks[1].id"]),
        ([{"id": a, "priority": 1}, 7], 400, ["tasks[0].priority", "tasks[1]"]),
    ):
        told = await api.call("DELETE", "/tasks/batch", {"tasks": tasks})
        assert (told.status, sorted(told.body["details"])) == (status, named), told.text
        assert await versions(api) == {"a": 1, "b": 1, "c": 1}


async def test_a_batch_is_never_the_task_of_that_name(quick_api: Api):
    await quick_api.good("POST", "/tasks", {**JOB, "name": "batch"}, 201)
    assert (await quick_api.call("GET", "/tasks/batch")).status == 405
    assert (await quick_api.good("GET", "/tasks/name:batch"))["name"] == "batch"


async def test_files_create_their_tasks_in_one_transaction(api_everywhere: Api):
    api = api_everywhere
    declared = [{**JOB, "name": f"t{number}"} for number in range(30)]
    told = await api.good("POST", "/tasks/apply", {"owner": "x", "tasks": declared})
    assert told["created"] == [each["name"] for each in declared]
    shown = (await api.good("GET", "/tasks?page_size=100"))["items"]
    assert {task["created_at"] for task in shown} == {shown[0]["created_at"]}
    declared = [*declared[5:], {**JOB, "name": "new"}, {**JOB, "name": "newer"}]
    told = await api.good("POST", "/tasks/apply", {"owner": "x", "tasks": declared, "prune": True})
    assert (told["created"], len(told["unchanged"]), len(told["pruned"])) == (["new", "newer"], 25, 5)


async def test_a_file_may_give_an_external_id_to_a_new_task(api_everywhere: Api):
    api = api_everywhere
    first = [{**JOB, "name": "old", "external_id": "e"}]
    await api.good("POST", "/tasks/apply", {"owner": "x", "tasks": first})
    second = [{**JOB, "name": "old"}, {**JOB, "name": "new", "external_id": "e"}, {**JOB, "name": "newer"}]
    told = await api.good("POST", "/tasks/apply", {"owner": "x", "tasks": second})
    assert told["created"] == ["new", "newer"]
    assert (await api.good("GET", "/tasks/name:new"))["external_id"] == "e"
