"""Protections that the simulation must see removed: those of the security map and of the rounds before it that live in the engine and in
the transitions which all databases share. What one database's own locking protects is not among them: the simulation has one writer.

`tools/sabotage/simulated.py` removes each in a copy of the source and lives through seeds until a law is broken.
"""

from __future__ import annotations

from typing import Final

from removals import REMOVALS, SRC, Edit, Removal

_MAP: Final = (
    ("D2", "a heartbeat of a former process is taken"),
    ("D3", "SQLite keeps ids that were reserved in a transaction that was undone"),
    ("D6", "events are numbered by id"),
    ("D10", "the end of a step does not move its flow on in its transaction"),
    ("D10", "a parked job is resumed by each child that ends"),
    ("D10", "an item of a foreach that failed is not counted"),
    ("D10", "items of a foreach start without regard to those under way"),
)
"""Rows of the security map: their edits are taken from there."""


def _cut(what: str, file: str, text: str, instead: str) -> Removal:
    return Removal("", what, (Edit(f"{SRC}/{file}", text, instead),), ())


_HOLDING, _SETTLE, _FAST = "stores/sql/workers.py", "stores/sql/settle.py", "stores/sql/fast_path.py"
_RUN_OUT: Final = "return leased and live.expires_at is not None and live.expires_at <= now"
_OWN: Final = (
    _cut("settle does not compare tokens", _SETTLE, "if live.token != settlement.token:", "if False:"),
    _cut(
        "the short way of settle does not compare tokens", _FAST, "if token != settlement.token:", "if token is None:"
    ),
    _cut(
        "a heartbeat renews with any token",
        _HOLDING,
        "live.place != Place.LEASED or live.token != token or live.worker_id != worker_id:",
        "live.place != Place.LEASED or live.worker_id != worker_id:",
    ),
    _cut(
        "at most once begins with any token",
        _HOLDING,
        "if live is not None and live.place == Place.LEASED and live.token == lease.token:",
        "if live is not None and live.place == Place.LEASED:",
    ),
    _cut(
        "at most once: nothing is marked before it is sent",
        "engine/attempt_runner.py",
        "if task.spec.delivery is Delivery.AT_MOST_ONCE and not await self._begin(state):",
        "if state is None:",
    ),
    _cut(
        "at most once: what has begun and was lost is sent again",
        "policy/retry.py",
        '        if started:\n            return Final(RunStatus.FAILED, "unknown")\n',
        "",
    ),
    _cut(
        "at most once: the store takes back what has begun",
        _SETTLE,
        "if live.flags & RunFlag.BEGUN and settlement.transition in _SENDS_AGAIN:",
        "if live.flags is None:",
    ),
    _cut(
        "a parent is not counted at the gate of its task",
        "stores/sql/claim.py",
        "yield from gates.write(now, chosen.rows + chosen.parents)",
        "yield from gates.write(now, chosen.rows)",
    ),
    _cut(
        "a cancel does not give the place at a gate back",
        "stores/sql/finish.py",
        "yield from remove(q, cache, [ending.live for ending in endings])",
        "yield from remove(q, cache, [e.live._replace(gate=None) if e.status is RunStatus.CANCELED else e.live for e in endings])",
    ),
    _cut(
        "the limit of a queue is not kept",
        "stores/sql/limits.py",
        "self._room[name] = max(0, concurrency - int(rows[0][0]))",
        "self._room[name] = _UNLIMITED",
    ),
    _cut(
        "the limit of a key is not kept",
        "stores/sql/keys.py",
        "return min(self.lim - self.used, self.waiting)",
        "return self.waiting",
    ),
    _cut(
        "the short way of a claim does not look at the pause",
        _FAST,
        "return None if is_paused else Special(*map(bool, special))",
        "return Special(*map(bool, special))",
    ),
    _cut(
        "the short way of settle frees no place",
        _FAST,
        "yield from count_at_gates(used=freed)",
        "yield from count_at_gates(used={})",
    ),
    Removal(
        "",
        "the sweep takes leases two seconds early, and the store believes it",
        (
            Edit(
                f"{SRC}/stores/sql/sweeps.py",
                'order by at limit :limit",\n            {"now": now, "limit": limit},',
                'order by at limit :limit",\n            {"now": now + 2_000_000, "limit": limit},',
            ),
            Edit(f"{SRC}/{_SETTLE}", _RUN_OUT, "return leased"),
        ),
        (),
    ),
    _cut("the sweep settles a lease that was renewed since it looked", _SETTLE, _RUN_OUT, "return leased"),
    _cut(
        "ids of a clock that was set back are given out again",
        "stores/sql/ids.py",
        "set value = (case when value > :floor then value else :floor end) + :size",
        "set value = :floor + :size",
    ),
)
"""From the rounds of sabotage before there was a map."""


def interleavings() -> list[Removal]:
    found = [one for rule, what in _MAP for one in REMOVALS if (one.rule, one.what) == (rule, what)]
    if len(found) != len(_MAP):
        raise SystemExit(
            "sabotage: a row of the security map has another name now; see tools/sabotage/interleavings.py"
        )
    return [*found, *_OWN]
