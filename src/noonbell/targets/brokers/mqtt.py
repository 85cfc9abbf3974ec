"""MQTT: a message to a topic. QoS 0 is a success when it was sent, 1 with PUBACK, 2 with PUBCOMP. Headers are user
properties, which MQTT 5 has and 3.1.1 has not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from typing import Any, Final

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from noonbell.model.broker import MqttMessage, MqttVersion
from noonbell.model.failure_text import failure_text
from noonbell.targets.brokers.message import Outgoing
from noonbell.targets.brokers.pool import (
    BrokerFailure,
    BrokerReceipt,
    Link,
    connection_not_taken,
    credentials_refused,
    done_before,
    lost,
    sent,
)

_QUIET: Final = logging.getLogger("noonbell.mqtt")
_QUIET.setLevel(logging.CRITICAL)
"""What goes wrong with an attempt is said in its outcome."""
_CREDENTIALS: Final = (4, 5, 134, 135, 140)
"""Reason codes of CONNACK, of 3.1.1 and of 5, about who connects."""
_REFUSALS: Final = 128
"""Reason codes from here on say no."""
_FOR_NOW: Final = (136, 137, 151)
"""Server unavailable, server busy, quota exceeded."""
_HANDSHAKE_SECONDS: Final = 20.0


class _LinkClient(aiomqtt.Client):
    """The client over a socket that is open already, which remembers what the broker said to the last message."""

    reason: ReasonCode | None = None

    def over(self, sock: socket.socket) -> None:
        self._client._create_socket = lambda: sock  # type: ignore[method-assign]  # no other way in

    def ended(self) -> asyncio.Future[None]:
        """Done when the connection has ended."""
        return self._disconnected

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        """As the client's own, but for a socket that was closed before the loop came to it."""
        del userdata

        def write() -> None:
            try:
                client.loop_write()
            except Exception as error:
                if not self._disconnected.done():
                    self._disconnected.set_exception(error)

        def register() -> None:
            if sock.fileno() >= 0:
                self._loop.add_writer(sock.fileno(), write)

        self._loop.call_soon_threadsafe(register)

    def _on_publish(
        self, client: Any, userdata: Any, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        self.reason = reason_code
        super()._on_publish(client, userdata, mid, reason_code, properties)


class MqttConnection:
    def __init__(self, link: Link, message: Outgoing) -> None:
        spec, address = message.spec, message.address
        assert isinstance(spec, MqttMessage)  # noqa: S101 - the kind of the task says so
        self._link, self._address, self._version = link, address, spec.version
        self._client = _LinkClient(
            address.host,
            address.port,
            username=address.user,
            password=address.password,
            protocol=aiomqtt.ProtocolVersion.V5 if spec.version is MqttVersion.V5 else aiomqtt.ProtocolVersion.V311,
            timeout=math.inf,
            keepalive=60,
            logger=_QUIET,
        )

    async def open(self) -> None:
        sock = self._link.sock
        if self._link.context is not None:
            sock = await asyncio.to_thread(self._handshaken)
        self._client.over(sock)
        entering = asyncio.ensure_future(self._client.__aenter__())
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:
            self._link.drop()
            entering.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await entering
            raise
        except aiomqtt.MqttError as error:
            code = _code_of(getattr(error, "rc", None))
            if code in _CREDENTIALS:
                raise credentials_refused(self._address, error) from None
            kind = "error" if code in _FOR_NOW or code == 3 else "connection_lost" if code is None else "refused"
            raise connection_not_taken(kind, self._address, error) from None

    def _handshaken(self) -> socket.socket:
        """In a thread: the client wants a socket on which TLS is spoken already."""
        context = self._link.context
        assert context is not None  # noqa: S101 - asked before
        self._link.sock.settimeout(_HANDSHAKE_SECONDS)
        sock = context.wrap_socket(self._link.sock, server_hostname=self._link.name)
        sock.setblocking(False)
        self._link.sock = sock
        return sock

    @property
    def is_open(self) -> bool:
        return not self._client.ended().done()

    async def close(self) -> None:
        ended = self._client.ended()
        if not self._link.is_dropped:
            with contextlib.suppress(aiomqtt.MqttError):
                await self._client.__aexit__(None, None, None)
        await asyncio.wait({ended}, timeout=1)
        if ended.done() and not ended.cancelled():
            ended.exception()
        if (number := self._link.sock.fileno()) >= 0:
            asyncio.get_running_loop().remove_reader(number)

    async def publish(self, message: Outgoing) -> BrokerReceipt:
        spec = message.spec
        assert isinstance(spec, MqttMessage)  # noqa: S101 - the kind of the task says so
        self._client.reason = None
        publishing = asyncio.ensure_future(
            self._client.publish(
                message.destination,
                message.content,
                qos=spec.qos,
                retain=spec.retain,
                properties=_properties(message) if spec.version is MqttVersion.V5 else None,
            )
        )
        try:
            await sent(publishing)
            if not await done_before(publishing, self._client.ended()):
                raise lost(self._client.ended().exception())
            publishing.result()
        except aiomqtt.MqttError as error:
            raise lost(error) from None
        except ValueError as error:
            raise BrokerFailure("refused", str(error)) from None
        reason = self._client.reason
        code = _code_of(reason)
        if code is not None and code >= _REFUSALS:
            kind = "error" if code in _FOR_NOW else "refused"
            raise BrokerFailure(kind, failure_text("broker_refuses", error=str(reason)))
        return BrokerReceipt(result={"topic": message.destination, "qos": spec.qos})


def _code_of(reason: Any) -> int | None:
    value = getattr(reason, "value", reason)
    return value if isinstance(value, int) else None


def _properties(message: Outgoing) -> Properties:
    made = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    made.ContentType = "application/json"
    made.CorrelationData = message.key.encode()
    made.UserProperty = list(message.headers.items())
    return made
