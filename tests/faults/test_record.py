"""A run of faults that was cut off goes on where it was."""

from __future__ import annotations

import subprocess
from pathlib import Path

from faults.record import Record, key_of
from faults.report import Report

TESTS = ["a", "b", "c"]


def test_what_passed_is_left_out_of_the_next_run_and_told_with_it(tmp_path: Path):
    first = Record(tmp_path, "key")
    assert first.left_of(TESTS) == TESTS
    first.keep("a", 30, Report(chapters=["## A\n"]))
    again = Record(tmp_path, "key")
    assert again.left_of(TESTS) == ["b", "c"]
    assert again.report().chapters == ["## A\n"]
    again.keep("b", 60, again.report())
    assert again.summary(TESTS) == (
        "faults: 2 of 3 passed in 1.5 minutes in all, 1 of them in an earlier run of the same code; the same command goes on"
        " with the rest"
    )


def test_a_run_that_is_whole_is_followed_by_one_from_the_beginning(tmp_path: Path):
    whole = Record(tmp_path, "key")
    whole.left_of(TESTS)
    for name in TESTS:
        whole.keep(name, 1, Report(chapters=["old"]))
    again = Record(tmp_path, "key")
    assert again.left_of(TESTS) == TESTS
    assert again.report().chapters == []


def test_a_part_of_the_tests_can_be_repeated_alone(tmp_path: Path):
    record = Record(tmp_path, "key")
    record.left_of(TESTS)
    record.keep("a", 1, Report())
    part = Record(tmp_path, "key")
    assert part.left_of(["a"]) == ["a"]
    part.keep("a", 2, Report())
    assert Record(tmp_path, "key").left_of(TESTS) == ["b", "c"]


def test_other_code_starts_from_the_beginning(tmp_path: Path, monkeypatch):
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)
    plain = key_of(tmp_path)
    assert key_of(tmp_path) == plain
    monkeypatch.setenv("FAULTS_TIMES", "1")
    fewer = key_of(tmp_path)
    assert fewer != plain
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x")
    subprocess.run(["git", "add", "src"], cwd=tmp_path, check=True)
    assert key_of(tmp_path) != fewer


def test_time_runs_out(tmp_path: Path):
    assert Record(tmp_path, "key", minutes=0).is_over
    assert not Record(tmp_path, "key", minutes=1).is_over
