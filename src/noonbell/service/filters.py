"""How a caller names tasks and runs: by id, by name, by a filter; and the filter and JSON of events.

The filters are the same by query string and in the body of a bulk change.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar

import msgspec

from noonbell.clock import Instant, rfc3339
from noonbell.errors import InvalidArgument, InvalidId
from noonbell.fields import FROM_TO, Moment, meta, read_into
from noonbell.fields.kinds import unfit
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.event import Event, Filter
from noonbell.model.request import Page, RunQuery, TaskQuery
from noonbell.model.run import Origin, RunId, RunStatus
from noonbell.model.task import TaskId, TaskStatus
from noonbell.ports import Store
from noonbell.service import scope

T = TypeVar("T")
Q = TypeVar("Q", RunQuery, TaskQuery)

TaskRef: TypeAlias = TaskId | str
"""An id, or a name."""

BY_NAME = "name:"
ENCODED_SLASH: Final = "\x00"
"""Stands in a request's path for `%2F`, so that `name:a%2Fb` is one piece of it; API and pages turn it back."""
REQUEST_ID: Final = "noonbell.request_id"
"""Where the scope of a request holds its id: the trace id."""

_ID = re.compile(r"[0-9]{1,16}", re.ASCII)
_LARGEST = 2**53


def task_ref(text: str) -> TaskRef:
    """`12` is an id, `name:nightly` a name; anything else is InvalidId."""
    if text.startswith(BY_NAME):
        name = text.removeprefix(BY_NAME)
        if not 1 <= len(name) <= 255:
            raise InvalidId(f"a task's name has 1 to 255 characters, this one {len(name)}")
        return name
    return TaskId(_number(text, "a task", f" or {BY_NAME}NAME"))


def is_name(text: str) -> bool:
    """Whether a task can have that name: a database is not asked for what no text column can hold."""
    return 1 <= len(text) <= 255 and unfit(text) is None


def run_id(text: str) -> RunId:
    return RunId(_number(text, "a run", ""))


def operation_id(text: str) -> int:
    return _number(text, "a bulk operation", "")


def _number(text: str, what: str, other: str) -> int:
    if _ID.fullmatch(text) is None or not 0 < int(text) < _LARGEST:
        raise InvalidId(f"{text[:60]!r} is not the id of {what}; expected a number{other}")
    return int(text)


LARGEST_PAGE: Final = 1_000
LOOKED_AT: Final = 50_000
"""Runs that are looked at for one page of them, at most."""
SEARCHED: Final = 20_000
"""The same where each of them is searched for a text."""
COUNTED: Final = 10_000
"""How far the runs of a list are counted: who wants more of a list than that goes by cursor."""

_TASK_ORDERS: Final = (
    *("id", "-id", "name", "-name", "created_at", "-created_at", "updated_at", "-updated_at"),
    *("next_fire_at", "-next_fire_at"),
)
_RUN_ORDERS: Final = ("-id", "id", "-scheduled_time", "scheduled_time", "-created_at", "created_at")

Word = Annotated[str, meta(min_length=1)]
Label = Annotated[str, meta(min_length=1, max_length=511, pattern="[^=]+=.*", expected="NAME=VALUE")]
TaskName = Annotated[
    Annotated[int, meta(ge=0, le=2**53 - 1)] | Annotated[str, meta(min_length=1, max_length=260)],
    meta("Of this task: its id, or its name.", expected=f"an id or {BY_NAME}NAME", examples=["sync_stats"]),
]
PageNumber = Annotated[int, meta("The page, counted from 1.", ge=1, le=2**31 - 1)]
PageSize = Annotated[int, meta("Items per page.", ge=1, le=LARGEST_PAGE)]
Cursor = Annotated[
    str,
    meta(
        "The `next_cursor` of the previous page: pages are stable while rows are added, but have no total.",
        min_length=1,
        max_length=2_000,
    ),
]


class PageNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What every page says of itself beside its items."""

    total: Annotated[int | None, meta("Null if the page was requested by cursor.", examples=[1])]
    page: Annotated[int, meta(examples=[1])]
    page_size: Annotated[int, meta(examples=[20])]
    next_cursor: Annotated[str | None, meta(examples=[None])]
    total_is_least: Annotated[
        bool | msgspec.UnsetType, meta("True if there are more than `total`: long lists are not counted completely.")
    ] = msgspec.UNSET


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a filter of tasks"

    status: Annotated[TaskStatus | None, meta("Tasks of this status.", examples=["ENABLED"])] = None
    name: Annotated[Word | None, meta("A part of the name.", examples=["sync"])] = None
    label: Annotated[Label | None, meta("Tasks with this label.", examples=["team=billing"])] = None
    queue: Annotated[Word | None, meta("Tasks whose runs go to this queue.", examples=["default"])] = None
    managed_by: Annotated[Word | None, meta("Who manages them.", examples=["api"])] = None
    include_system: Annotated[bool, meta("Include built-in tasks.")] = False


class TaskList(TaskFilter, frozen=True, kw_only=True):
    sort: Annotated[str, meta("A leading `-` reverses it.", choices=_TASK_ORDERS)] = "id"
    page: PageNumber = 1
    page_size: PageSize = 20
    cursor: Cursor | None = None


class RunFilter(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    noun: ClassVar[str] = "a filter of runs"

    task: TaskName | None = None
    status: Annotated[
        tuple[RunStatus, ...],
        meta("One or more statuses.", is_one=True, examples=[["FAILED", "TIMEOUT"]]),
    ] = ()
    since: Annotated[Moment | None, meta("Runs whose `scheduled_time` is not before this.")] = None
    until: Annotated[Moment | None, meta("Runs whose `scheduled_time` is not after this.")] = None
    queue: Annotated[Word | None, meta("Runs in this queue.", examples=["default"])] = None
    worker: Annotated[Word | None, meta("Runs that this worker has or had.", examples=["host-1"])] = None
    key: Annotated[Word | None, meta("Runs with this key.", examples=["stats-eu"])] = None
    origin: Annotated[Origin | None, meta("What created them.", examples=["trigger"])] = None
    label: Annotated[
        Label | None,
        meta("Runs of tasks with this label; with `origin=call`, calls that have it.", examples=["team=billing"]),
    ] = None
    text: Annotated[Word | None, meta("A part of the task's name or of the error message.", examples=["timeout"])] = (
        None
    )
    search: Annotated[
        Word | None,
        meta(
            "A part of the run's key, payload, result, log or error message, or of the task's name.",
            max_length=255,
            examples=["ACME-4711"],
        ),
    ] = None
    parent_id: Annotated[
        int | None, meta("The parts of this fan-out, the steps of this flow, or what it spawned.", ge=1, le=2**53 - 1)
    ] = None
    step: Annotated[
        Word | None,
        meta("Runs of this step of the flow in `parent_id`.", max_length=64, examples=["load"]),
    ] = None


class RunList(RunFilter, frozen=True, kw_only=True):
    sort: Annotated[str, meta("A leading `-` reverses it.", choices=_RUN_ORDERS)] = "-id"
    page: PageNumber = 1
    page_size: PageSize = 20
    cursor: Cursor | None = None


def read_task_query(given: Mapping[str, Any], at: ReadContext | None = None) -> TaskQuery:
    """InvalidArgument names every problem; with `at`, they are left there."""
    here = at or ReadContext(Problems())
    query = task_query(read_into(TaskList, given, here), here)
    if at is None:
        here.problems.finish()
    return query


def task_query(found: TaskFilter, at: ReadContext) -> TaskQuery:
    return TaskQuery(
        status=found.status,
        name=found.name,
        label=_label(found.label),
        queue=found.queue,
        managed_by=found.managed_by,
        include_system=found.include_system,
        scope=scope.current(),
        **(_paging(found, at) if isinstance(found, TaskList) else {}),
    )


async def every(find: Callable[[Q], Awaitable[Page[T]]], query: Q) -> AsyncIterator[T]:
    """All that the query finds, read page by page: `every(store.tasks, TaskQuery())`."""
    query = msgspec.structs.replace(query, page=1, page_size=500, cursor=None)
    while True:
        page = await find(query)
        for item in page.items:
            yield item
        if page.next_cursor is None:
            return
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


async def read_run_query(
    given: Mapping[str, Any],
    store: Store,
    task_id: TaskId | None = None,
    *,
    struct: type[RunList] = RunList,
    at: ReadContext | None = None,
) -> RunQuery:
    """`task_id` is the task that the path names. InvalidArgument names every problem; with `at`, they are left there."""
    here = at or ReadContext(Problems())
    query = await run_query(read_into(struct, given, here), store, here, task_id)
    if at is None:
        here.problems.finish()
    return query


async def run_query(found: RunFilter, store: Store, at: ReadContext, task_id: TaskId | None = None) -> RunQuery:
    if found.since is not None and found.until is not None and found.until < found.since:
        at.wrong("to", "is before from")
    if found.step is not None and found.parent_id is None:
        at.wrong("step", "requires parent_id, the run of the flow")
    return RunQuery(
        task_id=await _task_id(found.task, store) if task_id is None else task_id,
        status=found.status,
        queue=found.queue,
        worker_id=found.worker,
        key=found.key,
        origin=found.origin,
        label=_label(found.label),
        text=found.text,
        search=found.search,
        since=found.since,
        until=found.until,
        parent_id=None if found.parent_id is None else RunId(found.parent_id),
        step_id=found.step,
        scope=scope.current(),
        look=LOOKED_AT if found.search is None else SEARCHED,
        count_to=COUNTED,
        **(_paging(found, at) if isinstance(found, RunList) else {}),
    )


def _paging(found: TaskList | RunList, at: ReadContext) -> dict[str, Any]:
    if found.cursor is not None and not _is_cursor(found.cursor, found.sort.removeprefix("-")):
        at.wrong("cursor", "is not a cursor of this list")
    return {name: getattr(found, name) for name in ("page", "page_size", "cursor", "sort")}


def check_bulk(given: Mapping[str, Any], *, everything: bool, what: str) -> None:
    """A bulk change of everything has to say so: a filter that is empty, or not there, may be a slip."""
    if not everything and not given.get("filter"):
        raise InvalidArgument.field("filter", f'is missing; expected a filter, or "all": true for every {what}')


def from_the_top(sort: str) -> str:
    """The cursor before everything, of an order by id (`-id` or `id`): the first page, without counting what follows."""
    return cursor_at(sort, 2**62) if sort.startswith("-") else cursor_at(sort, 0, 0)


def cursor_at(sort: str, value: int, id_: int = 2**62) -> str:
    """The cursor right behind what has that value and id, in an order by a number."""
    encoded = msgspec.json.encode((sort.removeprefix("-"), value, id_))
    return base64.urlsafe_b64encode(encoded).decode().rstrip("=")


def _is_cursor(text: str, sort: str) -> bool:
    """Whether it may be a cursor of that order: a store takes the types in it on trust, and a database does not."""
    try:
        made_for, value, id_ = msgspec.json.decode(
            base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=tuple[str, str | int, int]
        )
    except (ValueError, msgspec.MsgspecError):
        return False
    fits = isinstance(value, str) if made_for == "name" else isinstance(value, int) and abs(value) < 2**63
    return made_for == sort and fits and 0 <= id_ < 2**63


async def _task_id(named: int | str | None, store: Store) -> TaskId | None:
    """The id of a task that is named by id or by name. A name that no task has gives 0, under which nothing is found."""
    if named is None:
        return None
    if isinstance(named, int):
        return TaskId(named)
    if named.isascii() and named.isdigit() and len(named) <= 15:
        return TaskId(int(named))
    task = await store.task_named(named.removeprefix(BY_NAME))
    return TaskId(0) if task is None else task.id


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, _, value = text.partition("=")
    return name, value


KINDS = ("task", "run", "worker", "queue", "alert", "installation", "subscription", "calendar", "bulk", "store")
"""The first words of all types."""

_TYPE = re.compile(rf"({'|'.join(KINDS)})(\.[a-z_]{{1,40}})?\.?")


_MOMENTS: Final = frozenset({"since", "until", "first", "last", "next_retry_time"})
"""In the data of events: kept as instants."""


def event_json(event: Event) -> dict[str, Any]:
    """`topic` is the task's name, `subject` the id of the run or the task; a plan's event names its own subject."""
    return {
        "id": event.id,
        "time": rfc3339(event.at),
        "type": event.type,
        "topic": event.topic,
        "subject": event.data.get("subject") or event.run_id or event.task_id,
        "task_id": event.task_id,
        "run_id": event.run_id,
        "queue": event.queue,
        "data": {
            name: rfc3339(Instant(value)) if name in _MOMENTS and isinstance(value, int) else value
            for name, value in event.data.items()
        },
    }


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    type: Annotated[
        str | None,
        meta(
            "Types or their first words, separated by commas: `run` matches every `run.…`.",
            max_length=2_000,
            examples=["run,task"],
        ),
    ] = None
    task: TaskName | None = None
    run: Annotated[int | None, meta("Events of this run.", ge=1, le=2**53 - 1, expected="the id of a run")] = None
    queue: Annotated[str | None, meta("Events of this queue.", examples=["default"])] = None
    after: Annotated[
        str | None, meta("The id of the last event that was seen; the header `Last-Event-ID` takes precedence.")
    ] = None


def check_type(word: str, at: ReadContext, field: str) -> None:
    if _TYPE.fullmatch(word) is None:
        template = "has {value}; expected {words}, or a type such as run.failed"
        at.wrong(field, template, value=repr(word[:60]), words=", ".join(KINDS))


def read_filter(given: Mapping[str, Any]) -> Filter:
    """The filter of `EventList`. InvalidArgument names every problem."""
    at = ReadContext(Problems())
    asked = read_into(EventList, given, at)
    types = tuple(dict.fromkeys(word.strip() for word in (asked.type or "").split(",") if word.strip()))
    for word in types:
        check_type(word, at, "type")
    at.problems.finish()
    task = asked.task
    return Filter(
        types=tuple(word.rstrip(".") for word in types),
        task_id=TaskId(task) if isinstance(task, int) else None,
        task=task.removeprefix(BY_NAME) if isinstance(task, str) else None,
        run_id=None if asked.run is None else RunId(asked.run),
        queue=asked.queue,
    )
