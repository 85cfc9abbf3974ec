"""Events as JSON, and the filter that a listener asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from noonbell.clock import rfc3339
from noonbell.model.event import Event
from noonbell.model.run import RunId
from noonbell.model.stream import Filter
from noonbell.model.task import TaskId
from noonbell.service.naming import BY_NAME
from noonbell.service.reader import Problems

KINDS = ("task", "run", "worker", "queue", "alert")
"""The first words of all types."""

_TYPE = re.compile(rf"({'|'.join(KINDS)})(\.[a-z_]{{1,40}})?\.?")
_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


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
        "data": event.data,
    }


def read_filter(given: Mapping[str, str]) -> Filter:
    """`type`, `task`, `run` and `queue`, as a query string has them."""
    problems = Problems()
    types = tuple(dict.fromkeys(word.strip() for word in given.get("type", "").split(",") if word.strip()))
    for word in types:
        if _TYPE.fullmatch(word) is None:
            problems.add("type", f"has {word[:60]!r}; expected {', '.join(KINDS)}, or a type such as run.failed")
    run = given.get("run")
    if run is not None and (_NUMBER.fullmatch(run) is None or not 0 < int(run) < 2**53):
        problems.add("run", f"is {run[:60]!r}; expected the id of a run")
    problems.finish()
    task = given.get("task")
    is_id = task is not None and _NUMBER.fullmatch(task) is not None
    return Filter(
        types=tuple(word.rstrip(".") for word in types),
        task_id=TaskId(int(task)) if task is not None and is_id else None,
        task=None if task is None or is_id else task.removeprefix(BY_NAME),
        run_id=None if run is None else RunId(int(run)),
        queue=given.get("queue"),
    )
