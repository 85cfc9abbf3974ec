"""The way of a run: from its slot or publish to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from noonbell.model.event import Callback, LogLine
from noonbell.model.request import (
    CallbackIn,
    CallbackSubject,
    Canceled,
    Claimed,
    ClaimRequest,
    Heartbeat,
    Overdue,
    Planned,
    Promoted,
    Publication,
    Published,
)
from noonbell.model.run import Lease, RunId
from noonbell.model.settlement import Settled, Settlement


class RunningStore(Protocol):
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

    async def retry_held(self, failed: Settlement, attempt: int, seconds: float) -> bool:
        """The worker that holds the run makes its next attempt itself: `failed` (a RETRY) is how number `attempt` ended.

        In one transaction the failed attempt is recorded with its bodies and its event (`run.retrying`, with `local`),
        `attempt` and `retry_count` rise by one, and the next attempt starts `delay_seconds` from now; its deadline and
        lease end `seconds` from now. The run stays RUNNING under the same token. True if it is held with that token; a
        repeated call changes nothing and is True as well. False, and nothing written, if the lease is lost.
        """

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
        records the newest thousand stay, their bodies cut short; of those that a final run ignored, the newest ten. A
        run's callback that is ignored has its event, `run.ignored`. Any attempt's token speaks for the run. It may come while the run is RUNNING still; a success
        finishes even a run that waits for a further attempt.
        """

    async def callback_run(self, token: str) -> RunId | None:
        """The run that a callback token was made for, by the token's hash; None for any other text."""

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
