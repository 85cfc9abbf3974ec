"""Which headers are secret, and how they and their values are kept out of what is stored or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MASK = "***"

CALLBACK_URL = "x-callback-url"
"""Its last piece is the token; the rest may be read."""

_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-callback-token"})
_SECRET_WORD = re.compile(r"token|secret|passw|signature|credential|private|api-?key|auth-?key|access-?key|session")
_SHORTEST = 6
"""A shorter value is left alone in texts: it would blot out words that only look like it."""


def is_secret(name: str) -> bool:
    """Whether the header of this name holds a secret."""
    lower = name.lower()
    return lower in _SECRET or _SECRET_WORD.search(lower) is not None


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, fit to be shown: the value of each secret one is MASK."""
    return {name: _masked(name, value) for name, value in headers.items()}


def secret_values(headers: Mapping[str, str]) -> list[str]:
    """What must not turn up in a stored text: the secret values, and what follows a scheme such as `Bearer`."""
    values = {value for name, value in headers.items() if is_secret(name)}
    values |= {value.rpartition(" ")[2] for value in values}
    return sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)


def conceal(text: str, values: Iterable[str]) -> str:
    """The text with MASK in place of each of the values."""
    for value in values:
        text = text.replace(value, MASK)
    return text


def _masked(name: str, value: str) -> str:
    if name.lower() == CALLBACK_URL:
        return value.rpartition("/")[0] + "/" + MASK
    return MASK if is_secret(name) else value
