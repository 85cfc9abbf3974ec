"""What PostgreSQL does with history that others need not: it makes partitions ahead, drops those whose time is over, and
builds indexes.

Indexes of large tables on PostgreSQL are built while others write, after the step that asks for them.

    1   the step leaves the index out, and writes `index NAME` into `schema_log`
    2   outside of a transaction, `create index concurrently`; one that was cut off is invalid, and made anew
    3   the entry goes

Of a table in partitions each partition gets its index so, then they are put together. Cut off at any point, the next
look goes on: of the node that took the step, or of the history loop of any other. Until then lists that want the index
take longer. An index that another node is building is left to it: a second build would wait for the first one, and
throw away what it made.

An index that has to be unique is built by its step: what relies on it must not begin without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.model.run import FINAL
from noonbell.stores import postgres_partitions as partitions
from noonbell.stores.postgres_partitions import EVENTS, GROUPS, HISTORY, Part, PartitionedTables
from noonbell.stores.sql import events as event_log
from noonbell.stores.sql import rollups
from noonbell.stores.sql.cleanup import BELONGINGS
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.ids import floor_at, instant_floor
from noonbell.stores.sql.statement import Execute, Fetch, Work
from noonbell.stores.sql.table import observed

if TYPE_CHECKING:
    from noonbell.stores.migrations import SchemaProgress
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from noonbell.stores import migrations
from noonbell.stores.migrations import ownership
from noonbell.stores.postgres_partitions import LOCK, NOT_GIVEN
from noonbell.stores.sql.server_store import ServerStore

logger = logging.getLogger("noonbell.store")

T = TypeVar("T")

KEPT: Final = {HISTORY: 30 * partitions.DAY, EVENTS: 25 * partitions.HOUR}
"""How long rows are kept where the settings are not known: as their defaults say."""
_EVERY: Final = 5.0
"""Seconds between two words about an index."""
_PROGRESS: Final = """select phase, case when blocks_total > 0 then 100 * blocks_done / blocks_total end
    from pg_stat_progress_create_index where pid = $1"""
_IS_VALID: Final = "select indisvalid from pg_index where indexrelid = to_regclass($1)"
_IS_BEING_BUILT: Final = (
    "select exists (select 1 from pg_stat_progress_create_index where index_relid = to_regclass($1))"
)
_PARTS: Final = """select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass($1) order by c.relname"""
_LONGEST: Final = 63
"""Characters of a name."""
_INDEX_TRIES: Final = 60
"""A second apart."""


class ConcurrentIndexes(ServerStore):
    @abstractmethod
    def _without_limits(self) -> AbstractAsyncContextManager[Any]:
        """A connection of its own, without a transaction: neither a statement nor a wait for a lock has a limit there."""

    async def build_indexes(self, say: Callable[[str], None] | None = None) -> list[str]:
        """Build the indexes that steps have left out, and return their names."""
        waiting = await self._read(ownership.indexes_left_out)
        statements = {
            name: sql
            for step in migrations.STEPS
            for sql in step.up("postgres")
            if (name := migrations.index_made(sql)) is not None
        }
        built = []
        for name in waiting:
            if name not in statements:
                continue  # of a step that newer code has taken: it is built by that
            if await self._build(name, self._names.apply(statements[name]), say or logger.info):
                built.append(name)
                await self._is_built(name)
        return built

    async def _is_built(self, name: str) -> None:
        await self._write(lambda _: ownership.index_is_built(name))

    async def _build(self, name: str, sql: str, say: Callable[[str], None]) -> bool:
        """False: another node is at it, or the tables are in use all the time. The next look goes on."""
        bare = self._names.bare(name)
        before, _, rest = sql.partition(" on ")
        on, _, columns = rest.partition(" ")
        async with self._without_limits() as connection, _told(connection, bare, self._progress_of, say):
            parts = await connection.fetch(_PARTS, on)
            if not parts:
                making = f"{before.replace('create index', _CONCURRENTLY)} on {rest}"
                return await _build_valid(connection, self._names.table(name), making)
            whole = self._names.table(name)
            missing = await connection.fetchval(_IS_VALID, whole) is None
            if missing and not await _briefly(connection, f"{before} on only {on} {columns}"):
                return False
            schema = f'"{self._names.schema}".' if self._names.schema is not None else ""
            for part in (row[0] for row in parts):
                own = f"{part}_{name}"[:_LONGEST]
                making = f"{_CONCURRENTLY} {own} on {schema}{part} {columns}"
                if not await _build_valid(connection, f"{schema}{own}", making):
                    return False
                if not await _briefly(connection, f"alter index {whole} attach partition {schema}{own}"):
                    return False
        return True

    async def _progress_of(self, pid: int) -> str:
        def work() -> Work[str]:
            rows = yield Fetch(_PROGRESS.replace("$1", ":pid::int"), {"pid": pid})
            if not rows:
                return ""
            phase, percent = rows[0]
            return phase if percent is None else f"{phase}, {percent} %"

        return await self._read(work)


_CONCURRENTLY: Final = "create index concurrently"


async def _build_valid(connection: Any, name: str, sql: str) -> bool:
    """What was cut off is there, and invalid: it is dropped first. False: it is invalid because another session is
    building it.
    """
    is_valid = await connection.fetchval(_IS_VALID, name)
    if is_valid:
        return True
    if is_valid is False:
        if await connection.fetchval(_IS_BEING_BUILT, name):
            return False
        await connection.execute(f"drop index concurrently {name}")
    await connection.execute(sql)
    return True


async def _briefly(connection: Any, sql: str) -> bool:
    """What waits for all who write, while those who come next wait behind it: by moments. False: there was none in
    which it could be done.
    """
    for _ in range(_INDEX_TRIES):
        try:
            async with connection.transaction():
                await connection.execute(f"set local lock_timeout = '{LOCK}'")
                await connection.execute(sql)
        except Exception as error:
            if getattr(error, "sqlstate", None) not in NOT_GIVEN:
                raise
            await asyncio.sleep(1.0)
        else:
            return True
    return False


@contextlib.asynccontextmanager
async def _told(
    connection: Any, name: str, progress: Callable[[int], Any], say: Callable[[str], None]
) -> AsyncIterator[None]:
    pid = connection.get_server_pid()

    async def tell() -> None:
        while True:
            await asyncio.sleep(_EVERY)
            if said := await progress(pid):
                say(f"index {name}: {said}")

    telling = asyncio.create_task(tell(), name="noonbell index progress")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait({telling})


_TRIES: Final = 60
_FEW_TRIES: Final = 3
"""Where the next call comes soon."""
_PAUSE: Final = 1.0
"""Seconds."""
_AT_ONCE: Final = 5_000
"""Rows that are deleted in one transaction."""


class PartitionedHistory(ConcurrentIndexes):
    async def _take_steps(self, to: int, progress: SchemaProgress, *, forward_only: bool) -> list[int]:
        """A new store, and one with little in it, has partitions from the beginning."""
        taken = await super()._take_steps(to, progress, forward_only=forward_only)
        if any(number > 0 for number in taken) and to >= _STEP:
            for group in GROUPS:
                waiting = await self._look(partitions.look, group)
                if waiting is not None and waiting.is_small:
                    with _put_off():
                        await self._change(partitions.attach, group, await self.now(), KEPT[group])
            await self.build_indexes(progress.step)
        return taken

    @observed()
    async def tend_history(self, seconds: float, events_seconds: float) -> bool:
        changed = bool(await self.build_indexes())
        if await self._look(partitions.is_moving):
            with _put_off():
                for group in GROUPS:
                    await self._change(partitions.promise_again, group, await self.now())
            return changed
        for group, kept in ((HISTORY, seconds), (EVENTS, events_seconds)):
            with _put_off():
                changed = await self._tend(group, max(1, round(kept * SECOND))) or changed
        return changed

    async def _tend(self, group: PartitionedTables, kept: int) -> bool:
        now, name = await self.now(), group.tables[0][0]
        waiting = await self._look(partitions.look, group)
        if waiting is None:
            lacks = await self._look(partitions.lacks_stretch, group, now, kept)
            return lacks and await self._change(partitions.extend, group, now, kept)
        if not waiting.is_small and not waiting.is_checked:
            logger.info("%s gets partitions: all of it is read once, and nothing waits for that", name)
            await self._change(partitions.promise, group, now)
            for table, _ in group.tables:
                await self._change(partitions.validate, table)
        done = await self._change(partitions.attach, group, now, kept)
        if done and not waiting.is_small:
            logger.info("%s is in partitions", name)
        return done

    @observed()
    async def history_cut(self, before: Instant) -> Instant:
        parts = await self._look(partitions.parts_of, HISTORY.tables[0][0])
        return partitions.cut(parts, before, await self.now())

    @observed()
    async def drop_history(self, before: Instant) -> int:
        gone = 0
        if await self._look(partitions.is_moving):
            return gone
        with _put_off():
            for part in await self._look(partitions.parts_of, HISTORY.tables[0][0]):
                if part.high is None or part.high > floor_at(before):
                    break
                found = await self._change(_what_goes, part, before)
                if found is None or (part.low is None and not found.runs):
                    continue  # it stays; or it is as it is to be
                await self._empty_belongings(part)
                if await self._change(_drop, part, before, found):
                    gone += found.runs
        return gone

    async def _empty_belongings(self, part: Part) -> None:
        """What lies in other tables goes first, in small transactions. Cut off here, the next cleaning goes on."""
        partitioned = {table for table, _ in HISTORY.tables}
        for sql in (*_JOINS, *(_BELONGING.format(table=table) for table in BELONGINGS if table not in partitioned)):
            while await self._do_once(_delete, sql, part):
                pass
        after: int | None = part.low or 0
        while after is not None:
            after = await self._do_once(_forget_unique, part, after)

    @observed()
    async def forget_events(self, before: Instant, limit: int) -> int:
        parts = await self._look(partitions.parts_of, EVENTS.tables[0][0])
        for part in [] if await self._look(partitions.is_moving) else parts:
            if part.high is None or instant_floor(part.high) > before:
                break
            if await self._change(_events_may_go, part, before):
                with contextlib.suppress(partitions.PartitionsBusy):
                    await self._change(_drop_events, part, tries=_FEW_TRIES)
        cut = partitions.cut(parts, before, await self.now())
        return await self._do_once(event_log.forget, cut, limit)

    async def _look(self, work: Callable[..., Work[T]], *given: Any) -> T:
        return await self._read(lambda: work(self.dialect, *given))

    async def _do_once(self, work: Callable[..., Work[T]], *given: Any) -> T:
        return await self._write(lambda _: work(self.dialect, *given))

    async def _change(self, work: Callable[..., Work[T]], *given: Any, tries: int | None = None) -> T:
        """In a transaction without a limit of time. Again after a pause, where the tables are in use: others wait behind
        a lock that is waited for. PartitionsBusy: they were each time.
        """
        left = _TRIES if tries is None else tries
        while True:
            try:
                return await self._change_schema(lambda _: work(self.dialect, *given))
            except partitions.PartitionsBusy:
                left -= 1
                if not left:
                    raise
                await asyncio.sleep(_PAUSE * (0.5 + random.random()))  # noqa: S311 - no secret


@contextlib.contextmanager
def _put_off() -> Iterator[None]:
    """Leave partitions as they are where another session uses them for long, as a dump does: the next look tries
    again.
    """
    try:
        yield
    except partitions.PartitionsBusy as busy:
        logger.warning("partitions stay as they are for now, because others use them: %s", busy)


_STEP: Final = 46
_RANGE: Final = "run_id >= :low and run_id < :high"
_BELONGING: Final = (
    f"delete from {{table}} where ctid = any(array(select ctid from {{table}} where {_RANGE} limit {_AT_ONCE}))"
)
_JOINS: Final = (
    (
        "delete from join_runs where ctid = any(array(select r.ctid from joins j join join_runs r on r.join_id = j.id"
        f" where j.run_id >= :low and j.run_id < :high limit {_AT_ONCE}))"
    ),
    _BELONGING.format(table="joins"),
)


def _ends(part: Part) -> dict[str, Any]:
    return {"low": part.low or 0, "high": part.high}


def _delete(q: Dialect, sql: str, part: Part) -> Work[int]:
    del q
    return int((yield Execute(sql, _ends(part))))


def _forget_unique(q: Dialect, part: Part, after: int) -> Work[int | None]:
    """Of the next runs of a partition; the last of them."""
    if not (yield from _is_there(q, part)):
        return None
    name = partitions.named(q, part.name)
    rows = yield Fetch(
        f"select max(id) from (select id from {name} where id > :after order by id limit {_AT_ONCE}) few",
        {"after": after},
    )
    last = rows[0][0]
    if last is not None:
        for table, column in (("run_slots", "slot"), ("live_keys", "live_key")):
            yield Execute(
                f"delete from {table} u using {name} r where r.id > :after and r.id <= :last and r.{column} is not null"
                f" and u.task_id = r.task_id and u.{column} = r.{column} and u.run_id = r.id",
                {"after": after, "last": last},
            )
    return None if last is None else int(last)


def _is_there(q: Dialect, part: Part) -> Work[bool]:
    """Whether the partition is there still: another node may have dropped it."""
    return part in (yield from partitions.parts_of(q, HISTORY.tables[0][0]))


def _may_go(q: Dialect, part: Part, before: Instant) -> Work[bool]:
    """Whether every run of the partition ended before, and so did all that belongs to the same families."""
    name, ends = partitions.named(q, part.name), _ends(part)
    stays = (
        (
            f"select 1 from {name} where not ({q.names('status', 'final')}) or end_time is null or end_time >= :before limit 1",
            {"final": q.pack(sorted(FINAL)), "before": before},
        ),
        (f"select 1 from live where {_RANGE} limit 1", ends),
        ("select 1 from runs where parent_id >= :low and parent_id < :high and id >= :high limit 1", ends),
        (
            f"select 1 from {name} c join runs p on p.id = c.parent_id where c.parent_id < :low limit 1",
            {"low": ends["low"]},
        ),
    )
    for sql, params in stays:
        if (yield Fetch(sql, params)):
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Going:
    """What goes with a partition."""

    runs: int
    """Parts not counted."""
    slots: Sequence[tuple[int, int, int]]
    """Of each task the last slot that goes, and how many."""
    gone: Mapping[int, int]
    """Of each of these tasks, how many slots had gone before, at the moment when these were counted."""


def _what_goes(q: Dialect, part: Part, before: Instant) -> Work[_Going | None]:
    """What is removed with the partition; None: it stays."""
    if not (yield from _is_there(q, part)) or not (yield from _may_go(q, part, before)):
        return None
    name = partitions.named(q, part.name)
    roots = yield Fetch(f"select count(*) from {name} where parent_id is null")
    rows = yield Fetch(
        "select s.task_id, s.last, s.slots, coalesce(c.count, 0) from (select task_id, max(slot) as last, count(*) as slots"
        f" from {name} where slot is not null group by task_id) s left join cleaned c on c.task_id = s.task_id order by 1"
    )
    slots = [(task, last, count) for task, last, count, _ in rows]
    return _Going(int(roots[0][0]), slots, {task: gone for task, _, _, gone in rows})


def _drop(q: Dialect, part: Part, before: Instant, going: _Going) -> Work[bool]:
    """False: another cleaning was faster, with all of it or with some of its slots; or a move has begun. The next
    cleaning counts anew.
    """
    yield from partitions.lock(q, HISTORY)
    if not (yield from _is_there(q, part)) or (yield from partitions.is_moving(q, HISTORY)):
        return False
    rows = yield from q.fetch_by("select task_id, count from cleaned", "task_id", going.gone)
    if going.gone != dict.fromkeys(going.gone, 0) | {row[0]: row[1] for row in rows}:
        return False
    slots = going.slots
    if slots:
        yield Execute(
            "insert into cleaned (task_id, last, count) select * from unnest(:tasks::bigint[], :lasts::bigint[], :counts::bigint[])"
            " on conflict (task_id) do update set last = greatest(cleaned.last, excluded.last),"
            " count = cleaned.count + excluded.count",
            dict(zip(("tasks", "lasts", "counts"), (list(each) for each in zip(*slots, strict=True)), strict=True)),
        )
    yield from rollups.note_cleaned(before)
    failpoint.hit("K14")
    yield from partitions.drop(q, HISTORY, part)
    return True


def _events_may_go(q: Dialect, part: Part, before: Instant) -> Work[bool]:
    """All of them are numbered and old. The oldest partition, if it is empty, is as it is to be."""
    name = partitions.named(q, part.name)
    if part.low is None and not (yield Fetch(f"select 1 from {name} limit 1")):
        return False
    return not (yield Fetch(f"select 1 from {name} where seq is null or at >= :before limit 1", {"before": before}))


def _drop_events(q: Dialect, part: Part) -> Work[None]:
    yield from partitions.lock(q, EVENTS)
    is_there = part in (yield from partitions.parts_of(q, EVENTS.tables[0][0]))
    if is_there and not (yield from partitions.is_moving(q, EVENTS)):
        yield from partitions.drop(q, EVENTS, part)


logger = logging.getLogger("noonbell.store")
