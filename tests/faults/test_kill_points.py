"""A node is killed at a named point, started again, and the run ends as its delivery mode promises. Every time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from faults.report import TIMES, Report
from faults.scenarios import SCENARIOS, Scenario
from faults.trial import Ending, trial

CASES = [
    pytest.param(scenario, mode, id=f"{scenario.name.replace(' ', '_')}-{mode}")
    for scenario in SCENARIOS
    for mode in scenario.promises
]
SIDE_BY_SIDE = min(5, max(1, 10 // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))
"""Trials at a time; some ten in all, however many processes run tests: with leases of 2 s, nodes must not have to wait for a core."""
LONGEST = 30.0
"""Seconds from the death to the end, restart included: a bound against hanging. The report has the real figures."""


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("scenario", "mode"), CASES)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_node_that_dies_there_keeps_the_promise(
    store: str, scenario: Scenario, mode: str, lent_store, tmp_path: Path, faults_report: Report
):
    lend = lent_store(store)
    began = time.monotonic()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        trials = [pool.submit(one_trial, scenario, mode, lend, tmp_path / str(n)) for n in range(TIMES)]
        problems = [one.exception() for one in trials]
    endings = [one.result() for one, problem in zip(trials, problems, strict=True) if problem is None]
    wrong = [f"trial {n}: {problem}" for n, problem in enumerate(problems) if problem is not None]
    wrong += [f"{ending}: {', '.join(words)}" for ending in endings if (words := broken(scenario, mode, ending))]
    faults_report.kill_point(scenario, mode, store, TIMES, wrong, endings, time.monotonic() - began)
    assert not wrong, "\n".join(wrong)


def one_trial(scenario: Scenario, mode: str, lend: Callable[[], AbstractContextManager[str]], folder: Path) -> Ending:
    with lend() as url, trial(folder, url, scenario.point) as one:
        one.start_armed(*scenario.arguments)
        one.create(scenario.path, delivery=mode, **scenario.fields)
        scenario.before(one)
        one.wait_death()
        died_at = time.monotonic()
        one.start_again()
        scenario.after(one)
        return one.ending(died_at)


def broken(scenario: Scenario, mode: str, ending: Ending) -> list[str]:
    wrong = scenario.promises[mode].broken_by(ending)
    if ending.seconds > LONGEST:
        wrong.append(f"final only {ending.seconds:.1f} s after the death")
    return wrong
