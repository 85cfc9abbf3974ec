"""What every schedule kind is: the protocol that the rest of Noonbell sees, and the range that slots live in."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

EARLIEST = -62_104_060_800
"""0002-01-01T00:00:00Z: the first slot. A year from the end of the calendar, so that every zone can show it."""

LATEST = 253_370_764_799
"""9998-12-31T23:59:59Z: the last one."""


SHOWN = 60
"""The most of a wrong value that an error message quotes."""


def shown(value: object) -> str:
    """A value as an error message quotes it: never longer than a line, and never at the cost of a large value."""
    text = repr(_beginning(value, [SHOWN]))
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _beginning(value: object, left: list[int]) -> object:
    """As much of a value as `shown` can quote. `left` is the number of values that may still be copied."""
    left[0] -= 1
    if isinstance(value, str | bytes):
        return value[: SHOWN + 1]
    if isinstance(value, dict):
        return {
            _beginning(name, left): _beginning(each, left) for name, each in islice(value.items(), max(0, left[0] + 1))
        }
    if isinstance(value, list | tuple):
        items = [_beginning(each, left) for each in islice(value, max(0, left[0] + 1))]
        return items if isinstance(value, list) else tuple(items)
    return value


@dataclass(frozen=True, slots=True)
class Note:
    """One thing about a schedule that people get wrong. `code` is stable, `message` is a sentence in their language."""

    code: str
    message: str


class Schedule(Protocol):
    """The rule that names slots: whole epoch seconds, UTC.

    Immutable, hashable, and pure: the same question always has the same answer. `repeat`, `start_at` and `end_at` limit
    a task, not its rule: they are applied in `when.due`.

    A kind may also have `count(start, stop)`, the number of slots in start <= slot < stop without listing them; without
    it, `when.due` counts step by step within its budget.
    """

    @property
    def kind(self) -> str: ...

    @property
    def repeat(self) -> int | None:
        """How many slots there are in all; None = for ever."""
        ...

    @property
    def is_fixed_delay(self) -> bool:
        """Each slot depends on the end of the run before it: ask `after_run`, not `next`."""
        ...

    @property
    def run_if_late(self) -> bool:
        """False only for `once` that would rather not run than run late."""
        ...

    def next(self, after: int) -> int | None:
        """The first slot strictly later than `after`; None if there is no further slot before the year 9999."""
        ...

    def previous(self, before: int) -> int | None:
        """The last slot strictly earlier than `before`."""
        ...

    def after_run(self, end: int) -> int:
        """The slot that follows a run which ended at `end`. Only where `is_fixed_delay`; ValueError elsewhere."""
        ...

    def spec(self) -> dict[str, Any]:
        """The canonical JSON form: every default filled in. Reading it again gives an equal schedule."""
        ...

    def describe(self, lang: str = "en") -> str:
        """One sentence for people, in English ("en") or Chinese ("zh")."""
        ...

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        """The traps in this schedule. Those that depend on the date look at the year after `after`, if it is given."""
        ...


class CalendarKind:
    """What cron, weekly, monthly and once share with each other and interval does not."""

    __slots__ = ()

    @property
    def is_fixed_delay(self) -> bool:
        return False

    @property
    def run_if_late(self) -> bool:
        return True

    def after_run(self, end: int) -> int:
        raise ValueError(f"only a fixed_delay interval depends on the end of a run (asked for {end})")
