"""Runs over HTTP: trigger with all its overrides, batch, lists, cancel, retry, attempts, stats."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta

import pytest

from integration.api.serving import HTTP, JOB, Api
from noonbell.clock import rfc3339
from noonbell.model.run import RunBodies, RunStatus

S = RunStatus


async def test_a_trigger_makes_a_run(api_everywhere: Api):
    api = api_everywhere
    await api.create()
    told = await api.call("POST", "/tasks/1/trigger", headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"})
    assert (told.status, set(told.body)) == (200, {"run_id"})
    run = await api.good("GET", f"/runs/{told.body['run_id']}")
    assert (run["task_id"], run["task_name"], run["origin"], run["status"]) == (1, "a", "trigger", "SCHEDULED")
    assert run["trace_id"] == told.headers["x-request-id"] == "ab" * 16
    assert run["final_status"] is None
    assert re.fullmatch(f"[0-9a-f]{{16}}-{run['id']}", run["idempotency_key"])


async def test_a_trigger_without_a_key_always_makes_a_run(api: Api):
    await api.create()
    assert len({await api.trigger(1) for _ in range(3)}) == 3


async def test_a_disabled_task_can_be_triggered(api: Api):
    await api.create(status="DISABLED")
    assert await api.trigger("name:a")


async def test_overrides_reach_the_run(api_everywhere: Api):
    api = api_everywhere
    await api.create(payload={"a": 1})
    body = {"override_body": "hello", "force_async": True, "payload": {"a": 2}, "priority": 7}
    run_id = await api.trigger(1, **body)
    lease = await api.claim()
    assert (lease.run_id, lease.priority, lease.payload) == (run_id, 7, {"a": 2})
    assert lease.overrides == {"override_body": "hello", "force_async": True}
    assert lease.callback_token is not None
    assert (await api.good("GET", f"/runs/{run_id}"))["payload"] == {"a": 2}


async def test_a_payload_of_null_is_a_payload(api: Api):
    await api.create(payload={"a": 1})
    await api.trigger(1, payload=None)
    assert (await api.claim()).payload is None


async def test_a_trigger_may_be_for_later(api: Api):
    await api.create()
    later = await api.good("GET", f"/runs/{await api.trigger(1, delay_seconds=3600)}")
    assert later["run_at"] > later["created_at"]
    at = await api.good("GET", f"/runs/{await api.trigger(1, run_at='2030-01-01T08:00:00+08:00')}")
    assert at["run_at"] == "2030-01-01T00:00:00Z"


async def test_a_trigger_can_name_its_workers(api: Api):
    await api.create()
    await api.trigger(1, specific_worker_ids=["other"])
    with pytest.raises(ValueError):
        await api.claim()


async def test_a_key_is_asked_for_once(api_everywhere: Api):
    api = api_everywhere
    await api.create()
    first = await api.good("POST", "/tasks/1/trigger", {"key": "k"})
    assert first["outcome"] == "created"
    assert await api.good("POST", "/tasks/1/trigger", {"key": "k"}) == {"run_id": first["run_id"], "outcome": "exists"}
    updated = await api.good("POST", "/tasks/1/trigger", {"key": "k", "update_waiting": True, "priority": 3})
    assert updated == {"run_id": first["run_id"], "outcome": "updated"}
    lease = await api.claim()
    assert lease.priority == 3
    assert (await api.good("POST", "/tasks/1/trigger", {"key": "k"}))["outcome"] == "running"
    await api.finish(lease, S.FAILED, error_message="x")
    assert (await api.good("POST", "/tasks/1/trigger", {"key": "k"}))["outcome"] == "exists"
    again = {"key": "k", "if_finished": "rerun_succeeded"}
    assert (await api.good("POST", "/tasks/1/trigger", again))["outcome"] == "exists"
    fresh = await api.good("POST", "/tasks/1/trigger", {"key": "k", "if_finished": "rerun_failed"})
    assert fresh["outcome"] == "created"
    assert fresh["run_id"] != first["run_id"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"override_body": {"a": 1}}, {"override_body"}),
        ({"force_async": "yes"}, {"force_async"}),
        ({"key": ""}, {"key"}),
        ({"key": "a\x00"}, {"key"}),
        ({"delay_seconds": -1}, {"delay_seconds"}),
        ({"delay_seconds": True}, {"delay_seconds"}),
        ({"delay_seconds": 1e18}, {"delay_seconds"}),
        ({"delay_seconds": 5, "run_at": "2030-01-01T00:00:00Z"}, {"run_at"}),
        ({"run_at": "2030-01-01T00:00:00"}, {"run_at"}),
        ({"run_at": "soon"}, {"run_at"}),
        ({"priority": 10**12}, {"priority"}),
        ({"specific_worker_ids": "w"}, {"specific_worker_ids"}),
        ({"if_finished": "again", "key": "k"}, {"if_finished"}),
        ({"if_finished": "rerun"}, {"if_finished"}),
        ({"update_waiting": True}, {"update_waiting"}),
        ({"force": True, "colour": 1}, {"force", "colour"}),
    ],
)
async def test_a_wrong_trigger_names_its_fields(quick_api: Api, body, named):
    await quick_api.create()
    told = await quick_api.call("POST", "/tasks/1/trigger", body)
    assert (told.status, told.code, set(told.body["details"])) == (400, "INVALID_ARGUMENT", named)
    assert (await quick_api.good("GET", "/runs"))["total"] == 0


async def test_a_job_has_no_http_body_to_override(quick_api: Api):
    await quick_api.good("POST", "/tasks", JOB, 201)
    told = await quick_api.call("POST", "/tasks/1/trigger", {"override_body": "x", "force_async": True})
    assert set(told.body["details"]) == {"override_body", "force_async"}


async def test_at_the_limit_skip_is_refused_and_no_run_is_made(api_everywhere: Api):
    api = api_everywhere
    await api.create(max_concurrency=0, concurrency_policy="SKIP")
    assert await api.bad("POST", "/tasks/1/trigger") == (409, "CONCURRENCY_LIMIT")
    assert await api.bad("POST", "/tasks/1/trigger", {"key": "k"}) == (409, "CONCURRENCY_LIMIT")
    assert (await api.good("GET", "/runs"))["total"] == 0
    await api.good("PATCH", "/tasks/1", {"max_concurrency": 1})
    assert await api.trigger(1)
    assert await api.bad("POST", "/tasks/1/trigger") == (409, "CONCURRENCY_LIMIT")


async def test_at_the_limit_queue_waits_and_a_full_queue_is_refused(api: Api):
    await api.create(max_concurrency=1, queue_depth=1)
    await api.trigger(1)
    await api.claim()
    await api.trigger(1)
    assert await api.bad("POST", "/tasks/1/trigger") == (409, "CONCURRENCY_LIMIT")
    told = await api.call("POST", "/tasks/1/trigger")
    assert told.body["details"] == {"reason": "queue_full"}


async def test_a_trigger_of_nothing_is_not_found(api: Api):
    assert await api.bad("POST", "/tasks/77/trigger") == (404, "NOT_FOUND")
    assert await api.bad("POST", "/tasks/name:nobody/trigger") == (404, "NOT_FOUND")
    await api.create()
    await api.good("DELETE", "/tasks/1")
    assert await api.bad("POST", "/tasks/1/trigger") == (404, "NOT_FOUND")


async def test_a_task_in_error_must_be_reset(api: Api):
    await api.create(on_exhausted="ERROR")
    await api.trigger(1)
    await api.finish(await api.claim(), S.FAILED, error_message="x")
    assert (await api.good("GET", "/tasks/1"))["status"] == "ERROR"
    assert await api.bad("POST", "/tasks/1/trigger") == (409, "INVALID_STATE")
    for verb in ("enable", "disable", "resume", "pause"):
        assert await api.bad("POST", f"/tasks/1/{verb}") == (409, "INVALID_STATE")
    assert await api.bad("PATCH", "/tasks/1", {"status": "ENABLED"}) == (409, "INVALID_STATE")
    assert await api.good("POST", "/tasks/enable", {"all": True}) == {"status": "ENABLED", "changed": 0}
    assert (await api.good("PATCH", "/tasks/1", {"status": "ERROR", "priority": 1}))["updated"]
    assert (await api.good("GET", "/tasks/1"))["status"] == "ERROR"
    assert await api.good("POST", "/tasks/1/reset") == {"status": "ENABLED"}
    assert await api.trigger(1)


async def test_a_batch_is_one_transaction(api_everywhere: Api):
    api = api_everywhere
    await api.create()
    await api.good("POST", "/tasks", {**JOB, "name": "b"}, 201)
    runs = [
        {"task": 1, "key": "k"},
        {"task": "b", "payload": {"n": 1}, "priority": 2},
        {"task": "name:b", "delay_seconds": 60},
        {"task": 1, "key": "k"},
    ]
    told = await api.good("POST", "/runs/batch", {"runs": runs})
    outcomes = [each["outcome"] for each in told["runs"]]
    assert outcomes == ["created", "created", "created", "exists"]
    assert told["runs"][0]["run_id"] == told["runs"][3]["run_id"]
    assert (await api.good("GET", "/runs"))["total"] == 3
    assert await api.bad("POST", "/runs/batch", {"runs": [{"task": 1}, {"task": 99}]}) == (404, "NOT_FOUND")
    assert (await api.good("GET", "/runs"))["total"] == 3
    assert (await api.good("GET", "/runs?origin=publish"))["total"] == 3


async def test_a_batch_says_what_was_refused(api: Api):
    await api.create(max_concurrency=0, concurrency_policy="SKIP")
    told = await api.good("POST", "/runs/batch", {"runs": [{"task": 1}]})
    assert told == {"runs": [{"run_id": None, "outcome": "refused", "reason": "concurrency"}]}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, {"runs"}),
        ({"runs": []}, {"runs"}),
        ({"runs": {"task": 1}}, {"runs"}),
        ({"runs": [{"task": 1}] * 10_001}, {"runs"}),
        ({"runs": ["x", {"task": True}, {"payload": 1}]}, {"runs[0]", "runs[1].task", "runs[2].task"}),
        ({"runs": [{"task": 1, "priority": "x"}, {"task": 1, "nope": 1}]}, {"runs[0].priority", "runs[1].nope"}),
        ({"runs": [{"task": 1}], "tasks": []}, {"tasks"}),
    ],
)
async def test_a_wrong_batch_names_what_is_wrong(quick_api: Api, body, named):
    await quick_api.create()
    told = await quick_api.call("POST", "/runs/batch", body)
    assert (told.status, set(told.body["details"])) == (400, named)


@pytest.mark.parametrize("name", ["a\0", "name:a\0", "name:", "a\n", "x" * 256])
async def test_a_batch_refuses_a_name_that_no_task_can_have(api_everywhere: Api, name):
    told = await api_everywhere.call("POST", "/runs/batch", {"runs": [{"task": name}]})
    assert (told.status, set(told.body["details"])) == (400, {"runs[0].task"})


async def test_a_batch_names_the_task_that_there_is_not(quick_api: Api):
    await quick_api.create()
    told = await quick_api.call("POST", "/runs/batch", {"runs": [{"task": 1}, {"task": "nope"}]})
    assert (told.status, told.body["details"]) == (404, {"runs[1].task": "there is no such task"})
    assert "'nope'" in told.body["message"]


async def test_ten_thousand_runs_in_one_call(api: Api):
    await api.good("POST", "/tasks", JOB, 201)
    runs = [{"task": 1, "payload": {"n": n}} for n in range(10_000)]
    told = await api.good("POST", "/runs/batch", {"runs": runs})
    assert len({each["run_id"] for each in told["runs"]}) == 10_000
    assert (await api.good("GET", "/tasks/1"))["queued_runs"] == 10_000


async def test_runs_are_filtered_and_paged(api_everywhere: Api):
    api = api_everywhere
    await api.create(labels={"team": "x"})
    await api.good("POST", "/tasks", {**JOB, "name": "b", "queue": "images"}, 201)
    ids = [await api.trigger(1) for _ in range(3)]
    ids += [await api.trigger(2, key="k")]
    lease = await api.claim()
    await api.finish(lease, S.FAILED, error_message="the disk is full", response_code=500)

    async def found(query: str) -> list[int]:
        return [run["id"] for run in (await api.good("GET", f"/runs?{query}"))["items"]]

    assert await found("") == ids[::-1]
    assert await found("sort=id&page_size=2&page=2") == ids[2:]
    assert await found("status=FAILED") == [lease.run_id]
    assert set(await found("status=FAILED,SCHEDULED")) == set(ids)
    assert set(await found("status=FAILED&status=SCHEDULED")) == set(ids)
    assert await found("task=b") == await found("task=2") == await found("task=name:b") == [ids[3]]
    assert await found("task=nobody") == []
    assert await found("queue=images") == await found("key=k") == [ids[3]]
    assert await found("worker=w1") == await found("text=DISK") == [lease.run_id]
    assert await found("label=team%3Dx&status=SCHEDULED") == ids[1:3][::-1]
    assert await found("origin=schedule") == []
    now = rfc3339(await api.store.now())
    assert await found(f"to={now}&from=2020-01-01T00:00:00%2B08:00") == ids[::-1]
    assert await found("from=2020-01-01T00:00:00+08:00") == ids[::-1]
    assert await found("from=2999-01-01T00:00:00Z") == []
    page = await api.good("GET", "/tasks/1/runs?status=FAILED")
    assert (page["total"], page["items"][0]["error_message"]) == (1, "the disk is full")


async def test_a_cursor_walks_through_all_runs_while_others_are_added(api_everywhere: Api):
    api = api_everywhere
    await api.create()
    ids = [await api.trigger(1) for _ in range(5)]
    page = await api.good("GET", "/tasks/1/runs?page_size=2")
    seen = [run["id"] for run in page["items"]]
    while page["next_cursor"]:
        await api.trigger(1)
        page = await api.good("GET", f"/tasks/1/runs?page_size=2&cursor={page['next_cursor']}")
        seen += [run["id"] for run in page["items"]]
    assert seen == ids[::-1]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("status=DONE", "status"),
        ("from=yesterday", "from"),
        ("from=2026-11-16T00:00:00Z&to=2026-11-15T00:00:00Z", "to"),
        ("origin=x", "origin"),
        ("parent_id=x", "parent_id"),
        ("text=%00", "text"),
        ("statuses=FAILED", "statuses"),
        ("sort=-response_body", "sort"),
    ],
)
async def test_a_wrong_filter_is_named(quick_api: Api, query, named):
    told = await quick_api.call("GET", f"/runs?{query}")
    assert (told.status, told.code, list(told.body["details"])) == (400, "INVALID_ARGUMENT", [named])


async def test_of_several_statuses_the_wrong_one_is_quoted(quick_api: Api):
    told = await quick_api.call("GET", "/runs?status=FAILED,DONE")
    assert told.body["details"]["status"].startswith("is 'DONE'; expected one or more of SCHEDULED, ")
    told = await quick_api.call("POST", "/runs/cancel", {"filter": {"status": ["FAILED", 7]}})
    assert told.body["details"]["filter.status"].startswith("is 7; expected one or more of SCHEDULED, ")


@pytest.mark.parametrize("evil", ["' OR 1=1 --", "'; drop table runs; --", "%", "_", "\\", '"', "x' UNION SELECT 1"])
async def test_a_filter_is_a_value_and_never_a_statement(api_everywhere: Api, evil):
    """S20: bound parameters, and wildcards taken literally."""
    api = api_everywhere
    await api.create()
    await api.trigger(1)
    for name in ("text", "key", "queue", "worker", "task"):
        found = await api.good("GET", "/runs", params={name: evil})
        assert found["items"] == [], name
    assert (await api.good("GET", "/tasks", params={"name": evil}))["items"] == []
    assert (await api.good("GET", "/tasks", params={"label": f"{evil}={evil}"}))["items"] == []
    task_id = await api.create(name=evil + "x")
    assert (await api.good("GET", f"/tasks/{task_id}"))["name"] == evil + "x"
    assert (await api.good("GET", "/tasks", params={"name": evil}))["total"] == 1


async def test_cancel_tells_the_true_status(api_everywhere: Api):
    api = api_everywhere
    await api.create(max_concurrency=None)
    waiting, running, done = [await api.trigger(1) for _ in range(3)]
    assert await api.good("POST", f"/runs/{waiting}/cancel") == {
        "run_id": waiting,
        "status": "CANCELED",
        "canceled": True,
    }
    lease = await api.claim()
    assert lease.run_id == running
    told = await api.good("POST", f"/runs/{running}/cancel", {"reason": "wrong day"})
    assert told["canceled"] is True
    assert (await api.good("GET", f"/runs/{running}"))["error_message"] == "wrong day"
    await api.finish(await api.claim(), S.SUCCESS)
    assert await api.good("POST", f"/runs/{done}/cancel") == {"run_id": done, "status": "SUCCESS", "canceled": False}
    assert await api.good("POST", f"/runs/{running}/cancel") == {
        "run_id": running,
        "status": "CANCELED",
        "canceled": False,
    }
    assert await api.bad("POST", "/runs/12345/cancel") == (404, "NOT_FOUND")
    assert await api.bad("POST", "/runs/x/cancel") == (400, "INVALID_ID")


async def test_what_has_ended_can_be_run_again(api: Api):
    await api.create(payload={"a": 1})
    run_id = await api.trigger(1, payload={"a": 2})
    assert await api.bad("POST", f"/runs/{run_id}/retry") == (409, "INVALID_STATE")
    await api.finish(await api.claim(), S.FAILED)
    told = await api.good("POST", f"/runs/{run_id}/retry")
    assert told["retry_of_run_id"] == run_id
    fresh = await api.good("GET", f"/runs/{told['run_id']}")
    assert (fresh["origin"], fresh["retry_of_run_id"], fresh["payload"]) == ("retry", run_id, {"a": 2})
    assert (await api.good("GET", f"/runs/{run_id}"))["status"] == "FAILED"
    assert await api.bad("POST", "/runs/1/retry") == (404, "NOT_FOUND")


async def test_a_delayed_run_can_be_promoted(api: Api):
    await api.create()
    run_id = await api.trigger(1, delay_seconds=3600)
    told = await api.good("POST", f"/runs/{run_id}/promote")
    assert (told["run_id"], told["status"]) == (run_id, "SCHEDULED")
    assert (await api.claim()).run_id == run_id
    assert await api.bad("POST", f"/runs/{run_id}/promote") == (409, "INVALID_STATE")
    assert await api.bad("POST", "/runs/1/promote") == (404, "NOT_FOUND")


async def test_a_run_shows_its_request_and_response_without_secrets(api_everywhere: Api):
    api = api_everywhere
    await api.create()
    run_id = await api.trigger(1)
    bodies = RunBodies(
        request_headers={"Authorization": "Bearer canary", "X-A": "canary", "Accept": "1"},
        request_body="ask",
        response_headers={"Set-Cookie": "canary", "X-B": "canary", "ETag": "2"},
        response_body="told",
    )
    await api.finish(await api.claim(), S.FAILED, response_code=500, error_details={"kind": "http_5xx"}, bodies=bodies)
    run = await api.good("GET", f"/runs/{run_id}")
    assert (run["status"], run["final_status"], run["response_code"], run["attempt"]) == ("FAILED", "FAILED", 500, 1)
    assert (run["request_body"], run["response_body"], run["truncated"]) == ("ask", "told", False)
    assert run["request_headers"] == {"Authorization": "***", "X-A": "***", "Accept": "1"}
    assert run["response_headers"] == {"Set-Cookie": "***", "X-B": "***", "ETag": "2"}
    assert run["error_details"] == {"kind": "http_5xx"}
    assert isinstance(run["duration_ms"], int)
    (attempt,) = (await api.good("GET", f"/runs/{run_id}/attempts"))["items"]
    assert (attempt["attempt"], attempt["status"], attempt["response_body"]) == (1, "FAILED", "told")
    assert "canary" not in str(run) + str(attempt)
    assert "response_body" not in (await api.good("GET", "/runs"))["items"][0]


async def test_the_log_is_read_piece_by_piece(api: Api):
    await api.create()
    run_id = await api.trigger(1)
    lease = await api.claim()
    await api.store.log(run_id, lease.token, [("info", "one"), ("error", "two")])
    told = await api.good("GET", f"/runs/{run_id}/log?limit=1")
    assert [line["message"] for line in told["items"]] == ["one"]
    told = await api.good("GET", f"/runs/{run_id}/log?after={told['next_after']}")
    assert [(line["level"], line["message"]) for line in told["items"]] == [("error", "two")]
    for path in ("log", "attempts", "callbacks"):
        assert await api.bad("GET", f"/runs/99/{path}") == (404, "NOT_FOUND")


async def test_many_runs_are_canceled_and_retried_by_filter(api: Api):
    await api.create()
    ids = [await api.trigger(1) for _ in range(4)]
    body = {"filter": {"task": 1, "status": ["SCHEDULED"]}}
    assert await api.good("POST", "/runs/cancel", {**body, "dry_run": True}) == {
        "matched": 4,
        "canceled": 0,
        "more": False,
    }
    assert await api.good("POST", "/runs/cancel", body) == {"matched": 4, "canceled": 4, "more": False}
    assert await api.good("POST", "/runs/cancel", {"all": True}) == {"matched": 0, "canceled": 0, "more": False}
    told = await api.good("POST", "/runs/retry", {"filter": {"task": "a"}})
    assert told == {"matched": 4, "retried": 4, "more": False}
    fresh = (await api.good("GET", "/runs?origin=retry"))["items"]
    assert {run["retry_of_run_id"] for run in fresh} == set(ids)
    assert await api.bad("POST", "/runs/cancel", {}) == (400, "INVALID_ARGUMENT")
    told = await api.call("POST", "/runs/cancel", {"filter": {"taks": 1}})
    assert list(told.body["details"]) == ["filter.taks"]


async def test_stats_count_and_average(api_everywhere: Api):
    api = api_everywhere
    await api.create(max_concurrency=None)
    for _ in range(3):
        await api.trigger(1)
    await api.finish(await api.claim(), S.SUCCESS)
    await api.finish(await api.claim(), S.FAILED)
    told = await api.good("GET", "/stats?task=a")
    assert (told["total"], told["by_status"]["SUCCESS"], told["by_status"]["SCHEDULED"]) == (3, 1, 1)
    assert told["by_final_status"] == {"SUCCESS": 1, "FAILED": 1, "CANCELED": 0, "SKIPPED": 0}
    assert told["success_rate"] == 0.5
    (mine,) = told["tasks"]
    assert (mine["task_name"], mine["runs"]) == ("a", 2)
    ended = [run for run in (await api.good("GET", "/runs"))["items"] if run["final_status"]]
    for name, since, until in (
        ("average_duration_ms", "start_time", "end_time"),
        ("average_lag_ms", "scheduled_time", "start_time"),
    ):
        spans = [datetime.fromisoformat(run[until]) - datetime.fromisoformat(run[since]) for run in ended]
        assert mine[name] == pytest.approx(sum(spans, timedelta()) / timedelta(milliseconds=len(spans)), abs=2), name
    assert (await api.good("GET", "/stats?to=2020-01-01T00:00:00Z"))["total"] == 0
    assert await api.bad("GET", "/stats?since=1") == (400, "INVALID_ARGUMENT")
    for narrower in ("stats?search=x", "stats?step=x", "stats/sla?search=x"):  # what the figures cannot be narrowed by
        assert await api.bad("GET", f"/{narrower}") == (400, "INVALID_ARGUMENT")


async def test_a_trigger_for_a_moment_long_past_is_not_late(api: Api):
    await api.create()
    await api.good("POST", "/tasks/1/trigger", {"run_at": "2020-01-01T00:00:00Z"})
    await api.finish(await api.claim(), S.SUCCESS)
    (mine,) = (await api.good("GET", "/stats"))["tasks"]
    assert mine["average_lag_ms"] < 60_000


async def test_many_triggers_at_once_each_make_one_run(api_everywhere: Api):
    await api_everywhere.create(**{**HTTP, "max_concurrency": None})
    ids = await asyncio.gather(*(api_everywhere.trigger(1) for _ in range(50)))
    assert len(set(ids)) == 50
    assert (await api_everywhere.good("GET", "/runs"))["total"] == 50


@pytest.mark.parametrize("body", [{}, {"runs": []}, {"runs": "x"}, {"runs": [None]}, {"runs": [{"task": {}}]}])
async def test_a_history_that_cannot_be_read_is_refused_by_name(api: Api, body):
    told = await api.call("POST", "/runs/import", body)
    assert (told.status, told.code) == (400, "INVALID_ARGUMENT")
    assert all(name.startswith("runs") for name in told.body["details"])


async def test_a_run_of_the_past_does_not_end_before_it_began(api: Api):
    await api.create()
    past = {"task": "a", "key": "k", "status": "SUCCESS", "scheduled_time": "2025-10-14T10:05:00Z"}
    good = {**past, "end_time": "2025-10-14T10:05:01Z"}
    turned = {**good, "start_time": "2025-10-14T10:05:02Z"}
    told = await api.call("POST", "/runs/import", {"runs": [good, turned]})
    assert (told.status, list(told.body["details"])) == (400, ["runs[1].end_time"])
