"""The App of the worker processes that tests start. What a handler does is written down in the file it is told."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any

from noonbell import App, Context

app = App("fleet")


def note(file: str, *words: object) -> None:
    with Path(file).open("a") as out:
        out.write(" ".join(map(str, words)) + "\n")


@app.job
async def quick(ctx: Context, file: str | None = None) -> int:
    if file is not None:
        note(file, "ran", ctx.run_id, ctx.attempt, ctx.worker_id)
    return ctx.attempt


@app.job
async def wait(ctx: Context, file: str) -> str:
    """Until the file `FILE.go` is there."""
    note(file, "start", ctx.run_id, ctx.attempt, ctx.worker_id)
    try:
        while not Path(f"{file}.go").exists():  # noqa: ASYNC110, ASYNC240 - another process makes the file
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        note(file, "canceled", ctx.run_id, ctx.attempt, ctx.worker_id)
        raise
    return "went"


@app.job
def stubborn(ctx: Context, file: str) -> str:
    """In a thread, and ignores that nobody waits for it."""
    note(file, "start", ctx.run_id, ctx.attempt, ctx.worker_id)
    while not Path(f"{file}.go").exists():
        time.sleep(0.02)
    note(file, "end", ctx.run_id, ctx.attempt, ctx.cancelled)
    return "late"


@app.job(sandbox=True)
def boxed(ctx: Context, file: str) -> str:
    """Never lets another thread of its process run."""
    note(file, "start", ctx.run_id, ctx.attempt, os.getpid())
    re.match(r"(a|a)*$", "a" * 200 + "b")
    return "never"


@app.job
async def long(ctx: Context, seconds: float) -> bool:
    """Beyond its timeout, by asking for more."""
    answers = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answers.append(await ctx.extend(2))
        await asyncio.sleep(0.2)
    return all(answers)


@app.job
async def flaky(ctx: Context, file: str, failures: int) -> dict[str, Any]:
    note(file, "try", ctx.run_id, ctx.attempt, ctx.worker_id)
    if ctx.retry_count < failures:
        raise RuntimeError("not yet")
    return {"worker": ctx.worker_id}


@app.job
async def work(ctx: Context, file: str, seconds: float) -> str:
    """So long, written down when it begins."""
    note(file, "ran", ctx.run_id, ctx.attempt, ctx.worker_id)
    await asyncio.sleep(seconds)
    return ctx.worker_id


@app.job
async def haunt(ctx: Context, file: str) -> list[Any]:
    """As `wait`, and says how it ended."""
    note(file, "start", ctx.run_id, ctx.attempt, ctx.worker_id)
    try:
        while not Path(f"{file}.go").exists():  # noqa: ASYNC110, ASYNC240 - another process makes the file
            await asyncio.sleep(0.02)
    finally:
        note(file, "end", ctx.run_id, ctx.attempt, ctx.worker_id)
    return [ctx.attempt, ctx.worker_id]
