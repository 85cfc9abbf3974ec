"""The world of a simulation: one database in memory, the network before it, and nodes that plan, sweep, claim and execute.

Each node has a store of its own (with its own cache and block of ids) over the same database. A call is a request that travels,
a transaction that is committed in the database's own process, and an answer that travels back:

    the request is lost     nothing is written, the caller gets StoreUnavailable
    the answer is lost      it is written, the caller gets StoreUnavailable
    the caller dies         on the way there: it is written or not; on the way back: it is written

Signals between nodes travel apart from that, and may be lost. All that happens is a line of the trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import hashlib
import logging
import random
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar, cast

from noonbell.clock import SECOND, Instant, ManualClock, monotonic_from
from noonbell.errors import StoreUnavailable
from noonbell.ports import StoreObserver
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Conflict, Work
from noonbell.stores.sqlite import MemoryStore, SqliteConnection
from noonbell.stores.wakeups import LocalWakeup
from noonbell.testing.simulation.event_loop import Process, SimulatedLoop, new_loop

T = TypeVar("T")

START: Final = 1_767_261_600 * SECOND
"""2026-01-01T10:00:00Z."""
_FASTEST, _SLOWEST = 0.0003, 0.02
"""Seconds that a request or an answer travels."""


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = new_loop(random.Random(f"order {seed}"))
        self.network = random.Random(f"network {seed}")
        self.clock = StoreTime(self.loop)
        self.outside = Process("outside")
        """Callers, targets and the one who plays the history."""
        self.database = Process("database")
        self._db = _copy_of_empty_store()
        self.direct = SharedStore(self.clock, self._db)
        """For laws and for what happens outside: it answers at once."""
        self.wakeups: list[SimulatedWakeup] = []
        self.stores: list[RemoteStore] = []
        self.signals_lost_until = 0.0
        self.outage_until = 0.0
        self.commits = 0
        """Transactions that changed something."""
        self.faults = 0
        """Faults that took place."""
        self.on_commit: Callable[[str, str], None] | None = None
        """Is called with the node and the name of the call after each transaction that changed something."""
        self.on_rollback: Callable[[], None] = _nothing
        """Is called after each transaction that was undone."""
        self.trace: list[str] = []
        self._digest = hashlib.blake2b(digest_size=16)

    def note(self, who: str, what: str) -> None:
        line = f"{self.loop.time() - 1_000:9.5f} {who}: {what}"
        self.trace.append(line)
        self._digest.update(line.encode())

    def fault(self, who: str, what: str) -> None:
        self.faults += 1
        self.note(who, f"FAULT {what}")

    @property
    def digest(self) -> str:
        """Of all that happened, in its order."""
        return self._digest.hexdigest()

    @property
    def seconds(self) -> float:
        """Since the history began."""
        return self.loop.time() - 1_000.0

    def travel(self) -> float:
        """Seconds. Most messages are quick, some are not."""
        drawn = self.network.random()
        return _FASTEST + (_SLOWEST - _FASTEST) * drawn**4

    def meet(self, sender: RemoteStore, name: str) -> None:
        """A node makes this call: who was cut off until then is heard before it."""
        for store in self.stores:
            is_met = store.meets and store is not sender and self.loop.time() >= store.meets_from
            if is_met and _is_call(store.meets, name):
                store.reconnect()

    def commit(self, connection: SqliteConnection, work: Callable[[], Work[T]], who: str, name: str) -> T:
        before = self._db.total_changes
        connection.begin_alone()
        try:
            result = connection.run(work)
        except BaseException:
            connection.rollback()
            self.on_rollback()
            raise
        connection.commit()
        changes = self._db.total_changes - before
        if changes:
            self.commits += 1
            self.note(who, f"{name} changed {changes}")
            if self.on_commit is not None:
                self.on_commit(who, name)
        return result

    def roll_back(self, connection: SqliteConnection, work: Callable[[], Work[T]]) -> None:
        """As far as the commit, which does not come."""
        connection.begin_alone()
        try:
            with contextlib.suppress(Exception):
                connection.run(work)
        finally:
            connection.rollback()
            self.on_rollback()

    def connect(self) -> SqliteConnection:
        return _over(self._db, self.clock)

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Time and chance of the whole process are the world's, until this is left."""
        tokens = random.Random(f"tokens {self.seed}")
        before = random.getstate(), secrets.token_hex, secrets.token_urlsafe
        random.seed(f"engine {self.seed}")
        secrets.token_hex = lambda nbytes=32: tokens.randbytes(nbytes or 32).hex()
        secrets.token_urlsafe = lambda nbytes=32: tokens.randbytes(nbytes or 32).hex()
        try:
            with monotonic_from(self.loop.time), _silent() as said:
                self.said = said
                yield
        finally:
            random.setstate(before[0])
            secrets.token_hex, secrets.token_urlsafe = before[1], before[2]

    def close(self) -> None:
        self._db.close()


def _nothing() -> None: ...


class StoreTime:
    """The database's clock: the loop's time, and how far it was set."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.offset = 0

    def now(self) -> Instant:
        return Instant(START + round((self._loop.time() - 1_000) * SECOND) + self.offset)


class SharedConnection(SqliteConnection):
    """One of several over one database: each has its own block of ids."""

    def begin_alone(self) -> None:
        self._db.execute("begin")  # there is one connection of SQLite: it need not take the lock at once


class SharedStore(MemoryStore):
    """A store in memory that shares its database with others."""

    def __init__(self, clock: StoreTime, db: sqlite3.Connection) -> None:
        super().__init__(clock)
        self._connection = _over(db, clock)


_REST: Final = 0.1
"""Seconds between the first message of a node that was cut off and the others."""
_LEASE: Final = 2.0
"""Seconds after which another node may have what one has that was cut off."""
SWEEP: Final = "sweep"
"""The settlement of a sweep, and no other."""


def _is_call(wanted: str, name: str) -> bool:
    if wanted == SWEEP:  # a worker settles and claims in one call
        return name == "settle"
    return wanted in ("any", name) or (wanted == "settle" and name == "settle_and_claim")


class LastingFault:
    """What befalls a call of a node when its name fits."""

    def __init__(self, kind: str, call: str, seconds: float = 0.0) -> None:
        self.kind, self.seconds = kind, seconds
        self.call, _, self.until = call.partition(":")

    def fits(self, name: str) -> bool:
        return _is_call(self.call, name)


_call: contextvars.ContextVar[str] = contextvars.ContextVar("noonbell_simulated_call", default="?")


class _CallNames(StoreObserver):
    """Knows which call of the store a transaction is part of."""

    def called(self, name: str) -> None:
        _call.set(name)

    def answered(self, name: str, seconds: float, answer: Any, given: tuple[Any, ...]) -> None: ...

    def failed(self, name: str, seconds: float, error: BaseException) -> None: ...

    def followed(self, made: int, skipped: int) -> None: ...

    def went_back(self, noted: Any) -> None: ...


class RemoteStore(SharedStore):
    """A node's store: what it asks for travels to the database, and the answer back."""

    def __init__(self, world: World, process: Process, die: Callable[[str], None]) -> None:
        """`die` kills the node."""
        super().__init__(world.clock, world._db)
        self._world, self._process, self._die = world, process, die
        self.faults: list[LastingFault] = []
        """Each befalls one call."""
        self.stalled_until = 0.0
        """What travels before then arrives then."""
        self.meets = ""
        """The call of another node that the messages of this one wait for; empty: they do not."""
        self.meets_from = 0.0
        self._held: list[tuple[Process, Callable[..., object], tuple[Any, ...]]] = []
        world.stores.append(self)
        self.observer = _CallNames()

    async def open(self) -> None:
        await self._know_installation()

    async def close(self) -> None:
        """The database stays."""

    async def now(self) -> Instant:
        return await self._read_clock()

    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T:
        view = TaskView(self._cache)
        result = await self._ask(lambda: work(view), writes=True)
        view.keep()
        return result

    async def _read(self, work: Callable[[], Work[T]]) -> T:
        return await self._ask(work, writes=False)

    async def _ask(self, work: Callable[[], Work[T]], *, writes: bool) -> T:
        world, name = self._world, _call.get()
        answer: asyncio.Future[T] = world.loop.create_future()
        fault = self._fault(name) if writes else None
        on_the_way = world.travel()
        world.meet(self, name)
        if fault is not None and fault.kind == "late_request":
            world.fault(self._process.name, f"the request of {name} takes {fault.seconds:g} s")
            on_the_way += fault.seconds
        elif fault is not None and fault.kind == "stall_at":
            world.fault(self._process.name, f"is cut off for {fault.seconds:g} s with its request of {name}")
            self.stalled_until = world.loop.time() + fault.seconds
        elif fault is not None and fault.kind == "last_words":
            world.fault(self._process.name, f"its request of {name} takes {fault.seconds:g} s, and it dies")
            on_the_way += fault.seconds
        elif fault is not None and fault.kind == "freeze_at":
            world.fault(self._process.name, f"is frozen for {fault.seconds:g} s, its request of {name} is on its way")
            self._process.frozen_until = world.loop.time() + fault.seconds
        elif fault is not None and fault.kind == "meet":
            world.fault(self._process.name, f"is cut off with its request of {name} until another's {fault.until}")
            self.meets = fault.until
            self.meets_from = world.loop.time() + (_LEASE if fault.until in (SWEEP, "begin") else 0.0)
            world.loop.at(world.outside, world.loop.time() + fault.seconds, self.reconnect)
        arrive = functools.partial(self._arrive, work, answer, name, fault, writes=writes)
        self._send(world.database, on_the_way, arrive)
        if fault is not None and fault.kind == "last_words":
            self._die(f"its request of {name} is on its way")
        return await answer

    def _send(self, to: Process, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        if self.meets:
            self._held.append((to, callback, args))
        else:
            loop = self._world.loop
            loop.at(to, max(loop.time(), self.stalled_until) + seconds, callback, *args)

    def reconnect(self) -> None:
        """What was held back arrives in its order: the first at once, the others a little later."""
        loop, self.meets = self._world.loop, ""
        for number, (to, callback, args) in enumerate(self._held):
            loop.at(to, loop.time() + (0.0 if number == 0 else _REST + number * _FASTEST), callback, *args)
        self._held.clear()

    def _fault(self, name: str) -> LastingFault | None:
        for number, fault in enumerate(self.faults):
            if fault.fits(name):
                return self.faults.pop(number)
        return None

    def _arrive(
        self,
        work: Callable[[], Work[T]],
        answer: asyncio.Future[T],
        name: str,
        fault: LastingFault | None,
        *,
        writes: bool,
    ) -> None:
        """In the database's process."""
        world, who = self._world, self._process.name
        kind = None if fault is None else fault.kind
        if not self._process.is_alive and kind != "last_words" and world.network.random() < 0.5:
            return  # it died before its request was on its way
        if world.loop.time() < world.outage_until:
            self._reply(answer, None, StoreUnavailable("the database does not answer"))
            return
        if kind in ("lost_request", "die_before"):
            world.fault(who, f"{name} is rolled back" + ("" if kind == "lost_request" else ", and the node dies"))
            world.roll_back(self._open_connection(), work)
            if kind == "die_before":
                self._die(f"before the commit of {name}")
            else:
                self._reply(answer, None, StoreUnavailable("the connection broke"))
            return
        result: T | None = None
        error: Exception | None = None
        try:
            result = (
                world.commit(self._open_connection(), work, who, name) if writes else self._open_connection().run(work)
            )
        except Exception as raised:
            error = raised
        if kind == "die_after":
            world.fault(who, f"the node dies after the commit of {name}")
            self._die(f"after the commit of {name}")
        elif kind == "lost_answer":
            world.fault(who, f"the answer of {name} is lost")
            self._reply(answer, None, StoreUnavailable("the connection broke"), late=1.0)
        elif kind == "late_answer" and fault is not None:
            world.fault(who, f"the answer of {name} takes {fault.seconds:g} s")
            self._reply(answer, result, error, late=fault.seconds)
        else:
            self._reply(answer, result, error)

    def _reply(self, answer: asyncio.Future[Any], result: Any, error: Exception | None, *, late: float = 0.0) -> None:
        world = self._world
        self._send(self._process, world.travel() + late, _deliver, answer, result, error)


def _deliver(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return  # the caller has gone
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


class SimulatedWakeup(LocalWakeup):
    """Signals inside the node at once; to the others they travel, and may be lost."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__()
        self._world, self._process = world, process
        self._outbox: set[str] = set()

    def signal(self, topic: str) -> None:
        if not self._process.is_alive:
            return
        self._wake(topic)
        if not self._outbox:
            self._world.loop.call_soon(self._send)
        self._outbox.add(topic)

    def _send(self) -> None:
        topics, self._outbox = sorted(self._outbox), set()
        world = self._world
        for other in list(world.wakeups):
            if other is self or not other._process.is_alive:
                continue
            for topic in topics:
                if world.loop.time() < world.signals_lost_until:
                    continue
                world.loop.at(other._process, world.loop.time() + world.travel(), other._wake, topic)


# What simulations share


@functools.cache
def _empty_pages() -> bytes:
    """A database as the steps of the schema leave it, with the id of its installation."""
    made = MemoryStore(ManualClock(Instant(START)))
    asyncio.run(made.open())
    connection = made._connection
    assert connection is not None  # noqa: S101 - it is open
    connection._db.execute("update installation set id = 'simulated', made_at = 0")
    return connection._db.serialize()


def _copy_of_empty_store() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=1024)
    db.deserialize(_empty_pages())
    db.execute("pragma journal_mode = memory")
    db.execute("pragma synchronous = off")
    return db


def _over(db: sqlite3.Connection, clock: StoreTime) -> SqliteConnection:
    return SharedConnection.over(cast("sqlite3.Cursor", db), clock)


def run_now(work: Any) -> Any:
    """The result of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("it had to wait")


class _Said(logging.Handler):
    """Errors that the engine logs: a loop that failed, an attempt that could not be carried out, outcomes that were refused."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        is_refused = any(isinstance(said, Conflict) for said in record.args or ())
        if record.levelno < logging.ERROR and not is_refused:
            return
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(record.getMessage() + ("" if error is None else f" [{type(error).__name__}: {error}]"))


@contextlib.contextmanager
def _silent() -> Iterator[list[str]]:
    """The engine's log goes nowhere but here."""
    logger, handler = logging.getLogger("noonbell"), _Said()
    before = logger.propagate, list(logger.handlers)
    logger.propagate, logger.handlers = False, [handler]
    try:
        yield handler.lines
    finally:
        logger.propagate, logger.handlers = before


def quiet(lines: Sequence[str]) -> list[str]:
    """Each line once, in order."""
    return list(dict.fromkeys(lines))
