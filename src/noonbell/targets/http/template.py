"""Placeholders: `{{name}}` in a body, a URL or a header value becomes a value of the run.

There is no logic: no attributes, no calls, no loops, and no way to write more names than `NAMES` and the fields of the
payload (`payload.order.items.0`); a step of a flow also has what the flow knows (`policy/placeholders.py`). What is put
in is escaped for the place where it stands, so a value stays a value:

- `json`: inside a string literal, the value as the inside of a string; elsewhere, the value as JSON.
- `url`: percent-encoded, so that it is one piece of a path or of a query. A value that is missing, empty, or made of
  dots only is refused: it would name another resource.
- `none`: as text. For header values and bodies of no known form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

from noonbell.errors import InvalidArgument, PayloadTooLarge
from noonbell.policy import value_path
from noonbell.policy.placeholders import HTTP_ROOTS, RUN_NAMES, as_json, as_text, cut
from noonbell.policy.value_path import InputError, ValuePath

Escape = Literal["json", "none", "url"]

NAMES = RUN_NAMES

LARGEST = 8 * 1024 * 1024
"""Characters that one rendered text may have."""

_QUOTES = re.compile(r'\\.|"', re.DOTALL)
_CACHED = 16 * 1024
"""Longer texts are read anew each time, so that the cache of read texts stays small."""


@dataclass(frozen=True, slots=True)
class _Hole:
    path: ValuePath
    in_string: bool
    """Between the quotes of a JSON string."""


_Pieces = tuple[str | _Hole, ...]


def check(text: str) -> None:
    """Raise InvalidArgument if the text holds anything between `{{` and `}}` that is not a placeholder."""
    cut(text, NAMES)


def render(text: str, values: Mapping[str, Any], *, escape: Escape = "none", limit: int = LARGEST) -> str:
    """The text with its placeholders replaced. A name that `values` lacks is taken as null, unless it is one of a flow's.

    Raises InvalidArgument for what `check` refuses and for a value that a URL cannot hold, and PayloadTooLarge as soon
    as the result passes `limit` characters.
    """
    if "{{" not in text:
        return _within(limit, text)
    parts: list[str] = []
    size = 0
    for piece in _pieces(text):
        part = piece if isinstance(piece, str) else _written(piece, _found(piece, values), escape)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
    return "".join(parts)


def escape_for(text: str, content_type: str | None) -> Escape:
    """How values are to be written into this body: by its content type, or by its look where it has none."""
    if content_type is not None:
        kind = content_type.partition(";")[0].strip().lower()
        if kind.endswith(("/json", "+json")):
            return "json"
        return "url" if kind == "application/x-www-form-urlencoded" else "none"
    start = text.lstrip()
    looks_like_json = start.startswith(("[", '"')) or (start.startswith("{") and not start.startswith("{{"))
    return "json" if looks_like_json or _is_payload_alone(start) else "none"


def _is_payload_alone(text: str) -> bool:
    return text.startswith("{{") and text.rstrip()[2:-2].strip() == "payload"


def _pieces(text: str) -> _Pieces:
    return _read_cached(text) if len(text) <= _CACHED else _read(text)


def _read(text: str) -> _Pieces:
    """The text, cut at its placeholders."""
    pieces: list[str | _Hole] = []
    in_string = False
    for piece in cut(text, HTTP_ROOTS):
        if isinstance(piece, str):
            in_string = _ends_in_string(piece, starts_in_string=in_string)
            pieces.append(piece)
        else:
            pieces.append(_Hole(piece, in_string))
    return tuple(pieces)


_read_cached = lru_cache(maxsize=1024)(_read)


def _ends_in_string(text: str, *, starts_in_string: bool) -> bool:
    return (_QUOTES.sub(lambda found: found[0][:1], text).count('"') % 2 == 1) is not starts_in_string


def _found(hole: _Hole, values: Mapping[str, Any]) -> Any:
    if hole.path.root in NAMES:
        return value_path.find(hole.path, values)
    try:
        return value_path.look_up(hole.path, values)
    except InputError as error:
        raise InvalidArgument(error.message) from None


def _written(hole: _Hole, value: Any, escape: Escape) -> str:
    if escape == "json" and not hole.in_string:
        return as_json(value)
    text = as_text(value)
    match escape:
        case "json":
            return as_json(text)[1:-1]
        case "url":
            if not text.strip("."):
                raise InvalidArgument(f"{value_path.quoted(hole.path)} is {text!r}, which cannot be part of a URL")
            return quote(text, safe="", errors="replace")
        case "none":
            return text


def _within(limit: int, text: str) -> str:
    if len(text) > limit:
        raise _too_large(limit)
    return text


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the rendered text is longer than {limit} characters")
