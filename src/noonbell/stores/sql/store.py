"""A store over SQL: the table of its transitions and queries, and its schema brought up to date."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from noonbell.clock import Clock, Instant, rfc3339
from noonbell.engine import failpoint
from noonbell.errors import InvalidArgument, NoonbellError, SchemaMismatch
from noonbell.model.access import AuditAction, AuditEntry
from noonbell.model.account import StoreReturn
from noonbell.model.event import EventPage
from noonbell.model.request import (
    Claimed,
    ClaimRequest,
    NewTask,
    Planned,
    Publication,
    PublishResult,
)
from noonbell.model.run import Settlement, SettleResult
from noonbell.model.sla import Sla, SlaSwept
from noonbell.model.task import Task, TaskSpec, TaskStatus
from noonbell.ports import Sign, unsigned
from noonbell.stores import migrations
from noonbell.stores.migrations import SchemaBusy, SchemaProgress, ownership
from noonbell.stores.migrations.table_lock import SchemaLock
from noonbell.stores.sql import (
    access,
    accounting,
    alerts,
    bulk,
    calls,
    change_capture,
    children,
    cleanup,
    fast_path,
    flows,
    ids,
    importing,
    keys,
    limits,
    planning,
    publishing,
    pulses,
    reading,
    rows,
    run_search,
    sla_sweep,
    sweeps,
    views,
)
from noonbell.stores.sql import calendars as calendar_rows
from noonbell.stores.sql import events as event_log
from noonbell.stores.sql import joins as following
from noonbell.stores.sql import rollups as rollup_rows
from noonbell.stores.sql import settle as settling
from noonbell.stores.sql import sla as sla_rows
from noonbell.stores.sql import subscriptions as webhooks
from noonbell.stores.sql import tasks as task_changes
from noonbell.stores.sql import workers as worker_rows
from noonbell.stores.sql.dialect import TableNames
from noonbell.stores.sql.pulses import Pulse
from noonbell.stores.sql.rows import KnownTasks, TaskView
from noonbell.stores.sql.statement import WAIT_AT_MOST, Conflict, Fetch, Now, Statement, StillLocked, Work, drive
from noonbell.stores.sql.table import TransitionRunner, always, name_entries, observed, read, write

T = TypeVar("T")

logger = logging.getLogger("noonbell.store")


@name_entries
class SqlStore(TransitionRunner):
    """Subclasses bring the connection: how to run a transition, and how to open and close."""

    def __init__(
        self, clock: Clock | None = None, *, schema: str | None = None, table_prefix: str = "", new: bool = False
    ) -> None:
        """`new`: it may be made beside a store with plain names in the same database."""
        self._clock = clock
        self._cache = KnownTasks()
        self._cache.on_followed = self._tell_followed
        self._cache.on_steps = self._tell_steps
        self._wait_at_most = WAIT_AT_MOST
        """Seconds that a call waits for locks of other sessions."""
        self._schema = self.dialect.name
        """Which variant of the migrations is ours."""
        tables, indexes = migrations.names(self._schema)
        self._names = TableNames(schema, table_prefix, tables=tables, indexes=indexes)
        self.dialect = dataclasses.replace(self.dialect, naming=self._names)
        self._new = new
        self._node = ""
        self._pulse: Pulse | None = None
        """What this process knows to be in the store; None until it is asked to remember."""
        self._looking_back = asyncio.Lock()
        self.is_being_moved = False
        """Opened by the move itself, which may open a store that nodes may not."""
        self._schema_lock: SchemaLock | None = None
        """Where the lock of the dialect does not hold between the servers of a cluster."""

    def _tell_steps(self, queues: Collection[str]) -> None:
        if self.on_fed is not None:
            self.on_fed(queues)

    def _tell_followed(self, queues: Sequence[str], skipped: int) -> None:
        if self.observer is not None:
            self.observer.followed(len(queues), skipped)
        if self.on_fed is not None and queues:
            self.on_fed(set(queues))

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def _write_past_conflicts(self, work: Callable[[TaskView], Work[T]]) -> T:
        for _ in range(5):
            try:
                return await self._write(work)
            except Conflict:
                continue
        return await self._write(work)

    async def _bring_up_to_date(self) -> None:
        """Look, and migrate under a lock: of two nodes that start together, the second finds it done."""
        found = await self.look_after_changes()
        await self._check_move(found, is_start=True)
        is_done = found.has_log and not found.taken_over and not migrations.missing(found)
        if found.foreign or not is_done:
            await self._take_steps(migrations.LATEST, SchemaProgress(), forward_only=True)
        else:
            migrations.check(found)
        await self._know_installation()
        self._cache.sla_defaults = await self._read(sla_rows.sla_defaults)

    async def _check_move(self, found: ownership.Found, *, is_start: bool) -> None:
        """Raises StoreMoved where another store is the installation now, or is about to be."""
        if migrations.WITH_MOVES in found.taken and not found.foreign and not self.is_being_moved:
            state = await self._read(change_capture.read_state)
            state.check_startable() if is_start else state.check_stays()

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
        return await self._alone(self._look_while_locked, SchemaProgress(say))

    def waits_for(self) -> str:
        """Who holds the lock that a call waits for at this moment, in words; empty if no call is known to wait."""
        return ""

    async def check_schema(self) -> None:
        """Raises SchemaMismatch when the store has moved to where this code may not work on it."""
        found = await self.look_at_schema()
        await self._check_move(found, is_start=False)
        migrations.check(found)
        if migrations.missing(found):
            raise SchemaMismatch(
                f"the store's schema went back to step {found.step}; this version of Noonbell needs {migrations.LATEST}",
                details={"found": found.step, "known": migrations.LATEST},
            )

    async def migrate(
        self,
        to: int = migrations.LATEST,
        say: Callable[[str], None] | None = None,
        move: Callable[[float], None] | None = None,
    ) -> list[int]:
        """Go to a step of the schema, forward or back; the steps that were taken. `say` hears of the progress, `move`
        which part is done.
        """
        taken = await self._take_steps(to, SchemaProgress(say, move), forward_only=False)
        if to >= migrations.WITH_INSTALLATION:
            await self._know_installation()
        return taken

    async def _know_installation(self) -> None:
        found = await self.installation_id()
        if found is None:
            found = await self._write_past_conflicts(lambda _: ids.ensure())
        self._cache.installation = found

    def sla_of(self, spec: TaskSpec) -> Sla | None:
        return self._cache.sla_of(spec)

    def sla_labels(self) -> list[str]:
        return list(self._cache.sla_defaults)

    async def installation_id(self) -> str | None:
        """The id that goes into idempotency keys; None before the store was opened for work."""
        return await self._read(ids.read)

    async def new_installation(self) -> str:
        """Give the installation another id. No other node may have the store open: it would go on with the former id."""
        made = await self._write_past_conflicts(lambda _: ids.replace())
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
                except (SchemaBusy, Conflict):  # a conflict: another node was faster with the same row of the books
                    progress.wait_for_another()
                    await self._wait_for_schema()

    async def _wait_for_schema(self) -> None:
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
        found = yield from self._look_while_locked()
        lock = self._schema_lock
        if lock is None:
            return (yield from self._migrating_from(found, to, progress, forward_only=forward_only))
        found.check_foreign()  # nothing is written into a database that holds what is not ours, not even a lock
        if not (yield from lock.acquire(found)):
            raise SchemaBusy
        try:
            found = yield from migrations.look(self.dialect, self._schema)
            taken = yield from self._migrating_from(found, to, progress, forward_only=forward_only)
            yield from lock.release()
        except Exception:
            with contextlib.suppress(Exception):  # the connection may be lost: the lock is taken over then
                yield from lock.release_after_failure()
            raise
        return taken

    def _look_while_locked(self) -> Work[ownership.Found]:
        """What looks foreign while a node of another server changes the schema may be ours."""
        found = yield from migrations.look(self.dialect, self._schema)
        lock = self._schema_lock
        for _ in range(2):
            if not found.foreign or lock is None:
                break
            if (yield from lock.is_taken(self.dialect)):
                raise SchemaBusy
            found = yield from migrations.look(self.dialect, self._schema)
        return found

    def _migrating_from(
        self, found: ownership.Found, to: int, progress: SchemaProgress, *, forward_only: bool
    ) -> Work[list[int]]:
        found.check_foreign()
        migrations.check(found, to)
        if found.beside and not self._new:
            raise SchemaMismatch(
                "the database holds a Noonbell store with plain table names, and none under store.table_prefix"
                f" {self._names.prefix!r} and store.schema {self._names.schema or ''!r}; add --new to create a second"
                " one next to it"
            )
        stays = found.step <= to or forward_only or to == migrations.LATEST
        if stays and not migrations.missing(found, to):
            if found.taken_over:
                yield from ownership.prepare(self.dialect, found)
            return []
        unknown = found.taken - {step.number for step in migrations.STEPS}
        if unknown and not stays:
            raise SchemaMismatch(
                f"the store's schema has step {max(unknown)}, which this version of Noonbell does not know, so it"
                " cannot undo it; upgrade Noonbell",
                details={"found": found.step, "known": migrations.LATEST, "unknown": sorted(unknown)},
            )
        progress.is_quiet = found.step == 0
        return (yield from migrations.migrate(self.dialect, self._schema, found, to, progress))

    @observed()
    async def now(self) -> Instant:
        return await self._read_clock()

    async def about_now(self) -> Instant:
        return await self.now()

    async def _read_clock(self) -> Instant:
        def work() -> Work[Instant]:
            return Instant((yield Now()))

        return await self._read(work)

    # Tasks

    @observed(always)
    async def create_task(
        self,
        spec: TaskSpec,
        *,
        status: TaskStatus = TaskStatus.ENABLED,
        by: str | None = None,
        system: bool = False,
        skip_next: int = 0,
    ) -> Task:
        answer = await self._create_task(NewTask(spec=spec, status=status, by=by, system=system, skip_next=skip_next))
        if isinstance(answer, NoonbellError):
            raise answer
        return answer

    async def _create_task(self, new: NewTask) -> Task | NoonbellError:
        (answer,) = await self._create_each([new])
        return answer

    async def _create_each(self, new: Sequence[NewTask]) -> list[Task | NoonbellError]:
        return await self._write_past_conflicts(lambda cache: task_changes.create_each(self.dialect, cache, new))

    create_tasks = write(task_changes.create_all, events=bool, retry=True)
    change_task = write(task_changes.change, events=always, retry=True)
    change_tasks = write(task_changes.change_all, events=bool, retry=True)
    set_status = write(task_changes.set_status, events=bool)
    delete_task = write(cleanup.delete_task, events=always)
    delete_tasks = write(cleanup.delete_all, events=bool)
    skip_next = write(task_changes.skip_next, events=always)
    task = read(rows.load_task)
    tasks_by_id = write(rows.tasks_by_id)
    task_named = read(reading.task_named)
    tasks_named = read(reading.tasks_named)
    tasks = read(reading.tasks)
    task_versions = read(reading.task_versions)
    turns = read(task_changes.turns)
    labels = read(task_changes.labels)
    dropped = read(reading.dropped)

    # Calendars

    calendar = read(calendar_rows.calendar)
    calendars = read(calendar_rows.calendars)
    calendar_users = read(calendar_rows.calendar_users)
    due_refreshes = read(calendar_rows.due_refreshes)
    save_calendar = write(calendar_rows.save_calendar, events=attrgetter("is_changed"), retry=True)
    delete_calendar = write(calendar_rows.delete_calendar, events=always)
    take_refresh = write(calendar_rows.take_refresh)
    note_refresh = write(calendar_rows.note_refresh, events=bool)

    # The account

    slot_runs = read(accounting.slot_runs)
    joins = read(following.joins)
    joins_of_run = read(following.joins_of_run)
    followers = read(following.followers)
    open_joins = read(following.open_joins)
    key_lines = read(keys.lines)
    held_by_keys = read(keys.held)
    slot_counts = read(accounting.slot_counts)
    pending_callbacks = read(accounting.pending_callbacks)
    cleaned = read(accounting.cleaned)
    wait = read(accounting.wait)
    activity = read(accounting.activity)
    note_outage = write(accounting.note_outage)
    outages = read(accounting.outages)
    note_clock_step = write(accounting.note_clock_step, events=bool)
    clock_steps = read(accounting.clock_steps)
    store_returns = read(pulses.returns)

    @observed(bool)
    async def pulse(self, node: str, *, writes: bool = True) -> StoreReturn | None:
        self._node, remembered = node, self._pulse
        found = Pulse(0, 0) if writes else await self._read(pulses.look)
        noted: StoreReturn | None = None
        if writes:
            found, noted = await self._write(lambda _: pulses.beat(self.dialect, self._fresh_view(), node, remembered))
        elif remembered is not None and remembered.is_missing_in(found):
            known = remembered
            found, noted = await self._write(lambda _: pulses.note(self.dialect, self._fresh_view(), node, known))
        self._remember(found, noted)
        return noted

    def _fresh_view(self) -> TaskView:
        """Of no task: a store that went back may have given the same version another meaning."""
        known = KnownTasks()
        known.installation, known.sla_defaults = self._cache.installation, self._cache.sla_defaults
        return TaskView(known)

    def _remember(self, found: Pulse, noted: StoreReturn | None) -> None:
        if noted is not None:
            logger.warning(
                "the store went back: what was committed between %s and %s is gone; %d at-most-once runs and slots are skipped",
                *(rfc3339(noted.since), rfc3339(noted.until), noted.skipped),
            )
            if self.observer is not None:
                self.observer.went_back(noted)
        before, self._pulse = self._pulse, found
        if before is not None and before.returns != found.returns:
            self._cache.clear()

    async def _look_back(self, do: Callable[[Statement], Awaitable[Any]]) -> None:
        """On a new connection, in a transaction: where the store that it leads to lacks what is remembered, note that first."""
        async with self._looking_back:
            remembered = self._pulse
            if remembered is None:
                return
            found, noted = await drive(pulses.look, do), None
            if remembered.is_missing_in(found):
                view = self._fresh_view()
                found, noted = await drive(lambda: pulses.note(self.dialect, view, self._node, remembered), do)
            self._remember(found, noted)

    pauses = read(worker_rows.pauses)
    pause_installation = write(limits.pause_installation, events=itemgetter(1), retry=True)
    resume_installation = write(limits.resume_installation, events=bool)
    installation_pause = read(limits.installation_pause)
    installation_pauses = read(limits.installation_pauses)
    flaws = read(accounting.flaws)

    # From slots to runs

    @observed(lambda planned: planned.tasks > 0)
    async def plan(self, limit: int, *, cap: int = 100, skip: bool = False) -> Planned:
        try:
            return await self._write(lambda cache: planning.plan(self.dialect, cache, limit, cap, skip=skip))
        except Conflict:
            # A slot has its run already, though the cursor says otherwise: look before writing, this time.
            return await self._write(
                lambda cache: planning.plan(self.dialect, cache, limit, cap, skip=skip, careful=True)
            )

    promote = write(planning.promote)
    promote_run = write(settling.promote_run, events=bool)

    @observed(bool)
    async def publish(self, publications: Sequence[Publication]) -> list[PublishResult]:
        return await self._publish(publications) if publications else []

    async def _publish(self, publications: Sequence[Publication]) -> list[PublishResult]:
        tasks = fast_path.plain_tasks(publications, self._cache)
        if tasks is not None:
            known_then = tasks
            published = await self._write(
                lambda cache: fast_path.publish_plain(self.dialect, cache, publications, known_then)
            )
            if published is not None:
                return published
        return await self._write_past_conflicts(lambda cache: publishing.publish(self.dialect, cache, publications))

    async def publish_within(
        self, connection: Any, publications: Sequence[Publication], topics: Sequence[str] = ()
    ) -> list[PublishResult]:
        del publications, topics
        raise InvalidArgument.field(
            "transaction",
            f"is a {type(connection).__name__}; a store in memory has no transactions of callers",
        )

    # Claim, execute, settle: PostgreSQL overrides the methods with an underscore

    @observed(lambda claimed: bool(claimed.leases))
    async def claim(self, request: ClaimRequest) -> Claimed:
        return await self._claim(request)

    async def _claim(self, request: ClaimRequest) -> Claimed:
        return await self._write_past_conflicts(lambda cache: fast_path.claim_plain(self.dialect, cache, request))

    @observed(bool)
    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        return await self._settle(settlements) if settlements else []

    async def _settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        return await self._write(lambda cache: self._settling(cache, settlements))

    def _settling(self, cache: TaskView, settlements: Sequence[Settlement]) -> Work[list[SettleResult]]:
        if settlements and fast_path.all_short(settlements):
            return (yield from fast_path.settle_plain(self.dialect, cache, settlements))
        return (yield from settling.settle(self.dialect, cache, settlements))

    @observed(lambda answer: bool(answer[0] or answer[1].leases))
    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[list[SettleResult], Claimed]:
        return await self._settle_and_claim(settlements, request)

    async def _settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[list[SettleResult], Claimed]:
        def work(cache: TaskView) -> Work[tuple[list[SettleResult], Claimed]]:
            settled = yield from self._settling(cache, settlements)
            return settled, (yield from fast_path.claim_plain(self.dialect, cache, request))

        return await self._write_past_conflicts(work)

    begin = write(worker_rows.begin)
    heartbeat = write(worker_rows.heartbeat)
    extend = write(worker_rows.extend)
    retry_held = write(settling.retry_held)
    spawn = write(publishing.spawn, events=bool, retry=True)
    children = read(children.states)
    log = write(worker_rows.log)
    progress = write(worker_rows.progress)
    cancel = write(settling.cancel, events=bool)
    overdue = read(sweeps.overdue)
    due_sweeps = read(sweeps.due_sweeps)
    sweep_joins = write(sweeps.sweep_joins, events=lambda swept: swept.missing or swept.resumed)
    sweep_keys = write(keys.sweep)
    resume_due = write(sweeps.resume_due, events=lambda resumed: resumed.tasks)
    expire = write(sweeps.expire, events=lambda skips: skips.tasks)

    # Bulk operations

    start_bulk = write(bulk.start_bulk, events=always)
    take_bulk = write(bulk.take_bulk)
    advance_bulk = write(bulk.advance_bulk, events=bool, retry=True)
    fail_bulk = write(bulk.fail_bulk, events=bool)
    cancel_bulk = write(bulk.cancel_bulk, events=bool)
    leave_bulk = write(bulk.leave_bulk)
    bulk_operation = read(bulk.bulk_operation)
    bulk_operations = read(bulk.bulk_operations)
    bulk_items = read(bulk.bulk_items)
    bulk_under_way = read(bulk.bulk_under_way)

    # Callbacks

    callback = write(settling.callback, events=always)
    callback_run = read(settling.callback_run)
    extend_callback = write(settling.extend_callback)
    callbacks = read(settling.callbacks)

    # Runs

    run = read(reading.run)
    runs = read(run_search.runs)
    runs_by_id = read(run_search.runs_by_id)
    newest_runs = read(run_search.newest_runs)
    attempts = read(reading.attempts)
    bodies = read(reading.bodies)
    payload = read(reading.payload)
    inputs = read(reading.inputs)
    log_lines = read(reading.log_lines)
    run_task = write(flows.run_task)
    call_queues = read(calls.call_queues)
    flow_states = read(flows.states)
    task_as_of = write(flows.task_as_of)

    # Workers and queues

    register_worker = write(worker_rows.register_worker, events=always, retry=True)
    set_worker = write(worker_rows.set_worker, events=always)
    workers = read(worker_rows.workers)
    remove_worker = write(worker_rows.remove_worker, events=always)
    forget_worker = write(worker_rows.forget_worker, events=always)
    note_scheduler = write(worker_rows.note_scheduler, retry=True)
    scheduler_seen_at = read(worker_rows.scheduler_seen_at)
    attend = write(worker_rows.attend)
    held = read(worker_rows.held)
    pinned = read(worker_rows.pinned)
    unserved = write(worker_rows.unserved, events=bool, retry=True)
    stranded = read(worker_rows.stranded)
    notice_workers = write(alerts.notice_workers, events=bool, retry=True)
    queues = read(worker_rows.queues)
    task_queues = read(worker_rows.task_queues)
    set_queue = write(worker_rows.set_queue, events=always, retry=True)

    # Events

    events = write(event_log.read)
    forget_events = write(event_log.forget)

    @observed()
    async def event_page(self, after: int, limit: int = 500, types: Collection[str] | None = None) -> EventPage:
        if await self._read(event_log.waiting):
            await self._write(lambda _: event_log.number(self.dialect))
        return await self._read(lambda: event_log.page(self.dialect, after, limit, types))

    @observed()
    async def last_event(self) -> int:
        while await self._read(event_log.waiting):
            await self._write(lambda _: event_log.number(self.dialect))
        return await self._read(event_log.last)

    # Saved views

    saved_views = read(views.saved_views)
    save_view = write(views.save_view, retry=True)
    remove_view = write(views.remove_view)

    # Alerts

    alert_rules = read(alerts.alert_rules)
    put_alert_rule = write(alerts.put_alert_rule, retry=True)
    remove_alert_rule = write(alerts.remove_alert_rule)
    alert_channels = read(alerts.alert_channels)
    put_alert_channel = write(alerts.put_alert_channel, retry=True)
    remove_alert_channel = write(alerts.remove_alert_channel)
    alert_mutes = read(alerts.alert_mutes)
    add_alert_mute = write(alerts.add_alert_mute)
    remove_alert_mute = write(alerts.remove_alert_mute)
    forget_mutes = write(alerts.forget_mutes)
    acknowledgements = read(alerts.acknowledgements)
    acknowledge_alert = write(alerts.acknowledge_alert, retry=True)
    withdraw_acknowledgement = write(alerts.withdraw_acknowledgement)
    labels_of_tasks = read(alerts.labels_of_tasks)
    take_duty = write(alerts.take_duty, retry=True)
    leave_duty = write(alerts.leave_duty)
    alert = write(alerts.alert, events=bool)
    alert_states = read(alerts.alert_states)
    overdue_tasks = read(alerts.overdue_tasks)
    waiting_tasks = read(alerts.waiting_tasks)
    slow_tasks = read(alerts.slow_tasks)
    note_delivery = write(alerts.note_delivery)
    claim_deliveries = write(alerts.claim_deliveries)
    next_delivery = read(alerts.next_delivery)
    settle_delivery = write(alerts.settle_delivery)
    rest_delivery = write(alerts.rest_delivery)
    alert_deliveries = read(alerts.alert_deliveries)
    forget_deliveries = write(alerts.forget_deliveries)

    # Webhook subscriptions

    subscriptions = read(webhooks.subscriptions)
    put_subscription = write(webhooks.put_subscription, events=always, retry=True)
    remove_subscription = write(webhooks.remove_subscription, events=bool)
    take_subscriptions = write(webhooks.take_subscriptions)
    leave_subscriptions = write(webhooks.leave_subscriptions)
    waiting_deliveries = read(webhooks.waiting_deliveries)
    settle_deliveries = write(
        webhooks.settle_deliveries, events=lambda state: state is not None and state.disabled_at is not None
    )
    webhook_bodies = read(webhooks.webhook_bodies)
    webhook_deliveries = read(webhooks.webhook_deliveries)
    webhook_delivery = read(webhooks.webhook_delivery)
    note_webhook = write(webhooks.note_webhook)
    replay_delivery = write(webhooks.replay_delivery)
    move_subscription = write(webhooks.move_subscription, events=always)
    forget_webhooks = write(webhooks.forget_webhooks)

    # Tokens, the audit log, and secrets sealed again

    create_token = write(access.create_token, retry=True)
    tokens = read(access.tokens)
    token_of = read(access.token_of)
    note_token_use = write(access.note_token_use)
    revoke_token = write(access.revoke_token)

    @observed()
    async def write_audit(self, deeds: Sequence[AuditAction], sign: Sign = unsigned) -> list[AuditEntry]:
        return await self._write_audit(deeds, sign)

    async def _write_audit(self, deeds: Sequence[AuditAction], sign: Sign) -> list[AuditEntry]:
        return await self._write(lambda _: access.write_audit(self.dialect, deeds, sign))

    audit_log = read(access.audit_log)
    audit_entries = read(access.audit_entries)
    audit_end = read(access.audit_end)
    reseal_tasks = write(access.reseal_tasks)
    reseal_versions = write(access.reseal_versions)
    reseal_channels = write(access.reseal_channels)
    reseal_subscriptions = write(access.reseal_subscriptions)
    reseal_calls = write(calls.reseal_calls)

    # Roll-ups

    @observed()
    async def fold_rollups(self, limit: int) -> int:
        if not await self._read(rollup_rows.is_due):
            return 0
        folded, told = await self._write(lambda cache: self._folding(cache, limit))
        if folded:
            failpoint.hit("K38")
        if told and self.on_events is not None:
            self.on_events()
        return folded

    def _folding(self, cache: TaskView, limit: int) -> Work[tuple[int, int]]:
        """The figures are complete then: the tasks that promise a ratio of successes are judged by them."""
        folded, tasks = yield from rollup_rows.fold(self.dialect, limit)
        return folded, (yield from sla_sweep.judge_ratios(self.dialect, cache, tasks))

    forget_rollups = write(rollup_rows.forget)
    rollups = read(rollup_rows.rollups)
    busiest = read(rollup_rows.busiest)
    failed_tasks = read(rollup_rows.failed_tasks)
    rebuild_state = read(rollup_rows.rebuild_state)
    order_rebuild = write(rollup_rows.order_rebuild)
    rebuild_rollups = write(rollup_rows.rebuild)
    sample_queues = write(rollup_rows.sample)
    forget_queue_depths = write(rollup_rows.forget_depths)
    queue_depths = read(rollup_rows.depths)

    # Service levels

    @observed(lambda swept: swept.breached or swept.foreseen)
    async def sweep_sla(self, limit: int) -> SlaSwept:
        swept = await self._write(lambda cache: sla_sweep.sweep(self.dialect, cache, limit))
        if swept.breached:
            failpoint.hit("K40")
        return swept

    @observed()
    async def put_sla_defaults(self, defaults: Mapping[str, Sla]) -> None:
        await self._write_past_conflicts(lambda _: sla_rows.put_sla_defaults(dict(defaults)))
        self._cache.sla_defaults = dict(defaults)

    sla_tasks = read(sla_rows.sla_tasks)
    sla_breaches = read(sla_rows.sla_breaches)
    breach_counts = read(sla_rows.breach_counts)

    # Upkeep

    import_runs = write(importing.import_runs, retry=True)
    clean = write(cleanup.clean)
    clean_runs = write(cleanup.clean_runs)
    clean_rest = write(cleanup.clean_rest)

    async def drop_history(self, before: Instant) -> int:
        """PostgreSQL has partitions; elsewhere `clean` does it all."""
        del before
        return 0

    async def history_cut(self, before: Instant) -> Instant:
        return before

    async def tend_history(self, seconds: float, events_seconds: float) -> bool:
        del seconds, events_seconds
        return False

    recount = write(cleanup.recount)
    counts = read(cleanup.counts)

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[Callable[[Callable[[], Work[Any]]], Awaitable[Any]]]:
        """A connection that reads one moment of the store, however long it takes while others write. One call at a
        time.
        """

    async def copy_from(self, other: SqlStore) -> bool:
        """Take over every row of `other`; False, and nothing is written, if there are rows here already. Not part of the port.

        No other node may have either store open.
        """
        rows = await other._read(migrations.read_rows)
        return await self._change_schema(lambda _: migrations.write_rows(rows))

    async def fetch(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        """Rows for tools and tests that look at the tables themselves. Not part of the port."""

        def work() -> Work[list[tuple[Any, ...]]]:
            rows = yield Fetch(sql, params)
            return [tuple(row) for row in rows]

        return await self._read(work)
