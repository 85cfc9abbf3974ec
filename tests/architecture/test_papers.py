"""The papers of the house: lock files that name no place, and a glossary with every word of ours."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from services.snippets import PAGES, SHELL, blocks

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"[a-z0-9][a-z0-9._-]*==[^\s;]+( ; [^\\]+)?( \\)?")
HASH = re.compile(r" +--hash=sha256:[0-9a-f]{64}( \\)?")

WORDS = [
    *("task", "schedule", "slot", "run", "attempt", "target", "worker", "queue", "claim", "lease", "settle"),
    *("policy", "event", "store", "sink", "transition", "fence", "cursor", "outcome", "instant"),
    *("account", "audit", "audit log"),
]


LOCKS = [
    *("requirements.lock", "deploy/image.lock", "deploy/build.lock"),
    *("tools/uv.lock", "tools/fuzz.lock", "tools/kit.lock"),
]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_holds_versions_and_hashes_only(name):
    lines = (ROOT / name).read_text().splitlines()
    assert [line for line in lines if not (PINNED.fullmatch(line) or HASH.fullmatch(line))] == []
    assert len(lines) > 1
    followed = zip(lines, [*lines[1:], ""], strict=True)
    assert [line for line, after in followed if PINNED.fullmatch(line) and not HASH.fullmatch(after)] == []


@pytest.mark.parametrize("name", ["tools/setup", "tools/fuzz", "tools/kit"])
def test_what_is_installed_from_a_lock_file_is_checked_by_its_hashes(name):
    lines = [line for line in (ROOT / name).read_text().splitlines() if re.search(r"pip.*\.lock", line)]
    assert lines
    assert [line for line in lines if "--require-hashes" not in line] == []


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


def test_every_target_of_make_that_a_page_types_is_in_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    typed_ones = {
        (block.place, found)
        for page in PAGES
        for block in blocks(page)
        if block.language in SHELL
        for found in re.findall(r"^(?:\$ )?(?:\w+=\S+ )*make ([a-z-]+)", block.text, re.MULTILINE)
    }
    assert len(typed_ones) > 20, "the expression finds them"
    assert sorted(place for place, target in typed_ones if target not in targets) == []


FLOORS = {
    # Range headers, form limits and addresses that mislead: fixed up to 1.3.1 (CVE-2025-62727, CVE-2026-54282, CVE-2026-54283)
    "starlette": "1.3.1",
    # the OpenSSL in its wheels, and a buffer overflow (CVE-2024-12797, CVE-2026-39892)
    "cryptography": "46.0.7",
    # a way out of its sandbox (CVE-2025-27516)
    "jinja2": "3.1.6",
}
"""Below these, versions have holes that are known, in parts that we use or serve with."""


def bounds() -> dict[str, Version]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [
        *project["dependencies"],
        *(each for group in project["optional-dependencies"].values() for each in group),
    ]
    found = {}
    for requirement in map(Requirement, listed):
        for specifier in requirement.specifier:
            if specifier.operator == ">=":
                found[requirement.name] = Version(specifier.version)
    return found


@pytest.mark.parametrize("name", FLOORS)
def test_no_version_with_a_known_hole_is_good_enough(name):
    assert name in bounds()
    assert bounds()[name] >= Version(FLOORS[name])
