"""A lock on the schema that is a row of `schema_log`: for Galera, where GET_LOCK and locks on rows end at the server that took them.

    taken        insert of the row `schema lock`, and its commit. Of two servers whose nodes insert it at once, one commit is refused
    held         the holder adds one to the row every `BEAT_SECONDS`, over another connection than the one that changes tables
    waited for   a waiter writes a row of its own with each look. It takes the lock over after `LOST_AFTER` looks in a row whose writes
                 went through while the holder's row did not change: while the cluster changes a large table no write goes
                 through, neither a beat of the holder nor one of the waiter, and nothing is concluded from that
    given back   the rows are deleted

Died while it was held: the next node that starts waits for `LOST_AFTER` looks, takes the lock over and goes on where the step stopped.
No clock is compared with another. A beat is counted downwards in the column `step`: steps are counted upwards from one.
"""

from __future__ import annotations

import secrets

from noonbell.stores.migrations.ownership import LOG_TABLE, Found
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, Work

NAME = "schema lock"
BEAT_SECONDS = 0.5
LOOK_SECONDS = 0.5
LOST_AFTER = 40
"""Looks: 20 seconds."""

_Seen = tuple[str, int]


class SchemaLock:
    """Of one process. `acquire` and `release` run on the connection that changes the schema, the rest beside it."""

    def __init__(self) -> None:
        self.holder = secrets.token_hex(5)
        self.is_held = False
        self._seen: _Seen | None = None
        self._looks = 0
        """How often the row of another holder was seen as it is, with writes of our own going through."""

    def acquire(self, found: Found) -> Work[bool]:
        """Whether the lock is this process's now. Commits."""
        if not found.has_log:
            yield Execute(LOG_TABLE.replace("create table", "create table if not exists"))
        row = yield from self._row()
        if row is None:
            yield Execute(
                "insert into schema_log (name, step, state) values (:name, -1, :holder)",
                {"name": NAME, "holder": self.holder},
            )
        elif self._is_lost(row):
            changed = yield Execute(
                "update schema_log set step = -1, state = :holder where name = :name and state = :before and step = :beat",
                {"name": NAME, "holder": self.holder, "before": row[0], "beat": row[1]},
            )
            if not changed:
                return False
        elif row[0] != self.holder:
            return False
        yield Execute("commit")
        self.is_held, self._seen, self._looks = True, None, 0
        return True

    def beat(self) -> Work[None]:
        yield Execute(
            "update schema_log set step = step - 1 where name = :name and state = :holder",
            {"name": NAME, "holder": self.holder},
        )

    def look(self) -> Work[_Seen | None]:
        """Write a row of our own, and read that of the holder."""
        mine = {"name": f"waits {self.holder}"}
        changed = yield Execute("update schema_log set step = step - 1 where name = :name", mine)
        if not changed:
            yield Execute("insert into schema_log (name, step, state) values (:name, -1, 'waits')", mine)
        return (yield from self._row())

    def note(self, seen: _Seen | None) -> None:
        """After the write of `look` has gone through."""
        self._looks = self._looks + 1 if seen is not None and seen == self._seen else 0
        self._seen = seen

    def is_taken(self, q: Dialect) -> Work[bool]:
        """By another process, as far as it is known to live."""
        if not (yield Fetch(q.objects, {"names": q.pack([q.naming.bare("schema_log")])})):
            return False
        row = yield from self._row()
        return row is not None and row[0] != self.holder and not self._is_lost(row)

    def release_after_failure(self) -> Work[None]:
        """Without what the failed step has not committed itself."""
        yield Execute("rollback")
        yield from self.release()

    def release(self) -> Work[None]:
        self.is_held = False
        yield from self.forget()
        yield Execute(
            "delete from schema_log where name = :name and state = :holder", {"name": NAME, "holder": self.holder}
        )
        yield Execute("commit")

    def forget(self) -> Work[None]:
        yield Execute("delete from schema_log where name = :name", {"name": f"waits {self.holder}"})

    def _is_lost(self, row: _Seen) -> bool:
        return row == self._seen and self._looks >= LOST_AFTER

    def _row(self) -> Work[_Seen | None]:
        rows = yield Fetch("select state, step from schema_log where name = :name", {"name": NAME})
        return (str(rows[0][0]), int(rows[0][1])) if rows else None
