"""Connections to PostgreSQL by an address that may name several hosts (`stores.hosts`)."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, TypeAlias

import asyncpg

from noonbell.errors import StoreUnavailable
from noonbell.settings.store_address import Host, parse_server_address
from noonbell.stores.hosts import LOOK_SECONDS, HostFinder, HostState, unreachable

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# The timeline of what is written now: that of the last checkpoint is an older one for a while after a promotion.
_STATE = """select pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
    case when pg_is_in_recovery() then 0
        else ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint end,
    (select system_identifier::text from pg_control_system()), pg_postmaster_start_time()::text"""


class PostgresHosts:
    """Opens connections to the host that takes writes. With one host, or none named, it is the driver's `connect`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._finder = HostFinder(parse_server_address(url).hosts, self._look)

    async def connect(self, *_: Any, **options: Any) -> Connection:
        """Takes the options of the driver's `connect`; raises its errors, and StoreUnavailable where no host will do."""
        if not self._finder.are_several:
            try:
                return await asyncpg.connect(self._url, **options)
            except (ConnectionRefusedError, socket.gaierror) as error:
                raise ConnectionError(unreachable(self._finder.hosts, str(error))) from error
        current = self._finder.current
        if current is not None:
            connection = await self._connect_again(current, options)
            if connection is not None:
                return connection
        return await self._open(await self._finder.find(current), options)

    async def _connect_again(self, host: Host, options: dict[str, Any]) -> Connection | None:
        """Connect to the same host as before. None: it is away, takes no writes, or is behind what it was."""
        try:
            connection = await self._open(host, options)
        except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
            return None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                state = await _state_of(connection, host)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.PostgresError):
                return None
            raise
        if not state.problem and state.timeline >= self._finder.timeline:
            return connection
        connection.terminate()
        return None

    async def _open(self, host: Host, options: dict[str, Any]) -> Connection:
        name, port = host
        return await asyncpg.connect(
            self._url, host=name, port=port, **{**options, "target_session_attrs": "any", "timeout": LOOK_SECONDS}
        )

    async def _look(self, host: Host) -> HostState:
        connection = await self._open(host, {"server_settings": {"application_name": "noonbell looks for its host"}})
        try:
            return await _state_of(connection, host)
        finally:
            connection.terminate()


async def _state_of(connection: Connection, host: Host) -> HostState:
    async with connection.transaction():  # a pooler may give each statement outside of one to another server
        found = await connection.fetchrow(_STATE)
    if found is None:
        raise StoreUnavailable("PostgreSQL: no answer")
    is_standby, is_read_only, timeline, cluster, started = found
    problem = "is a standby" if is_standby else "is read-only" if is_read_only else ""
    return HostState(host, problem, timeline, f"{cluster}/{started}", cluster)
