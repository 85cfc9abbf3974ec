"""What must not be shown: the values of headers that carry credentials, and signing secrets.

An answer shows MASK in their place. MASK that is written back means: as it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"

_SECRET_HEADER = re.compile(
    r"authorization|cookie|secret|token|passw|passwd|pwd|api[-_]?key|access[-_]?key|private[-_]?key|credential"
    r"|signature|session|x-auth|x-callback-url",
    re.IGNORECASE,
)


def is_secret(header: str) -> bool:
    return _SECRET_HEADER.search(header) is not None


def masked(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: MASK if is_secret(name) and value else value for name, value in headers.items()}


def unmasked(given: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    """`given`, where MASK stands for the value that is kept under that name."""
    known = {name.lower(): value for name, value in kept.items()}
    return {
        name: known.get(name.lower(), value) if value == MASK and isinstance(name, str) else value
        for name, value in given.items()
    }
