"""Every kind of handler, through a worker: what it returns, raises and says ends up with its run."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from noonbell.errors import Fail, InvalidArgument
from noonbell.model.run import RunStatus
from noonbell.model.task import RetryPolicy
from noonbell.targets.jobs.handler import HandlerKind
from unit.targets.jobs.conftest import eventually

NO_RETRY = RetryPolicy(max_retries=0)
AT_ONCE = RetryPolicy(max_retries=2, initial_delay=0)


def as_kind(kind, function):
    """A sync function of a context and a payload, as a handler of that kind calls it."""
    if kind is HandlerKind.THREAD:
        return function

    async def call(context, payload):
        return function(context, payload)

    return call


@pytest.fixture(params=[HandlerKind.ASYNC, HandlerKind.THREAD])
def kind(request):
    return request.param


async def test_what_a_handler_returns_is_the_result(bench, kind):
    bench.handler(kind, as_kind(kind, lambda context, payload: {"got": payload, "run": context.run_id}))
    run = await bench.run({"n": 1})
    assert (run.status, run.result) == (RunStatus.SUCCESS, {"got": {"n": 1}, "run": run.id})


async def test_a_handler_without_a_result_succeeds_without_one(bench, kind):
    bench.handler(kind, as_kind(kind, lambda _context, _payload: None))
    run = await bench.run()
    assert (run.status, run.result) == (RunStatus.SUCCESS, None)


async def test_a_sync_handler_does_not_run_in_the_event_loops_thread(bench):
    bench.handler(HandlerKind.THREAD, lambda _context, _payload: threading.current_thread().name)
    run = await bench.run()
    assert run.result != threading.current_thread().name


async def test_fail_ends_the_run_at_once_with_its_details(bench, kind):
    def fail(_context, _payload):
        raise Fail("no such customer", customer=7, when={1, 2})

    bench.handler(kind, as_kind(kind, fail))
    run = await bench.run(retry_policy=AT_ONCE)
    assert (run.status, run.attempt, run.error_message) == (RunStatus.FAILED, 1, "no such customer")
    assert run.error_details == {"kind": "fail", "customer": 7, "when": [1, 2]}


async def test_any_other_exception_is_retried_and_says_where_it_came_from(bench, kind):
    def break_down(_context, _payload):
        raise KeyError("broken")

    bench.handler(kind, as_kind(kind, break_down))
    run = await bench.run(retry_policy=AT_ONCE)
    assert (run.status, run.attempt) == (RunStatus.FAILED, 3)
    assert run.error_message == "KeyError: 'broken'"
    assert (run.error_details["kind"], run.error_details["type"]) == ("error", "KeyError")
    assert "in break_down" in run.error_details["traceback"]
    assert "noonbell/targets" not in run.error_details["traceback"]


async def test_a_handler_that_wants_to_end_the_process_fails_alone(bench, kind):
    def leave(_context, _payload):
        raise SystemExit(3)

    bench.handler(kind, as_kind(kind, leave))
    run = await bench.run(retry_policy=NO_RETRY)
    assert (run.status, run.error_details["type"]) == (RunStatus.FAILED, "SystemExit")


async def test_a_cancellation_that_nobody_asked_for_is_the_handlers_own_failure(bench, kind):
    def wait_for_something_canceled(_context, _payload):
        raise asyncio.CancelledError

    bench.handler(kind, as_kind(kind, wait_for_something_canceled))
    run = await bench.run(retry_policy=AT_ONCE)
    assert (run.status, run.attempt, run.error_details["kind"]) == (RunStatus.FAILED, 3, "error")
    assert run.error_details["type"] == "asyncio.exceptions.CancelledError"


@pytest.mark.parametrize("value", [object(), {1: {2: object()}}, "\ud800"], ids=["object", "deep", "text"])
async def test_a_result_that_json_cannot_hold_is_a_failure_that_is_not_retried(bench, kind, value):
    bench.handler(kind, as_kind(kind, lambda _context, _payload: value))
    run = await bench.run(retry_policy=AT_ONCE)
    assert (run.status, run.attempt, run.error_details["kind"]) == (RunStatus.FAILED, 1, "invalid_result")


async def test_a_payload_that_does_not_fit_is_a_failure_that_names_the_field(bench, kind):
    def read(_payload):
        raise InvalidArgument.fields({"region": "is missing", "days": "is 'x'; expected an integer"})

    bench.handler(kind, as_kind(kind, lambda _context, _payload: None), read=read)
    run = await bench.run(retry_policy=AT_ONCE)
    assert (run.status, run.attempt, run.error_details["kind"]) == (RunStatus.FAILED, 1, "invalid_payload")
    assert run.error_details["fields"] == {"region": "is missing", "days": "is 'x'; expected an integer"}
    assert "region" in run.error_message


async def test_a_job_type_without_a_handler_is_a_clear_failure(bench):
    run = await bench.run(retry_policy=NO_RETRY)
    assert (run.status, run.error_message) == (RunStatus.FAILED, "this worker has no handler for job type 'job'")


async def test_an_async_handler_that_takes_too_long_is_canceled_and_times_out(bench):
    seen = []

    async def dawdle(context, _payload):
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(context.attempt)
            context.log("cleaned up")

    bench.handler(HandlerKind.ASYNC, dawdle)
    run = await bench.run(timeout_seconds=0.1, retry_policy=NO_RETRY)
    assert (run.status, run.error_details["kind"], seen) == (RunStatus.TIMEOUT, "timeout", [1])
    assert run.error_message == "it took longer than 0.1 s"
    assert await bench.log(run.id) == [("info", "cleaned up")]


async def test_a_handler_that_ignores_its_timeout_and_returns_has_timed_out_all_the_same(bench):
    async def stubborn(_context, _payload):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"

    bench.handler(HandlerKind.ASYNC, stubborn)
    run = await bench.run(timeout_seconds=0.1, retry_policy=NO_RETRY)
    assert (run.status, run.result) == (RunStatus.TIMEOUT, None)


async def test_a_handler_that_ignores_the_engines_cancellation_too_has_timed_out_all_the_same(bench):
    left = []

    async def deaf(_context, _payload):
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        task = asyncio.current_task()
        task.add_done_callback(lambda _: left.append(task.cancelling()))
        return "late"

    bench.handler(HandlerKind.ASYNC, deaf)
    run = await bench.run(timeout_seconds=0.1, retry_policy=NO_RETRY)
    assert (run.status, run.result) == (RunStatus.TIMEOUT, None)
    await eventually(lambda: bool(left))  # its task may end a moment after the run
    assert left == [0]


async def test_a_canceled_run_stays_canceled_though_its_handler_ignores_that_and_its_timeout(bench, skip_time):
    started, ignored, returned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def deaf(_context, _payload):
        for now in (started, ignored):
            now.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        returned.set()
        return "late"

    bench.handler(HandlerKind.ASYNC, deaf)
    run_id = await bench.publish(timeout_seconds=60, retry_policy=NO_RETRY)
    await started.wait()
    await bench.store.cancel([run_id])
    await asyncio.wait_for(ignored.wait(), 60)
    await skip_time(61)
    await asyncio.wait_for(returned.wait(), 60)
    await eventually(lambda: not bench.worker.in_flight.leases)
    assert (await bench.end_of(run_id)).status is RunStatus.CANCELED


async def test_a_canceled_run_raises_in_its_async_handler(bench):
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait(_context, _payload):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    bench.handler(HandlerKind.ASYNC, wait)
    run_id = await bench.publish()
    await started.wait()
    await bench.store.cancel([run_id])
    await asyncio.wait_for(ended.wait(), 60)
    assert (await bench.end_of(run_id)).status is RunStatus.CANCELED


async def test_a_thread_that_nobody_waits_for_sees_it_and_keeps_its_place_until_it_returns(bench):
    started, go = threading.Event(), threading.Event()
    flags = []

    def wait(context, _payload):
        started.set()
        go.wait(20)
        flags.append(context.cancelled)
        return "late"

    bench.handler(HandlerKind.THREAD, wait)
    run_id = await bench.publish()
    await asyncio.to_thread(started.wait, 10)
    await bench.store.cancel([run_id])
    await eventually(lambda: bench.abandoned.count == 1)
    # Two places, one of them taken by the stray: of two more runs, one has to wait.
    first, second = await bench.publish({"n": 1}), await bench.publish({"n": 2})
    await bench.until(first, lambda run: run.status is RunStatus.RUNNING)
    assert bench.worker.in_flight.running == 1
    waiting = await bench.store.run(second)
    assert waiting.status is RunStatus.SCHEDULED
    go.set()
    ended = [await bench.end_of(one) for one in (first, second)]
    assert [run.result for run in ended] == ["late", "late"]
    assert (await bench.store.run(run_id)).status is RunStatus.CANCELED
    assert (sorted(flags), bench.abandoned.count) == ([False, False, True], 0)


async def test_a_thread_that_takes_too_long_times_out_without_it(bench):
    go = threading.Event()
    bench.handler(HandlerKind.THREAD, lambda _context, _payload: go.wait(20))
    run = await bench.run(timeout_seconds=0.1, retry_policy=NO_RETRY)
    assert (run.status, bench.abandoned.count) == (RunStatus.TIMEOUT, 1)
    go.set()


async def test_lines_are_in_the_log_in_their_order_when_the_run_has_ended(bench, kind):
    def speak(context, _payload):
        for number in range(50):
            context.log(f"line {number}")
        context.log("nul \x00 and half \ud800", level="warning")

    bench.handler(kind, as_kind(kind, speak))
    run = await bench.run()
    lines = await bench.log(run.id)
    assert lines[:50] == [("info", f"line {number}") for number in range(50)]
    assert lines[50] == ("warning", "nul � and half ?")


async def test_lines_are_written_while_the_handler_still_runs(bench):
    go = asyncio.Event()

    async def speak(context, _payload):
        context.log("begun")
        await go.wait()
        context.log("done")

    bench.handler(HandlerKind.ASYNC, speak)
    run_id = await bench.publish()
    async with asyncio.timeout(60):
        while True:
            if await bench.log(run_id) == [("info", "begun")]:
                break
            await asyncio.sleep(0.01)
    go.set()
    await bench.end_of(run_id)
    assert await bench.log(run_id) == [("info", "begun"), ("info", "done")]


async def test_a_level_that_there_is_not_is_the_handlers_error(bench, kind):
    bench.handler(kind, as_kind(kind, lambda context, _payload: context.log("x", level="loud")))
    run = await bench.run(retry_policy=NO_RETRY)
    assert "level" in run.error_message


async def test_the_last_progress_is_kept_and_most_in_between_is_not_written(bench, kind):
    written = []
    progress = bench.store.progress

    async def counted(*arguments):
        written.append(arguments)
        return await progress(*arguments)

    bench.store.progress = counted

    def work(context, _payload):
        for number in range(1, 1001):
            context.progress(number, 1000, f"row {number}")

    bench.handler(kind, as_kind(kind, work))
    run = await bench.run()
    assert run.progress == {"current": 1000, "total": 1000, "message": "row 1000"}
    assert len(written) < 100


async def test_progress_and_extend_can_be_awaited(bench):
    async def work(context, _payload):
        await context.progress(1)
        return await context.extend(60)

    bench.handler(HandlerKind.ASYNC, work)
    run = await bench.run()
    assert (run.result, run.progress) == (True, {"current": 1, "total": None, "message": ""})


async def test_extend_keeps_an_async_handler_beyond_its_timeout(bench):
    async def work(context, _payload):
        for _ in range(4):
            await context.extend(60)
            await asyncio.sleep(0.3)
        return "there"

    bench.handler(HandlerKind.ASYNC, work)
    run = await bench.run(timeout_seconds=1, retry_policy=NO_RETRY)
    assert (run.status, run.result) == (RunStatus.SUCCESS, "there")


async def test_extend_keeps_a_thread_beyond_its_timeout_and_answers_plainly(bench):
    pause = threading.Event()

    def work(context, _payload):
        answers = []
        for _ in range(4):
            answers.append(bool(context.extend(60)))
            pause.wait(0.3)
        return answers

    bench.handler(HandlerKind.THREAD, work)
    run = await bench.run(timeout_seconds=1, retry_policy=NO_RETRY)
    assert (run.status, run.result) == (RunStatus.SUCCESS, [True] * 4)


async def test_what_is_extended_ends_when_that_is_over(bench):
    async def work(context, _payload):
        await context.extend(0.3)
        await asyncio.Event().wait()

    bench.handler(HandlerKind.ASYNC, work)
    run = await bench.run(timeout_seconds=60, retry_policy=NO_RETRY)
    assert run.status is RunStatus.TIMEOUT


async def test_extend_says_no_to_a_run_that_is_no_longer_held(bench):
    started, go, answers = threading.Event(), threading.Event(), []

    def work(context, _payload):
        started.set()
        go.wait(20)
        answers.append(bool(context.extend(60)))

    bench.handler(HandlerKind.THREAD, work)
    run_id = await bench.publish()
    await asyncio.to_thread(started.wait, 10)
    await bench.store.cancel([run_id])
    await eventually(lambda: bench.abandoned.count == 1)
    go.set()
    await eventually(lambda: bench.abandoned.count == 0)
    assert answers == [False]


async def test_a_local_retry_calls_the_handler_again_with_the_lease_held(bench):
    attempts = []

    async def flaky(context, _payload):
        attempts.append((context.attempt, context.retry_count))
        if len(attempts) < 3:
            raise OSError("not yet")
        return "in the end"

    bench.handler(HandlerKind.ASYNC, flaky)
    run = await bench.run(retry_policy=RetryPolicy(max_retries=5, initial_delay=0, local=True))
    assert (run.status, run.result) == (RunStatus.SUCCESS, "in the end")
    assert attempts == [(1, 0), (2, 1), (3, 2)]


async def test_a_handler_knows_its_run(bench):
    seen = {}

    async def look(context, _payload):
        seen.update({name: getattr(context, name) for name in dir(context) if not name.startswith("_")})

    bench.handler(HandlerKind.ASYNC, look)
    run = await bench.run({"a": 1}, priority=3)
    assert (seen["run_id"], seen["attempt"], seen["payload"], seen["priority"]) == (run.id, 1, {"a": 1}, 3)
    assert (seen["worker_id"], seen["job_type"], seen["task_name"]) == ("bench", "job", run.task_name)
    assert (seen["cancelled"], seen["shard_index"], seen["queue"]) == (False, None, "default")
    assert seen["scheduled_time"].tzinfo is not None
    assert len(seen["trace_id"]) == 32
    assert seen["idempotency_key"] == f"{run.idempotency_key}{run.id}"


async def test_a_handler_gets_what_was_provided(bench):
    async def ask(context, _payload):
        return context.resource("pool")

    bench.handler(HandlerKind.ASYNC, ask, resources={"pool": "a pool"}.__getitem__)
    assert (await bench.run()).result == "a pool"
