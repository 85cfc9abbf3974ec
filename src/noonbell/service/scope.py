"""The scope of the token that the request under way came with: which tasks, runs and queues it may see and change.

The API's guard, and that of the dashboard, set it before an endpoint or a page runs, and look up the task, run or queue
that the address names. What a body names is checked here, by the services; lists get it with their query, and the store
leaves out what it does not hold. Code that serves no request, and requests without such a token, have none and are not
limited.

What is outside is not there: NotFound, as if it did not exist. A change that would leave the scope is Forbidden.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from contextvars import ContextVar
from typing import TypeVar

from noonbell.errors import Forbidden, InvalidState, NotFound
from noonbell.model.access import TokenScope
from noonbell.model.run import RunId
from noonbell.model.task import Task, TaskId, TaskSpec
from noonbell.model.task_schedule import After
from noonbell.ports import Store

_current: ContextVar[TokenScope | None] = ContextVar("noonbell_scope", default=None)
T = TypeVar("T", bound=Task)


class ScopeRule(enum.Enum):
    """What of an endpoint or a page is there for a token with a scope. One rule each; without one, nothing is."""

    NOTHING = enum.auto()
    """403: it is about the installation as a whole, or about things that have neither labels nor a queue of their own."""
    ANYTHING = enum.auto()
    """It shows nothing of tasks, runs and queues."""
    TASK = enum.auto()
    """The task that `{id}` names, where the scope holds it; else 404."""
    RUN = enum.auto()
    """The run that `{run_id}` names, likewise."""
    QUEUE = enum.auto()
    """The queue that `{name}` names, where the scope holds the whole of it; else 403."""
    LIST = enum.auto()
    """What its query finds in the scope; the services narrow the query."""
    BODY = enum.auto()
    """Tasks that its body names or makes; the services check each."""


def limit_to(scope: TokenScope | None) -> None:
    """From here on, let the request under way see and change only what the scope holds; None: everything."""
    _current.set(scope)


def current() -> TokenScope | None:
    return _current.get()


def held(tasks: Iterable[T]) -> list[T]:
    """The tasks that the scope of the request holds, of these."""
    scope = _current.get()
    return list(tasks) if scope is None else [task for task in tasks if scope.holds_task(task)]


def check_task(task: Task | None) -> None:
    """Raises NotFound for a task outside of the scope."""
    scope = _current.get()
    if scope is not None and (task is None or not scope.holds_task(task)):
        raise NotFound("there is no such task")


def check_spec(spec: TaskSpec) -> None:
    """Raises Forbidden for a task that would lie outside of the scope."""
    scope = _current.get()
    if scope is not None and not scope.holds(spec):
        flow = "; a flow needs a token without queues and job types" if spec.steps and scope.has_one_target else ""
        raise Forbidden(
            f"this token is limited to tasks with {scope}, and {spec.name!r} would not be one of them{flow}"
        )


async def check_upstreams(store: Store, after: After | None, before: After | None = None) -> None:
    """Raises Forbidden for a task that would run after one outside of the scope. Those that it runs after already may
    stay.
    """
    scope = _current.get()
    if scope is None or after is None:
        return
    kept = set() if before is None else {each.task for each in before.tasks}
    wanted = {each.task for each in after.tasks} - kept
    names = {each for each in wanted if isinstance(each, str)}
    found = list((await store.tasks_named(names)).values())
    found += await store.tasks_by_id([TaskId(each) for each in wanted if isinstance(each, int)])
    known = {key for task in found if scope.holds_task(task) for key in (task.name, int(task.id))}
    if outside := sorted(str(each) for each in wanted if each not in known):
        raise Forbidden(f"after names {outside[0]!r}, and this token is limited to tasks with {scope}")


async def check_tasks(store: Store, ids: Collection[TaskId]) -> None:
    """Raises NotFound if one of them is outside of the scope."""
    if _current.get() is None:
        return
    found = {task.id: task for task in await store.tasks_by_id(sorted(set(ids)))}
    for task_id in ids:
        check_task(found.get(task_id))


async def check_named(store: Store, ref: TaskId | str) -> None:
    check_task(await (store.task_named(ref) if isinstance(ref, str) else store.task(ref)))


async def check_run(store: Store, run_id: RunId) -> None:
    """Raises NotFound for a run outside of the scope."""
    scope = _current.get()
    if scope is None:
        return
    run = await store.run(run_id)
    task = None if run is None else await store.task(run.task_id)
    if run is None or task is None or not scope.holds_run(task, run.queue):
        raise NotFound("there is no such run")


def check_queue(name: str) -> None:
    scope = _current.get()
    if scope is not None and not scope.holds_queue(name):
        raise Forbidden(f"this token is limited to {scope}, and does not cover the whole queue {name!r}")


def check_force(*, force: bool) -> None:
    """Deleting with force changes the tasks that follow, which may be outside."""
    if force and (scope := _current.get()) is not None:
        raise Forbidden(
            f"this token is limited to {scope}; force also changes the tasks that follow, which may be outside it"
        )


def without_names(error: InvalidState) -> InvalidState:
    """The refusal to delete, without the names of tasks that follow."""
    return error if _current.get() is None else InvalidState("it cannot be deleted: other tasks follow it")
