"""MariaDB and MySQL, over asyncmy.

A run stays in its row of `live` and changes place there: moving rows between tables made deadlocks in measurements,
updating in place did not. Reads are READ COMMITTED, which takes fewer locks and sees afresh with each statement. There
is no `update … returning`, so a batch is read for update and then written by a join with `json_table`. A change of schema
commits by itself, statement by statement: a step that was cut off is taken up where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

import asyncmy
import asyncmy.errors as mysql_errors

from noonbell.clock import Clock, Instant
from noonbell.errors import InvalidArgument, SettingsError, StoreUnavailable
from noonbell.model.request import Publication, PublishResult
from noonbell.settings.kinds import Host, parse_server_address
from noonbell.stores import blocking, caller_transaction
from noonbell.stores.hosts import LOOK_SECONDS as HOST_SECONDS
from noonbell.stores.hosts import READ_ONLY, HostFinder, HostState, unreachable
from noonbell.stores.migrations.table_lock import BEAT_SECONDS, LOOK_SECONDS, SchemaLock
from noonbell.stores.sql import change_capture, publishing
from noonbell.stores.sql.dialect import Dialect, on_duplicate, percent, update_join
from noonbell.stores.sql.ids import reserve
from noonbell.stores.sql.rows import TaskView, to_json
from noonbell.stores.sql.server_store import ServerStore
from noonbell.stores.sql.statement import (
    LOCK_SECONDS,
    WAIT_AT_MOST,
    Conflict,
    Execute,
    Fetch,
    InsertEvents,
    InsertMany,
    LockTimeout,
    NewIds,
    NewNumbers,
    Now,
    Params,
    Statement,
    TryAgain,
    UpdateMany,
    Work,
    WriteAll,
    drive,
    until_it_holds,
)

T = TypeVar("T")
P = ParamSpec("P")

NOW = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
_PATIENCE = 10.0
"""Seconds that a statement may take, and that a server which holds still can keep a caller waiting."""
_ROWS_AT_ONCE = 1_000
"""Rows in one insert: well below the packet that a server takes by default."""

MYSQL = Dialect(
    name="mysql",
    lock=" for update",
    skip_locked=" for update skip locked",
    skip_locked_l=" for update skip locked",
    upsert=on_duplicate,
    isin=lambda column, parameter, _: f"{column} in :{parameter}",
    pack=tuple,
    call_has_label="json_contains(i.overrides, json_object(:label, :label_value), '$.call.labels')",
    objects=(
        "select table_name, case when table_type = 'BASE TABLE' then 'table' else lower(table_type) end, ''"
        " from information_schema.tables where table_schema = database() and table_name in :names"
    ),
    columns=(
        "select table_name, column_name from information_schema.columns"
        " where table_schema = database() and table_name in :names"
    ),
    types=(
        "select table_name, column_name, column_type from information_schema.columns where table_schema = database()"
    ),
    has_index=(
        "select 1 from information_schema.statistics"
        " where table_schema = database() and table_name = :table and index_name = :name limit 1"
    ),
    rough_count=(
        "select table_rows from information_schema.tables where table_schema = database() and table_name = :name"
    ),
    rows_move=False,
    alone=(
        "select get_lock(concat('noonbell.', sha1(concat(database(), '/{mark}'))), 0)",
        "select release_lock(concat('noonbell.', sha1(concat(database(), '/{mark}'))))",
    ),
    from_live=update_join,
    parse=percent,
)

# A process that is frozen inside a transaction holds its rows: after the time of a lease they are others'. MariaDB can do
# that and reads the first comment, MySQL cannot and reads the second.
_INIT = (
    "set session group_concat_max_len = 16777216,"
    " /*M!100300 tx_isolation = 'READ-COMMITTED', idle_transaction_timeout = 15 */"
    " /*!80000 transaction_isolation = 'READ-COMMITTED' */"
)
_LIMITS = f", innodb_lock_wait_timeout = {LOCK_SECONDS}, lock_wait_timeout = {LOCK_SECONDS}"
_WITHOUT_LIMIT = (
    ", innodb_lock_wait_timeout = 1073741824, lock_wait_timeout = 31536000 /*M!100300 , max_statement_time = 0 */"
)
"""A year and more: what the server takes at most. The limit of MariaDB for statements may be set for the whole server."""
_SQL_MODE = "'ANSI_QUOTES,STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"  # the driver does not quote it
_SESSION: dict[str, Any] = {
    "charset": "utf8mb4",
    "autocommit": True,
    "connect_timeout": int(_PATIENCE),
    "sql_mode": _SQL_MODE,
    "client_flag": 2,  # FOUND_ROWS: count the rows that were met, not those that came out different
}
_LOCK_TIMEOUT = 1205
_AGAIN = frozenset({1213, 1020})
_DUPLICATE = 1062
_READ_ONLY = (1290, 1792, 1836)
"""An option of the server prevents it; the transaction, or the server, is read-only."""
_NO_DATABASE = 1049
_USER = (
    "check user and password in store.url, mysql://USER:PASSWORD@HOST/DATABASE (characters such as @ and / as %40 and %2F), or make"
    " the user first: CREATE USER 'NAME'@'HOST' IDENTIFIED BY '…'"
)
_WAYS_IN = {
    1044: "let this user in: GRANT ALL ON DATABASE.* TO 'NAME'@'HOST', or name another user or database in store.url",
    1045: _USER,
    1698: _USER,
}
"""By the server's number: what to do about a user whom it does not let in. 1044: not into this database."""
_NO_TABLE = 1146
_NO_CONNECTION = 2003
_OF_THE_CALL = frozenset(
    {1064, 1110, 1118, 1136, 1153, 1264, 1265, 1292, 1300, 1366, 1406, 1690, 3140, 3141, 3819, 4025}
)
"""A statement or its values are wrong. Every other error that the driver does not call an error of data is the server's:
no call would do, and the connection is dropped, because the address may lead to another server by now."""


def _after_all_commits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Any:
    """For a method that looks up what another node may have committed on another server of a Galera cluster.

    A server may not have applied yet what a client was told on another: a run was claimed there, and its callback or the
    worker's next call comes in here.
    """

    @functools.wraps(method)
    async def call(store: MysqlStore, /, *given: P.args, **named: P.kwargs) -> T:
        await store.see_all_commits()
        return await method(store, *given, **named)

    return call


class MysqlStore(ServerStore):
    dialect = MYSQL

    begin = _after_all_commits(ServerStore.begin)
    heartbeat = _after_all_commits(ServerStore.heartbeat)
    extend = _after_all_commits(ServerStore.extend)
    settle = _after_all_commits(ServerStore.settle)
    callback = _after_all_commits(ServerStore.callback)
    callback_run = _after_all_commits(ServerStore.callback_run)
    extend_callback = _after_all_commits(ServerStore.extend_callback)

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        connections: int = 8,
        table_prefix: str = "",
        new: bool = False,
    ) -> None:
        super().__init__(clock, connections, table_prefix=table_prefix, new=new)
        self._parse = functools.lru_cache(maxsize=1024)(lambda sql: percent(self._names.apply(sql)))
        self._hosts = MysqlHosts(url)
        self._where: dict[str, Any] = {}
        self._is_lost = False
        """With several hosts: the one that it works on has failed, and all are to be looked at before the next call."""
        self._moving = asyncio.Lock()
        self._greeted: WeakSet[Any] = WeakSet()
        """Connections that lead to a store that has what is remembered of it."""
        self._bulk: dict[tuple[Any, ...], str] = {}

    async def open(self) -> None:
        try:
            self._where = await self._hosts.find()
            self._pool, self._spare = await self._connect_pools(self._where)
        except (OSError, mysql_errors.MySQLError) as error:
            raise self._hosts.unreachable(error) or _translated(error) from error
        version = await self.fetch("select version()")
        self._schema = "mariadb" if "mariadb" in version[0][0].lower() else "mysql"
        if any(value == "ON" for _, value in await self.fetch("show global variables like 'wsrep_on'")):
            self._schema_lock = SchemaLock()
            self.dialect = dataclasses.replace(self.dialect, locks_end_at_server=True)
        await self._bring_up_to_date()
        await self._learn_types()

    async def see_all_commits(self) -> None:
        """On Galera: wait until this server has applied everything that any server has committed so far."""
        if self.dialect.locks_end_at_server:
            await self.fetch("set statement wsrep_sync_wait = 1 for select 1")

    async def _connect_pools(self, where: Mapping[str, Any]) -> tuple[Any, Any]:
        options = {**where, **_SESSION, "init_command": _INIT + _LIMITS}
        pool = await asyncmy.create_pool(**options, minsize=1, maxsize=self._connections)
        return pool, await asyncmy.create_pool(**options, minsize=min(1, self._connections - 1), maxsize=2)

    async def _move(self) -> None:
        """Connect to the host that takes writes by now. Calls on the host before end by themselves, or with an error."""
        async with self._moving:
            if not self._is_lost or self._pool is None:
                return
            where = await self._hosts.find(is_lost=True)
            if where != self._where:
                made, before = await self._connect_pools(where), (self._pool, self._spare)
                self._where, (self._pool, self._spare) = where, made
                for pool in before:
                    _keep_until_done(_end(pool))
            self._is_lost = False

    async def close(self) -> None:
        pools, self._pool, self._spare = (self._pool, self._spare), None, None
        for pool in pools:
            if pool is not None:
                pool.close()
                await pool.wait_closed()

    async def _learn_types(self) -> None:
        self._bulk.clear()
        await super()._learn_types()

    async def _change_schema(self, work: Callable[[TaskView], Work[T]]) -> T:
        """On a connection of its own: neither a statement nor a wait for a lock has a limit there.

        A change of a table commits what was written before it. What is written between two of them is one transaction.
        """
        session = _SESSION | {"autocommit": False}

        async def once() -> T:
            beating = None if self._schema_lock is None else asyncio.create_task(self._beat(self._schema_lock))
            try:
                if self._is_lost:
                    await self._move()
                connection = await asyncmy.connect(**self._where, **session, init_command=_INIT + _WITHOUT_LIMIT)
                try:
                    result = await drive(
                        lambda: work(TaskView(self._cache)), functools.partial(self._do, connection.cursor())
                    )
                    await connection.commit()
                    return result
                finally:
                    connection.close()
            except (OSError, mysql_errors.MySQLError) as error:
                raise _translated(error) from error
            finally:
                if beating is not None:
                    beating.cancel()
                    await asyncio.wait({beating})

        return await until_it_holds(once)

    async def _beat(self, lock: SchemaLock) -> None:
        """While the lock is held, its row changes: see `migrations.table_lock`."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if lock.is_held:
                with contextlib.suppress(StoreUnavailable):  # a beat that is late costs nothing
                    await self._write(lambda _: lock.beat())

    async def _wait_for_schema(self) -> None:
        lock = self._schema_lock
        await asyncio.sleep(0.1 if lock is None else LOOK_SECONDS)
        if lock is not None:
            with contextlib.suppress(StoreUnavailable, Conflict):  # nothing is concluded from a look that failed
                lock.note(await self._write(lambda _: lock.look()))

    async def _write(self, work: Callable[[TaskView], Work[T]], *, spare: bool = False) -> T:
        blocker = self._lock_waits.one()

        async def once() -> T:
            async with self._cursor(blocker, spare=spare) as (connection, do):
                view = TaskView(self._cache)
                await connection.begin()
                try:
                    result = await drive(lambda: work(view), do)
                except Exception:
                    await _quietly(connection.rollback())
                    raise
                await connection.commit()
                view.keep()
                return result

        return await until_it_holds(once, blocker, self._wait_at_most)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Callable[[Callable[[], Work[Any]]], Awaitable[Any]]]:
        try:
            connection = await asyncmy.connect(**self._where, **_SESSION, init_command=_INIT + _WITHOUT_LIMIT)
            try:
                cursor = connection.cursor()
                await cursor.execute(
                    "set session /*M!100300 idle_transaction_timeout = 0 */ /*!80000 autocommit = 1 */"
                )
                await cursor.execute("set transaction isolation level repeatable read")
                await cursor.execute("start transaction with consistent snapshot, read only")
                yield lambda work: drive(work, functools.partial(self._do, cursor))
            finally:
                connection.close()
        except (OSError, mysql_errors.MySQLError) as error:
            raise _translated(error) from error

    async def publish_within(
        self, connection: Any, publications: Sequence[Publication], topics: Sequence[str] = ()
    ) -> list[PublishResult]:
        del topics  # the server has nothing that signals with a commit

        def work() -> Work[list[PublishResult]]:
            yield from caller_transaction.check_installation(self._cache.installation)
            return (yield from publishing.publish(self.dialect, TaskView(self._cache), publications))

        theirs = caller_transaction.on_mysql(connection)
        isolation = "tx_isolation" if self._schema == "mariadb" else "transaction_isolation"
        for left in reversed(range(caller_transaction.TRIES)):
            try:
                async with (
                    caller_transaction.mysql_session(theirs, _SQL_MODE, isolation) as cursor,
                    caller_transaction.mysql_savepoint(cursor),
                ):
                    return await drive(work, functools.partial(self._do, cursor))
            except Exception as error:
                if not left or not isinstance(_translated(error), Conflict):
                    raise _of_the_caller(error) from None
        raise AssertionError("unreachable")

    async def _read(self, work: Callable[[], Work[T]]) -> T:
        blocker = self._lock_waits.one()

        async def once() -> T:
            async with self._cursor(blocker) as (_, do):
                return await drive(work, do)

        return await until_it_holds(once, blocker, self._wait_at_most)

    async def _blocker(self, thread: int, before: str) -> str:
        pool = self._spare
        if pool is None:
            return before
        async with self._looking, asyncio.timeout(LOCK_SECONDS), _connection(pool) as connection:
            cursor = connection.cursor()

            async def ask(sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
                try:
                    await cursor.execute(sql, values)
                    rows: Sequence[Sequence[Any]] = await cursor.fetchall()
                except asyncio.CancelledError:
                    connection.close()  # its answer may still be on the way
                    raise
                return rows

            return await blocking.on_mysql(ask, thread, self._schema, before)

    @asynccontextmanager
    async def _cursor(
        self, blocker: blocking.Blocker, *, spare: bool = False
    ) -> AsyncIterator[tuple[Any, Callable[[Statement], Awaitable[Any]]]]:
        """A connection of the pool and what sends it a statement, for as long as the server answers each in time."""
        try:
            if self._is_lost:
                await self._move()
            pool = self._spare if spare else self._pool
            if pool is None:
                raise StoreUnavailable("the store is closed")
            async with _connection(pool) as connection:
                thread = connection.thread_id()
                try:
                    with blocker.looked_for(lambda before: self._blocker(thread, before)):
                        async with asyncio.timeout(_PATIENCE) as limit:
                            cursor, now = connection.cursor(), asyncio.get_running_loop().time

                            async def do(statement: Statement) -> Any:
                                limit.reschedule(now() + _PATIENCE)
                                return await self._do(cursor, statement)

                            if not spare and self._pulse is not None and connection not in self._greeted:
                                await connection.begin()
                                try:
                                    await self._look_back(do)
                                except Exception:
                                    await _quietly(connection.rollback())
                                    raise
                                await connection.commit()
                            self._greeted.add(connection)
                            yield connection, do
                except (asyncio.CancelledError, TimeoutError):
                    # Its answer may still be on the way: no other call may read it.
                    await _discard(connection)
                    raise
                except mysql_errors.MySQLError as error:
                    if isinstance(_translated(error), StoreUnavailable):
                        await _discard(connection)
                    raise
        except (OSError, mysql_errors.MySQLError) as error:
            translated = _translated(error)
            self._is_lost |= self._hosts.are_several and isinstance(translated, StoreUnavailable)
            raise translated from error

    async def _do(self, cursor: Any, statement: Statement) -> Any:
        match statement:
            case Fetch(sql, params):
                text, names = self._parse(sql)
                if not _nothing(params, names):
                    await cursor.execute(text, _values(params, names))
                    return await cursor.fetchall()
                return []
            case Execute(sql, params):
                text, names = self._parse(sql)
                if _nothing(params, names):
                    return 0
                return await cursor.execute(text, _values(params, names))
            case InsertMany(table, columns, rows):
                return await self._insert(cursor, table, columns, rows)
            case InsertEvents(rows):
                return await self._insert_events(cursor, rows)
            case WriteAll(writes):
                return sum([await self._do(cursor, each) for each in writes])
            case UpdateMany(table, key, columns, rows, add):
                return await self._update(cursor, table, key, columns, rows, add=add)
            case Now():
                return await self._now(cursor)
            case NewIds(count):
                return await self._ids.take(count)
            case NewNumbers(counter, count):
                return await self._new_numbers(counter, count)

    async def _now(self, cursor: Any) -> Instant:
        if self._clock is not None:
            return self._clock.now()
        await cursor.execute(f"select {NOW}")
        return Instant((await cursor.fetchone())[0])

    async def _insert(self, cursor: Any, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> int:
        marks = f"({', '.join(['%s'] * len(columns))})"
        changed = 0
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            sql = (
                f"insert into {self._names.table(table)} ({', '.join(columns)}) values {', '.join([marks] * len(part))}"
            )
            changed += await cursor.execute(sql, [value for row in part for value in row])
        return changed

    async def _insert_events(self, cursor: Any, rows: Sequence[tuple[int, str, str]]) -> int:
        at = NOW if self._clock is None else str(int(self._clock.now()))
        marks = ", ".join([f"(%s, {at}, %s, %s)"] * len(rows))
        sql = f"insert into {self._names.table('events')} (id, at, type, data) values {marks}"
        return int(await cursor.execute(sql, [value for row in rows for value in row]))

    async def _update(
        self, cursor: Any, table: str, key: str, columns: tuple[str, ...], rows: Sequence[Sequence[Any]], *, add: bool
    ) -> int:
        if len(rows) == 1:
            sets = ", ".join(f"{column} = {f'{column} + ' if add else ''}%s" for column in columns)
            sql = f"update {self._names.table(table)} set {sets} where {key} = %s"
            return int(await cursor.execute(sql, [*rows[0][1:], rows[0][0]]))
        name = (table, key, columns, add)
        sql = self._bulk.get(name) or self._bulk.setdefault(name, self._joined(table, key, columns, add=add))
        changed = 0
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            changed += await cursor.execute(sql, [to_json(rows[start : start + _ROWS_AT_ONCE])])
        return changed

    def _joined(self, table: str, key: str, columns: tuple[str, ...], *, add: bool) -> str:
        types = self._types[table]
        shape = ", ".join(f"c{n} {_json_type(types[column])} path '$[{n}]'" for n, column in enumerate((key, *columns)))
        sets = ", ".join(f"t.{column} = {f't.{column} + ' if add else ''}v.c{n}" for n, column in enumerate(columns, 1))
        # By the key of each row, which is the primary one. A small table would be read from end to end otherwise, and the
        # update would wait for rows of others on the way.
        joined = f"straight_join {self._names.table(table)} t force index (primary) on t.{key} = v.c0"
        return f"update json_table(%s, '$[*]' columns ({shape})) v {joined} set {sets}"

    async def _reserve(self, counter: str, size: int) -> int:
        return await self._write(lambda _: reserve(counter, size), spare=True)


def _json_type(type_: str) -> str:
    """A text column would get the character set of the database, which may not hold every text."""
    if "int" in type_:
        return type_.partition("(")[0]
    return f"{type_} character set utf8mb4" if "char" in type_ or "text" in type_ else type_


_TLS_MODES = ("DISABLED", "VERIFY_CA", "VERIFY_IDENTITY")
"""PREFERRED and REQUIRED are left out: they encrypt for any server that answers, also for one that stands between."""


def _address(url: str) -> dict[str, Any]:
    """How the driver connects, whichever host it is."""
    parts = parse_server_address(url)
    return {
        "user": parts.user or "root",
        "password": parts.password,
        "db": parts.database,
        "ssl": _tls_context(parts.parameters),
    }


def hosts_of(url: str) -> tuple[Host, ...]:
    named = parse_server_address(url).hosts
    return tuple((host or "127.0.0.1", port) for host, port in named) or (("127.0.0.1", 3306),)


class MysqlHosts:
    """Knows the host that takes writes (`stores.hosts`)."""

    def __init__(self, url: str) -> None:
        self._where = _address(url)
        self._finder = HostFinder(hosts_of(url), self._look)

    @property
    def are_several(self) -> bool:
        return self._finder.are_several

    def unreachable(self, error: Exception) -> StoreUnavailable | None:
        """The error of a first connection with the host's name; None where the host has answered."""
        if not isinstance(error, OSError) and _code_of(error) != _NO_CONNECTION:
            return None
        return StoreUnavailable(f"MySQL: {unreachable(self._finder.hosts, _said(error))}")

    async def find(self, *, is_lost: bool = False) -> dict[str, Any]:
        """How the driver connects to it. `is_lost`: the one until now is to be looked at again, with all the others."""
        finder = self._finder
        if not finder.are_several:
            (host, port) = finder.hosts[0]
        else:
            (host, port) = await finder.find(finder.current if is_lost else None)
        return {**self._where, "host": host, "port": port}

    async def _look(self, host: Host) -> HostState:
        session = {**_SESSION, "connect_timeout": int(HOST_SECONDS)}
        connection = await asyncmy.connect(**self._where, host=host[0], port=host[1], **session)
        try:
            return await _state_of(connection.cursor(), host)
        finally:
            connection.close()


async def _state_of(cursor: Any, host: Host) -> HostState:
    await cursor.execute(
        "show global variables where variable_name in"
        " ('read_only', 'wsrep_on', 'group_replication_group_name', 'hostname', 'port', 'datadir')"
    )
    said = {str(name).lower(): str(value) for name, value in await cursor.fetchall()}
    cluster, problem = said.get("group_replication_group_name", ""), ""
    if said.get("read_only", "OFF") not in ("OFF", "0"):
        problem = "is read-only"
    if said.get("wsrep_on") == "ON":
        await cursor.execute("show global status where variable_name in ('wsrep_ready', 'wsrep_cluster_state_uuid')")
        galera = {str(name).lower(): str(value) for name, value in await cursor.fetchall()}
        cluster = galera.get("wsrep_cluster_state_uuid", "")
        problem = problem or ("" if galera.get("wsrep_ready") == "ON" else "is not ready: its cluster has no quorum")
    server = "/".join(said.get(name, "") for name in ("hostname", "port", "datadir"))
    return HostState(host, problem, 0, server, cluster, shares_writes=bool(cluster))


async def connect(url: str) -> Any:
    """A connection beside the pools of a store; each statement commits by itself. Raises what the driver raises."""
    return await asyncmy.connect(**await MysqlHosts(url).find(), **_SESSION, init_command=_INIT + _LIMITS)


def _tls_context(asked: Mapping[str, str]) -> ssl.SSLContext | None:
    """`ssl-mode`, `ssl-ca`, `ssl-cert` and `ssl-key` of the store's address, as MySQL's own client has them. None: no TLS."""
    authority, certificate, key = (asked.get(name) for name in ("ssl-ca", "ssl-cert", "ssl-key"))
    mode = (asked.get("ssl-mode") or ("VERIFY_IDENTITY" if authority or certificate else "DISABLED")).upper()
    if mode not in _TLS_MODES:
        raise SettingsError.field("store.url", f"has ssl-mode {mode!r}; takes {', '.join(_TLS_MODES)}")
    if mode == "DISABLED" and (authority or certificate or key):
        raise SettingsError.field(
            "store.url", "has ssl-mode 'DISABLED' together with other TLS parameters; keep one of them"
        )
    if bool(key) and not certificate:
        raise SettingsError.field("store.url", "has ssl-key without ssl-cert")
    if mode == "DISABLED":
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError.field("store.url", f"has ssl-ca {authority!r}, which cannot be read: {error}") from None
    if certificate:
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError.field("store.url", f"has ssl-cert or ssl-key that cannot be read: {error}") from None
    context.check_hostname = mode == "VERIFY_IDENTITY"
    return context


def _values(params: Params, names: Sequence[str]) -> list[Any] | None:
    return [params[name] for name in names] if names else None


def _nothing(params: Params, names: Sequence[str]) -> bool:
    """An empty list is in nothing, and `in ()` is no SQL."""
    return any(params[name] == () for name in names)


_under_way: set[asyncio.Task[None]] = set()


def _keep_until_done(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)


async def _end(pool: Any) -> None:
    """Close the connections of a pool whose server is lost, also those in use; without a wait for the server."""
    pool.terminate()
    with contextlib.suppress(Exception):  # the server is gone, and with it the connections
        async with asyncio.timeout(_PATIENCE):
            await pool.clear()


@asynccontextmanager
async def _connection(pool: Any) -> AsyncIterator[Any]:
    """A connection of the pool; TimeoutError if there is none in time.

    On Python 3.11 `asyncio.wait_for`, by which the driver connects, may lose a cancellation. The call would wait for ever then,
    and with it everybody who needs the pool: so the pool is asked in a task of its own, which is cancelled until it ends.
    """
    acquiring = asyncio.create_task(_acquired(pool))
    try:
        await asyncio.wait({acquiring}, timeout=WAIT_AT_MOST)
        if not acquiring.done():
            raise TimeoutError
    except (asyncio.CancelledError, TimeoutError):
        _keep_until_done(_return(pool, acquiring))
        raise
    connection = acquiring.result()
    try:
        yield connection
    finally:
        pool.release(connection)


async def _acquired(pool: Any) -> Any:
    return await pool.acquire()


async def _return(pool: Any, acquiring: asyncio.Task[Any]) -> None:
    """Cancel `acquiring` until it ends, and release the connection that it got all the same."""
    while not acquiring.done():
        acquiring.cancel()
        await asyncio.wait({acquiring}, timeout=1.0)
    if not acquiring.cancelled() and acquiring.exception() is None:
        pool.release(acquiring.result())


async def _discard(connection: Any) -> None:
    """Close it for good. After `close` alone the pool takes it for open, and gives it to the next caller, who fails."""
    connection.close()
    await connection.ensure_closed()  # it is closed: this says so to the pool, and waits for nothing


async def _quietly(closing: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            await closing
        except (OSError, mysql_errors.MySQLError):
            return  # the connection is gone, and with it the transaction


def _code_of(error: Exception) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _said(error: Exception) -> str:
    """What the server or the driver says, with its number at the end: the driver's own text is a tuple."""
    code = _code_of(error)
    return f"{error.args[1]} ({code})" if code and len(error.args) > 1 else str(error) or type(error).__name__


def _of_the_caller(error: Exception) -> Exception:
    """What went wrong in a transaction of the caller's."""
    code = _code_of(error)
    if code == _NO_TABLE:
        return InvalidArgument.field(
            caller_transaction.FIELD, f"is a connection to another database than the store's: {_said(error)}"
        )
    if code in _AGAIN:
        return StoreUnavailable(f"MySQL: {_said(error)}: the server has taken back the whole transaction; do it again")
    return _translated(error)


def _translated(error: Exception) -> Exception:
    code = _code_of(error)
    if code == _LOCK_TIMEOUT:
        return LockTimeout(f"MySQL: {_said(error)}")
    if code in _AGAIN:
        return TryAgain(str(error))
    if code == _DUPLICATE:
        return Conflict(str(error))
    if isinstance(error, mysql_errors.DataError | mysql_errors.IntegrityError) or code in _OF_THE_CALL:
        return error
    if code == _NO_DATABASE:
        way = "name another at the end of store.url, or make it first: CREATE DATABASE NAME"
        return StoreUnavailable(f"MySQL: {_said(error)}; {way}")
    if code in _WAYS_IN:
        return StoreUnavailable(f"MySQL: {_said(error)}; {_WAYS_IN[code]}")
    if code in _READ_ONLY:
        return StoreUnavailable(f"MySQL: {_said(error)}; {READ_ONLY}")
    if isinstance(error, OSError | mysql_errors.MySQLError):
        return change_capture.refusal(error) or StoreUnavailable(f"MySQL: {_said(error)}")
    return error
