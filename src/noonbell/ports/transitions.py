"""What changes a store: each transition is one transaction, fenced by the state, version or token that it expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from noonbell.clock import Instant
from noonbell.model.access import AuditAction, AuditEntry, Role, Token
from noonbell.model.account import ClockStep, InstallationPause, Outage, StoreReturn
from noonbell.model.alert import (
    Acknowledgement,
    AlertDelivery,
    AlertMessage,
    AlertStep,
    Channel,
    DeliveryStatus,
    LeaderLease,
    Mute,
    Rule,
)
from noonbell.model.bulk import BulkAdvance, BulkBatch, BulkLease, BulkOperation, NewBulk
from noonbell.model.calendar import Calendar, CalendarChange, CalendarSaved
from noonbell.model.event import Callback, Position
from noonbell.model.request import (
    CallbackSubject,
    Canceled,
    Claimed,
    ClaimRequest,
    ExpiredSkips,
    HeartbeatAnswer,
    IncomingCallback,
    JoinsSwept,
    KeptReason,
    NewTask,
    PastRun,
    PastRunOutcome,
    Planned,
    Promoted,
    Publication,
    PublishResult,
    ResumedTasks,
    TaskChange,
    TaskEdit,
    UnservedTask,
)
from noonbell.model.rollup import RebuildState
from noonbell.model.run import ChildRequest, Lease, RunId, RunStatus, Settlement, SettleResult
from noonbell.model.sla import Sla, SlaSwept
from noonbell.model.subscription import (
    DeliveryStep,
    HeldSubscription,
    RetryRules,
    Subscription,
    SubscriptionState,
    WebhookDelivery,
)
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.model.view import SavedView, ViewedList
from noonbell.model.worker import Attendance, Queue, WorkerInfo, WorkerState

Sign: TypeAlias = Callable[[str], str | None]
"""From the hash of an entry to its signature; None: it has none."""
Reseal: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def unsigned(text: str) -> None:
    del text


class Transitions(Protocol):
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
        The first task that is not a system task has id 1. A task whose schedule names no slot is COMPLETED. No create
        waits for another's commit, so ids may be committed out of order.

        Upstreams that `after` names are stored by their ids. One that is not there, one that is named twice, and a cycle
        (in a change: also over tasks that are saved one by one) raise InvalidArgument, and nothing is written. The task
        follows every run of them that becomes final after this has committed.
        """

    async def create_tasks(self, new: Sequence[NewTask]) -> list[Task]:
        """Many in one transaction, each as `create_task` does it; in the order of the list.

        Where one name or external id is taken, by a task or by another of the list, nothing is written: AlreadyExists,
        whose details name each as `tasks[INDEX].name`.
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

    async def change_tasks(self, edits: Sequence[TaskEdit], *, by: str | None = None) -> list[Task]:
        """Many in one transaction, each as `change_task` does it; in the order of the list, which names no task twice.

        Where one cannot be changed nothing is written: an error of the kind of the first, whose details name each as
        `tasks[INDEX]`, or `tasks[INDEX].FIELD` where the edit refused a field.
        """

    async def set_status(self, task_ids: Sequence[TaskId], status: TaskStatus, *, by: str | None = None) -> list[Task]:
        """Enable or disable many in one transaction, each as `change_task` does it; those that were changed.

        Unknown and deleted tasks, those in ERROR, and those that have the status already, stay as they are and are not
        in the answer.
        """

    async def resume_due(self, limit: int, sign: Sign = unsigned) -> ResumedTasks:
        """Enable up to `limit` tasks whose pause ends by itself and has ended, each as `change_task` does it; those
        that were enabled.

        Each from the end of its pause on, however late this comes: a slot at the end is not left out, and what is late
        by now the misfire policy decides about. One event, and one entry of the audit log in the same transaction, for
        each, through any number of nodes. A pause that was ended or changed meanwhile is left as it is. The work grows
        with the pauses that end.
        """

    async def delete_task(
        self,
        task_id: TaskId,
        *,
        by: str | None = None,
        cancel_running: bool = False,
        purge: bool = False,
        force: bool = False,
        expect_version: int | None = None,
    ) -> Task:
        """Account for every slot up to now, then end the task: no further slot, its name is free again.

        A task that others follow is refused with InvalidState, which names them, unless `force`.

        Waiting runs are CANCELED; executing ones finish, unless `cancel_running`. History stays, unless `purge`, which
        removes every row of the task. A system task is refused with InvalidState. With another `expect_version`:
        VersionConflict and nothing is written.
        """

    async def delete_tasks(
        self,
        versions: Mapping[TaskId, int | None],
        *,
        by: str | None = None,
        cancel_running: bool = False,
        purge: bool = False,
        force: bool = False,
    ) -> list[Task]:
        """Many in one transaction, each as `delete_task` does it; each with the version that the caller expects, if any.

        Where one cannot be deleted nothing is written, and the error is as that of `change_tasks`.
        """

    async def skip_next(self, task_id: TaskId, count: int, *, by: str | None = None) -> Task:
        """The next `count` slots become SKIPPED runs with reason `operator`. 0 takes it back, -1 is until then."""

    # Calendars

    async def save_calendar(self, change: CalendarChange, *, by: str | None = None) -> CalendarSaved:
        """Make a calendar, or change it. Another revision than `expect_revision` raises VersionConflict.

        Where what it says changes, it gets its next revision, and each task that uses it a version that keeps to that one. Every
        slot up to now is accounted for under the old revision first. A slot that is accounted for is left out of the new
        version; any other goes to where the new revision puts it, and is due at once where that has passed. What says the same
        as before writes nothing.
        """

    async def delete_calendar(self, name: str, *, by: str | None = None) -> Calendar:
        """Raises NotFound, or InvalidState while tasks that are not deleted use it."""

    async def take_refresh(self, name: str, due_at: Instant, until: Instant) -> bool:
        """Whether this call has the right to fetch the source of a calendar that is due since `due_at`: no other has
        until `until`.
        """

    async def note_refresh(self, name: str, error: str | None, refresh_at: Instant) -> bool:
        """The source of a calendar was asked, and the copy stays as it is; `error` says why there is no new one."""

    # From slots to runs

    async def plan(self, limit: int, *, cap: int = 100, skip: bool = False) -> Planned:
        """Take up to `limit` tasks whose cursor is due, and account for each of their slots up to now.

        Runs, skips, dropped ranges and the new cursor are written in one transaction. A slot becomes one run at most,
        under any race: (task, slot) is unique. Tasks that another planner holds are left to it. A schedule without a
        further slot turns its task COMPLETED. A run that needs no worker (a plan's, with target pub) is SUCCESS at once,
        and `run.published` tells what it carries. The work grows with what is due, never with the number of tasks.

        While everything is paused nothing is planned and every cursor stands; what has become due by then is late when that
        is over, as after a downtime.

        With `skip`, what is due is dropped as a misfire under every policy: for a node that starts and ignores the time
        before. A fixed delay is not: its next slot is as late as it is.
        """

    async def promote(self, limit: int) -> Promoted:
        """Delayed and retrying runs whose time has come are made ready to be claimed, oldest first; none while
        everything is paused.
        """

    async def promote_run(self, run_id: RunId) -> bool:
        """A delayed or retrying run becomes due now. False if it was not waiting for its time."""

    async def publish(self, publications: Sequence[Publication]) -> list[PublishResult]:
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
    ) -> list[PublishResult]:
        """As `publish`, in the transaction that the caller has open on a connection of its own to the same database.

        The runs exist if and only if the caller commits. The commit signals `topics` where the database can do that;
        elsewhere the caller does, after it. Where it raises, nothing of the batch is written, and what the caller wrote
        before stands. A connection that is to another database, or has no transaction, raises InvalidArgument; so does
        any connection on a store that cannot share one.
        """

    async def note_outage(self, seconds: float, node: str, reason: str | None = None) -> Outage:
        """A node says that it could not reach the store, or could not get on, for the `seconds` before now, and why."""

    async def note_clock_step(self, seconds: float, node: str) -> ClockStep | None:
        """A node says that the store's clock was set by `seconds`, just now. None, and nothing is written: another node
        said so.
        """

    async def pulse(self, node: str, *, writes: bool = True) -> StoreReturn | None:
        """Remember how far the store has come; `writes`: after moving it on. Not None: it went back to before what was
        remembered, which is noted now.

        A store on a server looks for what it remembers on each new connection too, before the connection is used.
        """

    # Claim, execute, settle

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Up to `max` runs that are due, RUNNING and leased to this worker from now on: no two claims get the same.

        Order: priority, then runs that name this worker, then `run_at`, then id. A paused queue gives nothing, and none does
        while everything is paused: a claim that begins after `pause_installation` has committed says so (`is_paused`). Over all
        nodes, a task never has more than `max_concurrency` runs executing or awaiting their callback, nor a queue more
        than its own; and no stretch of `per_seconds` sees more starts than a rate limit allows. What a limit holds back
        does not stand in the way of others. Runs pinned to other workers, or that ask for a newer worker, are left. A
        part of a fan-out goes to a worker that has had no other part of it; the claim that makes the parts says where
        the others wait (`split`). Each claim gives a token that is larger than any before it for that run, counts one
        attempt, and sets the lease and the deadline.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        """Write how attempts ended, and their events, in one transaction; answers in the order of the requests.

        DONE if this call made the change. LOST if the token is not the current one, the worker another, or what
        was expected no longer holds: then nothing of the run changes, and the refusal is recorded. Repeating a call
        that was DONE is LOST. One that is LOST does not disturb the others of the batch.
        A task with results as events (`model.result_events`) has `run.result` as well, with the result.

        A run that becomes final here, or in any other transition, arrives in the same transaction at the joins of the
        tasks that follow its task: see `policy.joins`. A join that is complete makes one run, of origin `upstream`, that
        their policies decide on as on a slot. Up to 1,000 arrivals are written at once, the others by `sweep_joins`.
        """

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[list[SettleResult], Claimed]:
        """The settlements, then a claim: what a busy worker calls. In one transaction where nothing stands in the way."""

    async def expire(self, limit: int) -> ExpiredSkips:
        """Up to `limit` runs that no worker had claimed by their `expires_at` end as SKIPPED, `expired`, the oldest first.

        From SCHEDULED, due or not, behind any limit or pause; what follows a run that ends follows these as well. No claim
        gives out a run from its `expires_at` on, whether it has been ended yet or not. A run that was claimed once never
        expires. The work grows with what has expired.
        """

    async def sweep_joins(self, limit: int) -> JoinsSwept:
        """End joins whose time has run out: each as a SKIPPED run, `upstream_missing`, which names what was missing.

        One whose task is disabled, in ERROR or deleted ends without a run. Arrivals that were too many for the transaction
        of their run are written, again up to 1,000.
        """

    async def sweep_keys(self, limit: int) -> int:
        """Let runs in where a key has room and holds some back; how many keys were looked at.

        Who frees a place lets the next run of its key in, in the same transaction. Here are those that it could not: the run
        was held by another transaction at that moment, or a task's `max_per_key` was raised for more than 1,000 keys.
        """

    async def begin(self, leases: Sequence[Lease]) -> set[RunId]:
        """Mark attempts of at-most-once runs as begun, before the first byte is sent. Returns those still held.

        A begun run whose lease runs out is never handed to another worker.
        """

    async def heartbeat(
        self, worker_id: str, held: Sequence[tuple[RunId, int]], *, incarnation: str = "", renew: bool = True
    ) -> HeartbeatAnswer:
        """Renew the leases that are still held with these tokens, and bring back an order for each of them.

        CONTINUE with the new expiry; CANCEL if the run was canceled or this worker may not have it any longer; LOST if
        the lease is another worker's or the run is final. Each pair of run and token gets its own order. Runs that are
        not listed are not renewed. The worker is alive from now on; its state and concurrency come back as an operator
        has set them. Without `renew` no lease changes: the orders and their present expiry come back.
        """

    async def extend(self, run_id: RunId, token: int, seconds: float) -> bool:
        """Move deadline and lease of an attempt that is held with this token to `seconds` from now. False if lost."""

    async def retry_held(self, failed: Settlement, attempt: int, seconds: float) -> bool:
        """The worker that holds the run makes its next attempt itself: `failed` (a RETRY) is how number `attempt` ended.

        In one transaction the failed attempt is recorded with its bodies and its event (`run.retrying`, with `local`),
        `attempt` and `retry_count` rise by one, and the next attempt starts `delay_seconds` from now; its deadline and
        lease end `seconds` from now. The run stays RUNNING under the same token. True if it is held with that token; a
        repeated call changes nothing and is True as well. False, and nothing written, if the lease is lost. While everything
        is paused it is False as well: `failed` is settled as it stands, and the run waits as RETRYING.
        """

    async def spawn(self, run_id: RunId, token: int, requests: Sequence[ChildRequest]) -> list[RunId]:
        """Children of a run that is held with this token: the run of each request, in their order.

        All of them or none, in one transaction. A position that has a child already is answered with that child; InvalidState
        if it is of another task or has another payload. Where the run has been retried since, a child that ended without
        success is made anew. A child is a run of its task (origin `spawn`, `parent_id`): every limit of the task counts it.
        LeaseLost if the token is not the current one; NotFound without such a task; ConcurrencyLimit if it takes no further
        run; InvalidState for a run that is delivered at most once. Nothing is written then.

        A run that is settled with GATHER is RUNNING without a lease and without a place at any limit until no child of it is
        active; the transaction in which the last one becomes final puts it back in its queue (`run.resumed`). The claim that
        follows counts an attempt and no retry, and its deadline is what the parked attempts have left of the timeout. A
        run that is canceled takes its children with it.
        """

    async def log(self, run_id: RunId, token: int, lines: Sequence[tuple[str, str]]) -> bool:
        """Append (level, message) lines. False, and nothing written, if the token is not the current one."""

    async def progress(self, run_id: RunId, token: int, progress: Mapping[str, Any]) -> bool:
        """The newest progress replaces the last, also while a callback is awaited.

        False, and nothing written, if the token is not the current one.
        """

    async def cancel(self, run_ids: Sequence[RunId], *, by: str | None = None, reason: str = "") -> list[Canceled]:
        """CANCELED at once, from any status that is not final; the token is void and the place free from then on.

        A final run stays as it is and is answered with its status. Unknown ids are left out.
        """

    # Callbacks

    async def callback(
        self, callback: IncomingCallback, decide: Callable[[CallbackSubject], Settlement | str]
    ) -> tuple[CallbackSubject | None, Callback]:
        """Record a callback, and settle its run as `decide` says, in one transaction.

        `decide` sees the run and answers with a settlement, or with the reason why the callback is ignored. A callback
        on a final run is always IGNORED. An unknown token, or a run that is not the task's, gives no
        subject; the callback is recorded as IGNORED all the same, unless it says `keep_unknown` False, and of such
        records the newest thousand stay, their bodies cut short; of those that a final run ignored, the newest ten. A
        run's callback that is ignored has its event, `run.ignored`. Any attempt's token speaks for the run. It may come
        while the run is RUNNING still; a success finishes even a run that waits for a further attempt. Where it settled the
        run, the subject that comes back has the settlement.
        """

    async def extend_callback(self, run_id: RunId, seconds: float) -> bool:
        """The deadline of a CALLBACK_PENDING run becomes `seconds` from now."""

    # Workers and queues

    async def register_worker(self, worker: WorkerInfo) -> WorkerInfo:
        """A worker says who it is. One with the same id, another incarnation and a fresh heartbeat: AlreadyExists.

        Saying it again while it is alive changes what it says of itself; the state that an operator has set stays.
        """

    async def set_worker(
        self, worker_id: str, *, state: WorkerState | None = None, concurrency: int | None = None
    ) -> WorkerInfo:
        """An operator's wish, brought to the worker by its next heartbeat. Unknown: NotFound."""

    async def remove_worker(self, worker_id: str, incarnation: str) -> None:
        """A worker says goodbye. Another incarnation's row is left alone."""

    async def forget_worker(self, worker_id: str) -> None:
        """Remove a lost worker. InvalidState: it is alive, or holds runs whose leases have not run out. NotFound."""

    async def attend(self, worker_ids: Sequence[str], incarnation: str) -> dict[str, Attendance]:
        """These workers wait for runs and are alive; what an operator wants of each. One write for all of them.

        Those that are not registered with this incarnation are left out.
        """

    async def note_scheduler(self) -> None:
        """A node that plans is alive now, by the store's clock."""

    async def unserved(self, grace_seconds: float) -> list[UnservedTask]:
        """Tasks with a run that has been due for so long and that no worker alive could take, found since the last
        call.

        Could: it is running and takes more than nothing, has the queue, knows the job type, is new enough, is named if
        the run names workers, and has had no other part of the same fan-out. Runs of a paused queue, or held back by a
        limit, are not meant; none is while everything is paused. Each situation has one event over all nodes,
        `task.no_worker`; when no such run is left, `task.has_worker` follows, and the task comes back with `is_over`.
        The work grows with queues and with workers that are named, never with what waits: so only the heads of lines
        are looked at.
        """

    async def notice_workers(self) -> int:
        """Tell, once each, of workers that have fallen silent (`worker.lost`) and are back (`worker.returned`)."""

    async def set_queue(
        self, name: str, change: Callable[[Queue], Queue], *, by: str | None = None, reason: str | None = None
    ) -> Queue:
        """Pause, resume or limit a queue; it takes effect with the next claim, on every node.

        `reason`: why it is paused. Where it is paused already, another reason takes the place of the one before, with the event
        `queue.paused`; None leaves that as it is.
        """

    async def pause_installation(self, reason: str, *, by: str | None = None) -> tuple[InstallationPause, bool]:
        """Nothing more is planned, made ready or claimed, on any node; the event is `installation.paused`.

        What executes goes on, callbacks are taken, and what is published waits. The second is whether this call has done it:
        a pause that stands already is left as it is, and returned.
        """

    async def resume_installation(self, *, by: str | None = None) -> InstallationPause | None:
        """The pause that this call has ended, with the event `installation.resumed`; None if none stood."""

    # Bulk operations

    async def start_bulk(self, new: NewBulk) -> BulkOperation:
        """One more operation for the nodes to carry out; the event is `bulk.started`."""

    async def take_bulk(self, holder: str, seconds: float) -> BulkLease | None:
        """Lease an operation that is under way and that no other holder has, the one that has waited longest; None:
        there is none.

        Its token is higher than that of every lease of it before, and those have no effect from then on.
        """

    async def advance_bulk(self, lease: BulkLease, batch: BulkBatch, seconds: float) -> BulkAdvance | None:
        """Carry a batch out, move the operation on and add to its counts, all in one transaction; the lease lasts
        `seconds` more.

        None, and nothing is written: the lease was lost, or the operation has ended. A batch without a `next` ends the
        operation as DONE, with the event `bulk.ended`; others have `bulk.advanced`. What cannot be changed is skipped
        with its reason.
        """

    async def fail_bulk(self, lease: BulkLease, error: str) -> BulkOperation | None:
        """End the operation as FAILED; what its batches have done stays. None, and nothing is written: the lease was
        lost, or it has ended.
        """

    async def cancel_bulk(self, operation_id: int, *, by: str | None = None) -> BulkOperation | None:
        """End it as CANCELED: no batch is carried out any more, and what was done stays. One that has ended stays as it
        is. None: there is none.
        """

    async def leave_bulk(self, holder: str) -> None:
        """Let other holders take the operations of this one at once."""

    # Saved views

    async def save_view(self, of: ViewedList, name: str, query: str, most: int, *, by: str | None = None) -> SavedView:
        """A new view, or another query for the one of that name. InvalidState: the list has `most` of them."""

    async def remove_view(self, of: ViewedList, name: str) -> bool:
        """False if there was none."""

    # Alerts

    async def put_alert_rule(self, rule: Rule) -> Rule:
        """A new rule, or another text for the one of that name."""

    async def remove_alert_rule(self, name: str) -> bool:
        """With all that it remembers. False if there was none."""

    async def put_alert_channel(self, channel: Channel) -> Channel:
        """A new channel, or another text for the one of that name."""

    async def remove_alert_channel(self, name: str) -> bool:
        """With what waits to be sent there; the log of what was sent stays. False if there was none."""

    async def add_alert_mute(self, mute: Mute) -> Mute:
        """With its id, and the moment at which it was made."""

    async def remove_alert_mute(self, id_: int) -> bool:
        """False if there was none."""

    async def forget_mutes(self) -> int:
        """Remove those that have ended; how many."""

    async def acknowledge_alert(
        self, rule: str, subject: str, *, by: str | None = None, note: str = ""
    ) -> Acknowledgement | None:
        """In place of an earlier one. None, and nothing written, if no such alert is open. It goes with the alert."""

    async def withdraw_acknowledgement(self, rule: str, subject: str) -> bool:
        """False if there was none."""

    async def take_duty(self, name: str, holder: str, seconds: float) -> LeaderLease | None:
        """The lease of this name is the holder's for `seconds`; None while another has it.

        A holder that takes it again in time keeps its token. Another holder gets a higher one. A lease that was never
        held begins at the newest event.
        """

    async def leave_duty(self, name: str, holder: str) -> None:
        """Let others have it at once."""

    async def alert(self, duty: LeaderLease, position: int, step: AlertStep) -> bool:
        """Write a pass: states, deliveries, events, and how far it has read, in one transaction.

        False, and nothing written, if the duty is no longer held with this token.
        """

    async def note_delivery(
        self,
        channel: str,
        notice: AlertMessage,
        status: DeliveryStatus,
        *,
        error: str | None = None,
        response_code: int | None = None,
    ) -> int:
        """Put a delivery that was made already in the log; its id."""

    async def claim_deliveries(self, limit: int, seconds: float) -> list[AlertDelivery]:
        """Deliveries that are due, each counted as one attempt more; no other claim gets them for `seconds`."""

    async def settle_delivery(
        self,
        delivery: AlertDelivery,
        status: DeliveryStatus,
        *,
        delay_seconds: float = 0,
        error: str | None = None,
        response_code: int | None = None,
        is_counted: bool = True,
    ) -> bool:
        """Write how an attempt at a delivery went; PENDING tries again after the delay. Not `is_counted`: it was none
        after all.

        An error that Noonbell itself words is kept with its code and facts, as `said` of the notice. False, and nothing
        written, if the delivery has been claimed again since.
        """

    async def rest_delivery(self, delivery: AlertDelivery) -> DeliveryStatus | None:
        """Keep a claimed delivery from quiet hours of its channel, as the store has them now: PENDING, it waits until they end,
        which counts as no attempt; or SKIPPED. None, and nothing written, where it is not quiet.

        A change of the channel comes before this, and its hours hold, or after it, and lets go what the old hours held.
        """

    # Webhook subscriptions

    async def put_subscription(self, subscription: Subscription) -> HeldSubscription:
        """A new subscription, which begins after the newest event; or another text for the one of that name.

        A change takes the lease from its holder. One that becomes active again goes on from its position: what waits is due
        at once, and may fail for as long as at first.
        """

    async def remove_subscription(self, name: str) -> bool:
        """With its deliveries. False if there was none."""

    async def take_subscriptions(self, holder: str, seconds: float) -> list[HeldSubscription]:
        """All active ones that no other holds, by name: they are the holder's for `seconds`.

        A holder that takes one again in time keeps its token. Another holder gets a higher one.
        """

    async def leave_subscriptions(self, holder: str) -> None:
        """Let others have them at once."""

    async def settle_deliveries(
        self, held: HeldSubscription, step: DeliveryStep, rules: RetryRules
    ) -> SubscriptionState | None:
        """Write a pass: what was delivered, what waits, and how far events were read, in one transaction; the new state.

        None, and nothing written, if it is no longer held with this token. Where a delivery has failed for longer than the
        rules allow, the subscription is not active any more, with an event; what waits stays.
        """

    async def note_webhook(self, delivery: WebhookDelivery) -> WebhookDelivery:
        """Put a delivery that was made already in the log: a test."""

    async def replay_delivery(self, name: str, delivery_id: int) -> WebhookDelivery | None:
        """A new delivery with the same body, due now and waiting for no other. None if there is no such delivery."""

    async def move_subscription(self, name: str, to: Position | Instant | None) -> SubscriptionState | None:
        """Go on after that position, at the first event of that moment, or after the newest event. None if there is none.

        Forward: what waits is given up (FAILED). Backward: what waits behind the position is read and delivered anew.
        What was missed is forgotten. The lease is taken from its holder.
        """

    async def forget_webhooks(self, name: str, before: Instant, keep: int, limit: int) -> int:
        """Remove deliveries that have ended, from among the `limit` oldest: those made before, and all but the newest `keep`."""

    # Tokens and the audit log

    async def create_token(
        self,
        name: str,
        role: Role,
        hashed: str,
        *,
        shown: str,
        by: str | None = None,
        seconds: float | None = None,
        queues: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        job_types: Sequence[str] = (),
    ) -> Token:
        """A token that is good for `seconds`, or until it is revoked. A name that a good one has: AlreadyExists."""

    async def note_token_use(self, token_id: int) -> None:
        """`used_at` becomes now, unless it was noted within the last minute."""

    async def revoke_token(self, name: str) -> Token:
        """It is not taken from now on; its name is free. Unknown: NotFound."""

    async def write_audit(self, deeds: Sequence[AuditAction], sign: Sign = unsigned) -> list[AuditEntry]:
        """Append to the audit log, all in one transaction. Numbers have no gap; each hash covers the entry before.

        `sign` gets each hash, and what it returns is kept beside it.
        """

    # Secrets, sealed again with another key, a batch in each transaction. `reseal` gets the secret fields of a row
    # (`headers`, `secret`, `url`) and returns them sealed again. Nothing else is written: no version, cursor or time moves,
    # and no event is written. A row that changes at the same time is left as it is, and not counted. What `reseal` raises
    # comes out, and that batch is not written.

    async def reseal_tasks(self, after: int, limit: int, reseal: Reseal) -> tuple[int | None, int]:
        """The next `limit` tasks after that id, deleted ones too: where to go on (None: at the end), and how many were
        written.
        """

    async def reseal_versions(
        self, after: tuple[int, int], limit: int, reseal: Reseal
    ) -> tuple[tuple[int, int] | None, int]:
        """The same for the kept versions of tasks, after that task and version."""

    async def reseal_channels(self, reseal: Reseal) -> int:
        """All channels of alerts; how many were written."""

    async def reseal_subscriptions(self, reseal: Reseal) -> int:
        """All webhook subscriptions; how many were written."""

    async def reseal_calls(self, after: int, limit: int, reseal: Reseal) -> tuple[int | None, int]:
        """The calls among the next `limit` runs after that id that brought something of their own: as `reseal_tasks`."""

    # Upkeep

    async def import_runs(self, runs: Sequence[PastRun]) -> list[PastRunOutcome]:
        """Write final runs of another system into history; what became of each, in their order.

        In one transaction: all that are not there yet, or none. The same runs again are KNOWN, and nothing is written. They
        belong to no slot, wait for no worker, and make no event; the figures have them.
        """

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
        `keep`, the newest `keep` runs of each task stay, or those of the queue where one is named. What it removes of the
        runs of slots is counted (`cleaned`). The tasks `besides` are passed over.
        """

    async def clean_runs(self, run_ids: Sequence[RunId]) -> dict[RunId, KeptReason]:
        """Remove these runs as `clean` does, in one transaction; those that are not removed, each with the reason."""

    async def clean_rest(
        self, before: Instant, limit: int, *, task_id: TaskId | None = None, besides: Sequence[TaskId] = ()
    ) -> int:
        """Remove what belongs to no run and is older, up to `limit` of each kind; how many it was.

        Ranges of dropped slots that ended before (they stay counted in `cleaned`), but those of the tasks `besides`;
        tasks deleted before that have no run left; workers that were last heard of before; outages, pauses and bulk
        operations that were over before; what is kept of rate limits that it weighs on no longer. With `task_id`: the
        ranges of that task, and nothing else.
        """

    async def drop_history(self, before: Instant) -> int:
        """Drop stretches of history all of whose runs ended before, where the store keeps it in stretches; how many runs went.

        A stretch stays while it has a run that is not final, or one of whose family another stretch has runs. What goes of the
        runs of slots is counted (`cleaned`).
        """

    async def history_cut(self, before: Instant) -> Instant:
        """Up to when `clean` is to remove runs one by one, of those that ended before: the others go with their stretch, soon."""

    async def tend_history(self, seconds: float, events_seconds: float) -> bool:
        """Make stretches of history ahead, and bring a store into them that has none, where the database can; whether
        there was something to do.

        Runs are kept for `seconds`, events for `events_seconds`.
        """

    async def forget_events(self, before: Instant, limit: int) -> int:
        """Remove up to `limit` of the oldest rows of events that happened before; how many it was."""

    async def forget_deliveries(self, before: Instant, limit: int) -> int:
        """Remove deliveries that ended before, from among the `limit` oldest; how many it was."""

    async def fold_rollups(self, limit: int) -> int:
        """Add to the sums what up to `limit` transactions that ended runs have left; how many it was. Nothing is added twice."""

    async def forget_rollups(self, limit: int) -> int:
        """Remove sums of minutes, hours and days that are older than such sums are kept, up to `limit` of each; how many."""

    async def sample_queues(self) -> float:
        """Write down how many runs wait in each queue, once for each minute of the store's clock, however many nodes call it.

        Answers with the seconds that are left of the minute.
        """

    async def forget_queue_depths(self, limit: int) -> int:
        """Remove samples of queues that are older than sums of the same length are kept, about `limit` of each; how many."""

    async def order_rebuild(self, since: Instant | None, until: Instant | None) -> RebuildState:
        """Count whole days again from history: these, or all from which nothing was removed. `rebuild_rollups` does it."""

    async def rebuild_rollups(self, limit: int) -> bool:
        """The next step of an ordered count, through up to `limit` rows; False when there is none, or another node is at it."""

    async def sweep_sla(self, limit: int) -> SlaSwept:
        """Judge up to `limit` runs with a service level whose turn it is: what they have broken, and what they will break.

        Each breach, and each that is foreseen, is one event for a run and a level, through any number of nodes and crashes. What
        `on_breach` asks for is done in the same transaction. The work grows with what is due.
        """

    async def put_sla_defaults(self, defaults: Mapping[str, Sla]) -> None:
        """From now on, runs of tasks without a service level of their own have that of the first label here that they have.

        Other nodes know it when they are opened.
        """

    async def recount(self) -> int:
        """Set every counter right that a limit relies on; how many were wrong. A sound store answers 0."""
