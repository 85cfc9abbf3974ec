"""How runs are carried out. `MAKERS` is the table of targets: for each kind of `model.task.TARGET_KINDS`, what makes its target.

A target is imported when it is made: the command line and the process of a sandbox start without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from noonbell.model.task import HTTP, JOBS, TargetKind
from noonbell.ports import Target

if TYPE_CHECKING:
    from noonbell.engine.in_flight import AbandonedThreads
    from noonbell.ports import Store
    from noonbell.settings import Settings
    from noonbell.targets.http.guard import AddressGuard
    from noonbell.targets.http.target import HttpTarget
    from noonbell.targets.jobs.handler import Handlers
    from noonbell.targets.jobs.target import JobTarget


class OpenableTarget(Target, Protocol):
    """With a beginning and an end."""

    async def open(self) -> None:
        """In the event loop that it is used in, before the first attempt."""

    async def close(self) -> None:
        """Release everything. Attempts that are under way fail."""


@dataclass(frozen=True, slots=True)
class TargetParts:
    """What a target is made from."""

    settings: Settings
    store: Store
    own_ports: Collection[int] = field(default=())
    """Where this process listens."""
    handlers: Handlers | None = None
    abandoned: AbandonedThreads | None = None


def guard_of(settings: Settings) -> AddressGuard:
    """Which addresses may be dialled."""
    from noonbell.targets.http.guard import AddressGuard

    return AddressGuard(settings.executor.allow_networks, settings.executor.deny_networks)


def http_target(settings: Settings, own_ports: Collection[int] = ()) -> HttpTarget:
    from noonbell import sealing
    from noonbell.targets.http.target import HttpTarget

    executor = settings.executor
    return HttpTarget(
        connect_timeout=executor.connect_timeout,
        max_body_bytes=executor.max_body_bytes,
        global_headers=executor.global_headers,
        guard=guard_of(settings),
        sealer=sealing.from_file(settings.secrets.key_file),
        own_ports=own_ports,
        call_secret=executor.call_secret,
    )


def _job_target(parts: TargetParts) -> JobTarget:
    from noonbell.targets.jobs.handler import Handlers
    from noonbell.targets.jobs.target import JobTarget

    return JobTarget(parts.handlers or Handlers(), parts.store, abandoned=parts.abandoned)


MAKERS: Final[Mapping[str, Callable[[TargetParts], OpenableTarget]]] = {
    HTTP.name: lambda parts: http_target(parts.settings, parts.own_ports),
    JOBS.name: _job_target,
}


def make_target(kind: TargetKind, parts: TargetParts) -> OpenableTarget:
    """The target of a kind, not opened yet."""
    return MAKERS[kind.name](parts)
