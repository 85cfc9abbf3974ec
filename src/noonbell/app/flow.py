"""Flows in code: `app.flow` makes the steps of a FLOW task from typed jobs, the same JSON as the API's `steps`.

    chain    one after another: each job is given what the one before it returned
    group    side by side: what follows is given the list of their results
    map      one run for each item of the list that the job before it returned; what follows is given the results

A type checker sees each of them as a function (`as_step`): from what it is given to what it returns. So a chain whose types do
not fit is refused before it runs. At run time the result of a job is a placeholder in the payload of the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from noonbell.app.job import (
    Job,
    JobDeclaration,
    JobOptions,
    Publish,
    Published,
    PublishRequest,
    declared_flow,
    read_request,
)
from noonbell.app.signature import Signature, nothing
from noonbell.errors import InvalidArgument
from noonbell.fields.problems import shown
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Step, TaskSpec

if TYPE_CHECKING:
    from noonbell.app.app import App

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
X = TypeVar("X")
X_contra = TypeVar("X_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Begins(Protocol[P, R_co]):
    """What a flow can begin with: its parameters are the payload of the flow's runs."""

    @property
    def as_step(self) -> Callable[P, R_co]: ...


class TakesOne(Protocol[X_contra, R_co]):
    """What can follow: its one parameter is what comes before it."""

    @property
    def as_step(self) -> Callable[[X_contra], R_co]: ...


class TakesNone(Protocol[R_co]):
    @property
    def as_step(self) -> Callable[[], R_co]: ...


class Steps(Generic[P, R]):
    """A chain, a group or a map of jobs: a part of a flow, or all of it."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)
        for part in self.parts:
            if not isinstance(part, Job | PublishRequest | Steps):
                raise InvalidArgument(f"{shown(part)} is not a job, a request of one, or a chain, group or map of jobs")

    if TYPE_CHECKING:

        @property
        def as_step(self) -> Callable[P, R]: ...


class Chain(Steps[P, R]):
    pass


class Group(Steps[P, R]):
    pass


class Map(Steps[P, R]):
    def __init__(self, job: Any, max_parallel: int | None, allow_failure: bool) -> None:
        if not isinstance(job, Job):
            raise InvalidArgument(f"map expects a job, not {shown(job)}")
        super().__init__([job])
        more = {"max_parallel": max_parallel, "allow_failure": allow_failure or None}
        self.fields = {name: value for name, value in more.items() if value is not None}


class Flow(Generic[P, R]):
    """A flow that an App declares as a task; `publish` makes a run of it."""

    def __init__(self, app: App, signature: Signature, declared: JobDeclaration) -> None:
        self.app, self.signature, self.declared = app, signature, declared
        self.name = str(declared.task["name"])

    def __repr__(self) -> str:
        return f"<Flow {self.name}: {len(self.steps)} steps>"

    @property
    def steps(self) -> list[dict[str, Any]]:
        """As `POST /tasks` takes them."""
        return list(self.declared.task["steps"])

    def is_carried_out_by(self, spec: TaskSpec) -> bool:
        return spec.exec_type is ExecType.FLOW

    if TYPE_CHECKING:
        publish: Publish[P, Coroutine[Any, Any, Published[dict[str, int]]]]
        """One run of the flow, as `Job.publish`. Its result is how many steps ended in which way."""
        publish_sync: Publish[P, Published[dict[str, int]]]
    else:

        async def publish(self, /, *args: Any, **given: Any) -> Published[dict[str, int]]:
            return await self.app.connection.publish(read_request(self, args, given))

        def publish_sync(self, /, *args: Any, **given: Any) -> Published[dict[str, int]]:
            return self.app.connection.publish_sync(read_request(self, args, given))


class FlowBuilder:
    """`app.flow(NAME, chain(…))` declares a flow; `app.flow.chain`, `group` and `map` put jobs together."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(self, name: str, whole: Begins[P, R], /, **options: Unpack[JobOptions]) -> Flow[P, R]:
        """A FLOW task of this name. Options as of a job: a schedule, `max_concurrency`, `overlap_action` and others.

        InvalidArgument names what cannot be: jobs that do not fit together, or an option that a flow does not have.
        """
        try:
            made = _Making()
            made.add(whole, (), _OF_THE_RUN)
            signature = made.signature()
            given: dict[str, Any] = dict(options)
            if given.get("payload") is not None:
                given["payload"] = signature.write(given["payload"])
            declared = declared_flow(name, made.steps, made.queue, given)
            flow: Flow[P, R] = Flow(self._app, signature, declared)
            self._app.add_flow(flow)
        except InvalidArgument as error:
            raise InvalidArgument(f"flow {name}: {error.message}", details=error.details) from None
        return flow

    # fmt: off
    @overload
    def chain(self, a: Begins[P, A], b: TakesOne[A, B], /) -> Steps[P, B]: ...
    @overload
    def chain(self, a: Begins[P, A], b: TakesOne[A, B], c: TakesOne[B, C], /) -> Steps[P, C]: ...
    @overload
    def chain(self, a: Begins[P, A], b: TakesOne[A, B], c: TakesOne[B, C], d: TakesOne[C, D], /) -> Steps[P, D]: ...
    @overload
    def chain(
        self, a: Begins[P, A], b: TakesOne[A, B], c: TakesOne[B, C], d: TakesOne[C, D], e: TakesOne[D, E], /
    ) -> Steps[P, E]: ...
    @overload
    def chain(
        self, a: Begins[P, A], b: TakesOne[A, B], c: TakesOne[B, C], d: TakesOne[C, D], e: TakesOne[D, E],
        f: TakesOne[E, F], /
    ) -> Steps[P, F]: ...
    @overload
    def chain(
        self, a: Begins[P, A], b: TakesOne[A, B], c: TakesOne[B, C], d: TakesOne[C, D], e: TakesOne[D, E],
        f: TakesOne[E, F], g: TakesOne[F, G], /
    ) -> Steps[P, G]: ...
    @overload
    def chain(
        self, a: Begins[P, A], b: TakesOne[A, B], c: TakesOne[B, C], d: TakesOne[C, D], e: TakesOne[D, E],
        f: TakesOne[E, F], g: TakesOne[F, G], h: TakesOne[G, H], /
    ) -> Steps[P, H]: ...
    def chain(self, *parts: Any) -> Any:
        """One after another, two to eight; a chain may be a part of another one.

        The first is given the payload of the flow's run, or with `job.request(…)` one of its own. Each of the others has
        one parameter that must be given, or is a request, which is given nothing.
        """
        return Chain(parts)

    @overload
    def group(self, a: TakesNone[A], b: TakesNone[B], /) -> Steps[[], tuple[A, B]]: ...
    @overload
    def group(self, a: TakesNone[A], b: TakesNone[B], c: TakesNone[C], /) -> Steps[[], tuple[A, B, C]]: ...
    @overload
    def group(
        self, a: TakesNone[A], b: TakesNone[B], c: TakesNone[C], d: TakesNone[D], /
    ) -> Steps[[], tuple[A, B, C, D]]: ...
    @overload
    def group(self, *parts: TakesNone[A]) -> Steps[[], list[A]]: ...
    @overload
    def group(self, a: TakesOne[X, A], b: TakesOne[X, B], /) -> Steps[[X], tuple[A, B]]: ...
    @overload
    def group(self, a: TakesOne[X, A], b: TakesOne[X, B], c: TakesOne[X, C], /) -> Steps[[X], tuple[A, B, C]]: ...
    @overload
    def group(
        self, a: TakesOne[X, A], b: TakesOne[X, B], c: TakesOne[X, C], d: TakesOne[X, D], /
    ) -> Steps[[X], tuple[A, B, C, D]]: ...
    @overload
    def group(self, *parts: TakesOne[X, A]) -> Steps[[X], list[A]]: ...
    def group(self, *parts: Any) -> Any:
        """Side by side, each given what comes before the group. What follows is given all their results, in this order."""
        return Group(parts)

    @overload
    def map(self, job: TakesOne[A, B], /, *, max_parallel: int | None = None) -> Steps[[Sequence[A]], list[B]]: ...
    @overload
    def map(
        self, job: TakesOne[A, B], /, *, max_parallel: int | None = None, allow_failure: Literal[True]
    ) -> Steps[[Sequence[A]], list[B | None]]: ...
    # fmt: on
    def map(self, job: Any, /, *, max_parallel: int | None = None, allow_failure: bool = False) -> Any:
        """A run of the job for each item of the list that comes before it. What follows is given the list of results.

        With `allow_failure` the flow goes on when items fail; the result of such an item is None.
        """
        return Map(job, max_parallel, allow_failure)


_OF_THE_RUN: Final = object()
"""In place of a value: the payload of the flow's run."""
_COPIED: Final = frozenset(TaskSpec.__struct_fields__) - {*Step.without, "payload", "exec_type"}
"""The options of a job that its steps have too."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_ID: Final = 64


@dataclass(slots=True)
class _Making:
    """The steps of a flow, as far as they are made."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    queue: str | None = None
    """Of the first job: a worker of that queue starts the flow."""
    given_payload: list[Job[..., Any]] = field(default_factory=list)
    """The jobs that take the payload of the flow's run."""
    ids: set[str] = field(default_factory=set)

    def add(self, part: Any, needs: Sequence[str], given: Any) -> tuple[list[str], Any]:
        """The steps of `part`, which is given `given` after `needs`. The steps that end it, and the value that it comes to."""
        match part:
            case Job():
                step_id = self._add_job(part, needs, self._payload(part, given))
                return [step_id], f"{{{{ steps.{step_id}.result }}}}"
            case PublishRequest():
                step_id = self._add_job(part.job, needs, _own_payload(part), **_own_fields(part))
                return [step_id], f"{{{{ steps.{step_id}.result }}}}"
            case Map():
                (job,) = part.parts
                if given is _OF_THE_RUN:
                    raise InvalidArgument(f"map({job.name}) has no step before it to take a list from")
                payload = {**_declared_payload(job), _parameter(job): "{{ item }}"}
                step_id = self._add_job(job, needs, payload, foreach=given, **part.fields)
                return [step_id], f"{{{{ steps.{step_id}.results }}}}"
            case Group():
                ended = [self.add(each, needs, given) for each in part.parts]
                return [step_id for ends, _ in ended for step_id in ends], [value for _, value in ended]
            case Chain():
                ends, value = list(needs), given
                for each in part.parts:
                    ends, value = self.add(each, ends, value)
                return ends, value
            case _:
                raise InvalidArgument(f"{shown(part)} is not a job, a request of one, or a chain, group or map of jobs")

    def _payload(self, job: Job[..., Any], given: Any) -> dict[str, Any] | None:
        if given is not _OF_THE_RUN:
            return {**_declared_payload(job), _parameter(job): given}
        if not job.signature.types:
            return {}
        self.given_payload.append(job)
        return None

    def _add_job(self, job: Job[..., Any], needs: Sequence[str], payload: Any, **fields: Any) -> str:
        for name in ("fanout", "worker_labels"):
            if job.declared.task.get(name):
                raise InvalidArgument(f"job {job.name} has {name}, which a step of a flow cannot have")
        own = {name: value for name, value in job.declared.task.items() if name in _COPIED and value is not None}
        step: dict[str, Any] = {"id": self._new_id(job.name), **own, **fields}
        if needs:
            step["needs"] = list(needs)
        if payload is not None:
            step["payload"] = payload
        self.steps.append(step)
        if self.queue is None:
            self.queue = str(job.declared.task.get("queue") or "default")
        return str(step["id"])

    def _new_id(self, name: str) -> str:
        plain = _UNFIT.sub("_", name)
        plain = (plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}")[: _LONGEST_ID - 5]
        new, number = plain, 1
        while new in self.ids:
            number += 1
            new = f"{plain}_{number}"
        self.ids.add(new)
        return new

    def signature(self) -> Signature:
        """Of the payload of the flow's runs."""
        if not self.given_payload:
            return nothing()
        first, *others = self.given_payload
        for other in others:
            if other.signature.types != first.signature.types:
                raise InvalidArgument(
                    f"{first.name} and {other.name} are both given the payload of the flow, and have different parameters;"
                    " give them one of their own: job.request(…)"
                )
        return replace(first.signature, returns=Any)


def _parameter(job: Job[..., Any]) -> str:
    """The one that is given what comes before the job."""
    signature = job.signature
    declared = _declared_payload(job)
    required = [name for name in signature.types if name in signature.required and name not in declared]
    if len(required) > 1:
        raise InvalidArgument(
            f"job {job.name} must be given {', '.join(required)}; what follows in a flow has one parameter without a default"
        )
    if not signature.types:
        raise InvalidArgument(f"job {job.name} takes nothing, and would be given what comes before it")
    return required[0] if required else next(iter(signature.types))


def _declared_payload(job: Job[..., Any]) -> dict[str, Any]:
    payload = job.declared.task.get("payload")
    return dict(payload) if isinstance(payload, Mapping) else {}


def _own_payload(request: PublishRequest[Any]) -> dict[str, Any]:
    if request.payload is msgspec.UNSET:
        return {}
    return {**_declared_payload(request.job), **request.payload}


def _own_fields(request: PublishRequest[Any]) -> dict[str, Any]:
    others = sorted(name for name in request.options if name not in ("priority", "specific_worker_ids"))
    if others or request.transaction is not None:
        named = ", ".join([*others, *(["transaction"] if request.transaction is not None else [])])
        raise InvalidArgument(f"the request of {request.job.name} says {named}, which a step of a flow does not have")
    return dict(request.options)
