"""What the description says of an endpoint, apart from who answers there; and parameters that several share."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from noonbell.api.endpoint import Param
from noonbell.model.run import Origin, RunStatus
from noonbell.model.task import TaskStatus


class Paper(TypedDict, total=False):
    """The fields of `Endpoint` that describe it, besides name, tag and summary."""

    answer: str | None
    answer_example: Any
    status: int
    body: str | None
    body_example: Any
    body_required: bool
    most_bytes: int
    query: tuple[Param, ...]
    errors: tuple[str, ...]
    notes: str
    versioned: bool


def paper(name: str, tag: str, summary: str, **more: Unpack[Paper]) -> Any:
    """Any: it is unpacked into an `Endpoint`, whose own types check it when the application is built."""
    return {"name": name, "tag": tag, "summary": summary, **more}


def whole(low: int, high: int, default: int | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    return schema if default is None else {**schema, "default": default}


def one_of(words: type[TaskStatus | RunStatus | Origin]) -> dict[str, Any]:
    return {"type": "string", "enum": [str(word) for word in words]}


MOMENT = {"type": "string", "format": "date-time"}
FLAG = {"type": "boolean", "default": False}

PAGING = (
    Param("page", "Which page, from 1 on.", whole(1, 2**31 - 1, 1), 1),
    Param("page_size", "How many items a page has.", whole(1, 1_000, 20), 20),
    Param("cursor", "The `next_cursor` of the page before: pages that stay put while rows are added. No total then."),
)

FILTER_OF_RUNS = (
    Param(
        "status",
        "Statuses, as a list parted by commas or given several times.",
        {"type": "array", "items": one_of(RunStatus)},
        ["FAILED", "TIMEOUT"],
    ),
    Param("from", "Runs whose `scheduled_time` is not before this.", MOMENT, "2026-11-15T00:00:00Z"),
    Param("to", "Runs whose `scheduled_time` is not after this.", MOMENT, "2026-11-16T00:00:00Z"),
    Param("queue", "Runs on this queue.", example="default"),
    Param("worker", "Runs that this worker has or had.", example="host-1"),
    Param("key", "The runs of this key.", example="stats-eu"),
    Param("origin", "What they were born from.", one_of(Origin), "trigger"),
    Param("label", "Runs of tasks with this label.", example="team=billing"),
    Param("text", "A part of the task's name or of the error message.", example="timeout"),
    Param("parent_id", "The parts of this fan-out.", whole(1, 2**53 - 1)),
    Param(
        "sort",
        "A leading `-` turns it round.",
        {
            "type": "string",
            "enum": [f"{way}{name}" for name in ("id", "scheduled_time", "created_at") for way in ("-", "")],
        },
        "-id",
    ),
)
