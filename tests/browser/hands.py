"""A pair of hands that count what they do: what a person does in one go is one action.

A click, a tap, a key pressed, and a text typed from its first letter to its last: each is one. Enter after a text is a key
like any other, so nothing is had for free.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.async_api import Locator, Page


@dataclass
class Hands:
    page: Page
    actions: list[str] = field(default_factory=list)

    async def click(self, what: Locator) -> None:
        self.actions.append(f"click {what}")
        await what.click()

    async def tap(self, what: Locator) -> None:
        self.actions.append(f"tap {what}")
        await what.tap()

    async def press(self, key: str) -> None:
        self.actions.append(f"press {key}")
        await self.page.keyboard.press(key)

    async def type(self, text: str) -> None:
        self.actions.append(f"type {text}")
        await self.page.keyboard.type(text)

    async def fill(self, field: Locator, text: str) -> None:
        """Into a field that a person gets to by Tab, or by the click that the text counts as."""
        self.actions.append(f"fill {field} {text}")
        await field.fill(text)
