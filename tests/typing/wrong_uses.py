"""Slips that a type checker must catch: each line with its code. Read by test_sdk_types.py, never run."""

from __future__ import annotations

from collections.abc import Iterator

from noonbell import App, AsyncClient, Client, Context

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


@app.job
def list_files(day: str) -> list[str]:
    return [day]


@app.job
def convert(file: str, dpi: int = 300) -> int:
    return len(file) * dpi


@app.job
def weigh(path: str) -> float:
    return float(len(path))


@app.job
def add_up(sizes: list[int]) -> int:
    return sum(sizes)


@app.job
def compare(pair: tuple[int, float]) -> str:
    return str(pair)


@app.job
def tick() -> None: ...


@app.middleware  # error: type-var
def around(ctx: Context) -> int:
    return ctx.attempt


@app.middleware  # error: type-var
def around_nothing() -> Iterator[None]:
    yield


chain, group, each = app.flow.chain, app.flow.group, app.flow.map
chain(list_files, convert)  # error: misc
chain(count, add_up)  # error: misc
chain(list_files, each(weigh), add_up)  # error: misc
chain(list_files, each(convert, allow_failure=True), add_up)  # error: misc
chain(list_files, each(add_up))  # error: misc
chain(count, group(convert, weigh), compare)  # error: misc
chain(count, each(convert))  # error: misc
chain(list_files, each(convert), tick)  # error: arg-type
chain(group(weigh.request(path="a"), convert.request(file="a")), compare)  # error: misc
app.flow("misspelt", count, crom="0 2 * * *")  # error: call-arg
nightly = app.flow("nightly", chain(list_files, each(convert), add_up))


async def use_flows() -> None:
    await nightly.publish(day=1)  # error: arg-type
    await nightly.publish(date="monday")  # error: call-arg


@app.job
async def order(ctx: Context) -> str:
    child = await ctx.spawn(convert.request(file=1))  # error: arg-type
    await ctx.spawn(convert)  # error: arg-type
    (size,) = await ctx.gather(child)
    text: str = size  # error: assignment
    await ctx.gather(convert.request(file="a"))  # error: call-overload
    return text


async def use_the_awaited_client(client: AsyncClient) -> None:
    await client.create_task(cron_expr="0 3 * * *")  # error: call-arg
    await client.create_task(name="nightly", crom_expr="0 3 * * *")  # error: call-arg
    await client.create_task(name="nightly", overlap_action="WAIT")  # error: arg-type
    await client.get_task()  # error: call-arg
    await client.get_task([1])  # error: arg-type
    client.get_run(1)  # error: unused-coroutine
    (await client.get_run(1))["state"]  # error: misc


def use_the_client(client: Client) -> None:
    name: int = client.get_task(1)["name"]  # error: assignment
    client.list_runs(status=["DONE"])  # error: list-item
    client.cancel_runs(filter={"keys": str(name)})  # error: arg-type
