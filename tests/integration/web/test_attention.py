"""What the overview says needs attention: each thing once, and each with something to do about it."""

from __future__ import annotations

import re

from conformance.store.rollup_scan import fold_all
from integration.api.serving import Api
from integration.support import publish_many
from integration.web.asking import get
from noonbell.model.request import ClaimRequest
from noonbell.model.run import RunStatus, Settlement, Transition
from noonbell.model.task import TaskId


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


async def test_failures_are_counted_to_the_last_one_and_hide_no_other_task(everywhere):
    api = everywhere
    quiet = await api.create(name="quiet", target_url=None, job_type="work", queue="q")
    await fail(api, quiet, 1)
    chatty = await api.create(name="chatty", target_url=None, job_type="work", queue="q")
    await fail(api, chatty, 230)
    for _ in range(2):  # before anything is added up, and after it
        found = {name: row for row in await rows(api) for name in ("quiet", "chatty") if f">{name}<" in row}
        assert "1 failure in 24 hours" in found["quiet"]
        assert "230 failures in 24 hours" in found["chatty"]
        await fold_all(api.store)
    await api.trigger(quiet)
    assert any(">quiet<" in row for row in await rows(api)), "a run that waits does not say that it is well again"


async def test_failing_tasks_beyond_those_listed_are_counted(api):
    for number in range(12):
        await fail(api, await api.create(name=f"t{number}", target_url=None, job_type="work", queue="q"), 1)
    for lang, more in (("en", "And 2 more failing tasks"), ("zh", "另有 2 个失败的任务")):
        text = await get(api, "/", lang)
        assert more in text
        assert re.search(r'id="attention">.*?</svg>[^<]*\b(\d+)\b', text)[1] == str(text.count("<li> <span") + 2)


async def fail(api: Api, task_id: int, runs: int) -> None:
    task = await api.store.task(TaskId(task_id))
    assert task is not None
    await publish_many(api.store, task, runs)
    claimed = await api.store.claim(ClaimRequest(worker_id="w", queues=("q",), max=runs, job_types=("work",)))
    assert len(claimed.leases) == runs
    ends = [
        Settlement(
            run_id=lease.run_id,
            token=lease.token,
            worker_id="w",
            transition=Transition.FINISH,
            status=RunStatus.FAILED,
            task_version=lease.task_version,
        )
        for lease in claimed.leases
    ]
    await api.store.settle(ends)


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
