"""What a refused form of a task says, and a form without a schedule: over real HTTP."""

from __future__ import annotations

import re

from integration.web.asking import get, post


async def test_a_new_task_without_a_schedule_is_created_as_one_on_demand_as_the_preview_says(api):
    form = {"name": "by-hand", "kind": "http", "when": "cron", "cron_expr": "", "target_url": "http://127.0.0.1/x"}
    status, _, text = await post(api, "/tasks/preview", form)
    assert (status, "No schedule" in text) == (200, True)
    status, where, text = await post(api, "/tasks/new", {**form, "enabled": "on"})
    assert status == 303, text
    task = await api.good("GET", where)
    assert (task["name"], task["schedule"], task["status"]) == ("by-hand", None, "ENABLED")


async def test_a_schedule_is_not_taken_away_by_emptying_its_field_and_the_preview_says_so(api):
    task = await api.create(name="nightly", cron_expr="0 2 * * *")
    emptied = {"task_id": str(task), "name": "nightly", "kind": "http", "when": "cron", "cron_expr": ""}
    _, _, preview = await post(api, "/tasks/preview", emptied)
    assert "No schedule" not in preview
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
