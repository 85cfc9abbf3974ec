"""De-duplication of publishes: tables of what each publish is answered with, and of what runs, when and with which payload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.store.builders import Node, at, claim_due, done, finish, ids, job, runs_of
from noonbell.clock import ManualClock
from noonbell.model.request import Dedupe, DedupeKeep, DedupeMode, Publication, PublishOutcome
from noonbell.model.run import Lease
from noonbell.model.task import Task
from noonbell.ports import Store

FIRST, LAST = DedupeKeep.FIRST, DedupeKeep.LAST


def key(**more: Any) -> Dedupe:
    return Dedupe(mode=DedupeMode.KEY, key="k", **more)


def throttle(seconds: float = 5, **more: Any) -> Dedupe:
    return Dedupe(mode=DedupeMode.THROTTLE, key="k", seconds=seconds, **more)


def debounce(seconds: float = 5, **more: Any) -> Dedupe:
    return Dedupe(mode=DedupeMode.DEBOUNCE, key="k", seconds=seconds, **more)


@dataclass(frozen=True)
class Case:
    """The seconds of the publishes, the first letter of each answer, and (second, which publish's payload) of each start."""

    dedupe: Dedupe
    publishes: Sequence[int]
    answers: str
    starts: Sequence[tuple[int, int]]
    takes: int = 0
    """Seconds that a run is under way."""
    workers_from: int = 0
    """Before that second no worker is there."""


CASES = {
    "throttle, leading": Case(throttle(), (0, 1, 4, 5, 6, 11), "ceecec", [(0, 0), (5, 3), (11, 5)]),
    "throttle, leading, slow": Case(throttle(), (0, 2, 6), "crc", [(0, 0), (6, 2)], takes=20),
    "throttle, leading, no worker": Case(throttle(), (0, 4, 5), "cec", [(8, 0), (8, 2)], workers_from=8),
    "throttle, trailing": Case(throttle(keep=LAST), (0, 1, 4, 5, 12), "cuucc", [(5, 2), (10, 3), (17, 4)]),
    "debounce, trailing": Case(debounce(), (0, 3, 7, 20), "cuuc", [(12, 2), (25, 3)]),
    "debounce, trailing, alone": Case(debounce(), (3,), "c", [(8, 0)]),
    "debounce, trailing, max wait": Case(debounce(max_wait_seconds=10), (0, 4, 8, 9, 12), "cuuuc", [(10, 3), (17, 4)]),
    "debounce, trailing, under way": Case(debounce(2), (0, 3), "cc", [(2, 0), (5, 1)], takes=9),
    "debounce, trailing, no worker": Case(debounce(2), (0, 4), "cu", [(7, 1)], workers_from=7),
    "debounce, leading": Case(debounce(keep=FIRST), (0, 3, 7, 12), "ceec", [(0, 0), (12, 3)]),
    "debounce, leading, max wait": Case(
        debounce(keep=FIRST, max_wait_seconds=8), (0, 3, 6, 8, 9), "ceece", [(0, 0), (8, 3)]
    ),
    "key": Case(key(), (0, 1, 4), "crc", [(0, 0), (4, 2)], takes=3),
    "key, waiting": Case(key(), (0, 1, 3), "cer", [(2, 0)], takes=9, workers_from=2),
    "key, the last": Case(key(keep=LAST), (0, 1, 3), "cur", [(2, 1)], takes=9, workers_from=2),
}


@pytest.mark.parametrize("name", CASES)
async def test_publishes_that_share_a_key_make_the_runs_of_the_table(store: Store, clock: ManualClock, name: str):
    case = CASES[name]
    task = await store.create_task(job())
    answers = ""

    async def publish(number: int) -> None:
        nonlocal answers
        (answer,) = await store.publish([published(task, case, number)])
        answers += str(answer.outcome)[0]

    starts = await played(store, clock, case, publish)
    assert (answers, starts) == (case.answers, list(case.starts))
    assert len(await runs_of(store, task)) == answers.count("c")


@pytest.mark.parametrize("name", CASES)
async def test_twenty_publishers_at_each_moment_of_the_table_make_the_same_runs(
    store: Store, another_node: Node, clock: ManualClock, name: str
):
    case = CASES[name]
    task = await store.create_task(job())
    nodes = [store, await another_node()]
    made: list[int] = []

    async def publish(number: int) -> None:
        asked = (nodes[each % 2].publish([published(task, case, number)]) for each in range(20))
        outcomes = [answer.outcome for (answer,) in await asyncio.gather(*asked)]
        made.append(outcomes.count(PublishOutcome.CREATED))

    assert await played(store, clock, case, publish) == list(case.starts)
    assert made == [int(letter == "c") for letter in case.answers]
    assert len(await runs_of(store, task)) == sum(made)


def published(task: Task, case: Case, number: int) -> Publication:
    return Publication(task_id=task.id, dedupe=case.dedupe, payload={"number": number})


async def played(
    store: Store, clock: ManualClock, case: Case, publish: Callable[[int], Awaitable[None]]
) -> list[tuple[int, int]]:
    """Second by second: what started, when and with which payload."""
    starts = []
    held: list[tuple[int, Lease]] = []
    for second in range(max(case.publishes) + 30):
        clock.set(at(second))
        for until, lease in [each for each in held if each[0] <= second]:
            await done(store, finish(lease))
            held.remove((until, lease))
        for number, moment in enumerate(case.publishes):
            if moment == second:
                await publish(number)
        if second >= case.workers_from:
            for lease in await claim_due(store):
                starts.append((second, lease.payload["number"]))
                held.append((second + case.takes, lease))
            for until, lease in [each for each in held if each[0] <= second]:
                await done(store, finish(lease))
                held.remove((until, lease))
    return starts


async def test_a_publish_that_makes_no_run_is_answered_with_the_standing_one(store: Store):
    task = await store.create_task(job())
    answers = [await ask_for(store, task, throttle()) for _ in range(3)]
    assert len({answer for answer, _ in answers}) == 1
    assert [outcome for _, outcome in answers] == ["created", "exists", "exists"]


async def ask_for(store: Store, task: Task, dedupe: Dedupe, **more: Any) -> tuple[int | None, PublishOutcome]:
    (answer,) = await store.publish([Publication(task_id=task.id, dedupe=dedupe, **more)])
    return answer.run_id, answer.outcome


async def test_modes_keys_and_tasks_do_not_know_of_each_other(store: Store):
    one, two = await store.create_task(job("one")), await store.create_task(job("two"))
    other = Dedupe(mode=DedupeMode.KEY, key="other")
    rules = [(one, key()), (one, throttle()), (one, debounce()), (one, other), (two, key())]
    assert {outcome for _, outcome in [await ask_for(store, *rule) for rule in rules]} == {"created"}
    (answer,) = await store.publish([Publication(task_id=one.id, key="k")])
    assert answer.outcome is PublishOutcome.CREATED


@pytest.mark.parametrize(
    ("dedupe", "outcomes", "number"),
    [
        (key(), ["created", "exists", "exists"], 0),
        (key(keep=LAST), ["created", "updated", "updated"], 2),
        (throttle(), ["created", "exists", "exists"], 0),
        (debounce(), ["created", "updated", "updated"], 2),
        (debounce(keep=FIRST), ["created", "exists", "exists"], 0),
    ],
)
async def test_the_same_holds_within_a_batch(
    store: Store, clock: ManualClock, dedupe: Dedupe, outcomes: list[str], number: int
):
    task = await store.create_task(job())
    wanted = [Publication(task_id=task.id, dedupe=dedupe, payload={"number": n}) for n in range(3)]
    answers = await store.publish(wanted)
    assert [answer.outcome for answer in answers] == outcomes
    assert len(set(ids(answers))) == 1
    clock.advance(10)
    (lease,) = await claim_due(store)
    assert lease.payload == {"number": number}


@pytest.mark.parametrize(
    "dedupe", [key(), key(keep=LAST), throttle(), throttle(keep=LAST), debounce(), debounce(keep=FIRST)]
)
async def test_of_twenty_publishers_at_once_one_makes_the_run(
    store: Store, another_node: Node, clock: ManualClock, dedupe: Dedupe
):
    task = await store.create_task(job())
    nodes = [store, await another_node()]
    for _ in range(2):
        answers = await asyncio.gather(*(ask_for(nodes[number % 2], task, dedupe) for number in range(20)))
        assert [outcome for _, outcome in answers].count(PublishOutcome.CREATED) == 1, answers
        assert len({run_id for run_id, _ in answers}) == 1
        clock.advance(20)
        for lease in await claim_due(store):
            await done(store, finish(lease))
    assert len(await runs_of(store, task)) == 2
