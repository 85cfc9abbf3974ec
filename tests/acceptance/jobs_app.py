"""Handlers for tests on real processes. What they do is written down in the folder that they are told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from noonbell import App, Context, Fail

app = App("jobs-app")


def note(folder: str, word: str, ctx: Context) -> None:
    with (Path(folder) / f"{ctx.task_name}.txt").open("a") as file:
        file.write(f"{word} {ctx.run_id} {ctx.attempt}\n")


@app.job
async def held(ctx: Context, folder: str) -> dict[str, Any]:
    """Executes until the folder has a file `go`."""
    note(folder, "start", ctx)
    try:
        while not (Path(folder) / "go").exists():  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.02)
        return {"execution_id": str(ctx.execution_id), "worker_id": ctx.worker_id}
    finally:
        note(folder, "end", ctx)


@app.job
async def flaky(ctx: Context, folder: str, failures: int) -> dict[str, Any]:
    """Fails so many times, then succeeds."""
    note(folder, "start", ctx)
    if ctx.retry_count < failures:
        raise RuntimeError(f"failure {ctx.retry_count + 1}")
    return {"retries": ctx.retry_count}


@app.job
async def hopeless(ctx: Context) -> None:
    del ctx
    raise Fail("there is no way", reason="closed")
