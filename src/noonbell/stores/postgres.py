"""PostgreSQL, over asyncpg.

Rows change by sets: a batch is one statement over `unnest`, never one statement a row. Connections plan every statement
anew (`plan_cache_mode`): a plan made while a queue was empty would be kept and cost several times as much when it is
full. Some connections keep plans, for statements that have one plan only. What follows a claim is found by primary key,
with state and token as plain filters.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import asyncpg
import msgspec

from noonbell.clock import Clock, Instant
from noonbell.errors import NoonbellError, StoreUnavailable
from noonbell.model.access import AuditAction, AuditEntry, Head
from noonbell.model.request import Claimed, ClaimRequest, NewTask, Publication, PublishResult
from noonbell.model.run import RunId, Settlement, SettleResult, key_of_asked
from noonbell.model.task import Task, TaskId
from noonbell.ports import Sign
from noonbell.stores import blocking, caller_transaction, hosts, migrations
from noonbell.stores import postgres_fast as hot
from noonbell.stores import postgres_steps as steps
from noonbell.stores.postgres_arrays import NOW, ArrayStatements, Shape, cut
from noonbell.stores.postgres_history import PartitionedHistory
from noonbell.stores.postgres_partitions import ROUGH_COUNT
from noonbell.stores.postgres_pool import (
    KEEPING_PLANS,
    LOCAL,
    RESERVING,
    SETTINGS,
    WITHOUT_LIMIT,
    ConnectionPool,
    PostgresHosts,
    as_it_is,
    way_in,
)
from noonbell.stores.sql import access, change_capture, claim, fast_path, publishing, settle
from noonbell.stores.sql import tasks as task_changes
from noonbell.stores.sql.dialect import Dialect, numbered, on_conflict, update_from
from noonbell.stores.sql.ids import IDS, RESERVE, floor_at, with_unique
from noonbell.stores.sql.rows import TaskView, known_tasks
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
    inserts_of,
    until_it_holds,
)
from noonbell.stores.wakeups import channel_of

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_INSERT_EVENTS = f"""insert into events (id, at, type, data)
    select id, coalesce($4::bigint, {NOW}), type, data
    from unnest($1::bigint[], $2::text[], $3::text[]) as told(id, type, data)"""

_EVENT_COLUMNS = ("id", "type", "data")
# $1 names, $2 external ids
_ALL_ARE_FREE = """select not exists (select from tasks where live_name = any($1::text[]))
    and not exists (select from tasks where live_external_id = any($2::text[]))"""
# $1 how many, $2 now or null
_NEW_TASK_IDS = f"""update counters set value = value + $1 where name = '{task_changes.COUNTER}'
    returning value, coalesce($2::bigint, {NOW})"""
# $1 now or null
_AUDIT_HEAD = f"""select c.value, coalesce(a.hash, ''), coalesce($1::bigint, {NOW}) from counters c
    left join audit a on a.id = c.value where c.name = 'audit'"""
# $1 the number of the last entry that was seen, $2 that of the last new one, $3 the hash of the first
_AUDIT_FOLLOWS = """update counters set value = $2 where name = 'audit' and value = $1
    and coalesce((select hash from audit where id = $1), '') = $3 returning true"""
_AUDIT_TRIES = 3
_NUMBERS_AHEAD = 16
"""Of tasks: a node that ends leaves that many unused, at most."""

POSTGRES = Dialect(
    name="postgres",
    lock=" for update",
    skip_locked=" for update skip locked",
    skip_locked_l=" for update of l skip locked",
    upsert=on_conflict,
    isin=lambda column, parameter, type_: f"{column} = any(:{parameter}::{type_}[])",
    pack=list,
    call_has_label="i.overrides::json -> 'call' -> 'labels' ->> :label::text = :label_value",
    objects=(
        "select c.relname::text, case when c.relkind in ('r', 'p') then 'table' when c.relkind in ('i', 'I') then 'index'"
        " when c.relkind in ('v', 'm') then 'view' when c.relkind = 'S' then 'sequence' else 'relation' end, t.relname::text"
        " from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " left join pg_index i on i.indexrelid = c.oid left join pg_class t on t.oid = i.indrelid"
        " where n.nspname = current_schema() and c.relname = any(:names::text[])"
    ),
    columns=(
        "select c.relname::text, a.attname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped"
        " where n.nspname = current_schema() and c.relname = any(:names::text[])"
    ),
    types=(
        "select table_name::text, column_name::text, udt_name::text from information_schema.columns"
        " where table_schema = current_schema()"
    ),
    has_index=None,
    rough_count=ROUGH_COUNT,
    rows_move=True,
    alone=("select pg_try_advisory_xact_lock({number})", "select 1"),
    from_live=update_from,
    parse=numbered,
)

_KEEPS_PLANS_FROM = 4
"""Connections: with fewer, none is set apart; of this many and more, half."""
_FIRST_CALLS = 3
"""Calls of the fast path that take an ordinary connection which is open: a script may never make another one."""
_PLANS_KEPT = 30.0
"""Seconds. Which of two indexes a plan for a table of a few rows takes is left to chance: it is not kept for long."""
_PATIENCE = 10.0
"""Seconds that a statement may take, and that a server which holds still can keep a caller waiting."""
_STARTED = "extract(epoch from pg_postmaster_start_time())::text"
"""Tells one start of a server from another; an epoch, because the text of a time depends on the session's time zone."""
_REMEMBERED = 2.0
"""Seconds for which claims expect more behind gates, or more steps, after they found some."""
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_AWAY = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # A database that is closed for maintenance, and a server that has become a standby.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.ReadOnlySQLTransactionError,
)
_OF_THE_CALL = ("21", "22", "23", "54", "42601")
"""How SQLSTATE begins where a statement or its values are wrong. Every other error is the server's: no call would do."""


class PostgresStore(PartitionedHistory):
    dialect = POSTGRES

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        connections: int = 8,
        schema: str | None = None,
        table_prefix: str = "",
        new: bool = False,
        pooler: str = "none",
    ) -> None:
        """`pooler`: "transaction" where the address is that of one. A session is another one with each transaction
        there: nothing is set for it, no statement is prepared in it by name, and every call is a transaction, with
        settings of its own.
        """
        super().__init__(clock, connections, schema=schema, table_prefix=table_prefix, new=new)
        self._url = url
        self._hosts = PostgresHosts(url)
        self._is_pooled = pooler == "transaction"
        self._parse = functools.lru_cache(maxsize=1024)(lambda sql: numbered(self._names.apply(sql)))
        self._text = self._names.apply
        """A statement that is written for PostgreSQL alone, as it has to be sent."""
        self._pool: ConnectionPool | None
        self._spare: ConnectionPool | None
        self._bulk = ArrayStatements({})
        self._gates_until = 0.0
        """Until then (monotonic), claims look behind the gates at once: there was something not long ago."""
        self._steps_until = 0.0
        """The same for steps of flows and runs with a key."""
        self._keeping_plans: ConnectionPool | None = None
        """Connections on which PostgreSQL plans a statement once."""
        self._keeping_free = 0
        self._first_calls = _FIRST_CALLS
        """How many calls of the fast path are still to go before connections are opened that keep plans."""
        self._has_reserved = False
        """Ids were asked for before."""
        self._audit_head: Head | None = None
        """The last entry of the audit log that this node wrote."""
        self._server: str | None = None
        """Behind a pooler: when the server started. Another one may take its place, and no connection ends."""
        self._planned_at: dict[int, float] = {}
        """When (monotonic) the plans of these connections, by the server's process, were last thrown away."""

    async def open(self) -> None:
        try:
            keeps = self._connections >= _KEEPS_PLANS_FROM and not self._is_pooled
            keeping = self._connections // 2 if keeps else 0
            self._pool = await self._connect(self._connections - keeping, True)
            self._keeping_plans = await self._connect(keeping, True, **KEEPING_PLANS) if keeping else None
            self._keeping_free = keeping
            self._spare = await self._connect(2, **RESERVING)  # it gives ids to who looks back, too
        except (*_AWAY, asyncpg.PostgresError) as error:
            raise _translated(error) from error
        await self._bring_up_to_date()
        await self._learn_types()

    async def _greet(self, connection: Connection) -> None:
        if self._pulse is not None:
            server = None
            async with connection.transaction():
                await self._set_local(connection)
                await self._look_back(functools.partial(self._do, connection))
                if self._is_pooled:
                    server = await connection.fetchval(f"select {_STARTED}")
            self._server = server

    async def _connect(self, connections: int, greets: bool = False, /, **settings: str) -> ConnectionPool:
        pool: asyncpg.Pool[asyncpg.Record] = await asyncpg.create_pool(
            self._url,
            connect=self._hosts.connect,
            min_size=0,  # with a floor, asyncpg logs a traceback each second while the server is away
            max_size=connections,
            **self._session(settings),
            command_timeout=_PATIENCE,
            timeout=_PATIENCE,
            init=self._greet if greets else None,
            reset=as_it_is,
        )
        return ConnectionPool(pool)

    def _session(self, settings: Mapping[str, str]) -> dict[str, Any]:
        if self._is_pooled:
            return {"server_settings": {"application_name": blocking.OWN}, "statement_cache_size": 0}
        return {"server_settings": {**SETTINGS, **settings}, "statement_cache_size": 512}

    async def _set_local(self, connection: Connection, settings: Mapping[str, str] = LOCAL) -> None:
        """Behind a pooler: what a session has elsewhere, for the transaction that has begun."""
        if not self._is_pooled:
            return
        sql = "".join(f"set local {name} = '{value}';" for name, value in settings.items())
        if self._server is not None:
            sql += f"select 1 / ({_STARTED} = '{self._server}')::int;"
        try:
            await connection.execute(sql)
        except asyncpg.DivisionByZeroError:
            self._server = None
            raise TryAgain("another server has taken the place of the one behind the pooler") from None

    async def close(self) -> None:
        pools = self._pool, self._spare, self._keeping_plans
        self._pool = self._spare = self._keeping_plans = None
        for pool in pools:
            if pool is not None:
                await pool.close()

    async def migrate(
        self,
        to: int = migrations.LATEST,
        say: Callable[[str], None] | None = None,
        move: Callable[[float], None] | None = None,
    ) -> list[int]:
        taken = await super().migrate(to, say, move)
        for pool in (self._pool, self._keeping_plans):
            if pool is not None:
                await pool.expire_connections()  # prepared statements remember the columns of tables that are gone
        return taken

    # The fast path, where it applies: see stores.postgres_fast

    async def _publish(self, publications: Sequence[Publication]) -> list[PublishResult]:
        tasks = fast_path.plain_tasks(publications, self._cache)
        if tasks is None:
            return await super()._publish(publications)
        ids = await self._ids.take(len(publications) + 1)
        common = ids[0], self._told_now(), key_of_asked(self._cache.installation)
        if len(publications) == 1:
            (publication,), (known,) = publications, tasks.values()
            sql, arguments = hot.PUBLISH_ONE, hot.publish_one_arguments(ids[1], publication, known, *common)
        else:
            sql, arguments = hot.PUBLISH, hot.publish_arguments(ids[1], publications, tasks, *common)
        if await self._with_kept_plan(lambda connection: connection.fetchval(self._text(sql), *arguments)):
            return hot.published(ids[1:])
        return await super()._publish(publications)  # a task has changed since this node last saw it

    async def _create_each(self, new: Sequence[NewTask]) -> list[Task | NoonbellError]:
        if not any(
            each.system or each.skip_next or each.spec.after or each.spec.calendar or each.spec.cancel_url
            for each in new
        ):
            made = await self._create_at_once(new)
            if made is not None:
                return made
        return await super()._create_each(new)

    async def _create_at_once(self, new: Sequence[NewTask]) -> list[Task | NoonbellError] | None:
        """Create the tasks in one statement. None: one cannot have its name or external id; nothing is written."""
        numbers, now = await self._new_tasks_numbers(len(new))
        tasks = [task_changes.new_task(each, TaskId(id_), now) for each, id_ in zip(new, numbers, strict=True)]
        inserts = await drive(lambda: inserts_of(task_changes.insert_new(tasks, now)), self._new_ids)
        names = [each.spec.name for each in new]
        external_ids = [each.spec.external_id for each in new if each.spec.external_id is not None]
        sql, values = self._write_all(inserts, _ALL_ARE_FREE, (names, external_ids))
        try:
            is_done = await self._with_kept_plan(lambda connection: connection.fetchval(sql, *values))
        except Conflict:
            return None  # a name or, in a store that went back, a number is taken: none of these is tried again
        if not is_done:
            self._unused += numbers
            return None
        view = TaskView(self._cache)
        for task in tasks:
            view.put(task)
        view.keep()
        return [*tasks]

    async def _new_tasks_numbers(self, count: int) -> tuple[list[int], Instant]:
        """And the time. Where callers come together, some numbers more: those who come next need no trip for theirs."""
        kept, now = self._kept_numbers(count), self._recent_now()
        if len(kept) == count and now is not None:
            return kept, now
        missing = count - len(kept)
        ahead = _NUMBERS_AHEAD if missing and 1 < count <= _NUMBERS_AHEAD else 0

        async def reserve(connection: Connection) -> Any:
            return await connection.fetchrow(self._text(_NEW_TASK_IDS), missing + ahead, self._told_now())

        last, now = await self._with_connection(reserve, spare=True)
        first = last - missing - ahead + 1
        self._unused += range(first + missing, last + 1)
        return [*kept, *range(first, first + missing)], self._seen_now(Instant(now))

    async def _new_ids(self, statement: Statement) -> range:
        if not isinstance(statement, NewIds):
            raise TypeError(f"{statement} asks for more than ids")
        return await self._ids.take(statement.count)

    async def _write_audit(self, deeds: Sequence[AuditAction], sign: Sign) -> list[AuditEntry]:
        """The head is the last entry that this node wrote, or is read, without a lock. What is appended says which head it
        follows: where another node was faster, again.
        """

        async def append(connection: Connection) -> list[AuditEntry] | None:
            head, now = self._audit_head, self._recent_now()
            for _ in range(_AUDIT_TRIES):
                if head is None or now is None:
                    found: Any = await connection.fetchrow(self._text(_AUDIT_HEAD), self._told_now())
                    head, now = Head(found[0], found[1]), self._seen_now(Instant(found[2]))
                entries = access.audit_entries_after(head, now, deeds, sign)
                last = Head(entries[-1].id, entries[-1].hash)
                guard = (head.number, last.number, head.hash)
                sql, values = self._write_all([access.insert_audit(entries)], _AUDIT_FOLLOWS, guard)
                if await connection.fetchval(sql, *values):
                    self._audit_head = last
                    return entries
                head = None
            return None

        entries = await self._with_kept_plan(append) if deeds else []
        return await super()._write_audit(deeds, sign) if entries is None else entries

    async def publish_within(
        self, connection: Any, publications: Sequence[Publication], topics: Sequence[str] = ()
    ) -> list[PublishResult]:
        def work() -> Work[list[PublishResult]]:
            yield from caller_transaction.check_installation(self._cache.installation)
            return (yield from publishing.publish(self.dialect, TaskView(self._cache), publications))

        channel, theirs = channel_of(self._names.mark), caller_transaction.on_postgres(connection)
        return await caller_transaction.run_on_postgres(
            theirs, work, functools.partial(self._do, theirs), topics, channel
        )

    async def _claim(self, request: ClaimRequest) -> Claimed:
        if request.max <= 0 or not request.queues:
            return Claimed([])
        if time.monotonic() < self._gates_until:
            return await self._claim_at_gates(request)
        if time.monotonic() < self._steps_until:
            return await self._claim_steps(request)
        event = await self._ids.take(1)
        arguments = self._claim_arguments(request, event[0])
        rows = await self._with_kept_plan(lambda connection: connection.fetch(self._text(hot.CLAIM), *arguments))
        return await self._claimed(rows, request)

    async def _claim_at_gates(self, request: ClaimRequest) -> Claimed:
        event = await self._ids.take(1)
        arguments = self._claim_arguments(request, event[0])
        rows = await self._with_connection(
            lambda connection: connection.fetch(self._text(hot.CLAIM_AT_GATES), *arguments)
        )
        claimed = hot.claimed_at_gates(rows, request, self._cache)
        if claimed is None:
            self._gates_until = 0.0
            return await self._claim_the_long_way(request)
        if any(lease.counted for lease in claimed.leases):
            self._gates_until = time.monotonic() + _REMEMBERED
        return await self._with_payloads(claimed)

    async def _claim_the_long_way(self, request: ClaimRequest) -> Claimed:
        return await self._write_past_conflicts(lambda cache: claim.claim(self.dialect, cache, request))

    async def _claim_steps(self, request: ClaimRequest) -> Claimed:
        now = self._told_now()
        claimed = await self._write_with_kept_plan(lambda cache: steps.claim(self.dialect, cache, request, now))
        if claimed is None:
            return await self._claim_the_long_way(request)
        self._expect_steps(claimed)
        return claimed

    def _expect_steps(self, claimed: Claimed) -> None:
        if any(lease.in_flow or lease.keyed for lease in claimed.leases):
            self._steps_until = time.monotonic() + _REMEMBERED

    def _are_in_lines(self, settlements: Sequence[Settlement]) -> bool:
        """Whether they are for the fast path of steps and of runs with a key."""
        return (
            not self._is_pooled
            and any(settlement.in_flow or settlement.keyed for settlement in settlements)
            and fast_path.all_in_lines(settlements)
            and fast_path.fit_together(settlements)
        )

    async def _settle_steps_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[list[SettleResult], Claimed]:
        now = self._told_now()
        done, made = await self._write_with_kept_plan(
            lambda cache: steps.settle_and_claim(self.dialect, cache, settlements, request, now)
        )
        settled, claimed = await self._answers(settlements, done), made()
        if claimed is None:
            return settled, await self._or_nothing(self._claim_the_long_way(request))
        self._expect_steps(claimed)
        return settled, claimed

    async def _settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        if self._are_in_lines(settlements):
            now = self._told_now()
            done = await self._write_with_kept_plan(lambda cache: steps.settle(self.dialect, cache, settlements, now))
            return await self._answers(settlements, done)
        if not fast_path.all_short(settlements) or not fast_path.fit_together(settlements):
            return await super()._settle(settlements)
        sql = hot.SETTLE if fast_path.all_plain(settlements) else hot.SETTLE_AT_GATES
        events = await self._ids.take(hot.EVENTS_PER_SETTLE)
        arguments = (*hot.settle_arguments(settlements, events[0]), self._told_now())
        rows = await self._with_kept_plan(lambda connection: connection.fetch(self._text(sql), *arguments))
        return await self._answers(settlements, {row[0] for row in rows})

    async def _settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[list[SettleResult], Claimed]:
        if not settlements:
            return [], await self._claim(request)
        is_both = request.max > 0 and request.queues and time.monotonic() >= self._gates_until
        if is_both and self._are_in_lines(settlements):
            return await self._settle_steps_and_claim(settlements, request)
        if not is_both or not fast_path.all_plain(settlements) or not fast_path.fit_together(settlements):
            return await self._settle(settlements), await self._or_nothing(self._claim(request))
        events = await self._ids.take(hot.EVENTS_PER_SETTLE + 1)
        claim = self._claim_arguments(request, events[-1])
        arguments = (*claim, *hot.settle_arguments(settlements, events[0]))
        rows = await self._with_kept_plan(
            lambda connection: connection.fetch(self._text(hot.SETTLE_AND_CLAIM), *arguments)
        )
        are_all, some = rows[0][-2:]
        if are_all:
            settled = [SettleResult.DONE] * len(settlements)
        else:
            settled = await self._answers(settlements, set(some or ()))
        return settled, await self._or_nothing(self._claimed(rows, request))

    async def _or_nothing(self, claim: Awaitable[Claimed]) -> Claimed:
        """The answer to the settlements is returned even if the claim that follows fails: a claim can be repeated."""
        try:
            return await claim
        except StoreUnavailable:
            return Claimed([])

    def _claim_arguments(self, request: ClaimRequest, event: int) -> tuple[Any, ...]:
        types = None if request.job_types is None else list(request.job_types)
        return (list(request.queues), request.max, request.worker_id, self._told_now(), types, event)

    async def _claimed(self, rows: Sequence[asyncpg.Record], request: ClaimRequest) -> Claimed:
        claimed = hot.claimed_from(rows, request, self._cache)
        if claimed is not None:
            return await self._with_payloads(claimed)
        match rows[0][0]:
            case hot.GATED:
                return await self._claim_at_gates(request)
            case hot.CAREFUL if not self._is_pooled:
                return await self._claim_steps(request)
            case _:
                return await self._claim_the_long_way(request)

    async def _with_payloads(self, claimed: Claimed) -> Claimed:
        """Those that come with their task are read where this node does not know the task yet."""
        strangers = [lease.task_id for lease in claimed.leases if lease.payload is hot.MISSING]
        if not strangers:
            return claimed
        tasks = await self._write(lambda cache: known_tasks(self.dialect, cache, strangers))
        leases = [
            msgspec.structs.replace(lease, payload=tasks[lease.task_id].task.spec.payload)
            if lease.payload is hot.MISSING
            else lease
            for lease in claimed.leases
        ]
        return msgspec.structs.replace(claimed, leases=leases)

    async def _answers(self, settlements: Sequence[Settlement], done: set[RunId]) -> list[SettleResult]:
        """What the short way did not settle is asked again the long way, which says and records why."""
        if len(done) == len(settlements):
            return [SettleResult.DONE] * len(settlements)
        rest = [settlement for settlement in settlements if settlement.run_id not in done]
        late = await self._write(lambda cache: settle.settle(self.dialect, cache, rest)) if rest else []
        return fast_path.settle_answers(settlements, done, rest, late)

    def _told_now(self) -> Instant | None:
        return None if self._clock is None else self._clock.now()

    async def _learn_types(self) -> None:
        await super()._learn_types()
        self._bulk = ArrayStatements(self._types)

    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T:
        return await self._with_connection(self._transaction(work), begins=True)

    async def _write_with_kept_plan(self, work: Callable[[TaskView], Work[T]]) -> T:
        """As `_write`, where every statement has one plan only. Not behind a pooler."""
        return await self._with_kept_plan(self._transaction(work))

    def _transaction(self, work: Callable[[TaskView], Work[T]]) -> Callable[[Connection], Awaitable[T]]:
        async def once(connection: Connection) -> T:
            view = TaskView(self._cache)
            transaction = connection.transaction()
            await transaction.start()
            try:
                await self._set_local(connection)
                result = await drive(lambda: work(view), functools.partial(self._do, connection))
            except BaseException as error:
                await _abandon(connection, transaction, error)
                raise
            await transaction.commit()
            view.keep()
            return result

        return once

    async def _change_schema(self, work: Callable[[TaskView], Work[T]]) -> T:
        async def once() -> T:
            async with self._without_limits() as connection, connection.transaction():
                await self._set_local(connection, WITHOUT_LIMIT)
                return await drive(lambda: work(TaskView(self._cache)), functools.partial(self._do, connection))

        return await until_it_holds(once)

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Callable[[Callable[[], Work[Any]]], Awaitable[Any]]]:
        settings = {**WITHOUT_LIMIT, "idle_in_transaction_session_timeout": "0"}
        async with self._without_limits(settings) as link, link.transaction(isolation="repeatable_read", readonly=True):
            await self._set_local(link, settings)
            yield lambda work: drive(work, functools.partial(self._do, link))

    @contextlib.asynccontextmanager
    async def _without_limits(self, settings: Mapping[str, str] = WITHOUT_LIMIT) -> AsyncIterator[Connection]:
        try:
            connection = await self._hosts.connect(**self._session(settings), timeout=_PATIENCE, command_timeout=None)
            try:
                yield connection
            finally:
                await connection.close(timeout=_PATIENCE)
        except (*_AWAY, asyncpg.PostgresError) as error:
            raise _translated(error) from error

    async def _read(self, work: Callable[[], Work[T]]) -> T:
        return await self._with_connection(lambda connection: drive(work, functools.partial(self._do, connection)))

    async def _with_connection(
        self,
        use: Callable[[Connection], Awaitable[T]],
        other: ConnectionPool | None = None,
        *,
        spare: bool = False,
        begins: bool = False,
    ) -> T:
        """Use a connection of the pool, or of the other; again where the database asks for it; its errors in our words.

        `begins`: `use` begins a transaction by itself.
        """
        blocker = self._lock_waits.one()

        async def once() -> T:
            pool = self._spare if spare else other or self._pool
            if pool is None:
                raise StoreUnavailable("the store is closed")
            try:
                connection = await pool.take(WAIT_AT_MOST)
                in_order = False
                try:
                    with blocker.looked_for(lambda before: self._blocker(connection.get_server_pid(), before)):
                        if self._is_pooled and self._server is None and not spare:
                            await self._greet(connection)  # type: ignore[arg-type]
                        if begins or not self._is_pooled:
                            answer = await use(connection)  # type: ignore[arg-type]
                        else:
                            async with connection.transaction():
                                await self._set_local(connection)  # type: ignore[arg-type]
                                answer = await use(connection)  # type: ignore[arg-type]
                    in_order = True
                except (TimeoutError, asyncpg.ReadOnlySQLTransactionError):
                    # Its return to the pool would wait for the server; or the address leads to another one by now.
                    connection.terminate()
                    raise
                finally:
                    await pool.give_back(connection, in_order=in_order)
            except (*_AWAY, asyncpg.PostgresError) as error:
                raise _translated(error) from error
            return answer

        return await until_it_holds(once, blocker, self._wait_at_most)

    async def _with_kept_plan(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """As `_with_connection`, for a statement of the fast path: its plan is kept, if such a connection is free."""
        if self._first_calls > 0 and self._has_idle():
            self._first_calls -= 1
            return await self._with_connection(use)
        if self._keeping_free <= 0:
            return await self._with_connection(use)

        async def planned(connection: Connection) -> T:
            pid, now = connection.get_server_pid(), time.monotonic()
            if now - self._planned_at.setdefault(pid, now) > _PLANS_KEPT:
                self._planned_at[pid] = now
                await connection.execute("discard plans")
            return await use(connection)

        self._keeping_free -= 1
        try:
            return await self._with_connection(planned, self._keeping_plans)
        finally:
            self._keeping_free += 1

    def _has_idle(self) -> bool:
        """Whether an ordinary connection is open and free."""
        return self._pool is not None and self._pool.get_idle_size() > 0

    async def _blocker(self, pid: int, before: str) -> str:
        pool = self._spare
        if pool is None:
            return before
        async with self._looking, pool.acquire(timeout=LOCK_SECONDS) as connection:

            async def ask(sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
                try:
                    return [tuple(row) for row in await connection.fetch(sql, *values)]
                except BaseException:
                    connection.terminate()  # or its return to the pool would wait for the server
                    raise

            return await blocking.on_postgres(ask, pid, before)

    async def _do(self, connection: Connection, statement: Statement) -> Any:
        match statement:
            case Fetch(sql, params):
                text, names = self._parse(sql)
                return await connection.fetch(text, *_values(params, names))
            case Execute(sql, params):
                text, names = self._parse(sql)
                return _changed(await connection.execute(text, *_values(params, names)))
            case InsertMany():
                for table, columns, rows in ((each.table, each.columns, each.rows) for each in with_unique(statement)):
                    different, same, found = cut(columns, rows)
                    await connection.execute(self._text(self._bulk.insert(table, different, same)), *found)
                return len(statement.rows)
            case InsertEvents(rows):
                values = (*zip(*rows, strict=True), self._told_now())
                return _changed(await connection.execute(self._text(_INSERT_EVENTS), *values))
            case WriteAll(writes):
                sql, arguments = self._write_all(writes)
                return await connection.fetchval(sql, *arguments)
            case UpdateMany(table, key, columns, rows, add):
                sql = self._text(self._bulk.update(table, key, columns, add))
                return _changed(await connection.execute(sql, *zip(*rows, strict=True)))
            case Now():
                return self._clock.now() if self._clock is not None else await connection.fetchval(f"select {NOW}")
            case NewIds(count):
                return await self._ids.take(count)
            case NewNumbers(counter, count):
                return await self._new_numbers(counter, count)

    def _write_all(
        self,
        writes: Sequence[InsertMany | InsertEvents | UpdateMany],
        free: str = "select true",
        given: tuple[Any, ...] = (),
    ) -> tuple[str, list[Any]]:
        """The statement, and its values; see `ArrayStatements.write_all`."""
        shapes: list[Shape] = []
        values = list(given)
        unique = [more for each in writes if isinstance(each, InsertMany) for more in with_unique(each)[1:]]
        for each in (*writes, *unique):
            match each:
                case InsertEvents(rows):
                    shapes.append(("events", None, _EVENT_COLUMNS, ()))
                    values += (*zip(*rows, strict=True), self._told_now())
                case InsertMany(table, columns, rows):
                    different, same, found = cut(columns, rows)
                    shapes.append((table, None, different, same))
                    values += found
                case UpdateMany(table, key, columns, rows):
                    if each.add:
                        raise ValueError(f"what is added to {table} is written by itself")
                    different, same, found = cut((key, *columns), rows)
                    shapes.append((table, key, different[1:], same))
                    values += found
        return self._text(self._bulk.write_all(tuple(shapes), free, len(given))), values

    async def _reserve(self, counter: str, size: int) -> int:
        async def reserve(connection: Connection) -> int:
            floor = 0
            if counter == IDS:
                now = self._clock.now() if self._clock is not None else await connection.fetchval(f"select {NOW}")
                floor = floor_at(Instant(now))
            text, names = self._parse(RESERVE + " returning value")
            values = _values({"name": counter, "floor": floor, "size": size}, names)
            return int(await connection.fetchval(text, *values))

        # The first time on a connection that is open, if one is free: it is handed out without a wait.
        is_first, self._has_reserved = not self._has_reserved, True
        return await self._with_connection(reserve, spare=not (is_first and self._has_idle()))


async def _abandon(connection: Connection, transaction: Any, error: BaseException) -> None:
    """Roll back; but do not wait on a connection whose server holds still, nor on one that is gone."""
    if isinstance(error, TimeoutError):
        connection.terminate()
        return
    try:
        async with asyncio.timeout(2):
            await transaction.rollback()
    except (*_AWAY, asyncpg.PostgresError):
        connection.terminate()


def _values(params: Params, names: Sequence[str]) -> list[Any]:
    return [params[name] for name in names]


def _changed(tag: str) -> int:
    """The count at the end of a command tag such as `UPDATE 3`."""
    last = tag.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


_POOLER = (
    asyncpg.DuplicatePreparedStatementError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.ProtocolViolationError,
)
"""What a pooler in the way causes: it knows no setting of a session, or gives the session to others."""


def _translated(error: BaseException) -> Exception:
    if isinstance(error, _POOLER):
        return StoreUnavailable(
            f"PostgreSQL: {error}. A connection pooler such as PgBouncer answers at this address: set store.pooler: transaction,"
            " or name the server itself in store.url"
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        way = "name another at the end of store.url, or make it first: createdb NAME, or CREATE DATABASE NAME"
        return StoreUnavailable(f"PostgreSQL: {error}; {way}")
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return StoreUnavailable(f"PostgreSQL: {error}; {way_in(error)}")
    if isinstance(error, asyncpg.LockNotAvailableError):
        return LockTimeout(f"PostgreSQL: {error}")
    if isinstance(error, _AGAIN):
        return TryAgain(str(error))
    if isinstance(error, asyncpg.UniqueViolationError):
        return Conflict(str(error))
    if isinstance(error, _AWAY):
        more = f"; {hosts.READ_ONLY}" if isinstance(error, asyncpg.ReadOnlySQLTransactionError) else ""
        return StoreUnavailable(f"PostgreSQL: {str(error) or type(error).__name__}{more}")
    if isinstance(error, asyncpg.PostgresError) and not (error.sqlstate or "").startswith(_OF_THE_CALL):
        return change_capture.refusal(error) or StoreUnavailable(f"PostgreSQL: {error}")
    return error if isinstance(error, Exception) else StoreUnavailable(str(error))
