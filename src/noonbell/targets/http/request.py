"""The request of one attempt: what a task, its run and the settings make of it; and the request that follows a
redirect.

A `RequestTemplate` holds what the requests of a task have in common, made once; or those of calls that differ in their
bodies alone. It covers tasks whose headers hold no placeholders, and runs that bring no body of their own; the others
take the long way, `build`. Both come to the same request. No network here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec
from yarl import URL

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import InvalidArgument, InvalidState, PayloadTooLarge
from noonbell.masking import is_named_for_a_secret
from noonbell.model.call import CALL
from noonbell.model.failure_text import failure_text, said_in
from noonbell.model.run import Assignment, Lease, idempotency_key_of, trace_id_of
from noonbell.model.service_url import UnknownService, resolve_service
from noonbell.model.task import Delivery, Task, TaskId, TaskSpec
from noonbell.sealing import Sealer
from noonbell.service import secrets
from noonbell.service.secrets import MASK, opened
from noonbell.service.target_fields import OWNED_HEADERS, is_of_the_connection
from noonbell.targets.http import signing, template
from noonbell.targets.http.connection import HttpOrigin, origin_of
from noonbell.targets.http.guard import SCHEMES
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


class Request(msgspec.Struct, eq=False):
    """What is sent. Nothing in it is changed once it is made."""

    method: str
    url: URL
    headers: dict[str, str]
    """Each name once, in any case."""
    body: str | None
    content: bytes | None
    """The body, as it is sent and signed."""
    head: bytes | None = None
    """Everything before the body, where it is made already; so with the three that follow."""
    place: HttpOrigin | None = None
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
    return assignment.task.spec.awaits_callback or bool(overrides and overrides.get("force_async"))


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
        raise InvalidArgument(f"the value of header {name} has the character {found[0]!r}")
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


def url_of(spec: TaskSpec, values: Mapping[str, Any] | None) -> URL:
    """Without `values`, the URL as it stands."""
    text = spec.target_url or ""
    url = URL((text if values is None else template.render(text, values, escape="url", limit=LONGEST_URL)).strip())
    if not url.scheme or (url.scheme in SCHEMES and not url.host):
        raise InvalidArgument(f"target_url is {spec.target_url!r}; expected http://HOST/… or https://HOST/…")
    if url.user is not None or url.password is not None:
        raise InvalidArgument("target_url has a user or a password; send them in the header Authorization")
    return url


def content_of(body: str, max_body: int) -> bytes:
    """The body as it is sent."""
    content = body.encode("utf-8", "replace")
    if len(content) > max_body:
        raise PayloadTooLarge(f"the request body has {len(content)} bytes; at most {max_body} are sent")
    return content


def content_type(*, is_json: bool) -> str:
    """For a body without a declared type."""
    return "application/json" if is_json else "text/plain; charset=utf-8"


def values_of(assignment: Assignment) -> dict[str, Any]:
    """What placeholders can name."""
    lease, previous = assignment.lease, assignment.previous_scheduled_time
    of_the_flow: dict[str, Any] = (lease.overrides or {}).get("values") or {}
    return {
        **of_the_flow,
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
    values = None if is_call(lease) else values_of(assignment)
    url = url_of(spec, values)
    headers = headers.copy()
    for name, value in spec.headers.items():
        headers.put(name, value if values is None else template.render(value, values))
    body, is_json = _body(assignment, values or {}, headers.get("content-type"), max_body)
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
        return _given_body(override, named_type)
    text = assignment.task.spec.body_template
    if text is None:
        return None, False
    escape = template.escape_for(text, named_type)
    return template.render(text, values, escape=escape, limit=limit), escape == "json"


def _given_body(given: Any, named_type: str | None) -> tuple[str, bool]:
    if not isinstance(given, str):
        return json.dumps(given, ensure_ascii=False), True
    return given, template.escape_for(given, named_type) == "json"


def override_of(lease: Lease) -> Any:
    """The body that a trigger asks for, in place of the task's."""
    return None if lease.overrides is None else lease.overrides.get("override_body")


def is_call(lease: Lease) -> bool:
    """Whether it is a call, whose texts are sent as they are: a brace in them is a brace."""
    return lease.overrides is not None and CALL in lease.overrides


_MOST = 8192
_MOST_CALLS = 1024
_LONGEST = 32 * 1024
"""A task with a longer template has no plan: plans are to stay small."""

_PROBLEMS = (InvalidArgument, PayloadTooLarge, ValueError)

_BY_RUN = frozenset(
    {
        *("x-noonbell-task", "x-noonbell-run", "x-noonbell-attempt", "x-noonbell-scheduled-time", "idempotency-key"),
        *("traceparent", "x-callback-url", "x-callback-token", "connection"),
        *(signing.ID, signing.TIMESTAMP, signing.SIGNATURE),
    }
)
"""A task that sets one of these itself takes the long way, where it is decided which one stands."""


class RequestTemplates:
    """Makes requests. `headers` come first in each; `now` is signed, where there is a secret."""

    def __init__(
        self,
        headers: Headers,
        max_body: int,
        now: Callable[[], Instant],
        sealer: Sealer | None = None,
        call_secret: str | None = None,
        services: Mapping[str, str] | None = None,
    ) -> None:
        """`call_secret` signs calls, which belong to no task that could have a secret. `services`: addresses by name."""
        self._call_secret, self._services = call_secret, services or {}
        self._calls: dict[int, tuple[TaskSpec, RequestTemplate | None]] = {}
        """By the identity of their spec: `model.call.spec_of` gives calls that are alike the same one."""
        self._headers, self._max_body, self._now, self._sealer = headers, max_body, now, sealer or Sealer()
        self._plans: dict[tuple[TaskId, int], tuple[TaskSpec, RequestTemplate | None]] = {}

    def request(self, assignment: Assignment) -> Request:
        """Everything that goes over the wire, or Unsendable."""
        task = assignment.task
        if is_call(assignment.lease):
            return self._call(assignment)
        spec, plan = self._plans.get((task.id, task.version), (None, None))
        if spec is not task.spec and spec != task.spec:
            plan = self._planned(task)
        if plan is not None and override_of(assignment.lease) is None:
            try:
                return plan.request(assignment, self._now)
            except _PROBLEMS:
                pass  # the long way finds the same one, and gives it its name
        plain = self._opened(task)
        if plain is not task:
            assignment = msgspec.structs.replace(assignment, task=plain)
        return build(assignment, self._headers, now=self._now(), max_body=self._max_body)

    def _call(self, assignment: Assignment) -> Request:
        task = assignment.task
        spec, plan = self._calls.get(id(task.spec), (None, None))
        if spec is not task.spec:
            plan = self._call_template(task)
        if plan is not None:
            try:
                return plan.request(assignment, self._now, override_of(assignment.lease))
            except _PROBLEMS:
                pass  # the long way finds the same one, and gives it its name
        assignment = msgspec.structs.replace(assignment, task=self._opened_call(task))
        return build(assignment, self._headers, now=self._now(), max_body=self._max_body)

    def _opened_call(self, task: Task) -> Task:
        task = self._opened(task)
        if self._call_secret is None:
            return task
        return msgspec.structs.replace(task, spec=msgspec.structs.replace(task.spec, secret=self._call_secret))

    def _call_template(self, task: Task) -> RequestTemplate | None:
        """None where its URL or a header would be read as a template."""
        spec = task.spec
        has_braces = any("{{" in text for text in (spec.target_url or "", *spec.headers.values()))
        plan = None if has_braces else template_of(self._opened_call(task), self._headers, self._max_body)
        if len(self._calls) >= _MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[id(spec)] = (spec, plan)
        return plan

    def _opened(self, task: Task) -> Task:
        """The task with its secrets as they are sent, and the address of its service; so they are known here, and
        nowhere before.
        """
        spec = task.spec
        try:
            url = resolve_service(spec.target_url or "", self._services)
            if url != (spec.target_url or ""):
                spec = msgspec.structs.replace(spec, target_url=url)
            spec = opened(spec, self._sealer)
        except UnknownService as error:
            raise Unsendable("unknown_service", said_in(error)) from None
        except InvalidState as error:
            raise Unsendable("fail", error.message) from None
        return task if spec is task.spec else msgspec.structs.replace(task, spec=spec)

    def _planned(self, task: Task) -> RequestTemplate | None:
        plan = template_of(self._opened(task), self._headers, self._max_body)
        if len(task.spec.body_template or "") <= _LONGEST:
            if len(self._plans) >= _MOST:
                del self._plans[next(iter(self._plans))]
            self._plans[task.id, task.version] = (task.spec, plan)
        return plan


def template_of(task: Task, headers: Headers, max_body: int) -> RequestTemplate | None:
    """None, if this task takes the long way; so does one of which no request can be made."""
    spec = task.spec
    texts = [*spec.headers.values(), spec.target_url or ""]
    if any("{{" in value for value in spec.headers.values()) or sum(map(len, texts)) > _LONGEST:
        return None
    try:
        merged = headers.copy()
        merged.update(spec.headers)
        return RequestTemplate(task, merged, max_body) if _BY_RUN.isdisjoint(merged.names()) else None
    except _PROBLEMS:
        return None


class RequestTemplate:
    __slots__ = (
        *("_block", "_body", "_closes", "_content", "_end", "_escape", "_headers", "_hidden", "_keys", "_masked"),
        *("_max_body", "_method", "_place", "_spec", "_start", "_type", "_url"),
    )

    def __init__(self, task: Task, headers: Headers, max_body: int) -> None:
        """`headers` are those of the settings and of the task."""
        spec = self._spec = task.spec
        self._max_body = max_body
        self._method = method_of(spec)
        self._closes = spec.delivery is Delivery.AT_MOST_ONCE
        self._keys = signing.keys(spec.secret) if spec.secret else ()

        self._body = self._content = None
        self._escape: template.Escape = "none"
        text = spec.body_template
        if text is not None:
            self._escape = template.escape_for(text, headers.get("content-type"))
            if "content-type" not in headers:
                headers.put("Content-Type", content_type(is_json=self._escape == "json"))
            if "{{" not in text:
                self._body = template.render(text, {}, limit=max_body)
                self._content = content_of(self._body, max_body)
        has_fixed_end = text is None or self._content is not None
        self._end = last_lines(self._method, self._content, closes=self._closes) if has_fixed_end else None
        """None: the body is another for every run."""

        headers.put_own({TASK: str(task.id)})
        self._type = headers.get("content-type")
        self._headers = headers.sent()
        self._block = "".join([f"{name}: {value}\r\n" for name, value in self._headers.items()])
        self._hidden: Sequence[str] = secret_values(self._headers)
        masked = masked_headers(self._headers, self._hidden)
        self._masked = None if masked == self._headers else masked
        """None: there is nothing to mask."""

        self._url = self._place = self._start = None
        if "{{" not in (spec.target_url or ""):
            self._url = _http_url(spec, {})
            self._place = origin_of(self._url)
            self._start = first_lines(self._method, self._url) + self._block

    def request(self, assignment: Assignment, now: Callable[[], Instant], given: Any = None) -> Request:
        """`given`: the body that the run brings, in place of the task's."""
        url, place, start, body, content, end = (
            self._url, self._place, self._start, self._body, self._content, self._end
        )  # fmt: skip
        values: dict[str, Any] | None = None
        if url is None or place is None or start is None:
            values = values_of(assignment)
            url = _http_url(self._spec, values)
            place, start = origin_of(url), first_lines(self._method, url) + self._block
        if end is None:
            text = self._spec.body_template or ""
            body = template.render(text, values or values_of(assignment), escape=self._escape, limit=self._max_body)
            content = content_of(body, self._max_body)
            end = last_lines(self._method, content, closes=self._closes)

        lease = assignment.lease
        own = own_headers(assignment)
        run, attempt, slot, key, parent = own.values()
        if given is not None:
            body, is_json = _given_body(given, self._type)
            content = content_of(body, self._max_body)
            end = last_lines(self._method, content, closes=self._closes)
            if self._type is None:
                own["Content-Type"] = content_type(is_json=is_json)
                end = f"Content-Type: {own['Content-Type']}\r\n{end}"
        headers = self._headers | own
        head = (
            f"{start}X-Noonbell-Run: {run}\r\nX-Noonbell-Attempt: {attempt}\r\nX-Noonbell-Scheduled-Time: {slot}\r\n"
            f"Idempotency-Key: {key}\r\ntraceparent: {parent}\r\n"
        )
        token = lease.callback_token
        if not self._keys and not token and not is_async(assignment):
            masked = headers
            if self._masked is not None:
                hidden = self._hidden
                masked = self._masked | {name: conceal(value, hidden) for name, value in own.items()}
            return Request(
                self._method, url, headers, body, content, (head + end).encode(), place, self._hidden, masked
            )

        more = callback_headers(assignment)
        for name, value in more.items():
            check_value(name, value)
        if self._keys:
            more |= signing.sign_with(self._keys, f"run_{lease.run_id}", now() // SECOND, content or b"")
        headers |= more
        lines = "".join([f"{name}: {value}\r\n" for name, value in more.items()])
        hidden = hidden_values(headers, token)
        return Request(self._method, url, headers, body, content, f"{head}{lines}{end}".encode(), place, hidden)


def _http_url(spec: TaskSpec, values: Mapping[str, Any]) -> URL:
    url = url_of(spec, values)
    if url.scheme not in SCHEMES:
        raise InvalidArgument(f"{url.scheme} is not http: the guard has a word for that")
    return url


MOST_HOPS = 5

_OF_THE_BODY = ("content-type", "content-encoding", signing.ID, signing.TIMESTAMP, signing.SIGNATURE)
_FOR_THE_FIRST_ORIGIN = ("x-callback-url", "x-callback-token", signing.ID, signing.TIMESTAMP, signing.SIGNATURE)


class BadRedirect(Exception):
    """An answer of 3xx that leads nowhere we go."""


def redirected(request: Request, status: int, location: str | None, callback_token: str | None) -> Request:
    """The next request, or BadRedirect. Its scheme and its address are the guard's to judge."""
    if not location:
        raise BadRedirect(failure_text("redirect_without_location", status=status))
    try:
        url = request.url.join(URL(location)).with_fragment(None)
        # A password in a Location is the target's word, not the task's: it is not sent.
        url = url.with_user(None) if url.host else url
    except ValueError as error:
        raise BadRedirect(f"{status} with a Location that cannot be read: {error}") from None
    if url.scheme in SCHEMES and not url.host:
        raise BadRedirect(f"{status} with a Location that names no host")
    becomes_get = (status == 303 and request.method != "HEAD") or (status in {301, 302} and request.method == "POST")
    if becomes_get:
        kept = _without(request.headers, _OF_THE_BODY)
        request = Request("GET", request.url, kept, None, None)
    if _origin(url) != _origin(request.url):
        if callback_token and callback_token in f"{request.body or ''}{url}":
            raise BadRedirect(f"{status} would hand the callback token to another origin")
        kept = {name: value for name, value in request.headers.items() if not is_secret(name)}
        return Request(request.method, url, _without(kept, _FOR_THE_FIRST_ORIGIN), request.body, request.content)
    return Request(request.method, url, request.headers, request.body, request.content)


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port


def _without(headers: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


# What must not turn up in what is stored of a request

is_secret = lru_cache(maxsize=1024)(secrets.is_secret)

_SHORTEST = 6
"""A shorter value is left alone in texts: it would blot out words that only look like it."""


def secret_values(headers: Mapping[str, str]) -> list[str]:
    """What must not turn up in a stored text: the values of headers that are named for a secret, and what follows a word
    such as `Bearer`. Those of other headers are masked where they stand; in a text they would blot out ordinary words.
    """
    values = {value for name, value in headers.items() if is_named_for_a_secret(name)}
    return hidden_texts(values | {value.rpartition(" ")[2] for value in values})


def hidden_texts(values: Iterable[str]) -> list[str]:
    """All that a text may spell these values as, the longest first; of those that are not too short to be told from words."""
    long = [value for value in values if len(value) >= _SHORTEST]
    return sorted({written for value in long for written in _spellings(value)}, key=len, reverse=True)


def _spellings(value: str) -> Iterable[str]:
    """As it is, and as an answer may spell it: inside a JSON text, and in an address."""
    if value.isascii() and value.isalnum():
        return (value,)
    return (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, safe=""))


def hidden_values(headers: Mapping[str, str], callback_token: str | None) -> list[str]:
    """Everything about a request that must not turn up in a stored text."""
    values = secret_values(headers)
    return [callback_token, *values] if callback_token else values


def masked_headers(headers: Mapping[str, str], values: Sequence[str]) -> dict[str, str]:
    """The headers, with MASK in place of the secret ones and of each of the values."""
    shown = {name: MASK if is_secret(name) else value for name, value in headers.items()}
    if values:
        everything = "\n".join(shown.values())  # one look at all of them: a secret is hardly ever among them
        if any(value in everything for value in values):
            return {name: conceal(value, values) for name, value in shown.items()}
    return shown


_LEAST_HIDDEN: Final = 6
"""Characters: shorter parts of an address are words."""


def hidden_parts(url: URL, secrets: Iterable[str], known: Collection[str] = ()) -> list[str]:
    """What a receiver may repeat and what must not be stored: secrets, and the parts of the address behind its origin
    but for those that are `known` to be none.
    """
    parts = [*secrets, *url.raw_parts, *url.parts, url.raw_query_string, *url.query.values()]
    found = {part for part in parts if len(part) >= _LEAST_HIDDEN and part not in known}
    return sorted(found, key=len, reverse=True)  # a part may be in another one


def conceal(text: str, values: Iterable[str]) -> str:
    """The text with MASK in place of each of the values."""
    for value in values:
        text = text.replace(value, MASK)
    return text
