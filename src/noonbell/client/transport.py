"""One call to a server: what a method of the client asks for, and how it is sent with what the standard library has. Errors of
the server come out as the errors they were.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from noonbell import errors
from noonbell.errors import InvalidArgument, NoonbellError

if TYPE_CHECKING:
    from noonbell.client import AsyncClient, Client
    from noonbell.client.types import EventJson

P = ParamSpec("P")
R = TypeVar("R")

BASE: Final = "/api/v1"
DEFAULT_URL: Final = "http://127.0.0.1:8080"
PATIENCE: Final = 60.0
"""Seconds that an answer may take."""

_PLACE = re.compile(r"\{(\w+)\}")
_QUERIED: Final = ("GET", "DELETE")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A call, ready to be sent."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def listening(after: str | None, filters: Mapping[str, Any]) -> ClientRequest:
    """The call for the event stream, from the event with the id `after` on."""
    headers = {"accept": "text/event-stream", **({"last-event-id": after} if after else {})}
    return ClientRequest("GET", f"{BASE}/events", filters, headers=headers)


class ApiCall(Generic[P, R]):
    """A method of the client, told by an address. With `field`, all its named arguments are fields of its body, and its other
    argument is that field.
    """

    def __init__(self, method: str, path: str, *, base: str = BASE, field: str = "", summary: str = "") -> None:
        self.method, self.path, self.base, self.field, self._summary = method, path, base, field, summary
        self._places = _PLACE.findall(path)
        self._name = ""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, client: None, owner: type[Any]) -> ApiCall[P, R]: ...
    @overload
    def __get__(self, client: Client, owner: type[Any]) -> Callable[P, R]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, client: Client | AsyncClient | None, owner: type[Any]) -> Any:
        if client is None:
            return self

        def call(*places: Any, **named: Any) -> Any:
            return client._carry_out(self.ask(places, named))

        call.__name__ = self._name
        call.__doc__ = f"{self._summary}: {self.method} {self.base}{self.path}"
        return call

    def ask(self, places: tuple[Any, ...], named: Mapping[str, Any]) -> ClientRequest:
        misfits = len(places) > 1 if self.field else len(places) != len(self._places)
        if misfits:
            what = self.field or ", ".join(self._places) or "no argument without a name"
            raise InvalidArgument(f"{self._name} takes {what}; {len(places)} were given")
        if self.field:
            body = {**dict.fromkeys((self.field,), *places), **named}
            return ClientRequest(self.method, self.base + self.path, body=body)
        path = self.path
        for name, value in zip(self._places, places, strict=True):
            path = path.replace(f"{{{name}}}", urllib.parse.quote(str(value), safe=""), 1)
        rest = {name.removesuffix("_"): value for name, value in named.items()}
        body, query, version = rest.pop("body", None), rest.pop("query", {}), rest.pop("if_match", None)
        if self.method in _QUERIED:
            query = {**query, **{name: _plain(value) for name, value in rest.items()}}
        elif rest:
            body = {**(body or {}), **rest}
        headers = {} if version is None else {"if-match": f'"{version}"'}
        return ClientRequest(self.method, self.base + path, query, body, headers)


def api_call(
    method: str, path: str, *, base: str = BASE, field: str = ""
) -> Callable[[Callable[Concatenate[Any, P], R]], ApiCall[P, R]]:
    """Decorates what says how a method is called; its body is the endpoint's."""

    def made(declared: Callable[Concatenate[Any, P], R]) -> ApiCall[P, R]:
        return ApiCall(method, path, base=base, field=field, summary=declared.__doc__ or "")

    return made


def _plain(value: Any) -> Any:
    """As a query says it."""
    return str(value).lower() if isinstance(value, bool) else value


class Transport:
    """Where the server is. Holds no connection, so any number of threads may use it."""

    def __init__(self, url: str, token: str | None, patience: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise errors.InvalidArgument.field("url", f"is {url!r}; expected an address such as {DEFAULT_URL}")
        self._parts, self._token, self._patience = parts, token, patience

    def call(self, ask: ClientRequest) -> Any:
        """The answer: JSON where it is JSON, else text."""
        connection = self._connect(self._patience)
        try:
            answer = self._send(connection, ask)
            return self._read(answer, answer.read())
        except (OSError, http.client.HTTPException) as problem:
            raise self._unreachable(problem) from None
        finally:
            connection.close()

    def stream(self, ask: ClientRequest) -> ServerSentEvents:
        """Server-sent events, one after the other, until the server ends or the stream is closed."""
        connection = self._connect(None)
        try:
            connection.connect()
            carrier = connection.sock  # forgotten by the connection when the answer is the last one on it
            answer = self._send(connection, ask)
            if answer.status >= 400:
                self._read(answer, answer.read())
        except (OSError, http.client.HTTPException) as problem:
            connection.close()
            raise self._unreachable(problem) from None
        except BaseException:
            connection.close()
            raise
        return ServerSentEvents(connection, carrier, answer)

    def _connect(self, patience: float | None) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=patience)

    def _send(self, connection: http.client.HTTPConnection, ask: ClientRequest) -> http.client.HTTPResponse:
        headers = {"accept": "application/json", **ask.headers}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        data = None
        if ask.body is not None:
            headers["content-type"] = "application/json"
            data = json.dumps(ask.body).encode()
        query = urllib.parse.urlencode({k: v for k, v in ask.query.items() if v is not None}, doseq=True)
        path = self._parts.path.rstrip("/") + ask.path + (f"?{query}" if query else "")
        connection.request(ask.method, path, data, headers)
        return connection.getresponse()

    def _unreachable(self, problem: Exception) -> NoonbellError:
        here = f"{self._parts.scheme}://{self._parts.netloc}"
        if isinstance(problem, ssl.SSLError) and not isinstance(problem, ssl.SSLCertVerificationError):
            return self._wrong_address(f"what listens at {here} speaks no TLS; is it http://{self._parts.netloc}?")
        is_garbled = isinstance(problem, http.client.BadStatusLine) and not isinstance(problem, ConnectionError)
        if is_garbled and self._parts.scheme == "http":
            message = f"what listens at {here} does not speak HTTP; is it https://{self._parts.netloc}?"
            return self._wrong_address(message)
        if isinstance(problem, http.client.RemoteDisconnected):
            message = f"what listens at {here} closed the connection without an answer; is it a Noonbell server?"
            return self._wrong_address(message)
        said = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        return errors.StoreUnavailable(f"no server at {here}: {said}")

    def _wrong_address(self, message: str) -> NoonbellError:
        """`details.url` is the address that was given, which is in doubt."""
        return errors.StoreUnavailable(message, details={"url": self._parts.geturl()})

    def _read(self, answer: http.client.HTTPResponse, body: bytes) -> Any:
        text = body.decode(errors="replace")
        kind = (answer.getheader("content-type") or "").partition(";")[0].strip()
        try:
            value: Any = json.loads(text) if kind == "application/json" and text else text
        except ValueError:
            value = text
        if answer.status < 400 and kind != "text/html":
            return value
        if not isinstance(value, dict) or "code" not in value:
            message = f"the server returned {answer.status}, but not as Noonbell does; check the address"
            raise self._wrong_address(message)
        details = value.get("details")
        raise _KINDS.get(value["code"], NoonbellError)(
            str(value.get("message", value["code"])), details=details if isinstance(details, dict) else None
        )


class ServerSentEvents:
    """Events as they come, each as its `data`. `close` ends it, also while another thread waits for the next one."""

    def __init__(
        self, connection: http.client.HTTPConnection, carrier: socket.socket, answer: http.client.HTTPResponse
    ) -> None:
        self._connection, self._socket, self._answer = connection, carrier, answer
        self._reading = threading.Lock()

    def __iter__(self) -> ServerSentEvents:
        return self

    def __next__(self) -> EventJson:
        with self._reading:
            data: list[str] = []
            try:
                for raw in self._answer:
                    name, _, value = raw.decode(errors="replace").rstrip("\r\n").partition(":")
                    if name == "data":
                        data.append(value.removeprefix(" "))
                    elif not name and not value and data:
                        event: EventJson = json.loads("\n".join(data))
                        return event
            except (OSError, ValueError, http.client.HTTPException):
                pass  # the server has gone, or `close` was called
            self._let_go()
            raise StopIteration

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._reading.acquire(blocking=False):  # else the reader sees the end, and lets go itself
            try:
                self._let_go()
            finally:
                self._reading.release()

    def _let_go(self) -> None:
        self._answer.close()
        self._connection.close()


def _kinds(kind: type[NoonbellError]) -> Iterator[tuple[str, type[NoonbellError]]]:
    """From the leaves, so that the nearest to the root has a code that several share."""
    for below in kind.__subclasses__():
        yield from _kinds(below)
    yield kind.code, kind


_KINDS: Final = dict(_kinds(NoonbellError))
