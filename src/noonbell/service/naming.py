"""How a caller names a task: by its id, or by its name."""

from __future__ import annotations

import re
from typing import TypeAlias

from noonbell.errors import InvalidId
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.service.reader import unfit

TaskRef: TypeAlias = TaskId | str
"""An id, or a name."""

BY_NAME = "name:"

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


def _number(text: str, what: str, other: str) -> int:
    if _ID.fullmatch(text) is None or not 0 < int(text) < _LARGEST:
        raise InvalidId(f"{text[:60]!r} is not the id of {what}; expected a number{other}")
    return int(text)
