"""The pages of calendars: made, shown by months, changed with a look at what moves first, deleted."""

from __future__ import annotations

from typing import Any

import pytest

from integration.web.asking import as_read
from integration.web.test_pages import HTML

ORIGIN = {"sec-fetch-site": "same-origin"}


async def send(api: Any, path: str, **fields: str) -> Any:
    return await api.call("POST", f"/{path}", data=fields, headers={**HTML, **ORIGIN}, allow_redirects=False)


async def test_a_change_that_moves_slots_is_shown_before_it_is_saved(api: Any) -> None:
    made = await send(api, "/calendars", name="china", closed="2030-10-01/2030-10-07", weekday="0")
    assert made.status == 303, made.text
    assert (await api.good("GET", "/calendars/china"))["closed_weekdays"] == [0]
    task = await api.create(name="t", cron_expr="0 9 * * *", calendar={"name": "china", "when_closed": "next_open_day"})
    slot = (await api.good("GET", f"/tasks/{task}/next?count=3"))["next_fires"][2]["utc"]
    asked = await send(api, "/calendars/china", closed=slot[:10])
    assert asked.status == 409
    assert 'name="confirmed"' in asked.text
    assert (await api.good("GET", "/calendars/china"))["revision"] == 1
    saved = await send(api, "/calendars/china", closed=slot[:10], confirmed="yes")
    assert saved.status == 303
    assert (await api.good("GET", "/calendars/china"))["closed"] == [slot[:10]]
    shown = await api.call("GET", f"//tasks/{task}", headers=HTML)
    assert "/calendars/china" in shown.text
    page = await api.call("GET", f"//calendars/china?from={slot[:7]}-01", headers=HTML)
    assert "closed-day" in page.text


async def test_what_is_wrong_is_said_beside_its_box(api: Any) -> None:
    told = await send(api, "/calendars", name="c", closed="2026-02-30")
    assert told.status == 400
    assert 'id="p-closed"' in told.text
    assert (await api.good("GET", "/calendars"))["items"] == []


async def test_a_form_that_is_saved_unchanged_changes_nothing(api: Any) -> None:
    body = {
        "closed": ["12-25"],
        "open": ["2030-12-25"],
        "closed_weekdays": [0, 6],
        "ical_days": ["2030-01-01"],
        "timezone": "UTC",
    }
    await api.good("PUT", "/calendars/c", body)
    fields = {"closed": "12-25", "open": "2030-12-25", "ical_days": "2030-01-01", "timezone": "UTC"}
    told = await api.call(
        "POST",
        "//calendars/c",
        data=[*fields.items(), ("weekday", "0"), ("weekday", "6")],
        headers={**HTML, **ORIGIN},
        allow_redirects=False,
    )
    assert told.status == 303, told.text
    assert (await api.good("GET", "/calendars/c"))["revision"] == 1


async def test_a_calendar_is_deleted_by_its_button(api: Any) -> None:
    await api.good("PUT", "/calendars/c", {})
    assert (await send(api, "/calendars/c/delete")).status == 303
    assert (await api.call("GET", "/calendars/c")).status == 404


@pytest.mark.parametrize(
    ("lang", "when_closed", "mark"),
    [
        ("en", "next_open_day", "moved from"),
        ("zh", "next_open_day", "移自"),
        ("en", "skip", "skipped: closed day"),
        ("zh", "skip", "已跳过：休息日"),
        ("en", "run", ""),
    ],
)
async def test_the_preview_of_a_tasks_form_marks_what_its_calendar_does(
    api: Any, lang: str, when_closed: str, mark: str
) -> None:
    await api.good("PUT", "/calendars/c", {"closed": ["01-01"]})
    fields = {"when": "cron", "cron_expr": "0 9 1 1 *", "timezone": "UTC", "calendar_name": "c"}
    headers = {**HTML, **ORIGIN, "accept-language": lang}
    told = await api.call(
        "POST", "//tasks/preview", data={**fields, "calendar_when_closed": when_closed}, headers=headers
    )
    assert told.status == 200
    text = as_read(told.text)
    assert text.count("<li>") == 5
    marks = {each: text.count(each) for each in ("moved from", "移自", "skipped: closed day", "已跳过：休息日")}
    assert marks == {each: 5 if each == mark else 0 for each in marks}
    assert ("-01-02T09:00:00" in text) is (when_closed == "next_open_day")


async def test_the_preview_of_a_tasks_form_says_that_there_is_no_such_calendar(api: Any) -> None:
    fields = {"when": "cron", "cron_expr": "0 9 * * *", "calendar_name": "nowhere"}
    told = await api.call("POST", "//tasks/preview", data=fields, headers={**HTML, **ORIGIN})
    assert "there is no such calendar" in as_read(told.text)
