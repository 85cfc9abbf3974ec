"""The thread that notices when the event loop stands still."""

from __future__ import annotations

import asyncio
import time

from noonbell.engine.heartbeat import LoopStall, LoopWatch, loop_watched

PATIENCE = 60.0


def hold_the_loop(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def test_a_call_that_holds_the_loop_is_measured_and_named():
    loop = asyncio.get_running_loop()
    found: asyncio.Queue[LoopStall] = asyncio.Queue()
    watch = LoopWatch(loop, lambda stall: loop.call_soon_threadsafe(found.put_nowait, stall), over=0.1)
    watch.start()
    try:
        hold_the_loop(0.6)
        stall = await asyncio.wait_for(found.get(), PATIENCE)
    finally:
        watch.stop()
    assert stall.seconds > 0.1
    assert "hold_the_loop" in stall.stack
    assert "test_loop_watch.py" in stall.stack


async def test_a_loop_that_takes_its_turns_is_not_reported():
    """With a bound that a busy machine does not reach."""
    found: list[LoopStall] = []
    watch = LoopWatch(asyncio.get_running_loop(), found.append, over=20.0)
    watch.start()
    try:
        for _ in range(50):
            await asyncio.sleep(0.01)
    finally:
        watch.stop()
    assert found == []


async def test_a_stall_is_counted_and_logged(caplog):
    loop = asyncio.get_running_loop()
    counted: asyncio.Queue[float] = asyncio.Queue()
    with loop_watched(lambda seconds: loop.call_soon_threadsafe(counted.put_nowait, seconds)):
        hold_the_loop(0.8)
        assert await asyncio.wait_for(counted.get(), PATIENCE) > 0.25
    assert "the event loop stalled for" in caplog.text
    assert "hold_the_loop" in caplog.text
