"""The seams. A protocol's docstrings are laws: the conformance suite tests each sentence on every implementation.

`Store` is a list of named transitions, and of queries. Each is one transaction: all of it happens, or nothing does.
Each is fenced: it names the state, version or token that it expects, and where that no longer holds it changes nothing
and says so. So any number of nodes may call them at the same time, and none of them needs to be the leader.

Time is the store's clock (the database's, or the clock it was built with). Where a law says *now*, it means that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from noonbell.clock import Instant
from noonbell.model.account import StoreReturn
from noonbell.model.run import Assignment, Outcome
from noonbell.ports.queries import Queries
from noonbell.ports.transitions import Reseal, Sign, Transitions, unsigned

__all__ = [
    "ANY_QUEUE",
    "BULK",
    "EVENTS",
    "ORDERS",
    "PAUSE",
    "PLAN",
    "Queries",
    "Reseal",
    "Sign",
    "Store",
    "StoreObserver",
    "Target",
    "Transitions",
    "Wakeup",
    "queue_topic",
    "unsigned",
]


class StoreObserver(Protocol):
    """Sees each call of a store's transitions and queries, in the store's event loop. It does not raise."""

    def called(self, name: str) -> None:
        """The call of this name begins. `answered` or `failed` follows, once."""

    def answered(self, name: str, seconds: float, answer: Any, given: tuple[Any, ...]) -> None:
        """The call returned `answer` after `seconds`. `given`: its positional arguments. A write has been committed."""

    def failed(self, name: str, seconds: float, error: BaseException) -> None:
        """The call raised."""

    def followed(self, made: int, skipped: int) -> None:
        """The end of runs has made others, of the tasks that run after theirs, and has committed."""

    def went_back(self, noted: StoreReturn) -> None:
        """The store went back to an earlier state, and this process is the one that has noted it."""


class Store(Transitions, Queries, Protocol):
    on_events: Callable[[], None] | None
    """Called in the store's event loop after each transition that wrote events, when it has committed; by this store alone."""
    on_fed: Callable[[Collection[str]], None] | None
    """Called in the store's event loop with the queues that runs were put on because runs of other tasks ended, after
    the commit.
    """
    observer: StoreObserver | None

    async def open(self) -> None:
        """Connect. The schema is brought up to date; one that needs newer code than this raises SchemaMismatch."""

    async def check_schema(self) -> None:
        """Raises SchemaMismatch when the schema has moved, since `open`, to where this code cannot work with it."""

    def waits_for(self) -> str:
        """Who holds the lock that a call waits for at this moment, in words; empty if no call is known to wait."""

    async def close(self) -> None:
        """Let go of every connection and thread. What was called before has finished or failed."""

    async def now(self) -> Instant:
        """The store's clock."""

    async def about_now(self) -> Instant:
        """As `now`, without a trip where it was read a moment ago: what has passed since is counted by this process's
        own clock.
        """


class Target(Protocol):
    """How a run is carried out: an HTTP call, or a job handler."""

    async def execute(self, assignment: Assignment) -> Outcome:
        """Carry out one attempt and say how it ended. Never raises for the attempt's own failure.

        Canceled (asyncio), it releases what it uses: a request in flight is dropped, a handler is canceled; then
        CancelledError goes on. The attempt's deadline cancels too: a target that can say more about it returns an outcome.
        """


PLAN: Final = "plan"
"""Topic: a cursor or a delayed run may be due earlier than the planner believes."""
ORDERS: Final = "orders"
"""Topic: an operator or a policy has an order for a worker: heartbeat now rather than in a while."""
PAUSE: Final = "pause"
"""Topic: everything was paused, or goes on."""
BULK: Final = "bulk"
"""Topic: a bulk operation was started."""
ANY_QUEUE: Final = "queue:*"
"""Topic: a run was put on a queue that the sender does not know. Every worker listens to it."""
EVENTS: Final = "events"
"""Topic: the stream of events has grown."""


def queue_topic(name: str) -> str:
    """Topic: a run of this queue may be due, or one of its limits has room."""
    return f"queue:{name}"


class Wakeup(Protocol):
    """Wakes loops that wait for work, so that polling is only the net. Losing a signal costs a poll, never a run."""

    hears_commits: bool
    """What `publish_within` writes into the caller's transaction is signalled by its commit."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def signal(self, topic: str) -> None:
        """Wake the loops that wait on the topic: there may be something to do. Returns at once."""

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - its meaning, not a guard
        """True as soon as one of the topics is signalled, also if that was since the last wait; False after timeout."""
