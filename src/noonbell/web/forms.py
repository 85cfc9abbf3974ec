"""Forms: what the boxes of a form show, say and allow, from the Structs that declare its fields; JSON and YAML as people type,
upload and read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from noonbell import yaml_text
from noonbell.clock import Instant
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidJson, NoonbellError, Sentence, both
from noonbell.fields import StructField, StructKind, brief, kinds, meta, table
from noonbell.fields.problems import Problems
from noonbell.json_text import decode, decoded
from noonbell.service.translation import counted, recognized
from noonbell.web.context import as_json

TypedMoment = Annotated[Instant, meta(moment=True, minutes=True)]
"""RFC 3339; its seconds and its offset may be left out."""
_BOUNDS: Final = {"minimum": "min", "maximum": "max", "maxLength": "maxlength"}
"""Of JSON Schema, and the attribute of an input that says the same."""


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    kind: str
    """How it is drawn: `text`, `secret`, `number`, `lines`, `select`, `check`."""
    is_required: bool
    bounds: Mapping[str, float]


def boxes_of(struct: type[msgspec.Struct]) -> dict[str, Box]:
    """One for each field that a caller may write."""
    return {
        name: Box(name, "secret" if name == "secret" else _drawn(each.kind), each.is_required, bounds_of(each))
        for name, each in table(struct).items()
        if not each.extra.get("read_only")
    }


def _drawn(kind: kinds.FieldKind) -> str:
    match kind:
        case kinds.BoolKind():
            return "check"
        case kinds.ChoiceKind():
            return "select"
        case kinds.MapKind() | kinds.ListKind():
            return "lines"
        case kinds.IntegerKind() | kinds.NumberKind():
            return "number"
        case _:
            return "text"


def bounds_of(field: StructField) -> dict[str, float]:
    """The attributes of an input: `min` and `max` of a number, `maxlength` of a text."""
    bounds = {**field.kind.bounded(), **field.extra.get("schema", {})}
    return {word: bounds[key] for key, word in _BOUNDS.items() if key in bounds}


def box_text(kind: kinds.FieldKind, value: Any, mark: str = ": ") -> str:
    """A value as its box shows it. `mark` parts names from values, a line each."""
    kind = _inner(kind)
    match kind:
        case _ if value is None:
            return ""
        case kinds.BoolKind():
            return "on" if value else ""
        case kinds.MapKind():
            return "\n".join(f"{name}{mark}{each}" for name, each in value.items())
        case kinds.ListKind(of=StructKind()):
            return as_json(brief(kind, value)) if value else ""
        case StructKind():
            return as_json(brief(kind, value))
        case kinds.ListKind():
            return "\n".join(value)
        case kinds.JsonKind() | StructKind():
            return as_json(value)
        case kinds.IntegerKind() | kinds.NumberKind():
            return str(int(value)) if float(value).is_integer() else str(value)
        case _:
            return str(value)


def read_box(field: StructField, text: str, problems: Problems, mark: str = ":") -> Any:
    """What a box says, as the API would be sent it; the service checks it. None: it is empty.

    What is no number, no JSON, or no line of the kind that is expected is left with `problems`.
    """
    kind = _inner(field.kind)
    match kind:
        case kinds.BoolKind():
            return bool(text)
        case kinds.MapKind():
            return _read_pairs(field.name, text, mark, problems)
        case kinds.ListKind(of=StructKind()):
            return read_json_box(field.name, text, problems) if text.strip() else None
        case kinds.ListKind():
            return [line.strip() for line in text.splitlines() if line.strip()]
        case _ if not text.strip():
            return None
        case kinds.JsonKind() | StructKind():
            return read_json_box(field.name, text, problems)
        case kinds.IntegerKind() | kinds.NumberKind():
            value = number_or_text(text)
            if isinstance(value, str):
                problems.add(field.name, Sentence("is {value}; expected {what}", value=repr(value), what=kind.what))
            return value
        case _:
            return text.strip()


def _inner(kind: kinds.FieldKind) -> kinds.FieldKind:
    """What a field holds that is checked elsewhere."""
    return kind.of if isinstance(kind, kinds.AnyKind) and kind.of is not None else kind


def number_or_text(text: str) -> float | str:
    """What is no number stays a text, which the service refuses with the right words."""
    try:
        value = float(text)
    except ValueError:
        return text.strip()[:40]
    return int(value) if value.is_integer() else value


def whole(name: str, text: str) -> int:
    """A whole number that a form asks for; else InvalidArgument for the field `name`."""
    if not text.strip().isdecimal() or len(text) > 10:
        raise InvalidArgument.field(
            name, Sentence("is {value}; expected {what}", value=repr(text[:20]), what="a whole number")
        )
    return int(text)


def read_json_box(name: str, text: str, problems: Problems) -> Any:
    try:
        return read_json(text)
    except InvalidJson as error:
        problems.add(name, error.sentence)
        return {}


def _read_pairs(name: str, text: str, mark: str, problems: Problems) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, there, value = line.partition(mark)
        if there and key.strip():
            found[key.strip()] = value.strip()
        elif line.strip():
            template = "has the line {value}; expected Name{mark}value on each"
            shown, written = repr(line.strip()[:60]), ": " if mark == ":" else mark
            problems.add(name, Sentence(template, value=shown, mark=written))
    return found


def texts_of(struct: type[msgspec.Struct], value: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The boxes of a whole form, as they show that value; without one, the defaults."""
    fields = table(struct)
    if value is None:
        value = {name: each.default for name, each in fields.items() if not each.is_required}
    return {name: box_text(fields[name].kind, value.get(name)) for name in boxes_of(struct)}


def sent_texts(sent: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The boxes of a whole form, as they were sent; several of one name are lines."""
    return {name: "\n".join(text for key, text in sent if key == name) for name, _ in sent}


def read_boxes(struct: type[msgspec.Struct], texts: Mapping[str, str]) -> dict[str, Any]:
    """What a whole form says. A box that is empty is left to its default, unless the field is required."""
    problems, fields, found = Problems(), table(struct), {}
    for name in boxes_of(struct):
        value = read_box(fields[name], texts.get(name, ""), problems)
        if value is not None or fields[name].is_required:
            found[name] = "" if value is None else value
    problems.finish()
    return found


def problems_by_box(
    error: NoonbellError, boxes: Collection[str], box_of: Callable[[str], str] = lambda name: name
) -> dict[str, str]:
    """By the box that each is about; what has none is said on top, under the empty name."""
    if isinstance(error, AlreadyExists):
        return {"name": error.sentence}
    if not isinstance(error, InvalidArgument) or not error.details:
        return {"": error.sentence}
    found: dict[str, str] = {}
    for name, problem in error.sentences.items():
        box = box_of(name)
        head = box.partition(".")[0].partition("[")[0]
        where = head if head in boxes else ""
        said = problem if where and box == head else Sentence("{name}: {problem}", name=name, problem=problem)
        found[where] = both(found[where], said) if where in found else said
    return found


_INLINE: Final = 8_000
"""Characters: what is longer is read by a process of its own."""
_PROCESSOR_SECONDS = 10
_DEADLINE: Final = 30.0
"""Seconds: for a process that gets no processor time."""
_turns = asyncio.Semaphore(2)
"""Texts that are read at once; the others wait."""


async def read_yaml(text: str, most: int) -> Any:
    """What the text says, as JSON has it. InvalidArgument says what is wrong with it."""
    if len(text) > most:
        raise InvalidArgument(
            Sentence("has {count} characters; expected {most} at most", count=counted(len(text)), most=counted(most))
        )
    try:
        if len(text) <= _INLINE:
            return await decoded(yaml_text.to_json(text).encode())
        async with _turns:
            found = await _read_aside(text)
        return await decoded(found)
    except InvalidJson as error:
        raise InvalidArgument(error.sentence) from None
    except ValueError as error:
        raise InvalidArgument(recognized(str(error), (yaml_text.NEITHER, yaml_text.TWICE))) from None


async def write_yaml(made: Callable[[], Any], width: int) -> str:
    """What `made` returns as YAML. Both happen in a thread: 250,000 values take a second, and others have their turn
    meanwhile, since most of that is Python.
    """
    return await asyncio.to_thread(lambda: yaml_text.write(made(), width))


async def _read_aside(text: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", yaml_text.__file__, str(_PROCESSOR_SECONDS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_DEADLINE):
            found, _ = await process.communicate(text.encode("utf-8", "replace"))
    except TimeoutError:
        raise ValueError("takes too long to read") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode == 1:
        raise ValueError(found.decode())
    if process.returncode != 0:
        raise ValueError("takes too long to read")
    return found


def read_json(text: str) -> Any:
    return decode(text.encode("utf-8", "surrogatepass"), what="")
