"""The gRPC target: one attempt is one unary call, and its status makes the outcome.

The request message is the run's payload, read as protobuf's JSON; the response message, written in the same way, is the
run's result. Descriptors come from the task, or from the server by reflection; those are known for a minute, and asked
for again when a method, or a field of the payload, is not among them.

A connection that could not be opened has sent nothing: `connection_refused`, `connect_timeout` or `tls`. One that was
lost later leaves open whether the server has seen the call: `connection_lost`, and the retry policy decides. gRPC
repeats nothing by itself (`channels`). A task that is delivered at most once has a channel of its own for each attempt.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import grpc
import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from noonbell.engine import failpoint
from noonbell.errors import InvalidState
from noonbell.model.failure_text import failure_text, said_by, said_in
from noonbell.model.grpc_call import GrpcCall
from noonbell.model.run import Assignment, Outcome, OutcomeKind, RunBodies
from noonbell.model.task import Delivery
from noonbell.sealing import Sealer
from noonbell.service.grpc_fields import (
    BINARY,
    BadMethod,
    UnaryMethod,
    address_of,
    decoded,
    method_in,
    pool_of,
    pool_with,
)
from noonbell.service.secrets import opened
from noonbell.targets.grpc.channels import ChannelKey, Channels, connects
from noonbell.targets.http.guard import AddressGuard, BlockedAddress
from noonbell.targets.http.pool import NoSuchHost, Resolver
from noonbell.targets.http.request import TASK, conceal, hidden_values, masked_headers, own_headers
from noonbell.targets.http.target import CONNECT_TIMEOUT, MAX_BODY_BYTES, storable

KNOWN_SECONDS: Final = 60.0
"""How long descriptors from reflection are good for."""
_MOST_KNOWN: Final = 1_024
_LARGE: Final = 128 * 1024
"""Bytes of a message from which on it is turned from or into JSON in a thread."""
_LEAST: Final = 0.001
_LONGEST_MESSAGE: Final = 1_000
_UNDIALLED: Final = "failed to connect to all addresses"
_TOO_LARGE: Final = "larger than max"
_LOST: Final = (
    "Socket closed",
    "Connection reset",
    "Broken pipe",
    "GOAWAY",
    "recvmsg",
    "sendmsg",
    "Transport closed",
    "keepalive",
)
"""What gRPC itself says of a connection that ended under a call. Its words are pinned by tests."""

T = TypeVar("T")

_pool_of = lru_cache(maxsize=64)(pool_of)


class Undone(Exception):
    """The attempt failed: kind and message; with `status`, as the server said, and its trailers."""

    def __init__(
        self, kind: str, message: str, status: str | None = None, trailers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.status, self.trailers = kind, status, trailers


class GrpcTarget:
    """Carries out GRPC tasks. Open it inside the event loop that it is used in."""

    def __init__(
        self,
        *,
        guard: AddressGuard | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        max_body_bytes: int = MAX_BODY_BYTES,
        sealer: Sealer | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self._guard, self._sealer = guard or AddressGuard(), sealer or Sealer()
        self._connect_timeout, self._max_body_bytes = connect_timeout, max_body_bytes
        self._resolver = resolver
        self._channels: Channels | None = None
        self._known: OrderedDict[tuple[ChannelKey, str], tuple[float, DescriptorPool]] = OrderedDict()
        """By channel and service: until when it is good, in the loop's time, and the descriptors."""

    async def open(self) -> None:
        self._channels = Channels(
            self._guard, self._resolver, connect_timeout=self._connect_timeout, max_message_bytes=self._max_body_bytes
        )

    async def close(self) -> None:
        """Drop every channel. Attempts that are under way fail."""
        if self._channels is not None:
            await self._channels.close()
        self._channels = None

    async def execute(self, assignment: Assignment) -> Outcome:
        """Call the method once and say what came of it. CancelledError cancels the call in flight."""
        if self._channels is None:
            raise RuntimeError("the gRPC target is not open")
        headers: dict[str, str] = {}
        hidden: Sequence[str] = ()
        try:
            call = self._opened(assignment)
            headers = headers_of(assignment, call)
            hidden = [*hidden_values(headers, assignment.lease.callback_token), *_secrets_of(call)]
            method, content, trailers = await self._answered(self._channels, assignment, call, headers)
            value, size = await _aside(len(content), lambda: _result_of(method, content, hidden))
        except Undone as problem:
            return _failed(problem.kind, said_in(problem), headers, hidden, problem.trailers, problem.status)
        except (BlockedAddress, NoSuchHost) as problem:
            return _failed(
                "dns" if isinstance(problem, NoSuchHost) else "blocked_address", said_in(problem), headers, hidden
            )
        except BadMethod as problem:
            said = f"grpc.method {problem}" if problem.is_of_method else str(problem)
            return _failed("bad_method", said, headers, hidden)
        is_whole = size <= self._max_body_bytes
        bodies = RunBodies(
            request_headers=masked_headers(headers, hidden),
            response_headers=masked_headers(trailers, hidden),
            response_body=None
            if is_whole
            else msgspec.json.encode(value)[: self._max_body_bytes].decode("utf-8", "ignore"),
            truncated=not is_whole,
        )
        result = value if is_whole else None
        if not assignment.task.spec.awaits_callback:
            return Outcome(kind=OutcomeKind.SUCCESS, result=result, bodies=bodies)
        failpoint.hit("K8")
        return Outcome(kind=OutcomeKind.ACCEPTED, result=result, bodies=bodies)

    def _opened(self, assignment: Assignment) -> GrpcCall:
        """The call with its secrets as they are sent; here they are opened, and nowhere before."""
        try:
            call = opened(assignment.task.spec, self._sealer).grpc
        except InvalidState as error:
            raise Undone("fail", error.message) from None
        if call is None:
            raise Undone("fail", "the task has no gRPC method")
        return call

    async def _answered(
        self, channels: Channels, assignment: Assignment, call: GrpcCall, headers: Mapping[str, str]
    ) -> tuple[UnaryMethod, bytes, dict[str, str]]:
        """The response message as it came, and the trailers. Where one family of addresses cannot be dialled, the other is."""
        try:
            address = address_of(call)
        except ValueError as problem:
            raise Undone("fail", f"grpc.address is {call.address!r}; expected {problem}") from None
        metadata = _sent(headers)
        loop = asyncio.get_running_loop()
        due = loop.time() + assignment.timeout_seconds
        keys = await channels.keys(address, call)
        is_once = assignment.task.spec.delivery is Delivery.AT_MOST_ONCE
        for left, key in zip(range(len(keys) - 1, -1, -1), keys, strict=True):
            is_connected = False
            try:
                async with channels.channel(key, alone=is_once) as channel:
                    is_connected = await connects(channel)
                    if left and not is_connected:
                        self._drop(channels, key)
                        continue
                    method, content = await self._prepared(channel, key, call, assignment.lease.payload, due)
                    send: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method.path)
                    calling = send(content, metadata=metadata, timeout=max(due - loop.time(), _LEAST))
                    response = await calling
                    return method, response, _texts(await calling.trailing_metadata())
            except asyncio.CancelledError:
                self._drop(channels, key)
                raise
            except grpc.aio.AioRpcError as error:
                if error.code() in _SUSPECT:
                    self._drop(channels, key)
                seconds = assignment.task.spec.timeout_seconds
                raise _undone(error, seconds, is_connected=is_connected, is_tls=address.is_tls) from None
        raise AssertionError("there is no address, and none was denied")

    async def _prepared(
        self, channel: grpc.aio.Channel, key: ChannelKey, call: GrpcCall, payload: Any, due: float
    ) -> tuple[UnaryMethod, bytes]:
        """The method and the request message."""
        if call.descriptor_set is not None:
            return await self._request(_pool_of(call.descriptor_set), call, payload)
        loop = asyncio.get_running_loop()
        service = call.method.partition("/")[0]
        until, pool = self._known.get((key, service), (0.0, None))
        if pool is not None and until > loop.time():
            with contextlib.suppress(BadMethod, Undone):  # the server may be a newer one by now: it is asked again
                return await self._request(pool, call, payload)
        pool = await described(channel, service, _sent(call.metadata), max(due - loop.time(), _LEAST))
        self._known[key, service] = (loop.time() + KNOWN_SECONDS, pool)
        self._known.move_to_end((key, service))
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return await self._request(pool, call, payload)

    async def _request(self, pool: DescriptorPool, call: GrpcCall, payload: Any) -> tuple[UnaryMethod, bytes]:
        method = method_in(pool, call.method)
        size = len(msgspec.json.encode(payload))
        content = await _aside(size, lambda: _content_of(method, payload))
        if len(content) > self._max_body_bytes:
            raise Undone("too_large", f"the request has {len(content)} bytes; at most {self._max_body_bytes} are sent")
        return method, content

    def _drop(self, channels: Channels, key: ChannelKey) -> None:
        """The next attempt dials, and asks the server again what it offers."""
        channels.drop(key)
        for known in [each for each in self._known if each[0] == key]:
            del self._known[known]


# Messages


def _content_of(method: UnaryMethod, payload: Any) -> bytes:
    try:
        message = json_format.ParseDict(
            {} if payload is None else payload, method.request(), descriptor_pool=method.pool
        )
        return message.SerializeToString()
    except (json_format.Error, EncodeError, TypeError, ValueError, AttributeError, RecursionError) as error:
        name = method.request.DESCRIPTOR.full_name
        raise Undone("invalid_payload", f"the payload is not a {name}: {error}") from None


def _result_of(method: UnaryMethod, content: bytes, hidden: Sequence[str]) -> tuple[Any, int]:
    """The response as JSON has it, and its size. Fields without presence are there with their defaults."""
    try:
        message = method.response.FromString(content)
        value = json_format.MessageToDict(
            message, always_print_fields_with_no_presence=True, descriptor_pool=method.pool
        )
    except (json_format.Error, DecodeError, TypeError, ValueError, RecursionError) as error:
        name = method.response.DESCRIPTOR.full_name
        raise Undone("invalid_result", f"the response is not a {name}: {error}") from None
    value = _concealed(value, hidden)
    return value, len(msgspec.json.encode(value))


def _concealed(value: Any, hidden: Sequence[str]) -> Any:
    """Without secrets, and without what no database takes."""
    if isinstance(value, str):
        return conceal(storable(value), hidden)
    if isinstance(value, dict):
        return {_concealed(name, hidden): _concealed(each, hidden) for name, each in value.items()}
    if isinstance(value, list):
        return [_concealed(each, hidden) for each in value]
    return value


async def _aside(size: int, work: Callable[[], T]) -> T:
    """Large messages are turned in a thread, so that others have their turn meanwhile."""
    return work() if size < _LARGE else await asyncio.to_thread(work)


# Metadata


def headers_of(assignment: Assignment, call: GrpcCall) -> dict[str, str]:
    """The metadata of the task, and above it what every server can rely on."""
    headers = {**call.metadata, TASK.lower(): str(assignment.lease.task_id)}
    headers |= {name.lower(): value for name, value in own_headers(assignment).items()}
    if assignment.task.spec.awaits_callback:
        named = {"x-callback-url": assignment.callback_url, "x-callback-token": assignment.lease.callback_token}
        headers |= {name: value for name, value in named.items() if value}
    return headers


def _sent(headers: Mapping[str, str]) -> list[tuple[str, str | bytes]]:
    found: list[tuple[str, str | bytes]] = []
    for name, value in headers.items():
        sent = decoded(value) if name.endswith(BINARY) else value
        if sent is None or (isinstance(sent, str) and not (sent.isascii() and sent.isprintable())):
            raise Undone("fail", f"the value of grpc.metadata.{name} cannot be sent as metadata")
        found.append((name, sent))
    return found


def _texts(metadata: Any) -> dict[str, str]:
    """Metadata of an answer, as it is stored."""
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else storable(value)
        for name, value in metadata or ()
    }


def _secrets_of(call: GrpcCall) -> list[str]:
    """What no error may repeat beside the values of the metadata: binary ones as they may be written, and the private key."""
    return [] if call.tls is None or call.tls.key is None else [call.tls.key]


# Outcomes

_SUSPECT: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED)
"""Status codes after which a channel, and what is known of its server, are not taken for granted."""


def _undone(error: grpc.aio.AioRpcError, seconds: float, *, is_connected: bool, is_tls: bool) -> Undone:
    code, details = error.code(), error.details() or ""
    if not is_connected and code is grpc.StatusCode.UNAVAILABLE and details.startswith(_UNDIALLED):
        return Undone(*_of_dial(details, is_tls=is_tls))
    return Undone(*of_status(code, details, seconds), code.name, _texts(error.trailing_metadata()))


def of_status(code: grpc.StatusCode, details: str, seconds: float) -> tuple[str, str]:
    """Kind and message of a status other than OK. What kinds are retried, `policy.retry` says."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "timeout", failure_text("no_grpc_answer", seconds=f"{seconds:g}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return "too_large", failure_text("answer_too_large")
    if code is grpc.StatusCode.UNAVAILABLE and any(word in details for word in _LOST):
        return "connection_lost", failure_text("lost_after_call")
    return f"grpc_{code.name.lower()}", failure_text(
        "grpc_answered", status=f"{code.name}: {details}" if details else code.name
    )


def _of_dial(details: str, *, is_tls: bool) -> tuple[str, str]:
    lower = details.lower()
    if any(word in lower for word in ("timed out", "timeout", "handshaker shutdown")):
        return "connect_timeout", failure_text("no_connection")
    if is_tls and any(word in lower for word in ("handshake", "certificate", "verification", "ssl")):
        return "tls", failure_text("tls_failed", error=details)
    return "connection_refused", details


def _failed(
    kind: str,
    message: str,
    headers: Mapping[str, str],
    hidden: Sequence[str],
    trailers: dict[str, str] | None = None,
    status: str | None = None,
) -> Outcome:
    details: dict[str, Any] = {"kind": kind, **said_by(message, lambda fact: conceal(storable(fact), hidden))}
    if status is not None:
        details["grpc_status"] = status
    return Outcome(
        kind=OutcomeKind.FAILURE,
        failure=kind,
        error_message=conceal(storable(message), hidden)[:_LONGEST_MESSAGE],
        error_details=details,
        bodies=RunBodies(
            request_headers=masked_headers(headers, hidden),
            response_headers=None if trailers is None else masked_headers(trailers, hidden),
        ),
    )


_VERSIONS: Final = ("v1", "v1alpha")
"""Their messages are the same."""
_MOST_FILES: Final = 1_000
_MOST_BYTES: Final = 16 * 1024 * 1024

NO_REFLECTION: Final = "the server offers no reflection; upload a descriptor set (grpc.descriptor_set)"


async def described(
    channel: grpc.aio.Channel, service: str, metadata: Sequence[tuple[str, Any]], seconds: float
) -> DescriptorPool:
    """The file that has the service, and all that it imports. BadMethod where the server knows none, or offers no reflection."""
    for version in _VERSIONS:
        try:
            return pool_with(await _files(channel, version, service, metadata, seconds))
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    raise BadMethod(NO_REFLECTION)


async def _files(
    channel: grpc.aio.Channel, version: str, service: str, metadata: Sequence[tuple[str, Any]], seconds: float
) -> list[FileDescriptorProto]:
    # A stream of one request and one answer is a unary call on the wire. Asked as a stream, a server that ends it at once
    # may be heard as a failed write instead of by its status.
    ask: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    found: dict[str, FileDescriptorProto] = {}
    asked: set[str] = set()
    wanted = [ServerReflectionRequest(file_containing_symbol=service)]
    while wanted:
        answer = await ask(wanted.pop(), metadata=metadata, timeout=max(due - loop.time(), _LEAST))
        for file in _read(answer, service):
            found.setdefault(file.name, file)
        if len(found) > _MOST_FILES or sum(file.ByteSize() for file in found.values()) > _MOST_BYTES:
            raise BadMethod(f"the server's reflection returned more than {_MOST_FILES} files or {_MOST_BYTES} bytes")
        lacking = {name for file in found.values() for name in file.dependency} - found.keys() - asked
        lacking = {name for name in lacking if not name.startswith("google/protobuf/")}
        asked |= lacking
        wanted += [ServerReflectionRequest(file_by_filename=name) for name in sorted(lacking)]
    return list(found.values())


def _read(answer: Any, service: str) -> list[FileDescriptorProto]:
    if answer.WhichOneof("message_response") == "error_response":
        error = answer.error_response
        if error.error_code == grpc.StatusCode.NOT_FOUND.value[0]:
            raise BadMethod(f"the server's reflection does not know {service!r}", is_of_method=True)
        raise BadMethod(f"the server's reflection failed: {error.error_message[:200]}")
    try:
        return [FileDescriptorProto.FromString(each) for each in answer.file_descriptor_response.file_descriptor_proto]
    except DecodeError:
        raise BadMethod("the server's reflection returned something that is not a descriptor") from None
