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


async def test_jobs_that_are_left_out_do_not_fire_and_can_be_published():
    app, seen = App(), []

    @app.job(every="2s")
    def ticks() -> None:
        seen.append("tick")

    @app.job(every="3s")
    def tocks() -> None:
        seen.append("tock")

    @app.job(cron="0 * * * *")
    def hourly() -> None:
        seen.append("hour")

    async with trial(app, at=NOON, without=[ticks, "tocks"]) as running:
        await running.advance(timedelta(days=1))
        assert seen == ["hour"] * 24
        await ticks.publish()
        await running.run_until_idle()
        assert seen[-1] == "tick"
    with pytest.raises(InvalidArgument, match="without: has 'ticks, please', which is not a job"):
        async with trial(app, without=["ticks, please"]):
            pass


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


async def test_a_span_may_be_a_text():
    async with trial(App(), at=NOON) as running:
        await running.advance("1h30m")
        assert running.now == NOON + timedelta(minutes=90)
        with pytest.raises(InvalidArgument, match="such as '90m'"):
            await running.advance("soon")


async def test_advance_wants_one_end():
    async with trial() as running:
        with pytest.raises(InvalidArgument):
            await running.advance()


ELSEWHERE = {
    "AMQP": {"amqp": {"url": "amqp://broker/", "exchange": "x", "routing_key": "k"}},
    "NATS": {"nats": {"url": "nats://broker", "subject": "s"}},
    "REDIS": {"redis": {"url": "redis://broker", "stream": "s"}},
    "MQTT": {"mqtt": {"url": "mqtt://broker", "topic": "s"}},
    "GRPC": {"grpc": {"address": "svc:1", "method": "a.B/C"}},
}


@pytest.mark.parametrize("kind", ELSEWHERE)
async def test_a_message_or_a_grpc_call_fails_in_words_or_is_answered_by_the_test(kind):
    task = {"name": "send", "cron_expr": "1 12 * * *", "retry_policy": {"max_retries": 0}, **ELSEWHERE[kind]}
    async with trial(at=NOON) as running:
        await running.services.tasks.create(task)
        await running.advance(timedelta(minutes=2))
        (run,) = await running.runs("send")
        assert run.status is RunStatus.FAILED
        assert run.error_message == f"nothing answers {kind} targets in this trial; give it http=…"
    async with trial(at=NOON, http=lambda _: 200) as running:
        await running.services.tasks.create(task)
        await running.advance(timedelta(minutes=2))
        assert (await running.runs("send"))[0].status is RunStatus.SUCCESS


@pytest.mark.parametrize("http", [None, lambda _: 200], ids=["alone", "with http"])
async def test_a_command_is_not_started_and_does_not_wait_for_ever(http, tmp_path):
    made = tmp_path / "made"
    async with trial(at=NOON, http=http) as running:
        await running.services.tasks.create(
            {"name": "tidy", "cron_expr": "1 12 * * *", "command": ["/usr/bin/touch", str(made)]}
        )
        await running.advance(timedelta(minutes=2))
        (run,) = await running.runs("tidy")
        assert run.status is RunStatus.FAILED
        assert (run.error_message or "").startswith("a trial carries out no commands")
    assert not made.exists()


async def test_a_run_that_quiet_hours_held_is_explained_so_while_it_waits_and_afterwards():
    quiet = [{"from": "12:00", "to": "13:00"}]
    async with trial(at=NOON, http=lambda _: 200) as running:
        await running.services.tasks.create(
            {"name": "call", "cron_expr": "10,40 * * * *", "target_url": "http://svc/", "quiet": quiet}
        )
        await running.advance(timedelta(minutes=15))
        (run,) = await running.runs("call")
        told = await running.services.explain.of_run(run.id)
        assert (told["cause"], "held until" in told["message"]) == ("quiet", True)
        await running.advance(timedelta(hours=1))
        held, also, free = await running.runs("call")
        assert [one.status for one in (held, also, free)] == [RunStatus.SUCCESS] * 3
        for one in (held, also):
            told = await running.services.explain.of_run(one.id)
            assert told["cause"] == "ran"
            assert "It came due during quiet hours, which held it until " in told["message"]
            assert "13:00" in told["message"]
        assert "quiet" not in (await running.services.explain.of_run(free.id))["message"]


@pytest.mark.parametrize("changed", [[], [{"from": "12:00", "to": "14:00"}]], ids=["let go", "held for longer"])
async def test_what_a_change_of_the_quiet_hours_moved_is_not_said_to_have_been_held_to_their_old_end(changed):
    quiet = [{"from": "12:00", "to": "13:00"}]
    async with trial(at=NOON, http=lambda _: 200) as running:
        task = {"name": "call", "cron_expr": "10 12 * * *", "target_url": "http://svc/", "quiet": quiet}
        made = await running.services.tasks.create(task)
        await running.advance(timedelta(minutes=15))
        await running.services.tasks.change(made.id, {"quiet": changed}, partial=True)
        await running.advance(timedelta(hours=2))
        (run,) = await running.runs("call")
        assert run.status is RunStatus.SUCCESS
        assert "held it until" not in (await running.services.explain.of_run(run.id))["message"]
