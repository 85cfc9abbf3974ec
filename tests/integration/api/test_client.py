"""The Python clients: a method for every call of the API, and errors as the errors that they were."""

from __future__ import annotations

import asyncio
import types
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from integration.api.serving import JOB, Api
from noonbell.client import AsyncClient, Client
from noonbell.client import types as client_types
from noonbell.client.calls import ApiCalls
from noonbell.client.transport import ApiCall
from noonbell.errors import InvalidArgument, NotFound, StoreUnavailable, VersionConflict
from services.ports import reserved_port

CALLS = {name: value for name, value in vars(ApiCalls).items() if isinstance(value, ApiCall) and not value.field}
STREAMS = {"events"}


async def test_every_endpoint_has_a_method_at_its_address(quick_api: Api):
    paths = (await quick_api.good("GET", "//openapi.json"))["paths"]
    described = {
        operation["operationId"]: (method.upper(), path)
        for path, item in paths.items()
        for method, operation in item.items()
        if method in ("get", "post", "put", "patch", "delete")
    }
    addresses = {(call.method, call.base + call.path): name for name, call in CALLS.items()}
    twins = {name for name, (method, _) in described.items() if name.removesuffix(f"_{method.lower()}") in CALLS}
    assert {name for name in described if name not in CALLS} - twins - STREAMS == set()
    assert {address: name for address, name in addresses.items() if address not in described.values()} == {}
    wrong = {
        name
        for name, call in CALLS.items()
        if (call.method, call.base + call.path)
        not in (described.get(name), described.get(f"{name}_{call.method.lower()}"))
    }
    assert wrong == set()


async def test_a_task_is_made_changed_triggered_and_deleted(quick_api: Api):
    client = AsyncClient(quick_api.root)
    task = await client.create_task(**JOB)
    assert (await client.get_task("name:a"))["id"] == task["id"]
    assert (await client.patch_task(task["id"], priority=3, if_match=1))["version"] == 2
    run = await client.trigger_task(task["id"], payload={"x": 1}, key="k")
    assert (await client.get_run(run["run_id"]))["payload"] == {"x": 1}
    found = await client.list_runs(status=["SCHEDULED", "RUNNING"], key="k")
    assert [each["id"] for each in found["items"]] == [run["run_id"]]
    assert (await client.cancel_runs(filter={"key": "k"}))["canceled"] == 1
    assert (await client.delete_task(task["id"], purge=True))["deleted"] is True
    assert (await client.list_tasks())["items"] == []


def misfit(value: Any, hint: Any, place: str = "") -> str | None:
    """Where a value is not of a type of JSON, if it is not."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return None
    if origin in (NotRequired, Required):
        return misfit(value, inner[0], place)
    if origin is Literal:
        return None if value in inner else f"{place}: {value!r} is none of {inner}"
    if origin in (Union, types.UnionType):
        found = [misfit(value, each, place) for each in inner]
        return None if None in found else next(iter(sorted(filter(None, found), key=len, reverse=True)))
    if origin in (list, dict):
        if not isinstance(value, origin):
            return f"{place}: {value!r} is no {origin}"
        items = value.items() if origin is dict else enumerate(value)
        return next(filter(None, (misfit(each, inner[-1], f"{place}[{key}]") for key, each in items)), None)
    if is_typeddict(hint):
        if not isinstance(value, dict) or not hint.__required_keys__ <= value.keys():
            return f"{place}: {value!r} has not all of {hint.__name__}"
        said = get_type_hints(hint, include_extras=True)
        if more := value.keys() - said.keys():
            return f"{place}: {hint.__name__} has no {more}"
        return next(filter(None, (misfit(each, said[key], f"{place}.{key}") for key, each in value.items())), None)
    kinds = (int, float) if hint is float else hint
    return None if isinstance(value, kinds) else f"{place}: {value!r} is no {hint}"


async def test_answers_are_of_the_types_that_the_methods_say(quick_api: Api):
    client = AsyncClient(quick_api.root)
    task = await client.create_task(**JOB, retry_policy={"max_retries": 2})
    run = await client.trigger_task(task["id"], payload={"x": 1}, key="k")
    answers: dict[str, Any] = {
        "TaskCreatedJson": task,
        "TriggeredJson": run,
        "TaskJson": await client.get_task("name:a"),
        "TaskPageJson": await client.list_tasks(page_size=5),
        "TaskUpdatedJson": await client.patch_task(task["id"], priority=3, if_match=1),
        "RunJson": await client.get_run(run["run_id"]),
        "RunPageJson": await client.list_runs(status=["SCHEDULED"]),
        "ExplanationJson": await client.explain_run(run["run_id"]),
        "PreviewJson": await client.next_slots(task["id"], count=2),
        "QueuesJson": await client.list_queues(),
        "WorkersJson": await client.list_workers(),
        "StatsJson": await client.stats(),
        "TimelineJson": await client.timeline(),
        "CalendarsJson": await client.list_calendars(),
        "PublishedJson": await client.call("http://127.0.0.1:9000/", body={"a": 1}, delay_seconds=60),
        "PauseJson": await client.get_pause(),
        "RunsCanceledJson": await client.cancel_runs(filter={"key": "k"}),
        "DeletedJson": await client.delete_task(task["id"], purge=True),
    }
    wrong = {name: misfit(answer, getattr(client_types, name), name) for name, answer in answers.items()}
    assert {name: problem for name, problem in wrong.items() if problem is not None} == {}


async def test_a_batch_is_published(quick_api: Api):
    client = AsyncClient(quick_api.root)
    await client.create_task(**JOB)
    answer = await client.publish_runs(runs=[{"task": "a", "payload": n} for n in range(3)])
    assert [run["outcome"] for run in answer["runs"]] == ["created"] * 3


async def test_the_sync_client_says_the_same(quick_api: Api):
    client = Client(quick_api.root)

    def use() -> tuple[str, int, str]:
        client.create_task(**JOB)
        return client.healthz(), client.list_tasks(page_size=1)["total"], client.version()

    health, total, version = await asyncio.to_thread(use)
    assert (health, total, version[0]) == ("ok", 1, "v")


async def test_an_error_comes_out_as_it_was(quick_api: Api):
    client = AsyncClient(quick_api.root)
    with pytest.raises(NotFound):
        await client.get_task(99)
    with pytest.raises(InvalidArgument) as refused:
        await client.create_task(name="", cron_expr="99 * * * *", job_type="x")
    assert set(refused.value.details) == {"name", "cron_expr"}
    task = await client.create_task(**JOB)
    with pytest.raises(VersionConflict):
        await client.patch_task(task["id"], priority=1, if_match=7)


async def test_a_name_with_any_letter_in_it_finds_its_task(quick_api: Api):
    client = AsyncClient(quick_api.root)
    await client.create_task(name="a/b ?#%ü", job_type="x")
    assert (await client.get_task("name:a/b ?#%ü"))["name"] == "a/b ?#%ü"


async def test_a_call_with_too_few_places_is_refused_before_it_is_sent(quick_api: Api):
    with pytest.raises(InvalidArgument, match="get_task takes id"):
        await AsyncClient(quick_api.root).get_task()


async def test_events_come_as_they_happen(quick_api: Api):
    client = AsyncClient(quick_api.root)
    first = (await client.create_task(**JOB))["id"]
    stream = client.events(type="task", after="0.0")
    assert (await anext(stream))["task_id"] == first
    waiting = asyncio.create_task(anext(stream))
    second = (await client.create_task(**JOB | {"name": "b"}))["id"]
    event = await waiting
    assert (event["type"], event["task_id"]) == ("task.created", second)
    await stream.aclose()


async def test_a_stream_that_is_closed_ends_for_whoever_waits(quick_api: Api):
    stream = await asyncio.to_thread(Client(quick_api.root).events)
    waiting = asyncio.create_task(asyncio.to_thread(list, stream))
    stream.close()
    assert await waiting == []


def test_nobody_there_is_said_in_words():
    with reserved_port() as port, pytest.raises(StoreUnavailable, match="no server at http://127"):
        Client(f"http://127.0.0.1:{port}").healthz()


def test_something_else_than_an_address_is_refused():
    with pytest.raises(InvalidArgument, match="url: is 'localhost'"):
        Client("localhost")
