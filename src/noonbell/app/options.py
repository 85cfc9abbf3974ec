"""The options of `@app.job`, and what they say of the job's task and of its handler.

Besides a few short forms, an option is a field of a task, under the same name and with the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict

from noonbell.clock import SystemClock
from noonbell.errors import InvalidArgument
from noonbell.service.reader import Problems
from noonbell.service.rules import Rules
from noonbell.service.task_fields import read_task
from noonbell.when.schedule import shown


class JobOptions(TypedDict, total=False):
    """Every option is left out by default, and then has the default of the task's field."""

    name: str
    """The job type and the task's name; by default the function's name."""
    description: str
    labels: Mapping[str, str]
    status: Literal["ENABLED", "DISABLED"]
    external_id: str
    meta: Mapping[str, Any]

    cron: str
    """Short for `schedule={"type": "cron", "expr": …}`."""
    dialect: Literal["standard", "cronjob", "quartz"]
    """How `cron` is read; by default as `scheduler.cron_dialect` of the installation says."""
    every: float | timedelta
    """Short for a schedule of type interval: seconds, or a timedelta."""
    schedule: Mapping[str, Any]
    cron_expr: str
    cron_dialect: Literal["standard", "cronjob", "quartz"]
    timezone: str
    start_at: datetime | str
    end_at: datetime | str
    jitter_seconds: int

    payload: Mapping[str, Any]
    """What scheduled runs carry: checked against the signature."""
    queue: str

    timeout: float | timedelta
    """Short for `timeout_seconds`; a timedelta will do as well."""
    timeout_seconds: float
    retries: int
    """Short for `retry_policy={"max_retries": …}`; the rest of the policy may stand beside it."""
    retry_policy: Mapping[str, Any]
    max_concurrency: int | None
    concurrency_policy: Literal["QUEUE", "SKIP", "PARALLEL"]
    queue_depth: int | None
    overlap_action: Literal["ALLOW", "SKIP", "CANCEL_PREV", "PARALLEL"]
    failure_action: Literal["RUN_NEW", "SKIP", "RETRY", "BACKOFF", "HALF_OPEN"]
    circuit: Mapping[str, int]
    misfire_policy: Literal["FIRE_NOW", "FIRE_ONCE", "SKIP", "CATCH_UP_LIMITED"]
    catchup_limit: int
    misfire_grace_seconds: int

    priority: int
    rate_limit: Mapping[str, Any]
    worker_timeout_ms: int
    ping_interval_ms: int
    specific_worker_ids: Sequence[str]
    min_worker_version: int
    fanout: Mapping[str, Any]
    delivery: Literal["at_least_once", "at_most_once"]
    on_lost: Literal["RETRY", "FAIL"]
    max_lost: int
    on_exhausted: Literal["KEEP", "ERROR"]
    delete_on_complete: bool

    sandbox: bool
    """In a process of its own, which can be killed."""
    memory_mb: int
    """How much memory a sandboxed handler may take."""


NAMES: Final = frozenset(JobOptions.__annotations__)
_OURS: Final = frozenset({"cron", "dialect", "every", "timeout", "retries", "sandbox", "memory_mb"})
"""Those that are no field of a task."""
_SAID_AS: Final = {
    "cron_expr": "cron",
    "cron_dialect": "dialect",
    "timeout_seconds": "timeout",
    "retry_policy.max_retries": "retries",
}
"""The short form that stands for a field: who used it is told about it."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A job as its decorator declares it."""

    task: dict[str, Any]
    """The fields of its task, as `POST /tasks` would take them."""
    sandbox: bool
    memory_mb: int | None

    @property
    def has_schedule(self) -> bool:
        return self.task.get("schedule") is not None or self.task.get("cron_expr") is not None


def declared(job_type: str, options: Mapping[str, Any]) -> Declared:
    """InvalidArgument names every option that is unknown or wrong."""
    problems = Problems()
    for name in options:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.add(name, f"is not an option of a job{hint}")
    task = {name: value for name, value in options.items() if name in NAMES and name not in _OURS}
    task |= {"name": job_type, "job_type": job_type}
    _read_when(options, task, problems)
    _read_policies(options, task, problems)
    sandbox, memory_mb = _read_handler(options, problems)
    _check_task(options, task, problems)
    problems.finish()
    return Declared(task, sandbox, memory_mb)


def _read_when(options: Mapping[str, Any], task: dict[str, Any], problems: Problems) -> None:
    said = [name for name in ("cron", "every", "schedule", "cron_expr") if options.get(name) is not None]
    if len(said) > 1:
        problems.add(said[1], f"says when, and so does {said[0]}; expected one of them")
        return
    if options.get("cron") is not None:
        task["cron_expr"] = options["cron"]
    if options.get("dialect") is not None:
        if options.get("cron_dialect") is not None:
            problems.add("dialect", "is short for cron_dialect; expected one of the two")
        task["cron_dialect"] = options["dialect"]
    if options.get("every") is not None:
        seconds = _seconds(options["every"])
        if seconds is None or seconds < 1 or seconds != int(seconds):
            problems.add("every", f"is {shown(options['every'])}; expected whole seconds, 1 or more, or a timedelta")
            return
        task["schedule"] = {"type": "interval", "every": int(seconds), "unit": "second"}


def _read_policies(options: Mapping[str, Any], task: dict[str, Any], problems: Problems) -> None:
    if options.get("timeout") is not None:
        if options.get("timeout_seconds") is not None:
            problems.add("timeout", "is short for timeout_seconds; expected one of the two")
        seconds = _seconds(options["timeout"])
        task["timeout_seconds"] = options["timeout"] if seconds is None else seconds
    retries = options.get("retries")
    if retries is not None:
        policy = options.get("retry_policy")
        if isinstance(policy, Mapping) and "max_retries" in policy:
            problems.add("retries", "is short for retry_policy.max_retries; expected one of the two")
        task["retry_policy"] = {**(policy if isinstance(policy, Mapping) else {}), "max_retries": retries}


def _read_handler(options: Mapping[str, Any], problems: Problems) -> tuple[bool, int | None]:
    sandbox, memory_mb = options.get("sandbox", False), options.get("memory_mb")
    if not isinstance(sandbox, bool):
        problems.add("sandbox", f"is {shown(sandbox)}; expected True or False")
    if memory_mb is not None:
        if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or memory_mb < 1:
            problems.add("memory_mb", f"is {shown(memory_mb)}; expected megabytes, 1 or more")
        elif sandbox is False:
            problems.add("memory_mb", "can only be kept in a process of its own; add sandbox=True")
    return sandbox is True, memory_mb


def _check_task(options: Mapping[str, Any], task: Mapping[str, Any], problems: Problems) -> None:
    """Here and now rather than when the application starts. The installation's own rules are asked then."""
    try:
        read_task(task, SystemClock().now(), Rules())
    except InvalidArgument as error:
        for name, problem in error.details.items():
            short = _SAID_AS.get(name, name)
            problems.add(short if short in options else name, str(problem))


def _seconds(value: Any) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
