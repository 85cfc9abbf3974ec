"""Tasks over HTTP: each call and its answer."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from integration.api.serving import HTTP, JOB, Api


async def test_the_life_of_a_task(api_everywhere: Api):
    api = api_everywhere
    made = await api.good("POST", "/tasks", {**HTTP, "cron_expr": "*/5 * * * *", "description": "统计"}, 201)
    assert (made["id"], made["name"], len(made["next_fires"])) == (1, "a", 5)
    assert set(made) == {"id", "name", "next_fires", "notes"}

    task = await api.good("GET", "/tasks/1")
    assert (task["cron_expr"], task["status"], task["version"]) == ("0 */5 * * * *", "ENABLED", 1)
    assert (task["description"], task["active_runs"], task["queued_runs"]) == ("统计", 0, 0)
    assert task["next_fire_at"] == made["next_fires"][0]["utc"]

    changed = await api.good("PATCH", "/tasks/1", {"cron_expr": "*/10 * * * * *"})
    assert (changed["updated"], changed["version"]) == (True, 2)
    changed = await api.good("PUT", "/tasks/1", {**HTTP, "cron_expr": "0 0 * * *"})
    assert changed["version"] == 3
    assert (await api.good("GET", "/tasks/1"))["description"] == ""

    assert await api.good("PATCH", "/tasks/1/disable") == {"status": "DISABLED"}
    assert (await api.good("GET", "/tasks/1"))["next_fire_at"] is None
    assert await api.good("POST", "/tasks/1/enable") == {"status": "ENABLED"}

    run_id = await api.trigger(1)
    task = await api.good("GET", "/tasks/1")
    assert (task["queued_runs"], task["last_run_id"], task["last_run_status"]) == (1, run_id, "SCHEDULED")

    assert await api.good("DELETE", "/tasks/1") == {"deleted": True}
    assert await api.bad("GET", "/tasks/1") == (404, "NOT_FOUND")
    assert (await api.good("GET", f"/runs/{run_id}"))["status"] == "CANCELED"
    assert (await api.good("GET", "/tasks/1/runs"))["total"] == 1
    assert await api.create() == 2


async def test_times_are_rfc_3339_in_utc(quick_api: Api):
    await quick_api.create(cron_expr="* * * * *", timezone="Asia/Shanghai")
    task = await quick_api.good("GET", "/tasks/1")
    for name in ("created_at", "updated_at", "next_fire_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", task[name])
    (first, *_) = (await quick_api.good("GET", "/tasks/1/next"))["next_fires"]
    assert first["utc"].endswith("Z")
    assert first["local"].endswith("+08:00")


@pytest.mark.parametrize(
    "name", ["nightly", "a/b", "统计 同步", "50% off?", "x:y", "name:z", "../up", "a//b", "a%2Fb", "#1"]
)
async def test_a_task_is_found_by_its_name(quick_api: Api, name):
    await quick_api.create(name=name)
    address = f"/tasks/name:{quote(name, safe='')}"
    from yarl import URL

    told = await quick_api.session.get(URL(f"{quick_api.root}/api/v1{address}", encoded=True))
    assert (await told.json())["name"] == name
    told = await quick_api.session.post(URL(f"{quick_api.root}/api/v1{address}/trigger", encoded=True))
    assert set(await told.json()) == {"run_id"}


@pytest.mark.parametrize("bad", ["abc", "0", "-1", "1.5", "9" * 30, "1e3", "name:", "%00", "%E2%91%A0", "1%20or%201=1"])
async def test_what_is_no_id_is_told_so(quick_api: Api, bad):
    status, code = await quick_api.bad("GET", f"/tasks/{bad}")
    assert (status, code) in [(400, "INVALID_ID"), (400, "INVALID_ARGUMENT")]


async def test_a_name_is_taken_once(api_everywhere: Api):
    await api_everywhere.create()
    told = await api_everywhere.call("POST", "/tasks", HTTP)
    assert (told.status, told.code, told.body["details"]["id"]) == (409, "ALREADY_EXISTS", 1)
    await api_everywhere.create(name="b", external_id="e")
    assert await api_everywhere.bad("POST", "/tasks", {**HTTP, "name": "c", "external_id": "e"}) == (
        409,
        "ALREADY_EXISTS",
    )
    assert await api_everywhere.bad("PATCH", "/tasks/2", {"name": "a"}) == (409, "ALREADY_EXISTS")


async def test_every_wrong_field_is_named_and_nothing_is_saved(api: Api):
    told = await api.call("POST", "/tasks", {"name": "", "cron_expr": "x", "colour": "red", "max_concurrency": -1})
    assert (told.status, told.code) == (400, "INVALID_ARGUMENT")
    assert set(told.body["details"]) == {"name", "cron_expr", "colour", "max_concurrency", "target_url"}
    assert (await api.good("GET", "/tasks"))["total"] == 0


@pytest.mark.parametrize(
    ("header", "status"),
    [('"1"', 200), ("1", 200), ('W/"1"', 200), ("*", 200), (None, 200), ('"2"', 412), ("x", 400)],
)
async def test_if_match_guards_a_change(quick_api: Api, header, status):
    await quick_api.create()
    headers = {} if header is None else {"If-Match": header}
    for method, path, body in (
        ("PATCH", "/tasks/1/disable", None),
        ("PUT", "/tasks/1", {**HTTP, "description": "p"}),
        ("PATCH", "/tasks/1", {"description": "q"}),
        ("DELETE", "/tasks/1", None),
    ):
        told = await quick_api.call(method, path, body, headers=headers)
        assert told.status == status, (method, path, told.text)
        if status == 412:
            assert told.code == "VERSION_CONFLICT"
            assert told.body["details"]["version"] == 1
        if status == 200 and header not in (None, "*"):
            break


async def test_the_etag_is_the_version(api: Api):
    await api.create()
    told = await api.call("GET", "/tasks/1")
    assert told.headers["etag"] == '"1"'
    told = await api.call("PATCH", "/tasks/1", {"description": "x"}, headers={"If-Match": told.headers["etag"]})
    assert (told.status, told.headers["etag"]) == (200, '"2"')


async def test_a_version_in_the_body_guards_too(api: Api):
    await api.create()
    assert await api.bad("PATCH", "/tasks/1", {"description": "x", "version": 7}) == (412, "VERSION_CONFLICT")
    assert (await api.good("PATCH", "/tasks/1", {"description": "x", "version": 1}))["version"] == 2


async def test_a_task_can_be_sent_back_as_it_was_read(api_everywhere: Api):
    api = api_everywhere
    await api.create(
        headers={"Authorization": "Bearer canary"}, secret="whsec_canary", cron_expr="* * * * *", labels={"a": "b"}
    )
    task = await api.good("GET", "/tasks/1")
    assert task["headers"] == {"Authorization": "***"}
    for method in ("PUT", "PATCH"):
        assert (await api.good(method, "/tasks/1", task))["version"] == 1
    spec = (await api.store.task(1)).spec
    assert (spec.headers, spec.secret) == ({"Authorization": "Bearer canary"}, "whsec_canary")


async def test_a_change_that_is_repeated_changes_nothing(api: Api):
    every = {"type": "interval", "every": 30, "unit": "second"}
    await api.create(schedule=every)
    before = await api.good("GET", "/tasks/1")
    assert (await api.good("PUT", "/tasks/1", {**HTTP, "schedule": every}))["version"] == 1
    assert await api.good("GET", "/tasks/1") == before


async def test_pages_of_tasks(api_everywhere: Api):
    api = api_everywhere
    for number in range(5):
        await api.create(name=f"task-{number}", labels={"odd": str(number % 2)})
    await api.good("POST", "/tasks/2/disable")
    page = await api.good("GET", "/tasks?page=2&page_size=2&sort=-name")
    assert set(page) == {"items", "total", "page", "page_size", "next_cursor"}
    assert [item["name"] for item in page["items"]] == ["task-2", "task-1"]
    assert (page["total"], page["page"], page["page_size"]) == (5, 2, 2)

    names, cursor = [], None
    page = await api.good("GET", "/tasks?page_size=2")
    while True:
        names += [item["name"] for item in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
        page = await api.good("GET", f"/tasks?page_size=2&cursor={cursor}")
        assert page["total"] is None
    assert names == [f"task-{number}" for number in range(5)]

    assert (await api.good("GET", "/tasks?status=DISABLED"))["total"] == 1
    assert (await api.good("GET", "/tasks?name=K-3"))["items"][0]["id"] == 4
    assert (await api.good("GET", "/tasks?label=odd=1"))["total"] == 2
    assert (await api.good("GET", "/tasks?queue=http&managed_by=api"))["total"] == 5


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("page=0", "page"),
        ("page=x", "page"),
        ("page_size=0", "page_size"),
        ("page_size=1001", "page_size"),
        ("status=enabled", "status"),
        ("status=ENABLED,DISABLED", "status"),
        ("sort=secret", "sort"),
        ("sort=name;drop table tasks", "sort"),
        ("label=x", "label"),
        ("cursor=abc", "cursor"),
        ("cursor=MTIz", "cursor"),
        ("cursor=WyJpZCIsbnVsbCwieCJd", "cursor"),
        ("include_system=maybe", "include_system"),
        ("naem=x", "naem"),
        ("page=1&page=2", "page"),
    ],
)
async def test_a_wrong_parameter_is_named(api_everywhere: Api, query, named):
    told = await api_everywhere.call("GET", f"/tasks?{query}")
    assert (told.status, told.code, list(told.body["details"])) == (400, "INVALID_ARGUMENT", [named])


async def test_other_calls_refuse_parameters_that_they_do_not_have(quick_api: Api):
    await quick_api.create()
    for method, path in (("GET", "/tasks/1"), ("POST", "/tasks/1/trigger"), ("DELETE", "/tasks/1")):
        assert await quick_api.bad(method, f"{path}?loudly=1") == (400, "INVALID_ARGUMENT")


async def test_skip_reset_pause_and_resume(api: Api):
    await api.create(cron_expr="* * * * *")
    assert await api.good("POST", "/tasks/1/skip", {"count": 3}) == {"skip_next": 3}
    assert (await api.good("GET", "/tasks/1"))["skip_next"] == 3
    assert await api.good("POST", "/tasks/1/skip") == {"skip_next": 1}
    assert await api.bad("POST", "/tasks/1/skip", {"count": "x"}) == (400, "INVALID_ARGUMENT")
    assert await api.good("POST", "/tasks/1/pause") == {"status": "DISABLED"}
    assert await api.good("POST", "/tasks/1/resume") == {"status": "ENABLED"}
    assert await api.good("POST", "/tasks/1/reset") == {"status": "ENABLED"}
    assert (await api.good("PATCH", "/tasks/1", {"skip_next": 0}))["updated"]
    assert (await api.good("GET", "/tasks/1"))["skip_next"] == 0


async def test_many_tasks_are_switched_by_filter(api: Api):
    for number in range(4):
        await api.create(name=f"t{number}", labels={"team": "a" if number < 3 else "b"})
    body = {"filter": {"label": "team=a"}}
    assert await api.good("POST", "/tasks/disable", body) == {"status": "DISABLED", "changed": 3}
    assert await api.good("POST", "/tasks/disable", body) == {"status": "DISABLED", "changed": 0}
    assert await api.good("POST", "/tasks/enable", {"all": True}) == {"status": "ENABLED", "changed": 3}
    assert await api.bad("POST", "/tasks/enable", {}) == (400, "INVALID_ARGUMENT")
    told = await api.call("POST", "/tasks/enable", {"filter": {"team": "a", "page": 1}})
    assert set(told.body["details"]) == {"filter.team", "filter.page"}


async def test_next_slots_follow_the_cursor(api: Api):
    await api.create(schedule={"type": "cron", "expr": "0 0 * * *", "repeat": 2})
    coming = await api.good("GET", "/tasks/1/next?count=10")
    assert len(coming["next_fires"]) == 2
    assert coming["description"]
    await api.good("POST", "/tasks/1/disable")
    assert (await api.good("GET", "/tasks/1/next"))["next_fires"] == []


async def test_preview(api: Api):
    told = await api.good(
        "POST",
        "/schedules/preview",
        {"cron_expr": "0 */5 * * *", "timezone": "Asia/Shanghai", "count": 2, "from": "2026-11-15T00:00:00Z"},
    )
    assert told["next_fires"] == [
        {"utc": "2026-11-15T02:00:00Z", "local": "2026-11-15T10:00:00+08:00"},
        {"utc": "2026-11-15T07:00:00Z", "local": "2026-11-15T15:00:00+08:00"},
    ]
    assert {note["code"] for note in told["notes"]} >= {"uneven_step"}
    chinese = await api.call(
        "POST", "/schedules/preview", {"cron_expr": "@daily"}, headers={"Accept-Language": "zh-CN,en;q=0.5"}
    )
    assert re.search(r"[\u4e00-\u9fff]", chinese.body["description"])


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, {"schedule"}),
        ({"cron_expr": "x"}, {"cron_expr"}),
        ({"cron_expr": "* * * * *", "schedule": {"type": "once"}}, {"cron_expr"}),
        ({"schedule": {"type": "cron", "expr": "0 0 30 2 *"}, "timezone": "x"}, {"schedule.expr", "timezone"}),
        ({"cron_expr": "@daily", "count": 0, "from": "now", "zone": 1}, {"count", "from", "zone"}),
    ],
)
async def test_a_preview_names_what_is_wrong(quick_api: Api, body, named):
    told = await quick_api.call("POST", "/schedules/preview", body)
    assert (told.status, set(told.body["details"])) == (400, named)


async def test_deleting_with_purge_leaves_nothing(api: Api):
    await api.create()
    run_id = await api.trigger(1)
    assert await api.good("DELETE", "/tasks/1?purge=true") == {"deleted": True}
    assert await api.bad("GET", f"/runs/{run_id}") == (404, "NOT_FOUND")
    assert await api.bad("GET", "/tasks/1/runs") == (404, "NOT_FOUND")


async def test_deleting_can_stop_what_runs(api: Api):
    await api.create()
    run_id = await api.trigger(1)
    await api.claim()
    await api.good("DELETE", "/tasks/1?cancel_running=true")
    assert (await api.good("GET", f"/runs/{run_id}"))["status"] == "CANCELED"


async def test_a_job_is_a_task_too(api: Api):
    await api.good("POST", "/tasks", {**JOB, "payload": {"size": 3}, "queue": "images"}, 201)
    task = await api.good("GET", "/tasks/1")
    assert (task["exec_type"], task["queue"], task["payload"]) == ("JOB", "images", {"size": 3})
    assert task["max_concurrency"] is None


async def test_if_match_and_ten_writers_have_one_winner(api_everywhere: Api):
    import asyncio

    await api_everywhere.create()
    told = await asyncio.gather(
        *(
            api_everywhere.call("PATCH", "/tasks/1", {"description": str(n)}, headers={"If-Match": '"1"'})
            for n in range(10)
        )
    )
    assert sorted(each.status for each in told) == [200] + [412] * 9
