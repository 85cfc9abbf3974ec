"""Tasks that run after others: each sentence of what follows when runs end, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    Node,
    S,
    Sizes,
    asynchronous,
    at,
    claim_due,
    disable,
    done,
    edit,
    enable,
    every,
    execute,
    fail,
    finish,
    job,
    left_over,
    lose,
    newest,
    news,
    park,
    publish,
    publish_many,
    release,
    reread,
    retry,
    run_of,
    runs_of,
    started,
    trigger,
)
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.errors import InvalidArgument, InvalidState
from noonbell.model.account import InconsistencyKind
from noonbell.model.request import NewTask, RunQuery, TaskChange, TaskEdit
from noonbell.model.run import Origin, Precondition, Run, RunId, RunStatus, SkipReason
from noonbell.model.task import (
    ConcurrencyPolicy,
    FailureAction,
    Fanout,
    OnExhausted,
    OverlapAction,
    Task,
    TaskSpec,
    TaskStatus,
)
from noonbell.model.task_schedule import After, Upstream, UpstreamOutcome
from noonbell.ports import Store
from noonbell.stores.sql import rows as task_rows
from noonbell.stores.sql.store import SqlStore


def after(*tasks: Task | str, on: str = "success", **more: Any) -> After:
    named = (task if isinstance(task, str) else task.id for task in tasks)
    return After(tasks=tuple(Upstream(task=each, on=UpstreamOutcome(on)) for each in named), **more)


async def create(store: Store, name: str, *upstreams: Task | str, on: str = "success", task=(), **more: Any) -> Task:
    """A job that follows these; `more` is for its `after`, `task` for the rest of it."""
    follows = after(*upstreams, on=on, **more) if upstreams else None
    return await store.create_task(job(name, after=follows, **dict(task)))


async def end(store: Store, task: Task, status: RunStatus = S.SUCCESS, **publication: Any) -> RunId:
    """One run of the task, born and ended, whatever else waits meanwhile."""
    run_id = await publish(store, task, **publication)
    await end_run(store, run_id, status)
    return run_id


async def end_run(store: Store, run_id: RunId, status: RunStatus = S.SUCCESS) -> None:
    leases = {lease.run_id: lease for lease in await claim_due(store, "w-end")}
    mine = leases.pop(run_id)
    await store.settle([release(lease) for lease in leases.values()])
    await done(store, finish(mine, status))


async def slot(store: Store, task: Task, second: int) -> RunId:
    """A run that belongs to a slot, without a schedule that would have to be waited for."""
    return await publish(store, task, origin=Origin.BACKFILL, scheduled_time=at(second))


async def follower(store: Store, task: Task) -> Run:
    (run,) = await runs_of(store, task)
    return run


async def births(store: Store, task: Task) -> list[tuple[int, ...]]:
    """The upstream runs of each run of the task, oldest first."""
    return [run.upstream_run_ids or () for run in await runs_of(store, task)]


async def states(store: Store) -> list[str]:
    assert isinstance(store, SqlStore)
    return [row[0] for row in await store.fetch("select state from joins order by id")]


@pytest.fixture(autouse=True)
async def flawless(store: Store) -> AsyncIterator[None]:
    """Whatever a test did, no row contradicts another."""
    yield
    assert await store.flaws() == []


# ---- one upstream


async def test_a_run_that_ends_well_makes_the_run_that_follows(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    first = await end(store, extract, trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    run = await follower(store, load)
    assert (run.origin, run.status, run.upstream_run_ids) == (Origin.UPSTREAM, S.SCHEDULED, (first,))
    assert run.scheduled_time == (await run_of(store, first)).scheduled_time
    assert run.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    (lease,) = await claim_due(store)
    assert (lease.run_id, lease.origin) == (run.id, Origin.UPSTREAM)


@pytest.mark.parametrize("status", [S.FAILED, S.TIMEOUT, S.CANCELED, S.SUCCESS, S.SKIPPED])
@pytest.mark.parametrize("on", list(UpstreamOutcome))
async def test_only_an_ending_that_matches_makes_one(store: Store, clock: ManualClock, status: RunStatus, on: str):
    extract = await store.create_task(job("extract", schedule=every(10)))
    load = await create(store, "load", extract, on=on)
    if status is S.SKIPPED:
        await store.skip_next(extract.id, 1)
    clock.advance(10)
    await store.plan(10)
    if status is S.CANCELED:
        await store.cancel([(await runs_of(store, extract))[0].id])
    elif status is not S.SKIPPED:
        (lease,) = await claim_due(store)
        await done(store, finish(lease, status))
    kind = {S.SUCCESS: "success", S.SKIPPED: "skipped"}.get(status, "failure")
    assert len(await runs_of(store, load)) == (on in (kind, "any"))


async def test_a_slot_is_carried_on_and_stays_free_for_the_followers_own_schedule(store: Store, clock: ManualClock):
    extract = await store.create_task(job("extract", schedule=every(10)))
    load = await create(store, "load", extract, task={"schedule": every(10)})
    clock.advance(10)
    assert (await store.plan(10)).born == 2
    (lease,) = [lease for lease in await claim_due(store) if lease.task_id == extract.id]
    await done(store, finish(lease))
    own, followed = await runs_of(store, load)
    assert (own.origin, followed.origin) == (Origin.SCHEDULE, Origin.UPSTREAM)
    assert own.scheduled_time == followed.scheduled_time == at(10)
    clock.advance(10)
    await store.plan(10)
    assert [run.scheduled_time for run in await runs_of(store, load)] == [at(10), at(10), at(20)]


@pytest.mark.parametrize("how", ["callback", "sweep", "deleted", "error", "long way", "gate", "batch"])
async def test_every_way_to_become_final_is_followed(store: Store, clock: ManualClock, how: str):
    """SPEC 37.3: settle, cancel, sweep, callback, delete and ERROR go through one function."""
    fields: dict[str, Any] = {"gate": {"max_concurrency": 1}, "error": {"on_exhausted": OnExhausted.ERROR}}.get(how, {})
    if how == "callback":
        extract = await store.create_task(asynchronous("extract"))
    else:
        extract = await create(store, "extract", task=fields)
    load = await create(store, "load", extract, on="any")
    run_id = await publish(store, extract)
    waiting = await publish(store, extract) if how in ("deleted", "error") else None
    leases = {lease.run_id: lease for lease in await claim_due(store, count=1)}
    match how:
        case "callback":
            await done(store, park(leases[run_id]))
            clock.advance(301)
            token = leases[run_id].token
            late = finish(leases[run_id], S.FAILED_TIMEOUT, precondition=Precondition.UNANSWERED, worker_id=None)
            await done(store, msgspec.structs.replace(late, token=token))
        case "sweep":
            clock.advance(100)
            await done(store, finish(leases[run_id], S.FAILED, precondition=Precondition.EXPIRED))
        case "deleted":
            await store.delete_task(extract.id, force=True, cancel_running=True)
        case "error":
            await done(store, fail(leases[run_id]))
        case "long way":
            await done(store, msgspec.structs.replace(finish(leases[run_id]), plain=False))
        case _:
            await done(store, finish(leases[run_id]))
    expected = {(run_id,)} | ({(waiting,)} if waiting else set())
    assert set(await births(store, load)) == expected


async def test_attempts_that_are_not_the_last_start_nothing(store: Store, clock: ManualClock):
    extract = await create(store, "extract")
    load = await create(store, "load", extract, on="any")
    lease = await started(store, extract)
    await done(store, retry(lease))
    clock.advance(5)
    (lease,) = await claim_due(store)
    clock.advance(100)
    await done(store, lose(lease))
    assert await runs_of(store, load) == []


async def test_a_batch_of_endings_makes_as_many_runs(store: Store):
    extract = await create(store, "extract")
    load, other = [await create(store, name, extract) for name in ("load", "other")]
    ids = await publish_many(store, extract, 5)
    leases = await claim_due(store)
    await store.settle([finish(lease, S.SUCCESS if lease.run_id != ids[2] else S.FAILED) for lease in leases])
    expected = sorted((run_id,) for run_id in ids if run_id != ids[2])
    assert sorted(await births(store, load)) == sorted(await births(store, other)) == expected


async def test_settling_and_claiming_together_is_followed_too(store: Store):
    from conformance.store.builders import ask

    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    lease = await started(store, extract)
    await store.settle_and_claim([finish(lease)], ask())
    assert await births(store, load) == [(lease.run_id,)]


async def test_only_the_parent_of_a_fan_out_is_followed(store: Store):
    extract = await create(store, "extract", task={"fanout": Fanout(workers=2)})
    load = await create(store, "load", extract)
    parent = await publish(store, extract)
    for worker in ("w1", "w2"):
        assert await runs_of(store, load) == []
        (lease,) = await claim_due(store, worker)
        await done(store, finish(lease))
    assert await births(store, load) == [(parent,)]


async def test_a_chain_goes_back_to_one_slot(store: Store, clock: ManualClock):
    first = await store.create_task(job("a", schedule=every(10)))
    second = await create(store, "b", first)
    third = await create(store, "c", second)
    clock.advance(10)
    await store.plan(10)
    for task in (first, second):
        (lease,) = await claim_due(store)
        assert lease.task_id == task.id
        await done(store, finish(lease))
    assert (await follower(store, third)).scheduled_time == at(10)


async def test_the_key_of_a_joined_run_depends_on_its_root_and_on_nothing_else(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    run_id = await slot(store, extract, 60)
    await end_run(store, run_id)
    again = await slot(store, extract, 60)
    await end_run(store, again)
    keys = [run.idempotency_key for run in await runs_of(store, load)]
    assert len(set(keys)) == 2
    assert all(key is not None and len(key) == 32 for key in keys)


# ---- which runs are bound


async def test_an_edge_binds_what_becomes_final_after_it_was_saved(store: Store, another_node: Node):
    """Also a run that was published, or claimed, before; by a node that has not heard of the edge."""
    other = await another_node()
    extract = await create(store, "extract")
    early = await end(other, extract)
    claimed = await started(other, extract)
    waiting = await publish(other, extract)
    load = await create(store, "load", extract)
    await done(other, finish(claimed))
    await end_run(other, waiting)
    assert await births(store, load) == [(claimed.run_id,), (waiting,)]
    assert early not in {run for runs in await births(store, load) for run in runs}


async def test_an_edge_that_is_gone_binds_nothing(store: Store):
    extract, other = [await create(store, name) for name in ("extract", "other")]
    load = await create(store, "load", extract)
    lease = await started(store, extract)
    await edit(store, load, after=after(other))
    await done(store, finish(lease))
    assert await runs_of(store, load) == []
    await end(store, other)
    assert len(await runs_of(store, load)) == 1
    await edit(store, load, after=None)
    await end(store, other)
    assert len(await runs_of(store, load)) == 1


async def test_upstreams_are_stored_by_id_so_a_new_name_changes_nothing(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", "extract")
    assert load.spec.after == after(extract)
    await edit(store, extract, name="renamed")
    run_id = await end(store, extract)
    assert await births(store, load) == [(run_id,)]


async def test_other_edits_keep_the_version_of_the_edges(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    await edit(store, load, description="new")
    assert isinstance(store, SqlStore)
    assert await store.fetch("select version from edges") == [(1,)]
    await edit(store, load, after=after(extract, on="any"))
    assert await store.fetch("select version, outcome from edges") == [(3, "any")]


# ---- joins


async def test_all_of_the_same_slot_make_one_run(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b)
    mine, other, yours = await slot(store, a, 60), await slot(store, b, 120), await slot(store, b, 60)
    await end_run(store, mine)
    await end_run(store, other)
    assert await runs_of(store, load) == []
    await end_run(store, yours)
    run = await follower(store, load)
    assert (run.scheduled_time, run.upstream_run_ids) == (at(60), (mine, yours))
    assert await states(store) == ["done", "open"]


async def test_both_in_one_batch_make_one_run(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b)
    await slot(store, a, 60)
    await slot(store, b, 60)
    await store.settle([finish(lease) for lease in await claim_due(store)])
    assert len(await runs_of(store, load)) == 1


async def test_triggered_runs_belong_together_where_they_go_back_to_the_same_run(store: Store):
    top = await create(store, "top")
    a, b = [await create(store, name, top) for name in "ab"]
    load = await create(store, "load", a, b)
    for _ in range(2):
        await trigger(store, top)
    for _ in range(2):
        await store.settle([finish(lease) for lease in await claim_due(store)])
    assert [len(runs) for runs in await births(store, load)] == [2, 2]


async def test_a_retry_that_later_succeeds_counts(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b)
    mine, yours = await slot(store, a, 60), await slot(store, b, 60)
    await end_run(store, mine, S.FAILED)
    await end_run(store, yours)
    assert await runs_of(store, load) == []
    again = await publish(store, a, origin=Origin.RETRY, retry_of_run_id=mine, scheduled_time=at(60))
    await end_run(store, again)
    assert await births(store, load) == [(again, yours)]


async def test_a_redrive_of_a_joined_slot_makes_a_new_run(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b)
    mine, yours = await slot(store, a, 60), await slot(store, b, 60)
    await end_run(store, mine)
    await end_run(store, yours)
    bad = await publish(store, a, origin=Origin.RETRY, retry_of_run_id=mine, scheduled_time=at(60))
    await end_run(store, bad, S.FAILED)
    assert len(await runs_of(store, load)) == 1
    again = await publish(store, a, origin=Origin.RETRY, retry_of_run_id=bad, scheduled_time=at(60))
    await end_run(store, again)
    assert await births(store, load) == [(mine, yours), (again, yours)]
    assert isinstance(store, SqlStore)
    assert await store.fetch("select redrive, state from joins order by id") == [(0, "done"), (1, "done")]


async def test_a_redrive_of_a_triggered_run_goes_back_to_it(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    first = await end(store, extract, origin=Origin.TRIGGER)
    again = await end(store, extract, origin=Origin.RETRY, retry_of_run_id=first)
    assert isinstance(store, SqlStore)
    assert await store.fetch("select root, redrive from joins order by id") == [
        (f"run:{first}", 0),
        (f"run:{first}", 1),
    ]
    assert await births(store, load) == [(first,), (again,)]


async def test_any_of_the_same_slot_makes_one_run_for_the_first(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, join="any")
    mine, yours = await slot(store, a, 60), await slot(store, b, 60)
    await end_run(store, yours)
    await end_run(store, mine)
    assert await births(store, load) == [(yours,)]


async def test_any_without_the_same_slot_makes_one_run_for_each(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, join="any", same_slot=False)
    ended = [await end(store, task) for task in (a, b, a)]
    await end(store, b, S.FAILED)
    assert await births(store, load) == [(run_id,) for run_id in ended]
    assert await states(store) == ["done"] * 3


async def test_all_without_the_same_slot_takes_one_of_each_since_the_last(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, same_slot=False)
    one, two, three = [await end(store, task) for task in (a, a, b)]
    assert await births(store, load) == [(two, three)]
    four = await end(store, b)
    assert len(await births(store, load)) == 1
    five = await end(store, a)
    assert await births(store, load) == [(two, three), (five, four)]
    assert one not in {run for runs in await births(store, load) for run in runs}


@pytest.mark.parametrize("how", ["settle", "cancel"])
async def test_a_batch_completes_the_open_join_and_opens_the_next(store: Store, how: str):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, on="any", same_slot=False)
    filled = await end(store, b)
    one, two = await publish_many(store, a, 2)
    if how == "settle":
        await store.settle([finish(lease) for lease in await claim_due(store)])
    else:
        await store.cancel([one, two])
    assert await births(store, load) == [(one, filled)]
    assert await states(store) == ["done", "open"]
    later = await end(store, b)
    assert await births(store, load) == [(one, filled), (two, later)]


async def test_a_join_that_runs_out_of_time_is_a_recorded_skip_that_names_what_is_missing(
    store: Store, clock: ManualClock
):
    a, b, c = [await create(store, name) for name in "abc"]
    load = await create(store, "load", a, b, c, within_seconds=100)
    await end_run(store, await slot(store, a, 60))
    clock.advance(50)
    await end_run(store, await slot(store, b, 60), S.FAILED)
    clock.advance(49)
    assert (await store.sweep_joins(10)).looked_at == 0
    clock.advance(1)
    seen = await newest(store)
    assert (await store.sweep_joins(10)).missing == (load.id,)
    run = await follower(store, load)
    assert (run.status, run.skip_reason, run.scheduled_time) == (S.SKIPPED, SkipReason.UPSTREAM_MISSING, at(60))
    assert (run.error_details or {})["missing"] == {"b": "FAILED", "c": None}
    (event,) = [event for event in await news(store, seen) if event.type == "run.skipped"]
    assert event.data["missing"] == ["b", "c"]
    assert (await store.sweep_joins(10)).looked_at == 0
    late = await slot(store, c, 60)
    await end_run(store, late)
    assert len(await runs_of(store, load)) == 1


async def test_a_redrive_after_the_time_ran_out_starts_another_wait(store: Store, clock: ManualClock):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, within_seconds=100)
    mine, yours = await slot(store, a, 60), await slot(store, b, 60)
    await end_run(store, mine)
    await end_run(store, yours, S.FAILED)
    clock.advance(100)
    await store.sweep_joins(10)
    again = await publish(store, b, origin=Origin.RETRY, retry_of_run_id=yours, scheduled_time=at(60))
    await end_run(store, again)
    assert [run.status for run in await runs_of(store, load)] == [S.SKIPPED, S.SCHEDULED]
    assert (await births(store, load))[1] == (mine, again)


async def test_a_skip_of_a_join_is_followed_in_turn(store: Store, clock: ManualClock):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, within_seconds=100)
    alarm = await create(store, "alarm", load, on="skipped")
    await end_run(store, await slot(store, a, 60))
    clock.advance(100)
    await store.sweep_joins(10)
    (skip,) = await runs_of(store, load)
    assert await births(store, alarm) == [(skip.id,)]


@pytest.mark.parametrize("how", ["disabled", "error", "deleted"])
async def test_a_follower_that_is_off_gets_no_run_and_its_open_joins_end(store: Store, clock: ManualClock, how: str):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, within_seconds=100, task={"on_exhausted": OnExhausted.ERROR})
    mine, yours = await slot(store, a, 60), await slot(store, b, 60)
    await end_run(store, mine)
    match how:
        case "disabled":
            await disable(store, load)
        case "deleted":
            await store.delete_task(load.id)
        case _:
            await end(store, load, S.FAILED)
            assert (await reread(store, load)).status is TaskStatus.ERROR
    assert await states(store) == ["disabled"]
    before = len(await runs_of(store, load))
    await end_run(store, yours)
    clock.advance(200)
    await store.sweep_joins(10)
    assert len(await runs_of(store, load)) == before
    assert await states(store) == ["disabled"]


async def test_a_follower_that_is_enabled_again_follows_what_ends_from_then_on(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, same_slot=False)
    await end(store, a)
    await disable(store, load)
    await end(store, b)
    await enable(store, load)
    await end(store, a)
    assert await runs_of(store, load) == []
    await end(store, b)
    assert len(await runs_of(store, load)) == 1


async def test_a_change_of_after_ends_what_waited_under_the_old_one(store: Store):
    a, b, c = [await create(store, name) for name in "abc"]
    load = await create(store, "load", a, b)
    mine, yours = await slot(store, a, 60), await slot(store, b, 60)
    await end_run(store, mine)
    await edit(store, load, after=after(a, c))
    await end_run(store, yours)
    await store.sweep_joins(10)
    (run,) = await runs_of(store, load)
    assert run.skip_reason is SkipReason.UPSTREAM_MISSING
    details = run.error_details or {}
    assert (details["missing"], details["changed"]) == ({"b": None}, True)


async def test_what_waited_when_after_was_taken_away_still_names_what_it_waited_for(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b)
    await end_run(store, await slot(store, a, 60))
    await edit(store, load, after=None)
    await store.sweep_joins(10)
    (run,) = await runs_of(store, load)
    assert (run.error_details or {})["missing"] == {"b": None}


async def test_a_task_with_after_alone_is_never_completed(store: Store, clock: ManualClock):
    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    await end(store, extract)
    clock.advance(1000)
    await store.plan(10)
    assert (await reread(store, load)).status is TaskStatus.ENABLED


async def test_a_task_whose_schedule_is_used_up_still_follows(store: Store, clock: ManualClock):
    extract = await create(store, "extract")
    load = await create(store, "load", extract, task={"schedule": every(10, repeat=1)})
    clock.advance(10)
    await store.plan(10)
    assert (await reread(store, load)).status is TaskStatus.COMPLETED
    run_id = await end(store, extract)
    assert (await births(store, load))[-1] == (run_id,)


# ---- policies of the follower


async def test_a_follower_at_its_limit_skips_or_waits_as_for_a_slot(store: Store):
    extract = await create(store, "extract")
    limited = {"max_concurrency": 1, "concurrency_policy": ConcurrencyPolicy.SKIP}
    load = await create(store, "load", extract, task=limited)
    alarm = await create(store, "alarm", load, on="skipped")
    queued = await create(store, "queued", extract, task={"max_concurrency": 1})
    await end(store, extract)
    await end(store, extract)
    skip = (await runs_of(store, load))[1]
    assert [run.status for run in await runs_of(store, queued)] == [S.SCHEDULED] * 2
    assert (skip.status, skip.skip_reason) == (S.SKIPPED, SkipReason.CONCURRENCY)
    assert await births(store, alarm) == [(skip.id,)]
    assert len([lease for lease in await claim_due(store) if lease.task_id == queued.id]) == 1


async def test_a_follower_that_overlaps_is_skipped_or_takes_the_place_of_the_one_before(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", extract, task={"overlap_action": OverlapAction.SKIP})
    other = await create(store, "other", extract, task={"overlap_action": OverlapAction.CANCEL_PREV})
    alarm = await create(store, "alarm", other, on="failure")
    await end(store, extract)
    await claim_due(store)
    await end(store, extract)
    assert [run.status for run in await runs_of(store, load)] == [S.RUNNING, S.SKIPPED]
    assert [run.status for run in await runs_of(store, other)] == [S.CANCELED, S.SCHEDULED]
    assert await runs_of(store, alarm) == []


async def test_a_follower_that_failed_backs_off_from_now_and_not_from_the_slot(store: Store, clock: ManualClock):
    extract = await create(store, "extract")
    load = await create(store, "load", extract, task={"failure_action": FailureAction.SKIP})
    for _ in range(3):
        await end(store, extract)
        for lease in await claim_due(store):
            await done(store, fail(lease))
    assert [run.status for run in await runs_of(store, load)] == [S.FAILED, S.SKIPPED, S.FAILED]


async def test_priority_and_jitter_are_the_followers(store: Store, clock: ManualClock):
    extract = await create(store, "extract")
    load = await create(store, "load", extract, task={"priority": 7, "jitter_seconds": 600})
    await end(store, extract)
    run = await follower(store, load)
    assert run.priority == 7
    assert at(0) <= run.run_at <= at(600)


async def test_the_queue_of_a_follower_is_told_after_the_commit(store: Store):
    fed: list[set[str]] = []
    store.on_fed = lambda queues: fed.append(set(queues))
    extract = await create(store, "extract")
    await create(store, "load", extract, task={"queue": "loads"})
    await end(store, extract, S.FAILED)
    assert fed == []
    await end(store, extract)
    assert fed == [{"loads"}]


# ---- very many


async def test_more_than_a_transaction_takes_is_left_to_the_sweep(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(task_rows, "MOST_FOLLOWING", 3)
    extract = await create(store, "extract")
    followers = [await create(store, f"f{number}", extract) for number in range(8)]
    run_id = await end(store, extract)
    assert sum([len(await runs_of(store, task)) for task in followers]) == 3
    clock.advance(1)
    await create(store, "too late", extract)
    for swept in (3, 2, 0):
        before = sum([len(await runs_of(store, task)) for task in followers])
        await store.sweep_joins(10)
        assert sum([len(await runs_of(store, task)) for task in followers]) == before + swept
    assert [await births(store, task) for task in followers] == [[(run_id,)]] * 8
    page = await store.runs(RunQuery(origin=Origin.UPSTREAM, page_size=100))
    assert len(page.items) == 8


# ---- what is refused


async def refused(call: Any) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        await call
    return caught.value


async def test_an_unknown_upstream_is_refused_and_nothing_is_written(store: Store, table_sizes: Sizes):
    extract = await create(store, "extract")
    gone = await create(store, "gone")
    await store.delete_task(gone.id)
    before = await table_sizes()
    error = await refused(store.create_task(job("load", after=after(extract, "nowhere"))))
    assert error.details == {"after.tasks[1].task": "is 'nowhere'; there is no such task"}
    error = await refused(store.create_task(job("load", after=after(gone))))
    assert error.details == {"after.tasks[0].task": f"is {gone.id}; there is no such task"}
    error = await refused(store.create_task(job("load", after=after(extract, "extract"))))
    assert error.details == {"after.tasks[1].task": "is 'extract', which is named already; expected each task once"}
    assert left_over(before, await table_sizes()) == {}


async def test_a_task_cannot_follow_itself(store: Store):
    error = await refused(store.create_task(job("load", after=after("load"))))
    assert "makes a cycle: load → load" in error.message
    load = await create(store, "load")
    error = await refused(edit(store, load, after=after(load)))
    assert "makes a cycle: load → load" in error.message


async def test_a_cycle_over_tasks_saved_one_by_one_is_named(store: Store):
    a = await create(store, "a")
    b = await create(store, "b", a)
    c = await create(store, "c", b)
    error = await refused(edit(store, a, after=after(c)))
    assert error.details == {"after": "makes a cycle: a → b → c → a"}
    assert (await reread(store, a)).spec.after is None
    assert await edit(store, c, after=after(a, b))


async def test_an_upstream_that_is_gone_may_stay_when_the_others_change(store: Store):
    extract, gone, more = [await create(store, name) for name in ("extract", "gone", "more")]
    load = await create(store, "load", extract, gone)
    await store.delete_task(gone.id, force=True)
    changed = await edit(store, load, after=after("extract", gone, more))
    assert changed.spec.after is not None
    assert changed.spec.after.upstream_ids == (extract.id, gone.id, more.id)
    await end(store, extract)
    error = await refused(edit(store, await create(store, "other"), after=after(gone)))
    assert error.details == {"after.tasks[0].task": f"is {gone.id}; there is no such task"}


async def test_a_cycle_inside_one_batch_is_named(store: Store, table_sizes: Sizes):
    before = await table_sizes()
    new = [NewTask(spec=job(name, after=after(other))) for name, other in (("a", "b"), ("b", "a"))]
    error = await refused(store.create_tasks(new))
    assert "makes a cycle" in error.message
    assert left_over(before, await table_sizes()) == {}
    a, b = [await create(store, name) for name in "ab"]
    edits = [
        TaskEdit(task.id, lambda task, other=other: TaskChange(spec=_following(task.spec, other), status=task.status))
        for task, other in ((a, b), (b, a))
    ]
    error = await refused(store.change_tasks(edits))
    assert error.details == {"tasks[0].after": "makes a cycle: a → b → a"}
    assert (await reread(store, a)).version == 1


def _following(spec: TaskSpec, other: Task) -> TaskSpec:
    return msgspec.structs.replace(spec, after=after(other))


async def test_a_batch_may_name_its_own_tasks_in_any_order(store: Store):
    new = [NewTask(spec=job("load", after=after("extract"))), NewTask(spec=job("extract"))]
    load, extract = await store.create_tasks(new)
    run_id = await end(store, extract)
    assert await births(store, load) == [(run_id,)]


async def test_a_batch_names_what_is_wrong_by_place(store: Store):
    new = [NewTask(spec=job("load", after=after("extract"))), NewTask(spec=job("extract", after=after("nowhere")))]
    error = await refused(store.create_tasks(new))
    assert error.details == {"tasks[1].after.tasks[0].task": "is 'nowhere'; there is no such task"}


async def test_an_upstream_that_others_follow_is_deleted_only_by_force(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    with pytest.raises(InvalidState, match="task 'extract' is followed by 'load'; change those first"):
        await store.delete_task(extract.id)
    with pytest.raises(InvalidState, match=r"tasks\[0\].*is followed by 'load'"):
        await store.delete_tasks({extract.id: None})
    assert (await reread(store, extract)).deleted_at is None
    await store.delete_task(extract.id, force=True)
    edited = await edit(store, load, description="its upstream is gone, and it can be edited all the same")
    assert edited.spec.after == load.spec.after
    await store.delete_task(load.id)


async def test_an_upstream_and_its_followers_can_be_deleted_together(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    assert len(await store.delete_tasks({extract.id: None, load.id: None})) == 2


async def test_a_purge_leaves_nothing_behind(store: Store, table_sizes: Sizes):
    a, b = [await create(store, name) for name in "ab"]
    before = await table_sizes()
    load = await create(store, "load", a, b)
    run_id = await slot(store, a, 60)
    await end_run(store, run_id)
    await end_run(store, await slot(store, b, 60))
    await store.delete_task(load.id, purge=True)
    assert left_over(before, await table_sizes(), "runs", "task_versions") == {}


async def test_joins_are_forgotten_with_the_runs_that_they_made(store: Store, clock: ManualClock, table_sizes: Sizes):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b, within_seconds=100)
    before = await table_sizes()
    for second in (60, 120):
        await end_run(store, await slot(store, a, second))
    await end_run(store, await slot(store, b, 60))
    for lease in await claim_due(store):
        await done(store, finish(lease))
    await disable(store, load)
    assert sorted(await states(store)) == ["disabled", "done"]
    clock.advance(1000)
    await store.clean(Instant(clock.now() - SECOND), 100)
    await store.clean_rest(Instant(clock.now() - SECOND), 100)
    assert left_over(before, await table_sizes(), "task_versions", "version_marks") == {}


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("update joins set run_id = null where state = 'done'", "was completed, and has no run"),
        ("update joins set due_at = 1 where state = 'done'", "is over, and still has a time"),
        (
            "update joins set state = 'open', due_at = 9000000000000000 where state = 'done'",
            "every place in it is filled",
        ),
        ("update joins set due_at = 1 where state = 'open'", "while a node was sweeping"),
        ("delete from joins where state = 'done'", "was made by no join"),
    ],
)
async def test_an_audit_finds_a_broken_join(store: Store, sql: str, said: str):
    a, b = [await create(store, name) for name in "ab"]
    await create(store, "load", a, b)
    for second in (60, 120):
        await end_run(store, await slot(store, a, second))
    await end_run(store, await slot(store, b, 60))
    await store.note_scheduler()
    assert await store.flaws() == []
    assert isinstance(store, SqlStore)
    was = await store.fetch("select id, state, due_at, run_id from joins")
    kept = await store.fetch("select * from joins where state = 'done'")
    await execute(store, sql)
    found = await store.flaws()
    assert any(said in flaw.message for flaw in found)
    assert {flaw.kind for flaw in found} == {InconsistencyKind.JOIN}
    if sql.startswith("delete"):
        names = "id, task_id, root, edge_version, redrive, state, first_at, due_at, scheduled_time, run_id"
        values = dict(zip(names.split(", "), kept[0], strict=True))
        await execute(
            store, f"insert into joins ({names}) values ({', '.join(f':{name}' for name in values)})", **values
        )
    for id_, state, due_at, run_id in was:
        await execute(
            store,
            "update joins set state = :state, due_at = :due, run_id = :run where id = :id",
            state=state,
            due=due_at,
            run=run_id,
            id=id_,
        )


async def test_an_audit_tells_a_join_that_was_completed_twice_from_a_redrive(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    load = await create(store, "load", a, b)
    first, other = await slot(store, a, 60), await slot(store, b, 60)
    await end_run(store, first)
    await end_run(store, other)
    again = await publish(store, a, origin=Origin.RETRY, retry_of_run_id=first, scheduled_time=at(60))
    await end_run(store, again)
    assert await births(store, load) == [(first, other), (again, other)]
    assert await store.flaws() == []
    await execute(store, "update join_runs set run_id = :first where run_id = :again", first=first, again=again)
    (flaw,) = await store.flaws()
    assert flaw.kind is InconsistencyKind.JOIN
    assert "was completed by the same runs as an earlier one" in flaw.message
    await execute(
        store,
        "update join_runs set run_id = :again where run_id = :first and join_id = (select max(id) from joins)",
        first=first,
        again=again,
    )


# ---- what is asked of it


async def test_the_followers_of_a_task_are_told_by_name_with_what_they_follow_it_on(store: Store):
    extract = await create(store, "extract")
    load = await create(store, "load", extract)
    alarm = await create(store, "alarm", extract, on="failure")
    gone = await create(store, "gone", extract)
    await store.delete_task(gone.id)
    told = [(each.task_id, each.name, each.on) for each in await store.followers(extract.id)]
    assert told == [(alarm.id, "alarm", "failure"), (load.id, "load", "success")]
    assert [each.name for each in await store.followers(extract.id, 1)] == ["alarm"]
    assert await store.followers(load.id) == []


async def test_the_joins_of_a_run_are_those_that_it_has_arrived_at(store: Store):
    a, b = [await create(store, name) for name in "ab"]
    both = await create(store, "both", a, b)
    one = await create(store, "one", a)
    mine, yours = await slot(store, a, 60), await slot(store, b, 60)
    await end_run(store, mine)
    joins = {join.task_id: join for join in await store.joins_of_run(mine)}
    (started,) = await runs_of(store, one)
    assert {task_id: (join.state, join.run_id) for task_id, join in joins.items()} == {
        both.id: ("open", None),
        one.id: ("done", started.id),
    }
    assert await store.joins_of_run(yours) == []
    await end_run(store, yours, S.FAILED)
    (waits,) = await store.joins_of_run(yours)
    assert [(each.run_id, each.fills) for each in waits.arrivals] == [(mine, True), (yours, False)]
    assert len(await store.joins_of_run(mine, 1)) == 1


async def test_runs_by_id_come_in_the_order_asked_for_each_once_and_without_those_that_are_not_there(store: Store):
    extract = await create(store, "extract")
    first, second = [await end(store, extract) for _ in range(2)]
    assert [run.id for run in await store.runs_by_id([second, RunId(17), first, second])] == [second, first]
    assert await store.runs_by_id([]) == []
