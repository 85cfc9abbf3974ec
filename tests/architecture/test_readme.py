"""The README says what is true: its tests are there, its folders too, and both languages say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "README.zh-CN.md"]
PROOF = re.compile(r"\[`(?P<name>test_\w+)`\]\((?P<path>tests/[\w/]+\.py)\)")
FEATURES = 19
"""Rows of document 001's table."""
UNDER_WAY = {"README.md": "under way", "README.zh-CN.md": "开发中"}


def section(page: str, number: int) -> str:
    """The text below the so-manyth heading."""
    return re.split(r"^## .*$", (ROOT / page).read_text(), flags=re.MULTILINE)[number]


def rows(text: str) -> list[list[str]]:
    """The cells of a table, without its two lines of heading."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def functions_in(path: str) -> set[str]:
    parts = ast.walk(ast.parse((ROOT / path).read_text()))
    return {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_feature_names_a_test_or_is_under_way(page):
    features = rows(section(page, 3))
    assert len(features) == FEATURES
    assert [row[0] for row in features if not (PROOF.search(row[3]) or row[3] == UNDER_WAY[page])] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_the_readme_names_is_there(page):
    named = {(found["path"], found["name"]) for found in PROOF.finditer((ROOT / page).read_text())}
    assert len(named) >= FEATURES - 1
    assert sorted(f"{path}::{name}" for path, name in named if name not in functions_in(path)) == []


def test_what_is_under_way_is_not_there_yet():
    """When the dashboard has its tests, the row names one."""
    is_under_way = any(row[3] == UNDER_WAY["README.md"] for row in rows(section("README.md", 3)))
    assert is_under_way == (not any((ROOT / "tests" / "browser").glob("test_*.py")))


@pytest.mark.parametrize("page", PAGES)
def test_every_folder_of_the_layout_is_there_and_no_room_is_left_out(page):
    named: set[str] = set()
    for first, _ in rows(section(page, 6)):
        whole = re.findall(r"`([^`]+)`", first)
        base = whole[0].rstrip("/").rpartition("/")[0] if whole and whole[0].startswith("src/") else ""
        named |= {each if each.startswith("src/") or not base else f"{base}/{each}" for each in whole}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
    alone = {"clock", "errors", "version", "sealing", "fields", "json_text", "masking", "yaml_text"}  # small modules
    modules = {path.stem for path in (ROOT / "src" / "noonbell").iterdir() if path.stem.isidentifier()}
    rooms = {Path(name).stem for name in named if name.startswith("src/noonbell/")}
    assert {name for name in modules if not name.startswith("_")} - rooms - alone - {"py"} == set()


def test_both_languages_have_the_same_links_and_commands():
    english, chinese = ((ROOT / page).read_text() for page in PAGES)
    links = [set(re.findall(r"\]\(([^)]+)\)", text)) - set(PAGES) for text in (english, chinese)]
    assert links[0] == links[1]
    code = [
        re.sub(r" +#.*", "", "\n".join(re.findall(r"```\w+\n(.*?)```", text, re.DOTALL))) for text in (english, chinese)
    ]
    assert code[0] == code[1]


def test_speed_is_told_where_it_is_measured():
    for page in PAGES:
        assert re.findall(r"\d[\d,.]* ?(?:/s\b|runs a second|per second)", (ROOT / page).read_text()) == []


def test_the_recipes_name_files_folders_and_names_that_are_there():
    """Those with NAME or NNNN in them are for the newcomer to make."""
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text().partition("## Recipes")[2].split())
    files = [*ROOT.glob("*"), *(path for room in ("src", "tests", "docs") for path in (ROOT / room).rglob("*"))]
    there = {f"/{path.relative_to(ROOT)}{'/' * path.is_dir()}": path for path in files}
    named = re.findall(r"`((?:[\w-]+/)*(?:[\w-]+\.(?:py|html|md|toml)|[\w-]+/))`", text)
    assert len(named) > 50
    is_missing = [name for name in named if "NAME" not in name and not any(path.endswith(f"/{name}") for path in there)]
    assert is_missing == []
    for thing, place in re.findall(r"`(\w+)` of `([\w/.]+\.py)`", text):
        found = [path.read_text() for name, path in there.items() if name.endswith(f"/{place}")]
        assert any(re.search(rf"\b{thing}\b", source) for source in found), f"{thing} is not in {place}"
