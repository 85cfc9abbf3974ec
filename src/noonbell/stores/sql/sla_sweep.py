"""The sweep of service levels: it looks at the runs whose turn it is, and writes each breach once.

A look, its events, and what `on_breach` asks for are one transaction, which holds the row of the run in `sla_watches`:
two nodes never judge a run at once. A breach is a row of `sla_breaches`, unique by run and level.

    K39  died before the commit   nothing was told; the next sweep, on any node, judges the run by the same history
    K40  died after it            the breach is written, its event in the same commit; the next look finds it told

The levels of a task over many runs (`success_ratio`) are judged when the figures of runs that ended are added up, in
that transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.engine import failpoint
from noonbell.model.rollup import HOUR, Figures, Scope, stretch_of
from noonbell.model.sla import OnBreach, Sla, SlaRule, SlaSwept, SlaWatch
from noonbell.policy import sla
from noonbell.policy.sla import Judgement, Miss, RunFacts, Usual
from noonbell.stores.sql import rollups
from noonbell.stores.sql.active_runs import COLUMNS, STARTED, WAITING, GateChanges, Live, Place, RunFlag
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.insert_runs import gate_limit
from noonbell.stores.sql.rows import TaskView, known_tasks
from noonbell.stores.sql.sla import WATCH
from noonbell.stores.sql.statement import (
    Execute,
    Fetch,
    NewIds,
    Now,
    UpdateMany,
    Work,
    delete,
    insert,
    insert_new,
    update,
)
from noonbell.stores.sql.tasks import skip_next

_USUAL_OVER = 28 * 86_400 * SECOND
"""What is usual is read from the figures of this time."""
_AHEAD = 10_000
"""Runs of a queue or a task that are counted before one that waits."""
_FIRST = 1_000_000_000
"""The highest priority."""
_PLACES = ", ".join(str(int(place)) for place in sorted(WAITING))
_KEPT = 91 * 86_400 * SECOND


def sweep(q: Dialect, cache: TaskView, limit: int) -> Work[SlaSwept]:
    """Judge up to `limit` runs whose deadline has passed."""
    now = yield Now()
    rows = yield Fetch(
        f"select {WATCH.select()} from sla_watches where at <= :now order by at limit :limit{q.skip_locked}",
        {"now": now, "limit": limit},
    )
    watches = [WATCH.read(row) for row in rows]
    if not watches:
        return SlaSwept()
    ids = [each.run_id for each in watches]
    active = yield from q.fetch_by(f"select {COLUMNS} from live", "run_id", ids)
    live = {row[0]: Live(*row) for row in active}
    runs = yield from q.fetch_by("select id, start_time, end_time from runs", "id", ids)
    history = {row[0]: (row[1], row[2]) for row in runs}
    first = yield from q.fetch_by("select run_id, min(start_time) from attempts", "run_id", ids, " group by run_id")
    attempted = {row[0]: row[1] for row in first}
    told = yield from q.fetch_by("select run_id, rule, id, foreseen_at, breached_at from sla_breaches", "run_id", ids)
    known = {(row[0], row[1]): (row[2], row[3], row[4]) for row in told}
    there = [each for each in watches if each.run_id in history]
    forecast = _Forecast(q, cache, now)
    judged: list[tuple[SlaWatch, Judgement, Usual | None]] = []
    for watch in there:
        start, end = history[watch.run_id]
        row = live.get(watch.run_id)
        claimed = row.claimed_at if row is not None and row.place in STARTED else None
        started = min((at for at in (start, claimed, attempted.get(watch.run_id)) if at is not None), default=None)
        is_over = row is None
        usual = None if is_over else (yield from forecast.usual(watch.task_id))
        expected = None
        if row is not None and started is None:
            expected = yield from forecast.start(row)
        foreseen = [rule for rule in SlaRule if (watch.run_id, rule) in known]
        facts = RunFacts(None if started is None else Instant(started), end if is_over else None, expected)
        judgement = sla.judge(watch, facts, usual, now, foreseen)
        # Told already: a node died after its commit, or the run was published anew and is watched again.
        breached = [
            miss for miss in judgement.breached if known.get((watch.run_id, miss.rule), (0, 0, None))[2] is None
        ]
        judged.append((watch, judgement._replace(breached=breached), usual))
    yield from _write(now, judged, known)
    raised = yield from _raise(now, judged, live)
    late = {w.task_id for w, found, _ in judged if w.on_breach is OnBreach.SKIP_NEXT and found.breached}
    if late:
        yield from _skip(q, cache, late)
    again = [(watch.run_id, judgement.next_at) for watch, judgement, _ in judged if judgement.next_at is not None]
    if again:
        yield UpdateMany("sla_watches", "run_id", ("at",), again)
    kept = {run_id for run_id, _ in again}
    yield from q.delete_by("sla_watches", "run_id", [run_id for run_id in ids if run_id not in kept])
    breaches = sum(len(judgement.breached) for _, judgement, _ in judged)
    if breaches:
        failpoint.hit("K39")
    return SlaSwept(
        looked_at=len(watches),
        breached=breaches,
        foreseen=sum(len(judgement.foreseen) for _, judgement, _ in judged),
        raised=raised,
    )


class _Forecast:
    """What is usual, and how many runs are before one that waits. Each is read once for a sweep."""

    def __init__(self, q: Dialect, cache: TaskView, now: Instant) -> None:
        self._q, self._cache, self._now = q, cache, now
        self._usual: dict[int, Usual | None] = {}
        self._lines: dict[str, tuple[dict[int, int], float]] = {}
        self._tasks: dict[int, tuple[dict[int, int], list[Instant], int | None]] = {}

    def usual(self, task_id: int) -> Work[Usual | None]:
        if task_id not in self._usual:
            figures = yield from figures_of(self._q, Scope.TASK, str(task_id), self._now, _USUAL_OVER)
            self._usual[task_id] = sla.usual_of(figures)
        return self._usual[task_id]

    def start(self, row: Live) -> Work[Instant]:
        """When a run that waits starts: those of its task that are before it have to pass its limit, those of its queue
        the workers.
        """
        usual = yield from self.usual(row.task_id)
        begin = Instant(max(self._now, row.at or 0))
        line, started, limit = yield from self._line_of_task(row.task_id)
        by_task = sla.expected_start(begin, usual, ahead=line.get(row.run_id, len(line)), limit=limit, started=started)
        queued, per_second = yield from self._line_of_queue(row.queue)
        by_queue = begin
        if per_second and row.run_id in queued:
            by_queue = Instant(begin + round(queued[row.run_id] / per_second * SECOND))
        return max(by_task, by_queue)

    def _line_of_task(self, task_id: int) -> Work[tuple[dict[int, int], list[Instant], int | None]]:
        """The places of the runs that wait for the task's limit, when those under way started, and the limit."""
        if task_id not in self._tasks:
            tasks = yield from known_tasks(self._q, self._cache, [task_id])
            gate = gate_limit(tasks[task_id].task.spec) if task_id in tasks else None
            found: tuple[dict[int, int], list[Instant], int | None] = ({}, [], None)
            if gate is not None and gate[0] is not None:
                rows = yield Fetch(
                    "select run_id, place, claimed_at from live where gate = :task order by turn, run_at, run_id limit :limit",
                    {"task": task_id, "limit": _AHEAD},
                )
                waiting = [row[0] for row in rows if row[1] in WAITING]
                started = [Instant(row[2] or self._now) for row in rows if row[1] in STARTED]
                found = ({run_id: place for place, run_id in enumerate(waiting)}, started, gate[0])
            self._tasks[task_id] = found
        return self._tasks[task_id]

    def _line_of_queue(self, queue: str) -> Work[tuple[dict[int, int], float]]:
        """The places of the runs that wait for a worker, and how many of the queue ended in a second, over the last hour."""
        if queue not in self._lines:
            rows = yield Fetch(
                f"select run_id from live where queue = :queue and place in ({int(Place.READY)}, {int(Place.CAREFUL)})"
                " order by turn, run_at, run_id limit :limit",
                {"queue": queue, "limit": _AHEAD},
            )
            figures = yield from figures_of(self._q, Scope.QUEUE, queue, self._now, HOUR.length)
            ended = (figures.runs - figures.skipped - figures.canceled) / (HOUR.length // SECOND)
            self._lines[queue] = ({row[0]: place for place, row in enumerate(rows)}, ended)
        return self._lines[queue]


def figures_of(q: Dialect, kind: Scope, name: str, now: Instant, length: int) -> Work[Figures]:
    """The figures of this span, up to now."""
    stretch = stretch_of(now - length, now + 1, now)
    found = yield from rollups.rollups(q, kind, stretch, names=[name])
    return found[0].figures if found else Figures()


def _write(
    now: Instant,
    judged: Sequence[tuple[SlaWatch, Judgement, Usual | None]],
    known: dict[tuple[int, str], tuple[int, int | None, int | None]],
) -> Work[None]:
    """The rows of `sla_breaches`, and an event for each."""
    new: list[tuple[Any, ...]] = []
    come: list[tuple[int, int]] = []
    told: dict[str, list[tuple[Any, ...]]] = {"run.sla_foreseen": [], "run.sla_breached": []}
    for watch, judgement, usual in judged:
        usual_ms = None if usual is None else usual.p50 // 1000
        for miss in judgement.foreseen:
            new.append((watch.task_id, watch.run_id, miss.rule, miss.deadline, now, miss.expected_at, usual_ms, None))
            told["run.sla_foreseen"].append((watch.task_id, watch.run_id, _data(miss, watch, usual_ms)))
        for miss in judgement.breached:
            row = known.get((watch.run_id, miss.rule))
            if row is None:
                new.append((watch.task_id, watch.run_id, miss.rule, miss.deadline, None, None, None, now))
            else:
                come.append((row[0], now))
            told["run.sla_breached"].append((watch.task_id, watch.run_id, _data(miss, watch, None)))
    if new:
        columns = ("task_id", "run_id", "rule", "deadline", "foreseen_at", "expected_at", "usual_ms", "breached_at")
        yield from insert_new("sla_breaches", columns, new)
    if come:
        yield UpdateMany("sla_breaches", "id", ("breached_at",), come)
    yield from tell_all(told)


def _data(miss: Miss, watch: SlaWatch, usual_ms: int | None) -> dict[str, Any]:
    data: dict[str, Any] = {"rule": miss.rule, "deadline": rfc3339(miss.deadline), "on_breach": watch.on_breach}
    if miss.expected_at is not None:
        data["expected_at"] = rfc3339(miss.expected_at)
    if usual_ms is not None:
        data["usual_ms"] = usual_ms
    return data


# What is done about it


def _raise(
    now: Instant, judged: Sequence[tuple[SlaWatch, Judgement, Usual | None]], live: dict[int, Live]
) -> Work[tuple[str, ...]]:
    """Runs that wait go first. One that its key holds back keeps its place there."""
    wanted = {
        watch.run_id
        for watch, judgement, _ in judged
        if watch.on_breach is OnBreach.RAISE_PRIORITY and (judgement.foreseen or judgement.breached)
    }
    rows = [live[run_id] for run_id in sorted(wanted) if run_id in live]
    rows = [row for row in rows if row.place in (*WAITING, Place.LATER) and not row.flags & RunFlag.KEYED]
    raised = []
    gates = GateChanges()
    for row in rows:
        changed = yield Execute(
            f"update live set turn = :turn where run_id = :run and place in ({_PLACES}, {int(Place.LATER)}) and turn > :turn",
            {"turn": -_FIRST, "run": row.run_id},
        )
        if changed:
            yield update("runs", {"id": row.run_id}, priority=_FIRST, updated_at=now)
            raised.append(row.queue)
            if row.gate is not None and row.place == Place.GATED:
                gates.tops[row.gate] = -_FIRST
    yield from gates.write_tops()
    return tuple(sorted(set(raised)))


def _skip(q: Dialect, cache: TaskView, task_ids: Collection[int]) -> Work[None]:
    """The next slot of each; where an operator has ordered skips already, it is among them."""
    tasks = yield from known_tasks(q, cache, task_ids)
    ordered = yield from q.fetch_by("select task_id from cursors", "task_id", task_ids, " and skip_next > 0")
    done = {row[0] for row in ordered}
    for task_id in sorted(task_ids):
        task = tasks[task_id].task if task_id in tasks and task_id not in done else None
        if task is not None and task.deleted_at is None and task.spec.is_scheduled:
            yield from skip_next(q, cache, task.id, 1, by="sla")


# The ratio of a task's runs that succeed


def judge_ratios(q: Dialect, cache: TaskView, task_ids: Iterable[int]) -> Work[int]:
    """Of tasks with runs whose figures have just been added up; how many events it wrote. One node at a time does this."""
    tasks = yield from known_tasks(q, cache, task_ids)
    levels = {task_id: cache.sla_of(each.task.spec) or Sla() for task_id, each in tasks.items()}
    standing = yield from q.fetch_by("select task_id, breach_id from sla_ratios", "task_id", levels)
    broken = {row[0]: row[1] for row in standing}
    now = yield Now()
    told: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for task_id, level in sorted(levels.items()):
        ratio = level.success_ratio
        if ratio is None and task_id not in broken:
            continue
        figures = yield from figures_of(q, Scope.TASK, str(task_id), now, level.window_length)
        is_broken = ratio is not None and sla.is_broken(ratio, figures)
        if is_broken is (task_id in broken):
            continue
        data: dict[str, Any] = {"rule": SlaRule.SUCCESS_RATIO, "ratio": figures.success, "wanted": ratio}
        data |= {"window": level.window, "failed": figures.failed}
        if is_broken:
            ids = yield NewIds(1)
            row = {"id": ids[0], "task_id": task_id, "rule": SlaRule.SUCCESS_RATIO, "deadline": now, "breached_at": now}
            yield insert("sla_breaches", **row)
            yield insert("sla_ratios", task_id=task_id, breach_id=ids[0])
            told["task.sla_breached"].append((task_id, None, data))
            if level.on_breach is OnBreach.SKIP_NEXT:
                yield from _skip(q, cache, {task_id})
        else:
            yield delete("sla_ratios", task_id=task_id)
            yield update("sla_breaches", {"id": broken[task_id]}, resolved_at=now)
            told["task.sla_recovered"].append((task_id, None, data))
    yield from tell_all(told)
    return sum(map(len, told.values()))


def forget_breaches(q: Dialect, now: Instant, limit: int) -> Work[int]:
    """Remove breaches that are older than the figures beside which they are shown."""
    rows = yield Fetch(
        "select id from sla_breaches where deadline < :before order by deadline limit :limit",
        {"before": now - _KEPT, "limit": limit},
    )
    yield from q.delete_by("sla_breaches", "id", [row[0] for row in rows])
    return len(rows)
