"""The simulation against the real planner: the same tasks lived through on a store, with a clock that is moved by hand."""

from __future__ import annotations

import heapq
from datetime import UTC, datetime, timedelta

import pytest

from noonbell.clock import SECOND, Instant, from_datetime, slot_of
from noonbell.errors import InvalidArgument
from noonbell.model.request import ClaimRequest, RunQuery
from noonbell.model.run import Origin, RunStatus, Settlement, SkipReason, Transition
from noonbell.service.task_fields import Rules
from noonbell.service.tasks import Tasks
from noonbell.stores.wakeups import LocalWakeup
from noonbell.testing import Fired, ManualClock, MemoryStore, simulate

START = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)  # Berlin changes its clocks in the night that follows
URL = "http://127.0.0.1/"


def task(name: str, **fields) -> dict:
    return {"name": name, "target_url": URL, **fields}


SCHEDULES = [
    task("five minutes", cron_expr="*/5 * * * *"),
    task("in the gap", cron_expr="30 2 * * *", timezone="Europe/Berlin"),
    task("twice an hour", cron_expr="10,40 * * * *", timezone="America/New_York"),
    task("weekdays", cron_expr="0 9 * * MON-FRI", timezone="Asia/Shanghai"),
    task("three times", schedule={"type": "interval", "every": 7, "unit": "minute", "repeat": 3}),
    task("the last of the month", schedule={"type": "monthly", "day": 0, "time": "06:00:00"}),
    task("sundays", schedule={"type": "weekly", "weekday": 0, "time": "02:30:00"}, timezone="Europe/Berlin"),
    task("once", schedule={"type": "once", "at": "2026-03-29T04:05:06Z"}),
    task("bounded", cron_expr="*/10 * * * *", start_at="2026-03-29T01:00:00Z", end_at="2026-03-29T03:00:00Z"),
    task("spread out", cron_expr="*/15 * * * *", jitter_seconds=300),
    task("the next two not", cron_expr="0 * * * *", skip_next=2),
    task("off", cron_expr="* * * * *", status="DISABLED"),
    task("on demand"),
    task("ten minutes after", schedule={"type": "interval", "every": 10, "unit": "minute", "mode": "fixed_delay"}),
]
POLICIES = [
    task("overlap skips", cron_expr="*/2 * * * *", overlap_action="SKIP"),
    task("overlap cancels", cron_expr="*/2 * * * *", overlap_action="CANCEL_PREV"),
    task("overlap passes", cron_expr="*/2 * * * *", overlap_action="PARALLEL", max_concurrency=1),
    task("failure skips", cron_expr="*/5 * * * *", failure_action="SKIP"),
    task("failure backs off", cron_expr="*/5 * * * *", failure_action="BACKOFF"),
    task(
        "circuit",
        cron_expr="*/5 * * * *",
        failure_action="HALF_OPEN",
        circuit={"failures": 2, "cool_down_seconds": 900},
    ),
    task("one place, or none", cron_expr="*/2 * * * *", concurrency_policy="SKIP", max_concurrency=1),
    task("two in the queue", cron_expr="* * * * *", max_concurrency=1, queue_depth=2),
    task("nothing goes", cron_expr="*/30 * * * *", concurrency_policy="SKIP", max_concurrency=0),
]


def lasts(name: str, slot: int) -> float:
    """From nothing to five and a half minutes, different from slot to slot."""
    return (slot // 60 * 7919 + len(name)) % 331


def succeeds(name: str, slot: int) -> bool:
    return (slot // 300 * 31 + len(name)) % 7 > 3


async def lived(tasks: list[dict], until: datetime, lasts, succeeds) -> list[Fired]:
    """What the real planner makes of it: every moment visited, runs ended when they are to end."""
    clock = ManualClock(START)
    store = MemoryStore(clock)
    await store.open()
    service = Tasks(store, LocalWakeup(), Rules())
    names = {}
    for given in tasks:
        made = await service.create(given)
        names[made.id] = made.name
    under_way: list[tuple[int, int, int, bool]] = []
    while True:
        planned = await store.plan(1000)
        promoted = await store.promote(1000)
        claimed = await store.claim(ClaimRequest(worker_id="w", queues=("http",), max=1000))
        for lease in claimed.leases:
            name, slot = names[lease.task_id], slot_of(lease.scheduled_time)
            end = clock.now() + round(lasts(name, slot) * SECOND)
            heapq.heappush(under_way, (end, lease.run_id, lease.token, succeeds(name, slot)))
        ends = under_way[0][0] if under_way else None
        if ends is not None and ends <= clock.now():
            await settle(store, under_way, clock.now())
            continue
        moments = [moment for moment in (planned.next_at, promoted.next_at, ends) if moment is not None]
        if not moments or min(moments) > from_datetime(until):
            break
        clock.set(Instant(min(moments)))
        await settle(store, under_way, clock.now())
    found = await all_runs(store)
    await store.close()
    return sorted(Fired(slot_of(run.scheduled_time), names[run.task_id], run.skip_reason) for run in found)


async def settle(store, under_way, now) -> None:
    while under_way and under_way[0][0] <= now:
        _, run_id, token, good = heapq.heappop(under_way)
        status = RunStatus.SUCCESS if good else RunStatus.FAILED
        await store.settle(
            [Settlement(run_id=run_id, token=token, transition=Transition.FINISH, status=status, worker_id="w")]
        )


async def all_runs(store):
    found, cursor = [], None
    while True:
        page = await store.runs(RunQuery(origin=Origin.SCHEDULE, page_size=1000, cursor=cursor))
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("tasks", [SCHEDULES, POLICIES], ids=["schedules", "policies"])
@pytest.mark.parametrize(
    ("lasts", "succeeds"), [(lambda *_: 0.0, lambda *_: True), (lasts, succeeds)], ids=["at once", "slow and failing"]
)
async def test_the_simulation_and_the_planner_agree_on_every_slot(tasks, lasts, succeeds):
    until = START + timedelta(hours=16)
    simulated = sorted(simulate(tasks, START, until, lasts=lasts, succeeds=succeeds))
    assert simulated == await lived(tasks, until, lasts, succeeds)
    assert len(simulated) > 200


def test_the_policies_have_something_to_say_in_it():
    fired = simulate(POLICIES, START, START + timedelta(hours=16), lasts=lasts, succeeds=succeeds)
    reasons = {each.skipped for each in fired}
    assert reasons == {
        None,
        SkipReason.OVERLAP,
        SkipReason.FAILURE,
        SkipReason.BACKOFF,
        SkipReason.CIRCUIT_OPEN,
        SkipReason.CONCURRENCY,
        SkipReason.QUEUE_FULL,
    }


def test_slots_come_in_order_of_time_and_end_where_they_are_told_to():
    until = START + timedelta(hours=2)
    fired = list(simulate(SCHEDULES, START, until))
    assert [each.slot for each in fired] == sorted(each.slot for each in fired)
    assert fired[0].time > START
    assert fired[-1].time == until


def test_a_task_that_could_not_be_made_is_refused_before_anything_fires():
    with pytest.raises(InvalidArgument) as refused:
        simulate([task("bad", cron_expr="61 * * * *")], START, START + timedelta(days=1))
    assert "cron_expr" in str(refused.value.details)
