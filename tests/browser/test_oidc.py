"""Signing in with an OpenID provider of another site, in a real browser: which cookies it sends along is its own rule."""

from __future__ import annotations

import re

from playwright.async_api import expect

from integration.api.serving import serving
from noonbell.settings import AuthSettings, OidcSettings
from services.openid import openid_provider


async def test_a_person_comes_back_from_the_provider_signed_in_and_where_they_wanted_to_go(open_page):
    async with openid_provider("localhost") as issuer:
        oidc = OidcSettings(issuer=issuer, client_id="noonbell", client_secret="hush", roles={"boss": "admin"})
        auth = AuthSettings(enabled=True, session_key="k" * 32, oidc=oidc)
        async with serving("memory://", auth=auth) as api:
            page = await open_page(f"{api.root}/settings/tokens")
            await page.get_by_role("link", name="Sign in with your organization").click()
            await expect(page).to_have_url(re.compile(f"^{re.escape(issuer)}/"))
            await page.locator("input[name=sub]:not([type=hidden])").first.fill("ada")
            await page.get_by_role("button", name="Authorize").first.click()
            await expect(page).to_have_url(f"{api.root}/settings/tokens")
            await expect(page.locator("tr", has_text="oidc ada@example.com")).to_contain_text("yours")
            await page.get_by_role("button", name="Sign out").first.click()
            await expect(page.get_by_role("link", name="Sign in with your organization")).to_be_visible()
