"""The timeline over real HTTP on each store: its views, its address, backfill in two steps, and the calendar file."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest

from integration.web import asking
from integration.web.test_pages import HTML, get, post
from noonbell.clock import SECOND, Instant, rfc3339


async def test_every_view_answers_on_every_store_and_says_what_is_there(everywhere):
    api = everywhere
    daily = await api.create(name="daily one", cron_expr=_soon(), labels={"team": "billing"})
    often = await api.create(name="often", cron_expr="* * * * *")
    await api.create(name="by hand only")
    run = await api.trigger(often)
    await api.finish(await api.claim(), "FAILED", error_message="no")
    await api.good("POST", f"/tasks/{daily}/disable")
    await api.good("POST", f"/tasks/{daily}/enable")
    for lang in ("en", "zh"):
        for query in (
            *("", "?span=7d", "?view=table", "?view=load", "?view=load&span=1h", "?view=calendar", "?group=team"),
            *("?view=calendar&month=2025-02", "?zone=Europe/Berlin&from=2026-03-28T00:00:00&to=2026-03-30T00:00:00"),
            *(
                "?label=team=billing&name=daily",
                "?page=7",
                "?from=2020-01-01T00:00:00Z",
                "?from=2026-11-15T08:00&to=2026-11-15T14:00",
                "?to=2031-01-01T00:00:00Z",
            ),
            *("/backfill", f"/backfill?task=daily+one&from={_ago(3)}&to={_ago(0)}", ".ics"),
        ):
            told = await api.call("GET", f"//timeline{query}", headers={**HTML, "accept-language": lang})
            assert told.status == 200, (query, told.text[-1500:])
    text = (await get(api, "/timeline?span=7d"))[1]
    assert f"runs/{run}" in text
    assert text.index("often") < text.index("daily one"), "the nearest first"
    assert "by hand only" not in text, "nothing of it lies in the stretch"
    assert "team=billing" not in (await get(api, "/timeline?group=team"))[1].split("timeline.css")[0]


def _soon() -> str:
    """Daily, and whatever the time of day, the next is among what is shown."""
    return f"0 {(datetime.now(UTC).hour + 2) % 24} * * *"


def _ago(days: int) -> str:
    return f"{datetime.now(UTC) - timedelta(days=days, minutes=1):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    "query",
    [
        *("span=9h", "view=other", "from=yesterday", "zone=Mars/Base", "view=calendar&month=2026-13"),
        *("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00Z"),
    ],
)
async def test_an_address_that_says_nonsense_is_a_page_that_says_so(api, query):
    status, text, _ = await get(api, f"/timeline?{query}")
    assert (status, 'lang="en"' in text) == (400, True)


async def test_slots_that_were_dropped_are_hatched_and_pauses_are_shaded(everywhere):
    api = everywhere
    task = await api.create(name="a", schedule={"type": "interval", "every": 1, "unit": "second"})
    dropped = 0
    async with asyncio.timeout(60):
        while dropped == 0:
            dropped = (await api.store.plan(10, skip=True)).dropped
            await asyncio.sleep(0.05)
    text = (await get(api, "/timeline?name=a&span=1h"))[1]
    assert 'class="mark-missed hollow"' in text
    assert "Missed 1 slot" in text or re.search(r"Missed \d+ slots", text)
    assert 'class="off" x=' not in text
    await api.good("POST", f"/tasks/{task}/disable")
    await api.good("POST", f"/tasks/{task}/enable")
    assert 'class="off" x=' in (await get(api, "/timeline?name=a&span=1h"))[1]


async def test_a_pause_of_everything_is_a_band_with_its_reason_on_every_row(everywhere):
    api = everywhere
    for name in ("a", "b"):
        await api.create(name=name, cron_expr="* * * * *")
    await api.good("POST", "/pause", {"reason": "the <target> moves"})
    said = r"<title>Everything paused since [^<]* by [^<]*: the &lt;target&gt; moves</title>"
    assert len(re.findall(said, (await get(api, "/timeline?span=1h"))[1])) == 2
    await api.good("POST", "/resume")
    text = (await get(api, "/timeline?span=1h"))[1]
    assert (len(re.findall(said, text)), text.count('class="off" x=')) == (2, 2)


async def test_tasks_that_start_together_can_be_spread_by_a_jitter_that_is_proposed_and_not_saved(api):
    tasks = [await api.create(name=f"t{number}", cron_expr=_soon()) for number in range(4)]
    text = (await get(api, "/timeline?view=load&span=7d"))[1]
    assert "4 tasks in one minute" in text
    assert f"tasks/{tasks[0]}/edit?jitter=30" in text
    form = (await get(api, f"/tasks/{tasks[0]}/edit?jitter=30"))[1]
    assert re.search(r'name="jitter_seconds" type="text"\s+value="30"', form)
    assert (await api.good("GET", f"/tasks/{tasks[0]}"))["jitter_seconds"] == 0
    await api.good("PATCH", f"/tasks/{tasks[0]}", {"jitter_seconds": 3600})
    await api.good("PATCH", f"/tasks/{tasks[1]}", {"jitter_seconds": 3600})
    assert "4 tasks in one minute" not in (await get(api, "/timeline?view=load&span=7d"))[1]


@pytest.mark.parametrize(
    ("lang", "cut", "slots"),
    [
        ("en", "The 600 entries nearest to now, of", "Slots of all tasks"),
        ("zh", "显示距现在最近的 600 条", "所有任务的时刻数"),
    ],
)
async def test_a_table_that_is_cut_says_of_how_many_entries(api, lang, cut, slots):
    for number in range(12):
        await api.create(name=f"t{number}", cron_expr="*/6 * * * *")
    headers = {"accept-language": lang}
    assert cut not in (await api.call("GET", "//timeline?view=table&span=6h", headers=headers)).text
    assert cut in (await api.call("GET", "//timeline?view=table&span=24h", headers=headers)).text
    assert slots in (await api.call("GET", "//timeline?view=load", headers=headers)).text


async def test_a_backfill_is_seen_before_it_is_done_and_done_once(everywhere):
    api = everywhere
    task = await api.create(name="hourly", cron_expr="0 * * * *")
    now = await api.store.now()
    begin, end = rfc3339(Instant(now - 6 * 3_600 * SECOND)), rfc3339(now)
    query = f"/timeline/backfill?task=hourly&from={begin}&to={end}"
    text = (await get(api, query))[1]
    assert "hourly: 6 past slots" in text
    assert (await api.good("GET", f"/tasks/{task}/runs"))["total"] == 0, "looking does nothing"
    given = {"task_id": str(task), "from": begin, "to": end}
    status, headers, _ = await post(api, "/timeline/backfill", given)
    assert (status, headers["location"].endswith(f"/runs?task={task}&origin=backfill")) == (303, True)
    assert (await api.good("GET", f"/tasks/{task}/runs"))["total"] == 6
    await post(api, "/timeline/backfill", given)
    assert (await api.good("GET", f"/tasks/{task}/runs"))["total"] == 6
    deeds = (await api.good("GET", "/audit"))["items"]
    assert [deed["subject"] for deed in deeds if deed["action"] == "backfill_task"] == [f"/tasks/{task}"] * 2


@pytest.mark.parametrize(
    "query", ["task=nobody&from=2026-01-01T00:00:00Z", "task=hand&from=2026-01-01T00:00:00Z", "task=hand&from=x"]
)
async def test_a_backfill_that_cannot_be_says_why(api, query):
    await api.create(name="hand")
    status, text, _ = await get(api, f"/timeline/backfill?{query}")
    assert (status, 'role="alert"' in text) == (400, True)


async def test_the_calendar_file_has_an_event_for_each_slot_to_come(api):
    await api.create(name="hourly", cron_expr="0 * * * *")
    told = await api.call("GET", "//timeline.ics")
    assert told.headers["content-type"] == "text/calendar; charset=utf-8"
    assert told.text.count("BEGIN:VEVENT") == 12
    assert "SUMMARY:hourly\r\n" in told.text


# The same by the API


async def test_the_api_tells_the_same_as_the_page(everywhere):
    api = everywhere
    hourly = await api.create(name="hourly", cron_expr="0 * * * *", labels={"team": "x"})
    often = await api.create(name="often", cron_expr="* * * * * *")
    run = await api.trigger(hourly)
    await api.finish(await api.claim(), "FAILED")
    told = await api.good("GET", "/timeline")
    assert [lane["task_id"] for lane in told["items"]] == [often, hourly]
    assert told["total"] == 2
    first, second = told["items"]
    assert (len(first["planned"]), first["more_planned"]) == (125, True)
    assert [each["run_id"] for each in second["runs"]] == [run]
    assert (len(second["planned"]), second["more_planned"], second["earlier"]["count"]) == (12, False, 0)
    (only,) = (await api.good("GET", "/timeline?label=team=x&page_size=1"))["items"]
    assert only["task_name"] == "hourly"
    assert await api.bad("GET", "/timeline?from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00Z") == (
        400,
        "INVALID_ARGUMENT",
    )
    assert await api.bad("GET", "/timeline?page_size=201") == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(("lang", "view", "button"), [("en", "Month", "Business calendars"), ("zh", "月", "工作日历")])
async def test_the_view_of_a_month_and_the_page_of_closed_days_have_names_that_differ(api, lang, view, button):
    page = await asking.get(api, "/timeline", lang)
    assert re.search(rf"view=calendar[^>]*>{view}</a>", page)
    assert re.search(rf'<a class="button" href="[^"]*calendars">{button}</a>', page)
    assert re.search(rf"<h1>{button} ", await asking.get(api, "/calendars", lang))
