"""Plans over HTTP: each call and its answer, with the planner and the stations' workers behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from integration.api.conftest import url_of
from integration.api.serving import Api
from integration.api.stations import PLAN, Bureau, bureau, failing, swept
from noonbell.model.request import ClaimRequest
from noonbell.settings import PlanSettings, Settings

DAILY = {"plan_type": "day", "plan_value": 1, "plan_repet": -1}
EACH_SECOND = {"plan_type": "second", "plan_value": 1, "plan_repet": -1}


@pytest.fixture
async def here() -> AsyncIterator[Bureau]:
    async with bureau() as found:
        yield found


@pytest.fixture(params=["memory", "sqlite", "postgres", "mariadb"])
async def everywhere(request: pytest.FixtureRequest) -> AsyncIterator[Bureau]:
    async with bureau(url_of(request.param, request)) as found:
        yield found


async def test_the_life_of_a_plan(everywhere: Bureau):
    here = everywhere
    handler = await here.station()
    made = await here.publish(
        plan_id="1F4A",
        request_id="order-4711",
        caller="shop",
        description="结算",
        plan_type="minute",
        plan_value=10,
        plan_repet=3,
        plan_time="2026-11-15T12:00:00Z",
    )
    assert (made["plan_id"], made["request_id"], made["station"], made["caller"], made["description"]) == (
        *("1f4a", "order-4711", "billing", "shop", "结算"),
    )
    assert (made["plan_state"], made["last_state"], made["real_repet"]) == ("queue", "none", 0)
    assert (made["plan_time"], made["exec_time"]) == ("2026-11-15T12:00:00Z", "2026-11-15T12:10:00Z")
    assert (made["target"], made["no_keep"], made["messages"]) == ("api", False, PLAN["messages"])

    await here.at("2026-11-15T12:10:00Z")
    plan = await here.plan("1f4a")
    assert (plan["real_repet"], plan["last_state"], plan["exec_time"]) == (1, "ok", "2026-11-15T12:20:00Z")
    (result,) = plan["results"]
    assert (result["exec_time"], result["state"], result["result"]) == ("2026-11-15T12:10:00Z", "ok", "by b1")
    assert result["participants"] == [{"worker_id": "b1", "state": "ok", "result": "by b1", "error_message": None}]

    assert (await here.act("1f4a", "pause"))["plan_state"] == "pause"
    await here.at("2026-11-15T12:20:00Z")
    assert (await here.act("1f4a", "resume"))["exec_time"] == "2026-11-15T12:30:00Z"
    skipping = await here.act("1f4a", "skip", count=1)
    assert (skipping["plan_state"], skipping["skip_set"]) == ("skip", 1)
    await here.at("2026-11-15T12:30:00Z")
    plan = await here.plan("1f4a")
    assert (plan["real_repet"], plan["skip_num"], plan["last_state"]) == (1, 1, "skip")
    await here.at("2026-11-15T12:40:00Z")
    plan = await here.plan("1f4a")
    assert (plan["plan_state"], plan["real_repet"], plan["exec_time"]) == ("close", 2, None)
    assert handler.slots == ["2026-11-15T12:10:00Z", "2026-11-15T12:40:00Z"]

    fresh = await here.act("1f4a", "reset")
    assert (fresh["plan_state"], fresh["real_repet"], fresh["skip_num"]) == ("queue", 0, 0)
    assert fresh["exec_time"] == "2026-11-15T12:50:00Z"
    assert (await here.act("1f4a", "close"))["plan_state"] == "close"
    assert await here.api.good("DELETE", "/plans/1F4A") == {"plan_id": "1f4a", "deleted": True}
    assert await here.api.bad("GET", "/plans/1f4a") == (404, "NOT_FOUND")
    await here.publish(plan_id="1f4a", plan_type="none")


async def test_a_plan_is_its_task_and_its_runs_are_that_tasks_runs(here: Bureau):
    await here.station()
    made = await here.publish(plan_type="none")
    await here.work()
    task = await here.api.good("GET", f"/tasks/{made['task_id']}")
    assert (task["name"], task["queue"], task["external_id"]) == (made["task_name"], "billing", made["plan_id"])
    runs = await here.api.good("GET", f"/tasks/{made['task_id']}/runs")
    (result,) = (await here.plan(made["plan_id"]))["results"]
    assert [run["id"] for run in runs["items"]] == [result["run_id"]]


async def test_a_plan_that_is_published_says_where_it_is(here: Bureau):
    told = await here.api.call("POST", "/plans", {**PLAN, "plan_type": "none", "plan_id": "aa"})
    assert (told.status, told.headers["location"]) == (201, "/api/v1/plans/aa")
    assert await here.api.bad("POST", "/plans", {**PLAN, "plan_type": "none", "plan_id": "aa"}) == (
        *(409, "ALREADY_EXISTS"),
    )


async def test_bad_plans_are_refused_with_each_field_named_and_nothing_is_saved(everywhere: Bureau):
    told = await everywhere.api.call("POST", "/plans", {"plan_type": "week", "plan_value": 7, "plan_repet": 0, "x": 1})
    assert (told.status, told.code) == (400, "INVALID_ARGUMENT")
    assert set(told.body["details"]) == {"station", "messages", "plan_value", "plan_repet", "x"}
    assert await everywhere.api.bad("POST", "/plans", data=b"{") == (400, "INVALID_JSON")
    assert await everywhere.api.bad("POST", "/plans", [PLAN]) == (400, "INVALID_ARGUMENT")
    assert (await everywhere.api.good("GET", "/tasks"))["total"] == 0


async def test_plans_are_listed_by_station_type_and_state(everywhere: Bureau):
    here = everywhere
    await here.publish(plan_id="1", station="a", **EACH_SECOND)
    await here.publish(plan_id="2", station="a", **DAILY)
    await here.publish(plan_id="3", station="b", plan_type="week", plan_value=1, plan_repet=-1)
    await here.publish(plan_id="4", station="b", plan_type="month", plan_value=0, plan_repet=-1)
    await here.act("2", "pause")
    await here.act("4", "close")
    await here.api.good("POST", "/tasks", {"name": "no plan", "job_type": "x"}, 201)

    async def found(query: str) -> list[str]:
        page = await here.api.good("GET", f"/plans{query}")
        assert page["total"] == len(page["items"])
        return [plan["plan_id"] for plan in page["items"]]

    assert await found("") == ["1", "2", "3", "4"]
    assert await found("?sort=-id") == ["4", "3", "2", "1"]
    assert await found("?station=a") == ["1", "2"]
    assert await found("?plan_type=week") == ["3"]
    assert await found("?plan_type=delay") == ["1", "2"]
    assert await found("?state=active") == ["1", "2", "3"]
    assert await found("?state=pause") == ["2"]
    assert await found("?state=history") == ["4"]
    assert await found("?state=error&station=a") == []
    page = await here.api.good("GET", "/plans?page_size=3&page=2")
    assert ([plan["plan_id"] for plan in page["items"]], page["total"]) == (["4"], 4)


@pytest.mark.parametrize("query", ["?state=gone", "?plan_type=year", "?page=0", "?moon=1", "?station=", "?cursor=x"])
async def test_a_filter_with_a_slip_is_refused_or_empty(here: Bureau, query: str):
    told = await here.api.call("GET", f"/plans{query}")
    assert told.status == (200 if query == "?station=" else 400)


@pytest.mark.parametrize("verb", ["pause", "resume", "skip", "reset", "close"])
async def test_an_unknown_plan_can_be_nothing(here: Bureau, verb: str):
    assert await here.api.bad("POST", f"/plans/abc/{verb}") == (404, "NOT_FOUND")
    assert await here.api.bad("POST", f"/plans/xyz/{verb}") == (400, "INVALID_ID")
    assert await here.api.bad("DELETE", "/plans/abc") == (404, "NOT_FOUND")


@pytest.mark.parametrize("body", [{"count": -2}, {"count": "2"}, {"count": 3}, {"n": 1}])
async def test_a_skip_that_makes_no_sense_is_refused(here: Bureau, body: dict[str, Any]):
    await here.publish(plan_id="1", plan_type="day", plan_value=1, plan_repet=3)
    assert await here.api.bad("POST", "/plans/1/skip", body) == (400, "INVALID_ARGUMENT")


async def test_a_skip_without_a_number_skips_one(here: Bureau):
    await here.publish(plan_id="1", **DAILY)
    assert (await here.act("1", "skip"))["skip_set"] == 1


# ---- errors


async def test_an_error_goes_back_to_the_same_slot_three_times_and_then_the_plan_is_in_error(everywhere: Bureau):
    here = everywhere
    handler = await here.station()
    handler.answers = [failing("error") for _ in range(4)]
    await here.publish(plan_id="1", plan_type="minute", plan_value=1, plan_repet=5)
    await here.after(60)
    assert [(p["plan_state"], p["last_state"]) for p in [await here.plan("1")]] == [("retry", "retry")]
    for _ in range(3):
        await here.after(2)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["last_state"], plan["exec_time"]) == ("error", "error", None)
    assert handler.slots == ["2026-11-15T12:01:00Z"] * 4
    (result,) = plan["results"]
    assert (result["attempt"], result["error_message"]) == (4, "a made error")

    await here.after(600)
    assert len(handler.seen) == 4
    for verb in ("pause", "resume"):
        assert await here.api.bad("POST", f"/plans/1/{verb}") == (409, "INVALID_STATE")
    assert await here.api.bad("POST", f"/tasks/{plan['task_id']}/trigger") == (409, "INVALID_STATE")

    fresh = await here.act("1", "reset")
    assert (fresh["plan_state"], fresh["real_repet"]) == ("queue", 0)
    for _ in range(6):
        await here.after(60)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["real_repet"]) == ("close", 5)


async def test_an_error_that_passes_is_forgotten(here: Bureau):
    handler = await here.station()
    handler.answers = [failing("error"), failing("error")]
    await here.publish(plan_id="1", plan_type="none")
    for _ in range(3):
        await here.after(2)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["last_state"], plan["real_repet"]) == ("close", "ok", 1)
    assert len(handler.seen) == 3


async def test_a_fail_is_final_at_once_and_what_waits_is_canceled(here: Bureau):
    handler = await here.station()
    handler.answers = [failing("fail")]
    await here.publish(plan_id="1", **EACH_SECOND)
    await here.after(1)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["last_state"]) == ("error", "failed")
    assert len(handler.seen) == 1


async def test_a_one_shot_plan_in_error_runs_again_when_it_is_reset(here: Bureau):
    handler = await here.station()
    handler.answers = [failing("fail")]
    await here.publish(plan_id="1", plan_type="time", plan_time="2026-11-15T12:00:30Z")
    await here.after(30)
    assert (await here.plan("1"))["plan_state"] == "error"
    await here.after(60.5)
    await here.act("1", "reset")
    await here.planner.tick()
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["last_state"], plan["real_repet"]) == ("queue", "queue", 0)
    await here.work()
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["last_state"], plan["real_repet"]) == ("close", "ok", 1)
    assert handler.slots == ["2026-11-15T12:00:30Z", "2026-11-15T12:01:30Z"]


async def test_a_one_shot_plan_that_was_paused_before_its_time_keeps_its_time(here: Bureau):
    await here.publish(plan_id="1", plan_type="time", plan_time="2026-11-15T13:00:00Z")
    await here.act("1", "pause")
    assert (await here.act("1", "reset"))["exec_time"] == "2026-11-15T13:00:00Z"


async def test_the_timeout_of_plans_is_the_settings():
    async with bureau(settings=Settings(plans=PlanSettings(exec_timeout=7))) as here:
        made = await here.publish(plan_type="none")
        assert (await here.api.good("GET", f"/tasks/{made['task_id']}"))["timeout_seconds"] == 7


async def test_an_attempt_past_its_timeout_is_sent_again(here: Bureau):
    handler = await here.station()
    await here.publish(plan_id="1", plan_type="none")
    await here.planner.tick()
    silent = ClaimRequest(worker_id="silent", queues=("billing",), max=1)
    (lease,) = (await here.store.claim(silent)).leases
    assert (lease.deadline_at - lease.claimed_at) == 300_000_000
    await here.after(301)
    await swept(here)
    await here.after(2)
    plan = await here.plan("1")
    assert (plan["last_state"], plan["results"][0]["attempt"]) == ("ok", 2)
    assert handler.slots == ["2026-11-15T12:00:00Z"]


# ---- stations


async def test_a_plan_without_a_worker_says_so_and_waits(here: Bureau):
    await here.publish(plan_id="1", plan_type="none")
    await here.work()
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["last_state"], plan["real_repet"]) == ("queue", "not_worker", 0)
    handler = await here.station()
    await here.work()
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["last_state"], plan["real_repet"]) == ("close", "ok", 1)
    assert handler.slots == ["2026-11-15T12:00:00Z"]


async def test_a_station_is_sent_the_plan_and_its_messages(here: Bureau):
    handler = await here.station()
    await here.publish(plan_id="1", caller="shop", request_id="r", plan_type="none", messages=["go", {"n": 1}])
    await here.work()
    (seen,) = handler.seen
    payload = seen.lease.payload if seen.lease.payload is not None else seen.task.spec.payload
    assert payload["messages"] == ["go", {"n": 1}]
    assert (payload["plan"]["plan_id"], payload["plan"]["caller"], payload["plan"]["request_id"]) == ("1", "shop", "r")
    assert payload["plan"]["plan_time"] == "2026-11-15T12:00:00Z"


async def test_results_are_told_on_the_tasks_topic_with_the_plan_as_subject(here: Bureau):
    await here.station()
    made = await here.publish(plan_id="1f", plan_type="none")
    await here.work()
    (event,) = await here.told("run.result")
    assert (event.topic, event.data["subject"], event.data["result"]) == (made["task_name"], "1f", "by b1")


async def test_pub_is_told_on_the_stations_topic_and_done_without_a_worker(everywhere: Bureau):
    here = everywhere
    await here.publish(plan_id="1f", target="pub", station="news", messages=["rain"], **EACH_SECOND)
    await here.after(1)
    await here.after(1)
    plan = await here.plan("1f")
    assert (plan["plan_state"], plan["last_state"], plan["real_repet"]) == ("queue", "ok", 2)
    told = await here.told("run.published")
    assert [(event.topic, event.data["subject"], event.data["messages"]) for event in told] == [
        ("news", "1f", ["rain"])
    ] * 2


async def test_a_vote_is_answered_by_every_worker_of_the_station(everywhere: Bureau):
    here = everywhere
    handlers = [await here.station("jury", f"j{number}") for number in range(3)]
    await here.station("other", "o1")
    await here.publish(plan_id="1f", target="vote", station="jury", plan_type="none")
    await here.work()
    plan = await here.plan("1f")
    assert (plan["plan_state"], plan["last_state"], plan["real_repet"]) == ("close", "ok", 1)
    (result,) = plan["results"]
    assert [(each["worker_id"], each["result"]) for each in result["participants"]] == [
        (f"j{number}", f"by j{number}") for number in range(3)
    ]
    assert [len(handler.seen) for handler in handlers] == [1, 1, 1]


# ---- what the description says


async def test_answers_have_the_fields_that_the_description_lists(quick_api: Api):
    document = await quick_api.good("GET", "//openapi.json")
    schemas = document["components"]["schemas"]
    made = await quick_api.good("POST", "/plans", {**PLAN, **DAILY, "plan_id": "1"}, 201)
    assert set(made) == set(schemas["Plan"]["properties"])
    assert set(await quick_api.good("GET", "/plans/1")) == set(schemas["PlanWhole"]["properties"])
    assert set(await quick_api.good("GET", "/plans")) == set(schemas["PlanPage"]["required"])


async def test_the_examples_of_the_description_are_taken(quick_api: Api):
    paths = (await quick_api.good("GET", "//openapi.json"))["paths"]
    publish = paths["/api/v1/plans"]["post"]["requestBody"]["content"]["application/json"]["example"]
    made = await quick_api.good("POST", "/plans", publish, 201)
    skip = paths["/api/v1/plans/{plan_id}/skip"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert (await quick_api.good("POST", f"/plans/{made['plan_id']}/skip", skip))["skip_set"] == skip["count"]
