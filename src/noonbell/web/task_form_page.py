"""Creating and editing a task: the form with its preview, checks and test call, the YAML view, conflicts between two
editors.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from noonbell import when
from noonbell.clock import Instant
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, ScheduleError, VersionConflict, both
from noonbell.fields import table
from noonbell.fields.kinds import ChoiceKind
from noonbell.fields.problems import Problems
from noonbell.model.access import Role
from noonbell.model.account import Activity
from noonbell.model.alert import Rule, RuleKind
from noonbell.model.calendar import QuietAction
from noonbell.model.call import NAMED_TYPES
from noonbell.model.request import TaskQuery
from noonbell.model.target_kind import HTTP, MESSAGE_FIELDS, target_kind
from noonbell.model.task import RetryPolicy, Task, TaskId, TaskSpec, TaskStatus
from noonbell.model.task_schedule import After
from noonbell.model.worker import WorkerState
from noonbell.policy.alerts import concerns
from noonbell.service.filters import cursor_at
from noonbell.service.secrets import MASK, refuse_carried, unmasked
from noonbell.service.tasks import shown
from noonbell.service.translation import problem_words
from noonbell.web import task_form
from noonbell.web.context import PageContext, pretty, whole_number
from noonbell.web.explanation import Upcoming
from noonbell.web.forms import bounds_of, read_yaml, write_yaml
from noonbell.web.i18n import instant_from
from noonbell.web.page import get, post
from noonbell.web.task_form import is_managed
from noonbell.web.task_page import task_of
from noonbell.web.task_versions import Difference, differences, fields_at, settled, taken
from noonbell.when.cron_fields import CronDialect
from noonbell.when.natural_language import from_quartz, propose


@cache
def choices() -> dict[str, list[str]]:
    """The words of each field of a task that has some."""
    groups = task_form.GROUPS.items()
    grouped = {f"{group}_{name}": each for group, struct in groups for name, each in table(struct).items()}
    fields = {**table(RetryPolicy), **table(TaskSpec), **grouped}
    return {name: list(each.kind.options) for name, each in fields.items() if isinstance(each.kind, ChoiceKind)}


@cache
def limits() -> dict[str, dict[str, float]]:
    """By field, the attributes of an input. Of two fields with the same name, the wider ones."""
    found: dict[str, dict[str, float]] = {}
    structs = (TaskSpec, RetryPolicy, *(kind.Spec for kind in when.KINDS.values()))
    for prefix, struct in (*(("", each) for each in structs), ("after_", After)):
        for name, each in table(struct).items():
            there = found.setdefault(f"{prefix}{name}", {})
            for word, bound in bounds_of(each).items():
                there[word] = (min if word == "min" else max)(there.get(word, bound), bound)
    found["repeat"]["min"] = 1  # an empty box says what -1 says
    return found


async def form(
    ctx: PageContext,
    fields: Mapping[str, str],
    task: Task | None,
    problems: Mapping[str, str] | None = None,
    *,
    status: int | None = None,
    differing: Sequence[Difference] = (),
    changes: Sequence[Difference] | None = None,
    is_jitter_proposed: bool = False,
) -> Response:
    return ctx.page(
        "task_form.html",
        status or (400 if problems else 200),
        fields={
            name: fields.get(name, "") for name in (*task_form.EMPTY, *task_form.NAMES, "version", "detach", *fields)
        },
        task=task,
        is_managed=task is not None and is_managed(task),
        problems=dict(problems or {}),
        summary=_in_order_of_the_form(problems or {}),
        differing=differing,
        changes=changes,
        is_jitter_proposed=is_jitter_proposed,
        choices=choices(),
        calendars=[each.name for each in await ctx.services.calendars.all()],
        limits=limits(),
        kinds=task_form.KINDS,
        messages=MESSAGE_FIELDS,
        whens=task_form.whens_for(fields),
        presets=task_form.PRESETS,
        schedule_boxes=task_form.SCHEDULE_BOXES,
        target_boxes=task_form.TARGET_BOXES,
        is_finer=task_form.is_finer(fields),
        can_try=ctx.deps.try_call is not None,
        job_types=await known_job_types(ctx),
        services=sorted(ctx.deps.settings.executor.services),
        default_limits={kind: task_form.default_limit(each) for kind, each in task_form.EXEC_TYPES.items()},
        rules=await rules_for(ctx, fields.get("name", "")),
        **await previewed(ctx, fields, task),
    )


async def known_job_types(ctx: PageContext) -> list[str]:
    """Those that the workers of now have named, and that a task can have."""
    workers = [each for each in await ctx.services.workers.all() if each["state"] != WorkerState.LOST]
    return sorted({name for each in workers for name in each["job_types"] or () if name not in NAMED_TYPES})


def _in_order_of_the_form(problems: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each box that has a problem, with what is wrong; first what concerns no box."""
    return sorted(problems.items(), key=lambda each: task_form.ORDER.index(each[0]))


def fields_of(ctx: PageContext, told: Mapping[str, Any]) -> dict[str, str]:
    """What the form shows of a task; with the dialect of this installation, if the task has no cron yet."""
    return task_form.fields_of(told, default_dialect(ctx))


def default_dialect(ctx: PageContext) -> str:
    return str(ctx.services.previews.cron_dialect)


async def rules_for(ctx: PageContext, name: str) -> list[dict[str, Any]] | None:
    """The alert rules that watch a task of that name; None without alerts."""
    if ctx.deps.alerts is None:
        return None
    found = []
    for rule in await ctx.deps.alerts.rules():
        asked = Rule(name=rule["name"], kind=RuleKind(rule["kind"]), tasks=tuple(rule["tasks"]))
        if rule["enabled"] and concerns(asked, name):
            found.append(rule)
        await asyncio.sleep(0)  # others have their turn: the patterns of a rule take up to 0.2 s the first time
    return found


_CROWD: Final = 100
"""Tasks that are looked at for one that starts at the same time."""


@dataclass(frozen=True, slots=True)
class Meant:
    """A schedule that the words in the field may mean: a proposal, never applied by itself."""

    fields: dict[str, str]
    """What the form would have to say."""
    text: str
    """The expression, where it is a cron."""
    sentence: str


async def preview(ctx: PageContext) -> Response:
    """A piece of the page."""
    fields = await ctx.fields()
    return ctx.page("_preview.html", **await previewed(ctx, fields, await named_task(ctx, fields)))


async def previewed(ctx: PageContext, fields: Mapping[str, str], task: Task | None) -> dict[str, Any]:
    view: dict[str, Any] = {
        "preview": None,
        "preview_problem": "",
        "effect": None,
        "crowd": 0,
        "jitter": 0,
        "slots": [],
        "lacks_expression": task is None and task_form.lacks_expression(fields),
    }
    if view["lacks_expression"]:
        return {**view, "meant": None}
    view |= {"meant": meant(fields, ctx.words.lang), "is_quartz": False, "dialect": "", "preview_zone": "UTC"}
    try:
        problems = Problems()
        named = task_form.when_of(fields, None if task is None else task.spec.schedule, problems)
        calendar = task_form.calendar_of(fields, problems)
        quiet = task_form.quiet_of(fields, problems)
        problems.finish()
        schedule = named.get("schedule")
        if schedule is None and "schedules" not in named:
            return view
        view["is_quartz"] = view["meant"] is not None and propose(fields.get("cron_expr", "")) is None
        asked = {**named, "timezone": fields.get("timezone", "").strip() or "UTC", "count": 5, "calendar": calendar}
        asked["quiet"] = quiet
        view["preview_zone"] = asked["timezone"]
        view["preview"] = await ctx.services.previews.of(asked, ctx.words.lang)
    except InvalidArgument as error:
        view["preview_problem"] = reduce(both, error.sentences.values()) if error.sentences else error.sentence
        return view
    view["dialect"] = "" if schedule is None else dialect_of(schedule)
    fires = view["preview"]["next_fires"]
    view["slots"] = previewed_slots(view["preview"])
    if fields.get("jitter_seconds", "").strip() in ("", "0"):
        view["crowd"] = await others_at(ctx, fires, task)
        view["jitter"] = proposed_jitter(view["crowd"], fires)
    if task is not None:
        before = await ctx.services.previews.next(task, 1, ctx.words.lang)
        view["effect"] = effect(before["next_fires"], fires)
    return view


def previewed_slots(told: Mapping[str, Any]) -> list[Upcoming]:
    """When they are due: those that run or are held, and those that a calendar or quiet hours skip."""
    found: list[Upcoming] = []
    for why, listed in (("", told["next_fires"]), ("calendar", told.get("skipped", ()))):
        for each in listed:
            moved_from = Instant(instant_from(each["moved_from"])) if "moved_from" in each else None
            is_held = each.get("quiet") == QuietAction.HOLD
            held_until = Instant(instant_from(each["quiet_until"])) if is_held else None
            why_not = why or ("quiet" if "quiet" in each and not is_held else "")
            found.append(Upcoming(Instant(instant_from(each["utc"])), why_not, moved_from, held_until))
    return sorted(found, key=lambda each: each.at)


def meant(fields: Mapping[str, str], lang: str) -> Meant | None:
    """Plain words, or an expression as Quartz counts, where a cron expression is expected."""
    text = fields.get("cron_expr", "").strip()
    if fields.get("when") != "cron" or not text:
        return None
    proposal = propose(text)
    if proposal is not None and proposal.cron is None:
        spec: dict[str, Any] = {"type": "interval", "every": proposal.every, "unit": proposal.unit}
        told = {"when": "interval", "every": str(proposal.every), "unit": proposal.unit}
    else:
        is_quartz = fields.get("dialect") == CronDialect.QUARTZ
        cron = proposal.cron if proposal is not None else None if is_quartz else from_quartz(text)
        if cron is None:
            return None
        spec, told = {"type": "cron", "expr": cron}, {"when": "cron", "cron_expr": cron}
        if fields.get("dialect", CronDialect.STANDARD) != CronDialect.STANDARD:
            told["dialect"] = str(CronDialect.STANDARD)
    try:
        sentence = when.parse(spec, fields.get("timezone", "").strip() or "UTC").describe(lang)
    except ScheduleError:
        return None
    return Meant(told, told.get("cron_expr", ""), sentence)


def dialect_of(schedule: Mapping[str, Any]) -> str:
    """What kind of expression it is: `five`, `six`, `quartz` (its signs, in another dialect), `quartz_numbers`, `nickname`;
    nothing where it is no cron.
    """
    if schedule["type"] != "cron":
        return ""
    parts = str(schedule["expr"]).upper().split()
    if len(parts) < 5:
        return "nickname"
    if schedule.get("dialect") == CronDialect.QUARTZ:
        return "quartz_numbers"
    day, weekday = parts[-3], parts[-1]
    if "?" in day + weekday or "#" in weekday or "L" in day or "W" in day or re.search(r"\dL", weekday):
        return "quartz"
    return "six" if len(parts) == 6 else "five"


async def others_at(ctx: PageContext, fires: list[dict[str, str]], task: Task | None) -> int:
    """How many other tasks start in the very second of the next slot, as far as their own next slot says."""
    if not fires:
        return 0
    at = instant_from(fires[0]["utc"])
    query = TaskQuery(sort="next_fire_at", page_size=_CROWD, cursor=cursor_at("next_fire_at", at - 1))
    found = (await ctx.services.tasks.found(query)).items
    mine = None if task is None else task.id
    return sum(each.id != mine and each.next_fire_at == at for each in found)


def proposed_jitter(crowd: int, fires: list[dict[str, str]]) -> int:
    """Seconds that spread that many tasks; 0 where they are more than half of the time between two slots."""
    jitter = min(600, max(30, 5 * crowd))
    times = [instant_from(each["utc"]) for each in fires]
    return 0 if any(later - at < 2 * jitter * 1_000_000 for at, later in pairwise(times)) else jitter


def effect(before: list[dict[str, str]], after: list[dict[str, str]]) -> tuple[str | None, str | None] | None:
    """The next slot before and after; None where it stays."""
    was, will = (fires[0]["utc"] if fires else None for fires in (before, after))
    return None if was == will else (was, will)


async def new(ctx: PageContext) -> Response:
    fields = {**task_form.EMPTY, "timezone": ctx.zone.name, "dialect": default_dialect(ctx)}
    if "from" in ctx.query:
        copied = await ctx.services.tasks.show(await task_of(ctx, ctx.query["from"]))
        fields = {**fields_of(ctx, copied), "name": ctx.words("form.copy_of", name=copied["name"])}
    return await form(ctx, fields, None)


async def create(ctx: PageContext) -> Response:
    fields = await ctx.fields()
    try:
        given = await read_task(fields["yaml"]) if "yaml" in fields else task_form.given_of(fields)
        task = await ctx.services.tasks.create(given, by=ctx.actor)
    except (InvalidArgument, AlreadyExists) as error:
        return await _refused(ctx, fields, None, error)
    ctx.subject = f"/tasks/{task.id}"
    return ctx.done(ctx.words("task.created", name=task.name), go=f"/tasks/{task.id}")


async def edit(ctx: PageContext) -> Response:
    """`?jitter=120` is how the timeline proposes to spread tasks that start together: filled in, and not saved."""
    task = await task_of(ctx)
    fields = fields_of(ctx, await ctx.services.tasks.show(task))
    jitter = ctx.query.get("jitter", "")
    if jitter.isdecimal() and len(jitter) < 6:
        fields["jitter_seconds"] = jitter
    return await form(ctx, fields, task, is_jitter_proposed=bool(jitter))


async def save(ctx: PageContext) -> Response:
    task, fields = await task_of(ctx), await ctx.fields()
    version = whole_number(fields.get("version", ""))
    stored = await ctx.services.tasks.show(task)
    theirs = fields_of(ctx, stored)
    fields = taken(fields, theirs)
    try:
        given = await _given(ctx, fields, task, stored)
        await ctx.services.tasks.change(task.id, given, partial=False, expect_version=version, by=ctx.actor)
    except VersionConflict:
        return await _conflict(ctx, fields, task, version, theirs)
    except (InvalidArgument, AlreadyExists, InvalidState) as error:
        return await _refused(ctx, fields, task, error)
    return ctx.done(ctx.words("task.saved", name=given.get("name", task.name)), go=f"/tasks/{task.id}")


async def review(ctx: PageContext) -> Response:
    """What saving would change, before it is saved."""
    task, fields = await task_of(ctx), await ctx.fields()
    theirs = fields_of(ctx, await ctx.services.tasks.show(task))
    fields = taken(fields, theirs)
    return await form(ctx, fields, task, changes=differences(None, fields, theirs))


async def _given(ctx: PageContext, fields: Mapping[str, str], task: Task, stored: Mapping[str, Any]) -> dict[str, Any]:
    given = await read_task(fields["yaml"]) if "yaml" in fields else task_form.change_of(fields, stored)
    if is_managed(task):
        if not fields.get("detach"):
            raise InvalidState(ctx.words("form.managed_stays", by=task.spec.managed_by))
        given["managed_by"] = "api"
    if given.get("status") == "DISABLED" and task.status != "ENABLED":
        del given["status"]  # COMPLETED and ERROR stay as they are; only `reset` and enabling end them
    return given


async def _conflict(
    ctx: PageContext, fields: Mapping[str, str], task: Task, version: int | None, theirs: Mapping[str, str]
) -> Response:
    """The task was saved meanwhile: show each differing field of both edits, and of their common base, to choose from."""
    problem = {"": ctx.words("form.conflict", version=task.version)}
    if "yaml" in fields:
        return yaml_page(ctx, fields["yaml"], fields, task, InvalidArgument(problem[""]))
    versions = await ctx.services.tasks.versions(task)
    names = await ctx.services.tasks.upstream_names(versions)
    base = fields_at(task, versions, version, default_dialect(ctx), names)
    differing = differences(base, fields, theirs)
    shown = {**settled(fields, differing), "version": str(task.version)}
    return await form(ctx, shown, task, problem, status=412, differing=differing)


async def _refused(ctx: PageContext, fields: Mapping[str, str], task: Task | None, error: Any) -> Response:
    if "yaml" in fields:
        told = error if isinstance(error, InvalidArgument) else InvalidArgument(error.sentence)
        return yaml_page(ctx, fields["yaml"], fields, task, told)
    return await form(ctx, fields, task, _problems(ctx, fields, error))


def _problems(ctx: PageContext, fields: Mapping[str, str], error: Any) -> dict[str, str]:
    problems = task_form.problems_of(error)
    if "cron_expr" not in problems:
        return problems
    found = meant(fields, ctx.words.lang)
    if task_form.lacks_expression(fields):
        problems["cron_expr"] = ctx.words("form.no_expression")
    elif found is not None and propose(fields.get("cron_expr", "")) is not None:
        said = {"cron": found.text} if found.text else {"sentence": found.sentence}
        problems["cron_expr"] = ctx.words("form.words_not_saved" if found.text else "form.interval_not_saved", **said)
    return problems


# While it is filled in


async def check(ctx: PageContext) -> Response:
    """What is wrong with the form as it stands, by field; nothing is written."""
    fields = await ctx.fields()
    task = await named_task(ctx, fields)
    tasks = ctx.services.tasks
    try:
        given = await asked_for(ctx, fields, task)
        await (tasks.check(given) if task is None else tasks.draft_of_change(task, given))
    except InvalidArgument as error:
        found = _problems(ctx, fields, error)
        return JSONResponse({"problems": {name: problem_words(each, ctx.words) for name, each in found.items()}})
    return JSONResponse({"problems": {}})


async def try_call(ctx: PageContext) -> Response:
    """Send the request of the form once, and show what came back. Nothing is saved, and there is no run."""
    fields = await ctx.fields()
    call = ctx.deps.try_call
    if call is None:
        raise InvalidState(ctx.words("try.not_here"))
    given = {**task_form.given_of({**fields, "when": "none", "name": fields.get("name") or "test call"})}
    if target_kind(given["exec_type"], given) is not HTTP:
        raise InvalidState(ctx.words("try.http_only"))
    if (task := await named_task(ctx, fields)) is not None:
        kept = ctx.services.tasks.opened(task).spec
        written = dict(given)
        given["headers"] = unmasked(given["headers"], kept.headers)
        if given.get("secret") == MASK:
            given["secret"] = kept.secret
        refuse_carried(kept, written, given)
    spec = await ctx.services.tasks.check(given)
    outcome = await call(spec)
    bodies = outcome.bodies
    return ctx.page(
        "_try.html",
        outcome=outcome,
        body=pretty(bodies.response_body if bodies is not None else None),
    )


_MOST: Final = 200_000
"""Characters."""


async def show_yaml(ctx: PageContext) -> Response:
    """What the form says, as a file would say it. A new form has no expression yet: its text is of a task without a schedule."""
    fields = await ctx.fields()
    task = await named_task(ctx, fields)
    no_schedule = {"when": "none"} if task is None and task_form.lacks_expression(fields) else {}
    try:
        given = await asked_for(ctx, {**fields, **no_schedule}, task)
    except InvalidArgument as error:
        return await form(ctx, fields, task, task_form.problems_of(error))
    return yaml_page(ctx, await write_yaml(lambda: given, width=100), fields, task)


async def asked_for(ctx: PageContext, fields: Mapping[str, str], task: Task | None) -> dict[str, Any]:
    """A new task, or the whole of one that is changed."""
    if task is None:
        return task_form.given_of(fields)
    return task_form.change_of(fields, await ctx.services.tasks.show(task))


async def back_to_form(ctx: PageContext) -> Response:
    """From the text to the form; a text that is no task stays where it is, with what is wrong with it."""
    fields = await ctx.fields()
    task = await named_task(ctx, fields)
    try:
        told = await fields_from(ctx, fields.get("yaml", ""), task)
    except InvalidArgument as error:
        return yaml_page(ctx, fields.get("yaml", ""), fields, task, error)
    return await form(ctx, {**told, "version": fields.get("version", "")}, task)


async def fields_from(ctx: PageContext, text: str, task: Task | None) -> dict[str, str]:
    given = await read_task(text)
    status = TaskStatus.DISABLED if given.get("status") == "DISABLED" else TaskStatus.ENABLED
    tasks = ctx.services.tasks
    spec = await tasks.check(given) if task is None else (await tasks.draft_of_change(task, given)).spec
    whole = Task(id=TaskId(0), version=1, status=status, spec=spec, created_at=ctx.now, updated_at=ctx.now)
    return fields_of(ctx, shown(whole, Activity(), await tasks.upstream_names([whole])))


def yaml_page(
    ctx: PageContext, text: str, fields: Mapping[str, str], task: Task | None, error: InvalidArgument | None = None
) -> Response:
    problems = {} if error is None else error.sentences or {"": error.sentence}
    return ctx.page(
        "task_yaml.html",
        200 if error is None else 400,
        text=text,
        task=task,
        version=fields.get("version", ""),
        problems=problems,
    )


async def named_task(ctx: PageContext, fields: Mapping[str, str]) -> Task | None:
    """The task that the form is of; None for a new one."""
    return await task_of(ctx, fields["task_id"]) if fields.get("task_id") else None


async def read_task(text: str) -> dict[str, Any]:
    """One task: its fields, or `tasks:` with one of them. Raises InvalidArgument."""
    try:
        told = await read_yaml(text, _MOST)
    except InvalidArgument as error:
        raise InvalidArgument.field("yaml", error.sentence) from None
    if isinstance(told, dict) and set(told) == {"tasks"}:
        listed = told["tasks"]
        told = listed[0] if isinstance(listed, list) and len(listed) == 1 else None
    if not isinstance(told, dict):
        raise InvalidArgument.field("yaml", "does not have the fields of one task")
    return told


PAGES: Final = [
    post("/tasks/preview", preview, role=Role.VIEWER),
    get("/tasks/new", new, role=Role.OPERATOR),
    post("/tasks/new", create, "create_task"),
    post("/tasks/check", check),
    post("/tasks/try", try_call, "try_call"),
    get("/tasks/{id}/edit", edit, role=Role.OPERATOR),
    post("/tasks/{id}/edit", save, "replace_task"),
    post("/tasks/{id}/review", review),
    post("/tasks/yaml", show_yaml),
    post("/tasks/form", back_to_form),
]
