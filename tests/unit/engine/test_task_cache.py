"""Knowing tasks: one question for each that is new, none for those that are known."""

from __future__ import annotations

import msgspec

from conformance.store.builders import claim, edit, job, publish
from noonbell.engine.attempt_runner import TaskCache
from noonbell.model.task import TaskId
from noonbell.stores.sqlite import MemoryStore
from unit.engine.make import Moody


async def test_all_that_is_new_is_asked_for_at_once_and_only_once(store: MemoryStore):
    made = [await store.create_task(job(f"t{number}")) for number in range(3)]
    for task in made * 4:
        await publish(store, task)
    leases = await claim(store)
    moody = Moody(store)
    tasks = TaskCache(moody)  # type: ignore[arg-type]
    await tasks.load(leases)
    await tasks.load(leases)
    assert moody.calls == ["tasks_by_id"]
    assert {tasks.get(lease).name for lease in leases if tasks.get(lease)} == {"t0", "t1", "t2"}  # type: ignore[union-attr]


async def test_a_task_that_was_edited_since_the_claim_is_used_as_it_is_now(store: MemoryStore):
    task = await store.create_task(job())
    await publish(store, task)
    leases = await claim(store)
    await edit(store, task, payload="new")
    tasks = TaskCache(store)
    await tasks.load(leases)
    known = tasks.get(leases[0])
    assert known is not None
    assert (known.version, known.spec.payload) == (2, "new")


async def test_a_task_that_is_cached_is_asked_for_again_once_a_lease_names_a_newer_version(store: MemoryStore):
    task = await store.create_task(job(payload="old"))
    tasks = TaskCache(store)
    for payload in ("old", "new"):
        await edit(store, task, payload=payload)
        await publish(store, task)
        leases = await claim(store)
        await tasks.load(leases)
        known = tasks.get(leases[0])
        assert known is not None
        assert known.spec.payload == payload


async def test_a_purged_task_is_not_known(store: MemoryStore):
    task = await store.create_task(job())
    await publish(store, task)
    leases = await claim(store)
    tasks = TaskCache(store)
    await tasks.load([msgspec.structs.replace(leases[0], task_id=TaskId(999))])
    assert tasks.get(msgspec.structs.replace(leases[0], task_id=TaskId(999))) is None


async def test_the_oldest_are_forgotten_first(store: MemoryStore):
    tasks = TaskCache(store, size=2)
    made = [await store.create_task(job(f"t{number}")) for number in range(3)]
    for task in made:
        await tasks.newest(task.id)
    assert [tasks.recent(task.id, 60) is not None for task in made] == [False, True, True]
