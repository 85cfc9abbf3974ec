"""Scripts that were written for the cronjob service of document 002 go on under `/legacy`: the examples are its own, word by word."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration.api.conftest import STORES, url_of
from integration.api.serving import Api, serving
from integration.api.test_description import mismatch
from integration.api.test_papers import HOST, blocks, curl_lines, read_curl
from noonbell.model.run import RunBodies, RunStatus
from noonbell.settings import ServerSettings

PAGE = Path(__file__).parents[3] / "docs/reference/legacy-api.md"

TASK_FIELDS = [
    "ID",
    "Name",
    "Description",
    "CronExpr",
    "Timezone",
    "ExecType",
    "HTTPMethod",
    "TargetURL",
    "HeadersJSON",
    "BodyTemplate",
    "TimeoutSeconds",
    "RetryPolicyJSON",
    "MaxConcurrency",
    "ConcurrencyPolicy",
    "MisfirePolicy",
    "CatchupLimit",
    "CallbackMethod",
    "CallbackTimeoutSec",
    "Status",
    "Version",
    "CreatedAt",
    "UpdatedAt",
]
RUN_FIELDS = [
    "ID",
    "TaskID",
    "ScheduledTime",
    "StartTime",
    "EndTime",
    "Status",
    "Attempt",
    "RequestHeaders",
    "RequestBody",
    "ResponseCode",
    "ResponseBody",
    "ErrorMessage",
    "NextRetryTime",
    "CallbackToken",
    "CallbackDeadline",
    "TraceID",
    "CreatedAt",
    "UpdatedAt",
]

QUICK_SCRIPT = """
curl -X POST http://localhost:8080/api/v1/tasks -H 'Content-Type: application/json' -d '{"name":"t1","description":"d","cron_expr":"*/20 * * * * *","exec_type":"SYNC","http_method":"GET","target_url":"https://httpbin.org/get","timeout_seconds":5}'
curl http://localhost:8080/api/v1/tasks
curl -X POST http://localhost:8080/api/v1/tasks/1/trigger
curl http://localhost:8080/api/v1/tasks/1/runs
curl http://localhost:8080/api/v1/runs/1
curl -X POST http://localhost:8080/api/v1/runs/1/cancel
curl -X PATCH http://localhost:8080/api/v1/tasks/1/disable
curl -X PATCH http://localhost:8080/api/v1/tasks/1/enable
curl -X PATCH http://localhost:8080/api/v1/tasks/1 -H 'Content-Type: application/json' -d '{"cron_expr":"*/10 * * * * *"}'
curl -X DELETE http://localhost:8080/api/v1/tasks/1
"""
"""Section 14 of its API's page; `runs/1` is "replace run_id" there."""

DEMO = {
    "name": "demo_task",
    "description": "示例任务",
    "cron_expr": "*/30 * * * * *",
    "exec_type": "SYNC",
    "http_method": "GET",
    "target_url": "https://httpbin.org/get",
    "timeout_seconds": 5,
}


@pytest.fixture(params=STORES)
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    async with serving(url_of(request.param, request), server=ServerSettings(legacy_api=True)) as api:
        yield api


@pytest.fixture
async def quick_api() -> AsyncIterator[Api]:
    async with serving("memory://", server=ServerSettings(legacy_api=True)) as api:
        yield api


async def asked(api: Api, method: str, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
    return await api.good(method, f"//legacy/api/v1{path}", body, status, **more)


async def refused(api: Api, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
    told = await api.call(method, f"//legacy/api/v1{path}", body, **more)
    return told.status, told.body["error"]


async def run_script(api: Api, line: str, run_id: int) -> Any:
    """A line of a script, whose base address alone was changed."""
    curl = read_curl(line)
    path = re.sub(r"/runs/1(?=/|$)", f"/runs/{run_id}", curl.path)
    told = await api.call(curl.method, f"//legacy{path}", data=curl.body, headers=curl.headers)
    assert told.status in (200, 201), (line, told.text)
    return told.body


async def test_the_quick_script_of_the_document_runs_with_another_base_address(api: Api):
    answers = []
    for line in QUICK_SCRIPT.strip().splitlines():
        answers.append(await run_script(api, line, answers[2]["run_id"] if len(answers) > 2 else 0))
    created, listed, triggered, runs, run, canceled, disabled, enabled, updated, deleted = answers
    assert created == {"id": 1, "name": "t1"}
    assert [(task["ID"], task["Name"], task["CronExpr"], task["Status"]) for task in listed] == [
        (1, "t1", "*/20 * * * * *", "ENABLED")
    ]
    assert [(each["ID"], each["TaskID"], each["Status"]) for each in runs] == [(triggered["run_id"], 1, "SCHEDULED")]
    assert list(run) == RUN_FIELDS
    assert canceled == {"run_id": triggered["run_id"], "status": "CANCELED"}
    assert (disabled, enabled) == ({"status": "DISABLED"}, {"status": "ENABLED"})
    assert (updated, deleted) == ({"updated": True}, {"deleted": True})
    assert await refused(api, "GET", "/tasks/1") == (404, "NOT_FOUND")


async def test_a_task_has_the_fields_of_the_document_in_their_spelling(api: Api):
    assert await asked(api, "POST", "/tasks", {**DEMO, "cron_expr": "*/5 * * * *"}, 201) == {
        "id": 1,
        "name": "demo_task",
    }
    task = await asked(api, "GET", "/tasks/1")
    assert list(task) == TASK_FIELDS
    shown = {name: value for name, value in task.items() if name not in ("CreatedAt", "UpdatedAt")}
    assert shown == {
        "ID": 1,
        "Name": "demo_task",
        "Description": "示例任务",
        "CronExpr": "0 */5 * * * *",
        "Timezone": "UTC",
        "ExecType": "SYNC",
        "HTTPMethod": "GET",
        "TargetURL": "https://httpbin.org/get",
        "HeadersJSON": "",
        "BodyTemplate": "",
        "TimeoutSeconds": 5,
        "RetryPolicyJSON": "",
        "MaxConcurrency": 1,
        "ConcurrencyPolicy": "QUEUE",
        "MisfirePolicy": "FIRE_NOW",
        "CatchupLimit": 0,
        "CallbackMethod": "POST",
        "CallbackTimeoutSec": 300,
        "Status": "ENABLED",
        "Version": 1,
    }
    assert task["CreatedAt"].endswith("Z")


async def test_a_run_has_the_fields_of_the_document_and_its_bodies_by_itself(api: Api):
    await asked(api, "POST", "/tasks", {**DEMO, "headers": {"Accept": "1", "Authorization": "Bearer x"}}, 201)
    run_id = (await asked(api, "POST", "/tasks/1/trigger"))["run_id"]
    lease = await api.claim()
    bodies = RunBodies(request_headers={"Accept": "1"}, request_body="", response_body="{...}")
    await api.finish(lease, RunStatus.SUCCESS, response_code=200, bodies=bodies)
    (listed,) = await asked(api, "GET", "/tasks/1/runs")
    run = await asked(api, "GET", f"/runs/{run_id}")
    assert list(listed) == list(run) == RUN_FIELDS
    assert (run["ID"], run["TaskID"], run["Status"], run["Attempt"]) == (run_id, 1, "SUCCESS", 1)
    assert (run["ResponseCode"], run["NextRetryTime"], run["CallbackToken"]) == (200, None, "")
    assert (run["RequestHeaders"], run["RequestBody"], run["ResponseBody"]) == ('{"Accept": "1"}', "", "{...}")
    assert (listed["RequestHeaders"], listed["ResponseBody"]) == ("", "")
    assert run["EndTime"] >= run["StartTime"] >= run["ScheduledTime"]
    task = await asked(api, "GET", "/tasks/1")
    assert task["HeadersJSON"] == '{"Accept": "1", "Authorization": "***"}'


async def test_the_list_is_of_enabled_tasks_that_call_a_url_and_has_no_envelope(api: Api):
    await asked(api, "POST", "/tasks", DEMO, 201)
    await asked(api, "POST", "/tasks", {**DEMO, "name": "other"}, 201)
    await api.create(name="a job", job_type="resize", target_url=None)
    await asked(api, "PATCH", "/tasks/1/disable")
    assert [task["Name"] for task in await asked(api, "GET", "/tasks")] == ["other"]
    assert [task["Name"] for task in await asked(api, "GET", "/tasks?status=DISABLED")] == ["demo_task"]
    found = await asked(api, "GET", "/tasks?status=ENABLED&name=oth&page=1&page_size=20")
    assert [task["ID"] for task in found] == [2]
    assert await asked(api, "GET", "/tasks?page=2&page_size=20") == []
    assert await refused(api, "GET", "/tasks/3") == (404, "NOT_FOUND")


async def test_the_newest_fifty_runs_come_without_being_asked_for(api: Api):
    await asked(api, "POST", "/tasks", {**DEMO, "concurrency_policy": "PARALLEL"}, 201)
    made = [(await asked(api, "POST", "/tasks/1/trigger"))["run_id"] for _ in range(52)]
    assert [run["ID"] for run in await asked(api, "GET", "/tasks/1/runs")] == made[:1:-1]
    assert len(await asked(api, "GET", "/tasks/1/runs?page=2&page_size=20")) == 20
    await asked(api, "POST", f"/runs/{made[0]}/cancel")
    (canceled,) = await asked(api, "GET", "/tasks/1/runs?status=CANCELED")
    assert canceled["ID"] == made[0]
    assert await asked(api, "GET", "/tasks/1/runs?from=2001-01-01T00:00:00Z&to=2001-01-02T00:00:00Z") == []
    await asked(api, "DELETE", "/tasks/1")
    assert len(await asked(api, "GET", "/tasks/1/runs")) == 50  # its history stays


async def test_errors_are_those_of_the_document(quick_api: Api):
    api = quick_api
    create = "//legacy/api/v1/tasks"
    told = await api.call("POST", create, data="{", headers={"Content-Type": "application/json"})
    assert (told.status, told.body["error"]) == (400, "INVALID_JSON")
    for missing in ("name", "cron_expr", "target_url"):
        told = await api.call("POST", create, {name: value for name, value in DEMO.items() if name != missing})
        assert (told.status, told.body["error"], list(told.body["details"])) == (400, "INVALID_ARGUMENT", [missing])
    assert await refused(api, "POST", "/tasks", {**DEMO, "cron_expr": "61 * * * *"}) == (400, "INVALID_ARGUMENT")
    assert await refused(api, "POST", "/tasks", {**DEMO, "exec_type": "JOB"}) == (400, "INVALID_ARGUMENT")
    assert await refused(api, "GET", "/tasks/x") == (400, "INVALID_ID")
    assert await refused(api, "GET", "/runs/x") == (400, "INVALID_ID")
    assert await refused(api, "GET", "/tasks/1") == (404, "NOT_FOUND")
    assert await refused(api, "PATCH", "/tasks/1", {"description": "x"}) == (404, "NOT_FOUND")
    assert await refused(api, "GET", "/runs/42") == (404, "NOT_FOUND")
    assert await refused(api, "POST", "/runs/42/cancel") == (404, "NOT_FOUND")
    assert (await api.good("GET", "/tasks"))["total"] == 0


async def test_a_full_task_that_skips_answers_409_and_makes_no_run(api: Api):
    """As the document tries it: `max_concurrency` 0 stands for a limit that is reached."""
    await asked(api, "POST", "/tasks", {**DEMO, "max_concurrency": 0, "concurrency_policy": "SKIP"}, 201)
    assert await refused(api, "POST", "/tasks/1/trigger") == (409, "CONCURRENCY_LIMIT")
    assert await asked(api, "GET", "/tasks/1/runs") == []


async def test_bodies_may_have_what_the_service_did_not_read(quick_api: Api):
    api = quick_api
    await asked(api, "POST", "/tasks", {**DEMO, "owner": "ops", "timeout_seconds": 0, "timezone": "UTC/+08"}, 201)
    task = await asked(api, "GET", "/tasks/1")
    assert (task["TimeoutSeconds"], task["Timezone"]) == (10, "+08:00")
    for body in ("", "anything", "[1]", '{"force": 1}'):
        told = await api.call("POST", "//legacy/api/v1/tasks/1/trigger", data=body)
        assert list(told.body) == ["run_id"], told.text
    run_id = (await asked(api, "POST", "/tasks/1/trigger", {"override_body": "长", "force_async": False}))["run_id"]
    inputs = await api.store.inputs([run_id])
    assert "长" in str(inputs[run_id].overrides)


async def test_its_cron_expressions_are_read_as_it_reads_them(quick_api: Api):
    api = quick_api
    await asked(api, "POST", "/tasks", {**DEMO, "cron_expr": "0 3 1 * 1"}, 201)
    assert (await api.good("GET", "/tasks/1"))["cron_dialect"] == "cronjob"
    assert (await api.good("GET", "/tasks/1"))["follow_redirects"], "as there"
    for fire in (await api.good("GET", "/tasks/1/next?count=3"))["next_fires"]:
        assert fire["utc"][8:10] == "01"  # a Monday, and the first of a month


async def test_scripts_call_imported_tasks_by_the_ids_that_they_had(api: Api):
    for name, number in (("seventeen", 17), ("two", 2)):
        await api.create(name=name, external_id=f"cronjob:{number}")
    assert (await asked(api, "POST", "/tasks", {**DEMO, "name": "new"}, 201))["id"] == 3
    await api.create(name="also new")
    listed = {task["Name"]: task["ID"] for task in await asked(api, "GET", "/tasks")}
    assert listed == {"seventeen": 17, "two": 2, "new": 3, "also new": 4}
    await api.create(name="late", external_id="cronjob:4")
    listed = {task["Name"]: task["ID"] for task in await asked(api, "GET", "/tasks")}
    assert listed == {"seventeen": 17, "two": 2, "new": 3, "late": 4, "also new": 1_000_000_004}
    for name, number in listed.items():
        assert (await asked(api, "GET", f"/tasks/{number}"))["Name"] == name
        run_id = (await asked(api, "POST", f"/tasks/{number}/trigger"))["run_id"]
        assert (await asked(api, "GET", f"/runs/{run_id}"))["TaskID"] == number
        assert (await api.good("GET", f"/runs/{run_id}"))["task_name"] == name
    assert await refused(api, "GET", "/tasks/1") == (404, "NOT_FOUND")  # its own id, which no script knows
    await asked(api, "DELETE", "/tasks/17")
    assert len(await asked(api, "GET", "/tasks/17/runs")) == 1


async def test_health_version_and_metrics_are_where_they_were(quick_api: Api):
    assert await asked(quick_api, "GET", "/healthz") == "ok"
    assert (await asked(quick_api, "GET", "/version")).startswith("v")
    assert "cronjob_task_total" in await quick_api.good("GET", "//legacy/metrics")


async def test_answers_are_what_the_description_says(quick_api: Api):
    document = await quick_api.good("GET", "//openapi.json")
    await asked(quick_api, "POST", "/tasks", DEMO, 201)
    run_id = (await asked(quick_api, "POST", "/tasks/1/trigger"))["run_id"]

    def whole(node: Any) -> Any:
        if isinstance(node, dict) and "$ref" in node:
            return whole(document["components"]["schemas"][node["$ref"].rpartition("/")[2]])
        if isinstance(node, dict):
            return {key: whole(value) for key, value in node.items()}
        return [whole(each) for each in node] if isinstance(node, list) else node

    for path, template in (
        ("/tasks", "/tasks"),
        ("/tasks/1", "/tasks/{id}"),
        ("/tasks/1/runs", "/tasks/{id}/runs"),
        (f"/runs/{run_id}", "/runs/{run_id}"),
    ):
        answer = document["paths"][f"/legacy/api/v1{template}"]["get"]["responses"]["200"]
        schema = whole(answer["content"]["application/json"]["schema"])
        told = await asked(quick_api, "GET", path)
        assert mismatch(schema, told) is None, path
        one, fields = (told[0], schema["items"]) if isinstance(told, list) else (told, schema)
        assert set(one) == set(fields["properties"]), path


async def test_the_lines_of_its_page_work_and_leave_out_no_call(quick_api: Api):
    paths = (await quick_api.good("GET", "//openapi.json"))["paths"]
    missing = {(path, verb.upper()) for path, verbs in paths.items() for verb in verbs if path.startswith("/legacy")}
    run_id, token = 0, None
    for line in curl_lines(PAGE):
        if "$CALLBACK_TOKEN" in line or "$PENDING_RUN" in line:
            pending = await quick_api.trigger(1, force_async=True)
            while (lease := await quick_api.claim()).run_id != pending:
                pass
            await quick_api.park(lease)
            run_id, token = pending, lease.callback_token
        filled = line.replace("$CALLBACK_TOKEN", str(token)).replace("$PENDING_RUN", str(run_id))
        curl = read_curl(filled.replace("$RUN_ID", str(run_id)))
        told = await quick_api.call(curl.method, f"/{curl.path}", data=curl.body, headers=curl.headers)
        assert told.status in (200, 201), f"{line}\n{told.text}"
        if isinstance(told.body, dict) and "run_id" in told.body:
            run_id = told.body["run_id"]
        for path, method in list(missing):
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
            if method == curl.method and re.fullmatch(pattern, curl.path.partition("?")[0]):
                missing.discard((path, method))
    assert missing == set()
    assert all(HOST + "/legacy/" in line for block in blocks(PAGE, "bash") for line in block.splitlines() if line)
