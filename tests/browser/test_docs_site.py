"""The site of the docs in a browser, served on this machine: its search finds pages in both languages, and nothing is asked of a host."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Browser, Request, expect

ROOT = Path(__file__).parents[2]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    to = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(to)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=120)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=to)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("words", "address"), [("quiet hours", "how-to/quiet-hours.html"), ("分布式", "start.zh-CN.html")]
)
async def test_the_search_of_the_site_finds_pages_in_both_languages(
    chromium: Browser, site: str, words: str, address: str
):
    page = await chromium.new_page()
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.on("request", note)
    await page.goto(f"{site}/index.html")
    await page.get_by_label("Search").first.click()
    await page.keyboard.insert_text(words)
    await expect(page.locator(f".md-search-result a[href*='{address}']").first).to_be_visible()
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []
    await page.close()
