"""A job: a function that the App knows by its name, the options of `@app.job`, and the ways to publish it.

Besides a few short forms, an option is a field of a task, under the same name and with the same checks. `PublishRequest` is
one run to be published, `Published` the handle of one that was.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar

import msgspec

from noonbell.app import middleware
from noonbell.app.signature import Signature, to_plain
from noonbell.clock import SystemClock
from noonbell.errors import ConcurrencyLimit, InvalidArgument, RunFailed
from noonbell.fields import read_into
from noonbell.fields.problems import Problems, ReadContext, shown
from noonbell.model import request as model
from noonbell.model.request import Publication, PublishOutcome
from noonbell.model.run import SUCCEEDED, ChildRequest, Origin, Run, RunId
from noonbell.model.task import TaskId, TaskSpec
from noonbell.service.publishing import TriggerWrite, read_publication
from noonbell.service.task_fields import Rules, read_task
from noonbell.targets.jobs.handler import Context, Handler, HandlerKind, Resources
from noonbell.when.interval import from_short

if TYPE_CHECKING:
    from noonbell.app.app import App
    from noonbell.app.connection import AppConnection


class JobOptions(TypedDict, total=False):
    """Every option is left out by default, and then has the default of the task's field."""

    name: str
    """The job type and the task's name; by default the function's name."""
    cron: str
    """Short for `schedule={"type": "cron", "expr": …}`."""
    dialect: Literal["standard", "cronjob", "quartz"]
    """How `cron` is read; by default as `scheduler.cron_dialect` of the installation says."""
    every: float | timedelta | str
    """Short for a schedule of type interval: seconds, a timedelta, or `10s`, `5m`, `2h`, `1d`."""
    timeout: float | timedelta
    """Short for `timeout_seconds`; a timedelta will do as well."""
    retries: int
    """Short for `retry_policy={"max_retries": …}`; the rest of the policy may stand beside it."""
    sandbox: bool
    """In a process of its own, which can be killed."""
    memory_mb: int
    """How much memory a sandboxed handler may take."""

    # Fields of a task: made by tools/reference.py
    description: str
    labels: Mapping[str, str]
    external_id: str
    meta: Mapping[str, Any]
    schedule: Mapping[str, Any]
    schedules: Sequence[Mapping[str, Any]]
    exclude: Sequence[Mapping[str, Any]]
    dst: Mapping[str, Any]
    timezone: str
    start_at: datetime | str
    end_at: datetime | str
    jitter_seconds: int
    calendar: Mapping[str, Any]
    after: AfterOption
    payload: Mapping[str, Any]
    queue: str
    timeout_seconds: float
    retry_policy: Mapping[str, Any]
    max_concurrency: int | None
    concurrency_policy: Literal["QUEUE", "SKIP", "PARALLEL"]
    queue_depth: int | None
    overlap_action: Literal["ALLOW", "SKIP", "CANCEL_PREV", "PARALLEL"]
    failure_action: Literal["RUN_NEW", "SKIP", "RETRY", "BACKOFF", "HALF_OPEN"]
    circuit: Mapping[str, Any]
    misfire_policy: Literal["FIRE_NOW", "FIRE_ONCE", "SKIP", "CATCH_UP_LIMITED"]
    catchup_limit: int
    misfire_grace_seconds: int
    priority: int
    rate_limit: Mapping[str, Any]
    concurrency_key: str
    max_per_key: int
    worker_timeout_ms: int
    ping_interval_ms: int
    expires_in_seconds: int | None
    quiet: Sequence[str]
    spread_seconds: int
    sla: Mapping[str, Any]
    specific_worker_ids: Sequence[str]
    min_worker_version: int
    worker_labels: Mapping[str, str]
    fanout: Mapping[str, Any]
    delivery: Literal["at_least_once", "at_most_once"]
    on_lost: Literal["RETRY", "FAIL"]
    max_lost: int
    on_exhausted: Literal["KEEP", "ERROR"]
    delete_on_complete: bool
    cron_expr: str
    cron_dialect: Literal["standard", "cronjob", "quartz"]
    status: Literal["ENABLED", "DISABLED"]
    # End of what is made


AfterOption: TypeAlias = "Mapping[str, Any] | str | Job[..., Any] | Sequence[str | Job[..., Any]]"
"""One job or the name of a task, several of them, or all that `after` of a task can say."""

NAMES: Final = frozenset(JobOptions.__annotations__)
_OURS: Final = frozenset({"cron", "dialect", "every", "timeout", "retries", "sandbox", "memory_mb"})
"""Those that are no field of a task."""
_SAID_AS: Final = {
    "cron_expr": "cron",
    "cron_dialect": "dialect",
    "timeout_seconds": "timeout",
    "retry_policy.max_retries": "retries",
}
"""The short form that stands for a field: a problem is reported under the form that was used."""


@dataclass(frozen=True, slots=True)
class JobDeclaration:
    """A job as its decorator declares it."""

    task: dict[str, Any]
    """The fields of its task, as `POST /tasks` would take them."""
    sandbox: bool
    memory_mb: int | None

    @property
    def has_schedule(self) -> bool:
        said = any(self.task.get(name) is not None for name in ("schedule", "cron_expr"))
        return said or bool(self.task.get("schedules"))


def declared(job_type: str, options: Mapping[str, Any]) -> JobDeclaration:
    """InvalidArgument names every option that is unknown or wrong."""
    return _declared({"name": job_type, "job_type": job_type}, options, Problems())


def declared_flow(
    name: str, steps: Sequence[Mapping[str, Any]], queue: str | None, options: Mapping[str, Any]
) -> JobDeclaration:
    """The same for a flow. `queue` is where its runs are started, unless the options say another."""
    problems = Problems()
    for each in ("name", "sandbox", "memory_mb"):
        if each in options:
            problems.add(each, "is not an option of a flow")
    given = {"queue": queue, **options}
    return _declared({"name": name, "steps": list(steps)}, given, problems)


def _declared(own: Mapping[str, Any], options: Mapping[str, Any], problems: Problems) -> JobDeclaration:
    for name in options:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.add(name, f"is not an option of a {'job' if 'job_type' in own else 'flow'}{hint}")
    task = {name: value for name, value in options.items() if name in NAMES and name not in _OURS}
    task |= own
    _read_when(options, task, problems)
    if options.get("after") is not None:
        task["after"] = _read_after(options["after"])
    _read_policies(options, task, problems)
    sandbox, memory_mb = _read_handler(options, problems)
    _check_task(options, task, problems)
    problems.finish()
    return JobDeclaration(task, sandbox, memory_mb)


def _read_when(options: Mapping[str, Any], task: dict[str, Any], problems: Problems) -> None:
    said = [name for name in ("cron", "every", "schedule", "cron_expr") if options.get(name) is not None]
    said += ["schedules"] if options.get("schedules") else []
    if len(said) > 1:
        problems.add(said[1], f"says when, and so does {said[0]}; expected one of them")
        return
    if options.get("cron") is not None:
        task["cron_expr"] = options["cron"]
    if options.get("dialect") is not None:
        if options.get("cron_dialect") is not None:
            problems.add("dialect", "is short for cron_dialect; expected one of the two")
        task["cron_dialect"] = options["dialect"]
    every = options.get("every")
    if every is not None:
        interval = _interval(every)
        if interval is not None:
            task["schedule"] = interval
        else:
            problems.add("every", f"is {shown(every)}; expected whole seconds, 1 or more, a timedelta, or such as '5m'")


def _read_after(given: Any) -> Any:
    """As a task has it; what is neither a job nor a name is left to the check of the task."""
    if isinstance(given, Mapping):
        listed = given.get("tasks")
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            return given
        return {**given, "tasks": [_upstream(each) for each in listed]}
    listed = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return {"tasks": [_upstream(each) for each in listed]}


def _upstream(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {**given, "task": _name_of(given.get("task"))}
    return {"task": _name_of(given)}


def _name_of(given: Any) -> Any:
    return given.name if isinstance(given, Job) else given


def _interval(every: Any) -> dict[str, Any] | None:
    if isinstance(every, str):
        return from_short(every)
    seconds = _seconds(every)
    if seconds is None or seconds < 1 or seconds != int(seconds):
        return None
    return {"type": "interval", "every": int(seconds), "unit": "second"}


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


R = TypeVar("R")

OPTIONS: Final = frozenset(
    {
        *("key", "delay", "run_at", "priority", "if_finished", "update_waiting", "specific_worker_ids"),
        *("dedupe", "concurrency_key", "expires_in_seconds", "transaction"),
    }
)
"""Given by keyword beside the payload's fields, so no field can have one of these names."""

_OF_A_CHILD: Final = ("delay", "run_at", "priority", "specific_worker_ids")

_NOBODY: Final = TaskId(0)


class PublishRequest(msgspec.Struct, Generic[R], frozen=True):
    """One run to be published, checked. Made by `Job.request`; `App.publish_many` takes any number of them."""

    job: Job[..., R]
    payload: Any
    """JSON, or UNSET: the handler takes nothing."""
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    transaction: Any = None

    if TYPE_CHECKING:

        @property
        def as_step(self) -> Callable[..., R]:
            """What a flow sees: it brings its payload, and takes no notice of what comes before it."""

    def as_child(self, position: int) -> ChildRequest:
        """As a running job spawns it. InvalidArgument for an option that a child cannot have: its position is its key."""
        others = sorted(name for name in self.options if name not in _OF_A_CHILD)
        if others or self.transaction is not None:
            name = others[0] if others else "transaction"
            raise InvalidArgument.field(name, "cannot be used for what a job spawns")
        asked = self.publication(_NOBODY)
        return ChildRequest(
            position=position,
            task=self.job.name,
            payload=asked.payload,
            delay_seconds=asked.delay_seconds,
            run_at=asked.run_at,
            priority=asked.priority,
            specific_worker_ids=asked.specific_worker_ids,
        )

    def read_result(self, value: Any) -> R:
        result: Any = self.job.signature.result(value)
        return result  # type: ignore[no-any-return]

    def publication(self, task_id: TaskId) -> Publication:
        if not self.options:
            return Publication(task_id=task_id, payload=self.payload)
        at = ReadContext(Problems())
        problems = at.problems
        fields = dict(self.options)
        if self.payload is not msgspec.UNSET:
            fields["payload"] = self.payload
        if "delay" in fields:
            fields["delay_seconds"] = _in_seconds(fields.pop("delay"))
        publication = read_publication(read_into(TriggerWrite, fields, at), at, task_id, Origin.PUBLISH)
        if "delay_seconds" in problems.found:
            problems.found["delay"] = problems.found.pop("delay_seconds")
        problems.finish()
        return publication


def read_request(job: Job[..., R], positional: tuple[Any, ...], given: Mapping[str, Any]) -> PublishRequest[R]:
    """InvalidArgument names each field or option that is wrong; nothing has been published then."""
    if positional:
        raise InvalidArgument(f"{job.name}.publish takes its payload by keyword; write {_by_keyword(job)}")
    options: dict[str, Any] = {}
    transaction = None
    if not OPTIONS.isdisjoint(given):
        options = {name: value for name, value in given.items() if name in OPTIONS and value is not None}
        transaction = options.pop("transaction", None)
        given = {name: value for name, value in given.items() if name not in OPTIONS}
    payload: Any = job.signature.write(given)
    if not payload and job.declared.task.get("payload") is None:
        payload = msgspec.UNSET
    request = PublishRequest(job, payload, options, transaction)
    if options:
        request.publication(_NOBODY)
    return request


def _by_keyword(job: Job[..., Any]) -> str:
    return f"publish({', '.join(f'{name}=…' for name in job.signature.types)})"


def _in_seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


class Published(Generic[R]):
    """What became of a publish. `run_id` is the run that will do it: a new one, or the one that had the key already."""

    __slots__ = ("_answer", "_connection", "_job")

    def __init__(self, job: Job[..., R], answer: model.PublishResult, connection: AppConnection) -> None:
        self._job, self._answer, self._connection = job, answer, connection

    def __repr__(self) -> str:
        return f"<Published {self._job.name}, run {self._answer.run_id}, {self.outcome}>"

    @property
    def outcome(self) -> PublishOutcome:
        """`created`; with a key also `exists`, `running`, `updated`. In a batch `refused`: the task is at its limit."""
        return self._answer.outcome

    @property
    def run_id(self) -> int:
        """ConcurrencyLimit if the run was refused."""
        if self._answer.run_id is None:
            raise ConcurrencyLimit(
                f"task {self._job.name!r} is at its limit and accepts no more runs ({self._answer.reason})",
                details={"reason": self._answer.reason},
            )
        return self._answer.run_id

    async def run(self) -> Run:
        """The run as it stands."""
        return await self._connection.on_its_loop(self._connection.run(RunId(self.run_id)))

    async def cancel(self) -> bool:
        """False if it was final already."""
        return await self._connection.on_its_loop(self._connection.cancel(RunId(self.run_id)))

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - its meaning, not a guard
        """What the handler returns, as soon as the run is final; in the type that it says it returns.

        RunFailed if it ends in another way, TimeoutError after `timeout` seconds. In a transaction, the run begins only
        when that has committed.
        """
        return await self._connection.on_its_loop(self._wait(timeout))

    def result_sync(self, timeout: float | None = None) -> R:
        """As `result`, for code without an event loop."""
        return self._connection.from_thread(self._wait(timeout))

    async def _wait(self, timeout: float | None) -> R:  # noqa: ASYNC109 - as above
        # A run that was published in a transaction is not there before its commit.
        return self._result_of(await self._connection.wait(RunId(self.run_id), timeout, must_exist=False))

    def _result_of(self, run: Run) -> R:
        if run.status not in SUCCEEDED:
            raise RunFailed(run.id, run.status, run.error_message or "", run.error_details)
        result: Any = self._job.signature.result(run.result)
        return result  # type: ignore[no-any-return]


P = ParamSpec("P")
X_co = TypeVar("X_co", covariant=True)


class Publish(Protocol[P, X_co]):
    """How a job is published: its payload's fields by keyword, and these options beside them.

    The options come first because a type checker allows nothing between `*args` and `**kwargs`; all are given by keyword.
    """

    def __call__(
        self,
        key: str | None = None,
        delay: float | timedelta = 0,
        run_at: datetime | str | None = None,
        priority: int | None = None,
        if_finished: Literal["keep", "rerun", "rerun_failed", "rerun_succeeded"] = "keep",
        update_waiting: bool = False,
        specific_worker_ids: Sequence[str] | None = None,
        dedupe: Mapping[str, Any] | None = None,
        concurrency_key: str | None = None,
        transaction: Any = None,
        expires_in_seconds: int | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> X_co: ...


class Job(Generic[P, R]):
    """Called, it is the function itself, as in a test of it; `publish` makes a run of it."""

    def __init__(self, app: App, function: Callable[..., Any], signature: Signature, declared: JobDeclaration) -> None:
        self.app = app
        self.function = function
        self.signature = signature
        self.declared = declared
        self.name = str(declared.task["name"])
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<Job {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def is_carried_out_by(self, spec: TaskSpec) -> bool:
        """Whether runs of a task with this spec are runs of this job."""
        return spec.job_type == self.name

    if TYPE_CHECKING:

        @property
        def as_step(self) -> Callable[P, R]:
            """What a flow sees: from its payload to its result."""

        publish: Publish[P, Coroutine[Any, Any, Published[R]]]
        """One run. With `key`, only one for each key; with `transaction`, if and when that commits.

        A payload that does not fit the signature raises InvalidArgument and publishes nothing; a task at its limit that
        does not queue raises ConcurrencyLimit.
        """
        publish_sync: Publish[P, Published[R]]
        """As `publish`, for code without an event loop: scripts, sync handlers, web frameworks with threads."""
        request: Publish[P, PublishRequest[R]]
        """What `publish` would ask for, checked: for `App.publish_many`."""
    else:

        async def publish(self, /, *args: Any, **given: Any) -> Published[R]:
            return await self.app.connection.publish(read_request(self, args, given))

        def publish_sync(self, /, *args: Any, **given: Any) -> Published[R]:
            return self.app.connection.publish_sync(read_request(self, args, given))

        def request(self, /, *args: Any, **given: Any) -> PublishRequest[R]:
            return read_request(self, args, given)


def handler_of(job: Job[..., Any], resources: Resources) -> Handler:
    """The job as a worker sees it."""
    is_async = inspect.iscoroutinefunction(job.function)
    kind = HandlerKind.ASYNC if is_async else HandlerKind.THREAD
    location = location_of(job)
    if job.declared.sandbox:
        kind = HandlerKind.SANDBOX
        if location is None:
            raise InvalidArgument.field(
                "sandbox", "needs the App in a variable of the handler's module, where another process can import it"
            )
    return Handler(
        job_type=job.name,
        kind=kind,
        read=job.signature.read,
        call=_calling_async(job) if is_async else _calling(job),
        memory_mb=job.declared.memory_mb,
        location=location,
        queue=str(job.declared.task.get("queue") or "default"),
        resources=resources,
    )


def location_of(job: Job[..., Any]) -> str | None:
    """Where another process finds the App: in the handler's module, so that importing it declares the handler too."""
    names: Mapping[str, Any] = getattr(job.function, "__globals__", {})
    variable = next((name for name, value in names.items() if value is job.app), None)
    module = names.get("__name__")
    if variable is None or not isinstance(module, str):
        return None
    if module == "__main__":  # `python -m package.module` has a name for it, `python file.py` a path
        spec = names.get("__spec__")
        module = names.get("__file__") if spec is None else spec.name
    return None if module is None else f"{module}:{variable}"


def _calling(job: Job[..., Any]) -> Callable[[Context, dict[str, Any]], Any]:
    function, wants_context, around = job.function, job.signature.wants_context, job.app.middlewares

    def call(context: Context, arguments: dict[str, Any]) -> Any:
        if around:
            given = (context,) if wants_context else ()
            return _stored(middleware.called(around, context, lambda: function(*given, **arguments)))
        return _stored(function(context, **arguments) if wants_context else function(**arguments))

    return call


def _calling_async(job: Job[..., Any]) -> Callable[[Context, dict[str, Any]], Coroutine[Any, Any, Any]]:
    function, wants_context, around = job.function, job.signature.wants_context, job.app.middlewares

    async def call(context: Context, arguments: dict[str, Any]) -> Any:
        if around:
            given = (context,) if wants_context else ()
            return _stored(await middleware.called_async(around, context, lambda: function(*given, **arguments)))
        return _stored(await (function(context, **arguments) if wants_context else function(**arguments)))

    return call


def _stored(result: Any) -> Any:
    """What only we know how to write down, a pydantic model for one, in plain values. The rest is left to the target."""
    if result is None:
        return None
    try:
        return msgspec.to_builtins(result, str_keys=True, enc_hook=to_plain)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return result  # it is no JSON: the target says so
