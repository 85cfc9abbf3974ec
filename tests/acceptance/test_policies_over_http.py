"""Cells of the policy tables, as a caller sees them: a real process, asked over HTTP, that calls a scripted target.

Each test makes a world by triggers (the previous round runs, failed, was canceled…), then gives the task slots by a
cron of every second, and looks at what became of them. Slots are decided by their own time and one by one, so no
answer depends on how punctual a busy machine is.

`make test` looks at one cell of each table; that every cell is decided so is proved by `unit/policy` and, on every store, by
`conformance/store/test_slot.py`.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from datetime import UTC, datetime

import pytest

from acceptance.harness import PATIENCE, Nodes, Target, until

pytestmark = pytest.mark.acceptance

HANG = 0
"""An answer of a script: none, until the name is released."""
EVERY_SECOND = "* * * * * *"
SAMPLE = {
    "max_concurrency": 1,
    "concurrency_policy": "SKIP",
    "overlap_action": "CANCEL_PREV",
    "failure_action": "RETRY",
    "misfire_policy": "CATCH_UP_LIMITED",
    "catchup_limit": 3,
    "timeout_seconds": 8,
}
"""The sample task of document 000, but for its name, its `*/5 * * * * *` and its target."""


class ScriptedTarget(Target):
    """Besides what a target does: /script/NAME gives the answers that were written for NAME, the last one for ever."""

    def __post_init__(self):
        self._scripts = {}
        super().__post_init__()

    def write(self, name, *answers):
        """The path of a script."""
        self._scripts[name] = list(answers)
        return f"/script/{name}"

    def status_for(self, path):
        kind, _, name = path.lstrip("/").partition("/")
        if kind != "script":
            return super().status_for(path)
        with self._lock:
            answers = self._scripts[name]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer == HANG:
            self._gate(name).wait(2 * PATIENCE)
        return answer or 200


class Stage:
    """One node, one target, and the words to make worlds with."""

    def __init__(self, node, target):
        self.node, self.target = node, target
        self._numbers = itertools.count()

    def task(self, *answers, **fields):
        """A task on demand whose target gives these answers; its id."""
        name = f"task-{next(self._numbers)}"
        path = self.target.write(name, *answers)
        fields = {"timeout_seconds": 60, "ping_interval_ms": 500} | fields
        return self.node.create(name=name, target_url=self.target.url(path), **fields)

    def release(self, task_id):
        self.target.release(self.node.ask("GET", f"/tasks/{task_id}")["name"])

    def change(self, task_id, **fields):
        return self.node.ask("PATCH", f"/tasks/{task_id}", fields)

    def arrival(self, run_id):
        """The request of a run, once the target has it."""
        return until(lambda: next(iter(self.requests(run_id)), None), f"a request of run {run_id}")

    def requests(self, run_id):
        return [one for one in list(self.target.arrivals) if one.run_id == run_id]

    def running(self, task_id):
        """A triggered run that its target does not answer."""
        run_id = self.node.trigger(task_id)
        self.arrival(run_id)
        return run_id

    def ended(self, task_id, *statuses):
        """A triggered run that is over."""
        return self.node.wait_for_run(self.node.trigger(task_id), *statuses)

    def scheduled(self, task_id):
        """The runs born of slots, oldest slot first."""
        runs = [run for run in self.node.runs_of(task_id) if run["origin"] == "schedule"]
        return sorted(runs, key=lambda run: run["scheduled_time"])

    def give_slot(self, task_id):
        """The schedule names one more moment: the next second. `until_slot` waits for it."""
        task = self.node.ask("GET", f"/tasks/{task_id}")
        if task["status"] == "COMPLETED":
            self.node.ask("PATCH", f"/tasks/{task_id}/enable")
        else:
            self.change(task_id, schedule={"type": "cron", "expr": EVERY_SECOND, "repeat": 1})

    def until_slot(self, task_id, number=1):
        runs = until(
            lambda: found if len(found := self.scheduled(task_id)) >= number else None,
            f"slot {number} of task {task_id} to be decided",
        )
        assert len(runs) == number
        return runs[-1]

    def slot(self, task_id):
        """One more slot, and the run that it became."""
        number = len(self.scheduled(task_id)) + 1
        self.give_slot(task_id)
        return self.until_slot(task_id, number)

    def status(self, run_id):
        return self.node.run(run_id)["status"]

    def assert_skipped(self, run, reason):
        assert (run["status"], run["skip_reason"], run["final_status"]) == ("SKIPPED", reason, "SKIPPED")
        assert run["start_time"] is None
        assert run["end_time"] is not None
        assert self.requests(run["id"]) == []


@pytest.fixture(scope="module")
def target():
    target = ScriptedTarget()
    yield target
    target.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("policies")


@pytest.fixture(scope="module")
def stage(folder, target):
    nodes = Nodes(folder)
    try:
        yield Stage(
            nodes.start(f"sqlite:///{folder / 'stage.db'}", env={"NOONBELL_EXECUTOR__WORKER_POOL_SIZE": "64"}), target
        )
    finally:
        nodes.end()


def moment(text):
    return datetime.fromisoformat(text).timestamp()


# Overlap: a slot comes while the previous round is under way


def test_overlap_skip_leaves_the_round_alone_and_skips_the_slot(stage):
    task_id = stage.task(HANG, 200, overlap_action="SKIP", max_concurrency=None)
    previous = stage.running(task_id)
    stage.assert_skipped(stage.slot(task_id), "overlap")
    assert stage.status(previous) == "RUNNING"
    stage.release(task_id)
    stage.node.wait_for_run(previous, "SUCCESS")
    stage.node.wait_for_run(stage.slot(task_id)["id"], "SUCCESS")


@pytest.mark.full
def test_overlap_skip_counts_a_round_that_awaits_its_callback_or_its_retry(stage):
    parked = stage.task(202, overlap_action="SKIP", exec_type="ASYNC", max_concurrency=None)
    retrying = stage.task(
        500, overlap_action="SKIP", max_concurrency=None, retry_policy={"max_retries": 1, "initial_delay": 300}
    )
    stage.ended(parked, "CALLBACK_PENDING")
    stage.ended(retrying, "RETRYING")
    for task_id in (parked, retrying):
        stage.give_slot(task_id)
    for task_id in (parked, retrying):
        stage.assert_skipped(stage.until_slot(task_id), "overlap")


def test_overlap_cancel_prev_replaces_the_round_and_that_is_no_failure(stage):
    limits = {"max_concurrency": 1, "concurrency_policy": "SKIP"}
    task_id = stage.task(HANG, overlap_action="CANCEL_PREV", failure_action="RETRY", **limits)
    previous = stage.running(task_id)
    new = stage.slot(task_id)
    assert stage.arrival(new["id"]).attempt == 1
    assert stage.status(previous) == "CANCELED"
    assert stage.status(new["id"]) == "RUNNING"


@pytest.mark.full
def test_overlap_cancel_prev_leaves_a_round_that_has_ended_as_it_is(stage):
    task_id = stage.task(200, overlap_action="CANCEL_PREV")
    previous = stage.ended(task_id, "SUCCESS")
    stage.node.wait_for_run(stage.slot(task_id)["id"], "SUCCESS")
    assert stage.node.run(previous["id"]) == previous


@pytest.mark.full
@pytest.mark.parametrize("policy", ["SKIP", "QUEUE"])
def test_overlap_parallel_passes_the_limit_by(stage, policy):
    task_id = stage.task(HANG, overlap_action="PARALLEL", max_concurrency=1, concurrency_policy=policy)
    previous = stage.running(task_id)
    new = stage.slot(task_id)
    stage.arrival(new["id"])
    assert [stage.status(previous), stage.status(new["id"])] == ["RUNNING", "RUNNING"]


@pytest.mark.full
def test_overlap_allow_waits_at_the_limit_where_it_queues(stage):
    task_id = stage.task(HANG, 200, overlap_action="ALLOW", max_concurrency=1, concurrency_policy="QUEUE")
    previous = stage.running(task_id)
    new = stage.slot(task_id)
    assert (new["status"], stage.requests(new["id"])) == ("SCHEDULED", [])
    stage.release(task_id)
    new = stage.node.wait_for_run(new["id"], "SUCCESS")
    assert moment(new["start_time"]) >= moment(stage.node.run(previous)["end_time"])


@pytest.mark.full
def test_overlap_allow_is_skipped_at_the_limit_where_it_skips(stage):
    task_id = stage.task(HANG, overlap_action="ALLOW", max_concurrency=1, concurrency_policy="SKIP")
    previous = stage.running(task_id)
    stage.assert_skipped(stage.slot(task_id), "concurrency")
    assert stage.status(previous) == "RUNNING"


@pytest.mark.full
@pytest.mark.parametrize("limit", [{"max_concurrency": 2}, {"max_concurrency": 1, "concurrency_policy": "PARALLEL"}])
def test_overlap_allow_goes_on_where_there_is_a_place_or_the_limit_is_ignored(stage, limit):
    task_id = stage.task(HANG, overlap_action="ALLOW", **limit)
    both = [stage.running(task_id), stage.slot(task_id)["id"]]
    stage.arrival(both[1])
    assert [stage.status(run_id) for run_id in both] == ["RUNNING", "RUNNING"]


# Failure: a slot comes after a round that failed


def failed_in_every_way(stage, **fields):
    """A task for each way to fail, whose round just did; and the run that was its round."""
    failing = {
        "FAILED": stage.task(500, 200, **fields),
        "TIMEOUT": stage.task(HANG, 200, **fields | {"timeout_seconds": 0.3}),
        "CANCELED": stage.task(HANG, 200, **fields),
        "FAILED_TIMEOUT": stage.task(202, 202, exec_type="ASYNC", callback_timeout_sec=1, **fields),
    }
    rounds = {status: stage.node.trigger(task_id) for status, task_id in failing.items()}
    stage.arrival(rounds["CANCELED"])
    stage.node.ask("POST", f"/runs/{rounds['CANCELED']}/cancel")
    for status, run_id in rounds.items():
        stage.node.wait_for_run(run_id, status)
    return {status: (task_id, rounds[status]) for status, task_id in failing.items()}


def slots_after(stage, failed):
    """One more slot for each of the tasks, and what became of it."""
    numbers = {task_id: len(stage.scheduled(task_id)) + 1 for task_id, _ in failed.values()}
    for task_id in numbers:
        stage.give_slot(task_id)
    return {status: stage.until_slot(task_id, numbers[task_id]) for status, (task_id, _) in failed.items()}


@pytest.mark.full
def test_failure_run_new_starts_at_attempt_1_after_every_kind_of_failure(stage):
    for run in slots_after(stage, failed_in_every_way(stage, failure_action="RUN_NEW")).values():
        assert stage.arrival(run["id"]).attempt == 1
        assert run["retry_of_run_id"] is None


def test_failure_retry_goes_on_counting_after_every_kind_of_failure(stage):
    failed = failed_in_every_way(stage, failure_action="RETRY")
    for status, run in slots_after(stage, failed).items():
        assert stage.arrival(run["id"]).attempt == 2
        assert run["retry_of_run_id"] == failed[status][1]


def test_failure_skip_skips_exactly_one_slot_after_every_kind_of_failure(stage):
    failed = failed_in_every_way(stage, failure_action="SKIP")
    for run in slots_after(stage, failed).values():
        stage.assert_skipped(run, "failure")
    for run in slots_after(stage, failed).values():
        assert stage.arrival(run["id"]).attempt == 1


@pytest.mark.full
def test_failure_retry_rises_from_round_to_round_until_one_succeeds(stage):
    task_id = stage.task(500, 500, 200, failure_action="RETRY")
    previous = stage.ended(task_id, "FAILED")
    second = stage.node.wait_for_run(stage.slot(task_id)["id"], "FAILED")
    third = stage.node.wait_for_run(stage.slot(task_id)["id"], "SUCCESS")
    fourth = stage.node.wait_for_run(stage.slot(task_id)["id"], "SUCCESS")
    runs = [previous, second, third, fourth]
    assert [run["attempt"] for run in runs] == [1, 2, 3, 1]
    assert [run["retry_of_run_id"] for run in runs] == [None, previous["id"], second["id"], None]
    assert {run["retry_count"] for run in runs} == {0}


def every_second_until(stage, task_id, successes):
    """Slots every second until so many of their runs succeeded; what became of each, and the same in brief."""
    stage.change(task_id, cron_expr=EVERY_SECOND)

    def enough():
        runs = stage.scheduled(task_id)
        return runs if [run["status"] for run in runs].count("SUCCESS") >= successes else None

    runs = until(enough, f"{successes} runs of task {task_id} to succeed")
    stage.node.ask("PATCH", f"/tasks/{task_id}/disable")
    return runs, [status for status, _ in itertools.groupby(run["status"] for run in runs)]


@pytest.mark.full
def test_failure_backoff_waits_longer_after_each_failure_in_a_row(stage):
    # Long enough that a slot falls into each wait, though a busy machine takes its time.
    policy = {"max_retries": 0, "initial_delay": 3, "max_delay": 60}
    # Should a busy machine take more than a second for a round, the slot meanwhile is an overlap.
    task_id = stage.task(500, 500, 200, failure_action="BACKOFF", retry_policy=policy, overlap_action="SKIP")
    failed = stage.ended(task_id, "FAILED")
    runs, brief = every_second_until(stage, task_id, successes=1)
    assert brief == ["SKIPPED", "FAILED", "SKIPPED", "SUCCESS"]
    delay = 3
    for run in runs:
        if run["status"] == "SKIPPED":
            stage.assert_skipped(run, "overlap" if run["skip_reason"] == "overlap" else "backoff")
            assert moment(run["scheduled_time"]) < moment(failed["end_time"]) + delay
        else:
            assert moment(run["scheduled_time"]) >= moment(failed["end_time"]) + delay
            failed, delay = run, 2 * delay


@pytest.mark.full
def test_failure_half_open_opens_probes_opens_again_and_closes(stage):
    circuit = {"failures": 2, "cool_down_seconds": 3}
    task_id = stage.task(500, 500, 500, 200, failure_action="HALF_OPEN", circuit=circuit)
    stage.ended(task_id, "FAILED")
    opened = stage.ended(task_id, "FAILED")
    runs, brief = every_second_until(stage, task_id, successes=2)
    assert brief[:4] == ["SKIPPED", "FAILED", "SKIPPED", "SUCCESS"]
    assert [run["status"] for run in runs].count("FAILED") == 1
    for run in runs:
        if run["status"] == "SKIPPED":
            stage.assert_skipped(run, "circuit_open")
    probe = next(run for run in runs if run["status"] == "FAILED")
    assert moment(probe["scheduled_time"]) >= moment(opened["end_time"]) + 3


# Concurrency: is there a place?


def test_queue_really_waits_first_in_first_out(stage):
    task_id = stage.task(HANG, 200, max_concurrency=1, concurrency_policy="QUEUE")
    first = stage.running(task_id)
    waiting = [stage.node.trigger(task_id) for _ in range(3)]
    by_slot = stage.slot(task_id)["id"]
    assert [stage.status(run_id) for run_id in (*waiting, by_slot)] == ["SCHEDULED"] * 4
    task = stage.node.ask("GET", f"/tasks/{task_id}")
    assert (task["active_runs"], task["queued_runs"]) == (1, 4)
    stage.release(task_id)
    runs = [stage.node.wait_for_run(run_id, "SUCCESS") for run_id in (first, *waiting, by_slot)]
    for before, after in itertools.pairwise(runs):
        assert moment(after["start_time"]) >= moment(before["end_time"])


@pytest.mark.full
def test_queue_depth_is_how_many_may_wait(stage):
    task_id = stage.task(HANG, 200, max_concurrency=1, concurrency_policy="QUEUE", queue_depth=1)
    stage.running(task_id)
    waiting = stage.node.trigger(task_id)
    stage.assert_skipped(stage.slot(task_id), "queue_full")
    refused = stage.node.call("POST", f"/tasks/{task_id}/trigger")
    assert (refused.status, refused.json["code"]) == (409, "CONCURRENCY_LIMIT")
    assert refused.json["details"]["reason"] == "queue_full"
    stage.release(task_id)
    stage.node.wait_for_run(waiting, "SUCCESS")


def test_a_trigger_at_the_limit_is_refused_by_skip_and_let_through_by_parallel(stage):
    skip = stage.task(HANG, max_concurrency=1, concurrency_policy="SKIP")
    stage.running(skip)
    refused = stage.node.call("POST", f"/tasks/{skip}/trigger")
    assert (refused.status, refused.json["code"], refused.json["error"]) == (409, *["CONCURRENCY_LIMIT"] * 2)
    assert len(stage.node.runs_of(skip)) == 1
    parallel = stage.task(HANG, max_concurrency=1, concurrency_policy="PARALLEL")
    both = [stage.running(parallel), stage.running(parallel)]
    assert [stage.status(run_id) for run_id in both] == ["RUNNING", "RUNNING"]


@pytest.mark.full
@pytest.mark.parametrize("fields", [{"concurrency_policy": "SKIP"}, {"concurrency_policy": "PARALLEL"}])
def test_a_limit_of_0_admits_nothing_until_it_is_raised(stage, fields):
    task_id = stage.task(200, max_concurrency=0, **fields)
    refused = stage.node.call("POST", f"/tasks/{task_id}/trigger")
    assert (refused.status, refused.json["code"]) == (409, "CONCURRENCY_LIMIT")
    stage.assert_skipped(stage.slot(task_id), "concurrency")
    stage.change(task_id, max_concurrency=1)
    stage.node.wait_for_run(stage.slot(task_id)["id"], "SUCCESS")


@pytest.mark.full
def test_a_limit_of_0_stops_even_an_overlap_that_may_go_parallel(stage):
    task_id = stage.task(HANG, max_concurrency=1, concurrency_policy="SKIP", overlap_action="PARALLEL")
    stage.running(task_id)
    stage.change(task_id, max_concurrency=0)
    stage.assert_skipped(stage.slot(task_id), "concurrency")


@pytest.mark.full
def test_raising_the_limit_releases_what_waits(stage):
    task_id = stage.task(HANG, max_concurrency=0, concurrency_policy="QUEUE")
    waiting = [stage.node.trigger(task_id), stage.slot(task_id)["id"], stage.node.trigger(task_id)]
    assert [stage.status(run_id) for run_id in waiting] == ["SCHEDULED"] * 3
    stage.change(task_id, max_concurrency=2)
    for run_id in waiting[:2]:
        stage.arrival(run_id)
    assert stage.status(waiting[2]) == "SCHEDULED"
    stage.change(task_id, max_concurrency=3)
    stage.arrival(waiting[2])
    assert {stage.status(run_id) for run_id in waiting} == {"RUNNING"}


# The sample task of document 000, with its own schedule


def test_the_sample_task_of_document_000(stage):
    task_id = stage.task(HANG, 500, 200, **SAMPLE)
    running = stage.running(task_id)
    stage.change(task_id, cron_expr="*/5 * * * * *")
    first = stage.node.wait_for_run(stage.until_slot(task_id)["id"], "FAILED")
    assert stage.status(running) == "CANCELED"
    assert first["attempt"] == 1
    second = stage.node.wait_for_run(stage.until_slot(task_id, 2)["id"], "SUCCESS")
    assert (second["attempt"], second["retry_of_run_id"]) == (2, first["id"])
    assert moment(second["scheduled_time"]) - moment(first["scheduled_time"]) == 5
    stage.node.ask("PATCH", f"/tasks/{task_id}/disable")


# Misfire: slots that passed while no process was there

WINDOW = 5
"""Slots of a task while nothing ran: the worked example, of which the newest is called 5."""
CAP = 5
MISFIRES = {
    "fire now": {"misfire_policy": "FIRE_NOW"},
    "fire once": {"misfire_policy": "FIRE_ONCE"},
    "skip": {"misfire_policy": "SKIP", "misfire_grace_seconds": 3600},
    "skip, too late": {"misfire_policy": "SKIP", "misfire_grace_seconds": 0},
    "catch up two": {"misfire_policy": "CATCH_UP_LIMITED", "catchup_limit": 2},
    "one at a time": {"misfire_policy": "FIRE_NOW", "max_concurrency": 1, "concurrency_policy": "QUEUE"},
    "no overlap": {"misfire_policy": "FIRE_NOW", "overlap_action": "SKIP"},
    "the sample": SAMPLE,
    "disabled": {"misfire_policy": "FIRE_NOW", "status": "DISABLED"},
    "over the cap": {"misfire_policy": "FIRE_NOW"},
}


class Downtime:
    """What became of the slots that passed between a stop and the next start, each told by its number."""

    def __init__(self, runs, first, misfires):
        self._runs, self._first, self.misfires = runs, first, misfires

    def of(self, name):
        """(number of the slot, how it ended), oldest first."""
        runs = sorted(self._runs[name], key=lambda run: run["scheduled_time"])
        return [(self._number(run), run["skip_reason"] or run["status"]) for run in runs]

    def runs_of(self, name):
        return sorted(self._runs[name], key=lambda run: run["scheduled_time"])

    def _number(self, run):
        return int(moment(run["scheduled_time"])) - self._first + 1


def stop_before_the_first_slot(nodes, store, target, lead):
    """Every task of the table is there and the node has stopped; the first slot, or None if it came too early."""
    node = nodes.start(store)
    first = math.ceil(time.time()) + lead
    for name, fields in MISFIRES.items():
        start_at = first - 1 if name == "over the cap" else first
        node.create(
            name=name,
            cron_expr=EVERY_SECOND,
            start_at=datetime.fromtimestamp(start_at, UTC).isoformat(),
            end_at=datetime.fromtimestamp(first + WINDOW - 1, UTC).isoformat(),
            target_url=target.url("/ok"),
            **{"max_concurrency": None} | fields,
        )
    assert node.stop() == 0
    return first if time.time() < first - 1 else None


@pytest.fixture(scope="module")
def downtime(folder, target):
    nodes = Nodes(folder)
    try:
        yield slots_of_a_downtime(nodes, folder, target)
    finally:
        nodes.end()


def slots_of_a_downtime(nodes, folder, target):
    first, store = None, ""
    for lead in (4, 12, 36):  # the machine may be busy
        store = f"sqlite:///{folder / f'downtime-{lead}.db'}"
        if first := stop_before_the_first_slot(nodes, store, target, lead):
            break
    assert first
    until(lambda: time.time() > first + WINDOW, "every slot to pass", seconds=60)
    node = nodes.start(store, env={"NOONBELL_SCHEDULER__MAX_CATCHUP": str(CAP)})
    ids = {task["name"]: task["id"] for task in node.ask("GET", "/tasks")["items"]}
    node.ask("PATCH", f"/tasks/{ids['disabled']}/enable")

    def all_over():
        over = all(task["status"] == "COMPLETED" for task in node.ask("GET", "/tasks")["items"])
        runs = {name: node.runs_of(task_id) for name, task_id in ids.items()} if over else {}
        return runs if runs and all(run["final_status"] for some in runs.values() for run in some) else None

    runs = until(all_over, "every slot to be accounted for and every run to end")
    page = node.call("GET", "/metrics", base="").text
    counted = dict(re.findall(r'^cronjob_misfire_total\{task_id="(\d+)"\} ([\d.]+)$', page, re.MULTILINE))
    misfires = {name: float(counted[str(task_id)]) for name, task_id in ids.items() if str(task_id) in counted}
    return Downtime(runs, first, misfires)


def all_ran(*numbers):
    return [(number, "SUCCESS") for number in numbers]


def test_fire_now_runs_every_slot_of_a_downtime(downtime):
    assert downtime.of("fire now") == all_ran(1, 2, 3, 4, 5)


def test_fire_once_runs_the_newest_slot_of_a_downtime(downtime):
    assert downtime.of("fire once") == all_ran(5)


def test_skip_runs_the_newest_slot_if_it_is_not_too_late(downtime):
    assert downtime.of("skip") == all_ran(5)
    assert downtime.of("skip, too late") == []


def test_catch_up_limited_runs_the_newest_slots_of_a_downtime(downtime):
    assert downtime.of("catch up two") == all_ran(4, 5)


def test_fire_now_is_held_to_the_cap_of_the_settings(downtime):
    assert downtime.of("over the cap") == all_ran(1, 2, 3, 4, 5)  # its first slot had the number 0


def test_what_is_caught_up_waits_for_its_place_oldest_slot_first(downtime):
    assert downtime.of("one at a time") == all_ran(1, 2, 3, 4, 5)
    for before, after in itertools.pairwise(downtime.runs_of("one at a time")):
        assert moment(after["start_time"]) >= moment(before["end_time"])


def test_what_is_caught_up_overlaps_with_what_waits(downtime):
    assert downtime.of("no overlap") == [(1, "SUCCESS"), *((number, "overlap") for number in (2, 3, 4, 5))]


def test_the_sample_task_catches_up_three_slots_and_its_limit_skips_two_of_them(downtime):
    assert downtime.of("the sample") == [(3, "SUCCESS"), (4, "concurrency"), (5, "concurrency")]


def test_enabling_catches_nothing_up(downtime):
    assert downtime.of("disabled") == []


def test_a_skip_of_a_downtime_has_an_end_and_no_start(downtime):
    skipped = [run for name in MISFIRES for run in downtime.runs_of(name) if run["status"] == "SKIPPED"]
    assert len(skipped) == 6
    for run in skipped:
        assert run["end_time"] is not None
        assert run["start_time"] is None


def test_dropped_slots_are_counted_as_misfires_of_their_task(downtime):
    dropped = {"fire once": 4, "skip": 4, "skip, too late": 5, "catch up two": 3, "the sample": 2, "over the cap": 1}
    assert downtime.misfires == dropped
