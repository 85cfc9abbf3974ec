"""A list that is too long to be counted, or to be searched in one go, says so and leads on."""

from __future__ import annotations

import re

import pytest

from integration.api.serving import Api
from integration.web.asking import get
from noonbell.service import filters


async def test_a_search_that_has_not_come_to_its_end_leads_on(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(filters, "LOOKED_AT", 4)
    task = await api.create(name="a")
    wanted = await api.trigger(task, key="the one")
    for _ in range(9):
        await api.trigger(task)
    path, pages = "/runs?key=the+one", 1
    text = await get(api, path)
    assert "The search has come back to here so far:" in text
    assert "No runs match" not in text
    while (onward := re.search(r'href="([^"]+)"[^>]*rel="next"', text)) is not None:
        text, pages = await get(api, "/" + onward[1].lstrip("./")), pages + 1
        assert pages < 9, "it does not get on"
        if f'data-row="{wanted}"' in text:
            break
    assert f'data-row="{wanted}"' in text
    assert pages > 1


async def test_the_api_says_where_it_stopped_counting(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(filters, "COUNTED", 3)
    task = await api.create(name="a")
    for _ in range(5):
        await api.trigger(task)
    page = await api.good("GET", "/runs?page_size=2")
    assert (len(page["items"]), page["total"], page["total_is_least"]) == (2, 3, True)
    assert page["next_cursor"] is not None
    monkeypatch.setattr(filters, "COUNTED", 5)
    page = await api.good("GET", "/runs?page_size=2")
    assert page["total"] == 5
    assert "total_is_least" not in page
