"""What a refused form of a task says, and a form without a schedule: over real HTTP."""

from __future__ import annotations

import re

import pytest

from integration.web.asking import HTML, as_read, field, get, post
from integration.web.test_form_keeps import Form


async def test_an_empty_expression_is_refused_and_names_the_way_to_a_task_without_a_schedule(api):
    form = {"name": "by-hand", "kind": "http", "when": "cron", "cron_expr": "", "target_url": "http://127.0.0.1/x"}
    status, _, preview = await post(api, "/tasks/preview", form)
    assert (status, "choose No schedule" in preview, "on demand" in preview) == (200, True, False)
    status, _, text = await post(api, "/tasks/new", {**form, "enabled": "on"})
    assert (status, "choose No schedule" in field(text, "cron_expr")) == (400, True)
    assert (await api.good("GET", "/tasks?name=by-hand"))["total"] == 0
    status, _, text = await post(api, "/tasks/yaml", form)
    assert (status, "name: by-hand" in text) == (200, True), "a new form can be continued as YAML"
    status, where, text = await post(api, "/tasks/new", {**form, "when": "none", "enabled": "on"})
    assert status == 303, text
    task = await api.good("GET", where)
    assert (task["name"], task["schedule"], task["status"]) == ("by-hand", None, "ENABLED")


@pytest.mark.parametrize("kind", [{"target_url": "http://127.0.0.1:9/x"}, {"job_type": "resize"}], ids=["http", "job"])
async def test_a_task_made_by_the_form_is_the_one_that_the_api_makes_of_the_same_words(api, kind):
    told = await api.call("GET", "//tasks/new", headers=HTML)
    chosen = {"kind": "job"} if "job_type" in kind else {}
    sent = {**Form(told.text).sent, **kind, **chosen, "name": "by-form", "when": "none"}
    status, where, text = await post(api, "/tasks/new", sent)
    assert status == 303, text
    by_form = await api.good("GET", where)
    made = await api.good("POST", "/tasks", {**kind, "name": "by-api"}, 201)
    by_api = await api.good("GET", f"/tasks/{made['id']}")
    own = {"id", "name", "created_at", "updated_at"}
    assert {k: v for k, v in by_form.items() if k not in own} == {k: v for k, v in by_api.items() if k not in own}


async def test_no_limit_of_concurrency_is_said_in_a_word_and_an_emptied_box_is_the_default(api):
    task = await api.create(name="wide", max_concurrency=None)
    page = await get(api, f"/tasks/{task}/edit")
    assert 'value="unlimited"' in field(page, "max_concurrency")
    sent = {"name": "wide", "kind": "http", "when": "none", "target_url": "http://127.0.0.1/x", "version": "1"}
    for box, limit in (("7", 7), ("Unlimited", None), ("", 1)):
        task_now = await api.good("GET", f"/tasks/{task}")
        sent |= {"max_concurrency": box, "version": str(task_now["version"])}
        status, _, text = await post(api, f"/tasks/{task}/edit", sent)
        assert status == 303, text
        assert (await api.good("GET", f"/tasks/{task}"))["max_concurrency"] == limit


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("every 10 seconds", "*/10 * * * * *"),
        ("every 45 minutes", "Press “Use it” to save an interval: Every 45 minutes"),
    ],
)
async def test_plain_words_are_refused_with_what_can_be_saved(api, words, said):
    form = {"name": "often", "kind": "http", "when": "cron", "cron_expr": words, "target_url": "http://127.0.0.1/x"}
    status, _, text = await post(api, "/tasks/new", form)
    assert (status, said in field(text, "cron_expr")) == (400, True), field(text, "cron_expr")


async def test_a_refused_form_opens_only_the_sections_with_a_problem(api):
    form = {"name": "", "kind": "http", "when": "none", "target_url": "ftp://x"}
    _, _, text = await post(api, "/tasks/new", form)
    assert re.findall("<details[^>]* open", text) == []
    _, _, text = await post(api, "/tasks/new", {**form, "max_retries": "many"})
    assert [re.search("<summary>(.*?)<", part)[1] for part in re.findall("<details[^>]* open>.*?</summary>", text)] == [
        "Failures and retries"
    ]


async def test_a_schedule_is_not_taken_away_by_emptying_its_field_and_the_preview_says_so(api):
    task = await api.create(name="nightly", cron_expr="0 2 * * *")
    emptied = {"task_id": str(task), "name": "nightly", "kind": "http", "when": "cron", "cron_expr": ""}
    _, _, preview = await post(api, "/tasks/preview", emptied)
    assert "on demand" not in preview
    assert 'class="problem"' in preview
    status, _, text = await post(api, f"/tasks/{task}/edit", {**emptied, "version": "1"})
    assert (status, 'href="#f-cron_expr"' in text) == (400, True)


async def test_a_refused_form_lists_on_top_what_is_wrong_with_links_to_the_fields(api):
    form = {"name": "", "kind": "http", "when": "cron", "cron_expr": "99 * * * *", "target_url": "ftp://x"}
    status, _, text = await post(api, "/tasks/new", form)
    assert status == 400
    summary = re.search(r'<section [^>]*id="problems".*?</section>', text, re.DOTALL)[0]
    assert re.findall(r'href="#f-(\w+)"', summary) == ["name", "target_url", "cron_expr"]
    assert 'tabindex="-1"' in summary
    assert "3 problems" in summary
    for name in ("name", "target_url", "cron_expr"):
        assert f'id="f-{name}"' in text
    assert 'id="problems"' not in await get(api, "/tasks/new")


async def test_a_problem_of_a_field_that_is_chosen_leads_to_the_choice(api):
    form = {"name": "x", "kind": "http", "when": "sometimes", "target_url": "http://127.0.0.1/x"}
    status, _, text = await post(api, "/tasks/new", form)
    assert (status, 'href="#f-when"' in text, 'id="f-when"' in text) == (400, True, True)


async def test_a_kind_that_is_none_is_refused_in_words(api):
    status, _, text = await post(api, "/tasks/new", {"name": "a", "kind": '"><img src=x>', "when": "cron"})
    assert status == 400
    assert 'id="problems"' in text
    assert "<img src=x>" not in text


ENGLISH = re.compile(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}")
WRONG = {
    "name": " a ",
    "kind": "http",
    "when": "cron",
    "cron_expr": "99 * * * *",
    "target_url": "nonsense",
    "timezone": "Berlin",
    "headers": "no colon",
    "max_concurrency": "many",
    "timeout_seconds": "0",
    "priority": "1e9",
    "labels": "team",
    "max_retries": "-2",
    "rate_limit_max": "0",
    "start_at": "tomorrow",
    "fanout_workers": "x",
}


async def test_what_is_wrong_with_a_form_is_told_in_chinese(api):
    chinese = {"accept-language": "zh-CN"}
    status, _, text = await post(api, "/tasks/new", WRONG, **chinese)
    summary = text.split('id="problems"')[1].split("</section>")[0]
    said = re.findall(r"<a href=\"#f-([a-z_]+)\">[^<]*</a>：(.*?)</li>", summary)
    assert status == 400
    assert {name for name, _ in said} >= {"headers", "labels", "max_concurrency"}
    assert [problem for _, problem in said if ENGLISH.search(problem)] == []
    fine = {**WRONG, "headers": "", "labels": "", "max_concurrency": "", "fanout_workers": "", "start_at": ""}
    found = set()
    for path in ("/tasks/new", "/tasks/preview"):
        text = (await post(api, path, {**fine, "name": "a"}, **chinese))[2]
        found |= set(re.findall(r"应为[^<]*", text))
    assert len(found) > 4, found
    assert [problem for problem in found if ENGLISH.search(problem)] == []
    for path, sent in (
        ("/settings/new/channel?kind=email", {"name": "a b", "kind": "email", "url": "x", "to": "y"}),
        ("/settings/new/channel?kind=telegram", {"name": "tg", "kind": "telegram", "url": "x", "to": ""}),
        ("/queues/q/limit", {"concurrency": "-1", "max": "x", "per_seconds": "0"}),
    ):
        status, _, text = await post(api, path, sent, **chinese)
        problems = re.findall(r'<p class="problem"[^>]*>(?:<svg.*?</svg>)?(.*?)</p>', text)
        assert (status, bool(problems)) == (400, True), path
        assert [problem for problem in problems if ENGLISH.search(problem)] == [], path
    text = (await post(api, "/tasks/new", {"name": "j", "kind": "job", "job_type": "x", "payload": "{"}, **chinese))[2]
    assert "不是 JSON" in field(text, "payload")


async def test_why_an_action_is_refused_is_told_in_chinese(api):
    chinese = {"accept-language": "zh-CN"}
    run = await api.trigger(await api.create(name="waits"))
    status, _, text = await post(api, f"/runs/{run}/retry", **chinese)
    assert (status, f"执行 {run} 的状态为“等待中”；只有已结束的执行才能重试" in text) == (409, True)
    told = await api.call(
        "POST", f"//runs/{run}/retry", headers={"origin": api.root, "accept": "application/json", **chinese}
    )
    assert told.body["error"] == f"执行 {run} 的状态为“等待中”；只有已结束的执行才能重试"
    for path, words in (("/runs/1", "该执行不存在"), ("/tasks/99", "没有该任务"), ("/calendars/x", "没有日历 'x'")):
        told = await api.call("GET", f"/{path}", headers={**HTML, **chinese})
        assert (told.status, words in as_read(told.text)) == (404, True), path
    assert await api.bad("POST", f"/runs/{run}/retry") == (409, "INVALID_STATE")


@pytest.mark.parametrize("path", ["/runs?status=foo", "/runs?sort=x", "/tasks?sort=x", "/calls?sort=x"])
async def test_what_is_wrong_with_a_filter_is_told_in_chinese(api, path):
    text = await get(api, path, "zh")
    problem = re.search(r'<p class="problem"[^>]*>(?:<svg.*?</svg>)?(.*?)</p>', text)
    assert problem is not None
    assert "应为" in problem[1]
    assert not ENGLISH.search(problem[1])
