"""What explain says of a time in which everything was paused, on every store."""

from __future__ import annotations

import pytest

from conformance.account.test_situations import _is_sound, plan_at, why, worker_there
from conformance.store.builders import at, claim, claim_one, done, every, finish, job, publish
from noonbell.clock import ManualClock, rfc3339
from noonbell.model.task import MisfirePolicy
from noonbell.ports import Store
from noonbell.service.explain import Explain

__all__ = ["_is_sound"]


@pytest.mark.parametrize(
    ("policy", "causes"),
    [
        (MisfirePolicy.FIRE_NOW, ["paused", "paused", "paused", "ran"]),
        (MisfirePolicy.FIRE_ONCE, ["paused", "paused", "paused", "ran"]),
        (MisfirePolicy.SKIP, ["paused", "paused", "paused", "ran"]),
        (MisfirePolicy.CATCH_UP_LIMITED, ["paused", "paused", "paused", "ran"]),
    ],
)
async def test_slots_that_a_pause_made_late_or_dropped(
    store: Store, clock: ManualClock, policy: MisfirePolicy, causes: list[str]
):
    task = await store.create_task(job(schedule=every(60), misfire_policy=policy, catchup_limit=2))
    clock.set(at(30))
    await store.pause_installation("the database moves", by="alice")
    clock.set(at(245))
    await store.resume_installation(by="bob")
    await plan_at(store, clock, 245)
    for lease in await claim(store):
        await done(store, finish(lease))
    found = [await why(store, task, seconds) for seconds in (60, 120, 180, 240)]
    assert [answer["cause"] for answer in found] == causes
    assert (found[0]["actor"], found[0]["since"]) == ("alice", rfc3339(at(30)))
    assert "from 2026-01-01 10:00:30+00:00 to 2026-01-01 10:04:05+00:00" in found[0]["message"]
    assert found[0]["message"].endswith(" Reason given: the database moves.")


async def test_a_slot_that_is_due_and_one_that_is_to_come(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60)))
    await store.pause_installation("", by=None)
    clock.set(at(65))
    due = await why(store, task, 60)
    assert (due["cause"], due["actor"], due["since"]) == ("paused", None, rfc3339(at(0)))
    assert "is due but not planned: everything has been paused" in due["message"]
    to_come = await why(store, task, 120)
    assert to_come["cause"] == "waiting"
    assert "Everything has been paused" in to_come["message"]
    assert (await why(store, task, None))["cause"] == "paused"


async def test_a_run_that_waits(store: Store, clock: ManualClock):
    await worker_there(store)
    run_id = await publish(store, await store.create_task(job()))
    await store.pause_installation("the database moves", by="alice")
    answer = await Explain(store).of_run(run_id)
    assert (answer["cause"], answer["actor"], answer["run_id"]) == ("paused", "alice", run_id)
    assert f"Run {run_id} waits: everything has been paused by alice" in answer["message"]


async def test_a_run_that_waited(store: Store, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job()))
    await store.pause_installation("", by="alice")
    clock.set(at(120))
    await store.resume_installation()
    await done(store, finish(await claim_one(store)))
    answer = await Explain(store).of_run(run_id)
    assert answer["cause"] == "ran"
    assert "waited 2 min before it started: everything was paused by alice" in answer["message"]
