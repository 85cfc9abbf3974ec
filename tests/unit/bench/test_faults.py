"""What is counted as lost, doubled, repeated and late, on logs made by hand; and the page that a run writes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from bench.faults import timeline
from bench.faults.account import Account, Arrival, Slot, account_of, by_slot
from bench.faults.page import HEAD, PAGE, cells_of, entry, missing, with_entries
from bench.faults.target import arrival

SLOTS = [Slot("a", 100), Slot("a", 101), Slot("a", 102)]
LOG = [Arrival("a", slot.at + 0.1, slot.at, f"key-{slot.at}") for slot in SLOTS]


def account(*arrivals: Arrival, slots: list[Slot] = SLOTS, period: int = 1) -> Account:
    return account_of(slots, arrivals, period)


def test_each_slot_once_is_neither_lost_nor_doubled():
    found = account(*LOG)
    assert (found.slots, found.lost, found.doubled, found.repeated) == (3, [], [], [])
    assert found.late == pytest.approx([0.1, 0.1, 0.1])


def test_a_slot_without_a_request_is_lost():
    assert account(LOG[0], LOG[2]).lost == [SLOTS[1]]


def test_a_request_of_another_schedule_does_not_serve_a_slot():
    assert account(*LOG[:2], replace(LOG[2], schedule="b")).lost == [SLOTS[2]]


def test_a_repeat_under_the_same_key_is_counted_and_not_a_double():
    again = replace(LOG[1], at=105.0)
    found = account(*LOG, again)
    assert (found.doubled, found.repeated) == ([], [again])


@pytest.mark.parametrize("key", ["another", None])
def test_a_repeat_under_another_key_or_without_one_is_a_double(key: str | None):
    found = account(*LOG, replace(LOG[1], at=105.0, key=key))
    assert (found.doubled, found.repeated) == ([SLOTS[1]], [])


def test_two_requests_without_a_key_are_a_double():
    assert account(*(replace(LOG[0], at=at, key=None) for at in (100.1, 100.2))).doubled == [SLOTS[0]]


def test_a_slot_that_is_doubled_three_times_is_one_double():
    others = [replace(LOG[1], at=105.0 + number, key=f"other-{number}") for number in range(3)]
    assert account(*LOG, *others).doubled == [SLOTS[1]]


def test_lateness_is_that_of_the_first_request_in_whatever_order_the_log_is():
    assert account(replace(LOG[0], at=103.0), LOG[0], slots=SLOTS[:1]).late == pytest.approx([0.1])


def test_a_late_request_that_tells_its_slot_serves_that_slot():
    found = account(replace(LOG[0], at=109.0), *LOG[1:])
    assert found.lost == []
    assert max(found.late) == pytest.approx(9.0)


def test_requests_of_slots_before_and_after_are_left_out():
    found = account(*LOG, Arrival("a", 99.1, 99, "before"), Arrival("a", 103.1, 103, "after"))
    assert (found.lost, found.doubled, found.repeated, len(found.late)) == ([], [], [], 3)


def test_a_request_that_is_not_told_its_slot_has_the_newest_one_that_was_due():
    assert account(*(replace(one, slot=None) for one in LOG)).lost == []
    assert by_slot([Arrival("a", 179.9)], 60).keys() == {Slot("a", 120)}
    assert by_slot([Arrival("a", 180.0)], 60).keys() == {Slot("a", 180)}


def test_a_repeat_that_is_not_told_its_slot_has_that_of_its_key():
    slots = [Slot("a", 120), Slot("a", 180)]
    found = account(Arrival("a", 121.0, None, "k"), Arrival("a", 181.0, None, "k"), slots=slots, period=60)
    assert (found.lost, found.doubled, len(found.repeated)) == ([slots[1]], [], 1)


def made(at: float, key: str) -> Arrival:
    return Arrival("a", at, int(at // 60) * 60, key, is_exact=False)


MINUTES = [Slot("a", at) for at in (120, 180, 240)]


def test_a_second_piece_of_work_that_only_tells_when_it_was_made_serves_a_missed_slot():
    found = account(made(121, "1"), made(245, "3"), made(246, "2"), made(250, "2"), slots=MINUTES, period=60)
    assert (found.lost, found.doubled, len(found.repeated)) == ([], [], 1)
    assert found.late == pytest.approx([1, 66, 5])


def test_it_is_a_double_where_no_slot_was_missed():
    found = account(*(made(slot.at + 1, str(slot.at)) for slot in MINUTES), made(246, "x"), slots=MINUTES, period=60)
    assert (found.lost, found.doubled) == ([], [MINUTES[2]])


def test_work_that_tells_its_slot_exactly_serves_no_other():
    found = account(*LOG[:1], LOG[2], replace(LOG[2], key="other"))
    assert (found.lost, found.doubled) == ([SLOTS[1]], [SLOTS[2]])


def test_schedules_do_not_share_keys():
    found = by_slot([Arrival("a", 121.0, None, "1"), Arrival("b", 181.0, None, "1")], 60)
    assert found.keys() == {Slot("a", 120), Slot("b", 180)}


def test_the_target_reads_what_peers_and_noonbell_tell():
    assert arrival(5.0, "/s1?slot=120.0&key=k", {}) == Arrival("s1", 5.0, 120, "k")
    assert arrival(5.0, "/s1?key=k", {}) == Arrival("s1", 5.0, None, "k")
    assert arrival(5.0, "/s1?made=120&key=k", {}) == Arrival("s1", 5.0, 120, "k", is_exact=False)
    assert arrival(5.0, "/s1?", {}) == Arrival("s1", 5.0)
    headers = {"x-noonbell-scheduled-time": "1970-01-01T00:02:00Z", "idempotency-key": "k"}
    assert arrival(5.0, "/s1", headers) == Arrival("s1", 5.0, 120, "k")


FORM = timeline.SECONDS


def test_an_entry_says_how_much_of_what_was_lost_the_store_knows():
    away = Slot("a", 100 + int(FORM.away[0]) + 1)
    found = Account(10, lost=[Slot("a", 101), away, Slot("a", 103)], late=[0.1, 0.2, 3.0])
    told = {Slot("a", 101): "failed", Slot("a", 103): "waiting", Slot("a", 104): "finished"}
    cells = dict(zip(HEAD, entry("X", FORM, 3, 7, 100, found, told, "1.0").row, strict=True))
    assert (cells["lost"], cells["… due while all were away"]) == ("3", "1")
    assert cells["… recorded in its store"] == "2: 1 failed, 1 waiting"
    assert cells["longest"] == "3.00 s"
    nothing = dict(zip(HEAD, entry("X", FORM, 3, 7, 100, found, None, "1.0").row, strict=True))
    assert nothing["… recorded in its store"] == "–"


def test_a_run_writes_its_entries_and_leaves_the_others():
    empty = "above\n<!-- peers: `make faults-peers` writes this -->\n\n\n\n<!-- end of peers -->\nbelow"
    first = [entry(name, FORM, 1, 1, 100, Account(5), {}, f"{name} as it was") for name in ("X", "X 2")]
    page = with_entries(empty, first, "machine 1")
    again = with_entries(page, [missing("X", FORM, "no\npackage"), missing("Y", FORM, "none")], "machine 2")
    names = [cells_of(each)[0] for each in again.splitlines() if each.startswith("| ")]
    assert names[2:] == ["X", "X 2", "Y"]
    assert "| X | second | **not run** |" in again
    assert "- **X** not run: no package" in again
    assert "- **X 2** X 2 as it was" in again
    assert "machine 1" not in again
    assert again.startswith("above\n")
    assert again.endswith("\nbelow")
    assert with_entries(again, [], "machine 2") == again


@pytest.mark.parametrize("form", [timeline.SECONDS, timeline.MINUTES, timeline.QUICK_SECONDS, timeline.QUICK_MINUTES])
def test_a_slot_is_due_in_the_downtime_and_one_after_it(form: timeline.Form):
    slots = form.expected(0, ["a"])
    assert any(form.in_downtime(0, slot) for slot in slots)
    assert slots[-1].at > form.away[1]
    assert form.kills_until < form.all_killed_at < form.away[0]


def test_kills_hit_the_moment_of_slots():
    times = timeline.kill_times(timeline.MINUTES, random.Random(1))
    for minute in range(5):
        assert any(0 <= at - minute * 60 <= 1 for at in times)


def test_the_page_about_faults_has_the_section():
    text = PAGE.read_text()
    assert "<!-- peers: `make faults-peers` writes this -->\n\n" in text
    assert "\n\n<!-- end of peers -->" in text
