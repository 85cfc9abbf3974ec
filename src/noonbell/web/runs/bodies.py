"""The large texts of a run as a page shows them: the beginning, laid out; what is copied is the text as it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup, escape

from noonbell.web.visit import as_json, pretty

MOST_SHOWN: Final = 64 * 1024
"""Characters of a body on a page; the whole can be downloaded."""


@dataclass(frozen=True, slots=True)
class Body:
    shown: str
    """At most MOST_SHOWN of it, JSON laid out."""
    whole: str
    """As it is kept, to be copied; empty where it is too long for that."""
    size: int
    """Of the whole, in bytes."""
    is_cut: bool


def body(text: str | None) -> Body | None:
    """None for no body."""
    if not text:
        return None
    size, laid_out = len(text.encode("utf-8", "surrogatepass")), pretty(text[: 4 * MOST_SHOWN])
    is_long = len(text) > MOST_SHOWN
    return Body(laid_out[:MOST_SHOWN], "" if is_long else text, size, is_long or len(laid_out) > MOST_SHOWN)


def value(given: Any) -> Body | None:
    """Of what is kept as JSON: every digit that a number has."""
    return None if given is None else body(as_json(given))


def exact(text: str) -> Markup:
    """For an attribute: a browser makes one character of CR and LF, unless they are written out."""
    return Markup(str(escape(text)).replace("\r", "&#13;").replace("\n", "&#10;"))  # noqa: S704 - escaped right here
