"""Two hundred thousand runs by a script that is killed in the middle: pages, `/stats` and the figures of tasks, queues and workers agree with
SQL over the history to the run, and percentiles are within their bound; before figures are added up, and afterwards.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.harness import Nodes, ServerNode
from conformance.store.rollup_scan import scanned, told
from faults.drain import QUEUES, WORKERS
from faults.trial import NODE, PATIENCE
from integration.web.asking import as_read
from noonbell import stores
from noonbell.model.rollup import Scope
from noonbell.model.worker import WorkerInfo

RUNS = 200_000
TESTS = Path(__file__).parent.parent


def drain(url: str, runs: int, killed_after: int | None = None) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    script = subprocess.Popen(
        [sys.executable, "-m", "faults.drain", url, str(runs)], stdout=subprocess.PIPE, text=True, env=env
    )
    assert script.stdout is not None
    for line in script.stdout:
        if killed_after is not None and int(line) >= killed_after:
            script.kill()
            break
    script.stdout.close()
    assert script.wait(PATIENCE) == (0 if killed_after is None else -9)


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_figures_of_many_runs_are_those_of_history(store: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    drain(url, RUNS, killed_after=RUNS // 2)
    asyncio.run(_agree(url))
    drain(url, RUNS // 2)
    asyncio.run(_agree(url))
    nodes = Nodes(tmp_path)
    try:
        node = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)
        asyncio.run(_pages_agree(url, node))
        node.kill()
        asyncio.run(_agree(url))
    finally:
        nodes.end()


def page_of(node: ServerNode, path: str) -> str:
    told = node.call("GET", path, base="")
    assert told.status == 200, (told.text[-2_000:], node.log[-2_000:])
    return as_read(told.text)


async def _agree(url: str) -> None:
    opened = stores.open_store(url)
    await opened.open()
    try:
        figures = await told(opened)
        assert figures == await scanned(opened)
        assert {name for kind, name in figures if kind is Scope.QUEUE} >= {"default", "pdf", "mail"}
        assert {name for kind, name in figures if kind is Scope.WORKER} >= {"w1", "w2", "w3"}
    finally:
        await opened.close()


async def _pages_agree(url: str, node: ServerNode) -> None:
    """Nothing ends meanwhile: the script is over, and nobody else takes its jobs."""
    opened = stores.open_store(url)
    await opened.open()
    try:
        ended = (
            "select count(*), sum(case when status = 'FAILED' then 1 else 0 end) from runs where end_time is not null"
        )
        ((runs, failed),) = await opened.fetch(ended)
        assert runs >= RUNS
        stats = node.ask("GET", "/stats")
        assert stats["by_status"]["SUCCESS"] == runs - failed
        assert stats["by_status"]["FAILED"] == failed
        times = "select end_time - start_time from runs where start_time is not null and end_time is not null"
        took = sorted(row[0] for row in await opened.fetch(times))
        assert stats["duration_ms"]["most"] == took[-1] // 1000
        for share, name in ((50, "p50"), (95, "p95"), (99, "p99")):
            true = took[-(-share * len(took) // 100) - 1] / 1000
            assert abs(stats["duration_ms"][name] - true) <= 0.02 * true + 1
        metrics = node.call("GET", "/metrics", base="").text
        assert f'noonbell_runs_ended_24h{{status="SUCCESS"}} {runs - failed:.1f}\n' in metrics
        page = page_of(node, "/")
        assert f"{100 * (runs - failed) / runs:.1f} %" in page
        assert re.search(rf"\b{failed:,} failed", page) or re.search(rf"\b{failed} failed", page)
        await _loads_agree(opened, node)
        for each in node.ask("GET", "/tasks?page_size=100")["items"]:
            ((of_task, bad),) = await opened.fetch(f"{ended} and task_id = :task", task=each["id"])
            told_of = node.ask("GET", f"/stats?task={each['id']}")
            assert (told_of["by_status"]["SUCCESS"], told_of["by_status"]["FAILED"]) == (of_task - bad, bad)
            shown = page_of(node, f"/tasks/{each['id']}")
            assert re.search(rf"{100 * (of_task - bad) / of_task:.1f}\s+%", shown)
    finally:
        await opened.close()


async def _loads_agree(opened: stores.SqlStore, node: ServerNode) -> None:
    """The pages of queues and workers, and what the API has of them: the script's workers are listed once they are registered."""
    for name in WORKERS:
        await opened.register_worker(WorkerInfo(id=name, incarnation=name, queues=QUEUES, concurrency=4))
    named = [("queues", "queue", name) for name in QUEUES] + [("workers", "worker_id", name) for name in WORKERS]
    for noun, column, name in named:
        rows = await opened.fetch(
            f"select status, end_time - start_time from runs where end_time is not null and {column} = :name", name=name
        )
        failed, took = sum(status == "FAILED" for status, _ in rows), sorted(row[1] for row in rows)
        total = node.ask("GET", f"/stats/{noun}/{name}")["total"]
        assert (total["runs"], total["failed"]) == (len(rows), failed)
        assert total["duration_ms"]["most"] == took[-1] // 1000
        for share, which in ((50, "p50"), (95, "p95"), (99, "p99")):
            true = took[-(-share * len(took) // 100) - 1] / 1000
            assert abs(total["duration_ms"][which] - true) <= 0.02 * true + 1
        page = page_of(node, f"/{noun}/{name}")
        assert f"<b>{len(rows):,}</b><span>Runs ended</span>" in page
        assert f"<b>{failed:,}</b><span>Failed</span>" in page
