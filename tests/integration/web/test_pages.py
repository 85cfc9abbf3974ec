"""Every page over real HTTP, without a browser: on each store, for each role, and for those who are up to something."""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import pytest

from integration.api.serving import HTTP, Api
from noonbell.model.access import Role
from noonbell.web.routes import PAGES

HTML = {"accept": "text/html"}


async def get(api: Api, path: str, **more: Any) -> tuple[int, str, dict[str, str]]:
    told = await api.call("GET", f"/{path}", headers=HTML, allow_redirects=False, **more)
    return told.status, told.text, told.headers


async def post(
    api: Api, path: str, data: dict[str, str] | None = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    sent = {"origin": api.root, "accept": "text/html", **headers}
    told = await api.call("POST", f"/{path}", data=data or {}, headers=sent, allow_redirects=False)
    return told.status, told.headers, told.text


async def test_every_page_answers_on_every_store(everywhere):
    api = everywhere
    task = await api.create(name="a", cron_expr="*/5 * * * *", labels={"team": "x"})
    other = await api.create(name="b", exec_type="ASYNC")
    job = await api.create(name="c", target_url=None, job_type="resize", payload={"a": 1})
    run = await api.trigger(task)
    lease = await api.claim()
    await api.finish(lease, "FAILED", error_message="it was not to be")
    await api.trigger(other)
    await api.park(await api.claim())
    await api.trigger(job)
    await api.good("POST", "/subscriptions", {"name": "hook", "url": "http://127.0.0.1:8999/x", "types": ["run"]}, 201)
    bulk = await api.good("POST", "/bulk", {"kind": "cancel_runs", "filter": {"task": "no such task"}})
    paths = [
        *("/", "/tasks", "/tasks?name=a&status=ENABLED&label=team=x&sort=next_fire_at", "/tasks?status=wrong"),
        *("/tasks/new", f"/tasks/{task}", f"/tasks/{task}?at=2026-01-01T00:00:00", f"/tasks/{task}?at=nonsense"),
        *(
            "/tasks/name:b",
            f"/tasks/{job}/edit",
            f"/tasks/{task}/edit",
            f"/tasks/{task}/delete",
            f"/tasks/{job}/run",
            f"/tasks/new?from={task}",
        ),
        *("/tasks/bulk?act=disable&name=a", "/runs", "/runs?status=FAILED,TIMEOUT&text=not+to+be", "/runs?from=x"),
        *(f"/runs?task={task}", f"/runs/{run}", f"/runs/{run}/replay", "/runs/bulk?act=retry", "/runs/bulk?act=cancel"),
        *("/bulk", f"/bulk/{bulk['id']}"),
        *(
            "/timeline",
            "/timeline?span=7d",
            "/calls",
            "/calls?status=FAILED&queue=q&key=k",
            "/calendars",
            "/sla",
            "/sla?days=7&label=team=x&queue=q",
            "/queues",
            "/workers",
            "/activity",
            "/activity/check",
            "/settings",
            "/settings/subscriptions",
            "/settings/new/subscription",
            "/settings/subscriptions/hook",
            "/settings/subscriptions/hook/edit",
            "/settings/subscriptions/hook/remove",
        ),
    ]
    for lang in ("en", "zh"):
        for path in paths:
            told = await api.call("GET", f"/{path}", headers={**HTML, "accept-language": lang})
            assert told.status == 200, (path, told.text[-2000:])
            assert f'<html lang="{"zh-CN" if lang == "zh" else "en"}"' in told.text


async def test_buttons_do_what_the_api_does_and_the_audit_log_has_it(everywhere):
    api = everywhere
    task = await api.create(name="a", cron_expr="*/5 * * * *")
    for act, status in (("disable", "DISABLED"), ("enable", "ENABLED")):
        assert (await post(api, f"/tasks/{task}/{act}"))[0] == 303
        assert (await api.good("GET", f"/tasks/{task}"))["status"] == status
    assert (await post(api, f"/tasks/{task}/skip", {"count": "3"}))[0] == 303
    assert (await api.good("GET", f"/tasks/{task}"))["skip_next"] == 3
    _, headers, _ = await post(api, f"/tasks/{task}/trigger", {"open": "1"})
    run = int(re.search(r"runs/(\d+)", headers["location"])[1])
    assert (await post(api, f"/runs/{run}/cancel"))[0] == 303
    assert (await api.good("GET", f"/runs/{run}"))["status"] == "CANCELED"
    _, headers, _ = await post(api, f"/runs/{run}/retry")
    again = int(re.search(r"runs/(\d+)", headers["location"])[1])
    assert (await api.good("GET", f"/runs/{again}"))["retry_of_run_id"] == run
    await post(api, "/queues/http/pause")
    assert (await api.good("GET", "/queues/http"))["paused"]
    actions = [entry["action"] for entry in (await api.good("GET", "/audit"))["items"]]
    assert [name for name in actions if name != "create_task"] == [
        *("pause_queue", "retry_run", "cancel_run", "trigger_task", "skip_slots", "enable_task", "disable_task"),
    ]


async def test_a_task_is_made_changed_and_deleted_by_forms(api):
    fields = {"name": "made", "kind": "http", "target_url": "http://127.0.0.1:9/x", "when": "cron", "enabled": "on"}
    _, headers, _ = await post(
        api, "/tasks/new", {**fields, "cron_expr": "0 2 * * *", "headers": "Authorization: s3cret"}
    )
    task = int(re.search(r"tasks/(\d+)", headers["location"])[1])
    assert (await api.good("GET", f"/tasks/{task}"))["cron_expr"] == "0 0 2 * * *"
    changed = {**fields, "cron_expr": "0 3 * * *", "headers": "Authorization: ***", "version": "1"}
    assert (await post(api, f"/tasks/{task}/edit", changed))[0] == 303
    stored = await api.services.tasks.get(task)
    assert (stored.version, stored.spec.headers) == (2, {"Authorization": "s3cret"})
    status, _, text = await post(api, f"/tasks/{task}/edit", {**changed, "cron_expr": "0 4 * * *"})
    assert (status, "Someone else changed this task" in text) == (412, True)
    assert "0 4 * * *" in text.split('<form method="post" class="form"')[0]
    assert "0 3 * * *" in text.split('<form method="post" class="form"')[0]
    assert 'name="version" value="2"' in text
    assert (await post(api, f"/tasks/{task}/delete", {"name": "other"}))[0] == 400
    assert (await post(api, f"/tasks/{task}/delete", {"name": "made"}))[0] == 303
    assert await api.bad("GET", f"/tasks/{task}") == (404, "NOT_FOUND")


async def test_the_preview_says_how_many_other_tasks_start_at_the_same_time(everywhere):
    api = everywhere
    for number in range(3):
        await api.create(name=f"t{number}", cron_expr="0 2 * * *")
    await api.create(name="later", cron_expr="1 2 * * *")
    _, _, text = await post(api, "/tasks/preview", {"when": "cron", "cron_expr": "0 2 * * *", "timezone": "UTC"})
    assert "3 other tasks start at the same time" in text
    fields = {"when": "cron", "cron_expr": "0 2 * * *", "timezone": "UTC", "task_id": "1"}
    assert "2 other tasks start at the same time" in (await post(api, "/tasks/preview", fields))[2]
    alone = {"when": "cron", "cron_expr": "5 2 * * *", "timezone": "UTC"}
    assert "at the same time" not in (await post(api, "/tasks/preview", alone))[2]


async def test_secrets_of_a_task_are_on_no_page(api):
    task = await api.create(name="a", headers={"Authorization": "Bearer s3cret-value"}, secret="whsec_very-hidden")
    await api.good("PATCH", f"/tasks/{task}", {"headers": {"Authorization": "Bearer s3cret-other"}})
    run = await api.trigger(task)
    for path in (f"/tasks/{task}", f"/tasks/{task}/edit", f"/tasks/new?from={task}", f"/runs/{run}", "/activity"):
        text = (await get(api, path))[1]
        assert "s3cret" not in text, path
        assert "very-hidden" not in text, path


async def test_a_task_that_a_file_manages_is_changed_only_when_it_is_detached(api):
    task = await api.create(name="a", managed_by="file:billing.yaml")
    fields = {"name": "a", "kind": "http", "target_url": "http://127.0.0.1:9/y", "when": "none", "version": "1"}
    status, _, text = await post(api, f"/tasks/{task}/edit", fields)
    assert (status, "managed by file:billing.yaml" in text) == (400, True)
    assert (await post(api, f"/tasks/{task}/edit", {**fields, "detach": "on"}))[0] == 303
    assert (await api.good("GET", f"/tasks/{task}"))["managed_by"] == "api"


# Headers and addresses


async def test_pages_have_a_strict_policy_and_no_script_or_style_of_their_own(api):
    await api.create(name="a")
    for path in (
        "/",
        "/tasks",
        "/tasks/1",
        "/tasks/new",
        "/runs",
        "/timeline",
        "/calls",
        "/queues",
        "/workers",
        "/settings",
        "/nowhere",
    ):
        _, text, headers = await get(api, path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert re.search(r"<script(?![^>]* src=)|<style| style=| on[a-z]+=|javascript:", text) is None, path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


async def test_static_files_are_kept_for_ever_under_their_hash_and_not_under_another(api):
    text = (await get(api, "/"))[1]
    path = re.search(r'href="\.(/static/[0-9a-f]+/app\.css)"', text)[1]
    told = await api.call("GET", f"/{path}")
    assert "immutable" in told.headers["cache-control"]
    old = await api.call("GET", f"/{re.sub('/static/[0-9a-f]+', '/static/000000', path)}")
    assert (old.status, old.headers["cache-control"]) == (200, "no-cache")
    assert (await api.call("GET", "//static/x/..%2f__init__.py")).status == 404


async def test_what_is_not_there_is_a_page_for_people_and_json_for_programs(api):
    status, text, headers = await get(api, "/no/such/page")
    assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Not found" in text
    assert await api.bad("GET", "//no/such/page") == (404, "NOT_FOUND")
    assert (await api.bad("GET", "/nothing", headers=HTML)) == (404, "NOT_FOUND")
    assert (await api.bad("GET", "/tasks/1/trigger", headers=HTML))[0] == 405
    for path in ("/tasks/999", "/tasks/xyz", "/runs/1", "/runs/x"):
        assert (await get(api, path))[0] == 404


# Who may


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "origin": ""},
        {"sec-fetch-site": "same-site", "origin": ""},
    ],
)
async def test_a_form_of_another_site_changes_nothing(api, headers):
    task = await api.create(name="a")
    sent = {name: value for name, value in headers.items() if value}
    told = await api.call("POST", f"//tasks/{task}/disable", data={}, headers={**HTML, **sent}, allow_redirects=False)
    assert told.status == 403
    told = await api.call("POST", f"//tasks/{task}/disable", data={}, headers=HTML, allow_redirects=False)
    assert told.status == 403
    assert (await api.good("GET", f"/tasks/{task}"))["status"] == "ENABLED"


async def sign_in(api: Api, role: str) -> aiohttp.CookieJar:
    queues = ("default",) if role == Role.WORKER else ()
    _, secret = await api.parts.access.create(f"{role}-token", role, queues=queues)
    status, headers, _ = await post(api, "/login", {"token": secret, "next": "/tasks"})
    assert (status, headers["location"]) == (303, "./tasks")
    return headers["set-cookie"].split(";")[0]


async def test_without_a_token_every_page_but_the_door_is_shut(guarded):
    for page in PAGES:
        path = re.sub(r"\{\w+\}", "1", page.path)
        guarded.session.cookie_jar.clear()
        if page.role is None:
            continue
        if page.method == "GET":
            status, _, headers = await get(guarded, path)
            assert (status, "login?next=" in headers["location"]) == (303, True), path
        else:
            assert (await post(guarded, path))[0] == 401, path


async def test_a_role_reaches_as_far_as_the_page_says_and_no_further(guarded):
    for role in Role:
        cookie = await sign_in(guarded, role)
        for page in PAGES:
            if page.role is None:
                continue
            guarded.session.cookie_jar.clear()
            path = re.sub(r"\{\w+\}", "999", page.path)
            if page.method == "GET":
                status = (await get(guarded, path, cookies=_pair(cookie)))[0]
            else:
                status = (await post(guarded, path, cookie=cookie))[0]
            assert (status == 403) == (not role.includes(page.role)), (role, page.method, path, status)


def _pair(cookie: str) -> dict[str, str]:
    name, _, value = cookie.partition("=")
    return {name: value}


async def test_a_session_reads_the_api_and_changes_nothing_there(guarded):
    cookie = {"cookie": await sign_in(guarded, "admin")}
    guarded.session.cookie_jar.clear()
    assert (await guarded.call("GET", "/tasks", headers=cookie)).status == 200
    assert (await guarded.call("POST", "/tasks", HTTP, headers=cookie)).status == 401
    assert (await guarded.call("GET", "/tasks")).status == 401


async def test_a_session_that_was_tampered_with_is_none(guarded):
    name, _, value = (await sign_in(guarded, "viewer")).partition("=")
    guarded.session.cookie_jar.clear()
    number, until, mark = value.split(".")
    for forged in (
        f"{int(number) + 1}.{until}.{mark}",
        f"{number}.{int(until) + 9}.{mark}",
        f"{number}.{until}.{'0' * 64}",
        "x",
    ):
        assert (await get(guarded, "/", cookies={name: forged}))[0] == 303
    assert (await get(guarded, "/", cookies={name: value}))[0] == 200


async def test_guessing_tokens_is_slowed_down(guarded):
    statuses = [(await post(guarded, "/login", {"token": f"nb_{number}"}))[0] for number in range(12)]
    assert statuses == [401] * 10 + [429] * 2


async def test_signing_in_leads_to_no_other_site(guarded):
    _, secret = await guarded.parts.access.create("t", "viewer")
    _, headers, _ = await post(guarded, "/login", {"token": secret, "next": "//evil.example/"})
    assert headers["location"] == "./"


async def test_a_run_leads_to_the_ones_of_its_task_before_and_after_it(everywhere):
    api = everywhere
    task, other = await api.create(name="a"), await api.create(name="b")
    runs = [await api.trigger(each) for each in (task, other, task, task)]
    text = (await get(api, f"/runs/{runs[2]}"))[1]
    assert f'href="../runs/{runs[0]}" data-key="["' in text
    assert f'href="../runs/{runs[3]}" data-key="]"' in text
    assert 'data-key="["' not in (await get(api, f"/runs/{runs[0]}"))[1]


async def test_every_page_says_first_that_the_node_cannot_work_or_plans_late(api):
    api.health.update({"ok": False, "store": {"error": "no route to the database"}})
    assert "not working: no route to the database" in (await get(api, "/"))[1]
    api.health.update({"ok": True, "planner": {"lag_seconds": 90.0}})
    assert "Planning is 1 m 30 s behind" in (await get(api, "/tasks"))[1]
    api.health.update({"planner": {"lag_seconds": 0.2}})
    assert 'role="alert"' not in (await get(api, "/tasks"))[1]
