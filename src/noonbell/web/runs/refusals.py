"""Why a callback was refused, in the visitor's words, and what to do about it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_KNOWN: Final = tuple(
    (re.compile(pattern), key)
    for pattern, key in (
        (r"its signature does not match", "signature"),
        (r"it is signed, but without", "unsigned"),
        (r"it is not signed", "not_signed"),
        (r"its signature is \d+ s (?:old|ahead)", "clock"),
        (r"the token is of an earlier attempt", "stale"),
        (r"the run is (?P<status>\w+) already", "over"),
        (r"the run awaits no callback: its task is not ASYNC", "not_async"),
        (r"the run is (?P<status>\w+) and (?:awaits|takes) no callback", "not_open"),
        (r"unknown token", "unknown"),
        (r"unknown run|the run is not of this task", "elsewhere"),
    )
)
"""What the engine says of each, and the key of the page's words for it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    key: str
    """Of `refused.…` and `refused.why.…`; empty where only the engine's own words are known."""
    status: str
    said: str


def refusal(reason: str | None) -> Refusal | None:
    if not reason:
        return None
    for pattern, key in _KNOWN:
        if found := pattern.match(reason):
            return Refusal(key, found.groupdict().get("status") or "", reason)
    return Refusal("", "", reason)
