"""The id of an installation: made once for each store, and the same on every node that works on it."""

from __future__ import annotations

import secrets

from noonbell.stores.sql.statement import Execute, Fetch, Now, Work


def read() -> Work[str | None]:
    rows = yield Fetch("select id from installation where one = 1")
    return str(rows[0][0]) if rows else None


def ensure() -> Work[str]:
    """The id; made now if there is none. Raises Conflict if another node made one at the same moment."""
    found = yield from read()
    if found is not None:
        return found
    made, now = _random(), (yield Now())
    yield Execute("insert into installation (one, id, made_at) values (1, :id, :now)", {"id": made, "now": now})
    return made


def replace() -> Work[str]:
    """Another id, for a copy that is to run beside its original. Runs that are there keep their keys."""
    yield from ensure()
    made, now = _random(), (yield Now())
    yield Execute("update installation set id = :id, made_at = :now where one = 1", {"id": made, "now": now})
    return made


def _random() -> str:
    return secrets.token_hex(8)
