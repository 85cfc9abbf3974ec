"""A node that asks for tokens, and the way through its door."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page

from acceptance.harness import Nodes, ServerNode
from noonbell.service.access import Access
from noonbell.stores import open_store


async def guarded_node(nodes: Nodes, folder: Path) -> tuple[ServerNode, dict[str, str]]:
    """The node, and one token for each role."""
    url = f"sqlite:///{folder / 'noonbell.db'}"
    store = open_store(url, connections=2)
    await store.open()
    access = Access(store)
    tokens = {role: (await access.create(role, role))[1] for role in ("viewer", "operator", "admin")}
    await store.close()
    return nodes.start(url, env={"NOONBELL_AUTH__ENABLED": "true"}), tokens


async def sign_in(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
