"""Uses of the SDK that a type checker accepts. Read by test_sdk_types.py, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict, assert_type

from noonbell import App, Context, Fail, Published, RunFailed

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


async def use() -> None:
    await sync_stats.publish(region="eu", key="k", delay=30, priority=5)
    await sync_stats.publish(region="eu", days=3, run_at=datetime.now(UTC), specific_worker_ids=["w1"])
    await sync_stats.publish(region="eu", key="k", if_finished="rerun_failed", update_waiting=True)
    published = await sync_stats.publish(region="eu", delay=timedelta(seconds=3), transaction=object())
    assert_type(published, Published[dict[str, int]])
    assert_type(published.run_id, int)
    assert_type(await published.result(timeout=10), dict[str, int])
    assert_type((await count.publish(word="a", least=2)).outcome.value, str)
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
