"""What the requests of a task have in common, made once: most of a request is the same for every run.

A plan covers tasks whose headers hold no placeholders, and runs that bring no body of their own. The others take the long
way, `request.build`; both come to the same request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from yarl import URL

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidArgument, InvalidState, PayloadTooLarge
from noonbell.model.attempt import Assignment
from noonbell.model.task import Delivery, Task, TaskId, TaskSpec
from noonbell.sealing import Sealer
from noonbell.service.secrets import opened
from noonbell.targets import secrets, signing, template
from noonbell.targets.guard import SCHEMES
from noonbell.targets.place import place_of
from noonbell.targets.request import (
    TASK,
    Headers,
    Request,
    Unsendable,
    build,
    callback_headers,
    check_value,
    content_of,
    content_type,
    first_lines,
    is_async,
    last_lines,
    method_of,
    override_of,
    own_headers,
    url_of,
    values_of,
)

_MOST = 8192
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


class Plans:
    """Makes requests. `headers` come first in each; `now` is signed, where there is a secret."""

    def __init__(
        self, headers: Headers, max_body: int, now: Callable[[], Instant], sealer: Sealer | None = None
    ) -> None:
        self._headers, self._max_body, self._now, self._sealer = headers, max_body, now, sealer or Sealer()
        self._plans: dict[tuple[TaskId, int], tuple[TaskSpec, Plan | None]] = {}

    def request(self, assignment: Assignment) -> Request:
        """Everything that goes over the wire, or Unsendable."""
        task = assignment.task
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

    def _opened(self, task: Task) -> Task:
        """The task with its secrets as they are sent; here they are opened, and nowhere before."""
        try:
            spec = opened(task.spec, self._sealer)
        except InvalidState as error:
            raise Unsendable("fail", error.message) from None
        return task if spec is task.spec else msgspec.structs.replace(task, spec=spec)

    def _planned(self, task: Task) -> Plan | None:
        plan = plan_of(self._opened(task), self._headers, self._max_body)
        if len(task.spec.body_template or "") <= _LONGEST:
            if len(self._plans) >= _MOST:
                del self._plans[next(iter(self._plans))]
            self._plans[task.id, task.version] = (task.spec, plan)
        return plan


def plan_of(task: Task, headers: Headers, max_body: int) -> Plan | None:
    """None, if this task takes the long way; so does one of which no request can be made."""
    spec = task.spec
    texts = [*spec.headers.values(), spec.target_url or ""]
    if any("{{" in value for value in spec.headers.values()) or sum(map(len, texts)) > _LONGEST:
        return None
    try:
        merged = headers.copy()
        merged.update(spec.headers)
        return Plan(task, merged, max_body) if _BY_RUN.isdisjoint(merged.names()) else None
    except _PROBLEMS:
        return None


class Plan:
    __slots__ = (
        *("_block", "_body", "_closes", "_content", "_end", "_escape", "_headers", "_hidden", "_keys", "_masked"),
        *("_max_body", "_method", "_place", "_spec", "_start", "_url"),
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
        self._headers = headers.sent()
        self._block = "".join([f"{name}: {value}\r\n" for name, value in self._headers.items()])
        self._hidden: Sequence[str] = secrets.secret_values(self._headers)
        masked = secrets.masked(self._headers, self._hidden)
        self._masked = None if masked == self._headers else masked
        """None: there is nothing to mask."""

        self._url = self._place = self._start = None
        if "{{" not in (spec.target_url or ""):
            self._url = _http_url(spec, {})
            self._place = place_of(self._url)
            self._start = first_lines(self._method, self._url) + self._block

    def request(self, assignment: Assignment, now: Callable[[], Instant]) -> Request:
        url, place, start, body, content, end = (
            self._url, self._place, self._start, self._body, self._content, self._end
        )  # fmt: skip
        values: dict[str, Any] | None = None
        if url is None or place is None or start is None:
            values = values_of(assignment)
            url = _http_url(self._spec, values)
            place, start = place_of(url), first_lines(self._method, url) + self._block
        if end is None:
            text = self._spec.body_template or ""
            body = template.render(text, values or values_of(assignment), escape=self._escape, limit=self._max_body)
            content = content_of(body, self._max_body)
            end = last_lines(self._method, content, closes=self._closes)

        lease = assignment.lease
        own = own_headers(assignment)
        headers = self._headers | own
        run, attempt, slot, key, parent = own.values()
        head = (
            f"{start}X-Noonbell-Run: {run}\r\nX-Noonbell-Attempt: {attempt}\r\nX-Noonbell-Scheduled-Time: {slot}\r\n"
            f"Idempotency-Key: {key}\r\ntraceparent: {parent}\r\n"
        )
        token = lease.callback_token
        if not self._keys and not token and not is_async(assignment):
            masked = headers
            if self._masked is not None:
                hidden = self._hidden
                masked = self._masked | {name: secrets.conceal(value, hidden) for name, value in own.items()}
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
        hidden = secrets.hidden(headers, token)
        return Request(self._method, url, headers, body, content, f"{head}{lines}{end}".encode(), place, hidden)


def _http_url(spec: TaskSpec, values: Mapping[str, Any]) -> URL:
    url = url_of(spec, values)
    if url.scheme not in SCHEMES:
        raise InvalidArgument(f"{url.scheme} is not http: the guard has a word for that")
    return url
