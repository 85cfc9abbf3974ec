"""A job: a function that the App knows by its name, with the task that runs it and the ways to publish it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar

import msgspec

from noonbell.app.options import Declared
from noonbell.app.published import Published
from noonbell.app.request import Request, read_request
from noonbell.app.signature import Signature, to_plain
from noonbell.errors import InvalidArgument
from noonbell.targets.jobs.context import Context, Resources
from noonbell.targets.jobs.handler import Handler, HandlerKind

if TYPE_CHECKING:
    from noonbell.app.app import App

P = ParamSpec("P")
R = TypeVar("R")
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
        transaction: Any = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> X_co: ...


class Job(Generic[P, R]):
    """Called, it is the function itself, as in a test of it; `publish` makes a run of it."""

    def __init__(self, app: App, function: Callable[..., Any], signature: Signature, declared: Declared) -> None:
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

    if TYPE_CHECKING:
        publish: Publish[P, Coroutine[Any, Any, Published[R]]]
        """One run. With `key`, only one for each key; with `transaction`, if and when that commits.

        A payload that does not fit the signature raises InvalidArgument and publishes nothing; a task at its limit that
        does not queue raises ConcurrencyLimit.
        """
        publish_sync: Publish[P, Published[R]]
        """As `publish`, for code without an event loop: scripts, sync handlers, web frameworks with threads."""
        request: Publish[P, Request[R]]
        """What `publish` would ask for, checked: for `App.publish_many`."""
    else:

        async def publish(self, /, *args: Any, **given: Any) -> Published[R]:
            return await self.app.connection.publish(read_request(self, args, given))

        def publish_sync(self, /, *args: Any, **given: Any) -> Published[R]:
            return self.app.connection.publish_sync(read_request(self, args, given))

        def request(self, /, *args: Any, **given: Any) -> Request[R]:
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
    function, wants_context = job.function, job.signature.wants_context

    def call(context: Context, arguments: dict[str, Any]) -> Any:
        return _stored(function(context, **arguments) if wants_context else function(**arguments))

    return call


def _calling_async(job: Job[..., Any]) -> Callable[[Context, dict[str, Any]], Coroutine[Any, Any, Any]]:
    function, wants_context = job.function, job.signature.wants_context

    async def call(context: Context, arguments: dict[str, Any]) -> Any:
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
