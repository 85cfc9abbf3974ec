"""Final runs of another system, written into history as they were there.

They have no slot, so the account does not count them; no row in `live`, so that nothing claims them; no event, so that neither
alerts nor followers hear of them. The figures have them under the moment at which they ended.

A run's id is made of the moment when it was created there and of its number. So the same run has the same id each time that it is
brought, and is written once; and lists, which go by ids, have it where it belongs. Where a run of ours has that id, the next one
is taken, and so on until one is free or is this very run. An import that died is sent again: each call is one transaction.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidState
from noonbell.model.request import PastRun, PastRunOutcome
from noonbell.model.rollup import MINUTE, Fact, fact
from noonbell.model.run import SUCCEEDED, Origin, RunStatus, SkipReason
from noonbell.stores.sql import rollups
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import texts_of, write_texts
from noonbell.stores.sql.ids import floor_at
from noonbell.stores.sql.statement import Fetch, InsertMany, Now, Work

RECENT: Final = 60 * SECOND
"""Ids of a moment that is longer ago than this are given to no further run."""
_COLUMNS: Final = (
    *("id", "task_id", "task_version", "origin", "status", "scheduled_time", "run_at", "created_at", "updated_at"),
    *("queue", "priority", '"key"', "attempt", "retry_count", "lost_count", "skip_reason", "trouble", "start_time"),
    *("end_time", "response_code", "error_message", "trace_id"),
)
_IDS_OF_A_SECOND: Final = 1_000 << 12
_NUMBER: Final = re.compile(r"([0-9]{1,15})$", re.ASCII)


def import_runs(q: Dialect, runs: Sequence[PastRun]) -> Work[list[PastRunOutcome]]:
    """What becomes of each, in their order. Raises InvalidState while the figures are counted again from history."""
    now = yield Now()
    phase, cleaned_to = (yield Fetch(f"select phase, cleaned_to from rollup_state where one = 1{q.lock}"))[0]
    if phase > 0:
        raise InvalidState("the statistics are being rebuilt from history; import when that is done")
    outcomes: list[PastRunOutcome] = []
    wanted: dict[tuple[int, str], PastRun] = {}
    for run in runs:
        outcome = _outcome_by_time(run, now, cleaned_to)
        if outcome is PastRunOutcome.IMPORTED and (run.task_id, run.key) in wanted:
            outcome = PastRunOutcome.KNOWN
        if outcome is PastRunOutcome.IMPORTED:
            wanted[run.task_id, run.key] = run
        outcomes.append(outcome)
    ids = yield from _free_ids(q, wanted)
    new = [(ids[name], run) for name, run in wanted.items() if name in ids]
    if new:
        yield InsertMany("runs", _COLUMNS, [_row(run_id, run) for run_id, run in new])
        yield from write_texts(
            [(id_, run.attempt, *texts_of(run.bodies)) for id_, run in new if run.bodies is not None]
        )
        yield from _note([_fact(run) for _, run in new])
    seen: set[tuple[int, str]] = set()
    for place, run in enumerate(runs):
        name = (run.task_id, run.key)
        if outcomes[place] is PastRunOutcome.IMPORTED and (name not in ids or name in seen):
            outcomes[place] = PastRunOutcome.KNOWN
        seen.add(name)
    return outcomes


def _outcome_by_time(run: PastRun, now: Instant, cleaned_to: int) -> PastRunOutcome:
    if run.end_time > now - RECENT:
        return PastRunOutcome.RECENT
    return PastRunOutcome.REMOVED if run.end_time < cleaned_to else PastRunOutcome.IMPORTED


def _free_ids(q: Dialect, wanted: dict[tuple[int, str], PastRun]) -> Work[dict[tuple[int, str], int]]:
    """An id for each of those that are not there yet."""
    given: dict[int, tuple[int, str]] = {}
    waiting = [(_first_id(run), name) for name, run in wanted.items()]
    while waiting:
        rows = yield from q.fetch_by('select id, task_id, origin, "key" from runs', "id", {id_ for id_, _ in waiting})
        taken = {row[0]: (row[1], row[3]) if row[2] == Origin.IMPORT else None for row in rows}
        tried, waiting = waiting, []
        for id_, name in tried:
            if id_ in taken and taken[id_] == name:
                continue
            if id_ in taken or id_ in given:
                waiting.append((id_ + 1, name))
            else:
                given[id_] = name
    return {name: id_ for id_, name in given.items()}


def _first_id(run: PastRun) -> int:
    second = run.created_at - run.created_at % SECOND
    found = _NUMBER.search(run.key)
    number = int(found[1]) if found else int.from_bytes(hashlib.sha256(run.key.encode()).digest()[:6])
    return max(1, floor_at(second) + number % _IDS_OF_A_SECOND)


def _row(run_id: int, run: PastRun) -> tuple[Any, ...]:
    return (
        *(run_id, run.task_id, run.task_version, Origin.IMPORT, run.status, run.scheduled_time, run.scheduled_time),
        *(run.created_at, run.end_time, run.queue, 0, run.key, run.attempt, max(0, run.attempt - 1), 0),
        SkipReason.CONCURRENCY if run.status is RunStatus.SKIPPED else None,
        None if run.status in SUCCEEDED else run.status,
        *(run.start_time, run.end_time, run.response_code, run.error_message, run.trace_id),
    )


def _fact(run: PastRun) -> Fact:
    times = (run.scheduled_time, run.created_at, run.start_time, run.end_time)
    return fact(run.task_id, run.queue, None, run.status, Origin.IMPORT, None, run.attempt, times)


def _note(facts: Sequence[Fact]) -> Work[None]:
    """Figures that are not added up yet are found by the moment of their row: one for each minute."""
    by_minute: dict[int, list[Fact]] = defaultdict(list)
    for each in facts:
        by_minute[MINUTE.begin(each.end_time)].append(each)
    for each_minute in by_minute.values():
        yield from rollups.note_facts(each_minute)
