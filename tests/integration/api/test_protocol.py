"""The worker protocol over HTTP: claim, heartbeat, settle, progress, log, extend; and workers that leave."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from integration.api.serving import JOB, Api, serving
from noonbell.engine.sweeper import Sweeper

CLAIM = {"queues": ["default"], "max": 10, "wait_seconds": 0}


async def a_job(api: Api, name: str = "a", **fields: Any) -> int:
    return int((await api.good("POST", "/tasks", {**JOB, "name": name, **fields}, 201))["id"])


async def claim(api: Api, worker: str = "w1", **fields: Any) -> list[Any]:
    return (await api.good("POST", f"/workers/{worker}/claim", {**CLAIM, **fields}))["runs"]


async def claim_one(api: Api, worker: str = "w1", **fields: Any) -> Any:
    (run,) = await claim(api, worker, **fields)
    return run


def held(run: Any, worker: str = "w1", **more: Any) -> dict[str, Any]:
    return {"worker_id": worker, "token": run["token"], **more}


async def settle(api: Api, run: Any, outcome: str, worker: str = "w1", **more: Any) -> str:
    answer = await api.good("POST", f"/runs/{run['run_id']}/settle", held(run, worker, outcome=outcome, **more))
    assert answer["run_id"] == run["run_id"]
    return str(answer["status"])


async def beat(api: Api, *runs: Any, worker: str = "w1") -> Any:
    pairs = [{"run_id": run["run_id"], "token": run["token"]} for run in runs]
    return await api.good("POST", f"/workers/{worker}/heartbeat", {"runs": pairs})


async def sweep(api: Api) -> None:
    await Sweeper(api.store, api.services.wakeup).tick()


# ---- claim


async def test_a_claim_hands_out_all_that_a_worker_needs(api_everywhere: Api):
    api = api_everywhere
    task_id = await a_job(api, "nightly", payload={"of": "task"}, priority=3, timeout_seconds=60, ping_interval_ms=700)
    run_id = await api.trigger(task_id, payload={"n": 1}, key="k")
    answer = await api.good("POST", "/workers/w1/claim", CLAIM)
    (run,) = answer["runs"]
    stored = await api.good("GET", f"/runs/{run_id}")
    assert run == {
        "run_id": run_id,
        "task_id": task_id,
        "task_name": "nightly",
        "job_type": "resize",
        "payload": {"n": 1},
        "key": "k",
        "idempotency_key": stored["idempotency_key"],
        "queue": "default",
        "priority": 3,
        "attempt": 1,
        "token": run["token"],
        "scheduled_time": stored["scheduled_time"],
        "previous_scheduled_time": None,
        "timeout_seconds": 60,
        "ping_interval_ms": 700,
        "lease_expires_at": stored["lease_expires_at"],
        "shard_index": None,
        "shard_total": None,
    }
    assert (stored["status"], stored["worker_id"]) == ("RUNNING", "w1")
    assert answer["worker"] == {"state": "running", "concurrency": 100}


async def test_a_run_of_a_slot_says_which_slot_came_before_it(api: Api):
    task_id = await a_job(api, cron_expr="0 * * * *")
    await api.good("POST", f"/tasks/{task_id}/backfill", {"from": "2026-01-01T05:00:00Z", "to": "2026-01-01T05:00:00Z"})
    run = await claim_one(api)
    assert (run["scheduled_time"], run["previous_scheduled_time"]) == ("2026-01-01T05:00:00Z", "2026-01-01T04:00:00Z")


async def test_the_first_claim_registers_the_worker_and_a_later_one_changes_what_it_says(api: Api):
    said = {"queues": ["a", "b"], "job_types": ["x"], "version": 7, "concurrency": 5}
    assert await claim(api, "w%2F1", **said) == []
    (worker,) = (await api.good("GET", "/workers"))["items"]
    assert {name: worker[name] for name in ("id", "state", "running", *said)} == {
        "id": "w/1",
        "state": "running",
        "running": 0,
        **said,
    }
    await claim(api, "w%2F1", **{**said, "version": 8})
    assert (await api.good("GET", "/workers/w%2F1"))["version"] == 8


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"queues": ["http"]}, "queues"),
        ({"queues": []}, "queues"),
        ({"queues": "default"}, "queues"),
        ({"queues": [""]}, "queues[0]"),
        ({"max": 0}, "max"),
        ({"max": 1_001}, "max"),
        ({"wait_seconds": 31}, "wait_seconds"),
        ({"wait_seconds": -1}, "wait_seconds"),
        ({"version": -1}, "version"),
        ({"job_types": [3]}, "job_types[0]"),
        ({"concurrency": -1}, "concurrency"),
        ({"worker": "w"}, "worker"),
    ],
)
async def test_a_claim_that_makes_no_sense_is_refused_and_registers_nobody(quick_api: Api, fields, wrong):
    told = await quick_api.call("POST", "/workers/w1/claim", {**CLAIM, **fields})
    assert (told.status, told.code, list(told.body["details"])) == (400, "INVALID_ARGUMENT", [wrong])
    assert (await quick_api.good("GET", "/workers"))["items"] == []


async def test_a_worker_id_that_is_none_is_refused(quick_api: Api):
    for worker_id in ("x" * 256, "a%0Ab"):
        assert await quick_api.bad("POST", f"/workers/{worker_id}/claim", CLAIM) == (400, "INVALID_ID")


async def test_the_id_of_a_built_in_worker_is_taken(quick_api: Api):
    await quick_api.parts.node.start()
    try:
        (built_in,) = [one for one in (await quick_api.good("GET", "/workers"))["items"] if "http" in one["queues"]]
        told = await quick_api.call("POST", f"/workers/{built_in['id']}/claim", CLAIM)
        assert (told.status, told.code) == (409, "ALREADY_EXISTS")
    finally:
        await quick_api.parts.node.stop(0)


async def test_http_runs_are_not_for_workers_of_the_protocol(api: Api):
    await api.trigger(await api.create(name="call"))
    assert await claim(api) == []


async def test_only_what_the_worker_knows_is_new_enough_for_and_is_named_by_is_handed_out(api: Api):
    for name, fields in {
        "other": {"job_type": "other"},
        "newer": {"min_worker_version": 5},
        "pinned": {"specific_worker_ids": ["w2"]},
        "queue": {"queue": "slow"},
    }.items():
        await api.trigger(await a_job(api, name, **fields))
    assert await claim(api, job_types=["resize"], version=4) == []
    assert [run["task_name"] for run in await claim(api, job_types=["resize"], version=5)] == ["newer"]
    assert [run["task_name"] for run in await claim(api, "w2", job_types=["resize"])] == ["pinned"]
    assert [run["task_name"] for run in await claim(api, queues=["slow"])] == ["queue"]
    assert [run["task_name"] for run in await claim(api)] == ["other"]


async def test_a_long_poll_is_answered_when_something_comes(api_everywhere: Api):
    api = api_everywhere
    task_id = await a_job(api)
    waiting = asyncio.create_task(claim(api, wait_seconds=30))
    await until_waiting(api, 1)
    run_id = await api.trigger(task_id)
    assert [run["run_id"] for run in await waiting] == [run_id]


async def test_a_long_poll_without_anything_ends_with_nothing(quick_api: Api):
    assert await claim(quick_api, wait_seconds=0.05) == []


async def test_sixty_long_polls_share_sixty_runs(quick_api: Api):
    task_id = await a_job(quick_api)
    polls = [asyncio.create_task(claim(quick_api, f"w{n}", max=1, wait_seconds=30)) for n in range(60)]
    await until_waiting(quick_api, 60)
    await quick_api.good("POST", "/runs/batch", {"runs": [{"task": task_id}] * 60})
    found = [run["run_id"] for runs in await asyncio.gather(*polls) for run in runs]
    assert len(found) == len(set(found)) == 60


async def test_a_worker_that_hangs_up_while_it_waits_takes_no_run(api: Api):
    task_id = await a_job(api)
    waiting = asyncio.create_task(claim(api, "gone", wait_seconds=30))
    await until_waiting(api, 1)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    await until_waiting(api, 0)
    run_id = await api.trigger(task_id)
    run = await claim_one(api, "here")
    assert (run["run_id"], run["attempt"]) == (run_id, 1)


async def until_waiting(api: Api, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            if api.parts.long_poll.waiting == count:
                return
            await asyncio.sleep(0.01)


# ---- heartbeat


async def test_a_heartbeat_renews_and_brings_orders(api_everywhere: Api):
    api = api_everywhere
    task_id = await a_job(api)
    runs = [await api.trigger(task_id) for _ in range(3)]
    mine = {run["run_id"]: run for run in await claim(api)}
    await api.good("POST", f"/runs/{runs[1]}/cancel")
    await settle(api, mine[runs[2]], "success")
    answer = await beat(api, *(mine[run_id] for run_id in runs))
    assert [(one["run_id"], one["order"]) for one in answer["runs"]] == list(
        zip(runs, ("continue", "cancel", "lost"), strict=True)
    )
    assert answer["runs"][0]["lease_expires_at"] > mine[runs[0]]["lease_expires_at"]
    assert answer["runs"][0]["ping_interval_ms"] == 5000
    assert answer["runs"][1]["lease_expires_at"] is None
    assert answer["worker"] == {"state": "running", "concurrency": 100}


async def test_a_worker_that_may_not_have_it_any_longer_is_told_to_cancel_and_hands_it_back(api: Api):
    task_id = await a_job(api, specific_worker_ids=["w1", "w2"])
    await api.trigger(task_id)
    run = await claim_one(api)
    await api.good("PATCH", f"/tasks/{task_id}", {"specific_worker_ids": ["w2"], "ping_interval_ms": 900})
    (order,) = (await beat(api, run))["runs"]
    assert (order["order"], order["ping_interval_ms"]) == ("cancel", 900)
    assert order["lease_expires_at"] is not None
    assert await settle(api, run, "release") == "SCHEDULED"
    assert await claim(api) == []
    other = await claim_one(api, "w2")
    assert (other["run_id"], other["attempt"]) == (run["run_id"], 1)


async def test_a_heartbeat_of_somebody_else_renews_nothing(api: Api):
    await api.trigger(await a_job(api))
    run = await claim_one(api)
    (order,) = (await beat(api, run, worker="thief"))["runs"]
    assert order["order"] == "lost"
    assert (await api.good("GET", f"/runs/{run['run_id']}"))["lease_expires_at"] == run["lease_expires_at"]


async def test_a_heartbeat_of_nothing_is_a_sign_of_life(api: Api):
    assert await claim(api) == []
    assert (await api.good("POST", "/workers/w1/heartbeat"))["runs"] == []
    assert await beat(api, worker="nobody") == {"runs": [], "worker": {"state": "running", "concurrency": None}}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({"runs": 3}, "runs"),
        ({"runs": [3]}, "runs[0]"),
        ({"runs": [{"run_id": 1}]}, "runs[0].token"),
        ({"runs": [{"token": 1}]}, "runs[0].run_id"),
        ({"runs": [{"run_id": 1, "token": "x"}]}, "runs[0].token"),
        ({"run": []}, "run"),
    ],
)
async def test_a_heartbeat_that_makes_no_sense_is_refused(quick_api: Api, body, wrong):
    told = await quick_api.call("POST", "/workers/w1/heartbeat", body)
    assert (told.status, list(told.body["details"])) == (400, [wrong])


# ---- settle


async def test_success_keeps_the_result(api_everywhere: Api):
    api = api_everywhere
    await api.trigger(await a_job(api))
    run = await claim_one(api)
    assert await settle(api, run, "success", result={"rows": [1, 2]}) == "SUCCESS"
    stored = await api.good("GET", f"/runs/{run['run_id']}")
    assert (stored["status"], stored["result"], stored["worker_id"]) == ("SUCCESS", {"rows": [1, 2]}, "w1")
    assert stored["end_time"] is not None


async def test_fail_is_final_whatever_the_retry_policy_says(api: Api):
    await api.trigger(await a_job(api, retry_policy={"max_retries": 5}))
    run = await claim_one(api)
    details = {"error_message": "no such image", "error_details": {"image": "a.png", "kind": "lies"}}
    assert await settle(api, run, "fail", **details) == "FAILED"
    stored = await api.good("GET", f"/runs/{run['run_id']}")
    assert (stored["error_message"], stored["retry_count"]) == ("no such image", 0)
    assert stored["error_details"] == {"kind": "fail", "image": "a.png"}


async def test_error_follows_the_retry_policy_until_it_is_spent(api: Api):
    await api.trigger(await a_job(api, retry_policy={"max_retries": 2, "initial_delay": 0}))
    for attempt, status in enumerate(("RETRYING", "RETRYING", "FAILED"), 1):
        run = await claim_one(api)
        assert run["attempt"] == attempt
        assert await settle(api, run, "error", error_message=f"try {attempt}") == status
    stored = await api.good("GET", f"/runs/{run['run_id']}")
    assert (stored["status"], stored["retry_count"], stored["error_message"]) == ("FAILED", 2, "try 3")
    attempts = (await api.good("GET", f"/runs/{run['run_id']}/attempts"))["items"]
    assert [one["error_message"] for one in attempts] == ["try 1", "try 2", "try 3"]


async def test_an_old_token_is_refused_and_changes_nothing(api_everywhere: Api):
    api = api_everywhere
    await api.trigger(await a_job(api, retry_policy={"max_retries": 3, "initial_delay": 0}))
    old = await claim_one(api)
    await settle(api, old, "error")
    new = await claim_one(api, "w2")
    for path, more in (
        ("settle", {"outcome": "success", "result": "stale"}),
        ("progress", {"current": 1}),
        ("log", {"message": "stale"}),
        ("extend", {"seconds": 600}),
    ):
        for body in (held(old, **more), held(old, "w2", **more), held(new, "w1", **more)):
            told = await api.call("POST", f"/runs/{old['run_id']}/{path}", body)
            assert (told.status, told.code) == (409, "LEASE_LOST"), path
    stored = await api.good("GET", f"/runs/{old['run_id']}")
    assert (stored["status"], stored["result"], stored["progress"]) == ("RUNNING", None, None)
    assert (await api.good("GET", f"/runs/{old['run_id']}/log"))["items"] == []
    assert stored["lease_expires_at"] == new["lease_expires_at"]
    assert await settle(api, new, "success", "w2") == "SUCCESS"


async def test_a_settlement_sent_twice_is_heard_once(api: Api):
    await api.trigger(await a_job(api))
    run = await claim_one(api)
    await settle(api, run, "success")
    told = await api.call("POST", f"/runs/{run['run_id']}/settle", held(run, outcome="fail"))
    assert (told.status, told.code, told.body["details"]) == (409, "LEASE_LOST", {"order": "lost", "status": "SUCCESS"})


async def test_a_canceled_run_takes_no_result(api: Api):
    await api.trigger(await a_job(api))
    run = await claim_one(api)
    await api.good("POST", f"/runs/{run['run_id']}/cancel")
    told = await api.call("POST", f"/runs/{run['run_id']}/settle", held(run, outcome="success"))
    assert (told.code, told.body["details"]) == ("LEASE_LOST", {"order": "cancel", "status": "CANCELED"})
    told = await api.call("POST", f"/runs/{run['run_id']}/progress", held(run, current=1))
    assert (told.code, told.body["details"]["order"]) == ("LEASE_LOST", "cancel")


async def test_what_is_handed_back_is_not_counted_as_an_attempt(api: Api):
    await api.trigger(await a_job(api))
    assert await settle(api, await claim_one(api), "release") == "SCHEDULED"
    assert (await claim_one(api, "w2"))["attempt"] == 1


async def test_at_most_once_is_begun_when_it_is_handed_out_and_never_handed_out_again(api: Api):
    await api.trigger(await a_job(api, delivery="at_most_once", worker_timeout_ms=1000, ping_interval_ms=500))
    run = await claim_one(api)
    await expired(api, run["run_id"])
    await sweep(api)
    stored = await api.good("GET", f"/runs/{run['run_id']}")
    said = {"code": "lost", "facts": {"worker": "w1"}}
    assert (stored["status"], stored["error_details"]) == ("FAILED", {"kind": "unknown", "said": said})


async def test_another_worker_takes_over_when_the_lease_has_run_out(api_everywhere: Api):
    api = api_everywhere
    await api.trigger(await a_job(api, worker_timeout_ms=1000, ping_interval_ms=500))
    dead = await claim_one(api, "dead")
    await expired(api, dead["run_id"])
    await sweep(api)
    other = await claim_one(api, "alive")
    assert (other["run_id"], other["attempt"]) == (dead["run_id"], 2)
    told = await api.call("POST", f"/runs/{dead['run_id']}/settle", held(dead, "dead", outcome="success"))
    assert told.code == "LEASE_LOST"
    (order,) = (await beat(api, dead, worker="dead"))["runs"]
    assert order["order"] == "lost"
    assert await settle(api, other, "success", "alive") == "SUCCESS"


async def expired(api: Api, run_id: int) -> None:
    """Until the store's clock has passed the lease."""
    async with asyncio.timeout(60):
        while True:
            if any(one.run_id == run_id for one in await api.store.overdue(10)):
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("path", "body", "wrong"),
    [
        ("settle", {}, ["outcome", "token", "worker_id"]),
        ("settle", {"worker_id": "w", "token": 1, "outcome": "done"}, ["outcome"]),
        ("settle", {"worker_id": "w", "token": 1, "outcome": "fail", "why": 1}, ["why"]),
        ("progress", {"worker_id": "w", "token": 1}, ["current"]),
        ("progress", {"worker_id": "w", "token": 1, "current": "x"}, ["current"]),
        ("log", {"worker_id": "w", "token": 1}, ["message"]),
        ("log", {"worker_id": "w", "token": 1, "message": "x", "level": "loud"}, ["level"]),
        ("log", {"worker_id": "w", "token": 1, "lines": []}, ["lines"]),
        ("log", {"worker_id": "w", "token": 1, "lines": [{"level": "info"}, 3]}, ["lines[0].message", "lines[1]"]),
        ("extend", {"worker_id": "w", "token": 1}, ["seconds"]),
        ("extend", {"worker_id": "w", "token": 1, "seconds": 604_801}, ["seconds"]),
    ],
)
async def test_what_makes_no_sense_is_refused_with_each_field(quick_api: Api, path, body, wrong):
    told = await quick_api.call("POST", f"/runs/1/{path}", body)
    assert (told.status, sorted(told.body["details"])) == (400, wrong)


async def test_a_run_that_was_never_there(quick_api: Api):
    for path, more in (("settle", {"outcome": "fail"}), ("progress", {"current": 1}), ("extend", {"seconds": 5})):
        body = {"worker_id": "w", "token": 1, **more}
        assert await quick_api.bad("POST", f"/runs/77/{path}", body) == (404, "NOT_FOUND")


# ---- while it is held


async def test_progress_and_log_are_kept(api_everywhere: Api):
    api = api_everywhere
    await api.trigger(await a_job(api))
    run = await claim_one(api)
    path = f"/runs/{run['run_id']}"
    order = await api.good("POST", f"{path}/progress", held(run, current=3, total=10, message="third"))
    assert (order["run_id"], order["order"]) == (run["run_id"], "continue")
    assert order["lease_expires_at"] == run["lease_expires_at"]
    await api.good("POST", f"{path}/log", held(run, message="one"))
    await api.good("POST", f"{path}/log", held(run, lines=[{"level": "error", "message": "two"}, {"message": "3"}]))
    assert (await api.good("GET", path))["progress"] == {"current": 3, "total": 10, "message": "third"}
    lines = (await api.good("GET", f"{path}/log"))["items"]
    assert [(one["level"], one["message"]) for one in lines] == [("info", "one"), ("error", "two"), ("info", "3")]


async def test_progress_brings_the_order_to_cancel(api: Api):
    task_id = await a_job(api)
    await api.trigger(task_id)
    run = await claim_one(api)
    await api.good("PATCH", f"/tasks/{task_id}", {"specific_worker_ids": ["another"]})
    order = await api.good("POST", f"/runs/{run['run_id']}/progress", held(run, current=1))
    assert order["order"] == "cancel"


async def test_an_extension_moves_lease_and_timeout(api: Api):
    await api.trigger(await a_job(api, timeout_seconds=1, worker_timeout_ms=1000, ping_interval_ms=500))
    run = await claim_one(api)
    order = await api.good("POST", f"/runs/{run['run_id']}/extend", held(run, seconds=3600))
    assert order["lease_expires_at"] > run["lease_expires_at"]
    (overdue,) = await api.store.fetch("select expires_at - claimed_at, deadline_at - claimed_at from live")
    assert min(overdue) >= 3_590_000_000


async def test_the_store_ends_what_takes_too_long(api: Api):
    policy = {"max_retries": 0}
    await api.trigger(await a_job(api, timeout_seconds=0.2, retry_policy=policy))
    run = await claim_one(api)
    await expired(api, run["run_id"])
    await sweep(api)
    stored = await api.good("GET", f"/runs/{run['run_id']}")
    assert (stored["status"], stored["error_details"]["kind"]) == ("TIMEOUT", "timeout")
    assert (await beat(api, run))["runs"][0]["order"] == "lost"


# ---- several workers on one run


async def test_a_fan_out_goes_to_three_workers_each_once(api_everywhere: Api):
    api = api_everywhere
    parent = await api.trigger(await a_job(api, fanout={"workers": 3}))
    parts = {worker: await claim_one(api, worker) for worker in ("w1", "w2", "w3")}
    assert sorted(part["shard_index"] for part in parts.values()) == [0, 1, 2]
    assert {part["shard_total"] for part in parts.values()} == {3}
    for worker in parts:
        assert await claim(api, worker) == []
    for worker, part in parts.items():
        assert (await api.good("GET", f"/runs/{parent}"))["status"] == "RUNNING"
        await settle(api, part, "success", worker, result=worker)
    assert (await api.good("GET", f"/runs/{parent}"))["status"] == "SUCCESS"
    kept = (await api.good("GET", f"/runs?parent_id={parent}"))["items"]
    assert sorted(part["result"] for part in kept) == ["w1", "w2", "w3"]


async def test_a_fan_out_to_all_goes_to_all_that_are_there_and_allowed(api: Api):
    for worker in ("w1", "w2", "w3", "w4"):
        await claim(api, worker, queues=["other"] if worker == "w4" else ["default"])
    parent = await api.trigger(await a_job(api, fanout={"workers": "all"}))
    parts = {worker: await claim_one(api, worker) for worker in ("w3", "w1", "w2")}
    assert await claim(api, "late") == []
    for worker, part in parts.items():
        await settle(api, part, "success", worker)
    assert (await api.good("GET", f"/runs/{parent}"))["status"] == "SUCCESS"


@pytest.mark.parametrize(
    ("success", "outcomes", "status"),
    [
        ("all", ("success", "success", "success"), "SUCCESS"),
        ("all", ("success", "fail"), "FAILED"),
        ("any", ("fail", "fail", "success"), "SUCCESS"),
        ("any", ("fail", "fail", "fail"), "FAILED"),
        (2, ("success", "fail", "success"), "SUCCESS"),
        (2, ("fail", "success", "fail"), "FAILED"),
    ],
)
async def test_the_success_rule_decides_as_soon_as_it_can(api: Api, success, outcomes, status):
    parent = await api.trigger(await a_job(api, fanout={"workers": 3, "success": success}))
    parts = [(worker, await claim_one(api, worker)) for worker in ("w1", "w2", "w3")]
    for (worker, part), outcome in zip(parts, outcomes, strict=False):
        await settle(api, part, outcome, worker)
    assert (await api.good("GET", f"/runs/{parent}"))["status"] == status
    for worker, part in parts[len(outcomes) :]:
        assert (await beat(api, part, worker=worker))["runs"][0]["order"] == "cancel"


async def test_a_part_whose_worker_dies_goes_to_another_that_has_had_none(api: Api):
    fields = {"worker_timeout_ms": 1000, "ping_interval_ms": 500, "fanout": {"workers": 2}}
    parent = await api.trigger(await a_job(api, **fields))
    dead = await claim_one(api, "dead")
    good = await claim_one(api, "good")
    await settle(api, good, "success", "good")
    await expired(api, dead["run_id"])
    await sweep(api)
    assert await claim(api, "good") == []
    assert await claim(api, "dead") == []
    other = await claim_one(api, "other")
    assert (other["run_id"], other["shard_index"]) == (dead["run_id"], dead["shard_index"])
    await settle(api, other, "success", "other")
    assert (await api.good("GET", f"/runs/{parent}"))["status"] == "SUCCESS"


# ---- keys


async def test_a_key_with_every_outcome(api_everywhere: Api):
    api = api_everywhere
    task_id = await a_job(api, retry_policy={"max_retries": 0})

    async def publish(**fields: Any) -> tuple[int, str]:
        answer = await api.good("POST", f"/tasks/{task_id}/trigger", {"key": "k", **fields})
        return answer["run_id"], answer["outcome"]

    first, outcome = await publish(payload=1)
    assert outcome == "created"
    assert await publish(payload=2) == (first, "exists")
    run = await claim_one(api)
    assert (run["run_id"], run["payload"]) == (first, 1)
    assert await publish(payload=3, update_waiting=True, if_finished="rerun") == (first, "running")
    await settle(api, run, "success")
    assert await publish() == (first, "exists")
    assert await publish(if_finished="rerun_failed") == (first, "exists")
    second, outcome = await publish(payload=4, if_finished="rerun_succeeded")
    assert (outcome, second != first) == ("created", True)
    run = await claim_one(api)
    assert (run["run_id"], run["payload"]) == (second, 4)
    await settle(api, run, "fail")
    assert await publish(if_finished="rerun_succeeded") == (second, "exists")
    third, outcome = await publish(if_finished="rerun_failed")
    assert (outcome, len({first, second, third})) == ("created", 3)
    await api.good("POST", f"/runs/{third}/cancel")
    fourth, outcome = await publish(if_finished="rerun")
    assert (outcome, fourth != third) == ("created", True)


async def test_publishing_again_with_a_time_moves_the_start_and_replaces_what_it_carries(api_everywhere: Api):
    api = api_everywhere
    task_id = await a_job(api)
    body = {"key": "k", "run_at": "2099-01-01T00:00:00Z", "payload": {"n": 1}}
    created = await api.good("POST", f"/tasks/{task_id}/trigger", body)
    assert await claim(api) == []
    moved = {**body, "run_at": "2098-01-01T00:00:00Z", "update_waiting": True, "payload": {"n": 2}}
    again = await api.good("POST", f"/tasks/{task_id}/trigger", moved)
    assert again == {"run_id": created["run_id"], "outcome": "updated"}
    assert (await api.good("GET", f"/runs/{created['run_id']}"))["run_at"] == "2098-01-01T00:00:00Z"
    now = {"key": "k", "run_at": "2026-01-01T00:00:00Z", "update_waiting": True}
    await api.good("POST", f"/tasks/{task_id}/trigger", now)
    run = await claim_one(api)
    assert (run["run_id"], run["payload"]) == (created["run_id"], {"n": 2})


# ---- what an operator wants


async def test_a_draining_worker_gets_no_more_and_hears_of_it(api: Api):
    task_id = await a_job(api)
    await api.trigger(task_id)
    run = await claim_one(api)
    waiting = asyncio.create_task(api.good("POST", "/workers/w1/claim", {**CLAIM, "wait_seconds": 30}))
    await until_waiting(api, 1)
    assert await api.good("POST", "/workers/w1/drain") == {"worker_id": "w1", "state": "draining"}
    assert await waiting == {"runs": [], "worker": {"state": "draining", "concurrency": 100}}
    await api.trigger(task_id)
    assert await claim(api) == []
    assert (await beat(api, run))["worker"]["state"] == "draining"
    assert await settle(api, run, "success") == "SUCCESS"
    await api.good("POST", "/workers/w1/resume")
    assert len(await claim(api)) == 1


async def test_a_worker_that_is_to_stop_hears_of_it_and_gets_nothing(api: Api):
    await claim(api)
    assert await api.good("POST", "/workers/w1/stop") == {"worker_id": "w1", "state": "stopping"}
    await api.trigger(await a_job(api))
    answer = await api.good("POST", "/workers/w1/claim", CLAIM)
    assert answer == {"runs": [], "worker": {"state": "stopping", "concurrency": 100}}
    assert (await beat(api))["worker"]["state"] == "stopping"


async def test_the_concurrency_that_an_operator_sets_is_held_to(api: Api):
    task_id = await a_job(api)
    for _ in range(5):
        await api.trigger(task_id)
    first = await claim(api, max=1)
    changed = await api.good("PATCH", "/workers/w1", {"concurrency": 3})
    assert (changed["concurrency"], changed["running"]) == (3, 1)
    assert len(await claim(api)) == 2
    assert await claim(api) == []
    assert (await beat(api))["worker"]["concurrency"] == 3
    await settle(api, first[0], "success")
    assert len(await claim(api)) == 1
    await api.good("PATCH", "/workers/w1", {"concurrency": 0})
    assert await claim(api) == []
    await claim(api, version=1)  # saying something else of itself does not undo it
    assert (await api.good("GET", "/workers/w1"))["concurrency"] == 0


async def test_two_nodes_serve_one_worker(sqlite_url: str):
    async with serving(sqlite_url) as one, serving(sqlite_url) as two:
        task_id = await a_job(one)
        await one.trigger(task_id)
        await claim(two, queues=["nothing"])
        await two.good("PATCH", "/workers/w1", {"concurrency": 7})
        run = await claim_one(one)
        assert (await one.good("GET", "/workers/w1"))["queues"] == ["default"]
        assert (await beat(two, run))["worker"] == {"state": "running", "concurrency": 7}
        assert await settle(two, run, "success") == "SUCCESS"
