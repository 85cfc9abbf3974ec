"""The activity pages, for admins: the audit log with its entries, check and CSV export, and the system's own events.

The event stream is read backwards in stretches. Thousands of run events may lie between two that are shown here, so a
page reads a limited part of the stream and says how far it came; the next page continues from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response, StreamingResponse

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidArgument, InvalidState, NotFound
from noonbell.fields import FROM_TO, meta, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.task import Task, TaskId
from noonbell.ports import Store
from noonbell.service.access import Access
from noonbell.service.audit_log import expected_heads
from noonbell.service.filters import BY_NAME, ENCODED_SLASH, Word, event_json, is_name
from noonbell.service.runs import csv_lines
from noonbell.service.translation import error_words
from noonbell.web.context import ROOMS, PageContext, as_json, merged, whole_number
from noonbell.web.forms import TypedMoment
from noonbell.web.i18n import instant_from
from noonbell.web.lists import Filters
from noonbell.web.page import get
from noonbell.web.task_versions import VersionChange, changes

_SIZE: Final = 50
_MOST_CHECKED: Final = 10_000
_BATCH: Final = 1_000
_KNOWN: Final = ("actor", "action", "task", "text", "from", "to")
_API: Final = "/api/v1"
_LEGACY: Final = "/legacy"
"""Before the addresses that a cronjob service had: they are about the same things."""
_JOBS: Final = "/api/jobs"
_LONGEST_ID: Final = 15
_PAGES: Final = {"bulk": "bulk.operations", "calendars": "nav.calendars", "calls": "nav.calls"}
"""Kinds of things with a page of their own that no room has, and what it is called."""
_NAMED: Final = {
    "queues": ("activity.queue_named", "/queues"),
    "calendars": ("activity.calendars_named", "/calendars"),
    "subscriptions": ("webhooks.edit", "/settings/subscriptions"),
    "workers": ("activity.workers_named", "/workers"),
    "bulk": ("activity.bulk_named", "/bulk"),
    "tokens": ("activity.tokens_named", ""),
    "plans": ("activity.plans_named", ""),
}
"""Kinds of things that are told apart by name: what one is called, and where it is; empty where it has no page."""
_WITHIN: Final = 30 * SECOND
"""How long after a change of a task its audit entry may be written."""
_COLUMNS: Final = ("id", "at", "actor", "action", "subject", "peer", "request_id", "details", "hash", "key")


async def show(ctx: PageContext) -> Response:
    if ctx.query.get("view") == "system":
        return await show_system(ctx)
    before, narrowed, problem = ctx.number("before", 17), {}, ""
    try:
        narrowed = await read(ctx)
    except InvalidArgument as error:
        problem = error_words(error, ctx.words)
    access = ctx.deps.access
    entries = [] if access is None or problem else await access.log(before, _SIZE, **narrowed)
    return ctx.page(
        "activity.html",
        entries=await _lines(ctx, entries),
        filters=Filters(ctx.query, _KNOWN, problem),
        groups=ACTION_GROUPS,
        group_words={name: ctx.words(f"deeds.{name}") for name in ACTION_GROUPS},
        older=merged(ctx.query, before=entries[-1]["id"]) if len(entries) == _SIZE else None,
        newest=merged(ctx.query, before=None) if before is not None else None,
        csv=merged(ctx.query, before=None),
        is_kept=access is not None,
        key=None if access is None else access.audit_log.key_id,
    )


@dataclass(frozen=True, slots=True)
class ShownSubject:
    """What an entry is about."""

    text: str
    path: str = ""
    """Of its page; empty: it has none."""
    task_id: TaskId | None = None
    """If it is a task."""


@dataclass(frozen=True, slots=True)
class AuditLine:
    entry: dict[str, Any]
    subject: ShownSubject

    @property
    def has_versions(self) -> bool:
        """Whether the task's versions show what the action changed."""
        return self.subject.task_id is not None and self.entry["action"] in ACTION_GROUPS["changes"]


async def _lines(ctx: PageContext, entries: Sequence[dict[str, Any]]) -> list[AuditLine]:
    """Each entry with what it is about, tasks by the name that they have now."""
    store, places = ctx.services.store, [_place_of(entry) for entry in entries]
    tasks = [name for kind, name in places if kind == "tasks" and name]
    ids = sorted({TaskId(int(name)) for name in tasks if name.isdecimal() and len(name) <= _LONGEST_ID})
    called = {name.removeprefix(BY_NAME) for name in tasks if name.startswith(BY_NAME)}
    found = {str(task.id): task for task in (await store.tasks_by_id(ids) if ids else [])}
    named = await store.tasks_named(sorted(filter(is_name, called))) if called else {}
    found |= {f"{BY_NAME}{name}": task for name, task in named.items()}
    return [
        AuditLine(entry, _subject(ctx, entry["subject"], place, found.get(place[1])))
        for entry, place in zip(entries, places, strict=True)
    ]


def _place(subject: str) -> tuple[str, str]:
    """The kind of thing that an address leads to, and which one: `("tasks", "12")`, `("queues", "mail/out")`."""
    subject = subject.removeprefix(_LEGACY)
    if subject.startswith(_JOBS):  # a job is a task
        subject = f"/tasks{subject.removeprefix(_JOBS)}"
    kind, _, name = subject.removeprefix(_API).lstrip("/").partition("/")
    if subject.startswith(_API) or kind not in ("queues", "workers"):  # what was done comes behind the name
        name = name.partition("/")[0]
    return kind, name.replace("%2F", "/").replace(ENCODED_SLASH, "/")


def _place_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Who starts a bulk operation calls the address of all of them: the details say which one it is."""
    place = _place(entry["subject"])
    return ("bulk", str(entry["details"]["bulk"])) if place == ("bulk", "") and "bulk" in entry["details"] else place


def _name_within(subject: str) -> str:
    """`ops` of `/alerts/channels/ops/test`; empty: the address is that of all."""
    _, _, _, name, *_ = [*subject.removeprefix(_API).split("/"), "", "", "", ""]
    return name.replace("%2F", "/").replace(ENCODED_SLASH, "/")


def _subject(ctx: PageContext, text: str, place: tuple[str, str], task: Task | None) -> ShownSubject:
    kind, name = place
    if task is not None:
        return ShownSubject(task.name, f"/tasks/{task.id}", task.id)
    if kind == "tasks" and name.isdecimal():
        return ShownSubject(ctx.words("activity.task_id", id=name), f"/tasks/{name}", TaskId(int(name[:_LONGEST_ID])))
    if kind == "tasks" and name.startswith(BY_NAME):
        return ShownSubject(name.removeprefix(BY_NAME))
    if kind == "runs" and name.isdecimal():
        return ShownSubject(ctx.words("run.title", id=name), f"/runs/{name}")
    if kind == "alerts" and name in ("rules", "channels") and (named := _name_within(text)):
        return ShownSubject(
            ctx.words(f"activity.{name}_named", name=named), f"/settings/{name}/{quote(named, safe='')}"
        )
    if kind == "views" and (named := _name_within(text)):
        return ShownSubject(ctx.words("activity.views_named", name=named), ROOMS.get(name, ""))
    if kind in _NAMED and name:
        return _named(ctx, kind, name)
    if kind in _PAGES:
        return ShownSubject(ctx.words(_PAGES[kind]), f"/{kind}")
    if kind == "alerts":
        return ShownSubject(ctx.words("activity.alerts"), "/settings/alerts")
    if kind in ROOMS:
        return ShownSubject(ctx.words(f"nav.{kind}"), ROOMS[kind])
    return ShownSubject(text.removeprefix(_API))


def _named(ctx: PageContext, kind: str, name: str) -> ShownSubject:
    word, page = _NAMED[kind]
    return ShownSubject(ctx.words(word, name=name), page and f"{page}/{quote(name, safe='')}")


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    actor: Word | None = None
    action: Annotated[str | None, meta(min_length=1, max_length=60)] = None
    task: Annotated[str | None, meta(min_length=1, max_length=260)] = None
    text: Annotated[str | None, meta(min_length=1, max_length=200)] = None
    since: TypedMoment | None = None
    until: TypedMoment | None = None


async def read(ctx: PageContext) -> dict[str, Any]:
    """The filters of the address, as `Access.log` takes them."""
    at = ReadContext(Problems(), zone=ctx.zone)
    asked = read_into(AuditFilter, {name: ctx.query[name] for name in _KNOWN if ctx.query.get(name)}, at)
    at.problems.finish()
    task = asked.task
    narrowed: dict[str, Any] = {
        "actor": asked.actor,
        "actions": actions_of(asked.action),
        "text": asked.text,
        "since": asked.since,
        "until": asked.until,
    }
    if task is not None:
        narrowed["about"] = await _paths_of(ctx, task.removeprefix(BY_NAME))
    return narrowed


async def _paths_of(ctx: PageContext, task: str) -> tuple[str, ...]:
    """Where a task is called: by its id, and by the name that it has."""
    by_id = f"/tasks/{task}" if task.isdecimal() else ""
    named = None if by_id else await ctx.services.store.task_named(task)
    return tuple(path for path in (by_id, named and f"/tasks/{named.id}", f"/tasks/{BY_NAME}{task}") if path)


# One entry


async def show_one(ctx: PageContext) -> Response:
    """All that is kept of it; and of the change of a task, what was before and after."""
    (line,) = await _lines(ctx, [await _entry(ctx)])
    entry, task_id = line.entry, line.subject.task_id
    change = None if task_id is None else await _change(ctx, entry, task_id)
    return ctx.page(
        "activity_entry.html", entry=entry, subject=line.subject, change=change, details=as_json(entry["details"])
    )


async def _entry(ctx: PageContext) -> dict[str, Any]:
    number = whole_number(ctx.piece("number"), 17)
    entries = [] if ctx.deps.access is None or number is None else await ctx.deps.access.log(number + 1, 1)
    if not entries or entries[0]["id"] != number:
        raise NotFound(ctx.words("activity.unknown", id=ctx.piece("number")[:20]))
    return entries[0]


async def _change(ctx: PageContext, entry: dict[str, Any], task_id: TaskId) -> VersionChange | None:
    """The version that came of it: the newest that was there when it was written down, made by the same one just then."""
    at = Instant(instant_from(entry["at"]))
    versions = await ctx.services.store.task_versions(task_id)
    for change in changes(versions):
        version = change.version
        if version.valid_from <= at and version.changed_by == entry["actor"]:
            return change if at - version.valid_from <= _WITHIN else None
    return None


# Whether it is as it was written


async def check(ctx: PageContext) -> Response:
    access, given, problem, state = ctx.deps.access, ctx.query.get("head", "")[:100], "", None
    if access is None:
        raise InvalidState(ctx.words("activity.not_kept"))
    try:
        state = await access.audit_log.check(expected_heads([given] if given else [], "head"), _MOST_CHECKED)
    except InvalidArgument as error:
        problem = error_words(error, ctx.words)
    return ctx.page(
        "activity_check.html",
        state=state,
        given=given,
        problem=problem,
        key=access.audit_log.key_id,
        most=_MOST_CHECKED,
    )


# As a file


async def export(ctx: PageContext) -> Response:
    """All entries that match the filters as CSV, the newest first."""
    if ctx.deps.access is None:
        raise InvalidState(ctx.words("activity.not_kept"))
    headers = {"content-disposition": 'attachment; filename="noonbell-activity.csv"'}
    lines = _exported(ctx.deps.access, await read(ctx))
    return StreamingResponse(lines, headers=headers, media_type="text/csv; charset=utf-8")


async def _exported(access: Access, narrowed: dict[str, Any]) -> AsyncIterator[str]:
    yield csv_lines([_COLUMNS])
    before: int | None = None
    while True:
        entries = await access.log(before, _BATCH, **narrowed)
        yield csv_lines([entry[name] for name in _COLUMNS] for entry in entries)
        if len(entries) < _BATCH:
            return
        before = entries[-1]["id"]


ACTION_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "changes": (
        *("create_task", "replace_task", "patch_task", "delete_task", "enable_task", "disable_task", "resume_task"),
        *("pause_task", "reset_task", "skip_slots"),
        *("create_job", "change_job", "delete_job", "pause_job", "resume_job"),
        *("publish_plan", "pause_plan", "resume_plan", "reset_plan", "skip_plan", "close_plan", "remove_plan"),
    ),
    "starts": (
        *("trigger_task", "backfill_task", "publish_runs", "make_call", "make_calls", "retry_run", "promote_run"),
        "cancel_run",
    ),
    "bulk": (
        *("create_tasks", "patch_tasks", "delete_tasks", "apply_tasks", "enable_tasks", "disable_tasks"),
        *("cancel_runs", "retry_runs", "clean_runs", "clean_task", "start_bulk", "cancel_bulk", "undo_bulk"),
        *("import_runs", "drain_queue", "clean_queue", "redrive_queue"),
    ),
    "queues": ("limit_queue", "pause_queue", "resume_queue", "drain_queue", "clean_queue", "redrive_queue"),
    "calendars": ("save_calendar", "delete_calendar", "refresh_calendar"),
    "installation": ("pause_all", "resume_all", "save_view", "remove_view"),
    "workers": ("change_worker", "drain_worker", "stop_worker", "resume_worker", "forget_worker"),
    "access": ("create_token", "revoke_token", "rotate_secrets", "sign_audit_log"),
    "alerts": (
        *("create_alert_rule", "change_alert_rule", "remove_alert_rule", "create_alert_channel"),
        *("change_alert_channel", "remove_alert_channel", "test_alert_channel"),
        *("acknowledge_alert", "unacknowledge_alert", "mute_alerts", "unmute_alerts"),
    ),
    "subscriptions": (
        *("create_subscription", "change_subscription", "remove_subscription", "test_subscription"),
        *("replay_subscription", "replay_delivery"),
    ),
}


def actions_of(text: str | None) -> tuple[str, ...]:
    """Of the filter `action`: the name of a group, or of one operation."""
    return () if text is None else ACTION_GROUPS.get(text, (text,))


EVENT_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "calendar": ("changed", "deleted", "refresh_failed"),
    "installation": ("paused", "resumed"),
    "worker": ("started", "stopped", "changed", "draining", "stopping", "lost", "returned"),
    "queue": ("paused", "resumed", "limited"),
    "task": (
        *("created", "changed", "deleted", "enabled", "disabled", "completed", "error"),
        *("skip_next", "misfired", "no_worker", "has_worker"),
    ),
    "alert": ("raised", "repeated", "recovered"),
    "subscription": ("created", "changed", "enabled", "disabled", "removed", "moved", "missed"),
}
"""The types of events that are shown: all but those of runs."""
_EVENTS: Final = 50
_STRETCH: Final = 500
_MOST_STRETCHES: Final = 8


async def show_system(ctx: PageContext) -> Response:
    store = ctx.services.store
    kind = ctx.query.get("kind", "")
    wanted = {
        f"{each}.{what}" for each in (EVENT_KINDS if kind not in EVENT_KINDS else (kind,)) for what in EVENT_KINDS[each]
    }
    before = ctx.number("before", 17)
    upto = await store.last_event() + 1 if before is None else before
    found, reached = await backwards(store, upto, wanted)
    return ctx.page(
        "activity_system.html",
        events=[{**event, "subject": _event_subject(ctx, event)} for event in found],
        kinds=list(EVENT_KINDS),
        kind=kind,
        older=merged(ctx.query, before=reached) if reached > 1 else None,
        newest=merged(ctx.query, before=None) if "before" in ctx.query else None,
        looked=upto - reached,
        hours=ctx.deps.settings.events.retention / 3_600,
    )


def _event_subject(ctx: PageContext, event: Mapping[str, Any]) -> ShownSubject:
    data = event["data"]
    if event["task_id"]:
        return ShownSubject(event["topic"] or str(event["task_id"]), f"/tasks/{event['task_id']}")
    if worker := data.get("worker_id"):
        return ShownSubject(worker, f"/workers/{quote(worker, safe='')}")
    if name := data.get("subscription"):
        return _named(ctx, "subscriptions", name)
    if event["type"].startswith("calendar."):
        return _named(ctx, "calendars", data["name"])
    if queue := event["queue"] or data.get("queue"):
        return ShownSubject(queue, f"/queues/{quote(queue, safe='')}")
    return ShownSubject(data.get("subject") or "–")


async def backwards(store: Store, upto: int, types: Collection[str]) -> tuple[list[dict[str, Any]], int]:
    """Events before that number, newest first; and how far down the stream was read."""
    found: list[dict[str, Any]] = []
    for _ in range(_MOST_STRETCHES):
        if upto <= 1 or len(found) >= _EVENTS:
            break
        after = max(0, upto - _STRETCH - 1)
        page = await store.event_page(after, upto - 1 - after, types)
        found += [event_json(event) for event in reversed(page.events) if event.seq < upto]
        if page.has_gap:
            return found, 1  # what came before has been removed
        upto = after + 1
    return found, upto


PAGES: Final = [
    get("/activity", show, role=Role.ADMIN),
    get("/activity.csv", export, role=Role.ADMIN),
    get("/activity/check", check, role=Role.ADMIN),
    get("/activity/{number}", show_one, role=Role.ADMIN),
]
