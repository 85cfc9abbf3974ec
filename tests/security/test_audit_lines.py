"""S27: every route of the API that changes something is really called, and leaves the line that is written here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from integration.api.serving import HTTP, JOB, Api, serving
from integration.api.stations import PLAN
from integration.support import execute
from integration.targets.sink import listening
from noonbell.cli import main
from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.model.access import AuditEntry, Role
from noonbell.model.alert import AlertState, AlertStep
from noonbell.settings import AuthSettings, ServerSettings
from noonbell.stores import open_store
from security.planting import parrot
from security.role_table import LEGACY_ROUTES, ROUTES

CLAIM = {"queues": ["default"], "max": 1, "wait_seconds": 0}
DAILY = {"plan_type": "day", "plan_value": 1, "plan_repet": -1}


class Story:
    """One caller who does one thing after the other; after each, the log is read."""

    def __init__(self, api: Api, secret: str) -> None:
        self.api, self._headers = api, {"Authorization": f"Bearer {secret}"}
        self.called: set[str] = set()
        self._read = 0

    async def does(self, line: str, body: Any = None, *, told: str | None, status: int = 200, **parts: Any) -> Any:
        """Call `line` of the table with its `{parts}`. `told`: the action of its one line in the log, None for no line."""
        method, path = line.split(" ")
        address = re.sub(r"\{(\w+)\}", lambda part: quote(str(parts[part[1]]), safe=""), path)
        answer = await self.api.call(method, f"/{address}", body, headers=self._headers)
        assert answer.status == status, (line, answer.text)
        self.called.add(line)
        log = await self.api.store.audit_log(None, 10)
        new = [(entry.deed.action, entry.deed.actor, entry.deed.peer) for entry in log if entry.id > self._read]
        assert new == ([] if told is None else [(told, "ada", "127.0.0.1")]), line
        self._read += len(new)
        return answer.body

    async def claims(self, worker: str = "w1") -> Any:
        claimed = await self.does("POST /api/v1/workers/{worker_id}/claim", CLAIM, told=None, worker_id=worker)
        (run,) = claimed["runs"]
        return run


@pytest.fixture
async def story() -> AsyncIterator[Story]:
    server = ServerSettings(legacy_api=True)
    async with serving("memory://", auth=AuthSettings(enabled=True), server=server) as api:
        _, secret = await api.parts.access.create("ada", Role.ADMIN)
        yield Story(api, secret)


async def test_every_route_that_changes_something_leaves_one_line(story: Story):
    await tasks(story)
    await runs(story)
    await workers(story)
    await callbacks(story)
    await queues(story)
    await jobs(story)
    await plans(story)
    await alerts(story)
    await subscriptions(story)
    await tokens(story)
    await legacy(story)
    await story.does("POST /api/v1/schedules/preview", {"cron_expr": "@daily"}, told=None)
    changing = {line for line in (*ROUTES, *LEGACY_ROUTES) if not line.startswith("GET ")}
    assert sorted(changing - story.called) == []
    assert sorted(story.called - changing) == []


async def tasks(story: Story) -> None:
    does = story.does
    task = (await does("POST /api/v1/tasks", {**HTTP, "cron_expr": "@hourly"}, status=201, told="create_task"))["id"]
    await does("POST /api/v1/tasks/apply", {"owner": "x", "tasks": [{**HTTP, "name": "applied"}]}, told="apply_tasks")
    (entry,) = await story.api.store.audit_log(None, 1)
    assert entry.deed.details == {"owner": "file:x", "created": ["applied"], "unchanged": 0}
    other = {"owner": "x", "tasks": [{**HTTP, "name": "other"}], "dry_run": True}
    await does("POST /api/v1/tasks/apply", other, told=None)
    await does("PUT /api/v1/tasks/{id}", {**HTTP, "cron_expr": "@daily"}, id=task, told="replace_task")
    await does("PATCH /api/v1/tasks/{id}", {"priority": 3}, id=task, told="patch_task")
    for verb in ("disable", "enable"):
        for method in ("PATCH", "POST"):
            await does(f"{method} /api/v1/tasks/{{id}}/{verb}", id=task, told=f"{verb}_task")
    await does("POST /api/v1/tasks/{id}/pause", id=task, told="pause_task")
    await does("POST /api/v1/tasks/{id}/resume", id=task, told="resume_task")
    await does("POST /api/v1/tasks/{id}/reset", id=task, told="reset_task")
    await does("POST /api/v1/tasks/{id}/skip", {"count": 1}, id=task, told="skip_slots")
    past = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    await does("POST /api/v1/tasks/{id}/backfill", {**past, "dry_run": True}, id=task, told=None)
    await does("POST /api/v1/tasks/{id}/backfill", past, id=task, told="backfill_task")
    await does("POST /api/v1/tasks/{id}/clean", {"keep": 100}, id=task, told="clean_task")
    for verb in ("disable", "enable"):
        await does(f"POST /api/v1/tasks/{verb}", {"filter": {"name": "applied"}}, told=f"{verb}_tasks")
    await does("DELETE /api/v1/tasks/{id}", id=task, told="delete_task")
    many = {"tasks": [{**HTTP, "name": "one of many"}, {**HTTP, "name": "another of many"}]}
    made = await does("POST /api/v1/tasks/batch", many, status=201, told="create_tasks")
    ids = [{"id": each["id"]} for each in made["tasks"]]
    await does("PATCH /api/v1/tasks/batch", {"tasks": [{**each, "priority": 1} for each in ids]}, told="patch_tasks")
    await does("DELETE /api/v1/tasks/batch", {"tasks": ids}, told="delete_tasks")


async def runs(story: Story) -> None:
    does = story.does
    task = (await does("POST /api/v1/tasks", {**HTTP, "name": "run"}, status=201, told="create_task"))["id"]
    later = {"delay_seconds": 3_600}
    run = (await does("POST /api/v1/tasks/{id}/trigger", later, id=task, told="trigger_task"))["run_id"]
    await does("POST /api/v1/runs/{run_id}/promote", run_id=run, told="promote_run")
    await does("POST /api/v1/runs/{run_id}/cancel", run_id=run, told="cancel_run")
    await does("POST /api/v1/runs/{run_id}/cancel", run_id=run, told=None)
    await does("POST /api/v1/runs/{run_id}/retry", run_id=run, told="retry_run")
    job = (await does("POST /api/v1/tasks", {**JOB, "name": "many"}, status=201, told="create_task"))["id"]
    await does("POST /api/v1/runs/batch", {"runs": [{"task": job}]}, told="publish_runs")
    moments = {"scheduled_time": "2025-10-14T10:05:00Z", "end_time": "2025-10-14T10:05:01Z"}
    past = {"task": "many", "key": "cronjob:42", "status": "SUCCESS", **moments}
    await does("POST /api/v1/runs/import", {"runs": [past]}, told="import_runs")
    call = {"url": "http://127.0.0.1:9000/x", "delay_seconds": 3_600}
    await does("POST /api/v1/calls", call, told="make_call")
    await does("POST /api/v1/calls/batch", {"calls": [call]}, told="make_calls")
    chosen = {"filter": {"task": "many"}}
    await does("POST /api/v1/runs/cancel", {**chosen, "dry_run": True}, told=None)
    await does("POST /api/v1/runs/cancel", chosen, told="cancel_runs")
    await does("POST /api/v1/runs/retry", chosen, told="retry_runs")
    await does("POST /api/v1/runs/cancel", chosen, told="cancel_runs")
    await does("POST /api/v1/runs/clean", {"run_ids": [1]}, told="clean_runs")
    paused = await does("POST /api/v1/bulk", {"kind": "disable_tasks", "filter": {"name": "x"}}, told="start_bulk")
    await does("POST /api/v1/bulk/{bulk_id}/cancel", bulk_id=paused["id"], told="cancel_bulk")
    await does("POST /api/v1/bulk/{bulk_id}/undo", bulk_id=paused["id"], told="undo_bulk")
    await does("PUT /api/v1/views/{of}/{view}", {"query": "status=FAILED"}, of="runs", view="bad", told="save_view")
    await does("DELETE /api/v1/views/{of}/{view}", of="runs", view="bad", told="remove_view")


async def workers(story: Story) -> None:
    does = story.does
    task = (await does("POST /api/v1/tasks", JOB, status=201, told="create_task"))["id"]
    await does("POST /api/v1/tasks/{id}/trigger", id=task, told="trigger_task")
    run = await story.claims()
    held = {"worker_id": "w1", "token": run["token"]}
    beats = {"runs": [{"run_id": run["run_id"], "token": run["token"]}]}
    await does("POST /api/v1/workers/{worker_id}/heartbeat", beats, worker_id="w1", told=None)
    for verb, more in (
        ("progress", {"current": 1}),
        ("log", {"message": "x", "level": "info"}),
        ("extend", {"seconds": 60}),
        ("settle", {"outcome": "success"}),
    ):
        await does(f"POST /api/v1/runs/{{run_id}}/{verb}", {**held, **more}, run_id=run["run_id"], told=None)
    await does("PATCH /api/v1/workers/{worker_id}", {"concurrency": 2}, worker_id="w1", told="change_worker")
    for verb in ("drain", "resume", "stop"):
        await does(f"POST /api/v1/workers/{{worker_id}}/{verb}", worker_id="w1", told=f"{verb}_worker")
    await execute(story.api.store, "update workers set heartbeat_at = heartbeat_at - 60000000")
    await does("DELETE /api/v1/workers/{worker_id}", worker_id="w1", told="forget_worker")


async def callbacks(story: Story) -> None:
    """They name their run by its token, or by two numbers."""
    does, api = story.does, story.api
    fields = {**HTTP, "name": "back", "exec_type": "ASYNC", "max_concurrency": None}
    task = (await does("POST /api/v1/tasks", fields, status=201, told="create_task"))["id"]
    done = {"status": "SUCCESS"}
    for method in ("POST", "PUT", "PATCH"):
        for by_token in (True, False):
            run = (await does("POST /api/v1/tasks/{id}/trigger", id=task, told="trigger_task"))["run_id"]
            leases = {}
            while run not in leases:  # runs of other parts of the story wait in the same queue
                lease = await api.claim()
                leases[lease.run_id] = lease
            await api.park(leases[run])
            if by_token:
                token = leases[run].callback_token
                await does(f"{method} /api/v1/callbacks/{{callback_token}}", done, callback_token=token, told=None)
            else:
                body = {**done, "task_id": task, "run_id": run}
                await does(f"{method} /api/v1/callbacks", body, told=None)


async def queues(story: Story) -> None:
    does = story.does
    await does("PUT /api/v1/queues/{name}", {"concurrency": 5}, name="default", told="limit_queue")
    for verb in ("pause", "resume", "drain"):
        await does(f"POST /api/v1/queues/{{name}}/{verb}", name="default", told=f"{verb}_queue")
    await does("POST /api/v1/queues/{name}/clean", {"older_than_days": 1}, name="default", told="clean_queue")
    await does("POST /api/v1/queues/{name}/redrive", {"filter": {}}, name="default", told="redrive_queue")
    await does("POST /api/v1/pause", {"reason": "it burns"}, told="pause_all")
    await does("POST /api/v1/resume", told="resume_all")
    await does("POST /api/v1/calendars/{calendar}/preview", {"closed": ["2026-10-01"]}, calendar="china", told=None)
    await does("PUT /api/v1/calendars/{calendar}", {"closed": ["2026-10-01"]}, calendar="china", told="save_calendar")
    await does("POST /api/v1/calendars/{calendar}/refresh", calendar="china", told=None, status=409)
    await does("DELETE /api/v1/calendars/{calendar}", calendar="china", told="delete_calendar")


async def jobs(story: Story) -> None:
    does = story.does
    body = {"job_name": "nightly", "job_type": "resize", "cron_expression": "0 3 * * *"}
    job = (await does("POST /api/jobs", body, status=201, told="create_job"))["id"]
    await does("PUT /api/jobs/{id}", {"max_retries": 5}, id=job, told="change_job")
    await does("POST /api/jobs/{id}/pause", id=job, told="pause_job")
    await does("POST /api/jobs/{id}/resume", id=job, told="resume_job")
    await does("DELETE /api/jobs/{id}", id=job, told="delete_job")


async def plans(story: Story) -> None:
    does = story.does
    plan = (await does("POST /api/v1/plans", {**PLAN, **DAILY}, status=201, told="publish_plan"))["plan_id"]
    for verb in ("pause", "resume", "skip", "reset", "close"):
        await does(f"POST /api/v1/plans/{{plan_id}}/{verb}", plan_id=plan, told=f"{verb}_plan")
    await does("DELETE /api/v1/plans/{plan_id}", plan_id=plan, told="remove_plan")


async def alerts(story: Story) -> None:
    does = story.does
    store = story.api.store
    duty = await store.take_duty("audit", "me", 60)
    raised = AlertState(rule="gone", subject="task:1", since=Instant(1), raised_at=Instant(1))
    assert duty is not None
    await store.alert(duty, duty.position, AlertStep(states=[raised]))
    key = {"rule": "gone", "subject": "task:1"}
    await does("POST /api/v1/alerts/acknowledge", key, told="acknowledge_alert")
    await does("POST /api/v1/alerts/unacknowledge", key, told="unacknowledge_alert")
    until = {"until": rfc3339(Instant(await store.now() + 60 * SECOND))}
    mute = (await does("POST /api/v1/alerts/mutes", until, status=201, told="mute_alerts"))["id"]
    await does("DELETE /api/v1/alerts/mutes/{mute}", mute=str(mute), told="unmute_alerts")
    await does("POST /api/v1/alerts/rules", {"name": "r", "kind": "failures"}, status=201, told="create_alert_rule")
    assert (await store.audit_log(None, 1))[0].deed.subject == "/api/v1/alerts/rules/r"
    await does("PUT /api/v1/alerts/rules/{rule}", {"kind": "failures", "count": 2}, rule="r", told="change_alert_rule")
    await does("DELETE /api/v1/alerts/rules/{rule}", rule="r", told="remove_alert_rule")
    async with listening(parrot) as sink:
        channel = {"name": "c", "url": sink.url()}
        await does("POST /api/v1/alerts/channels", channel, status=201, told="create_alert_channel")
        await does(
            "PUT /api/v1/alerts/channels/{channel}", {"url": sink.url()}, channel="c", told="change_alert_channel"
        )
        await does("POST /api/v1/alerts/channels/{channel}/test", channel="c", told="test_alert_channel")
    await does("DELETE /api/v1/alerts/channels/{channel}", channel="c", told="remove_alert_channel")


async def subscriptions(story: Story) -> None:
    does, path = story.does, "/api/v1/subscriptions/{subscription}"
    async with listening(parrot) as sink:
        given = {"name": "s", "url": sink.url(), "secret": "whsec_MfKQ9r8GKYqrTwjU"}
        await does("POST /api/v1/subscriptions", given, status=201, told="create_subscription")
        await does(f"PATCH {path}", {"types": ["run"]}, subscription="s", told="change_subscription")
        tested = await does(f"POST {path}/test", subscription="s", told="test_subscription")
        await does(f"POST {path}/replay", {"from": "now"}, subscription="s", told="replay_subscription")
        await does(
            f"POST {path}/deliveries/{{delivery_id}}/replay",
            subscription="s",
            delivery_id=tested["delivery_id"],
            status=201,
            told="replay_delivery",
        )
    await does(f"DELETE {path}", subscription="s", told="remove_subscription")


async def tokens(story: Story) -> None:
    await story.does("POST /api/v1/tokens", {"name": "ci", "role": "viewer"}, status=201, told="create_token")
    await story.does("DELETE /api/v1/tokens/{token}", token="ci", told="revoke_token")


async def legacy(story: Story) -> None:
    """The same deeds by the other address; the log names the task by its own id, whatever its `ID` is there."""
    does, api, tasks = story.does, story.api, "/legacy/api/v1/tasks"
    fields = {**HTTP, "name": "old", "exec_type": "ASYNC", "cron_expr": "0 3 * * *", "max_concurrency": 9}
    await does(
        "POST /api/v1/tasks", {**HTTP, "name": "came", "external_id": "cronjob:7"}, status=201, told="create_task"
    )
    task = (await does(f"POST {tasks}", fields, status=201, told="create_task"))["id"]
    for method in ("PATCH", "PUT"):
        await does(f"{method} {tasks}/{{id}}", {"description": method}, id=task, told="patch_task")
    for verb in ("disable", "enable"):
        await does(f"PATCH {tasks}/{{id}}/{verb}", id=7, told=f"{verb}_task")
    own = (await api.services.tasks.get("came")).id
    assert (await api.store.audit_log(None, 1))[0].deed.subject == f"{tasks}/{own}/enable"
    run = (await does(f"POST {tasks}/{{id}}/trigger", id=task, told="trigger_task"))["run_id"]
    await does("POST /legacy/api/v1/runs/{run_id}/cancel", run_id=run, told="cancel_run")
    done = {"status": "SUCCESS"}
    for by_token in (True, False):
        run = (await does(f"POST {tasks}/{{id}}/trigger", id=task, told="trigger_task"))["run_id"]
        leases = {}
        while run not in leases:
            lease = await api.claim()
            leases[lease.run_id] = lease
        await api.park(leases[run])
        if by_token:
            token = leases[run].callback_token
            await does("POST /legacy/api/v1/callbacks/{callback_token}", done, callback_token=token, told=None)
        else:
            await does("POST /legacy/api/v1/callbacks", {**done, "task_id": task, "run_id": run}, told=None)
    await does(f"DELETE {tasks}/{{id}}", id=task, told="delete_task")


async def test_a_change_that_is_refused_leaves_no_line(story: Story):
    told = await story.does("POST /api/v1/tasks", {"nonsense": 1}, status=400, told=None)
    assert told["code"] == "INVALID_ARGUMENT"
    await story.does("DELETE /api/v1/tasks/{id}", id=7, status=404, told=None)


def test_what_the_command_line_changes_on_the_store_leaves_a_line(sqlite_url, key_file, tmp_path):
    """Whoever has the store needs no token; the log says what was done all the same."""
    config = tmp_path / "noonbell.yaml"
    config.write_text(f"store: {{url: '{sqlite_url}'}}\nsecrets: {{key_file: '{key_file}'}}\n")
    for words in (
        ("token", "create", "--role", "admin", "--name", "ada"),
        ("token", "revoke", "ada"),
        ("secrets", "rotate"),
        ("token", "list"),
    ):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--config", str(config)])
        assert not ended.value.code
    entries = asyncio.run(log_of(sqlite_url))
    assert [(entry.deed.actor, entry.deed.action, entry.deed.subject) for entry in reversed(entries)] == [
        ("command line", "create_token", "/tokens/ada"),
        ("command line", "revoke_token", "/tokens/ada"),
        ("command line", "rotate_secrets", "/secrets"),
    ]
    assert entries[-1].deed.details["role"] == "admin"


async def log_of(url: str) -> list[AuditEntry]:
    store = open_store(url)
    await store.open()
    try:
        return await store.audit_log(None, 10)
    finally:
        await store.close()
