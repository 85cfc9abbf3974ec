"""Calendars over the API: what is refused, what a change shows and does, and sources that are fetched."""

from __future__ import annotations

import asyncio
import builtins
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from datetime import date
from typing import Any

import icalendar
import pytest
import recurring_ical_events

from integration.api.serving import Api
from integration.api.stations import bureau
from noonbell.clock import rfc3339
from noonbell.errors import InvalidArgument, InvalidId
from noonbell.model.request import RunQuery
from noonbell.model.run import RunStatus, SkipReason
from noonbell.service.calendars import CalendarRefresh, checked_name, days_of_file, in_ranges
from noonbell.service.translation import Translator, exchange_words, problem_words

CHINA = {
    "timezone": "Asia/Shanghai",
    "closed_weekdays": [0, 6],
    "closed": ["2030-10-01/2030-10-07"],
    "open": ["2030-10-12"],
}


def ics(*days: str) -> bytes:
    events = [
        f"BEGIN:VEVENT\r\nUID:{day}\r\nDTSTAMP:20260101T000000Z\r\nDTSTART;VALUE=DATE:{day}\r\nEND:VEVENT\r\n"
        for day in days
    ]
    return ("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:t\r\n" + "".join(events) + "END:VCALENDAR\r\n").encode()


class Source:
    """A server of one file."""

    def __init__(self) -> None:
        self.body, self.status, self.asked = ics("20271225"), 200, 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        writer.write(
            f"HTTP/1.1 {self.status} X\r\nContent-Length: {len(self.body)}\r\nConnection: close\r\n\r\n".encode()
        )
        writer.write(self.body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def source() -> AsyncIterator[tuple[Source, str]]:
    made = Source()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield made, f"http://127.0.0.1:{port}/days.ics"
    server.close()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"closed": ["2026-02-30"]}, "closed[0]"),
        ({"closed": ["2026-10-07/2026-10-01"]}, "closed[0]"),
        ({"open": ["tomorrow"]}, "open[0]"),
        ({"closed_weekdays": [7]}, "closed_weekdays[0]"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"ical": {"url": "file:///etc/passwd"}}, "ical.url"),
        ({"ical": {"url": "http://user:pw@example.com/x"}}, "ical.url"),
        ({"ical": {"url": "http://169.254.169.254/x.ics"}}, "ical.url"),
        ({"ics": "no calendar"}, "ics"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_saved(quick_api: Api, body: dict[str, Any], field: str) -> None:
    told = await quick_api.call("PUT", "/calendars/c", body)
    assert told.status == 400, told.text
    assert list(told.body["details"]) == [field]
    assert (await quick_api.good("GET", "/calendars"))["items"] == []


async def test_a_calendar_is_made_read_used_and_deleted(quick_api: Api) -> None:
    api = quick_api
    made = await api.good("PUT", "/calendars/china", CHINA)
    assert (made["revision"], made["changed"], made["closed"]) == (1, True, CHINA["closed"])
    days = (await api.good("GET", "/calendars/china/days?from=2030-09-30&count=14"))["items"]
    assert [day["day"] for day in days if day["open"]] == [
        *("2030-09-30", "2030-10-08", "2030-10-09", "2030-10-10", "2030-10-11", "2030-10-12"),
    ]
    task = await api.create(name="t", cron_expr="0 9 * * *", calendar={"name": "china", "when_closed": "next_open_day"})
    assert (await api.good("GET", f"/tasks/{task}"))["calendar"] == {
        "name": "china", "when_closed": "next_open_day", "invert": False,
    }  # fmt: skip
    refused = await api.call("DELETE", "/calendars/china")
    assert (refused.status, refused.body["code"]) == (409, "INVALID_STATE")
    assert refused.body["message"] == "calendar 'china' is used by 't'; remove it from them first"
    assert refused.body["details"] == {"tasks": [task], "count": 1}
    await api.good("PATCH", f"/tasks/{task}", {"calendar": None})
    await api.good("DELETE", "/calendars/china")
    assert (await api.call("GET", "/calendars/china")).status == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron_expr": "0 9 * * *", "calendar": {"name": "nowhere"}}, "calendar.name"),
        ({"calendar": {"name": "c"}}, "calendar"),
        ({"cron_expr": "0 9 * * *", "calendar": {"name": "c", "when_closed": "never"}}, "calendar.when_closed"),
        ({"schedule": {"type": "interval", "every": 5, "unit": "minute", "mode": "fixed_delay"}, "calendar": {"name": "c"}}, "calendar"),
    ],
)  # fmt: skip
async def test_a_task_that_cannot_keep_to_a_calendar_is_refused(
    quick_api: Api, fields: dict[str, Any], field: str
) -> None:
    await quick_api.good("PUT", "/calendars/c", {})
    told = await quick_api.call("POST", "/tasks", {"name": "t", "target_url": "http://127.0.0.1/", **fields})
    assert told.status == 400, told.text
    assert list(told.body["details"]) == [field]


async def test_a_preview_shows_the_slots_that_the_change_then_moves(quick_api: Api) -> None:
    api = quick_api
    await api.good("PUT", "/calendars/c", {})
    task = await api.create(name="t", cron_expr="0 9 * * *", calendar={"name": "c", "when_closed": "next_open_day"})
    coming = (await api.good("GET", f"/tasks/{task}/next?count=4"))["next_fires"]
    day = coming[1]["utc"][:10]
    found = await api.good("POST", "/calendars/c/preview?days=30", {"closed": [day]})
    (move,) = found["moves"]
    assert (move["task_id"], move["slot"], move["before"], move["after"]) == (
        task, coming[1]["utc"], coming[1]["utc"], coming[2]["utc"],
    )  # fmt: skip
    assert (await api.good("GET", "/calendars/c"))["revision"] == 1
    saved = await api.good("PUT", "/calendars/c", {"closed": [day]})
    assert saved["changed_tasks"] == [task]
    after = (await api.good("GET", f"/tasks/{task}/next?count=3"))["next_fires"]
    assert after[1] == {"utc": coming[2]["utc"], "local": coming[2]["local"], "moved_from": coming[1]["utc"]}
    assert after[2]["utc"] == coming[2]["utc"]
    assert (await api.good("POST", "/calendars/c/preview", {"closed": [day]}))["changes"] is False


@pytest.mark.parametrize("source", ["BEGIN:VCALENDAR", {}, {"url": "ftp://x"}, {"url": "http://u:p@h/"}])
async def test_a_wrong_source_has_one_problem(quick_api: Api, source: object) -> None:
    told = await quick_api.call("PUT", "/calendars/c", {"ical": source})
    assert list(told.body["details"]) == ["ical" if isinstance(source, str) else "ical.url"]
    assert "characters" not in told.text


@pytest.mark.parametrize("name", ["a%2Fb", "%20a", "x" * 101])
async def test_a_name_that_no_address_can_have_is_refused(quick_api: Api, name: str) -> None:
    told = await quick_api.call("PUT", f"/calendars/{name}", {})
    assert (told.status, told.body["code"]) == (400, "INVALID_ID"), told.text


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_clients_resolve_in_an_address_is_refused(name: str) -> None:
    with pytest.raises(InvalidId):
        checked_name(name)


async def test_a_stale_revision_is_refused(quick_api: Api) -> None:
    await quick_api.good("PUT", "/calendars/c", {})
    told = await quick_api.call("PUT", "/calendars/c", {"closed": ["01-01"]}, headers={"if-match": '"7"'})
    assert (told.status, told.body["code"]) == (412, "VERSION_CONFLICT")


async def test_a_source_is_fetched_and_its_last_good_copy_stays(quick_api: Api, source: tuple[Source, str]) -> None:
    server, url = source
    made = await quick_api.good("PUT", "/calendars/uk", {"ical": {"url": url, "refresh_seconds": 300}})
    assert made["ical_days"] == ["2027-12-25"]
    server.body = ics("20271225", "20280101")
    refreshed = await quick_api.good("POST", "/calendars/uk/refresh")
    assert (refreshed["ical_days"], refreshed["revision"]) == (["2027-12-25", "2028-01-01"], 2)
    for status, body, chinese in (
        (500, b"broken", "对方返回 500 X；应为 200"),
        (200, b"no calendar", None),
        (200, b"x" * ((1 << 20) + 1), "大于 1048576 字节"),
    ):
        server.status, server.body = status, body
        told = await quick_api.call("POST", "/calendars/uk/refresh")
        assert told.status == 400, told.text
        stands = await quick_api.good("GET", "/calendars/uk")
        assert (stands["ical_days"], stands["revision"]) == (["2027-12-25", "2028-01-01"], 2)
        assert told.body["details"] == {"ical.url": stands["ical_error"]}
        assert "ical.url" not in stands["ical_error"]
        assert exchange_words(stands["ical_error"], Translator("zh")) == (chinese or stands["ical_error"])
    server.status, server.body = 200, ics("20271225", "20280101")
    assert (await quick_api.good("POST", "/calendars/uk/refresh"))["ical_error"] is None


async def test_a_source_that_cannot_be_fetched_is_refused_where_there_is_no_copy(
    quick_api: Api, source: tuple[Source, str]
) -> None:
    server, url = source
    server.status = 404
    told = await quick_api.call("PUT", "/calendars/uk", {"ical": {"url": url}})
    assert (told.status, list(told.body["details"])) == (400, ["ical.url"])
    assert (await quick_api.call("GET", "/calendars/uk")).status == 404


async def test_the_loop_fetches_what_is_due_and_nothing_else(quick_api: Api, source: tuple[Source, str]) -> None:
    server, url = source
    await quick_api.good("PUT", "/calendars/uk", {"ical": {"url": url}})
    loop = CalendarRefresh(quick_api.parts.services.calendars)
    await loop.tick()
    assert server.asked == 1
    await quick_api.store.note_refresh("uk", None, await quick_api.store.now())
    server.status = 503
    await loop.tick()
    assert server.asked == 2
    assert "503" in (await quick_api.good("GET", "/calendars/uk"))["ical_error"]
    await loop.tick()
    assert server.asked == 2


@pytest.mark.parametrize("rule", ["FREQ=DAILY;INTERVAL=0", "FREQ=YEARLY;INTERVAL=-1", "FREQ=YEARLY;INTERVAL=0;COUNT=3"])
def test_an_event_that_repeats_without_getting_on_is_refused(rule: str) -> None:
    text = ics("20271225").replace(b"END:VEVENT", f"RRULE:{rule}\r\nEND:VEVENT".encode())
    reading = (
        "import sys, datetime; from noonbell.service.calendars import days_of_file;"
        "days_of_file(sys.stdin.buffer.read(), datetime.date(2026, 11, 15))"
    )
    # In a process of its own: read without the rule against it, such a file is read for ever.
    told = subprocess.run([sys.executable, "-c", reading], input=text, capture_output=True, timeout=60, check=False)
    assert b"ics: has an event that repeats with an INTERVAL below 1" in told.stderr


RULES = (
    *(
        "FREQ=YEARLY",
        "FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
        "FREQ=YEARLY;BYDAY=20MO",
    ),
    *(
        "FREQ=MONTHLY;BYMONTHDAY=31,-1",
        "FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1",
        "FREQ=WEEKLY;INTERVAL=3;WKST=SU;BYDAY=SU,MO",
    ),
    *(
        "FREQ=DAILY;INTERVAL=10;COUNT=500",
        "FREQ=YEARLY;BYWEEKNO=1,53;BYDAY=MO",
        "FREQ=YEARLY;INTERVAL=3;BYYEARDAY=1,-1",
    ),
    *(
        "FREQ=WEEKLY;UNTIL=20270301",
        "FREQ=WEEKLY;UNTIL=20270301T000000Z;BYDAY=FR",
        "FREQ=MONTHLY;COUNT=3",
        "FREQ=DAILY;COUNT=0",
    ),
    *("FREQ=YEARLY;UNTIL=19500101", "FREQ=MONTHLY;INTERVAL=12;BYMONTH=2"),
)


def repeated(rules: Iterable[str], begin: str = "20241225") -> bytes:
    events = "".join(
        f"BEGIN:VEVENT\r\nUID:{number}\r\nDTSTAMP:20260101T000000Z\r\nDTSTART;VALUE=DATE:{begin}\r\nSUMMARY:off\r\n"
        f"RRULE:{rule}\r\nEND:VEVENT\r\n"
        for number, rule in enumerate(rules)
    )
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:t\r\n{events}END:VCALENDAR\r\n".encode()


@pytest.mark.parametrize("begin", ["20241225", "20200229", "19720131", "20400101"])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_names_the_days_that_the_library_finds(rule: str, begin: str) -> None:
    text = repeated([rule], begin)
    found = recurring_ical_events.of(icalendar.Calendar.from_ical(text)).between(date(2025, 1, 1), date(2032, 1, 1))
    assert days_of_file(text, date(2026, 11, 15)) == in_ranges({event["DTSTART"].dt for event in found})


def test_moved_and_left_out_days_of_a_rule_are_heeded() -> None:
    text = repeated(["FREQ=YEARLY"]).replace(
        b"RRULE", b"EXDATE;VALUE=DATE:20261225\r\nRDATE;VALUE=DATE:20260704\r\nRRULE"
    )
    moved = repeated(["FREQ=YEARLY"], "20270102").replace(b"RRULE:FREQ=YEARLY", b"RECURRENCE-ID;VALUE=DATE:20271225")
    whole = text.replace(b"END:VCALENDAR\r\n", moved.partition(b"PRODID:t\r\n")[2])
    assert days_of_file(whole, date(2026, 11, 15)) == (
        *("2025-12-25", "2026-07-04", "2027-01-02", "2028-12-25", "2029-12-25", "2030-12-25", "2031-12-25"),
    )


@pytest.mark.parametrize(
    ("rules", "begin", "why"),
    [
        (["FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"] * 200, "20200101", "takes too long to follow"),
        (["FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"], "00010101", "takes too long to follow"),
        (["FREQ=DAILY"] * 200, "20250101", "makes too many events"),
        ([f"FREQ=YEARLY;BYYEARDAY={','.join(['59'] * 200)}"], "20250101", "takes too long to follow"),
    ],
)
def test_rules_that_would_take_long_are_refused_by_name(rules: list[str], begin: str, why: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidArgument, match=r"has the rule FREQ=\w+.* of 'off', which") as refused:
        days_of_file(repeated(rules, begin), date(2026, 11, 15))
    assert why in refused.value.message
    assert problem_words(refused.value.sentences["ics"], Translator("zh")).startswith("中 'off' 的规则 FREQ=")
    assert time.process_time() - began < 20  # it was eight minutes for the first of them


def test_a_rule_that_names_no_day_closes_none() -> None:
    began = time.process_time()
    text = repeated(["FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"] * 20, "20200101")
    assert days_of_file(text, date(2026, 11, 15)) == ()
    assert time.process_time() - began < 10  # it was fifty seconds


async def test_without_the_extra_the_error_names_what_installs_it(
    quick_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *given: Any, **more: Any) -> Any:
        if name in ("icalendar", "recurring_ical_events"):
            raise ModuleNotFoundError(name=name)
        return real(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    told = await quick_api.call("PUT", "/calendars/c", {"ics": ics("20270101").decode()})
    assert told.status == 400
    assert "pip install 'noonbell[ical]'" in told.body["message"]


DAILY = {"cron_expr": "0 9 * * *"}
OFFICE = {"closed_weekdays": [0, 6], "closed": ["2026-01-05"], "open": ["2026-01-10"]}
"""Open from the 2nd of January 2026, a Friday, on: the 2nd, the 6th to the 10th."""


def nine(day: str) -> str:
    return f"2026-01-{day}T09:00:00Z"


@pytest.mark.parametrize(
    ("use", "fires", "skipped"),
    [
        ({"when_closed": "skip"}, "02 06 07 08 09 10", "03 04 05"),
        ({"when_closed": "next_open_day"}, "02 06<03 06<04 06<05 06 07 08 09 10", ""),
        ({"when_closed": "previous_open_day"}, "02 02<03 02<04 02<05 06 07 08 09 10 10<11", ""),
        ({"when_closed": "run"}, "02 03 04 05 06 07 08 09 10", ""),
        ({"when_closed": "skip", "invert": True}, "03 04 05", "02"),
        ({"when_closed": "next_open_day", "invert": True}, "03<02 03 04 05", ""),
    ],
    ids=lambda each: "-".join(map(str, each.values())) if isinstance(each, dict) else "",
)
async def test_the_preview_the_task_the_timeline_and_the_planner_name_the_same_slots(
    use: dict[str, Any], fires: str, skipped: str
) -> None:
    pairs = [(nine(at), nine(slot or at)) for at, _, slot in (each.partition("<") for each in fires.split())]
    closed = [nine(day) for day in skipped.split()]
    calendar = {"name": "office", **use}
    async with bureau(now="2026-01-01T10:00:00Z") as there:
        api = there.api
        await api.good("PUT", "/calendars/office", OFFICE)
        asked = {**DAILY, "calendar": calendar, "count": len(pairs)}
        told = await api.good("POST", "/schedules/preview", asked)
        assert _pairs(told["next_fires"]) == pairs
        assert [each["utc"] for each in told["skipped"]] == closed
        catch_up = {"misfire_policy": "CATCH_UP_LIMITED", "catchup_limit": 10, "max_concurrency": None}
        task = await api.create(**DAILY, calendar=calendar, **catch_up)
        coming = await api.good("GET", f"/tasks/{task}/next?count={len(pairs)}")
        assert coming["next_fires"] == told["next_fires"]
        last = pairs[-1][0]
        timeline = await api.good("GET", f"/timeline?from=2026-01-01T10:00:00Z&to={last}")
        assert timeline["items"][0]["planned"] == [at for at, _ in pairs]
        for day in range(2, int(last[8:10]) + 1):
            await there.at(nine(f"{day:02}"))
        runs = (await there.store.runs(RunQuery(task_id=task, sort="id", page_size=100))).items  # type: ignore[arg-type]
    due = [
        (rfc3339(run.moved_to or run.scheduled_time), rfc3339(run.scheduled_time))
        for run in runs
        if run.status is not RunStatus.SKIPPED
    ]
    assert sorted(due) == pairs
    assert [rfc3339(run.scheduled_time) for run in runs if run.skip_reason is SkipReason.CALENDAR] == closed


def _pairs(fires: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(each["utc"], each.get("moved_from", each["utc"])) for each in fires]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({**DAILY, "calendar": {"name": "nowhere"}}, "calendar.name"),
        ({**DAILY, "calendar": {"name": "c", "when_closed": "never"}}, "calendar.when_closed"),
        ({**DAILY, "calendar": {"when_closed": "run"}}, "calendar.name"),
        ({**DAILY, "calendar": "c"}, "calendar"),
        ({"calendar": {"name": "c"}}, "schedule"),
        ({"schedule": {"type": "interval", "every": 5, "unit": "minute", "mode": "fixed_delay"}, "calendar": {"name": "c"}}, "calendar"),
    ],
)  # fmt: skip
async def test_a_preview_under_a_calendar_that_cannot_be_is_refused(
    quick_api: Api, asked: dict[str, Any], field: str
) -> None:
    await quick_api.good("PUT", "/calendars/c", {})
    told = await quick_api.call("POST", "/schedules/preview", asked)
    assert told.status == 400, told.text
    assert list(told.body["details"]) == [field]


async def test_a_preview_takes_the_days_of_the_calendars_clock_and_the_repeat_count(quick_api: Api) -> None:
    await quick_api.good("PUT", "/calendars/china", CHINA)
    schedule = {"type": "cron", "expr": "0 23 * * *", "repeat": 3}
    asked = {"schedule": schedule, "calendar": {"name": "china"}, "from": "2030-10-06T12:00:00Z", "count": 10}
    told = await quick_api.good("POST", "/schedules/preview", asked)
    assert [each["utc"] for each in told["next_fires"]] == ["2030-10-07T23:00:00Z", "2030-10-08T23:00:00Z"]
    assert [each["utc"] for each in told["skipped"]] == ["2030-10-06T23:00:00Z"]
    plain = await quick_api.good("POST", "/schedules/preview", {**asked, "calendar": None})
    assert (len(plain["next_fires"]), "skipped" in plain) == (3, False)


async def test_a_preview_under_a_calendar_that_closes_every_slot_has_none(quick_api: Api) -> None:
    await quick_api.good("PUT", "/calendars/c", {"closed": ["01-01"]})
    asked = {"cron_expr": "0 9 1 1 *", "calendar": {"name": "c"}, "from": "2030-06-01T00:00:00Z", "count": 2}
    told = await quick_api.good("POST", "/schedules/preview", asked)
    assert told["next_fires"] == []
    assert [each["utc"] for each in told["skipped"]] == ["2031-01-01T09:00:00Z", "2032-01-01T09:00:00Z"]
