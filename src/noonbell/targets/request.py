"""The request of one attempt: what a task, its run and the settings make of it. No network here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from yarl import URL

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import InvalidArgument, PayloadTooLarge
from noonbell.model.attempt import Assignment
from noonbell.model.idempotency import idempotency_key_of
from noonbell.model.run import Lease, trace_id_of
from noonbell.model.task import Delivery, ExecType, TaskSpec
from noonbell.service.http_fields import OWNED_HEADERS, is_of_the_connection
from noonbell.targets import signing, template
from noonbell.targets.guard import SCHEMES
from noonbell.targets.place import Place
from noonbell.version import __version__

REFUSED_METHODS = frozenset({"CONNECT", "TRACE"})
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that need not say that they have no body."""

TASK = "X-Noonbell-Task"

LONGEST_URL = 16 * 1024
LONGEST_NAME = 128
LONGEST_HEADER = 32 * 1024

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""Control characters, and halves of characters."""


written = lru_cache(maxsize=1024)(rfc3339)
"""Runs come in herds that share a slot."""


@dataclass(slots=True, eq=False)
class Request:
    """What is sent. Nothing in it is changed once it is made; not frozen, because that would make it slow."""

    method: str
    url: URL
    headers: dict[str, str]
    """Each name once, whatever its case."""
    body: str | None
    content: bytes | None
    """The body, as it is sent and signed."""
    head: bytes | None = None
    """Everything before the body, where it is made already; so with the three that follow."""
    place: Place | None = None
    hidden: Sequence[str] | None = None
    """What must not turn up in a stored text."""
    masked: dict[str, str] | None = None
    """The headers as they are stored."""


class Unsendable(Exception):
    """No request can be made of this task and this run, today or tomorrow."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def is_async(assignment: Assignment) -> bool:
    """Whether 2xx means that a callback will follow."""
    overrides = assignment.lease.overrides
    return assignment.task.spec.exec_type is ExecType.ASYNC or bool(overrides and overrides.get("force_async"))


def build(assignment: Assignment, headers: Headers, *, now: Instant, max_body: int) -> Request:
    """Everything that goes over the wire, or Unsendable. `headers` come first; `now` is signed, if there is a secret."""
    try:
        return _build(assignment, headers, now, max_body)
    except PayloadTooLarge as error:
        raise Unsendable("too_large", error.message) from None
    except (InvalidArgument, ValueError) as error:
        raise Unsendable("fail", str(error)) from None


def trace_id(lease: Lease) -> str:
    """32 hex digits, the same for every attempt."""
    return trace_id_of(lease.run_id, lease.scheduled_time, lease.trace_id)


def traceparent(trace: str, attempt: int) -> str:
    """The W3C header: the run's trace, and a span that is another for each attempt, and never zero."""
    span = (int(trace[16:], 16) ^ attempt) or 1
    return f"00-{trace}-{span:016x}-01"


def default_headers(global_headers: Mapping[str, str]) -> Headers:
    """What every request starts with: our own modest set, and what the installation puts on top. Checked here, once."""
    headers = Headers({"User-Agent": f"noonbell/{__version__}", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"})
    headers.update(global_headers)
    return headers


class Headers:
    """Headers by name in any case; the last one put in stands, in the spelling that it came with."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._held = {name.lower(): (name, value) for name, value in headers.items()}

    def __contains__(self, lower: str) -> bool:
        return lower in self._held

    def names(self) -> Iterable[str]:
        """In lower case."""
        return self._held

    def get(self, lower: str) -> str | None:
        held = self._held.get(lower)
        return None if held is None else held[1]

    def put(self, name: str, value: str) -> None:
        """Raises InvalidArgument for a header that is not ours to send. One of the connection is left out: tasks that were
        saved before these were refused may have one.
        """
        check_value(name, value)
        if (lower := _lower(name)) is not None:
            self._held[lower] = (name, value)

    def update(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            self.put(name, value)

    def put_own(self, headers: Mapping[str, str]) -> None:
        """Headers that we made ourselves, of numbers and times: nothing in them needs a look."""
        for name, value in headers.items():
            self._held[name.lower()] = (name, value)

    def copy(self) -> Headers:
        other = Headers({})
        other._held = self._held.copy()
        return other

    def sent(self) -> dict[str, str]:
        return dict(self._held.values())


def check_value(name: str, value: str) -> None:
    """Raises InvalidArgument for a value that would be more than one, and PayloadTooLarge for a very long one."""
    if found := _UNSENDABLE.search(value):
        raise InvalidArgument(f"the value of header {name} holds the character {found[0]!r}")
    if len(value) > LONGEST_HEADER:
        raise PayloadTooLarge(f"the value of header {name} is longer than {LONGEST_HEADER} characters")


@lru_cache(maxsize=1024)
def _lower(name: str) -> str | None:
    """The name in lower case, if it is one that a task may use; None for one that is not sent."""
    if _TOKEN.fullmatch(name) is None or len(name) > LONGEST_NAME:
        raise InvalidArgument(f"header {name[:80]!r} is not a name; expected letters, digits and dashes")
    if name.lower() in OWNED_HEADERS:
        raise InvalidArgument(f"header {name} belongs to the HTTP client and cannot be set")
    return None if is_of_the_connection(name) else name.lower()


def head_of(request: Request, *, closes: bool) -> bytes:
    """Request line and headers, as they are sent. `closes`: no other request will follow on the connection."""
    lines = [
        f"{name}: {value}\r\n"
        for name, value in request.headers.items()
        if not (closes and name.lower() == "connection")
    ]
    end = last_lines(request.method, request.content, closes=closes)
    return f"{first_lines(request.method, request.url)}{''.join(lines)}{end}".encode()


def first_lines(method: str, url: URL) -> str:
    """The request line, and the Host that belongs to it."""
    return f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"


def last_lines(method: str, content: bytes | None, *, closes: bool) -> str:
    """The headers that say how the request ends, and the empty line."""
    end = "Connection: close\r\n\r\n" if closes else "\r\n"
    if content is None and method in _WITHOUT_BODY:
        return end
    return f"Content-Length: {len(content or b'')}\r\n{end}"


def method_of(spec: TaskSpec) -> str:
    if _TOKEN.fullmatch(spec.http_method) is None or spec.http_method.upper() in REFUSED_METHODS:
        raise InvalidArgument(f"{spec.http_method[:40]!r} is not a method that a target can be called with")
    return spec.http_method.upper()


def url_of(spec: TaskSpec, values: Mapping[str, Any]) -> URL:
    url = URL(template.render(spec.target_url or "", values, escape="url", limit=LONGEST_URL).strip())
    if not url.scheme or (url.scheme in SCHEMES and not url.host):
        raise InvalidArgument(f"target_url is {spec.target_url!r}; expected http://HOST/… or https://HOST/…")
    if url.user is not None or url.password is not None:
        raise InvalidArgument("target_url holds a user or a password; send them in the header Authorization")
    return url


def content_of(body: str, max_body: int) -> bytes:
    """The body as it is sent."""
    content = body.encode("utf-8", "replace")
    if len(content) > max_body:
        raise PayloadTooLarge(f"the request body has {len(content)} bytes; at most {max_body} are sent")
    return content


def content_type(*, is_json: bool) -> str:
    """For a body whose type nobody named."""
    return "application/json" if is_json else "text/plain; charset=utf-8"


def values_of(assignment: Assignment) -> dict[str, Any]:
    """What placeholders can name."""
    lease, previous = assignment.lease, assignment.previous_scheduled_time
    return {
        "run_id": lease.run_id,
        "task_id": lease.task_id,
        "task_name": assignment.task.name,
        "attempt": lease.attempt,
        "scheduled_time": written(lease.scheduled_time),
        "previous_scheduled_time": None if previous is None else written(previous),
        "trace_id": trace_id(lease),
        "callback_url": assignment.callback_url,
        "callback_token": lease.callback_token,
        "payload": lease.payload,
    }


def own_headers(assignment: Assignment) -> dict[str, str]:
    """The headers that every target can rely on, beside the task's id. They stand above those of the task."""
    lease = assignment.lease
    run, attempt, slot = lease.run_id, lease.attempt, lease.scheduled_time
    return {
        "X-Noonbell-Run": str(run),
        "X-Noonbell-Attempt": str(attempt),
        "X-Noonbell-Scheduled-Time": written(slot),
        "Idempotency-Key": idempotency_key_of(run, slot, lease.idempotency_key),
        "traceparent": assignment.traceparent or traceparent(trace_id(lease), attempt),
    }


def callback_headers(assignment: Assignment) -> dict[str, str]:
    """Where an ASYNC target is to say how it went."""
    if not is_async(assignment):
        return {}
    headers = {"X-Callback-Url": assignment.callback_url, "X-Callback-Token": assignment.lease.callback_token}
    return {name: value for name, value in headers.items() if value}


def _build(assignment: Assignment, headers: Headers, now: Instant, max_body: int) -> Request:
    spec, lease = assignment.task.spec, assignment.lease
    method = method_of(spec)
    values = values_of(assignment)
    url = url_of(spec, values)
    headers = headers.copy()
    for name, value in spec.headers.items():
        headers.put(name, template.render(value, values))
    body, is_json = _body(assignment, values, headers.get("content-type"), max_body)
    if body is not None and "content-type" not in headers:
        headers.put("Content-Type", content_type(is_json=is_json))
    content = None if body is None else content_of(body, max_body)
    headers.put_own({TASK: str(lease.task_id)})
    headers.put_own(own_headers(assignment))
    headers.update(callback_headers(assignment))
    if spec.secret:
        headers.put_own(signing.sign(spec.secret, f"run_{lease.run_id}", now // SECOND, content or b""))
    request = Request(method, url, headers.sent(), body, content)
    request.head = head_of(request, closes=spec.delivery is Delivery.AT_MOST_ONCE) if url.host else None
    return request


def _body(
    assignment: Assignment, values: Mapping[str, Any], named_type: str | None, limit: int
) -> tuple[str | None, bool]:
    """The body, and whether it is JSON."""
    override = override_of(assignment.lease)
    if override is not None:
        body = override if isinstance(override, str) else json.dumps(override, ensure_ascii=False)
        return body, template.escape_for(body, named_type) == "json"
    text = assignment.task.spec.body_template
    if text is None:
        return None, False
    escape = template.escape_for(text, named_type)
    return template.render(text, values, escape=escape, limit=limit), escape == "json"


def override_of(lease: Lease) -> Any:
    """The body that a trigger asks for, in place of the task's."""
    return None if lease.overrides is None else lease.overrides.get("override_body")
