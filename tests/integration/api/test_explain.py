"""`explain` and `slots` over HTTP: what they take, what they refuse, and in which language they answer."""

from __future__ import annotations

from typing import Any

import pytest

from integration.api.serving import Api
from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.model.request import ClaimRequest
from services.steps import calls_while

KEYS = {"cause", "message", "slot", "run_id", "blocking_run_id", "policy", "actor", "since", "next_slot"}
EVERY_SECOND = {"schedule": {"type": "interval", "every": 1, "unit": "second", "anchor": "2026-01-01T00:00:00Z"}}


async def planned(api: Api, **fields: Any) -> tuple[int, str]:
    """A task with a slot behind it, and that slot."""
    task = await api.create(**{**EVERY_SECOND, **fields})
    while not (await api.store.plan(10)).born:
        pass
    (run,) = (await api.good("GET", f"/tasks/{task}/runs?page_size=1&sort=id"))["items"]
    return task, run["scheduled_time"]


async def test_a_slot_is_explained(api_everywhere: Api):
    api = api_everywhere
    task, slot = await planned(api)
    answer = await api.good("GET", f"/tasks/{task}/explain", params={"at": slot})
    assert set(answer) == KEYS
    assert (answer["cause"], answer["slot"]) == ("no_worker", slot)
    run = await api.good("GET", f"/runs/{answer['run_id']}/explain")
    assert {**run, "next_slot": None} == {**answer, "next_slot": None}
    assert (await api.good("GET", f"/tasks/name:a/explain?at={slot}"))["run_id"] == answer["run_id"]


async def test_the_sentence_is_in_the_language_of_the_caller(quick_api: Api):
    task = await quick_api.create(cron_expr="0 3 * * *", timezone="Asia/Shanghai")
    english = await quick_api.good("GET", f"/tasks/{task}/explain")
    assert english["cause"] == "waiting"
    assert "03:00:00+08:00" in english["message"]
    asked = await quick_api.good("GET", f"/tasks/{task}/explain?lang=zh")
    heard = await quick_api.good("GET", f"/tasks/{task}/explain", headers={"Accept-Language": "zh-CN,en;q=0.5"})
    assert "该时刻尚未到来" in asked["message"]
    assert "该时刻尚未到来" in heard["message"]
    over = await quick_api.good("GET", f"/tasks/{task}/explain?lang=en", headers={"Accept-Language": "zh"})
    assert over["message"].isascii()


async def test_a_flow_says_why_its_step_does_not_start(api_everywhere: Api):
    api = api_everywhere
    steps = [{"id": "a", "job_type": "nobody_knows"}]
    made = await api.good("POST", "/tasks", {"name": "flow", "steps": steps}, 201)
    flow = await api.trigger(made["id"])
    await api.store.claim(ClaimRequest(worker_id="w", queues=("http",), max=1))
    (step,) = (await api.good("GET", f"/runs?parent_id={flow}"))["items"]
    answer = await api.good("GET", f"/runs/{flow}/explain")
    assert answer["cause"] == "running"
    alone = (await api.good("GET", f"/runs/{step['id']}/explain"))["message"].split(" It is step")[0]
    assert alone.startswith(f"Run {step['id']} waits: ")
    assert answer["message"].endswith(f"Running: a. {alone}")
    await api.good("POST", "/pause", {"reason": "a new database"})
    message = (await api.good("GET", f"/runs/{flow}/explain"))["message"]
    assert f"Run {step['id']} waits: everything has been paused" in message
    assert message.endswith("Reason given: a new database.")


async def test_of_a_run_that_was_tried_again_it_is_told_when_its_first_attempt_started(api_everywhere: Api):
    api = api_everywhere
    task = await api.create()
    run = await api.trigger(task)
    first = await api.claim()
    await api.retry(first, seconds=0)
    again = await api.claim()
    await api.finish(again, "SUCCESS")
    begun = (await api.good("GET", f"/runs/{run}/attempts"))["items"][0]["start_time"]
    second = begun[11:19]
    english = (await api.good("GET", f"/runs/{run}/explain"))["message"]
    assert f"That was attempt 2; the first one started at {begun[:10]} {second}" in english
    assert "这是第 2 次尝试；首次尝试于" in (await api.good("GET", f"/runs/{run}/explain?lang=zh"))["message"]
    once = await api.trigger(task)
    await api.finish(await api.claim(), "SUCCESS")
    assert "attempt" not in (await api.good("GET", f"/runs/{once}/explain"))["message"]


async def test_what_waits_for_a_scheduler_says_that_none_is_running(api_everywhere: Api):
    api = api_everywhere
    task = await api.create(cron_expr="0 3 * * *", timezone="Asia/Shanghai")
    assert (await api.good("GET", "/workers"))["has_scheduler"] is False
    alone = (await api.good("GET", f"/tasks/{task}/explain"))["message"]
    assert alone.endswith("No scheduler is running on this store now: start one with `noonbell serve`.")
    assert "没有调度器" in (await api.good("GET", f"/tasks/{task}/explain?lang=zh"))["message"]
    delayed = await api.trigger(task, delay_seconds=600)
    assert "No scheduler is running" in (await api.good("GET", f"/runs/{delayed}/explain"))["message"]
    await api.store.note_scheduler()
    assert (await api.good("GET", "/workers"))["has_scheduler"] is True
    assert "scheduler" not in (await api.good("GET", f"/tasks/{task}/explain"))["message"]
    assert "scheduler" not in (await api.good("GET", f"/runs/{delayed}/explain"))["message"]


async def test_a_moment_without_an_offset_is_local_to_the_task(quick_api: Api):
    task = await quick_api.create(cron_expr="0 3 * * *", timezone="Asia/Shanghai")
    answer = await quick_api.good("GET", f"/tasks/{task}/explain?at=2090-05-01T03:00:00")
    assert (answer["cause"], answer["slot"]) == ("waiting", "2090-04-30T19:00:00Z")


async def test_who_disabled_a_task_and_when_is_told(quick_api: Api):
    task = await quick_api.create(cron_expr="0 3 * * *")
    await quick_api.good("POST", f"/tasks/{task}/disable")
    answer = await quick_api.good("GET", f"/tasks/{task}/explain")
    stored = await quick_api.good("GET", f"/tasks/{task}")
    assert (answer["cause"], answer["since"], answer["next_slot"]) == ("disabled", stored["updated_at"], None)


async def test_a_deleted_task_is_explained_by_its_id(quick_api: Api):
    task = await quick_api.create(cron_expr="0 3 * * *")
    await quick_api.good("DELETE", f"/tasks/{task}")
    assert (await quick_api.good("GET", f"/tasks/{task}/explain"))["cause"] == "deleted"
    assert (await quick_api.good("GET", f"/tasks/{task}/slots"))["items"] == []


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/tasks/1/explain?at=yesterday", (400, "INVALID_ARGUMENT")),
        ("/tasks/1/explain?when=now", (400, "INVALID_ARGUMENT")),
        ("/tasks/1/slots?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", (400, "INVALID_ARGUMENT")),
        ("/tasks/1/slots?limit=0", (400, "INVALID_ARGUMENT")),
        ("/tasks/1/slots?limit=1001", (400, "INVALID_ARGUMENT")),
        ("/tasks/9/explain", (404, "NOT_FOUND")),
        ("/tasks/9/slots", (404, "NOT_FOUND")),
        ("/runs/9/explain", (404, "NOT_FOUND")),
        ("/tasks/x/slots", (400, "INVALID_ID")),
    ],
)
async def test_what_makes_no_sense_is_refused(quick_api: Api, path: str, told: tuple[int, str]):
    await quick_api.create()
    assert await quick_api.bad("GET", path) == told


async def test_slots_are_listed_page_by_page_without_gap_or_repeat(quick_api: Api):
    task = await quick_api.create(cron_expr="0 0 * * * *")
    now = await quick_api.store.now()
    query = {"from": rfc3339(now), "to": rfc3339(Instant(now + 10 * 3600 * SECOND)), "limit": 4}
    found: list[dict[str, Any]] = []
    while query["from"] is not None:
        page = await quick_api.good("GET", f"/tasks/{task}/slots", params=query)
        found += page["items"]
        query["from"] = page["next_from"]
    assert [item["outcome"] for item in found] == ["planned"] * 10
    assert len({item["slot"] for item in found}) == 10
    assert found == sorted(found, key=lambda item: item["slot"])


async def test_a_month_of_seconds_that_a_task_was_off_is_one_item(quick_api: Api):
    task = await quick_api.create(cron_expr="* * * * * *", status="DISABLED")
    now = await quick_api.store.now()
    page = await quick_api.good(
        "GET", f"/tasks/{task}/slots", params={"from": rfc3339(now), "to": rfc3339(Instant(now + 2_600_000 * SECOND))}
    )
    (item,) = page["items"]
    assert (item["outcome"], page["next_from"]) == ("disabled", None)
    assert item["count"] >= 2_599_999


async def test_all_the_years_to_come_are_counted_and_not_walked_through(quick_api: Api):
    """Disabled, as one item; asked why at the end of the calendar; on the timeline there."""
    schedule = {"type": "cron", "expr": "0 3 * * *", "repeat": 1_000_000_000}
    more = {"timezone": "America/Chicago", "target_url": "http://127.0.0.1:9/", "schedule": schedule}
    off = await quick_api.create(**more, name="off", status="DISABLED")
    on = await quick_api.create(**more, name="on")
    now, far = rfc3339(await quick_api.store.now()), "9998-01-01T09:00:00Z"
    pages = [
        (f"/tasks/{off}/slots", {"from": now, "to": far}),
        (f"/tasks/{on}/slots", {"from": "9997-12-01T00:00:00Z", "to": far}),
        (f"/tasks/{on}/explain", {"at": far}),
        ("/timeline", {"from": "9997-12-30T00:00:00Z", "to": far}),
    ]
    answers = []
    for path, query in pages:
        await quick_api.good("GET", path, params=query)  # the zone is asked once for its changes
        answers.append({})
        calls = await calls_while(lambda: _got(quick_api, path, query, answers[-1]))  # noqa: B023 awaited at once
        assert calls < 1_500_000, path
    slots, later, explained, timeline = answers
    (item,) = slots["items"]
    assert (item["outcome"], item["last"]) == ("disabled", far)
    assert 2_900_000 < item["count"] < 2_912_000
    assert [each["outcome"] for each in later["items"]] == ["planned"] * 32
    assert explained["cause"] == "waiting"
    assert [len(lane["planned"]) for lane in timeline["items"] if lane["task_id"] == on] == [3]


async def _got(api: Api, path: str, query: dict[str, Any], into: dict[str, Any]) -> None:
    into.update(await api.good("GET", path, params=query))


async def test_past_slots_have_their_outcomes(api_everywhere: Api):
    api = api_everywhere
    task, slot = await planned(api)
    lease = await api.claim()
    await api.finish(lease, "SUCCESS")
    page = await api.good("GET", f"/tasks/{task}/slots", params={"from": slot})
    first = page["items"][0]
    assert (first["slot"], first["outcome"], first["run_id"], first["status"]) == (slot, "ran", lease.run_id, "SUCCESS")
    assert first["count"] == 1


async def test_a_page_of_tasks_has_what_their_runs_do(api_everywhere: Api):
    api = api_everywhere
    tasks = [await api.create(name=f"t{number}") for number in range(3)]
    run = await api.trigger(tasks[1])
    items = {item["id"]: item for item in (await api.good("GET", "/tasks"))["items"]}
    assert (items[tasks[1]]["last_run_id"], items[tasks[1]]["queued_runs"]) == (run, 1)
    assert items[tasks[0]]["last_run_id"] is None
