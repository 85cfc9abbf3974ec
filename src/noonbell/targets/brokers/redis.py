"""Redis: an entry of a stream (XADD), or a message on a channel (PUBLISH). The server's answer is the id of the entry, or how
many clients were listening.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import redis.exceptions as wrong
from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from noonbell.model.broker import RedisMessage
from noonbell.model.failure_text import failure_text
from noonbell.targets.brokers.message import Outgoing
from noonbell.targets.brokers.pool import BrokerFailure, BrokerReceipt, Link, credentials_refused, lost, sent

BODY: Final = "payload"
"""The field of an entry that has the body; each header has one of its own name."""

_FOR_NOW: Final = (
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MISCONF",
    "NOREPLICAS",
)
"""Errors of a server that may take the same command a moment later, by their first words."""


class _LinkConnection(Connection):
    """The client's connection over a socket that is open already; it never connects again."""

    def __init__(self, link: Link, **options: Any) -> None:
        super().__init__(**options)
        self._link = link
        self._was_open = False

    async def _connect(self) -> None:
        if self._was_open:
            raise lost()
        self._was_open = True
        self._reader, self._writer = await self._link.streams()

    @property
    def is_at_end(self) -> bool:
        return self._reader is None or self._reader.at_eof()


class RedisConnection:
    def __init__(self, link: Link, message: Outgoing) -> None:
        address = message.address
        self._address = address
        self._connection = _LinkConnection(
            link,
            host=address.host,
            port=address.port,
            db=int(address.path or 0),
            username=address.user,
            password=address.password,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
            socket_timeout=None,
            socket_connect_timeout=None,
        )

    async def open(self) -> None:
        try:
            await self._connection.connect()  # type: ignore[no-untyped-call]
            await self._ask("PING")  # nothing is sent to what does not speak as Redis does
        except (wrong.AuthenticationError, wrong.AuthenticationWrongNumberOfArgsError) as error:
            raise credentials_refused(self._address, error) from None
        except wrong.NoPermissionError:
            pass
        except wrong.ResponseError as error:
            raise _refused(error) from None
        except (wrong.RedisError, asyncio.IncompleteReadError) as error:
            if isinstance(error.__cause__, BrokerFailure):
                raise error.__cause__ from None
            if isinstance(cause := error.__context__, OSError):
                raise cause from None
            raise BrokerFailure(
                "connection_lost", f"{self._address.shown} does not respond like Redis: {error}"
            ) from None

    @property
    def is_open(self) -> bool:
        return self._connection.is_connected and not self._connection.is_at_end

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)

    async def publish(self, message: Outgoing) -> BrokerReceipt:
        spec = message.spec
        assert isinstance(spec, RedisMessage)  # noqa: S101 - the kind of the task says so
        try:
            if spec.stream is None:
                receivers = await self._ask("PUBLISH", message.destination, message.content)
                return BrokerReceipt(result={"receivers": receivers})
            cut = () if spec.maxlen is None else ("MAXLEN", "~", spec.maxlen)
            fields: list[str | bytes] = [BODY, message.content]
            for name, value in message.headers.items():
                fields += [name, value]
            made = await self._ask("XADD", message.destination, *cut, "*", *fields)
            return BrokerReceipt(result={"id": made.decode() if isinstance(made, bytes) else str(made)})
        except wrong.AuthenticationError as error:
            raise BrokerFailure("authentication", str(error)) from None
        except wrong.ResponseError as error:
            raise _refused(error) from None
        except (wrong.RedisError, OSError, asyncio.IncompleteReadError) as error:
            raise lost(error) from None

    async def _ask(self, *words: Any) -> Any:
        await self._connection.send_command(*words, check_health=False)
        if words != ("PING",):
            await sent()
        return await self._connection.read_response()


def _refused(error: Exception) -> BrokerFailure:
    said = str(error)
    if said.startswith("NOAUTH") or "authentication required" in said.lower():
        return BrokerFailure("authentication", f"the server asks for credentials: {said}")
    is_for_now = isinstance(error, wrong.ReadOnlyError | wrong.BusyLoadingError | wrong.OutOfMemoryError)
    is_for_now = is_for_now or said.startswith(_FOR_NOW)
    return BrokerFailure("error" if is_for_now else "refused", failure_text("server_refuses", error=str(said)))
