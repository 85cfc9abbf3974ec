"""Which slots arrived, which did not, and which more than once: judged from the target's log and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Slot(NamedTuple):
    schedule: str
    at: int
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request, as the target saw it."""

    schedule: str
    at: float
    slot: int | None = None
    """None: the scheduler does not tell a task the time that it stands for."""
    key: str | None = None
    """What a repeat of the same work has too. None: nothing."""
    is_exact: bool = True
    """Of `slot`. Otherwise it is when the work was made, which may have been for an earlier slot."""


@dataclass
class Account:
    slots: int
    lost: list[Slot] = field(default_factory=list)
    doubled: list[Slot] = field(default_factory=list)
    """Delivered again, and nothing tells the repeat: another key than before, or none."""
    repeated: list[Arrival] = field(default_factory=list)
    """Delivered again under a key that came before."""
    late: list[float] = field(default_factory=list)
    """Seconds from each slot to its first request."""


def account_of(expected: Sequence[Slot], arrivals: Iterable[Arrival], period: int) -> Account:
    """Requests of other slots, those before the first and after the last, are left out."""
    found = by_slot(arrivals, period)
    first_at = min((slot.at for slot in expected), default=0)
    for slot in expected:
        _make_up(found, slot, first_at, period)
    account = Account(len(expected))
    for slot in expected:
        if slot not in found:
            account.lost.append(slot)
            continue
        first, *others = found[slot]
        account.late.append(first.at - slot.at)
        keys = {first.key}
        again = []
        for one in others:
            (again if one.key is None or one.key not in keys else account.repeated).append(one)
            keys.add(one.key)
        if again:
            account.doubled.append(slot)
    return account


def _make_up(found: dict[Slot, list[Arrival]], slot: Slot, first: int, period: int) -> None:
    """Move work that is not exact, and that is a second one in its slot, to the newest earlier slot that has none."""
    known: set[str | None] = set()
    for one in list(found.get(slot, ())):
        if known and not one.is_exact and one.key not in known:
            earlier = (Slot(slot.schedule, at) for at in range(slot.at - period, first - 1, -period))
            empty = next((each for each in earlier if each not in found), None)
            if empty is not None:
                same = [each for each in found[slot] if each.key == one.key]
                found[slot] = [each for each in found[slot] if each.key != one.key]
                found[empty] = same
                continue
        known.add(one.key)


def by_slot(arrivals: Iterable[Arrival], period: int) -> dict[Slot, list[Arrival]]:
    """In the order of arrival.

    A request that is not told its slot has that of the first one with its key. Without such a one it has the newest slot that was due
    when it arrived: a request that is later than a whole period is then taken for the next slot.
    """
    found: dict[Slot, list[Arrival]] = defaultdict(list)
    slot_of_key: dict[tuple[str, str], int] = {}
    for one in sorted(arrivals, key=lambda one: one.at):
        slot = one.slot
        if slot is None and one.key is not None:
            slot = slot_of_key.get((one.schedule, one.key))
        if slot is None:
            slot = int(one.at // period) * period
        if one.key is not None:
            slot_of_key.setdefault((one.schedule, one.key), slot)
        found[Slot(one.schedule, slot)].append(one)
    return found
