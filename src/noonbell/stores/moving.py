"""Moves, backups and restores of whole stores.

A move: all rows of a store are copied into another database while its nodes work; then the store is closed, and the
rest follows.

    prepare     triggers in the source write down which rows change (`sql.change_capture`); the destination is marked as not complete
    copy        each table in batches, in the order of its key; how far is written with each batch. Then the rows that changed
                meanwhile, until few are left
    stop        everything is paused, and what executes has `drain` seconds to end. Leases that are left are copied as they
                are: they run out in the destination, where a lost run is lost as always
    cut over    the source is closed: no transaction can write any longer. What changed since is copied, with the small tables, the
                counters and the id of the installation, in one transaction of the destination. Then the source says where it has
                moved, its nodes stop, and the destination's pause ends

A row is written twice at most: the copy of its last state replaces what was there. Where a unique key stands in the
way, because two rows have exchanged it during the copy, the row is noted once more, and follows in the last
transaction.

    K50  died in the copy                 the source goes on; the same command goes on with the next batch
    K51  died after the pause             the source is paused; the same command goes on, or `--cancel` ends the pause
    K52  died after the source was closed no node can work; the same command goes on, or `--cancel` opens the source again
    K53  died after the destination's     the destination has everything, and is paused; the same command writes down in the
         last transaction                 source that it has moved
    K54  died after that                  the same command ends the pause of the destination
    K56  died in `--cancel`               the source goes on; the same command ends the move

A backup: one moment of a store of any kind, as a SQLite store in a file; and the way back into an empty store of any
kind.

The copy is read in one transaction of the database, so what nodes write meanwhile is not in it. The file is a store
itself: `noonbell audit` reads it. A store that is being filled says so, and nodes refuse to start on it; a restore that
was cut off goes on.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from noonbell.engine import failpoint
from noonbell.errors import InvalidState, NoonbellError, StoreUnavailable
from noonbell.stores.sql import change_capture, copying, ids
from noonbell.stores.sql.active_runs import Place
from noonbell.stores.sql.change_capture import MovePhase, MoveState
from noonbell.stores.sql.copying import CopiedTable, Key
from noonbell.stores.sql.statement import Conflict, Execute, Fetch, Row, Work, insert
from noonbell.stores.sql.store import SqlStore

BY = "noonbell move"
_FEW = 500
"""Changes that may be left when the source is stopped."""
_PASSES = 20
"""Times that the changes are followed before it is stopped all the same."""
_LOG_AT_ONCE = 2_000
_LOOK = 0.1
_NO_TRIGGERS = ("(1419)", "(1142)", "(1227)")
"""How MySQL and MariaDB refuse a trigger to a user who may not make one."""

Progress = Callable[[int], None]
"""Called with the number of rows copied so far."""
Reader = Callable[[Callable[[], Work[Any]]], Awaitable[Any]]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class CopiedRows:
    """How many rows were copied, by table; those of an earlier try included."""

    by_table: dict[str, int] = field(default_factory=dict)
    again: int = 0
    """Rows that changed during the copy, and were copied once more."""

    @property
    def total(self) -> int:
        return sum(self.by_table.values())


@dataclass(frozen=True, slots=True)
class CutOver:
    drained_seconds: float
    leases_left: int
    """Runs that had not ended after the drain."""
    pause_seconds: float
    """From the last transaction that the source took to the first that the destination could take."""
    rows: int
    """Copied in that time."""


async def ask(store: SqlStore, work: Callable[P, Work[T]], *given: P.args, **named: P.kwargs) -> T:
    return await store._read(lambda: work(*given, **named))


async def apply(store: SqlStore, work: Callable[P, Work[T]], *given: P.args, **named: P.kwargs) -> T:
    """Carry out the work in a transaction of its own."""
    return await store._write(lambda _: work(*given, **named))


class TableCopy:
    """Fills one store from another, table by table. Goes on where an earlier one was cut off."""

    def __init__(self, read: Reader, destination: SqlStore, progress: Progress) -> None:
        """`read` carries out a transition that reads the source."""
        self._read_source, self._destination, self._progress = read, destination, progress
        self.token = ""
        """Of what is under way: the destination takes rows of that alone."""
        self.copied = CopiedRows()
        self.conflicts: list[tuple[str, str]] = []
        """(table, key as text) of rows that could not be written."""

    async def run(self) -> None:
        progress = await self._destination.fetch("select name, after_key, is_done, copied from move_progress")
        known = {name: (after, is_done, copied) for name, after, is_done, copied in progress}
        tables = copying.batched()
        self.copied.by_table = {table.name: known.get(table.name, (None, 0, 0))[2] for table in tables}
        for table in tables:
            after, is_done, _ = known.get(table.name, (None, 0, 0))
            if not is_done:
                await self._table(table, None if after is None else copying.unpacked(after))

    async def _table(self, table: CopiedTable, after: Key | None) -> None:
        limit = copying.FIRST_ROWS
        rows = await self._read(table, after, limit)
        while rows:
            limit = copying.rows_for_next(len(rows), sum(map(copying.size_of, rows)))
            after = table.key_of(rows[-1])
            reading = asyncio.create_task(self._read(table, after, limit))  # while the last ones are written
            try:
                await self._write(table, rows, after)
            except BaseException:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                raise
            failpoint.hit("K50")
            self._progress(self.copied.total)
            rows = await reading
        await self.apply(self._note_progress, table, after, is_done=True)

    async def apply(self, work: Callable[P, Work[T]], *given: P.args, **named: P.kwargs) -> T:
        """In a transaction of the destination; InvalidState where another process has made that complete."""

        def fenced() -> Work[T]:
            yield from change_capture.check_own(self._destination.dialect, self.token, MovePhase.FILLING)
            return (yield from work(*given, **named))

        return await apply(self._destination, fenced)

    async def _read(self, table: CopiedTable, after: Key | None, limit: int) -> list[Row]:
        rows: list[Row] = await self._read_source(lambda: copying.read_after(table, after, limit))
        return rows

    async def _write(self, table: CopiedTable, rows: Sequence[Row], after: Key) -> None:
        self.copied.by_table[table.name] += len(rows)

        def work() -> Work[None]:
            yield from copying.write_rows(table, rows)
            yield from self._note_progress(table, after)

        try:
            await self.apply(work)
        except Conflict:
            await self._write_each(table, rows)
            await self.apply(self._note_progress, table, after)

    async def _write_each(self, table: CopiedTable, rows: Sequence[Row]) -> None:
        for row in rows:
            try:
                await self.apply(copying.write_rows, table, [row])
            except Conflict:
                self.conflicts.append((table.name, copying.packed(table.key_of(row))))

    def _note_progress(self, table: CopiedTable, after: Key | None, *, is_done: bool = False) -> Work[None]:
        yield Execute("delete from move_progress where name = :name", {"name": table.name})
        key, copied = None if after is None else copying.packed(after), self.copied.by_table[table.name]
        yield insert("move_progress", name=table.name, after_key=key, is_done=int(is_done), copied=copied)


class Move:
    """A move from `source` to `destination`. Both are open, and no node has the destination open."""

    def __init__(
        self, source: SqlStore, destination: SqlStore, *, to: str, progress: Progress = lambda _: None
    ) -> None:
        """`to`: the destination's address without passwords, for those who look for it in the source."""
        self._source, self._destination, self._to = source, destination, to
        self._copy = TableCopy(source._read, destination, progress)

    @property
    def copied(self) -> CopiedRows:
        return self._copy.copied

    async def states(self) -> tuple[MoveState, MoveState]:
        """The states of source and destination. Raises InvalidState where no move can be made from the one to the
        other.
        """
        source, destination = (
            await ask(self._source, change_capture.read_state),
            await ask(self._destination, change_capture.read_state),
        )
        is_same = source.token is not None and source.token == destination.token
        if source.phase is None and (is_same or source.installation == destination.installation):
            raise InvalidState("the source and the destination are the same store, or copies of one")
        if source.phase is MovePhase.FILLING:
            raise InvalidState("the source is incomplete: another move or restore is filling it")
        if source.phase is MovePhase.MOVED and not is_same:
            raise InvalidState(f"the source has already moved to {source.moved_to}")
        if destination.phase is not None and destination.phase is not MovePhase.FILLING:
            raise InvalidState(f"the destination is itself the source of a move to {destination.moved_to}")
        if destination.phase is MovePhase.FILLING and not is_same:
            raise InvalidState("the destination has part of another move or restore; empty it, or use another one")
        if not is_same:
            await check_empty(self._destination)
        return source, destination

    async def is_done(self) -> bool:
        """Nothing is left to do."""
        source, _ = await self.states()
        return source.phase is MovePhase.MOVED and not await is_own_pause(self._destination)

    async def begin(self) -> None:
        """Prepare both; does nothing that an earlier try has done."""
        source, destination = await self.states()
        token = self._copy.token = source.token or secrets.token_hex(8)
        if source.phase in (None, MovePhase.PREPARING):
            if source.phase is None:
                token = self._copy.token = secrets.token_hex(8)
                await apply(
                    self._source, change_capture.write_state, MovePhase.PREPARING, move_token=token, moved_to=self._to
                )
            q = self._source.dialect
            try:
                for table in copying.batched():
                    await apply(self._source, change_capture.install, q, table)
            except StoreUnavailable as error:
                if not any(code in error.message for code in _NO_TRIGGERS):
                    raise
                raise InvalidState(
                    "the source's user may not create triggers, which a move needs to see changes: grant TRIGGER to"
                    " it and, where"
                    f" the server writes a binary log, set log_bin_trust_function_creators to 1 ({error.message})"
                ) from error
            await self._write_source(MovePhase.COPYING)
        if destination.token != token:
            await apply(self._destination, change_capture.write_state, MovePhase.FILLING, move_token=token)

    async def copy(self) -> None:
        """Copy all tables, and then what has changed, until little is left."""
        source, _ = await self.states()
        if source.phase is not MovePhase.COPYING:
            return
        try:
            await self._copy.run()
        finally:
            await self._note_conflicts()
        for _ in range(_PASSES):
            await self._follow()
            if await ask(self._source, change_capture.count, _FEW) < _FEW:
                return

    async def _note_conflicts(self) -> None:
        entries, self._copy.conflicts = self._copy.conflicts, []
        if entries:
            await apply(self._source, change_capture.note, entries)

    async def _follow(self) -> None:
        """Copy what has changed up to now once more. What meets a unique key stays in the log."""
        after = 0
        while changes := await ask(self._source, change_capture.changes, after, _LOG_AT_ONCE):
            after = changes[-1][0]
            numbers: dict[str, list[int]] = defaultdict(list)
            keys: dict[str, set[Key]] = defaultdict(set)
            for number, name, key in changes:
                numbers[name].append(number)
                keys[name].add(key)
            done: list[int] = []
            for name, changed in keys.items():
                if await self._copy_again(copying.tables()[name], sorted(changed)):
                    done += numbers[name]
            await apply(self._source, change_capture.forget, self._source.dialect, done)

    async def _copy_again(self, table: CopiedTable, keys: Sequence[Key]) -> bool:
        rows = await self._read_keys(table, keys)

        def work() -> Work[None]:
            yield from copying.delete_keys(self._destination.dialect, table, keys)
            yield from copying.write_rows(table, rows)

        try:
            await self._copy.apply(work)
        except Conflict:
            return False
        self.copied.again += len(rows)
        return True

    async def _read_keys(self, table: CopiedTable, keys: Sequence[Key]) -> list[Row]:
        return await ask(self._source, copying.read_keys, self._source.dialect, table, keys)

    # The stop

    async def stop(self, drain: float) -> tuple[float, int]:
        """Pause everything, and wait for what executes: for how long, and how many runs had not ended."""
        source, _ = await self.states()
        began = time.monotonic()
        left = 0
        if source.phase is MovePhase.COPYING:
            await self._source.pause_installation(f"moving to {self._to}", by=BY)
            failpoint.hit("K51")
            left = await self._leases()
            while left and time.monotonic() - began < drain:
                await self._follow()
                await asyncio.sleep(_LOOK)
                left = await self._leases()
            await self._follow()
        return time.monotonic() - began, left

    async def _leases(self) -> int:
        rows = await self._source.fetch(f"select count(*) from live where place = {int(Place.LEASED)}")
        return int(rows[0][0])

    async def cut_over(self, drained: tuple[float, int]) -> CutOver:
        """Close the source, copy the rest, and let the destination be the installation."""
        began = time.monotonic()
        source, destination = await self.states()
        rows = 0
        if source.phase is not MovePhase.MOVED:
            if destination.phase is MovePhase.FILLING:
                rows = await self._copy_rest(source)
            failpoint.hit("K53")
            await apply(self._source, change_capture.finish_source)
        failpoint.hit("K54")
        await end_own_pause(self._destination)
        return CutOver(*drained, time.monotonic() - began, rows)

    async def _copy_rest(self, source: MoveState) -> int:
        try:
            await self._close()
            failpoint.hit("K52")
            rest = await self._rest()
        except InvalidState:
            raise
        except NoonbellError:
            await self.reopen()
            raise
        await self._write_source(MovePhase.FINISHING)  # from here on, only the destination knows whether it is done
        await self._destination._change_schema(lambda _: self._finish_destination(source, rest))
        return sum(len(rows) for _, rows in rest.values())

    async def _close(self) -> None:
        """First the word, then the deed: a source that is closed says why."""
        await self._write_source(MovePhase.CLOSED)
        await apply(self._source, change_capture.close, self._source.dialect)

    async def _rest(self) -> dict[str, tuple[list[Key] | None, list[Row]]]:
        """By table: the keys that have changed, or None for all, and their rows."""
        keys: dict[str, set[Key]] = defaultdict(set)
        after = 0
        while changes := await ask(self._source, change_capture.changes, after, _LOG_AT_ONCE):
            after = changes[-1][0]
            for _, name, key in changes:
                keys[name].add(key)
        rest: dict[str, tuple[list[Key] | None, list[Row]]] = {}
        for name, changed in keys.items():
            rest[name] = (sorted(changed), await self._read_keys(copying.tables()[name], sorted(changed)))
        for name in copying.COPIED_AT_ONCE:
            rest[name] = (None, await all_rows(self._source._read, copying.tables()[name]))
        return rest

    def _finish_destination(self, source: MoveState, rest: dict[str, tuple[list[Key] | None, list[Row]]]) -> Work[None]:
        yield from change_capture.check_own(self._destination.dialect, self._copy.token, MovePhase.FILLING)
        for name, (keys, _) in rest.items():
            if keys is not None:
                yield from copying.delete_keys(self._destination.dialect, copying.tables()[name], keys)
        for name, (keys, rows) in rest.items():
            table = copying.tables()[name]
            yield from copying.replace_all(table, rows) if keys is None else copying.write_rows(table, rows)
        yield Execute("delete from move_progress")
        yield from change_capture.write_state(None, id=source.installation)

    # The way back

    async def reopen(self) -> None:
        """The source goes on; what was copied stays in the destination, and follows when the move is tried again."""
        q, variant = self._source.dialect, self._source._schema
        await self._write_source(MovePhase.COPYING)  # first: not where another process has moved it meanwhile
        await apply(self._source, change_capture.reopen, q, variant)
        await end_own_pause(self._source)

    async def _write_source(self, phase: MovePhase) -> None:
        def work() -> Work[None]:
            yield from change_capture.check_own(self._source.dialect, self._copy.token, *_UNDER_WAY)
            yield from change_capture.write_state(phase)

        await apply(self._source, work)


_UNDER_WAY = (MovePhase.PREPARING, MovePhase.COPYING, MovePhase.CLOSED, MovePhase.FINISHING)


async def cancel(source: SqlStore, destination: SqlStore | None) -> None:
    """Let the source go on as if there had been no move. `destination`: needed where it may have everything already."""
    state = await ask(source, change_capture.read_state)
    if state.phase in (None, MovePhase.FILLING):
        raise InvalidState("no move from this store is in progress")
    if state.phase is MovePhase.MOVED:
        raise InvalidState(f"the store has moved to {state.moved_to}; a finished move cannot be canceled")
    if state.phase is MovePhase.FINISHING:
        if destination is None:
            raise InvalidState("the destination may already have everything: add --to, so that this can be checked")
        there = await ask(destination, change_capture.read_state)
        if there.token == state.token and there.phase is None:
            raise InvalidState("the destination already has everything; run `noonbell move` again to finish the move")
    q, variant = source.dialect, source._schema
    await apply(source, change_capture.reopen, q, variant)
    # From here on changes may go unnoted. A new token: if the rest is cut off, no other process can go on with the copy so far.
    await apply(source, change_capture.write_state, MovePhase.PREPARING, move_token=secrets.token_hex(8))
    await end_own_pause(source)
    failpoint.hit("K56")
    for table in copying.batched():
        await apply(source, change_capture.remove, q, table)
    await apply(source, change_capture.forget_all)
    await apply(source, change_capture.write_state, None, move_token=None, moved_to=None)


async def is_own_pause(store: SqlStore) -> bool:
    pause = await store.installation_pause()
    return pause is not None and pause.by == BY


async def end_own_pause(store: SqlStore) -> None:
    if await is_own_pause(store):
        await store.resume_installation(by=BY)


async def check_empty(store: SqlStore) -> None:
    names = [table.name for table in copying.batched()]
    found = await ask(store, copying.first_with_rows, names)
    if found is not None:
        raise InvalidState(f"the destination is not empty: it has rows in the table {found}; use a new database")


async def all_rows(read: Reader, table: CopiedTable) -> list[Row]:
    rows: list[Row] = []
    after: Key | None = None
    while part := await read(functools.partial(copying.read_after, table, after, copying.MOST_ROWS)):
        rows += part
        after = table.key_of(part[-1])
    return rows


async def row_counts(store: SqlStore) -> dict[str, int]:
    """The number of rows in every table that is copied."""
    return await ask(store, _counted, copying.tables())


async def rows_to_copy(store: SqlStore) -> int | None:
    """What the progress of a copy is measured by. None: the database did not count them in time."""
    names = [table.name for table in copying.batched()]
    try:
        return sum((await ask(store, _counted, names)).values())
    except StoreUnavailable:
        return None


def _counted(names: Iterable[str]) -> Work[dict[str, int]]:
    found = {}
    for name in names:
        rows = yield Fetch(f"select count(*) from {name}")
        found[name] = int(rows[0][0])
    return found


async def backup(source: SqlStore, copy: SqlStore, progress: Progress) -> CopiedRows:
    """Into `copy`, which is empty. `source` may be in use."""
    async with source.snapshot() as read:
        state: MoveState = await read(change_capture.read_state)
        _check_complete(state)
        return await _fill(read, copy, state.installation, secrets.token_hex(8), progress)


async def restore(
    copy: SqlStore, destination: SqlStore, progress: Progress, *, new_installation: bool = False
) -> tuple[CopiedRows, str]:
    """From a backup into a store that is empty, or holds a part of the same backup; and which installation that store is now.

    No node has the destination open. `new_installation`: the store never is complete with the id of its original.
    """
    state = await ask(copy, change_capture.read_state)
    _check_complete(state)
    installation = ids.random_installation() if new_installation else state.installation
    copied = await _fill(copy._read, destination, installation, state.token or state.installation, progress)
    return copied, installation


def _check_complete(state: MoveState) -> None:
    if state.phase is MovePhase.FILLING:
        raise InvalidState("the store is incomplete: the move, backup or restore that fills it was interrupted")


async def _fill(read: Reader, store: SqlStore, installation: str, token: str, progress: Progress) -> CopiedRows:
    there = await ask(store, change_capture.read_state)
    if (there.phase, there.token) != (MovePhase.FILLING, token):
        if there.phase is not None:
            raise InvalidState("the destination takes part in a move or another restore; use a new database")
        await check_empty(store)
        await apply(store, change_capture.write_state, MovePhase.FILLING, move_token=token)
    copy = TableCopy(read, store, progress)
    copy.token = token
    await copy.run()
    if copy.conflicts:
        name, key = copy.conflicts[0]
        raise InvalidState(f"the row {key} of the table {name} conflicts with another row: the backup is damaged")
    small = {name: await all_rows(read, copying.tables()[name]) for name in copying.COPIED_AT_ONCE}
    await store._change_schema(lambda _: _finish(store, token, installation, small))
    failpoint.hit("K55")
    return copy.copied


def _finish(store: SqlStore, token: str, installation: str, small: dict[str, list[Row]]) -> Work[None]:
    yield from change_capture.check_own(store.dialect, token, MovePhase.FILLING)
    for name, rows in small.items():
        yield from copying.replace_all(copying.tables()[name], rows)
    yield Execute("delete from move_progress")
    yield from change_capture.write_state(None, id=installation)
