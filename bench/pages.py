"""Every list of the dashboard and of the API, over HTTP, with 5,000 tasks and a million runs in the store.

python -m bench.pages sqlite --url FILE [--passes 7]       a store that `bench.filling` has filled; keeps it
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from bench import databases, filling, month, ours
from bench.events import spent
from bench.http import Served, serving
from bench.lag import percentile
from bench.rounds import Failed, progress, run
from bench.tables import NONE, markdown
from noonbell.model.run import RunStatus
from noonbell.service.filters import cursor_at
from noonbell.stores.sql.ids import floor_at

GOALS: Final = {"postgres": 300.0, "sqlite": 500.0}
"""Milliseconds that a list may take."""
PASSES: Final = 7
"""Requests for each page in a round, after the first."""
PATIENCE: Final = 1_800.0
_LISTED: Final = ("data-row=", '"items":[{')


@dataclass(frozen=True)
class Size:
    tasks: int
    runs: int


FULL: Final = Size(tasks=5_000, runs=1_000_000)
QUICK: Final = Size(tasks=5_000, runs=50_000)


@dataclass
class Timed:
    """Milliseconds until the last byte of each answer."""

    path: str
    cold: float = 0.0
    warm: list[float] = field(default_factory=list)
    cpu: float = 0.0
    """Milliseconds of processor that the server and the database's processes had for all warm ones together."""
    problem: str = ""

    def row(self, goal: float) -> list[str]:
        if self.problem or not self.warm:
            return [f"`{self.path}`", *[NONE] * 5, self.problem or "no answer"]
        most = percentile(self.warm, 95)
        verdict = "met" if most <= goal else "**missed**"
        times = (median(self.warm), most, max(self.warm), self.cold, self.cpu / len(self.warm))
        return [f"`{self.path}`", *(f"{one:,.0f}" for one in times), verdict]


def table(size: Size, rounds: int) -> str:
    text = f"{size.tasks:,} tasks, {size.runs:,} runs. Each page once when the server has just started (cold), then "
    text += f"{PASSES * rounds} times, one page after the other; milliseconds until the last byte, HTTP and rendering included. "
    text += "CPU is that of the server and of the database's processes that serve it. Judged by the 95th percentile."
    for store in GOALS:
        title = databases.TITLES[store]
        try:
            version = databases.server_version(store)
        except Exception as problem:
            progress(f"SKIPPED: {title} does not answer: {problem}")
            continue
        try:
            with databases.fresh(store) as place:
                progress(f"{title}: filling")
                command = [sys.executable, "-m", "bench.filling", store, "--url", place]
                run([*command, "--tasks", str(size.tasks), "--runs", str(size.runs)], PATIENCE)
                before = os.getloadavg()[0]
                found = measure(store, place, PASSES * rounds)
        except Failed as failure:
            progress(f"FAILED: {title}: {failure}")
            continue
        text += f"\n\n### {title} {version}: ≤ {GOALS[store]:.0f} ms\n\n{shown(found, GOALS[store])}"
        text += f" Load {before:.1f} before, {os.getloadavg()[0]:.1f} after; the bench itself is about 1."
    return text


def shown(found: list[Timed], goal: float) -> str:
    head = ["page", "median, ms", "p95", "slowest", "cold", "CPU", f"≤ {goal:.0f} ms"]
    met = sum(row.row(goal)[-1] == "met" for row in found)
    return markdown(head, [one.row(goal) for one in found], right=(1, 2, 3, 4, 5)) + f"\n\n{met} of {len(found)} met."


def measure(store: str, place: str, passes: int) -> list[Timed]:
    facts = ours.run(facts_of(store, place))
    with serving(store, place, "--no-worker") as served:
        return ours.run(ask_all(Meter(served, store, place), list(pages(facts)), passes))


async def facts_of(store: str, place: str) -> dict[str, Any]:
    """What the addresses of some pages need."""
    busy = f"(select id from tasks where live_name = '{filling.BUSY}')"
    names = {
        "busy": f"select max(id) from tasks where live_name = '{filling.BUSY}'",
        "runs": "select max(id) from runs",
        "run": f"select max(a.run_id) from attempts a join runs r on r.id = a.run_id where r.task_id = {busy}",
    }
    return {name: await ours.scalar(store, place, sql) for name, sql in names.items()}


def pages(facts: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Paths, and whether what they list must be found."""
    for path in ("/", "/queues", "/workers", "/activity", "/activity?actor=user-7", "/settings"):
        yield path, path.startswith("/activity")
    yield from task_pages()
    yield f"/tasks/{facts['busy']}", True
    yield f"/runs/{facts['run']}", False
    for span in ("1h", "6h", "24h", "7d"):
        yield f"/timeline?span={span}", False
    yield "/timeline?name=invoices", False
    yield from run_pages(facts)
    yield from calls(facts)


def task_pages() -> Iterator[tuple[str, bool]]:
    yield "/tasks", True
    for query in ("name=invoices", "name=no+such+name", "label=team%3Dbilling", "label=tier%3Dgold", "queue=reports"):
        yield f"/tasks?{query}", "no+such" not in query
    for status in ("ENABLED", "DISABLED", "ERROR"):
        yield f"/tasks?status={status}", True
    for sort in ("-name", "next_fire_at", "-updated_at", "-created_at"):
        yield f"/tasks?sort={sort}", True
    yield "/tasks?page=200", True
    yield "/search?q=invoices", True


def run_pages(facts: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    busy = facts["busy"]
    yield "/runs", True
    for status in RunStatus:
        yield f"/runs?status={status}", True
    for group in ("FAILED,TIMEOUT,FAILED_TIMEOUT", "RUNNING,RETRYING", "SUCCESS,CALLBACK_SUCCESS", "SKIPPED,CANCELED"):
        yield f"/runs?status={group}", True
    yield f"/runs?task={busy}", True
    for statuses in ("FAILED", "SUCCESS", "FAILED,TIMEOUT,FAILED_TIMEOUT", "CALLBACK_PENDING"):
        yield f"/runs?task={busy}&status={statuses}", statuses != "CALLBACK_PENDING"
    for query in (
        *("queue=reports", f"queue={filling.RARE_QUEUE}", "queue=nobody", "queue=reports&status=FAILED"),
        *("worker=worker-7", "worker=nobody", f"worker={month.RARE_WORKER}", "worker=worker-7&status=RUNNING"),
        *("label=team%3Dbilling", "label=tier%3Dgold", "label=tier%3Dgold&status=FAILED", "label=tier%3Dnone"),
        *("text=invoices", "text=answered+503", f"text={quote(month.RARE_ERROR)}", "text=no+such+text"),
        *("key=nobody", "origin=trigger", "origin=backfill"),
    ):
        is_rare = any(word in query for word in ("nobody", "none", "no+such", month.RARE_WORKER))
        yield f"/runs?{query}", not is_rare
    for past, length in ((1, 1), (7, 1), (20, 1), (20, 20)):
        yield f"/runs?from={_before(past)}&to={_before(past - length)}", True
    yield f"/runs?to={_before(25)}", True
    yield f"/runs?from={_before(20)}&to={_before(19)}&status=FAILED", True
    deep = cursor_at("-id", floor_at(time.time_ns() // 1_000 - 20 * month.DAY))
    yield f"/runs?cursor={deep}", True
    yield f"/runs?cursor={deep}&status=FAILED", True


def calls(facts: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The lists of the API."""
    deep = cursor_at("-id", floor_at(time.time_ns() // 1_000 - 20 * month.DAY))
    for path in (
        *("/tasks", "/tasks?page_size=100", "/tasks?name=invoices", "/tasks?label=team%3Dbilling", "/tasks?page=250"),
        *(
            "/runs",
            "/runs?page_size=100",
            "/runs?page=400",
            f"/runs?cursor={deep}",
            f"/runs?sort=scheduled_time&from={_before(1)}",
        ),
        *("/runs?status=FAILED", "/runs?status=SUCCESS", "/runs?status=CALLBACK_PENDING", "/runs?queue=reports"),
        *("/runs?worker=worker-7", "/runs?label=team%3Dbilling", "/runs?text=answered"),
        f"/runs?from={_before(1)}",
        *(f"/tasks/{facts['busy']}/runs", f"/tasks/{facts['busy']}/runs?status=FAILED"),
        *("/queues", "/queues/reports/dead", "/workers", "/audit", "/stats"),
    ):
        yield f"/api/v1{path}", "/stats" not in path


def _before(days: int) -> str:
    return f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"


class Meter:
    """The processor time of the server, and of the database's processes that serve it."""

    def __init__(self, served: Served, store: str, place: str) -> None:
        self.served, self._store, self._place = served, store, place
        self._pids: list[int] = []

    async def look(self) -> None:
        """Who they are: the server opens connections as it needs them."""
        if self._store == "postgres":
            sql = (
                "select pid from pg_stat_activity where datname = current_database() and application_name = 'noonbell'"
            )
            self._pids = [row[0] for row in await ours.execute(self._store, self._place, [sql])]

    def milliseconds(self) -> float:
        return ((self.served.cpu_seconds() or 0.0) + sum(spent(pid) for pid in self._pids)) * 1_000


async def ask_all(meter: Meter, wanted: list[tuple[str, bool]], passes: int) -> list[Timed]:
    found = [Timed(path) for path, _ in wanted]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        for number in range(passes + 1):
            progress(f"pass {number} of {passes} over {len(found)} pages")
            await meter.look()
            for timed, (_, must_find) in zip(found, wanted, strict=True):
                if timed.problem:
                    continue
                before = meter.milliseconds()
                took, timed.problem = await ask(session, meter.served.url + timed.path, must_find)
                if number:
                    timed.warm.append(took)
                    timed.cpu += meter.milliseconds() - before
                else:
                    timed.cold = took
    return found


async def ask(session: aiohttp.ClientSession, address: str, must_find: bool) -> tuple[float, str]:
    start = time.perf_counter()
    try:
        async with session.get(address, headers={"accept": "text/html, application/json"}) as answer:
            text = await answer.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        return 0.0, f"**{type(error).__name__}**"
    took = (time.perf_counter() - start) * 1_000
    if answer.status != 200:
        return took, f"**{answer.status}**"
    if must_find and not any(mark in text for mark in _LISTED):
        return took, "**found nothing**"
    return took, ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages")
    parser.add_argument("store", choices=list(GOALS))
    parser.add_argument("--url", required=True)
    parser.add_argument("--passes", type=int, default=PASSES)
    args = parser.parse_args()
    print(shown(measure(args.store, args.url, args.passes), GOALS[args.store]), flush=True)


if __name__ == "__main__":
    main()
