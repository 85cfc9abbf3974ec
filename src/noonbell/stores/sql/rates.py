"""The state of rate limits, one row each: lock it, read the clock, ask `policy.rate`, write it back."""

from __future__ import annotations

from noonbell.policy.rate import RateState
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import from_json, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Work


def load(q: Dialect, scope: str) -> Work[RateState]:
    """Held until the end of the transaction. A new limit gets its row here, so that there is something to hold."""
    sql = "select tat, log from rates where scope = :scope" + q.lock
    rows = yield Fetch(sql, {"scope": scope})
    if not rows:
        yield InsertMany("rates", ("scope", "tat", "log"), [(scope, 0, "[]")])
        return RateState()
    tat, log = rows[0]
    return RateState(tat, tuple((instant, count) for instant, count in from_json(log)))


def save(scope: str, state: RateState) -> Work[None]:
    yield Execute(
        "update rates set tat = :tat, log = :log where scope = :scope",
        {"tat": state.tat, "log": to_json(state.log), "scope": scope},
    )
