"""The laws of `ports.Target`, on every kind of target: the real target calls something real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from conformance.target.scenes import SCENES, Scene
from noonbell.engine.attempt_runner import Deadlines, execute
from noonbell.engine.worker import Worker
from noonbell.model.request import Publication
from noonbell.model.run import Assignment, Outcome, OutcomeKind, Run, RunStatus
from noonbell.model.target_kind import BROKERS, FLOWS, TARGET_KINDS
from noonbell.model.task import TaskSpec
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from noonbell.targets import MAKERS
from services.brokers import Broker
from unit.targets.make import assignment

TIMEOUT = 30.0
"""Seconds of an attempt, far more than a call on loopback takes."""
PATIENCE = 60.0
CARRIED_OUT = [kind.name for kind in TARGET_KINDS if kind is not FLOWS]
"""The run of a flow is started by the store, and its steps are runs of the other kinds."""


@pytest.fixture
async def memory() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=CARRIED_OUT)
async def scene(request: pytest.FixtureRequest, memory: MemoryStore) -> AsyncIterator[Scene]:
    async with SCENES[request.param](memory, *broker_for(request)) as made:
        yield made


def broker_for(request: pytest.FixtureRequest) -> tuple[Broker, ...]:
    """For a kind that publishes to one."""
    names = {kind.name: kind.named_by for kind in BROKERS}
    return (request.getfixturevalue("broker_named")(names[request.param]),) if request.param in names else ()


def an_attempt(scene: Scene, way: str) -> Assignment:
    given = assignment()
    spec = TaskSpec(name="greet", timeout_seconds=TIMEOUT, **scene.task(way))
    return msgspec.structs.replace(given, task=msgspec.structs.replace(given.task, spec=spec))


def begun(scene: Scene, way: str) -> asyncio.Task[Outcome]:
    """An attempt in a task of its own, as a worker begins it."""

    async def attempt() -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        return await execute(an_attempt(scene, way), scene.target, task, Deadlines())

    return asyncio.create_task(attempt())


async def seen(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await event.wait()


def test_every_kind_has_a_maker_and_a_scene() -> None:
    assert set(MAKERS) == set(CARRIED_OUT)
    assert set(SCENES) == set(CARRIED_OUT)


def test_no_field_and_no_exec_type_belongs_to_two_kinds() -> None:
    fields = [name for kind in TARGET_KINDS for name in kind.fields]
    exec_types = [exec_type for kind in TARGET_KINDS for exec_type in kind.exec_types]
    assert len(set(fields)) == len(fields)
    assert len(set(exec_types)) == len(exec_types)
    assert set(fields) <= set(TaskSpec.__struct_fields__)
    for kind in TARGET_KINDS:
        assert kind.named_by in kind.fields
        plain = TaskSpec(name="x", exec_type=kind.exec_types[0])
        assert {name: getattr(plain, name) for name in kind.fields} == dict(kind.fields)


async def test_a_call_that_succeeds_is_a_success(scene: Scene) -> None:
    assert (await scene.target.execute(an_attempt(scene, "succeeds"))).kind is OutcomeKind.SUCCESS


@pytest.mark.parametrize("way", ["fails", "absent"])
async def test_the_failure_of_an_attempt_is_an_outcome_and_never_an_exception(scene: Scene, way: str) -> None:
    outcome = await scene.target.execute(an_attempt(scene, way))
    assert outcome.kind is OutcomeKind.FAILURE
    assert outcome.failure
    assert outcome.error_message
    assert (outcome.error_details or {})["kind"] == outcome.failure


async def test_an_attempt_past_its_deadline_ends_as_a_timeout_and_lets_go(scene: Scene, skip_time) -> None:
    attempt = begun(scene, "hangs")
    await seen(scene.reached)
    await skip_time(TIMEOUT - 1)
    assert not attempt.done()
    await skip_time(2)
    outcome = await attempt
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILURE, "timeout")
    assert f"{TIMEOUT:g} s" in str(outcome.error_message)
    await seen(scene.released)


async def test_a_canceled_attempt_lets_go_and_the_cancellation_goes_on(scene: Scene) -> None:
    attempt = begun(scene, "hangs")
    await seen(scene.reached)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await seen(scene.released)


async def test_attempts_go_on_side_by_side_and_after_one_that_was_canceled(scene: Scene) -> None:
    hanging = begun(scene, "hangs")
    await seen(scene.reached)
    outcomes = await asyncio.gather(*(begun(scene, way) for way in ("succeeds", "fails", "succeeds")))
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.SUCCESS, OutcomeKind.FAILURE, OutcomeKind.SUCCESS]
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert (await begun(scene, "succeeds")).kind is OutcomeKind.SUCCESS


async def settled(scene: Scene, store: MemoryStore, way: str) -> Run:
    """A run that a worker claimed, carried out and settled."""
    spec = TaskSpec(name="greet", **scene.task(way))
    task = await store.create_task(spec)
    (published,) = await store.publish([Publication(task_id=task.id)])
    assert published.run_id is not None
    targets = dict.fromkeys(spec.target_kind.exec_types, scene.target)
    named = spec.target_kind.claimed_as
    types = None if named is None else (named,)
    worker = Worker(store, LocalWakeup(), targets, worker_id="one", queues=(spec.queue,), job_types=types)
    await worker.register()
    async with asyncio.timeout(PATIENCE):
        await worker.run_until_idle()
    run = await store.run(published.run_id)
    assert run is not None
    return run


async def test_the_outcome_of_an_attempt_is_recorded_with_its_run(scene: Scene, memory: MemoryStore) -> None:
    done = await settled(scene, memory, "succeeds")
    assert (done.status, done.attempt) == (RunStatus.SUCCESS, 1)


async def test_a_failure_is_recorded_with_its_kind(scene: Scene, memory: MemoryStore) -> None:
    failed = await settled(scene, memory, "fails")
    assert failed.status not in (RunStatus.SUCCESS, RunStatus.RUNNING)
    assert failed.attempt == 1
    (attempt,) = await memory.attempts(failed.id)
    assert attempt.error_details is not None
    assert attempt.error_details["kind"]
