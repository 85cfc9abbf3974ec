"""The usability checks of UX.md, section 9, each a user's sentence: four to six. The others are in the files beside this."""

from __future__ import annotations

import asyncio
import re
import time
from asyncio.subprocess import DEVNULL
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import pytest
from playwright.async_api import Page, expect

from acceptance.harness import COMMAND, Nodes, ServerNode, Target
from browser import clocks
from browser.clocks import TOKYO, Reading
from browser.conftest import address
from noonbell.service.access import Access
from noonbell.stores import open_store
from noonbell.targets.http.signing import sign

# 4


NO_PAGE: Final = re.compile(
    r"[?&]zone=|/(docs|redoc|api|static|openapi\.json|metrics|logout)\b|\.(ics|csv|json|yaml|txt)\b|download"
)
ROOMS: Final = ("/", "/tasks", "/runs", "/timeline", "/queues", "/workers", "/activity", "/settings", "/tasks/new")
FAILED: Final = "FAILED,TIMEOUT,FAILED_TIMEOUT"


@pytest.fixture(scope="module")
async def lived_in(nodes: Nodes, target: Target, tmp_path_factory: pytest.TempPathFactory) -> ServerNode:
    """A node on which a week has passed, and nothing happens while somebody looks."""
    url = f"sqlite:///{tmp_path_factory.mktemp('week') / 'noonbell.db'}"
    filled = await asyncio.create_subprocess_exec(
        *(COMMAND, "demo", "--no-serve", "--store", url), stdout=DEVNULL, stderr=DEVNULL
    )
    assert await filled.wait() == 0
    store = open_store(url, connections=1)
    await store.open()
    await Access(store).create("somebody", "viewer")
    await store.close()
    node = nodes.start(url, "--no-scheduler", "--no-worker")
    node.ask("POST", "/alerts/channels", {"name": "ops", "url": target.url("/ok")}, expect=201)
    node.ask("POST", "/alerts/channels/ops/test")
    node.create(name="of-berlin", cron_expr="15 4 * * *", timezone="Europe/Berlin", target_url=target.url("/ok"))
    asked = {"queues": ["pdf"], "job_types": ["render"], "max": 1, "wait_seconds": 0, "version": 0}
    node.ask("POST", "/workers/pdf-1/claim", asked)
    return node


async def test_check_04_with_the_zone_of_tokyo_every_time_on_every_page_agrees(lived_in, open_page):
    """Zone set to Asia/Tokyo: every time on every page, calendar and chart included, agrees."""
    home, tokyo = [await open_page(address(lived_in), zone=zone) for zone in ("UTC", "Asia/Tokyo")]
    await expect(tokyo.locator("#zone")).to_have_value("Asia/Tokyo")
    ahead = [address(lived_in, path) for path in ROOMS]
    wrong, seen, kinds = {}, 0, {kind_of(path) for path in ahead}
    for path in ahead:  # and whatever these lead to: one page of each kind
        here, there, found = await read_twice(home, tokyo, path)
        for link in (link.partition("#")[0] for link in here.links):
            if link.startswith(address(lived_in)) and not NO_PAGE.search(link) and kind_of(link) not in kinds:
                kinds.add(kind_of(link))
                ahead.append(link)
        wrong |= {path: found[:5]} if found else {}
        seen += len(there.times)
    assert wrong == {}
    assert {"/tasks/N", "/runs/N", "/tasks/N/edit"} <= {kind.partition("?")[0] for kind in kinds}
    assert seen > 500
    await the_calendar_agrees(lived_in, tokyo)
    await the_heat_map_agrees(lived_in, tokyo)
    await the_preview_agrees(lived_in, home, tokyo)
    await a_run_agrees(lived_in, tokyo)
    clock = await tokyo.locator("#clock").inner_text()
    now = datetime.now(TOKYO)
    assert clock[:5] in {f"{now - timedelta(minutes=ago):%H:%M}" for ago in (0, 1)}
    await tokyo.goto(address(lived_in, "/runs"))
    await tokyo.locator("#zone").fill("America/New_York")
    await tokyo.locator("#zone").press("Enter")
    await expect(tokyo.locator("main .offset").first).to_have_text(re.compile(r"-0[45]:00"))


async def read_twice(home: Page, tokyo: Page, path: str) -> tuple[Reading, Reading, list[str]]:
    """On both clocks, with what does not agree. Time goes on between the two: what a later look does not find was that."""
    for _ in range(3):
        here, there = await asyncio.gather(clocks.read(home, path), clocks.read(tokyo, path))
        found = [*clocks.wrong_times(there), *clocks.wrong_ticks(there), *clocks.wrong_texts(here, there)]
        found += [] if there.status == 200 else [f"status {there.status}"]
        if not found:
            break
    return here, there, found


def kind_of(link: str) -> str:
    """Pages that differ only in what they are of are of one kind; those that differ in how they show it are not."""
    parts = urlsplit(link)
    shown = {name: value for name, value in parse_qsl(parts.query) if name in ("view", "span", "show")}
    shown = {"view": shown["view"]} if "view" in shown else shown
    return re.sub(r"\d+", "N", parts.path) + "?" + urlencode(sorted(shown.items()))


async def the_calendar_agrees(node: ServerNode, tokyo: Page) -> None:
    """The failures of each day, from midnight to midnight in Tokyo."""
    await tokyo.goto(address(node, "/timeline?view=calendar"))
    today = datetime.now(TOKYO).replace(hour=0, minute=0, second=0, microsecond=0)
    failures = 0
    for back in range(7):
        day = today - timedelta(days=back)
        ends = urlencode({"from": day.isoformat(), "to": (day + timedelta(days=1, microseconds=-1)).isoformat()})
        failed = node.ask("GET", f"/runs?{ends}&status={FAILED}&page_size=1")["total"]
        failures += failed
        label = await tokyo.get_by_role("link", name=re.compile(f"{day:%Y-%m-%d}")).get_attribute("aria-label")
        assert f"{failed} failed" in label, (day, label)
    assert failures > 20


async def the_heat_map_agrees(node: ServerNode, tokyo: Page) -> None:
    """The runs of a task by the weekday and hour in Tokyo at which they ended."""
    tasks = [task["id"] for task in node.ask("GET", "/tasks?page_size=100")["items"]]
    counted = {task: node.ask("GET", f"/tasks/{task}/runs?page_size=1")["total"] for task in tasks}
    task = max((task for task in tasks if counted[task] < 500), key=counted.__getitem__)  # all of them are looked at
    await tokyo.goto(address(node, f"/tasks/{task}"))
    shown = await tokyo.locator("table.heat tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].slice(1).map((cell) => cell.title))"
    )
    counts: dict[tuple[int, int], list[int]] = {}
    for run in node.runs_of(task):
        if run["status"] not in f"{FAILED},SUCCESS,CALLBACK_SUCCESS".split(","):
            continue
        at = datetime.fromisoformat(run["end_time"]).astimezone(TOKYO)
        cell = counts.setdefault((at.weekday(), at.hour), [0, 0])
        cell[0] += run["status"] in FAILED.split(",")
        cell[1] += 1
    assert len(counts) > 20
    for (day, hour), expected in counts.items():
        assert [int(number) for number in re.findall(r"\d+", shown[day][hour])] == expected, (day, hour)


async def the_preview_agrees(node: ServerNode, home: Page, tokyo: Page) -> None:
    """What the form says while a schedule is typed."""
    for page in (home, tokyo):
        await page.goto(address(node, "/tasks/new"))
        await page.get_by_label("Cron expression").fill("15 4 * * *")
        await page.get_by_role("main").get_by_label("Time zone", exact=True).fill("Europe/Berlin")
        await expect(page.locator("#preview time").first).to_be_visible()
        await expect(page.locator("#preview")).to_contain_text("04:15")
    here, there = await clocks.read(home), await clocks.read(tokyo)
    assert [*clocks.wrong_times(there), *clocks.wrong_texts(here, there)] == []


async def a_run_agrees(node: ServerNode, tokyo: Page) -> None:
    """What the API says of a run is what its page says, in Tokyo."""
    run = node.ask("GET", "/runs?status=FAILED&page_size=1")["items"][0]
    there = await clocks.read(tokyo, address(node, f"/runs/{run['id']}"))
    assert {run["scheduled_time"], run["start_time"], run["end_time"]} <= {iso for iso, _ in there.times}


# 5


async def test_check_05_a_callback_with_a_wrong_signature_is_named_on_the_open_page_of_the_run(node, target, open_page):
    """A callback with a wrong signature arrives: the run page names the cause within 2 s."""
    task = node.create(name="signs", exec_type="ASYNC", target_url=target.url("/accept/signed"), secret="the-right-one")
    run = node.trigger(task)
    node.wait_for_run(run, "CALLBACK_PENDING")
    page = await open_page(address(node, f"/runs/{run}"))
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    await page.evaluate("window.marked = true")
    token = target.at("/accept/signed")[-1].headers["X-Callback-Token"]
    content = b'{"status": "SUCCESS"}'
    headers = {"Content-Type": "application/json", **sign("an-old-one", "done", int(time.time()), content)}
    for _ in range(3):  # at whatever moment of the page's rhythm it comes
        path = address(node, f"/api/v1/callbacks/{token}")
        async with aiohttp.ClientSession() as session, session.post(path, data=content, headers=headers) as answer:
            assert answer.status == 409
        seen = page.get_by_text("signature mismatch")
        refused = len(node.ask("GET", f"/runs/{run}/callbacks")["items"])
        await page.wait_for_function(COUNT_SAID, arg=["signature mismatch", refused])
        await expect(seen.first).to_be_visible()
        await page.wait_for_timeout(300)
    assert await page.evaluate("window.marked === true"), "the page was loaded anew"
    assert node.run(run)["status"] == "CALLBACK_PENDING"


COUNT_SAID = """([text, least]) =>
    document.querySelector("main").innerText.split(text).length - 1 >= least
"""


# 6


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_check_06_after_everything_was_restarted_the_history_is_complete(
    store, nodes, target, open_page, request, reserved
):
    """Restart everything: history is complete."""
    url = str(request.getfixturevalue(f"{store}_url"))
    node = nodes.start(url, port=reserved)
    task = node.create(name="kept", target_url=target.url("/ok"), retry_policy={"max_retries": 0})
    sore = node.create(
        name="sore", target_url=target.url("/status/503"), retry_policy={"max_retries": 1, "initial_delay": 0.1}
    )
    called = node.create(name="called", exec_type="ASYNC", target_url=target.url("/accept/kept"))
    runs = [node.trigger(task) for _ in range(8)] + [node.trigger(sore), node.trigger(called)]
    for run in runs[:-1]:
        node.wait_for_run(run)
    node.wait_for_run(runs[-1], "CALLBACK_PENDING")
    token = target.at("/accept/kept")[-1].headers["X-Callback-Token"]
    for _ in range(2):  # the second is refused, and stays known all the same
        node.ask("POST", f"/callbacks/{token}", {"status": "SUCCESS", "data": {"rows": 7}})
    paths = ("/runs", f"/tasks/{task}", f"/tasks/{sore}", f"/runs/{runs[-2]}", f"/runs/{runs[-1]}")
    page = await open_page("about:blank")
    before = {path: await read(page, node, path) for path in paths}
    node.kill()
    again = nodes.start(url, port=reserved)
    assert {path: await read(page, again, path) for path in paths} == before
    for run in runs:
        assert str(run) in before["/runs"]


async def read(page: Page, node: ServerNode, path: str) -> str:
    """All that a page says of what happened, but not how long ago that was, nor the tools above a list."""
    await page.goto(address(node, path))
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")  # what the page's scripts add is there
    return str(
        await page.evaluate("""() => {
        for (const each of document.querySelectorAll(".relative, .over-list")) each.remove();
        for (const each of document.querySelectorAll("details")) each.open = true;
        return document.querySelector("main").innerText;
    }""")
    )
