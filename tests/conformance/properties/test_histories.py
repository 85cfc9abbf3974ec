"""Any history that a store may live through, against a model of a few dictionaries: after each step they agree.

A history is a list of steps with numbers to choose by. Each has tasks and a queue of its own, so one store serves many.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noonbell import when
from noonbell.clock import SECOND, ManualClock, from_datetime, slot_of, to_datetime
from noonbell.model.request import ClaimRequest, Publication, PublishOutcome, RunQuery, TaskChange
from noonbell.model.run import (
    BORN,
    FINAL,
    TRANSITIONS,
    Lease,
    Precondition,
    Run,
    RunId,
    RunStatus,
    Settlement,
    SettleResult,
    Transition,
)
from noonbell.model.task import ConcurrencyPolicy, MisfirePolicy, Task, TaskSpec, TaskStatus
from noonbell.model.worker import Order
from noonbell.service.account import SlotOutcome, entries, task_history
from noonbell.service.consistency import audit_task
from noonbell.stores import open_store
from noonbell.stores.sql import cleanup, fast_path, planning, settle, tasks
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work
from noonbell.stores.sql.store import SqlStore
from services.size import size

S = RunStatus
START = from_datetime(to_datetime(1_767_261_600 * SECOND))
WORKERS = ("w0", "w1", "w2")
EXAMPLES = {"memory": 150, "sqlite": 20, "postgres": 8, "mariadb": 8}
TIMES = int(os.environ.get("NOONBELL_TEST_TIMES") or size(1, 4))
"""For a long night: so many times more histories."""
URLS = {"memory": None, "sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}
LEASE, TIMEOUT, PARKED = 20, 45, 30

Step = tuple[str, int, int]
RECORDED = (
    SlotOutcome.RAN,
    SlotOutcome.RUNNING,
    SlotOutcome.WAITING,
    SlotOutcome.CANCELED,
    SlotOutcome.SKIPPED,
    SlotOutcome.DROPPED,
)
STEPS = (
    ["plan", "publish", "claim", "claim", "settle", "settle", "settle", "time", "time", "promote"]
    + ["heartbeat", "crash", "sweep", "cancel", "limit", "reschedule", "turn", "stale", "callback", "back", "die"]
)  # fmt: skip
histories = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 999), st.integers(0, 999)), min_size=20, max_size=80
)


@dataclass
class Known:
    """A run, as the model has it."""

    task_id: int
    status: RunStatus
    token: int = 0
    attempt: int = 0
    retries: int = 0
    losses: int = 0
    lease: Lease | None = None
    """In somebody's hands, or in those of a worker that is gone."""
    expires: int = 0
    deadline: int = 0


@dataclass
class Scheduled:
    """A task, and the walk over its slots that is made without the store."""

    task: Task
    step: int
    limit: int | None
    done_to: int
    """Every slot up to this second has been accounted for, or was never to be."""
    enabled: bool = True
    expected: set[int] = field(default_factory=set)

    def walk_to(self, now: int) -> None:
        """The slots of a task that has been on since `done_to`. Of one that is off, nothing is done."""
        if not self.enabled:
            return
        until = slot_of(now)
        first = (self.done_to - slot_of(START)) // self.step + 1
        slots = itertools.takewhile(
            lambda slot: slot <= until, (slot_of(START) + k * self.step for k in itertools.count(max(1, first)))
        )
        self.expected.update(slots)
        self.done_to = max(self.done_to, until)

    def begin_anew(self, now: int) -> None:
        """Enabled, or with another schedule: from now on, but never from before a slot that is accounted for.

        So a moment that passed while the task was off, and that a clock set back brings round again, is a slot like any
        other: nobody has accounted for it.
        """
        self.done_to = max(slot_of(now), max(self.expected, default=0))


class History:
    def __init__(self, store: SqlStore, clock: ManualClock, number: int) -> None:
        self.store, self.clock = store, clock
        self.queue = f"q{number}"
        self.tasks: dict[int, Scheduled] = {}
        self.runs: dict[RunId, Known] = {}
        self.stale: list[Lease] = []
        """Leases that were given up, taken away or used."""

    # ---- the tasks of a history

    async def begin(self) -> None:
        await self.create("free", 10, None)
        await self.create("gated", 7, 2, misfire_policy=MisfirePolicy.CATCH_UP_LIMITED, catchup_limit=2)
        await self.create(
            "skips", 5, 1, concurrency_policy=ConcurrencyPolicy.SKIP, misfire_policy=MisfirePolicy.FIRE_ONCE
        )

    async def create(self, name: str, step: int, limit: int | None, **more: Any) -> None:
        spec = TaskSpec(
            name=f"{self.queue} {name}",
            job_type="work",
            queue=self.queue,
            schedule=every(step),
            max_concurrency=limit,
            worker_timeout_ms=LEASE * 1000,
            timeout_seconds=TIMEOUT,
            **more,
        )
        task = await self.store.create_task(spec)
        self.tasks[task.id] = Scheduled(task, step, limit, slot_of(self.clock.now()))

    async def end(self) -> None:
        """Leave nothing that the next history's plan or sweep would meet."""
        for task_id in self.tasks:
            await self.store.delete_task(task_id, cancel_running=True)  # type: ignore[arg-type]
        await self.read_new()
        for run in await self.all_runs():
            assert run.status in FINAL
            known = self.runs[run.id]
            assert known.status not in FINAL or run.status is known.status, "final is final"

    # ---- one step, and what must be true after it

    async def take(self, step: Step) -> None:
        name, one, other = step
        await getattr(self, f"do_{name}")(one, other)
        await self.agree()

    async def agree(self) -> None:
        runs = await self.all_runs()
        assert {run.id for run in runs} == set(self.runs), "a run came or went unasked"
        for run in runs:
            known = self.runs[run.id]
            seen = (run.status, run.attempt, run.retry_count, run.lost_count)
            assert seen == (known.status, known.attempt, known.retries, known.losses), run
            assert (run.end_time is not None) == (run.status in FINAL), run
            if run.status is S.RUNNING and known.lease is not None:
                assert run.worker_id == known.lease.worker_id, run
        for task_id, scheduled in self.tasks.items():
            if scheduled.limit is not None:
                assert await self.counted(task_id) == self.started(task_id)
        assert await self.store.recount() == 0

    async def counted(self, task_id: int) -> int:
        return int((await self.store.fetch("select used from gates where task_id = :id", id=task_id))[0][0])

    def started(self, task_id: int) -> int:
        return sum(
            known.task_id == task_id and known.status in (S.RUNNING, S.CALLBACK_PENDING) for known in self.runs.values()
        )

    async def all_runs(self) -> list[Run]:
        return (await self.store.runs(RunQuery(queue=self.queue, sort="id", page_size=1000))).items

    async def read_new(self) -> None:
        """What planning has brought into the world."""
        for run in await self.all_runs():
            if run.id not in self.runs:
                assert run.status in BORN or run.status is S.CANCELED, run
                self.runs[run.id] = Known(run.task_id, run.status, attempt=run.attempt)

    def goes(self, run_id: RunId, status: RunStatus) -> Known:
        known = self.runs[run_id]
        assert status in TRANSITIONS[known.status], f"{known.status} → {status}"
        known.status = status
        return known

    def lets_go(self, known: Known) -> None:
        if known.lease is not None:
            self.stale.append(known.lease)
        known.lease = None

    def held(self) -> list[Known]:
        return [known for known in self.runs.values() if known.lease is not None and known.status is S.RUNNING]

    # ---- slots

    async def do_plan(self, one: int, other: int) -> None:
        while (await self.store.plan(100, cap=4)).tasks:
            pass
        for scheduled in self.tasks.values():
            scheduled.walk_to(self.clock.now())
        await self.read_new()
        for scheduled in self.tasks.values():
            await self.slots_agree(scheduled)

    async def slots_agree(self, scheduled: Scheduled) -> None:
        """Births, skips and dropped ranges are the slots, each once."""
        task_id = scheduled.task.id
        rows = await self.store.fetch("select slot from runs where task_id = :id and slot is not null", id=task_id)
        slots = [slot_of(row[0]) for row in rows]
        assert len(set(slots)) == len(slots)
        gone = await self.store.dropped(task_id, START, from_datetime(to_datetime(START + 10**15)))
        left = sorted(scheduled.expected - set(slots))
        assert set(slots) <= scheduled.expected, "a slot that the schedule does not name"
        assert len(slots) + sum(one.count for one in gone) == len(scheduled.expected), "lost, or counted twice"
        for one in gone:
            within = [slot for slot in left if slot_of(one.first) <= slot <= slot_of(one.last)]
            assert len(within) == one.count, "a range that covers other slots than it counts"
        await self.account_agrees(scheduled)

    async def account_agrees(self, scheduled: Scheduled) -> None:
        """What `slots` lists and what `audit` finds, both worked out from the versions alone, is the model's walk."""
        life = await task_history(self.store, scheduled.task)
        last = max((slot_of(self.clock.now()), *scheduled.expected))
        listed = [entry async for entry in entries(self.store, life, slot_of(START), last)]
        recorded = [entry for entry in listed if entry.outcome in RECORDED]
        assert sum(entry.count for entry in recorded) == len(scheduled.expected), "the account is not whole"
        assert {entry.first for entry in recorded} <= scheduled.expected
        assert not [entry for entry in listed if entry.outcome in (SlotOutcome.MISSING, SlotOutcome.CLEANED)]
        report = await audit_task(self.store, scheduled.task)
        assert report.flaws == []
        assert report.slots == len(scheduled.expected)

    async def edit(self, scheduled: Scheduled, status: TaskStatus | None = None, **fields: Any) -> None:
        def change(task: Task) -> TaskChange:
            return TaskChange(spec=msgspec.structs.replace(task.spec, **fields), status=status or task.status)

        scheduled.walk_to(self.clock.now())
        before = scheduled.task
        after = await self.store.change_task(before.id, change)
        assert after.version >= before.version
        scheduled.task = after
        await self.read_new()
        await self.slots_agree(scheduled)

    def choose(self, number: int) -> Scheduled:
        return list(self.tasks.values())[number % len(self.tasks)]

    async def do_limit(self, one: int, other: int) -> None:
        scheduled = self.choose(1 + one % 2)
        await self.edit(scheduled, max_concurrency=1 + other % 3)
        scheduled.limit = 1 + other % 3

    async def do_reschedule(self, one: int, other: int) -> None:
        scheduled = self.choose(one)
        step = 3 + other % 9
        await self.edit(scheduled, schedule=every(step))
        scheduled.step = step
        scheduled.begin_anew(self.clock.now())

    async def do_turn(self, one: int, other: int) -> None:
        scheduled = self.choose(one)
        turned = TaskStatus.DISABLED if scheduled.enabled else TaskStatus.ENABLED
        await self.edit(scheduled, turned)
        scheduled.enabled = not scheduled.enabled
        if scheduled.enabled:
            scheduled.begin_anew(self.clock.now())

    # ---- runs

    async def do_publish(self, one: int, other: int) -> None:
        scheduled = self.choose(one)
        delay = (0, 0, 5, 30)[other % 4]
        key = f"k{other % 3}" if other % 5 == 0 else None
        (answer,) = await self.store.publish(
            [Publication(task_id=scheduled.task.id, delay_seconds=delay, key=key, priority=other % 2)]
        )
        if answer.outcome is PublishOutcome.CREATED:
            assert answer.run_id is not None
            assert answer.run_id not in self.runs
            self.runs[answer.run_id] = Known(scheduled.task.id, S.SCHEDULED)
        elif answer.outcome is PublishOutcome.REFUSED:
            assert scheduled.task.spec.concurrency_policy is ConcurrencyPolicy.SKIP
        else:
            assert key is not None
            assert answer.run_id in self.runs

    async def do_promote(self, one: int, other: int) -> None:
        await self.store.promote(100)

    async def do_claim(self, one: int, other: int) -> None:
        worker = WORKERS[one % len(WORKERS)]
        request = ClaimRequest(worker_id=worker, queues=(self.queue,), max=1 + other % 4)
        leases = (await self.store.claim(request)).leases
        assert len(leases) <= request.max
        for lease in leases:
            assert self.runs[lease.run_id].lease is None, "in two hands"
            known = self.goes(lease.run_id, S.RUNNING)
            known.attempt += 1
            assert lease.token > known.token, "tokens rise"
            assert lease.attempt == known.attempt
            known.lease, known.token = lease, lease.token
            known.expires, known.deadline = lease.expires_at, lease.deadline_at
        for task_id in {lease.task_id for lease in leases}:
            limit = self.tasks[task_id].limit
            assert limit is None or self.started(task_id) <= limit, "more than the limit"

    async def settle(self, known: Known, lease: Lease, answer: SettleResult, **fields: Any) -> None:
        settlement = Settlement(run_id=lease.run_id, token=lease.token, plain=lease.plain, **fields)
        assert await self.store.settle([settlement]) == [answer], (known, settlement)

    async def do_settle(self, one: int, other: int) -> None:
        """A worker tells how it went, in any of the ways."""
        held = self.held()
        if not held:
            return
        known = held[one % len(held)]
        lease = known.lease
        assert lease is not None
        ways: list[tuple[Transition, RunStatus | None, RunStatus, float]] = [
            (Transition.FINISH, S.SUCCESS, S.SUCCESS, 0),
            (Transition.FINISH, S.FAILED, S.FAILED, 0),
            (Transition.FINISH, S.TIMEOUT, S.TIMEOUT, 0),
            (Transition.RETRY, S.FAILED, S.RETRYING, 5),
            (Transition.RETRY, S.FAILED, S.RETRYING, 0),
            (Transition.PARK, S.CALLBACK_PENDING, S.CALLBACK_PENDING, PARKED),
            (Transition.RELEASE, None, S.SCHEDULED, 0),
        ]
        move, status, after, delay = ways[other % len(ways)]
        await self.settle(
            known,
            lease,
            SettleResult.DONE,
            transition=move,
            status=status,
            delay_seconds=delay,
            worker_id=lease.worker_id,
        )
        self.goes(lease.run_id, after)
        known.retries += move is Transition.RETRY
        known.attempt -= move is Transition.RELEASE
        if move is Transition.PARK:
            known.deadline = self.clock.now() + PARKED * SECOND
        else:
            self.lets_go(known)

    async def do_callback(self, one: int, other: int) -> None:
        """A callback speaks, while the run is under way or awaits it."""
        open_ = [known for known in self.runs.values() if known.lease is not None]
        if open_:
            known = open_[one % len(open_)]
            status = (S.CALLBACK_SUCCESS, S.FAILED)[other % 2]
            assert known.lease is not None
            await self.settle(
                known,
                known.lease,
                SettleResult.DONE,
                transition=Transition.FINISH,
                status=status,
                precondition=Precondition.ANSWERED,
            )
            self.goes(known.lease.run_id, status)
            self.lets_go(known)

    async def do_stale(self, one: int, other: int) -> None:
        """A zombie wakes up: whatever it says is refused."""
        if self.stale:
            lease = self.stale[one % len(self.stale)]
            move = list(Transition)[other % len(Transition)]
            status = S.SUCCESS if move is Transition.FINISH else None
            await self.settle(
                self.runs[lease.run_id], lease, SettleResult.LOST, transition=move, status=status, delay_seconds=1
            )
            assert not await self.store.extend(lease.run_id, lease.token, 10)
            assert await self.store.begin([lease]) == set()

    async def do_heartbeat(self, one: int, other: int) -> None:
        worker = WORKERS[one % len(WORKERS)]
        held = [known for known in self.held() if known.lease is not None and known.lease.worker_id == worker]
        gone = [lease for lease in self.stale if lease.worker_id == worker][-3:]
        listed = [known.lease for known in held if known.lease is not None]
        gone = [lease for lease in gone if lease.run_id not in {mine.run_id for mine in listed}]
        gone = list({lease.run_id: lease for lease in gone}.values())
        beat = await self.store.heartbeat(worker, [(lease.run_id, lease.token) for lease in (*listed, *gone)])
        orders = {order.run_id: order for order in beat.orders}
        for known in held:
            assert known.lease is not None
            order = orders[known.lease.run_id]
            assert order.order is Order.CONTINUE
            known.expires = self.clock.now() + LEASE * SECOND
            assert order.lease_expires_at == known.expires
        for lease in gone:
            canceled = self.runs[lease.run_id].status is S.CANCELED
            assert orders[lease.run_id].order is (Order.CANCEL if canceled else Order.LOST)

    async def do_crash(self, one: int, other: int) -> None:
        """A worker is gone, and long enough for its leases to run out."""
        self.clock.advance(LEASE + 1)
        await self.do_sweep(one, other)

    async def do_sweep(self, one: int, other: int) -> None:
        now = self.clock.now()
        late = {overdue.run_id: overdue for overdue in await self.store.overdue(1000) if overdue.task_id in self.tasks}
        for run_id, known in self.runs.items():
            precondition = None
            if known.status is S.RUNNING and min(known.expires, known.deadline) <= now:
                precondition = Precondition.OVERTIME if known.deadline <= now else Precondition.EXPIRED
            elif known.status is S.CALLBACK_PENDING and known.deadline <= now:
                precondition = Precondition.UNANSWERED
            assert (late[run_id].precondition if run_id in late else None) is precondition, known
        for run_id, overdue in late.items():
            known = self.runs[run_id]
            move, status, after = {
                Precondition.EXPIRED: (Transition.LOSE, None, S.SCHEDULED),
                Precondition.OVERTIME: (Transition.FINISH, S.TIMEOUT, S.TIMEOUT),
                Precondition.UNANSWERED: (Transition.FINISH, S.FAILED_TIMEOUT, S.FAILED_TIMEOUT),
            }[overdue.precondition]
            assert overdue.token == known.token
            told = Settlement(
                run_id=run_id, token=overdue.token, transition=move, status=status, precondition=overdue.precondition
            )
            assert await self.store.settle([told, told]) == [SettleResult.DONE, SettleResult.LOST]
            self.goes(run_id, after)
            known.losses += move is Transition.LOSE
            self.lets_go(known)

    async def do_cancel(self, one: int, other: int) -> None:
        ids = list(self.runs)
        if not ids:
            return
        chosen = list(dict.fromkeys([ids[one % len(ids)], ids[other % len(ids)]]))
        answers = await self.store.cancel(chosen)
        assert [answer.run_id for answer in answers] == chosen
        for answer in answers:
            known = self.runs[answer.run_id]
            assert answer.canceled == (known.status not in FINAL)
            if answer.canceled:
                self.goes(answer.run_id, S.CANCELED)
                self.lets_go(known)
            assert answer.status is known.status

    # ---- deaths

    async def do_die(self, one: int, other: int) -> None:
        """A process dies in the middle of a transition: whatever it had written is gone, and nothing else is."""
        q, ids = self.store.dialect, list(self.runs)
        request = ClaimRequest(worker_id="w0", queues=(self.queue,), max=5)
        transitions: list[Callable[[TaskView], Work[Any]]] = [
            lambda cache: planning.plan(q, cache, 100, 4),
            lambda cache: tasks.skip_next(q, cache, self.choose(other).task.id, 3),
            lambda cache: cleanup.delete_task(q, cache, self.choose(other).task.id, cancel_running=True, purge=True),
            lambda cache: fast_path.claim_plain(q, cache, request),
            lambda cache: settle.cancel(q, cache, ids),
        ]
        with pytest.raises(Died):
            await self.store._write(lambda cache: dying(transitions[one % len(transitions)](cache), other % 12))

    # ---- time

    async def do_time(self, one: int, other: int) -> None:
        self.clock.advance((one % 12) + other / 1000)

    async def do_back(self, one: int, other: int) -> None:
        """Somebody set the clock back a little."""
        self.clock.advance(-(one % 4) - other / 1000)


class Died(Exception):
    pass


def dying(work: Work[Any], steps: int) -> Work[None]:
    """A transition that ends after so many of its steps, or right before its commit."""
    answer: Any = None
    for _ in range(steps):
        try:
            answer = yield work.send(answer)
        except StopIteration:
            break
    raise Died


def every(step: int) -> dict[str, Any] | None:
    fields = {"type": "interval", "every": step, "unit": "second", "anchor": "2026-01-01T10:00:00Z"}
    return when.normalise(fields, "UTC", slot_of(START))


@pytest.fixture(params=URLS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def live_through(kind: str, request: pytest.FixtureRequest) -> Iterator[Callable[[list[Step]], None]]:
    """Carries out a history on a store that stays open for the next."""
    fresh = URLS[kind]
    url = "memory://" if fresh is None else str(request.getfixturevalue(fresh))
    clock, numbers = ManualClock(START), itertools.count()
    with asyncio.Runner() as runner:
        store = open_store(url, clock=clock)

        async def history(steps: list[Step]) -> None:
            clock.set(START)
            life = History(store, clock, next(numbers))
            await life.begin()
            try:
                for step in steps:
                    await life.take(step)
            finally:
                await life.end()

        runner.run(store.open())
        yield lambda steps: runner.run(asyncio.wait_for(history(steps), 60))
        runner.run(store.close())


@pytest.mark.slow
@pytest.mark.longer
@pytest.mark.timeout(3600)
def test_a_store_and_its_model_agree_after_every_step_of_any_history(
    kind: str, live_through: Callable[[list[Step]], None]
):
    @settings(
        max_examples=EXAMPLES[kind] * TIMES,
        deadline=None,
        derandomize=TIMES == 1,  # the same histories every time; NOONBELL_TEST_TIMES=10 goes looking for others
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(histories)
    def lives(steps: list[Step]) -> None:
        live_through(steps)

    lives()
