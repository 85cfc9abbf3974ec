"""How far a move has come, as the row of `installation` says it: of the source and of the destination.

    source        preparing   triggers are made                    destination   filling   it gets rows; no node may start on it
                  copying     rows are copied, nodes go on                       null      it is the installation now
                  closed      nothing can be written
                  finishing   the destination may have all by now
                  moved       for good; `moved_to` says where

The two of one move have the same token.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from noonbell.errors import InvalidState, StoreMoved
from noonbell.stores import migrations
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, Work, update


class MovePhase(enum.StrEnum):
    PREPARING = "preparing"
    COPYING = "copying"
    CLOSED = "closed"
    FINISHING = "finishing"
    MOVED = "moved"
    FILLING = "filling"


@dataclass(frozen=True, slots=True)
class MoveState:
    installation: str
    phase: MovePhase | None = None
    token: str | None = None
    moved_to: str = ""

    def check_startable(self) -> None:
        """A node may start here. Raises StoreMoved."""
        match self.phase:
            case MovePhase.FILLING:
                raise StoreMoved(
                    "the store is not complete: `noonbell move` or `noonbell restore` fills it; run that again to finish it"
                )
            case MovePhase.CLOSED | MovePhase.FINISHING:
                raise StoreMoved(
                    f"the store is closed by a move to {self.moved_to}; run `noonbell move` again to finish it, or with"
                    " --cancel to open it again"
                )
            case MovePhase.MOVED:
                self.check_stays()
            case _:
                return

    def check_stays(self) -> None:
        """A node that runs may go on. Raises StoreMoved."""
        if self.phase is MovePhase.MOVED:
            raise StoreMoved(f"the store was moved to {self.moved_to}: set store.url to that address")


def read() -> Work[MoveState]:
    rows = yield Fetch("select id, move_phase, move_token, moved_to from installation where one = 1")
    if not rows:
        return MoveState("")
    installation, phase, token, moved_to = rows[0]
    return MoveState(installation, None if phase is None else MovePhase(phase), token, moved_to or "")


def check_own(q: Dialect, token: str, *phases: MovePhase | None) -> Work[None]:
    """Raises InvalidState where the store is not in one of these phases of this move: two processes are at it."""
    rows = yield Fetch(f"select move_phase, move_token from installation where one = 1{q.lock}")
    if not rows or rows[0][1] != token or rows[0][0] not in phases:
        raise InvalidState("another process has finished this move or restore, or has begun it again")


def write(phase: MovePhase | None, **more: Any) -> Work[None]:
    yield update("installation", {"one": 1}, move_phase=phase, **more)


def finish_source() -> Work[None]:
    yield from write(MovePhase.MOVED)
    yield Execute(
        "update schema_steps set oldest_code = :code where number = (select number from"
        " (select max(number) as number from schema_steps) newest)",
        {"code": migrations.MOVED},
    )
