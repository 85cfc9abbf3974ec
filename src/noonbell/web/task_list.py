"""The list of tasks with its filters, bulk actions, export and import as YAML."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse

from noonbell.errors import AlreadyExists, InvalidArgument, Sentence, VersionConflict
from noonbell.fields import plain, table
from noonbell.fields import read as read_struct
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.account import StatusChange
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import Page as Found
from noonbell.model.request import TaskQuery
from noonbell.model.run import Run
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.model.view import ViewedList
from noonbell.service import scope
from noonbell.service.bulk_operations import TASK_ACTS, TasksChange, change_tasks
from noonbell.service.filters import TaskFilter, TaskList, read_task_query
from noonbell.service.scope import ScopeRule
from noonbell.service.task_files import Applying, escaped, filled, written
from noonbell.service.translation import error_words
from noonbell.web import bulk, charts, explanation, following, i18n, lists
from noonbell.web.context import PageContext, as_json
from noonbell.web.forms import number_or_text, read_box, read_yaml, write_yaml
from noonbell.web.page import get, post
from noonbell.web.recent import MOST_FAILING, failing

FILTERS: Final = ("name", "status", "label", "queue", "managed_by")
ATTENTION: Final = "attention"
"""The default order: tasks that need attention, then by name."""
ORDERS: Final = (ATTENTION, "name", "-name", "next_fire_at", "-updated_at", "-created_at")
_SORT: Final = "noonbell_tasks_sort"
_YEAR: Final = 365 * 86_400
_STRIP: Final = 40


async def show_tasks(ctx: PageContext) -> Response:
    aliases = lists.status_aliases(TaskStatus, ctx.words, {"on": "ENABLED", "off": "DISABLED", "paused": "DISABLED"})
    if (moved := lists.typed(ctx, "/tasks", FILTERS, aliases, kept_order(ctx))) is not None:
        return moved
    services = ctx.services
    filters, query = read(ctx)
    page: Found[dict[str, Any]] = Found([], 0, None) if query is None else await services.tasks.page(query)
    sort = order(ctx)
    others: list[dict[str, Any]] = []
    if sort == ATTENTION and page.items and not filters.active and query is not None and query.page == 1:
        others = await _failed_elsewhere(ctx, {task["id"] for task in page.items})
    tasks = [*others, *page.items]
    turns = await services.store.turns([TaskId(task["id"]) for task in tasks if task["status"] == "DISABLED"])
    lately = await services.store.newest_runs([TaskId(task["id"]) for task in tasks], _STRIP)
    rows = [row(ctx, task, lately.get(task["id"], []), turns) for task in tasks]
    first = [each for each in rows if needs(each)] if sort == ATTENTION else []
    answer = ctx.page(
        "tasks.html",
        first=sorted(first, key=lambda each: str(each["task"]["name"])),
        rows=[each for each in rows[len(others) :] if each not in first],
        filters=filters,
        statuses=list(TaskStatus),
        orders=ORDERS,
        sort=sort,
        under_way=await services.store.bulk_under_way() if ctx.sees_all else 0,
        density=lists.density(ctx),
        pager=lists.pager_by_number(filters.query, query.page if query else 1, page.total),
        total=page.total or 0,
        elsewhere=await _elsewhere(ctx, filters, query) if filters.active and not page.items else [],
        views=await lists.shared_views(ctx, ViewedList.TASKS),
        copies=lists.copies(ctx, "tasks", filters.active),
        server=server_address(ctx),
        exactly=lambda at: exactly(ctx, at),
    )
    if "sort" in ctx.query and sort == ctx.query["sort"]:
        ctx.keep(answer, _SORT, sort, _YEAR, secret=False)
    return answer


def order(ctx: PageContext) -> str:
    return ctx.query.get("sort") or kept_order(ctx)


def kept_order(ctx: PageContext) -> str:
    """As the visitor wanted it last."""
    kept = ctx.request.cookies.get(_SORT, ATTENTION)
    return kept if kept in ORDERS else ATTENTION


def read(ctx: PageContext) -> tuple[lists.Filters, TaskQuery | None]:
    """The filters of the address; no query where one of them makes no sense."""
    given = dict(ctx.query)
    sort = order(ctx)
    try:
        at = ReadContext(Problems())
        if sort not in ORDERS:
            what = Sentence("one of {words}", words=", ".join(ORDERS))
            at.wrong("sort", Sentence("is {value}; expected {what}", value=repr(sort), what=what))
        query = read_task_query(
            lists.given_of({**given, "sort": "name" if sort == ATTENTION else sort}, TaskList, FILTERS), at
        )
        at.problems.finish()
    except InvalidArgument as error:
        return lists.Filters(given, FILTERS, error_words(error, ctx.words), lists.TASK_GRAMMAR), None
    return lists.Filters(given, FILTERS, grammar=lists.TASK_GRAMMAR), query


def needs(row: dict[str, Any]) -> bool:
    """Whether the task needs attention: its status is ERROR, or its last finished run failed.

    A running retry does not count, so that a task does not come and go with each attempt.
    """
    marks = (cell.mark for cell in reversed(row["strip"].cells) if cell.mark in ("ok", "bad"))
    return row["task"]["status"] == "ERROR" or next(marks, "ok") == "bad"


async def _failed_elsewhere(ctx: PageContext, here: set[int]) -> list[dict[str, Any]]:
    """Tasks of other pages that fail. A call without a task is on the page of calls."""
    failed = [run.task_id for run in await failing(ctx.services, ctx.now) if run.task_id not in here]
    there = {task.id: task for task in scope.held(await ctx.services.store.tasks_by_id(failed))}
    others = [there[task_id] for task_id in failed if task_id in there and there[task_id].spec.job_type != CALL_TYPE]
    return [await ctx.services.tasks.show(task) for task in others[:MOST_FAILING]]


def row(
    ctx: PageContext, task: dict[str, Any], runs: Sequence[Run], turns: Mapping[TaskId, StatusChange]
) -> dict[str, Any]:
    strip = charts.strip(runs, _STRIP)
    return {
        "task": task,
        "strip": strip,
        "last": runs[0] if runs else None,
        "p95": p95(runs),
        "success": strip.succeeded / (strip.succeeded + strip.failed) if strip.succeeded + strip.failed else None,
        "turn": turns.get(task["id"]),
        "sentence": explanation.sentence(task, ctx.words.lang),
        "after": following.words_of(task["after"], ctx.words),
        "written": explanation.cron_text(task["schedule"]),
    }


def p95(runs: Sequence[Run]) -> int | None:
    """Milliseconds within which 95 of 100 of them ended; None of nothing."""
    took = sorted(run.duration_ms for run in runs if run.duration_ms is not None and run.start_time is not None)
    return took[-(-95 * len(took) // 100) - 1] if took else None


async def _elsewhere(ctx: PageContext, filters: lists.Filters, query: TaskQuery | None) -> list[lists.Elsewhere]:
    """How many there are without each of the filters; without the only one, that is all."""
    if query is None:
        return []
    found = []
    for name, token in filters.tokens.items():
        wider = msgspec.structs.replace(query, **{name: None}, page=1, page_size=1)
        found.append(lists.Elsewhere(name, token, (await ctx.services.tasks.found(wider)).total or 0))
    return [each for each in found if each.count]


def exactly(ctx: PageContext, at: int) -> str:
    """When it was, in a few characters: for what is shown on hovering."""
    shown = i18n.shown(at, ctx.now, ctx.zone, ctx.words)
    return f"{shown.local} {shown.offset}"


def server_address(ctx: PageContext) -> str:
    """Where a caller reaches the API, as the visitor's browser does."""
    return str(ctx.request.base_url).rstrip("/")


_SAMPLE: Final = 10
_AUDIT_ACTIONS: Final = {"change": "patch_tasks"}
_OPPOSITE: Final = {"enable": "disable", "disable": "enable"}


async def ask_bulk(ctx: PageContext) -> Response:
    """Which tasks it would be: how many, and the first of them."""
    return await _ask(ctx, lists.act_of(ctx, TASK_ACTS), ctx.query)


async def _ask(ctx: PageContext, act: str, boxes: Mapping[str, str], error: InvalidArgument | None = None) -> Response:
    """`boxes` and `error`: of a form that was refused."""
    total, sample = await _found(ctx)
    problems = {} if error is None else {_BOX_OF.get(name, name): text for name, text in error.sentences.items()}
    return ctx.page(
        "task_bulk.html",
        200 if error is None else 400,
        act=act,
        fields={name: boxes.get(name, "") for name in CHANGE_BOXES},
        problems=problems,
        problem="" if error is None or problems else error.sentence,
        total=total,
        sample=sample,
        query={name: value for name, value in ctx.query.items() if name not in CHANGE_BOXES or act != "change"},
        back=ctx.url("/tasks", **_kept(ctx)),
    )


async def carry_out(ctx: PageContext) -> Response:
    act, given = lists.act_of(ctx, TASK_ACTS), await ctx.fields()
    ctx.subject, ctx.action = f"/tasks?{ctx.request.url.query}"[:500], _AUDIT_ACTIONS.get(act, f"{act}_tasks")
    if act == "delete":
        lists.check_number(ctx, given, (await _found(ctx))[0])
    more: dict[str, Any] = {}
    if act == "change":
        try:
            change = plain(_change_of(given))
            more["change"] = {name: value for name, value in change.items() if value not in (None, {})}
        except InvalidArgument as error:
            return await _ask(ctx, act, given, error)
    if (ids := _ticked(ctx)) is not None:
        return await bulk.start(ctx, {"kind": f"{act}_tasks", "ids": ids, **more})
    _query(ctx)
    return await bulk.start(ctx, lists.bulk_start(f"{act}_tasks", read(ctx)[0].active, TaskFilter, **more))


_BOX_OF: Final = {"labels": "set_labels", "queue": "set_queue"}


CHANGE_BOXES: Final = ("set_labels", "set_queue", "timeout_seconds", "max_retries", "jitter_seconds")
"""Of the form that changes many tasks; `label` and `queue` narrow the list."""


def _change_of(given: Mapping[str, str]) -> TasksChange:
    """InvalidArgument names every box that is wrong, and that all are empty."""
    problems = Problems()
    labels = read_box(table(TaskSpec)["labels"], given.get("set_labels", ""), problems, "=")
    numbers = ("timeout_seconds", "max_retries", "jitter_seconds")
    found: dict[str, Any] = {name: number_or_text(text) for name in numbers if (text := given.get(name, "").strip())}
    if queue := given.get("set_queue", "").strip():
        found["queue"] = queue
    problems.finish()
    wanted = {**found, **({"labels": labels} if labels else {})}
    if not wanted:
        raise InvalidArgument("nothing is filled in; expected the changes to make")
    return read_struct(TasksChange, wanted)


async def ticked(ctx: PageContext) -> Response:
    """Enable, disable or run the ticked ones; what could not be done is said, the others are done."""
    form = [*await ctx.form(), *ctx.query.items()]
    act = dict(form).get("act", "")
    ids = lists.ids_of([value for name, value in form if name in ("id", "ids")])
    if act not in TASK_ACTS or not ids:
        raise InvalidArgument(ctx.words("bulk.nothing"))
    if act in ("delete", "change"):
        return ctx.done("", go=ctx.link("/tasks/bulk", act=act, ids=_listed(ids)))
    tasks = await _tasks(ctx, ids)
    step = await change_tasks(ctx.services, act, tasks, by=ctx.actor)
    ctx.action, ctx.subject = f"{act}_tasks", f"/tasks?ids={_listed(ids[:50])}"
    undo = None
    if act in _OPPOSITE and step.done:
        back = _listed([number for number, _ in step.done])
        undo = ctx.link("/tasks/ticked", act=_OPPOSITE[act], ids=back)
    return ctx.done(lists.bulk_text(ctx, f"bulk.done_{act}", step), "/tasks", undo=undo)


async def _found(ctx: PageContext) -> tuple[int, list[dict[str, Any]]]:
    """How many, and the first of them."""
    services = ctx.services
    ids = _ticked(ctx)
    if ids is None:
        page = await services.tasks.page(_query(ctx))
        return page.total or 0, page.items[:_SAMPLE]
    tasks = await _tasks(ctx, ids)
    return len(tasks), [{"name": task.name, "status": task.status} for task in tasks[:_SAMPLE]]


def _ticked(ctx: PageContext) -> list[int] | None:
    return lists.ids_of([ctx.query["ids"]]) if "ids" in ctx.query else None


def _query(ctx: PageContext) -> TaskQuery:
    filters, query = read(ctx)
    if query is None:
        raise InvalidArgument(filters.problem)
    return query


async def _tasks(ctx: PageContext, ids: list[int]) -> list[Task]:
    """Those of them that are not deleted, each as it stands."""
    found = await ctx.services.store.tasks_by_id([TaskId(number) for number in ids])
    return sorted((task for task in found if task.deleted_at is None), key=lambda task: task.name)


def _kept(ctx: PageContext) -> dict[str, str]:
    return {name: value for name, value in ctx.query.items() if name not in ("act", "ids", "page")}


def _listed(ids: list[int]) -> str:
    return ",".join(str(number) for number in ids)


OWNER: Final = "api"
"""`managed_by` of imported tasks: as if they were made by hand, not by a file."""
_LONGEST: Final = 1_000_000
_PIECE: Final = 50
"""Tasks of an export that are in memory at once."""


async def export(ctx: PageContext) -> Response:
    """All that the filter of the list finds. Secrets are masked; a masked one that is imported here stays as it is.

    It is sent piece by piece, so that no more than a piece is in memory. What is wrong with the first one is a page that says
    so; after that the answer breaks off.
    """
    tasks = ctx.services.tasks
    wanted = msgspec.structs.replace(_query(ctx), sort="name", page=1, page_size=_PIECE)
    first = await tasks.page(wanted)

    async def pieces() -> AsyncIterator[str]:
        page = first
        yield "tasks:\n" if page.items else "tasks: []\n"
        while page.items:
            yield await write_yaml(partial(_as_written, page.items), width=120)
            if page.next_cursor is None:
                return
            page = await tasks.page(msgspec.structs.replace(wanted, cursor=page.next_cursor))

    headers = {"content-disposition": 'attachment; filename="tasks.yaml"'}
    return StreamingResponse(pieces(), headers=headers, media_type="application/yaml; charset=utf-8")


def _as_written(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [escaped(written(task)) for task in tasks]


async def ask_import(ctx: PageContext) -> Response:
    return _import_page(ctx, "")


async def apply_import(ctx: PageContext) -> Response:
    """First what it would change; then, with `sure`, the change itself."""
    given = await ctx.fields()
    text, adopt = given.get("text", "").replace("\r\n", "\n"), "adopt" in given
    applying = Applying(ctx.services)
    is_sure = given.get("sure") == "1"
    try:
        declared = await declared_in(text)
        found = await applying.apply(OWNER, declared, by=ctx.actor, adopt=adopt, dry_run=not is_sure)
    except (AlreadyExists, InvalidArgument, VersionConflict) as error:
        return _import_page(ctx, text, 400, problem=error.sentence, adopt=adopt)
    if not is_sure:
        ctx.action = "check_tasks"
        return _import_page(ctx, text, plan=found, adopt=adopt)
    ctx.action, ctx.subject = "apply_tasks", "/tasks/import"
    told = ctx.words("import.done", created=len(found["created"]), changed=len(found["changed"]))
    return ctx.done(told, go="/tasks")


async def declared_in(text: str) -> list[dict[str, Any]]:
    """The tasks of a file. A variable stays the text that it is: nothing of the server's environment is read."""
    try:
        document = await read_yaml(text, _LONGEST)
    except InvalidArgument as error:
        raise InvalidArgument(Sentence("the text {problem}", problem=error.sentence)) from None
    if isinstance(document, dict) and set(document) == {"tasks", "calendars"}:
        raise InvalidArgument(
            "the text has `calendars:` too, which are not saved here; leave them out, or use noonbell apply"
        )
    listed = document.get("tasks") if isinstance(document, dict) and set(document) == {"tasks"} else None
    if not isinstance(listed, list) or not all(isinstance(task, dict) for task in listed):
        raise InvalidArgument("expected `tasks:` with a list of tasks")
    found: list[dict[str, Any]] = filled(listed, lambda name, _: f"${{{name}}}")
    return found


def _import_page(ctx: PageContext, text: str, status: int = 200, **more: Any) -> Response:
    view = {"problem": "", "plan": None, "adopt": False, **more}
    return ctx.page("task_import.html", status, text=text, as_json=as_json, **view)


PAGES: Final = [
    get("/tasks", show_tasks, scope=ScopeRule.LIST),
    get("/tasks/bulk", ask_bulk, role=Role.OPERATOR),
    post("/tasks/bulk", carry_out, "enable_tasks"),
    post("/tasks/ticked", ticked, "enable_tasks"),
    get("/tasks/export", export, scope=ScopeRule.LIST),
    get("/tasks/import", ask_import, role=Role.OPERATOR),
    post("/tasks/import", apply_import, "apply_tasks"),
]
