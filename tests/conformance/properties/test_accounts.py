"""The account of a task is whole after any history: schedules of every kind, pauses, edits, skips, deaths, clock steps.

The slots are walked over by a few lines of the test's own. What the store recorded, what `audit` works out from the
versions, and what `slots` lists must all be that walk: no hole, no double, whatever retention has removed meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.properties.test_histories import URLS, Died, dying
from noonbell import when
from noonbell.clock import SECOND, Instant, ManualClock, from_datetime, slot_of
from noonbell.model.request import ClaimRequest, TaskChange
from noonbell.model.run import RunStatus, Settlement, Transition
from noonbell.model.task import MisfirePolicy, OverlapAction, Task, TaskSpec, TaskStatus
from noonbell.service.account import SlotOutcome, entries, task_history
from noonbell.service.consistency import audit_task
from noonbell.stores import open_store
from noonbell.stores.sql import planning
from noonbell.stores.sql.store import SqlStore
from noonbell.when.due import Bounds, first
from services.size import size

START = from_datetime(datetime(2026, 3, 29, 0, 58, 30, tzinfo=UTC))
"""A minute and a half before Berlin's clocks go forward."""
EXAMPLES = {"memory": 80, "sqlite": 30, "postgres": 8, "mariadb": 8}
TIMES = int(os.environ.get("NOONBELL_TEST_TIMES") or size(1, 4))

_EVERY = {"type": "interval", "unit": "second", "anchor": "2026-03-29T00:58:30Z"}
SCHEDULES: list[dict[str, Any] | None] = [
    None,
    {"type": "cron", "expr": "*/20 * * * * *"},
    {"type": "cron", "expr": "7,9 * * * * *", "repeat": 4},
    {"type": "cron", "expr": "0 */2 * * * *"},
    {"type": "cron", "expr": "0 30 2 * * *"},
    {**_EVERY, "every": 7},
    {**_EVERY, "every": 45, "repeat": 3},
    {**_EVERY, "every": 1},
    {**_EVERY, "every": 15, "mode": "fixed_delay"},
    {"type": "weekly", "weekday": 0, "time": "03:00:10"},
    {"type": "monthly", "day": 29, "time": "01:59:59"},
    {"type": "once", "at": "2026-03-29T01:00:00Z"},
    {"type": "once", "at": "2026-03-29T00:59:00Z", "run_if_late": False},
    {"type": "once", "at": "2026-03-29T00:10:00Z"},
]
ZONES = ("UTC", "Europe/Berlin", "+05:45")
ENDS = (None, None, None, 100, 240)

Step = tuple[str, int, int]
STEPS = (
    "plan",
    "plan",
    "time",
    "time",
    "leap",
    "back",
    "turn",
    "when",
    "when",
    "policy",
    "skip",
    "work",
    "clean",
    "die",
)
histories = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 999), st.integers(0, 999)), min_size=10, max_size=60
)


class Walk:
    """The slots that a task must have accounted for, found without the store."""

    def __init__(self, spec: TaskSpec, now: int) -> None:
        self.expected: set[int] = set()
        self.fired, self.is_on = 0, True
        self.take(spec, now, fresh=True)

    def take(self, spec: TaskSpec, now: int, *, fresh: bool) -> None:
        """A new version begins; `fresh`: it starts from its own moment."""
        self.schedule = None if spec.schedule is None else when.parse(spec.schedule, spec.timezone)
        self.bounds = Bounds(None, None if spec.end_at is None else slot_of(spec.end_at))
        if fresh:
            done = max(self.expected, default=-1)
            counts_late = self.schedule is not None and self.schedule.kind == "once"
            self.after = done if counts_late else max(slot_of(now), done)

    @property
    def is_chained(self) -> bool:
        return self.schedule is not None and self.schedule.is_fixed_delay

    def go_to(self, now: int) -> None:
        if not self.is_on or self.schedule is None or self.is_chained:
            return
        while (slot := first(self.schedule, self.bounds, self.after)) is not None and slot <= slot_of(now):
            if self.schedule.repeat is not None and self.fired >= self.schedule.repeat:
                return
            self.expected.add(slot)
            self.after, self.fired = slot, self.fired + 1
        self.after = max(self.after, slot_of(now))


class History:
    def __init__(self, store: SqlStore, clock: ManualClock, number: int) -> None:
        self.store, self.clock, self.number = store, clock, number

    async def live(self, steps: list[Step]) -> None:
        spec = TaskSpec(name=f"t{self.number}", job_type="work", queue=f"q{self.number}", **self.when(1, 0))
        self.task: Task = await self.store.create_task(spec)
        self.walk = Walk(spec, self.clock.now())
        self.was_chained = False
        try:
            for name, one, other in steps:
                await getattr(self, f"do_{name}")(one, other)
                await self.agree()
        finally:
            await self.store.delete_task(self.task.id, cancel_running=True)

    async def agree(self) -> None:
        """What was recorded is the walk; the audit finds nothing; the list has each slot once."""
        life = await task_history(self.store, self.task)
        due = life.task.next_fire_at is not None and life.task.next_fire_at <= life.now
        report = await audit_task(self.store, self.task)
        assert report.flaws == []
        recorded = report.runs + report.skipped + report.dropped + report.cleaned
        last = max(slot_of(self.clock.now()), *self.walk.expected, 0)
        listed = [entry async for entry in entries(self.store, life, slot_of(START) - 4000, last)]
        fates = Counter[SlotOutcome]()
        for entry in listed:
            fates[entry.outcome] += entry.count
        assert fates[SlotOutcome.MISSING] == 0
        if due or self.was_chained:
            return
        assert fates[SlotOutcome.DUE] == 0
        assert recorded == report.slots == len(self.walk.expected)
        named = sum(fates[fate] for fate in SlotOutcome if fate in RECORDED)
        assert named == len(self.walk.expected)

    def when(self, one: int, other: int) -> dict[str, Any]:
        zone = ZONES[other % len(ZONES)]
        end = ENDS[other % len(ENDS)]
        spec = SCHEDULES[one % len(SCHEDULES)]
        end_at = None if end is None else Instant(START + end * SECOND)
        return {
            "schedule": None if spec is None else when.normalise(spec, zone, slot_of(START)),
            "timezone": zone,
            "end_at": end_at,
        }

    async def edit(self, status: TaskStatus | None = None, **fields: Any) -> None:
        def change(task: Task) -> TaskChange:
            return TaskChange(spec=msgspec.structs.replace(task.spec, **fields), status=status or task.status)

        await self.accounted()
        self.walk.go_to(self.clock.now())
        old = self.task
        self.task = new = await self.store.change_task(old.id, change)
        rescheduled = any(getattr(old.spec, n) != getattr(new.spec, n) for n in ("schedule", "timezone", "end_at"))
        was_off = old.status is not TaskStatus.ENABLED
        is_on = new.status is TaskStatus.ENABLED
        self.walk.take(new.spec, self.clock.now(), fresh=is_on and (rescheduled or was_off))
        self.walk.is_on = is_on
        if (rescheduled and (is_on or new.status is TaskStatus.COMPLETED)) or (was_off and new.fired == 0):
            self.walk.fired = new.fired
        self.was_chained |= self.walk.is_chained

    async def accounted(self) -> None:
        """The task as it is once its slots up to now are accounted for: that may have completed it."""
        while (await self.store.plan(100, cap=4)).tasks:
            pass
        task = await self.store.task(self.task.id)
        assert task is not None
        self.task = task

    async def do_plan(self, one: int, other: int) -> None:
        await self.accounted()
        self.walk.go_to(self.clock.now())
        self.walk.is_on = self.task.status is TaskStatus.ENABLED

    async def do_time(self, one: int, other: int) -> None:
        self.clock.advance((one % 40) + other / 1000)

    async def do_leap(self, one: int, other: int) -> None:
        self.clock.advance(one % 200)

    async def do_back(self, one: int, other: int) -> None:
        await self.do_plan(0, 0)
        self.clock.advance(-(one % 50) - other / 1000)

    async def do_turn(self, one: int, other: int) -> None:
        await self.do_plan(0, 0)
        was_on = self.task.status is TaskStatus.ENABLED
        await self.edit(TaskStatus.DISABLED if was_on else TaskStatus.ENABLED)

    async def do_when(self, one: int, other: int) -> None:
        await self.edit(**self.when(one, other))

    async def do_policy(self, one: int, other: int) -> None:
        policy = list(MisfirePolicy)[one % len(MisfirePolicy)]
        overlap = (OverlapAction.ALLOW, OverlapAction.SKIP)[other % 2]
        await self.edit(misfire_policy=policy, catchup_limit=2, overlap_action=overlap)

    async def do_skip(self, one: int, other: int) -> None:
        await self.do_plan(0, 0)
        await self.store.skip_next(self.task.id, one % 4)

    async def do_work(self, one: int, other: int) -> None:
        await self.do_plan(0, 0)
        request = ClaimRequest(worker_id="w", queues=(self.task.spec.queue,), max=1 + one % 5)
        leases = (await self.store.claim(request)).leases
        self.clock.advance(other % 3)
        await self.store.settle(
            [
                Settlement(
                    run_id=lease.run_id,
                    token=lease.token,
                    worker_id="w",
                    transition=Transition.FINISH,
                    status=(RunStatus.SUCCESS, RunStatus.FAILED)[other % 2],
                )
                for lease in leases
            ]
        )

    async def do_clean(self, one: int, other: int) -> None:
        await self.store.clean(Instant(self.clock.now() - (one % 90) * SECOND), 1 + other % 50, task_id=self.task.id)

    async def do_die(self, one: int, other: int) -> None:
        with pytest.raises(Died):
            await self.store._write(
                lambda cache: dying(planning.plan(self.store.dialect, cache, 100, 4), one % 15),
            )


RECORDED = (
    SlotOutcome.RAN,
    SlotOutcome.RUNNING,
    SlotOutcome.WAITING,
    SlotOutcome.CANCELED,
    SlotOutcome.SKIPPED,
    SlotOutcome.DROPPED,
    SlotOutcome.CLEANED,
)


@pytest.fixture(params=URLS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def live_through(kind: str, request: pytest.FixtureRequest) -> Iterator[Callable[[list[Step]], None]]:
    fresh = URLS[kind]
    url = "memory://" if fresh is None else str(request.getfixturevalue(fresh))
    clock, numbers = ManualClock(START), itertools.count()
    with asyncio.Runner() as runner:
        store = open_store(url, clock=clock)

        async def history(steps: list[Step]) -> None:
            clock.set(START)
            await History(store, clock, next(numbers)).live(steps)

        runner.run(store.open())
        yield lambda steps: runner.run(asyncio.wait_for(history(steps), 60))
        runner.run(store.close())


@pytest.mark.slow
@pytest.mark.longer
@pytest.mark.timeout(3600)
def test_the_account_of_a_task_is_whole_after_every_step_of_any_history(
    kind: str, live_through: Callable[[list[Step]], None]
):
    @settings(
        max_examples=EXAMPLES[kind] * TIMES,
        deadline=None,
        derandomize=TIMES == 1,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(histories)
    def lives(steps: list[Step]) -> None:
        live_through(steps)

    lives()
