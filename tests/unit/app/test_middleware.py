"""Middleware around handlers: before, after, and when they raise; for handlers in the loop and in threads."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from noonbell import App, Context, Fail
from noonbell.errors import InvalidArgument
from noonbell.model.run import Run
from noonbell.testing import trial


async def ended(app: App, job: str) -> Run:
    async with trial(app) as running:
        await app.publish_many([app.jobs[job].request()])
        await running.run_until_idle()
        (run,) = await running.runs(job)
        return run


@pytest.fixture(params=["async", "sync"])
def work(request: pytest.FixtureRequest) -> App:
    """An App with the jobs `fine`, `broken` and `refused`, in the loop or in threads."""
    app = App("shop")
    if request.param == "async":

        @app.job(name="fine")
        async def fine(ctx: Context) -> int:
            return ctx.attempt

        @app.job(name="broken", retries=0)
        async def broken() -> None:
            raise ValueError("no")

    else:

        @app.job(name="fine")
        def fine_in_a_thread(ctx: Context) -> int:
            return ctx.attempt

        @app.job(name="broken", retries=0)
        def broken_in_a_thread() -> None:
            raise ValueError("no")

    return app


async def test_it_sees_the_run_before_and_the_result_after(work: App):
    seen: list[Any] = []

    @work.middleware
    def outer(ctx: Context) -> Generator[None, Any, None]:
        seen.append(("outer", ctx.job_type, ctx.attempt))
        result = yield
        seen.append(("outer", result))

    @work.middleware
    def inner(_: Context) -> Iterator[None]:
        seen.append("inner")
        yield
        seen.append("inner ends")

    run = await ended(work, "fine")
    assert (run.status, run.result) == ("SUCCESS", 1)
    assert seen == [("outer", "fine", 1), "inner", "inner ends", ("outer", 1)]


async def test_it_sees_what_the_handler_raises_which_goes_on(work: App):
    seen: list[str] = []

    @work.middleware
    def noted(_: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(str(error))
            raise
        finally:
            seen.append("closed")

    run = await ended(work, "broken")
    assert (run.status, seen) == ("FAILED", ["no", "closed"])
    assert run.error_message == "ValueError: no"


async def test_it_may_make_another_error_of_it_or_none(work: App):
    @work.middleware
    def refusing(_: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise Fail("refused", why=str(error)) from error

    run = await ended(work, "broken")
    assert (run.status, run.error_message) == ("FAILED", "refused")

    @work.middleware
    def lenient(_: Context) -> Iterator[None]:
        with contextlib.suppress(ValueError):
            yield

    run = await ended(work, "broken")
    assert (run.status, run.result) == ("SUCCESS", None)


async def test_what_it_raises_before_the_handler_fails_the_run_and_the_handler_is_not_called(work: App):
    @work.middleware
    def closed(_: Context) -> Iterator[None]:
        raise Fail("closed today")
        yield

    run = await ended(work, "fine")
    assert (run.status, run.error_message) == ("FAILED", "closed today")


async def test_one_that_does_not_yield_once_is_named(work: App):
    @work.middleware
    def never(_: Context) -> Iterator[None]:
        if work.name == "":
            yield

    run = await ended(work, "fine")
    assert "never returned before its yield" in str(run.error_message)
    work.middlewares.clear()

    @work.middleware
    def twice(_: Context) -> Iterator[None]:
        yield
        yield

    run = await ended(work, "fine")
    assert "twice yields more than once" in str(run.error_message)


async def test_an_async_one_goes_around_async_handlers():
    app, seen = App(), []

    @app.job
    async def loops() -> str:
        return "in the loop"

    @app.job(retries=0)
    async def breaks() -> None:
        raise ValueError("no")

    @app.job
    def threads() -> str:
        return "in a thread"

    @app.middleware
    async def around(ctx: Context) -> AsyncGenerator[None, Any]:
        await ctx.progress(0)
        try:
            seen.append((yield))
        except ValueError as error:
            seen.append(str(error))

    assert (await ended(app, "loops")).result == "in the loop"
    assert (await ended(app, "breaks")).status == "SUCCESS"
    assert (await ended(app, "threads")).result == "in a thread"
    assert seen == ["in the loop", "no"]


def test_what_is_no_generator_is_refused():
    app = App()
    with pytest.raises(InvalidArgument, match="with one yield"):
        app.middleware(lambda _: iter(()))


async def test_a_handler_that_gathers_its_children_is_called_again_through_it():
    app, seen = App(), []

    @app.job
    async def part() -> int:
        return 2

    @app.job
    async def whole(ctx: Context) -> int:
        (two,) = await ctx.gather(await ctx.spawn(part.request()))
        return two + 1

    @app.middleware
    async def around(ctx: Context) -> AsyncIterator[None]:
        seen.append(ctx.job_type)
        try:
            yield
        except Exception:
            seen.append("caught what is not an error")
            raise

    assert (await ended(app, "whole")).result == 3
    assert seen == ["whole", "part", "whole"]
