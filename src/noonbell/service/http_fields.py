"""The fields of a task whose target is an HTTP call."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from noonbell.errors import InvalidArgument
from noonbell.sealing import is_sealed
from noonbell.service.reader import Reader, unfit
from noonbell.service.secrets import MASK

HTTP_FIELDS: Final[Mapping[str, Any]] = {
    "http_method": "GET",
    "target_url": None,
    "headers": {},
    "body_template": None,
    "follow_redirects": False,
    "secret": None,
    "callback_method": "POST",
    "callback_timeout_sec": 300,
}
"""Each with its default."""

OWNED_HEADERS: Final = frozenset({"host", "content-length", "transfer-encoding"})
"""What the client that sends the request must set by itself."""
_OF_THE_CONNECTION: Final = frozenset(
    {"connection", "expect", "http2-settings", "keep-alive", "te", "trailer", "upgrade"}
)


def is_of_the_connection(header: str) -> bool:
    """Whether a header speaks to the next hop and not to the target: a proxy may drop others because of it.

    Some servers take an underscore for a dash, so such a spelling of what the client sets is one of these as well.
    """
    name = header.lower()
    dashed = name.replace("_", "-")
    is_disguised = dashed != name and dashed in OWNED_HEADERS
    return dashed in _OF_THE_CONNECTION or dashed.startswith("proxy-") or is_disguised


MOST_HEADERS: Final = 100
LONGEST_VALUE: Final = 8_192
LONGEST_BODY: Final = 1_048_576
LONGEST_URL: Final = 4_096

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_PLACEHOLDER = re.compile(r"\{\{[^{}]*\}\}")

CheckTemplate = Callable[[str], None]
"""Raises InvalidArgument for a text with a placeholder that nobody knows."""


class Method(enum.StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    HEAD = "HEAD"
    OPTIONS = "OPTIONS"


class CallbackMethod(enum.StrEnum):
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"


def read_http(reader: Reader, values: dict[str, Any], check_template: CheckTemplate) -> None:
    values["http_method"] = str(reader.choice("http_method", Method, Method.GET))
    values["target_url"] = _read_url(reader, check_template)
    values["headers"] = _read_headers(reader, check_template)
    body = reader.text("body_template", None, most=LONGEST_BODY, lines=True)
    if body is not None:
        _check_template(reader, "body_template", body, check_template)
    values["body_template"] = body
    values["follow_redirects"] = reader.flag("follow_redirects", default=False)
    values["secret"] = secret = reader.text("secret", None, least=1, most=1_024)
    if secret == MASK:
        reader.wrong("secret", "is the mask that answers show; expected the secret itself, or nothing")
    elif secret is not None and is_sealed(secret):
        reader.wrong("secret", "is sealed, and no key of secrets.key_file opens it; expected the secret itself")
    values["callback_method"] = str(reader.choice("callback_method", CallbackMethod, CallbackMethod.POST))
    values["callback_timeout_sec"] = reader.integer("callback_timeout_sec", 300, 1, 31_536_000)


def _read_url(reader: Reader, check_template: CheckTemplate) -> str:
    if reader.get("target_url") in (None, ""):
        reader.wrong("target_url", "is missing; expected an http or https URL, or a job_type for a job")
        return ""
    url = reader.text("target_url", "", least=1, most=LONGEST_URL)
    problem = url_problem(url)
    if problem is not None:
        reader.expected("target_url", problem)
    _check_template(reader, "target_url", url, check_template)
    return url


def url_problem(url: str) -> str | None:
    """What a target's URL should be and this one is not."""
    filled = _PLACEHOLDER.sub("1", url)
    if any(blank in filled for blank in (" ", "\t", "\\")):
        return "a URL without blanks and backslashes; encode them"
    try:
        parts = urlsplit(filled)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "an http or https URL with a host, and a port from 0 to 65535"
    if parts.scheme not in ("http", "https") or not host:
        return "an http or https URL with a host"
    if "@" in parts.netloc:
        return "a URL without user and password; send them in the header Authorization, which is masked"
    return None


def _read_headers(reader: Reader, check_template: CheckTemplate) -> dict[str, str]:
    inner = reader.object("headers")
    if inner is None:
        return {}
    if len(inner.given) > MOST_HEADERS:
        reader.wrong("headers", f"are {len(inner.given)}; expected at most {MOST_HEADERS}")
        return {}
    headers: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in inner.given.items():
        problem = _header_problem(name, value, seen)
        if problem is not None:
            inner.wrong(_readable(name), problem)
            continue
        headers[name] = value
        _check_template(inner, name, value, check_template)
    return headers


def _header_problem(name: Any, value: Any, seen: set[str]) -> str | None:
    if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
        return "is not the name of a header"
    if name.lower() in OWNED_HEADERS or is_of_the_connection(name):
        return "is set by the client that sends the request; leave it out"
    if name.lower() in seen:
        return "is there twice; names of headers do not tell upper from lower case"
    seen.add(name.lower())
    if not isinstance(value, str) or len(value) > LONGEST_VALUE:
        return f"has a value that is not a text of at most {LONGEST_VALUE} characters"
    if value == MASK:
        return "has the mask that answers show as its value; expected the value itself"
    if is_sealed(value):
        return "is sealed, and no key of secrets.key_file opens it; expected the value itself"
    return unfit(value.replace("\t", " "))


def _check_template(reader: Reader, name: str, text: str, check_template: CheckTemplate) -> None:
    try:
        check_template(text)
    except InvalidArgument as error:
        reader.wrong(name, error.message)


def _readable(name: Any) -> str:
    """A name that is wrong, as it may stand in a message: one line, and not too long."""
    text = str(name)
    return text[:60] if unfit(text) is None else ascii(text)[1:-1][:60]
