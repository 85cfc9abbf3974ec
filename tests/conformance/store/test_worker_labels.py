"""Labels of workers: a run whose task asks for some is given to a worker that has all of them, and to no other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    QUEUES,
    S,
    ask,
    at,
    claim,
    claimed_ids,
    done,
    edit,
    finish,
    http,
    job,
    publish,
    publish_many,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.model.task import Fanout, RateLimit
from noonbell.model.worker import Lack, WorkerInfo, label_pairs
from noonbell.ports import Store
from noonbell.service.explain import Explain

GPU = {"gpu": "a100", "zone": "eu"}
WAYS: dict[str, Any] = {
    "ready": job("ready"),
    "gated": http("gated"),
    "rated": job("rated", rate_limit=RateLimit(max=100, per_seconds=60)),
    "pinned": job("pinned", specific_worker_ids=("w1",)),
    "newer": job("newer", min_worker_version=1),
    "expiring": job("expiring", expires_in_seconds=600),
    "parts": job("parts", fanout=Fanout(workers=1)),
}
UNFIT: dict[str, dict[str, str]] = {
    "none": {},
    "one of two": {"gpu": "a100"},
    "another value": {"gpu": "a100", "zone": "us"},
    "another name": {"gpu": "a100", "Zone": "eu"},
    "a longer value": {"gpu": "a100", "zone": "eu2"},
}


async def worker(store: Store, labels: dict[str, str], worker_id: str = "w1", **more: Any) -> None:
    await store.register_worker(
        WorkerInfo(id=worker_id, incarnation=worker_id, queues=QUEUES, labels=labels, **({"version": 1} | more))
    )


async def take(store: Store, labels: dict[str, str], worker_id: str = "w1", count: int = 100) -> list[Any]:
    return (await store.claim(ask(worker_id, count, version=1, labels=label_pairs(labels)))).leases


@pytest.mark.parametrize("way", WAYS)
async def test_only_a_worker_with_all_of_them_gets_it(store: Store, way: str):
    task = await store.create_task(msgspec.structs.replace(WAYS[way], worker_labels=GPU))
    run_id = await publish(store, task)
    for labels in UNFIT.values():
        await worker(store, labels)
        assert await take(store, labels) == []
    await worker(store, {**GPU, "disk": "ssd"})
    (lease,) = await take(store, {**GPU, "disk": "ssd"})
    assert run_id in (lease.run_id, lease.parent_id)
    await done(store, finish(lease))
    assert await status_of(store, run_id) is S.SUCCESS


async def test_tasks_without_labels_are_everybodys_and_nothing_stands_in_the_way(store: Store):
    asking = await store.create_task(job("asking", worker_labels=GPU, priority=9))
    plain = await store.create_task(job("plain"))
    await publish_many(store, asking, 5)
    wanted = await publish_many(store, plain, 2)
    assert claimed_ids(await claim(store, count=2)) == wanted


async def test_a_change_of_the_labels_acts_on_what_waits(store: Store):
    task = await store.create_task(job())
    first, second, third = await publish_many(store, task, 3)
    task = await edit(store, task, worker_labels=GPU)
    assert await claim(store) == []
    assert claimed_ids(await take(store, GPU, count=1)) == [first]
    task = await edit(store, task, worker_labels={"gpu": "h100"})
    assert await take(store, GPU) == []
    assert claimed_ids(await take(store, {"gpu": "h100"}, count=1)) == [second]
    await edit(store, task, worker_labels={})
    assert claimed_ids(await claim(store)) == [third]


async def test_a_run_that_was_handed_back_asks_for_them_again(store: Store, clock: ManualClock):
    from conformance.store.builders import release

    run_id = await publish(store, await store.create_task(job(worker_labels=GPU)))
    (lease,) = await take(store, GPU)
    await done(store, release(lease))
    assert await claim(store) == []
    assert claimed_ids(await take(store, GPU)) == [run_id]


async def test_workers_keep_what_they_say_of_themselves(store: Store):
    await worker(store, GPU)
    (found,) = await store.workers()
    assert found.labels == GPU


@pytest.mark.parametrize(("labels", "missing"), [({}, "gpu=a100, zone=eu"), ({"gpu": "a100"}, "zone=eu")])
async def test_explain_names_those_that_are_missing(store: Store, labels: dict[str, str], missing: str):
    run_id = await publish(store, await store.create_task(job(worker_labels=GPU)))
    await worker(store, labels)
    answer = await Explain(store).of_run(run_id)
    assert answer["cause"] == "no_worker"
    assert f"has the labels {missing}." in answer["message"]
    assert not (await Explain(store).of_run(run_id, "zh"))["message"].isascii()
    await worker(store, GPU, "w2")
    assert (await Explain(store).of_run(run_id))["cause"] == "waiting"


async def test_labels_that_two_workers_have_between_them_are_all_named(store: Store):
    run_id = await publish(store, await store.create_task(job(worker_labels=GPU)))
    await worker(store, {"gpu": "a100"})
    await worker(store, {"zone": "eu"}, "w2")
    assert "has the labels gpu=a100, zone=eu." in (await Explain(store).of_run(run_id))["message"]


async def test_runs_that_no_living_worker_could_take_are_told_of(store: Store, clock: ManualClock):
    task = await store.create_task(job(worker_labels=GPU))
    await publish(store, task)
    await worker(store, {"gpu": "a100"})
    (stranded,) = await store.stranded()
    assert (stranded.queue, stranded.lack, stranded.count) == ("default", Lack.LABELS, 1)
    clock.set(at(10))
    await worker(store, {"gpu": "a100"})
    assert [found.task_id for found in await store.unserved(5)] == [task.id]
    await worker(store, GPU, "w2")
    assert [found.is_over for found in await store.unserved(5)] == [True]
    assert await store.stranded() == []
