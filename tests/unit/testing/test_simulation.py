"""Histories of three nodes with crashes, lost messages and clock jumps: no law is broken, and a seed is always the same history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from noonbell.engine import attempt_runner
from noonbell.engine.attempt_runner import AttemptRunner
from noonbell.engine.settle import released, subject_of
from noonbell.model.run import Assignment, Settlement
from noonbell.stores.sql.statement import Conflict
from noonbell.stores.sql.store import SqlStore
from noonbell.testing.simulation import History, HistoryStep, history_of, play, play_seed, shrink
from noonbell.testing.simulation.__main__ import main
from noonbell.testing.simulation.play import LEAST_FAULTS, LEAST_TRANSITIONS
from noonbell.testing.simulation.targets import Character
from services.size import size

ROOT = Path(__file__).parents[3]
QUICK = 4
"""Seeds in each of three tests; `make faults` has ten thousand."""

_DIGESTS = """
import sys
from noonbell.testing.simulation import play_seed
print(*(play_seed(seed).digest for seed in map(int, sys.argv[1:])))
"""


@pytest.mark.longer
@pytest.mark.parametrize("first", range(0, 3 * QUICK, QUICK))
def test_no_history_breaks_a_law(first: int):
    for seed in range(10 * first, 10 * first + size(QUICK, 10 * QUICK)):
        played = play_seed(seed)
        assert played.violation is None, f"python -m noonbell.testing.simulation --seed {seed}"
        assert played.nodes >= 3
        assert played.transitions >= LEAST_TRANSITIONS
        assert played.faults >= LEAST_FAULTS


def test_a_seed_is_the_same_history_in_every_process():
    seeds = ["101", "102"]
    here = [play_seed(int(seed)).digest for seed in seeds]
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run(
        [sys.executable, "-c", _DIGESTS, *seeds], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == here


def test_other_seeds_are_other_histories():
    assert history_of(1).steps != history_of(2).steps
    assert history_of(1) == history_of(1)


@pytest.mark.longer
def test_a_node_that_marks_nothing_before_it_sends_is_found_and_its_history_made_short(monkeypatch: pytest.MonkeyPatch):
    async def says_it_has(self: AttemptRunner, state: object) -> bool:
        return True

    monkeypatch.setattr(AttemptRunner, "_begin", says_it_has)
    played = next(found for found in map(play_seed, range(100)) if found.violation is not None)
    assert played.violation is not None
    assert played.violation.law == "at most once"
    shortest = shrink(played, most=size(6, 60))
    assert shortest.violation is not None
    assert shortest.violation.law == "at most once"
    assert len(shortest.history.steps) < len(played.history.steps)
    assert play(shortest.history).digest == shortest.digest, "it replays exactly"


def test_a_history_without_steps_is_a_quiet_day():
    played = play(replace(history_of(5), steps=(), is_filled_up=False))
    assert played.violation is None
    assert played.faults == 0
    assert played.deliveries > 20


LONG_CALL = History(
    seed=1,
    tasks=({"name": "long", "target_url": "http://target/", "timeout_seconds": 20},),
    characters={"long": Character(shortest=4.0, longest=4.0, fails=0.0, hangs=0.0, loses_answer=0.0)},
    steps=(HistoryStep(1.0, "publish", 0, "long", 1), HistoryStep(2.0, "pause")),
    is_filled_up=False,
)
"""A call that is under way from the first second to the fifth; from the second one on nothing is claimed."""


def test_a_call_that_a_stop_interrupts_is_not_counted():
    stops = [HistoryStep(2.5, "stop", place) for place in range(3)]
    steps = (*LONG_CALL.steps, *stops, HistoryStep(6.0, "restart"), HistoryStep(8.0, "cancel", 0, "long"))
    played = play(replace(LONG_CALL, steps=steps))
    assert played.violation is None
    assert (played.runs, played.deliveries) == (1, 1)


def test_a_call_that_was_answered_has_to_be_counted(monkeypatch: pytest.MonkeyPatch):
    def forgets(assignment: Assignment, *_: object) -> Settlement:
        return released(subject_of(assignment.lease), begun=False)

    monkeypatch.setattr(attempt_runner, "settlement_of", forgets)
    played = play(replace(LONG_CALL, steps=(*LONG_CALL.steps, HistoryStep(8.0, "cancel", 0, "long"))))
    assert played.violation is not None
    assert played.violation.law == "attempts are counted"


def test_a_batch_of_outcomes_that_is_refused_is_an_error_though_they_are_settled_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
):
    async def refuses(*_: object) -> None:
        raise Conflict("there is such a row")

    assert play(LONG_CALL).violation is None
    monkeypatch.setattr(SqlStore, "_settle_and_claim", refuses)
    played = play(LONG_CALL)
    assert played.violation is not None
    assert played.violation.law == "no loop fails"


def test_a_step_says_what_it_does():
    assert str(HistoryStep(1.5, "crash", 2)) == "  1.50 s  crash at node 2"
    assert str(HistoryStep(2.0, "clock", 0, "", -30)) == "  2.00 s  clock -30"


def _seeds_in(kept: Path) -> list[int]:
    return [json.loads(line)[0] for line in kept.read_text().splitlines()[1:]]


def test_the_command_keeps_its_figures_and_goes_on_where_it_was(tmp_path, capsys: pytest.CaptureFixture[str]):
    kept = tmp_path / "build" / "figures.jsonl"
    assert main(["--seeds", "200-200", "--keep", str(kept)]) == 0
    kept.write_text(kept.read_text() + '[201, "cut o')
    assert main(["--seeds", "200-201", "--keep", str(kept)]) == 0
    assert _seeds_in(kept) == [200, 201]
    said = capsys.readouterr()
    assert "2 seeds, 0 with a broken law" in said.out
    assert "1 of 2 seeds are known from" in said.err


def test_several_processes_share_the_seeds():
    command = [sys.executable, "-m", "noonbell.testing.simulation", "--seeds", "200-201", "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 seeds, 0 with a broken law" in done.stdout


def test_figures_of_another_source_are_not_kept(tmp_path):
    kept = tmp_path / "figures.jsonl"
    kept.write_text('{"source": "another"}\n[200, "", 3, 200, 5, 1, 1, 0.1, ""]\n')
    assert main(["--seeds", "201-201", "--keep", str(kept)]) == 0
    assert _seeds_in(kept) == [201]


def test_the_command_replays_one_seed(capsys: pytest.CaptureFixture[str]):
    assert main(["--seed", "200"]) == 0
    said = capsys.readouterr().out
    assert play_seed(200).digest in said
    assert "FAULT" in said


def test_each_protection_that_the_simulation_must_miss_is_where_its_removal_looks_for_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "sabotage"))
    tried, removals = import_module("interleavings"), import_module("removals")
    for removal in tried.interleavings():
        for edit in removal.edits:
            assert removals.found_times(ROOT, edit) == 1, f"{removal.what}: {edit.text!r}"
        assert f"| {removal.what} |" in (ROOT / "docs" / "reference" / "simulation.md").read_text()
