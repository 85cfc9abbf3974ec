"""Publish: runs outside the schedule, and what their keys do."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    FAR,
    Node,
    S,
    asynchronous,
    at,
    claim,
    claim_due,
    claim_one,
    claimed_ids,
    disable,
    done,
    every,
    fail,
    finish,
    finished,
    http,
    ids,
    job,
    lose,
    newest,
    news,
    park,
    publish,
    publish_as,
    publish_many,
    release,
    retry,
    run_of,
    runs_of,
    started,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.errors import InvalidState, NotFound
from noonbell.model.request import Dedupe, DedupeMode, IfFinished, Publication, PublishOutcome, PublishResult, RunQuery
from noonbell.model.run import Origin, RunId
from noonbell.model.task import (
    ConcurrencyPolicy,
    FailureAction,
    OnExhausted,
    OverlapAction,
    RateLimit,
    Task,
    TaskId,
    TaskSpec,
    TaskStatus,
)
from noonbell.ports import Store


async def ended(store: Store, task: Task, key: str, status: S) -> RunId:
    """A run under a key, with this end."""
    run_id = (await publish_as(store, task, key)).run_id
    assert run_id is not None
    if status is S.CANCELED:
        await store.cancel([run_id])
        return run_id
    lease = await claim_one(store)
    assert lease.run_id == run_id
    await done(store, finish(lease, status))
    return run_id


async def test_a_run_without_options_is_due_now_and_as_its_task_says(store: Store, clock: ManualClock):
    clock.advance(1.5)
    task = await store.create_task(job(queue="q", priority=7))
    (answer,) = await store.publish([Publication(task_id=task.id)])
    assert answer == PublishResult(answer.run_id, PublishOutcome.CREATED)
    (run,) = await runs_of(store, task)
    assert (run.id, run.status, run.origin, run.task_version) == (answer.run_id, S.SCHEDULED, Origin.PUBLISH, 1)
    assert (run.scheduled_time, run.run_at, run.created_at) == (at(1.5), at(1.5), at(1.5))
    assert (run.queue, run.priority, run.key, run.attempt) == ("q", 7, None, 0)


async def test_a_run_carries_all_that_it_was_given(store: Store):
    task = await store.create_task(job())
    original = await finished(store, task)
    run_id = await publish(
        store,
        task,
        origin=Origin.RETRY,
        payload={"x": [1]},
        overrides={"override_body": "B", "force_async": False},
        key="k",
        priority=-2,
        scheduled_time=at(-60),
        retry_of_run_id=original,
        trace_id="trace",
    )
    run = await run_of(store, run_id)
    assert (run.origin, run.key, run.priority, run.scheduled_time) == (Origin.RETRY, "k", -2, at(-60))
    assert (run.retry_of_run_id, run.trace_id) == (original, "trace")
    lease = await claim_one(store)
    assert (lease.payload, lease.overrides) == ({"x": [1]}, {"override_body": "B", "force_async": False})
    assert (lease.origin, lease.key, lease.priority) == (Origin.RETRY, "k", -2)
    assert (lease.scheduled_time, lease.trace_id) == (at(-60), "trace")


async def test_run_ids_are_below_2_to_the_53(store: Store):
    task = await store.create_task(job())
    run_ids = await publish_many(store, task, 3)
    assert run_ids == sorted(set(run_ids))
    assert all(0 < run_id < 2**53 for run_id in run_ids)


# ---- the key


async def test_without_a_key_there_is_always_a_new_run(store: Store):
    task = await store.create_task(job())
    assert len(set(await publish_many(store, task, 3))) == 3
    assert len(await runs_of(store, task)) == 3


@pytest.mark.parametrize("status", [S.SCHEDULED, S.RUNNING, S.RETRYING, S.CALLBACK_PENDING])
async def test_a_key_of_a_run_that_is_not_final_changes_nothing_and_is_running_once_claimed(store: Store, status: S):
    task = await store.create_task(job())
    run_id = await publish(store, task, key="k", payload=1)
    if status is not S.SCHEDULED:
        lease = await claim_one(store)
        if status is S.RETRYING:
            await done(store, retry(lease))
        elif status is S.CALLBACK_PENDING:
            await done(store, park(lease))
    before = await run_of(store, run_id)
    assert before.status is status
    for if_finished in IfFinished:
        answer = await publish_as(store, task, "k", payload=2, priority=9, if_finished=if_finished)
        assert answer == PublishResult(
            run_id, PublishOutcome.EXISTS if status is S.SCHEDULED else PublishOutcome.RUNNING
        )
    assert await run_of(store, run_id) == before
    assert await store.payload(run_id) == 1
    assert len(await runs_of(store, task)) == 1


@pytest.mark.parametrize("status", [S.SUCCESS, S.FAILED, S.TIMEOUT, S.CANCELED])
async def test_a_key_of_a_final_run_exists_and_nothing_changes(store: Store, status: S):
    task = await store.create_task(job())
    run_id = await ended(store, task, "k", status)
    before = await run_of(store, run_id)
    assert await publish_as(store, task, "k") == PublishResult(run_id, PublishOutcome.EXISTS)
    assert await run_of(store, run_id) == before
    assert len(await runs_of(store, task)) == 1


@pytest.mark.parametrize(
    ("if_finished", "status", "outcome"),
    [
        (IfFinished.RERUN, S.SUCCESS, PublishOutcome.CREATED),
        (IfFinished.RERUN, S.FAILED, PublishOutcome.CREATED),
        (IfFinished.RERUN, S.CANCELED, PublishOutcome.CREATED),
        (IfFinished.RERUN_FAILED, S.SUCCESS, PublishOutcome.EXISTS),
        (IfFinished.RERUN_FAILED, S.FAILED, PublishOutcome.CREATED),
        (IfFinished.RERUN_FAILED, S.TIMEOUT, PublishOutcome.CREATED),
        (IfFinished.RERUN_SUCCEEDED, S.SUCCESS, PublishOutcome.CREATED),
        (IfFinished.RERUN_SUCCEEDED, S.FAILED, PublishOutcome.EXISTS),
    ],
)
async def test_rerun_gives_the_key_to_a_fresh_run(
    store: Store, if_finished: IfFinished, status: S, outcome: PublishOutcome
):
    task = await store.create_task(job())
    old = await ended(store, task, "k", status)
    before = await run_of(store, old)
    answer = await publish_as(store, task, "k", if_finished=if_finished, payload="fresh")
    assert answer.outcome is outcome
    assert (await run_of(store, old)).status is before.status
    if outcome is PublishOutcome.EXISTS:
        assert answer.run_id == old
        return
    assert answer.run_id not in (None, old)
    assert await publish_as(store, task, "k") == PublishResult(answer.run_id, PublishOutcome.EXISTS)
    lease = await claim_one(store)
    assert (lease.run_id, lease.payload, lease.attempt) == (answer.run_id, "fresh", 1)
    assert await publish_as(store, task, "k") == PublishResult(answer.run_id, PublishOutcome.RUNNING)
    assert [run.id for run in await runs_of(store, task)] == [old, answer.run_id]


async def test_a_rerun_may_be_rerun(store: Store):
    task = await store.create_task(job())
    seen = {await ended(store, task, "k", S.FAILED)}
    for _ in range(3):
        answer = await publish_as(store, task, "k", if_finished=IfFinished.RERUN_FAILED)
        assert answer.outcome is PublishOutcome.CREATED
        assert answer.run_id not in seen
        assert answer.run_id is not None
        seen.add(answer.run_id)
        await done(store, fail(await claim_one(store)))


async def test_a_key_is_unique_per_task(store: Store):
    one, two = await store.create_task(job("one")), await store.create_task(job("two"))
    assert (await publish_as(store, one, "k")).outcome is PublishOutcome.CREATED
    assert (await publish_as(store, two, "k")).outcome is PublishOutcome.CREATED


async def test_keys_that_differ_at_all_are_different_keys(store: Store):
    task = await store.create_task(job())
    for key in ("k", "K", "k ", "ķ", "k\u200b"):
        run_id = await publish(store, task, key=key)
        (run,) = (await store.runs(RunQuery(task_id=task.id, key=key))).items
        assert (run.id, run.key) == (run_id, key)


async def test_a_key_is_forgotten_with_its_row(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    old = await ended(store, task, "k", S.SUCCESS)
    clock.advance(1)
    assert await store.clean(FAR, 10) == 1
    answer = await publish_as(store, task, "k")
    assert answer.outcome is PublishOutcome.CREATED
    assert answer.run_id != old


async def test_cleaning_a_run_that_lost_its_key_leaves_the_new_one_its_key(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await ended(store, task, "k", S.SUCCESS)
    answer = await publish_as(store, task, "k", if_finished=IfFinished.RERUN)
    clock.advance(1)
    assert await store.clean(FAR, 10) == 1
    assert await publish_as(store, task, "k") == PublishResult(answer.run_id, PublishOutcome.EXISTS)


async def test_a_key_twice_in_one_batch_makes_one_run(store: Store):
    task = await store.create_task(job())
    answers = await store.publish([Publication(task_id=task.id, key=key) for key in ("a", "b", "a", "c", "a")])
    assert [answer.outcome.value for answer in answers] == ["created", "created", "exists", "created", "exists"]
    assert answers[2].run_id == answers[4].run_id == answers[0].run_id
    assert len(await runs_of(store, task)) == 3


async def test_racing_publishers_of_one_key_make_one_run(store: Store, another_node: Node):
    task = await store.create_task(job())
    nodes = [store, await another_node()]
    answers = await asyncio.gather(*(publish_as(node, task, "k") for node in nodes * 4))
    assert sorted(answer.outcome.value for answer in answers) == ["created"] + ["exists"] * 7
    assert len({answer.run_id for answer in answers}) == 1
    assert len(await runs_of(store, task)) == 1


async def test_racing_reruns_of_one_key_make_one_run(store: Store):
    task = await store.create_task(job())
    await ended(store, task, "k", S.FAILED)
    answers = await asyncio.gather(*(publish_as(store, task, "k", if_finished=IfFinished.RERUN) for _ in range(6)))
    assert sorted(answer.outcome.value for answer in answers) == ["created"] + ["exists"] * 5


# ---- update_waiting


async def test_update_waiting_replaces_payload_priority_and_run_at(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    run_id = await publish(store, task, key="k", payload="old")
    other = await publish(store, task)
    answer = await publish_as(store, task, "k", update_waiting=True, payload="new", priority=5, run_at=at(10))
    assert answer == PublishResult(run_id, PublishOutcome.UPDATED)
    run = await run_of(store, run_id)
    assert (run.status, run.priority, run.run_at, run.key) == (S.SCHEDULED, 5, at(10), "k")
    assert await store.payload(run_id) == "new"
    assert claimed_ids(await claim(store)) == [other]
    clock.advance(10)
    (lease,) = await claim_due(store)
    assert (lease.run_id, lease.payload, lease.priority, lease.attempt) == (run_id, "new", 5, 1)


async def test_update_waiting_may_bring_a_delayed_run_forward(store: Store):
    task = await store.create_task(job())
    run_id = await publish(store, task, key="k", delay_seconds=3600)
    assert (await publish_as(store, task, "k", update_waiting=True, run_at=at(0))).outcome is PublishOutcome.UPDATED
    assert claimed_ids(await claim_due(store)) == [run_id]


async def test_update_waiting_changes_the_order_of_claims(store: Store):
    task = await store.create_task(job())
    first = await publish(store, task, key="first")
    second = await publish(store, task, key="second")
    await publish_as(store, task, "second", update_waiting=True, priority=1)
    assert claimed_ids(await claim(store)) == [second, first]


@pytest.mark.parametrize("payload", [msgspec.UNSET, {"tenant": "a"}])
async def test_update_waiting_replaces_the_body_that_an_http_run_was_asked_with(store: Store, payload: Any):
    task = await store.create_task(http(payload={"tenant": "z"}))
    old, new = {"override_body": "old"}, {"override_body": "new", "concurrency_key": "acme"}
    run_id = await publish(store, task, key="k", overrides=old, payload=payload, delay_seconds=60)
    await publish_as(store, task, "k", update_waiting=True, overrides=new)
    (lease,) = await claim_due(store)
    assert (lease.run_id, lease.overrides) == (run_id, new)
    assert lease.payload == ({"tenant": "z"} if payload is msgspec.UNSET else payload)


async def test_update_waiting_of_the_time_alone_leaves_the_run_its_payload_and_its_rate(store: Store):
    task = await store.create_task(job(rate_limit=RateLimit(max=1, per_seconds=3_600, key="tenant")))
    run_id = await publish(store, task, key="k", payload={"tenant": "a"}, delay_seconds=60)
    await publish_as(store, task, "k", update_waiting=True)
    without = await publish(store, task)
    leases = await claim_due(store)
    assert sorted((lease.run_id, lease.payload) for lease in leases) == [(run_id, {"tenant": "a"}), (without, None)]


async def test_the_last_of_a_batch_brings_its_body(store: Store):
    task = await store.create_task(http())
    rule = Dedupe(mode=DedupeMode.DEBOUNCE, key="k", seconds=5)
    asked = [Publication(task_id=task.id, dedupe=rule, overrides={"override_body": text}) for text in ("1", "2")]
    answers = await store.publish(asked)
    assert [answer.outcome.value for answer in answers] == ["created", "updated"]
    await store.promote(10)
    assert (await store.inputs([answers[0].run_id or RunId(0)]))[answers[0].run_id].overrides == {"override_body": "2"}


async def test_update_waiting_works_behind_a_limit(store: Store, clock: ManualClock):
    task = await store.create_task(http(max_concurrency=1))
    running = await started(store, task)
    first = await publish(store, task, key="first")
    second = await publish(store, task, key="second")
    await publish_as(store, task, "second", update_waiting=True, priority=1)
    await publish_as(store, task, "first", update_waiting=True, run_at=at(60))
    await done(store, finish(running))
    (lease,) = await claim(store)
    assert lease.run_id == second
    await done(store, finish(lease))
    assert await claim(store) == []
    clock.advance(60)
    assert claimed_ids(await claim_due(store)) == [first]


@pytest.mark.parametrize("how", ["running", "retrying", "lost"])
async def test_update_waiting_leaves_a_run_alone_that_was_ever_claimed(store: Store, clock: ManualClock, how: str):
    task = await store.create_task(job())
    lease = await started(store, task, key="k", payload="old")
    if how == "retrying":
        await done(store, retry(lease, delay=60))
    elif how == "lost":
        clock.advance(60)
        await done(store, lose(lease))
    answer = await publish_as(store, task, "k", update_waiting=True, payload="new", priority=5)
    assert answer == PublishResult(lease.run_id, PublishOutcome.RUNNING)
    assert await store.payload(lease.run_id) == "old"
    assert (await run_of(store, lease.run_id)).priority == 0


@pytest.mark.parametrize("spec", [job(), http()], ids=["free", "gated"])
async def test_the_last_of_several_updates_in_one_batch_holds(store: Store, clock: ManualClock, spec: TaskSpec):
    task = await store.create_task(spec)
    run_id = await publish(store, task, key="k", delay_seconds=60)
    answers = await store.publish(
        [
            Publication(task_id=task.id, key="k", update_waiting=True, payload="now"),
            Publication(task_id=task.id, key="k", update_waiting=True, payload="later", delay_seconds=5),
        ]
    )
    assert answers == [PublishResult(run_id, PublishOutcome.UPDATED)] * 2
    assert (await run_of(store, run_id)).run_at == at(5)
    assert await claim_due(store) == []
    assert await store.recount() == 0
    clock.advance(5)
    (lease,) = await claim_due(store)
    assert lease.payload == "later"


@pytest.mark.parametrize("spec", [job(), http()], ids=["free", "gated"])
async def test_a_run_may_be_updated_in_the_batch_that_it_was_born_in(store: Store, clock: ManualClock, spec: TaskSpec):
    task = await store.create_task(spec)
    answers = await store.publish(
        [
            Publication(task_id=task.id, key="k", payload="first"),
            Publication(task_id=task.id, key="k", update_waiting=True, payload="second", delay_seconds=5),
        ]
    )
    assert answers == [
        PublishResult(answers[0].run_id, PublishOutcome.CREATED),
        PublishResult(answers[0].run_id, PublishOutcome.UPDATED),
    ]
    assert await claim_due(store) == []
    clock.advance(5)
    (lease,) = await claim_due(store)
    assert lease.payload == "second"


async def test_update_waiting_makes_a_run_where_there_is_none(store: Store):
    task = await store.create_task(job())
    assert (await publish_as(store, task, "k", update_waiting=True)).outcome is PublishOutcome.CREATED


async def test_update_waiting_leaves_a_final_run_alone(store: Store):
    task = await store.create_task(job())
    run_id = await ended(store, task, "k", S.SUCCESS)
    assert await publish_as(store, task, "k", update_waiting=True, payload="new") == PublishResult(
        run_id, PublishOutcome.EXISTS
    )


# ---- when, how urgent, for whom


async def test_a_delayed_run_waits_for_its_time(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    run_id = await publish(store, task, delay_seconds=30.5)
    run = await run_of(store, run_id)
    assert (run.status, run.run_at) == (S.SCHEDULED, at(30.5))
    promoted = await store.promote(10)
    assert (promoted.count, promoted.next_at) == (0, at(30.5))
    clock.set(at(30.499_999))
    assert await claim_due(store) == []
    clock.set(at(30.5))
    assert (await store.promote(10)).count == 1
    assert (await claim_one(store)).run_id == run_id


async def test_run_at_in_the_past_is_due_now(store: Store):
    task = await store.create_task(job())
    late = await publish(store, task, run_at=at(-60))
    now = await publish(store, task)
    later = await publish(store, task, run_at=at(60))
    assert claimed_ids(await claim_due(store)) == [late, now]
    assert (await run_of(store, later)).run_at == at(60)


async def test_promote_takes_the_oldest_first_and_no_more_than_its_limit(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    run_ids = [await publish(store, task, delay_seconds=delay) for delay in (3, 1, 2, 50)]
    clock.advance(10)
    promoted = await store.promote(2)
    assert promoted.count == 2
    assert claimed_ids(await claim(store)) == [run_ids[1], run_ids[2]]
    promoted = await store.promote(2)
    assert (promoted.count, promoted.next_at) == (1, at(50))
    assert claimed_ids(await claim(store)) == [run_ids[0]]
    assert (await store.promote(2)).count == 0


async def test_promote_says_nothing_of_a_next_time_where_there_is_none(store: Store):
    promoted = await store.promote(10)
    assert (promoted.count, promoted.next_at) == (0, None)


async def test_priority_0_is_a_priority_of_its_own(store: Store):
    task = await store.create_task(job(priority=5))
    default = await publish(store, task)
    zero = await publish(store, task, priority=0)
    assert (await run_of(store, default)).priority == 5
    assert (await run_of(store, zero)).priority == 0


async def test_a_run_may_name_its_workers(store: Store):
    task = await store.create_task(job(specific_worker_ids=("w1",)))
    run_id = await publish(store, task, specific_worker_ids=("w2", "w3"))
    assert await claim(store, "w1") == []
    assert claimed_ids(await claim(store, "w3")) == [run_id]


# ---- payload


async def test_unset_is_the_tasks_payload_and_none_is_none(store: Store):
    task = await store.create_task(job(payload={"from": "task"}))
    unset = await publish(store, task, payload=msgspec.UNSET)
    none = await publish(store, task, payload=None)
    own = await publish(store, task, payload={"from": "run"})
    leases = {lease.run_id: lease.payload for lease in await claim(store)}
    assert leases == {unset: {"from": "task"}, none: None, own: {"from": "run"}}
    assert [await store.payload(run_id) for run_id in (unset, none, own)] == [{"from": "task"}, None, {"from": "run"}]


async def test_a_payload_may_be_large_and_of_any_script(store: Store):
    task = await store.create_task(job())
    payload = {"text": 'ünïcødé 漢字 🔔\x7f\t"\\' * 20_000, "numbers": list(range(1000))}
    lease = await started(store, task, payload=payload)
    assert lease.payload == payload
    assert await store.payload(lease.run_id) == payload


async def test_the_payload_of_an_unknown_run_is_none(store: Store):
    assert await store.payload(RunId(12345)) is None


# ---- refused, and errors


@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_a_task_at_its_limit_that_does_not_queue_refuses(store: Store, limit: int):
    task = await store.create_task(http(max_concurrency=limit, concurrency_policy=ConcurrencyPolicy.SKIP))
    for _ in range(limit):
        await started(store, task)
    refused = await publish_as(store, task, "k")
    assert (refused.run_id, refused.outcome) == (None, PublishOutcome.REFUSED)
    assert refused.reason
    assert len(await runs_of(store, task)) == limit


async def test_a_refused_publish_leaves_its_key_free(store: Store):
    task = await store.create_task(http(max_concurrency=1, concurrency_policy=ConcurrencyPolicy.SKIP))
    lease = await started(store, task)
    assert (await publish_as(store, task, "k")).outcome is PublishOutcome.REFUSED
    await done(store, finish(lease))
    assert (await publish_as(store, task, "k")).outcome is PublishOutcome.CREATED


async def test_a_refused_rerun_leaves_its_key_where_it_was(store: Store):
    task = await store.create_task(http(max_concurrency=1, concurrency_policy=ConcurrencyPolicy.SKIP))
    old = await ended(store, task, "k", S.FAILED)
    await started(store, task)
    assert (await publish_as(store, task, "k", if_finished=IfFinished.RERUN)).outcome is PublishOutcome.REFUSED
    assert await publish_as(store, task, "k") == PublishResult(old, PublishOutcome.EXISTS)


async def test_a_batch_fills_the_places_and_refuses_the_rest(store: Store):
    task = await store.create_task(http(max_concurrency=2, concurrency_policy=ConcurrencyPolicy.SKIP))
    answers = await store.publish([Publication(task_id=task.id) for _ in range(4)])
    assert [answer.outcome.value for answer in answers] == ["created", "created", "refused", "refused"]


async def test_racing_publishers_do_not_pass_the_limit(store: Store):
    task = await store.create_task(http(max_concurrency=2, concurrency_policy=ConcurrencyPolicy.SKIP))
    answers = await asyncio.gather(*(store.publish([Publication(task_id=task.id)]) for _ in range(8)))
    assert sorted(answer.outcome.value for (answer,) in answers) == ["created"] * 2 + ["refused"] * 6


async def test_queue_waits_and_parallel_goes_on(store: Store):
    queue = await store.create_task(http("queue", max_concurrency=1))
    parallel = await store.create_task(http("p", max_concurrency=1, concurrency_policy=ConcurrencyPolicy.PARALLEL))
    await publish_many(store, queue, 3)
    await publish_many(store, parallel, 3)
    leases = await claim(store)
    assert sorted(lease.task_id for lease in leases) == [queue.id] + [parallel.id] * 3


async def test_a_trigger_ignores_overlap_and_failure(store: Store, clock: ManualClock):
    spec = job(schedule=every(60), overlap_action=OverlapAction.SKIP, failure_action=FailureAction.SKIP)
    task = await store.create_task(spec)
    await done(store, fail(await started(store, task, origin=Origin.TRIGGER)))
    await started(store, task, origin=Origin.TRIGGER)
    await started(store, task, origin=Origin.TRIGGER)


async def test_disabled_and_completed_tasks_can_be_published(store: Store, clock: ManualClock):
    disabled = await disable(store, await store.create_task(job("d", schedule=every(10))))
    completed = await store.create_task(job("c", schedule=every(10), end_at=at(-1)))
    assert completed.status is TaskStatus.COMPLETED
    await finished(store, disabled, origin=Origin.TRIGGER)
    await finished(store, completed, origin=Origin.TRIGGER)
    assert [(await store.task(task.id)) for task in (disabled, completed)] == [disabled, completed]


@pytest.mark.parametrize("bad", ["unknown", "deleted", "error"])
async def test_one_bad_task_and_nothing_of_the_whole_batch_is_written(store: Store, bad: str):
    good = await store.create_task(http("good"))
    other = await store.create_task(job("other", on_exhausted=OnExhausted.ERROR))
    task_id = other.id
    if bad == "unknown":
        task_id = TaskId(99)
    elif bad == "deleted":
        await store.delete_task(other.id)
    else:
        await done(store, fail(await started(store, other)))
    before = await newest(store)
    batch = [Publication(task_id=good.id, key="k"), Publication(task_id=task_id), Publication(task_id=good.id)]
    with pytest.raises(InvalidState if bad == "error" else NotFound):
        await store.publish(batch)
    assert await runs_of(store, good) == []
    assert await news(store, before) == []
    assert (await publish_as(store, good, "k")).outcome is PublishOutcome.CREATED


# ---- batches


async def test_an_empty_batch_is_answered_with_nothing(store: Store):
    assert await store.publish([]) == []


async def test_answers_come_in_the_order_of_the_requests(store: Store):
    tasks = [await store.create_task(job(f"t{number}")) for number in range(3)]
    batch = [Publication(task_id=tasks[number % 3].id, payload=number) for number in range(30)]
    answers = await store.publish(batch)
    assert [await store.payload(run_id) for run_id in ids(answers)] == list(range(30))


async def test_a_batch_is_claimed_in_its_own_order(store: Store):
    task = await store.create_task(job())
    run_ids = await publish_many(store, task, 20)
    assert claimed_ids(await claim(store)) == run_ids


async def test_ten_thousand_in_one_call(store: Store):
    free = await store.create_task(job("free"))
    gated = await store.create_task(http("gated", max_concurrency=3))
    batch = [
        Publication(task_id=(free if number % 2 else gated).id, key=f"k{number}", payload={"n": number})
        for number in range(10_000)
    ]
    answers = await store.publish(batch)
    assert {answer.outcome for answer in answers} == {PublishOutcome.CREATED}
    assert len(set(ids(answers))) == 10_000
    assert (await store.runs(RunQuery(page_size=1))).total == 10_000
    leases = await claim(store, count=1000)
    assert sum(lease.task_id == gated.id for lease in leases) == 3
    assert len(leases) == 1000
    again = Counter(answer.outcome for answer in await store.publish(batch))
    assert again == {PublishOutcome.RUNNING: 1000, PublishOutcome.EXISTS: 9000}


# ---- promote_run


async def test_a_delayed_run_can_be_made_due_now(store: Store):
    task = await store.create_task(job())
    run_id = await publish(store, task, delay_seconds=3600)
    assert await store.promote_run(run_id) is True
    assert claimed_ids(await claim(store)) == [run_id]


async def test_a_retrying_run_can_be_made_due_now(store: Store):
    task = await store.create_task(http())
    lease = await started(store, task)
    await done(store, retry(lease, delay=3600))
    assert await store.promote_run(lease.run_id) is True
    again = await claim_one(store)
    assert (again.run_id, again.attempt) == (lease.run_id, 2)


async def test_a_run_that_does_not_wait_for_its_time_is_not_promoted(store: Store):
    task = await store.create_task(asynchronous())
    run_id = await publish(store, task)
    assert await store.promote_run(run_id) is False
    lease = await claim_one(store)
    assert await store.promote_run(run_id) is False
    await done(store, release(lease))
    assert await store.promote_run(run_id) is False
    await done(store, finish(await claim_one(store)))
    assert await store.promote_run(run_id) is False
    assert await store.promote_run(RunId(4711)) is False
    assert await status_of(store, run_id) is S.SUCCESS


async def test_a_promoted_run_still_waits_for_a_place(store: Store):
    task = await store.create_task(http(max_concurrency=1))
    lease = await started(store, task)
    run_id = await publish(store, task, delay_seconds=3600)
    assert await store.promote_run(run_id) is True
    assert await claim(store) == []
    await done(store, finish(lease))
    assert claimed_ids(await claim(store)) == [run_id]
