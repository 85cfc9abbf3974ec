"""Handlers in processes of their own: as others while all goes well, and alone when they die."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path

import pytest

from conformance.store.builders import details_of
from noonbell.model.run import RunStatus
from noonbell.model.task import RetryPolicy
from noonbell.targets.jobs.handler import Handler, HandlerKind
from noonbell.targets.jobs.sandbox_pool import Sandboxes
from unit.targets.jobs.conftest import eventually

NO_RETRY = RetryPolicy(max_retries=0)
FILE = Path(__file__).with_name("sandboxed.py")


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("sandboxed", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bench(bench, module):
    for handler in module.app.handlers:
        bench.handlers.add(handler)
    return bench


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def gone(*pids: int) -> None:
    await eventually(lambda: not any(is_alive(pid) for pid in pids))


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def written(file: Path, other_than: str = "") -> str:
    await eventually(lambda: text_of(file) not in {"", other_than})
    return text_of(file)


async def run(bench, job_type, payload=None, **spec):
    return await bench.run(payload, job_type=job_type, **{"retry_policy": NO_RETRY, **spec})


async def test_a_sandbox_is_another_process_that_leads_its_own_group_and_is_used_again(bench):
    first, second = (await run(bench, "whoami"), await run(bench, "whoami"))
    assert first.result["pid"] != os.getpid()
    assert first.result["pid"] == first.result["group"]
    assert second.result == first.result
    assert first.result["opened"] is True


async def test_a_sandbox_does_not_have_the_workers_settings_in_its_environment(bench, monkeypatch):
    monkeypatch.setenv("NOONBELL_STORE__URL", "postgresql://me:canary@db/jobs")
    monkeypatch.setenv("NOONBELL_TOKEN", "canary")
    monkeypatch.setenv("FOR_HANDLERS", "1")
    assert (await run(bench, "settings_in_sight")).result == ["FOR_HANDLERS"]


async def test_a_sandbox_is_replaced_after_some_runs(bench):
    bench.target._sandboxes = Sandboxes(runs=2)
    pids = [(await run(bench, "whoami")).result["pid"] for _ in range(3)]
    assert pids[0] == pids[1] != pids[2]
    await gone(pids[0])


async def test_an_async_handler_runs_in_a_sandbox(bench):
    ended = await run(bench, "in_a_loop", {"a": 1})
    assert ended.result == {"payload": {"a": 1}, "extended": True}
    assert ended.progress == {"current": 1, "total": 2, "message": "half"}


async def test_log_progress_and_extend_work_from_a_sandbox(bench):
    ended = await run(bench, "talk")
    assert (ended.result, ended.progress["current"]) == (True, 199)
    assert await bench.log(ended.id) == [("info", f"line {number}") for number in range(200)]


async def test_extend_keeps_a_sandbox_beyond_its_timeout(bench):
    await run(bench, "whoami")  # so that a process is there already
    ended = await run(bench, "stay", timeout_seconds=1)
    assert (ended.status, ended.result) == (RunStatus.SUCCESS, "there")


@pytest.mark.parametrize(
    ("job_type", "kind", "said"),
    [
        ("fail", "fail", "no"),
        ("raise_error", "error", "KeyError: 'broken'"),
        ("return_object", "invalid_result", "a object that cannot be stored as JSON"),
        ("exit_politely", "error", "SystemExit: 3"),
        ("leave", "crash", "its process exited with code 3"),
        ("segfault", "crash", "its process was killed by SIGSEGV"),
    ],
)
async def test_a_failure_in_a_sandbox_has_its_kind_and_harms_nobody_else(bench, job_type, kind, said):
    ended = await run(bench, job_type)
    assert (ended.status, ended.error_details["kind"]) == (RunStatus.FAILED, kind)
    assert said in ended.error_message
    assert (await run(bench, "whoami")).status is RunStatus.SUCCESS


async def test_a_crash_is_retried_as_an_error_is(bench):
    ended = await run(bench, "leave", retry_policy=RetryPolicy(max_retries=1, initial_delay=0))
    assert (ended.attempt, ended.error_details["exit_code"]) == (2, 3)


async def test_a_sandbox_may_take_its_memory_and_no_more(bench):
    assert (await run(bench, "eat", {"mb": 32})).result == 32 * 1024 * 1024
    ended = await run(bench, "eat", {"mb": 256})
    assert (ended.status, ended.error_details["type"]) == (RunStatus.FAILED, "MemoryError")


async def test_a_timeout_kills_the_sandbox_and_what_it_has_started(bench, tmp_path):
    await run(bench, "whoami")
    ended = await run(bench, "sleep_with_child", {"file": str(tmp_path / "pids")}, timeout_seconds=1)
    assert ended.status is RunStatus.TIMEOUT
    await gone(*map(int, (tmp_path / "pids").read_text().split()))


@pytest.mark.parametrize("job_type", ["wait_for_cancel", "wait_in_a_loop"])
async def test_a_handler_in_a_sandbox_sees_that_it_is_canceled(bench, tmp_path, job_type):
    file = tmp_path / "seen"
    run_id = await bench.publish({"file": str(file)}, job_type=job_type)
    pid = await written(file)
    await bench.store.cancel([run_id])
    assert await written(file, pid) == "saw it"


async def test_a_canceled_handler_in_a_sandbox_that_asks_for_more_time_is_told_no(bench, tmp_path):
    file = tmp_path / "seen"
    run_id = await bench.publish({"file": str(file)}, job_type="ask_after_cancel")
    pid = await written(file)
    await bench.store.cancel([run_id])
    assert await written(file, pid) == "more time: False"


async def test_cancel_kills_a_sandbox_that_does_not_listen(bench, tmp_path):
    file = tmp_path / "pid"
    run_id = await bench.publish({"file": str(file)}, job_type="spin")
    pid = int(await written(file))
    await bench.store.cancel([run_id])
    await gone(pid)
    assert (await bench.end_of(run_id)).status is RunStatus.CANCELED


async def test_a_sandbox_that_is_killed_from_outside_fails_only_its_attempt(bench, tmp_path):
    file = tmp_path / "pid"
    run_id = await bench.publish({"file": str(file)}, job_type="spin", retry_policy=NO_RETRY)
    os.kill(int(await written(file)), signal.SIGKILL)
    ended = await bench.end_of(run_id)
    assert (ended.status, details_of(ended)) == (RunStatus.FAILED, {"kind": "crash", "signal": "SIGKILL"})


async def test_an_app_that_cannot_be_imported_is_a_clear_failure(bench):
    bench.handlers.add(
        Handler(
            job_type="nowhere",
            kind=HandlerKind.SANDBOX,
            read=lambda payload: payload,
            call=lambda _context, _payload: None,
            location="there.is.no.such.module:app",
        )
    )
    ended = await run(bench, "nowhere")
    assert "its process failed to start" in ended.error_message
    assert "there.is.no.such.module" in ended.error_message


async def test_closing_the_target_ends_every_sandbox(bench):
    pid = (await run(bench, "whoami")).result["pid"]
    await bench.target.close()
    await gone(pid)
