"""Uses of the SDK that a type checker accepts. Read by test_sdk_types.py, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict, assert_type

from noonbell import App, AsyncClient, Client, Context, Fail, Published, RunFailed
from noonbell.app import Flow
from noonbell.client.types import EventJson, RunPageJson, TaskCreatedJson, TaskWriteInput

app = App("shop")


@dataclass
class Address:
    street: str
    zip: int


class Line(TypedDict):
    article: str
    count: int


class Pool: ...


@app.job(cron="0 */5 * * * *", max_concurrency=1, timeout=60)
async def sync_stats(ctx: Context, region: str, days: int = 7) -> dict[str, int]:
    ctx.log("starting")
    await ctx.progress(1, 10, "first page")
    assert_type(ctx.resource(Pool), Pool)
    return {"rows": 42}


@app.job
def count(word: str, *, least: int = 1) -> int:
    return len(word) * least


@app.job
async def tick() -> None: ...


@app.job(every=timedelta(minutes=5), retries=2, queue="mail", sandbox=True, memory_mb=256)
def send(ctx: Context, to: Address, lines: list[Line], mode: Literal["now", "later"] = "now") -> Address:
    if ctx.cancelled or not lines:
        raise Fail("nothing to send", mode=mode)
    return to


@app.lifespan
async def pools() -> AsyncIterator[None]:
    app.provide(Pool())
    app.provide("eu", name="region")
    yield


@app.middleware
def around_all(ctx: Context) -> Generator[None, Any, None]:
    result = yield
    ctx.log(f"returned {result}")


@app.middleware
async def around_async(ctx: Context) -> AsyncIterator[None]:
    await ctx.progress(0)
    try:
        yield
    except ValueError as error:
        raise Fail("refused") from error


middlewares: tuple[Callable[[Context], Iterator[None]], Callable[[Context], AsyncIterator[None]]]
middlewares = (around_all, around_async)


@app.job
def list_files(day: str) -> list[str]:
    return [day]


@app.job
async def convert(ctx: Context, file: str, dpi: int = 300) -> int:
    return len(file) * dpi


@app.job
def weigh(path: str) -> float:
    return float(len(path))


@app.job
def add_up(sizes: list[int]) -> int:
    return sum(sizes)


@app.job
def add_up_known(sizes: list[int | None]) -> int:
    return sum(size or 0 for size in sizes)


@app.job
def compare(pair: tuple[int, float]) -> str:
    return str(pair)


@app.job
def send_name(order: int) -> str:
    return str(order)


chain, group, each = app.flow.chain, app.flow.group, app.flow.map
nightly = app.flow("nightly", chain(list_files, each(convert, max_parallel=8), add_up), cron="0 2 * * *")
lenient = app.flow("lenient", chain(list_files, each(convert, allow_failure=True), add_up_known))
fixed = app.flow("fixed", chain(count.request(word="a"), send.request(to=Address("a", 1), lines=[])))
both = app.flow("both", group(convert.request(file="a"), weigh.request(path="b")))
spread = app.flow("spread", chain(count, chain(weigh.request(path="a"), tick.request())))
pair = app.flow("pair", chain(group(convert.request(file="a"), weigh.request(path="b")), tick.request()))
fan = app.flow("fan", chain(list_files, each(weigh), tick.request()))
split = app.flow("split", chain(send_name, group(convert, weigh), compare))
named = app.flow("named", chain(sync_stats.request(region="eu"), tick.request()))
alone = app.flow("alone", convert)
flows: list[Flow[..., Any]] = [nightly, lenient, fixed, both, spread, pair, fan, split, named, alone]


@app.job
async def order(ctx: Context) -> float:
    first = await ctx.spawn(convert.request(file="a"))
    second = await ctx.spawn(weigh.request(path="a", priority=3))
    assert_type(await ctx.gather(first, second), tuple[int, float])
    many = await ctx.spawn_many(convert.request(file=name) for name in "abc")
    assert_type(await ctx.gather(*many), tuple[int, ...])
    (size,) = await ctx.gather(second)
    return size


@app.job
def order_in_a_thread(ctx: Context) -> int:
    children = ctx.spawn_many_sync([count.request(word="a")])
    return sum(ctx.gather_sync(*children))


async def use_flows() -> None:
    published = await nightly.publish(day="monday", key="k")
    assert_type(await published.result(), dict[str, int])
    await alone.publish(file="a", dpi=600)
    await both.publish(delay=3)
    assert_type(nightly.steps, list[dict[str, Any]])


async def use() -> None:
    await sync_stats.publish(region="eu", key="k", delay=30, priority=5)
    await sync_stats.publish(region="eu", days=3, run_at=datetime.now(UTC), specific_worker_ids=["w1"])
    await sync_stats.publish(region="eu", key="k", if_finished="rerun_failed", update_waiting=True)
    published = await sync_stats.publish(region="eu", delay=timedelta(seconds=3), transaction=object())
    assert_type(published, Published[dict[str, int]])
    assert_type(published.run_id, int)
    assert_type(await published.result(timeout=10), dict[str, int])
    outcome: str = (await count.publish(word="a", least=2)).outcome.value
    assert outcome == "created"
    assert_type(await (await count.publish(word="a")).result(), int)
    await tick.publish()
    await tick.publish(delay=1)
    sent = await send.publish(to=Address("a", 1), lines=[{"article": "x", "count": 1}], mode="later")
    try:
        assert_type(await sent.result(), Address)
    except RunFailed as error:
        assert_type(error.status, str)
    many = await app.publish_many([count.request(word="a"), sync_stats.request(region="eu", key="b")])
    assert_type(many[0].run_id, int)
    async with app.running("sqlite:///x.db", queues=["mail"], concurrency=3):
        await tick.publish()


def use_without_a_loop() -> None:
    with app.connected() as connected:
        assert_type(connected, App)
        assert_type(count.publish_sync(word="a").result_sync(5), int)


async def use_the_awaited_client(client: AsyncClient) -> None:
    task = await client.create_task(name="nightly", cron_expr="0 3 * * *", target_url="http://127.0.0.1:9000/")
    assert_type(task, TaskCreatedJson)
    assert_type(task["id"], int)
    await client.patch_task("name:nightly", priority=5, if_match=1)
    run = await client.trigger_task(task["id"], payload={"region": "eu"}, key="k")
    assert_type(run["run_id"], int)
    found = await client.list_runs(status=["SCHEDULED", "RUNNING"], from_="2026-11-15T00:00:00Z")
    assert_type(found["items"][0]["error_message"], str | None)
    await client.call("http://127.0.0.1:9000/", body={"a": 1}, delay_seconds=30)
    await client.delete_tasks(body={"tasks": [{"id": 1}]}, purge=True)
    async for event in client.events(type="run"):
        assert_type(event, EventJson)


def use_the_client(client: Client) -> None:
    fields: TaskWriteInput = {
        "name": "nightly",
        "job_type": "report",
        "schedule": {"type": "cron", "expr": "0 3 * * *"},
    }
    assert_type(client.create_task(**fields)["name"], str)
    assert_type(client.list_runs(page_size=10), RunPageJson)
    assert_type(client.healthz(), str)
    for event in client.events(after="0.0"):
        assert_type(event["type"], str)
