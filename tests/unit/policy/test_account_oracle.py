"""Every combination of overlap, failure, concurrency and misfire, against a second opinion.

The oracle keeps a little world of runs in a list and looks everything up in it afresh for each slot; the code under test
carries a few numbers along instead. They must agree on every slot.
"""

from __future__ import annotations

import copy
import itertools

import pytest

from noonbell.clock import instant_of
from noonbell.model.run import RunStatus
from noonbell.model.task import (
    Circuit,
    ConcurrencyPolicy,
    FailureAction,
    MisfirePolicy,
    OverlapAction,
    RetryPolicy,
)
from noonbell.policy.account import DueRun, Facts
from unit.policy.make import TEN, accounted, previous

BAD = ("FAILED", "TIMEOUT", "FAILED_TIMEOUT", "CANCELED")
LIVE = ("RUNNING", "RETRYING", "CALLBACK_PENDING")
CIRCUIT, RETRIES = Circuit(failures=2, cool_down_seconds=2), RetryPolicy(initial_delay=1, max_delay=3)


def run(status: str, *, end: int | None = None, attempt: int = 1, replaced: bool = False) -> dict:
    return {"status": status, "end": end, "attempt": attempt, "replaced": replaced, "answered": False}


WORLDS = {
    "nothing yet": [],
    "success": [run("FAILED", end=-9), run("SUCCESS", end=0)],
    "one failure": [run("SUCCESS", end=-9), run("FAILED", end=0, attempt=3)],
    "two failures": [run("TIMEOUT", end=-9), run("CANCELED", end=1)],
    "three failures": [run("FAILED", end=-9), run("FAILED", end=-5), run("FAILED_TIMEOUT", end=1)],
    "two failures, one waits": [run("FAILED", end=-9), run("FAILED", end=-5), run("SCHEDULED")],
    "running": [run("SUCCESS", end=-9), run("RUNNING", attempt=2)],
    "running, one waits": [run("RUNNING"), run("SCHEDULED")],
    "two running": [run("RUNNING"), run("CALLBACK_PENDING")],
    "retrying": [run("FAILED", end=-9), run("RETRYING", attempt=2)],
    "probe running": [run("FAILED", end=-9), run("FAILED", end=-5), run("RUNNING")],
    "replaced": [run("FAILED", end=-9), run("CANCELED", end=0, replaced=True)],
    "an older one still running": [run("RUNNING"), run("FAILED", end=0)],
}
LIMITS = [(None, None), (0, None), (0, 1), (1, None), (1, 0), (1, 1), (2, None), (2, 1)]


def failed(one: dict) -> bool:
    return one["status"] in BAD and not one["replaced"]


def started(world: list[dict]) -> list[dict]:
    return [one for one in world if one["status"] != "SCHEDULED"]


def failures_in_a_row(world: list[dict]) -> int:
    ended = [one for one in started(world) if one["status"] not in LIVE and not one["replaced"]]
    return len(list(itertools.takewhile(failed, reversed(ended))))


def facts_of(world: list[dict]) -> Facts:
    last = max((number for number, one in enumerate(world) if one["status"] != "SCHEDULED"), default=None)
    waiting = sum(one["status"] == "SCHEDULED" for one in world)
    places = sum(one["status"] in ("RUNNING", "CALLBACK_PENDING") for one in world)
    if last is None:
        return Facts(occupied=places + waiting, waiting=waiting)
    one = world[last]
    known = previous(
        RunStatus(one["status"]),
        run_id=100 + last,
        attempt=one["attempt"],
        end_time=None if one["end"] is None else instant_of(TEN + one["end"]),
        failures=failures_in_a_row(world),
        replaced=one["replaced"],
    )
    return Facts(round=known, occupied=places + waiting, waiting=waiting)


def second_opinion(world, overlap, failure, concurrency, misfire, limit, depth) -> tuple[int, list[str]]:
    """How many of the five slots are dropped, and what becomes of the others, in words."""
    kept = {"FIRE_NOW": 5, "FIRE_ONCE": 1, "SKIP": 1, "CATCH_UP_LIMITED": 2}[misfire]
    words = []
    for slot in range(6 - kept, 6):
        after = copy.deepcopy(world)
        word = one_slot(after, slot, overlap, failure, concurrency, limit, depth)
        if "born" in word or word == "failure":
            world = after
        words.append(word)
    return 5 - kept, words


def one_slot(world, slot, overlap, failure, concurrency, limit, depth) -> str:
    rounds = started(world)
    last = rounds[-1] if rounds else None
    overlapping = last is not None and last["status"] in LIVE
    waits = any(one["status"] == "SCHEDULED" for one in world)
    canceled = ""
    if overlap == "SKIP" and (overlapping or waits):
        return "overlap"
    if overlap == "CANCEL_PREV" and overlapping:
        canceled = ", previous canceled"
        for one in world:
            if one["status"] in LIVE:
                one.update(status="CANCELED", replaced=True)

    attempt = 1
    if last is not None:
        streak = failures_in_a_row(world)
        if failure == "HALF_OPEN" and streak >= CIRCUIT.failures:
            cooling = failed(last) and slot < last["end"] + CIRCUIT.cool_down_seconds
            if last["status"] in LIVE or waits or cooling:
                return "circuit_open"
        if failed(last):
            if failure == "SKIP" and not last["answered"]:
                last["answered"] = True
                return "failure"
            if failure == "BACKOFF" and slot < last["end"] + min(3, 1 * 2 ** (streak - 1)):
                return "backoff"
            if failure == "RETRY":
                attempt = last["attempt"] + 1

    gate = ""
    bypass = overlap == "PARALLEL" and overlapping
    if limit is not None and not (limit > 0 and (bypass or concurrency == "PARALLEL")):
        running = sum(one["status"] in ("RUNNING", "CALLBACK_PENDING") for one in world)
        queue = [one for one in world if one["status"] == "SCHEDULED"]
        if running + len(queue) >= limit:
            if concurrency != "QUEUE":
                return "concurrency"
            without_place = queue[max(0, limit - running) :]
            if depth is not None and len(without_place) >= depth:
                return "queue_full"
        gate = ", at the gate"
    world.append(run("SCHEDULED"))
    return f"born at attempt {attempt}{gate}{canceled}"


def in_words(outcome) -> str:
    if not isinstance(outcome, DueRun):
        return str(outcome.reason)
    gate = ", at the gate" if outcome.gated else ""
    canceled = ", previous canceled" if outcome.cancel_previous else ""
    return f"born at attempt {outcome.attempt_base + 1}{gate}{canceled}"


@pytest.mark.parametrize("concurrency", list(ConcurrencyPolicy))
@pytest.mark.parametrize("failure", list(FailureAction))
@pytest.mark.parametrize("overlap", list(OverlapAction))
def test_every_combination_agrees_with_a_second_opinion(overlap, failure, concurrency):
    for misfire, (name, world), (limit, depth) in itertools.product(MisfirePolicy, WORLDS.items(), LIMITS):
        answer = accounted(
            now=TEN + 5,
            facts=facts_of(world),
            overlap_action=overlap,
            failure_action=failure,
            concurrency_policy=concurrency,
            misfire_policy=misfire,
            catchup_limit=2,
            max_concurrency=limit,
            queue_depth=depth,
            circuit=CIRCUIT,
            retry_policy=RETRIES,
        )
        found = sum(part.count for part in answer.dropped), [in_words(outcome) for outcome in answer.outcomes]
        expected = second_opinion(world, overlap, failure, concurrency, misfire, limit, depth)
        assert found == expected, f"{misfire}, {name}, limit {limit}, depth {depth}"
