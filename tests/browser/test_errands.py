"""Sixteen errands of an operator, each acted out in a real browser with a budget of clicks, keys and texts.

Each begins at the overview, signed in. One server and one page serve them all.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Browser, Locator, Page, expect

from acceptance.harness import Nodes, ServerNode, Target, until
from browser.conftest import PATIENCE, address, listen
from browser.guarding import guarded_node, sign_in
from browser.hands import Hands
from browser.hostile_house import until as soon
from browser.proxying import serving


class Desk:
    """Where the operator sits: a page, a pair of hands that count, and the API to prepare things and to look at them."""

    def __init__(self, page: Page, node: ServerNode, target: Target, tokens: dict[str, str]) -> None:
        self.page, self.node, self.target, self.tokens = page, node, target, tokens

    def ask(self, method: str, path: str, body: Any = None, *, by: str = "admin") -> Any:
        answer = self.node.call(method, path, body, headers={"Authorization": f"Bearer {self.tokens[by]}"})
        assert answer.status < 300, (method, path, answer.text)
        return answer.json

    def create(self, path: str = "/ok", **fields: Any) -> int:
        if "job_type" not in fields:
            fields["target_url"] = self.target.url(path)
        return int(self.ask("POST", "/tasks", fields)["id"])

    def start(self, task: int, **fields: Any) -> int:
        return int(self.ask("POST", f"/tasks/{task}/trigger", fields)["run_id"])

    def wait(self, run: int, status: str) -> None:
        until(lambda: self.ask("GET", f"/runs/{run}")["status"] == status, f"run {run} to be {status}")

    def ended(self, task: int, status: str, **fields: Any) -> int:
        run = self.start(task, **fields)
        self.wait(run, status)
        return run

    def claim(self, worker: str, queue: str, job_type: str) -> list[Any]:
        asked = {"queues": [queue], "job_types": [job_type], "max": 1, "wait_seconds": 0, "version": 0}
        return list(self.ask("POST", f"/workers/{worker}/claim", asked)["runs"])

    async def sit_down(self) -> Hands:
        await self.page.goto(address(self.node))
        await expect(self.page.locator("#live")).to_have_attribute("data-state", "on")
        return Hands(self.page)

    def menu(self, name: str) -> Locator:
        return self.page.get_by_role("navigation", name="Main").get_by_role("link", name=name)

    async def search(self, hands: Hands, text: str) -> None:
        """Three actions."""
        await hands.press("/")
        await hands.type(text)
        await hands.press("Enter")

    async def narrow(self, hands: Hands, text: str) -> None:
        """Three actions: the bar over a list."""
        await hands.click(self.page.get_by_role("main").locator("input[type=search]").first)
        await hands.type(text)
        await hands.press("Enter")


@pytest.fixture(scope="module")
async def desk(
    nodes: Nodes, target: Target, chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    node, tokens = await guarded_node(nodes, tmp_path_factory.mktemp("errands"))
    complaints: list[str] = []
    context = await chromium.new_context(
        viewport={"width": 1280, "height": 900}, locale="en-GB", timezone_id="UTC", accept_downloads=True
    )
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    listen(page, complaints)
    await page.goto(address(node))
    await sign_in(page, tokens["admin"])
    yield Desk(page, node, target, tokens)
    await context.close()
    assert complaints == []


async def test_why_did_last_nights_report_not_run(desk: Desk):
    task = desk.create(name="nightly-report", cron_expr="* * * * * *")
    desk.ask("POST", f"/tasks/{task}/disable", by="operator")
    paused_at = datetime.now(UTC)
    until(lambda: datetime.now(UTC) > paused_at + timedelta(seconds=2), "a slot to pass")
    hands = await desk.sit_down()
    await desk.search(hands, "nightly-report")
    await hands.fill(desk.page.locator("#at"), f"{paused_at + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}")
    await hands.click(desk.page.get_by_role("button", name="Explain"))
    await expect(desk.page.locator("#explained [data-cause]")).to_contain_text("operator")
    assert len(hands.actions) <= 5


async def test_retry_forty_failed_runs(desk: Desk):
    task = desk.create("/status/500", name="fails-often", retry_policy={"max_retries": 0}, max_concurrency=None)
    runs = desk.ask("POST", "/runs/batch", {"runs": [{"task": task}] * 40})["runs"]
    for run in runs:
        desk.wait(run["run_id"], "FAILED")
    hands = await desk.sit_down()
    await hands.click(desk.menu("Runs"))
    await desk.narrow(hands, "task:fails-often status:failed")
    await hands.click(desk.page.get_by_role("link", name="Retry…", exact=True))
    await hands.click(desk.page.get_by_role("button", name="Retry 40"))
    await expect(desk.page.get_by_text("40 of 40 retried")).to_be_visible()
    assert len(hands.actions) <= 6
    await expect(desk.page.locator("main")).to_contain_text("task:fails-often")
    await hands.click(desk.page.get_by_role("link", name="Show the new runs"))
    await expect(desk.page.locator("tbody tr[data-row]")).to_have_count(25)
    assert desk.ask("GET", f"/runs?task={task}&origin=retry")["total"] == 40


async def test_pause_a_team(desk: Desk):
    for number in range(10):
        desk.create(name=f"bill-{number}", labels={"team": "billing"})
    desk.create(name="not-billed", labels={"team": "ops"})
    hands = await desk.sit_down()
    await hands.click(desk.menu("Tasks"))
    await desk.narrow(hands, "label:team=billing")
    await hands.click(desk.page.get_by_role("link", name="Pause all"))
    await hands.click(desk.page.get_by_role("button", name="Pause 10"))
    await expect(desk.page.get_by_text("10 of 10 paused")).to_be_visible()
    assert len(hands.actions) <= 6
    off = desk.ask("GET", "/tasks?status=DISABLED&label=team%3Dbilling")["total"]
    assert (off, desk.ask("GET", "/tasks?name=not-billed")["items"][0]["status"]) == (10, "ENABLED")


async def test_a_cron_in_a_zone_with_daylight_saving(desk: Desk):
    hands = await desk.sit_down()
    await hands.click(desk.menu("Tasks"))
    await hands.click(desk.page.get_by_role("link", name="New task"))
    await hands.fill(desk.page.get_by_label("Name", exact=True), "berlin-close")
    await hands.fill(desk.page.get_by_label("URL", exact=True), desk.target.url("/ok"))
    await hands.fill(desk.page.get_by_label("Cron expression"), "30 2 * * *")
    await hands.fill(desk.page.locator("#f-timezone"), "Europe/Berlin")
    notes = desk.page.locator("#preview .note")
    await expect(notes.filter(has_text="the clock skips 02:30")).to_have_count(1)
    await expect(notes.filter(has_text="02:30 twice")).to_have_count(1)
    await hands.click(desk.page.get_by_role("button", name="Create"))
    await expect(desk.page.get_by_role("heading", name="berlin-close")).to_be_visible()
    assert len(hands.actions) <= 7
    (task,) = desk.ask("GET", "/tasks?name=berlin-close")["items"]
    assert (task["cron_expr"], task["timezone"]) == ("0 30 2 * * *", "Europe/Berlin")


async def test_clone_a_task(desk: Desk):
    desk.create(name="original", timeout_seconds=7, labels={"team": "ops"})
    hands = await desk.sit_down()
    await desk.search(hands, "original")
    await hands.click(desk.page.get_by_role("link", name="Duplicate", exact=True))
    await hands.click(desk.page.get_by_role("button", name="Create"))
    await expect(desk.page.get_by_role("heading", name=re.compile("original.+"))).to_be_visible()
    assert len(hands.actions) <= 5
    copies = [task for task in desk.ask("GET", "/tasks?name=original")["items"] if task["name"] != "original"]
    assert [(task["timeout_seconds"], task["labels"]) for task in copies] == [(7, {"team": "ops"})]


@pytest.mark.parametrize("text", ["INV-2026-00077", "ACME-4711"], ids=["by its key", "by its payload"])
async def test_find_a_run(desk: Desk, text: str):
    found = desk.ask("GET", "/tasks?name=makes-invoices")["items"]
    task = found[0]["id"] if found else desk.create(name="makes-invoices", job_type="invoice", queue="invoices")
    fields = {"key": text} if text.startswith("INV") else {"payload": {"customer": text}}
    run = desk.start(task, **fields)
    desk.start(task, payload={"customer": "another"})
    hands = await desk.sit_down()
    await desk.search(hands, text)
    await expect(desk.page).to_have_url(address(desk.node, f"/runs/{run}"))
    assert len(hands.actions) <= 3


async def test_what_hits_at_two_oclock(desk: Desk):
    soon = (datetime.now(UTC).hour + 2) % 24  # whatever the time of day, it is within what the timeline shows
    for number in range(5):
        desk.create(name=f"two-{number}", cron_expr=f"0 {soon} * * *")
    hands = await desk.sit_down()
    await hands.click(desk.menu("Timeline"))
    await expect(desk.page.locator("[data-live=crowds]")).to_contain_text("tasks in one minute")
    await expect(desk.page.locator("[data-live=crowds]")).to_contain_text(f"{soon:02}:00")
    assert len(hands.actions) <= 1


async def test_drain_a_worker(desk: Desk):
    desk.claim("to-be-drained", "crew", "x")
    hands = await desk.sit_down()
    await hands.click(desk.menu("Workers"))
    row = desk.page.locator("tr[data-row=to-be-drained]")
    await hands.click(row.get_by_role("button", name="Drain"))
    await expect(row.locator(".badge")).to_have_attribute("data-status", "draining")
    assert len(hands.actions) <= 2


async def test_limit_an_idle_queue(desk: Desk):
    desk.create(name="renders", job_type="render", queue="pdf")
    hands = await desk.sit_down()
    await hands.click(desk.menu("Queues"))
    await hands.click(desk.page.get_by_role("link", name="pdf", exact=True))
    await hands.fill(desk.page.get_by_label("Runs at a time"), "3")
    await hands.click(desk.page.get_by_role("button", name="Save"))
    await expect(desk.page.locator(".toast")).to_be_visible()
    assert len(hands.actions) <= 4
    assert desk.ask("GET", "/queues/pdf")["concurrency"] == 3


async def test_why_was_a_callback_refused(desk: Desk):
    task = desk.create("/accept/errand", name="waits-for-word", exec_type="ASYNC", secret="whsec_" + "a" * 44)
    run = desk.start(task)
    desk.wait(run, "CALLBACK_PENDING")
    token = desk.target.at("/accept/errand")[-1].headers["X-Callback-Token"]
    forged = {"webhook-id": "m", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    assert desk.node.call("POST", f"/callbacks/{token}", {"status": "SUCCESS"}, headers=forged).status >= 400
    hands = await desk.sit_down()
    await hands.click(desk.menu("Runs"))
    await hands.click(desk.page.get_by_role("navigation").get_by_role("link", name="Waiting for callback"))
    await hands.click(desk.page.get_by_role("link", name=str(run)))
    await expect(desk.page.locator('[data-bar="callback"]')).to_contain_text("rejected: signature mismatch")
    await expect(desk.page.locator("[data-advice]")).to_have_attribute("data-advice", "callback_signature")
    assert len(hands.actions) <= 3


async def test_compare_a_failure_with_the_last_success(desk: Desk):
    task = desk.create(name="broke-lately")
    good = desk.ended(task, "SUCCESS")
    desk.ask(
        "PATCH", f"/tasks/{task}", {"target_url": desk.target.url("/status/500"), "retry_policy": {"max_retries": 0}}
    )
    bad = desk.ended(task, "FAILED")
    hands = await desk.sit_down()
    await desk.search(hands, str(bad))
    await hands.click(desk.page.get_by_role("link", name="Compare with the last success"))
    await expect(desk.page.locator("table.compare thead a")).to_have_text([str(good), str(bad)])
    assert len(hands.actions) <= 4


async def test_export_the_failed_runs(desk: Desk):
    task = desk.create("/status/500", name="for-the-report", retry_policy={"max_retries": 0})
    bad = desk.ended(task, "FAILED")
    hands = await desk.sit_down()
    await hands.click(desk.menu("Runs"))
    await desk.narrow(hands, "task:for-the-report status:failed")
    async with desk.page.expect_download() as download:
        await hands.click(desk.page.get_by_role("link", name="Export CSV"))
    lines = _text(await (await download.value).path()).splitlines()
    assert [line.split(",")[0] for line in lines] == ["id", str(bad)]
    assert len(hands.actions) <= 5


async def test_who_changed_it_and_back_to_how_it_was(desk: Desk):
    task = desk.create(name="was-changed", timeout_seconds=11)
    desk.ask("PATCH", "/tasks/name:was-changed", {"timeout_seconds": 22}, by="operator")
    hands = await desk.sit_down()
    await desk.search(hands, "was-changed")
    await hands.click(desk.page.get_by_role("link", name="Versions"))
    await expect(desk.page.locator("#v2")).to_contain_text("operator")
    await hands.click(desk.page.locator("#v1 summary"))
    await hands.click(desk.page.locator("#v1").get_by_role("button", name="Restore this version"))
    await hands.click(desk.page.locator("#confirm").get_by_role("button", name="Restore this version"))
    await expect(desk.page.locator("#v3")).to_be_visible()
    assert len(hands.actions) <= 7
    assert desk.ask("GET", f"/tasks/{task}")["timeout_seconds"] == 11


async def test_watch_a_run_while_it_works(desk: Desk):
    task = desk.create(name="crunches", job_type="crunch", queue="crunching")
    run = desk.start(task)
    (claimed,) = desk.claim("w-crunch", "crunching", "crunch")
    held = {"worker_id": "w-crunch", "token": claimed["token"]}
    desk.ask("POST", f"/runs/{run}/log", {**held, "level": "info", "message": "begins"})
    hands = await desk.sit_down()
    await desk.search(hands, str(run))
    await expect(desk.page.locator(".log li")).to_have_count(1)
    desk.ask("POST", f"/runs/{run}/progress", {**held, "current": 25, "total": 100})
    await expect(desk.page.locator(".progress-line")).to_contain_text("25.0 %")
    desk.ask("POST", f"/runs/{run}/log", {**held, "level": "info", "message": "goes on"})
    await expect(desk.page.locator(".log li")).to_have_count(2)
    desk.ask("POST", f"/runs/{run}/settle", {**held, "outcome": "success"})
    await expect(desk.page.locator("[data-live=status] .badge")).to_have_attribute("data-status", "SUCCESS")
    assert len(hands.actions) <= 3


async def test_a_dingtalk_alert_with_a_test(desk: Desk):
    arrived: list[web.Request] = []

    async def robot(request: web.Request) -> web.Response:
        arrived.append(request)
        return web.json_response({"errcode": 0, "errmsg": "ok"})

    async with serving(robot) as port:
        hands = await desk.sit_down()
        await hands.click(desk.menu("Settings"))
        await hands.click(desk.page.get_by_role("link", name="Alerts", exact=True))
        await hands.click(desk.page.get_by_role("link", name="New channel"))
        await hands.click(desk.page.get_by_role("link", name="DingTalk", exact=True))
        await hands.fill(desk.page.locator("#f-name"), "duty")
        await hands.fill(desk.page.locator("#f-url"), f"http://127.0.0.1:{port}/robot/send?access_token=t0ken")
        await hands.fill(desk.page.locator("#f-secret"), "SEC" + "a" * 61)
        await hands.click(desk.page.get_by_role("button", name="Save"))
        await hands.click(desk.page.locator("tr", has_text="duty").get_by_role("button", name="Test"))
        await soon(lambda: arrived)
        assert len(hands.actions) <= 9
    assert [(request.query["access_token"], "sign" in request.query) for request in arrived] == [("t0ken", True)]


async def test_make_a_token(desk: Desk):
    hands = await desk.sit_down()
    await hands.click(desk.menu("Settings"))
    await hands.click(desk.page.get_by_role("link", name="Tokens", exact=True))
    await hands.fill(desk.page.get_by_label("Name", exact=True), "ci runner")
    await hands.click(desk.page.get_by_role("button", name="Create token"))
    secret = await desk.page.locator(".secret").inner_text()
    assert len(hands.actions) <= 4
    answer = desk.node.call("GET", "/tasks", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status == 200


def _text(path: Path) -> str:
    return path.read_text()
