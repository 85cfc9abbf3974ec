"""Service levels: breaches, foreseen breaches and the error budget, against thirty days that were made by hand.

What is expected is counted here, from the table of days and the clocks of Berlin; nothing of `policy.sla` is asked.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from conformance.store.builders import (
    Node,
    S,
    claim,
    claim_due,
    cron,
    done,
    edit,
    every,
    execute,
    finish,
    finished,
    http,
    job,
    newest,
    news,
    publish,
    publish_many,
    reread,
    retry,
    run_of,
    skips,
    trigger,
)
from conformance.store.rollup_scan import fold_all
from noonbell.clock import SECOND, Instant, ManualClock, from_datetime, rfc3339
from noonbell.model.run import SkipReason
from noonbell.model.sla import OnBreach, Sla, SlaRule
from noonbell.ports import Store
from noonbell.service.service_levels import FigureStep, ServiceLevels
from noonbell.stores.sql.store import SqlStore

BERLIN = ZoneInfo("Europe/Berlin")
FIRST_DAY = datetime(2026, 3, 10, tzinfo=BERLIN)
"""The clocks go forward on the 29th: day 19."""
DAYS = 30
USUAL = 42 * 60


class Day(NamedTuple):
    """How the run of a night went, in seconds."""

    delay: int = 5
    took: int = USUAL
    status: S = S.SUCCESS


NIGHTS = {
    3: Day(delay=300),  # starts late
    7: Day(status=S.FAILED),
    9: Day(delay=3 * 3600 + 25 * 60),  # 05:25 and 42 minutes: it will miss 06:00, and does
    10: Day(delay=3 * 3600 + 15 * 60),  # 05:15 and 42 minutes: late, and just in time
    12: Day(took=5 * 3600),  # nobody could foresee it
    14: Day(status=S.FAILED),
    15: Day(status=S.TIMEOUT),
    16: Day(status=S.FAILED),
    19: Day(delay=2 * 3600 + 20 * 60),  # the clocks go forward: it was due at 03:00, which is 01:00 UTC
    21: Day(delay=3 * 3600 + 25 * 60, took=20 * 60),  # foreseen to miss 06:00, and then quicker than usual
    25: Day(delay=5 * 3600),  # starts when it should have been done
}
"""All others are as usual."""

LEVEL = Sla(start_within_seconds=60, finish_within_seconds=4 * 3600, finish_by="06:00", success_ratio=0.9, window="14d")


def night(day: int) -> Day:
    return NIGHTS.get(day, Day())


def utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def due(day: int) -> datetime:
    """02:00 in Berlin. On the day of the change that is left out: cron fires right after, at 03:00."""
    local = (FIRST_DAY + timedelta(days=day)).replace(hour=2)
    return datetime(2026, 3, 29, 1, tzinfo=UTC) if local.date().isoformat() == "2026-03-29" else utc(local)


def times(day: int) -> tuple[datetime, datetime]:
    start = due(day) + timedelta(seconds=night(day).delay)
    return start, start + timedelta(seconds=night(day).took)


def six(day: int) -> datetime:
    return utc((FIRST_DAY + timedelta(days=day)).replace(hour=6))


def breaches_by_hand() -> list[tuple[int, str]]:
    found = []
    for day in range(DAYS):
        start, end = times(day)
        if start > due(day) + timedelta(seconds=60):
            found.append((day, "start_within_seconds"))
        if end > due(day) + timedelta(hours=4):
            found.append((day, "finish_within_seconds"))
        if end > six(day):
            found.append((day, "finish_by"))
    return sorted(found)


FORESEEN = [
    *((9, "finish_by"), (9, "finish_within_seconds")),
    *((21, "finish_by"), (21, "finish_within_seconds")),
    *((25, "finish_by"), (25, "finish_within_seconds")),
]
"""Read off the table: nights on which a run had not started 42 minutes before its deadlines, which are the same but on day 19.

On day 19 it is due at 03:00, so that 06:00 is three hours away, not four: started at 05:20 and done at 06:02, it misses 06:00 and was
foreseen to; the four hours end at 07:00."""
FORESEEN_ON_THE_DAY_OF_THE_CHANGE = [(19, "finish_by")]


def ratio_by_hand(day: int) -> tuple[int, int]:
    """Successes and failures of the 14 days before the end of this day's run, in whole hours."""
    until = times(day)[1]
    since = (until - timedelta(days=14)).replace(minute=0, second=0, microsecond=0)
    ended = [night(each).status for each in range(day + 1) if times(each)[1] >= since]
    return ended.count(S.SUCCESS), len(ended) - ended.count(S.SUCCESS)


async def advance_to(clock: ManualClock, moment: datetime) -> None:
    clock.set(from_datetime(moment))


async def live_through(store: Store, clock: ManualClock, task_id: int) -> None:
    """Thirty nights. A sweep looks every ten minutes, and whenever something happens."""
    for day in range(DAYS):
        start, end = times(day)
        moments = {start, end, due(day), *(due(day) + timedelta(minutes=10 * n) for n in range(42))}
        lease: Any = None
        for moment in sorted(moments):
            await advance_to(clock, moment)
            if moment == due(day):
                await store.plan(10)
            if moment == start:
                (lease,) = await claim_due(store)
            if moment == end:
                await done(store, finish(lease, night(day).status))
                await store.fold_rollups(100)
            clock.advance(2)
            await store.sweep_sla(100)
            await store.sweep_sla(100)
    assert (await store.sweep_sla(100)).looked_at == 0


async def test_thirty_days_made_by_hand(store: Store, clock: ManualClock):
    await advance_to(clock, utc(FIRST_DAY))
    task = await store.create_task(
        job("report", schedule=cron("0 2 * * *"), timezone="Europe/Berlin", sla=LEVEL, timeout_seconds=8 * 3600)
    )
    before = await newest(store)
    await live_through(store, clock, task.id)
    day_of = {}
    for run in (await store.runs(_all_of(task.id))).items:
        slot = datetime.fromtimestamp(run.scheduled_time / SECOND, UTC)
        day_of[run.id] = (slot.astimezone(BERLIN).date() - FIRST_DAY.date()).days
    assert sorted(day_of.values()) == list(range(DAYS))
    events = await news(store, before)
    breached = [(day_of[e.run_id], e.data["rule"]) for e in events if e.type == "run.sla_breached" and e.run_id]
    assert sorted(breached) == breaches_by_hand()
    assert (19, "finish_by") in breached
    assert (19, "finish_within_seconds") not in breached
    assert (25, "finish_by") in breached
    assert (12, "finish_by") in breached
    foreseen = [(day_of[e.run_id], e.data["rule"]) for e in events if e.type == "run.sla_foreseen" and e.run_id]
    starts = [each for each in foreseen if each[1] == "start_within_seconds"]
    assert sorted(set(foreseen) - set(starts)) == sorted(FORESEEN + FORESEEN_ON_THE_DAY_OF_THE_CHANGE)
    assert len(foreseen) == len(set(foreseen)), "each is told once"
    for event in events:
        if event.type == "run.sla_foreseen" and event.data["rule"] == "finish_by":
            day = day_of[event.run_id]  # type: ignore[index]
            assert event.data["deadline"] == rfc3339(from_datetime(six(day)))
            assert event.data["usual_ms"] == pytest.approx(USUAL * 1000, rel=0.02)
            told_at = datetime.fromtimestamp(event.at / SECOND, UTC)
            assert six(day) - timedelta(seconds=1.03 * USUAL) < told_at < six(day), "in time to do something about it"

    ratio = [(e.type, e.at, e.data["failed"]) for e in events if e.type.startswith("task.sla_")]
    wanted, is_broken = [], False
    for day in range(DAYS):
        succeeded, failed = ratio_by_hand(day)
        if (10 * succeeded < 9 * (succeeded + failed)) is not is_broken:
            is_broken = not is_broken
            type_ = "task.sla_breached" if is_broken else "task.sla_recovered"
            wanted.append((type_, from_datetime(times(day)[1]), failed))
    assert ratio == wanted
    assert [type_ for type_, _, _ in wanted][:2] == ["task.sla_breached", "task.sla_recovered"] or len(wanted) > 2

    kept = await store.sla_breaches(1000, task_ids=[task.id])
    assert len([each for each in kept if each.breached_at and each.run_id]) == len(breaches_by_hand())
    averted = [(day_of[each.run_id or 0], each.rule) for each in kept if each.run_id and each.breached_at is None]
    assert (21, "finish_by") in averted
    counts = await store.breach_counts([task.id], Instant(0), await store.now())
    by_rule = {each.rule: each.breached for each in counts}
    assert by_rule["finish_by"] == len([each for each in breaches_by_hand() if each[1] == "finish_by"])
    assert by_rule["success_ratio"] == len([each for each in wanted if each[0] == "task.sla_breached"])
    await check_figures(store, task.id)


def nearest_rank(values: list[float], share: float) -> float:
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


async def check_figures(store: Store, task_id: Any) -> None:
    """What `/stats/sla` says of the thirty days, and of each, against the table."""
    now = datetime.fromtimestamp(await store.now() / SECOND, UTC)
    found = await ServiceLevels(store).over(from_datetime(utc(FIRST_DAY)), task_id=task_id, by=FigureStep.DAY)
    (level,) = found.tasks
    assert level.runs == found.total.runs == DAYS
    nights = [night(day) for day in range(DAYS)]
    for name, values in {
        "duration_ms": [each.took * 1000.0 for each in nights],
        "start_delay_ms": [each.delay * 1000.0 for each in nights],
        "queue_time_ms": [each.delay * 1000.0 for each in nights],
    }.items():
        spread = getattr(level, name)
        for share in (0.5, 0.95, 0.99):
            assert getattr(spread, f"p{share * 100:.0f}") == pytest.approx(nearest_rank(values, share), rel=0.02)
        assert spread.most == max(values)
    assert level.success_ratio == round(sum(each.status is S.SUCCESS for each in nights) / DAYS, 4)

    since = (now - timedelta(days=14)).replace(minute=0, second=0, microsecond=0)
    ended = [night(day).status for day in range(DAYS) if times(day)[1] >= since]
    failed = len(ended) - ended.count(S.SUCCESS)
    assert level.error_budget is not None
    assert level.error_budget.failed == failed
    assert level.error_budget.allowed == pytest.approx(len(ended) / 10)
    assert level.error_budget.left == pytest.approx(1 - failed / (len(ended) / 10), abs=1e-4)

    by_day: dict[str, list[S]] = {}
    for day in range(DAYS):
        by_day.setdefault(times(day)[1].date().isoformat(), []).append(night(day).status)
    points = {datetime.fromtimestamp(each.at / SECOND, UTC).date().isoformat(): each for each in level.points}
    assert {day: each.runs for day, each in points.items()} == {day: len(ended) for day, ended in by_day.items()}
    for day, statuses in by_day.items():
        assert points[day].success_ratio == round(statuses.count(S.SUCCESS) / len(statuses), 4)
    of_runs = Counter(rule for _, rule in breaches_by_hand())
    summed: Counter[str] = Counter()
    for each in level.points:
        summed.update(each.breaches)
    assert {rule: count for rule, count in summed.items() if rule != "success_ratio"} == of_runs
    assert {rule: count for rule, count in level.breaches.items() if rule != "success_ratio"} == of_runs


def _all_of(task_id: Any) -> Any:
    from noonbell.model.request import RunQuery

    return RunQuery(task_id=task_id, sort="id", page_size=1000)


async def breaches(store: Store, after: int = 0) -> list[tuple[str, Any]]:
    return [(e.type, e.data["rule"]) for e in await news(store, after) if ".sla_" in e.type]


async def test_a_task_without_a_level_has_no_row_to_watch(store: Store, clock: ManualClock):
    plain = await store.create_task(job("plain", schedule=every(10)))
    other = await store.create_task(job("ratio", sla=Sla(success_ratio=0.5)))
    clock.advance(10)
    await store.plan(10)
    await publish_many(store, plain, 3)
    await publish_many(store, other, 3)
    assert isinstance(store, SqlStore)
    assert await store.fetch("select count(*) from sla_watches") == [(0,)]


async def test_two_nodes_and_many_sweeps_tell_of_a_breach_once(store: Store, clock: ManualClock, another_node: Node):
    task = await store.create_task(job(sla=Sla(start_within_seconds=10, finish_within_seconds=20)))
    before = await newest(store)
    await publish_many(store, task, 3)
    other = await another_node()
    for _ in range(8):
        clock.advance(5)
        await store.sweep_sla(2)
        await other.sweep_sla(2)
    told = await breaches(store, before)
    assert sorted(told) == sorted(
        [("run.sla_breached", "start_within_seconds"), ("run.sla_breached", "finish_within_seconds")] * 3
    )
    assert (await store.sweep_sla(10)).looked_at == 0


async def test_a_breach_that_no_sweep_saw_is_told_from_history(store: Store, clock: ManualClock):
    """No node swept while it happened: the first one that does finds the start of the first attempt, and the end."""
    task = await store.create_task(job(sla=Sla(start_within_seconds=10, finish_within_seconds=60)))
    before = await newest(store)
    run = await publish(store, task)
    clock.advance(5)
    (lease,) = await claim(store)
    clock.advance(20)
    await done(store, retry(lease, delay=1))
    clock.advance(5)
    (lease,) = await claim_due(store)
    clock.advance(40)
    await done(store, finish(lease))
    clock.advance(3600)
    await store.sweep_sla(10)
    assert (await run_of(store, run)).start_time == lease.claimed_at
    assert await breaches(store, before) == [("run.sla_breached", "finish_within_seconds")]


async def test_what_ends_in_time_or_is_canceled_in_time_breaks_nothing(store: Store, clock: ManualClock):
    task = await store.create_task(job(sla=Sla(start_within_seconds=10, finish_within_seconds=60)))
    before = await newest(store)
    first, second = await publish_many(store, task, 2)
    (lease,) = await claim(store, count=1)
    assert lease.run_id == first
    clock.advance(10)
    await store.cancel([second])
    clock.advance(50)
    await done(store, finish(lease))
    clock.advance(600)
    await store.sweep_sla(10)
    assert await breaches(store, before) == []
    assert isinstance(store, SqlStore)
    assert await store.fetch("select count(*) from sla_watches") == [(0,)]


async def test_a_run_behind_others_is_foreseen_to_miss_by_its_place(store: Store, clock: ManualClock):
    """Its runs take a minute each, one at a time: the fourth cannot end within three minutes."""
    task = await store.create_task(http(max_concurrency=1))
    for _ in range(6):
        await publish(store, task)
        (lease,) = await claim(store)
        clock.advance(60)
        await done(store, finish(lease))
    task = await edit(store, task, sla=Sla(finish_within_seconds=190))
    before = await newest(store)
    runs = await publish_many(store, task, 5)
    await claim(store)
    clock.advance(2)
    await store.sweep_sla(10)
    told = [e for e in await news(store, before) if e.type == "run.sla_foreseen"]
    assert [e.run_id for e in told] == runs[3:]
    expected = [4 * 60, 5 * 60]
    for event, seconds in zip(told, expected, strict=True):
        at = datetime.fromisoformat(event.data["expected_at"])
        planned = datetime.fromtimestamp((await run_of(store, event.run_id)).created_at / SECOND, UTC)  # type: ignore[arg-type]
        assert (at - planned).total_seconds() == pytest.approx(seconds, rel=0.03)


async def test_a_run_deep_in_its_queue_is_foreseen_to_start_late(store: Store, clock: ManualClock):
    """The queue ends a run each ten seconds; the first ten of twenty start within a hundred seconds."""
    task = await store.create_task(job())
    for _ in range(360):
        clock.advance(10)
        await publish(store, task)
        (lease,) = await claim(store)
        await done(store, finish(lease))
    task = await edit(store, task, sla=Sla(start_within_seconds=100))
    before = await newest(store)
    runs = await publish_many(store, task, 20)
    clock.advance(2)
    await store.sweep_sla(100)
    told = sorted(e.run_id for e in await news(store, before) if e.type == "run.sla_foreseen")
    assert told
    assert told == runs[-len(told) :]
    assert len(told) == pytest.approx(10, abs=1)


async def test_raise_priority_puts_a_run_first(store: Store, clock: ManualClock):
    late = await store.create_task(job("late", sla=Sla(start_within_seconds=10, on_breach=OnBreach.RAISE_PRIORITY)))
    urgent = await store.create_task(job("urgent", priority=500))
    run = await publish(store, late)
    await publish_many(store, urgent, 3)
    clock.advance(15)
    swept = await store.sweep_sla(10)
    assert swept.raised == ("default",)
    (lease,) = await claim(store, count=1)
    assert lease.run_id == run


@pytest.mark.parametrize("limit", [None, 1])
async def test_raise_priority_holds_behind_a_limit(store: Store, clock: ManualClock, limit: int | None):
    task = await store.create_task(
        http(sla=Sla(start_within_seconds=10, on_breach=OnBreach.RAISE_PRIORITY), max_concurrency=limit)
    )
    first = await publish(store, task, priority=-5)
    clock.advance(15)
    await store.sweep_sla(10)
    await publish_many(store, task, 2, priority=50)
    (lease,) = await claim(store, count=1)
    assert lease.run_id == first


async def test_skip_next_skips_the_slot_after_a_breach(store: Store, clock: ManualClock):
    task = await store.create_task(
        job(schedule=every(100), sla=Sla(finish_within_seconds=30, on_breach=OnBreach.SKIP_NEXT))
    )
    clock.advance(100)
    await store.plan(10)
    clock.advance(50)
    await store.sweep_sla(10)
    await store.sweep_sla(10)
    assert (await reread(store, task)).skip_next == 1
    clock.advance(50)
    await store.plan(10)
    assert await skips(store, task) == [(200, SkipReason.OPERATOR)]
    clock.advance(100)
    await store.plan(10)
    assert len(await skips(store, task)) == 1


async def test_a_label_brings_its_level_and_an_empty_one_takes_it_away(
    store: Store, clock: ManualClock, another_node: Node
):
    await store.put_sla_defaults({"tier=gold": Sla(start_within_seconds=5), "team=a": Sla(start_within_seconds=500)})
    gold = await store.create_task(job("gold", labels={"tier": "gold", "team": "a"}))
    team = await store.create_task(job("team", labels={"tier": "silver", "team": "a"}))
    free = await store.create_task(job("free", labels={"tier": "gold"}, sla=Sla()))
    other = await another_node()
    for each in (gold, team, free):
        await publish(other, each)
    before = await newest(store)
    clock.advance(10)
    await other.sweep_sla(10)
    told = [e for e in await news(store, before) if e.type == "run.sla_breached"]
    assert [e.task_id for e in told] == [gold.id]
    assert other.sla_of(team.spec) == Sla(start_within_seconds=500)
    assert other.sla_of(free.spec) == Sla()


async def test_a_ratio_that_is_no_longer_promised_is_no_longer_broken(store: Store, clock: ManualClock):
    task = await store.create_task(job(sla=Sla(success_ratio=0.9)))
    before = await newest(store)
    await finished(store, task, S.FAILED)
    await fold_all(store)
    assert await breaches(store, before) == [("task.sla_breached", "success_ratio")]
    task = await edit(store, task, sla=None)
    before = await newest(store)
    await finished(store, task, S.FAILED)
    await fold_all(store)
    await fold_all(store)
    assert await breaches(store, before) == [("task.sla_recovered", "success_ratio")]


async def test_a_run_that_is_published_anew_is_watched_from_its_new_time(store: Store, clock: ManualClock):
    from noonbell.model.request import Publication

    task = await store.create_task(job(sla=Sla(start_within_seconds=10)))
    first = Publication(task_id=task.id, key="k", delay_seconds=60, update_waiting=True)
    (made,) = await store.publish([first])
    clock.advance(50)
    (again,) = await store.publish([first])
    assert again.run_id == made.run_id
    before = await newest(store)
    clock.advance(40)
    await store.sweep_sla(10)
    assert await breaches(store, before) == []
    clock.advance(40)
    await store.sweep_sla(10)
    assert await breaches(store, before) == [("run.sla_breached", "start_within_seconds")]


async def test_a_triggered_run_is_due_when_it_is_asked_for(store: Store, clock: ManualClock):
    task = await store.create_task(job(sla=Sla(finish_within_seconds=10)))
    await trigger(store, task)
    clock.advance(12)
    before = await newest(store)
    await store.sweep_sla(10)
    assert await breaches(store, before) == [("run.sla_breached", "finish_within_seconds")]


async def test_rows_of_levels_go_with_their_task_and_with_time(store: Store, clock: ManualClock):
    task = await store.create_task(job(sla=Sla(start_within_seconds=1)))
    await publish_many(store, task, 2)
    clock.advance(10)
    await store.sweep_sla(1)
    await store.delete_task(task.id, purge=True)
    assert isinstance(store, SqlStore)
    for table in ("sla_watches", "sla_breaches"):
        assert await store.fetch(f"select count(*) from {table}") == [(0,)]
    other = await store.create_task(job("other", sla=Sla(start_within_seconds=1)))
    await publish(store, other)
    clock.advance(10)
    await store.sweep_sla(10)
    assert len(await store.sla_breaches(10)) == 1
    clock.advance(92 * 86_400)
    await store.clean_rest(await store.now(), 100)
    assert await store.sla_breaches(10) == []


async def test_a_sweep_passes_over_a_run_whose_rows_are_gone(store: Store, clock: ManualClock):
    task = await store.create_task(job(sla=Sla(start_within_seconds=1)))
    run = await publish(store, task)
    await store.cancel([run])
    await execute(store, "delete from runs where id = :run", run=run)
    await execute(store, "delete from rollup_deltas")
    clock.advance(10)
    swept = await store.sweep_sla(10)
    assert (swept.looked_at, swept.breached) == (1, 0)
    assert SlaRule.START_WITHIN == "start_within_seconds"
    await fold_all(store)
