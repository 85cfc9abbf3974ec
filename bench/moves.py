"""`noonbell move` with a long history while slots fire: from SQLite to PostgreSQL, and from PostgreSQL to MariaDB.

The history is poured into the first store: runs that were published and have ended, with inputs, bodies, attempts and events for a share of
them. Each move is killed in the middle of the copy, and given again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import databases, ours
from bench.filling import writer
from bench.http import Arrival, Sink, serving, sinking
from bench.lag import slot_of, verdict
from bench.results import staged
from bench.rounds import Failed, progress
from bench.speed.scale import Scale
from bench.tables import line
from noonbell import when
from noonbell.clock import SECOND, SystemClock
from noonbell.model.target_kind import ExecType
from noonbell.model.task import MisfirePolicy, TaskSpec
from noonbell.stores.sql.ids import floor_at

FIRING = 20
"""Tasks that have a slot each second."""
GOAL = 5.0
"""Seconds that the pause may take."""
CAUGHT_UP = 120
"""Seconds, at most, until the slots that came due during the stop have arrived: what has not by then is lost."""
EQUAL = "equal on both sides"
"""What the audit says where nothing differs."""
COMMAND = str(Path(sys.executable).with_name("noonbell"))
_BATCH = 50_000
_COLUMNS = {
    "runs": (
        *("id", "task_id", "task_version", "origin", "status", "scheduled_time", "run_at", "created_at", "updated_at", "queue"),
        *("priority", "attempt", "retry_count", "lost_count", "start_time", "end_time", "response_code", "trace_id"),
    ),
    "inputs": ("run_id", "payload", "overrides"),
    "bodies": ("run_id", "attempt", "request_headers", "request_body", "response_headers", "response_body", "truncated"),
    "attempts": ("run_id", "attempt", "status", "start_time", "end_time", "response_code"),
    "events": ("id", "seq", "at", "type", "data"),
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    tasks: int
    runs: int


BY_SCALE = {
    Scale.FULL: Size(tasks=5_000, runs=1_000_000),
    Scale.QUICK: Size(tasks=200, runs=20_000),
    Scale.SMOKE: Size(tasks=50, runs=2_000),
}


@dataclass(frozen=True)
class Leg:
    rows: int
    again: int
    seconds: float
    drained: float
    pause: float
    rest: int
    audit: str
    lost: int = -1
    doubled: int = -1
    due: int = -1
    """Slots, from the first to the last that arrived at the target."""

    @property
    def is_as_wanted(self) -> bool:
        kept = (self.lost, self.doubled) == (0, 0) and self.audit == EQUAL
        return self.pause <= GOAL and kept

    @property
    def cells(self) -> list[str]:
        times = [f"{self.seconds:.0f} s", f"{self.drained:.1f} s", f"{self.pause:.2f} s"]
        counts = [f"{self.rest:,}", f"{self.due:,}", str(self.lost), str(self.doubled)]
        return [f"{self.rows:,}", f"{self.again:,}", *times, *counts, self.audit, verdict(self.is_as_wanted)]


STAGES = {"sqlite-to-postgres": ("sqlite", "postgres"), "postgres-to-mariadb": ("postgres", "mariadb")}
"""By name: from, to."""
HEAD = (
    *("from, to", "rows", "copied again", "copy", "drain", "pause", "rows in it"),
    *("slots meanwhile", "lost", "doubled", "audit", f"pause ≤ {GOAL:g} s, 0 lost, 0 doubled, equal"),
)


def table(lines: Mapping[str, Sequence[str]]) -> str:
    return staged(HEAD, STAGES, lines, right=range(1, 10))


def measure(name: str, scale: Scale, rounds: int) -> list[str]:
    size = BY_SCALE[scale]
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f}{scale.said}"
    leg = move(*STAGES[name], size)
    how = "killed once after a quarter of the copy, and given again"
    return [line([name, *leg.cells]), f"- {name}: {began}; {size.tasks:,} tasks, {size.runs:,} runs; {how}."]


def move(source: str, to: str, size: Size) -> Leg:
    with ExitStack() as stack:
        places = {store: stack.enter_context(databases.fresh(store)) for store in (source, to)}
        sink = stack.enter_context(sinking())
        progress(f"move: filling a store with {size.tasks:,} tasks and {size.runs:,} runs")
        asyncio.run(_fill(source, places[source], sink, size))
        leg = _leg(places, sink, source, to)
        progress("move: what came due meanwhile arrives")
        since = time.time()
        with serving(to, places[to]):
            while not _has_all(arrivals := sink.arrivals(), since) and time.time() < since + CAUGHT_UP:
                time.sleep(1)
        lost, doubled, due = _account(arrivals)
        return replace(leg, lost=lost, doubled=doubled, due=due)


def _has_all(arrivals: Sequence[Arrival], since: float) -> bool:
    """Whether slots of later than this have arrived, and none before them is missing."""
    return max(map(slot_of, arrivals)) > since + 5 and not _account(arrivals)[0]


async def _fill(kind: str, url: str, sink: Sink, size: Size) -> None:
    store = ours.build(kind, url)
    await store.open()
    every_second, daily = ({"type": "cron", "expr": text} for text in ("*/1 * * * * *", "30 2 * * *"))
    for number in range(size.tasks):
        fires = number < FIRING
        spec = TaskSpec(
            name=f"task {number}",
            exec_type=ExecType.SYNC,
            target_url=f"{sink.url}/slot",
            labels={"team": f"team {number % 9}"},
            schedule=when.normalise(every_second if fires else daily),
            misfire_policy=MisfirePolicy.CATCH_UP_LIMITED,
            catchup_limit=1_000,
        )
        await store.create_task(spec)
    await store.close()
    async with writer(kind, url) as write:
        for poured in _history(size):
            for name, rows in poured.items():
                await write(name, _COLUMNS[name], rows)
    await ours.execute(kind, url, [f"update counters set value = {size.runs} where name = 'events'"])


def _history(size: Size) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
    now, step = SystemClock().now(), 2 * SECOND
    for start in range(0, size.runs, _BATCH):
        poured: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _COLUMNS}
        for number in range(start, min(start + _BATCH, size.runs)):
            at = int(now) - (size.runs - number) * step
            run_id, task = floor_at(at) + number % 4_096, FIRING + 1 + number % (size.tasks - FIRING)
            poured["runs"].append(
                (
                    run_id,
                    task,
                    1,
                    "publish",
                    "SUCCESS",
                    at,
                    at,
                    at,
                    at + SECOND,
                    "http",
                    0,
                    1,
                    0,
                    0,
                    at,
                    at + SECOND,
                    200,
                )
                + (f"{run_id:032x}",)
            )
            poured["events"].append((run_id, number + 1, at, "run.succeeded", f'[[{task}, {run_id}, "SUCCESS"]]'))
            if number % 10 == 0:
                poured["inputs"].append((run_id, '{"customer": 4711, "since": "2026-11-01"}', None))
            if number % 5 == 0:
                poured["bodies"].append((run_id, 1, "{}", '{"day": "2026-11-01"}', "{}", "n" * 300, 0))
            if number % 33 == 0:
                poured["attempts"].append((run_id, 1, "FAILED", at, at + SECOND, 503))
        yield poured


def _leg(places: dict[str, str], sink: Sink, source: str, to: str) -> Leg:
    title = f"{databases.TITLES[source]} → {databases.TITLES[to]}"
    command = [COMMAND, "move", "--from", _url(source, places[source]), "--to", _url(to, places[to])]
    with serving(source, places[source]):
        sink.wait_for(sink.span()[0] + 3 * FIRING, 60)
        progress(f"move: {title}")
        began = time.monotonic()
        _kill(title, command)
        moved = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert moved.stdout is not None
        told: list[str] = []
        seconds = 0.0
        for said in moved.stdout:
            told.append(said)
            seconds = seconds or time.monotonic() - began
        if moved.wait() != 0:
            raise Failed(f"{title}: {''.join(told)}")
        moved.stdout.close()
    leg = _read(title, "".join(told), seconds)
    progress(f"move: {leg}")
    return leg


def _kill(title: str, command: Sequence[str]) -> None:
    """Begin the move, and kill it after a quarter of the copy."""
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert killed.stderr is not None
    if not any("25 %" in said for said in killed.stderr):
        raise Failed(f"{title}: it was to be killed after a quarter of the copy, and has ended")
    killed.kill()
    killed.wait()
    killed.stderr.close()


def _read(title: str, text: str, seconds: float) -> Leg:
    copied = re.search(r"copied (\d+) rows .*, (\d+) of them", text)
    cut = re.search(r"drained for ([\d.]+) s.*; pause ([\d.]+) s, in which (\d+) rows", text)
    if copied is None or cut is None:
        raise Failed(f"{title}: {text}")
    audit = text.strip().splitlines()[-1].removeprefix("audit: ")
    drained, pause, rest = float(cut[1]), float(cut[2]), int(cut[3])
    return Leg(int(copied[1]), int(copied[2]), seconds - drained - pause, drained, pause, rest, audit)


def _url(store: str, place: str) -> str:
    return f"sqlite:///{place}" if store == "sqlite" else place


def _account(arrivals: Sequence[Arrival]) -> tuple[int, int, int]:
    """(lost, doubled, due) of the slots from the first to the last that arrived, task by task."""
    slots: dict[int, Counter[int]] = {}
    for arrival in arrivals:
        slots.setdefault(arrival.task, Counter())[slot_of(arrival)] += 1
    lost = sum(max(each) - min(each) + 1 - len(each) for each in slots.values())
    doubled = sum(each.total() - len(each) for each in slots.values())
    return lost, doubled, sum(max(each) - min(each) + 1 for each in slots.values())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.moves", description="One move.")
    parser.add_argument("source", choices=["sqlite", "postgres"])
    parser.add_argument("to", choices=databases.STORES)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    scale = Scale.QUICK if args.quick else Scale.FULL
    print(move(args.source, args.to, BY_SCALE[scale]))


if __name__ == "__main__":
    main()
