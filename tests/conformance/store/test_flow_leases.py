"""Steps that one settlement makes: which of them its worker gets, and that each lease is of its own run."""

from __future__ import annotations

import pytest

from conformance.store.builders import S, ask, claim, done, finish, publish, run_of, status_of
from noonbell.model.run import Lease, SettleResult
from noonbell.model.task import Step, TaskSpec
from noonbell.ports import Store
from noonbell.service.consistency import audit

ITEMS = 60


def named(leases: list[Lease]) -> list[tuple[str, int | None]]:
    return [("" if one.step is None else one.step.id, one.item_index) for one in leases]


@pytest.mark.parametrize("room", [1, 20, 62, 100])
async def test_steps_made_together_are_given_by_priority_and_each_lease_is_of_its_own_run(store: Store, room: int):
    steps = (
        Step(id="a", job_type="job"),
        Step(id="last", needs=("a",), job_type="job", timeout_seconds=7),
        Step(id="each", needs=("a",), job_type="job", foreach=list(range(ITEMS)), payload="{{ item }}", priority=2),
        Step(id="first", needs=("a",), job_type="job", payload={"x": 1}, priority=5),
    )
    task = await store.create_task(TaskSpec(name="nightly", steps=steps, payload={"all": True}))
    run_id = await publish(store, task)
    (lease,) = await claim(store)
    _, claimed = await store.settle_and_claim([finish(lease)], ask(count=room))
    expected = [("first", None), *(("each", item) for item in range(ITEMS)), ("last", None)]
    assert named(claimed.leases) == expected[:room]
    others = await claim(store, "w2", 100)
    assert named(others) == expected[room:]
    payloads = {"first": {"x": 1}, "last": {"all": True}}
    for one in (*claimed.leases, *others):
        run = await run_of(store, one.run_id)
        assert one.step is not None
        assert (run.step_id, run.item_index) == (one.step.id, one.item_index)
        assert (run.status, run.worker_id) == (S.RUNNING, one.worker_id)
        assert (run.priority, run.idempotency_key) == (one.priority, one.idempotency_key)
        assert one.payload == payloads.get(one.step.id, one.item_index)
        assert one.deadline_at - one.claimed_at == one.step.timeout_seconds * 1_000_000
    answers = await store.settle([finish(one) for one in claimed.leases])
    assert set(answers) == {SettleResult.DONE}
    for one in others:
        await done(store, finish(one))
    assert await status_of(store, run_id) is S.SUCCESS
    assert (await audit(store)).flaws == []
