"""Why a run or a slot is as it is, in the visitor's language, and what to do about it; a schedule in words, and its
slots to come.

`explained` turns a finding of the explain service into a sentence with links and times; `advice` turns a cause into a
recommendation; `refusal` says why a callback was refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import msgspec
from markupsafe import Markup, escape

from noonbell import when
from noonbell.clock import Instant, instant_of, slot_of
from noonbell.errors import ScheduleError, Sentence
from noonbell.model.calendar import QuietAction, QuietHours
from noonbell.model.callback_refusal import REFUSALS, RefusalCode
from noonbell.model.run import FINAL, SUCCEEDED, Origin, Run, RunStatus
from noonbell.model.target_kind import FLOWS, HTTP
from noonbell.model.task import Task, TaskSpec, TaskStatus
from noonbell.model.task_schedule import ClockChanges
from noonbell.model.worker import label_pairs
from noonbell.policy.account import bounds_of
from noonbell.policy.calendar import placement_under
from noonbell.policy.quiet import quiet_at
from noonbell.policy.slot_history import VersionSpan
from noonbell.service.explain_findings import SlotFinding
from noonbell.service.explain_words import TIMES, code_words
from noonbell.service.translation import FailureFact, Translator, error_words, recognized
from noonbell.web import i18n, render
from noonbell.web.charts import badge
from noonbell.web.context import PageContext
from noonbell.when.calendar import Placed
from noonbell.when.due import Bounds, first, initial
from noonbell.when.schedule import Schedule

_RUNS: Final = frozenset({"run", "blocking"})
"""The facts that are ids of runs."""


@dataclass(frozen=True, slots=True)
class Explained:
    cause: str
    key: str
    """The sentence, where a cause has several."""
    text: Markup
    run_id: int | None = None
    blocking_run_id: int | None = None


def explained(ctx: PageContext, found: SlotFinding, *, here: int | None = None) -> Explained:
    """`here` is the run whose page it is: it is not linked to, and its error stands above the sentence already."""
    key = found.key or found.cause
    if here is not None and key == "ran_badly":
        key = "ran"
    said = [(key, found.facts), *found.more]
    text = Markup(" ").join(_sentence(ctx, each, facts, here) for each, facts in said)
    return Explained(found.cause, key, text, found.run_id, found.blocking_run_id)


def unclear(message: str) -> Explained:
    """The question was none that can be answered."""
    return Explained("", "", escape(message))


def _sentence(ctx: PageContext, key: str, facts: Mapping[str, Any], here: int | None) -> Markup:
    told = {name: _word(ctx, name, value, here) for name, value in facts.items()}
    return Markup(ctx.words(f"finding.{key}")).format(**told)  # noqa: S704 - ours


def _word(ctx: PageContext, name: str, value: Any, here: int | None) -> Markup | str:
    if isinstance(value, VersionSpan):
        return "" if value.schedule is None else value.schedule.describe(ctx.words.lang)
    if isinstance(value, FailureFact):
        return value.in_words(ctx.words)
    if value is None:
        return ctx.words("finding_word.somebody" if name == "actor" else "finding_word.none")
    if name in TIMES:
        return render.moment(ctx, value, relative=False)
    if name == "span":
        return i18n.span(value, ctx.words)
    if name == "status":
        return badge(str(value), ctx.words)
    if name in _RUNS:
        if value == here:
            return Markup('<span class="mono">{}</span>').format(value)
        return Markup('<a class="mono" href="{}">{}</a>').format(ctx.url(f"/runs/{value}"), value)
    return code_words(name, value, ctx.words)


BY_CODE: Final = {401: "credentials", 403: "credentials", 404: "not_there", 410: "not_there", 429: "too_many"}
"""Answers that say more than the hundred they belong to."""

BY_KIND: Final = {
    **{
        kind: kind
        for kind in (
            *("dns", "connection_lost", "tls", "timeout", "too_large", "unknown_service", "crash", "lost", "unknown"),
            *("callback_failed", "step", "command_not_allowed", "not_started", "unroutable", "no_responders", "nacked"),
            *("bad_method", "grpc_unavailable"),
        )
    },
    "connection_refused": "refused",
    **dict.fromkeys(("connect_timeout", "network_unreachable", "host_unreachable"), "unreachable"),
    "http_3xx": "redirect",
    "http_4xx": "refuses",
    "http_5xx": "target_failed",
    "blocked_address": "blocked",
    "protocol_error": "protocol",
    "error": "handler",
    "fail": "said_so",
    "invalid_payload": "payload",
    "invalid_result": "result",
    "callback_timeout": "no_callback",
    **dict.fromkeys(("exit_code", "signal", "too_many_processes"), "command"),
    "authentication": "broker_credentials",
    "refused": "broker_refuses",
    "grpc_resource_exhausted": "grpc_too_many",
    **dict.fromkeys(("grpc_unauthenticated", "grpc_permission_denied"), "grpc_credentials"),
    **dict.fromkeys(
        ("grpc_internal", "grpc_unknown", "grpc_aborted", "grpc_cancelled", "grpc_data_loss"), "grpc_failed"
    ),
    **dict.fromkeys(("grpc_invalid_argument", "grpc_not_found", "grpc_already_exists"), "grpc_refuses"),
    **dict.fromkeys(("grpc_failed_precondition", "grpc_out_of_range", "grpc_unimplemented"), "grpc_refuses"),
}
"""By `error_details.kind` of a run that failed."""

BY_SENTENCE: Final = frozenset(
    {
        *("no_worker_type", "no_worker_version", "no_worker_labels", "no_worker_named", "no_worker_part"),
        *("no_worker_commands", "no_worker_client"),
        *("concurrency_queue", "concurrency_queue_shut"),
    }
)
"""Sentences of a cause that ask for something else than the cause alone."""

BY_CAUSE: Final = {
    **{
        cause: cause
        for cause in (
            *("no_worker", "paused", "queue_paused", "overlap", "concurrency", "queue_full", "expired", "calendar"),
            *("quiet", "store_went_back", "rate_limited", "key_full", "planner_late", "store_down", "lost", "canceled"),
        )
    },
    **dict.fromkeys(("failure", "backoff"), "after_failure"),
    "circuit_open": "circuit",
    "error": "task_error",
}
"""By what `explain` found, for a run that has not failed."""

TASK: Final = frozenset(
    {
        *("credentials", "not_there", "too_many", "timeout", "redirect", "no_callback", "circuit", "overlap"),
        *("concurrency", "queue_full", "rate_limited", "task_error", "refuses", "after_failure", "tls", "dns"),
        "no_worker_version",
        *("key_full", "quiet"),
        *("not_started", "unknown_service"),
        *("broker_credentials", "broker_refuses", "unroutable"),
        *("bad_method", "grpc_credentials", "grpc_refuses", "grpc_too_many"),
    }
)
"""What is set right in the task."""
PLACES: Final = {
    **dict.fromkeys(
        (
            *(
                "expired",
                "lost",
                "no_worker",
                "no_worker_type",
                "no_worker_labels",
                "no_worker_named",
                "no_worker_part",
            ),
            *("no_worker_commands", "no_worker_client", "command_not_allowed"),
        ),
        "/workers",
    ),
    "paused": "/",
    "queue_paused": "/queues",
    **dict.fromkeys(("concurrency_queue", "concurrency_queue_shut"), "/queues"),
    "calendar": "/calendars",
    "store_down": "/settings",
}
"""Where the rest is."""


@dataclass(frozen=True, slots=True)
class Advice:
    key: str
    """Of `advice.…`."""
    facts: dict[str, Any] = field(default_factory=dict)
    place: str = ""
    """The address of the page where it is done; empty: here."""

    @property
    def starts_a_worker(self) -> bool:
        return self.key in ("no_worker", "no_worker_type", "no_worker_part")


def advice(run: Run, spec: TaskSpec | None, cause: str, *, key: str = "", refused: str = "") -> Advice | None:
    """None: there is nothing to do. `cause` and `key`: what `explain` found, and its sentence. `refused` is why the newest
    callback was, where one was and the run still lacks it.
    """
    found = _key(run, spec, cause, refused)
    if found is None:
        return None
    key = key if key in BY_SENTENCE and key.startswith(found) else found
    facts = {
        "queue": run.queue,
        "seconds": f"{spec.timeout_seconds:g}" if spec is not None else "–",
        "wait": spec.callback_seconds if spec is not None else "–",
        "code": run.response_code or "–",
        "address": (run.error_details or {}).get("address") or "–",
        "worker": run.worker_id or "–",
        "job_type": spec.job_type if spec is not None and spec.job_type else "–",
        "version": spec.min_worker_version if spec is not None else "–",
        "labels": ", ".join(label_pairs(spec.worker_labels)) if spec is not None else "–",
        "install": spec.target_kind.how_to_install if spec is not None and spec.target_kind.extra else "–",
    }
    return Advice(key, facts, _place(run, key))


def _place(run: Run, key: str) -> str:
    """A call has no task that could be changed: what limits it is its queue."""
    if key not in TASK:
        return PLACES.get(key, "")
    if run.origin is Origin.CALL:
        return "/queues" if key in ("rate_limited", "concurrency") else ""
    return f"/tasks/{run.task_id}/edit"


def _key(run: Run, spec: TaskSpec | None, cause: str, refused: str) -> str | None:
    if run.status in SUCCEEDED:
        return None
    if refused in ("signature", "unsigned", "clock", "stale") and run.status is not RunStatus.CANCELED:
        return f"callback_{refused}"
    if run.status in FINAL and run.status not in (RunStatus.SKIPPED, RunStatus.CANCELED):
        kind = str((run.error_details or {}).get("kind") or "")
        if kind == "http_4xx":
            return BY_CODE.get(run.response_code or 0, "refuses")
        if kind == "error" and spec is not None and spec.target_kind is HTTP:
            return "protocol"
        if kind == "error" and spec is not None and spec.message is not None:
            return "nacked"
        return BY_KIND.get(kind) or ("no_callback" if run.status is RunStatus.FAILED_TIMEOUT else "other")
    if cause == "canceled" and spec is not None and spec.target_kind is FLOWS:
        return "canceled_flow"
    return BY_CAUSE.get(cause)


@dataclass(frozen=True, slots=True)
class Refusal:
    key: RefusalCode | Literal[""]
    """Of `refused.…` and `refused.why.…`; empty where an older node said it in other words."""
    facts: Mapping[str, str]
    said: str

    @property
    def status(self) -> str:
        return self.facts.get("status", "")


def refusal(reason: str | None) -> Refusal | None:
    if not reason:
        return None
    for code, text in REFUSALS.items():
        found = recognized(reason, (text,))
        if isinstance(found, Sentence):
            return Refusal(code, found.facts, reason)
    return Refusal("", {}, reason)


def sentence(task: Mapping[str, Any], lang: str) -> str:
    """What the schedules of a task say, in words; nothing for a task that runs on demand only."""
    bases = task["schedules"] or ([] if task["schedule"] is None else [task["schedule"]])
    if not bases:
        return ""
    changes = None if task["dst"] is None else msgspec.convert(task["dst"], ClockChanges)
    try:
        return when.compose(bases, task["exclude"], task["timezone"], changes).describe(lang)
    except ScheduleError as error:
        return error_words(error, Translator(lang))


def cron_text(schedule: Mapping[str, Any] | None) -> str:
    """The expression of a cron schedule as it was written; else empty."""
    if schedule is None or schedule.get("type") != "cron":
        return ""
    return str(schedule.get("source") or schedule.get("expr", ""))


@dataclass(frozen=True, slots=True)
class Upcoming:
    at: Instant
    why: str = ""
    """Why nothing will run: `operator` (skip_next), `paused`, `error`, `calendar`, `quiet`. Empty: it fires."""
    moved_from: Instant | None = None
    """The slot, where a calendar has moved it."""
    held_until: Instant | None = None
    """The end of the quiet hours of its task that hold its run."""


@dataclass(frozen=True, slots=True)
class Ahead:
    slots: list[Upcoming]
    ends: str = ""
    """Why there are no more: `demand`, `deleted`, `completed`, `after_run`, `end_at`, `repeat`. Empty: they go on."""


_OFF = {TaskStatus.DISABLED: "paused", TaskStatus.ERROR: "error"}


def upcoming(task: Task, now: Instant, count: int) -> Ahead:
    """The next `count` slots from the cursor on; for a task that is off, those that it would have had."""
    if task.deleted_at is not None:
        return Ahead([], "deleted")
    schedule, bounds = when.of_task(task.spec), bounds_of(task.spec)
    if schedule is None:
        return Ahead([], "demand" if task.spec.after is None else "after")
    if task.status is TaskStatus.COMPLETED:
        return Ahead([], "completed")
    found = _upcoming(task, schedule, bounds, now, count)
    return replace(found, slots=[in_quiet_hours(each, task.spec.quiet, task.spec.timezone) for each in found.slots])


def in_quiet_hours(slot: Upcoming, hours: Sequence[QuietHours], zone: str) -> Upcoming:
    """With what quiet hours of the task do to it."""
    quiet = None if slot.why else quiet_at(hours, zone, slot.at)
    if quiet is None:
        return slot
    return replace(slot, why="quiet") if quiet.action is QuietAction.SKIP else replace(slot, held_until=quiet.until)


def _upcoming(task: Task, schedule: Schedule, bounds: Bounds, now: Instant, count: int) -> Ahead:
    off = _OFF.get(task.status, "")
    slot = initial(schedule, bounds, int(slot_of(now))) if off else _cursor(task)
    if schedule.is_fixed_delay:
        known = [] if slot is None else [Upcoming(instant_of(slot), off or ("operator" if task.skip_next else ""))]
        return Ahead(known, "after_run")
    left = None if schedule.repeat is None else max(0, schedule.repeat - task.fired)
    slots: list[Upcoming] = []
    if task.calendar_use is not None:
        cursor = int(slot_of(now)) + 1 if off or task.next_fire_at is None else int(slot_of(task.next_fire_at))
        return _under_calendar(task, placement_under(task, schedule, bounds).coming(cursor, left), off, count)
    while slot is not None and len(slots) < count and len(slots) != left:
        is_skipped = task.skip_next < 0 or len(slots) < task.skip_next
        slots.append(Upcoming(instant_of(slot), off or ("operator" if is_skipped else "")))
        slot = first(schedule, bounds, slot)
    if left is not None and len(slots) == left:
        return Ahead(slots, "repeat")
    if slot is None:
        return Ahead(slots, "end_at" if task.spec.end_at is not None else "completed")
    return Ahead(slots)


def _under_calendar(task: Task, found: Iterator[Placed], off: str, count: int) -> Ahead:
    """When its slots are due. Closed ones use up no skip that an operator asked for."""
    slots: list[Upcoming] = []
    open_slots = 0
    for one in found:
        if len(slots) >= count:
            return Ahead(slots)
        is_skipped = task.skip_next < 0 or open_slots < task.skip_next
        why = off or ("calendar" if one.is_closed else "operator" if is_skipped else "")
        open_slots += not one.is_closed
        slots.append(Upcoming(instant_of(one.at), why, instant_of(one.slot) if one.is_moved else None))
    ends = task.spec.schedule is not None and task.spec.schedule.get("repeat") not in (None, -1)
    return Ahead(slots, "repeat" if ends else "end_at" if task.spec.end_at is not None else "completed")


def _cursor(task: Task) -> int | None:
    return None if task.next_fire_at is None else int(slot_of(task.next_fire_at))
