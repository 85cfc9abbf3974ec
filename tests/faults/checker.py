"""Was every slot carried out, and none twice? Judged from what targets saw; the store is only asked what it claims.

The model is that of Jepsen's test of Chronos: a slot is a target with a window in which a run has to begin, and a history
is valid if every slot can be given a run of its own. The windows of one task are equally long, so giving each slot the
earliest unused run in its window, both sorted, finds an assignment if there is one. Chronos let extra runs pass and
forgave five seconds. Here nothing is forgiven, and a second, strict verdict wants exactly one row for each slot and a
reason for every extra delivery.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Slot:
    task: str
    at: int
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Row:
    """A run, as the store tells it."""

    slot: Slot
    run: str
    final_status: str | None
    """None: it has not ended."""
    kind: str | None = None
    """Of its failure."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request, as the target tells it."""

    slot: Slot
    run: str
    key: str
    at: float
    node: str


@dataclass
class Verdict:
    lost: list[Slot] = field(default_factory=list)
    """No row, or no request ever arrived."""
    doubled: list[Slot] = field(default_factory=list)
    """More than one row."""
    unexpected: list[Slot] = field(default_factory=list)
    """A row for what is no slot."""
    unended: list[Slot] = field(default_factory=list)
    """A row that is not final, or is final without success."""
    late: list[Slot] = field(default_factory=list)
    """No request of its own within the window, whatever the requests say of themselves."""
    strange: list[Seen] = field(default_factory=list)
    """An extra request under another key or run than the first."""
    unexcused: list[Seen] = field(default_factory=list)
    """An extra request although no kill hit the one before it, or although the task allows none."""
    unknown: list[Slot] = field(default_factory=list)
    """At most once: hit by a kill, and so it ended FAILED, kind `unknown`. That is the promise, not a flaw."""
    extra: list[Seen] = field(default_factory=list)
    """All extra requests, the excused ones included."""

    @property
    def is_strict(self) -> bool:
        """No slot lost or doubled, all ended, and every extra request is a repeat that a kill explains."""
        found = (self.lost, self.doubled, self.unexpected, self.unended, self.strange, self.unexcused)
        return not any(found)

    @property
    def is_valid(self) -> bool:
        """Chronos's verdict: every slot has a request of its own, in time."""
        return not self.late


def judge(
    expected: Sequence[Slot],
    rows: Iterable[Row],
    seen: Iterable[Seen],
    *,
    kills: Mapping[str, float],
    window: float,
    reach: float,
    once: Collection[str] = (),
) -> Verdict:
    """`kills`: when each node died. A request of a node that died within `reach` seconds after it may be repeated.

    `once`: the tasks that are delivered at most once. Where others may repeat, these may end as unknown.
    """
    verdict = Verdict()
    by_slot: dict[Slot, list[Seen]] = defaultdict(list)
    for one in sorted(seen, key=lambda one: one.at):
        by_slot[one.slot].append(one)
    rows = list(rows)
    counts = Counter(row.slot for row in rows)
    wanted = set(expected)

    def was_hit(one: Seen) -> bool:
        # A dead node sends nothing: what is logged after the kill was on its way before it.
        return kills.get(one.node, float("inf")) - one.at <= reach

    def may_be_unknown(slot: Slot) -> bool:
        if by_slot[slot]:
            return all(map(was_hit, by_slot[slot]))
        return any(0 <= killed_at - slot.at <= window for killed_at in kills.values())

    verdict.unknown = [
        row.slot for row in rows if row.slot.task in once and row.kind == "unknown" and may_be_unknown(row.slot)
    ]
    excused = set(verdict.unknown)
    verdict.lost = [slot for slot in expected if not counts[slot] or not (by_slot[slot] or slot in excused)]
    verdict.doubled = [slot for slot, count in counts.items() if count > 1]
    verdict.unexpected = [slot for slot in counts if slot not in wanted]
    verdict.unended = [row.slot for row in rows if row.final_status != "SUCCESS" and row.slot not in excused]
    sent = [slot for slot in expected if by_slot[slot] or slot not in excused]
    verdict.late = late(sent, [one for requests in by_slot.values() for one in requests], window)
    for requests in by_slot.values():
        for before, one in pairwise(requests):
            verdict.extra.append(one)
            if (one.key, one.run) != (before.key, before.run):
                verdict.strange.append(one)
            if one.slot.task in once or not was_hit(before):
                verdict.unexcused.append(one)
    return verdict


def late(expected: Iterable[Slot], seen: Iterable[Seen], window: float) -> list[Slot]:
    """The slots that find no request of their own between their moment and `window` seconds later."""
    slots: dict[str, list[int]] = defaultdict(list)
    arrivals: dict[str, list[float]] = defaultdict(list)
    for slot in expected:
        slots[slot.task].append(slot.at)
    for one in seen:
        arrivals[one.slot.task].append(one.at)
    return [
        Slot(task, moment) for task, moments in slots.items() for moment in unassigned(moments, arrivals[task], window)
    ]


def unassigned(moments: Iterable[int], arrivals: Iterable[float], window: float) -> list[int]:
    """The moments of one task that are left over when each takes the earliest arrival that nobody has taken yet."""
    left: list[int] = []
    free = iter(sorted(arrivals))
    arrival = next(free, None)
    for moment in sorted(moments):
        while arrival is not None and arrival < moment:
            arrival = next(free, None)  # too early for this one, and so for all that follow: an extra
        if arrival is not None and arrival <= moment + window:
            arrival = next(free, None)
        else:
            left.append(moment)
    return left


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0.0
