"""`docs/reference/bench-results.md`: each section is written by the run that measured it; what people wrote is kept.

A section is a heading of two marks, the text of its run, and after the line KEPT what was written by hand: why a row is not
met, what a figure means. A run with `--write` replaces the first part of its own sections, and touches nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.tables import markdown

FILE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "bench-results.md"
KEPT = "<!-- Written by hand; `--write` keeps it. -->"

_HEADING = re.compile(r"^## ", re.MULTILINE)


def measured(document: str, title: str) -> str:
    """What a run wrote into the section; empty if there is no such section."""
    section = _sections(document)[1].get(title, "")
    return section.partition(KEPT)[0].strip()


def replaced(document: str, title: str, text: str) -> str:
    """The document with another text of a run in this section. One that is new stands at the end."""
    preamble, sections = _sections(document)
    _, mark, by_hand = sections.get(title, "").partition(KEPT)
    kept = f"\n\n{KEPT}\n\n{by_hand.strip()}" if mark else ""
    sections[title] = f"{text.strip()}{kept}"
    return preamble + "".join(f"\n\n## {name}\n\n{body.strip()}" for name, body in sections.items()) + "\n"


Lines = dict[str, list[str]]
"""By stage: the lines of its rows, then those of its notes."""


def staged(head: Sequence[str], stages: Iterable[str], lines: Mapping[str, Sequence[str]], right: Sequence[int]) -> str:
    """The rows of all stages in one table, in the order of the stages, then all notes."""
    ordered = [each for name in stages for each in lines.get(name, ())]
    rows = [each for each in ordered if each.startswith("|")]
    return "\n".join(
        [*markdown(head, [], right).splitlines(), *rows, "", *(each for each in ordered if each not in rows)]
    )


def of_stages(text: str, stages: Iterable[str]) -> Lines:
    """The lines of each stage out of such a text: what a run of other stages leaves as it is."""
    every = text.splitlines()
    found = {name: [each for each in every if each.startswith((f"| {name} |", f"- {name}: "))] for name in stages}
    return {name: each for name, each in found.items() if each}


def write(title: str, text: str) -> None:
    FILE.write_text(replaced(FILE.read_text(), title, text))


def _sections(document: str) -> tuple[str, dict[str, str]]:
    """What stands before the first section; and the sections by title, in their order."""
    preamble, *parts = _HEADING.split(document)
    split = (part.partition("\n") for part in parts)
    return preamble.strip(), {title.strip(): body for title, _, body in split}
