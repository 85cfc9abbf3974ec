"""The short way out for the ordinary run: no follow-up, and at most a place at a gate to give back. By sets of rows.

It does what `settling` does, for leases that end for good and that nothing else hangs on (flags 0). What turns out to be
otherwise goes the long way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from noonbell.clock import Instant
from noonbell.model.run import FINAL, SUCCEEDED, TRANSITIONS, RunId, RunStatus
from noonbell.model.settlement import Expect, Move, Settled, Settlement
from noonbell.stores.sql import settling
from noonbell.stores.sql.births import count_at_gates
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.endings import BODIES_AT_ONCE, EVENT_OF, REPORTED, report_of, texts_of, write_texts
from noonbell.stores.sql.events import COLUMNS as EVENT_COLUMNS
from noonbell.stores.sql.place import Place
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.shortcut import facts
from noonbell.stores.sql.statement import Execute, Gather, InsertMany, NewIds, Now, UpdateMany, Work, numbered

_HELD = ("run_id", "token", "task_id", "attempt", "gate")
_ENDINGS = TRANSITIONS[RunStatus.RUNNING] & FINAL


def all_plain(settlements: Sequence[Settlement]) -> bool:
    """Whether they are leases of one worker, without limits or follow-ups, that end for good."""
    worker_id = settlements[0].worker_id
    return all(s.plain and s.worker_id == worker_id and _ends(s) for s in settlements)


def all_short(settlements: Sequence[Settlement]) -> bool:
    """The same, but limits may count some of them: what the short way can settle."""
    worker_id = settlements[0].worker_id
    return all((s.plain or s.counted) and s.worker_id == worker_id and _ends(s) for s in settlements)


def _ends(settlement: Settlement) -> bool:
    return (
        settlement.move is Move.FINISH
        and settlement.status in _ENDINGS
        and settlement.expect is Expect.HELD
        and settlement.task_version is not None
    )


def fit_together(settlements: Sequence[Settlement]) -> bool:
    """Whether one statement can take them: each is of another run, and their bodies are small enough."""
    if len({settlement.run_id for settlement in settlements}) < len(settlements):
        return False
    size = 0
    for settlement in settlements:
        bodies = settlement.bodies
        if bodies is not None:
            size += len(bodies.request_body or "") + len(bodies.response_body or "")
    return size <= BODIES_AT_ONCE


def settle(q: Dialect, cache: TaskView, settlements: Sequence[Settlement]) -> Work[list[Settled]]:
    """What is not as its settlement says goes the long way, which says and records why."""
    params: dict[str, Any] = {"ids": q.pack([settlement.run_id for settlement in settlements])}
    mine = ""
    if settlements[0].worker_id is not None:
        mine, params["worker"] = " and worker_id = :worker", settlements[0].worker_id
    rows = yield Gather(
        f"select {numbered(*_HELD)} from live where {q.ids('run_id', 'ids')}"
        f" and place + 0 = {int(Place.LEASED)} and flags = 0{mine}{q.lock}",
        params,
        len(_HELD),
    )
    now = yield Now()
    held = {row[0]: row[1:] for row in rows}
    alike: dict[tuple[RunStatus | None, int | None, int | None], list[Settlement]] = defaultdict(list)
    rest: list[Settlement] = []
    done: dict[RunId, int] = {}
    bodies: list[tuple[Any, ...]] = []
    freed: dict[int, int] = defaultdict(int)
    for settlement in settlements:
        # A second one of the same run finds nothing.
        token, task_id, attempt, gate = held.pop(settlement.run_id, (None, 0, 0, None))
        if token != settlement.token:
            rest.append(settlement)
        else:
            done[settlement.run_id] = task_id
            alike[settlement.status, settlement.task_version, settlement.response_code].append(settlement)
            if gate is not None:
                freed[gate] -= 1
            if settlement.bodies is not None:
                bodies.append((settlement.run_id, attempt, *texts_of(settlement.bodies)))
    for (status, version, code), ended in alike.items():
        yield from _finish_alike(q, now, status or RunStatus.FAILED, version, code, ended, done)
    yield from write_texts(bodies)
    yield from count_at_gates(used=freed)
    late: list[Settled] = []
    if rest:
        late = yield from settling.settle(q, cache, rest)
    return answers(settlements, set(done), rest, late)


def answers(
    settlements: Sequence[Settlement], done: set[RunId], rest: Sequence[Settlement], late: Sequence[Settled]
) -> list[Settled]:
    """In the order of the requests. The same run twice in a batch: the first one counts."""
    by_run = {settlement.run_id: answer for settlement, answer in zip(rest, late, strict=True)}
    found: list[Settled] = []
    seen: set[RunId] = set()
    for settlement in settlements:
        run_id = settlement.run_id
        first = run_id in done and run_id not in seen
        seen.add(run_id)
        found.append(Settled.DONE if first else by_run.get(run_id, Settled.LOST))
    return found


def _finish_alike(
    q: Dialect,
    now: Instant,
    status: RunStatus,
    version: int | None,
    code: int | None,
    ended: Sequence[Settlement],
    tasks: dict[RunId, int],
) -> Work[None]:
    """Runs that ended with the same status and code under the same version, by sets; then what else each has to report."""
    ids = q.pack([settlement.run_id for settlement in ended])
    yield Execute(
        q.from_live(
            {
                "status": ":status",
                "trouble": ":trouble",
                "task_version": ":version",
                "start_time": "l.claimed_at",
                "end_time": ":now",
                "updated_at": ":now",
                "attempt": "l.attempt",
                "lost_count": "l.lost_count",
                "worker_id": "l.worker_id",
                "next_retry_time": "null",
                **dict.fromkeys(REPORTED, "null"),
                "response_code": ":code",
            },
            q.ids("l.run_id", "ids"),
        ),
        {
            "status": status,
            "trouble": None if status in SUCCEEDED else status,
            "version": version,
            "code": code,
            "now": now,
            "ids": ids,
        },
    )
    yield Execute(f"delete from live where {q.ids('run_id', 'ids')}", {"ids": ids})
    reports = [
        (s.run_id, *report_of(s.response_code, s.result, s.error_message, s.error_details))
        for s in ended
        if s.result is not None or s.error_message is not None or s.error_details is not None
    ]
    if reports:
        yield UpdateMany("runs", "id", REPORTED, reports)
    new = yield NewIds(1)
    told = facts(((tasks[s.run_id], s.run_id) for s in ended), status)
    yield InsertMany("events", EVENT_COLUMNS, [(new[0], now, EVENT_OF[status], told)])
