"""The seams. A protocol's docstrings are laws: the conformance suite tests each sentence on every implementation.

`Store` is a list of named transitions. Each is one transaction: all of it happens, or nothing does. Each is fenced: it
names the state, version or token that it expects, and where that no longer holds it changes nothing and says so. So any
number of nodes may call them at the same time, and none of them needs to be the leader.

Time is the store's clock (the database's, or the clock it was built with). Where a law says *now*, it means that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from noonbell.clock import Instant
from noonbell.model.access import AuditEntry, Deed, Role, Token
from noonbell.model.account import Activity, Cleaned, Flaw, Label, Outage, Pause, SlotRun, Turn, Wait
from noonbell.model.alert import AlertState, AlertStep, Channel, Delivery, DeliveryStatus, Duty, Late, Notice, Rule
from noonbell.model.attempt import Assignment, Outcome
from noonbell.model.event import Callback, Event, EventPage, LogLine
from noonbell.model.request import (
    CallbackIn,
    CallbackSubject,
    Canceled,
    Claimed,
    ClaimRequest,
    Heartbeat,
    Input,
    Overdue,
    Page,
    Planned,
    Promoted,
    Publication,
    Published,
    RunQuery,
    TaskChange,
    TaskQuery,
    Unserved,
)
from noonbell.model.run import Attempt, DroppedRange, Lease, Run, RunBodies, RunId, RunStatus
from noonbell.model.settlement import Settled, Settlement
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus, TaskVersion
from noonbell.model.worker import Attendance, Queue, Worker, WorkerState


class Store(Protocol):
    # Life

    async def open(self) -> None:
        """Connect. The schema is brought up to date; one that is newer than this code raises SchemaMismatch."""

    async def close(self) -> None:
        """Let go of every connection and thread. What was called before has finished or failed."""

    async def now(self) -> Instant:
        """The store's clock."""

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
        """A new task, version 1, with its cursor at the first slot after now. `skip_next` holds from its first slot on.

        A name or external id that a task not deleted has already raises AlreadyExists, and nothing is written.
        The first task that is not a system task has id 1. A task whose schedule names no slot is COMPLETED.
        """

    async def change_task(
        self,
        task_id: TaskId,
        edit: Callable[[Task], TaskChange],
        *,
        by: str | None = None,
        expect_version: int | None = None,
    ) -> Task:
        """Apply `edit`, after every slot up to now has been accounted for under the old version.

        The version rises by one, the old version stays readable. With another `expect_version`: VersionConflict and
        nothing is written. A change of schedule, zone or bounds, and enabling, put the cursor at the first slot after
        now; the former, a return from COMPLETED or ERROR, and `recount`, start the repeat count anew. Other edits keep
        both. The cursor never moves back, not even when the clock does. An edit that changes nothing writes nothing;
        one of `skip_next` alone makes no version. A raised `max_concurrency` lets waiting runs be claimed at once. A
        worker that is no longer in `specific_worker_ids` gets the order to cancel at its next heartbeat, and a new
        `ping_interval_ms` with it; other changes touch no run that is executing, and are used at the next claim.
        """

    async def set_status(self, task_ids: Sequence[TaskId], status: TaskStatus, *, by: str | None = None) -> list[Task]:
        """Enable or disable many in one transaction, each as `change_task` does it; those that were changed.

        Unknown and deleted tasks, those in ERROR, and those that have the status already, stay as they are and are not
        in the answer.
        """

    async def delete_task(
        self,
        task_id: TaskId,
        *,
        by: str | None = None,
        cancel_running: bool = False,
        purge: bool = False,
        expect_version: int | None = None,
    ) -> Task:
        """Account for every slot up to now, then end the task: no further slot, its name is free again.

        Waiting runs are CANCELED; executing ones finish, unless `cancel_running`. History stays, unless `purge`, which
        removes every row of the task. A system task is refused with InvalidState. With another `expect_version`:
        VersionConflict and nothing is written.
        """

    async def skip_next(self, task_id: TaskId, count: int, *, by: str | None = None) -> Task:
        """The next `count` slots become SKIPPED runs with reason `operator`. 0 takes it back, -1 is until then."""

    async def task(self, task_id: TaskId) -> Task | None:
        """The task, deleted ones too; None if there never was one or it was purged."""

    async def tasks_by_id(self, task_ids: Sequence[TaskId]) -> list[Task]:
        """Those of them that there are, deleted ones too, each once. Their cursors may be out of date."""

    async def task_named(self, name: str) -> Task | None:
        """The task of that name that is not deleted."""

    async def tasks(self, query: TaskQuery) -> Page[Task]: ...

    async def task_versions(self, task_id: TaskId) -> list[TaskVersion]:
        """Oldest first. Every change of status, schedule or policy is there, with its moment and who made it."""

    async def turns(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Turn]:
        """Since when each of them has the status that it has, and who gave it. One question, however many they are."""

    async def labels(self, text: str = "", limit: int = 20) -> list[Label]:
        """Labels of tasks that are not deleted, the most used first, at most `limit`.

        `text` is a part of the name or of the value; with `=`, a part of the name before it and of the value after it.
        """

    async def dropped(self, task_id: TaskId, since: Instant, until: Instant) -> list[DroppedRange]:
        """The ranges of dropped slots that touch the stretch, oldest first."""

    # The account

    async def slot_runs(self, task_id: TaskId, since: Instant, until: Instant, limit: int = 1000) -> list[SlotRun]:
        """What the slots of the stretch became, both ends included, oldest first, at most `limit`: skips too.

        Runs of triggers, backfills and retries are not among them, and neither are dropped slots.
        """

    async def slot_counts(self, since: Instant, until: Instant, seconds: int) -> dict[Instant, int]:
        """How many slots of all tasks became runs or skips, by stretches of `seconds` that begin at a multiple of it.

        Those in since <= slot < until; stretches without any are left out. Reads an index and no run, so it may be asked
        for a month of a million of them.
        """

    async def cleaned(self, task_id: TaskId) -> Cleaned:
        """How many runs of the task's slots `clean` has removed so far, and the last slot among them."""

    async def wait(self, run_id: RunId) -> Wait | None:
        """What stands between a run and its start, as of now. None for one that is under way, final or unknown."""

    async def activity(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Activity]:
        """The newest run of each task and how many are under way and waiting, parts of a fan-out left out.

        Tasks without a run are left out. The questions it takes are as many for a hundred tasks as for one.
        """

    async def note_outage(self, seconds: float, node: str) -> Outage:
        """A node says that it could not reach the store for the `seconds` before now."""

    async def outages(self, since: Instant, until: Instant) -> list[Outage]:
        """Those that touch the stretch, oldest first."""

    async def pauses(self, queue: str, since: Instant, until: Instant) -> list[Pause]:
        """When the queue was paused within the stretch, by whom and until when, oldest first."""

    async def flaws(self, limit: int = 100) -> list[Flaw]:
        """Rows that contradict each other, at most `limit`. Reads only. A sound store answers with nothing.

        A run that is final and still waits, that is not final and waits nowhere, or that is in two places; a part
        without its parent; a counter that a limit relies on and that is not what the rows say.
        """

    # From slots to runs

    async def plan(self, limit: int, *, cap: int = 100, skip: bool = False) -> Planned:
        """Take up to `limit` tasks whose cursor is due, and account for each of their slots up to now.

        Runs, skips, dropped ranges and the new cursor are written in one transaction. A slot becomes one run at most,
        whatever races: (task, slot) is unique. Tasks that another planner holds are left to it. A schedule without a
        further slot turns its task COMPLETED. A run that needs no worker (a plan's, with target pub) is SUCCESS at once,
        and `run.published` tells what it carries. The work grows with what is due, never with the number of tasks.

        With `skip`, what is due is dropped as a misfire, whatever the policies say: for a node that starts and wants to
        know nothing of the time before. A fixed delay is not: its next slot is as late as it is.
        """

    async def promote(self, limit: int) -> Promoted:
        """Delayed and retrying runs whose time has come are made ready to be claimed, oldest first."""

    async def publish(self, publications: Sequence[Publication]) -> list[Published]:
        """Runs outside the schedule, all in one transaction, answers in the order of the requests.

        No key: always a new run. A key that a run of the task has already: nothing changes and the answer is `running`
        if that run was claimed and is not final, else `exists`; but a final one is run again where `if_finished` says
        so: a fresh run takes the key over.
        `update_waiting` replaces payload, priority and run_at of a run with the key that was never claimed: `updated`.
        A task at its limit that does not queue: `refused`, no run, and the key stays free. An unknown or deleted task
        raises NotFound, a task in ERROR raises InvalidState; then nothing of the whole batch is written.
        """

    async def publish_within(
        self, connection: Any, publications: Sequence[Publication], topics: Sequence[str] = ()
    ) -> list[Published]:
        """As `publish`, in the transaction that the caller has open on a connection of its own to the same database.

        The runs exist if and only if the caller commits. The commit signals `topics`, or whoever waits sees that
        something was written. Where it raises, nothing of the batch is written, and what the caller wrote before stands.
        A connection that is to something else, or has no transaction, raises InvalidArgument; so does any connection
        on a
        store that cannot share one.
        """

    # Claim, execute, settle

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Up to `max` runs that are due, RUNNING and leased to this worker from now on: no two claims get the same.

        Order: priority, then runs that name this worker, then `run_at`, then id. A paused queue gives nothing. Over all
        nodes, a task never has more than `max_concurrency` runs executing or awaiting their callback, nor a queue more
        than its own; and no stretch of `per_seconds` sees more starts than a rate limit allows. What a limit holds back
        does not stand in the way of others. Runs pinned to other workers, or that ask for a newer worker, are left. A
        part of a fan-out goes to a worker that has had no other part of it; the claim that makes the parts says where
        the others wait (`split`). Each claim gives a token that is larger than any before it for that run, counts one
        attempt, and sets the lease and the deadline.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write how attempts ended, and their events, in one transaction; answers in the order of the requests.

        DONE if this call made the change. LOST if the token is not the current one, the worker another, or what
        was expected no longer holds: then nothing of the run changes, and the refusal is recorded. Repeating a call
        that was DONE is LOST. One that is LOST does not disturb the others of the batch.
        The end of a plan's run is told by `run.result` as well, with its result.
        """

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[list[Settled], Claimed]:
        """The settlements, then a claim: what a busy worker calls. In one transaction where nothing stands in the way."""

    async def begin(self, leases: Sequence[Lease]) -> set[RunId]:
        """Mark attempts of at-most-once runs as begun, before the first byte is sent. Returns those still held.

        A begun run whose lease runs out is never handed to another worker.
        """

    async def heartbeat(
        self, worker_id: str, held: Sequence[tuple[RunId, int]], *, incarnation: str = "", renew: bool = True
    ) -> Heartbeat:
        """Renew the leases that are still held with these tokens, and bring back an order for each of them.

        CONTINUE with the new expiry; CANCEL if the run was canceled or this worker may not have it any longer; LOST if
        the lease is somebody else's or the run is final. Each pair of run and token gets its own order. Runs that are
        not listed are not renewed. The worker is alive from now on; its state and concurrency come back as an operator
        has set them. Without `renew` no lease changes: the orders and their present expiry come back.
        """

    async def extend(self, run_id: RunId, token: int, seconds: float) -> bool:
        """Move deadline and lease of an attempt that is held with this token to `seconds` from now. False if lost."""

    async def cancel(self, run_ids: Sequence[RunId], *, by: str | None = None, reason: str = "") -> list[Canceled]:
        """CANCELED at once, from any status that is not final; the token is void and the place free from then on.

        A final run stays as it is and is answered with its status. Unknown ids are left out.
        """

    async def overdue(self, limit: int) -> list[Overdue]:
        """Leases run out, attempts past their deadline, callbacks that never came. Reads only; the oldest first."""

    # Callbacks

    async def callback(
        self, callback: CallbackIn, decide: Callable[[CallbackSubject], Settlement | str]
    ) -> tuple[CallbackSubject | None, Callback]:
        """Record a callback, and settle its run as `decide` says, in one transaction.

        `decide` sees the run and answers with a settlement, or with the reason why the callback is ignored. A callback
        on a final run is IGNORED, whatever it says. An unknown token, or a run that is not the task's, gives no
        subject; the callback is recorded as IGNORED all the same, unless it says `keep_unknown` False, and of such
        records the newest thousand stay, their bodies cut short. A run's callback that is ignored has its event,
        `run.ignored`. Any attempt's token speaks for the run. It may come while the run is RUNNING still; a success
        finishes even a run that waits for a further attempt.
        """

    async def extend_callback(self, run_id: RunId, seconds: float) -> bool:
        """The deadline of a CALLBACK_PENDING run becomes `seconds` from now."""

    async def callbacks(self, run_id: RunId | None, limit: int = 100) -> list[Callback]:
        """Those of a run, or (None) those that found no run; newest first."""

    # Log and progress

    async def log(self, run_id: RunId, token: int, lines: Sequence[tuple[str, str]]) -> bool:
        """Append (level, message) lines. False, and nothing written, if the token is not the current one."""

    async def progress(self, run_id: RunId, token: int, progress: Mapping[str, Any]) -> bool:
        """The newest progress replaces the last, also while a callback is awaited.

        False, and nothing written, if the token is not the current one.
        """

    async def log_lines(self, run_id: RunId, after: int = 0, limit: int = 1000) -> list[LogLine]: ...

    # Reading runs

    async def run(self, run_id: RunId) -> Run | None: ...

    async def runs(self, query: RunQuery) -> Page[Run]:
        """A page of them. With `look`, one may be short, or empty, and still have a cursor to the next.

        Each is as it is when it is read, which may be a moment after it was found.
        """

    async def newest_runs(self, task_ids: Sequence[TaskId], count: int) -> dict[TaskId, list[Run]]:
        """The newest `count` runs of each, newest first, parts of a fan-out left out; an empty list where there are none.

        The questions it takes are as many for a hundred tasks as for one.
        """

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """Every attempt, oldest first, the one under way included; each as it was recorded when it ended."""

    async def bodies(self, run_id: RunId, attempt: int | None = None) -> RunBodies | None:
        """Of one attempt; None means the newest."""

    async def payload(self, run_id: RunId) -> Any:
        """What the run carries: its own payload, or its task's."""

    async def inputs(self, run_ids: Sequence[RunId]) -> dict[RunId, Input]:
        """What each of them carries, with what was changed for that run alone. Unknown ids are left out."""

    # Runs, by operators

    async def promote_run(self, run_id: RunId) -> bool:
        """A delayed or retrying run becomes due now. False if it was not waiting for its time."""

    # Workers and queues

    async def register_worker(self, worker: Worker) -> Worker:
        """A worker says who it is. One with the same id, another incarnation and a fresh heartbeat: AlreadyExists.

        Saying it again while it is alive changes what it says of itself; the state that an operator has set stays.
        """

    async def set_worker(
        self, worker_id: str, *, state: WorkerState | None = None, concurrency: int | None = None
    ) -> Worker:
        """An operator's wish, brought to the worker by its next heartbeat. Unknown: NotFound."""

    async def workers(self) -> list[Worker]:
        """All, by id. One whose heartbeat is older than three of its intervals is `lost`."""

    async def remove_worker(self, worker_id: str, incarnation: str) -> None:
        """A worker says goodbye. Another incarnation's row is left alone."""

    async def attend(self, worker_ids: Sequence[str], incarnation: str) -> dict[str, Attendance]:
        """These workers wait for runs and are alive; what an operator wants of each. One write for all of them.

        Those that are not registered with this incarnation are left out.
        """

    async def held(self, worker_ids: Sequence[str] | None = None) -> Mapping[str, int]:
        """How many runs each worker holds now, of these workers or of all. Who holds none is left out."""

    async def pinned(self, worker_ids: Sequence[str]) -> set[str]:
        """Those of these workers that a run which is due names."""

    async def unserved(self, grace_seconds: float) -> list[Unserved]:
        """Tasks with a run that has been due for so long and that no worker alive could take, found since the last call.

        Could: it is running and takes more than nothing, has the queue, knows the job type, is new enough, is named if
        the run names workers, and has had no other part of the same fan-out. Runs of a paused queue, or held back by a
        limit, are not meant. Each situation is told once, on whichever node, by the event `task.no_worker`; when no such
        run is left, `task.has_worker` tells that, and the task comes back with `is_over`. The work grows with queues and
        with workers that are named, never with what waits: so only the heads of lines are looked at.
        """

    async def queues(self) -> list[Queue]:
        """Every queue that has a setting or a run that is not final, by name, with its depth."""

    async def set_queue(self, name: str, change: Callable[[Queue], Queue], *, by: str | None = None) -> Queue:
        """Pause, resume or limit a queue; it takes effect with the next claim, on every node."""

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
        """Remove up to `limit` final runs that ended before, with all that belongs to them; how many it was.

        Of one task, of one queue or of some statuses alone, where that is said. Never a run that is not final. With
        `keep`, the newest `keep` runs of each task stay. What it removes of the runs of slots is counted (`cleaned`).
        The
        tasks `besides` are passed over.
        """

    async def clean_rest(
        self, before: Instant, limit: int, *, task_id: TaskId | None = None, besides: Sequence[TaskId] = ()
    ) -> int:
        """Remove what belongs to no run and is older, up to `limit` of each kind; how many it was.

        Ranges of dropped slots that ended before (they stay counted in `cleaned`), but those of the tasks `besides`;
        tasks deleted before that have no run left; workers that were last heard of before; outages and pauses that were
        over before. With `task_id`: the ranges of that task, and nothing else.
        """

    async def recount(self) -> int:
        """Set every counter right that a limit relies on; how many were wrong. A sound store answers 0."""

    async def events(self, after: int, limit: int = 1000) -> list[Event]:
        """What happened after number `after`, in the order of commit. Nothing is ever added behind what was read."""

    async def counts(self) -> Mapping[str, int]:
        """Rows by table and runs by place, for metrics and diagnosis. May be an estimate for large tables."""


class EventStore(Protocol):
    """The stream of events, for readers that go along with it. Every store keeps it."""

    async def event_page(self, after: int, limit: int = 500, types: Collection[str] | None = None) -> EventPage:
        """Events after number `after`, from `limit` rows at most, in the order of commit; a row tells of a whole batch.

        Nothing is ever added behind `upto`. With `types`, others are passed over. `has_gap` if events after `after` have
        been removed, or `after` is a number that was never given.
        """

    async def last_event(self) -> int:
        """The number of the newest event that is committed."""

    async def forget_events(self, before: Instant, limit: int) -> int:
        """Remove up to `limit` of the oldest rows of events that happened before; how many it was."""


class AlertStore(EventStore, Protocol):
    """What alerts are made of. Every store keeps it."""

    async def now(self) -> Instant:
        """The store's clock."""

    async def run(self, run_id: RunId) -> Run | None: ...

    async def alert_rules(self) -> list[Rule]:
        """By name."""

    async def put_alert_rule(self, rule: Rule) -> Rule:
        """A new rule, or another text for the one of that name."""

    async def remove_alert_rule(self, name: str) -> bool:
        """With all that it remembers. False if there was none."""

    async def alert_channels(self) -> list[Channel]:
        """By name."""

    async def put_alert_channel(self, channel: Channel) -> Channel:
        """A new channel, or another text for the one of that name."""

    async def remove_alert_channel(self, name: str) -> bool:
        """With what waits to be sent there; the log of what was sent stays. False if there was none."""

    async def take_duty(self, name: str, holder: str, seconds: float) -> Duty | None:
        """The duty is this holder's for so many seconds; None while another has it.

        A holder that takes it again in time keeps its token. Anybody else gets a higher one. A duty that nobody ever had
        begins at the newest event.
        """

    async def leave_duty(self, name: str, holder: str) -> None:
        """Let others have it at once."""

    async def alert_states(self) -> list[AlertState]:
        """What the rules remember, by rule and subject."""

    async def alert(self, duty: Duty, position: int, step: AlertStep) -> bool:
        """Write a pass: states, deliveries, events, and how far it has read, in one transaction.

        False, and nothing written, if the duty is no longer held with this token.
        """

    async def overdue_tasks(self, seconds: float, limit: int = 100) -> list[Late]:
        """Tasks with a slot that was due so many seconds ago and that nobody has planned, the oldest first."""

    async def waiting_tasks(self, seconds: float, limit: int = 100) -> list[Late]:
        """Tasks with a run that has been due for so many seconds and that nobody has taken; not on paused queues."""

    async def slow_tasks(self, seconds: float, factor: float, limit: int = 50) -> list[Late]:
        """Tasks with a run under way for longer than `seconds` and than `factor` times the median of its last runs."""

    async def notice_workers(self) -> int:
        """Tell, once each, of workers that have fallen silent (`worker.lost`) and are back (`worker.returned`)."""

    async def note_delivery(
        self,
        channel: str,
        notice: Notice,
        status: DeliveryStatus,
        *,
        error: str | None = None,
        response_code: int | None = None,
    ) -> int:
        """Put a delivery that was made already in the log; its id."""

    async def claim_deliveries(self, limit: int, seconds: float) -> list[Delivery]:
        """Deliveries that are due, each counted as one attempt more; nobody else gets them for so many seconds."""

    async def next_delivery(self) -> float | None:
        """Seconds until a delivery is due, 0 if one is; None if none waits."""

    async def settle_delivery(
        self,
        delivery: Delivery,
        status: DeliveryStatus,
        *,
        delay_seconds: float = 0,
        error: str | None = None,
        response_code: int | None = None,
    ) -> bool:
        """Write how an attempt at a delivery went; PENDING tries again after the delay.

        False, and nothing written, if it has been claimed again since.
        """

    async def alert_deliveries(
        self, limit: int = 100, *, before: int | None = None, channel: str | None = None
    ) -> list[Delivery]:
        """Newest first; those with a smaller id than `before`."""

    async def forget_deliveries(self, before: Instant, limit: int) -> int:
        """Remove deliveries that ended before, from among the `limit` oldest; how many it was."""


class Undeliverable(Exception):
    """A notice did not arrive. `again`: another attempt may bring it."""

    def __init__(self, message: str, *, again: bool = True, response_code: int | None = None) -> None:
        super().__init__(message)
        self.again, self.response_code = again, response_code


class Courier(Protocol):
    """Brings a notice to a channel of one kind."""

    async def send(self, channel: Channel, notice: Mapping[str, Any], delivery_id: str) -> int | None:
        """The response code, where there is one. Undeliverable says why it did not arrive, and whether to try again.

        The id is the same for every attempt, so that a receiver can tell a repeat.
        """


class AccessStore(Protocol):
    """Tokens and the audit log. What it says of the `Store` holds here too."""

    async def now(self) -> Instant: ...

    async def create_token(
        self,
        name: str,
        role: Role,
        hashed: str,
        *,
        shown: str,
        by: str | None = None,
        seconds: float | None = None,
    ) -> Token:
        """A token that is good for `seconds`, or until it is revoked. A name that a good one has: AlreadyExists."""

    async def tokens(self) -> list[Token]:
        """All that there ever were, oldest first. Their secrets are nowhere."""

    async def token_of(self, hashed: str) -> Token | None:
        """The token with this hash, good or not."""

    async def note_token_use(self, token_id: int) -> None:
        """`used_at` becomes now, unless it was noted within the last minute."""

    async def revoke_token(self, name: str) -> Token:
        """It is good for nothing from now on; its name is free. Unknown: NotFound."""

    async def write_audit(self, deeds: Sequence[Deed]) -> list[AuditEntry]:
        """Append to the audit log, all in one transaction. Numbers have no gap; each hash covers the entry before."""

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

    async def broken_audit(self, since: int = 1, limit: int = 1000) -> tuple[int | None, int]:
        """The first entry of the next `limit` from `since` on that was changed, or that follows a gap; and how far that is."""


class SecretStore(Protocol):
    """Secrets sealed anew, a batch in each transaction. `reseal` gets the secret fields of a row (`headers`, `secret`,
    `url`) and gives them back as they are to be.

    Nothing else is written: no version, cursor or time moves, and no event is told. A row that somebody changes at the
    same time is left as they leave it, and not counted. What `reseal` raises comes out, and that batch is not written.
    """

    async def reseal_tasks(
        self, after: int, limit: int, reseal: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> tuple[int | None, int]:
        """The next `limit` tasks after that id, deleted ones too: where to go on (None: at the end), and how many were written."""

    async def reseal_versions(
        self, after: tuple[int, int], limit: int, reseal: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> tuple[tuple[int, int] | None, int]:
        """The same for the kept versions of tasks, after that task and version."""

    async def reseal_channels(self, reseal: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
        """All channels of alerts; how many were written."""


class Target(Protocol):
    """How a run is carried out: an HTTP call, or a job handler."""

    async def execute(self, assignment: Assignment) -> Outcome:
        """Carry out one attempt and say how it ended. Never raises for the attempt's own failure.

        It ends by the task's timeout on its own account. Canceled (asyncio), it lets go of what it has in hand: a
        request
        in flight is dropped, a handler is told; then CancelledError goes on.
        """


class Wakeup(Protocol):
    """Who waits for work is woken, so that polling is only the net. Losing a signal costs a poll, never a run."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def signal(self, topic: str) -> None:
        """Something may be there for whoever waits on the topic: `plan`, or `queue:NAME`. Returns at once."""

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - its meaning, not a guard
        """True as soon as one of the topics is signalled, also if that was since the last wait; False after timeout."""
