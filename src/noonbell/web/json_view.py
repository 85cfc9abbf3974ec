"""JSON that folds: nested `<details>` that the browser opens and closes by mouse and by key, without a script.

The text is read so that every digit of a number and every doubled key stays as it was written. What is short, is no
JSON, or has too many values to be drawn one by one is shown as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from markupsafe import Markup, escape

_SHORT: Final = 12
"""Lines: what has no more needs no folding."""
_MOST_VALUES: Final = 2_000
_DEEPEST: Final = 40
_OPEN: Final = 30
"""Members of an object or items of a list that is open at first, below the outermost."""


class _Number(str):
    """As it was written."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """Of an object: in their order, also those of the same name."""


class _TooMuchError(Exception):
    pass


def json_view(text: str, counted: Callable[[int, bool], str]) -> Markup:
    """`counted`: in words, how many members (True) or items (False) something has that may be folded."""
    plain = Markup('<pre class="body" tabindex="0"><code>{}</code></pre>').format(text)
    if text.count("\n") <= _SHORT or text[:1] not in ("{", "["):
        return plain
    try:
        found = json.loads(
            text, object_pairs_hook=_Members, parse_int=_Number, parse_float=_Number, parse_constant=_Number
        )
        drawn = _Drawing(counted).value(found, Markup(""), "", 0)
    except (ValueError, RecursionError, _TooMuchError):
        return plain
    return Markup('<div class="body json" tabindex="0">{}</div>').format(drawn)


class _Drawing:
    def __init__(self, counted: Callable[[int, bool], str]) -> None:
        self._counted, self._left = counted, _MOST_VALUES

    def value(self, value: Any, before: Markup, after: str, depth: int) -> Markup:
        """On a line, or on several that fold. `before`: its key; `after`: its comma."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise _TooMuchError
        if not isinstance(value, _Members | list) or not value:
            return Markup("<div>{}{}{}</div>").format(before, _scalar(value), after)
        is_object = isinstance(value, _Members)
        pairs = value if is_object else [("", each) for each in value]
        inner = Markup("").join(
            self.value(
                each,
                Markup('<span class="json-key">{}</span>: ').format(_quoted(key)) if is_object else Markup(""),
                "," if place < len(pairs) else "",
                depth + 1,
            )
            for place, (key, each) in enumerate(pairs, 1)
        )
        begin, end = ("{", "}") if is_object else ("[", "]")
        return Markup(
            '<details{}><summary>{}{}<span class="json-more"> {} {}{}</span></summary>'
            '<div class="json-in">{}</div><div>{}{}</div></details>'
        ).format(
            Markup(" open") if depth == 0 or len(pairs) <= _OPEN else "",
            before,
            begin,
            self._counted(len(pairs), is_object),
            end,
            after,
            inner,
            end,
            after,
        )


def _scalar(value: Any) -> Markup:
    if isinstance(value, _Number):
        return Markup('<span class="json-number">{}</span>').format(str(value))
    if isinstance(value, str):
        return Markup('<span class="json-text">{}</span>').format(_quoted(value))
    if isinstance(value, _Members):
        return Markup("{}")
    return escape("[]" if isinstance(value, list) else json.dumps(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
