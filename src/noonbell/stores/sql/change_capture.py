"""Which rows of a store change while it is copied: triggers write the key of each into `move_log`; and how all writing
is stopped.

A trigger finds the row of `move_gate` before it writes. To close the store, that table is dropped: the database waits
for every transaction that has written, and each one that comes later fails, under every version of Noonbell. Nothing
needs to be asked of the nodes. To open the store again, the table is made anew.

The tables of `COPIED_AT_ONCE` have no triggers, and stay writable: nothing is started or ended by a row of theirs.

How far a move has come, as the row of `installation` says it: of the source and of the destination.

    source        preparing   triggers are made                    destination   filling   it gets rows; no node may start on it
                  copying     rows are copied, nodes go on                       null      it is the installation now
                  closed      nothing can be written
                  finishing   the destination may have all by now
                  moved       for good; `moved_to` says where

The two of one move have the same token.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from noonbell.errors import InvalidState, StoreMoved, StoreUnavailable
from noonbell.stores import migrations
from noonbell.stores.migrations.m0001_foundation import _TYPES
from noonbell.stores.migrations.m0045_moves import GATE
from noonbell.stores.sql.copying import CopiedTable, Key, quoted, unpacked
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Work, update

_EVENTS = ("insert", "update", "delete")


def install(q: Dialect, table: CopiedTable) -> Work[None]:
    """The triggers of one table; those that are there are made anew."""
    for sql in [*_dropped(q, table), *_made(q, table)]:
        yield Execute(sql)


def remove(q: Dialect, table: CopiedTable) -> Work[None]:
    for sql in _dropped(q, table):
        yield Execute(sql)


def close(q: Dialect) -> Work[None]:
    """Stop recording changes. Does nothing where that is done already."""
    yield Execute(f"drop table if exists {q.naming.table('move_gate')}")


def reopen(q: Dialect, variant: str) -> Work[None]:
    types, gate = _TYPES[variant], q.naming.table("move_gate")
    yield Execute(f"create table if not exists {gate} ({GATE.format(**types)}){types['end']}")
    if not (yield Fetch(f"select 1 from {gate}")):
        yield Execute(f"insert into {gate} (one) values (1)")


def is_closed(q: Dialect) -> Work[bool]:
    return not (yield Fetch(q.objects, {"names": q.pack([q.naming.bare("move_gate")])}))


def refusal(error: BaseException) -> StoreUnavailable | None:
    """What a write says that finds the store closed, in place of the database's words about a table that is not there."""
    if "move_gate" not in str(error):
        return None
    return StoreUnavailable(
        "the store is closed by a move to another database: it opens there in a moment. If the move was cut off, run `noonbell move` again"
        " to finish it, or with --cancel to open this store again"
    )


def changes(after: int, limit: int) -> Work[list[tuple[int, str, Key]]]:
    """(number, table, key of a row) of what has changed, in the order of their numbers."""
    rows = yield Fetch(
        "select seq, name, row_key from move_log where seq > :after order by seq limit :limit",
        {"after": after, "limit": limit},
    )
    return [(seq, name, unpacked(key)) for seq, name, key in rows]


def forget(q: Dialect, numbers: Sequence[int]) -> Work[None]:
    yield from q.delete_by("move_log", "seq", numbers)


def forget_all() -> Work[None]:
    yield Execute("delete from move_log")


def note(entries: Sequence[tuple[str, str]]) -> Work[None]:
    """(table, key as text): to be copied once more."""
    yield InsertMany("move_log", ("name", "row_key"), entries)


def count(limit: int) -> Work[int]:
    """How many changes wait, up to `limit`."""
    rows = yield Fetch("select count(*) from (select seq from move_log limit :limit) some_log", {"limit": limit})
    return int(rows[0][0])


def _names(q: Dialect, table: CopiedTable) -> dict[str, str]:
    return {event: q.naming.bare(f"moved_{event}_{table.name}") for event in (*_EVENTS, "key")}


def _dropped(q: Dialect, table: CopiedTable) -> list[str]:
    names, on = _names(q, table), q.naming.table(table.name)
    if q.name == "postgres":
        return [f"drop trigger if exists {names['key']} on {on}"]
    return [f"drop trigger if exists {name}" for name in names.values()]


def _made(q: Dialect, table: CopiedTable) -> list[str]:
    names, on = _names(q, table), q.naming.table(table.name)
    if q.name == "postgres":
        function = q.naming.table(f"moved_{table.name}")
        made = (
            f"create or replace function {function}() returns trigger language plpgsql as $moved$ begin"
            f" if tg_op <> 'INSERT' then {_noted(q, table, 'old')}; end if;"
            f" if tg_op = 'INSERT' or (tg_op = 'UPDATE' and {_key_differs(q, table)}) then {_noted(q, table, 'new')}; end if;"
            " return null; end $moved$"
        )
        return [
            made,
            f"create trigger {names['key']} after insert or update or delete on {on} for each row execute function {function}()",
        ]
    bodies = {"insert": _noted(q, table, "new"), "update": _noted(q, table, "old"), "delete": _noted(q, table, "old")}
    if q.name == "mysql":
        bodies["update"] = (
            f"begin {bodies['update']}; if {_key_differs(q, table)} then {_noted(q, table, 'new')}; end if; end"
        )
        return [f"create trigger {names[e]} after {e} on {on} for each row {body}" for e, body in bodies.items()]
    when = f"when {_key_differs(q, table)}"
    return [
        *(f"create trigger {names[e]} after {e} on {on} begin {body}; end" for e, body in bodies.items()),
        f"create trigger {names['key']} after update on {on} {when} begin {_noted(q, table, 'new')}; end",
    ]


def _noted(q: Dialect, table: CopiedTable, row: str) -> str:
    key = ", ".join(f"{row}.{quoted(column)}" for column in table.key)
    text = f"json_build_array({key})::text" if q.name == "postgres" else f"json_array({key})"
    log, gate = q.naming.table("move_log"), q.naming.table("move_gate")
    return f"insert into {log} (name, row_key) select '{table.name}', {text} from {gate}"


def _key_differs(q: Dialect, table: CopiedTable) -> str:
    unlike = {"postgres": "is distinct from", "sqlite": "is not"}.get(q.name, "<>")
    return "(" + " or ".join(f"old.{quoted(c)} {unlike} new.{quoted(c)}" for c in table.key) + ")"


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
                    "the store is incomplete: `noonbell move` or `noonbell restore` is filling it; run that again to"
                    " finish it"
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


def read_state() -> Work[MoveState]:
    rows = yield Fetch("select id, move_phase, move_token, moved_to from installation where one = 1")
    if not rows:
        return MoveState("")
    installation, phase, token, moved_to = rows[0]
    return MoveState(installation, None if phase is None else MovePhase(phase), token, moved_to or "")


def check_own(q: Dialect, token: str, *phases: MovePhase | None) -> Work[None]:
    """Raises InvalidState where the store is not in one of these phases of this move: two processes are at it."""
    rows = yield Fetch(f"select move_phase, move_token from installation where one = 1{q.lock}")
    if not rows or rows[0][1] != token or rows[0][0] not in phases:
        raise InvalidState("another process has finished this move or restore, or has started it again")


def write_state(phase: MovePhase | None, **more: Any) -> Work[None]:
    yield update("installation", {"one": 1}, move_phase=phase, **more)


def finish_source() -> Work[None]:
    yield from write_state(MovePhase.MOVED)
    yield Execute(
        "update schema_steps set oldest_code = :code where number = (select number from"
        " (select max(number) as number from schema_steps) newest)",
        {"code": migrations.MOVED},
    )
