"""From a JSON object to a TaskSpec: every field of a task with its check, HTTP targets included, and the defaults of the
installation (`Rules`). The inverse is `tasks.written`.

`read_task` reads a whole task: what is absent has its default. A partial change is laid over what the task says now
(`tasks.merged`) and read as a whole again, so there is one set of rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from noonbell import sealing, when
from noonbell.clock import Instant, slot_of
from noonbell.errors import ScheduleError, Sentence
from noonbell.fields import Moment, meta, read_into, read_values
from noonbell.fields.problems import Problems, ReadContext, shown
from noonbell.model.call import CALL_TYPE, NAMED_TYPES
from noonbell.model.run import RunStatus
from noonbell.model.target_kind import (
    BROKERS,
    COMMANDS,
    FLOWS,
    GRPC,
    HTTP,
    JOBS,
    OWN_QUEUES,
    TARGET_KINDS,
    ExecType,
    TargetKind,
    target_kind,
)
from noonbell.model.task import (
    MOST_STEPS,
    Fanout,
    MisfirePolicy,
    OnLost,
    RetryPolicy,
    Step,
    TaskId,
    TaskPause,
    TaskSpec,
    TaskStatus,
)
from noonbell.model.task_schedule import NEVER, ClockChanges
from noonbell.policy import flows, value_path
from noonbell.policy.quiet import hours_problems
from noonbell.sealing import Sealer
from noonbell.service.grpc_fields import check_grpc
from noonbell.service.retention import KeepFields
from noonbell.service.target_fields import (
    CheckTemplate,
    any_text,
    check_command,
    check_http,
    check_message,
    service_problem,
)
from noonbell.settings import Settings
from noonbell.when import due
from noonbell.when.cron import with_dialect
from noonbell.when.cron_fields import CronDialect

MOST_SCHEDULES: Final = 20
"""In `schedules`, and in `exclude`."""
MOST_BYTES: Final = 60_000
"""Of the columns that hold a small JSON object: what MariaDB's `text` takes, with room to spare."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A task as its caller asks for it."""

    spec: TaskSpec
    status: TaskStatus | None = None
    """None: ENABLED for a new task, as it stands for a change."""
    skip_next: int | None = None


class TaskWrite(TaskSpec, frozen=True, kw_only=True):
    """A task as its caller writes it: the spec, the short form of its schedule, and the status that it begins with."""

    example: ClassVar[dict[str, Any] | None] = {
        "name": "sync_stats",
        "description": "Collect the figures",
        "cron_expr": "*/5 * * * *",
        "http_method": "POST",
        "target_url": "http://svc.internal/api/sync",
        "headers": {"Content-Type": "application/json"},
        "body_template": '{"run_id": "{{run_id}}"}',
        "timeout_seconds": 10,
        "retry_policy": {"max_retries": 3, "initial_delay": 5, "strategy": "exponential", "max_delay": 60},
    }

    schedule: Annotated[when.ScheduleSpec | None, meta("When it runs. Null: on demand only.", anything=True)] = None  # type: ignore[assignment]
    schedules: Annotated[
        tuple[when.ScheduleSpec, ...],
        meta(
            f"Several schedules instead of `schedule`, at most {MOST_SCHEDULES}; a slot that two of them name is one slot."
            " No `once`, no fixed_delay, no `repeat`.",
            anything=True,
            max_length=MOST_SCHEDULES,
        ),
    ] = ()  # type: ignore[assignment]
    exclude: Annotated[
        tuple[when.ScheduleSpec, ...],
        meta(
            f"Schedules whose slots are left out, at most {MOST_SCHEDULES}. No fixed_delay, no `repeat`.",
            anything=True,
            max_length=MOST_SCHEDULES,
        ),
    ] = ()  # type: ignore[assignment]
    cron_expr: Annotated[
        str | None,
        meta(
            "Short form of a cron schedule; shown in six fields.",
            anything=True,
            max_length=1_024,
            examples=["*/5 * * * *"],
        ),
    ] = None
    cron_dialect: Annotated[
        CronDialect | None,
        meta(
            "How cron_expr is read: standard, cronjob or quartz. Default `scheduler.cron_dialect` of the settings.",
            anything=True,
            default=None,
        ),
    ] = None
    status: Annotated[
        Literal["ENABLED", "DISABLED"] | None,
        meta(
            "ENABLED by default for a new task; unchanged by default in a change.",
            choices=("ENABLED", "DISABLED"),
            default=None,
            expected="ENABLED or DISABLED; Noonbell sets the other states itself",
        ),
    ] = None
    skip_next: Annotated[
        int | None,
        meta(
            "Skip this many of the next slots; -1 skips all until it is set back to 0.",
            ge=-1,
            le=1_000_000,
            default=0,
        ),
    ] = None


class TaskState(msgspec.Struct, frozen=True, kw_only=True):
    """What a task shows and no caller writes. In a change these are passed over: a task can be sent back as it was read."""

    pause: Annotated[
        TaskPause | None, meta("Why it is paused and until when, if given.", read_only=True, examples=[None])
    ] = None
    created_by: Annotated[str | None, meta("Who created it.", read_only=True)] = None
    created_at: Annotated[Moment, meta(read_only=True, examples=["2026-11-15T02:28:10Z"])] = NEVER
    updated_at: Annotated[Moment, meta(read_only=True, examples=["2026-11-15T02:28:10Z"])] = NEVER
    next_fire_at: Annotated[
        Moment | None, meta("The next slot.", read_only=True, examples=["2026-11-15T02:35:00Z"])
    ] = None
    last_run_id: Annotated[int | None, meta("The newest run.", read_only=True, examples=[7340033])] = None
    last_run_at: Annotated[
        Moment | None, meta("When the newest run started.", read_only=True, examples=["2026-11-15T02:30:00.004Z"])
    ] = None
    last_run_status: Annotated[RunStatus | None, meta(read_only=True, examples=["SUCCESS"])] = None
    active_runs: Annotated[int, meta("Runs that are executing or waiting for their callback.", read_only=True)] = 0
    queued_runs: Annotated[int, meta("Runs that wait.", read_only=True)] = 0


VERSION = meta("The version that was read, a number; if it is no longer current: VERSION_CONFLICT.", anything=True)


class TaskReplace(TaskWrite, frozen=True, kw_only=True):
    """What is left out gets its default."""

    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (TaskState,)

    id: Annotated[int, meta("The id in the path.", read_only=True)] = 0
    version: Annotated[Any, VERSION] = msgspec.UNSET


class TaskPatch(TaskReplace, frozen=True, kw_only=True):
    """What is left out stays."""

    example: ClassVar[dict[str, Any] | None] = {"cron_expr": "*/10 * * * *", "description": "Every ten minutes"}

    name: Annotated[str | msgspec.UnsetType, meta("1 to 255 characters, unique.", min_length=1)] = msgspec.UNSET  # type: ignore[assignment]


class ShownTask(TaskWrite, frozen=True, kw_only=True):
    component: ClassVar[str] = "Task"
    example: ClassVar[dict[str, Any] | None] = None
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (TaskState,)

    id: Annotated[TaskId, meta(examples=[1])]
    status: TaskStatus  # type: ignore[assignment]
    version: Annotated[int, meta("Starts at 1 and increases with each change.", examples=[1])]


READ_ONLY: Final = frozenset(
    {*TaskState.__struct_fields__, *("id", "version", "deleted_at", "next_fires", "notes", "description_of_schedule")}
)
"""What an answer shows and no caller writes. In a change these are passed over, so that a task can be sent back as read."""


def read_task(given: Mapping[str, Any], now: Instant, rules: Rules, *, kept: TaskSpec | None = None) -> Draft:
    """Raises InvalidArgument with every problem by its field's name.

    `now` is what "at once" means in a schedule. `kept` is what the task says now, if there is one: where a new schedule
    differs from the one that it has only in a moment that was left out, it stays.
    """
    zone = _zone(given)
    at = ReadContext(Problems(), zone=when.zones.find(zone))
    kind = target_kind(given.get("exec_type"), given if given.get("exec_type") is None else {})
    values = read_values(TaskWrite, _over_defaults(given, rules, kind), at)
    values["timezone"] = zone
    status, skip_next = values.pop("status", None), values.pop("skip_next", None)
    for name in ("schedule", "schedules", "exclude", "cron_expr", "cron_dialect"):
        values.pop(name, None)
    _check_identity(given, values, at)
    _check_target(given, values, at, rules)
    if kind is FLOWS:
        values["steps"] = _read_steps(given.get("steps"), at, rules)
        _refuse_for_flow(values, at)
    if rules.services is not None:
        _check_services(values, at, rules.services, kept)
    values |= read_when(given, values, at, ScheduleReader(zone, now, rules, values.get("dst")), kept)
    check_calendar(values, at)
    _check_policies(values, at, rules, kind)
    _check_key(values, at)
    for field, problem in hours_problems("quiet", values.get("quiet", ())).items():
        at.wrong(field, problem)
    _check_flow(given, values, at, rules)
    at.problems.finish()
    return Draft(TaskSpec(**values), None if status is None else TaskStatus(status), skip_next)


def _over_defaults(given: Mapping[str, Any], rules: Rules, kind: TargetKind) -> Mapping[str, Any]:
    """A retry policy that says a part of itself has the installation's for the rest."""
    policy = given.get("retry_policy")
    if not isinstance(policy, Mapping):
        return given
    usual = msgspec.to_builtins(rules.retry(kind))
    said = {name: value for name, value in policy.items() if value is not None}
    return {**given, "retry_policy": {**usual, **said}}


def _zone(given: Mapping[str, Any]) -> str:
    """The zone that moments without an offset are in. One that cannot be found is complained of elsewhere."""
    value = given.get("timezone")
    try:
        when.zones.find("UTC" if value is None else value)
    except ScheduleError:
        return "UTC"
    return "UTC" if value is None else str(value)


def _check_identity(given: Mapping[str, Any], values: Mapping[str, Any], at: ReadContext) -> None:
    name = values.get("name", "")
    if given.get("name") is None:
        at.wrong("name", "is missing; expected a text of 1 to 255 characters")
    elif name != name.strip():
        at.expected("name", name, "a name without spaces at its start or end")
    if any(not 1 <= len(label) <= 255 or "=" in label for label in values.get("worker_labels", {})):
        at.wrong(
            "worker_labels", "has a name that is empty, too long or has a '='; expected names of 1 to 255 characters"
        )
    for field in ("labels", "specific_worker_ids"):
        if len(msgspec.json.encode(values.get(field, ()))) > MOST_BYTES:
            at.wrong(field, "are more than {most} bytes", most=MOST_BYTES)
    kept = {field: value for field, value in values.get("meta", {}).items() if field in KeepFields.__struct_fields__}
    read_into(KeepFields, kept, ReadContext(at.problems, "meta"))
    check_zone(given, at)


def check_zone(given: Mapping[str, Any], at: ReadContext) -> None:
    if given.get("timezone") is not None:
        try:
            when.zone(given["timezone"])
        except ScheduleError as error:
            at.problems.take(error)


def _check_target(given: Mapping[str, Any], values: dict[str, Any], at: ReadContext, rules: Rules) -> None:
    """What is called: the fields of its kind of target, none of another kind's, and the queue."""
    if values.get("job_type") == "":
        del values["job_type"]
    kind = target_kind(values.get("exec_type"), values)
    exec_type = values.setdefault("exec_type", kind.exec_types[0])
    for other in TARGET_KINDS:
        for name, default in other.fields.items() if other is not kind else ():
            usual: tuple[Any, ...] = (
                None,
                "",
                [],
                (),
                default,
                list(default) if isinstance(default, tuple) else default,
            )
            if name in kind.shared_fields:
                continue
            if given.get(name) not in usual:
                at.wrong(name, other.not_for_others.format(kind=other.name, exec_type=exec_type))
            values.pop(name, None)
    _check_queue(kind, given, values, at)
    if kind.name in _TARGET_RULES:
        _TARGET_RULES[kind.name](values, at, rules.check_template)
    elif values.get(kind.named_by) is None:
        at.wrong(kind.named_by, "is missing; expected the target of a task of exec_type {kind}", kind=exec_type)


def _check_queue(kind: TargetKind, given: Mapping[str, Any], values: dict[str, Any], at: ReadContext) -> None:
    if kind.has_own_queue:
        if values.pop("queue", kind.queue) not in ("", kind.queue):
            at.expected(
                "queue",
                given.get("queue"),
                Sentence("nothing: {kind} targets live on the queue {queue}", kind=kind.name, queue=repr(kind.queue)),
            )
        return
    other = OWN_QUEUES.get(values.get("queue", ""))
    if other is not None and other.queue != kind.queue:
        at.wrong(
            "queue",
            "is {value}; that queue is for {kind} targets, expected another one",
            value=repr(other.queue),
            kind=other.name,
        )
    if values.get("queue") == "":
        at.expected("queue", "", "a text of 1 to 255 characters")


def _read_steps(given: Any, at: ReadContext, rules: Rules) -> tuple[Step, ...]:
    """The steps of a flow, each read as a task is, and then whether they fit together."""
    what = f"a list of 1 to {MOST_STEPS} steps"
    if given is None:
        at.wrong("steps", "is missing; expected {what}", what=what)
        return ()
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= MOST_STEPS:
        at.expected("steps", given, what)
        return ()
    before = len(at.problems.found)
    steps = [_read_step(each, ReadContext(at.problems, f"steps[{index}]"), rules) for index, each in enumerate(given)]
    if len(at.problems.found) == before:
        for index, name, problem in flows.problems(steps):
            at.wrong(f"steps[{index}].{name}", problem)
    return tuple(steps)


def _read_step(given: Any, at: ReadContext, rules: Rules) -> Step:
    if not isinstance(given, Mapping):
        at.problems.add(at.path, Sentence("is {value}; expected {what}", value=shown(given), what="an object"))
        return Step(id="_")
    named_kind = given.get("exec_type")
    kind = target_kind(named_kind, given if named_kind is None else {})
    if kind is FLOWS or named_kind == ExecType.FLOW:
        at.wrong("exec_type" if named_kind else "steps", "cannot be used in a step; a step calls a target or a job")
        return Step(id="_")
    values = read_values(Step, _over_defaults(given, rules, kind), at)
    if given.get("id") is None:
        at.wrong("id", "is missing; expected a name that is unique among the steps")
        values["id"] = "_"
    _check_target(given, values, at, replace(rules, check_template=any_text))
    _check_policies(values, at, rules, kind)
    _check_flow(given, values, at, rules)
    return Step(**values)


def _check_services(
    values: Mapping[str, Any], at: ReadContext, services: Mapping[str, str], kept: TaskSpec | None
) -> None:
    """Report each service that is called and that the settings do not know. A URL that the task has already may stay:
    a task can be paused, and changed in other fields, after the settings have lost a name.
    """
    had = set() if kept is None else {kept.target_url, kept.cancel_url, *(step.target_url for step in kept.steps)}
    urls = {name: values.get(name) for name in ("target_url", "cancel_url")}
    urls |= {f"steps[{index}].target_url": step.target_url for index, step in enumerate(values.get("steps", ()))}
    for name, url in urls.items():
        problem = None if url is None or url in had else service_problem(url, services)
        if problem is not None:
            at.wrong(name, problem)


def _refuse_for_flow(values: Mapping[str, Any], at: ReadContext) -> None:
    """What a flow's own run has no use for: its steps are carried out, and retried, each for itself."""
    policy = values.get("retry_policy")
    if policy is not None and policy.max_retries:
        at.wrong("retry_policy", "does not apply to a flow; each of its steps has its own")
    if values.get("fanout") is not None:
        at.wrong("fanout", "does not apply to a flow; leave out fanout or steps")


def _check_key(values: Mapping[str, Any], at: ReadContext) -> None:
    """The key of runs is a path into the payload."""
    text = values.get("concurrency_key")
    if text is None:
        return
    found = value_path.read(text, dashes=True)
    problem = None if found is None else value_path.shape_problem(found[0])
    if found is None or found[1] != len(text) or found[0].root != "payload" or not found[0].segments:
        at.expected("concurrency_key", text, "a field of the payload, such as payload.tenant")
    elif problem is not None:
        at.wrong("concurrency_key", problem)


def _check_job(values: Mapping[str, Any], at: ReadContext, _check_template: CheckTemplate) -> None:
    if values.get("job_type") is None:
        at.wrong("job_type", "is missing; a JOB needs the name of its handler")
    elif values["job_type"] == CALL_TYPE:
        at.wrong(
            "job_type", "is {value}, which is for calls; create one with POST /api/v1/calls", value=repr(CALL_TYPE)
        )
    elif values["job_type"] in NAMED_TYPES:
        at.wrong("job_type", "is {value}, which is built in; expected another one", value=repr(values["job_type"]))


@dataclass(frozen=True, slots=True)
class ScheduleReader:
    """What the schedules of one task are read with."""

    zone: str
    now: Instant
    rules: Rules
    changes: ClockChanges | None

    def normal(self, spec: Any, kept: Mapping[str, Any] | None) -> dict[str, Any]:
        """The stored form of what was written. Raises ScheduleError. `kept` is the one that stands in its place now."""
        spec = self._in_its_dialect(spec, kept)
        normal = self._normalised(spec)
        moment = {"interval": "anchor", "once": "at"}.get(normal["type"])
        if kept is not None and moment is not None and spec.get(moment) is None and moment in kept:
            # The caller left open what creation decided. Asked for again, it is no other schedule.
            again = self._normalised({**spec, moment: kept[moment]})
            if again == kept:
                return again
        return normal

    def _in_its_dialect(self, spec: Any, kept: Mapping[str, Any] | None) -> Any:
        """A cron that names no dialect has the one of the settings; but the same expression stays in the one that it has."""
        if kept is not None and kept["type"] == "cron":
            again = with_dialect(spec, CronDialect(kept.get("dialect", CronDialect.STANDARD)))
            if again is not spec and self._expr_of(again) == kept["expr"]:
                return again
        return with_dialect(spec, self.rules.cron_dialect)

    def _expr_of(self, spec: Any) -> str | None:
        try:
            return str(self._normalised(spec)["expr"])
        except ScheduleError:
            return None

    def _normalised(self, spec: Any) -> dict[str, Any]:
        return when.normalise(
            spec, self.zone, slot_of(self.now), seconds_field=self.rules.seconds_field, changes=self.changes
        )


def read_when(
    given: Mapping[str, Any],
    values: Mapping[str, Any],
    at: ReadContext,
    reader: ScheduleReader,
    kept: TaskSpec | None = None,
) -> dict[str, Any]:
    """`schedule`, `schedules` and `exclude`, as they are stored. `values` are the fields of the task that have been read."""
    start, end = values.get("start_at"), values.get("end_at")
    if start is not None and end is not None and end < start:
        at.wrong("end_at", "is before start_at")
    before = len(at.problems.found)
    schedule = _schedule_of(given, at, reader, None if kept is None else kept.schedule)
    schedules = _read_schedules("schedules", given, at, reader.normal, () if kept is None else kept.schedules)
    exclude = _read_schedules("exclude", given, at, reader.normal, () if kept is None else kept.exclude)
    if schedules and (given.get("schedule") is not None or given.get("cron_expr") is not None):
        at.wrong("schedules", "cannot be combined with schedule; expected one of the two")
    if exclude:
        _check_exclude(schedule, schedules, given, at)
    found = {"schedule": schedule, "schedules": schedules, "exclude": exclude}
    if len(at.problems.found) == before and (schedule is not None or schedules):
        _check_together(schedules or (schedule or {},), exclude, values, at, reader)
    return found


def _schedule_of(
    given: Mapping[str, Any], at: ReadContext, reader: ScheduleReader, kept: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    spec = schedule_asked_for(given, at)
    if spec is None:
        return None
    try:
        return reader.normal(spec, kept)
    except ScheduleError as error:
        for name, problem in error.sentences.items():
            at.wrong(short_name(given, name), problem)
        return None


def _read_schedules(
    field: str,
    given: Mapping[str, Any],
    at: ReadContext,
    normal: Callable[[Any, Mapping[str, Any] | None], dict[str, Any]],
    kept: Sequence[Mapping[str, Any]] = (),
) -> tuple[dict[str, Any], ...]:
    """The schedules of a list, each in its stored form; what is wrong is named with its place in the list."""
    listed = given.get(field)
    if listed is None:
        return ()
    if not isinstance(listed, list | tuple) or len(listed) > MOST_SCHEDULES:
        at.expected(field, listed, Sentence("a list of at most {most} schedules", most=MOST_SCHEDULES))
        return ()
    found: list[dict[str, Any]] = []
    for index, spec in enumerate(listed):
        try:
            made = normal(spec, kept[index] if index < len(kept) else None)
        except ScheduleError as error:
            for name, problem in error.sentences.items():
                at.wrong(f"{field}[{index}]{name.removeprefix('schedule')}" if name != "timezone" else name, problem)
            continue
        for name, problem in _unfit_for_list(field, made):
            at.wrong(f"{field}[{index}].{name}", problem)
        found.append(made)
    if len(msgspec.json.encode(found)) > MOST_BYTES:
        at.wrong(field, "are more than {most} bytes", most=MOST_BYTES)
    return tuple(found)


def _unfit_for_list(field: str, made: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if made["type"] == "once" and field == "schedules":
        yield "type", "is once; expected a schedule that repeats: a single moment is a task of its own"
    if made.get("mode") == "fixed_delay":
        yield "mode", "is fixed_delay, whose slots depend on runs; expected fixed_rate"
    if made.get("repeat") is not None:
        yield (
            "repeat",
            "counts the slots of a whole task; expected none here, and end_at of the task where it is to end",
        )


def _check_exclude(
    schedule: Mapping[str, Any] | None, schedules: Sequence[Any], given: Mapping[str, Any], at: ReadContext
) -> None:
    if schedule is None and not schedules:
        if all(given.get(name) is None for name in ("schedule", "cron_expr", "schedules")):
            at.wrong("exclude", "requires a schedule, and this task has none; leave it out too")
    elif schedule is not None and (schedule["type"] == "once" or schedule.get("mode") == "fixed_delay"):
        what = "fixed_delay, whose slots depend on runs" if schedule["type"] == "interval" else "once"
        template = "requires a schedule that repeats, and this one is {what}"
        at.wrong("exclude", template, what=what)


def _check_together(
    bases: Sequence[Mapping[str, Any]],
    exclude: Sequence[Mapping[str, Any]],
    values: Mapping[str, Any],
    at: ReadContext,
    reader: ScheduleReader,
) -> None:
    """What concerns the slots of all the schedules together."""
    schedule, after = when.compose(bases, exclude, reader.zone, reader.changes), slot_of(reader.now)
    if isinstance(schedule, when.Composed) and schedule.leaves_out_everything(after):
        template = (
            "leaves out every slot of the next {days} days that have one; expected schedules that leave some slots over"
        )
        at.wrong("exclude", template, days=f"{schedule.most_days:,}")
        return
    jitter = values.get("jitter_seconds", 0)
    gap = due.shortest_gap(schedule, after) if jitter else None
    if gap is not None and jitter >= gap:
        at.expected(
            "jitter_seconds", jitter, Sentence("less than the {gap} seconds between two slots of the schedule", gap=gap)
        )


def check_calendar(values: Mapping[str, Any], at: ReadContext) -> None:
    if values.get("calendar") is None:
        return
    schedule = values.get("schedule") or {}
    if not schedule and not values.get("schedules") and "schedule" not in at.problems.found:
        at.wrong("calendar", "requires a schedule, and this task has none")
    if schedule.get("mode") == "fixed_delay":
        at.wrong("calendar", "cannot be combined with mode fixed_delay, whose slots depend on its runs")


def _check_policies(values: dict[str, Any], at: ReadContext, rules: Rules, kind: TargetKind) -> None:
    if values.get("timeout_seconds", 0) <= 0:
        values["timeout_seconds"] = rules.timeout(kind)
    if values.get("retry_policy") is None:
        values["retry_policy"] = rules.retry(kind)
    is_limited = values.get("misfire_policy") is MisfirePolicy.CATCH_UP_LIMITED
    if is_limited and values.get("catchup_limit", 0) < 1:
        at.wrong("catchup_limit", "is 0; CATCH_UP_LIMITED needs 1 or more, the number of late slots to run")


def _check_flow(given: Mapping[str, Any], values: dict[str, Any], at: ReadContext, rules: Rules) -> None:
    values.setdefault("on_lost", rules.on_lost)
    lease = values.get("worker_timeout_ms", 15_000)
    # A short lease with no word about the heartbeat gets a heartbeat that fits.
    ping = values.setdefault("ping_interval_ms", min(5_000, lease // 3))
    if ping >= lease:
        what = f"less than worker_timeout_ms ({lease}), or every lease would run out"
        at.expected("ping_interval_ms", given.get("ping_interval_ms", ping), what)
    fanout: Fanout | None = values.get("fanout")
    workers, success = (None, None) if fanout is None else (fanout.workers, fanout.success)
    if isinstance(workers, int) and isinstance(success, int) and success > workers:
        at.wrong("fanout.success", "is {value}; expected at most the {workers} workers", value=success, workers=workers)


def schedule_asked_for(given: Mapping[str, Any], at: ReadContext) -> Any:
    """The schedule that is given, or the one that its short form `cron_expr`, `cron_dialect` stands for."""
    spec, shorthand, dialect = given.get("schedule"), given.get("cron_expr"), given.get("cron_dialect")
    if shorthand is None:
        if dialect is not None:
            at.wrong("cron_dialect", "requires a cron expression, and there is none; a schedule has its own dialect")
        return spec
    if spec is not None:
        at.wrong("cron_expr", "is the short form of schedule; expected one of the two, not both")
        return None
    return {"type": "cron", "expr": shorthand, **({} if dialect is None else {"dialect": dialect})}


def short_name(given: Mapping[str, Any], name: str) -> str:
    """What a field of the schedule is called by who wrote `cron_expr`."""
    if given.get("cron_expr") is None:
        return name
    return {"schedule.expr": "cron_expr", "schedule.dialect": "cron_dialect"}.get(name, name)


_TARGET_RULES: Final[Mapping[str, Callable[[dict[str, Any], ReadContext, CheckTemplate], None]]] = {
    HTTP.name: check_http,
    JOBS.name: _check_job,
    FLOWS.name: lambda *_: None,  # `_read_steps` has checked it
    COMMANDS.name: check_command,
    GRPC.name: check_grpc,
    **{kind.name: partial(check_message, kind) for kind in BROKERS},
}
"""What the declarations of its fields cannot say of a kind of target, besides that what it calls must be there."""


HTTP_RETRY: Final = RetryPolicy(max_retries=0)
JOB_RETRY: Final = RetryPolicy(max_retries=3)


@dataclass(frozen=True, slots=True)
class Proof:
    """What a callback's signature is made of, and stands in: bytes and headers as they came. Checked once, not kept."""

    headers: Mapping[str, str]
    """By their names in small letters."""
    body: bytes


CallbackObjection = Callable[[Proof | None, TaskSpec, Instant], str]
"""Why a callback for a run of that task is not believed; empty where it is. The instant is now."""


@dataclass(frozen=True, slots=True)
class Rules:
    seconds_field: bool = True
    """False refuses cron expressions of six fields."""
    cron_dialect: CronDialect = CronDialect.STANDARD
    """Of a cron schedule that names none, where it is saved."""
    check_template: Callable[[str], None] = any_text
    """Raises InvalidArgument for an unknown placeholder. Targets know them; wiring hands it in."""
    http_timeout: float = 10
    job_timeout: float = 300
    http_retry: RetryPolicy = HTTP_RETRY
    job_retry: RetryPolicy = JOB_RETRY
    job_retry_delay: float = 60
    """Of jobs that speak the words of `/api/jobs`; a task's own `retry_policy` has its own default."""
    plan_timeout: float = 300
    on_lost: OnLost = OnLost.RETRY
    allow_id_mode: bool = True
    """Whether a callback may name task and run instead of a token."""
    callback_token_ttl: float = math.inf
    """Seconds; see `engine.callback.is_stale`."""
    callback_objection: CallbackObjection = lambda *_: ""
    """Checks a callback's signature. Targets know how to; wiring hands it in."""
    sealer: Sealer = Sealer()  # noqa: RUF009 - it has no key, and so no state
    """Seals the secrets of a task where it is saved."""
    address_problem: Callable[[str], str | None] = lambda _: None
    """Why a URL may not be called, where that is plain without a look at the network. Targets know; wiring hands it in."""
    services: Mapping[str, str] | None = None
    """The addresses of services by their names; None where no settings are read: then any name is taken."""

    def timeout(self, kind: TargetKind) -> float:
        """Seconds for one attempt, where a task names none."""
        return {HTTP.name: self.http_timeout, JOBS.name: self.job_timeout}.get(kind.name, kind.timeout_seconds)

    def retry(self, kind: TargetKind) -> RetryPolicy:
        """The retry policy of a task that names none."""
        usual = {HTTP.name: self.http_retry, JOBS.name: self.job_retry}.get(kind.name)
        return usual or RetryPolicy(max_retries=kind.max_retries)

    @classmethod
    def of(
        cls,
        settings: Settings,
        check_template: Callable[[str], None] = any_text,
        callback_objection: CallbackObjection = lambda *_: "",
        address_problem: Callable[[str], str | None] = lambda _: None,
    ) -> Rules:
        return cls(
            seconds_field=settings.scheduler.enable_seconds_field,
            cron_dialect=CronDialect(settings.scheduler.cron_dialect),
            check_template=check_template,
            http_timeout=settings.executor.request_timeout or 10,
            job_timeout=settings.jobs.job_timeout,
            http_retry=msgspec.convert({"max_retries": 0, **settings.executor.default_retry.given()}, RetryPolicy),
            job_retry=RetryPolicy(max_retries=settings.jobs.max_retries),
            job_retry_delay=settings.jobs.retry_delay,
            plan_timeout=settings.plans.exec_timeout,
            on_lost=OnLost(settings.recovery.orphaned_runs.upper()),
            allow_id_mode=settings.callback.allow_id_mode,
            callback_token_ttl=settings.callback.token_ttl,
            callback_objection=callback_objection,
            address_problem=address_problem,
            services=settings.executor.services,
            sealer=sealing.from_file(settings.secrets.key_file),
        )
