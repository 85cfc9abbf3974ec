"""What document 004 asks for: its eight types of plan, through HTTP and a worker. The list of what shows the rest: test_requirements.py.

The short types run on a real node with a worker that speaks HTTP. The long ones (hours, days, months) run on the same
application under a clock that stands still until it is moved.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import PATIENCE, Nodes, ServerNode, until
from integration.api.stations import Bureau, bureau
from noonbell.dialects.plans import WRITTEN, LastState, PlanState, PlanType
from noonbell.model.event import ResultTarget
from services import forked

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to/plans.md"
HOST = "http://localhost:8080"
MESSAGES = ["settle", {"open": True}]


# ---- a real node, and a station's worker of any language


class Station:
    """A worker that speaks HTTP and nothing else, in a thread."""

    def __init__(self, node: ServerNode, queue: str, worker_id: str) -> None:
        self.seen: list[dict[str, Any]] = []
        self.script: list[dict[str, Any]] = []
        """Bodies of the settlements to come; without any, success."""
        self.hold = threading.Event()
        self.hold.set()
        self._node, self._queue, self._id = node, queue, worker_id
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._ends.is_set():
            asked = {"queues": [self._queue], "max": 5, "wait_seconds": 1}
            for run in self._node.ask("POST", f"/workers/{self._id}/claim", asked)["runs"]:
                self.seen.append(run)
                self._carry_out(run)

    def _carry_out(self, run: dict[str, Any]) -> None:
        held = {"worker_id": self._id, "token": run["token"]}
        while not self.hold.wait(0.2):
            # WAITING: it takes longer, so please do not send it to anybody else.
            self._node.ask("POST", f"/runs/{run['run_id']}/extend", {**held, "seconds": 60})
        said = self.script.pop(0) if self.script else {"outcome": "success", "result": [self._id, "done"]}
        self._node.ask("POST", f"/runs/{run['run_id']}/settle", {**held, **said})

    @property
    def slots(self) -> list[str]:
        return [run["scheduled_time"] for run in self.seen]

    def close(self) -> None:
        self.hold.set()
        self._ends.set()
        self._thread.join(10)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerNode]:
    folder = tmp_path_factory.mktemp("document-004")
    nodes = Nodes(folder)
    try:
        yield nodes.start(f"sqlite:///{folder / 'noonbell.db'}", env={"NOONBELL_PLANS__EXEC_TIMEOUT": "30"})
    finally:
        nodes.end()


@pytest.fixture
def stations(node: ServerNode) -> Iterator[Any]:
    """Makes workers, each for a queue of its own; they end with the test."""
    made: list[Station] = []

    def station(queue: str, worker_id: str | None = None) -> Station:
        made.append(Station(node, queue, worker_id or f"{queue}-1"))
        return made[-1]

    yield station
    for each in made:
        each.close()


def publish(node: ServerNode, **fields: Any) -> str:
    return str(node.ask("POST", "/plans", {"messages": MESSAGES, **fields}, expect=201)["plan_id"])


def ended(node: ServerNode, plan_id: str) -> Any:
    """The plan, once it is closed."""

    def closed() -> Any:
        plan = node.ask("GET", f"/plans/{plan_id}")
        return plan if plan["plan_state"] in ("close", "error") else None

    return until(closed, f"plan {plan_id} to end")


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def test_none_is_sent_at_once_with_the_plan_in_it(node, stations):
    station = stations("none")
    plan_id = publish(node, station="none", plan_type="none", caller="shop", request_id="r-1", description="Once")
    plan = ended(node, plan_id)
    assert (plan["last_state"], plan["real_repet"], plan["exec_time"]) == ("ok", 1, None)
    (run,) = station.seen
    assert (run["job_type"], run["queue"], run["payload"]["messages"]) == ("plan", "none", MESSAGES)
    sent = run["payload"]["plan"]
    assert (sent["plan_id"], sent["caller"], sent["request_id"], sent["description"]) == (
        plan_id,
        "shop",
        "r-1",
        "Once",
    )
    assert sent["plan_time"] == run["scheduled_time"]
    (result,) = plan["results"]
    assert (result["result"], result["participants"][0]["worker_id"]) == (["none-1", "done"], "none-1")


def test_time_is_sent_once_at_its_time(node, stations):
    station = stations("time")
    at = int(time.time()) + 2
    plan_id = publish(node, station="time", plan_type="time", plan_time=at, plan_repet=5)
    plan = ended(node, plan_id)
    assert (plan["last_state"], plan["real_repet"]) == ("ok", 1)
    assert [seconds(slot) for slot in station.slots] == [at]
    assert seconds(plan["results"][0]["start_time"]) >= at


def test_second_is_sent_so_many_times_and_so_many_seconds_apart(node, stations):
    """A machine that is very busy may skip a slot, as it must; then it says so, and the count is whole all the same."""
    station = stations("second")
    plan_id = publish(node, station="second", plan_type="second", plan_value=1, plan_repet=3)
    plan = ended(node, plan_id)
    first = seconds(plan["plan_time"])
    sent = [seconds(slot) - first for slot in station.slots]
    assert set(sent) <= {1, 2, 3}
    assert len(sent) == len(set(sent)) == plan["real_repet"] == 3 - plan["skip_num"]


def test_second_with_no_keep_goes_on_from_the_end_of_each_execution(node, stations):
    station = stations("delay")
    station.hold.clear()
    plan_id = publish(node, station="delay", plan_type="second", plan_value=1, plan_repet=2, no_keep=True)
    until(lambda: station.seen, "the first execution")
    until(lambda: time.time() - seconds(station.slots[0]) > 2.5, "the execution to take longer than the interval")
    plan = node.ask("GET", f"/plans/{plan_id}")
    assert (plan["plan_state"], plan["results"][0]["participants"][0]["worker_id"]) == ("execute", "delay-1")
    station.hold.set()
    plan = ended(node, plan_id)
    assert (plan["real_repet"], plan["skip_num"]) == (2, 0)
    second, first = plan["results"]
    assert seconds(second["exec_time"]) >= seconds(first["end_time"]) + 1


def test_a_worker_that_says_waiting_keeps_its_run_beyond_the_lease(node, stations):
    """The lease is 15 seconds; WAITING is told five times a second, and nobody else is sent the run."""
    station, other = stations("waiting", "waiting-1"), None
    station.hold.clear()
    plan_id = publish(node, station="waiting", plan_type="none")
    until(lambda: station.seen, "the execution")
    run_id = station.seen[0]["run_id"]
    expires = until(lambda: _expires_after(node, run_id, 40), "the lease to be extended")
    assert expires > time.time() + 40
    other = stations("waiting", "waiting-2")
    station.hold.set()
    plan = ended(node, plan_id)
    assert (plan["last_state"], plan["results"][0]["attempt"], other.seen) == ("ok", 1, [])


def _expires_after(node: ServerNode, run_id: int, later: float) -> float | None:
    expires = seconds(node.run(run_id)["lease_expires_at"])
    return expires if expires > time.time() + later else None


def test_an_error_goes_back_to_the_same_slot_and_a_fail_takes_the_right_to_run(node, stations):
    station = stations("errors")
    station.script = [{"outcome": "error", "error_message": "busy"}, {"outcome": "success", "result": 1}]
    plan = ended(node, publish(node, station="errors", plan_type="none"))
    assert (plan["last_state"], plan["results"][0]["attempt"], len(set(station.slots))) == ("ok", 2, 1)

    station.script = [{"outcome": "fail", "error_message": "no such order"}]
    # Two seconds: on a busy machine the slot of the next second came, and was skipped, before the first had failed.
    plan_id = publish(node, station="errors", plan_type="second", plan_value=2, plan_repet=-1)
    plan = ended(node, plan_id)
    assert (plan["plan_state"], plan["last_state"], plan["exec_time"]) == ("error", "failed", None)
    assert node.ask("POST", f"/plans/{plan_id}/reset")["plan_state"] == "queue"
    until(lambda: node.ask("GET", f"/plans/{plan_id}")["real_repet"] >= 2, "the plan to run again")
    assert node.ask("POST", f"/plans/{plan_id}/close")["plan_state"] in ("close", "execute")


def test_a_vote_is_answered_by_both_workers(node, stations):
    jurors = [stations("jury", f"juror-{number}") for number in range(2)]
    until(lambda: len([w for w in node.ask("GET", "/workers")["items"] if "jury" in w["queues"]]) == 2, "two workers")
    plan = ended(node, publish(node, station="jury", target="vote", plan_type="none"))
    assert plan["last_state"] == "ok"
    assert sorted(each["worker_id"] for each in plan["results"][0]["participants"]) == ["juror-0", "juror-1"]
    assert [len(juror.seen) for juror in jurors] == [1, 1]


def test_pub_needs_no_worker(node):
    plan = ended(node, publish(node, station="news", target="pub", plan_type="second", plan_value=1, plan_repet=2))
    assert (plan["real_repet"] + plan["skip_num"], plan["last_state"]) == (2, "ok")


class Listener:
    """Somebody who listens to the events of one station, from now on."""

    def __init__(self, node: ServerNode, station: str) -> None:
        self.heard: list[dict[str, Any]] = []
        self._connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=PATIENCE)
        self._connection.request("GET", f"/api/v1/events?queue={station}")
        self._stream = self._connection.getresponse()
        while not self._stream.readline().startswith(b": noonbell events"):
            pass

    def wait_for(self, type_: str) -> dict[str, Any]:
        """The next event of that type."""
        while True:
            line = self._stream.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                self.heard.append(event)
                if event.get("type") == type_:
                    return event

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


def test_whoever_listens_hears_what_is_published_and_what_came_of_it(node, stations):
    stations("heard")
    listener = Listener(node, "heard")
    with contextlib.closing(listener):
        plan_id = publish(node, station="heard", target="pub", plan_type="none", messages=["rain", 7])
        event = listener.wait_for("run.published")
        assert (event["topic"], event["subject"], event["data"]["messages"]) == ("heard", plan_id, ["rain", 7])

        plan_id = publish(node, station="heard", plan_type="none")
        event = listener.wait_for("run.result")
        assert (event["topic"], event["subject"]) == (f"plan:heard:{plan_id}", plan_id)
        assert (event["data"]["status"], event["data"]["result"]) == ("SUCCESS", ["heard-1", "done"])
        node.ask("DELETE", f"/plans/{plan_id}")
        listener.wait_for("task.deleted")
    types = {event["type"] for event in listener.heard}
    assert types >= {"task.created", "run.scheduled", "run.started", "run.succeeded", "task.completed"}


def test_a_station_without_a_worker_is_told_of(node):
    listener = Listener(node, "nobody")
    with contextlib.closing(listener):
        plan_id = publish(node, station="nobody", plan_type="none")
        assert listener.wait_for("task.no_worker")["topic"] == f"plan:nobody:{plan_id}"
    plan = node.ask("GET", f"/plans/{plan_id}")
    assert (plan["plan_state"], plan["last_state"]) == ("queue", "not_worker")


def test_a_task_pauses_a_station_on_a_schedule(nodes, sqlite_url):
    node = nodes.start(sqlite_url)
    made = forked.run("token", "create", "--role", "operator", "--name", "closes", "--store", sqlite_url)
    address = f"http://127.0.0.1:{node.port}/api/v1/queues/closes"
    node.create(
        name="closing time",
        cron_expr="* * * * * *",
        http_method="POST",
        target_url=f"{address}/pause",
        headers={"Authorization": f"Bearer {made.stdout.strip()}"},
    )
    until(lambda: node.ask("GET", "/queues/closes")["paused"], "the station to be paused")


def test_the_short_types_run_on_every_store(nodes, store_url):
    node = nodes.start(store_url)
    station = Station(node, "mixed", "mixed-1")
    repeated = {"plan_type": "second", "plan_value": 1, "plan_repet": 2}
    wanted = {
        publish(node, station="mixed", plan_type="none"): 1,
        publish(node, station="mixed", plan_type="time", plan_time=int(time.time()) + 1): 1,
        publish(node, station="mixed", **repeated): 2,
        publish(node, station="mixed", no_keep=True, **repeated): 2,
        publish(node, station="mixed", target="vote", plan_type="none"): 1,
        publish(node, station="elsewhere", target="pub", **repeated): 2,
    }
    try:
        found = [ended(node, plan_id) for plan_id in wanted]
    finally:
        station.close()
    assert {plan["plan_id"]: plan["real_repet"] + plan["skip_num"] for plan in found} == wanted
    assert {plan["last_state"] for plan in found} <= {"ok", "skip"}
    assert len(station.seen) == sum(plan["real_repet"] for plan in found if plan["station"] == "mixed")


def test_a_plan_outlives_its_node(nodes, tmp_path):
    store = f"sqlite:///{tmp_path / 'lives.db'}"
    first = nodes.start(store)
    plan_id = publish(first, station="later", plan_type="second", plan_value=1, plan_repet=2, no_keep=True)
    first.kill()
    second = nodes.start(store)
    station = Station(second, "later", "later-1")
    try:
        plan = ended(second, plan_id)
    finally:
        station.close()
    assert (plan["real_repet"], plan["last_state"]) == (2, "ok")


BAD: list[tuple[str, dict[str, Any]]] = [
    ("station", {"station": None}),
    ("station", {"station": ""}),
    ("messages", {"messages": None}),
    ("messages", {"messages": []}),
    ("plan_type", {"plan_type": None}),
    ("plan_type", {"plan_type": "year"}),
    ("plan_value", {"plan_type": "second", "plan_value": 0, "plan_repet": 1}),
    ("plan_value", {"plan_type": "minute", "plan_value": -1, "plan_repet": 1}),
    ("plan_value", {"plan_type": "hour", "plan_value": 32767, "plan_repet": 1}),
    ("plan_value", {"plan_type": "day", "plan_repet": 1}),
    ("plan_value", {"plan_type": "week", "plan_value": 7, "plan_repet": 1}),
    ("plan_value", {"plan_type": "month", "plan_value": -32, "plan_repet": 1}),
    ("plan_value", {"plan_type": "month", "plan_value": 32, "plan_repet": 1}),
    ("plan_repet", {"plan_type": "second", "plan_value": 1, "plan_repet": 0}),
    ("plan_repet", {"plan_type": "week", "plan_value": 1, "plan_repet": 0}),
    ("plan_repet", {"plan_type": "month", "plan_value": 1, "plan_repet": -2}),
    ("plan_repet", {"plan_type": "day", "plan_value": 1}),
    ("plan_time", {"plan_type": "time"}),
    ("plan_time", {"plan_type": "time", "plan_time": "noon"}),
    ("plan_time", {"plan_type": "day", "plan_value": 1, "plan_repet": 1, "plan_time": -5}),
    ("no_keep", {"no_keep": "yes"}),
    ("target", {"target": "sub"}),
    ("plan_id", {"plan_id": "not hex"}),
    ("plan_idd", {"plan_idd": "1"}),
]


@pytest.mark.parametrize(("field", "fields"), BAD, ids=[f"{field}-{number}" for number, (field, _) in enumerate(BAD)])
def test_a_bad_plan_is_refused_with_its_field_named_and_nothing_is_saved(node, field, fields):
    before = node.ask("GET", "/plans")["total"]
    given = {"station": "bad", "messages": MESSAGES, "plan_type": "none", **fields}
    answer = node.call("POST", "/plans", given)
    assert (answer.status, answer.json["code"]) == (400, "INVALID_ARGUMENT")
    assert list(answer.json["details"]) == [field]
    assert node.ask("GET", "/plans")["total"] == before


# ---- the long types, under a clock that is moved


@pytest.fixture
async def here() -> AsyncIterator[Bureau]:
    async with bureau() as found:
        yield found


def days(handler: Any) -> list[str]:
    """The slots that a station was sent, without the year and the seconds."""
    return [slot[5:16].replace("T", " ") for slot in handler.slots]


@pytest.mark.parametrize(
    ("kind", "value", "step"), [("second", 7, 7), ("minute", 5, 300), ("hour", 6, 6 * 3600), ("day", 2, 2 * 86_400)]
)
async def test_an_interval_is_sent_every_so_often_and_so_many_times(here: Bureau, kind, value, step):
    handler = await here.station()
    made = await here.publish(plan_id="1", plan_type=kind, plan_value=value, plan_repet=3)
    start = seconds(made["plan_time"])
    for expected in (1, 2, 3, 3, 3):
        await here.after(step)
        assert (await here.plan("1"))["real_repet"] == expected
    assert [seconds(slot) - start for slot in handler.slots] == [step, 2 * step, 3 * step]
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["exec_time"], plan["note"]) == ("close", None, None)


async def test_an_interval_counts_from_plan_time(here: Bureau):
    handler = await here.station()
    await here.publish(plan_type="hour", plan_value=6, plan_repet=-1, plan_time="2026-11-15T03:30:00Z")
    await here.at("2026-11-15T15:30:00Z")
    await here.at("2026-11-15T21:30:00Z")
    assert days(handler) == ["11-15 15:30", "11-15 21:30"]


async def test_no_keep_with_a_base_that_is_past_starts_one_step_from_now(here: Bureau):
    made = await here.publish(
        plan_type="hour", plan_value=6, plan_repet=3, no_keep=True, plan_time="2026-11-14T00:00:00Z"
    )
    assert (made["exec_time"], made["skip_num"]) == ("2026-11-15T18:00:00Z", 0)


async def test_keep_skips_what_was_missed_and_uses_it_up(here: Bureau):
    handler = await here.station()
    await here.publish(plan_id="1", plan_type="minute", plan_value=1, plan_repet=10)
    await here.after(60)
    await here.after(5 * 60 + 30)
    plan = await here.plan("1")
    assert (plan["real_repet"], plan["skip_num"], plan["exec_time"]) == (1, 5, "2026-11-15T12:07:00Z")
    for _ in range(6):
        await here.after(60)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["real_repet"] + plan["skip_num"]) == ("close", 10)
    assert len(handler.seen) == plan["real_repet"]


async def test_keep_skips_what_a_long_execution_took_the_time_of(here: Bureau):
    handler = await here.station()

    async def long() -> None:
        for _ in range(3):
            here.clock.advance(60)
            await here.planner.tick()

    handler.meanwhile = long
    await here.publish(plan_id="1", plan_type="minute", plan_value=1, plan_repet=5)
    await here.after(60)
    plan = await here.plan("1")
    assert (plan["real_repet"], plan["skip_num"], plan["plan_state"]) == (1, 3, "queue")
    handler.meanwhile = None
    await here.after(60)
    assert (await here.plan("1"))["plan_state"] == "close"
    assert days(handler) == ["11-15 12:01", "11-15 12:05"]


async def test_no_keep_loses_none_but_counts_from_the_end_of_each(here: Bureau):
    handler = await here.station()

    async def long() -> None:
        here.clock.advance(150)

    handler.meanwhile = long
    await here.publish(plan_id="1", plan_type="minute", plan_value=1, plan_repet=3, no_keep=True)
    for _ in range(5):
        await here.after(60)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["real_repet"], plan["skip_num"]) == ("close", 3, 0)
    assert days(handler) == ["11-15 12:01", "11-15 12:04", "11-15 12:08"]


async def test_a_plan_whose_last_slot_is_past_ends_without_having_run_and_says_so(here: Bureau):
    handler = await here.station()
    made = await here.publish(
        plan_id="1", plan_type="minute", plan_value=10, plan_repet=3, plan_time="2026-11-15T11:00:00Z"
    )
    assert (made["plan_state"], made["real_repet"], made["skip_num"], made["exec_time"]) == ("close", 0, 6, None)
    assert "without having run" in made["note"]
    await here.after(3600)
    assert handler.seen == []


async def test_a_plan_that_nobody_planned_until_its_last_slot_was_past_says_so_too(here: Bureau):
    await here.station()
    await here.publish(plan_id="1", plan_type="minute", plan_value=10, plan_repet=3)
    await here.after(3600)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["real_repet"], plan["skip_num"]) == ("close", 0, 3)
    assert "without having run" in plan["note"]


@pytest.mark.parametrize(
    ("moment", "no_keep", "runs"),
    [
        ("2026-11-15T11:00:00Z", True, 1),
        ("2026-11-15T11:00:00Z", False, 0),
        ("2026-11-15T11:59:59Z", False, 0),
        ("2026-11-15T12:00:00Z", False, 1),
        ("2026-11-15T12:05:00Z", False, 1),
        ("2026-11-15T12:05:00Z", True, 1),
    ],
)
async def test_a_time_that_is_past_runs_only_with_no_keep(here: Bureau, moment, no_keep, runs):
    handler = await here.station()
    await here.publish(plan_id="1", plan_type="time", plan_time=moment, no_keep=no_keep)
    await here.work()
    assert len(handler.seen) == (runs if moment <= "2026-11-15T12:00:00Z" else 0)
    await here.at("2026-11-15T12:05:00Z")
    await here.after(3600)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["real_repet"], len(handler.seen)) == ("close", runs, runs)
    assert (plan["note"] is None) == bool(runs)


@pytest.mark.parametrize(("weekday", "first"), [(0, "11-22 08:30"), (1, "11-16 08:30"), (6, "11-21 08:30")])
async def test_week_is_sent_on_its_weekday_in_the_future(here: Bureau, weekday, first):
    """Now is a Sunday, noon: this Sunday's half past eight is over."""
    handler = await here.station()
    await here.publish(
        plan_id="1", plan_type="week", plan_value=weekday, plan_repet=2, plan_time="1999-01-01T08:30:00Z"
    )
    for day in range(16, 31):
        await here.at(f"2026-11-{day}T08:30:00Z")
    assert days(handler)[0] == first
    assert len(handler.seen) == 2
    assert seconds(handler.slots[1]) - seconds(handler.slots[0]) == 7 * 86_400
    assert (await here.plan("1"))["plan_state"] == "close"


async def test_week_later_today_is_today(here: Bureau):
    made = await here.publish(plan_type="week", plan_value=0, plan_repet=-1, plan_time="1999-01-01T12:00:01Z")
    assert made["exec_time"] == "2026-11-15T12:00:01Z"


@pytest.mark.parametrize(
    ("day", "slots"),
    [
        (15, ["12-15", "01-15", "02-15", "03-15"]),
        (31, ["11-30", "12-31", "01-31", "02-28", "03-31"]),
        (30, ["11-30", "12-30", "01-30", "02-28", "03-30"]),
        (29, ["11-29", "12-29", "01-29", "02-28", "03-29"]),
        (0, ["11-30", "12-31", "01-31", "02-28", "03-31"]),
        (-1, ["11-29", "12-30", "01-30", "02-27", "03-30"]),
        (-28, ["12-03", "01-03", "02-01", "03-03"]),
        (-31, ["12-01", "01-01", "02-01", "03-01"]),
    ],
)
async def test_month_is_clamped_to_its_last_day_and_to_its_first(here: Bureau, day, slots):
    handler = await here.station()
    made = await here.publish(plan_id="1", plan_type="month", plan_value=day, plan_repet=-1, plan_time=8 * 3600)
    following = made["exec_time"]
    while following < "2027-04":
        await here.at(following)
        following = (await here.plan("1"))["exec_time"]
    assert [slot[:5] for slot in days(handler)] == slots
    assert {slot[6:] for slot in days(handler)} == {"08:00"}


async def test_month_in_a_leap_year(here: Bureau):
    handler = await here.station()
    await here.publish(plan_type="month", plan_value=31, plan_repet=-1)
    await here.at("2028-02-29T00:00:00Z")
    assert days(handler)[-1] == "02-29 00:00"


async def test_a_skip_of_n_uses_up_n(here: Bureau):
    handler = await here.station()
    await here.publish(plan_id="1", plan_type="day", plan_value=1, plan_repet=5)
    await here.act("1", "skip", count=2)
    for _ in range(6):
        await here.after(86_400)
    plan = await here.plan("1")
    assert (plan["plan_state"], plan["real_repet"], plan["skip_num"], plan["skip_set"]) == ("close", 3, 2, 0)
    assert days(handler) == ["11-18 12:00", "11-19 12:00", "11-20 12:00"]


async def test_skipping_until_it_is_reset(here: Bureau):
    handler = await here.station()
    await here.publish(plan_id="1", plan_type="day", plan_value=1, plan_repet=-1)
    await here.act("1", "skip", count=-1)
    for _ in range(4):
        await here.after(86_400)
    assert ((await here.plan("1"))["plan_state"], handler.seen) == ("skip", [])
    await here.act("1", "reset")
    await here.after(86_400)
    assert days(handler) == ["11-20 12:00"]


async def test_a_paused_plan_does_not_run_and_does_not_catch_up(here: Bureau):
    handler = await here.station()
    await here.publish(plan_id="1", plan_type="day", plan_value=1, plan_repet=3)
    await here.act("1", "pause")
    for _ in range(10):
        await here.after(86_400)
    assert handler.seen == []
    await here.act("1", "resume")
    for _ in range(4):
        await here.after(86_400)
    assert days(handler) == ["11-26 12:00", "11-27 12:00", "11-28 12:00"]


async def test_a_finished_plan_stays_to_be_read_unless_it_asked_to_go(here: Bureau):
    await here.station()
    await here.publish(plan_id="1", plan_type="none")
    await here.publish(plan_id="2", plan_type="none", delete_on_complete=True)
    await here.publish(
        plan_id="3", plan_type="second", plan_value=1, plan_repet=2, no_keep=True, delete_on_complete=True
    )
    for _ in range(4):
        await here.after(1)
    assert (await here.plan("1"))["plan_state"] == "close"
    for plan_id in ("2", "3"):
        assert await here.api.bad("GET", f"/plans/{plan_id}") == (404, "NOT_FOUND")


# ---- the how-to


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", HOW_TO.read_text(), re.DOTALL | re.MULTILINE)


def curl(node: ServerNode, line: str) -> Any:
    words = shlex.split(line)
    (url,) = (word for word in words if word.startswith(HOST))
    method = words[words.index("-X") + 1] if "-X" in words else "GET"
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
    answer = node.call(method, url.removeprefix(HOST), body, base="")
    assert answer.status in (200, 201), f"{line}\n{answer.text}"
    return answer.json


def test_the_how_to_does_what_it_says(nodes, tmp_path):
    node = nodes.start(f"sqlite:///{tmp_path / 'how-to.db'}")
    every, once, look, step_in = blocks("bash")
    for line in (every + once).splitlines():
        curl(node, line)
    (script,) = blocks("python")
    (tmp_path / "station.py").write_text(script.replace(HOST, f"http://127.0.0.1:{node.port}"))
    with subprocess.Popen(
        [sys.executable, "-u", "station.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as station:
        try:
            assert station.stdout is not None
            assert station.stdout.readline().startswith("1f4b ")
            assert ended(node, "1f4b")["results"][0]["result"] == {"settled": 12}
        finally:
            station.kill()
    for line in (look + step_in).splitlines():
        curl(node, line)
    assert node.call("GET", "/plans/1f4a").status == 404


def test_the_how_to_has_every_type_state_and_field():
    text = HOW_TO.read_text()
    words = [*PlanType, *PlanState, *LastState, *ResultTarget, *WRITTEN]
    assert [word for word in words if f"`{word}`" not in text and f'"{word}"' not in text] == []
