"""The papers of the house: lock files that name no place, and a glossary with every word of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"[a-z0-9][a-z0-9._-]*==[^\s;]+( ; [^\\]+)?( \\)?")
HASH = re.compile(r" +--hash=sha256:[0-9a-f]{64}( \\)?")

WORDS = [
    *("task", "schedule", "slot", "run", "attempt", "target", "worker", "queue", "claim", "lease", "settle"),
    *("policy", "event", "store", "sink", "transition", "fence", "cursor", "outcome", "instant"),
    *("account", "audit", "audit log"),
]


@pytest.mark.parametrize("name", ["requirements.lock", "tools/uv.lock", "tools/fuzz.lock"])
def test_a_lock_file_holds_versions_and_hashes_only(name):
    lines = (ROOT / name).read_text().splitlines()
    assert [line for line in lines if not (PINNED.fullmatch(line) or HASH.fullmatch(line))] == []
    assert len(lines) > 1


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_has_the_word(word):
    assert f"**{word}**" in (ROOT / "docs" / "glossary.md").read_text()


def links():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            yield pytest.param(page, target, id=f"{page.relative_to(ROOT)}>{target}")


@pytest.mark.parametrize(("page", "target"), list(links()))
def test_a_link_between_our_pages_leads_somewhere(page, target):
    assert (page.parent / target).exists()
