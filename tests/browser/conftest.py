"""A real Chromium, a real node, and pages that complain: a script error, a blocked resource or a dialog fails the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from acceptance.harness import Nodes, ServerNode, Target
from noonbell.model.task import TaskSpec
from noonbell.stores import open_store
from services.browser import browser as find_browser
from services.ports import reserved_port

PATIENCE = 60_000
"""Milliseconds that a page gets to become what is expected."""

expect.set_options(timeout=PATIENCE)

OpenPage = Callable[..., Awaitable[Page]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium_path(pytestconfig: pytest.Config) -> str:
    conftest = pytestconfig.pluginmanager.get_plugin(str(pytestconfig.rootpath / "tests" / "conftest.py"))
    service = find_browser(pytestconfig.stash[conftest.SERVICES])
    if service.url is None:
        (pytest.fail if conftest.in_ci() else pytest.skip)(f"no browser: {service.story}")
    return service.url


@pytest.fixture(scope="session")
async def chromium(chromium_path: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # Its sandbox needs rights that containers rarely have; what it opens here are pages of our own.
        started = await playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        yield started
        await started.close()


@pytest.fixture
async def open_page(chromium: Browser) -> AsyncIterator[OpenPage]:
    """`await open_page(address, width=…, theme=…, lang=…)`; complaints of all pages are checked at the end."""
    complaints: list[str] = []
    async with contextlib.AsyncExitStack() as stack:

        async def opened(
            address: str, *, width: int = 1280, theme: str = "light", lang: str = "en", zone: str = "UTC", **more: Any
        ) -> Page:
            context = await chromium.new_context(
                viewport={"width": width, "height": 844 if width < 500 else 900},
                locale="zh-CN" if lang == "zh" else "en-GB",
                timezone_id=zone,
                color_scheme=theme,
                has_touch=width < 500,
                **more,
            )
            stack.push_async_callback(context.close)
            page = await context.new_page()
            page.set_default_timeout(PATIENCE)
            listen(page, complaints)
            await page.goto(address)
            return page

        yield opened
    assert complaints == []


def listen(page: Page, complaints: list[str]) -> None:
    async def dismiss(dialog: Any) -> None:
        complaints.append(f"a dialog: {dialog.message}")
        await dialog.dismiss()

    def said(message: Any) -> None:
        # An answer that is an error by intent (a wrong token, a bad form) is logged by the browser, and is no complaint.
        if message.type == "error" and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    page.on("console", said)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", dismiss)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes"))
    yield nodes
    nodes.end()


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


@pytest.fixture(scope="module")
def node(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> ServerNode:
    """One for all tests of a file that do not care what else it holds."""
    return nodes.start(f"sqlite:///{tmp_path_factory.mktemp('store') / 'noonbell.db'}")


@pytest.fixture(scope="module")
async def crowded(nodes: Nodes, target: Target, tmp_path_factory: pytest.TempPathFactory) -> ServerNode:
    """A node with 5,000 tasks."""
    url = f"sqlite:///{tmp_path_factory.mktemp('crowd') / 'noonbell.db'}"
    store = open_store(url, connections=4)
    await store.open()
    specs = [TaskSpec(name=f"task-{number:04}", target_url=target.url("/ok")) for number in range(5_000)]
    for start in range(0, len(specs), 500):
        await asyncio.gather(*(store.create_task(spec) for spec in specs[start : start + 500]))
    await store.close()
    return nodes.start(url)


@pytest.fixture
def reserved() -> Iterator[int]:
    """A port that a node may be started on again."""
    with reserved_port() as port:
        yield port


def address(node: ServerNode, path: str = "/") -> str:
    return f"http://127.0.0.1:{node.port}{path}"
