"""Secrets are not shown: by the name they stand under, or by their place in an address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

_SECRET_NAME = re.compile(
    r"authorization|cookie|passw|secret|token|credential|api[-_]?key|access[-_]?key|private[-_]?key|^auth$|signature|session[-_]?key",
    re.IGNORECASE,
)
_HARMLESS_NAME = re.compile(r"^(token_ttl|.*_id)$", re.IGNORECASE)
_USERINFO = re.compile(r"(?P<before>[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@?#]*:)[^/\s?#]*@")
_SECRET_QUERY = re.compile(
    r"(?P<before>[?&](?:[a-z_-]*(?:token|secret|passw(?:or)?d|key|signature|sig))=)[^&#\s]+", re.IGNORECASE
)

_ORIGIN = re.compile(r"https?://[^/?#@\s]+/?", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.match(name)


def mask_addresses(text: str) -> str:
    """`postgresql://me:pw@host/db?token=x` → `postgresql://me:***@host/db?token=***`, anywhere in a text."""
    text = _USERINFO.sub(rf"\g<before>{MASK}@", text)
    return _SECRET_QUERY.sub(rf"\g<before>{MASK}", text)


def origin_alone(url: str) -> str:
    """`https://hooks.example.com/services/T0/B1/secret` → `https://hooks.example.com/***`: a path may be the secret."""
    found = _ORIGIN.match(url)
    if found is None:
        return MASK
    return found[0] if found.end() == len(url) else f"{found[0].removesuffix('/')}/{MASK}"


def masked(value: Any, name: str = "") -> Any:
    """A copy without secrets. `name` is what the value stands under."""
    if value is None or isinstance(value, bool):
        return value
    if name and is_secret_name(name):
        return MASK
    if isinstance(value, str):
        return mask_addresses(value)
    if isinstance(value, Mapping):
        if name == "channels":
            return {key: _masked_channel(item) for key, item in value.items()}
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value


def _masked_channel(channel: Any) -> Any:
    """Of an address that apprise reads nothing is shown: it is made of passwords and tokens. Of a webhook's, its origin."""
    if not isinstance(channel, Mapping) or not isinstance(channel.get("url"), str):
        return masked(channel)
    url = MASK if channel.get("kind") == "apprise" else origin_alone(channel["url"])
    return {**masked(channel), "url": url}
