"""Real worker processes: they stop, die, obey and hand back, and no run is lost by it or done twice at the store."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

from integration.jobs.fleet import FRESH, is_alive
from noonbell.model.request import TaskChange
from noonbell.model.run import RunStatus
from noonbell.model.task import RetryPolicy
from noonbell.model.worker import WorkerState

NO_RETRY = RetryPolicy(max_retries=0)

on_every_store = pytest.mark.parametrize("fleet", sorted(FRESH), indirect=True)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "notes"


def go(file):
    file.with_name(f"{file.name}.go").touch()


@on_every_store
async def test_a_stopped_worker_lets_running_work_end(fleet, file):
    first = await fleet.start()
    run_id = await fleet.run("wait", {"file": str(file)})
    await fleet.notes(file, "start")
    first.send(signal.SIGTERM)
    await fleet.eventually(lambda: "stopping" in first.log)
    go(file)
    assert await first.ended() == 0
    assert (await fleet.end_of(run_id)).attempt == 1
    assert await fleet.worker(first.id) is None


@on_every_store
async def test_what_does_not_end_in_time_is_handed_back_and_another_worker_does_it(fleet, file):
    (fleet.folder / "short.yaml").write_text("server: {graceful_timeout: 200ms}")
    first = await fleet.start("--config", str(fleet.folder / "short.yaml"))
    run_id = await fleet.run("wait", {"file": str(file)})
    await fleet.notes(file, "start")
    first.send(signal.SIGTERM)
    assert await first.ended() == 0
    (canceled,) = await fleet.notes(file, "canceled")
    assert canceled[1:] == [str(run_id), "1", first.id]
    waiting = await fleet.store.run(run_id)
    assert (waiting.status, waiting.attempt) == (RunStatus.SCHEDULED, 0)
    go(file)
    second = await fleet.start()
    ended = await fleet.end_of(run_id)
    assert (ended.status, ended.attempt, ended.worker_id) == (RunStatus.SUCCESS, 1, second.id)


async def test_a_second_signal_ends_the_process_at_once(fleet, file):
    worker = await fleet.start()
    await fleet.run("wait", {"file": str(file)})
    await fleet.notes(file, "start")
    worker.send(signal.SIGTERM)
    await fleet.eventually(lambda: "stopping: 1 run that is still running" in worker.log)

    def has_ended() -> bool:
        worker.send(signal.SIGTERM)
        return worker.process.poll() is not None

    await fleet.eventually(has_ended)
    assert await worker.ended() == 130


@on_every_store
async def test_the_run_of_a_killed_worker_is_done_by_another(fleet, file):
    first = await fleet.start()
    run_id = await fleet.run("wait", {"file": str(file)})
    await fleet.notes(file, "start")
    second = await fleet.start()
    first.kill()
    await fleet.notes(file, "start", 2)
    go(file)
    ended = await fleet.end_of(run_id)
    assert (ended.status, ended.attempt, ended.lost_count, ended.worker_id) == (RunStatus.SUCCESS, 2, 1, second.id)


async def test_a_sandbox_that_is_killed_fails_only_its_attempt(fleet, file):
    worker = await fleet.start()
    run_id = await fleet.run("boxed", {"file": str(file)}, retry_policy=NO_RETRY)
    other = await fleet.run("wait", {"file": str(fleet.folder / "other")})
    ((_, _, _, pid),) = await fleet.notes(file, "start")
    os.kill(int(pid), signal.SIGKILL)
    ended = await fleet.end_of(run_id)
    said = {"code": "process_killed_memory", "facts": {"signal": "SIGKILL"}}
    assert ended.status is RunStatus.FAILED
    assert ended.error_details == {"kind": "crash", "signal": "SIGKILL", "said": said}
    go(fleet.folder / "other")
    assert (await fleet.end_of(other)).attempt == 1
    assert worker.process.poll() is None


async def test_a_worker_that_is_killed_leaves_no_sandbox_behind(fleet, file):
    worker = await fleet.start()
    await fleet.run("boxed", {"file": str(file)})
    ((_, _, _, pid),) = await fleet.notes(file, "start")
    group = _group(int(pid))
    assert len(group) >= 2
    worker.kill()
    await fleet.eventually(lambda: not any(is_alive(one) for one in group))


def _group(leader):
    """Every process of the group that this one leads."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == leader:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


async def test_a_timeout_kills_the_sandbox(fleet, file):
    await fleet.start()
    run_id = await fleet.run("boxed", {"file": str(file)}, timeout_seconds=3, retry_policy=NO_RETRY)
    ((_, _, _, pid),) = await fleet.notes(file, "start")
    assert (await fleet.end_of(run_id)).status is RunStatus.TIMEOUT
    await fleet.eventually(lambda: not is_alive(int(pid)))


@pytest.mark.parametrize("job_type", ["wait", "boxed"])
async def test_cancel_reaches_a_handler_in_another_process_with_the_next_heartbeat(fleet, file, job_type):
    await fleet.start()
    run_id = await fleet.run(job_type, {"file": str(file)})
    ((*_, last),) = await fleet.notes(file, "start")
    (canceled,) = await fleet.store.cancel([run_id])
    assert canceled.canceled
    if job_type == "wait":
        await fleet.notes(file, "canceled")
    else:
        await fleet.eventually(lambda: not is_alive(int(last)))
    assert (await fleet.store.run(run_id)).status is RunStatus.CANCELED


@on_every_store
async def test_extend_keeps_a_run_alive_beyond_its_timeout(fleet):
    await fleet.start()
    run_id = await fleet.run("long", {"seconds": 4.0}, timeout_seconds=1, retry_policy=NO_RETRY)
    ended = await fleet.end_of(run_id)
    assert (ended.status, ended.result, ended.attempt) == (RunStatus.SUCCESS, True, 1)


async def test_a_sync_handler_that_ignores_cancel_keeps_its_place(fleet, file):
    await fleet.start("--concurrency", "1")
    run_id = await fleet.run("stubborn", {"file": str(file)})
    await fleet.notes(file, "start")
    await fleet.store.cancel([run_id])
    other = await fleet.run("quick")
    # The worker has heard of the cancel, and still has no place.
    await fleet.beats("w0", 3)
    assert (await fleet.store.run(other)).status is RunStatus.SCHEDULED
    go(file)
    assert (await fleet.end_of(other)).status is RunStatus.SUCCESS
    ((_, _, _, saw),) = await fleet.notes(file, "end")
    assert saw == "True"
    assert (await fleet.store.run(run_id)).status is RunStatus.CANCELED


async def test_a_local_retry_stays_with_its_worker(fleet, file):
    await fleet.start()
    await fleet.start()
    policy = RetryPolicy(max_retries=3, initial_delay=0.1, local=True)
    run_id = await fleet.run("flaky", {"file": str(file), "failures": 2}, retry_policy=policy)
    ended = await fleet.end_of(run_id)
    tries = await fleet.notes(file, "try", 3)
    assert ended.status is RunStatus.SUCCESS
    assert [line[2] for line in tries] == ["1", "2", "3"]
    assert {line[3] for line in tries} == {ended.worker_id}


@on_every_store
async def test_a_drained_worker_finishes_what_it_has_and_takes_no_more_until_it_is_resumed(fleet, file):
    await fleet.start()
    held = await fleet.run("wait", {"file": str(file)})
    await fleet.notes(file, "start")
    await fleet.order("w0", state=WorkerState.DRAINING)
    await fleet.beats("w0", 2)
    go(file)
    assert (await fleet.end_of(held)).status is RunStatus.SUCCESS
    left = await fleet.run("quick", name="left")
    idle = await fleet.start()
    assert (await fleet.end_of(left)).worker_id == idle.id
    await fleet.order("w0", state=WorkerState.RUNNING)
    idle.kill()
    assert (await fleet.end_of(await fleet.run("quick", name="again"))).worker_id == "w0"


async def test_a_worker_that_an_operator_stops_ends_gracefully_and_its_process_with_it(fleet, file):
    worker = await fleet.start()
    run_id = await fleet.run("wait", {"file": str(file)})
    await fleet.notes(file, "start")
    await fleet.order("w0", state=WorkerState.STOPPING)
    await fleet.eventually(lambda: "an operator asked for it" in worker.log)
    go(file)
    assert await worker.ended() == 0
    assert (await fleet.store.run(run_id)).status is RunStatus.SUCCESS
    assert await fleet.worker("w0") is None


async def test_concurrency_is_changed_while_a_worker_works(fleet, file):
    await fleet.start("--concurrency", "1")
    task = await fleet.task("wait")
    await fleet.publish(task, {"file": str(file)}, 3)
    await fleet.notes(file, "start", 1)
    await fleet.order("w0", concurrency=3)
    assert len(await fleet.notes(file, "start", 3)) == 3


async def test_a_worker_that_is_no_longer_named_lets_go_and_another_takes_over(fleet, file):
    await fleet.start()
    await fleet.start()
    task = await fleet.task("wait", specific_worker_ids=("w0",))
    (run_id,) = await fleet.publish(task, {"file": str(file)})
    ((_, _, _, first),) = await fleet.notes(file, "start")
    assert first == "w0"
    await fleet.store.change_task(task, _named("w1"))
    await fleet.notes(file, "canceled")
    starts = await fleet.notes(file, "start", 2)
    assert starts[1][3] == "w1"
    go(file)
    assert (await fleet.end_of(run_id)).worker_id == "w1"


def _named(worker_id):
    def edit(task):
        spec = msgspec.structs.replace(task.spec, specific_worker_ids=(worker_id,))
        return TaskChange(spec=spec, status=task.status)

    return edit


async def test_a_run_that_asks_for_a_newer_worker_waits_for_one(fleet):
    await fleet.start("--version", "1")
    run_id = await fleet.run("quick", min_worker_version=2)
    newer = await fleet.start("--version", "2")
    assert (await fleet.end_of(run_id)).worker_id == newer.id


async def test_a_worker_claims_from_its_queues_and_its_job_types_only(fleet):
    await fleet.start("--queues", "fast, slow")
    elsewhere = await fleet.run("quick", queue="other", name="elsewhere")
    unknown = await fleet.run("nobody_has_this", queue="fast", name="unknown")
    ours = [await fleet.run("quick", queue=queue, name=queue) for queue in ("fast", "slow")]
    for run_id in ours:
        assert (await fleet.end_of(run_id)).worker_id == "w0"
    assert [(await fleet.store.run(one)).status for one in (elsewhere, unknown)] == [RunStatus.SCHEDULED] * 2


async def test_a_second_worker_of_the_same_id_is_refused_in_words(fleet):
    await fleet.start()
    second = fleet.launch("w0")
    assert await second.ended() == 5
    assert "w0" in second.log.splitlines()[-1]


async def test_the_jobs_of_the_app_are_tasks_when_its_worker_is_ready(fleet):
    await fleet.start()
    task = await fleet.store.task_named("quick")
    assert (task.spec.managed_by, task.spec.job_type) == ("code:fleet", "quick")
