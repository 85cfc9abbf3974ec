"""What a page weighs on the wire: compressed, within a budget on every page, and not sent again while it says the same."""

from __future__ import annotations

import gzip
import re

import aiohttp
import pytest

from integration.api.serving import Api
from integration.web.asking import HTML
from noonbell.model.access import Role
from noonbell.web.render import asset_contents, fingerprint
from noonbell.web.routes import PAGES

BUDGET = 150 * 1024
IMPORTED = re.compile(rb'(?:from|import\()\s*"\./([a-z]+\.js)"')


async def furnished(api: Api) -> dict[str, str]:
    """Long lists of everything that pages list; what the pieces of addresses may be."""
    tasks = [
        await api.create(name=f"task-{number}", cron_expr="*/5 * * * *", labels={"team": f"t{number % 7}"})
        for number in range(60)
    ]
    for task in tasks:
        await api.trigger(task)
    for number in range(50):
        await api.finish(await api.claim(), "FAILED", error_message=f"answered 503 in {number} ms")
    lease = await api.claim()
    await api.store.log(lease.run_id, lease.token, [("info", f"line {number} " + "x" * 80) for number in range(1_000)])
    for number in range(20):
        await api.good("POST", f"/queues/q-{number}/pause")
    await api.parts.access.create("ada", Role.ADMIN)
    return {
        "task_id": str(tasks[0]),
        "run_id": str(lease.run_id),
        "name": "q-1",
        "number": "1",
        "version": "1",
        "what": "raw",
        "part": "tokens",
        "kind": "rule",
        "id": "1",
    }


async def raw(api: Api, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(f"{api.root}{path}", headers={"accept-encoding": "gzip", **headers}, allow_redirects=False) as told,
    ):
        return told.status, {name.lower(): value for name, value in told.headers.items()}, await told.read()


def modules_of(entry: str) -> set[str]:
    """A script and all that it imports."""
    found: set[str] = set()
    waiting = {entry}
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= {each.decode() for each in IMPORTED.findall(asset_contents()[name])} - found
    return found


async def test_the_first_load_of_every_page_is_within_the_budget(api):
    pieces = await furnished(api)
    weights, sizes = {}, {}
    for page in (each for each in PAGES if each.method == "GET"):
        path = re.sub(r"\{(\w+)(?::path)?\}", lambda found: pieces.get(found[1], "1"), page.path)
        status, headers, body = await raw(api, path, **HTML)
        if status != 200 or not headers["content-type"].startswith("text/html"):
            continue
        assert headers.get("content-encoding") == "gzip", path
        assert headers["vary"] == "Accept-Encoding", path
        text = gzip.decompress(body).decode()
        whole = len(body)
        assets = re.findall(r'(?:href|src)="[./]*/?(static/[0-9a-f]+/([a-z-]+\.(?:css|js|svg)))"', text)
        names = {name: address for address, name in assets}
        folder = next(iter(names.values())).rpartition("/")[0]
        for name in {*names, *(each for entry in names if entry.endswith(".js") for each in modules_of(entry))}:
            if name not in sizes:
                sizes[name] = len((await raw(api, f"/{folder}/{name}"))[2])
            whole += sizes[name]
        weights[path] = whole
    assert len(weights) > 25, weights
    assert {path: weight for path, weight in weights.items() if weight > BUDGET} == {}
    assert max(weights.values()) > 30_000, "the scripts and styles were not counted"


async def test_a_page_that_says_the_same_is_not_sent_again(api):
    task = await api.create(name="a")
    status, headers, body = await raw(api, "/tasks", **HTML)
    tag = headers["etag"]
    assert (status, len(body) > 1_000) == (200, True)
    assert f'data-tag="{tag[3:-1]}"' in gzip.decompress(body).decode()
    status, headers, body = await raw(api, "/tasks", **HTML, **{"if-none-match": tag})
    assert (status, headers["etag"], body) == (304, tag, b"")
    assert headers["cache-control"] == "no-store"
    await api.good("POST", f"/tasks/{task}/disable")
    status, headers, _ = await raw(api, "/tasks", **HTML, **{"if-none-match": tag})
    assert (status, headers["etag"] != tag) == (200, True)
    status, *_ = await raw(api, "/tasks", **HTML, **{"if-none-match": headers["etag"], "cookie": "noonbell_lang=zh"})
    assert status == 200, "another language is another page"


@pytest.mark.parametrize("path", ["/tasks", "/static/{}/app.css"])
async def test_who_does_not_ask_for_gzip_gets_none(api, path):
    async with (
        aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=["accept-encoding"]) as session,
        session.get(f"{api.root}{path.format(fingerprint())}", headers=HTML) as told,
    ):
        assert told.status == 200
        assert "content-encoding" not in told.headers
        assert told.headers["vary"] == "Accept-Encoding"
        assert b"{" in await told.read()
