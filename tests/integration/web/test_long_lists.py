"""A list that is too long to be counted, or to be searched in one go, says so and leads on."""

from __future__ import annotations

import re

import pytest

from integration.api.serving import Api
from integration.web.asking import get
from noonbell.model.request import MOST_LISTED
from noonbell.model.run import RunBodies, RunStatus
from noonbell.service import filters, runs


async def test_a_search_that_has_not_come_to_its_end_leads_on(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(filters, "LOOKED_AT", 4)
    task = await api.create(name="a")
    wanted = await api.trigger(task, key="the one")
    for _ in range(9):
        await api.trigger(task)
    path, pages = "/runs?key=the+one", 1
    text = await get(api, path)
    assert "Searched back to:" in text
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


async def test_a_question_before_many_runs_are_changed_counts_as_far_as_one_page_looks(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    task = await api.create(name="a")
    for _ in range(5):
        await api.good("POST", f"/runs/{await api.trigger(task)}/cancel", {})
        await api.trigger(task)
        await api.finish(await api.claim(), RunStatus.FAILED)
    clean, redrive, bulk = "/queues/http/clean?days=0&kind=failed", "/queues/http/redrive", "/runs/bulk?act=retry"
    assert "Delete 5<" in await get(api, clean)
    assert "Retry 5<" in await get(api, redrive)
    assert "Retry 10<" in await get(api, bulk)
    monkeypatch.setattr(runs, "BULK_LIMIT", 3)
    assert "<b>3+ runs</b>" in await get(api, clean)
    assert "Retry 3+ runs?" in await get(api, redrive)
    monkeypatch.setattr(runs, "BULK_LIMIT", 6)
    text = await get(api, bulk)
    assert "Retry 6+<" in text
    assert "At least 6 match; all of them are included." in text
    monkeypatch.setattr(runs, "LOOKED_AT", 2)
    rare = await get(api, "/queues/nobody/clean?days=0&kind=failed")
    assert ("<b>0+ runs</b>" in rare, "Delete 0+<" in rare) == (True, True)
    monkeypatch.setattr(filters, "LOOKED_AT", 2)
    started = await api.good("POST", "/bulk", {"kind": "retry_runs", "filter": {"queue": "nobody"}})
    assert (started["total"], started["total_is_least"]) == (0, True)


async def test_a_run_of_many_large_attempts_shows_the_newest_and_the_one_that_is_asked_for(api: Api):
    run = await api.trigger(await api.create(name="a"))
    for number in range(1, 131):
        kept = RunBodies(response_body=f"answer {number} " + "x" * 100_000)
        await api.retry(await api.claim(), 0, bodies=kept, result={"number": number, "text": "y" * 100_000})
    text = await get(api, f"/runs/{run}?show=response")
    shown = [int(number) for number in re.findall(r"<b>(\d+)</b>", text)]
    assert shown == [*range(130, 30, -1), 1]
    assert "answer 130 x" in text
    assert '"number": 130' in text
    assert len(text) < 400_000
    text = await get(api, f"/runs/{run}?attempt=7&show=response")
    assert "answer 7 x" in text
    assert '"number": 7,' in text
    assert "answer 130 x" not in text
    assert len(text) < 400_000


async def test_a_callback_that_is_too_long_for_the_page_says_where_it_is(api: Api):
    run = await api.trigger(await api.create(name="a", exec_type="ASYNC", callback_timeout_sec=300))
    lease = await api.claim()
    await api.park(lease)
    long = "x" * (MOST_LISTED // 5)
    for data in (*[long] * 5, "short"):
        await api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "RUNNING", "data": data})
    text = await get(api, f"/runs/{run}?show=callback")
    assert "short" in text
    assert len(text) < 100_000
    assert "The body is 819 KB, too large to list. The API returns it:" in text
    assert "请求体为 819 KB" in await get(api, f"/runs/{run}?show=callback", "zh")
    found = re.search(r"<code>[./]*(/api/v1)?([^<]*/callbacks\?[^<]*)</code>", text)
    assert found is not None, text[-3000:]
    (alone,) = (await api.good("GET", "/" + found[2].removeprefix("api/v1").lstrip("/")))["items"]
    assert long in alone["body"]
