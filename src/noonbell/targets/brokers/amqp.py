"""AMQP 0-9-1, as RabbitMQ speaks it: a message to an exchange, with publisher confirms. With `mandatory`, a message
that no queue is bound for comes back, and is no success. With `reply`, the consumer answers to `reply-to` (direct
reply-to of RabbitMQ).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any, Final
from urllib.parse import quote

import aiormq
from aiormq import exceptions as wrong
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.connection import TransportFactory
from pamqp.commands import Basic

from noonbell.model.broker import AmqpMessage
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

logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # what goes wrong with an attempt is said in its outcome

REPLY_TO: Final = "amq.rabbitmq.reply-to"
_LOST: Final = (wrong.AMQPConnectionError, wrong.ChannelClosed, wrong.ChannelInvalidStateError, OSError, RuntimeError)


class _LinkFactory(TransportFactory):
    """Streams over a socket that is open already."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def create(self, url: Any, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        del url, options
        return await self._link.streams()


class AmqpConnection:
    def __init__(self, link: Link, message: Outgoing) -> None:
        address = message.address
        user, password = quote(address.user or "guest", safe=""), quote(address.password or "guest", safe="")
        host = f"[{address.host}]" if ":" in address.host else address.host
        url = f"amqp://{user}:{password}@{host}:{address.port}/{quote(address.path, safe='')}?name=noonbell"
        self._address = address
        self._connection = aiormq.Connection(url, transport_factory=_LinkFactory(link))
        self._channel: AbstractChannel | None = None
        self._replies: asyncio.Queue[DeliveredMessage] | None = None

    async def open(self) -> None:
        address = self._address
        try:
            await self._connection.connect()
            self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        except (wrong.AuthenticationError, wrong.ProbableAuthenticationError) as error:
            raise credentials_refused(address, error) from None
        except wrong.ConnectionNotAllowed as error:
            raise connection_not_taken("refused", address, error) from None
        except wrong.ConnectionClosed as error:
            kind = "refused" if error.args and error.args[0] in (402, 403, 404, 530) else "connection_lost"
            raise connection_not_taken(kind, address, error) from None
        except ssl.SSLError:
            raise  # which is a ValueError, too
        except (wrong.AMQPError, RuntimeError, ValueError) as error:
            raise BrokerFailure("connection_lost", f"{address.shown} does not respond like RabbitMQ: {error}") from None

    @property
    def is_open(self) -> bool:
        return self._connection.is_opened and self._channel is not None and not self._channel.is_closed

    async def close(self) -> None:
        await self._connection.close()

    async def publish(self, message: Outgoing) -> BrokerReceipt:
        spec = message.spec
        assert isinstance(spec, AmqpMessage)  # noqa: S101 - the kind of the task says so
        channel = self._channel
        assert channel is not None  # noqa: S101 - made by `open`
        try:
            replies = await self._listen(channel) if message.waits_for_reply else None
            await self._confirmed(channel, spec, message)
            if replies is None:
                return BrokerReceipt(result={"exchange": spec.exchange, "routing_key": message.destination})
            return BrokerReceipt(reply=await self._reply(channel, replies, message.key))
        except wrong.PublishError as error:
            raise BrokerFailure("unroutable", failure_text("no_queue_bound", error=str(_returned(error)))) from None
        except wrong.DeliveryError:
            raise BrokerFailure("nacked", failure_text("broker_nacked")) from None
        except (wrong.ChannelNotFoundEntity, wrong.ChannelAccessRefused, wrong.ChannelPreconditionFailed) as error:
            raise BrokerFailure("refused", failure_text("broker_refuses", error=str(error))) from None
        except _LOST as error:
            raise lost(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # the client's own, when its connection ends
                raise lost() from None
            raise

    async def _confirmed(self, channel: AbstractChannel, spec: AmqpMessage, message: Outgoing) -> None:
        given = spec.properties
        properties = Basic.Properties(
            content_type=given.content_type,
            content_encoding=given.content_encoding,
            headers=dict(message.headers),
            delivery_mode=2 if spec.persistent else 1,
            priority=given.priority,
            correlation_id=message.key,
            reply_to=REPLY_TO if message.waits_for_reply else None,
            expiration=None if given.expiration_ms is None else str(given.expiration_ms),
            message_id=message.key,
            message_type=given.type,
            app_id=given.app_id,
        )
        publishing = asyncio.ensure_future(
            channel.basic_publish(
                message.content,
                exchange=spec.exchange,
                routing_key=message.destination,
                properties=properties,
                mandatory=spec.mandatory,
            )
        )
        await sent(publishing)
        await publishing

    async def _listen(self, channel: AbstractChannel) -> asyncio.Queue[DeliveredMessage]:
        """Where answers arrive, for as long as the connection is kept."""
        if self._replies is None:
            replies: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
            await channel.basic_consume(REPLY_TO, replies.put, no_ack=True)
            self._replies = replies
        return self._replies

    async def _reply(self, channel: AbstractChannel, replies: asyncio.Queue[DeliveredMessage], key: str) -> bytes:
        while True:
            waiting = asyncio.ensure_future(replies.get())
            if not await done_before(waiting, channel.closing):
                raise lost()
            answer = waiting.result()
            correlation = answer.header.properties.correlation_id
            if correlation in (None, "", key):
                return answer.body


def _returned(error: wrong.PublishError) -> str:
    frame = getattr(error, "frame", None)
    return str(getattr(frame, "reply_text", None) or "NO_ROUTE")
