"""A run with parameters: the form has a box for each field of the job's signature, and what is wrong is said at its box."""

from __future__ import annotations

import re
from typing import Literal

from integration.web.asking import field, get, post
from noonbell import App


def job_schema() -> dict[str, object]:
    app = App()

    @app.job
    def resize(
        picture: str, width: int, kind: Literal["jpg", "png"] = "jpg", crop: bool = False, tags: list[str] | None = None
    ):
        del picture, width, kind, crop, tags

    return dict(resize.declared.task["meta"]["payload_schema"])


async def created(api, **more) -> int:
    fields = {"name": "resize", "job_type": "resize", "queue": "pictures", **more}
    return int((await api.good("POST", "/tasks", fields, 201))["id"])


async def test_the_form_is_made_from_the_signature_and_makes_the_run_that_it_says(everywhere):
    api = everywhere
    task = await created(api, meta={"payload_schema": job_schema()}, payload={"width": 80, "source": "web"})
    page = await get(api, f"/tasks/{task}/run")
    assert 'value="80"' in field(page, "p.width")
    assert "<option>png</option>" in field(page, "p.kind")
    assert "<textarea" in field(page, "p.tags")
    sent = {"p.picture": "cat", "p.width": "200", "p.kind": "png", "p.crop": "true", "p.tags": '["a"]'}
    status, place, _ = await post(
        api, f"/tasks/{task}/run", {**sent, "key": "cat-1", "delay_seconds": "60", "priority": "7"}
    )
    assert status == 303
    run = await api.good("GET", place.replace("/runs", "/runs"))
    assert run["payload"] == {
        "source": "web", "picture": "cat", "width": 200, "kind": "png", "crop": True, "tags": ["a"],
    }  # fmt: skip
    assert (run["key"], run["priority"], run["status"]) == ("cat-1", 7, "SCHEDULED")
    assert run["run_at"] > run["created_at"]


async def test_a_box_that_may_stay_empty_says_what_the_job_takes_then(api):
    app = App()

    @app.job
    def resize(picture: str, width: int = 80, crop: bool = False, api_token: str = "hush", note: str = ""):  # noqa: S107
        del picture, width, crop, api_token, note

    schema = dict(resize.declared.task["meta"]["payload_schema"])
    assert "hush" not in str(schema)
    task = await created(api, meta={"payload_schema": schema})
    page = await get(api, f"/tasks/{task}/run")
    assert "Default: 80" in field(page, "p.width")
    assert "Default: false" in field(page, "p.crop")
    assert [name for name in ("api_token", "note") if "Optional" not in field(page, f"p.{name}")] == []
    assert "默认：80" in field(await get(api, f"/tasks/{task}/run", "zh"), "p.width")
    odd = {"properties": {"width": {"type": "integer", "default": ["<b>"]}}}
    task = await created(api, name="odd", meta={"payload_schema": odd})
    assert "Optional" in field(await get(api, f"/tasks/{task}/run"), "p.width")


async def test_what_is_wrong_is_said_at_its_box_and_no_run_is_made(api):
    task = await created(api, meta={"payload_schema": job_schema()})
    sent = {"p.picture": "cat", "p.width": "wide", "p.tags": "[", "priority": "much"}
    status, _, page = await post(api, f"/tasks/{task}/run", sent)
    assert status == 400
    assert "expected a number" in field(page, "p.width")
    assert 'class="problem"' in field(page, "p.tags")
    assert 'value="cat"' in field(page, "p.picture")
    status, _, page = await post(api, f"/tasks/{task}/run", {"p.picture": "cat"})
    assert "is missing" in field(page, "p.width")
    status, _, page = await post(api, f"/tasks/{task}/run", {"p.picture": "", "p.width": "1"})
    assert (status, "is missing" in field(page, "p.picture")) == (400, True)
    status, _, page = await post(api, f"/tasks/{task}/run", {"p.picture": "cat", "p.width": "1", "priority": "much"})
    assert (status, 'id="p-priority"' in page) == (400, True)
    assert (await api.good("GET", f"/runs?task={task}"))["total"] == 0


async def test_without_a_schema_the_payload_is_json_and_an_http_task_has_its_body(api):
    task = await created(api, payload={"a": 1})
    assert '"a": 1' in field(await get(api, f"/tasks/{task}/run"), "payload")
    status, _, page = await post(api, f"/tasks/{task}/run", {"payload": "{"})
    assert (status, 'class="problem"' in field(page, "payload")) == (400, True)
    _, place, _ = await post(api, f"/tasks/{task}/run", {"payload": '{"a": 12345678901234567890}'})
    assert (await api.good("GET", place))["payload"] == {"a": 12345678901234567890}
    odd = await created(api, name="odd", meta={"payload_schema": {"properties": ["no", "object"]}})
    assert 'name="payload"' in await get(api, f"/tasks/{odd}/run"), "a schema that is none is left alone"
    fields = {"name": "calls", "target_url": "http://127.0.0.1:9/x", "http_method": "POST", "body_template": "usual"}
    http = (await api.good("POST", "/tasks", fields, 201))["id"]
    page = await get(api, f"/tasks/{http}/run", "zh")
    assert "usual" in field(page, "override_body")
    assert "带参数执行" in page
    status, _, _ = await post(api, f"/tasks/{http}/run", {"override_body": "another", "delay_seconds": "60"})
    assert status == 303


async def test_a_button_that_runs_a_task_answers_with_the_run(api):
    task = await created(api)
    told = await api.call(
        "POST", f"//tasks/{task}/trigger", data={}, headers={"origin": api.root, "accept": "application/json"}
    )
    (run,) = (await api.good("GET", f"/runs?task={task}"))["items"]
    assert re.sub(r"^[./]*", "/", told.body["open"]) == f"/runs/{run['id']}"
