"""A node dies while it adds up figures (K37: before the commit; K38: after it), and between a settlement and the next time that figures are
added up: they say what history says, before and after the next node adds them up, and again when they are counted from history.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acceptance.harness import Nodes
from conformance.store.rollup_scan import fold_all, scanned, told
from faults.sink import Sink
from faults.trial import KILLED, NODE, PATIENCE
from noonbell import stores
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.rollup import Scope

EVERY_SECOND = {"type": "interval", "every": 1, "unit": "second"}


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K37", "K38", "between"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_no_figure_is_lost_or_doubled(store: str, point: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        arguments = ("--store", url, "--port", "0")
        armed = nodes.launch(
            *arguments, env=NODE if point == "between" else {**NODE, "NOONBELL_FAILPOINT": f"{point}:2"}
        )
        armed.wait_ready(PATIENCE)
        task = armed.create(name="trial", target_url=sink.url("/ok"), schedule=EVERY_SECOND)
        if point == "between":
            armed.wait_for_run(armed.trigger(task), "SUCCESS")
            armed.kill()
        else:
            assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        before = asyncio.run(_compared(url))
        again = nodes.launch(*arguments, env=NODE).wait_ready(PATIENCE)
        again.wait_for_run(again.trigger(task), "SUCCESS")
        again.kill()
        after = asyncio.run(_compared(url))
        assert after > before >= 1
        asyncio.run(_counted_again(url))
    finally:
        nodes.end()
        sink.close()


async def _compared(url: str) -> int:
    """How many runs have ended, as the figures and history say."""
    store = stores.open_store(url)
    await store.open()
    try:
        figures = await told(store)
        assert figures == await scanned(store)
        return sum(figures[Scope.ALL, ""][0].values())
    finally:
        await store.close()


async def _counted_again(url: str) -> None:
    """An hour later by a clock of its own: all of it is old enough to be counted."""
    store = stores.open_store(url)
    await store.open()
    try:
        now = await store.now()
    finally:
        await store.close()
    store = stores.open_store(url, clock=ManualClock(Instant(now + 3600 * SECOND)))
    await store.open()
    try:
        await fold_all(store)
        figures = await told(store)
        await store.order_rebuild(None, None)
        while await store.rebuild_rollups(3):
            pass
        assert await told(store) == figures == await scanned(store)
    finally:
        await store.close()
