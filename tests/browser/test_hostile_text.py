"""Hostile text in every field, header, address and answer is shown as text, on every page, in a real browser.

Pages are found by the table of pages and by links, fields by the API's own description: what is added is covered too.
"""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
from playwright.async_api import expect

from browser.hostile import HOSTILE
from browser.hostile_house import House, house
from browser.sowing import Filled, schema_of
from browser.watching import Watch
from noonbell.web.page import PageRoute
from noonbell.web.routes import PAGES
from services.size import FULL, size

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FEW = ("double quote", "single quote", "attribute without quotes", "textarea", "title", "templates", "formats")
"""One for each place that a text can stand in."""


@pytest.fixture(scope="module")
async def sown(nodes, tmp_path_factory) -> AsyncIterator[House]:
    url = f"sqlite:///{tmp_path_factory.mktemp('hostile') / 'noonbell.db'}"
    async with house(nodes.start(url), url) as made:
        yield made


@pytest.fixture
async def watch(sown, open_page) -> AsyncIterator[Watch]:
    page = await open_page("about:blank")
    watching = await Watch(page, sown.sower.root).begin()
    yield watching
    await page.goto("about:blank")
    assert watching.complaints == []


def pages(method: str = "GET") -> list[PageRoute]:
    return [page for page in PAGES if page.method == method]


def test_every_text_went_into_every_field_that_takes_one(sown):
    sower = sown.sower
    operations = [each for item in sower.document["paths"].values() for each in item.values()]
    schemas = {name for each in operations if (name := schema_of(each)) is not None}
    assert schemas == sower.sown
    for schema in schemas:
        filled = Filled(sower.document, "x", frozenset(), {})
        filled.of({"$ref": f"#/components/schemas/{schema}"}, "")
        untried = {leaf for leaf in filled.leaves if not {f"{schema}.{leaf}"} & {*sower.taken, *sower.refused}}
        assert {leaf for leaf in untried if leaf != "worker_id"} == set(), schema
    anything = {f"TaskWrite.{name}" for name in ("meta", "meta~", "payload", "payload~")}
    anything |= {f"SettleWrite.{name}" for name in ("result", "error_message", "error_details")}
    anything |= {"LogWrite.lines.message", "ProgressWrite.message", "CallbackWrite.data", "CallbackWrite.error_message"}
    everything = HOSTILE.keys() - {"half a letter"}
    assert {leaf: everything - sower.taken[leaf] for leaf in anything if everything - sower.taken[leaf]} == {}
    assert sown.children > 20
    names = {f"TaskWrite.{name}" for name in ("name", "labels", "labels~", "queue", "job_type", "external_id")}
    names |= {"TriggerWrite.key", "CancelWrite.reason", "ClaimWrite.queues", "JobWrite.job_name", "PlanWrite.caller"}
    assert {leaf: len(sower.taken[leaf]) for leaf in names if len(sower.taken[leaf]) < 45} == {}


# Stored


async def rooms(sown: House, watch: Watch) -> list[dict[str, Any]]:
    """The pages about everything; what is a file to be kept, or a list for a script, is looked at as such."""
    await watch.visit("/")
    if not sown.rooms:
        sown.rooms = await watch.look([{"path": page.path} for page in pages() if "{" not in page.path])
        watch.complaints += [problem for each in sown.rooms for problem in wrong_with(each)]
    return [each for each in sown.rooms if each["kind"].startswith("text/html")]


def about(sown: House, name: str, turn: int | None = None) -> list[str]:
    """The own page of each thing that was made with that text, and those that lead from the first of them.

    With a turn, only some of the latter: all texts together come to each of them many times. So do they to the former, and in
    `make test` it is one task's and one run's turn.
    """
    text = quote(HOSTILE[name][:500], safe="", errors="replace")
    runs = [run for number, run in enumerate(sown.runs[name]) if number in (0, 1, 3, 6, 7, 8, 9, 10)]
    given = {"id": sown.tasks[name], "run_id": runs}
    if turn is not None and not FULL:
        given = {part: values[turn % max(1, len(values)) :][:1] for part, values in given.items()}
    found: list[str] = []
    for number, page in enumerate(pages()):
        (part, *_) = re.findall(r"\{(\w+)", page.path) or [""]
        values = given.get(part, [text])
        if page.path in OWN:
            found += [re.sub(r"\{[^}]+\}", str(value), page.path) for value in values]
        elif part and values and (turn is None or (turn + number) % size(8, 4) == 0):
            found.append(re.sub(r"\{[^}]+\}", str(values[0]), page.path))
    return found


OWN = ("/tasks/{id}", "/runs/{run_id}")
NOT_PAGES = ("/docs", "/api/v1/events")
"""The description of the API has a look of its own, and holds no text of anybody else; a stream has no end."""


def shape(path: str) -> tuple[str, ...]:
    """Two addresses of one shape lead to the same page about different things."""
    parts = urlsplit(path)
    return (re.sub(r"\d+|%[^/]*", "…", parts.path), *sorted({name for name, _ in parse_qsl(parts.query)}))


@pytest.mark.longer
@pytest.mark.parametrize("lang", ["en", pytest.param("zh", marks=pytest.mark.full)])
async def test_no_page_takes_a_stored_text_for_more_than_a_text(sown, open_page, lang):
    """In Chinese without the policy of content, which would stop a script that has come so far."""
    page = await open_page("about:blank", lang=lang, bypass_csp=lang == "zh")
    watch = await Watch(page, sown.sower.root).begin()
    found = await rooms(sown, watch)
    for room in found:
        await watch.visit(room["path"])
    for number, name in enumerate(name for name in HOSTILE if sown.tasks[name] and (lang == "en" or name in FEW)):
        if name not in FEW and number % size(6, 1):
            continue
        await watch.visit(f"/runs/{sown.runs[name][0]}" if number % 2 else f"/tasks/{sown.tasks[name][0]}")
    if lang == "en":
        turns = enumerate(HOSTILE)
        told = await watch.look([{"path": path} for turn, name in turns for path in about(sown, name, turn)])
        assert len(told) > size(3, 7) * len(HOSTILE)
        texts = [each["text"] for each in told]
        hidden = {name for name, text in HOSTILE.items() if not any(text in each for each in texts)}
        assert hidden <= {"half a letter", "NUL", "control characters", "header", "very long"}
        found += told
    if lang == "en" or FULL:
        await where_they_lead(found, watch)
    await page.goto("about:blank")
    assert watch.complaints == []


async def where_they_lead(found: list[dict[str, Any]], watch: Watch) -> None:
    links = {shape(link): link for each in found for link in each["links"] if not link.startswith(NOT_PAGES)}
    told = await watch.look([{"path": link} for link in links.values()])
    watch.complaints += [problem for each in told for problem in wrong_with(each)]


def wrong_with(told: dict[str, Any]) -> list[str]:
    """What a file that a page offers could do to who opens it."""
    kind, text = told["kind"].partition(";")[0], told["text"]
    found = []
    if kind not in ("text/html", "application/json", "text/plain", "") and "attachment" not in told["disposition"]:
        found.append(f"{told['path']}: {kind} is opened in place")
    if any(letter in told["disposition"] for letter in "<>\r\n"):
        found.append(f"{told['path']}: {told['disposition']}")
    if kind == "text/csv":
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        found += [f"{told['path']}: a formula: {cell[:100]}" for cell in cells if cell.startswith(tuple("=+-@\t\r"))]
    if kind == "text/calendar" and not all(re.match(r"[A-WYZ][A-Z-]*[:;]|[ \t]|$", line) for line in text.splitlines()):
        found.append(f"{told['path']}: a line of somebody else")
    return found


# Sent, and shown at once


@pytest.mark.longer
async def test_what_stands_in_an_address_is_text(sown, watch):
    asked: list[str] = []
    for room in await rooms(sown, watch):
        path, names = room["path"], room["names"] or ["q"]
        asked += [f"{path}?{urlencode({name: HOSTILE['double quote']})}" for name in names]
        asked += [f"{path}?{urlencode(dict.fromkeys(names, HOSTILE[text]))}" for text in FEW[:3]]
    assert len(asked) > 80
    for number, (name, text) in enumerate(HOSTILE.items()):
        sent = text.encode("utf-8", "replace")[:2000]
        mine = [f"/{part}{quote(sent, safe='')}" for part in ("", "tasks/", "runs/")]
        mine += [f"/tasks?{urlencode({'name': sent})}", f"/search?{urlencode({'q': sent})}"]
        if name in FEW:
            await watch.visit(mine[number % 5])
        asked += mine if FULL else (mine[number % 5], mine[(number + 2) % 5])
    await watch.look([{"path": path} for path in asked])


async def test_headers_and_cookies_are_text(sown, watch):
    await watch.visit("/")
    for name, text in HOSTILE.items():
        plain = text.encode("utf-8", "replace").decode("latin-1")
        plain = "".join(each for each in plain if each.isprintable())[:500]
        cookies = {f"noonbell_{each}": quote(plain) for each in ("lang", "theme", "zone")}
        cookies["noonbell_flash"] = quote(text, errors="replace")[:2000]
        await watch.page.context.add_cookies(
            [{"name": each, "value": value, "url": watch.root} for each, value in cookies.items()]
        )
        spoken = dict.fromkeys(("Accept-Language", "Last-Event-ID", "Traceparent", "X-Request-Id"), plain)
        paths = ("/no/such/page", "/") if name in FEW else ("/no/such/page",)
        await watch.look([{"path": path, "headers": spoken} for path in paths])
    await watch.visit("/tasks")


# While the page is open


async def test_text_that_arrives_while_the_page_is_open_is_text(sown, open_page):
    first = await open_page("about:blank")
    watches = {}
    for path in ("/tasks?sort=-created_at", "/runs", "/"):
        page = await first.context.new_page()
        watches[path] = await Watch(page, sown.sower.root).begin()
        await watches[path].visit(path)
        await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    arrivals = [f"{HOSTILE[name]} arrives".strip() for name in FEW]
    for name, arrival in zip(FEW, arrivals, strict=True):
        fields = {"name": arrival, "description": HOSTILE[name], "labels": {"l": HOSTILE[name]}}
        url = sown.sink.url(f"/fail/{list(HOSTILE).index(name)}")
        run = sown.node.trigger(sown.node.create(**fields, target_url=url))
        await asyncio.to_thread(sown.node.wait_for_run, run)
    for path, watch in watches.items():
        for arrival in arrivals[-1:] if path == "/" else arrivals:
            await expect(watch.page.locator("main")).to_contain_text(arrival)
        await watch.check(path)
        await watch.page.goto("about:blank")
        assert watch.complaints == []


async def test_what_a_button_says_is_text(sown, watch):
    for name in FEW:
        await watch.visit(f"/tasks/{sown.tasks[name][0]}")
        is_paused = await watch.page.locator("form[action$='/enable'] button").count()  # with a hostile reason
        for said, act in enumerate(("enable", "disable") if is_paused else ("disable", "enable")):
            button = watch.page.locator(f"form[action$='/{act}'] button:visible").first
            await button.click()
            await expect(watch.page.locator(".toast").nth(said)).to_contain_text(HOSTILE[name].strip())
            await watch.check(f"after {act}")
            await expect(button).to_be_hidden()


async def test_what_is_proposed_while_one_types_is_text(sown, watch):
    await rooms(sown, watch)
    await watch.visit("/tasks")
    await watch.page.keyboard.press("Control+k")
    await watch.page.keyboard.type("nbhit")
    await expect(watch.page.locator("[role=option]").first).to_contain_text("nbhit")
    await watch.check("the palette")
    listed = [each["path"] for each in sown.rooms if each["kind"].startswith("application/json")]
    told = await watch.look([{"path": f"{path}?q=nbhit&text=nbhit&for=tasks"} for path in listed])
    assert any("nbhit" in each["text"] for each in told)


# Last, as it presses every button that there is


@pytest.mark.longer
async def test_what_a_form_sends_is_text_when_it_comes_back(sown, watch):
    told = await rooms(sown, watch)
    told += await watch.look([{"path": path} for path in about(sown, "script")])
    forms = {shape(form["path"]): form for each in told for form in each["forms"]}
    assert {("/tasks/new",), ("/preferences",)} <= forms.keys()
    asked = [
        {"path": form["path"], "form": dict.fromkeys(form["names"], HOSTILE[text])}
        for form in forms.values()
        for text in ("double quote", "textarea")
        if not form["path"].startswith("/logout")
    ]
    names = forms[("/tasks/new",)]["names"]
    texts = itertools.islice(HOSTILE.values(), 0, None, size(3, 1))
    asked += [{"path": "/tasks/new", "form": dict.fromkeys(names, text)} for text in texts]
    for kind, when in (
        ("http", "cron"),
        ("callback", "once"),
        ("job", "weekly"),
        ("job", "monthly"),
        ("http", "interval"),
    ):
        for path, text in itertools.product(("/tasks/new", "/tasks/preview", "/tasks/try"), FEW[: size(2, 4)]):
            form = {**dict.fromkeys(names, HOSTILE[text]), "kind": kind, "when": when}
            asked.append({"path": path, "form": form})
    told = await watch.look(asked)
    assert sum(HOSTILE["double quote"] in each["text"] for each in told) > 10
