"""The account of a database that failed over: judged from what the target saw, slot by slot.

A fail-over is no death of a node, so `checker` does not know its rules. Where the last commits are gone, a slot gets another run, under
the same Idempotency-Key; a slot of an at-most-once task is SKIPPED instead, as `store_went_back`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from faults.checker import Seen, Slot, percentile

EXCUSED = ("unknown", "store_went_back")
"""How a run of an at-most-once task may end besides SUCCESS: it was begun, or may have been delivered, and that is told."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    slot: Slot
    status: str | None
    """None: it has not ended."""
    why: str | None = None
    """The kind of its failure, or the reason for which it was skipped."""


@dataclass
class FailoverAccount:
    slots: int
    lost: list[Slot] = field(default_factory=list)
    """No run; or no request, and no run that says why."""
    doubled: list[Slot] = field(default_factory=list)
    """More than one run."""
    unended: list[Slot] = field(default_factory=list)
    repeated: list[Seen] = field(default_factory=list)
    """A further request under the key of the first."""
    other_key: list[Seen] = field(default_factory=list)
    """A further request under another key."""
    once_repeated: list[Seen] = field(default_factory=list)
    """A further request of an at-most-once task."""
    told: Counter[str] = field(default_factory=Counter)
    """At-most-once runs that did not end in SUCCESS, by the reason."""
    seconds: list[float] = field(default_factory=list)
    """From each kill to the first request for a slot that was not due yet."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.unended or self.other_key or self.once_repeated)

    def fail_over(self, share: float) -> float:
        return percentile(self.seconds, share)


def account_of(
    expected: Sequence[Slot],
    runs: Iterable[EndedRun],
    seen: Iterable[Seen],
    *,
    kills: Sequence[float],
    once: Collection[str],
) -> FailoverAccount:
    """`kills`: when each server was killed."""
    account = FailoverAccount(len(expected))
    requests: dict[Slot, list[Seen]] = defaultdict(list)
    for one in sorted(seen, key=lambda one: one.at):
        requests[one.slot].append(one)
    runs = list(runs)
    excused = {run.slot for run in runs if run.slot.task in once and run.why in EXCUSED}
    account.told = Counter(run.why for run in runs if run.slot in excused and run.why)
    counts = Counter(run.slot for run in runs)
    account.lost = [slot for slot in expected if not counts[slot] or not (requests[slot] or slot in excused)]
    account.doubled = [slot for slot, count in counts.items() if count > 1]
    account.unended = [run.slot for run in runs if run.status != "SUCCESS" and run.slot not in excused]
    for first, *others in filter(None, requests.values()):
        for one in others:
            (account.repeated if one.key == first.key else account.other_key).append(one)
            if one.slot.task in once:
                account.once_repeated.append(one)
    for killed_at in kills:
        later = (found[0].at for slot, found in requests.items() if found and slot.at > killed_at)
        account.seconds.append(min(later, default=float("inf")) - killed_at)
    return account
