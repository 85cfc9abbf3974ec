"""Queues: limits, pause, drain, clean, dead runs; backfills; and what a redrive carries."""

from __future__ import annotations

from typing import Any

import pytest

from integration.api.serving import JOB, Api
from noonbell.model.access import TokenScope
from noonbell.model.request import ClaimRequest
from noonbell.model.run import RunId, RunStatus
from noonbell.model.worker import WorkerInfo
from noonbell.service import scope
from noonbell.service.cleaning import Cleanings

S = RunStatus


async def a_job(api: Api, name: str = "a", **fields: Any) -> int:
    return int((await api.good("POST", "/tasks", {**JOB, "name": name, **fields}, 201))["id"])


async def fail_all(api: Api, queue: str = "default", status: RunStatus = S.FAILED) -> list[int]:
    """Every run of the queue that is due ends so."""
    claimed = await api.store.claim(ClaimRequest(worker_id="w1", queues=(queue,), max=100))
    for lease in claimed.leases:
        await api.finish(lease, status, error_message="it broke")
    return [lease.run_id for lease in claimed.leases]


# ---- queues


async def test_a_queue_shows_what_is_in_it(api_everywhere: Api):
    api = api_everywhere
    task_id = await a_job(api, queue="mail/out")
    for delay in (0, 0, 60):
        await api.trigger(task_id, delay_seconds=delay)
    await api.claim("mail/out")
    queue = await api.good("GET", "/queues/mail%2Fout")
    assert [(one["job_type"], one["lack"], one["count"]) for one in queue.pop("unserved")] == [("resize", "queue", 1)]
    assert {name: queue[name] for name in queue if name != "oldest_at"} == {
        "name": "mail/out",
        "paused": False,
        "pause": None,
        "concurrency": None,
        "rate_limit": None,
        "quiet": [],
        "spread_seconds": 0,
        "waiting": 1,
        "held": 0,
        "delayed": 1,
        "running": 1,
    }
    assert queue["oldest_at"] is not None
    (listed,) = (await api.good("GET", "/queues"))["items"]
    assert {**listed, "unserved": None} == {**queue, "unserved": None}
    assert (await api.good("GET", "/queues/new"))["waiting"] == 0


async def test_a_queue_names_the_job_types_that_none_of_its_workers_knows(api_everywhere: Api):
    api = api_everywhere
    await api.store.register_worker(WorkerInfo(id="w1", incarnation="a", job_types=("other",)))
    run = await api.trigger(await a_job(api))
    (found,) = (await api.good("GET", "/queues/default"))["unserved"]
    assert {**found, "since": None, "task_id": None} == {
        "job_type": "resize",
        "lack": "job_type",
        "count": 1,
        "is_least": False,
        "run_id": run,
        "task_id": None,
        "since": None,
    }
    await api.store.register_worker(WorkerInfo(id="w2", incarnation="a", job_types=("resize",)))
    assert (await api.good("GET", "/queues/default"))["unserved"] == []


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(api: Api):
    await api.trigger(await a_job(api))
    assert (await api.good("POST", "/queues/default/pause"))["paused"] is True
    assert await fail_all(api) == []
    assert (await api.good("POST", "/queues/default/resume"))["paused"] is False
    assert len(await fail_all(api)) == 1


async def test_a_queue_is_limited_and_its_limits_are_taken_off_again(api: Api):
    task_id = await a_job(api)
    for _ in range(4):
        await api.trigger(task_id)
    narrow = await api.good("PUT", "/queues/default", {"concurrency": 1})
    assert (narrow["concurrency"], narrow["rate_limit"]) == (1, None)
    assert len(await fail_all(api)) == 1
    slow = await api.good("PUT", "/queues/default", {"rate_limit": {"max": 1, "per_seconds": 3600}})
    assert (slow["concurrency"], slow["rate_limit"]) == (None, {"max": 1, "per_seconds": 3600, "key": None})
    assert len(await fail_all(api)) == 1
    assert await fail_all(api) == []
    assert (await api.good("PUT", "/queues/default", {}))["rate_limit"] is None
    assert len(await fail_all(api)) == 2


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({"concurrency": -1}, "concurrency"),
        ({"concurrency": "x"}, "concurrency"),
        ({"rate_limit": {"max": 1}}, "rate_limit.per_seconds"),
        ({"rate_limit": {"max": 1, "per_seconds": 1, "key": "tenant"}}, "rate_limit.key"),
        ({"paused": True}, "paused"),
    ],
)
async def test_a_limit_that_makes_no_sense_changes_nothing(quick_api: Api, body, wrong):
    told = await quick_api.call("PUT", "/queues/q", body)
    assert (told.status, list(told.body["details"])) == (400, [wrong])
    assert (await quick_api.good("GET", "/queues"))["items"] == []


async def test_a_queues_name_has_a_length(quick_api: Api):
    assert await quick_api.bad("POST", f"/queues/{'q' * 256}/pause") == (400, "INVALID_ID")


async def test_draining_cancels_what_waits_and_leaves_what_runs(api_everywhere: Api):
    api = api_everywhere
    task_id, other = await a_job(api), await a_job(api, "b", queue="other")
    running = await api.trigger(task_id)
    await api.claim("default")
    retrying = await api.trigger(task_id)
    await api.retry(await api.claim("default"))
    waiting = await api.trigger(task_id)
    delayed = await api.trigger(task_id, delay_seconds=60)
    elsewhere = await api.trigger(other)
    answer = await api.good("POST", "/queues/default/drain")
    assert answer == {"matched": 3, "canceled": 3, "more": False}
    found = {
        run_id: (await api.good("GET", f"/runs/{run_id}"))["status"]
        for run_id in (running, retrying, waiting, delayed, elsewhere)
    }
    assert list(found.values()) == ["RUNNING", "CANCELED", "CANCELED", "CANCELED", "SCHEDULED"]


async def test_cleaning_removes_final_runs_of_the_queue_that_are_old_enough(api_everywhere: Api):
    api = api_everywhere
    task_id, other = await a_job(api), await a_job(api, "b", queue="other")
    for queue, task in (("default", task_id), ("other", other)):
        await api.trigger(task)
        await fail_all(api, queue)
    await api.trigger(task_id)
    good = await fail_all(api, status=S.SUCCESS)
    waiting = await api.trigger(task_id)
    assert await api.good("POST", "/queues/default/clean", {"older_than_days": 1}) == {"removed": 0, "more": False}
    only = {"older_than_seconds": 0, "status": ["FAILED", "TIMEOUT"]}
    assert await api.good("POST", "/queues/default/clean", only) == {"removed": 1, "more": False}
    left = [run["id"] for run in (await api.good("GET", f"/tasks/{task_id}/runs"))["items"]]
    assert left == [waiting, *good]
    assert (await api.good("POST", "/queues/default/clean", {"older_than_seconds": 0}))["removed"] == 1
    assert (await api.good("GET", f"/tasks/{other}/runs"))["total"] == 1
    assert (await api.good("GET", f"/runs/{waiting}"))["status"] == "SCHEDULED"


async def test_all_but_the_newest_runs_of_a_queue_or_a_task_are_removed(api_everywhere: Api):
    api = api_everywhere
    first, second = await a_job(api), await a_job(api, "b")
    made = []
    for task_id in (first, second, first, second):
        made.append(await api.trigger(task_id))
        await fail_all(api)
    waiting = await api.trigger(first)
    assert await api.good("POST", "/queues/default/clean", {"keep": 4}) == {"removed": 1, "more": False}
    assert [run["id"] for run in (await api.good("GET", "/runs"))["items"]] == [waiting, *reversed(made[1:])]
    assert await api.good("POST", f"/tasks/{first}/clean", {"keep": 1, "older_than_days": 1}) == {
        "removed": 0,
        "more": False,
    }
    assert await api.good("POST", f"/tasks/{first}/clean", {"keep": 1}) == {"removed": 1, "more": False}
    assert [run["id"] for run in (await api.good("GET", f"/tasks/{first}/runs"))["items"]] == [waiting]
    assert (await api.good("POST", f"/tasks/{first}/clean", {"keep": 0}))["removed"] == 0, "it is not final"
    assert (await api.good("POST", "/tasks/name:b/clean", {"older_than_seconds": 0}))["removed"] == 2
    assert (await api.call("POST", "/tasks/999/clean", {"keep": 1})).status == 404


async def test_runs_are_removed_by_their_ids_and_those_that_stay_are_named(api_everywhere: Api):
    api = api_everywhere
    task_id = await a_job(api)
    for _ in range(2):
        await api.trigger(task_id)
    ended = await fail_all(api)
    waiting = await api.trigger(task_id)
    answer = await api.good("POST", "/runs/clean", {"run_ids": [waiting, ended[0], 77, ended[0]]})
    kept = [{"run_id": waiting, "reason": "not_final"}, {"run_id": 77, "reason": "not_found"}]
    assert answer == {"removed": 1, "kept": kept}
    assert [run["id"] for run in (await api.good("GET", "/runs"))["items"]] == [waiting, ended[1]]
    assert (await api.call("GET", f"/runs/{ended[0]}")).status == 404
    for wrong in ({}, {"run_ids": []}, {"run_ids": ["x"]}, {"run_ids": [*range(1, 1_002)]}, {"run_ids": [0]}):
        told = await api.call("POST", "/runs/clean", wrong)
        assert (told.status, next(iter(told.body["details"])).partition("[")[0]) == (400, "run_ids"), wrong
    assert (await api.good("GET", "/runs"))["total"] == 2, "bad input changes nothing"


async def test_a_token_removes_only_runs_that_its_scope_holds(quick_api: Api):
    inside, outside = await a_job(quick_api, labels={"team": "a"}), await a_job(quick_api, "b", labels={"team": "b"})
    ids = [await quick_api.trigger(task_id) for task_id in (inside, outside)]
    await fail_all(quick_api)
    scope.limit_to(TokenScope(labels=(("team", "a"),)))
    try:
        done = await Cleanings(quick_api.store).clean_runs({"run_ids": ids})
    finally:
        scope.limit_to(None)
    assert (done.removed, [(each.run_id, str(each.reason)) for each in done.kept]) == (1, [(ids[1], "not_found")])
    assert await quick_api.store.run(RunId(ids[1])) is not None


async def test_more_than_a_batch_is_cleaned_in_one_call(quick_api: Api):
    task_id = await a_job(quick_api)
    await quick_api.good("POST", "/runs/batch", {"runs": [{"task": task_id}] * 1_200})
    assert (await quick_api.good("POST", "/queues/default/drain"))["canceled"] == 1_200
    cleaned = await quick_api.good("POST", "/queues/default/clean", {"older_than_seconds": 0})
    assert cleaned == {"removed": 1_200, "more": False}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, "older_than_seconds"),
        ({"older_than_seconds": 1, "older_than_days": 1}, "older_than_seconds"),
        ({"older_than_days": -1}, "older_than_days"),
        ({"older_than_seconds": 0, "status": ["RUNNING"]}, "status"),
        ({"older_than_seconds": 0, "all": True}, "all"),
        ({"keep": -1}, "keep"),
    ],
)
async def test_a_cleaning_that_makes_no_sense_is_refused(quick_api: Api, body, wrong):
    told = await quick_api.call("POST", "/queues/q/clean", body)
    assert (told.status, list(told.body["details"])) == (400, [wrong])


# ---- dead runs


async def test_dead_runs_are_listed_and_run_again_each_once(api_everywhere: Api):
    api = api_everywhere
    task_id, other = await a_job(api, payload={"of": "task"}), await a_job(api, "b", queue="other")
    for n in range(3):
        await api.trigger(task_id, payload={"n": n})
    dead = await fail_all(api)
    await api.trigger(task_id)
    await fail_all(api, status=S.SUCCESS)
    await api.trigger(other)
    await fail_all(api, "other")
    page = await api.good("GET", "/queues/default/dead?page_size=2")
    assert ([run["id"] for run in page["items"]], page["total"]) == (dead[:0:-1], 3)
    answer = await api.good("POST", "/queues/default/redrive", {"dry_run": True})
    assert answer == {"matched": 3, "retried": 0, "more": False}
    assert (await api.good("POST", "/queues/default/redrive"))["retried"] == 3
    assert (await api.good("POST", "/queues/default/redrive"))["retried"] == 0
    fresh = (await api.good("GET", f"/tasks/{task_id}/runs?origin=retry"))["items"]
    assert sorted(run["retry_of_run_id"] for run in fresh) == dead
    for run in fresh:
        old = await api.good("GET", f"/runs/{run['retry_of_run_id']}")
        new = await api.good("GET", f"/runs/{run['id']}")
        assert new["payload"] == old["payload"]
    assert (await api.good("GET", "/queues/other/dead"))["total"] == 1


async def test_a_redrive_takes_filters_and_refuses_others(quick_api: Api):
    task_id = await a_job(quick_api)
    await quick_api.trigger(task_id)
    await fail_all(quick_api, status=S.TIMEOUT)
    none = await quick_api.good("POST", "/queues/default/redrive", {"filter": {"status": ["FAILED"]}})
    assert none["matched"] == 0
    some = await quick_api.good("POST", "/queues/default/redrive", {"filter": {"task": task_id, "text": "broke"}})
    assert some["retried"] == 1
    told = await quick_api.call("POST", "/queues/default/redrive", {"filter": {"queue": "x", "page": 2, "what": 1}})
    assert sorted(told.body["details"]) == ["filter.page", "filter.queue", "filter.what"]


async def test_a_dead_run_of_a_task_in_error_does_not_keep_the_others_back(api: Api):
    good, bad = await a_job(api), await a_job(api, "b", on_exhausted="ERROR")
    for task_id in (good, bad):
        await api.trigger(task_id)
    await fail_all(api)
    assert (await api.good("GET", f"/tasks/{bad}"))["status"] == "ERROR"
    assert await api.good("POST", "/queues/default/redrive") == {"matched": 2, "retried": 1, "more": False}


async def test_what_was_changed_for_a_run_alone_is_changed_when_it_is_run_again(api_everywhere: Api):
    api = api_everywhere
    task_id = await api.create(http_method="POST", body_template="of the task", max_concurrency=None)
    run_id = await api.trigger(task_id, override_body="of the run", force_async=True, priority=4)
    lease = await api.claim()
    assert lease.callback_token is not None
    await api.finish(lease, S.FAILED)
    await api.good("POST", f"/runs/{run_id}/retry")
    again = await api.claim()
    assert again.overrides == {"override_body": "of the run", "force_async": True}
    assert (again.callback_token is not None, again.priority) == (True, 4)
    await api.finish(again, S.FAILED)
    assert (await api.good("POST", "/runs/retry", {"filter": {"task": task_id, "origin": "retry"}}))["retried"] == 1
    third = await api.claim()
    assert third.overrides == again.overrides


# ---- backfill


async def test_a_backfill_fills_each_slot_of_the_stretch_once(api_everywhere: Api):
    api = api_everywhere
    task_id = await a_job(api, cron_expr="0 */6 * * *", timezone="UTC", payload={"of": "task"})
    stretch = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-01T12:00:00Z"}
    slots = ["2026-03-01T00:00:00Z", "2026-03-01T06:00:00Z", "2026-03-01T12:00:00Z"]
    preview = await api.good("POST", f"/tasks/{task_id}/backfill", {**stretch, "dry_run": True})
    assert (preview["count"], preview["slots"], preview["run_ids"], preview["created"]) == (3, slots, [], 0)
    done = await api.good("POST", "/tasks/name:a/backfill", {**stretch, "payload": {"again": True}, "priority": -5})
    assert (done["count"], done["created"], done["existing"], done["next_from"]) == (3, 3, 0, None)
    runs = [await api.good("GET", f"/runs/{run_id}") for run_id in done["run_ids"]]
    assert [run["scheduled_time"] for run in runs] == slots
    assert {(run["origin"], run["priority"], run["status"]) for run in runs} == {("backfill", -5, "SCHEDULED")}
    assert runs[0]["payload"] == {"again": True}
    again = await api.good("POST", f"/tasks/{task_id}/backfill", stretch)
    assert (again["created"], again["existing"], again["run_ids"]) == (0, 3, done["run_ids"])
    await fail_all(api)
    more = await api.good("POST", f"/tasks/{task_id}/backfill", {**stretch, "if_finished": "rerun_failed"})
    assert (more["created"], set(more["run_ids"]) & set(done["run_ids"])) == (3, set())


async def test_a_long_backfill_is_cut_and_says_where_to_go_on(quick_api: Api):
    task_id = await a_job(quick_api, cron_expr="* * * * *")
    stretch = {"from": "2026-01-01T00:00:00.5Z", "to": "2026-03-01T00:00:00Z"}
    cut = await quick_api.good("POST", f"/tasks/{task_id}/backfill", {**stretch, "limit": 3})
    assert (cut["slots"][0], cut["count"], cut["next_from"]) == ("2026-01-01T00:01:00Z", 3, "2026-01-01T00:04:00Z")
    rest = await quick_api.good("POST", f"/tasks/{task_id}/backfill", {**stretch, "from": cut["next_from"]})
    assert (rest["created"], len(rest["run_ids"]), rest["next_from"]) == (10_000, 10_000, "2026-01-07T22:44:00Z")


async def test_a_backfill_stays_within_the_bounds_of_the_task(quick_api: Api):
    task_id = await a_job(
        quick_api,
        cron_expr="0 * * * *",
        start_at="2026-01-01T02:00:00Z",
        end_at="2026-01-01T03:00:00Z",
        status="DISABLED",
    )
    done = await quick_api.good("POST", f"/tasks/{task_id}/backfill", {"from": "2026-01-01T00:00:00Z"})
    assert done["slots"] == ["2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"]


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, "from"),
        ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "from"),
        ({"from": "2026-01-01T00:00:00Z", "to": "2099-01-01T00:00:00Z"}, "to"),
        ({"from": "2099-01-01T00:00:00Z"}, "from"),
        ({"from": "2026-01-01T00:00:00Z", "limit": 10_001}, "limit"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-01-01T00:00:00Z", "key": "x"}, "key"),
    ],
)
async def test_a_backfill_that_makes_no_sense_makes_nothing(quick_api: Api, body, wrong):
    task_id = await a_job(quick_api, cron_expr="0 * * * *")
    told = await quick_api.call("POST", f"/tasks/{task_id}/backfill", body)
    assert (told.status, list(told.body["details"])) == (400, [wrong])
    assert (await quick_api.good("GET", "/runs"))["total"] == 0


@pytest.mark.parametrize(
    "fields", [{}, {"schedule": {"type": "interval", "every": 5, "unit": "minute", "mode": "fixed_delay"}}]
)
async def test_a_task_without_slots_of_the_past_has_none_to_fill(quick_api: Api, fields):
    task_id = await a_job(quick_api, **fields)
    body = {"from": "2026-01-01T00:00:00Z"}
    assert await quick_api.bad("POST", f"/tasks/{task_id}/backfill", body) == (409, "INVALID_STATE")
    assert await quick_api.bad("POST", "/tasks/77/backfill", body) == (404, "NOT_FOUND")


# ---- forged callbacks


async def test_a_peer_that_guesses_tokens_is_told_to_slow_down_and_fills_no_table(quick_api: Api):
    answers = [(await quick_api.call("POST", f"/callbacks/guess-{n}", {"status": "SUCCESS"})).status for n in range(70)]
    assert answers == [404] * 60 + [429] * 10
    assert len((await quick_api.good("GET", "/callbacks?limit=1000"))["items"]) == 60


async def test_a_good_callback_of_the_same_peer_is_heard_all_the_same(quick_api: Api):
    task_id = await quick_api.create(exec_type="ASYNC")
    await quick_api.trigger(task_id)
    lease = await quick_api.claim()
    await quick_api.park(lease)
    for n in range(65):
        await quick_api.call("POST", f"/callbacks/guess-{n}", {"status": "SUCCESS"})
    answer = await quick_api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "SUCCESS"})
    assert answer == {"run_id": lease.run_id, "final_status": "SUCCESS"}


async def test_a_queue_that_only_a_task_names_is_listed_and_can_be_limited_and_paused(api_everywhere: Api):
    api = api_everywhere
    await api.create(name="letters", target_url=None, job_type="send", queue="mail")
    assert [each["name"] for each in (await api.good("GET", "/queues"))["items"]] == ["mail"]
    await api.good("PUT", "/queues/mail", {"concurrency": 2})
    await api.good("POST", "/queues/mail/pause")
    (mail,) = (await api.good("GET", "/queues"))["items"]
    assert (mail["concurrency"], mail["paused"], mail["waiting"]) == (2, True, 0)


async def test_a_queue_says_why_it_is_paused_by_whom_and_since_when(api_everywhere: Api):
    api = api_everywhere
    paused = await api.good("POST", "/queues/mail/pause", {"reason": "  the vendor mends its API "})
    assert (paused["paused"], paused["pause"]["reason"]) == (True, "the vendor mends its API")
    assert set(paused["pause"]) == {"reason", "by", "since"}
    (mail,) = (await api.good("GET", "/queues"))["items"]
    assert mail["pause"] == paused["pause"]
    assert (await api.good("POST", "/queues/mail/pause"))["pause"] == paused["pause"]
    assert (await api.good("POST", "/queues/mail/pause", {"reason": "later"}))["pause"]["reason"] == "later"
    (entry,) = (await api.good("GET", "/audit?limit=1"))["items"]
    assert (entry["action"], entry["details"]["reason"]) == ("pause_queue", "later")
    assert (await api.good("POST", "/queues/mail/resume"))["pause"] is None
    assert (await api.good("GET", "/queues"))["items"] == []
    for wrong in ({"reason": "x" * 501}, {"raeson": "x"}):
        refused = await api.call("POST", "/queues/mail/pause", wrong)
        assert (refused.status, list(refused.body["details"])) == (400, list(wrong))
