"""The diagram of a run's states, made from the table that the code itself obeys.

python tools/diagram.py            print it
python tools/diagram.py --write    put it into docs/explanation/run-states.md, between the markers
"""

from __future__ import annotations

import sys
from pathlib import Path

from noonbell.model.run import BORN, FINAL, TRANSITIONS, RunStatus

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "run-states.md"
BEGIN = "<!-- run-states: made by tools/diagram.py -->"
END = "<!-- run-states: end -->"


def diagram() -> str:
    """A mermaid state diagram: births first, then each status with its ways on, then the endings."""
    births = [f"    [*] --> {status}" for status in RunStatus if status in BORN]
    ways = [
        f"    {status} --> {onward}" for status in RunStatus for onward in RunStatus if onward in TRANSITIONS[status]
    ]
    endings = [f"    {status} --> [*]" for status in RunStatus if status in FINAL]
    return "\n".join(["```mermaid", "stateDiagram-v2", *births, *ways, *endings, "```"])


def updated(page: str) -> str:
    """The page with a fresh diagram between its markers. A page without them is refused."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"run-states.md has lost its markers; it needs a line {BEGIN} and, below it, a line {END}")
    return f"{before}{BEGIN}\n{diagram()}\n{END}{after}"


def main(arguments: list[str]) -> None:
    if arguments == ["--write"]:
        PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    elif not arguments:
        print(diagram())
    else:
        raise SystemExit(f"unknown arguments {' '.join(arguments)}; usage: python tools/diagram.py [--write]")


if __name__ == "__main__":
    main(sys.argv[1:])
