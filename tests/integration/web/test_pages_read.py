"""What pages must not say or do, found by looking at pictures of them (decision 0101)."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from integration.web.asking import get
from noonbell import yaml_text
from noonbell.service.task_files import written
from noonbell.web.render import coded

TASKS = (
    ({"target_url": "http://127.0.0.1:9/run", "cron_expr": "0 2 * * *"}, ("dialect", "repeat", "source", "exec_type")),
    (
        {"target_url": None, "amqp": {"url": "amqp://127.0.0.1:9/", "exchange": "orders", "routing_key": "made"}},
        ("callback", "content_encoding", "dialect"),
    ),
    (
        {"target_url": "http://127.0.0.1:9/run", "sla": {"finish_by": "06:00"}},
        ("finish_within_seconds", "success_ratio"),
    ),
    (
        {"target_url": None, "job_type": "render", "queue": "pdf"},
        ("exclude", "ok_codes", "quiet", "retry_policy", "schedules", "specific_worker_ids"),
    ),
)


@pytest.mark.parametrize(("fields", "defaults"), TASKS, ids=["cron", "amqp", "sla", "job"])
async def test_the_configuration_tab_leaves_defaults_out_as_it_says(fields, defaults, api):
    task = await api.create(name="plain", **fields)
    page = await get(api, f"/tasks/{task}/configuration")
    definition = re.search(r'class="copy" data-copy="(\{.*?\})">', page, re.DOTALL)[1]
    assert '"name"' in definition
    assert [name for name in defaults if f'"{name}"' in definition] == []
    # The same as `noonbell export` makes of the answer of the API.
    assert json.loads(html.unescape(definition)) == written(await api.good("GET", f"/tasks/{task}"))


async def test_the_export_of_the_list_leaves_defaults_out_too(api):
    await api.create(name="plain", target_url=None, job_type="render", queue="pdf")
    text = (await api.call("GET", "//tasks/export", headers={"accept": "text/html"})).text
    assert yaml_text.read(text) == {"tasks": [{"name": "plain", "job_type": "render", "queue": "pdf"}]}


def test_what_stands_between_backticks_is_code_and_the_rest_is_escaped():
    assert coded("as `a < b` and <i>") == "as <code>a &lt; b</code> and &lt;i&gt;"


async def test_the_command_that_makes_the_first_task_is_one_command_for_the_shell(api):
    page = await get(api, "/tasks")
    command = re.search(r'data-copy="(curl -X POST.*?)">', page, re.DOTALL)[1]
    lines = command.split("\n")
    assert all(line.endswith("\\") for line in lines[:-1])
    assert "/api/v1/tasks" in lines[0]


async def test_a_long_list_of_what_needs_attention_is_folded_after_six(api):
    for number in range(8):
        await api.trigger(await api.create(name=f"fails-{number}"))
        await api.finish(await api.claim(), "FAILED", error_message="answered 503")
    page = await get(api, "/")
    listed = re.search(r'data-live="attention".*?</section>', page, re.DOTALL)[0]
    shown, folded = listed.split('<details class="more-needs">')
    assert shown.count("<li>") == 6
    count = folded.count("<li>")
    assert f"Show {count} more" in folded
    assert f"{6 + count} things need attention" in shown


async def test_a_task_without_runs_has_no_empty_table(api):
    task = await api.create(name="new")
    assert re.search(r'<div data-live="runs-table" hidden>', await get(api, f"/tasks/{task}"))
    await api.trigger(task)
    assert not re.search(r'<div data-live="runs-table" hidden>', await get(api, f"/tasks/{task}"))


async def test_waiting_runs_of_a_queue_are_not_said_to_be_counted_when_they_end(api):
    await api.good("PUT", "/queues/mail", {"concurrency": 2})
    depth = (await get(api, "/queues/mail")).split('data-live="depth"')[1].partition("</section>")[0]
    assert "counted when they ended" not in depth


async def test_the_activity_page_has_no_path_and_no_python_of_a_bulk_operation(api):
    await api.good("POST", "/bulk", {"kind": "cancel_runs", "filter": {"task": "none"}})
    page = await get(api, "/activity")
    assert 'filter: {"task": "none"}' in page
    assert "change: {}" not in page
    assert re.search(r'href="\./bulk/(\d+)">Bulk operation \1<', page)


async def test_hours_are_hours_in_chinese(api):
    await api.create(name="daily", cron_expr="0 2 * * *")
    page = await get(api, "/tasks", lang="zh")
    assert re.search(r"\d+ (小时|分)", page)
    assert not re.search(r"\d+ 时 ", page)


@pytest.mark.parametrize(("lang", "clock"), [("en", "24-hour clock"), ("zh", "24 小时制")])
async def test_fields_for_a_moment_have_a_clock_of_24_hours_in_every_browser(api, lang, clock):
    task = await api.create(name="daily", cron_expr="0 2 * * *")
    paths = (
        f"/tasks/{task}?at=2026-11-19T16:05:00Z",
        "/activity?from=2026-11-19T16:05",
        "/timeline",
        "/timeline?view=load",
    )
    for path in paths:
        text = await get(api, path, lang)
        assert 'type="datetime-local"' not in text, path
        assert clock in text, path
        assert re.search(r'<span class="moment"><input[^>]* value="20\d\d-\d\d-\d\d \d\d:\d\d[^"]*"', text), path
    assert 'value="2026-11-19 16:05:00Z"' in await get(api, paths[0], lang), "its offset is kept"
    assert await get(api, f"/tasks/{task}?at=2026-11-19 16:05", lang)


async def test_a_job_has_a_payload_and_a_result_and_no_tab_for_callbacks(api):
    def tabs(page: str) -> list[str]:
        return [word.strip() for word in re.findall(r'data-pane="\w+"[^>]*>([^<]*)', page)]

    job = await api.create(name="resize", job_type="resize", queue="img", target_url=None)
    run = await api.trigger(job, payload={"a": 1})
    assert tabs(await get(api, f"/runs/{run}")) == ["Payload", "Result", "Log", "Raw"]
    call = await api.trigger(await api.create(name="call"))
    assert tabs(await get(api, f"/runs/{call}")) == ["Request", "Response", "Log", "Raw"]
    assert "Callback" in tabs(await get(api, f"/runs/{call}?show=callback"))
    waits = await api.trigger(await api.create(name="waits", exec_type="ASYNC"))
    assert tabs(await get(api, f"/runs/{waits}")) == ["Request", "Response", "Callback", "Log", "Raw"]


async def test_what_a_run_says_of_its_progress_is_told_apart_by_spaces(api):
    run = await api.trigger(await api.create(name="long"))
    lease = await api.claim()
    held = {"worker_id": lease.worker_id, "token": lease.token}
    await api.good("POST", f"/runs/{run}/progress", {**held, "current": 86, "total": 120, "message": "page 86"})
    page = await get(api, f"/runs/{run}")
    line = re.sub(r"<[^>]*>", "", re.search(r'<p class="progress-line">(.*?)</p>', page, re.DOTALL)[1]).strip()
    assert re.fullmatch(r"71\.7 % · 86 / 120( · about .*? left)? · page 86", line), line


async def test_a_failure_is_said_to_be_as_old_as_it_is_and_not_as_its_slot(api):
    """A backfill or a retry repeats a slot of days ago: what failed, failed now."""
    task = await api.create(name="late-news", cron_expr="0 2 * * *", retry_policy={"max_retries": 0})
    begin, end = (f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%d}T01:00:00Z" for days in (4, 3))
    day = {"from": begin, "to": end}
    assert (await api.good("POST", f"/tasks/{task}/backfill", day))["created"] == 1
    await api.finish(await api.claim(), "FAILED", error_message="no")
    why = (await get(api, f"/tasks/{task}")).split('data-live="why"')[1].partition("</section>")[0]
    needs = (await get(api, "/")).split('data-live="attention"')[1].partition("</section>")[0]
    for text in (why, needs):
        assert re.search(r'class="relative"[^>]*>(now|\d+ s ago)<', text), text
        assert "d ago" not in text


async def test_a_run_that_is_not_due_yet_says_when_it_will_be(api):
    task = await api.create(name="later")
    run = await api.trigger(task, delay_seconds=3_600)
    for path in ("/runs", f"/tasks/{task}", f"/runs/{run}"):
        assert re.search(r"Due(</dt><dd>)? ?<span class=\"time\"><span[^>]*>in (1 h|59 m)", await get(api, path)), path
    page = await get(api, f"/runs/{run}")
    assert "not drawn to scale" not in page


async def test_what_executes_is_not_pushed_off_the_list_by_retries(api):
    flaky = await api.create(name="flaky", max_concurrency=None, retry_policy={"max_retries": 3})
    first = await api.trigger(flaky)
    await api.claim()
    for _ in range(9):
        await api.trigger(flaky)
        await api.retry(await api.claim(), error_message="no")
    listed = (await get(api, "/")).split('data-live="going"')[1].partition("</section>")[0]
    assert listed.index(f"/runs/{first}") < listed.index('data-status="RETRYING"')


async def test_the_minutes_in_which_most_starts_fall_are_the_same_over_a_week_as_over_a_day(api):
    for number in range(3):
        await api.create(name=f"t{number}", cron_expr="*/10 * * * *")
    day = await get(api, "/timeline")
    week = await get(api, "/timeline?span=7d")
    assert "3 tasks in one minute" in day
    assert "3 tasks in one minute" in week
    assert "Of the next 12 hours." in week
    assert "Of the next 12 hours." not in day


async def test_dates_on_the_axis_are_written_as_everywhere_else(api):
    axis = (await get(api, "/timeline?from=2026-11-15T08:00&to=2026-11-17T14:00&zone=UTC")).split("ticks-line")[1]
    assert ">16 Nov<" in axis.partition("</svg>")[0]


async def test_a_flow_has_a_payload_and_a_result(api):
    step = {"id": "one", "target_url": "http://127.0.0.1:9/"}
    flow = await api.create(name="flow", steps=[step], target_url=None)
    page = await get(api, f"/runs/{await api.trigger(flow)}")
    words = [word.strip() for word in re.findall(r'data-pane="\w+"[^>]*>([^<]*)', page)]
    assert words == ["Payload", "Result", "Log", "Raw"]


async def test_one_waits_with_its_key_and_one_run_per_key_is_one(api):
    task = await api.create(name="import", target_url=None, job_type="import", queue="q", concurrency_key="payload.t")
    for _ in range(2):
        await api.trigger(task, payload={"t": "acme"})
    assert "1 held by its key" in await get(api, "/queues")
    assert "At most 1 run per key at a time" in await get(api, f"/tasks/{task}")


async def test_a_channel_without_a_secret_is_not_called_a_task(api):
    channels = (await get(api, "/settings/secrets")).split('id="of-channels"')[1].partition("</section>")[0]
    assert "No channel has a secret." in channels


@pytest.mark.parametrize(("lang", "window"), [("en", "succeed in 28 d"), ("zh", "28 天 内成功率")])
async def test_the_window_of_a_service_level_is_told_as_other_spans(api, lang, window):
    await api.create(name="promised", sla={"success_ratio": 0.99})
    assert window in await get(api, "/sla", lang)


async def test_rules_channels_and_workers_in_the_audit_log_lead_to_their_pages(api):
    await api.good("POST", "/alerts/channels", {"name": "hook", "url": "http://127.0.0.1:9/"}, 201)
    await api.good("POST", "/alerts/rules", {"name": "fails", "kind": "failed"}, 201)
    page = await get(api, "/activity")
    assert 'href="./settings/channels/hook"' in page
    assert 'href="./settings/rules/fails"' in page


async def test_the_form_of_a_backfill_has_the_name_of_the_task_that_a_link_names(api):
    task = await api.create(name="daily", cron_expr="0 2 * * *")
    assert re.search(r'name="task"[^>]* value="daily"', await get(api, f"/timeline/backfill?task={task}"))


async def test_a_filter_with_one_unknown_word_says_that_word(api):
    assert "is 'NO'; expected one or more of" in (
        await api.call("GET", "//runs?status=NO", headers={"accept": "text/html"})
    ).text.replace("&#39;", "'")


@pytest.mark.parametrize(("lang", "language"), [("en", "en"), ("zh", "zh")])
async def test_the_messages_of_a_new_channel_are_in_the_language_of_the_page(api, lang, language):
    assert (
        f'<option value="{language}" selected>'
        in (await get(api, "/settings/new/channel", lang)).split('id="f-language"')[1]
    )
