"""An error as a page lays it out: what went wrong in one line, then the traceback in its own lines. Pure.

A handler in Python leaves its traceback in the error's details; a worker of another kind may send one as its message, with
the line that says what went wrong at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from noonbell.model.failure_text import SAID

_TITLE: Final = "Traceback (most recent call last):"
_FRAME: Final = '  File "'
_OURS: Final = (f"{Path(__file__).parent.parent}/", "/site-packages/noonbell/")
"""Where Noonbell's own code lies: here, and on the machine of a worker."""


@dataclass(frozen=True, slots=True)
class StackPart:
    text: str
    is_own: bool
    """Frames of Noonbell itself: a reader who looks for a mistake in a handler need not see them."""
    frames: int


@dataclass(frozen=True, slots=True)
class ErrorText:
    headline: str
    """What went wrong. Of several lines only where the exception's own message has them."""
    parts: list[StackPart]
    """Where, in the order of the traceback."""
    details: dict[str, Any] | None
    """All other details; None: there are none."""


def error_text(message: str | None, details: Mapping[str, Any] | None) -> ErrorText:
    text = (message or "").replace("\r\n", "\n").strip("\n")
    rest = {name: value for name, value in (details or {}).items() if name != SAID}
    where: list[str] = []
    if _TITLE in text:
        text, where = _last_first(text.split("\n"))
    elif "\n" in text:
        text, _, below = text.partition("\n")
        where = below.split("\n")
    if isinstance(rest.get("traceback"), str):
        where += str(rest.pop("traceback")).rstrip("\n").split("\n")
    return ErrorText(text, _parted(where), rest or None)


def headline(message: str | None) -> str:
    """One line for a list."""
    return error_text(message, None).headline.partition("\n")[0]


def _last_first(lines: list[str]) -> tuple[str, list[str]]:
    """What the last exception says, and the lines before it: the message begins at the first line that is not indented
    below the last title.
    """
    title = max(at for at, line in enumerate(lines) if _TITLE in line)
    begin = next((at for at, line in enumerate(lines) if at > title and line[:1] not in (" ", "\t", "")), len(lines))
    return ("\n".join(lines[begin:]), lines[:begin]) if begin < len(lines) else (lines[-1].strip(), lines[:-1])


def _parted(lines: list[str]) -> list[StackPart]:
    """Runs of frames of Noonbell, and what is between them."""
    owners: list[bool] = []
    for line in lines:
        is_frame = line.startswith(_FRAME)
        owners.append(is_frame and _is_ours(line) if is_frame or line[:4].strip() or not owners else owners[-1])
    grouped = groupby(zip(owners, lines, strict=True), key=lambda each: each[0])
    found = [(is_own, [line for _, line in part]) for is_own, part in grouped]
    return [
        StackPart("\n".join(part), is_own, sum(line.startswith(_FRAME) for line in part))
        for is_own, part in found
        if any(line.strip() for line in part)
    ]


def _is_ours(frame: str) -> bool:
    path = frame.removeprefix(_FRAME).partition('"')[0].replace("\\", "/")
    return path.startswith(_OURS[0]) or _OURS[1] in path
