"""An App lived through without waiting: the real planner, policies, worker and handlers, on a clock that is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noonbell import App, Context, Fail
from noonbell.errors import InvalidArgument, InvalidState
from noonbell.model.run import RunStatus
from noonbell.testing import trial

NOON = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)


async def test_a_published_job_runs_when_it_is_let():
    app, seen = App(), []

    @app.job
    async def greet(ctx: Context, name: str) -> str:
        seen.append((ctx.scheduled_time, name))
        return f"hello {name}"

    async with trial(app, at=NOON) as running:
        published = await greet.publish(name="Ada")
        assert seen == []
        await running.run_until_idle()
        assert seen == [(NOON, "Ada")]
        assert await published.result() == "hello Ada"
    with pytest.raises(InvalidState):
        await greet.publish(name="too late")


async def test_a_day_passes_at_once_and_every_slot_is_there():
    app = App()

    @app.job(cron="0 * * * *", timezone="Europe/Berlin")
    def hourly() -> None: ...

    async with trial(app, at=NOON) as running:
        await running.advance(timedelta(days=1))
        runs = await running.runs(hourly)
        assert len(runs) == 24
        assert {run.status for run in runs} == {RunStatus.SUCCESS}
        assert running.now == NOON + timedelta(days=1)


async def test_a_failing_job_is_retried_at_its_times():
    app, tried = App(), []

    @app.job(retry_policy={"max_retries": 2, "strategy": "fixed", "initial_delay": 60})
    async def flaky(ctx: Context) -> None:
        tried.append(ctx.attempt)
        raise ValueError("not today")

    async with trial(app, at=NOON) as running:
        await flaky.publish()
        await running.advance(59)
        assert tried == [1]
        await running.advance(1)
        assert tried == [1, 2]
        await running.advance(until=NOON + timedelta(hours=1))
        (run,) = await running.runs(flaky)
        assert (tried, run.status, run.retry_count) == ([1, 2, 3], RunStatus.FAILED, 2)


async def test_fail_is_final_and_a_delay_is_waited_for():
    app = App()

    @app.job
    async def refuse() -> None:
        raise Fail("no use", reason="closed")

    async with trial(app, at=NOON) as running:
        await refuse.publish(delay=30)
        await running.advance(29)
        assert (await running.runs(refuse))[0].status is RunStatus.SCHEDULED
        await running.advance(1)
        (run,) = await running.runs(refuse)
        assert (run.status, run.attempt) == (RunStatus.FAILED, 1)


async def test_jobs_that_publish_jobs_come_to_an_end():
    app = App()

    @app.job
    async def split(count: int) -> int:
        if count > 1:
            await split.publish(count=count // 2)
            await split.publish(count=count - count // 2)
        return count

    async with trial(app) as running:
        await split.publish(count=8)
        await running.run_until_idle()
        assert len(await running.runs(split)) == 15


async def test_http_tasks_are_answered_by_the_test():
    called = []

    def answer(assignment) -> int:
        called.append(assignment.task.spec.target_url)
        return 200 if len(called) > 1 else 503

    async with trial(at=NOON, http=answer) as running:
        await running.services.tasks.create(
            {
                "name": "call",
                "cron_expr": "0 * * * *",
                "target_url": "http://svc/{{run_id}}",
                "retry_policy": {"max_retries": 1},
            }
        )
        await running.advance(timedelta(hours=1))
        (run,) = await running.runs("call")
        assert run.status is RunStatus.RETRYING
        await running.advance(10)
        (run,) = await running.runs("call")
        assert (run.status, run.attempt, len(called)) == (RunStatus.SUCCESS, 2, 2)


async def test_a_callback_that_never_comes_is_noticed_at_its_deadline():
    async with trial(at=NOON, http=lambda _: 202) as running:
        await running.services.tasks.create(
            {"name": "later", "exec_type": "ASYNC", "target_url": "http://svc/", "cron_expr": "1 12 * * *"}
        )
        await running.advance(timedelta(minutes=2))
        assert (await running.runs("later"))[0].status is RunStatus.CALLBACK_PENDING
        await running.advance(timedelta(minutes=5))
        assert (await running.runs("later"))[0].status is RunStatus.FAILED_TIMEOUT


async def test_advance_wants_one_end():
    async with trial() as running:
        with pytest.raises(InvalidArgument):
            await running.advance()
