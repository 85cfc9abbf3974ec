"""Where a run that is not final is kept: the `place` and `flags` of its row in `live`.

    LATER ──promote──▶ READY | GATED | CAREFUL | PINNED ──claim──▶ LEASED ──settle──▶ final (the row goes)
      ▲                     ▲                               │ ├─park──▶ PARKED ──callback, sweep──▶ final or LATER
      └──────retry──────────┼───────────────────────────────┘ └─(fan-out parent)──▶ PARENT
                            └──release, lose────────────────┘

READY needs nothing but a worker of its queue: the hot claim walks these rows and no others. GATED waits behind the
gate of its task (a concurrency or rate limit). CAREFUL is due, but somebody has to look: a policy follows the run, it
asks for a newer worker, or it is a part of a fan-out. PINNED names its workers, and only they look for it.
"""

from __future__ import annotations

import enum

from noonbell.model import plan
from noonbell.model.run import Origin
from noonbell.model.task import Delivery, ExecType, OnExhausted, TaskSpec
from noonbell.policy.account import needs


class Place(enum.IntEnum):
    LATER = 0
    READY = 1
    GATED = 2
    CAREFUL = 3
    LEASED = 4
    PARKED = 5
    PARENT = 6
    PINNED = 7


DUE = (Place.READY, Place.GATED, Place.CAREFUL, Place.PINNED)
WAITING = (Place.LATER, *DUE)
STARTED = (Place.LEASED, Place.PARKED, Place.PARENT)


class Flag:
    """Bits of `flags`. Plain integers: drivers would take a set of members for a list."""

    FOLLOW = 1
    """Its end touches more than itself: fixed delay, ERROR, deletion on completion, a result that is told."""
    ROUND = 2
    """Its start and end are kept as the task's previous round."""
    PINNED = 4
    """Only the workers in `pins` may have it."""
    FANOUT = 8
    """To be split into parts when it starts."""
    PART = 16
    """A part of a fan-out."""
    CALLBACK = 32
    """Its claim makes a callback token."""
    ONCE = 64
    """At most once: its attempt is marked as begun."""
    BEGUN = 128
    STOP = 256
    """Its worker may not have it any longer, and is told so by its next heartbeat."""
    PASSED = 512
    """Counts for its task's gate without having waited behind it."""
    RETRIED = 1024
    """Waits as RETRYING: it has started before."""
    TOLD = 2048
    """Needs no worker: when it is due, it is told to whoever listens, and done."""


STANDING = ~(Flag.BEGUN | Flag.STOP | Flag.RETRIED)
"""What stays with a run from attempt to attempt."""


def flags_for(spec: TaskSpec, origin: Origin, *, pinned: bool, force_async: bool = False) -> int:
    flags = 0
    is_round = origin in (Origin.SCHEDULE, Origin.TRIGGER)
    fixed_delay = (spec.schedule or {}).get("mode") == "fixed_delay"
    if spec.on_exhausted is OnExhausted.ERROR or spec.delete_on_complete or (fixed_delay and is_round):
        flags |= Flag.FOLLOW
    if spec.meta and plan.target_of(spec) is not None:
        flags |= Flag.FOLLOW | (Flag.TOLD if plan.is_told(spec) else 0)
    if is_round and needs(spec).round:
        flags |= Flag.ROUND
    if pinned:
        flags |= Flag.PINNED
    if spec.fanout is not None:
        flags |= Flag.FANOUT
    if spec.exec_type is ExecType.ASYNC or (force_async and spec.exec_type is not ExecType.JOB):
        flags |= Flag.CALLBACK
    if spec.delivery is Delivery.AT_MOST_ONCE:
        flags |= Flag.ONCE
    return flags


def due_place(flags: int, gate: int | None, min_version: int) -> Place:
    """Where a run waits once its time has come."""
    if gate is not None and not flags & Flag.PASSED:
        return Place.GATED
    if flags & Flag.PINNED:
        return Place.PINNED
    return Place.CAREFUL if flags & STANDING or min_version else Place.READY
