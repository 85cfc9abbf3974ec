"""The account of fail-overs goes red for what must not happen, and only for that."""

from __future__ import annotations

from typing import Any

import pytest

from faults.checker import Seen, Slot
from faults.conftest import PAGE, ROOT
from faults.failovers import EndedRun, FailoverAccount, account_of
from faults.report import TOPOLOGY, with_fail_overs
from faults.topologies import ignored_settings

A, B, ONCE = Slot("t1", 10), Slot("t1", 20), Slot("t0", 10)
KILLED_AT = 12.0


def request(slot: Slot, *, at: float | None = None, key: str = "") -> Seen:
    return Seen(slot, "run", key or f"key of {slot}", slot.at + 0.1 if at is None else at, "a1")


def account(**changes: Any) -> FailoverAccount:
    runs = [EndedRun(slot, "SUCCESS") for slot in (A, B, ONCE)]
    given = {"runs": runs, "seen": [request(slot) for slot in (A, B, ONCE)], **changes}
    return account_of([A, B, ONCE], given["runs"], given["seen"], kills=[KILLED_AT], once=["t0"])


def test_each_slot_once_is_clean():
    found = account()
    assert found.is_clean
    assert found.seconds == pytest.approx([8.1])


def test_a_repeat_under_the_same_key_is_counted_and_clean():
    found = account(seen=[*(request(slot) for slot in (A, B, ONCE)), request(A, at=15)])
    assert found.is_clean
    assert [one.at for one in found.repeated] == [15]


@pytest.mark.parametrize(
    ("part", "extra"),
    [("other_key", request(A, at=15, key="another")), ("once_repeated", request(ONCE, at=15))],
)
def test_a_repeat_under_another_key_or_of_an_at_most_once_task_is_not_clean(part: str, extra: Seen):
    found = account(seen=[*(request(slot) for slot in (A, B, ONCE)), extra])
    assert getattr(found, part) == [extra]
    assert not found.is_clean


def test_a_slot_without_a_run_or_without_a_request_is_lost():
    assert account(runs=[EndedRun(slot, "SUCCESS") for slot in (A, ONCE)]).lost == [B]
    found = account(seen=[request(slot) for slot in (B, ONCE)])
    assert found.lost == [A]
    assert not found.is_clean


def test_a_slot_with_two_runs_is_doubled():
    found = account(runs=[EndedRun(slot, "SUCCESS") for slot in (A, A, B, ONCE)])
    assert found.doubled == [A]
    assert not found.is_clean


@pytest.mark.parametrize(("status", "why"), [("SKIPPED", "store_went_back"), ("FAILED", "unknown")])
def test_only_an_at_most_once_run_may_end_without_success_and_it_says_why(status: str, why: str):
    ended = [EndedRun(slot, "SUCCESS") for slot in (A, B)]
    found = account(runs=[*ended, EndedRun(ONCE, status, why)], seen=[request(A), request(B)])
    assert found.is_clean
    assert found.told == {why: 1}
    wrong = account(runs=[EndedRun(A, status, why), EndedRun(B, "SUCCESS"), EndedRun(ONCE, None)])
    assert wrong.unended == [A, ONCE]
    assert not wrong.is_clean


def test_a_database_that_never_comes_back_has_no_end_of_its_fail_over():
    found = account(seen=[request(slot) for slot in (A, ONCE)])
    assert found.seconds == [float("inf")]


def row(name: str, lost: str) -> list[str]:
    return [name, "60", lost, *["0"] * (len(TOPOLOGY) - 3)]


def test_a_run_writes_its_rows_into_the_page_and_leaves_the_others():
    empty = with_fail_overs(
        "above\n<!-- fail-overs: `make faults` writes this table -->\n\n\n\n<!-- end of fail-overs -->\nbelow", []
    )
    page = with_fail_overs(empty, [row("one", "0"), row("two", "0")])
    again = with_fail_overs(page, [row("one", "1"), row("three", "0")])
    assert [line.split(" | ")[0] for line in again.splitlines() if line.startswith("| ")][2:] == [
        "| one",
        "| two",
        "| three",
    ]
    assert "| one | 60 | 1 |" in again
    assert again.startswith("above\n")
    assert again.endswith("\nbelow")


def test_the_page_about_faults_has_the_table():
    text = PAGE.read_text()
    assert with_fail_overs(text, []) == text


def test_the_page_about_databases_names_every_setting_that_a_pooler_has_to_ignore():
    text = (ROOT / "docs/how-to/choose-a-database.md").read_text()
    assert ", ".join(f"`{name}`" for name in ignored_settings()) in text
