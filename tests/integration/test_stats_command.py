"""`noonbell stats rebuild` on a store without a server."""

from __future__ import annotations

import asyncio

from click.testing import CliRunner

from conformance.store.rollup_scan import fold_all, scanned, told
from integration.crew import success
from integration.support import execute, job, publish_many
from noonbell import stores
from noonbell.cli.root import root
from noonbell.clock import SECOND, Instant, ManualClock, SystemClock
from noonbell.model.request import ClaimRequest

HOUR = 3600 * SECOND


async def seed(url: str) -> None:
    """Five runs of yesterday whose sums are lost."""
    store = stores.open_store(url, clock=ManualClock(Instant(SystemClock().now() - 24 * HOUR)))
    await store.open()
    try:
        await publish_many(store, await store.create_task(job("plain")), 5)
        claimed = await store.claim(ClaimRequest(worker_id="w", queues=("default",), max=5))
        await store.settle([success(lease) for lease in claimed.leases])
        await fold_all(store)
        await execute(store, "delete from rollups")
    finally:
        await store.close()


async def compare(url: str) -> bool:
    store = stores.open_store(url)
    await store.open()
    try:
        return await told(store) == await scanned(store) != {}
    finally:
        await store.close()


def call(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(root, ["stats", "rebuild", *arguments])
    return answer.exit_code, answer.output + str(answer.exception or "")


def test_it_counts_history_again(sqlite_url: str):
    asyncio.run(seed(sqlite_url))
    assert not asyncio.run(compare(sqlite_url))
    code, text = call("--store", sqlite_url)
    assert (code, text.partition(" to ")[0]) == (0, "rebuilt: the beginning of history")
    assert asyncio.run(compare(sqlite_url))


def test_a_day_that_is_none_and_a_file_that_is_not_there_are_named(sqlite_url: str, tmp_path):
    assert "--from: is 'soon'; expected a date such as 2026-11-01" in call("--store", sqlite_url, "--from", "soon")[1]
    assert f"there is no file {tmp_path}/none.db" in call("--store", f"sqlite:///{tmp_path}/none.db")[1]
