"""Tasks: how they come to be, change, end; and how they are found again."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from conformance.store.builders import (
    S,
    Sizes,
    after_each,
    asynchronous,
    at,
    born_at,
    claim,
    claim_one,
    cron,
    disable,
    done,
    dropped,
    edit,
    enable,
    every,
    fail,
    finish,
    finished,
    http,
    job,
    left_over,
    lost,
    newest,
    news,
    once,
    park,
    publish,
    publish_many,
    reread,
    retry,
    run_of,
    runs_of,
    skips,
    started,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.errors import AlreadyExists, InvalidState, NotFound, VersionConflict
from noonbell.model.request import Publication, TaskChange, TaskQuery
from noonbell.model.run import SkipReason
from noonbell.model.task import (
    SYSTEM_TASK_IDS,
    Circuit,
    ConcurrencyPolicy,
    Delivery,
    FailureAction,
    Fanout,
    MisfirePolicy,
    OnExhausted,
    OnLost,
    OverlapAction,
    RateLimit,
    RetryPolicy,
    RetryStrategy,
    Task,
    TaskId,
    TaskSpec,
    TaskStatus,
)
from noonbell.ports import Store

# ---- create


async def test_a_new_task_is_version_1_with_its_cursor_at_the_first_slot_after_now(store: Store, clock: ManualClock):
    clock.advance(0.5)
    task = await store.create_task(job(schedule=every(10)), by="ann")
    assert (task.version, task.status, task.next_fire_at, task.fired) == (1, TaskStatus.ENABLED, at(10), 0)
    assert (task.created_at, task.updated_at, task.created_by) == (at(0.5), at(0.5), "ann")
    assert await store.task(task.id) == task


async def test_a_slot_that_is_now_is_not_after_now(store: Store, clock: ManualClock):
    clock.advance(10)
    assert (await store.create_task(job(schedule=every(10)))).next_fire_at == at(20)


async def test_the_first_task_that_is_not_a_system_task_has_id_1(store: Store):
    system = await store.create_task(job("built-in", managed_by="system"), system=True)
    assert system.id >= SYSTEM_TASK_IDS
    assert (await store.create_task(job("first"))).id == 1
    assert (await store.create_task(job("second"))).id == 2


async def test_a_task_that_could_not_be_made_uses_up_no_first_id(store: Store):
    await store.create_task(job("built-in"), system=True)
    with pytest.raises(AlreadyExists):
        await store.create_task(job("built-in"))
    assert (await store.create_task(job("first"))).id == 1


async def test_a_name_that_is_taken_raises_already_exists_and_nothing_is_written(store: Store):
    task = await store.create_task(job("backup", labels={"a": "b"}, schedule=every(1)))
    before = await newest(store)
    with pytest.raises(AlreadyExists):
        await store.create_task(job("backup", schedule=every(2)))
    assert (await store.tasks(TaskQuery())).items == [task]
    assert await news(store, before) == []


async def test_an_external_id_that_is_taken_raises_already_exists_and_nothing_is_written(store: Store):
    task = await store.create_task(job("one", external_id="x-1"))
    with pytest.raises(AlreadyExists):
        await store.create_task(job("two", external_id="x-1"))
    assert (await store.tasks(TaskQuery())).items == [task]
    assert await store.task_named("two") is None


async def test_a_race_for_one_name_has_one_winner(store: Store):
    answers = await asyncio.gather(*(store.create_task(job("same")) for _ in range(5)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyExists"] * 4 + ["Task"]
    assert (await store.tasks(TaskQuery())).total == 1


async def test_names_that_differ_at_all_are_different_names(store: Store):
    names = ["backup", "Backup", "bäckup", "backup2", "backup "]
    tasks = [await store.create_task(job(name)) for name in names]
    assert [await store.task_named(name) for name in names] == tasks


async def test_a_task_whose_schedule_names_no_slot_is_completed(store: Store, clock: ManualClock):
    clock.advance(100)
    task = await store.create_task(job(schedule=every(10), end_at=at(50)))
    assert (task.status, task.next_fire_at) == (TaskStatus.COMPLETED, None)
    assert (await store.plan(10)).tasks == 0


async def test_a_task_without_a_schedule_is_enabled_and_never_due(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    assert (task.status, task.next_fire_at) == (TaskStatus.ENABLED, None)
    clock.advance(10_000)
    assert (await store.plan(10)).tasks == 0
    assert (await reread(store, task)).status is TaskStatus.ENABLED


async def test_a_task_that_is_born_disabled_does_not_fire(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1)), status=TaskStatus.DISABLED)
    assert task.status is TaskStatus.DISABLED
    clock.advance(10)
    assert (await store.plan(10)).tasks == 0
    assert await runs_of(store, task) == []


async def test_every_field_of_a_spec_comes_back_as_it_was_written(store: Store):
    spec = TaskSpec(
        name="всё — 全部 🔔 %_\\'\"",
        description="line one\nline two",
        labels={"team": "ops", "ключ": "значение"},
        managed_by="file:tasks.yaml",
        external_id="ext/1",
        meta={"nested": {"list": [1, 2.5, None, True, "x"]}},
        schedule=job(schedule=cron("0 30 9 * * 1-5")).schedule,
        timezone="Europe/Berlin",
        start_at=at(-5.25),
        end_at=at(86_400 * 365),
        jitter_seconds=7,
        http_method="POST",
        target_url="https://example.test/ä?x=1",
        headers={"X-Key": "1", "Accept": "*/*"},
        body_template='{"id": "{{run_id}}"}',
        follow_redirects=True,
        secret="whsec_1",
        callback_method="PUT",
        callback_timeout_sec=17,
        payload={"deep": [{"a": None}], "big": 2**53 - 1, "float": 0.1},
        queue="http",
        timeout_seconds=2.5,
        retry_policy=RetryPolicy(
            max_retries=2,
            strategy=RetryStrategy.FIXED,
            local=True,
            initial_delay=0.5,
            max_delay=9,
            jitter=0.25,
            retry_on=("429",),
        ),
        max_concurrency=None,
        concurrency_policy=ConcurrencyPolicy.SKIP,
        queue_depth=4,
        overlap_action=OverlapAction.CANCEL_PREV,
        failure_action=FailureAction.HALF_OPEN,
        circuit=Circuit(failures=5, cool_down_seconds=6),
        misfire_policy=MisfirePolicy.CATCH_UP_LIMITED,
        catchup_limit=8,
        misfire_grace_seconds=9,
        priority=-3,
        rate_limit=RateLimit(max=3, per_seconds=1.5, key="tenant"),
        worker_timeout_ms=1234,
        ping_interval_ms=567,
        specific_worker_ids=("w2", "w1"),
        min_worker_version=3,
        fanout=Fanout(workers="all", success=2),
        delivery=Delivery.AT_MOST_ONCE,
        on_lost=OnLost.FAIL,
        max_lost=1,
        on_exhausted=OnExhausted.ERROR,
        delete_on_complete=True,
    )
    task = await store.create_task(spec)
    assert task.spec == spec
    assert (await reread(store, task)).spec == spec
    assert (await store.task_versions(task.id))[0].spec == spec
    (listed,) = (await store.tasks(TaskQuery())).items
    assert listed.spec == spec


async def test_a_payload_may_be_any_json(store: Store):
    for number, payload in enumerate((None, 0, "", "text", [], {}, False, [1, [2, {"x": None}]])):
        task = await store.create_task(job(f"t{number}", payload=payload))
        assert (await reread(store, task)).spec.payload == payload
        assert (await started(store, task)).payload == payload


async def test_an_unknown_task_is_none(store: Store):
    assert await store.task(TaskId(77)) is None
    assert await store.task_named("nobody") is None
    assert await store.task_versions(TaskId(77)) == []


# ---- change


async def test_a_change_raises_the_version_by_one_and_the_old_version_stays_readable(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)), by="ann")
    clock.advance(3)

    def rename(now: Task) -> TaskChange:
        return TaskChange(spec=msgspec.structs.replace(now.spec, name="k"), status=TaskStatus.DISABLED)

    changed = await store.change_task(task.id, rename, by="bob")
    assert (changed.version, changed.name, changed.status) == (2, "k", TaskStatus.DISABLED)
    assert (changed.updated_at, changed.created_at, changed.created_by) == (at(3), at(0), "ann")
    assert await store.task(task.id) == changed
    first, second = await store.task_versions(task.id)
    assert (first.version, first.valid_from, first.status, first.changed_by) == (1, at(0), TaskStatus.ENABLED, "ann")
    assert (second.version, second.valid_from, second.status, second.changed_by) == (
        2,
        at(3),
        TaskStatus.DISABLED,
        "bob",
    )
    assert (first.spec, second.spec) == (task.spec, changed.spec)
    assert not first.deleted
    assert not second.deleted


async def test_an_edit_sees_the_task_as_it_stands(store: Store):
    task = await edit(store, await store.create_task(job()), description="second")
    seen: list[Task] = []

    def look(now: Task) -> TaskChange:
        seen.append(now)
        return TaskChange(spec=now.spec, status=now.status)

    await store.change_task(task.id, look)
    assert seen[-1].spec == task.spec
    assert seen[-1].version == 2


async def test_another_expected_version_is_a_version_conflict_and_nothing_is_written(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(25)
    before = await newest(store)

    def rename(now: Task) -> TaskChange:
        return TaskChange(spec=msgspec.structs.replace(now.spec, name="k"), status=now.status)

    with pytest.raises(VersionConflict):
        await store.change_task(task.id, rename, expect_version=2)
    assert await store.task(task.id) == task
    assert await runs_of(store, task) == []
    assert await news(store, before) == []
    assert (await store.change_task(task.id, rename, expect_version=1)).name == "k"


async def test_of_two_edits_that_expect_the_same_version_one_wins(store: Store):
    task = await store.create_task(job())

    def describe(text: str):
        def change(now: Task) -> TaskChange:
            return TaskChange(spec=msgspec.structs.replace(now.spec, description=text), status=now.status)

        return store.change_task(task.id, change, expect_version=1)

    answers = await asyncio.gather(describe("a"), describe("b"), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["Task", "VersionConflict"]
    assert (await reread(store, task)).version == 2


async def test_an_edit_of_an_unknown_or_deleted_task_raises_not_found(store: Store):
    task = await store.create_task(job())
    await store.delete_task(task.id)
    for unknown in (task.id, TaskId(99)):
        with pytest.raises(NotFound):
            await store.change_task(unknown, lambda now: TaskChange(spec=now.spec, status=now.status))


async def test_an_edit_that_raises_writes_nothing(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(25)

    def refuse(now: Task) -> TaskChange:
        raise InvalidState("no")

    with pytest.raises(InvalidState):
        await store.change_task(task.id, refuse)
    assert await store.task(task.id) == task
    assert await runs_of(store, task) == []


async def test_an_edit_to_a_name_that_is_taken_raises_already_exists_and_nothing_is_written(
    store: Store, clock: ManualClock
):
    await store.create_task(job("taken"))
    task = await store.create_task(job("free", schedule=every(10)))
    clock.advance(25)
    with pytest.raises(AlreadyExists):
        await edit(store, task, name="taken")
    assert await store.task(task.id) == task
    assert await runs_of(store, task) == []


async def test_slots_up_to_now_are_accounted_for_under_the_old_version_before_an_edit(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), priority=1))
    clock.advance(25)
    task = await edit(store, task, priority=2)
    assert [(run.scheduled_time, run.task_version, run.priority) for run in await runs_of(store, task)] == [
        (at(10), 1, 1),
        (at(20), 1, 1),
    ]
    assert (task.next_fire_at, task.fired) == (at(30), 2)
    clock.advance(5)
    await store.plan(10)
    assert [(run.task_version, run.priority) for run in await runs_of(store, task)] == [(1, 1), (1, 1), (2, 2)]


async def test_a_new_policy_does_not_decide_old_slots(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), misfire_policy=MisfirePolicy.FIRE_ONCE))
    clock.advance(5)
    await edit(store, task, misfire_policy=MisfirePolicy.FIRE_NOW)
    assert await born_at(store, task) == [5]
    assert [(r.first, r.last, r.count) for r in await dropped(store, task)] == [(at(1), at(4), 4)]


async def test_slots_up_to_now_are_accounted_for_before_disabling_and_none_after(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(20)
    await disable(store, task)
    assert await born_at(store, task) == [10, 20]
    clock.advance(100)
    await store.plan(10)
    assert await born_at(store, task) == [10, 20]
    assert await dropped(store, task) == []


async def test_slots_up_to_now_are_accounted_for_before_deleting_and_none_after(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(20)
    await store.delete_task(task.id)
    assert [(run.scheduled_time, run.status) for run in await runs_of(store, task)] == [
        (at(10), S.CANCELED),
        (at(20), S.CANCELED),
    ]
    clock.advance(100)
    await store.plan(10)
    assert len(await runs_of(store, task)) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": every(7)},
        {"schedule": cron("*/7 * * * * *"), "timezone": "Asia/Tokyo"},
        {"schedule": every(7), "start_at": at(0)},
        {"schedule": every(7), "end_at": at(1000)},
    ],
    ids=["schedule", "zone", "start", "end"],
)
async def test_a_change_of_schedule_zone_or_bounds_starts_after_now_and_counts_anew(
    store: Store, clock: ManualClock, change: dict[str, object]
):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(25)
    changed = await edit(store, task, **change)
    assert (changed.next_fire_at, changed.fired) == (at(28), 0)
    assert await born_at(store, task) == [10, 20]


@pytest.mark.parametrize(
    ("field", "value", "cursor"),
    [("timezone", "Asia/Tokyo", 50), ("start_at", at(45), 50), ("end_at", at(30), 30)],
)
async def test_a_change_of_zone_or_one_bound_alone_counts_anew(
    store: Store, clock: ManualClock, field: str, value: object, cursor: int
):
    schedule = cron("*/50 * * * * *") if field == "timezone" else every(10)
    task = await store.create_task(job(schedule=schedule))
    clock.advance(25)
    changed = await edit(store, task, **{field: value})
    assert (changed.next_fire_at, changed.fired) == (at(cursor), 0)


async def test_repeat_restarts_with_a_change_of_schedule(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=3)))
    clock.advance(25)
    task = await edit(store, task, schedule=every(5, repeat=3))
    clock.advance(100)
    await store.plan(10)
    assert await born_at(store, task) == [10, 20, 30, 35, 40]
    assert (await reread(store, task)).status is TaskStatus.COMPLETED


async def test_other_edits_keep_cursor_and_repeat_count(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=3)))
    clock.advance(25)
    changed = await edit(store, task, description="new", priority=3, max_concurrency=5, queue="other")
    assert (changed.next_fire_at, changed.fired) == (at(30), 2)


async def test_a_denser_schedule_fires_before_the_old_cursor(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(86_400)))
    clock.advance(2)
    assert (await edit(store, task, schedule=every(1))).next_fire_at == at(3)


async def test_after_a_step_back_of_the_clock_the_cursor_waits(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1)))
    clock.advance(5)
    await store.plan(10)
    clock.advance(-3)
    assert (await edit(store, task, description="new")).next_fire_at == at(6)
    await store.plan(10)
    assert await born_at(store, task) == [1, 2, 3, 4, 5]
    clock.advance(4)
    await store.plan(10)
    assert await born_at(store, task) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("how", ["reschedule", "enable"])
async def test_the_cursor_never_moves_back_to_a_slot_that_was_accounted_for(store: Store, clock: ManualClock, how: str):
    task = await store.create_task(job(schedule=every(1)))
    clock.advance(5)
    await store.plan(10)
    clock.advance(-3)
    if how == "reschedule":
        changed = await edit(store, task, schedule=cron("* * * * * *"))
    else:
        changed = await enable(store, await disable(store, task))
    assert changed.next_fire_at is not None
    assert changed.next_fire_at >= at(6)
    clock.advance(4)
    await store.plan(10)
    assert await born_at(store, task) == [1, 2, 3, 4, 5, 6]


async def test_enabling_starts_from_now_without_catching_up(store: Store, clock: ManualClock):
    task = await disable(store, await store.create_task(job(schedule=every(10))))
    clock.advance(1005)
    await store.plan(10)
    task = await enable(store, task)
    assert (task.status, task.next_fire_at) == (TaskStatus.ENABLED, at(1010))
    await store.plan(10)
    assert await runs_of(store, task) == []
    assert await dropped(store, task) == []
    clock.advance(5)
    await store.plan(10)
    assert await born_at(store, task) == [1010]


async def test_time_while_disabled_does_not_use_up_repeats(store: Store, clock: ManualClock):
    task = await disable(store, await store.create_task(job(schedule=every(10, repeat=2))))
    clock.advance(1000)
    task = await enable(store, task)
    clock.advance(100)
    await store.plan(10)
    assert await born_at(store, task) == [1010, 1020]


async def test_an_edit_that_changes_nothing_writes_nothing(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    before = await newest(store)
    clock.advance(5)
    assert await enable(store, task) == task
    assert await store.task(task.id) == task
    assert len(await store.task_versions(task.id)) == 1
    assert await news(store, before) == []


async def test_an_edited_task_can_be_found_by_what_it_says_now(store: Store):
    task = await store.create_task(job("old", labels={"team": "a"}, external_id="e-1"))
    task = await edit(store, task, name="new", labels={"team": "b"}, external_id="e-2")
    assert await store.task_named("old") is None
    assert await store.task_named("new") == task
    assert (await store.tasks(TaskQuery(label=("team", "a")))).items == []
    assert (await store.tasks(TaskQuery(label=("team", "b")))).items == [task]
    await store.create_task(job("old", external_id="e-1"))
    with pytest.raises(AlreadyExists):
        await store.create_task(job("third", external_id="e-2"))


async def test_a_change_touches_no_run_that_executes_and_is_used_at_the_next_claim(store: Store, clock: ManualClock):
    task = await store.create_task(job(timeout_seconds=60, worker_timeout_ms=10_000))
    running = await started(store, task)
    before = await run_of(store, running.run_id)
    waiting = await publish(store, task)
    await edit(store, task, timeout_seconds=5, worker_timeout_ms=1_000, description="new")
    assert await run_of(store, running.run_id) == before
    lease = await claim_one(store)
    assert (lease.run_id, lease.task_version) == (waiting, 2)
    assert (lease.expires_at, lease.deadline_at) == (at(1), at(5))
    await done(store, finish(running))


# ---- delete


async def test_a_deleted_task_stays_readable_and_its_name_is_free_again(store: Store, clock: ManualClock):
    task = await store.create_task(job("backup", external_id="e", schedule=every(10)))
    clock.advance(1)
    gone = await store.delete_task(task.id, by="ann")
    assert (gone.id, gone.deleted_at) == (task.id, at(1))
    assert await store.task(task.id) == gone
    assert await store.task_named("backup") is None
    assert (await store.tasks(TaskQuery())).items == []
    second = await store.create_task(job("backup", external_id="e"))
    assert await store.task_named("backup") == second
    assert second.id != task.id
    last = (await store.task_versions(task.id))[-1]
    assert (last.deleted, last.valid_from, last.changed_by) == (True, at(1), "ann")


async def test_a_task_may_be_deleted_and_made_again_many_times(store: Store):
    for _ in range(3):
        task = await store.create_task(job("backup", external_id="e"))
        await store.delete_task(task.id)
    assert (await store.tasks(TaskQuery(include_deleted=True))).total == 3


async def test_deleting_cancels_what_waits(store: Store, clock: ManualClock):
    task = await store.create_task(http(max_concurrency=1))
    retrying = await started(store, task)
    await done(store, retry(retrying, delay=60))
    due = await publish(store, task)
    delayed = await publish(store, task, delay_seconds=60)
    clock.advance(1)
    await store.delete_task(task.id)
    for run_id in (retrying.run_id, due, delayed):
        run = await run_of(store, run_id)
        assert (run.status, run.end_time) == (S.CANCELED, at(1))
    clock.advance(100)
    await store.promote(10)
    assert await claim(store) == []


async def test_executing_runs_of_a_deleted_task_finish(store: Store):
    task = await store.create_task(job())
    running = await started(store, task)
    parked = await started(store, task)
    await done(store, park(parked))
    await store.delete_task(task.id)
    assert await status_of(store, running.run_id) is S.RUNNING
    assert await status_of(store, parked.run_id) is S.CALLBACK_PENDING
    await done(store, finish(running))
    assert await status_of(store, running.run_id) is S.SUCCESS


async def test_cancel_running_ends_executing_runs_too(store: Store):
    task = await store.create_task(job())
    running = await started(store, task)
    parked = await started(store, task)
    await done(store, park(parked))
    await store.delete_task(task.id, cancel_running=True)
    assert await status_of(store, running.run_id) is S.CANCELED
    assert await status_of(store, parked.run_id) is S.CANCELED
    await lost(store, finish(running))


async def test_history_of_a_deleted_task_stays(store: Store):
    task = await store.create_task(job())
    run_id = await finished(store, task)
    await store.delete_task(task.id)
    assert (await run_of(store, run_id)).task_name == "j"
    assert [run.id for run in await runs_of(store, task)] == [run_id]


async def test_purge_removes_every_row_of_the_task(store: Store, table_sizes: Sizes, clock: ManualClock):
    spec = asynchronous(
        "j",
        schedule=every(1),
        misfire_policy=MisfirePolicy.FIRE_ONCE,
        failure_action=FailureAction.SKIP,
        labels={"a": "b"},
        max_concurrency=3,
        rate_limit=RateLimit(max=5, per_seconds=1),
        specific_worker_ids=("w1",),
    )
    empty = await table_sizes()
    task = await store.create_task(spec)
    clock.advance(5)
    await store.plan(10)
    lease = await claim_one(store)
    await store.log(lease.run_id, lease.token, [("info", "x")])
    await store.progress(lease.run_id, lease.token, {"current": 1})
    await done(store, retry(lease))
    waiting = await publish(store, task, key="k", payload={"x": 1}, delay_seconds=9)
    await store.delete_task(task.id, purge=True)
    assert await store.task(task.id) is None
    assert await store.task_versions(task.id) == []
    assert await dropped(store, task) == []
    for run_id in (lease.run_id, waiting):
        assert await store.run(run_id) is None
        assert await store.attempts(run_id) == []
        assert await store.log_lines(run_id) == []
    assert (await store.tasks(TaskQuery(include_deleted=True))).items == []
    assert left_over(empty, await table_sizes()) == {}


async def test_a_purged_tasks_executing_runs_are_gone_and_cannot_settle(store: Store):
    task = await store.create_task(http())
    lease = await started(store, task)
    await store.delete_task(task.id, purge=True)
    await lost(store, finish(lease))
    assert await store.run(lease.run_id) is None


async def test_a_system_task_is_not_deletable(store: Store):
    task = await store.create_task(job("built-in", managed_by="system"), system=True)
    with pytest.raises(InvalidState):
        await store.delete_task(task.id)
    assert (await reread(store, task)).deleted_at is None


async def test_deleting_an_unknown_or_deleted_task_raises_not_found(store: Store):
    task = await store.create_task(job())
    await store.delete_task(task.id)
    for unknown in (task.id, TaskId(99)):
        with pytest.raises(NotFound):
            await store.delete_task(unknown)


async def test_deleting_another_version_than_expected_is_a_version_conflict_and_nothing_is_written(store: Store):
    task = await store.create_task(job())
    waiting = await publish(store, task)
    with pytest.raises(VersionConflict):
        await store.delete_task(task.id, expect_version=2, purge=True)
    assert await reread(store, task) == task
    assert await status_of(store, waiting) is S.SCHEDULED
    assert (await store.delete_task(task.id, expect_version=1)).deleted_at is not None


# ---- skip_next


async def test_a_task_can_be_made_with_slots_to_skip(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)), by="ann", skip_next=1)
    assert (task.skip_next, task.version) == (1, 1)
    clock.advance(20)
    await store.plan(10)
    assert await skips(store, task) == [(10, SkipReason.OPERATOR)]
    assert await born_at(store, task) == [20]


@pytest.mark.parametrize(("priority", "version"), [(0, 1), (5, 2)])
async def test_an_edit_may_skip_slots_and_alone_that_makes_no_version(store: Store, priority: int, version: int):
    task = await store.create_task(job(schedule=every(10)))

    def edit(now: Task) -> TaskChange:
        spec = msgspec.structs.replace(now.spec, priority=priority)
        return TaskChange(spec=spec, status=now.status, skip_next=3)

    for _ in range(2):
        changed = await store.change_task(task.id, edit)
        assert (changed.skip_next, changed.version) == (3, version)
    assert (await reread(store, task)).skip_next == 3


async def test_the_next_slots_become_skips_by_the_operator(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    assert (await store.skip_next(task.id, 2, by="ann")).skip_next == 2
    clock.advance(30)
    planned = await store.plan(10)
    assert (planned.born, planned.skipped) == (1, 2)
    assert await skips(store, task) == [(10, SkipReason.OPERATOR), (20, SkipReason.OPERATOR)]
    assert await born_at(store, task) == [30]
    assert (await reread(store, task)).skip_next == 0


async def test_skipping_counts_down_slot_by_slot(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await store.skip_next(task.id, 2)
    clock.advance(10)
    await store.plan(10)
    assert (await reread(store, task)).skip_next == 1


async def test_zero_takes_the_skips_back(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await store.skip_next(task.id, 2)
    assert (await store.skip_next(task.id, 0)).skip_next == 0
    clock.advance(10)
    await store.plan(10)
    assert await born_at(store, task) == [10]


async def test_minus_one_skips_until_it_is_taken_back(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await store.skip_next(task.id, -1)
    for _ in range(3):
        clock.advance(10)
        await store.plan(10)
    assert [slot for slot, _ in await skips(store, task)] == [10, 20, 30]
    await store.skip_next(task.id, 0)
    clock.advance(10)
    await store.plan(10)
    assert await born_at(store, task) == [40]


async def test_slots_that_are_due_already_are_not_among_the_next_ones(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(10)
    await store.skip_next(task.id, 1)
    clock.advance(10)
    await store.plan(10)
    assert await born_at(store, task) == [10]
    assert await skips(store, task) == [(20, SkipReason.OPERATOR)]


async def test_skipped_slots_use_up_repeats(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=3)))
    await store.skip_next(task.id, 2)
    clock.advance(100)
    await store.plan(10)
    assert await born_at(store, task) == [30]
    assert (await reread(store, task)).status is TaskStatus.COMPLETED


async def test_skipping_for_an_unknown_task_raises_not_found(store: Store):
    with pytest.raises(NotFound):
        await store.skip_next(TaskId(99), 1)


# ---- completed and error


async def test_the_end_of_a_schedule_is_a_change_of_status_among_the_versions(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=once("2026-01-01T10:00:10Z")))
    clock.advance(10)
    await store.plan(10)
    done_with = await reread(store, task)
    assert (done_with.status, done_with.next_fire_at) == (TaskStatus.COMPLETED, None)
    assert [version.status for version in await store.task_versions(task.id)] == [
        TaskStatus.ENABLED,
        TaskStatus.COMPLETED,
    ]


async def test_a_completed_task_given_a_new_schedule_fires_again(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=1)))
    clock.advance(10)
    await store.plan(10)
    task = await edit(store, task, schedule=every(10, repeat=2), status=TaskStatus.ENABLED)
    clock.advance(100)
    await store.plan(10)
    assert await born_at(store, task) == [10, 20, 30]


async def test_a_task_that_ends_in_error_fires_no_more_until_it_is_reset(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=3), on_exhausted=OnExhausted.ERROR))
    clock.advance(10)
    await store.plan(10)
    await done(store, fail(await claim_one(store)))
    assert (await reread(store, task)).status is TaskStatus.ERROR
    assert (await store.task_versions(task.id))[-1].status is TaskStatus.ERROR
    clock.advance(100)
    assert (await store.plan(10)).born == 0
    with pytest.raises(InvalidState):
        await store.publish([Publication(task_id=task.id)])
    task = await enable(store, task)
    assert (task.status, task.next_fire_at, task.fired) == (TaskStatus.ENABLED, at(120), 0)
    clock.advance(100)
    await store.plan(10)
    assert await born_at(store, task) == [10, 120, 130, 140]


async def test_a_run_that_succeeds_or_retries_does_not_put_its_task_in_error(store: Store, clock: ManualClock):
    task = await store.create_task(job(on_exhausted=OnExhausted.ERROR))
    await finished(store, task)
    await done(store, retry(await started(store, task), delay=1))
    assert (await reread(store, task)).status is TaskStatus.ENABLED
    clock.advance(1)
    await store.promote(10)
    await done(store, fail(await claim_one(store)))
    assert (await reread(store, task)).status is TaskStatus.ERROR


async def test_keep_keeps_a_task_whose_runs_fail(store: Store):
    task = await store.create_task(job())
    await finished(store, task, S.FAILED)
    assert (await reread(store, task)).status is TaskStatus.ENABLED


async def test_delete_on_complete_waits_for_the_last_run_and_then_the_task_is_gone(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=2), delete_on_complete=True))
    clock.advance(20)
    await store.plan(10)
    first, last = await claim(store)
    await done(store, finish(last))
    assert await store.task_named("j") is not None
    await done(store, retry(first, delay=0))
    assert await store.task_named("j") is not None
    await store.promote(10)
    await done(store, finish(await claim_one(store)))
    assert await store.task_named("j") is None
    assert (await store.tasks(TaskQuery())).items == []
    await store.create_task(job())
    assert task.spec.delete_on_complete


async def test_editing_a_fixed_delay_task_does_not_start_a_second_round(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    clock.advance(10)
    await store.plan(10)
    lease = await claim_one(store)
    await edit(store, task, description="new")
    clock.advance(100)
    assert (await store.plan(10)).born == 0
    await done(store, finish(lease))
    assert (await reread(store, task)).next_fire_at == at(120)


# ---- lists


async def test_tasks_are_listed_by_what_they_are(store: Store):
    a = await store.create_task(job("alpha", labels={"team": "ops", "tier": "1"}, queue="q1"))
    b = await store.create_task(job("beta", labels={"team": "dev"}, managed_by="file:x"), status=TaskStatus.DISABLED)
    c = await store.create_task(http("alphabet"))
    for query, expected in (
        (TaskQuery(), [a, b, c]),
        (TaskQuery(status=TaskStatus.DISABLED), [b]),
        (TaskQuery(name="alpha"), [a, c]),
        (TaskQuery(name="bet"), [b, c]),
        (TaskQuery(label=("team", "ops")), [a]),
        (TaskQuery(label=("team", "none")), []),
        (TaskQuery(queue="http"), [c]),
        (TaskQuery(managed_by="file:x"), [b]),
        (TaskQuery(status=TaskStatus.ENABLED, name="alpha", label=("tier", "1")), [a]),
        (TaskQuery(sort="-id"), [c, b, a]),
        (TaskQuery(sort="name"), [a, c, b]),
        (TaskQuery(sort="-name"), [b, c, a]),
    ):
        page = await store.tasks(query)
        assert (page.items, page.total) == (expected, len(expected)), query


async def test_a_part_of_a_name_is_taken_literally(store: Store):
    await store.create_task(job("plain"))
    odd = await store.create_task(job("50%_off\\"))
    for text in ("%", "_", "\\", "%_o"):
        assert (await store.tasks(TaskQuery(name=text))).items == [odd]


async def test_system_and_deleted_tasks_are_listed_only_on_demand(store: Store):
    system = await store.create_task(job("built-in"), system=True)
    task = await store.create_task(job("mine"))
    gone = await store.delete_task((await store.create_task(job("gone"))).id)
    assert (await store.tasks(TaskQuery())).items == [task]
    assert (await store.tasks(TaskQuery(include_system=True))).items == [task, system]
    assert (await store.tasks(TaskQuery(include_deleted=True))).items == [task, gone]


async def test_tasks_come_in_pages(store: Store):
    tasks = [await store.create_task(job(f"t{number}")) for number in range(7)]
    first = await store.tasks(TaskQuery(page_size=3))
    assert (first.items, first.total) == (tasks[:3], 7)
    assert (await store.tasks(TaskQuery(page_size=3, page=3))).items == tasks[6:]
    assert (await store.tasks(TaskQuery(page_size=3, page=4))).items == []
    found, cursor = list(first.items), first.next_cursor
    while cursor:
        page = await store.tasks(TaskQuery(page_size=3, cursor=cursor))
        found, cursor = found + page.items, page.next_cursor
    assert found == tasks


async def test_many_runs_of_one_task_do_not_change_the_task(store: Store):
    task = await store.create_task(job())
    await publish_many(store, task, 20)
    for lease in await claim(store):
        await done(store, finish(lease))
    assert await store.task(task.id) == task
