"""The pages of queues and workers: state, load and throughput; pause, limit, drain, redrive and clean a queue; drain, resume,
stop, change and forget a worker.

Redrive and clean show how many runs they would change before they change them. Throughput is of the runs that ended in each of
the last ten minutes, from the roll-ups; skipped ones do not count.

How a queue or a worker did hour by hour, over the last day, is from the roll-ups too, which count a run in the hour in which it
ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import Response

from noonbell.clock import SECOND, Instant, from_datetime
from noonbell.errors import InvalidArgument, NotFound
from noonbell.fields.problems import Problems
from noonbell.model.access import Role
from noonbell.model.request import RunQuery
from noonbell.model.rollup import HOUR, MINUTE, Figures, QueueDepth, RollUp, Scope, Stretch, stretch_of
from noonbell.model.run import FINAL, SUCCEEDED, Run, RunId, RunStatus
from noonbell.model.target_kind import COMMAND_TYPE, HTTP_QUEUE, OWN_QUEUES
from noonbell.model.worker import Lack, WorkerState
from noonbell.ports import Store
from noonbell.service.cleaning import MOST_CLEANED
from noonbell.service.filters import from_the_top
from noonbell.service.pauses import MOST_REASON
from noonbell.service.queues import DEAD
from noonbell.service.runs import BULK_LIMIT
from noonbell.service.time_series import busy_share, seconds_at_work
from noonbell.settings.kinds import shown_store_address
from noonbell.targets.jobs.builtin import DATA_CLEANUP
from noonbell.web.charts import Bar, Bars, bars
from noonbell.web.context import PageContext, as_json, one_of
from noonbell.web.explanation import refusal
from noonbell.web.forms import read_json_box, whole
from noonbell.web.page import Handler, get, post
from noonbell.web.recent import newest_runs

Row = TypeVar("Row")

_KEYS: Final = 10
"""Keys of calls that the page of a queue lists."""
_MOST_DEAD: Final = 10


@dataclass(frozen=True, slots=True)
class QueueRow:
    queue: dict[str, Any]
    path: str
    """Where it is in the dashboard."""
    served_by: int
    pace: Throughput
    command: str
    """What starts a worker for it."""

    @property
    def lacking(self) -> dict[str, list[dict[str, Any]]]:
        """By what its workers lack, though there are some: the runs that wait for it."""
        found: dict[str, list[dict[str, Any]]] = {}
        for one in self.queue["unserved"]:
            if one["lack"] != Lack.QUEUE:
                found.setdefault(one["lack"], []).append(one)
        return found

    @property
    def alone(self) -> int:
        """Runs that wait for a worker of the queue. Those of servers carry out its calls, and nothing else of it."""
        if self.queue["paused"]:
            return 0
        without = sum(int(one["count"]) for one in self.queue["unserved"] if one["lack"] == Lack.QUEUE)
        return without if self.served_by else int(self.queue["waiting"])


def queue_path(name: str, act: str = "") -> str:
    return f"/queues/{quote(name, safe='')}{act}"


QUEUE_ORDERS: Final[dict[str, Callable[[QueueRow], Any]]] = {
    "name": lambda row: row.queue["name"],
    "waiting": lambda row: row.queue["waiting"],
    "oldest_at": lambda row: row.queue["oldest_at"] if row.queue["waiting"] else None,
    "delayed": lambda row: row.queue["delayed"],
    "running": lambda row: row.queue["running"],
    "per_minute": lambda row: row.pace.per_minute,
    "workers": lambda row: row.served_by,
}
_QUEUE_COLUMNS: Final = {
    "col.queue": "name",
    "col.waiting": "waiting",
    "col.oldest": "oldest_at",
    "col.delayed": "delayed",
    "col.running": "running",
    "col.pace": "per_minute",
    "col.workers": "workers",
}


def in_order(ctx: PageContext, rows: list[Row], orders: Mapping[str, Callable[[Row], Any]]) -> tuple[list[Row], str]:
    """The rows as `?sort=` wants them, those without a value last, and what it wants; without it as they are."""
    sort = ctx.query.get("sort", "")
    if not sort:
        return rows, ""
    value = orders[one_of("sort", sort.removeprefix("-"), orders)]
    known = [row for row in rows if value(row) is not None]
    known.sort(key=value, reverse=sort.startswith("-"))
    return known + [row for row in rows if value(row) is None], sort


async def show_queues(ctx: PageContext) -> Response:
    services = ctx.services
    rows, sort = in_order(ctx, await rows_of(ctx, await services.queues.all()), QUEUE_ORDERS)
    rejected = await services.callbacks.rejected(20)
    more: dict[str, Any] = {"refusal": refusal, "spark": spark, "orders": _QUEUE_COLUMNS, "sort": sort}
    return ctx.page("queues.html", rows=rows, own_queues=OWN_QUEUES, rejected=rejected, **more)


async def rows_of(ctx: PageContext, queues: Sequence[dict[str, Any]]) -> list[QueueRow]:
    services = ctx.services
    workers, with_calls = await services.workers.all(), await services.store.call_queues()
    found = await throughputs(services.store, Scope.QUEUE, ctx.now)
    return [
        QueueRow(
            queue=queue,
            path=queue_path(queue["name"]),
            served_by=served_by(queue["name"], workers, queue["name"] in with_calls),
            pace=found.get(queue["name"], Throughput()),
            command=start_command(ctx, queue["name"]),
        )
        for queue in queues
    ]


def served_by(queue: str, workers: Sequence[dict[str, Any]], has_calls: bool) -> int:
    """How many workers take runs from it now. Those that call HTTP targets take the calls of every queue."""
    wanted = {queue, HTTP_QUEUE} if has_calls else {queue}
    return sum(worker["state"] == "running" and not wanted.isdisjoint(worker["queues"]) for worker in workers)


async def show_one(
    ctx: PageContext, problems: dict[str, str] | None = None, given: dict[str, str] | None = None
) -> Response:
    """`problems` and `given`: of a form of this page that was refused."""
    name, services = ctx.piece("name"), ctx.services
    (row,) = await rows_of(ctx, [await services.queues.get(name)])
    dead = RunQuery(queue=name, status=DEAD, page_size=_MOST_DEAD, cursor=from_the_top("-id"))
    return ctx.page(
        "queue.html",
        400 if problems else 200,
        row=row,
        own_queues=OWN_QUEUES,
        spark=spark,
        dead=(await services.runs.page(dead)).items,
        dead_statuses=",".join(DEAD),
        problems=problems or {},
        limits=given or _limits(row.queue),
        key_lines=await services.calls.key_lines(name, _KEYS),
        day=await last_day(services.store, Scope.QUEUE, name, ctx.now),
        depth=await depth_of_day(services.store, name, ctx.now),
        clock_of=lambda at: f"{ctx.zone.local(at // SECOND):%H:%M}",
    )


DEPTH_STEP: Final = 30 * MINUTE.length
DEPTH_STEPS: Final = 48


@dataclass(frozen=True, slots=True)
class DepthChart:
    """How many runs waited at most in each half hour of the last day."""

    since: Instant
    bars: Bars
    found: dict[int, QueueDepth]
    """By where the half hour begins; without those that have no sample."""

    @property
    def gaps(self) -> list[int]:
        return [column.start for column in self.bars.columns if column.start not in self.found]

    @property
    def most(self) -> int:
        return max([each.most for each in self.found.values()], default=0)

    @property
    def longest_wait(self) -> int:
        return max([each.longest_wait for each in self.found.values()], default=0)


async def depth_of_day(store: Store, name: str, now: Instant) -> DepthChart:
    since = Instant(now - now % DEPTH_STEP - (DEPTH_STEPS - 1) * DEPTH_STEP)
    found = await store.queue_depths(name, since, Instant(now + 1), MINUTE, DEPTH_STEP)
    by_start = {int(each.at): each for each in found}
    starts = range(since, now + 1, DEPTH_STEP)
    counts = [(at, {"waiting": by_start[at].most} if at in by_start and by_start[at].most else {}) for at in starts]
    return DepthChart(since, bars(counts), by_start)


def _limits(queue: dict[str, Any]) -> dict[str, str]:
    rate = queue["rate_limit"] or {}
    return {
        "concurrency": "" if queue["concurrency"] is None else str(queue["concurrency"]),
        "max": str(rate.get("max", "")),
        "per_seconds": f"{rate['per_seconds']:g}" if rate else "",
        "quiet": as_json(queue["quiet"]) if queue["quiet"] else "",
        "spread_seconds": str(queue["spread_seconds"] or ""),
    }


async def pause(ctx: PageContext) -> Response:
    name, given = ctx.piece("name"), await ctx.fields()
    reason = given.get("reason", "").strip()[:MOST_REASON]
    given_reason = {"reason": reason} if reason else {}  # none leaves that of a pause that lasts
    await ctx.services.queues.pause(name, given_reason, by=ctx.actor)
    ctx.subject, ctx.details = f"/queues/{name}", given_reason
    return ctx.done(ctx.words("queue.paused", name=name), _back(ctx, given), undo=queue_path(name, "/resume"))


async def resume(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    await ctx.services.queues.resume(name, by=ctx.actor)
    ctx.subject = f"/queues/{name}"
    return ctx.done(ctx.words("queue.resumed", name=name), _back(ctx, await ctx.fields()))


def _back(ctx: PageContext, given: dict[str, str]) -> str:
    """To the page that the button was on."""
    return queue_path(ctx.piece("name")) if given.get("from") == "queue" else "/queues"


async def limit(ctx: PageContext) -> Response:
    """Both limits of a queue, as the form says them; an empty field is no limit."""
    name, given = ctx.piece("name"), await ctx.fields()
    try:
        wanted = _wanted(given)
        await ctx.services.queues.limit(name, wanted, by=ctx.actor)
    except InvalidArgument as error:
        if ctx.wants_json:
            raise
        problems = {_box_of(field): problem for field, problem in error.sentences.items()}
        return await show_one(ctx, problems, {field: given.get(field, "") for field in _LIMIT_BOXES})
    ctx.subject, ctx.details = f"/queues/{name}", wanted
    return ctx.done(ctx.words("queue.limited", name=name), queue_path(name))


def _box_of(field: str) -> str:
    return "quiet" if field.startswith("quiet") else field.rpartition(".")[2]


_LIMIT_BOXES: Final = ("concurrency", "max", "per_seconds", "quiet", "spread_seconds")


def _wanted(given: dict[str, str]) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if given.get("concurrency", "").strip():
        wanted["concurrency"] = whole("concurrency", given["concurrency"])
    if given.get("max", "").strip():
        wanted["rate_limit"] = {
            "max": whole("max", given["max"]),
            "per_seconds": whole("per_seconds", given.get("per_seconds") or "1"),
        }
    if given.get("quiet", "").strip():
        problems = Problems()
        wanted["quiet"] = read_json_box("quiet", given["quiet"], problems)
        problems.finish()
    if given.get("spread_seconds", "").strip():
        wanted["spread_seconds"] = whole("spread_seconds", given["spread_seconds"])
    return wanted


DAYS: Final = (0, 1, 7, 30, 90, 365)
KINDS: Final[dict[str, tuple[RunStatus, ...]]] = {
    "all": tuple(sorted(FINAL)),
    "succeeded": tuple(sorted(SUCCEEDED)),
    "failed": DEAD,
    "others": (RunStatus.CANCELED, RunStatus.SKIPPED),
}
"""What to remove, in words."""


async def drain(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    done = await ctx.services.queues.drain(name, by=ctx.actor)
    ctx.subject, ctx.details = f"/queues/{name}", {"canceled": done.canceled}
    return ctx.done(ctx.words("queue.drained", name=name, n=done.canceled), queue_path(name))


# Run again what failed for good


async def ask_redrive(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    found = await ctx.services.runs.sample(ctx.services.queues.dead(name, RunQuery()))
    return ctx.page(
        "queue_redrive.html",
        name=name,
        path=queue_path(name),
        found=found,
        most=BULK_LIMIT,
        statuses=",".join(DEAD),
    )


async def redrive(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    done = await ctx.services.queues.redrive(name, RunQuery(), by=ctx.actor)
    ctx.subject, ctx.details = f"/queues/{name}", {"matched": done.matched, "retried": done.retried}
    text = ctx.words("queue.redriven", n=done.retried, matched=done.matched, left=done.matched - done.retried)
    if done.more:
        text = f"{text} {ctx.words('queue.more')}"
    return ctx.done(text, go=f"/runs?{urlencode({'queue': name, 'origin': 'retry'})}")


# Remove what is over


async def ask_clean(ctx: PageContext) -> Response:
    return await _clean_page(ctx, *_asked(ctx.query))


async def _clean_page(ctx: PageContext, days: int, kind: str, problem: str = "") -> Response:
    name = ctx.piece("name")
    before = Instant(ctx.now - days * 86_400 * SECOND)
    found = await ctx.services.runs.sample(RunQuery(queue=name, status=KINDS[kind], until=before))
    return ctx.page(
        "queue_clean.html",
        400 if problem else 200,
        name=name,
        path=queue_path(name),
        found=found,
        most=MOST_CLEANED,
        days=days,
        kind=kind,
        choices=DAYS,
        kinds=list(KINDS),
        problem=problem,
    )


async def clean(ctx: PageContext) -> Response:
    """Requires the queue's name to be typed."""
    name, given = ctx.piece("name"), await ctx.fields()
    days, kind = _asked({"days": "", "kind": "", **given})
    if given.get("typed", "").strip() != name:
        return await _clean_page(ctx, days, kind, ctx.words("confirm.mistyped", name=name))
    wanted = {"older_than_days": days, "status": [str(status) for status in KINDS[kind]]}
    done = await ctx.services.cleanings.clean_queue(name, wanted)
    ctx.subject, ctx.details = f"/queues/{name}", {**wanted, "removed": done.removed}
    text = ctx.words("queue.cleaned", n=done.removed, name=name)
    if done.more:
        text = f"{text} {ctx.words('queue.more')}"
    return ctx.done(text, go=queue_path(name))


def _asked(given: Mapping[str, str]) -> tuple[int, str]:
    days = one_of("days", given.get("days", "30"), map(str, DAYS))
    return int(days), one_of("kind", given.get("kind", "all"), KINDS)


_LOOKED_THROUGH: Final = 1_000
"""The newest runs, among which those are looked for that were taken from a lost worker."""
STEPS: Final = 10
"""Minutes, the present one among them."""


@dataclass(frozen=True, slots=True)
class Throughput:
    went: tuple[int, ...] = (0,) * STEPS
    """Runs that ended in each minute, the oldest first."""
    minutes: float = STEPS
    """How long the stretch is, up to now."""

    @property
    def per_minute(self) -> float:
        return sum(self.went) / self.minutes

    @property
    def per_minute_out(self) -> str:
        return rate_text(self.per_minute)


async def throughputs(store: Store, kind: Scope, now: Instant) -> dict[str, Throughput]:
    """By the name of the queue or the worker; those of which nothing ended are left out."""
    stretch = stretch_of(now - (STEPS - 1) * MINUTE.length, now + 1, now, MINUTE)
    rows = await store.rollups(kind, stretch, step=MINUTE)
    return paces(rows, stretch.since, now)


def paces(rows: Sequence[RollUp], since: int, now: int) -> dict[str, Throughput]:
    went: dict[str, list[int]] = {}
    for row in rows:
        ended = row.figures.runs - row.figures.skipped
        if ended:
            went.setdefault(row.name, [0] * STEPS)[(row.at - since) // MINUTE.length] += ended
    return {name: Throughput(tuple(counts), (now - since) / MINUTE.length) for name, counts in went.items()}


def rate_text(rate: float) -> str:
    """Two digits that count: 0.4, 7.5, 120."""
    return f"{rate:.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def spark(counts: Sequence[int], width: float = 60, height: float = 18) -> list[Bar]:
    """Columns on one line; a step without anything is a dot of it."""
    most, room = max([*counts, 1]), width / max(1, len(counts))
    found = []
    for place, count in enumerate(counts):
        tall = max(1.0, height * count / most)
        found.append(Bar(place * room, height - tall, max(1.0, room - 1.5), tall, "active" if count else "idle"))
    return found


_MOST_LOOKED_AT: Final = 50
"""Runs that came back from lost workers whose attempts are looked at."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker: dict[str, Any]
    path: str
    pace: Throughput
    is_old: bool
    """Another worker on one of its queues has a newer version."""
    requeued: list[RunId]
    """What was in its hands when it was lost, and is with others now: the newest of it."""


_MOST_RUNNING: Final = 20


async def show_worker(ctx: PageContext) -> Response:
    """One worker: what it is, what it holds, and how busy it was over the last day."""
    services = ctx.services
    name = ctx.piece("worker_id")
    held = RunQuery(worker_id=name, status=(RunStatus.RUNNING,), page_size=_MOST_RUNNING, cursor=from_the_top("-id"))
    try:
        worker = await services.workers.get(name)
    except NotFound:
        # It has left, and is still named by what it did: its runs are there.
        if (await services.runs.page(msgspec.structs.replace(held, status=(), page_size=1))).items:
            return ctx.redirect(f"/runs?{urlencode({'worker': name})}")
        raise
    since = from_datetime(datetime.fromisoformat(worker["started_at"]))
    return ctx.page(
        "worker.html",
        worker=worker,
        path=worker_path(worker["id"]),
        running=(await services.runs.page(held)).items,
        day=await last_day(services.store, Scope.WORKER, worker["id"], ctx.now, since, worker["concurrency"]),
    )


WORKER_ORDERS: Final[dict[str, Callable[[WorkerRow], Any]]] = {
    "id": lambda row: row.worker["id"],
    "running": lambda row: row.worker["running"],
    "version": lambda row: row.worker["version"],
    "last_heartbeat_at": lambda row: row.worker["last_heartbeat_at"],
    "per_minute": lambda row: None if row.worker["state"] == "lost" else row.pace.per_minute,
    "started_at": lambda row: row.worker["started_at"],
}


async def show_workers(ctx: PageContext) -> Response:
    services = ctx.services
    workers, found = await services.workers.all(), await throughputs(services.store, Scope.WORKER, ctx.now)
    lost = [one["id"] for one in workers if one["state"] == "lost"]
    requeued = await taken_from(
        services.store, lost, await newest_runs(services, None, _LOOKED_THROUGH) if lost else []
    )
    alive = [worker for worker in workers if worker["state"] != "lost"]
    rows = [
        WorkerRow(
            worker=worker,
            path=worker_path(worker["id"]),
            pace=found.get(worker["id"], Throughput()),
            is_old=worker["version"] < newest_version(worker, alive),
            requeued=requeued.get(worker["id"], []),
        )
        for worker in workers
    ]
    rows, sort = in_order(ctx, rows, WORKER_ORDERS)
    return ctx.page(
        "workers.html",
        rows=rows,
        sort=sort,
        held=sum(worker["running"] for worker in alive),
        places=sum(worker["concurrency"] for worker in alive),
        has_jobs=any(takes_jobs(worker) for worker in alive),
        has_scheduler=await services.workers.has_scheduler(),
        command=start_command(ctx, "default"),
        looked_through=_LOOKED_THROUGH,
        spark=spark,
    )


def worker_path(worker_id: str, act: str = "") -> str:
    return f"/workers/{quote(worker_id, safe='')}{act}"


def newest_version(worker: dict[str, Any], alive: Sequence[dict[str, Any]]) -> int:
    """Among those that share a queue with it."""
    return max([other["version"] for other in alive if set(other["queues"]) & set(worker["queues"])], default=0)


def takes_jobs(worker: dict[str, Any]) -> bool:
    """Whether it runs jobs of an application; every node has workers for HTTP and for the built-in jobs."""
    types = worker["job_types"]
    return not set(worker["queues"]) <= OWN_QUEUES.keys() and (
        types is None or not set(types) <= {DATA_CLEANUP, COMMAND_TYPE}
    )


async def taken_from(store: Store, lost: Sequence[str], runs: Sequence[Run]) -> dict[str, list[RunId]]:
    """For each lost worker, the runs that were taken from it: as far as they are among the newest."""
    found: dict[str, list[RunId]] = {}
    if not lost:
        return found
    for run in [run for run in runs if run.lost_count][:_MOST_LOOKED_AT]:
        holders = {attempt.worker_id for attempt in await store.attempts(run.id) if attempt.status == "LOST"}
        for worker_id in holders.intersection(lost):
            found.setdefault(str(worker_id), []).append(run.id)
    return found


def store_to_name(ctx: PageContext) -> str:
    """The address of the store, for a command in any folder. Only admins see it whole."""
    url = ctx.deps.settings.store.url
    return shlex.quote(shown_store_address(url)) if ctx.may("admin") else f"{url.partition(':')[0]}:…"


def start_command(ctx: PageContext, queue: str) -> str:
    """The command that starts a worker for that queue."""
    where = store_to_name(ctx)
    if queue in OWN_QUEUES:
        return f"noonbell serve --store {where}"
    return f"noonbell worker --app MODULE:APP --queues {shlex.quote(queue)} --store {where}"


def set_to(state: WorkerState, key: str) -> Handler:
    async def handler(ctx: PageContext) -> Response:
        worker_id = ctx.piece("worker_id")
        await ctx.services.workers.set_state(worker_id, state)
        undo = worker_path(worker_id, "/resume") if state is WorkerState.DRAINING else None
        return ctx.done(ctx.words(key, name=worker_id), "/workers", undo=undo)

    return handler


async def forget(ctx: PageContext) -> Response:
    worker_id = ctx.piece("worker_id")
    await ctx.services.workers.forget(worker_id)
    ctx.subject = f"/workers/{worker_id}"
    return ctx.done(ctx.words("worker.forgotten", name=worker_id), "/workers")


async def drain_ticked(ctx: PageContext) -> Response:
    """Drain the ticked workers; one that is gone meanwhile is passed over."""
    ticked = [value for name, value in await ctx.form() if name == "id"]
    if not ticked:
        raise InvalidArgument(ctx.words("bulk.nothing"))
    drained: list[str] = []
    for worker_id in dict.fromkeys(ticked):
        try:
            await ctx.services.workers.set_state(worker_id, WorkerState.DRAINING)
        except NotFound:
            continue
        drained.append(worker_id)
    ctx.subject, ctx.details = "/workers", {"workers": drained}
    return ctx.done(ctx.words("worker.all_drained", n=len(drained)), "/workers")


async def change(ctx: PageContext) -> Response:
    """Another number of places, while it works."""
    worker_id, given = ctx.piece("worker_id"), await ctx.fields()
    wanted = {"concurrency": whole("concurrency", given.get("concurrency", ""))}
    await ctx.services.workers.change(worker_id, wanted)
    ctx.subject, ctx.details = f"/workers/{worker_id}", wanted
    return ctx.done(ctx.words("worker.changed", name=worker_id, n=wanted["concurrency"]), "/workers")


PAGES: Final = [
    get("/queues", show_queues),
    get("/queues/{name}", show_one),
    post("/queues/{name}/pause", pause, "pause_queue"),
    post("/queues/{name}/resume", resume, "resume_queue"),
    post("/queues/{name}/limit", limit, "limit_queue"),
    post("/queues/{name}/drain", drain, "drain_queue"),
    get("/queues/{name}/redrive", ask_redrive, role=Role.OPERATOR),
    post("/queues/{name}/redrive", redrive, "redrive_queue"),
    get("/queues/{name}/clean", ask_clean, role=Role.OPERATOR),
    post("/queues/{name}/clean", clean, "clean_queue"),
    get("/workers", show_workers),
    get("/workers/{worker_id}", show_worker),
    post("/workers/drain", drain_ticked, "drain_worker"),
    post("/workers/{worker_id}/drain", set_to(WorkerState.DRAINING, "worker.drained"), "drain_worker"),
    post("/workers/{worker_id}/resume", set_to(WorkerState.RUNNING, "worker.resumed"), "resume_worker"),
    post("/workers/{worker_id}/stop", set_to(WorkerState.STOPPING, "worker.stopped"), "stop_worker"),
    post("/workers/{worker_id}/change", change, "change_worker"),
    post("/workers/{worker_id}/forget", forget, "forget_worker"),
]


HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour; the last one is not over."""

    at: Instant
    seconds: float
    """How much of it has passed."""
    figures: Figures

    def share_of(self, places: int) -> float:
        """How much of the time of `places` places was spent on runs that ended in this hour; over 1 where they began before."""
        return busy_share(self.figures, places, self.seconds)


@dataclass(frozen=True, slots=True)
class HourlyFigures:
    stretch: Stretch
    hours: list[Hour]
    """The newest first; also those without runs."""
    total: Figures

    def share_of(self, places: int) -> float:
        return busy_share(self.total, places, sum(hour.seconds for hour in self.hours))


async def last_day(
    store: Store, kind: Scope, name: str, now: Instant, since: Instant = Instant(0), places: int = 0
) -> HourlyFigures:
    """`since`, `places`: of a worker, when it started, and how many runs it may execute at once."""
    stretch = stretch_of(now - (HOURS - 1) * HOUR.length, now + 1, now, HOUR)
    rows = await store.rollups(kind, stretch, names=[name], step=HOUR)
    first = min([since, *(row.at for row in rows)])  # a worker may have worked under its name before
    if first > stretch.since:
        stretch = stretch_of(first, now + 1, now, HOUR)
    return day_of(rows, stretch, now, since, places)


def day_of(
    rows: Sequence[RollUp], stretch: Stretch, now: Instant, since: Instant = Instant(0), places: int = 0
) -> HourlyFigures:
    found = {row.at: row.figures for row in rows}
    total = Figures()
    for figures in found.values():
        total.merge(figures)
    steps = range(stretch.since, min(stretch.until, now + 1), HOUR.length)
    figures_of = {at: found.get(at, Figures()) for at in map(Instant, steps)}
    seconds = seconds_at_work(figures_of, HOUR.length, now, places, since)
    hours = [Hour(at, seconds[at], figures) for at, figures in figures_of.items()]
    return HourlyFigures(stretch, hours[::-1], total)
