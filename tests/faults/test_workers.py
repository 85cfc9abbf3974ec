"""Worker processes that are killed, frozen and brought back: every job succeeds once in the store, no late word counts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from faults.report import TIMES, Report
from faults.scenarios import ALO, AMO, UNKNOWN, Promise, Scenario
from faults.trial import Ending
from integration.jobs.fleet import Fleet, fleet_on
from noonbell.model.request import RunQuery
from noonbell.model.run import Run, RunId, RunStatus
from noonbell.model.task import Delivery

JOBS = int(os.environ.get("FAULTS_JOBS") or 5_000)
KILLING = float(os.environ.get("FAULTS_WORKER_SECONDS") or 60)
"""Seconds for which workers are killed."""
EVERY = 3.0
CONCURRENCY = 8
LEASE = {"worker_timeout_ms": 2_000, "ping_interval_ms": 500}
ZOMBIES = 50
AT_ONCE = 10
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB"}


def lines(file: Path, word: str) -> list[list[str]]:
    text = file.read_text() if file.exists() else ""
    return [line.split() for line in text.splitlines() if line.startswith(f"{word} ")]


@pytest.mark.faults
@pytest.mark.timeout(KILLING + 400)
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
async def test_every_job_succeeds_once_while_workers_are_killed(
    store: str, store_urls, tmp_path: Path, faults_report: Report
):
    seed = int(os.environ.get("FAULTS_SEED") or random.randrange(10**6))
    (url,) = store_urls(store, 1)
    file = tmp_path / "notes"
    async with fleet_on(url, tmp_path) as fleet:
        task = await fleet.task("work", **LEASE)
        # Work for nearly as long as they are killed.
        seconds = 0.8 * KILLING * 3 * CONCURRENCY / JOBS
        for _ in range(JOBS // 1000):
            await fleet.publish(task, {"file": str(file), "seconds": seconds}, 1000)
        began = time.monotonic()
        kills = await _harass(fleet, random.Random(seed))
        runs = await _all_final(fleet)
        took = time.monotonic() - began
        events = Counter([one.run_id async for one in _succeeded(fleet)])
        flaws, wrong = await fleet.store.flaws(), await fleet.store.recount()
    executions = Counter(int(line[1]) for line in lines(file, "ran"))
    extra = sum(executions.values()) - len(executions)
    faults_report.chapters.append(
        f"## Three workers, {NAMES[store]}\n\n{JOBS} jobs, kill -9 every {EVERY:g} s for {KILLING:g} s; seed {seed}.\n\n"
        f"| | |\n| --- | --- |\n| kills | {kills} |\n| SUCCESS | {sum(r.status is RunStatus.SUCCESS for r in runs)} |\n"
        f"| told as succeeded more than once | {sum(count != 1 for count in events.values())} |\n"
        f"| executions beyond one for each job | {extra} |\n| flaws in the store | {len(flaws) + wrong} |\n"
        f"| all final after | {took:.0f} s |\n"
    )
    assert Counter(run.status for run in runs) == {RunStatus.SUCCESS: JOBS}
    assert (set(events), set(events.values())) == ({run.id for run in runs}, {1})
    assert (flaws, wrong) == ([], 0)
    assert set(executions) == {run.id for run in runs}
    assert extra <= kills * CONCURRENCY, "more was done twice than kills explain"


async def _harass(fleet: Fleet, draw: random.Random) -> int:
    arguments = ("--concurrency", str(CONCURRENCY), "--queues", "default")
    crew = [await fleet.start(*arguments) for _ in range(3)]
    until, kills = time.monotonic() + KILLING, 0
    while time.monotonic() < until:
        await asyncio.sleep(EVERY)
        number = draw.randrange(3)
        crew[number].kill()
        kills += 1
        crew[number] = fleet.launch(f"w{len(fleet.processes)}", *arguments)
    return kills


async def _all_final(fleet: Fleet) -> list[Run]:
    waiting = (RunStatus.SCHEDULED, RunStatus.RUNNING, RunStatus.RETRYING)
    async with asyncio.timeout(240):
        while True:
            if not (await fleet.store.runs(RunQuery(status=waiting, page_size=1))).items:
                break
            await asyncio.sleep(0.5)
    found: list[Run] = []
    page = await fleet.store.runs(RunQuery(page_size=1000))
    while page.items:
        found += page.items
        if page.next_cursor is None:
            break
        page = await fleet.store.runs(RunQuery(page_size=1000, cursor=page.next_cursor))
    return found


async def _succeeded(fleet: Fleet):
    after = 0
    while events := await fleet.store.events(after, 5_000):
        for event in events:
            if event.type == "run.succeeded":
                yield event
        after = events[-1].seq


@pytest.mark.faults
@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
async def test_no_late_word_of_a_frozen_worker_is_written(
    store: str, store_urls, tmp_path: Path, faults_report: Report
):
    (url,) = store_urls(store, 1)
    accepted, refused = 0, 0
    async with fleet_on(url, tmp_path) as fleet:
        task = await fleet.task("haunt", **LEASE)
        crew = [await fleet.start("--concurrency", "0") for _ in range(2)]
        for number in range(ZOMBIES // AT_ONCE):
            zombie, honest = crew[number % 2], crew[1 - number % 2]
            file = tmp_path / f"round-{number}"
            await fleet.order(honest.id, concurrency=0)
            await fleet.order(zombie.id, concurrency=AT_ONCE)
            await fleet.beats(honest.id, 2)
            run_ids = await fleet.publish(task, {"file": str(file)}, AT_ONCE)
            await fleet.notes(file, "start", AT_ONCE)
            zombie.send(signal.SIGSTOP)
            file.with_name(f"{file.name}.go").touch()
            await fleet.order(honest.id, concurrency=AT_ONCE)
            frozen_until = time.monotonic() + 3 * LEASE["worker_timeout_ms"] / 1000
            ended = [await fleet.end_of(run_id) for run_id in run_ids]
            await asyncio.sleep(max(0.0, frozen_until - time.monotonic()))
            zombie.send(signal.SIGCONT)
            await _has_woken(fleet, file, zombie.id)
            after = [await fleet.store.run(run_id) for run_id in run_ids]
            assert [run.result for run in ended] == [[2, honest.id]] * AT_ONCE
            accepted += sum(run != before for run, before in zip(after, ended, strict=True))
        refused = sum(process.log.count("came too late and was not written") for process in crew)
        flaws = await fleet.store.flaws()
    faults_report.chapters.append(
        f"## Zombies, {NAMES[store]}\n\n{ZOMBIES} runs whose worker was frozen for three leases: {accepted} late writes"
        f" accepted, {refused} refused; the others were interrupted before they had something to say.\n"
    )
    assert (accepted, flaws) == (0, [])
    assert refused > 0, "no zombie tried to write: this has shown nothing"


async def _has_woken(fleet: Fleet, file: Path, worker_id: str) -> None:
    """Until each of its handlers has ended, and what came of that has been offered to the store."""

    def ended() -> bool:
        return sum(line[3] == worker_id for line in lines(file, "end")) == AT_ONCE

    await fleet.eventually(ended)
    await fleet.beats(worker_id, 3)


POINTS = [
    Scenario("K11", "a worker holding a lease", {ALO: Promise(attempts=2, deliveries=(2,)), AMO: UNKNOWN}),
    Scenario("K12", "a worker with the result in hand", {ALO: Promise(attempts=2, deliveries=(2,)), AMO: UNKNOWN}),
]


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [ALO, AMO])
@pytest.mark.parametrize("scenario", POINTS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
async def test_a_worker_that_dies_there_keeps_the_promise(
    store: str, scenario: Scenario, mode: str, stores_in_turn, tmp_path: Path, faults_report: Report
):
    endings, wrong, began = [], [], time.monotonic()
    for number, url in enumerate(stores_in_turn(store, TIMES)):
        folder = tmp_path / f"trial-{number}"
        folder.mkdir()
        ending = await _trial(scenario, mode, url, folder)
        endings.append(ending)
        wrong += [f"{ending}: {', '.join(words)}" for words in [scenario.promises[mode].broken_by(ending)] if words]
    faults_report.kill_point(scenario, mode, store, TIMES, wrong, endings, time.monotonic() - began)
    assert not wrong, "\n".join(wrong)


async def _trial(scenario: Scenario, mode: str, url: str, folder: Path) -> Ending:
    file = folder / "notes"
    # The second heartbeat: by then the handler has begun, and it waits for what is made only after the restart.
    point = "K11:2" if scenario.point == "K11" else scenario.point
    async with fleet_on(url, folder) as fleet:
        armed = await fleet.start(env={"NOONBELL_FAILPOINT": point})
        if scenario.point == "K12":
            file.with_name("notes.go").touch()
        run_id = await fleet.run("wait", {"file": str(file)}, delivery=Delivery(mode), **LEASE)
        assert await armed.ended() == 137, armed.log
        died_at = time.monotonic()
        file.with_name("notes.go").touch()
        await fleet.start()
        return await _ending(fleet, run_id, file, died_at)


async def _ending(fleet: Fleet, run_id: RunId, file: Path, died_at: float) -> Ending:
    run = await fleet.end_of(run_id)
    seen = lines(file, "start")
    attempts = [int(line[2]) for line in seen]
    return Ending(
        status=run.status,
        kind=(run.error_details or {}).get("kind"),
        attempts=run.attempt,
        recorded=len(await fleet.store.attempts(run_id)),
        rows=len((await fleet.store.runs(RunQuery(page_size=10))).items),
        deliveries=len(seen),
        keys=len({line[1] for line in seen}),
        rising=attempts == sorted(set(attempts)),
        seconds=time.monotonic() - died_at,
    )
