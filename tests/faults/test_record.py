"""A run of faults that was cut off goes on where it was, whether one process runs the tests or several do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from acceptance.harness import until
from faults.order import ALONE
from faults.record import Record, key_of
from faults.report import Report
from faults.scenarios import ALO, SCENARIOS
from faults.test_workers import POINTS
from faults.trial import Ending

TESTS = ["a", "b", "c"]
TESTS_FOLDER = Path(__file__).parents[1]


def passed(record: Record, name: str, seconds: float, *chapters: str) -> None:
    record.told[name] = Report(chapters=list(chapters)).plain()
    record.keep(name, seconds)


def test_what_passed_is_left_out_of_the_next_run_and_told_with_it(tmp_path: Path):
    first = Record(tmp_path, "key")
    assert first.left_of(TESTS) == TESTS
    passed(first, "b", 30, "## B\n")
    again = Record(tmp_path, "key")
    assert again.left_of(TESTS) == ["a", "c"]
    passed(again, "a", 60, "## A\n")
    assert again.report().chapters == ["## A\n", "## B\n"], "in the order of the tests"
    assert again.summary() == (
        "faults: 2 of 3 passed; this run took 0.0 minutes, one after the other they take 1.5;"
        " 1 passed in an earlier run of the same code; the same command goes on with the rest"
    )


def test_a_test_that_failed_is_told_and_run_again(tmp_path: Path):
    record = Record(tmp_path, "key")
    record.left_of(TESTS)
    record.told["a"] = Report(chapters=["## A\n"]).plain()
    assert record.report().chapters == ["## A\n"]
    again = Record(tmp_path, "key")
    assert again.left_of(TESTS) == TESTS
    assert again.report().chapters == []


def test_a_run_that_is_whole_is_followed_by_one_from_the_beginning(tmp_path: Path):
    whole = Record(tmp_path, "key")
    whole.left_of(TESTS)
    for name in TESTS:
        passed(whole, name, 1, "old")
    for _ in range(2):  # also if that one is cut off at once
        again = Record(tmp_path, "key")
        assert again.left_of(TESTS) == TESTS
        assert again.report().chapters == []


def test_a_part_of_the_tests_can_be_repeated_alone(tmp_path: Path):
    record = Record(tmp_path, "key")
    record.left_of(TESTS)
    passed(record, "a", 1)
    part = Record(tmp_path, "key")
    assert part.left_of(["a"]) == ["a"]
    passed(part, "a", 2)
    assert Record(tmp_path, "key").left_of(TESTS) == ["b", "c"]


def test_a_line_that_was_cut_off_costs_its_test_and_no_other(tmp_path: Path):
    record = Record(tmp_path, "key")
    record.left_of(TESTS)
    passed(record, "a", 1)
    passed(record, "b", 1)
    file = tmp_path / "key.jsonl"
    file.write_text(file.read_text()[:-9])
    again = Record(tmp_path, "key")
    assert again.left_of(TESTS) == ["b", "c"]
    passed(again, "c", 1)
    assert Record(tmp_path, "key").left_of(TESTS) == ["b"]


def test_other_code_starts_from_the_beginning(tmp_path: Path, monkeypatch):
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)
    plain = key_of(tmp_path)
    assert key_of(tmp_path) == plain
    monkeypatch.setenv("FAULTS_MINUTES", "1")
    assert key_of(tmp_path) == plain
    monkeypatch.setenv("FAULTS_TIMES", "1")
    fewer = key_of(tmp_path)
    assert fewer != plain
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x")
    subprocess.run(["git", "add", "src"], cwd=tmp_path, check=True)
    assert key_of(tmp_path) != fewer


def test_the_table_is_the_same_in_whichever_order_and_process_its_cells_were_filled():
    ending = Ending("SUCCESS", None, 1, 1, 1, deliveries=1, keys=1, rising=True, seconds=2.0)
    told = []
    for scenario in (SCENARIOS[0], SCENARIOS[3], POINTS[0]):
        for store in ("postgres", "sqlite"):
            part = Report()
            part.kill_point(scenario, ALO, store, 5, ["odd\nand more"] if store == "sqlite" else [], [ending] * 5, 9.0)
            told.append(json.loads(json.dumps(part.plain())))
    lines = Report.of(told).markdown().splitlines()
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| K")] == ["K1", "K4", "K11"]
    assert (
        "| K1 | before the slot's commit | at_least_once | SUCCESS; 1 delivery, 1 attempt | 4/5 **broken** | 5/5 | – | 1 in 10 |"
        in lines
    )
    assert "27 of 30 trials as promised. From the death to the run's end, restart included:" in lines
    assert "- K1, at_least_once, sqlite: odd" in lines
    backwards = Report.of(reversed(told)).markdown().splitlines()
    assert sorted(backwards) == sorted(lines)
    assert [line for line in backwards if line.startswith("| K")] == [line for line in lines if line.startswith("| K")]


def test_each_test_that_is_to_be_alone_is_there():
    code = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in ALONE if f"def {name}(" not in code] == []


# ---- whole runs, of tests that only note when they ran

RUN = """
import os, sys, time
from pathlib import Path
import pytest

pytestmark = pytest.mark.faults
FOLDER = Path(os.environ["NOTES"])

@pytest.fixture(autouse=True)
def noted(request):
    note = FOLDER / (request.node.name + "." + str(os.getpid()))
    note.write_text(str(time.monotonic()))
    yield
    note.write_text(note.read_text() + " " + str(time.monotonic()))

@pytest.mark.parametrize("number", range(2))
def ALONE(number, faults_report):
    faults_report.chapters.append("## apart " + str(number))

@pytest.mark.parametrize("number", range(6))
def test_beside(number, faults_report):
    faults_report.chapters.append("## beside " + str(number))
    if number < 2:  # each of two processes has one of these, and ends it when the other has begun
        (FOLDER / ("begun-" + str(number))).touch()
        until = time.monotonic() + 60
        while not (FOLDER / ("begun-" + str(1 - number))).exists():
            assert time.monotonic() < until, "nobody else runs meanwhile"
            time.sleep(0.01)
    assert number != 3 or not (FOLDER / "fail").exists()
    while (FOLDER / "hang").exists() and number == 4:
        time.sleep(0.01)
"""
NAMES = [*(f"test_beside[{number}]" for number in range(6)), f"{ALONE[0]}[0]", f"{ALONE[0]}[1]"]


class Runs:
    """Runs of pytest over the tests above, as `make faults` does it, with the conftest of this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"
        tests = folder / "tests" / "faults"
        tests.mkdir(parents=True)
        self.notes.mkdir()
        (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS_FOLDER}\n")
        (tests / "test_run.py").write_text(RUN.replace("ALONE", ALONE[0]))
        (tests / "conftest.py").write_text(
            "import services.bytecode, pathlib\n"
            f"services.bytecode.BUILD = pathlib.Path({str(folder / 'build')!r})\n"
            "from faults.conftest import *\n"
        )

    def begin(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("FAULTS_", "PYTEST_"))}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "faults", *words, "tests/faults"]
        return subprocess.Popen(
            command, cwd=self.folder, env={**ours, "NOTES": str(self.notes), **(env or {})}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
        process = self.begin(*words, env=env)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def took_place(self) -> dict[str, Sequence[float]]:
        """Beginning and end of each test since the last time; of one that has not ended, the beginning alone."""
        found = {}
        for note in [note for note in self.notes.iterdir() if note.name.startswith("test_")]:
            found[note.name.rpartition(".")[0]] = [float(word) for word in note.read_text().split()]
            note.unlink()
        return found

    def report(self) -> list[str]:
        lines = (self.folder / "build" / "faults.md").read_text().splitlines()
        return [line for line in lines if line.startswith("##")]


SIDE_BY_SIDE = ("-n", "2")
CHAPTERS = ["## apart 0", "## apart 1", *(f"## beside {number}" for number in range(6))]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_several_run_at_a_time_and_those_that_must_be_alone_after_them(runs: Runs):
    code, said = runs.run(*SIDE_BY_SIDE)
    assert code == 0, said
    assert "faults: 8 of 8 passed" in said
    times = runs.took_place()
    assert sorted(times) == sorted(NAMES)
    for name in (f"{ALONE[0]}[0]", f"{ALONE[0]}[1]"):
        begun, ended = times[name]
        assert all(other[1] <= begun for test, other in times.items() if "beside" in test), times
        assert all(other[1] <= begun or ended <= other[0] for test, other in times.items() if test != name), times
    assert runs.report() == CHAPTERS


def test_after_a_failure_only_what_has_not_passed_is_run_by_one_process_or_several(runs: Runs):
    (runs.notes / "fail").touch()
    code, said = runs.run(*SIDE_BY_SIDE)
    assert code == 1, said
    assert "faults: 7 of 8 passed" in said
    assert runs.report() == CHAPTERS, "what failed has something to tell as well"
    runs.took_place()
    (runs.notes / "fail").unlink()
    code, said = runs.run()
    assert code == 0, said
    assert list(runs.took_place()) == ["test_beside[3]"]
    assert "faults: 8 of 8 passed" in said
    assert runs.report() == CHAPTERS


def test_a_run_that_is_killed_loses_the_tests_in_hand_and_no_other(runs: Runs):
    (runs.notes / "hang").touch()
    killed = runs.begin(*SIDE_BY_SIDE)
    record = runs.folder / "build" / "faults"

    def recorded() -> set[str]:
        kept = "".join(file.read_text() for file in record.glob("*.jsonl"))
        return {name for name in NAMES if f"::{name}" in kept}

    def hangs() -> bool:
        """A process of xdist may keep one test back until it knows the next: which are done by then differs."""
        if killed.poll() is not None:
            raise AssertionError(f"it has ended by itself: {killed.communicate()[0]}")
        return bool([*runs.notes.glob("test_beside?4?.*")]) and {*NAMES[:2]} <= recorded()

    try:
        until(hangs, "one test to hang, and two to be recorded", 240)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate(timeout=60)
    kept = recorded()
    runs.took_place()
    (runs.notes / "hang").unlink()
    code, said = runs.run(*SIDE_BY_SIDE)
    assert code == 0, said
    assert set(runs.took_place()) == {*NAMES} - kept
    assert runs.report() == CHAPTERS


def test_the_first_failure_ends_a_quick_run_with_1_and_the_clock_ends_it_with_2(runs: Runs):
    (runs.notes / "fail").touch()
    code, said = runs.run(*SIDE_BY_SIDE, "--exitfirst")
    assert code == 1, said
    (runs.notes / "fail").unlink()
    code, said = runs.run(*SIDE_BY_SIDE, env={"FAULTS_MINUTES": "0.0001"})
    assert code == 2, said
    assert "minutes are over (FAULTS_MINUTES); the same command goes on with the rest" in said
