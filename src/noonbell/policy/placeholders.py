"""Placeholders: `{{ steps.extract.result.files }}`, `{{ item.x }}`, `{{ payload.x }}`, `{{ slot }}` in what a step is given.

A text that is one placeholder becomes the value itself, of any type; in a longer text a value is written as text. What
is put in is never read again as a template. Texts of HTTP targets are cut at the same placeholders, and escape what is put
in for the place where it stands (`targets/http/template.py`). They may name what only an attempt knows, and are rendered
when it begins; what they read of the flow is put aside by `gather` when the step's turn has come.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from noonbell.errors import InvalidArgument, Sentence
from noonbell.json_text import DEEPEST, is_too_deep
from noonbell.model.failure_text import failure_text
from noonbell.policy import value_path
from noonbell.policy.value_path import InputError, ValuePath, clipped

_OF_THE_FLOW: Final = frozenset({"steps", "item", "slot"})
ROOTS: Final = _OF_THE_FLOW | {"payload"}
"""What the values of a step can name."""
RUN_NAMES: Final = frozenset(
    {
        *("run_id", "task_id", "task_name", "attempt", "scheduled_time", "previous_scheduled_time", "trace_id"),
        *("callback_url", "callback_token", "payload"),
    }
)
"""What the texts of any HTTP target can name."""
HTTP_ROOTS: Final = RUN_NAMES | ROOTS
"""What the texts of a step's HTTP target can name."""
MOST_BYTES: Final = 1_048_576
"""Of everything that one step is given, as JSON."""

Scope = Mapping[str, Any]
Pieces = tuple[str | ValuePath, ...]


def cut(text: str, known: Collection[str]) -> Pieces:
    """The text, cut at its placeholders; InvalidArgument for one that does not begin with one of the `known` names."""
    first, *rest = text.split("{{")
    pieces: list[str | ValuePath] = [first]
    for part in rest:
        inside, closing, after = part.partition("}}")
        if not closing:
            said = "{text} is never closed; a placeholder is written {example}"
            raise InvalidArgument(Sentence(said, text=f"'{{{{{inside[:40]}'", example="{{name}}"))
        pieces += [_path(inside, known), after]
    return tuple(piece for piece in pieces if piece != "")


def _path(inside: str, known: Collection[str]) -> ValuePath:
    name = inside.strip()
    found = value_path.read(name, dashes=True)
    if found is None or found[1] != len(name) or found[0].root not in known:
        names = ", ".join(sorted(known))
        said = "unknown placeholder {text}; there are {names} and payload.FIELD"
        raise InvalidArgument(Sentence(said, text=f"{{{{{inside[:40]}}}}}", names=names))
    problem = value_path.shape_problem(found[0])
    if problem is not None:
        raise InvalidArgument(problem)
    return found[0]


def as_text(value: Any) -> str:
    """A value as it stands in a text: nothing for null, JSON for what is no text."""
    return "" if value is None else value if isinstance(value, str) else as_json(value)


as_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


# When a task is saved


def names_in(value: Any, known: Collection[str] = ROOTS) -> Iterator[ValuePath]:
    """The placeholders of every text in a value, the keys of its objects aside. InvalidArgument for what `cut` refuses."""
    for _, text in _texts(value, ""):
        yield from (piece for piece in cut(text, known) if isinstance(piece, ValuePath))


def check(value: Any, where: str, *, steps: Collection[str], has_item: bool) -> dict[str, str]:
    """What is wrong with the placeholders in a value, by the path of the text: `payload.files[0]`. `where` is its own.

    `steps` are those that it may read; `has_item`: it belongs to a `foreach`.
    """
    found: dict[str, str] = {}
    for path, text in _texts(value, where):
        try:
            _check_text(text, ROOTS, steps, has_item)
        except InvalidArgument as error:
            found[path] = error.sentence
    return found


def check_http_text(text: str, *, steps: Collection[str], has_item: bool) -> None:
    """InvalidArgument for a text of a step's HTTP target with a placeholder that it cannot have."""
    _check_text(text, HTTP_ROOTS, steps, has_item)


def _check_text(text: str, known: Collection[str], steps: Collection[str], has_item: bool) -> None:
    for path in cut(text, known):
        problem = path_problem(path, steps=steps, has_item=has_item) if isinstance(path, ValuePath) else None
        if problem is not None:
            raise InvalidArgument(problem)


def path_problem(path: ValuePath, *, steps: Collection[str], has_item: bool = False) -> str | None:
    """Why the path, of a placeholder or of a `when`, cannot be read in that step, if it cannot."""
    if path.step is not None and path.step not in steps:
        known = ", ".join(sorted(steps)[:10]) or "none"
        said = "{name} reads the step {step}, which is none of those before it: {known}"
        return Sentence(said, name=value_path.quoted(path), step=repr(clipped(path.step)), known=known)
    if path.root == "item" and not has_item:
        return Sentence("{name} is unknown; only a step with foreach has an item", name=value_path.quoted(path))
    return None


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Each text in which a placeholder may stand, with its path."""
    waiting = [(where, value)]
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, str):
            if "{{" in each:
                yield path, each
        elif isinstance(each, Mapping):
            waiting += [(f"{path}.{clipped(str(name))}" if path else str(name), one) for name, one in each.items()]
        elif isinstance(each, list | tuple):
            waiting += [(f"{path}[{index}]", one) for index, one in enumerate(each)]


# When a step's turn has come


def render(value: Any, scope: Scope, *, most_bytes: int = MOST_BYTES) -> Any:
    """The value with its placeholders replaced. `value` itself stays as it is.

    InputError for a name that is missing (`fail`), and as soon as the result passes `most_bytes` of JSON (`too_large`).
    """
    return rendered(value, scope, most_bytes=most_bytes)[0]


def rendered(value: Any, scope: Scope, *, most_bytes: int = MOST_BYTES) -> tuple[Any, str]:
    """As `render`, with the JSON of it, which had to be written to be measured."""
    made = _Rendering(scope, most_bytes).made(value)
    text = _as_bytes(made)
    if len(text) > most_bytes:
        raise _too_large(most_bytes)
    return made, text.decode()


class Template:
    """A value that is rendered again and again, as the payload of a step is for each item of its `foreach`."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._paths = _paths_in(value)

    def rendered(self, scope: Scope, *, most_bytes: int = MOST_BYTES) -> tuple[Any, str]:
        """As `rendered`."""
        if self._paths is None:
            return rendered(self._value, scope, most_bytes=most_bytes)
        made = dict(self._value)
        try:
            for name, path in self._paths:
                made[name] = value_path.look_up(path, scope)
            text = _as_bytes(made)
        except InputError:
            return rendered(self._value, scope, most_bytes=most_bytes)  # of several problems, it tells the first
        if len(text) > most_bytes:
            raise _too_large(most_bytes)
        return made, text.decode()


_MOST_PATHS = 8
"""A value that stands in several places is written as often before its size is known."""


def _paths_in(value: Any) -> list[tuple[str, ValuePath]] | None:
    """Of an object whose placeholders are whole values, side by side: by name, what they read. None for any other."""
    if not isinstance(value, dict):
        return None
    found: list[tuple[str, ValuePath]] = []
    for name, each in value.items():
        pieces = cut(each, ROOTS) if isinstance(each, str) and "{{" in each else ()
        if any(True for _ in _texts(each, "")):
            if len(pieces) != 1 or not isinstance(pieces[0], ValuePath):
                return None
            found.append((name, pieces[0]))
    return found if len(found) <= _MOST_PATHS else None


def gather(paths: Iterable[ValuePath], scope: Scope) -> dict[str, Any]:
    """Of `steps`, `item` and `slot` in `scope`, what these paths read, under the same names; errors as of `render`.

    A list of which an element is read is kept as a whole: its other elements keep their places.
    """
    kept: dict[str, Any] = {}
    wanted = {path for path in paths if path.root in _OF_THE_FLOW}
    if not wanted:
        return kept
    for path in sorted(wanted, key=lambda path: len(path.segments)):
        value_path.look_up(path, scope)
        _keep(kept, scope, [path.root, *path.segments])
    if size_of(kept) > MOST_BYTES:
        raise _too_large(MOST_BYTES)
    return kept


def _keep(kept: dict[str, Any], source: Any, names: list[str | int]) -> None:
    """Copy what stands at `names` from `source`, which has it. Shorter paths come first: what stands whole stays whole."""
    for position, name in enumerate(names):
        below = source[name]
        is_whole = position == len(names) - 1 or not isinstance(below, Mapping)
        if is_whole or (name in kept and kept[name] is below):
            kept[str(name)] = below
            return
        kept, source = kept.setdefault(str(name), {}), below


def size_of(value: Any) -> int:
    """Bytes of its JSON. InputError if it cannot be written as JSON, or is nested too deep to be read again."""
    return len(_as_bytes(value))


def _as_bytes(value: Any) -> bytes:
    try:
        text = msgspec.json.encode(value)
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError, OverflowError):
        raise InputError(failure_text("input_no_json")) from None
    if is_too_deep(text):
        raise _too_deep()
    return text


_REMEMBERED = 4 * 1024
"""Characters. Longer texts are cut anew each time, so that those which are remembered stay few bytes."""


@lru_cache(maxsize=1024)
def _known_pieces(text: str) -> Pieces:
    """The same text is rendered for each item of a `foreach`, and in each run of a flow."""
    return cut(text, ROOTS)


class _Rendering:
    """One value being rendered; `_left` counts down from the bytes that the values put in may have together."""

    def __init__(self, scope: Scope, most_bytes: int) -> None:
        self._scope, self._most_bytes, self._left = scope, most_bytes, most_bytes
        self._found: dict[ValuePath, tuple[Any, int]] = {}
        self._written: dict[ValuePath, tuple[str, int]] = {}

    def made(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._filled(value) if "{{" in value else value
        if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 - most are dicts, which takes less to find out
            return {name: self.made(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.made(each) for each in value]
        return value

    def _filled(self, text: str) -> Any:
        pieces = _known_pieces(text) if len(text) <= _REMEMBERED else cut(text, ROOTS)
        if len(pieces) == 1 and isinstance(pieces[0], ValuePath):
            return self._value(pieces[0])
        return "".join([piece if isinstance(piece, str) else self._text(piece) for piece in pieces])

    def _value(self, path: ValuePath) -> Any:
        found = self._found.get(path)
        if found is None:
            value = value_path.look_up(path, self._scope)
            # Of a text, about as many: all that was put in is measured once more, as it is written.
            found = self._found[path] = (value, len(value) if isinstance(value, str) else size_of(value))
        self._use(found[1])
        return found[0]

    def _text(self, path: ValuePath) -> str:
        if path not in self._written:
            text = as_text(value_path.look_up(path, self._scope))
            self._written[path] = (text, len(text))
        text, size = self._written[path]
        self._use(size)
        return text

    def _use(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _too_large(self._most_bytes)


def _too_large(most_bytes: int) -> InputError:
    return InputError(failure_text("input_too_large", most=most_bytes), "too_large")


def _too_deep() -> InputError:
    return InputError(failure_text("input_nested_deep", most=DEEPEST), "too_large")
