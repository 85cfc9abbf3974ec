"""Tokens and roles, the weight of the first load."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import expect

from acceptance.harness import ServerNode
from browser.conftest import address
from browser.guarding import guarded_node, sign_in


async def test_the_first_load_weighs_less_than_150_kilobytes_and_comes_from_here_alone(node, open_page):
    page = await open_page("about:blank")
    answers: list[Any] = []

    def note(answer: Any) -> None:
        answers.append(answer)

    page.on("response", note)
    await page.goto(address(node), wait_until="load")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    page.remove_listener("response", note)
    assert {re.sub(r"^(https?://[^/]+).*", r"\1", answer.url) for answer in answers} == {address(node, "")}
    weight = [len(await answer.body()) for answer in answers if "/events" not in answer.url]
    assert 10_000 < sum(weight) < 150_000


# Tokens


@pytest.fixture(scope="module")
async def guarded(nodes, tmp_path_factory) -> tuple[ServerNode, dict[str, str]]:
    return await guarded_node(nodes, tmp_path_factory.mktemp("guarded"))


async def test_whoever_comes_without_a_token_is_asked_for_one_and_led_back(guarded, open_page):
    node, tokens = guarded
    page = await open_page(address(node, "/runs?status=FAILED"))
    await expect(page).to_have_url(re.compile(r"/login\?next="))
    await sign_in(page, "nb_wrong")
    await expect(page.get_by_role("alert")).to_contain_text("unknown")
    await sign_in(page, tokens["viewer"])
    await expect(page).to_have_url(address(node, "/runs?status=FAILED"))
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    (cookie,) = [each for each in await page.context.cookies() if each["name"] == "noonbell_session"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert tokens["viewer"] not in cookie["value"]
    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(re.compile("/login"))
    await page.goto(address(node, "/runs"))
    await expect(page).to_have_url(re.compile("/login"))


async def test_each_role_sees_what_it_may_do_and_no_more(guarded, open_page):
    node, tokens = guarded
    seen: dict[str, tuple[bool, bool, bool]] = {}
    for role, token in tokens.items():
        page = await open_page(address(node, "/tasks"))
        await sign_in(page, token)
        await expect(page.locator("h1")).to_contain_text("Tasks")
        new = await page.get_by_role("link", name="New task").count() > 0
        log = await page.get_by_role("link", name="Activity").count() > 0
        await page.goto(address(node, "/settings/tokens"))
        makes = await page.get_by_role("button", name="Create token").count() > 0
        seen[role] = (new, log, makes)
    assert seen == {
        "viewer": (False, False, False),
        "operator": (True, False, False),
        "admin": (True, True, True),
    }


async def test_a_revoked_token_ends_its_sessions(guarded, open_page):
    node, tokens = guarded
    page = await open_page(address(node, "/settings/tokens"))
    await sign_in(page, tokens["admin"])
    await page.get_by_label("Name").last.fill("short-lived")
    await page.get_by_role("button", name="Create token").click()
    secret = await page.locator(".secret").inner_text()
    other = await open_page(address(node, "/"))
    await sign_in(other, secret)
    await expect(other.get_by_role("heading", name="Overview")).to_be_visible()
    row = page.locator("tr", has_text="short-lived")
    await row.get_by_role("button", name="Revoke").click()
    await page.locator("#confirm button[value=yes]").click()
    await expect(page.locator(".toast").last).to_contain_text("revoked")
    await other.goto(address(node, "/"))
    await expect(other).to_have_url(re.compile("/login"))
