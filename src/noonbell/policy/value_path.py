"""The names by which a flow's expressions and placeholders reach values: `steps.extract.result.files[0]`, `payload["a b"]`.

A path starts with a root and goes into objects by their keys and into lists by their indexes. It reaches JSON and nothing
else: no attribute and no method of a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from noonbell.errors import Sentence
from noonbell.model.failure_text import FailureText, failure_text

STEP_FIELDS: Final = ("status", "result", "total", "succeeded", "failed", "results")
"""What `steps.ID` has. The last four are those of a `foreach`; of any other step they tell of its one run."""

_WITH_FIELDS: Final = frozenset({"steps", "item", "payload"})
MOST_SEGMENTS: Final = 32
SHOWN: Final = 60
"""Characters of a name that a message quotes."""

_ROOT = re.compile(r"[^\W\d]\w*")
_SEGMENT = re.compile(
    r"""\.(?P<name>\w+)|\[(?P<index>[0-9]{1,9})\]|\["(?P<key>[^"\x00-\x1f]{1,255})"\]|\['(?P<also>[^'\x00-\x1f]{1,255})'\]"""
)
_DASHED_SEGMENT = re.compile(_SEGMENT.pattern.replace(r"\w+", r"[\w-]+"))

_NAMED: Final = 10
"""Keys of an object that a message names."""

MISSING: Final = object()


class InputError(Exception):
    """What a step is to be given, or its condition, cannot be made of the values that are there. `kind` is that of
    `error_details`.
    """

    def __init__(self, message: FailureText, kind: Literal["fail", "too_large"] = "fail") -> None:
        super().__init__(message)
        self.message = message
        self.kind: Literal["fail", "too_large"] = kind


@dataclass(frozen=True, slots=True)
class ValuePath:
    root: str
    segments: tuple[str | int, ...] = ()
    text: str = ""
    """As it was written."""

    @property
    def step(self) -> str | None:
        """The id of the step that it reads."""
        return str(self.segments[0]) if self.root == "steps" and self.segments else None

    @property
    def field(self) -> str | None:
        """What it reads of that step."""
        return str(self.segments[1]) if self.root == "steps" and len(self.segments) > 1 else None


def read(text: str, start: int = 0, *, dashes: bool) -> tuple[ValuePath, int] | None:
    """The longest path at `start`, and where it ends; None if no name begins there.

    `dashes`: a name after a dot may hold some, where a dash cannot mean subtraction.
    """
    root = _ROOT.match(text, start)
    if root is None:
        return None
    pattern = _DASHED_SEGMENT if dashes else _SEGMENT
    segments: list[str | int] = []
    end = root.end()
    while (found := pattern.match(text, end)) is not None:
        index = found["index"]
        segments.append(int(index) if index else found["name"] or found["key"] or found["also"])
        end = found.end()
    return ValuePath(root[0], tuple(segments), text[start:end]), end


def shape_problem(path: ValuePath) -> str | None:
    """Why no value can ever stand there, if none can."""
    if len(path.segments) > MOST_SEGMENTS:
        return Sentence("{name} goes more than {most} levels deep", name=quoted(path), most=MOST_SEGMENTS)
    if path.segments and path.root not in _WITH_FIELDS:
        return Sentence("{name} is unknown; {root} has no fields", name=quoted(path), root=path.root)
    if path.root != "steps":
        return None
    if path.step is None:
        return Sentence("{name} names no step; expected steps.ID.FIELD, as in steps.extract.result", name=quoted(path))
    fields = ", ".join(STEP_FIELDS)
    if path.field is None:
        said = "{name} names no field of the step; expected one of {fields} after it"
        return Sentence(said, name=quoted(path), fields=fields)
    if path.field not in STEP_FIELDS:
        return Sentence("{name} is unknown; a step has {fields}", name=quoted(path), fields=fields)
    return None


def quoted(path: ValuePath) -> str:
    return clipped(path.text)


def clipped(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def inner(value: Any, segment: str | int) -> Any:
    """What an object has under that key, or a list at that index; MISSING if there is no such thing."""
    if isinstance(value, Mapping):
        return value.get(segment, MISSING) if isinstance(segment, str) else MISSING
    if isinstance(value, list):
        if isinstance(segment, str):
            if not (segment.isascii() and segment.isdigit() and len(segment) <= 9):
                return MISSING
            segment = int(segment)
        return value[segment] if segment < len(value) else MISSING
    return MISSING


def find(path: ValuePath, values: Mapping[str, Any]) -> Any:
    """What stands there; null where nothing does."""
    value = values.get(path.root)
    for segment in path.segments:
        value = inner(value, segment)
        if value is MISSING:
            return None
    return value


def look_up(path: ValuePath, scope: Mapping[str, Any]) -> Any:
    """What stands there; InputError, which names what is missing, where nothing does."""
    value = scope.get(path.root, MISSING)
    if value is MISSING:
        raise InputError(failure_text("input_no_root", path=quoted(path), root=path.root))
    for number, segment in enumerate(path.segments):
        below = inner(value, segment)
        if below is MISSING:
            raise InputError(_missing(path, number, value))
        value = below
    return value


def _missing(path: ValuePath, number: int, value: Any) -> FailureText:
    segment, above = path.segments[number], _written(path.root, path.segments[:number])
    if isinstance(value, Mapping):
        facts = {"path": quoted(path), "above": above, "key": clipped(repr(segment))}
        if not value:
            return failure_text("input_no_keys", **facts)
        names = ", ".join(clipped(str(name)) for name, _ in zip(value, range(_NAMED), strict=False))
        if len(value) > _NAMED:
            return failure_text("input_more_keys", **facts, names=names, more=len(value) - _NAMED)
        return failure_text("input_no_key", **facts, names=names)
    if isinstance(value, list):
        return failure_text("input_no_index", path=quoted(path), above=above, count=len(value))
    return failure_text("input_no_field", path=quoted(path), above=above, found=kind_of(value))


def _written(root: str, segments: tuple[str | int, ...]) -> str:
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in segments)
    return clipped(root + "".join(parts))


def kind_of(value: Any) -> str:
    """The kind of a JSON value, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"
