"""Quiet hours by the API, in files and on pages."""

from __future__ import annotations

from typing import Any

import pytest

from integration.api.serving import Api
from integration.web.asking import post
from integration.web.test_form_keeps import Form

QUIET = {"from": "22:00", "to": "06:00", "days": ["mon", "sun"], "timezone": "Asia/Shanghai", "what": "skip"}
WHOLE = {"from": "00:00", "to": "12:00", "days": [], "timezone": None, "what": "hold"}


async def test_quiet_hours_are_kept_and_shown_as_they_were_written(api: Api) -> None:
    given = {"name": "night", "job_type": "x", "quiet": [QUIET, {"from": "00:00", "to": "12:00"}], "spread_seconds": 60}
    task = (await api.good("POST", "/tasks", given, 201))["id"]
    shown = await api.good("GET", f"/tasks/{task}")
    assert (shown["quiet"], shown["spread_seconds"]) == ([QUIET, WHOLE], 60)
    await api.good("PATCH", f"/tasks/{task}", {"description": "still quiet"})
    assert (await api.good("GET", f"/tasks/{task}"))["quiet"] == [QUIET, WHOLE]
    await api.good("PATCH", f"/tasks/{task}", {"quiet": []})
    assert (await api.good("GET", f"/tasks/{task}"))["quiet"] == []


@pytest.mark.parametrize(
    ("quiet", "field"),
    [
        ([{"from": "22:00"}], "quiet[0].to"),
        ([{"to": "22:00"}], "quiet[0].from"),
        ([{"from": "24:00", "to": "06:00"}], "quiet[0].from"),
        ([{"from": "10 pm", "to": "06:00"}], "quiet[0].from"),
        ([{"from": "06:00", "to": "06:00"}], "quiet[0].to"),
        ([{"from": "22:00", "to": "06:00", "days": ["monday"]}], "quiet[0].days[0]"),
        ([{"from": "22:00", "to": "06:00", "timezone": "Nowhere/At_All"}], "quiet[0].timezone"),
        ([{"from": "22:00", "to": "06:00", "what": "shout"}], "quiet[0].what"),
        ([{"from": "22:00", "to": "06:00", "until": 1}], "quiet[0].until"),
        ("at night", "quiet"),
    ],
)
@pytest.mark.parametrize("of_queue", [False, True], ids=["task", "queue"])
async def test_a_mistake_is_named_by_its_field_and_changes_nothing(
    api: Api, quiet: Any, field: str, of_queue: bool
) -> None:
    if of_queue:
        answer = await api.call("PUT", "/queues/default", {"quiet": quiet})
    else:
        answer = await api.call("POST", "/tasks", {"name": "night", "job_type": "x", "quiet": quiet})
    assert answer.status == 400, answer.text
    assert list(answer.body["details"]) == [field]
    assert (await api.good("GET", "/queues/default"))["quiet"] == []


async def test_a_queue_has_quiet_hours_and_its_page_keeps_them(api: Api) -> None:
    given = {"quiet": [QUIET], "spread_seconds": 30, "concurrency": 4}
    await api.good("PUT", "/queues/default", given)
    before = await api.good("GET", "/queues/default")
    assert (before["quiet"], before["spread_seconds"]) == ([QUIET], 30)
    page = await api.call("GET", "//queues/default", headers={"Accept": "text/html"})
    form = page.text[page.text.index("/queues/default/limit") :]
    sent = Form(f'<form id="task-form" action="{form}').sent
    assert sent["concurrency"] == "4"
    status, _, text = await post(api, "/queues/default/limit", sent)
    assert status == 303, text[-500:]
    assert await api.good("GET", "/queues/default") == before
    assert (await post(api, "/queues/default/limit", {**sent, "quiet": ""}))[0] == 303
    assert (await api.good("GET", "/queues/default"))["quiet"] == []


@pytest.mark.parametrize(
    ("lang", "said"),
    [("en", ["22:00–06:00", "Sat", "skipped: quiet hours"]), ("zh", ["22:00–06:00", "六", "静默时段"])],
)
async def test_the_page_of_a_queue_tells_its_quiet_hours_in_the_language_of_the_reader(
    api: Api, lang: str, said: list[str]
) -> None:
    hours = {"from": "22:00", "to": "06:00", "days": ["sat"], "what": "skip"}
    await api.good("PUT", "/queues/default", {"quiet": [hours]})
    page = await api.call("GET", "//queues/default", headers={"Accept": "text/html", "Accept-Language": lang})
    tag = page.text[page.text.index("22:00–06:00") :].partition("</span>")[0]
    assert [each for each in said if each not in tag] == []


async def test_the_next_slots_say_which_of_them_are_quiet(api: Api) -> None:
    quiet = [{"from": "22:00", "to": "06:00"}, {"from": "12:00", "to": "13:00", "what": "skip"}]
    given = {
        "name": "night",
        "job_type": "x",
        "timezone": "Asia/Shanghai",
        "cron_expr": "0 0,12,18 * * *",
        "quiet": quiet,
    }
    made = await api.good("POST", "/tasks", given, 201)
    told = (await api.good("GET", f"/tasks/{made['id']}/next?count=6"))["next_fires"]
    assert made["next_fires"] == told[:5]
    by_hour = {fire["local"][11:13]: fire for fire in told}
    assert by_hour["00"]["quiet"] == "hold"
    assert by_hour["00"]["quiet_until"] == f"{by_hour['00']['utc'][:11]}22:00:00Z", "06:00 in Shanghai"
    assert by_hour["12"]["quiet"] == "skip"
    assert by_hour["12"]["quiet_until"] == f"{by_hour['12']['utc'][:11]}05:00:00Z"
    assert set(by_hour["18"]) == {"utc", "local"}


async def test_a_preview_says_which_slots_are_quiet(quick_api: Api) -> None:
    given = {
        "cron_expr": "0 0 * * *",
        "count": 1,
        "from": "2026-11-15T12:00:00Z",
        "quiet": [{"from": "22:00", "to": "06:00"}],
    }
    (fire,) = (await quick_api.good("POST", "/schedules/preview", given))["next_fires"]
    assert (fire["utc"], fire["quiet"], fire["quiet_until"]) == (
        "2026-11-16T00:00:00Z",
        "hold",
        "2026-11-16T06:00:00Z",
    )
    answer = await quick_api.call("POST", "/schedules/preview", {**given, "quiet": [{"from": "22:00", "to": "22:00"}]})
    assert (answer.status, list(answer.body["details"])) == (400, ["quiet[0].to"])


async def test_the_form_of_a_channel_that_is_saved_unchanged_keeps_its_quiet_hours(api: Api) -> None:
    given = {"name": "ops", "url": "http://127.0.0.1:9/hook", "quiet": [QUIET, WHOLE], "spread_seconds": 90}
    await api.good("POST", "/alerts/channels", given, 201)
    before = await api.good("GET", "/alerts/channels/ops")
    page = await api.call("GET", "//settings/channels/ops", headers={"Accept": "text/html"})
    form = page.text[page.text.rindex("<form", 0, page.text.index('name="spread_seconds"')) :]
    sent = Form(form.replace("<form", '<form id="task-form"', 1)).sent
    assert sent["spread_seconds"] == "90"
    status, _, text = await post(api, "/settings/channels/ops", sent)
    assert status == 303, text[-500:]
    after = await api.good("GET", "/alerts/channels/ops")
    assert after["quiet"] == [QUIET, WHOLE]
    assert {**after, "updated_at": before["updated_at"]} == before
