"""Commands: their fields, who may claim their runs, and sealing their variables again."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.store.builders import claim, done, edit, finish, ids, publish, run_of
from noonbell.model.request import Publication
from noonbell.model.run import RunStatus
from noonbell.model.target_kind import COMMAND_TYPE, ExecType
from noonbell.model.task import Fanout, Step, Task, TaskSpec
from noonbell.model.worker import WorkerInfo
from noonbell.ports import Store

FIELDS: dict[str, Any] = {
    "command": ["/bin/echo", "a b", "", "a b", "ä"],
    "env": {"API_KEY": "known-to-few", "TZ": "UTC"},
    "cwd": "/srv/jobs",
    "user": "backup",
    "ok_codes": (0, 3),
}


SCRIPT: dict[str, Any] = {"command": "echo 'a'\n", "shell": True}


async def task_of(store: Store, **fields: Any) -> Task:
    return await store.create_task(TaskSpec(name="a", **({"command": ["/bin/true"]} | fields)))


async def test_every_field_is_kept(store: Store):
    spec = TaskSpec(name="a", **FIELDS)
    made = await store.create_task(spec)
    assert (await store.task(made.id)).spec == made.spec == spec
    assert (spec.exec_type, spec.queue, spec.job_type, spec.claim_type) == (
        *(ExecType.COMMAND, "default", None),
        COMMAND_TYPE,
    )
    changed = await edit(store, made, **{**SCRIPT, "env": {}, "user": None})
    found = (await store.task(made.id)).spec
    assert (found.command, found.shell, found.env, found.user, found.cwd) == ("echo 'a'\n", True, {}, None, "/srv/jobs")
    assert [version.spec.command for version in await store.task_versions(made.id)] == [
        FIELDS["command"],
        found.command,
    ]
    assert changed.version == 2


WAYS: dict[str, dict[str, Any]] = {
    "behind a limit": {"max_concurrency": 1},
    "without a limit": {"max_concurrency": None},
    "with a key": {"max_concurrency": None, "concurrency_key": "payload.tenant", "payload": {"tenant": "a"}},
    "that may expire": {"max_concurrency": None, "expires_in_seconds": 60},
}


@pytest.mark.parametrize("way", WAYS)
async def test_only_a_worker_that_names_commands_claims_their_runs(store: Store, way: str):
    task = await task_of(store, **WAYS[way])
    run_id = await publish(store, task)
    assert ids(await claim(store, "any")) == []
    assert ids(await claim(store, "jobs", job_types=("resize",))) == []
    (lease,) = await claim(store, "commands", job_types=("resize", COMMAND_TYPE))
    assert lease.run_id == run_id
    await done(store, finish(lease))
    assert (await run_of(store, run_id)).status is RunStatus.SUCCESS


async def test_many_published_together_are_for_the_same_workers(store: Store):
    task = await task_of(store, max_concurrency=None)
    await store.publish([Publication(task_id=task.id) for _ in range(20)])
    assert ids(await claim(store, "any", count=50)) == []
    assert len(await claim(store, "commands", count=50, job_types=(COMMAND_TYPE,))) == 20


async def test_commands_stand_in_the_way_of_nothing_else_in_their_queue(store: Store):
    task = await task_of(store, max_concurrency=None, priority=9)
    await store.publish([Publication(task_id=task.id) for _ in range(20)])
    other = await store.create_task(TaskSpec(name="b", job_type="resize"))
    run_id = await publish(store, other)
    assert ids(await claim(store, "any", count=5)) == [run_id]


async def test_a_step_of_a_flow_that_is_a_command_is_claimed_by_its_workers_alone(store: Store):
    step = Step(id="a", command=["/bin/true"], queue="nightly")
    flow = await store.create_task(TaskSpec(name="f", steps=(step,)))
    await publish(store, flow)
    assert ids(await claim(store, "any", queues=("http", "nightly"))) == []
    (lease,) = await claim(store, "commands", queues=("nightly",), job_types=(COMMAND_TYPE,))
    assert lease.step is not None
    assert lease.step.command == ["/bin/true"]


async def test_a_fan_out_of_a_command_has_a_part_for_each_worker_of_commands(store: Store):
    for name, types in (("any", None), ("one", (COMMAND_TYPE,)), ("two", (COMMAND_TYPE,))):
        await store.register_worker(WorkerInfo(id=name, incarnation="a", job_types=types))
    await publish(store, await task_of(store, max_concurrency=None, fanout=Fanout(workers="all")))
    assert ids(await claim(store, "any")) == []
    (first,) = await claim(store, "one", job_types=(COMMAND_TYPE,))
    (second,) = await claim(store, "two", job_types=(COMMAND_TYPE,))
    assert {first.shard_total, second.shard_total} == {2}


async def test_without_a_worker_of_commands_the_task_is_told_as_unserved(store: Store):
    await store.register_worker(WorkerInfo(id="any", incarnation="a"))
    task = await task_of(store)
    await publish(store, task)
    (found,) = await store.unserved(0.0)
    assert (found.task_id, found.job_type, found.is_over) == (task.id, COMMAND_TYPE, False)
    await store.register_worker(WorkerInfo(id="commands", incarnation="a", job_types=(COMMAND_TYPE,)))
    (over,) = await store.unserved(0.0)
    assert (over.task_id, over.is_over) == (task.id, True)


async def test_variables_are_sealed_again_with_the_rest(store: Store):
    task = await task_of(store, **FIELDS)

    def reseal(fields: dict[str, Any]) -> dict[str, Any]:
        return {
            **fields,
            "env": {
                name: f"sealed {value}".replace("sealed sealed", "sealed") for name, value in fields["env"].items()
            },
        }

    assert await store.reseal_tasks(-1, 10, reseal) == (None, 1)
    assert (await store.reseal_versions((-1, 0), 10, reseal))[1] == 1
    found = await store.task(task.id)
    assert found.spec.env == {"API_KEY": "sealed known-to-few", "TZ": "sealed UTC"}
    assert (await store.task_versions(task.id))[0].spec.env == found.spec.env
    assert await store.reseal_tasks(-1, 10, reseal) == (None, 0)
