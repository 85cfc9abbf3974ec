"""The site of docs/: it builds without a warning, every link of it leads to a page and a place that are there, and it asks no other host."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
REMOTE = ("http:", "https:", "mailto:", "data:", "javascript:", "//")


def build(root: Path, to: Path) -> subprocess.CompletedProcess[str]:
    """`make docs` of a repository."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(to)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class PageParts(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src", "srcset"):
            if name in given:
                (self.links if tag == "a" else self.loads).add(given[name])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site")
    done = build(ROOT, to)
    assert done.returncode == 0, done.stdout + done.stderr
    return to


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, PageParts]:
    """Without 404.html, whose addresses are those of the server's root."""
    return {path: PageParts(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_picture_and_anchor_of_the_site_is_there(site: Path, pages: dict[Path, PageParts]):
    broken = defaultdict(list)
    for page, parts in pages.items():
        for link in parts.links | parts.loads:
            if link.startswith(REMOTE):
                continue
            address = urlsplit(link)
            there = (page.parent / unquote(address.path)).resolve() if address.path else page
            there = there / "index.html" if there.is_dir() else there
            is_place = not address.fragment or there.suffix != ".html" or unquote(address.fragment) in pages[there].ids
            if not (there.is_file() and there.is_relative_to(site) and is_place):
                broken[str(page.relative_to(site))].append(link)
    assert broken == {}
    assert sum(len(parts.links) for parts in pages.values()) > 5000, "the parser finds links"


def test_the_site_loads_nothing_from_another_host(pages: dict[Path, PageParts]):
    loaded = {each for parts in pages.values() for each in parts.loads}
    assert {each for each in loaded if each.startswith(("http:", "https:", "//"))} == set()
    assert any(each.endswith(".webp") for each in loaded)


def test_every_page_of_the_repository_is_on_the_site_and_can_be_found(site: Path):
    index = json.loads((site / "search/search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    files = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    missing = {re.sub(r"(^|/)README\.md$", r"\1index.md", name).removesuffix(".md") + ".html" for name in files} - found
    assert missing == set()
    assert any("简体中文" in entry["text"] or "调度" in entry["text"] for entry in index["docs"])


def test_the_navigation_has_the_kinds_of_pages(site: Path):
    text = (site / "index.html").read_text()
    for title in ("Tutorials", "How-to", "Reference", "Explanation", "Decisions", "简体中文"):
        assert title in text


# ---- what must not build


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository with a few pages and our settings."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copy(ROOT / "tools/site_hooks.py", tmp_path / "tools")
    for name in ("README.md", "README.zh-CN.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("# A page\n")
    (tmp_path / "docs/decisions").mkdir(parents=True)
    (tmp_path / "docs/decisions/README.md").write_text("# Decisions\n")
    listed = "**Tutorials**: [t](t.md)\n\n**How-to**:\n\n| for | [a](a.md) |\n\n**Reference**: [r](r.md)\n\n**Explanation**: [e](e.md)\n"
    (tmp_path / "docs/README.md").write_text(f"# Pages\n\n{listed}")
    for name in "tare":
        (tmp_path / f"docs/{name}.md").write_text(
            "# A page\n\n## A place\n\n[here](#a-place), [there](../mkdocs.yml)\n"
        )
    return tmp_path


def test_a_small_repository_builds(small: Path):
    done = build(small, small / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (small / "site/source/mkdocs.yml.txt").exists()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("docs/a.md", "[x](b.md)", "b.md"),
        ("docs/a.md", "[x](README.md#no-such-place)", "#no-such-place"),
        ("docs/a.md", "![x](no.webp)", "no.webp"),
        ("docs/a.md", "[x](../src/no.py)", "no.py"),
        ("README.md", "[x](docs/b.md)", "b.md"),
        ("docs/b.md", "# A page that no list has", "b.md"),
    ],
)
def test_what_leads_nowhere_or_is_in_no_list_does_not_build(small: Path, file: str, text: str, said: str):
    (small / file).write_text(text)
    done = build(small, small / "site")
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
