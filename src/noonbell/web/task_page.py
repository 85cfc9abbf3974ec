"""The page of one task in six tabs (overview, runs, schedule, configuration, versions, activity), and the actions on
it.

Health comes from the roll-ups. Why a task fails, and which runs were slow, comes from its newest runs; the page says how many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.clock import Instant, rfc3339, slot_of
from noonbell.errors import InvalidArgument, InvalidJson, InvalidState, NotFound
from noonbell.fields import read
from noonbell.fields.kinds import read_moment
from noonbell.fields.problems import shown
from noonbell.model.access import Role
from noonbell.model.account import StatusChange
from noonbell.model.rollup import HOUR, Scope, stretch_of
from noonbell.model.run import Run, RunId
from noonbell.model.task import Task, TaskSpec, TaskStatus
from noonbell.service import filters, task_files
from noonbell.service.filters import BY_NAME, RunList, from_the_top, read_run_query
from noonbell.service.scope import ScopeRule
from noonbell.service.tasks import Removal, SkipWrite, Tasks, written
from noonbell.service.translation import error_words
from noonbell.web import charts, explanation, flow_view, following, i18n, service_levels, task_form
from noonbell.web.context import PageContext, as_json, whole_number
from noonbell.web.explanation import Advice, advice, upcoming
from noonbell.web.flow_view import FlowView
from noonbell.web.forms import number_or_text, read_json
from noonbell.web.lists import given_of, pager_by_cursor
from noonbell.web.page import Handler, get, post
from noonbell.web.queues import start_command
from noonbell.web.recent import DAY, FAILURES, Health, health, health_of, newest_runs, reasons
from noonbell.web.task_versions import VersionChange, changes

TABS: Final = ("overview", "runs", "schedule", "configuration", "versions", "activity")
SAMPLE: Final = 500
"""How many of the newest runs are looked through for why it fails, and for slow ones."""
DAYS: Final = 30
_SHOWN: Final = 12
_SLOTS: Final = 5
_MORE_SLOTS: Final = 20
_VERSIONS: Final = 50
_KEYS: Final = 20
_LINES: Final = 50
"""Of the audit log."""

Part = Callable[[PageContext, Task], Awaitable[dict[str, Any]]]


def tab(name: str, part: Part) -> Handler:
    """A part of the page in the frame that all have: name, state, buttons, the other parts."""

    async def show(ctx: PageContext) -> Response:
        task = await task_of(ctx, deleted=True)
        shown, view = await asyncio.gather(ctx.services.tasks.show(task), part(ctx, task))
        return ctx.page(
            "task.html" if name == "overview" else f"task_{name}.html",
            task=shown,
            tab=name,
            tabs=TABS,
            is_deleted=task.deleted_at is not None,
            is_on=task.status == "ENABLED" and task.deleted_at is None,
            is_managed=task_form.is_managed(task),
            after_words=following.words_of(shown["after"], ctx.words),
            pause_end=_pause_end(ctx, task),
            **view,
        )

    return show


async def overview(ctx: PageContext, task: Task) -> dict[str, Any]:
    services = ctx.services
    month = stretch_of(ctx.now - DAYS * DAY, ctx.now + 1, ctx.now, HOUR)
    hours = await services.store.rollups(Scope.TASK, month, names=[str(task.id)], step=HOUR)
    runs, every, why, planned, around, lines = await asyncio.gather(
        newest_runs(services, task.id, SAMPLE),
        services.tasks.versions(task),
        answer(ctx, task),
        plan(ctx, task, _SLOTS),
        following.of_task(ctx, task),
        services.store.key_lines(task.id, _KEYS),
    )
    lately = recent(runs, ctx.now)
    figures = health_of([each.figures for each in hours])
    dots = charts.dots(lately, [(each.version, each.valid_from) for each in every[1:]], figures.p95_ms)
    return {
        **planned,
        **await service_levels.card(ctx, task),
        "runs": runs[:_SHOWN],
        "strip": charts.strip(runs, 60, width=8, gap=2),
        "health": figures,
        "sample": len(dots.dots) if figures.ended > len(dots.dots) else 0,
        "days": DAYS,
        "dots": dots,
        "heat": charts.heat([(each.at, each.figures) for each in hours], ctx.zone) if hours else [],
        "reasons": reasons(lately, every),
        "counted": SAMPLE if len(runs) == SAMPLE else 0,
        "flow": steps_of(task.spec, ctx.now, ctx.number("step")),
        "around": around,
        "key_lines": lines,
        "icon_path": charts.PATHS.__getitem__,
        **why,
    }


def steps_of(spec: TaskSpec, now: Instant, begin: int | None) -> FlowView | None:
    """What the graph of a flow shows, `begin` being the first step on the page; None for a task without steps."""
    return flow_view.view(flow_view.as_written(spec.steps), None, None, now, begin=begin) if spec.steps else None


def recent(runs: Sequence[Run], now: int) -> list[Run]:
    """The runs of the last thirty days. The store is not asked for the period: it would look through all older runs in vain."""
    return [run for run in runs if run.scheduled_time >= now - DAYS * DAY]


async def plan(ctx: PageContext, task: Task, count: int) -> dict[str, Any]:
    """What comes next, and what stands in its way."""
    services = ctx.services
    told = await services.previews.next(task, 1, ctx.words.lang)
    return {
        "next": told,
        "written": explanation.cron_text(task.spec.schedule),
        "ahead": upcoming(task, ctx.now, count),
        "off_since": await _off_since(ctx, task),
        "paused": task.pause,
        "queue_pause": await services.queues.pause_now(task.spec.queue),
    }


async def _off_since(ctx: PageContext, task: Task) -> StatusChange | None:
    """Who put it off, and when."""
    if task.status is TaskStatus.ENABLED or task.deleted_at is not None:
        return None
    return (await ctx.services.store.turns([task.id])).get(task.id)


async def answer(ctx: PageContext, task: Task) -> dict[str, Any]:
    """Why the task ran, or did not: at the moment that was asked for, or lately."""
    text = ctx.query.get("at")
    view = {"at": text or "", "advice": None, "start_worker": start_command(ctx, task.spec.queue)}
    try:
        _, told = await ctx.services.explain.about_task(task, _moment(ctx, text))
    except InvalidArgument as error:
        return {**view, "explained": explanation.unclear(error_words(error, ctx.words))}
    found = explanation.explained(ctx, told)
    return {**view, "explained": found, "advice": await _advice(ctx, task, found)}


async def _advice(ctx: PageContext, task: Task, found: explanation.Explained) -> Advice | None:
    """Only for a run that waits for a missing worker; other advice is on the page of the run."""
    if found.cause != "no_worker" or found.run_id is None:
        return None
    run = await ctx.services.store.run(RunId(found.run_id))
    return None if run is None else advice(run, task.spec, found.cause, key=found.key)


def _moment(ctx: PageContext, text: str | None, field: str = "at") -> Instant | None:
    """RFC 3339, or on the clock of the chosen zone; seconds may be left out."""
    try:
        return None if text is None else read_moment(text, ctx.zone, minutes=True)
    except ValueError as error:
        raise InvalidArgument.field(field, f"is {shown(text)}; expected {error}") from None


async def runs_of(ctx: PageContext, task: Task) -> dict[str, Any]:
    """All of them, the failed ones, or the slow ones among the newest."""
    wanted = ctx.query.get("show", "all")
    services = ctx.services
    if wanted == "slow":
        sample = await newest_runs(services, task.id, SAMPLE)
        figures = health(sample)
        slow = [run for run in sample if is_slow(run, figures)][:50]
        pager = pager_by_cursor({}, None)
        return {"show": wanted, "runs": slow, "health": figures, "sample": len(sample), "pager": pager}
    asked = given_of(ctx.query, RunList, (), page_size=50, cursor=from_the_top("-id"))
    query = await read_run_query(asked, services.store, task.id)
    if wanted == "failed":
        page = await services.runs.page(msgspec.structs.replace(query, status=FAILURES))
    else:
        wanted, page = "all", await services.runs.page(query)
    kept = {name: value for name, value in ctx.query.items() if name in ("show", "cursor")}
    pager = pager_by_cursor(kept, page.next_cursor)
    return {"show": wanted, "runs": page.items, "health": None, "sample": 0, "pager": pager}


def is_slow(run: Run, figures: Health) -> bool:
    """Whether a run took as long as the slowest 5 %, and more than twice the median: where all take the same, none is slow."""
    if run.duration_ms is None or figures.p95_ms is None or figures.median_ms is None:
        return False
    return run.duration_ms >= figures.p95_ms and run.duration_ms > 2 * figures.median_ms


async def schedule(ctx: PageContext, task: Task) -> dict[str, Any]:
    planned, why = await asyncio.gather(plan(ctx, task, _MORE_SLOTS), answer(ctx, task))
    return {**planned, **why, "spec": task.spec}


async def configuration(ctx: PageContext, task: Task) -> dict[str, Any]:
    shown = await ctx.services.tasks.show(task)
    return {"definition": as_json(task_files.written(shown)), "whole": as_json(shown)}


async def changes_of(ctx: PageContext, task: Task) -> list[VersionChange]:
    versions = await ctx.services.tasks.versions(task)
    return changes(versions, await ctx.services.tasks.upstream_names(versions))


async def history(ctx: PageContext, task: Task) -> dict[str, Any]:
    every = await changes_of(ctx, task)
    before = ctx.number("before")
    shown = [change for change in every if before is None or change.version.version < before]
    return {
        "changes": shown[:_VERSIONS],
        "older": shown[_VERSIONS - 1].version.version if len(shown) > _VERSIONS else None,
        "newest": before is not None,
        "open": ctx.query.get("v", ""),
        "newest_version": task.version,
    }


async def activity(ctx: PageContext, task: Task) -> dict[str, Any]:
    """Who did what to the task: told by its versions; for admins also what the audit log has of it."""
    every = await changes_of(ctx, task)
    access = ctx.deps.access
    entries: list[dict[str, Any]] = []
    if access is not None and ctx.may("admin"):
        entries = await access.log(None, _LINES, about=(f"/tasks/{task.id}", f"/tasks/{BY_NAME}{task.name}"))
    return {"changes": every[:_VERSIONS], "entries": entries, "lines": _LINES, "is_kept": access is not None}


async def restore(ctx: PageContext) -> Response:
    """Give the task the fields of an earlier version. Its status and who manages it do not change."""
    task = await task_of(ctx)
    given = await ctx.fields()
    wanted, seen = ctx.piece("version"), given.get("seen", "")
    every = await ctx.services.tasks.versions(task)
    version = next((each for each in every if str(each.version) == wanted), None)
    if version is None:
        raise NotFound(ctx.words("versions.unknown", version=wanted[:20]))
    if task_form.is_managed(task):
        raise InvalidState(ctx.words("form.managed_stays", by=task.spec.managed_by))
    old = ctx.services.tasks.opened(msgspec.structs.replace(task, spec=version.spec))
    fields = {**written(old.spec), "managed_by": task.spec.managed_by}
    await ctx.services.tasks.change(task.id, fields, partial=False, expect_version=whole_number(seen), by=ctx.actor)
    text = ctx.words("versions.restored", name=task.name, version=version.version)
    return ctx.done(text, go=f"/tasks/{task.id}/versions")


PARTS: Final[dict[str, Part]] = {
    "overview": overview,
    "runs": runs_of,
    "schedule": schedule,
    "configuration": configuration,
    "versions": history,
    "activity": activity,
}


async def trigger(ctx: PageContext) -> Response:
    task, given = await task_of(ctx), await ctx.fields()
    published = await ctx.services.publishing.trigger(task.id, _wanted(given), trace_id=ctx.request_id)
    text = ctx.words("task.triggered", name=task.name)
    if given.get("open") and published.run_id is not None:
        return ctx.done(text, go=f"/runs/{published.run_id}")
    return ctx.done(text, back(given, task), run=published.run_id)


def _wanted(given: dict[str, str]) -> dict[str, Any]:
    """What a run has of its own: another body or payload."""
    wanted: dict[str, Any] = {}
    if given.get("override_body"):
        wanted["override_body"] = given["override_body"]
    if given.get("payload", "").strip():
        try:
            wanted["payload"] = read_json(given["payload"])
        except InvalidJson as error:
            raise InvalidArgument.field("payload", error.sentence) from None
    return wanted


async def skip(ctx: PageContext) -> Response:
    task, given = await task_of(ctx), await ctx.fields()
    asked = read(SkipWrite, {"count": number_or_text(given.get("count", "1"))})
    changed = await ctx.services.tasks.skip(task.id, asked.count, by=ctx.actor)
    return ctx.done(ctx.words("task.skipping", n=changed.skip_next, name=task.name), back(given, task))


async def ask_delete(ctx: PageContext) -> Response:
    task = await task_of(ctx)
    return await _deletion(ctx, task)


async def delete(ctx: PageContext) -> Response:
    task, given = await task_of(ctx), await ctx.fields()
    if given.get("name", "") != task.name:
        return await _deletion(ctx, task, 400, ctx.words("delete.type_name", name=task.name))
    followers, _ = await following.followers_of(ctx, task)
    if followers and "force" not in given:
        return await _deletion(ctx, task, 409, ctx.words("delete.is_followed"))
    removal = Removal(cancel_running="cancel_running" in given, purge="purge" in given, force="force" in given)
    await ctx.services.tasks.delete(task.id, removal, by=ctx.actor)
    return ctx.done(ctx.words("task.deleted", name=task.name), go="/tasks")


async def _deletion(ctx: PageContext, task: Task, status: int = 200, problem: str | None = None) -> Response:
    shown, (followers, is_more) = await asyncio.gather(ctx.services.tasks.show(task), following.followers_of(ctx, task))
    return ctx.page("task_delete.html", status, task=shown, followers=followers, is_more=is_more, problem=problem)


def change(act: Callable[..., Awaitable[Task]], key: str, undo: str | None = None) -> Handler:
    """A button that sets the task's status, and says what came of it; `undo` is the button that takes it back."""

    async def handler(ctx: PageContext) -> Response:
        task, given = await task_of(ctx), await ctx.fields()
        await act(ctx.services.tasks, task.id, by=ctx.actor)
        way_back = None if undo is None else f"/tasks/{task.id}/{undo}"
        return ctx.done(ctx.words(key, name=task.name), back(given, task), undo=way_back)

    return handler


async def pause(ctx: PageContext) -> Response:
    """Pause a task, or say anew why and until when. `until` is on the clock of the chosen zone."""
    task, given = await task_of(ctx), await ctx.fields()
    said: dict[str, Any] = {"reason": given.get("reason", "")}
    text = given.get("until", "").strip().replace("T", " ")
    if seconds := given.get("for_seconds", ""):
        said["for_seconds"] = number_or_text(seconds)
        text = "" if text == _pause_end(ctx, task) else text  # the end that the form was filled in with
    if text and (until := _moment(ctx, text, "until")) is not None:
        said["until"] = rfc3339(until)
    said = {name: value for name, value in said.items() if value}
    paused = await ctx.services.tasks.disable(task.id, said, by=ctx.actor)
    ctx.details = said
    key, facts = "task.disabled", {"name": task.name}
    if paused.pause is not None and paused.pause.until is not None:
        key = "task.disabled_until"
        facts["until"] = i18n.shown(paused.pause.until, ctx.now, ctx.zone, ctx.words).local
    return ctx.done(ctx.words(key, **facts), back(given, task), undo=f"/tasks/{task.id}/enable")


def _pause_end(ctx: PageContext, task: Task) -> str:
    """As the form has it, on the clock of the chosen zone; empty: the pause has none."""
    if task.pause is None or task.pause.until is None:
        return ""
    return ctx.zone.local(int(slot_of(task.pause.until))).strftime("%Y-%m-%d %H:%M:%S")


async def task_of(ctx: PageContext, ref: str | None = None, *, deleted: bool = False) -> Task:
    """The task that the address names, or `ref`."""
    task = await ctx.services.tasks.get(filters.task_ref(ref or ctx.piece("id")), deleted=deleted)
    ctx.subject = f"/tasks/{task.id}"
    return task


def back(given: dict[str, str], task: Task) -> str:
    """Where a browser without scripts goes after a button: the list, if it came from there."""
    return "/tasks" if given.get("from") == "list" else f"/tasks/{task.id}"


PAGES: Final = [
    *(
        get(
            "/tasks/{id}" if name == "overview" else f"/tasks/{{id}}/{name}",
            tab(name, PARTS[name]),
            scope=ScopeRule.TASK,
        )
        for name in TABS
    ),
    post("/tasks/{id}/versions/{version}/restore", restore, "replace_task", scope=ScopeRule.TASK),
    post("/tasks/{id}/trigger", trigger, "trigger_task", scope=ScopeRule.TASK),
    post("/tasks/{id}/enable", change(Tasks.enable, "task.enabled", "disable"), "enable_task", scope=ScopeRule.TASK),
    post("/tasks/{id}/disable", pause, "disable_task", scope=ScopeRule.TASK),
    post("/tasks/{id}/reset", change(Tasks.reset, "task.reset"), "reset_task", scope=ScopeRule.TASK),
    post("/tasks/{id}/skip", skip, "skip_slots", scope=ScopeRule.TASK),
    get("/tasks/{id}/delete", ask_delete, role=Role.OPERATOR),
    post("/tasks/{id}/delete", delete, "delete_task"),
]
