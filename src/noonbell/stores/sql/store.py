"""The port, as the SQL stores keep it: each method runs one transition in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from noonbell.clock import Clock, Instant
from noonbell.errors import InvalidArgument, SchemaMismatch
from noonbell.model.account import Activity, Cleaned, Flaw, Outage, Pause, SlotRun, Wait
from noonbell.model.event import Callback, Event, LogLine
from noonbell.model.request import (
    CallbackIn,
    CallbackSubject,
    Canceled,
    Claimed,
    ClaimRequest,
    Heartbeat,
    Overdue,
    Page,
    Planned,
    Promoted,
    Publication,
    Published,
    RunQuery,
    TaskChange,
    TaskQuery,
)
from noonbell.model.run import Attempt, DroppedRange, Lease, Run, RunBodies, RunId, RunStatus
from noonbell.model.settlement import Settled, Settlement
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus, TaskVersion
from noonbell.model.worker import Queue, Worker, WorkerState
from noonbell.stores import migrations
from noonbell.stores.migrations import ownership
from noonbell.stores.sql import (
    accounting,
    calling,
    canceling,
    events,
    finishing,
    holding,
    installation,
    known,
    leftovers,
    listing,
    planning,
    publishing,
    reading,
    registry,
    settling,
    shortcut,
    tasks,
    upkeep,
)
from noonbell.stores.sql.access_store import AccessMethods
from noonbell.stores.sql.alert_store import AlertMethods
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.drive import WAIT_AT_MOST, StillLocked
from noonbell.stores.sql.naming import Names
from noonbell.stores.sql.rows import TaskCache, TaskView
from noonbell.stores.sql.schema_progress import SchemaBusy, SchemaProgress
from noonbell.stores.sql.secret_store import SecretMethods
from noonbell.stores.sql.statement import Conflict, Fetch, Now, Work
from noonbell.stores.sql.turning_store import TurningMethods
from noonbell.stores.sql.worker_store import WorkerMethods

T = TypeVar("T")


class SqlStore(AccessMethods, AlertMethods, SecretMethods, TurningMethods, WorkerMethods, ABC):
    """Subclasses bring the connection: how to run a transition, and how to open and close."""

    dialect: Dialect

    def __init__(
        self, clock: Clock | None = None, *, schema: str | None = None, table_prefix: str = "", new: bool = False
    ) -> None:
        """`new`: it may be made beside a store with plain names in the same database."""
        self._clock = clock
        self._cache = TaskCache()
        self._wait_at_most = WAIT_AT_MOST
        """Seconds that a call waits for locks of other sessions."""
        self._schema = self.dialect.name
        """Which variant of the migrations is ours."""
        tables, indexes = migrations.names(self._schema)
        self._names = Names(schema, table_prefix, tables=tables, indexes=indexes)
        self.dialect = dataclasses.replace(self.dialect, naming=self._names)
        self._new = new

    @abstractmethod
    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T:
        """Run a transition in a transaction of its own, again if the database breaks a deadlock. Raises Conflict.

        Each time with a view of the cache of its own, which is kept after the commit.
        """

    @abstractmethod
    async def _read(self, work: Callable[[], Work[T]]) -> T:
        """Run a transition that only reads."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def _settled(self, work: Callable[[TaskView], Work[T]]) -> T:
        """Run a transition that may meet another about the same new key: whoever comes second finds it there."""
        for _ in range(5):
            try:
                return await self._write(work)
            except Conflict:
                continue
        return await self._write(work)

    async def _bring_up_to_date(self) -> None:
        """Look, and migrate under a lock: of two nodes that start together, the second finds it done."""
        found = await self.look_after_changes()
        is_done = found.has_log and not found.taken_over and not migrations.missing(found)
        if found.foreign or not is_done:
            await self._take_steps(migrations.LATEST, SchemaProgress(), forward_only=True)
        else:
            migrations.check(found)
        await self._know_installation()

    async def look_at_schema(self) -> ownership.Found:
        """Where the schema is, and what in the database is not ours. Writes nothing."""
        return await self._read(lambda: migrations.look(self.dialect, self._schema))

    async def look_after_changes(self, say: Callable[[str], None] | None = None) -> ownership.Found:
        """As `look_at_schema`; where another node holds the tables for its steps, when it has done them.

        A look is several statements. What looks foreign may be ours, changed between two of them: it is looked at again while
        no other node changes the schema.
        """
        with contextlib.suppress(StillLocked):
            found = await self.look_at_schema()
            if not found.foreign:
                return found
        return await self._alone(lambda: migrations.look(self.dialect, self._schema), SchemaProgress(say))

    def waits_for(self) -> str:
        """Who holds the lock that a call waits for at this moment, in words; empty if no call is known to wait."""
        return ""

    async def check_schema(self) -> None:
        """Raises SchemaMismatch when the store has moved to where this code may not work on it."""
        found = await self.look_at_schema()
        migrations.check(found)
        if migrations.missing(found):
            raise SchemaMismatch(
                f"the store's schema went back to step {found.step}; this version of Noonbell needs {migrations.LATEST}",
                details={"found": found.step, "known": migrations.LATEST},
            )

    async def migrate(self, to: int = migrations.LATEST, say: Callable[[str], None] | None = None) -> list[int]:
        """Go to a step of the schema, forward or back; the steps that were taken. `say` hears of the progress."""
        taken = await self._take_steps(to, SchemaProgress(say), forward_only=False)
        if to >= migrations.WITH_INSTALLATION:
            await self._know_installation()
        return taken

    async def _know_installation(self) -> None:
        found = await self.installation_id()
        if found is None:
            found = await self._settled(lambda _: installation.ensure())
        self._cache.installation = found

    async def installation_id(self) -> str | None:
        """The id that goes into idempotency keys; None before the store was opened for work."""
        return await self._read(installation.read)

    async def new_installation(self) -> str:
        """Another id. No other node may have the store open: it would go on with the one it knows."""
        made = await self._settled(lambda _: installation.replace())
        self._cache.installation = made
        return made

    async def _take_steps(self, to: int, progress: SchemaProgress, *, forward_only: bool) -> list[int]:
        return await self._alone(lambda: self._migrating(to, progress, forward_only=forward_only), progress)

    async def _alone(self, work: Callable[[], Work[T]], progress: SchemaProgress) -> T:
        """Run it while no other node changes the schema, however long it takes, and however long another node takes."""
        async with progress.told():
            while True:
                try:
                    return await self._change_schema(lambda _: self._locking(work))
                except SchemaBusy:
                    progress.wait_for_another()
                    await asyncio.sleep(0.1)

    async def _change_schema(self, work: Callable[[TaskView], Work[T]]) -> T:
        """As `_write`, without a limit of time. SchemaBusy: another node is at it."""
        return await self._write(work)

    def _locking(self, work: Callable[[], Work[T]]) -> Work[T]:
        alone = self.dialect.alone
        if alone is None:
            return (yield from work())
        lock, unlock = (sql.format(mark=self._names.mark, number=self._names.lock_number) for sql in alone)
        rows = yield Fetch(lock)
        if not rows[0][0]:
            raise SchemaBusy
        try:
            result = yield from work()
        except Exception:
            with contextlib.suppress(Exception):  # the transaction may be lost, and the lock with it
                yield Fetch(unlock)
            raise
        yield Fetch(unlock)
        return result

    def _migrating(self, to: int, progress: SchemaProgress, *, forward_only: bool) -> Work[list[int]]:
        found = yield from migrations.look(self.dialect, self._schema)
        found.check_foreign()
        migrations.check(found, to)
        if found.beside and not self._new:
            raise SchemaMismatch(
                "the database holds a Noonbell store with plain table names, and none under store.table_prefix"
                f" {self._names.prefix!r} and store.schema {self._names.schema or ''!r}; add --new to make a second one beside it"
            )
        stays = found.step <= to or forward_only or to == migrations.LATEST
        if stays and not migrations.missing(found, to):
            if found.taken_over:
                yield from ownership.prepare(self.dialect, found)
            return []
        unknown = found.taken - {step.number for step in migrations.STEPS}
        if unknown and not stays:
            raise SchemaMismatch(
                f"the store's schema has step {max(unknown)}, which this version of Noonbell does not have: it cannot take back"
                " what it does not know; upgrade Noonbell",
                details={"found": found.step, "known": migrations.LATEST, "unknown": sorted(unknown)},
            )
        progress.is_quiet = found.step == 0
        return (yield from migrations.migrate(self.dialect, self._schema, found, to, progress))

    async def now(self) -> Instant:
        def work() -> Work[Instant]:
            return Instant((yield Now()))

        return await self._read(work)

    # Tasks

    async def create_task(
        self,
        spec: TaskSpec,
        *,
        status: TaskStatus = TaskStatus.ENABLED,
        by: str | None = None,
        system: bool = False,
        skip_next: int = 0,
    ) -> Task:
        return await self._settled(
            lambda cache: tasks.create(self.dialect, cache, spec, status, by, system=system, skip_next=skip_next)
        )

    async def change_task(
        self,
        task_id: TaskId,
        edit: Callable[[Task], TaskChange],
        *,
        by: str | None = None,
        expect_version: int | None = None,
    ) -> Task:
        return await self._settled(lambda cache: tasks.change(self.dialect, cache, task_id, edit, by, expect_version))

    async def delete_task(
        self,
        task_id: TaskId,
        *,
        by: str | None = None,
        cancel_running: bool = False,
        purge: bool = False,
        expect_version: int | None = None,
    ) -> Task:
        how = {"cancel_running": cancel_running, "purge": purge}
        return await self._write(lambda cache: tasks.delete(self.dialect, cache, task_id, by, expect_version, **how))

    async def skip_next(self, task_id: TaskId, count: int, *, by: str | None = None) -> Task:
        return await self._write(lambda cache: tasks.skip_next(self.dialect, cache, task_id, count, by))

    async def task(self, task_id: TaskId) -> Task | None:
        return await self._read(lambda: known.load_task(task_id))

    async def tasks_by_id(self, task_ids: Sequence[TaskId]) -> list[Task]:
        found = await self._write(lambda cache: known.known_tasks(self.dialect, cache, task_ids))
        return [one.task for one in found.values()]

    async def task_named(self, name: str) -> Task | None:
        return await self._read(lambda: reading.task_named(name))

    async def tasks(self, query: TaskQuery) -> Page[Task]:
        return await self._read(lambda: reading.tasks(query))

    async def task_versions(self, task_id: TaskId) -> list[TaskVersion]:
        return await self._read(lambda: reading.task_versions(task_id))

    async def dropped(self, task_id: TaskId, since: Instant, until: Instant) -> list[DroppedRange]:
        return await self._read(lambda: reading.dropped(task_id, since, until))

    # The account

    async def slot_runs(self, task_id: TaskId, since: Instant, until: Instant, limit: int = 1000) -> list[SlotRun]:
        return await self._read(lambda: accounting.slot_runs(task_id, since, until, limit))

    async def slot_counts(self, since: Instant, until: Instant, seconds: int) -> dict[Instant, int]:
        return await self._read(lambda: accounting.slot_counts(since, until, seconds))

    async def cleaned(self, task_id: TaskId) -> Cleaned:
        return await self._read(lambda: accounting.cleaned(task_id))

    async def wait(self, run_id: RunId) -> Wait | None:
        return await self._read(lambda: accounting.wait(run_id))

    async def activity(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Activity]:
        return await self._read(lambda: accounting.activity(self.dialect, task_ids))

    async def note_outage(self, seconds: float, node: str, reason: str | None = None) -> Outage:
        return await self._write(lambda _: accounting.note_outage(seconds, node, reason))

    async def outages(self, since: Instant, until: Instant) -> list[Outage]:
        return await self._read(lambda: accounting.outages(since, until))

    async def pauses(self, queue: str, since: Instant, until: Instant) -> list[Pause]:
        return await self._read(lambda: registry.pauses(queue, since, until))

    async def flaws(self, limit: int = 100) -> list[Flaw]:
        return await self._read(lambda: accounting.flaws(self.dialect, limit))

    # From slots to runs

    async def plan(self, limit: int, *, cap: int = 100, skip: bool = False) -> Planned:
        try:
            return await self._write(lambda cache: planning.plan(self.dialect, cache, limit, cap, skip=skip))
        except Conflict:
            # A slot has its run already, though the cursor says otherwise: look before writing, this time.
            return await self._write(
                lambda cache: planning.plan(self.dialect, cache, limit, cap, skip=skip, careful=True)
            )

    async def promote(self, limit: int) -> Promoted:
        return await self._write(lambda cache: canceling.promote(self.dialect, cache, limit))

    async def publish(self, publications: Sequence[Publication]) -> list[Published]:
        if not publications:
            return []
        tasks = shortcut.plain_tasks(publications, self._cache)
        if tasks is not None:
            known_then = tasks
            published = await self._write(lambda cache: shortcut.publish(self.dialect, cache, publications, known_then))
            if published is not None:
                return published
        return await self._settled(lambda cache: publishing.publish(self.dialect, cache, publications))

    async def publish_within(
        self, connection: Any, publications: Sequence[Publication], topics: Sequence[str] = ()
    ) -> list[Published]:
        del publications, topics
        raise InvalidArgument.field(
            "transaction",
            f"is a {type(connection).__name__}; only stores on PostgreSQL and SQLite publish inside a transaction",
        )

    # Claim, execute, settle

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await self._settled(lambda cache: shortcut.claim(self.dialect, cache, request))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        return await self._write(lambda cache: self._settling(cache, settlements))

    def _settling(self, cache: TaskView, settlements: Sequence[Settlement]) -> Work[list[Settled]]:
        if settlements and finishing.all_short(settlements):
            return (yield from finishing.settle(self.dialect, cache, settlements))
        return (yield from settling.settle(self.dialect, cache, settlements))

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[list[Settled], Claimed]:
        def work(cache: TaskView) -> Work[tuple[list[Settled], Claimed]]:
            settled = yield from self._settling(cache, settlements)
            return settled, (yield from shortcut.claim(self.dialect, cache, request))

        return await self._settled(work)

    async def begin(self, leases: Sequence[Lease]) -> set[RunId]:
        return await self._write(lambda _: holding.begin(self.dialect, leases))

    async def heartbeat(
        self, worker_id: str, held: Sequence[tuple[RunId, int]], *, incarnation: str = "", renew: bool = True
    ) -> Heartbeat:
        return await self._write(lambda _: holding.heartbeat(self.dialect, worker_id, held, incarnation, renew=renew))

    async def extend(self, run_id: RunId, token: int, seconds: float) -> bool:
        return await self._write(lambda _: holding.extend(self.dialect, run_id, token, seconds))

    async def retry_held(self, failed: Settlement, attempt: int, seconds: float) -> bool:
        return await self._write(lambda _: settling.retry_held(self.dialect, failed, attempt, seconds))

    async def cancel(self, run_ids: Sequence[RunId], *, by: str | None = None, reason: str = "") -> list[Canceled]:
        return await self._write(lambda cache: canceling.cancel(self.dialect, cache, run_ids, by, reason))

    async def overdue(self, limit: int) -> list[Overdue]:
        return await self._read(lambda: holding.overdue(limit))

    # Callbacks

    async def callback(
        self, callback: CallbackIn, decide: Callable[[CallbackSubject], Settlement | str]
    ) -> tuple[CallbackSubject | None, Callback]:
        return await self._write(lambda cache: calling.callback(self.dialect, cache, callback, decide))

    async def callback_run(self, token: str) -> RunId | None:
        return await self._read(lambda: calling.callback_run(token))

    async def extend_callback(self, run_id: RunId, seconds: float) -> bool:
        return await self._write(lambda _: calling.extend_callback(self.dialect, run_id, seconds))

    async def callbacks(self, run_id: RunId | None, limit: int = 100) -> list[Callback]:
        return await self._read(lambda: calling.callbacks(run_id, limit))

    # Log and progress

    async def log(self, run_id: RunId, token: int, lines: Sequence[tuple[str, str]]) -> bool:
        return await self._write(lambda _: holding.log(self.dialect, run_id, token, lines))

    async def progress(self, run_id: RunId, token: int, progress: Mapping[str, Any]) -> bool:
        return await self._write(lambda _: holding.progress(self.dialect, run_id, token, progress))

    async def log_lines(self, run_id: RunId, after: int = 0, limit: int = 1000) -> list[LogLine]:
        return await self._read(lambda: reading.log_lines(run_id, after, limit))

    # Reading runs

    async def run(self, run_id: RunId) -> Run | None:
        return await self._read(lambda: reading.run(run_id))

    async def runs(self, query: RunQuery) -> Page[Run]:
        return await self._read(lambda: listing.runs(self.dialect, query))

    async def newest_runs(self, task_ids: Sequence[TaskId], count: int) -> dict[TaskId, list[Run]]:
        return await self._read(lambda: listing.newest(self.dialect, task_ids, count))

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        return await self._read(lambda: reading.attempts(run_id))

    async def bodies(self, run_id: RunId, attempt: int | None = None) -> RunBodies | None:
        return await self._read(lambda: reading.bodies(run_id, attempt))

    async def payload(self, run_id: RunId) -> Any:
        return await self._read(lambda: reading.payload(run_id))

    async def promote_run(self, run_id: RunId) -> bool:
        return await self._write(lambda cache: canceling.promote_run(self.dialect, cache, run_id))

    # Workers and queues

    async def register_worker(self, worker: Worker) -> Worker:
        return await self._settled(lambda _: registry.register(self.dialect, worker))

    async def set_worker(
        self, worker_id: str, *, state: WorkerState | None = None, concurrency: int | None = None
    ) -> Worker:
        return await self._write(lambda _: registry.set_worker(self.dialect, worker_id, state, concurrency))

    async def workers(self) -> list[Worker]:
        return await self._read(registry.workers)

    async def remove_worker(self, worker_id: str, incarnation: str) -> None:
        await self._write(lambda _: registry.remove_worker(worker_id, incarnation))

    async def queues(self) -> list[Queue]:
        return await self._read(registry.queues)

    async def set_queue(self, name: str, change: Callable[[Queue], Queue], *, by: str | None = None) -> Queue:
        return await self._settled(lambda _: registry.set_queue(self.dialect, name, change, by))

    # Upkeep

    async def clean(
        self,
        before: Instant,
        limit: int,
        *,
        task_id: TaskId | None = None,
        queue: str | None = None,
        status: Sequence[RunStatus] = (),
        keep: int | None = None,
        besides: Sequence[TaskId] = (),
    ) -> int:
        return await self._write(
            lambda _: upkeep.clean(self.dialect, before, limit, task_id, keep, queue, status, besides)
        )

    async def clean_rest(
        self, before: Instant, limit: int, *, task_id: TaskId | None = None, besides: Sequence[TaskId] = ()
    ) -> int:
        return await self._write(lambda _: leftovers.clean(self.dialect, before, limit, task_id, besides))

    async def recount(self) -> int:
        return await self._write(lambda _: upkeep.recount(self.dialect))

    async def events(self, after: int, limit: int = 1000) -> list[Event]:
        return await self._write(lambda _: events.read(self.dialect, after, limit))

    async def counts(self) -> Mapping[str, int]:
        return await self._read(lambda: upkeep.counts(self.dialect))

    async def fetch(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        """Rows for tools and tests that look at the tables themselves. Not part of the port."""

        def work() -> Work[list[tuple[Any, ...]]]:
            rows = yield Fetch(sql, params)
            return [tuple(row) for row in rows]

        return await self._read(work)
