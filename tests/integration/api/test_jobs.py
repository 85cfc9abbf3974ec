"""Jobs over HTTP: the words of a jobs table, over the same tasks and runs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from integration.api.serving import Api, serving
from integration.api.test_papers import curl_lines, run_line
from noonbell.api.jobs import NAMES
from noonbell.dialects.jobs import STATUSES
from noonbell.errors import StoreUnavailable
from noonbell.model.run import RunStatus, execution_id_of
from noonbell.settings import JobSettings

JOBS = "//api/jobs"
BODY: dict[str, Any] = {"job_name": "backup", "job_type": "backup"}

FIELDS = {
    *("id", "job_name", "job_type", "cron_expression", "cron_dialect", "enabled", "allow_concurrent", "max_concurrent"),
    "max_retries",
    *("retry_delay_seconds", "timeout_seconds", "payload", "description", "last_run_at", "last_run_status"),
    *("next_run_at", "created_at", "updated_at", "created_by"),
}
EXECUTION_FIELDS = {
    *("id", "job_id", "job_name", "execution_id", "worker_id", "started_at", "completed_at", "duration_ms", "status"),
    *("retry_count", "error_message", "error_details", "result"),
}


async def make(api: Api, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = await api.good("POST", JOBS, {**BODY, **fields}, 201)
    return made


async def refused(api: Api, method: str, path: str, body: Any = None) -> tuple[int, str, dict[str, Any]]:
    told = await api.call(method, path, body)
    return told.status, told.code, told.body["details"]


async def test_the_life_of_a_job(api_everywhere: Api):
    api = api_everywhere
    made = await make(api, cron_expression="0 2 * * *", payload={"to": "s3"}, description="Every night")
    assert set(made) == {*FIELDS, "notes"}
    assert (made["id"], made["cron_expression"], made["enabled"]) == (1, "0 2 * * *", True)
    assert (made["allow_concurrent"], made["max_concurrent"]) == (False, None)
    assert (made["max_retries"], made["retry_delay_seconds"], made["timeout_seconds"]) == (3, 60, 300)
    assert made["next_run_at"].endswith("T02:00:00Z")

    await api.create(name="an HTTP call")
    await make(api, job_name="other", enabled=False)
    listed = await api.good("GET", JOBS)
    assert [job["job_name"] for job in listed["items"]] == ["backup", "other"]
    assert (listed["total"], set(listed["items"][0])) == (2, FIELDS)
    assert [job["id"] for job in (await api.good("GET", f"{JOBS}?enabled=true"))["items"]] == [1]
    assert [job["id"] for job in (await api.good("GET", f"{JOBS}?enabled=false"))["items"]] == [3]
    assert [job["id"] for job in (await api.good("GET", f"{JOBS}?job_name=oth"))["items"]] == [3]
    assert (await api.good("GET", f"{JOBS}?job_type=resize"))["items"] == []

    changed = await api.good("PUT", f"{JOBS}/1", {"max_retries": 5})
    assert (changed["max_retries"], changed["payload"], changed["description"]) == (5, {"to": "s3"}, "Every night")
    assert changed["created_at"] == made["created_at"] == made["updated_at"] < changed["updated_at"]

    paused = await api.good("POST", f"{JOBS}/1/pause")
    assert (paused["enabled"], paused["next_run_at"]) == (False, None)
    assert (await api.good("POST", f"{JOBS}/1/resume"))["enabled"] is True

    assert await api.good("DELETE", f"{JOBS}/1") == {"deleted": True}
    assert await refused(api, "GET", f"{JOBS}/1") == (404, "NOT_FOUND", {"error": "JobNotFound"})
    assert (await make(api))["id"] == 4, "the name is free again"


async def test_executions_have_the_fields_of_the_table(api_everywhere: Api):
    api = api_everywhere
    await make(api, retry_delay_seconds=0)
    run_id = await api.trigger(1)
    lease = await api.claim("default")
    (under_way,) = (await api.good("GET", f"{JOBS}/1/executions"))["items"]
    assert set(under_way) == EXECUTION_FIELDS
    assert (under_way["status"], under_way["worker_id"], under_way["completed_at"]) == ("running", "w1", None)
    assert under_way["execution_id"] == str(execution_id_of(run_id))

    await api.finish(lease, RunStatus.FAILED, error_message="it broke", error_details={"kind": "error"})
    page = await api.good("GET", f"{JOBS}/1/executions")
    (execution,) = page["items"]
    assert (page["total"], execution["id"], execution["job_id"], execution["job_name"]) == (1, run_id, 1, "backup")
    assert (execution["status"], execution["error_message"]) == ("failed", "it broke")
    assert execution["error_details"]["kind"] == "error"
    assert execution["started_at"] <= execution["completed_at"]
    assert execution["duration_ms"] >= 0
    job = await api.good("GET", f"{JOBS}/1")
    assert (job["last_run_status"], job["last_run_at"]) == ("failed", execution["started_at"])


async def test_executions_are_found_by_status_and_by_their_uuid(quick_api: Api):
    api = quick_api
    await make(api, allow_concurrent=True)
    first, second = await api.trigger(1), await api.trigger(1)
    await api.finish(await api.claim("default"), RunStatus.SUCCESS, result={"rows": 1})

    async def found(query: str) -> list[int]:
        return [each["id"] for each in (await api.good("GET", f"{JOBS}/1/executions?{query}"))["items"]]

    assert await found("status=success") == [first]
    assert await found("status=success,pending") == [second, first]
    assert await found(f"execution_id={execution_id_of(second)}") == [second]
    assert await found(f"execution_id={uuid.uuid4()}") == []
    await make(api, job_name="other")
    assert (await api.good("GET", f"{JOBS}/2/executions?execution_id={execution_id_of(second)}"))["items"] == []
    assert (await refused(api, "GET", f"{JOBS}/1/executions?status=Done"))[:2] == (400, "INVALID_ARGUMENT")
    assert "execution_id" in (await refused(api, "GET", f"{JOBS}/1/executions?execution_id=7"))[2]


def test_every_status_of_a_run_has_a_word():
    assert set(STATUSES) == set(RunStatus)
    assert set(STATUSES.values()) == {"pending", "running", "success", "failed", "timeout", "cancelled", "skipped"}


@pytest.mark.parametrize(
    ("asked", "limit", "shown"),
    [
        ({}, 1, (False, None)),
        ({"allow_concurrent": False, "max_concurrent": 7}, 1, (False, None)),
        ({"allow_concurrent": True, "max_concurrent": 3}, 3, (True, 3)),
        ({"allow_concurrent": True}, None, (True, None)),
        ({"allow_concurrent": True, "max_concurrent": None}, None, (True, None)),
    ],
)
async def test_the_three_modes_of_concurrency(quick_api: Api, asked, limit, shown):
    made = await make(quick_api, **asked)
    assert (made["allow_concurrent"], made["max_concurrent"]) == shown
    task = await quick_api.good("GET", "/tasks/1")
    assert (task["max_concurrency"], task["concurrency_policy"]) == (limit, "SKIP")
    codes = [note["code"] for note in made["notes"]]
    assert ("max_concurrent_unused" in codes) == (asked.get("max_concurrent") == 7)


async def test_a_job_is_a_task(quick_api: Api):
    made = await make(quick_api, cron_expression="*/10 * * * * *", retry_delay_seconds=15, timeout_seconds=20)
    task = await quick_api.good("GET", f"/tasks/{made['id']}")
    assert (task["name"], task["exec_type"], task["job_type"], task["queue"]) == ("backup", "JOB", "backup", "default")
    assert task["retry_policy"] == {**task["retry_policy"], "max_retries": 3, "strategy": "fixed", "initial_delay": 15}
    assert (task["cron_expr"], task["timeout_seconds"], task["managed_by"]) == ("*/10 * * * * *", 20, "api")


async def test_a_task_that_is_no_job_is_not_found_among_jobs(quick_api: Api):
    await quick_api.create()
    for method, path in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/pause"), ("GET", "/executions")):
        body = {} if method == "PUT" else None
        assert await refused(quick_api, method, f"{JOBS}/1{path}", body) == (404, "NOT_FOUND", {"error": "JobNotFound"})
    assert (await quick_api.good("GET", "/tasks/1"))["status"] == "ENABLED"


async def test_a_job_sent_back_as_it_was_read_changes_nothing(quick_api: Api):
    every = {"type": "interval", "every": 7, "unit": "minute"}
    rich = {"labels": {"team": "x"}, "max_concurrency": 2, "concurrency_policy": "QUEUE", "priority": 4}
    await quick_api.good("POST", "/tasks", {"name": "a", "job_type": "b", "schedule": every, **rich}, 201)
    job = await quick_api.good("GET", f"{JOBS}/1")
    assert (job["cron_expression"], job["allow_concurrent"], job["max_concurrent"]) == (None, True, 2)
    before = await quick_api.good("GET", "/tasks/1")
    await quick_api.good("PUT", f"{JOBS}/1", job)
    assert await quick_api.good("GET", "/tasks/1") == before

    await quick_api.good("PUT", f"{JOBS}/1", {**job, "max_retries": 9})
    after = await quick_api.good("GET", "/tasks/1")
    assert (after["version"], after["retry_policy"]["max_retries"], after["schedule"]) == (2, 9, before["schedule"])
    assert (after["labels"], after["concurrency_policy"], after["priority"]) == ({"team": "x"}, "QUEUE", 4)


async def test_a_change_takes_each_field(quick_api: Api):
    await make(quick_api, cron_expression="0 2 * * *")
    wanted = {
        "job_name": "renamed",
        "job_type": "other",
        "cron_expression": None,
        "enabled": False,
        "allow_concurrent": True,
        "max_concurrent": 4,
        "max_retries": 0,
        "retry_delay_seconds": 1.5,
        "timeout_seconds": 9,
        "payload": [1],
        "description": "new",
    }
    changed = await quick_api.good("PUT", f"{JOBS}/1", wanted)
    assert {name: changed[name] for name in wanted} == wanted
    assert (await quick_api.good("PUT", f"{JOBS}/1", {"allow_concurrent": False}))["max_concurrent"] is None
    assert (await quick_api.good("PUT", f"{JOBS}/1", {"enabled": True}))["enabled"] is True


async def test_a_change_of_another_version_is_refused(quick_api: Api):
    await make(quick_api)
    told = await quick_api.call("PUT", f"{JOBS}/1", {"max_retries": 1}, headers={"if-match": '"7"'})
    assert (told.status, told.code) == (412, "VERSION_CONFLICT")


@pytest.mark.parametrize(
    ("wrong", "field", "name"),
    [
        ({"cron_expression": "61 * * * *"}, "cron_expression", "InvalidCronExpression"),
        ({"cron_expression": "0 0 2 * * * 2027"}, "cron_expression", "InvalidCronExpression"),
        ({"cron_expression": 5}, "cron_expression", "InvalidCronExpression"),
        ({"job_name": ""}, "job_name", "InvalidConfig"),
        ({"job_name": "x" * 256}, "job_name", "InvalidConfig"),
        ({"job_name": None}, "job_name", "InvalidConfig"),
        ({"job_type": "x" * 101}, "job_type", "InvalidConfig"),
        ({"job_type": None}, "job_type", "InvalidConfig"),
        ({"max_concurrent": 0, "allow_concurrent": True}, "max_concurrent", "InvalidConfig"),
        ({"max_retries": -1}, "max_retries", "InvalidConfig"),
        ({"max_retries": "3"}, "max_retries", "InvalidConfig"),
        ({"retry_delay_seconds": -1}, "retry_delay_seconds", "InvalidConfig"),
        ({"timeout_seconds": "long"}, "timeout_seconds", "InvalidConfig"),
        ({"enabled": "yes"}, "enabled", "InvalidConfig"),
        ({"allow_concurrent": 1}, "allow_concurrent", "InvalidConfig"),
        ({"last_run_at": "2026-11-15T09:00:00Z"}, "last_run_at", "InvalidConfig"),
        ({"target_url": "http://127.0.0.1/"}, "target_url", "InvalidConfig"),
    ],
)
async def test_a_wrong_field_is_named_in_the_words_of_jobs(quick_api: Api, wrong, field, name):
    status, code, details = await refused(quick_api, "POST", JOBS, {**BODY, **wrong})
    assert (status, code, details["error"]) == (400, "INVALID_ARGUMENT", name)
    assert set(details) == {field, "error"}
    assert (await quick_api.good("GET", JOBS))["total"] == 0
    if field != "last_run_at":
        await make(quick_api)
        status, code, details = await refused(quick_api, "PUT", f"{JOBS}/1", wrong)
        assert (status, code, field in details) == (400, "INVALID_ARGUMENT", True)


async def test_other_errors_have_their_names_too(quick_api: Api, monkeypatch):
    await make(quick_api)
    status, code, details = await refused(quick_api, "POST", JOBS, BODY)
    assert (status, code, details) == (
        409,
        "ALREADY_EXISTS",
        {"job_name": "is taken", "id": 1, "error": "AlreadyExists"},
    )
    told = await quick_api.call("POST", JOBS, data="{")
    assert (told.status, told.body["details"]) == (400, {"error": "SerializationError"})
    assert (await refused(quick_api, "GET", f"{JOBS}/x"))[1:] == ("INVALID_ID", {"error": "InvalidConfig"})

    async def away(*_: Any, **__: Any):
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(type(quick_api.services.tasks), "get", away)
    told = await refused(quick_api, "GET", f"{JOBS}/1")
    assert (told[0], told[1], told[2]["error"]) == (503, "UNAVAILABLE", "DatabaseError")


async def test_a_job_type_that_nobody_knows_is_taken_with_a_note(quick_api: Api):
    assert "unknown_job_type" in [note["code"] for note in (await make(quick_api))["notes"]]


async def test_the_settings_give_the_defaults(sqlite_url: str):
    async with serving(sqlite_url, jobs=JobSettings(max_retries=1, retry_delay=7, job_timeout=20)) as api:
        made = await make(api)
        assert (made["max_retries"], made["retry_delay_seconds"], made["timeout_seconds"]) == (1, 7, 20)
        made = await make(api, job_name="b", max_retries=2, retry_delay_seconds=3, timeout_seconds=4)
        assert (made["max_retries"], made["retry_delay_seconds"], made["timeout_seconds"]) == (2, 3, 4)


async def test_a_deleted_job_keeps_its_executions_unless_they_are_purged(quick_api: Api):
    api = quick_api
    for name in ("a", "b"):
        await make(api, job_name=name)
    run_id = await api.trigger(1)
    await api.trigger(2)
    await api.good("DELETE", f"{JOBS}/1")
    await api.good("DELETE", f"{JOBS}/2?purge=true")
    (kept,) = (await api.good("GET", f"{JOBS}/1/executions"))["items"]
    assert (kept["id"], kept["status"]) == (run_id, "cancelled")
    assert await refused(api, "GET", f"{JOBS}/2/executions") == (404, "NOT_FOUND", {"error": "JobNotFound"})


async def test_every_line_of_the_how_to_works(quick_api: Api):
    page = Path(__file__).parents[3] / "docs/how-to/jobs-api.md"
    lines = curl_lines(page)
    assert len(lines) > 6
    for line in lines:
        told = await run_line(quick_api, line)
        assert told.status in (200, 201), f"{line}\n{told.text}"


def test_the_how_to_has_every_field_status_and_error():
    text = (Path(__file__).parents[3] / "docs/how-to/jobs-api.md").read_text()
    words = {*FIELDS, *EXECUTION_FIELDS, *STATUSES.values(), *NAMES.values(), "InvalidCronExpression"}
    assert [word for word in sorted(words - {"job_id"}) if f"`{word}`" not in text] == []
