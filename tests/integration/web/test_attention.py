"""What the overview says needs attention: each thing once, and each with something to do about it."""

from __future__ import annotations

import re

from integration.api.serving import Api
from integration.web.asking import get


async def rows(api: Api, lang: str = "en") -> list[str]:
    text = await get(api, "/", lang)
    listed = re.search(r'data-live="attention".*?</section>', text, re.DOTALL)[0]
    assert f"{len(re.findall('<li', listed))} " in re.search(r"<h2.*?</h2>", listed, re.DOTALL)[0]
    return re.findall(r"<li>.*?</li>", listed, re.DOTALL)


async def test_a_failing_task_with_an_alert_is_listed_once_with_the_name_of_the_rule(api):
    task = await api.create(name="fails")
    await api.good("POST", "/alerts/rules", {"name": "all-failures", "kind": "failed", "tasks": ["*"]}, 201)
    await api.trigger(task)
    lease = await api.claim()
    await api.finish(lease, "FAILED", error_message="answered 503", error_details={"kind": "http_5xx"})
    await api.parts.node._others["alerts"].tick()
    assert len((await api.good("GET", "/alerts"))["items"]) == 1
    (row,) = [each for each in await rows(api) if ">fails<" in each]
    assert "alert rule: all-failures" in row  # "rule failed" would say of a rule of that name that it has failed
    assert f"/runs/{lease.run_id}/retry" in row


async def test_a_problem_has_a_button_and_a_command_that_can_be_copied(api):
    task = await api.create(name="letters", target_url=None, job_type="send", queue="mail")
    await api.trigger(task)
    found = [row for row in await rows(api) if "mail" in row]
    assert len(found) == 1
    assert 'href="./queues/mail"' in found[0]
    command = re.search(r'data-copy="([^"]*)"', found[0])[1]
    assert command.startswith("noonbell worker --app MODULE:APP --queues mail --store ")
    assert "…" not in command
    await api.good("POST", "/queues/mail/pause")
    (paused,) = [row for row in await rows(api) if "mail" in row]
    assert "/queues/mail/resume" in paused


async def test_every_finding_leads_somewhere(api):
    await api.create(name="a", cron_expr="* * * * *")
    assert all('class="row-acts"' in row and "href=" in row.partition("row-acts")[2] for row in await rows(api))
