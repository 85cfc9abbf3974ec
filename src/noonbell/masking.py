"""Secrets are not shown: by the name they stand under, or by their place in an address.

The values of headers are shown only where the name is known to be harmless: services invent names for their keys faster than
anybody can list them. This list is the only one. It decides what answers, pages and kept calls show, what is sealed in the
store, and what a redirect may take to another origin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

_SECRET_NAME = re.compile(
    r"authorization|cookie|passw|secret|token|credential|api[-_]?key|access[-_]?key|private[-_]?key|^auth$|signature|session[-_]?key",
    re.IGNORECASE,
)
_SECRET_HEADER = re.compile(
    r"authorization|cookie|secret|token|passw|pwd|api[-_]?key|access[-_]?key|private[-_]?key|-key$|credential|signature"
    r"|session|x-auth|bearer|jwt|assertion|x-callback-url",
    re.IGNORECASE,
)
_HARMLESS_HEADERS = frozenset(
    """
    accept accept-charset accept-encoding accept-language accept-patch accept-post accept-ranges
    access-control-allow-credentials age allow alt-svc cache-control cdn-cache-control cf-cache-status cf-ray
    connection content-disposition content-encoding content-language content-length content-location content-md5
    content-range content-security-policy content-type date deprecation digest dnt etag expect expires forwarded
    from host idempotency-key if-match if-modified-since if-none-match if-range if-unmodified-since keep-alive
    last-modified link location max-forwards nel origin pragma prefer preference-applied priority range
    referrer-policy report-to repr-digest retry-after save-data server server-timing strict-transport-security
    sunset te timing-allow-origin traceparent tracestate trailer transfer-encoding upgrade upgrade-insecure-requests
    user-agent vary via warning webhook-id webhook-timestamp www-authenticate x-amz-request-id x-amzn-requestid
    x-cache x-content-type-options x-correlation-id x-dns-prefetch-control x-download-options x-frame-options
    x-noonbell-attempt x-noonbell-run x-noonbell-scheduled-time x-noonbell-task x-noonbell-task-name x-permitted-cross-domain-policies
    x-powered-by x-real-ip x-request-id x-requested-with x-response-time x-robots-tag x-runtime x-trace-id
    x-ua-compatible x-xss-protection
    """.split()  # noqa: SIM905 - ninety names read better as a text
)
_HARMLESS_PREFIXES = (
    "access-control-",
    "cross-origin-",
    "ratelimit-",
    "sec-ch-",
    "sec-fetch-",
    "x-forwarded-",
    "x-ratelimit-",
)
"""Of headers that are harmless unless the rest of the name is that of a secret: `X-Forwarded-Access-Token` is one."""
_HARMLESS_VARIABLES = frozenset(
    """
    columns debug home lang language lines log_level logname no_color path pwd pythonunbuffered shell term tmpdir tz
    user verbose
    """.split()  # noqa: SIM905 - as above
)
_HARMLESS_NAME = re.compile(r"^(token_ttl|.*_id)$", re.IGNORECASE)
_USERINFO = re.compile(r"(?P<before>(?<=[A-Za-z0-9+.-])://[^/\s:@?#]*:)[^/\s?#]*@")
"""Begins where the scheme ends: a search for its first letter would try each letter of a long word."""
_SECRET_QUERY = re.compile(
    r"(?P<before>[?&](?:[a-z_-]*(?:token|secret|passw(?:or)?d|key|signature|sig))=)[^&#\s]+", re.IGNORECASE
)

_ORIGIN = re.compile(r"https?://[^/?#@\s]+/?", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.match(name)


def is_harmless_header(name: str) -> bool:
    """Whether the values of such headers may be shown, stored as they are, and sent on to another origin."""
    lower = name.lower()
    if lower in _HARMLESS_HEADERS:
        return True
    return lower.startswith(_HARMLESS_PREFIXES) and not _SECRET_HEADER.search(lower)


def is_named_for_a_secret(header: str) -> bool:
    """Whether the value is a secret by all appearance, and must not be repeated in any text."""
    return _SECRET_HEADER.search(header) is not None and not is_harmless_header(header)


def masked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value if not value or is_harmless_header(name) else MASK for name, value in headers.items()}


def is_harmless_variable(name: str) -> bool:
    """Whether the values of such variables of a command's environment may be shown, and stored as they are."""
    return name.lower() in _HARMLESS_VARIABLES or name.startswith("LC_")


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value if not value or is_harmless_variable(name) else MASK for name, value in env.items()}


def mask_addresses(text: str) -> str:
    """`postgresql://me:pw@host/db?token=x` → `postgresql://me:***@host/db?token=***`, anywhere in a text."""
    text = _USERINFO.sub(rf"\g<before>{MASK}@", text)
    return _SECRET_QUERY.sub(rf"\g<before>{MASK}", text)


def split_credentials(url: str) -> tuple[str, str, str] | None:
    """`amqp://me:pw@host/` → `amqp://`, `me:pw`, `host/`; None where there are none."""
    scheme, parted, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    info, at, host = authority.rpartition("@")
    return (f"{scheme}{parted}", info, f"{host}{slash}{path}") if at else None


def mask_credentials(url: str) -> str:
    """`amqp://me:pw@host/` → `amqp://me:***@host/`; a user without a password is a token: `nats://***@host`."""
    found = split_credentials(url)
    if found is None:
        return url
    before, info, after = found
    user, colon, _ = info.partition(":")
    return f"{before}{f'{user}:{MASK}' if colon else MASK}@{after}"


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
    if isinstance(value, Mapping) and name.rpartition(".")[2] in ("headers", "global_headers"):
        return {key: MASK if item and not is_harmless_header(str(key)) else item for key, item in value.items()}
    if isinstance(value, Mapping):
        if name == "channels":
            return {key: _masked_channel(item) for key, item in value.items()}
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value


def _masked_channel(channel: Any) -> Any:
    """Of a webhook's url the origin is shown; those of all other kinds are made of passwords and tokens."""
    if not isinstance(channel, Mapping) or not isinstance(channel.get("url"), str):
        return masked(channel)
    url = origin_alone(channel["url"]) if channel.get("kind") in (None, "webhook") else MASK
    return {**masked(channel), "url": url}
