"""A job that gathers its children, and notes in a folder what is carried out."""

from __future__ import annotations

from pathlib import Path

from noonbell import App, Context

app = App("children-app")
LEASE = {"worker_timeout_ms": 2000, "ping_interval_ms": 500}


def note(folder: str, line: str) -> None:
    with (Path(folder) / "notes").open("a") as file:
        file.write(f"{line}\n")


@app.job(queue="children", retries=0, **LEASE)
def square(folder: str, n: int) -> int:
    note(folder, f"child {n}")
    return n * n


@app.job(queue="parents", retries=0, **LEASE)
async def sum_of_squares(ctx: Context, folder: str, count: int) -> int:
    note(folder, f"begun {ctx.attempt}")
    children = await ctx.spawn_many(square.request(folder=folder, n=n) for n in range(count))
    results = await ctx.gather(*children)
    note(folder, f"gathered {len(results)}")
    return sum(results)
