"""SQLite: one file, one writer thread, full durability; and the same without a file, for tests and simulations.

Every transaction is a closure on the writer's queue. The writer takes all that wait, runs them in one database
transaction, each in a savepoint of its own, and commits once: a flush to disk serves them all. A caller gets its
result after the commit, never before. Readers have a thread and a connection of their own, and see what is committed.

    died before the commit   none of the batch happened, and no caller has a result
    died after the commit    all of it happened; a caller without a result asks again and finds its token used up
    the disk is full         the batch is rolled back, its callers get StoreUnavailable, the thread lives on
    the file is deleted      or replaced: each batch looks at the path before it and after its commit; callers get StoreUnavailable
    locks have no effect     or not on other hosts, as on a network file system: refused at the start
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import queue
import re
import secrets
import sqlite3
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from noonbell.clock import Clock, Instant, SystemClock
from noonbell.errors import StoreUnavailable
from noonbell.model.request import Publication, PublishResult
from noonbell.stores import blocking, caller_transaction, migrations
from noonbell.stores.migrations import SchemaBusy, ownership
from noonbell.stores.sql import change_capture, publishing
from noonbell.stores.sql.dialect import PLAIN, Dialect, TableNames, named, on_conflict, update_from
from noonbell.stores.sql.ids import IDS, IdBlock, reserve
from noonbell.stores.sql.rows import TaskView, to_json
from noonbell.stores.sql.statement import (
    WAIT_AT_MOST,
    Conflict,
    Execute,
    Fetch,
    Gather,
    InsertEvents,
    InsertMany,
    NewIds,
    NewNumbers,
    Now,
    Statement,
    UpdateMany,
    Work,
    WriteAll,
)
from noonbell.stores.sql.store import SqlStore

T = TypeVar("T")

_AT_ONCE = 200
"""The most transactions that share a commit."""

_PRAGMAS = (
    "pragma journal_mode = wal",
    "pragma synchronous = full",
    "pragma wal_autocheckpoint = 4000",
    "pragma cache_size = -65536",
    "pragma temp_store = memory",
)


_PATIENCE = 10.0
"""Seconds to wait for another process's transaction while the file is opened."""
_LEAST_PATIENCE = 1.0
"""Seconds that a batch tries for the write lock, however long its oldest call has waited in the queue."""
_WORTH_A_LOOK = 1.0
"""Seconds that the writer tries for the lock before the holder is looked for."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.002

SQLITE = Dialect(
    name="sqlite",
    lock="",
    skip_locked="",
    skip_locked_l="",
    upsert=on_conflict,
    isin=lambda column, parameter, _: f"{column} in (select value from json_each(:{parameter}))",
    pack=to_json,
    call_has_label=(
        "exists (select 1 from json_each(i.overrides, '$.call.labels') as label"
        " where label.key = :label and label.value = :label_value)"
    ),
    objects=(
        "select name, type, tbl_name from sqlite_master where type in ('table', 'index', 'view')"
        " and lower(name) in (select value from json_each(:names))"
    ),
    columns=(
        "select m.name, p.name from sqlite_master m join pragma_table_xinfo(m.name) p"
        " where m.type in ('table', 'view') and lower(m.name) in (select value from json_each(:names))"
    ),
    types="",
    has_index=None,
    rough_count=None,
    rows_move=False,
    alone=None,
    from_live=update_from,
    parse=named,
    folds_case=True,
)


_creating = threading.Lock()


def _create_private(path: str) -> None:
    """Make a new file that its owner alone may read: it holds payloads and secrets. SQLite gives its log the same mode.

    One thread at a time: to close a descriptor of the file gives up all locks that SQLite has on it in this process. A thread
    that found the file, and connected before the one that made it had closed it, would lose its lock and not know.
    """
    if path != ":memory:":
        with _creating, contextlib.suppress(OSError):  # it exists; or it cannot be made, and SQLite says why
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


class SqliteConnection:
    """Drives transitions on one sqlite3 connection. Belongs to one thread."""

    def __init__(self, path: str, clock: Clock, naming: TableNames = PLAIN, *, writes: bool = True) -> None:
        """`writes`: it begins its transactions with `begin`, which waits for the lock by itself."""
        _create_private(path)
        self._db = sqlite3.connect(
            path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        self._clock, self._naming = clock, naming
        self._ids = IdBlock()
        for pragma in _PRAGMAS:
            self._insist(pragma, _PATIENCE)
        self._db.execute(f"pragma busy_timeout = {0 if writes else round(WAIT_AT_MOST * 1000)}")

    @classmethod
    def over(cls, cursor: sqlite3.Cursor, clock: Clock, naming: TableNames = PLAIN) -> SqliteConnection:
        """Over a cursor of the caller's connection: only to `run`."""
        made = cls.__new__(cls)
        made._db, made._clock, made._ids = cast("sqlite3.Connection", cursor), clock, IdBlock()
        made._naming = naming
        return made

    def close(self) -> None:
        self._db.close()

    def run(self, work: Callable[[], Work[T]]) -> T:
        """Drive a transition to its end inside the transaction that is open."""
        steps = work()
        try:
            statement = next(steps)
            while True:
                try:
                    answer = self._do(statement)
                except Exception as error:
                    statement = steps.throw(_translated(error))
                else:
                    statement = steps.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    def begin(self, patience: float = WAIT_AT_MOST) -> None:
        """Wait for the file's one write lock for `patience` seconds, with looks that are close together.

        SQLite's own patience sleeps for up to 100 ms between two looks. Two processes that write short transactions would
        then each stand still most of the time.
        """
        self._insist("begin immediate", patience)

    def begin_alone(self) -> None:
        """As `begin`, where no other connection can have the lock."""
        self._db.execute("begin immediate")

    def begin_to_read(self) -> None:
        """From the first row that is read on, all rows are of one moment."""
        self._db.execute("begin")

    def _insist(self, sql: str, patience: float) -> None:
        """Again and again while another process has the file: a change of the journal's mode is refused without patience."""
        deadline, pause = time.monotonic() + patience, _FIRST_PAUSE
        while True:
            try:
                self._db.execute(sql)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def commit(self) -> None:
        self._db.execute("commit")

    def rollback(self) -> None:
        self._ids.drop()
        if self._db.in_transaction:
            self._db.execute("rollback")

    def attempt(self, work: Callable[[], Work[T]]) -> T:
        """Drive a transition in a savepoint: if it fails, the others of the batch stand."""
        self._db.execute("savepoint one")
        try:
            result = self.run(work)
        except BaseException:
            self._ids.drop()
            if self._db.in_transaction:  # a full disk ends the transaction by itself
                self._db.execute("rollback to one")
                self._db.execute("release one")
            raise
        self._db.execute("release one")
        return result

    def _do(self, statement: Statement) -> Any:
        named = self._naming.apply
        match statement:
            case Gather(sql, params, columns):
                return _read_rows(self._db.execute(named(_in_one_piece(sql, columns)), params).fetchone()[0])
            case Fetch(sql, params):
                return self._db.execute(named(sql), params).fetchall()
            case Execute(sql, params):
                return self._db.execute(named(sql), params).rowcount
            case InsertMany(table, columns, rows):
                sql = _insert_into(self._naming.table(table), columns)
                return (self._db.execute(sql, rows[0]) if len(rows) == 1 else self._db.executemany(sql, rows)).rowcount
            case InsertEvents(rows):
                sql = f"insert into {self._naming.table('events')} (id, at, type, data) values (?, ?, ?, ?)"
                now = self._clock.now()
                return self._db.executemany(sql, [(id_, now, type_, data) for id_, type_, data in rows]).rowcount
            case WriteAll(writes):
                return sum(self._do(each) for each in writes)
            case UpdateMany(table, key, columns, rows, add):
                sets = ", ".join(f"{c} = {c} + ?" if add else f"{c} = ?" for c in columns)
                sql = f"update {self._naming.table(table)} set {sets} where {key} = ?"
                return self._db.executemany(sql, [(*row[1:], row[0]) for row in rows]).rowcount
            case Now():
                return self._clock.now()
            case NewIds(count):
                return self.new_ids(count)
            case NewNumbers(counter, count):
                last = self.run(lambda: reserve(counter, count))
                return range(last - count + 1, last + 1)

    def new_ids(self, count: int) -> range:
        taken = self._ids.take(count)
        if taken is None:
            size = self._ids.size_for(count)
            self._ids.fill(self.run(lambda: reserve(IDS, size)), size)
            taken = self._ids.take(count)
            assert taken is not None  # noqa: S101 - the block was made large enough
        return taken

    def give_back(self, ids: range) -> None:
        self._ids.give_back(ids)


@lru_cache(maxsize=256)
def _insert_into(table: str, columns: tuple[str, ...]) -> str:
    return f"insert into {table} ({', '.join(columns)}) values ({', '.join('?' * len(columns))})"


_read_rows = msgspec.json.Decoder(list[list[Any]]).decode


@lru_cache(maxsize=64)
def _in_one_piece(sql: str, columns: int) -> str:
    """All rows as one JSON text. Row by row, this thread would give up the interpreter's lock before each, and the event
    loop, busy with the runs of the last trip, would take it for milliseconds.
    """
    names = ", ".join(f"c{number}" for number in range(columns))
    return f"select json_group_array(json_array({names})) from ({sql})"


def _translated(error: Exception) -> Exception:
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict(str(error))
    # Python's own errors, such as that of a text that is no UTF-8, have no code.
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
        return StoreUnavailable(f"SQLite: {error}; make the file and its folder writable for the user of this process")
    if type(error) is sqlite3.DatabaseError or isinstance(error, sqlite3.OperationalError | sqlite3.InternalError):
        # Malformed, no database, a table that is gone, a full disk.
        return change_capture.refusal(error) or StoreUnavailable(f"SQLite: {error}")
    return error


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


_Job = tuple[Callable[[], Work[Any]], asyncio.AbstractEventLoop, "asyncio.Future[Any]", float]
"""The work, who waits for it, and since when (monotonic)."""
_Result = tuple["asyncio.Future[Any]", Any, BaseException | None]


class _Thread(threading.Thread):
    """Takes closures from a queue and runs them on a connection of its own."""

    def __init__(self, name: str, path: str, clock: Clock, naming: TableNames, *, writes: bool) -> None:
        super().__init__(name=name, daemon=True)
        self._path, self._clock, self._naming, self._writes = path, clock, naming, writes
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._begins: float | None = None
        """Since when (monotonic) it tries for the write lock, while it does."""
        self.wait_at_most = WAIT_AT_MOST
        """Seconds that a call waits for the write lock of another process, its time in the queue included."""

    async def run_work(self, work: Callable[[], Work[T]]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((work, loop, future, time.monotonic()))
        return await future

    def stop(self) -> None:
        self._jobs.put(None)

    def run(self) -> None:
        try:
            connection = SqliteConnection(self._path, self._clock, self._naming, writes=self._writes)
            file = OpenFile(self._path)
        except sqlite3.Error as error:
            folder = Path(self._path).absolute().parent
            why = "" if folder.is_dir() else f"; there is no folder {folder}: make it first, or name another file"
            self._refuse_all(StoreUnavailable(f"SQLite: {error}: {self._path}{why}"))
            return
        except StoreUnavailable as error:
            self._refuse_all(error)
            return
        try:
            ending = False
            while not ending:
                batch, ending = self._next_batch()
                if batch:
                    self._do_batch(connection, file, batch)
        finally:
            connection.close()

    def _do_batch(self, connection: SqliteConnection, file: OpenFile, batch: list[_Job]) -> None:
        """What was done in a file that has left its place since is not answered as done: it is gone with this process."""
        try:
            file.check()
            results = (self._write_batch if self._writes else self._read_batch)(connection, batch)
            file.check()
        except StoreUnavailable as error:
            results = [(future, None, error) for _, _, future, _ in batch]
        _deliver(batch, results)

    def _refuse_all(self, error: StoreUnavailable) -> None:
        """The file cannot be opened: say so to everybody, rather than let them wait."""
        ending = False
        while not ending:
            batch, ending = self._next_batch()
            _deliver(batch, [(future, None, error) for _, _, future, _ in batch])

    def _next_batch(self) -> tuple[list[_Job], bool]:
        first = self._jobs.get()
        if first is None:
            return [], True
        batch = [first]
        while len(batch) < _AT_ONCE:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False

    def _write_batch(self, connection: SqliteConnection, batch: list[_Job]) -> list[_Result]:
        results: list[_Result] = []
        try:
            self._begins = time.monotonic()
            connection.begin(max(_LEAST_PATIENCE, batch[0][3] + self.wait_at_most - self._begins))
            self._begins = None
            if len(batch) == 1:
                work, _, future, _ = batch[0]
                results.append((future, connection.run(work), None))  # if it fails, the whole is rolled back
            else:
                for work, _, future, _ in batch:
                    try:
                        results.append((future, connection.attempt(work), None))
                    except Exception as error:
                        results.append((future, None, _translated(error)))
            connection.commit()
        except Exception as error:
            self._begins = None
            _roll_back(connection)
            failure = self._locked(error, batch) if _is_busy(error) else _translated(error)
            results = [(future, None, failure) for _, _, future, _ in batch]
        return results

    def _read_batch(self, connection: SqliteConnection, batch: list[_Job]) -> list[_Result]:
        results: list[_Result] = []
        for work, _, future, _ in batch:
            try:
                results.append((future, connection.run(work), None))
            except Exception as error:
                results.append((future, None, _translated(error)))
        return results

    def waits_for(self) -> str:
        since = self._begins
        if since is None or time.monotonic() - since < _WORTH_A_LOOK:
            return ""
        return blocking.on_sqlite(self._path) or "another process"

    def _locked(self, error: Exception, batch: list[_Job]) -> StoreUnavailable:
        holder = blocking.on_sqlite(self._path) or "another process"
        waited = time.monotonic() - batch[0][3]
        return StoreUnavailable(f"waited {waited:.0f} s for the write lock that {holder} holds: SQLite: {error}")


def _roll_back(connection: SqliteConnection) -> None:
    """A file that cannot be read any longer cannot always be rolled back either; the thread has to outlive that."""
    with contextlib.suppress(sqlite3.Error):
        connection.rollback()


def _deliver(batch: list[_Job], results: list[_Result]) -> None:
    """Tell every caller, with one hop to each event loop that waits."""
    loops: dict[asyncio.AbstractEventLoop, list[_Result]] = {}
    for (_, loop, _, _), result in zip(batch, results, strict=True):
        loops.setdefault(loop, []).append(result)
    for loop, told in loops.items():
        try:
            loop.call_soon_threadsafe(_tell, told)
        except RuntimeError:
            continue  # that loop has closed: no caller waits any longer


def _tell(results: list[_Result]) -> None:
    for future, value, error in results:
        if future.done():
            continue  # the caller has gone; what was committed stands
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class SqliteStore(SqlStore):
    dialect = SQLITE

    def __init__(
        self,
        path: str,
        clock: Clock | None = None,
        *,
        table_prefix: str = "",
        new: bool = False,
        network_disk: bool = False,
    ) -> None:
        super().__init__(clock, table_prefix=table_prefix, new=new)
        self._path, self._network_disk = path, network_disk
        self._time: Clock = clock or SystemClock()
        self._writer: _Thread | None = None
        self._reader: _Thread | None = None

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < (3, 35):
            raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed")
        if self._path != ":memory:":
            await asyncio.to_thread(check_file_system, self._path, network_disk=self._network_disk)
        (await asyncio.to_thread(self._look_at_file)).check_foreign()
        self._writer = _Thread("noonbell-writer", self._path, self._time, self._names, writes=True)
        self._writer.start()
        self._reader = _Thread("noonbell-reader", self._path, self._time, self._names, writes=False)
        self._reader.start()
        await self._bring_up_to_date()

    def _look_at_file(self) -> ownership.Found:
        """Before anything of ours opens it: that would change how the file is journalled, and it may be another's."""
        if not Path(self._path).is_file():
            return ownership.Found()
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)) as file:
                file.execute("begin")  # all of the look sees one state; another process may be changing the schema
                connection = SqliteConnection.over(file.cursor(), self._time, self._names)
                return connection.run(lambda: migrations.look(self.dialect, self._schema))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"SQLite: {error}: {self._path}") from error

    async def _change_schema(self, work: Callable[[TaskView], Work[T]]) -> T:
        try:
            return await self._write(work)
        except StoreUnavailable as error:
            if "is locked" in error.message:
                raise SchemaBusy from error
            raise

    async def close(self) -> None:
        threads = self._reader, self._writer
        self._reader = self._writer = None  # first: a call that comes behind `stop` would wait for an answer for ever
        for thread in threads:
            if thread is not None:
                thread.stop()
                await asyncio.to_thread(thread.join)

    def waits_for(self) -> str:
        return "" if self._writer is None else self._writer.waits_for()

    async def publish_within(
        self, connection: Any, publications: Sequence[Publication], topics: Sequence[str] = ()
    ) -> list[PublishResult]:
        del topics  # the file has nothing that signals with a commit
        view = TaskView(self._cache)
        with caller_transaction.sqlite_savepoint(connection, self._path) as cursor:
            return SqliteConnection.over(cursor, self._time, self._names).run(
                lambda: publishing.publish(self.dialect, view, publications)
            )

    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T:
        if self._writer is None:
            raise StoreUnavailable("the store is closed")
        view = TaskView(self._cache)
        self._writer.wait_at_most = self._wait_at_most
        result = await self._writer.run_work(lambda: work(view))
        view.keep()
        return result

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Callable[[Callable[[], Work[Any]]], Awaitable[Any]]]:
        connection = await asyncio.to_thread(SqliteConnection, self._path, self._time, self._names, writes=False)
        try:
            connection.begin_to_read()
            yield lambda work: asyncio.to_thread(connection.run, work)
        except sqlite3.Error as error:
            raise _translated(error) from error
        finally:
            connection.close()

    async def _read(self, work: Callable[[], Work[T]]) -> T:
        if self._reader is None:
            raise StoreUnavailable("the store is closed")
        return await self._reader.run_work(work)

    async def now(self) -> Instant:
        return self._time.now()


class MemoryStore(SqliteStore):
    """SQLite without a file, driven in the caller's own thread. It keeps the same laws by the same transitions."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(":memory:", clock)
        self._connection: SqliteConnection | None = None
        self.before_transaction: Callable[[], Awaitable[None]] | None = None
        """Awaited before each transaction, reads included: for what a trial has carried out and not written yet."""

    async def open(self) -> None:
        self._connection = SqliteConnection(":memory:", self._time)
        await self._bring_up_to_date()

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def new_ids(self, count: int) -> range:
        """Ids as a transaction gets them, outside of one."""
        return self._open_connection().new_ids(count)

    def give_back(self, ids: range) -> None:
        """The next transaction gets these once more: they are the last that were taken, and were used for nothing."""
        self._open_connection().give_back(ids)

    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T:
        if self.before_transaction is not None:
            await self.before_transaction()
        connection = self._open_connection()
        view = TaskView(self._cache)
        connection.begin_alone()
        try:
            result = connection.run(lambda: work(view))
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
        view.keep()
        return result

    async def _read(self, work: Callable[[], Work[T]]) -> T:
        if self.before_transaction is not None:
            await self.before_transaction()
        return self._open_connection().run(work)

    def _open_connection(self) -> SqliteConnection:
        if self._connection is None:
            raise StoreUnavailable("the store is closed")
        return self._connection


_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|smb3|ncpfs|afs|coda|9p|lustre|glusterfs|fuse\.(sshfs|glusterfs|s3fs.*|rclone)"
)
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


def check_file_system(path: str, *, network_disk: bool = False) -> None:
    """StoreUnavailable where SQLite's file cannot be kept safe. `network_disk`: the operator says that one host uses it."""
    folder = Path(path).absolute().parent
    kind = "" if network_disk else file_system_of(folder)
    if _NETWORK.fullmatch(kind):
        raise StoreUnavailable(
            f"SQLite: {path} is on a network file system ({kind}), where two hosts may not see each other's locks:"
            " use a local disk, or PostgreSQL; set store.network_disk: true if only this host opens the file"
        )
    if not locks_hold(folder):
        raise StoreUnavailable(
            f"SQLite: locks have no effect on the file system of {path}{kind and f' ({kind})'}: two processes would destroy the file;"
            " use a local disk, or PostgreSQL"
        )


def file_system_of(folder: Path) -> str:
    """Its kind as Linux names it, such as ext4; empty where that is not known."""
    try:
        device = folder.stat().st_dev
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in reversed(lines):  # of several mounts in one place, the last is seen
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return after.split()[0]
    return ""


def locks_hold(folder: Path) -> bool:
    """Whether a lock that is held keeps out another. True where that cannot be tried.

    Locks of open files (OFD) are tried, because the usual ones never keep out the process that holds them. A file of its own is
    used: to close any descriptor of the store's file would give up the locks that SQLite has on it in this process.
    """
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        return True
    probe = folder / f".noonbell-lock-probe-{secrets.token_hex(6)}"
    whole_file = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with contextlib.ExitStack() as stack:
        try:
            first = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError:
            return True  # no file can be made here, which SQLite will say better
        stack.callback(probe.unlink, missing_ok=True)
        stack.callback(os.close, first)
        second = os.open(probe, os.O_RDWR)
        stack.callback(os.close, second)
        try:
            fcntl.fcntl(first, command, whole_file)
        except OSError as error:
            return error.errno not in _NO_LOCKS
        try:
            fcntl.fcntl(second, command, whole_file)
        except OSError:
            return True
        return False


class OpenFile:
    """Knows the file that a path led to when it was opened, and its write-ahead log."""

    def __init__(self, path: str) -> None:
        self._path, self._log_path = path, f"{path}-wal"
        self._file = _identity(path)
        self._log: tuple[int, int] | None = None

    def check(self) -> None:
        """StoreUnavailable if the path leads elsewhere by now, or nowhere. Two calls of `stat`: some microseconds."""
        _compare(self._path, self._file)
        if self._log is None:
            self._log = _identity(self._log_path)
        else:
            _compare(self._log_path, self._log)


def _compare(path: str, opened: tuple[int, int] | None) -> None:
    found = _identity(path)
    if found != opened:
        done = "deleted" if found is None else "replaced by another file"
        raise StoreUnavailable(
            f"SQLite: {path} was {done} while it was open: nothing more is written. Put the file back, or restart"
            " Noonbell with the file to use"
        )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path takes longer than the call
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"SQLite: {path} cannot be checked: {error}") from error
    return found.st_dev, found.st_ino
