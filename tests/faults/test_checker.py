"""The checker goes red when it should. A chaos test that has never failed proves little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faults.checker import Row, Seen, Slot, judge, percentile, unassigned

SLOTS = [Slot("a", second) for second in (100, 101, 102)]
ROWS = [Row(slot, f"run-{slot.at}", "SUCCESS") for slot in SLOTS]
SEEN = [Seen(slot, f"run-{slot.at}", f"key-{slot.at}", slot.at + 0.05, "n1") for slot in SLOTS]
AGAIN = replace(SEEN[1], at=103.2, node="n2")
"""The second slot, delivered once more by another node."""


def verdict(rows=ROWS, seen=SEEN, *, kills=None, slots=SLOTS, once=()):
    return judge(slots, rows, seen, kills=kills or {}, window=1.0, reach=2.0, once=once)


def test_a_history_without_a_flaw_passes():
    found = verdict()
    assert found.is_strict
    assert found.is_valid
    assert found.extra == []


def test_a_slot_without_a_row_is_lost():
    found = verdict(rows=ROWS[:1] + ROWS[2:])
    assert found.lost == [SLOTS[1]]
    assert not found.is_strict


def test_a_row_without_a_delivery_is_lost_whatever_the_store_says():
    found = verdict(seen=SEEN[:2])
    assert found.lost == [SLOTS[2]]
    assert not found.is_strict
    assert not found.is_valid


def test_two_rows_of_a_slot_are_a_double():
    found = verdict(rows=[*ROWS, replace(ROWS[1], run="other")])
    assert found.doubled == [SLOTS[1]]
    assert not found.is_strict


def test_a_row_for_no_slot_is_unexpected():
    found = verdict(rows=[*ROWS, Row(Slot("a", 103), "run-103", "SUCCESS")])
    assert found.unexpected == [Slot("a", 103)]
    assert not found.is_strict


@pytest.mark.parametrize("ending", [None, "FAILED", "SKIPPED"])
def test_a_run_that_did_not_succeed_is_told(ending):
    found = verdict(rows=[replace(ROWS[0], final_status=ending), *ROWS[1:]])
    assert found.unended == [SLOTS[0]]
    assert not found.is_strict


def test_a_repeat_is_excused_by_a_kill_that_hit_the_request():
    found = verdict(seen=[*SEEN, AGAIN], kills={"n1": SEEN[1].at + 0.1})
    assert found.extra == [AGAIN]
    assert found.is_strict


@pytest.mark.parametrize("kills", [{}, {"n1": SEEN[1].at + 5}, {"n2": SEEN[1].at + 0.1}])
def test_a_repeat_without_such_a_kill_is_not(kills):
    found = verdict(seen=[*SEEN, AGAIN], kills=kills)
    assert found.unexcused == [AGAIN]
    assert not found.is_strict


def test_a_repeat_under_another_key_is_strange():
    other = replace(AGAIN, key="another")
    found = verdict(seen=[*SEEN, other], kills={"n1": SEEN[1].at + 0.1})
    assert found.strange == [other]
    assert not found.is_strict


def test_what_is_sent_at_most_once_may_not_be_repeated_kill_or_not():
    found = verdict(seen=[*SEEN, AGAIN], kills={"n1": SEEN[1].at + 0.1}, once={"a"})
    assert found.unexcused == [AGAIN]
    assert not found.is_strict


UNKNOWN = [ROWS[0], replace(ROWS[1], final_status="FAILED", kind="unknown"), ROWS[2]]


@pytest.mark.parametrize("seen", [SEEN, [SEEN[0], SEEN[2]]], ids=["sent", "not sent"])
def test_what_is_sent_at_most_once_may_end_as_unknown_if_a_kill_hit_it(seen):
    found = verdict(UNKNOWN, seen, kills={"n1": SEEN[1].at + 0.1}, once={"a"})
    assert found.unknown == [SLOTS[1]]
    assert found.is_strict
    assert found.is_valid


@pytest.mark.parametrize("seen", [SEEN, [SEEN[0], SEEN[2]]], ids=["sent", "not sent"])
def test_unknown_without_a_kill_is_told(seen):
    found = verdict(UNKNOWN, seen, once={"a"})
    assert found.unended == [SLOTS[1]]
    assert not found.is_strict


def test_unknown_is_no_excuse_for_a_task_that_may_repeat():
    found = verdict(UNKNOWN, [SEEN[0], SEEN[2]], kills={"n1": SEEN[1].at + 0.1})
    assert (found.lost, found.unended) == ([SLOTS[1]], [SLOTS[1]])


def test_a_request_after_the_window_is_late_but_not_lost():
    found = verdict(seen=[*SEEN[:2], replace(SEEN[2], at=104.0)])
    assert found.late == [SLOTS[2]]
    assert found.is_strict
    assert not found.is_valid


@pytest.mark.parametrize(
    "moments, arrivals, left",
    [
        ([10, 20], [10.0, 20.0], []),
        ([10, 11], [11.2, 11.9], []),  # the first takes what the second could have had, and both are served
        ([10, 11], [11.5], [11]),
        ([10, 11, 12], [12.0, 12.0, 12.0], []),
        ([10, 11], [9.9, 11.0], [11]),  # nothing may come early
        ([10], [12.1], [10]),
        ([10], [], [10]),
        ([10], [10.0, 10.1, 11.0], []),  # extras do not matter here
    ],
)
def test_each_slot_takes_an_arrival_of_its_own(moments, arrivals, left):
    assert unassigned(moments, arrivals, 2.0) == left


def test_tasks_do_not_lend_each_other_their_requests():
    slots = [Slot("a", 100), Slot("b", 100)]
    seen = [Seen(slots[0], "r", "k", 100.1, "n"), Seen(slots[0], "r", "k", 100.2, "n")]
    assert verdict(seen=seen, slots=slots).late == [Slot("b", 100)]


def test_a_percentile_is_one_of_the_values():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 99.0
    assert percentile([5.0], 0.99) == 5.0
    assert percentile([], 0.99) == 0.0
