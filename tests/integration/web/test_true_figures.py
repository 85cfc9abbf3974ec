"""Figures of pages and of /stats are those of all runs, however many there are: compared with SQL over the history."""

from __future__ import annotations

import re

import msgspec
import pytest

from conformance.store.rollup_scan import fold_all
from integration.api.serving import Api
from integration.support import publish_many
from integration.web.asking import get
from noonbell.clock import Instant
from noonbell.model.request import ClaimRequest
from noonbell.model.rollup import DAY, HOUR, Scope, Span
from noonbell.model.run import Lease, RunStatus, Settlement, Transition
from noonbell.model.task import TaskId
from noonbell.web import timeline
from noonbell.web.queues import throughputs

RUNS = 3_000
"""More than any page looks at one by one."""


async def seed(api: Api) -> int:
    """Every tenth run fails, and those fail first: the newest 2,700 succeed."""
    task_id = await api.create(name="busy", target_url=None, job_type="work", queue="busy")
    task = await api.store.task(task_id)
    assert task is not None
    await publish_many(api.store, task, RUNS)
    done = 0
    while done < RUNS:
        claimed = await api.store.claim(ClaimRequest(worker_id="w9", queues=("busy",), max=500, job_types=("work",)))
        await api.store.settle(
            [ending(lease, done + number >= RUNS // 10) for number, lease in enumerate(claimed.leases)]
        )
        done += len(claimed.leases)
    return task_id


def ending(lease: Lease, is_good: bool) -> Settlement:
    return Settlement(
        run_id=lease.run_id,
        token=lease.token,
        worker_id="w9",
        transition=Transition.FINISH,
        status=RunStatus.SUCCESS if is_good else RunStatus.FAILED,
        task_version=lease.task_version,
        plain=lease.plain,
        counted=lease.counted,
    )


async def test_pages_and_stats_say_what_history_says(everywhere):
    api = everywhere
    task_id = await seed(api)
    ((ended, failed),) = await api.store.fetch(
        "select count(*), sum(case when status = 'FAILED' then 1 else 0 end) from runs where end_time is not null"
    )
    assert (ended, failed) == (RUNS, RUNS // 10)
    for _ in range(2):  # before anything is added up, and after it
        overview = await get(api, "/")
        assert f"{100 * (ended - failed) / ended:.1f} %" in overview
        assert re.search(rf"\b{failed} failed", overview)
        assert "90.0" in await get(api, f"/tasks/{task_id}")
        told = await api.good("GET", "/stats")
        assert told["by_status"]["SUCCESS"] == ended - failed
        assert told["by_final_status"]["FAILED"] == failed
        metrics = (await api.call("GET", "//metrics")).text
        assert f'noonbell_runs_ended_24h{{status="SUCCESS"}} {ended - failed:.1f}\n' in metrics
        assert f'noonbell_runs_ended_24h{{status="FAILED"}} {failed:.1f}\n' in metrics
        (p95,) = re.findall(r'noonbell_run_times_24h_seconds\{percentile="p95",time="duration"\} (\S+)', metrics)
        assert abs(float(p95) * 1_000 - told["duration_ms"]["p95"]) <= 1
        assert told["success_rate"] == 0.9
        (mine,) = told["tasks"]
        assert (mine["task_id"], mine["runs"], mine["success_rate"]) == (task_id, ended, 0.9)
        ((total, longest),) = await api.store.fetch(
            "select sum(end_time - start_time), max(end_time - start_time) from runs"
        )
        assert told["duration_ms"]["average"] == int(total) // ended // 1000
        assert told["duration_ms"]["most"] == int(longest) // 1000
        of_task = await api.good("GET", f"/stats?task={task_id}")
        assert (of_task["total"], of_task["by_status"]) == (ended, told["by_status"])
        await fold_all(api.store)
    times = sorted(
        row[0] for row in await api.store.fetch("select end_time - start_time from runs where start_time is not null")
    )
    true = times[-(-95 * len(times) // 100) - 1]
    assert abs(told["duration_ms"]["p95"] - true / 1000) <= 0.02 * true / 1000 + 1
    assert told["from"] < told["to"]


async def test_why_a_task_fails_says_among_how_many_runs_it_is_counted(api):
    task_id = await api.create(name="fails", target_url=None, job_type="work", queue="busy")
    task = await api.store.task(TaskId(task_id))
    assert task is not None
    for runs, says_so in ((300, False), (300, True)):
        await publish_many(api.store, task, runs)
        claimed = await api.store.claim(ClaimRequest(worker_id="w9", queues=("busy",), max=runs, job_types=("work",)))
        await api.store.settle([ending(lease, number % 3 == 0) for number, lease in enumerate(claimed.leases)])
        for lang, said in (("en", "Counted among the newest 500 runs."), ("zh", "在最近 500 次执行中统计。")):
            assert (said in await get(api, f"/tasks/{task_id}", lang)) is says_so
    text = await get(api, f"/tasks/{task_id}")
    crosses = text.count('class="cross"')
    assert 0 < crosses < 200
    assert f"Durations of the last 200 runs; {crosses} failed" in text, "not those of 30 days"


async def test_the_month_counts_every_run_and_every_failure(everywhere):
    api = everywhere
    task = await api.store.task(TaskId(await api.create(name="busy", target_url=None, job_type="work", queue="busy")))
    assert task is not None
    await publish_many(api.store, task, 1_200)
    claimed = await api.store.claim(ClaimRequest(worker_id="w9", queues=("busy",), max=1_200, job_types=("work",)))
    await api.store.settle([ending(lease, number >= 1_150) for number, lease in enumerate(claimed.leases)])
    for _ in range(2):  # before anything is added up, and after it
        assert "1200 ran, 1150 failed" in await get(api, "/timeline?view=calendar")
        await fold_all(api.store)


async def test_days_of_the_month_whose_hours_are_no_longer_kept_are_those_of_utc(api, monkeypatch: pytest.MonkeyPatch):
    """Hours are kept for less than a day, so that today is counted by days and nothing is by hours."""
    await seed(api)
    await fold_all(api.store)
    assert "Before " not in await get(api, "/timeline?view=calendar")
    monkeypatch.setattr(timeline, "HOUR", Span(HOUR.length, -DAY.length))
    text = await get(api, "/timeline?view=calendar")
    assert "days are UTC days" in text
    assert f"{RUNS} ran, {RUNS // 10} failed" in text


async def test_the_pace_of_queues_and_workers_counts_every_run(everywhere):
    api = everywhere
    await seed(api)
    now = Instant(await api.store.now())
    for kind, name in ((Scope.QUEUE, "busy"), (Scope.WORKER, "w9")):
        assert sum((await throughputs(api.store, kind, now))[name].went) == RUNS
    assert "over the last ten minutes" in await get(api, "/queues")


async def test_the_next_deadline_is_that_of_all_callbacks_not_of_the_newest(api):
    task = await api.store.task(TaskId(await api.create(name="waits", target_url=None, job_type="work", queue="busy")))
    assert task is not None
    await publish_many(api.store, task, 1_002)
    claimed = await api.store.claim(ClaimRequest(worker_id="w9", queues=("busy",), max=1_002, job_types=("work",)))
    oldest = min(lease.run_id for lease in claimed.leases)
    await api.store.settle(
        [
            msgspec.structs.replace(
                ending(lease, is_good=True),
                transition=Transition.PARK,
                status=None,
                plain=False,
                delay_seconds=600 if lease.run_id == oldest else 86_400,
            )
            for lease in claimed.leases
        ]
    )
    text = await get(api, "/")
    assert "1,002" in text
    assert re.search(r"next deadline in (10 m|9 m 5\d s)", text)
