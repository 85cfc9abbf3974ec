"""Workers at the door: who waits, who holds what, what a run carries; and callbacks that nobody knows."""

from __future__ import annotations

import msgspec
import pytest

from conformance.store.builders import (
    FAR,
    S,
    asynchronous,
    at,
    claim,
    claim_one,
    done,
    edit,
    fail,
    finish,
    finished,
    job,
    park,
    publish,
    publish_many,
    retry,
    runs_of,
    started,
)
from noonbell.clock import SECOND, ManualClock
from noonbell.model.request import CallbackSubject, IncomingCallback, RunInput
from noonbell.model.run import RunId
from noonbell.model.worker import Attendance, Order, WorkerInfo, WorkerState
from noonbell.ports import Store
from noonbell.stores.sql import settle


def at_the_door(name: str = "w1", **fields) -> WorkerInfo:
    return WorkerInfo(id=name, incarnation="api", **fields)


# ---- who they are


async def test_a_worker_that_says_who_it_is_again_keeps_the_state_that_an_operator_has_set(
    store: Store, clock: ManualClock
):
    await store.register_worker(at_the_door())
    await store.set_worker("w1", state=WorkerState.DRAINING)
    clock.advance(3)
    again = await store.register_worker(at_the_door(queues=("other",), version=2))
    assert (again.state, again.queues, again.version) == (WorkerState.DRAINING, ("other",), 2)
    assert (again.started_at, again.heartbeat_at) == (at(0), at(3))
    assert await store.workers() == [again]


async def test_a_worker_that_was_gone_starts_afresh(store: Store, clock: ManualClock):
    await store.register_worker(at_the_door())
    await store.set_worker("w1", state=WorkerState.STOPPING)
    clock.advance(60)
    again = await store.register_worker(at_the_door())
    assert (again.state, again.started_at) == (WorkerState.RUNNING, at(60))


async def test_those_who_wait_are_alive_and_are_told_what_is_wanted(store: Store, clock: ManualClock):
    for name in ("w1", "w2", "w3"):
        await store.register_worker(at_the_door(name))
    await store.set_worker("w2", state=WorkerState.DRAINING, concurrency=3)
    clock.advance(10)
    assert await store.attend(["w1", "w2", "nobody"], "api") == {
        "w1": Attendance(WorkerState.RUNNING, 10),
        "w2": Attendance(WorkerState.DRAINING, 3),
    }
    clock.advance(10)
    assert [one.state for one in await store.workers()] == [
        WorkerState.RUNNING,
        WorkerState.DRAINING,
        WorkerState.LOST,
    ]


async def test_another_incarnation_is_not_attended(store: Store, clock: ManualClock):
    await store.register_worker(at_the_door())
    clock.advance(60)
    assert await store.attend(["w1"], "another") == {}
    assert (await store.workers())[0].state is WorkerState.LOST
    assert await store.attend([], "api") == {}


async def test_what_each_worker_holds_is_counted(store: Store):
    task = await store.create_task(job())
    await publish_many(store, task, 6)
    mine = await claim(store, "w1", 3)
    await claim(store, "w2", 2)
    await done(store, finish(mine[0]))
    assert await store.held() == {"w1": 2, "w2": 2}
    assert await store.held(["w2", "w3"]) == {"w2": 2}


async def test_workers_that_a_due_run_names_are_found(store: Store):
    task = await store.create_task(job())
    gated = await store.create_task(job("gated", max_concurrency=1))
    await publish(store, task, specific_worker_ids=("w1",))
    await publish(store, gated, specific_worker_ids=("w2",))
    await publish(store, task, specific_worker_ids=("w3",), delay_seconds=60)
    assert await store.pinned(["w1", "w2", "w3", "w4"]) == {"w1", "w2"}
    await claim_one(store, "w1")
    assert await store.pinned(["w1", "w2"]) == {"w2"}
    assert await store.pinned([]) == set()


# ---- heartbeats


async def test_a_heartbeat_that_does_not_renew_brings_the_orders_alone(store: Store, clock: ManualClock):
    await store.register_worker(at_the_door())
    lease = await started(store, await store.create_task(job()))
    clock.advance(4)
    (order,) = (await store.heartbeat("w1", [(lease.run_id, lease.token)], renew=False)).orders
    assert (order.order, order.lease_expires_at) == (Order.CONTINUE, at(15))
    assert (await store.workers())[0].heartbeat_at == at(4)
    run = await store.run(lease.run_id)
    assert run is not None
    assert run.lease_expires_at == at(15)


async def test_each_token_of_a_run_gets_its_own_order(store: Store, clock: ManualClock):
    await store.create_task(job())
    task = await store.task_named("j")
    assert task is not None
    first = await started(store, task)
    await done(store, retry(first, delay=0))
    second = await claim_one(store)
    pairs = [(first.run_id, first.token), (second.run_id, second.token), (first.run_id, first.token)]
    orders = (await store.heartbeat("w1", pairs)).orders
    assert [order.order for order in orders] == [Order.LOST, Order.CONTINUE, Order.LOST]


async def test_a_heartbeat_that_does_not_renew_tells_of_a_worker_that_is_not_allowed_any_more(store: Store):
    task = await store.create_task(job(specific_worker_ids=("w1",)))
    lease = await started(store, task)
    await edit(store, task, specific_worker_ids=("w2",))
    (order,) = (await store.heartbeat("w1", [(lease.run_id, lease.token)], renew=False)).orders
    assert (order.order, order.lease_expires_at) == (Order.CANCEL, at(15))


# ---- what a run carries


async def test_what_a_run_carries_is_its_own_or_its_tasks(store: Store):
    task = await store.create_task(asynchronous(payload={"of": "task"}, max_concurrency=None))
    overrides = {"override_body": "hello", "force_async": True}
    own = await publish(store, task, payload=[1, None], overrides=overrides)
    changed = await publish(store, task, overrides={"override_body": ""})
    plain = await publish(store, task)
    null = await publish(store, task, payload=None)
    assert await store.inputs([own, changed, plain, null, RunId(1)]) == {
        own: RunInput([1, None], overrides),
        changed: RunInput({"of": "task"}, {"override_body": ""}),
        plain: RunInput({"of": "task"}, None),
        null: RunInput(None, None),
    }
    assert await store.inputs([]) == {}


async def test_what_a_run_carried_is_there_after_its_end(store: Store):
    task = await store.create_task(job())
    run_id = await finished(store, task, payload={"n": 1}, overrides={"override_body": "b"})
    assert await store.inputs([run_id]) == {run_id: RunInput({"n": 1}, {"override_body": "b"})}


# ---- cleaning a part


async def test_one_queue_may_be_cleaned_alone(store: Store):
    here = await store.create_task(job("here", queue="http"))
    there = await store.create_task(job("there"))
    for task in (here, there):
        await finished(store, task)
    assert await store.clean(FAR, 100, queue="http") == 1
    assert (len(await runs_of(store, here)), len(await runs_of(store, there))) == (0, 1)


async def test_some_statuses_may_be_cleaned_alone_but_never_what_is_not_final(store: Store):
    task = await store.create_task(job())
    good = await finished(store, task)
    lease = await started(store, task)
    await done(store, fail(lease))
    await started(store, task)
    assert await store.clean(FAR, 100, status=(S.FAILED, S.TIMEOUT, S.RUNNING)) == 1
    assert [run.id for run in await runs_of(store, task) if run.status is S.SUCCESS] == [good]
    assert await store.clean(FAR, 100, status=(S.RUNNING, S.SCHEDULED)) == 0
    assert len(await runs_of(store, task)) == 2


# ---- callbacks


async def test_a_token_says_when_it_was_made_and_its_attempt_when_it_began(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous())
    first = await started(store, task)
    await done(store, retry(first, delay=10))
    clock.advance(10)
    await store.promote(10)
    second = await claim_one(store)
    await done(store, park(second))
    clock.advance(5)
    seen: list[CallbackSubject] = []

    def note(subject: CallbackSubject) -> str:
        seen.append(subject)
        return "only looking"

    for token in (first.callback_token, second.callback_token):
        await store.callback(IncomingCallback(token=token), note)
    await store.callback(IncomingCallback(task_id=task.id, run_id=first.run_id), note)
    assert [(one.token_made_at, one.attempt_began_at, one.at) for one in seen] == [
        (at(0), at(10), at(15)),
        (at(10), at(10), at(15)),
        (None, at(10), at(15)),
    ]


async def test_a_run_that_waits_for_another_attempt_has_none_under_way(store: Store):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, retry(lease, delay=10))
    seen: list[CallbackSubject] = []

    def note(subject: CallbackSubject) -> str:
        seen.append(subject)
        return "only looking"

    await store.callback(IncomingCallback(token=lease.callback_token), note)
    assert (seen[0].attempt_began_at, seen[0].token_made_at) == (None, at(0))


async def test_a_token_with_another_time_in_it_is_unknown(store: Store):
    lease = await started(store, await store.create_task(asynchronous()))
    _, _, rest = str(lease.callback_token).partition(".")
    forged = f"{at(0) + 3600 * SECOND:x}.{rest}"
    subject, recorded = await store.callback(IncomingCallback(token=forged), lambda _: "")
    assert (subject, recorded.reason) == (None, "unknown token")


async def test_a_stranger_leaves_no_record_where_none_is_wanted(store: Store):
    given = IncomingCallback(token="nobody's", body="x", keep_unknown=False)
    subject, recorded = await store.callback(given, lambda _: "")
    assert (subject, recorded.status, recorded.reason) == (None, "IGNORED", "unknown token")
    assert await store.callbacks(None) == []
    await store.callback(msgspec.structs.replace(given, keep_unknown=True), lambda _: "")
    assert [one.body for one in await store.callbacks(None)] == ["x"]


async def test_of_strangers_the_newest_thousand_are_kept_and_their_bodies_cut(
    store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
):
    most = 1_000
    if kind != "memory":  # a thousand transactions for the same words of SQL
        most = 30
        monkeypatch.setattr(settle, "UNKNOWN_KEPT", most)
    lease = await started(store, await store.create_task(asynchronous()))
    await store.callback(IncomingCallback(token=lease.callback_token, body="k" * 9000), lambda _: "not yet")
    for number in range(most + 3):
        await store.callback(IncomingCallback(token=f"forged {number}", body=f"{number} " + "x" * 9000), lambda _: "")
    kept = await store.callbacks(None, 2_000)
    assert [one.body.split()[0] for one in kept] == [str(number) for number in range(most + 2, 2, -1)]
    assert {len(one.body) for one in kept} == {4_000}
    assert [len(one.body) for one in await store.callbacks(lease.run_id)] == [9_000]
