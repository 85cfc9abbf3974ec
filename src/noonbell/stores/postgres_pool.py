"""Connections to PostgreSQL: the host that takes writes, their settings, and how they go from one call to the next.

asyncpg's pool opens, heals and closes them. Each use of it costs a task, a future and three timers, more than the call itself
costs this process. So a connection that a call leaves in order is kept here for the next one, and goes back to the pool
when a call leaves it otherwise, when another call waits for one, when it has been idle for a while, and now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, Final, TypeAlias

import asyncpg

from noonbell.errors import StoreUnavailable
from noonbell.settings.kinds import Host, parse_server_address
from noonbell.stores import blocking
from noonbell.stores.hosts import LOOK_SECONDS, HostFinder, HostState, unreachable
from noonbell.stores.sql.statement import LOCK_SECONDS

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

_UNWANTED: Final = 60.0
"""Seconds for which a connection has not been wanted when the pool gets it back. The pool closes it after a while."""
_USES: Final = 10_000
"""Calls after which the pool gets it back: it closes those that are old."""


SETTINGS = {
    "application_name": blocking.OWN,
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
    "timezone": "UTC",
    # A process that is frozen inside a transaction holds its rows: after the time of a lease they are others'.
    "idle_in_transaction_session_timeout": "15s",
    "lock_timeout": f"{LOCK_SECONDS}s",
    # The tables of work under way are empty most of the time, and so are their statistics. A scan that looks cheap by
    # them is not when they are full; an index never is wrong here.
    "enable_seqscan": "off",
    # What is asked for is in memory or on a disk without arms. By the default of 4 a long walk over the newest of all runs
    # looks cheaper than a few steps along the index that leads to the ones that are wanted.
    "random_page_cost": "1.1",
    # What is asked here is small. Processes that are started to share it cost more than they save.
    "max_parallel_workers_per_gather": "0",
}
# Of the connections that reserve ids. What uses an id commits after its reservation, and a flush of the log covers all that
# was written before: an id is never in a row that lasts while its reservation does not.
RESERVING = {"synchronous_commit": "off"}
# To plan a settle with a claim takes 3 ms, as long as to carry it out for 300 runs. On some connections plans are kept, for the
# statements of the fast path: each of them has one plan only, for all that the tables may hold (see stores.postgres_fast).
KEEPING_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    **dict.fromkeys(("enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin"), "off"),
}
WITHOUT_LIMIT = {"lock_timeout": "0", "statement_timeout": "0"}
LOCAL = {name: value for name, value in SETTINGS.items() if name != "application_name"}


class ConnectionPool:
    """Belongs to one event loop."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool
        self._idle: list[Connection] = []
        """The one that was used last is the last."""
        self._uses_left: dict[Connection, int] = {}
        """Of those that did not come before `expire_connections`, in use or not."""
        self._waiting = 0
        """Calls that ask the pool for a connection."""
        self._unwanted = 0
        """How many of the first idle ones have not been used since the last look."""
        self._timer: asyncio.TimerHandle | None = None
        self._going: set[asyncio.Task[None]] = set()
        self._is_open = True

    async def take(self, timeout: float | None = None) -> Connection:  # noqa: ASYNC109 - as asyncpg's pool has it
        """A connection, which has to be given back. TimeoutError if none is free in that many seconds."""
        while self._idle:
            connection = self._idle.pop()
            self._unwanted = min(self._unwanted, len(self._idle))
            if _is_usable(connection):
                return connection
            self._uses_left.pop(connection, None)  # the pool knows that it is gone
        self._waiting += 1
        try:
            connection = await self._pool.acquire(timeout=timeout)
        finally:
            self._waiting -= 1
        self._uses_left[connection] = _USES
        return connection

    async def give_back(self, connection: Connection, *, in_order: bool) -> None:
        """`in_order`: the call has ended by itself, and has the answers to all that it asked."""
        left = self._uses_left.get(connection, 0) - 1
        if in_order and left > 0 and self._is_open and not self._waiting and _is_usable(connection):
            self._uses_left[connection] = left
            self._idle.append(connection)
            if self._timer is None:
                self._look_later()
            return
        self._uses_left.pop(connection, None)
        await self._pool.release(connection)

    @contextlib.asynccontextmanager
    async def acquire(self, timeout: float | None = None) -> AsyncIterator[Connection]:  # noqa: ASYNC109 - as above
        connection, in_order = await self.take(timeout), False
        try:
            yield connection
            in_order = True
        finally:
            await self.give_back(connection, in_order=in_order)

    def get_size(self) -> int:
        return self._pool.get_size()

    def get_idle_size(self) -> int:
        """How many are open and not in use."""
        return self._pool.get_idle_size() + sum(map(_is_usable, self._idle))

    async def expire_connections(self) -> None:
        """Close each connection that is there now, as soon as it is not in use."""
        await self._pool.expire_connections()
        self._uses_left.clear()
        await self._return(len(self._idle))

    async def close(self) -> None:
        """Waits for those that are in use."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        await self._return(len(self._idle))
        await self._pool.close()

    async def _return(self, count: int) -> None:
        """The first idle ones, to the pool."""
        unwanted, self._idle = self._idle[:count], self._idle[count:]
        for connection in unwanted:
            self._uses_left.pop(connection, None)
            await self._pool.release(connection)

    def _look_later(self) -> None:
        self._unwanted = len(self._idle)
        self._timer = asyncio.get_running_loop().call_later(_UNWANTED, self._look)

    def _look(self) -> None:
        self._timer = None
        task = asyncio.create_task(self._return(self._unwanted))
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        if len(self._idle) > self._unwanted:
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        if self._timer is None and self._is_open and self._idle:
            self._look_later()


def _is_usable(connection: Connection) -> bool:
    """Whether it is open, and outside of a transaction."""
    try:
        return not connection.is_closed() and not connection.is_in_transaction()
    except asyncpg.InterfaceError:
        return False  # it broke while it was here, and the pool has let go of it


async def as_it_is(_connection: object) -> None:
    """What the pool does to a connection that comes back. No call changes a session, so none has to be set right."""


RawConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

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

    async def connect(self, *_: Any, **options: Any) -> RawConnection:
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

    async def _connect_again(self, host: Host, options: dict[str, Any]) -> RawConnection | None:
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

    async def _open(self, host: Host, options: dict[str, Any]) -> RawConnection:
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


async def _state_of(connection: RawConnection, host: Host) -> HostState:
    async with connection.transaction():  # a pooler may give each statement outside of one to another server
        found = await connection.fetchrow(_STATE)
    if found is None:
        raise StoreUnavailable("PostgreSQL: no response")
    is_standby, is_read_only, timeline, cluster, started = found
    problem = "is a standby" if is_standby else "is read-only" if is_read_only else ""
    return HostState(host, problem, timeline, f"{cluster}/{started}", cluster)


_ADDRESS = "postgresql://USER:PASSWORD@HOST/DATABASE"


def way_in(error: asyncpg.PostgresError) -> str:
    """What to do about a user whom the server does not let in."""
    if isinstance(error, asyncpg.InvalidPasswordError):
        return (
            f"check user and password in store.url, {_ADDRESS} (characters such as @ and / as %40 and %2F), or give the user this"
            " password: ALTER ROLE NAME PASSWORD '…'"
        )
    if "pg_hba.conf" in str(error):
        return "name another user in store.url, or let this one in from here by a line in the server's pg_hba.conf"
    return (
        f"it is the user of store.url, {_ADDRESS}, or the user of the system where that has none: name another, or make it first:"
        " createuser NAME, then createdb --owner NAME DATABASE"
    )
