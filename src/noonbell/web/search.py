"""The search box; the command palette and the filter bar's suggestions: JSON for the scripts that show them.

Each palette entry has an address to open or to post to. They are the buttons of other pages, so the palette can do
nothing that they cannot.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import JSONResponse, Response

from noonbell.errors import InvalidArgument, InvalidId, NotFound
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.request import TaskQuery
from noonbell.model.run import Origin, Run, RunStatus
from noonbell.model.task import Task, TaskStatus
from noonbell.service import filters, scope
from noonbell.service.scope import ScopeRule
from noonbell.service.translation import LANGUAGES
from noonbell.web.charts import word_of
from noonbell.web.context import THEMES, PageContext
from noonbell.web.lists import RUN_GRAMMAR, TASK_GRAMMAR
from noonbell.web.page import get
from noonbell.web.run_list import GROUPS

VERBS: Final = ("run", "pause", "resume")
"""A text that begins with one of them, or with its word, asks for that act alone."""
_TASKS: Final = 7
_ACTED: Final = 2
"""How many of the found tasks are listed with their actions."""


async def choices(ctx: PageContext) -> Response:
    text = ctx.wanted("q")
    verb, name = _verb(ctx, text)
    found = await _acts(ctx, verb, name) if verb else []
    found += [*await _run(ctx, text), *await _tasks(ctx, text), *_going(ctx, text), *_choosing(ctx, text)]
    return JSONResponse({"items": found, "none": ctx.words("palette.none"), "zone": ctx.words("palette.zone")})


def _verb(ctx: PageContext, text: str) -> tuple[str, str]:
    """The act that the text begins with, and the rest: `pause invo`, `暂停 invo`."""
    first, _, rest = text.partition(" ")
    for verb in VERBS:
        if first.casefold() in (verb, ctx.words(f"act.{verb}").casefold()) and ctx.may("operator"):
            return verb, rest.strip()
    return "", ""


async def _acts(ctx: PageContext, verb: str, name: str) -> list[dict[str, Any]]:
    status = {"pause": TaskStatus.ENABLED, "resume": TaskStatus.DISABLED}.get(verb)
    query = TaskQuery(name=name or None, status=status, page_size=_TASKS, sort="name", scope=scope.current())
    return [_act(ctx, verb, task) for task in (await ctx.services.tasks.found(query)).items]


def _act(ctx: PageContext, verb: str, task: Task) -> dict[str, Any]:
    path = {"run": "trigger", "pause": "disable", "resume": "enable"}[verb]
    return _choice(
        ctx, "act", f"{ctx.words(f'act.{verb}')}{ctx.words.marks.colon}{task.name}", post=f"/tasks/{task.id}/{path}"
    )


async def _run(ctx: PageContext, text: str) -> list[dict[str, Any]]:
    run = await numbered_run(ctx, text)
    if run is None:
        return []
    hint = f"{run.task_name} · {word_of(run.status, ctx.words)}"
    return [_choice(ctx, "go", ctx.words("run.title", id=run.id), go=f"/runs/{run.id}", hint=hint)]


async def numbered_run(ctx: PageContext, text: str) -> Run | None:
    """The run whose number the text is, if it is one."""
    try:
        run_id = filters.run_id(text)
        await scope.check_run(ctx.services.store, run_id)
        return await ctx.services.runs.get(run_id)
    except (InvalidId, NotFound):
        return None


async def _tasks(ctx: PageContext, text: str) -> list[dict[str, Any]]:
    """Those with the text in their name; without a text, those that were changed last."""
    query = TaskQuery(
        name=text or None, page_size=_TASKS, sort="name" if text else "-updated_at", scope=scope.current()
    )
    tasks = (await ctx.services.tasks.found(query)).items
    found = [
        _choice(ctx, "task", task.name, go=f"/tasks/{task.id}", hint=word_of(task.status, ctx.words)) for task in tasks
    ]
    if text and ctx.may("operator"):
        for task in tasks[:_ACTED]:
            found.append(_act(ctx, "run", task))
            if task.status in (TaskStatus.ENABLED, TaskStatus.DISABLED):
                found.append(_act(ctx, "pause" if task.status is TaskStatus.ENABLED else "resume", task))
    return found


def _going(ctx: PageContext, text: str) -> list[dict[str, Any]]:
    found = [(ctx.words(f"nav.{name}"), path) for name, path in ctx.rooms.items()]
    if ctx.may("operator") and ctx.sees_all:
        found.append((ctx.words("task.new"), "/tasks/new"))
    return [_choice(ctx, "go", label, go=path) for label, path in found if text.casefold() in label.casefold()]


def _choosing(ctx: PageContext, text: str) -> list[dict[str, Any]]:
    """Theme and language; zones are for the script, whose browser knows them all."""
    found = [("theme", name, ctx.words(f"theme.{name}")) for name in THEMES]
    found += [("lang", code, name) for code, name in LANGUAGES.items()]
    return [
        _choice(ctx, "set", f"{ctx.words(f'pref.{field}')}: {label}", set=[field, value])
        for field, value, label in found
        if text.casefold() in f"{ctx.words(f'pref.{field}')} {label}".casefold()
    ]


def _choice(ctx: PageContext, kind: str, label: str, **more: Any) -> dict[str, Any]:
    for name in ("go", "post"):
        if name in more:
            more[name] = ctx.url(more[name])
    return {"kind": kind, "hint": ctx.words(f"palette.{kind}"), "label": label, **more}


MOST: Final = 12
_OF_ALL: Final = ("label", "queue", "worker")
"""Proposed from the whole installation, so not for a token with a scope."""
_SPANS: Final = ("1h", "24h", "7d", "30d")

Proposals = list[tuple[str, str]]
"""Values, each with what to say beside it."""


async def propose(ctx: PageContext) -> Response:
    room, key, text = (ctx.wanted(name) for name in ("for", "key", "text"))
    if room not in ("tasks", "runs"):
        raise InvalidArgument.field("for", f"is {room[:40]!r}; expected tasks or runs")
    grammar = TASK_GRAMMAR if room == "tasks" else RUN_GRAMMAR
    if not key:
        found = [(f"{each}:", ctx.words(f"filter.{grammar.keys[each]}")) for each in grammar.keys]
        found = [pair for pair in found if pair[0].startswith(text.casefold())]
    else:
        found = await _values(ctx, room, key, text)
    return JSONResponse({"items": [{"value": value, "hint": hint} for value, hint in found[:MOST]]})


async def _values(ctx: PageContext, room: str, key: str, text: str) -> Proposals:
    services = ctx.services
    if key in _OF_ALL and not ctx.sees_all:
        return []
    match key:
        case "status":
            return _within(_statuses(ctx, room), text)
        case "label":
            return [(f"{each.name}={each.value}", str(each.tasks)) for each in await services.store.labels(text, MOST)]
        case "queue":
            return _within([(each["name"], str(each["waiting"])) for each in await services.queues.all()], text)
        case "worker":
            workers = await services.workers.all()
            return _within([(each["id"], word_of(each["state"], ctx.words)) for each in workers], text)
        case "task" | "name":
            query = TaskQuery(name=text or None, page_size=MOST, sort="name", scope=scope.current())
            page = await services.tasks.found(query)
            return [(task.name, word_of(task.status, ctx.words)) for task in page.items]
        case "origin":
            return _within([(str(each), ctx.words(f"origin.{each}")) for each in Origin], text)
        case "after" | "before":
            return _within([(each, ctx.words("filter.ago", span=each)) for each in _SPANS], text)
        case _:
            return []


def _statuses(ctx: PageContext, room: str) -> Proposals:
    if room == "tasks":
        return [(str(each), word_of(each, ctx.words)) for each in TaskStatus]
    groups = [(name, ctx.words(f"group.{name}")) for name in GROUPS]
    return [*groups, *((str(each), word_of(each, ctx.words)) for each in RunStatus)]


def _within(found: Proposals, text: str) -> Proposals:
    wanted = text.casefold()
    return [pair for pair in found if wanted in pair[0].casefold() or wanted in pair[1].casefold()]


async def search(ctx: PageContext) -> Response:
    """Straight to what can only be meant: a run by its number, a task by its name or the one that has it in its name, the run
    that has it in its key, payload, result or log.
    """
    text = ctx.wanted("q")
    if not text:
        return ctx.redirect("/tasks")
    if await numbered_run(ctx, text) is not None:
        return ctx.redirect(f"/runs/{text}")
    try:
        return ctx.redirect(f"/tasks/{(await ctx.services.tasks.get(text)).id}")
    except NotFound:
        found = await ctx.services.tasks.found(TaskQuery(name=text, page_size=2, scope=scope.current()))
    if len(found.items) == 1:
        return ctx.redirect(f"/tasks/{found.items[0].id}")
    if not found.items:
        return await _search_runs(ctx, text)
    return ctx.redirect(ctx.link("/tasks", name=text))


async def _search_runs(ctx: PageContext, text: str) -> Response:
    """The only run that has the text in it, or all of them; where none of the newest has, the list says so."""
    asked = filters.RunList(search=text, page_size=2, cursor=filters.from_the_top("-id"))
    query = await filters.run_query(asked, ctx.services.store, ReadContext(Problems()))
    page = await ctx.services.runs.page(query)
    if len(page.items) == 1 and page.next_cursor is None:
        return ctx.redirect(f"/runs/{page.items[0].id}")
    return ctx.redirect(ctx.link("/runs", search=text))


PAGES: Final = [
    get("/search", search, scope=ScopeRule.LIST),
    get("/palette", choices, scope=ScopeRule.LIST),
    get("/suggest", propose, scope=ScopeRule.LIST),
]
