"""What MkDocs asks while it builds the site: the navigation, pages that are made from files outside docs/, and links to such files.

docs/README.md is the one list of pages: its sections are those of the navigation, and a page that it leaves out fails the build. Files of the
repository that a page links to (a test, an example, a unit of systemd) are copied below `source/`, as text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
MADE = {
    "start.md": ROOT / "README.md",
    "start.zh-CN.md": ROOT / "README.zh-CN.md",
    "changelog.md": ROOT / "CHANGELOG.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
}
"""Pages of the site that are files of the root of the repository."""

LINK = re.compile(
    r"^ *```.*?^ *```$"  # a block of code, which has no links
    r"|(?P<before>\]\(|(?:src|srcset|href)=\")(?P<path>[^)\s\"#:]+)(?P<anchor>#[^)\s\"]*)?(?=[)\"])",
    re.DOTALL | re.MULTILINE,
)
SECTION = re.compile(r"^\*\*(?P<title>Tutorials|How-to|Reference|Explanation)\*\*", re.MULTILINE)
TITLED = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<page>[\w/-]+\.md)\)")

MARKED = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
"""The first line of a block with a word for the tests behind its language, which MkDocs would not take for a block."""

Entry = dict[str, Any]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = Path(config.docs_dir)
    config.nav = navigation((docs / "README.md").read_text(), (docs / "decisions/README.md").read_text())
    return config


def navigation(pages: str, decisions: str) -> list[Entry]:
    """From the two lists of pages."""
    parts = SECTION.split(pages)
    by_title = dict(zip(parts[1::2], parts[2::2], strict=True))
    by_title["Explanation"], _, besides = by_title["Explanation"].partition("\n\nThe ")
    return [
        {"Start": [{"Documentation": "README.md"}, {"README": "start.md"}, {"简体中文": "start.zh-CN.md"}]},
        {"Tutorials": entries(by_title["Tutorials"])},
        {"How-to": groups(by_title["How-to"])},
        {"Reference": entries(by_title["Reference"])},
        {"Explanation": entries(by_title["Explanation"]) + entries(besides.partition("decisions/")[0])},
        {"Decisions": ["decisions/README.md", *({number: f"decisions/{page}"} for number, page in listed(decisions))]},
        {"Project": [{"Changelog": "changelog.md"}, {"Contributing": "contributing.md"}]},
    ]


def groups(table: str) -> list[Entry]:
    """The rows of the how-tos: what they are for, and their pages."""
    rows = [row.strip("|").split("|", 1) for row in table.splitlines() if "](" in row]
    return [{capital(title.strip()): entries(cell)} for title, cell in rows]


def capital(title: str) -> str:
    return title[0].upper() + title[1:]


def entries(text: str) -> list[Entry]:
    found = [(" ".join(each["title"].split()), each["page"]) for each in TITLED.finditer(text)]
    return [{capital(title): page} for title, page in found]


def listed(decisions: str) -> list[tuple[str, str]]:
    """Number and title of each note, and its page."""
    rows = re.findall(r"^\| \[(\d{4})\]\(([\w.-]+\.md)\) \| (.+) \|$", decisions, re.MULTILINE)
    return [(f"{number} {title.strip()}", page) for number, page, title in rows]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page, source in MADE.items():
        files.append(File.generated(config, page, content=source.read_text()))
    texts = {source: source.read_text() for source in [*MADE.values(), *Path(config.docs_dir).rglob("*.md")]}
    linked = {path for source, text in texts.items() for path in outside(text, source.parent)}
    for path in sorted(linked):
        files.append(File.generated(config, f"source/{path}.txt", content=(ROOT / path).read_bytes()))
    return files


def outside(text: str, folder: Path) -> set[str]:
    """Files of the repository that are not part of the site, and that `text` links to; seen from the root."""
    found = set()
    for link in LINK.finditer(text):
        if link["path"] is None:
            continue
        path = place(link["path"], folder)
        if path not in {str(source.relative_to(ROOT)) for source in MADE.values()} and not path.startswith("docs/"):
            if not (ROOT / path).is_file():
                raise PluginError(f"{folder}: {link['path']} is no file of the repository")
            found.add(path)
    return found


def place(link: str, folder: Path) -> str:
    """Where a link of a file in `folder` leads, seen from the root of the repository."""
    return posixpath.normpath(posixpath.join(folder.relative_to(ROOT).as_posix(), link))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Lead links to where the files are on the site."""
    source = MADE.get(page.file.src_uri, Path(config.docs_dir) / page.file.src_uri)
    made = {str(path.relative_to(ROOT)): name for name, path in MADE.items()}
    here = posixpath.dirname(page.file.src_uri)

    def led(link: re.Match[str]) -> str:
        if link["path"] is None:
            return link[0]
        path = place(link["path"], source.parent)
        there = made.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.txt")
        return f"{link['before']}{posixpath.relpath(there, here or '.')}{link['anchor'] or ''}"

    return MARKED.sub(r"\1", LINK.sub(led, markdown))
