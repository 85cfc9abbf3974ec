"""Workers, as operators see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration.api.serving import JOB, Api
from noonbell.model.target_kind import OWN_QUEUES
from noonbell.model.worker import WorkerInfo
from noonbell.stores.sql.statement import Execute

FIELDS = {
    *("id", "state", "version", "queues", "job_types", "concurrency", "running", "part_of", "started_at"),
    *("last_heartbeat_at", "labels"),
}


async def come(api: Api, worker: str, **fields: Any) -> list[Any]:
    body = {"queues": ["default"], "max": 10, "wait_seconds": 0, **fields}
    return (await api.good("POST", f"/workers/{worker}/claim", body))["runs"]


async def test_workers_are_listed_with_what_they_hold(api_everywhere: Api):
    api = api_everywhere
    task_id = (await api.good("POST", "/tasks", JOB, 201))["id"]
    for _ in range(3):
        await api.trigger(task_id)
    await come(api, "b", max=2, version=4, job_types=["resize", "crop"], concurrency=8)
    await come(api, "a", max=1)
    items = (await api.good("GET", "/workers"))["items"]
    assert [set(item) for item in items] == [FIELDS, FIELDS]
    assert [(one["id"], one["running"], one["state"]) for one in items] == [("a", 1, "running"), ("b", 2, "running")]
    assert (items[1]["version"], items[1]["job_types"], items[1]["concurrency"]) == (4, ["resize", "crop"], 8)
    assert items[0]["job_types"] is None
    assert await api.good("GET", "/workers/b") == items[1]


async def test_a_worker_that_has_fallen_silent_is_lost(quick_api: Api):
    await quick_api.store.register_worker(WorkerInfo(id="old", incarnation="x"))
    await quick_api.store._write(lambda _: _silence())  # type: ignore[attr-defined]
    assert (await quick_api.good("GET", "/workers/old"))["state"] == "lost"


async def test_a_lost_worker_is_forgotten_and_one_that_is_connected_is_not(quick_api: Api):
    await come(quick_api, "old")
    assert await quick_api.bad("DELETE", "/workers/old") == (409, "INVALID_STATE")
    await quick_api.store._write(lambda _: _silence())  # type: ignore[attr-defined]
    assert await quick_api.good("DELETE", "/workers/old") == {"worker_id": "old", "deleted": True}
    assert await quick_api.bad("DELETE", "/workers/old") == (404, "NOT_FOUND")
    assert (await quick_api.good("GET", "/workers"))["items"] == []


def _silence():
    yield Execute("update workers set heartbeat_at = heartbeat_at - 60000000")


async def test_an_unknown_worker_is_not_found(quick_api: Api):
    for method, path, body in (
        ("GET", "/workers/x", None),
        ("PATCH", "/workers/x", {"concurrency": 1}),
        ("DELETE", "/workers/x", None),
        ("POST", "/workers/x/drain", None),
        ("POST", "/workers/x/stop", None),
        ("POST", "/workers/x/resume", None),
    ):
        assert await quick_api.bad(method, path, body) == (404, "NOT_FOUND")


@pytest.mark.parametrize("body", [{}, {"concurrency": -1}, {"concurrency": "many"}, {"concurrency": 1, "state": "x"}])
async def test_a_change_that_makes_no_sense_changes_nothing(quick_api: Api, body):
    await come(quick_api, "w1", concurrency=5)
    assert await quick_api.bad("PATCH", "/workers/w1", body) == (400, "INVALID_ARGUMENT")
    assert (await quick_api.good("GET", "/workers/w1"))["concurrency"] == 5


async def test_a_built_in_worker_is_drained_and_resumed_from_outside(api: Api):
    await api.parts.node.start()
    try:
        (mine,) = [one for one in (await api.good("GET", "/workers"))["items"] if one["queues"] == list(OWN_QUEUES)]
        await api.good("POST", f"/workers/{mine['id']}/drain")
        await told(api, mine["id"], "draining")
        run_id = await api.trigger(await api.create())
        await api.good("POST", f"/workers/{mine['id']}/resume")
        await told(api, mine["id"], "running")
        async with asyncio.timeout(60):
            while True:
                if (await api.good("GET", f"/runs/{run_id}"))["final_status"] is not None:
                    break
                await asyncio.sleep(0.02)
    finally:
        await api.parts.node.stop(1)


async def told(api: Api, worker_id: str, state: str) -> None:
    """Until the worker itself has heard of it."""
    async with asyncio.timeout(60):
        while True:
            workers = {one["id"]: one["state"] for one in api.parts.node.health()["workers"]}
            if workers[worker_id] == state:
                return
            await asyncio.sleep(0.02)
