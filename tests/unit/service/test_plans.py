"""Plans: what becomes of each field, what is refused, and the words that a plan is shown in."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.clock import ManualClock
from noonbell.dialects.plans import (
    LastState,
    PlanDraft,
    PlanFacts,
    PlansDialect,
    PlanType,
    forget_finished,
    last_state,
    plan_id_of,
    read_plan,
)
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidId, InvalidState, NotFound
from noonbell.fields.kinds import read_moment
from noonbell.model.request import RunQuery, TaskQuery
from noonbell.model.run import Origin, Run, RunId, RunStatus
from noonbell.model.task import MisfirePolicy, OnExhausted, OverlapAction, TaskId, TaskStatus
from noonbell.service import Rules, Services
from noonbell.service.retention import Keep, Retention
from noonbell.stores.sqlite import MemoryStore

NOW = read_moment("2026-11-15T09:00:00Z")
LEAST: dict[str, Any] = {"station": "billing", "messages": ["settle"], "plan_type": "none"}


def read(**fields: Any) -> PlanDraft:
    return read_plan({**LEAST, **fields}, NOW, Rules(plan_timeout=42))


def refused(**fields: Any) -> dict[str, Any]:
    with pytest.raises(InvalidArgument) as caught:
        read(**fields)
    return dict(caught.value.details)


# ---- from the vocabulary to a schedule

EVERY = {"type": "interval", "anchor": "2026-11-15T08:00:00Z", "mode": "fixed_rate", "repeat": None}
AT = "2026-11-15T08:00:00Z"


@pytest.mark.parametrize(
    ("fields", "schedule"),
    [
        ({"plan_type": "none"}, {"type": "once", "at": "2026-11-15T09:00:00Z", "run_if_late": True}),
        (
            {"plan_type": "none", "plan_time": 5, "plan_repet": 7, "plan_value": 3},
            {"type": "once", "at": "2026-11-15T09:00:00Z", "run_if_late": True},
        ),
        ({"plan_type": "time", "plan_time": AT}, {"type": "once", "at": AT, "run_if_late": False}),
        (
            {"plan_type": "time", "plan_time": AT, "no_keep": True, "plan_repet": 9},
            {"type": "once", "at": AT, "run_if_late": True},
        ),
        (
            {"plan_type": "second", "plan_value": 32766, "plan_repet": -1, "plan_time": AT},
            EVERY | {"every": 32766, "unit": "second"},
        ),
        (
            {"plan_type": "minute", "plan_value": 1, "plan_repet": -1, "plan_time": AT},
            EVERY | {"every": 1, "unit": "minute"},
        ),
        (
            {"plan_type": "hour", "plan_value": 2, "plan_repet": 4, "plan_time": AT},
            EVERY | {"every": 2, "unit": "hour", "repeat": 4},
        ),
        (
            {"plan_type": "day", "plan_value": 1, "plan_repet": 4},
            EVERY | {"every": 1, "unit": "day", "repeat": 4, "anchor": "2026-11-15T09:00:00Z"},
        ),
        (
            {"plan_type": "day", "plan_value": 1, "plan_repet": 4, "plan_time": 0, "no_keep": True},
            EVERY | {"every": 1, "unit": "day", "repeat": 4, "anchor": "2026-11-15T09:00:00Z", "mode": "fixed_delay"},
        ),
        (
            {"plan_type": "week", "plan_value": 0, "plan_repet": -1, "plan_time": "1999-05-05T23:59:01Z"},
            {"type": "weekly", "weekday": 0, "time": "23:59:01", "repeat": None},
        ),
        (
            {"plan_type": "week", "plan_value": 6, "plan_repet": 2},
            {"type": "weekly", "weekday": 6, "time": "00:00:00", "repeat": 2},
        ),
        (
            {"plan_type": "month", "plan_value": -31, "plan_repet": 1, "plan_time": 3_600},
            {"type": "monthly", "day": -31, "time": "01:00:00", "repeat": 1},
        ),
        (
            {"plan_type": "month", "plan_value": 31, "plan_repet": -1, "plan_time": "2026-01-01T08:00:00+08:00"},
            {"type": "monthly", "day": 31, "time": "00:00:00", "repeat": None},
        ),
    ],
)
def test_every_type_has_its_schedule(fields: dict[str, Any], schedule: dict[str, Any]):
    draft = read(**fields)
    assert draft.spec.schedule == schedule
    assert draft.status is TaskStatus.ENABLED


def test_a_plan_is_a_job_of_its_station_with_the_policies_of_a_plan():
    spec = read(plan_id="1F4A", description="Settle", plan_type="day", plan_value=1, plan_repet=-1).spec
    assert (spec.name, spec.external_id, spec.queue, spec.job_type) == ("plan:billing:1f4a", "1f4a", "billing", "plan")
    assert (spec.description, spec.labels, spec.timeout_seconds) == ("Settle", {"plan": "day"}, 42)
    assert (spec.misfire_policy, spec.overlap_action) == (MisfirePolicy.SKIP, OverlapAction.SKIP)
    assert (spec.on_exhausted, spec.retries.max_retries, spec.fanout) == (OnExhausted.ERROR, 3, None)


def test_the_payload_carries_the_plan_and_its_messages():
    spec = read(request_id="r", caller="shop", plan_id=255, messages=["settle", {"n": 1}]).spec
    assert spec.payload == {
        "plan": {
            "plan_id": "ff",
            "request_id": "r",
            "station": "billing",
            "caller": "shop",
            "description": "",
            "plan_type": "none",
            "plan_value": 0,
            "plan_repet": 0,
            "no_keep": False,
            "target": "api",
            "plan_time": "2026-11-15T09:00:00Z",
        },
        "messages": ["settle", {"n": 1}],
    }


def test_a_vote_goes_to_all_workers_of_the_station():
    fanout = read(target="vote").spec.fanout
    assert fanout is not None
    assert (fanout.workers, fanout.success) == ("all", "all")


@pytest.mark.parametrize(
    ("given", "kept"), [(None, None), (0, "0"), (2**63 - 1, "7fffffffffffffff"), ("00AB", "00ab"), ("f" * 32, "f" * 32)]
)
def test_an_id_is_kept_in_lower_case_hexadecimal(given: Any, kept: str | None):
    found = read(plan_id=given).spec.external_id
    assert found is not None
    assert plan_id_of(found) == found
    assert kept is None or found == kept


def test_ids_that_are_made_differ():
    assert read().spec.external_id != read().spec.external_id


# ---- time that has passed already


def test_slots_of_a_fixed_rate_that_have_passed_are_used_up():
    draft = read(plan_type="minute", plan_value=10, plan_repet=7, plan_time="2026-11-15T08:00:00Z")
    assert draft.spec.schedule is not None
    assert (draft.spec.schedule["repeat"], draft.spec.meta["plan"]["passed"]) == (1, 6)
    assert draft.status is TaskStatus.ENABLED


def test_a_fixed_rate_whose_last_slot_has_passed_is_complete_from_the_start():
    draft = read(plan_type="minute", plan_value=10, plan_repet=6, plan_time="2026-11-15T08:00:00Z")
    assert draft.status is TaskStatus.COMPLETED


def test_a_fixed_rate_for_ever_and_a_fixed_delay_use_nothing_up():
    for fields in ({"plan_repet": -1}, {"plan_repet": 6, "no_keep": True}):
        draft = read(plan_type="minute", plan_value=10, plan_time="2026-11-15T08:00:00Z", **fields)
        assert draft.status is TaskStatus.ENABLED


@pytest.mark.parametrize(("moment", "grace"), [("2026-11-15T08:59:59Z", 0), ("2026-11-15T09:00:00Z", 10)])
def test_a_time_that_has_passed_by_a_second_is_late_and_one_that_is_now_is_not(moment: str, grace: int):
    assert read(plan_type="time", plan_time=moment).spec.misfire_grace_seconds == grace


# ---- bad plans

DAILY = {"plan_type": "day", "plan_value": 1, "plan_repet": 1}
BAD = [
    ("station", {"station": None}),
    ("station", {"station": ""}),
    ("station", {"station": " billing"}),
    ("station", {"station": "http"}),
    ("station", {"station": "s" * 201}),
    ("station", {"station": "a\nb"}),
    ("plan_type", {"plan_type": None}),
    ("plan_type", {"plan_type": "year"}),
    ("plan_type", {"plan_type": 3}),
    ("plan_value", DAILY | {"plan_value": None}),
    ("plan_value", DAILY | {"plan_value": 0}),
    ("plan_value", DAILY | {"plan_value": -1}),
    ("plan_value", DAILY | {"plan_value": 32767}),
    ("plan_value", DAILY | {"plan_value": "1"}),
    ("plan_value", DAILY | {"plan_value": 1.5}),
    ("plan_value", DAILY | {"plan_value": True}),
    ("plan_value", DAILY | {"plan_type": "week", "plan_value": 7}),
    ("plan_value", DAILY | {"plan_type": "week", "plan_value": -1}),
    ("plan_value", DAILY | {"plan_type": "month", "plan_value": 32}),
    ("plan_value", DAILY | {"plan_type": "month", "plan_value": -32}),
    ("plan_repet", DAILY | {"plan_repet": None}),
    ("plan_repet", DAILY | {"plan_repet": 0}),
    ("plan_repet", DAILY | {"plan_repet": -2}),
    ("plan_repet", DAILY | {"plan_repet": "3"}),
    ("plan_repet", {"plan_type": "week", "plan_value": 1, "plan_repet": 0}),
    ("plan_repet", {"plan_type": "month", "plan_value": 1, "plan_repet": 0}),
    ("plan_repet", {"plan_repet": "x"}),
    ("plan_time", {"plan_type": "time"}),
    ("plan_time", {"plan_type": "time", "plan_time": 0}),
    ("plan_time", DAILY | {"plan_time": -1}),
    ("plan_time", DAILY | {"plan_time": 1.5}),
    ("plan_time", DAILY | {"plan_time": True}),
    ("plan_time", DAILY | {"plan_time": 10**12}),
    ("plan_time", DAILY | {"plan_time": 10**400}),
    ("plan_time", DAILY | {"plan_time": "tomorrow"}),
    ("plan_time", DAILY | {"plan_time": "2026-11-15T09:00:00"}),
    ("plan_time", DAILY | {"plan_time": "2026-02-30T09:00:00Z"}),
    ("plan_time", DAILY | {"plan_time": "9998-01-01T00:00:00Z"}),
    ("no_keep", {"no_keep": 1}),
    ("target", {"target": "sub"}),
    ("messages", {"messages": None}),
    ("messages", {"messages": []}),
    ("messages", {"messages": "settle"}),
    ("messages", {"messages": [1] * 1001}),
    ("messages", {"messages": ["\ud800"]}),
    ("messages", {"messages": ["x" * 262_144], "target": "pub"}),
    ("plan_id", {"plan_id": ""}),
    ("plan_id", {"plan_id": "xyz"}),
    ("plan_id", {"plan_id": "f" * 33}),
    ("plan_id", {"plan_id": -1}),
    ("plan_id", {"plan_id": 2**63}),
    ("plan_id", {"plan_id": True}),
    ("caller", {"caller": "c" * 256}),
    ("request_id", {"request_id": 7}),
    ("description", {"description": ["x"]}),
    ("delete_on_complete", {"delete_on_complete": "yes"}),
    ("real_repet", {"real_repet": 1}),
    ("plan_tpye", {"plan_tpye": "day"}),
]


@pytest.mark.parametrize(("field", "fields"), BAD, ids=lambda value: str(value)[:50])
def test_a_bad_plan_is_refused_and_its_field_named(field: str, fields: dict[str, Any]):
    assert list(refused(**fields)) == [field]


def test_every_wrong_field_is_named_at_once():
    assert set(refused(station=None, plan_type="week", plan_value=9, plan_repet=0, messages=None, moon=1)) == {
        *("station", "plan_value", "plan_repet", "messages", "moon")
    }


# ---- what can be done with one


async def due(services: Services, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    await services.store.plan(100)


async def published(services: Services, **fields: Any) -> str:
    task = await PlansDialect(services).publish({**LEAST, **fields})
    return str(task.spec.external_id)


async def state(services: Services, plan_id: str) -> str:
    return str((await PlansDialect(services).show(await PlansDialect(services).get(plan_id)))["plan_state"])


async def test_a_plan_is_published_once(services: Services, store: MemoryStore):
    await published(services, plan_id="1F")
    with pytest.raises(AlreadyExists) as caught:
        await published(services, plan_id="1f", station="other")
    assert caught.value.details == {"plan_id": "is taken", "task_id": 1}
    assert (await store.tasks(TaskQuery())).total == 1
    await PlansDialect(services).remove("1F")
    assert await published(services, plan_id="1f") == "1f"


@pytest.mark.parametrize("plan_id", ["xyz", "", "f" * 33, "1 or 1"])
async def test_what_is_no_id_is_told_so(services: Services, plan_id: str):
    with pytest.raises(InvalidId):
        await PlansDialect(services).get(plan_id)


async def test_a_task_that_is_no_plan_is_not_found_as_one(services: Services):
    await services.tasks.create({"name": "t", "job_type": "x", "external_id": "aa", "labels": {"plan": "day"}})
    with pytest.raises(NotFound):
        await PlansDialect(services).get("aa")
    assert (await PlansDialect(services).page(TaskQuery())).items == []


async def test_a_plan_that_somebody_made_something_else_of_is_no_plan_any_longer(services: Services):
    plan_id = await published(services, plan_type="day", plan_value=1, plan_repet=-1)
    await services.tasks.change(TaskId(1), {"payload": {"mine": 1}}, partial=True)
    with pytest.raises(NotFound):
        await PlansDialect(services).get(plan_id)


async def test_pause_and_resume_are_refused_after_the_end(services: Services):
    plan_id = await published(services, plan_type="day", plan_value=1, plan_repet=-1)
    assert await state(services, plan_id) == "queue"
    await PlansDialect(services).pause(plan_id)
    assert await state(services, plan_id) == "pause"
    await PlansDialect(services).resume(plan_id)
    assert await state(services, plan_id) == "queue"
    await PlansDialect(services).close(plan_id)
    assert await state(services, plan_id) == "close"
    for verb in (PlansDialect(services).pause, PlansDialect(services).resume):
        with pytest.raises(InvalidState, match="closed"):
            await verb(plan_id)
    await PlansDialect(services).reset(plan_id)
    assert await state(services, plan_id) == "queue"


async def test_a_one_shot_plan_runs_again_though_it_is_reset_within_its_second(
    services: Services, store: MemoryStore, clock: ManualClock
):
    plan_id = await published(services, plan_type="none")
    await due(services, clock, 0)
    await PlansDialect(services).close(plan_id)
    await PlansDialect(services).reset(plan_id)
    await due(services, clock, 1)
    runs = await store.runs(RunQuery(sort="id"))
    assert [run.status for run in runs.items] == [RunStatus.CANCELED, RunStatus.SCHEDULED]


async def test_closing_cancels_the_run_that_waits(services: Services, store: MemoryStore, clock: ManualClock):
    plan_id = await published(services, plan_type="second", plan_value=1, plan_repet=-1)
    await due(services, clock, 1)
    assert await state(services, plan_id) == "queue"
    await PlansDialect(services).close(plan_id)
    shown = await PlansDialect(services).show(await PlansDialect(services).get(plan_id))
    assert (shown["plan_state"], shown["last_state"], shown["real_repet"]) == ("close", "canceled", 0)
    assert shown["note"] == "ended without having run"


@pytest.mark.parametrize("count", [3, 4, 1_000_000])
async def test_no_more_can_be_skipped_than_leaves_something_to_run(services: Services, count: int):
    plan_id = await published(services, plan_type="day", plan_value=1, plan_repet=3)
    with pytest.raises(InvalidArgument) as caught:
        await PlansDialect(services).skip(plan_id, count)
    assert list(caught.value.details) == ["count"]


async def test_skipping_is_taken_back_by_a_reset(services: Services):
    plan_id = await published(services, plan_type="day", plan_value=1, plan_repet=-1)
    task = await PlansDialect(services).skip(plan_id, -1)
    assert (task.skip_next, await state(services, plan_id)) == (-1, "skip")
    await PlansDialect(services).reset(plan_id)
    assert await state(services, plan_id) == "queue"


# ---- retention


async def test_a_finished_plan_falls_to_retention_with_the_last_of_its_runs(
    services: Services, store: MemoryStore, clock: ManualClock
):
    old = await published(services, plan_type="none", target="pub")
    going_on = await published(services, plan_type="day", plan_value=40, plan_repet=-1)
    await due(services, clock, 1)

    async def clean() -> None:
        async def between(removed: int) -> None:
            del removed

        await Retention(store, [forget_finished]).clean(Keep(days=30), between)

    clock.advance(29 * 86_400)
    young = await published(services, plan_type="none", target="pub")
    await due(services, clock, 1)
    await clean()
    assert await state(services, old) == "close"
    clock.advance(2 * 86_400)
    await clean()
    with pytest.raises(NotFound):
        await PlansDialect(services).get(old)
    assert await store.task(TaskId(1)) is None
    assert (await state(services, young), await state(services, going_on)) == ("close", "queue")


# ---- the words for a run


def run(status: RunStatus, kind: str | None = None) -> Run:
    return Run(
        id=RunId(1),
        task_id=TaskId(1),
        task_name="t",
        task_version=1,
        origin=Origin.SCHEDULE,
        status=status,
        scheduled_time=NOW,
        run_at=NOW,
        created_at=NOW,
        updated_at=NOW,
        queue="q",
        error_details=None if kind is None else {"kind": kind},
    )


@pytest.mark.parametrize("status", list(RunStatus))
def test_every_status_of_a_run_has_its_word(status: RunStatus):
    assert last_state(PlanFacts(last=run(status))) in set(LastState) - {LastState.NONE}


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (PlanFacts(), "none"),
        (PlanFacts(last=run(RunStatus.SCHEDULED), is_unattended=True), "not_worker"),
        (PlanFacts(last=run(RunStatus.FAILED, "fail")), "failed"),
        (PlanFacts(last=run(RunStatus.FAILED, "error")), "error"),
        (PlanFacts(last=run(RunStatus.FAILED, "lost")), "error"),
        (PlanFacts(last=run(RunStatus.TIMEOUT, "timeout")), "timeout"),
    ],
)
def test_the_last_state_says_how_it_ended(facts: PlanFacts, word: str):
    assert last_state(facts) == word


def test_the_types_are_those_of_the_document_in_its_order():
    assert [str(kind) for kind in PlanType] == ["none", "time", "second", "minute", "hour", "day", "week", "month"]
