"""Which of several hosts a node works on. A fail-over moves the writable one; two at a time are one too many.

All hosts are asked when a node starts and whenever the one it works on is lost or no longer takes writes:

    one takes writes                    that one
    none does                           the store is away, with what each of them said
    two, of different timelines         PostgreSQL: the higher one was promoted later; the other is an old primary that is not fenced,
                                        and a warning says so
    two, of the same timeline,          refused: each would give out the same slots once more
    or of unrelated servers
    two of one Galera cluster or group  the one before, else the first of the list
    one, below the highest timeline     refused: it is an old primary
    that this process has seen

A node that starts while an old primary is the only host it can reach cannot know better.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from noonbell.errors import StoreUnavailable
from noonbell.settings.kinds import Host

logger = logging.getLogger("noonbell.store")

READ_ONLY = "the database is read-only, as a standby is: name the host that takes writes in store.url, or let this one take them"
"""What is added to a server's own words."""
LOOK_SECONDS = 3.0
"""That one host has to answer."""
_AGAIN_AFTER = 0.5
"""Seconds for which the error of a look answers those who ask next."""


@dataclass(frozen=True, slots=True)
class HostState:
    host: Host
    problem: str = ""
    """Why it takes no writes, in words; empty: it does."""
    timeline: int = 0
    """PostgreSQL's; 0 elsewhere."""
    server: str = ""
    """The same for two addresses of one server."""
    cluster: str = ""
    """The same for copies of one database, where the server says so."""
    shares_writes: bool = False
    """The cluster has several writers: Galera, group replication."""

    @property
    def name(self) -> str:
        return f"{self.host[0]}:{self.host[1]}"


_REFUSED = re.compile(r"\[Errno (?:111|61)\]")
"""ECONNREFUSED on Linux and macOS, in the texts of the drivers."""


def unreachable(hosts: Sequence[Host], said: str) -> str:
    """The server does not answer: which one, and what to look at."""
    where = ", ".join(f"{host}:{port}" for host, port in hosts)
    at = f"no connection to {where}: " if where else ""
    if _REFUSED.search(said):  # the system's words, which name the address once more
        said = "connection refused, nothing listens there"
    return f"{at}{said}; is the server running, and is the address right?"


Look = Callable[[Host], Awaitable[HostState]]


def choose(states: Sequence[HostState], before: Host | None = None, timeline: int = 0) -> HostState:
    """The host to work on, of all that were asked. StoreUnavailable: none of them, or more than one.

    `before`: the one until now. `timeline`: the highest that was seen until now.
    """
    writable: dict[str, HostState] = {}
    for state in states:
        if not state.problem:
            writable.setdefault(state.server or state.name, state)
    if not writable:
        said = ", ".join(f"{state.name} ({state.problem})" for state in states)
        raise StoreUnavailable(f"none of the hosts accepts writes: {said}")
    found = [*writable.values()]
    if len({state.cluster for state in found}) == 1 and all(state.shares_writes for state in found):
        return next((state for state in found if state.host == before), found[0])
    highest = max(state.timeline for state in found)
    rivals = found if len({state.cluster for state in found}) > 1 else [s for s in found if s.timeline == highest]
    if len(rivals) > 1:
        names = " and ".join(state.name for state in rivals)
        raise StoreUnavailable(f"two hosts accept writes: {names}; stop the one that is not the primary")
    (chosen,) = rivals
    if chosen.timeline < timeline:
        raise StoreUnavailable(
            f"{chosen.name} accepts writes on timeline {chosen.timeline}, but this node has worked on timeline"
            f" {timeline}:"
            " it is an old primary; stop it"
        )
    for state in found:
        if state is not chosen:
            logger.warning(
                "%s takes writes on timeline %d, beside %s on timeline %d: it is an old primary; stop it",
                *(state.name, state.timeline, chosen.name, chosen.timeline),
            )
    return chosen


class HostFinder:
    """Asks all hosts at once. Several callers who look at the same time share one look."""

    def __init__(self, hosts: Sequence[Host], look: Look) -> None:
        self.hosts = tuple(hosts)
        self._look = look
        self._lock = asyncio.Lock()
        self._failure: tuple[float, StoreUnavailable] | None = None
        self.current: Host | None = None
        self.timeline = 0

    @property
    def are_several(self) -> bool:
        return len(self.hosts) > 1

    async def find(self, lost: Host | None) -> Host:
        """The host to work on, if it is not another than `lost` by now: who waited for the look takes its answer."""
        async with self._lock:
            if self.current is not None and self.current != lost:
                return self.current
            if self._failure is not None and time.monotonic() - self._failure[0] < _AGAIN_AFTER:
                raise self._failure[1]
            try:
                chosen = choose(await self._look_at_all(), self.current, self.timeline)
            except StoreUnavailable as error:
                self._failure = time.monotonic(), error
                raise
            self._failure = None
            if self.current is not None and chosen.host != self.current:
                logger.warning("the store moves to %s", chosen.name)
            self.current, self.timeline = chosen.host, max(self.timeline, chosen.timeline)
            return chosen.host

    async def _look_at_all(self) -> list[HostState]:
        return list(await asyncio.gather(*(self._ask(host) for host in self.hosts)))

    async def _ask(self, host: Host) -> HostState:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await self._look(host)
        except Exception as error:  # any error: this host is none to work on, and the error says why
            return HostState(host, problem=str(error) or type(error).__name__)
