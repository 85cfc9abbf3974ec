"""Failures that say the same: an error's text without what differs from one time to the next. Pure."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 200
_LOOKED_AT: Final = 2_000
"""Characters of a message that are looked at: a text of megabytes is no better sign than its beginning."""

_STEPS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), sign)
    for pattern, sign in (
        (r"([a-z][a-z0-9+.-]{1,20}://[^\s?#\"'<>)\]]*)(?:[?#][^\s\"'<>)\]]*)", r"\1"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "#"),
        (r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?", "#"),
        (r"\b0x[0-9a-f]+\b", "#"),
        (r"\b(?=[a-z0-9_-]*\d)[a-z]{2,8}_[a-z0-9-]{6,}\b", "#"),
        (r"\b(?=[0-9a-z]*\d)(?=[0-9a-z]*[a-z])[0-9a-z]{16,}\b", "#"),
        (r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", "#"),
        (r"\d+(?:[.,:]\d+)*", "#"),
        (r"\s+", " "),
    )
)
"""In this order: queries of addresses, UUIDs, times, pointers, ids with a prefix (`run_01JC9F`), long words with digits,
hashes, any other number, line ends.
"""


def signature(text: str) -> str:
    """`GET https://a.example/x?id=7 took 31 ms` and `… ?id=8 took 44 ms` have the same one."""
    said = text[:_LOOKED_AT]
    for pattern, sign in _STEPS:
        said = pattern.sub(sign, said)
    return said.strip()[:LONGEST]
