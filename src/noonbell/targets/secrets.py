"""Keeping secrets out of what is stored: an attempt's texts outlive it, and are read by more people than its task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote

from noonbell.service import secrets
from noonbell.service.secrets import MASK
from noonbell.settings.masking import is_named_for_a_secret

is_secret = lru_cache(maxsize=1024)(secrets.is_secret)

_SHORTEST = 6
"""A shorter value is left alone in texts: it would blot out words that only look like it."""


def secret_values(headers: Mapping[str, str]) -> list[str]:
    """What must not turn up in a stored text: the values of headers that are named for a secret, and what follows a word
    such as `Bearer`. Those of other headers are masked where they stand; in a text they would blot out ordinary words.
    """
    values = {value for name, value in headers.items() if is_named_for_a_secret(name)}
    values |= {value.rpartition(" ")[2] for value in values}
    long = [value for value in values if len(value) >= _SHORTEST]
    return sorted({written for value in long for written in _spellings(value)}, key=len, reverse=True)


def _spellings(value: str) -> Iterable[str]:
    """As it is, and as an answer may spell it: inside a JSON text, and in an address."""
    if value.isascii() and value.isalnum():
        return (value,)
    return (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, safe=""))


def hidden(headers: Mapping[str, str], callback_token: str | None) -> list[str]:
    """Everything about a request that must not turn up in a stored text."""
    values = secret_values(headers)
    return [callback_token, *values] if callback_token else values


def masked(headers: Mapping[str, str], values: Sequence[str]) -> dict[str, str]:
    """The headers, with MASK in place of the secret ones and of each of the values."""
    shown = {name: MASK if is_secret(name) else value for name, value in headers.items()}
    if values:
        everything = "\n".join(shown.values())  # one look at all of them: a secret is hardly ever among them
        if any(value in everything for value in values):
            return {name: conceal(value, values) for name, value in shown.items()}
    return shown


def conceal(text: str, values: Iterable[str]) -> str:
    """The text with MASK in place of each of the values."""
    for value in values:
        text = text.replace(value, MASK)
    return text
