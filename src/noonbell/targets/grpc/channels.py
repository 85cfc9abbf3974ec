"""Channels: one for each address and credential, dialled at addresses that the guard has seen.

A channel is made for numeric addresses, and told the name of the host only for its certificate and its authority: gRPC looks
nothing up, asks no proxy and takes no service configuration from the network. It repeats no call either: its own retries, the
transparent ones among them, are switched off, and the retry policy of the task decides.

A channel whose connection failed is not used for another call, so that each attempt dials itself instead of waiting for the
back-off of gRPC. Calls that are under way on it go on; the last one closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import grpc

from noonbell.model.grpc_call import GrpcCall, GrpcTls
from noonbell.service.grpc_fields import GrpcAddress
from noonbell.targets.http.guard import AddressGuard, BlockedAddress
from noonbell.targets.http.pool import NameCache, NoSuchHost, Resolver
from noonbell.version import __version__

_MOST: Final = 256
"""Channels that are kept; the one that was used longest ago goes first."""
_IDLE_MS: Final = 60_000
"""A connection without calls is closed after this; the next call dials again."""


@dataclass(frozen=True, slots=True)
class ChannelKey:
    """Where a channel leads, and with whose credentials."""

    dialled: str
    """Numeric addresses of one family, as gRPC writes them: `ipv4:10.0.0.1:443,10.0.0.2:443`."""
    address: GrpcAddress
    tls: GrpcTls | None
    metadata: tuple[tuple[str, str], ...]
    """Of the task: what one credential may see of a server's methods says nothing about another."""


@dataclass(slots=True, eq=False)
class _Held:
    channel: grpc.aio.Channel
    users: int = 0
    is_dropped: bool = False


class Channels:
    """Make it inside the event loop that it is used in."""

    def __init__(
        self, guard: AddressGuard, resolver: Resolver | None, *, connect_timeout: float, max_message_bytes: int
    ) -> None:
        self._guard, self._names = guard, NameCache(resolver)
        self._connect_timeout, self._max_bytes = connect_timeout, max_message_bytes
        self._held: OrderedDict[ChannelKey, _Held] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Calls that are under way end as canceled by the client."""
        held = list(self._held.values())
        self._held.clear()
        for each in held:
            await each.channel.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._names.close()

    async def keys(self, address: GrpcAddress, call: GrpcCall) -> list[ChannelKey]:
        """Where the call may be sent, one for each family of addresses: BlockedAddress where the guard allows none."""
        allowed: list[str] = []
        denied: BlockedAddress | None = None
        for each in await self._addresses(address.host):
            try:
                self._guard.check(each, address.port)
                allowed.append(each)
            except BlockedAddress as error:
                denied = error
        if not allowed:
            raise denied or NoSuchHost(address.host, OSError("it has no address"))
        metadata = tuple(sorted(call.metadata.items()))
        tls = (call.tls or GrpcTls()) if address.is_tls else None
        return [ChannelKey(dialled, address, tls, metadata) for dialled in _by_family(allowed, address.port)]

    @contextlib.asynccontextmanager
    async def channel(self, key: ChannelKey, *, alone: bool) -> AsyncIterator[grpc.aio.Channel]:
        """One to send a call on. `alone`: a new one that no other call has used or will use."""
        if alone:
            own = self._made(key)
            try:
                yield own
            finally:
                await asyncio.shield(own.close())
            return
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(self._made(key))
            if len(self._held) > _MOST:
                self.drop(next(iter(self._held)))
        self._held.move_to_end(key)
        held.users += 1
        try:
            yield held.channel
        finally:
            held.users -= 1
            self._close_unused(held)

    def drop(self, key: ChannelKey) -> None:
        """No further call goes out on it."""
        held = self._held.pop(key, None)
        if held is not None:
            held.is_dropped = True
            self._close_unused(held)

    def _close_unused(self, held: _Held) -> None:
        if held.is_dropped and not held.users:
            closing = asyncio.get_running_loop().create_task(held.channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _made(self, key: ChannelKey) -> grpc.aio.Channel:
        address, tls = key.address, key.tls
        if tls is not None and tls.server_name is not None:
            address = replace(address, host=tls.server_name)  # a call must name the server that the certificate does
        options: list[tuple[str, Any]] = [
            ("grpc.default_authority", address.authority),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.primary_user_agent", f"noonbell/{__version__}"),
            ("grpc.max_send_message_length", self._max_bytes),
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.min_reconnect_backoff_ms", max(100, round(self._connect_timeout * 1000))),
            ("grpc.client_idle_timeout_ms", _IDLE_MS),
        ]
        if tls is None:
            return grpc.aio.insecure_channel(key.dialled, options)
        options.append(("grpc.ssl_target_name_override", address.host))
        credentials = grpc.ssl_channel_credentials(
            _encoded(tls.ca) or _system_certificates(), _encoded(tls.key), _encoded(tls.cert)
        )
        return grpc.aio.secure_channel(key.dialled, credentials, options)

    async def _addresses(self, host: str) -> Sequence[str]:
        try:
            return await self._names.addresses(host)
        except OSError as error:
            raise NoSuchHost(host, error) from None


async def connects(channel: grpc.aio.Channel) -> bool:
    """Whether the channel has a connection, or could open one. Nothing is sent for it."""
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            return False
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)
    return True


def _by_family(addresses: Iterable[str], port: int) -> list[str]:
    """The family of the first address first. Sorted: names answer with their addresses in another order each time."""
    found = list(addresses)
    first = ":" in found[0]
    found.sort(key=lambda each: ((":" in each) is not first, each))
    return [
        f"ipv6:{','.join(f'[{each}]:{port}' for each in group)}"
        if is_six
        else f"ipv4:{','.join(f'{each}:{port}' for each in group)}"
        for is_six, group in groupby(found, key=lambda each: ":" in each)
    ]


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@cache
def _system_certificates() -> bytes | None:
    """Those that HTTP targets are checked by; None, where the system has no such file: then those that gRPC brings."""
    file: str | None = ssl.get_default_verify_paths().cafile
    return Path(file).read_bytes() if file else None
