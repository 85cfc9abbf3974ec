"""A year in a minute: what becomes of every slot, without a store and without waiting.

Each slot is decided by the function that decides it in every store (`policy.account`), at the second that it is due. How
long runs take, and which of them fail, is the caller's to say; so overlap, failure and concurrency policies have something
to decide about.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from noonbell import when
from noonbell.clock import SECOND, Instant, from_datetime, instant_of, slot_of, to_datetime
from noonbell.model.run import FAILURES, RunStatus, SkipReason
from noonbell.model.task import LastRun, Task, TaskId, TaskStatus
from noonbell.policy import account as accounts
from noonbell.policy.account import DueRun, Facts, Skip
from noonbell.service.task_fields import Rules, read_task
from noonbell.when import due
from noonbell.when.schedule import Schedule

Lasts = Callable[[str, int], float]
"""From a task's name and a slot to the seconds that its run takes, retries included."""
Succeeds = Callable[[str, int], bool]


class Fired(NamedTuple):
    """What became of one slot."""

    slot: int
    """Seconds since 1970, UTC."""
    task: str
    skipped: SkipReason | None = None
    """Why there is no run for it; None = there is."""

    @property
    def time(self) -> datetime:
        return to_datetime(instant_of(self.slot))


def simulate(
    tasks: Iterable[Mapping[str, Any]],
    since: datetime,
    until: datetime,
    *,
    lasts: float | Lasts = 0.0,
    succeeds: Succeeds | None = None,
) -> Iterator[Fired]:
    """Every slot after `since` and up to `until`, in order of time, with its outcome.

    A task is what `POST /tasks` takes. Tasks are made at `since`, and runs start as soon as the limits let them. Raises
    InvalidArgument for a task that could not be made.
    """
    start, end = from_datetime(since), from_datetime(until)
    seconds = lasts if callable(lasts) else lambda _task, _slot: lasts
    lives = [_Life(_made(number, given, start), seconds, succeeds) for number, given in enumerate(tasks, 1)]
    return _told(lives, end)


def _told(lives: list[_Life], end: Instant) -> Iterator[Fired]:
    line = [(life.cursor, number) for number, life in enumerate(lives) if life.cursor is not None]
    heapq.heapify(line)
    while line and line[0][0] <= end:
        life = lives[line[0][1]]
        yield from life.fire()
        if life.cursor is None:
            heapq.heappop(line)
        else:
            heapq.heapreplace(line, (life.cursor, line[0][1]))


def _made(number: int, given: Mapping[str, Any], now: Instant) -> Task:
    draft = read_task(given, now, Rules())
    status = draft.status or TaskStatus.ENABLED
    spec, cursor = draft.spec, None
    schedule = when.of_task(spec)
    if schedule is not None and status is TaskStatus.ENABLED:
        first = due.initial(schedule, accounts.bounds_of(spec), slot_of(now))
        cursor = None if first is None else instant_of(first)
    return Task(
        id=TaskId(number),
        version=1,
        status=status,
        spec=spec,
        created_at=now,
        updated_at=now,
        next_fire_at=cursor,
        skip_next=draft.skip_next or 0,
    )


class _Waiting(NamedTuple):
    number: int
    slot: int
    run_at: int
    gated: bool
    attempt: int


class _Life:
    """One task and its runs, as far as the policies of later slots can see them."""

    def __init__(self, task: Task, lasts: Lasts, succeeds: Succeeds | None) -> None:
        self._task, self._lasts, self._succeeds = task, lasts, succeeds
        self._schedule: Schedule | None = when.of_task(task.spec)
        wanted = accounts.needs(task.spec)
        fixed_delay = self._schedule is not None and self._schedule.is_fixed_delay
        self._lives_alone = not (wanted.round or wanted.occupied or fixed_delay)
        """Nothing that its runs do can change what becomes of its slots."""
        self._round: LastRun | None = None
        self._born = 0
        self._waiting: deque[_Waiting] = deque()
        self._running: list[tuple[int, int, RunStatus, int]] = []
        self._free_at = 0
        """When a place was last given back: what waited for it starts then."""

    @property
    def cursor(self) -> Instant | None:
        return self._task.next_fire_at

    def fire(self) -> Iterator[Fired]:
        """Decide the slot that is due, and go on to the next."""
        task, schedule, now = self._task, self._schedule, self._task.next_fire_at
        if schedule is None or now is None:
            return
        self._live_until(now)
        result = accounts.account(task, schedule, self._facts(), now)
        self._task = msgspec.structs.replace(
            task, next_fire_at=result.next_fire_at, fired=result.fired, skip_next=result.skip_next
        )
        for outcome in result.outcomes:
            self._take(outcome, now)
            yield Fired(outcome.slot, task.spec.name, outcome.reason if isinstance(outcome, Skip) else None)
        if schedule.is_fixed_delay and result.next_fire_at is None and not result.completed:
            ended = self._live_until(None)
            following = accounts.cursor_after_run(self._task, schedule, Instant(max(ended, now)))
            self._task = msgspec.structs.replace(self._task, next_fire_at=following)

    def _take(self, outcome: DueRun | Skip, now: Instant) -> None:
        if self._lives_alone:
            return
        if isinstance(outcome, Skip):
            if outcome.answers_run_id is not None and self._round is not None:
                self._round = msgspec.structs.replace(self._round, skipped_run_id=outcome.answers_run_id)
            return
        if outcome.cancel_previous:
            self._cancel_started(now)
        self._born += 1
        born = _Waiting(self._born, outcome.slot, outcome.run_at, outcome.gated, outcome.attempt_base + 1)
        self._waiting.append(born)
        self._live_until(now)

    def _facts(self) -> Facts:
        waiting = len(self._waiting)
        return Facts(round=self._round, occupied=len(self._running) + waiting, waiting=waiting)

    # Time passes

    def _live_until(self, moment: int | None) -> int:
        """Start and end what starts and ends up to then (None: all of it); the last moment at which something ended."""
        ended = 0
        while True:
            self._start_up_to(moment)
            if not self._running or (moment is not None and self._running[0][0] > moment):
                return ended
            ended, number, status, attempt = heapq.heappop(self._running)
            self._end(number, status, attempt, ended)
            self._free_at = ended

    def _start_up_to(self, moment: int | None) -> None:
        limit = self._task.spec.max_concurrency
        while self._waiting:
            first = self._waiting[0]
            if moment is not None and first.run_at > moment:
                return
            if first.gated and limit is not None and len(self._running) >= limit:
                return
            self._waiting.popleft()
            self._start(first, max(first.run_at, self._free_at))

    def _start(self, run: _Waiting, at: int) -> None:
        name = self._task.spec.name
        good = self._succeeds is None or self._succeeds(name, run.slot)
        end = at + round(self._lasts(name, run.slot) * SECOND)
        heapq.heappush(self._running, (end, run.number, RunStatus.SUCCESS if good else RunStatus.FAILED, run.attempt))
        self._round = LastRun(
            task_id=self._task.id,
            run_id=run.number,
            status=RunStatus.RUNNING,
            attempt=run.attempt,
            failures=0 if self._round is None else self._round.failures,
            skipped_run_id=None if self._round is None else self._round.skipped_run_id,
        )

    def _end(self, number: int, status: RunStatus, attempt: int, at: int, *, replaced: bool = False) -> None:
        last = self._round
        if last is None:
            return
        failures = last.failures
        if status in FAILURES:
            failures += not replaced
        else:
            failures = 0
        if last.run_id != number:
            self._round = msgspec.structs.replace(last, failures=failures)
            return
        self._round = msgspec.structs.replace(
            last, status=status, attempt=attempt, end_time=Instant(at), failures=failures, replaced=replaced
        )

    def _cancel_started(self, now: Instant) -> None:
        for _, number, _, attempt in self._running:
            self._end(number, RunStatus.CANCELED, attempt, now, replaced=True)
        self._running.clear()
        self._free_at = now
