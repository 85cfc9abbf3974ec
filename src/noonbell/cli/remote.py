"""The server, as the command line speaks to it: one call at a time, with what the standard library has."""

from __future__ import annotations

import http.client
import json
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from noonbell import errors
from noonbell.errors import NoonbellError

DEFAULT_URL: Final = "http://127.0.0.1:8080"
PATIENCE: Final = 60.0
"""Seconds that an answer may take."""

Query = Mapping[str, Any]


class Remote:
    def __init__(self, url: str, token: str | None = None) -> None:
        """`url` is where the server is reached, with the prefix that it lives under, if any, and without `/api/v1`."""
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise errors.SettingsError.field("NOONBELL_URL", f"is {url!r}; takes an address such as {DEFAULT_URL}")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._parts, self._token = parts, token

    @classmethod
    def of_environment(cls) -> Remote:
        return cls(os.environ.get("NOONBELL_URL") or DEFAULT_URL, os.environ.get("NOONBELL_TOKEN") or None)

    def get(self, path: str, query: Query | None = None) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None, query: Query | None = None) -> Any:
        return self.call("POST", path, body, query=query)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer, read as JSON where it is JSON. An error of the server is raised as the error it was."""
        connection = self._connect(PATIENCE)
        try:
            answer = self._ask(connection, method, path, body, query, headers)
            return _read(answer.status, answer.getheader("content-type") or "", self._body(answer))
        finally:
            connection.close()

    def pages(self, path: str, query: Query, most: int | None) -> Iterator[Any]:
        """Every item of a list, page by page, until there are no more or `most` have come."""
        cursor, left = "", most
        while True:
            size = 200 if left is None else max(1, min(200, left))
            page = self.get(path, {**query, "page_size": size, "cursor": cursor})
            yield from page["items"][:left]
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next_cursor") or ""
            if not cursor or (left is not None and left <= 0):
                return

    def events(self, query: Query, last_id: str | None) -> Iterator[dict[str, Any]]:
        """The event stream from here on; ends when the server does. Each event has its `id`."""
        connection = self._connect(None)
        try:
            headers = {"accept": "text/event-stream", **({"last-event-id": last_id} if last_id else {})}
            answer = self._ask(connection, "GET", "/events", None, query, headers)
            if answer.status != 200:
                _read(answer.status, answer.getheader("content-type") or "", self._body(answer))
            yield from _events(answer)
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()

    def _connect(self, patience: float | None) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=patience)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any,
        query: Query | None,
        headers: Mapping[str, str] | None,
    ) -> http.client.HTTPResponse:
        sent = {"accept": "application/json", **(headers or {})}
        if self._token is not None:
            sent["authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            sent["content-type"] = "application/json"
            data = json.dumps(body).encode()
        base = "" if path.startswith(("/api/", "/metrics", "/openapi.json")) else "/api/v1"
        try:
            connection.request(method, f"{self._parts.path.rstrip('/')}{base}{path}{_query(query)}", data, sent)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as problem:
            raise self._unreachable(problem) from None

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.read()
        except (OSError, http.client.HTTPException) as problem:
            raise self._unreachable(problem) from None

    def _unreachable(self, problem: Exception) -> NoonbellError:
        said = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        return errors.StoreUnavailable(
            f"no server at {self.url}: {said}; start one with `noonbell serve`, or say where it is with NOONBELL_URL"
        )


def segment(text: str) -> str:
    """A name or id, as a part of a path. A task's name is told from an id by its prefix."""
    return urllib.parse.quote(text, safe="")


def task_segment(name_or_id: str) -> str:
    """`{id}` of a task: its number, or `name:NAME`."""
    return segment(name_or_id if name_or_id.isdecimal() or name_or_id.startswith("name:") else f"name:{name_or_id}")


def _query(query: Query | None) -> str:
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return f"?{urllib.parse.urlencode(given, doseq=True)}" if given else ""


def _read(status: int, kind: str, body: bytes) -> Any:
    text = body.decode(errors="replace")
    value: Any = text
    if kind.partition(";")[0].strip() == "application/json" and text:
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
    if status < 400:
        return value
    raise _error(status, value)


def _error(status: int, value: Any) -> NoonbellError:
    if not isinstance(value, dict) or "code" not in value:
        return NoonbellError(f"the server answered {status}, and not as Noonbell does; is NOONBELL_URL right?")
    kinds = {kind.code: kind for kind in _kinds(NoonbellError)}
    message, details = str(value.get("message", value["code"])), value.get("details")
    kind = kinds.get(value["code"], NoonbellError)
    if kind is errors.Unauthorized:
        message += "; put a token into NOONBELL_TOKEN"
    return kind(message, details=details if isinstance(details, dict) else None)


def _kinds(kind: type[NoonbellError]) -> Iterator[type[NoonbellError]]:
    """The tree from its leaves, so that the nearest to the root wins a code that several share."""
    for below in kind.__subclasses__():
        yield from _kinds(below)
    yield kind


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    number, data = "", []
    for raw in answer:
        name, _, value = raw.decode(errors="replace").rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            number = value
        elif name == "data":
            data.append(value)
        elif not name and not value and data:
            yield {"id": number, **json.loads("\n".join(data))}
            data = []
