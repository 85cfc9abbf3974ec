"""`after` over HTTP: named by name or id, shown by name, refused with its place; files of tasks; and what `explain` says of it."""

from __future__ import annotations

from typing import Any

import pytest

from integration.api.serving import JOB, Api
from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.fields.kinds import read_moment
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Origin, RunStatus, Settlement, Transition

SLOT = Instant(1_767_261_600 * SECOND)
AT = rfc3339(SLOT)


def following(*names: str | int, on: str = "success", **more: Any) -> dict[str, Any]:
    return {"after": {"tasks": [{"task": name, "on": on} for name in names], **more}}


async def job(api: Api, name: str, **fields: Any) -> int:
    return int((await api.good("POST", "/tasks", {**JOB, "name": name, **fields}, 201))["id"])


async def ended(api: Api, task_id: int, status: RunStatus = RunStatus.SUCCESS, origin: Origin = Origin.BACKFILL) -> int:
    """A run of the slot, ended so."""
    (published,) = await api.store.publish([Publication(task_id=task_id, origin=origin, scheduled_time=SLOT)])
    leases = (await api.store.claim(ClaimRequest(worker_id="w", queues=("default",), max=10))).leases
    (lease,) = [lease for lease in leases if lease.run_id == published.run_id]
    settlement = Settlement(run_id=lease.run_id, token=lease.token, transition=Transition.FINISH, status=status)
    await api.store.settle([settlement])
    return int(lease.run_id)


async def explained(api: Api, task_id: int, **params: str) -> tuple[str, str]:
    answer = await api.good("GET", f"/tasks/{task_id}/explain", params=params)
    return answer["cause"], answer["message"]


async def test_upstreams_are_named_by_name_or_id_and_shown_by_name(api_everywhere: Api):
    api = api_everywhere
    extract, clean = await job(api, "extract"), await job(api, "clean")
    load = await job(api, "load", **following("extract", clean))
    shown = await api.good("GET", f"/tasks/{load}")
    assert shown["after"] == {
        "tasks": [{"task": "extract", "on": "success"}, {"task": "clean", "on": "success"}],
        "join": "all",
        "same_slot": True,
        "within_seconds": 86400,
    }
    await api.good("PATCH", f"/tasks/{extract}", {"name": "renamed"})
    listed = (await api.good("GET", "/tasks?name=load"))["items"]
    assert [each["task"] for each in listed[0]["after"]["tasks"]] == ["renamed", "clean"]
    assert (await api.good("PUT", f"/tasks/{load}", {**listed[0]}))["version"] == 1
    await api.good("PATCH", f"/tasks/{load}", {"after": {"within_seconds": 60}})
    assert (await api.good("GET", f"/tasks/{load}"))["after"]["within_seconds"] == 60
    await api.good("PATCH", f"/tasks/{load}", {"after": None})
    assert (await api.good("GET", f"/tasks/{load}"))["after"] is None


async def test_the_run_that_follows_names_the_runs_before_it(api_everywhere: Api):
    api = api_everywhere
    extract = await job(api, "extract")
    load = await job(api, "load", **following("extract"))
    first = await ended(api, extract)
    (run,) = (await api.good("GET", f"/tasks/{load}/runs"))["items"]
    assert (run["origin"], run["upstream_run_ids"], run["scheduled_time"]) == ("upstream", [first], AT)


@pytest.mark.parametrize(
    ("after", "named"),
    [
        ({"tasks": []}, {"after.tasks"}),
        ({}, {"after.tasks"}),
        ({"tasks": [{"task": "a"}], "join": "some"}, {"after.join"}),
        ({"tasks": [{"task": "a", "on": "sometimes"}]}, {"after.tasks[0].on"}),
        ({"tasks": [{"on": "any"}]}, {"after.tasks[0].task"}),
        ({"tasks": [{"task": "a"}], "within_seconds": 0}, {"after.within_seconds"}),
        ({"tasks": [{"task": "a", "when": "x"}]}, {"after.tasks[0].when"}),
        ({"tasks": [{"task": "nowhere"}]}, {"after.tasks[0].task"}),
        ({"tasks": [{"task": 99}]}, {"after.tasks[0].task"}),
        ({"tasks": [{"task": "a"}] * 101}, {"after.tasks"}),
        ("a", {"after"}),
    ],
)
async def test_what_is_wrong_is_named_by_its_field(quick_api: Api, after: Any, named: set[str]):
    await job(quick_api, "a")
    answer = await quick_api.call("POST", "/tasks", {**JOB, "name": "load", "after": after})
    assert (answer.status, set(answer.body["details"])) == (400, named)
    assert all(f"{field}: " in answer.body["message"] for field in named)
    assert (await quick_api.good("GET", "/tasks"))["total"] == 1


async def test_a_cycle_is_named_and_nothing_is_saved(api_everywhere: Api):
    api = api_everywhere
    a = await job(api, "a")
    await job(api, "b", **following("a"))
    answer = await api.call("PATCH", f"/tasks/{a}", following("b"))
    assert (answer.status, answer.body["details"]) == (400, {"after": "makes a cycle: a → b → a"})
    tasks = [{**JOB, "name": name, **following(other)} for name, other in (("x", "y"), ("y", "x"))]
    answer = await api.call("POST", "/tasks/batch", {"tasks": tasks})
    assert (answer.status, answer.body["details"]) == (400, {"tasks[0].after": "makes a cycle: x → y → x"})
    assert (await api.good("GET", "/tasks"))["total"] == 2


async def test_deleting_what_others_follow_is_a_conflict_unless_forced(quick_api: Api):
    extract = await job(quick_api, "extract")
    await job(quick_api, "load", **following("extract"))
    answer = await quick_api.call("DELETE", f"/tasks/{extract}")
    assert (answer.status, answer.body["code"]) == (409, "INVALID_STATE")
    assert "'load'" in answer.body["message"]
    await quick_api.good("DELETE", f"/tasks/{extract}?force=true")


# ---- files


async def applied(api: Api, *tasks: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
    return dict(await api.good("POST", "/tasks/apply", {"owner": "nightly", "tasks": list(tasks), "dry_run": dry_run}))


async def test_a_file_may_name_its_tasks_in_any_order_and_is_unchanged_the_second_time(api_everywhere: Api):
    api = api_everywhere
    load, extract = {**JOB, "name": "load", **following("extract")}, {**JOB, "name": "extract"}
    assert (await applied(api, load, extract, dry_run=True))["created"] == ["load", "extract"]
    assert set((await applied(api, load, extract))["created"]) == {"load", "extract"}
    assert set((await applied(api, load, extract))["unchanged"]) == {"load", "extract"}
    changed = await applied(api, {**load, **following("extract", on="any")}, extract)
    assert [each["name"] for each in changed["changed"]] == ["load"]


async def test_a_file_can_turn_two_tasks_round(quick_api: Api):
    a, b = {**JOB, "name": "a"}, {**JOB, "name": "b"}
    await applied(quick_api, {**a, **following("b")}, b)
    told = await applied(quick_api, a, {**b, **following("a")})
    assert {each["name"] for each in told["changed"]} == {"a", "b"}


async def test_a_task_that_is_there_may_follow_one_that_a_file_brings(quick_api: Api):
    a, b = {**JOB, "name": "a"}, {**JOB, "name": "b"}
    await applied(quick_api, a)
    told = await applied(quick_api, {**a, **following("b")}, b)
    assert ([each["name"] for each in told["changed"]], told["created"]) == (["a"], ["b"])


async def test_a_diff_names_upstreams_by_their_names(quick_api: Api):
    extract, clean, load = ({**JOB, "name": name} for name in ("extract", "clean", "load"))
    await applied(quick_api, extract, clean, {**load, **following("extract")})
    told = await applied(quick_api, extract, clean, {**load, **following("clean")}, dry_run=True)
    (change,) = told["changed"]
    assert [each["tasks"][0]["task"] for each in change["fields"]["after"]] == ["extract", "clean"]


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_file_with_a_cycle_or_an_unknown_task_changes_nothing(quick_api: Api, dry_run: bool):
    await job(quick_api, "outside")
    inside = {**JOB, "name": "inside", **following("outside")}
    await applied(quick_api, inside)
    body: dict[str, Any] = {"owner": "nightly", "dry_run": dry_run}
    nowhere = {**JOB, "name": "x", **following("nowhere")}
    answer = await quick_api.call("POST", "/tasks/apply", {**body, "tasks": [inside, nowhere]})
    assert (answer.status, answer.body["details"]) == (
        400,
        {"tasks[x].after.tasks[0].task": "is 'nowhere'; there is no such task"},
    )
    round_about = [{**JOB, "name": name, **following(other)} for name, other in (("x", "y"), ("y", "x"))]
    answer = await quick_api.call("POST", "/tasks/apply", {**body, "tasks": round_about})
    assert answer.status == 400
    assert "makes a cycle" in answer.body["details"]["tasks[x].after"]
    assert (await quick_api.good("GET", "/tasks"))["total"] == 2


async def test_an_export_names_upstreams_by_name(quick_api: Api):
    await job(quick_api, "extract")
    await job(quick_api, "load", **following("extract"))
    text = (await quick_api.call("GET", "//tasks/export", headers={"accept": "text/html"})).text
    assert "task: extract" in text


# ---- explain


async def test_explain_says_what_a_task_waits_for(api_everywhere: Api):
    """SPEC 26.1: "waits for load of slot 02:00"."""
    api = api_everywhere
    extract, clean = await job(api, "extract"), await job(api, "clean")
    load = await job(api, "load", **following("extract", "clean"))
    assert await explained(api, load) == ("not_a_slot", "The task has no schedule: it runs after extract, clean.")
    await ended(api, extract)
    cause, message = await explained(api, load)
    assert cause == "waiting"
    assert message.startswith("Waits for clean of slot 2026-01-01 10:00:00")
    assert await explained(api, load, at=AT) == (cause, message)
    assert "等待时刻" in (await explained(api, load, lang="zh"))[1]
    await ended(api, clean, RunStatus.FAILED)
    message = (await explained(api, load, at=AT))[1]
    assert "clean of slot 2026-01-01 10:00:00" in message
    assert message.endswith("ended FAILED; this task follows it on success.")
    await ended(api, clean, origin=Origin.BACKFILL)
    assert (await explained(api, load, at=AT))[0] in ("waiting", "no_worker")
    assert (await api.good("GET", f"/tasks/{load}/explain", params={"at": AT}))["run_id"] is not None


async def test_explain_says_why_nothing_followed(quick_api: Api):
    every = {"schedule": {"type": "interval", "every": 1, "unit": "second", "anchor": "2026-01-01T00:00:00Z"}}
    extract = await job(quick_api, "extract", **every)
    load = await job(quick_api, "load", **following("extract"))
    while not (await quick_api.store.plan(10)).born:
        pass
    (run, *_) = (await quick_api.good("GET", f"/tasks/{extract}/runs?sort=id"))["items"]
    cause, message = await explained(quick_api, load, at=run["scheduled_time"])
    assert (cause, message.startswith("Waits for extract of slot")) == ("waiting", True)
    await quick_api.good("POST", f"/runs/{run['id']}/cancel")
    answer = await quick_api.good("GET", f"/tasks/{load}/explain", params={"at": run["scheduled_time"]})
    assert (answer["cause"], answer["blocking_run_id"]) == ("upstream", run["id"])
    assert "but this task follows it on success: nothing followed." in answer["message"]


async def test_explain_names_what_was_missing(quick_api: Api):
    extract = await job(quick_api, "extract")
    await job(quick_api, "clean")
    load = await job(quick_api, "load", **following("extract", "clean", within_seconds=1))
    await ended(quick_api, extract)
    while not (await quick_api.store.sweep_joins(10)).missing:
        pass
    cause, message = await explained(quick_api, load, at=AT)
    assert cause == "upstream_missing"
    assert "clean did not end as required within" in message
    (skipped,) = (await quick_api.good("GET", f"/tasks/{load}/runs"))["items"]
    details = skipped["error_details"]
    assert details == {"missing": {"clean": None}, "since": rfc3339(read_moment(details["since"]))}
    waited = read_moment(skipped["created_at"]) - read_moment(details["since"])
    assert f"within {round(waited / SECOND)} s" in message


async def test_explain_says_that_a_change_of_after_ended_the_wait(quick_api: Api):
    extract = await job(quick_api, "extract")
    await job(quick_api, "clean")
    load = await job(quick_api, "load", **following("extract", "clean"))
    await ended(quick_api, extract)
    await quick_api.good("PATCH", f"/tasks/{load}", {"after": None})
    while not (await quick_api.store.sweep_joins(10)).missing:
        pass
    (run,) = (await quick_api.good("GET", f"/tasks/{load}/runs"))["items"]
    answer = await quick_api.good("GET", f"/runs/{run['id']}/explain")
    assert answer["cause"] == "upstream_missing"
    assert answer["message"] == "Skipped: the task's `after` was changed while this run was still waiting for clean."
    assert "仍在等待 clean" in (await quick_api.good("GET", f"/runs/{run['id']}/explain?lang=zh"))["message"]


async def test_explain_says_that_an_upstream_was_deleted(quick_api: Api):
    extract = await job(quick_api, "extract")
    load = await job(quick_api, "load", **following("extract"))
    await quick_api.good("DELETE", f"/tasks/{extract}?force=true")
    message = "The task has no schedule: it runs after extract. extract was deleted: this task no longer follows it."
    assert await explained(quick_api, load) == ("not_a_slot", message)


async def test_explain_says_how_the_newest_run_of_an_upstream_ended_where_nothing_followed_it(api_everywhere: Api):
    api = api_everywhere
    extract = await job(api, "extract")
    load = await job(api, "load", **following("extract"))
    page = await job(api, "page", **following("load", on="any"))
    unmatched = "The newest run of extract ended FAILED; this task follows it on success."
    await ended(api, extract, RunStatus.FAILED)
    assert await explained(api, load) == (
        "not_a_slot",
        f"The task has no schedule: it runs after extract. {unmatched}",
    )
    assert await explained(api, page) == ("not_a_slot", "The task has no schedule: it runs after load.")
    await ended(api, extract)
    assert unmatched not in (await explained(api, load))[1]
    assert (await explained(api, load))[0] == "no_worker"
    (lease,) = (await api.store.claim(ClaimRequest(worker_id="w", queues=("default",), max=10))).leases
    await api.finish(lease, "SUCCESS")
    assert unmatched not in (await explained(api, load))[1]
    await ended(api, extract, RunStatus.FAILED)
    cause, message = await explained(api, load)
    assert (cause, message.endswith(f". {unmatched}")) == ("ran", True)
    assert "最近" in (await explained(api, load, lang="zh"))[1]


async def test_metrics_count_what_follows(quick_api: Api):
    extract = await job(quick_api, "extract")
    await job(quick_api, "other")
    await job(quick_api, "load", **following("extract"))
    await job(quick_api, "both", **following("extract", "other"))
    await ended(quick_api, extract)
    text = (await quick_api.call("GET", "//metrics")).text
    assert 'noonbell_followed_total{outcome="run"} 1.0' in text
    assert "noonbell_joins_open 1.0" in text
