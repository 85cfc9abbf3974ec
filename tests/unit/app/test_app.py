"""Declaring jobs: the decorator in both its forms, handlers, what is provided, and what is refused."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

from noonbell import App, Context, Job
from noonbell.app.embedded import WorkerOptions
from noonbell.app.signature import Provided
from noonbell.cli.worker import worker_command
from noonbell.errors import AlreadyExists, InvalidArgument, NotFound
from noonbell.settings import Settings
from noonbell.targets.jobs.handler import HandlerKind

module_app = App("of the module")


@module_app.job(sandbox=True, memory_mb=64, queue="heavy")
def in_a_box(n: int) -> int:
    return n


def test_a_job_is_declared_with_and_without_parentheses():
    app = App()

    @app.job
    async def plain(region: str) -> str:
        return region

    @app.job()
    def empty() -> None: ...

    @app.job(name="mail.send", queue="mail")
    def named() -> None: ...

    assert list(app.jobs) == ["plain", "empty", "mail.send"]
    assert app.handlers.names() == ("empty", "mail.send", "plain")
    assert app.handlers.queues() == ("default", "mail")
    assert all(isinstance(job, Job) for job in (plain, empty, named))


def test_a_job_is_still_the_function_that_it_was():
    app = App()

    @app.job
    def double(n: int) -> int:
        """Twice as much."""
        return n * 2

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")


def test_a_handler_says_where_it_runs():
    app = App()

    @app.job
    async def in_the_loop() -> None: ...

    @app.job
    def in_a_thread() -> None: ...

    kinds = {handler.job_type: handler.kind for handler in (*app.handlers, *module_app.handlers)}
    assert kinds == {
        "in_the_loop": HandlerKind.ASYNC,
        "in_a_thread": HandlerKind.THREAD,
        "in_a_box": HandlerKind.SANDBOX,
    }


def test_a_sandboxed_handler_says_where_its_app_is():
    handler = module_app.handlers.get("in_a_box")
    assert handler is not None
    assert handler.location == f"{__name__}:module_app"
    assert (handler.memory_mb, handler.queue) == (64, "heavy")


def test_a_sandbox_needs_an_app_that_can_be_imported():
    app = App()
    with pytest.raises(InvalidArgument, match="job hidden: sandbox: needs the App in a variable"):

        @app.job(sandbox=True)
        def hidden() -> None: ...

    assert app.handlers.names() == ()


def test_types_of_the_function_around_can_be_used():
    @dataclass
    class Local:
        x: int

    app = App()

    @app.job
    def use(value: Local) -> Local:
        return value

    assert use.signature.read({"value": {"x": 1}}) == {"value": Local(1)}


def test_names_where_a_function_of_another_module_is_declared_are_not_its_own(tmp_path, monkeypatch):
    (tmp_path / "elsewhere_of_app_test.py").write_text(
        "from __future__ import annotations\nclass Local(dict): ...\ndef use(value: Number): ...\nNumber = int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import elsewhere_of_app_test as elsewhere

    Number = str  # noqa: F841, N806 - what must not be taken for the other
    assert App().job(elsewhere.use).signature.types == {"value": int}


def test_a_second_job_of_the_same_name_is_refused():
    app = App()

    @app.job
    def twice() -> None: ...

    with pytest.raises(AlreadyExists, match="two handlers for job type 'twice'"):
        app.job(name="twice")(lambda_like())


def lambda_like():
    def other() -> None: ...

    return other


def test_what_is_no_function_is_refused():
    app = App()

    async def generator():
        yield 1

    for wrong in (42, App, generator, print):
        with pytest.raises(InvalidArgument, match="expects a plain or an async function"):
            app.job(wrong)


def test_what_is_wrong_names_the_job_and_declares_nothing():
    app = App()
    with pytest.raises(InvalidArgument) as refused:

        @app.job(cron="99 * * * *", retrys=3)
        def sync(region: str) -> None: ...

    assert refused.value.message.startswith("job sync: ")
    assert set(refused.value.details) == {"cron", "retrys"}
    assert list(app.jobs) == []


def test_the_payload_of_a_schedule_is_checked_when_it_is_declared():
    app = App()
    with pytest.raises(InvalidArgument, match="job sync: region: is 1; expected str"):

        @app.job(every=60, payload={"region": 1})
        def sync(region: str) -> None: ...


def test_a_payload_that_is_no_object_is_refused():
    app = App()
    with pytest.raises(InvalidArgument, match="job sync: payload: is 'eu'; expected an object with region"):

        @app.job(every=60, payload="eu")
        def sync(region: str) -> None: ...


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 201])
def test_an_app_needs_a_name_that_can_be_written_down(name):
    with pytest.raises(InvalidArgument, match="name: "):
        App(name)


def test_a_lifespan_is_an_async_generator():
    app = App()
    with pytest.raises(InvalidArgument, match="one yield"):
        app.lifespan(lambda_like())


class Base: ...


class Derived(Base): ...


def test_what_was_provided_is_found_by_type_by_supertype_and_by_name():
    provided, value = Provided(), Derived()
    provided.add(value, None)
    provided.add("eu", "region")
    assert provided(Derived) is provided(Base) is value
    assert provided("region") == provided(str) == "eu"


def test_the_newest_of_a_type_counts():
    provided = Provided()
    first, second = Base(), Base()
    provided.add(first, None)
    provided.add(second, None)
    assert provided(Base) is second


@pytest.mark.parametrize("wanted", ["pool", Derived])
def test_what_nobody_provided_is_named(wanted):
    provided = Provided()
    provided.add(Base(), None)
    with pytest.raises(NotFound, match=r"(pool|Derived).*app\.provide"):
        provided(wanted)


def test_a_context_can_be_left_out():
    app = App()

    @app.job
    def without(n: int) -> int:
        return n

    @app.job
    def with_it(ctx: Context, n: int) -> int:
        return n

    assert [job.signature.wants_context for job in (without, with_it)] == [False, True]


def test_the_default_concurrency_is_the_setting_everywhere():
    usual = Settings().jobs.worker_concurrency
    assert inspect.signature(App.running).parameters["concurrency"].default is None, "which stands for the setting"
    assert WorkerOptions().concurrency is None
    (option,) = (each for each in worker_command.params if each.name == "concurrency")
    assert f"[{usual}]" in str(getattr(option, "help", ""))
