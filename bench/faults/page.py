"""The section of `docs/reference/faults.md` that a run writes: a row and a line of settings for each contender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.faults.account import Account, Slot
from bench.faults.timeline import Form
from bench.tables import NONE, markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "faults.md"
HEAD = (
    *(
        "scheduler",
        "fires each",
        "processes",
        "kills",
        "slots",
        "lost",
        "… due while all were away",
        "… recorded in its store",
    ),
    *("doubled", "again, same key", "slot to request: p50", "p99", "longest", "day"),
)
_BEGIN, _END = "<!-- peers: `make faults-peers` writes this -->\n\n", "\n\n<!-- end of peers -->"
_MACHINE = "Machine of the last run: "


@dataclass(frozen=True)
class Entry:
    """What a run has to tell of one contender."""

    row: list[str]
    line: str
    """Version, settings, command."""

    @property
    def name(self) -> str:
        return self.row[0]


def entry(
    name: str,
    form: Form,
    processes: int,
    kills: int,
    first: int,
    account: Account,
    told: Mapping[Slot, str] | None,
    how: str,
) -> Entry:
    """`told`: what the store says of slots; None where it keeps nothing about one."""
    lost = set(account.lost)
    recorded = Counter(state for slot, state in (told or {}).items() if slot in lost)
    away = sum(form.in_downtime(first, slot) for slot in lost)
    row = [
        *(name, form.name, str(processes), str(kills), f"{account.slots:,}", f"{len(lost):,}", f"{away:,}"),
        NONE if told is None else records(recorded),
        *(f"{len(account.doubled):,}", f"{len(account.repeated):,}", *spread(account.late), today()),
    ]
    return Entry(row, f"- **{name}** {how}")


def missing(name: str, form: Form, why: str) -> Entry:
    """One that could not be installed or did not run."""
    return Entry(
        [name, form.name, "**not run**", *[NONE] * (len(HEAD) - 4), today()],
        f"- **{name}** not run: {' '.join(why.split())}",
    )


def records(recorded: Counter[str]) -> str:
    if not recorded:
        return "0"
    return f"{recorded.total():,}: " + ", ".join(f"{count} {state}" for state, count in sorted(recorded.items()))


def spread(late: Sequence[float]) -> list[str]:
    if not late:
        return [NONE] * 3
    ordered = sorted(late)
    return [f"{ordered[min(len(ordered) - 1, int(len(ordered) * share))]:.2f} s" for share in (0.5, 0.99, 1.0)]


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def with_entries(page: str, entries: Iterable[Entry], machine: str) -> str:
    """The page with these in the places of those that have their names, new ones at the end."""
    before, _, rest = page.partition(_BEGIN)
    written, _, after = rest.partition(_END)
    lines = written.splitlines()
    known_rows = {cells[0]: cells for each in lines if each.startswith("| ") if (cells := cells_of(each))[0] != HEAD[0]}
    known_rows.pop("---", None)
    known_lines = {name: each for name in known_rows for each in lines if each.startswith(f"- **{name}**")}
    for each in entries:
        known_rows[each.name], known_lines[each.name] = each.row, each.line
    table = markdown(HEAD, known_rows.values(), right=range(2, len(HEAD) - 1))
    text = "\n\n".join([table, f"{_MACHINE}{machine}", "\n".join(known_lines.values())])
    return f"{before}{_BEGIN}{text}{_END}{after}"


def cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("| ").split(" | ")]


def as_text(entries: Sequence[Entry]) -> str:
    return "\n".join([markdown(HEAD, [each.row for each in entries]), "", *(each.line for each in entries)])
