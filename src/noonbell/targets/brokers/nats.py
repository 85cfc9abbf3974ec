"""NATS: a message to a subject. The server has it when it has answered the PING behind it; with `jetstream`, when the stream's
acknowledgement is there; with `reply`, the consumer's answer is waited for.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport

from noonbell.engine import failpoint
from noonbell.model.broker import NatsMessage
from noonbell.model.failure_text import failure_text
from noonbell.targets.brokers.message import Outgoing
from noonbell.targets.brokers.pool import (
    BrokerFailure,
    BrokerReceipt,
    Link,
    credentials_refused,
    done_before,
    lost,
    sent,
)

T = TypeVar("T")

_FOREVER: Final = 10**8
"""Seconds: the attempt's deadline is the one that counts."""
_NO_RESPONDERS: Final = "503"
_AUTHENTICATION: Final = ("authorization", "authentication")


class _LinkTransport(TcpTransport):
    """The client's transport over a socket that is open already. No client sends its credentials before TLS, where that
    is asked for.
    """

    def __init__(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer
        self._needs_tls = link.address.is_tls

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        """Done by the link."""

    async def connect_tls(self, *args: Any, **options: Any) -> None:
        await super().connect_tls(*args, **options)
        self._needs_tls = False

    def write(self, payload: bytes) -> None:
        if self._needs_tls:
            raise BrokerFailure("tls", "the server does not offer TLS, but the address requires it")
        super().write(payload)  # type: ignore[no-untyped-call]


class NatsConnection:
    def __init__(self, link: Link, message: Outgoing) -> None:
        self._link, self._address, self._client = link, message.address, Client()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._errors: list[Exception] = []

    async def open(self) -> None:
        address, link = self._address, self._link
        reader, writer = await link.streams(starts_tls=False)
        self._client._transport = _LinkTransport(link, reader, writer)  # no other way in
        is_token = address.user is not None and address.password is None
        try:
            await self._client.connect(
                servers=f"nats://{link.where}",
                name="noonbell",
                allow_reconnect=False,  # it would dial addresses that the guard has not seen
                connect_timeout=_FOREVER,
                user=None if is_token else address.user,
                password=address.password,
                token=address.user if is_token else None,
                tls=link.context,
                tls_hostname=link.name if address.is_tls else None,
                error_cb=self._noted,
                closed_cb=self._ended,
            )
        except ssl.SSLError:
            raise  # which is a ValueError, too
        except (nats.errors.Error, asyncio.IncompleteReadError, ValueError) as error:
            if any(word in str(error).lower() for word in _AUTHENTICATION):
                raise credentials_refused(address, error) from None
            raise BrokerFailure("connection_lost", f"{address.shown} does not respond like NATS: {error}") from None

    @property
    def is_open(self) -> bool:
        return self._client.is_connected

    async def close(self) -> None:
        await self._client.close()

    async def publish(self, message: Outgoing) -> BrokerReceipt:
        spec = message.spec
        assert isinstance(spec, NatsMessage)  # noqa: S101 - the kind of the task says so
        headers = dict(message.headers)
        if spec.jetstream:
            headers["Nats-Msg-Id"] = message.key
        self._errors.clear()
        try:
            if spec.jetstream or message.waits_for_reply:
                answer = await self._request(message, headers)
                return _acknowledged(answer) if spec.jetstream else _replied(answer)
            await self._client.publish(message.destination, message.content, headers=headers)
            await sent()
            await self._or_closed(self._client.flush(_FOREVER))
        except nats.errors.MaxPayloadError:
            most = self._client.max_payload
            raise BrokerFailure(
                "too_large", f"the message is larger than the {most} bytes that the server accepts"
            ) from None
        except (nats.errors.BadSubjectError, nats.errors.BadHeaderError) as error:
            raise BrokerFailure("refused", str(error)) from None
        except nats.errors.Error as error:
            raise lost(error) from None
        self._refuse_noted()
        return BrokerReceipt(result={"subject": message.destination})

    async def _request(self, message: Outgoing, headers: dict[str, str]) -> Msg:
        """The first answer to the message."""
        inbox = self._client.new_inbox()
        answers = await self._client.subscribe(inbox)
        await self._client.publish(message.destination, message.content, reply=inbox, headers=headers)
        if failpoint.is_armed:
            await self._client.flush()  # it is sent now, and not a moment later
        await sent()
        answer = await self._or_closed(answers.next_msg(_FOREVER))
        await answers.unsubscribe()
        if answer.headers and answer.headers.get("Status") == _NO_RESPONDERS:
            raise BrokerFailure(
                "no_responders", f"no stream and no consumer listens on the subject {message.destination}"
            )
        return answer

    async def _or_closed(self, waiting: Awaitable[T]) -> T:
        task: asyncio.Future[T] = asyncio.ensure_future(waiting)
        if not await done_before(task, self._closed):
            self._refuse_noted()
            raise lost()
        try:
            return task.result()
        except asyncio.CancelledError:  # the client's own
            raise lost() from None

    def _refuse_noted(self) -> None:
        """What the server said against the message, which it says apart from any answer."""
        for error in self._errors:
            if "permissions violation" in str(error).lower():
                raise BrokerFailure("refused", failure_text("server_refuses", error=str(error)))

    async def _noted(self, error: Exception) -> None:
        self._errors.append(error)
        if "permissions violation" in str(error).lower() and not self._closed.done():
            self._closed.set_result(None)  # no answer will come

    async def _ended(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)


def _acknowledged(answer: Msg) -> BrokerReceipt:
    try:
        said = json.loads(answer.data)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise BrokerFailure("error", "the response to the message is not from JetStream")
    if isinstance(error := said.get("error"), dict):
        code = error.get("code")
        kind = "error" if isinstance(code, int) and code >= 500 else "refused"
        raise BrokerFailure(kind, f"JetStream rejected the message: {code} {error.get('description')}")
    stored = {name: said[name] for name in ("stream", "seq", "duplicate", "domain") if name in said}
    return BrokerReceipt(result=stored)


def _replied(answer: Msg) -> BrokerReceipt:
    return BrokerReceipt(reply=answer.data, problem=(answer.headers or {}).get("Nats-Service-Error"))
