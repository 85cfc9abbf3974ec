"""Handlers that block the event loop of their worker. Run as a script, it executes them in library mode until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path

from noonbell import App, Context

app = App("blocking-app")


def note(folder: str, word: str, ctx: Context) -> None:
    with (Path(folder) / f"{ctx.task_name}.txt").open("a") as file:
        file.write(f"{word} {ctx.attempt}\n")


def block(folder: str) -> None:
    """Until the folder has a file `go`."""
    deadline = time.monotonic() + 120
    while not (Path(folder) / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


@app.job(retries=0, worker_timeout_ms=2000)
async def blocks(ctx: Context, folder: str) -> str:
    note(folder, "start", ctx)
    block(folder)
    note(folder, "end", ctx)
    return ctx.worker_id


@app.job(retries=0, worker_timeout_ms=2000, timeout=2)
async def too_long(ctx: Context, folder: str) -> None:
    note(folder, "start", ctx)
    block(folder)
    note(folder, "end", ctx)


@app.job(retry_policy={"max_retries": 1, "initial_delay": 0.01}, worker_timeout_ms=2000, timeout=2)
async def too_long_at_first(ctx: Context, folder: str) -> None:
    note(folder, "start", ctx)
    block(folder)
    note(folder, "end", ctx)


@app.job(worker_timeout_ms=2000)
async def deaf(ctx: Context, folder: str) -> None:
    """Ignores every cancellation."""
    note(folder, "start", ctx)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)


async def main(url: str, worker_id: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with app.running(url, worker_id=worker_id, scheduler=False):
        sys.stdout.write("is ready\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
