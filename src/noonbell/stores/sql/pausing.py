"""One switch for all: while the installation is paused, nothing is planned, made ready or claimed.

The switch is the row of `installation_pauses` whose `standing` is 1; at most one row has it. Claims, planning and
promotion look at it inside the statement with which they look for work, so it costs none of them a round trip. What
executes goes on, and so do callbacks; what is published waits.

    K22  died before the commit   nothing is paused, or the pause stands as before; the caller has no answer, and asks again
    K23  died after it            the pause or its end is in the store; only the signals are missing, and polls find it

A claim that looked before the pause was committed may commit after it. `engine.attempt_runner.PauseCheck` bounds that:
a worker starts nothing on the word of a claim that it sent off more than a second ago, without asking again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noonbell.clock import Instant
from noonbell.engine import failpoint
from noonbell.model.account import InstallationPause
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.statement import Execute, Fetch, NewIds, Now, Row, Work, insert

PAUSED = "exists (select 1 from installation_pauses where standing = 1)"
"""For a statement: whether everything is paused."""

_COLUMNS = "since, until, paused_by, resumed_by, reason"


def installation_pause() -> Work[InstallationPause | None]:
    rows = yield Fetch(f"select {_COLUMNS} from installation_pauses where standing = 1")
    return _pause(rows[0]) if rows else None


def installation_pauses(since: Instant, until: Instant) -> Work[list[InstallationPause]]:
    rows = yield Fetch(
        f"select {_COLUMNS} from installation_pauses where since <= :until and (until is null or until >= :since)"
        " order by since limit 1000",
        {"since": since, "until": until},
    )
    return [_pause(row) for row in rows]


def pause_installation(reason: str, *, by: str | None = None) -> Work[tuple[InstallationPause, bool]]:
    standing = yield from installation_pause()
    if standing is not None:
        return standing, False
    now = yield Now()
    ids = yield NewIds(1)
    yield insert(
        "installation_pauses",
        id=ids[0],
        standing=1,
        since=now,
        until=None,
        paused_by=by,
        resumed_by=None,
        reason=reason,
    )
    yield from tell("installation.paused", [(None, None, {"by": by, "reason": reason, "since": now})])
    failpoint.hit("K22")
    return InstallationPause(since=now, by=by, reason=reason), True


def resume_installation(*, by: str | None = None) -> Work[InstallationPause | None]:
    standing = yield from installation_pause()
    if standing is None:
        return None
    now = yield Now()
    changed = yield Execute(
        "update installation_pauses set standing = null, until = :now, resumed_by = :by where standing = 1",
        {"now": now, "by": by},
    )
    if changed != 1:
        return None  # another call has ended it meanwhile
    facts: dict[str, Any] = {"by": by, "reason": standing.reason, "since": standing.since, "until": now}
    yield from tell("installation.resumed", [(None, None, facts)])
    failpoint.hit("K22")
    return InstallationPause(since=standing.since, until=now, by=standing.by, resumed_by=by, reason=standing.reason)


def _pause(row: Row | Sequence[Any]) -> InstallationPause:
    since, until, by, resumed_by, reason = row
    return InstallationPause(since=since, until=until, by=by, resumed_by=resumed_by, reason=reason)
