"""What the pages about Python say is run here, block by block, and prints what they say it prints."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.api.serving import serving
from noonbell import App, AsyncClient, Context, Job, Published
from noonbell.app.options import NAMES
from noonbell.app.request import OPTIONS

DOCS = Path(__file__).parents[3] / "docs"
HOW_TO = DOCS / "how-to/python-jobs.md"
REFERENCE = DOCS / "reference/python.md"
FENCE = re.compile(r"^```(?P<kind>\w+)(?: (?P<mark>\w+))?\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass
class Block:
    mark: str | None
    code: str
    prints: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The Python of a page, each with the text that follows it."""
    text, found = page.read_text(), []
    for fence in FENCE.finditer(text):
        if fence["kind"] == "python":
            found.append(Block(fence["mark"], fence["text"], "", text[: fence.start()].count("\n") + 2))
        elif fence["kind"] == "text":
            found[-1].prints = fence["text"]
    return found


async def run(block: Block, page: Path, names: dict[str, Any]) -> None:
    source = "\n" * (block.line - 1) + block.code
    compiled = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if compiled.co_flags & inspect.CO_COROUTINE:
            await eval(compiled, names)  # noqa: S307 - our own page
        else:  # without an event loop around it, as in a script
            await asyncio.to_thread(exec, compiled, names)
    assert said.getvalue() == block.prints, f"{page.name}, line {block.line}"


async def test_the_how_to_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page", "POSTGRES": postgres_url}
    for block in blocks(HOW_TO):
        if block.mark != "norun":
            await run(block, HOW_TO, names)
    async with names["web"].router.lifespan_context(names["web"]):
        placed = await names["place"](7)
        assert (await names["app"].connection.run(placed["run_id"])).task_name == "ship"


async def test_the_reference_is_true():
    async with serving("memory://") as api:
        names: dict[str, Any] = {"URL": api.root}
        for block in blocks(REFERENCE):
            await run(block, REFERENCE, names)


def public(thing: type) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


@pytest.mark.parametrize("thing", [App, Job, Published, Context], ids=lambda thing: thing.__name__)
def test_the_reference_has_every_public_name(thing: type):
    inner = {"alive", "attached", "connection"} if thing is App else set()
    text = REFERENCE.read_text()
    assert {name for name in public(thing) - inner if not re.search(rf"\b{name}\b", text)} == set()


@pytest.mark.parametrize("names", [NAMES, OPTIONS], ids=["job", "publish"])
def test_the_reference_has_every_option(names: frozenset[str]):
    text = REFERENCE.read_text()
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_the_reference_has_no_name_that_is_not_there():
    table = REFERENCE.read_text().partition("## `Context`")[2].partition("## Errors")[0]
    told = set(re.findall(r"`(\w+)(?:\(.*?\))?`", table)) - {"app", "provide"}
    assert told - public(Context) == set()
    assert AsyncClient.__doc__
