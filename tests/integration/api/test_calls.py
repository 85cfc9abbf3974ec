"""Calls over HTTP: what is taken, what is refused, and what is shown of them."""

from __future__ import annotations

import asyncio
import io
from datetime import datetime
from typing import Any

import msgspec
import pytest

from integration.api.serving import Api
from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import ClaimRequest
from noonbell.model.run import Lease, RunStatus
from noonbell.model.worker import WorkerInfo

URL = "http://127.0.0.1:9000/x"


async def claim(api: Api, queue: str = "http") -> list[Lease]:
    asked = ClaimRequest(worker_id="w1", queues=(queue,), max=100, job_types=(CALL_TYPE,))
    return (await api.store.claim(asked)).leases


async def made(api: Api, **fields: Any) -> int:
    return int((await api.good("POST", "/calls", {"url": URL, **fields}))["run_id"])


async def problems(api: Api, path: str, body: Any) -> dict[str, str]:
    told = await api.call("POST", path, body)
    assert (told.status, told.code) == (400, "INVALID_ARGUMENT"), told.text
    return dict(told.body["details"])


async def test_a_call_is_a_run_with_what_it_calls(api_everywhere: Api):
    api = api_everywhere
    fields = {
        "method": "PUT",
        "headers": {"Authorization": "Bearer hush-hush", "Accept": "text/plain"},
        "body": {"to": "a@example.com"},
        "priority": 5,
        "timeout_seconds": 3,
        "retry_policy": {"max_retries": 7},
        "labels": {"team": "mail"},
        "key": "mail-1",
    }
    answer = await api.good("POST", "/calls", {"url": URL, **fields})
    assert answer["outcome"] == "created"
    shown = await api.call("GET", f"/runs/{answer['run_id']}")
    run = shown.body
    assert (run["origin"], run["status"], run["queue"], run["priority"]) == ("call", "SCHEDULED", "http", 5)
    assert (run["key"], run["task_name"]) == ("mail-1", "calls:http")
    assert "hush-hush" not in shown.text
    call = run["call"]
    assert (call["url"], call["method"], call["timeout_seconds"], call["labels"]) == (URL, "PUT", 3, {"team": "mail"})
    assert call["headers"] == {"Authorization": "***", "Accept": "text/plain"}
    assert (call["retry_policy"]["max_retries"], call["retry_policy"]["strategy"]) == (7, "exponential")
    (lease,) = await claim(api)
    assert lease.overrides is not None
    assert (lease.run_id, lease.overrides["override_body"]) == (answer["run_id"], {"to": "a@example.com"})
    again = await api.good("POST", "/calls", {"url": URL, **fields})
    assert again == {"run_id": answer["run_id"], "outcome": "running"}
    listed = await api.good("GET", "/runs?origin=call&queue=http&key=mail-1&status=RUNNING")
    assert [one["id"] for one in listed["items"]] == [answer["run_id"]]
    deeds = (await api.good("GET", "/audit"))["items"]
    assert [deed["details"]["run_id"] for deed in deeds if deed["action"] == "make_call"] == [answer["run_id"]] * 2


async def test_what_is_left_out_has_its_default(quick_api: Api):
    run = await quick_api.good("GET", f"/runs/{await made(quick_api)}")
    call = run["call"]
    assert (call["method"], call["timeout_seconds"], call["retry_policy"]["max_retries"]) == ("POST", 10, 3)
    assert (call["headers"], call["success_url"], call["failure_url"]) == ({}, None, None)


async def test_a_task_has_no_call(quick_api: Api):
    await quick_api.create()
    assert (await quick_api.good("GET", f"/runs/{await quick_api.trigger(1)}"))["call"] is None


async def test_a_call_may_be_for_later_and_be_canceled_before(quick_api: Api):
    run_id = await made(quick_api, delay_seconds=3_600)
    at = await made(quick_api, run_at="2099-01-01T00:00:00Z")
    assert (await quick_api.good("GET", f"/runs/{at}"))["run_at"] == "2099-01-01T00:00:00Z"
    assert await claim(quick_api) == []
    answer = await quick_api.good("POST", f"/runs/{run_id}/cancel")
    assert (answer["status"], answer["canceled"]) == ("CANCELED", True)


async def test_a_call_that_has_ended_can_be_made_again(quick_api: Api):
    run_id = await made(quick_api, body="the same")
    (lease,) = await claim(quick_api)
    await quick_api.finish(lease, RunStatus.FAILED)
    again = await quick_api.good("POST", f"/runs/{run_id}/retry")
    (second,) = await claim(quick_api)
    assert second.run_id == again["run_id"]
    assert (second.step, second.overrides) == (lease.step, lease.overrides)


async def test_every_problem_of_a_call_is_named(quick_api: Api):
    body = {
        "url": "ftp://host/x",
        "method": "CONNECT",
        "headers": {"Host": "elsewhere"},
        "timeout_seconds": 3_601,
        "retry_policy": {"max_retries": -1},
        "success_url": "nowhere",
        "run_at": "2099-01-01T00:00:00Z",
        "delay_seconds": 1,
        "queue": "",
        "when": "now",
    }
    expected = {"url", "method", "headers.Host", "timeout_seconds", "retry_policy.max_retries", "success_url", "run_at"}
    assert set(await problems(quick_api, "/calls", body)) == expected | {"queue", "when"}
    assert set(await problems(quick_api, "/calls", {})) == {"url"}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://169.254.169.254/latest", "metadata"),
        ("http://[fe80::1]/", "link-local"),
        ("http://example.com:22/", "port 22"),
    ],
)
async def test_what_the_guard_denies_is_refused_where_the_call_is_made(quick_api: Api, url: str, why: str):
    assert why in (await problems(quick_api, "/calls", {"url": url}))["url"]
    assert set(await problems(quick_api, "/calls", {"url": URL, "failure_url": url})) == {"failure_url"}


async def test_a_batch_is_made_as_a_whole_in_the_order_of_its_calls(api_everywhere: Api):
    api = api_everywhere
    calls = [{"url": URL, "body": str(n), "queue": "reports" if n % 2 else "http"} for n in range(40)]
    answer = await api.good(
        "POST", "/calls/batch", {"calls": [*calls, {"url": URL, "key": "k"}, {"url": URL, "key": "k"}]}
    )
    outcomes = [one["outcome"] for one in answer["calls"]]
    assert outcomes == [*["created"] * 41, "exists"]
    run_ids = [one["run_id"] for one in answer["calls"][:40]]
    found = {lease.run_id: lease for queue in ("http", "reports") for lease in await claim(api, queue)}
    assert [found[run_id].overrides["override_body"] for run_id in run_ids] == [str(n) for n in range(40)]  # type: ignore[index]


async def test_a_batch_names_each_problem_with_its_place_and_makes_nothing(quick_api: Api):
    calls = [{"url": URL}, {"url": "x"}, 7, {"url": URL, "priority": "high"}]
    found = await problems(quick_api, "/calls/batch", {"calls": calls, "other": 1})
    assert set(found) == {"other", "calls[1].url", "calls[2]", "calls[3].priority"}
    found = await problems(quick_api, "/calls/batch", {"calls": calls})
    assert set(found) == {"calls[1].url", "calls[2]", "calls[3].priority"}
    assert "calls" in await problems(quick_api, "/calls/batch", {"calls": []})
    assert await problems(quick_api, "/calls/batch", {}) == {"calls": "is missing; expected a list of calls"}
    assert await problems(quick_api, "/calls/batch", {"calls": None}) == {"calls": "is None; expected a list of calls"}
    wide = await problems(quick_api, "/calls", {"url": URL, "delay_seconds": -1})
    assert wide == {"delay_seconds": "is -1; expected a number from 0 to 315360000"}
    assert "calls" in await problems(quick_api, "/calls/batch", {"calls": [{"url": URL}] * 10_001})
    assert await claim(quick_api) == []


async def test_the_task_of_calls_shows_nowhere_among_tasks_and_takes_no_trigger(quick_api: Api):
    await made(quick_api)
    assert (await quick_api.good("GET", "/tasks?include_system=true"))["items"] == []
    assert (await quick_api.good("GET", "/tasks"))["total"] == 0
    for method, path, body in (
        ("POST", "/tasks/name:calls%3Ahttp/trigger", None),
        ("PATCH", "/tasks/name:calls%3Ahttp", {"priority": 1}),
        ("DELETE", "/tasks/name:calls%3Ahttp", None),
        ("POST", "/tasks/name:calls%3Ahttp/disable", None),
    ):
        assert await quick_api.bad(method, path, body) == (409, "INVALID_STATE"), path


async def test_a_task_that_took_the_name_is_named_in_the_refusal(quick_api: Api):
    await quick_api.create(name="calls:mine")
    told = await quick_api.call("POST", "/calls", {"url": URL, "queue": "mine"})
    assert (told.status, told.code) == (409, "INVALID_STATE")
    assert "calls:mine" in told.body["message"]


async def test_a_call_takes_a_body_of_a_mebibyte_and_names_one_that_is_longer(quick_api: Api):
    longest = "é" * (1_048_576 // 2)
    told = []
    for body in (longest, longest + "x"):
        sent = io.BytesIO(msgspec.json.encode({"url": URL, "body": body}))
        told.append(await quick_api.call("POST", "/calls", data=sent, headers={"Content-Type": "application/json"}))
    (lease,) = await claim(quick_api)
    assert (told[0].status, told[0].body["run_id"]) == (200, lease.run_id)
    assert (told[1].status, set(told[1].body["details"])) == (400, {"body"})


async def test_labels_beyond_the_most_are_told_how_many_may_be(quick_api: Api):
    told = await problems(quick_api, "/calls", {"url": URL, "labels": {str(n): "x" for n in range(51)}})
    assert told["labels"].endswith("; expected an object with at most 50 names")


async def test_a_call_explains_what_it_waits_for(quick_api: Api):
    run_id = await made(quick_api, queue="reports")
    said = await quick_api.good("GET", f"/runs/{run_id}/explain")
    assert said["cause"] == "no_worker"
    await quick_api.good("POST", "/queues/reports/pause")
    assert (await quick_api.good("GET", f"/runs/{run_id}/explain"))["cause"] == "queue_paused"


async def test_calls_of_one_key_are_made_one_after_the_other(api_everywhere: Api):
    api = api_everywhere
    made_so = [await made(api, concurrency_key="acme", body=str(n)) for n in range(3)]
    other = await made(api, concurrency_key="umbrella")
    pair = [await made(api, concurrency_key="wide", max_per_key=2) for _ in range(3)]
    first = {lease.run_id: lease for lease in await claim(api)}
    assert set(first) == {made_so[0], other, *pair[:2]}
    await api.store.register_worker(WorkerInfo(id="w1", incarnation="a", queues=("http",), job_types=(CALL_TYPE,)))
    said = await api.good("GET", f"/runs/{made_so[1]}/explain")
    assert (said["cause"], said["blocking_run_id"]) == ("key_full", made_so[0])
    call = (await api.good("GET", f"/runs/{pair[0]}"))["call"]
    assert (call["concurrency_key"], call["max_per_key"]) == ("wide", 2)
    await api.finish(first[made_so[0]], RunStatus.SUCCESS)
    await api.finish(first[pair[1]], RunStatus.FAILED)
    assert {lease.run_id for lease in await claim(api)} == {made_so[1], pair[2]}
    assert await problems(api, "/calls", {"url": URL, "max_per_key": 2}) != {}


async def test_calls_of_one_rate_key_share_the_rate_limit_of_their_queue(api_everywhere: Api):
    api = api_everywhere
    await api.good("PUT", "/queues/http", {"rate_limit": {"max": 1, "per_seconds": 3_600}})
    first = await made(api, rate_key="acme")
    batch = await api.good("POST", "/calls/batch", {"calls": [{"url": URL, "rate_key": key} for key in ("acme", "b")]})
    second, other = (one["run_id"] for one in batch["calls"])
    leases = await claim(api)
    assert {lease.run_id for lease in leases} == {first, other}
    await api.store.register_worker(WorkerInfo(id="w1", incarnation="a", queues=("http",), job_types=(CALL_TYPE,)))
    said = await api.good("GET", f"/runs/{second}/explain")
    assert (said["cause"], said["actor"]) == ("rate_limited", None)
    assert "acme" in said["message"]
    chinese = await api.good("GET", f"/runs/{second}/explain?lang=zh")
    assert "acme" in chinese["message"]
    assert chinese["message"] != said["message"]
    assert (await api.good("GET", f"/runs/{second}"))["call"]["rate_key"] == "acme"
    assert (await api.good("GET", f"/runs/{await made(api)}"))["call"]["rate_key"] is None
    await api.finish(leases[0], RunStatus.FAILED)
    again = await api.good("POST", f"/runs/{leases[0].run_id}/retry")
    run = await api.good("GET", f"/runs/{again['run_id']}")
    assert run["call"]["rate_key"] == (leases[0].overrides or {})["rate_key"]
    await api.good("PUT", "/queues/http", {})
    await api.store.promote(100)
    assert second in {lease.run_id for lease in await claim(api)}


@pytest.mark.parametrize("key", ["", 7, ["a"], {}, True, "a\x00b", "\ud800"])
async def test_a_rate_key_that_is_no_text_is_named_and_nothing_is_made(quick_api: Api, key: Any):
    body = {"url": URL, "rate_key": key}
    if key == "\ud800":
        raw = b'{"url": "http://127.0.0.1:9000/x", "rate_key": "\\ud800"}'
        told = await quick_api.call("POST", "/calls", data=raw, headers={"Content-Type": "application/json"})
        assert told.status == 400
    else:
        assert set(await problems(quick_api, "/calls", body)) == {"rate_key"}
        assert set(await problems(quick_api, "/calls/batch", {"calls": [{"url": URL}, body]})) == {"calls[1].rate_key"}
    assert (await quick_api.good("GET", "/runs?origin=call"))["items"] == []


async def test_a_task_cannot_run_after_calls(api_everywhere: Api):
    api = api_everywhere
    await made(api)
    named = await api.call(
        "POST", "/tasks", {"name": "after", "target_url": URL, "after": {"tasks": [{"task": "calls:http"}]}}
    )
    task = await api.store.task_named("calls:http")
    assert task is not None
    by_id = await api.call(
        "POST", "/tasks", {"name": "after", "target_url": URL, "after": {"tasks": [{"task": task.id}]}}
    )
    for told, shown in ((named, "'calls:http'"), (by_id, str(task.id))):
        assert (told.status, told.code) == (400, "INVALID_ARGUMENT")
        assert told.body["details"] == {
            "after.tasks[0].task": f"is {shown}, which is built in, for calls; expected another task:"
            " a call has a success_url and a failure_url"
        }
    assert (await api.good("GET", "/tasks"))["items"] == []


async def test_workers_show_no_job_type_of_calls(api_everywhere: Api):
    api = api_everywhere
    for id_, types in (("http", (CALL_TYPE,)), ("jobs", ("resize",)), ("any", None)):
        await api.store.register_worker(
            WorkerInfo(id=id_, incarnation="a", queues=("default",), job_types=types, concurrency=1)
        )
    items = (await api.good("GET", "/workers"))["items"]
    assert {one["id"]: one["job_types"] for one in items} == {"any": None, "http": [], "jobs": ["resize"]}


async def test_a_worker_of_the_protocol_cannot_ask_for_calls(quick_api: Api):
    await made(quick_api, queue="default")
    told = await problems(quick_api, "/workers/w1/claim", {"queues": ["default"], "job_types": ["resize", CALL_TYPE]})
    assert told == {"job_types": "names 'noonbell.call'; only built-in workers make calls"}


async def test_a_task_cannot_have_the_job_type_of_calls(quick_api: Api):
    told = await problems(quick_api, "/tasks", {"name": "mine", "job_type": CALL_TYPE})
    assert told == {"job_type": "is 'noonbell.call', which is for calls; create one with POST /api/v1/calls"}


async def test_a_call_that_no_worker_takes_in_time_is_skipped_and_told(api_everywhere: Api):
    api = api_everywhere
    now = await api.store.now()
    soon, late = rfc3339(Instant(now + SECOND)), rfc3339(Instant(now + 3_600 * SECOND))
    expiring = await made(api, expires_at=soon, failure_url=URL, labels={"team": "mail"})
    (kept,) = (await api.good("POST", "/calls/batch", {"calls": [{"url": URL, "expires_at": late}]}))["calls"]
    assert (await api.good("GET", f"/runs/{kept['run_id']}"))["expires_at"] == late
    expired = 0
    async with asyncio.timeout(30):
        while expired == 0:
            expired = len((await api.store.expire(10)).tasks)
            await asyncio.sleep(0.05)
    run = await api.good("GET", f"/runs/{expiring}")
    assert (run["status"], run["skip_reason"], run["attempt"]) == ("SKIPPED", "expired", 0)
    leases = await claim(api)
    told = next(lease for lease in leases if lease.run_id != kept["run_id"])
    assert told.overrides is not None
    outcome = msgspec.json.decode(told.overrides["override_body"])
    assert (outcome["run_id"], outcome["status"], outcome["attempts"]) == (expiring, "SKIPPED", 0)
    assert outcome["skip_reason"] == "expired"
    assert len(leases) == 2
    answer = await api.good("GET", f"/runs/{expiring}/explain")
    at = datetime.fromisoformat(soon).replace(microsecond=0).isoformat(sep=" ")
    assert answer["message"] == f"Skipped: no worker had claimed the call by {at} (expires_at)."
    assert (answer["cause"], answer["policy"]) == ("expired", None)


async def test_a_call_cannot_be_over_before_it_is_due(quick_api: Api):
    now = await quick_api.store.now()
    soon = rfc3339(Instant(now + 60 * SECOND))
    said = "is before the call is due; expected a later time"
    assert await problems(quick_api, "/calls", {"url": URL, "expires_at": rfc3339(now)}) == {"expires_at": said}
    late = {"url": URL, "expires_at": soon, "delay_seconds": 61}
    later = {"url": URL, "expires_at": soon, "run_at": soon}
    told = await problems(quick_api, "/calls/batch", {"calls": [late, {"url": URL, "expires_at": soon}, later]})
    assert told == {"calls[0].expires_at": said, "calls[2].expires_at": said}
    assert await claim(quick_api) == []
