"""A node dies while it tells of breaches of service levels (K39: before the commit; K40: after it): each is told once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from acceptance.harness import Nodes
from conformance.store.builders import news
from faults.trial import KILLED, NODE, PATIENCE
from noonbell import stores
from services import wait_until


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K39", "K40"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_each_breach_is_told_once(store: str, point: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes = Nodes(tmp_path)
    try:
        arguments = ("--store", url, "--port", "0")
        armed = nodes.launch(*arguments, env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        level = {"start_within_seconds": 1, "finish_within_seconds": 2}
        task = armed.create(name="late", job_type="nobody-has-it", sla=level)
        runs = {armed.trigger(task) for _ in range(3)}
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch(*arguments, env=NODE).wait_ready(PATIENCE)
        wanted = {(run, rule) for run in runs for rule in ("start_within_seconds", "finish_within_seconds")}
        wait_until(lambda: set(asyncio.run(_told(url))) >= wanted, PATIENCE)
        again.kill()
        assert asyncio.run(_told(url)) == Counter(wanted)
    finally:
        nodes.end()


async def _told(url: str) -> Counter[tuple[int, str]]:
    store = stores.open_store(url)
    await store.open()
    try:
        events = await news(store, 0)
        return Counter((e.run_id or 0, e.data["rule"]) for e in events if e.type == "run.sla_breached")
    finally:
        await store.close()
