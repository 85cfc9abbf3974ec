"""What a store can be asked. Nothing here changes what another call sees."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from noonbell.clock import Instant
from noonbell.model.access import AuditEnd, AuditEntry, Token
from noonbell.model.account import (
    Activity,
    CleanedSlots,
    ClockStep,
    Inconsistency,
    InstallationPause,
    KeyLine,
    Label,
    Outage,
    Pause,
    PendingCallbacks,
    SlotRun,
    StatusChange,
    StoreReturn,
    Wait,
)
from noonbell.model.alert import Acknowledgement, AlertDelivery, AlertState, Channel, Mute, OverdueTask, Rule
from noonbell.model.bulk import BulkItem, BulkOperation
from noonbell.model.calendar import Calendar
from noonbell.model.event import Callback, Event, EventPage, LogLine
from noonbell.model.flow import StepState
from noonbell.model.request import DueSweeps, ExpiredRun, Page, RunInput, RunQuery, TaskQuery, UnclaimableRuns
from noonbell.model.rollup import QueueDepth, RebuildState, RollUp, Scope, Span, Stretch
from noonbell.model.run import MOST_ATTEMPTS, Attempt, ChildState, DroppedRange, Run, RunBodies, RunId
from noonbell.model.sla import BreachCount, Sla, SlaBreach
from noonbell.model.subscription import HeldSubscription, WebhookDelivery, WebhookStatus
from noonbell.model.task import Task, TaskId, TaskSpec, TaskVersion
from noonbell.model.task_schedule import Follower, Join
from noonbell.model.view import SavedView, ViewedList
from noonbell.model.worker import Queue, WorkerInfo


class Queries(Protocol):
    # Tasks

    async def task(self, task_id: TaskId) -> Task | None:
        """The task, deleted ones too; None if there never was one or it was purged."""

    async def tasks_by_id(self, task_ids: Sequence[TaskId]) -> list[Task]:
        """Those of them that there are, deleted ones too, each once. Their cursors may be out of date."""

    async def task_named(self, name: str) -> Task | None:
        """The task of that name that is not deleted."""

    async def tasks_named(self, names: Collection[str]) -> dict[str, Task]:
        """Those of these names that are not deleted."""

    async def tasks(self, query: TaskQuery) -> Page[Task]: ...

    async def task_versions(self, task_id: TaskId) -> list[TaskVersion]:
        """Oldest first. Every change of status, schedule or policy is there, with its moment and who made it."""

    async def turns(self, task_ids: Sequence[TaskId]) -> dict[TaskId, StatusChange]:
        """Since when each of them has the status that it has, and who gave it. One question, however many they are."""

    async def labels(self, text: str = "", limit: int = 20) -> list[Label]:
        """Labels of tasks that are not deleted, the most used first, at most `limit`.

        `text` is a part of the name or of the value; with `=`, a part of the name before it and of the value after it.
        """

    async def dropped(self, task_id: TaskId, since: Instant, until: Instant) -> list[DroppedRange]:
        """The ranges of dropped slots that touch the stretch, oldest first."""

    # Calendars

    async def calendar(self, name: str) -> Calendar | None: ...

    async def calendars(self, limit: int = 1_000) -> list[Calendar]:
        """By name."""

    async def calendar_users(self, name: str, limit: int = 1_000) -> list[Task]:
        """The tasks that use a calendar and are not deleted, by id."""

    async def due_refreshes(self, limit: int = 10) -> list[tuple[str, Instant]]:
        """Calendars whose iCal source is to be fetched again, each with since when."""

    # Runs

    async def run(self, run_id: RunId) -> Run | None: ...

    async def runs(self, query: RunQuery) -> Page[Run]:
        """A page of them. With `look`, one may be short, or empty, and still have a cursor to the next.

        Each is as it is when it is read, which may be a moment after it was found. Of a page of several, `result` and
        `error_details` are None where they have more than `share_of(how many)` bytes; `omitted` has those that are.
        """

    async def runs_by_id(self, run_ids: Sequence[RunId]) -> list[Run]:
        """In the order of these ids, each once. What is not there, or was removed, is left out, and so is what is long,
        as in `runs`.
        """

    async def newest_runs(self, task_ids: Sequence[TaskId], count: int) -> dict[TaskId, list[Run]]:
        """The newest `count` runs of each, newest first, parts of a fan-out left out; an empty list where there are none.

        The questions it takes are as many for a hundred tasks as for one.
        """

    async def attempts(
        self, run_id: RunId, after: int = 0, limit: int = MOST_ATTEMPTS, *, bodies: bool = False
    ) -> list[Attempt]:
        """Attempts with a number above `after`, oldest first, the one under way included; each as it was recorded when
        it ended. What is long is left out of a list of several, as in `runs`.
        """

    async def bodies(self, run_id: RunId, attempt: int | None = None) -> RunBodies | None:
        """Of one attempt; None means the newest."""

    async def payload(self, run_id: RunId) -> Any:
        """What the run carries: its own payload, or its task's."""

    async def inputs(self, run_ids: Sequence[RunId]) -> dict[RunId, RunInput]:
        """What each of them carries, with what was changed for that run alone. Unknown ids are left out."""

    async def log_lines(
        self,
        run_id: RunId,
        after: int = 0,
        limit: int = 1000,
        *,
        levels: Sequence[str] = (),
        text: str | None = None,
        newest: bool = False,
    ) -> list[LogLine]:
        """In the order of `seq`: the first `limit` lines after that one, or with `newest` the last `limit` of them.

        `levels`: only lines of these. `text`: only lines that have it in them, in small letters or capitals.
        """

    async def run_task(self, run_id: RunId) -> Task | None:
        """The task of a run, as its attempts see it: of a step of a flow, that step's spec, as of the version with which its
        flow started; of a call, what the call says. None if the run is gone.
        """

    async def call_queues(self) -> list[str]:
        """The queues other than `http` that calls were made on: each has its built-in task."""

    async def flow_states(self, run_id: RunId) -> list[StepState]:
        """The steps of a run of a flow, in the order in which its task names them; none before it has started."""

    async def children(self, run_id: RunId, positions: Sequence[int]) -> list[ChildState]:
        """How the children of a run at these positions stand, in that order. What is no longer kept is left out."""

    async def task_as_of(self, task_id: TaskId, version: int) -> Task | None:
        """A task with the spec of one of its versions; None if it was purged."""

    async def overdue(self, limit: int) -> list[ExpiredRun]:
        """Leases run out, attempts past their deadline, callbacks that never came. Reads only; the oldest first."""

    async def due_sweeps(self) -> DueSweeps:
        """Which of `expire`, `resume_due`, `sweep_joins`, `sweep_keys` and `sweep_sla` would find something now.

        The work does not grow with what is there.
        """

    async def callback_run(self, token: str) -> RunId | None:
        """The run that a callback token was made for, by the token's hash; None for any other text."""

    async def callbacks(self, run_id: RunId | None, limit: int = 100, before: int | None = None) -> list[Callback]:
        """Those of a run, or (None) those that found no run; newest first, of those with a lower id than `before`.

        What is long is left out of a list of several, as in `runs`.
        """

    # The account: what became of every slot, and why

    async def slot_runs(self, task_id: TaskId, since: Instant, until: Instant, limit: int = 1000) -> list[SlotRun]:
        """What the slots of the stretch became, both ends included, oldest first, at most `limit`: skips too.

        Runs of triggers, backfills and retries are not among them, and neither are dropped slots.
        """

    async def joins(self, task_id: TaskId, root: str | None = None, limit: int = 10) -> list[Join]:
        """The joins of a task that runs after others: those of a root, the last redrive first; or the open ones, newest first."""

    async def joins_of_run(self, run_id: RunId, limit: int = 100) -> list[Join]:
        """The joins in which a run fills a place, or is the newest of its task; newest first."""

    async def followers(self, task_id: TaskId, limit: int = 100) -> list[Follower]:
        """The tasks that run after this one, by name; but for those that are deleted."""

    async def open_joins(self) -> int:
        """How many joins of all tasks are open."""

    async def key_lines(self, task_id: TaskId, limit: int = 20) -> list[KeyLine]:
        """The keys of a task behind which runs wait, the longest line first."""

    async def held_by_keys(self) -> tuple[int, int]:
        """How many keys of all tasks hold runs back, and how many runs that are."""

    async def slot_counts(self, since: Instant, until: Instant, seconds: int) -> dict[Instant, int]:
        """How many slots of all tasks became runs or skips, by stretches of `seconds` that begin at a multiple of it.

        Those in since <= slot < until; stretches without any are left out. Reads an index and no run, so it may be asked
        for a month of a million of them.
        """

    async def cleaned(self, task_id: TaskId) -> CleanedSlots:
        """How many runs of the task's slots `clean` has removed so far, and the last slot among them."""

    async def wait(self, run_id: RunId) -> Wait | None:
        """What stands between a run and its start, as of now. None for one that is under way, final or unknown."""

    async def activity(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Activity]:
        """The newest run of each task and how many are under way and waiting, parts of a fan-out left out.

        Tasks without a run are left out. The questions it takes are as many for a hundred tasks as for one.
        """

    async def pending_callbacks(self) -> PendingCallbacks:
        """How many runs wait for their callback, and how late they are."""

    async def rollups(
        self, kind: Scope, stretch: Stretch, *, names: Sequence[str] | None = None, step: Span | None = None
    ) -> list[RollUp]:
        """Figures of runs that ended in the stretch, of each name or of these, for each `step` or all of it. Complete at once."""

    async def busiest(self, kind: Scope, since: Instant, until: Instant, limit: int) -> list[str]:
        """The names with the most runs that ended in the hours of the stretch, the most first; in its days, where hours
        are no longer kept.
        """

    async def failed_tasks(self, since: Instant, until: Instant, limit: int) -> list[TaskId]:
        """The tasks of which a run failed on the days of the stretch, or since the last of them began; by id."""

    async def queue_depths(
        self, name: str, since: Instant, until: Instant, span: Span, step: int | None = None
    ) -> list[QueueDepth]:
        """How many runs waited in a queue, for each `span` of the stretch, or each `step` (microseconds) of several spans.

        A stretch in which no sample was taken is left out: nothing is known of it.
        """

    def sla_of(self, spec: TaskSpec) -> Sla | None:
        """The service level that runs of such a task have: its own, or that of the first of its labels that has one."""

    def sla_labels(self) -> list[str]:
        """The labels that bring a service level, in the order in which they are looked at."""

    async def sla_tasks(self) -> list[Task]:
        """Tasks with a service level of their own, by name."""

    async def sla_breaches(
        self,
        limit: int,
        *,
        task_ids: Sequence[int] | None = None,
        run_id: int | None = None,
        since: Instant | None = None,
    ) -> list[SlaBreach]:
        """What was broken or foreseen, the newest first: all, that of these tasks, or that of a run."""

    async def breach_counts(
        self, task_ids: Sequence[int], since: Instant, until: Instant, step: Span | None = None
    ) -> list[BreachCount]:
        """How many breaches came in the stretch, of each task and level, for each `step` or all of it."""

    async def rebuild_state(self) -> RebuildState:
        """How far a count from history has come."""

    async def outages(self, since: Instant, until: Instant) -> list[Outage]:
        """Those that touch the stretch, oldest first."""

    async def clock_steps(self, since: Instant, until: Instant) -> list[ClockStep]:
        """When the store's clock was set, if it showed a moment of the stretch before or after, or passed it over."""

    async def store_returns(self, since: Instant, until: Instant) -> list[StoreReturn]:
        """When the store went back to an earlier state, if what it lost touches the stretch."""

    async def pauses(self, queue: str, since: Instant, until: Instant) -> list[Pause]:
        """When the queue was paused within the stretch, by whom and until when, oldest first."""

    async def bulk_operation(self, operation_id: int) -> BulkOperation | None: ...

    async def bulk_operations(self, limit: int, before: int | None = None) -> list[BulkOperation]:
        """The newest first, from those with a lower id than `before`."""

    async def bulk_items(
        self, operation_id: int, limit: int, after: int = 0, *, changed: bool = False
    ) -> list[BulkItem]:
        """Those with a higher id than `after` that the operation has skipped, each with its reason.

        `changed`: those that it has changed, where it can be undone.
        """

    async def bulk_under_way(self) -> int:
        """How many operations are not over."""

    async def installation_pause(self) -> InstallationPause | None:
        """Who has paused everything, why and since when; None: nothing is paused as a whole."""

    async def installation_pauses(self, since: Instant, until: Instant) -> list[InstallationPause]:
        """When everything was paused within the stretch, oldest first."""

    async def flaws(self, limit: int = 100) -> list[Inconsistency]:
        """Rows that contradict each other, at most `limit`. Reads only. A sound store answers with nothing.

        A run that is final and still waits, that is not final and waits nowhere, or that is in two places; a part
        without its parent; a counter that a limit relies on and that is not what the rows say.
        """

    # Workers and queues

    async def workers(self) -> list[WorkerInfo]:
        """All, by id. One whose heartbeat is older than three of its intervals is `lost`."""

    async def scheduler_seen_at(self) -> Instant | None:
        """When a node that plans last said so. None: none ever did."""

    async def held(self, worker_ids: Sequence[str] | None = None) -> Mapping[str, int]:
        """How many runs each worker holds now, of these workers or of all. Who holds none is left out."""

    async def pinned(self, worker_ids: Sequence[str]) -> set[str]:
        """Those of these workers that a run which is due names."""

    async def stranded(self) -> list[UnclaimableRuns]:
        """The runs that are due now and that no worker alive could take, by queue, job type and what is lacking; reads only.

        What counts, and how far it looks, is as for `unserved`, without a stretch of grace: runs behind the heads of
        their lines are left out of `count`.
        """

    async def queues(self) -> list[Queue]:
        """Every queue that has a setting or a run that is not final, by name, with its depth."""

    async def task_queues(self) -> list[str]:
        """The names of the queues that tasks name, in any order; deleted tasks do not count. Looks at every task."""

    # Events

    async def events(self, after: int, limit: int = 1000) -> list[Event]:
        """What happened after number `after`, in the order of commit. Nothing is ever added behind what was read."""

    async def event_page(self, after: int, limit: int = 500, types: Collection[str] | None = None) -> EventPage:
        """Events after number `after`, from `limit` rows at most, in the order of commit; a row tells of a whole batch.

        Nothing is ever added behind `upto`. With `types`, others are passed over. `has_gap` if events after `after` have
        been removed, or `after` is a number that was never given.
        """

    async def last_event(self) -> int:
        """The number of the newest event that is committed."""

    # Saved views

    async def saved_views(self, of: ViewedList) -> list[SavedView]:
        """Of that list, by name."""

    # Alerts

    async def alert_rules(self) -> list[Rule]:
        """By name."""

    async def alert_channels(self) -> list[Channel]:
        """By name."""

    async def alert_states(self) -> list[AlertState]:
        """What the rules remember, by rule and subject."""

    async def alert_mutes(self) -> list[Mute]:
        """Those that have not ended, the first to end first."""

    async def acknowledgements(self) -> list[Acknowledgement]:
        """Of open alerts, by rule and subject."""

    async def labels_of_tasks(self, task_ids: Iterable[int]) -> dict[int, dict[str, str]]:
        """The labels of each of these tasks that has any."""

    async def overdue_tasks(self, seconds: float, limit: int = 100) -> list[OverdueTask]:
        """Tasks with a slot that was due `seconds` ago and is not planned, the oldest first; none while everything is paused."""

    async def waiting_tasks(self, seconds: float, limit: int = 100) -> list[OverdueTask]:
        """Tasks with a run that has been due for `seconds` and is not claimed; not on paused queues, and none while
        everything is paused.
        """

    async def slow_tasks(self, seconds: float, factor: float, limit: int = 50) -> list[OverdueTask]:
        """Tasks with a run under way for longer than `seconds` and than `factor` times the median of its last runs."""

    async def next_delivery(self) -> float | None:
        """Seconds until a delivery is due, 0 if one is; None if none waits."""

    async def alert_deliveries(
        self, limit: int = 100, *, before: int | None = None, channel: str | None = None
    ) -> list[AlertDelivery]:
        """Newest first; those with a smaller id than `before`."""

    # Webhook subscriptions

    async def subscriptions(self) -> list[HeldSubscription]:
        """All, by name, each with its state."""

    async def waiting_deliveries(self, name: str) -> list[WebhookDelivery]:
        """Those of a subscription that wait, in the order of events; without headers, body and response."""

    async def webhook_bodies(self, ids: Sequence[int]) -> dict[int, str]:
        """The bodies of these deliveries."""

    async def webhook_deliveries(
        self, name: str, limit: int = 100, *, before: int | None = None, status: WebhookStatus | None = None
    ) -> list[WebhookDelivery]:
        """Newest first; those with a smaller id than `before`. Without headers, body and response."""

    async def webhook_delivery(self, name: str, delivery_id: int) -> WebhookDelivery | None:
        """One delivery of a subscription."""

    # Tokens and the audit log

    async def tokens(self) -> list[Token]:
        """All that there ever were, oldest first. Their secrets are nowhere."""

    async def token_of(self, hashed: str) -> Token | None:
        """The token with this hash, good or not."""

    async def audit_log(
        self,
        before: int | None = None,
        limit: int = 100,
        *,
        actor: str | None = None,
        actions: Collection[str] = (),
        about: Collection[str] = (),
        text: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> list[AuditEntry]:
        """Newest first; with `before`, those with smaller numbers.

        Where that is said: of one actor, of some actions, `about` some paths such as `/tasks/7` and what lies under them,
        with a `text` anywhere in the record, written from `since` to `until`.
        """

    async def audit_entries(self, since: int, limit: int) -> list[AuditEntry]:
        """From that number on, oldest first: as they lie there, whether they follow from each other or not."""

    async def audit_end(self) -> AuditEnd:
        """The newest entry and the counter, of one moment."""

    # Diagnosis

    async def counts(self) -> Mapping[str, int]:
        """Rows by table and runs by place, for metrics and diagnosis. May be an estimate for large tables."""
