"""Which tasks and which runs: the filters of a list, the same by query string and in the body of a bulk change."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from noonbell.model.request import RunQuery, TaskQuery
from noonbell.model.run import Origin, RunStatus
from noonbell.model.task import TaskId, TaskStatus
from noonbell.ports import Store
from noonbell.service.naming import BY_NAME
from noonbell.service.reader import Reader, unfit

TASK_FILTERS: Final = ("status", "name", "label", "queue", "managed_by", "include_system")
RUN_FILTERS: Final = (
    *("task", "status", "queue", "worker", "key", "origin", "label", "text", "from", "to", "parent_id"),
)
PAGING: Final = ("page", "page_size", "cursor", "sort")

LARGEST_PAGE: Final = 1_000
LOOKED_AT: Final = 50_000
"""Runs that are looked at for one page of them, at most."""
COUNTED: Final = 10_000
"""How far runs are counted: who wants more of a list than that goes by cursor."""

_STATUSES: Final = frozenset(str(status) for status in RunStatus)


def read_task_query(reader: Reader) -> TaskQuery:
    return TaskQuery(
        status=reader.choice("status", TaskStatus, TaskStatus.ENABLED) if reader.get("status") else None,
        name=reader.text("name", None, least=1),
        label=_read_label(reader),
        queue=reader.text("queue", None, least=1),
        managed_by=reader.text("managed_by", None, least=1),
        include_system=reader.flag("include_system", default=False),
        **_read_paging(reader, "id"),
    )


async def read_run_query(reader: Reader, store: Store, task_id: TaskId | None = None) -> RunQuery:
    """`task_id` is the task that the path names; then there is no filter by task."""
    if task_id is None:
        task_id = await _read_task(reader, store)
    since, until = reader.moment("from"), reader.moment("to")
    if since is not None and until is not None and until < since:
        reader.wrong("to", "is before from")
    return RunQuery(
        task_id=task_id,
        status=_read_statuses(reader),
        queue=reader.text("queue", None, least=1),
        worker_id=reader.text("worker", None, least=1),
        key=reader.text("key", None, least=1),
        origin=reader.choice("origin", Origin, Origin.SCHEDULE) if reader.get("origin") else None,
        label=_read_label(reader),
        text=reader.text("text", None, least=1),
        since=since,
        until=until,
        parent_id=reader.integer("parent_id", None, 1, 2**53 - 1),  # type: ignore[arg-type]
        look=LOOKED_AT,
        count_to=COUNTED,
        **_read_paging(reader, "-id"),
    )


def _read_paging(reader: Reader, sort: str) -> dict[str, Any]:
    cursor = reader.text("cursor", None, least=1, most=2_000)
    sort = reader.text("sort", sort, least=1, most=40)
    if cursor is not None and not _is_cursor(cursor, sort.removeprefix("-")):
        reader.wrong("cursor", "is not one that was handed out here")
    return {
        "page": reader.integer("page", 1, 1, 2**31 - 1),
        "page_size": reader.integer("page_size", 20, 1, LARGEST_PAGE),
        "cursor": cursor,
        "sort": sort,
    }


def from_the_top(sort: str) -> str:
    """The cursor before everything, of an order that falls (`-id`): the first page, without counting what follows."""
    return cursor_at(sort, 2**62)


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


async def _read_task(reader: Reader, store: Store) -> TaskId | None:
    """By id or by name. A name that no task has finds nothing, which is what task 0 has."""
    value = reader.get("task")
    if value is None:
        return None
    if isinstance(value, int | float):
        return TaskId(reader.integer("task", 0, 0, 2**53 - 1, f"an id or {BY_NAME}NAME"))
    if not isinstance(value, str) or not 1 <= len(value) <= 260 or unfit(value) is not None:
        reader.expected("task", f"an id or {BY_NAME}NAME")
        return None
    if value.isascii() and value.isdigit() and len(value) <= 15:
        return TaskId(int(value))
    task = await store.task_named(value.removeprefix(BY_NAME))
    return TaskId(0) if task is None else task.id


def _read_statuses(reader: Reader) -> tuple[RunStatus, ...]:
    value = reader.get("status")
    words = value if isinstance(value, list) else [] if value is None else [value]
    found: dict[RunStatus, None] = {}
    for word in words:
        if not isinstance(word, str) or word not in _STATUSES:
            reader.expected("status", f"one or more of {', '.join(RunStatus)}")
            return ()
        found[RunStatus(word)] = None
    return tuple(found)


def _read_label(reader: Reader) -> tuple[str, str] | None:
    text = reader.text("label", None, least=1, most=511)
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals or not name:
        reader.expected("label", "NAME=VALUE")
        return None
    return name, value
