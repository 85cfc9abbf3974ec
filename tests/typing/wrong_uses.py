"""Slips that a type checker must catch: each line with its code. Read by test_sdk_types.py, never run."""

from __future__ import annotations

from noonbell import App, Context

app = App("shop")


@app.job(cron="0 */5 * * * *")
async def sync_stats(ctx: Context, region: str, days: int = 7) -> dict[str, int]:
    ctx.log(region)
    return {"rows": days}


@app.job
def count(word: str) -> int:
    return len(word)


async def use() -> None:
    await sync_stats.publish(region=1)  # error: arg-type
    await sync_stats.publish(days=3)  # error: call-arg
    await sync_stats.publish(region="eu", dayz=3)  # error: call-arg
    await sync_stats.publish(region="eu", days="3")  # error: arg-type
    await sync_stats.publish(region="eu", priority="high")  # error: arg-type
    await sync_stats.publish(region="eu", if_finished="again")  # error: arg-type
    await sync_stats.publish(region="eu", ctx=None)  # error: call-arg
    rows: str = await (await sync_stats.publish(region="eu")).result()  # error: assignment
    count.publish_sync(word=b"a")  # error: arg-type
    await app.publish_many([count.request(words="a")])  # error: call-arg
    await app.publish_many(["count"])  # error: list-item
    sync_stats.publish(region="eu")  # error: unused-coroutine
    raise ValueError(rows)


@app.job(crom="0 * * * *")  # error: call-overload
def misspelt() -> None: ...


@app.job(timeout="60")  # error: call-overload
def late() -> None: ...


@app.job(overlap_action="WAIT")  # error: call-overload
def overlapping() -> None: ...
