"""What the pages about Python say is run here, block by block, and prints what they say it prints."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.api.serving import serving
from noonbell import App, AsyncClient, Context, Fail, Job, Published
from noonbell.app.job import NAMES, OPTIONS
from noonbell.model.request import RunQuery

DOCS = Path(__file__).parents[3] / "docs"
HOW_TO = DOCS / "how-to/python-jobs.md"
REFERENCE = DOCS / "reference/python.md"
COMPOSE = DOCS / "how-to/compose-jobs.md"
EVENTS = DOCS / "how-to/events.md"
TESTING = DOCS / "how-to/testing.md"
AFTER = DOCS / "how-to/run-after-others.md"
CALLS = DOCS / "how-to/call-a-url.md"
PER_KEY = DOCS / "how-to/limits-per-key.md"
DEDUPE = DOCS / "how-to/debounce-and-throttle.md"
SEVERAL = DOCS / "how-to/several-schedules.md"
SIMULATION = DOCS / "reference/simulation.md"
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
        elif fence["kind"] == "text" and found:
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


async def test_the_page_about_jobs_put_together_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(COMPOSE):
        await run(block, COMPOSE, names)


@pytest.mark.parametrize("page", [PER_KEY, DEDUPE, SEVERAL], ids=lambda page: page.stem)
async def test_the_pages_about_keys_and_schedules_are_true(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        await run(block, page, names)


def run_as_tests(page: Path, folder: Path) -> None:
    """Each block in a file of its own, by pytest as it is without any settings."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for block in blocks(page):
        (folder / f"test_line_{block.line}.py").write_text(block.code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_of_the_page_about_testing_pass_as_they_are_printed(tmp_path: Path):
    run_as_tests(TESTING, tmp_path)


async def test_the_loop_of_the_page_about_events_hears_of_a_failure(sqlite_url: str):
    (block,) = blocks(EVENTS)
    code = block.code.replace("postgresql://…", sqlite_url)
    heard: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
    worker = App()

    @worker.job(retries=0)
    async def sync_stats() -> None:
        raise Fail("no such table")

    names: dict[str, Any] = {"app": App(), "print": lambda *said: heard.put_nowait(said)}
    async with worker.running(sqlite_url):
        compiled = compile(code, str(EVENTS), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        listening = asyncio.create_task(eval(compiled, names))  # noqa: S307 - our own page
        while heard.empty():  # what happened before it listens is not heard
            await worker.wait_for((await sync_stats.publish()).run_id)
            assert not listening.done(), listening
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert (await heard.get())[2] == "run.failed"


def test_the_page_about_the_simulation_plays_a_seed_as_it_says():
    (block,) = blocks(SIMULATION)
    exec(compile(block.code, str(SIMULATION), "exec"), {})  # noqa: S102 - our own page


def test_every_page_with_python_in_it_is_run_by_a_test():
    tests = Path(__file__).parents[2]
    named = "".join(file.read_text() for file in tests.rglob("test_*.py"))
    # Decisions tell of the day that they were made on; what they show is not for copying.
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "decisions" and "```python" in page.read_text()]
    assert len(pages) >= 6
    assert [page.name for page in pages if f'/{page.name}"' not in named] == []


async def test_the_reference_is_true():
    async with serving("memory://") as api:
        names: dict[str, Any] = {"URL": api.root}
        for block in blocks(REFERENCE):
            await run(block, REFERENCE, names)


async def test_the_page_about_calls_is_true():
    async with serving("memory://") as api:
        names: dict[str, Any] = {"URL": api.root, "TARGET": "http://127.0.0.1:9000", "AsyncClient": AsyncClient}
        for block in blocks(CALLS):
            await run(block, CALLS, names)


def public(thing: type) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


@pytest.mark.parametrize("thing", [App, Job, Published, Context], ids=lambda thing: thing.__name__)
def test_the_reference_has_every_public_name(thing: type):
    inner = {"alive", "attached", "connection", "add_flow", "is_carried_out_by"}
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


async def test_the_jobs_of_the_page_about_tasks_after_others_follow_each_other():
    (block,) = blocks(AFTER)
    names: dict[str, Any] = {}
    await run(block, AFTER, names)
    app, extract = names["app"], names["extract"]
    async with app.running("memory://"):
        published = await extract.publish()
        assert await published.result(60) == 42
        services = app.connection._services
        load = await services.tasks.get("load")
        (followed,) = (await services.store.runs(RunQuery(task_id=load.id))).items
        assert followed.upstream_run_ids == (published.run_id,)
        await app.wait_for(followed.id)
        assert (await services.store.run(followed.id)).result == "loaded"
