"""Flows in code: the steps that chains, groups and maps of jobs come to, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell import App
from noonbell.clock import SystemClock
from noonbell.errors import InvalidArgument
from noonbell.service.task_fields import Rules, read_task
from noonbell.testing import trial

app = App("shop")


@app.job(queue="mail", retries=2, timeout=7)
async def list_files(day: str) -> list[str]:
    return [f"{day}-{n}" for n in range(3)]


@app.job
def convert(file: str, dpi: int = 1) -> int:
    if file.endswith("-broken"):
        raise ValueError(file)
    return len(file) * dpi


@app.job
def weigh(path: str) -> float:
    return float(len(path))


@app.job
def add_up(sizes: list[int | None]) -> int:
    return sum(size or 0 for size in sizes)


@app.job
def compare(pair: tuple[int, float]) -> bool:
    return pair[0] == pair[1]


@app.job
def tick() -> str:
    return "tick"


@app.job(fanout={"workers": 2})
def wide(n: int) -> None: ...


@app.job(worker_labels={"gpu": "a100"})
def on_gpus(n: int) -> None: ...


@app.job
def pair_of(first: int, second: int) -> None: ...


chain, group, each = app.flow.chain, app.flow.group, app.flow.map


def steps(whole: Any) -> list[dict[str, Any]]:
    made = App()
    return made.flow("one", whole).steps


def test_a_chain_gives_each_job_what_the_one_before_it_returned():
    assert steps(chain(list_files, each(convert, max_parallel=8), add_up)) == [
        {
            "id": "list_files",
            "job_type": "list_files",
            "queue": "mail",
            "retry_policy": {"max_retries": 2},
            "timeout_seconds": 7,
        },
        {
            "id": "convert",
            "job_type": "convert",
            "needs": ["list_files"],
            "foreach": "{{ steps.list_files.result }}",
            "payload": {"file": "{{ item }}"},
            "max_parallel": 8,
        },
        {
            "id": "add_up",
            "job_type": "add_up",
            "needs": ["convert"],
            "payload": {"sizes": "{{ steps.convert.results }}"},
        },
    ]


def test_a_group_gives_what_follows_the_list_of_its_results():
    whole = chain(tick, group(convert, weigh), compare)
    first, *sides, last = steps(whole)
    assert first == {"id": "tick", "job_type": "tick", "payload": {}}
    assert [(step["id"], step["needs"], step["payload"]) for step in sides] == [
        ("convert", ["tick"], {"file": "{{ steps.tick.result }}"}),
        ("weigh", ["tick"], {"path": "{{ steps.tick.result }}"}),
    ]
    assert (last["needs"], last["payload"]) == (
        ["convert", "weigh"],
        {"pair": ["{{ steps.convert.result }}", "{{ steps.weigh.result }}"]},
    )


def test_a_request_brings_its_own_payload_and_the_same_job_twice_has_two_names():
    whole = chain(convert.request(file="a", dpi=2), convert.request(file="{{ slot }}", priority=3))
    assert steps(whole) == [
        {"id": "convert", "job_type": "convert", "payload": {"file": "a", "dpi": 2}},
        {
            "id": "convert_2",
            "job_type": "convert",
            "needs": ["convert"],
            "payload": {"file": "{{ slot }}"},
            "priority": 3,
        },
    ]


def test_chains_stand_in_groups_and_groups_in_chains():
    whole = chain(tick, group(chain(convert, weigh.request(path="a")), weigh), compare)
    assert {step["id"]: step.get("needs") for step in steps(whole)} == {
        "tick": None,
        "convert": ["tick"],
        "weigh": ["convert"],
        "weigh_2": ["tick"],
        "compare": ["weigh", "weigh_2"],
    }


def test_what_is_built_is_a_task_that_the_api_takes():
    made = App()
    flow = made.flow("nightly", chain(list_files, each(convert), add_up), cron="0 2 * * *", payload={"day": "monday"})
    draft = read_task(flow.declared.task, SystemClock().now(), Rules())
    assert (draft.spec.exec_type, draft.spec.queue, draft.spec.payload) == ("FLOW", "mail", {"day": "monday"})
    assert [step.id for step in draft.spec.steps] == ["list_files", "convert", "add_up"]
    assert list(made.flows) == ["nightly"]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda made: made.flow("x", each(convert)), "map(convert) has no step before it"),
        (lambda made: made.flow("x", chain(list_files, 3)), "3 is not a job"),
        (lambda made: made.flow("x", chain(tick, each(each(convert)))), "map expects a job"),
        (lambda made: made.flow("x", chain(tick, pair_of)), "must be given first, second"),
        (lambda made: made.flow("x", chain(convert, tick)), "job tick takes nothing"),
        (lambda made: made.flow("x", chain(tick, wide)), "has fanout"),
        (lambda made: made.flow("x", chain(tick, on_gpus)), "has worker_labels"),
        (lambda made: made.flow("x", group(convert, weigh)), "have different parameters"),
        (lambda made: made.flow("x", chain(tick.request(key="k"), convert)), "the request of tick says key"),
        (lambda made: made.flow("x", convert, payload={"dpi": 3}), "file: is missing"),
        (lambda made: made.flow("x", tick, retries=3), "retry_policy"),
        (lambda made: made.flow("x", tick, sandbox=True), "sandbox: is not an option of a flow"),
        (lambda made: made.flow("x", tick, crom="x"), "crom: is not an option of a flow; did you mean cron?"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(build: Any, words: str):
    made = App()
    with pytest.raises(InvalidArgument) as refused:
        build(made)
    assert words in refused.value.message
    assert not made.flows


def test_a_flow_and_a_job_cannot_have_the_same_name():
    made = App()
    made.flow("one", tick)
    with pytest.raises(InvalidArgument, match="a job or another flow of this App"):
        made.flow("one", tick)
    with pytest.raises(InvalidArgument, match="which another flow of this App already has"):

        @made.job
        def one() -> None: ...


nightly = app.flow("nightly", chain(list_files, each(convert), add_up))
lenient = app.flow("lenient", chain(list_files, each(convert, allow_failure=True), add_up))


async def test_a_flow_is_declared_published_and_carried_out():
    async with trial(app) as running:
        published = await nightly.publish(day="monday")
        await running.run_until_idle()
        assert await published.result(1) == {"success": 3}
        task = await running.services.tasks.get("nightly")
        assert (task.spec.managed_by, len(task.spec.steps)) == ("code:shop", 3)
        run = await published.run()
        listed = await running.services.store.flow_states(run.id)
        last = await running.store.run(next(one.step_run_id for one in listed if one.step_id == "add_up"))  # type: ignore[arg-type]
        assert last is not None
        assert last.result == 3 * len("monday-0")


async def test_a_payload_that_does_not_fit_the_first_job_is_refused():
    async with trial(app):
        with pytest.raises(InvalidArgument, match="day: is missing"):
            await nightly.publish(date="monday")  # type: ignore[call-arg]
