"""The planner: turns what is due into runs, at the second that it is due, and signals the workers.

    K1  died before the commit   nothing is written; another node or the next start makes the runs
    K2  died after the commit    the runs are there without a signal; a worker finds them by its poll

Any number of planners may run side by side: each takes what no other holds. Between passes a planner sleeps until the next
cursor or delayed run is due by the store's clock; a signal or the poll interval brings it back earlier.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from noonbell.clock import SECOND, Instant, read_monotonic
from noonbell.engine import failpoint
from noonbell.engine.loop_runner import StoreClock, batch_done
from noonbell.fields import counted
from noonbell.model.request import Planned
from noonbell.ports import ANY_QUEUE, ORDERS, PLAN, Store, Wakeup, queue_topic

logger = logging.getLogger("noonbell.engine")

_SAYS_SO = 10.0
"""Seconds between two notes in the store that a scheduler is alive. `model.worker` says when it counts as gone."""
_MARGIN = 0.001
"""Seconds to come late on purpose: a pass that is early finds nothing, and has to come again."""
_LATE_SLOTS = 10
"""A pass that finds more slots than two for each task and these is late by more than a hiccup, and says so."""


class Planner:
    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        *,
        batch: int = 500,
        cap: int = 100,
        poll: float = 1.0,
        monotonic: Callable[[], float] = read_monotonic,
        observe: Callable[[Planned, float], None] | None = None,
        node: str | None = None,
    ) -> None:
        """`node`: the name under which it notes that the store's clock was set. `observe` is called for every pass,
        with the seconds that it took. `cap` is the most that FIRE_NOW catches up.
        """
        self._store, self._wakeup = store, wakeup
        self._batch, self._cap, self._poll = batch, cap, poll
        self._monotonic, self._observe = monotonic, observe
        self._time = StoreClock(store, monotonic)
        self._node = node
        self._expected: Instant | None = None
        self._said_so: float | None = None
        """When (monotonic) the store was last told that this planner is alive."""
        self.last_at: Instant | None = None
        """When the last pass was, by the store's clock."""
        self.lag_seconds = 0.0
        """How late the last pass that found something was."""

    async def tick(self) -> float:
        """Make runs of all that is due, and make ready what waited for its time. Seconds until more is due."""
        await self._time.refresh()
        await self._note_clock_step()
        while True:
            planned, full = await self._plan()
            batch_done()
            promoted = await self._store.promote(self._batch)
            batch_done()
            if promoted.count:
                self._wakeup.signal(ANY_QUEUE)
            if not full and promoted.count < self._batch:
                break
        await self._say_so()
        self._expected = planned.next_at
        return self._pause(planned.next_at, promoted.next_at)

    async def wait(self, seconds: float) -> None:
        await self._wakeup.wait((PLAN,), min(seconds, _SAYS_SO))

    async def _say_so(self) -> None:
        now = self._monotonic()
        if self._said_so is None or now - self._said_so >= _SAYS_SO:
            await self._store.note_scheduler()
            self._said_so = now

    async def _note_clock_step(self) -> None:
        step = self._time.take_step()
        if step is None:
            return
        what = (
            "forward: slots of that time come early"
            if step > 0
            else "back: slots of that time are done, and none comes until then"
        )
        logger.warning("the store's clock was set by %+.1f s, %s", step, what)
        if self._node is not None:
            await self._store.note_clock_step(step, self._node)

    async def _plan(self) -> tuple[Planned, bool]:
        asked = self._monotonic()
        planned = await self._store.plan(self._batch, cap=self._cap)
        answered = self._monotonic()
        self._time.check(planned.now, asked, answered)
        if planned.born:
            failpoint.hit("K2")
        for name in planned.queues:
            self._wakeup.signal(queue_topic(name))
        if planned.canceled:
            self._wakeup.signal(ORDERS)
        self._note(planned, answered - asked)
        return planned, planned.tasks >= self._batch

    def _note(self, planned: Planned, seconds: float) -> None:
        self.last_at = planned.now
        if planned.tasks and self._expected is not None:
            self.lag_seconds = max(0.0, (planned.now - self._expected) / SECOND)
        if planned.born + planned.skipped + planned.dropped > 2 * planned.tasks + _LATE_SLOTS:
            logger.info(
                "catching up on late slots of %s: %d runs created, %d slots skipped, %d dropped",
                counted(planned.tasks, "task"),
                *(planned.born, planned.skipped, planned.dropped),
            )
        if self._observe is not None:
            self._observe(planned, seconds)

    def _pause(self, *due: Instant | None) -> float:
        waits = [self._time.until(instant) + _MARGIN for instant in due if instant is not None]
        return max(0.0, min([self._poll, *waits]))
