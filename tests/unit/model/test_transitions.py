"""The table of allowed changes, against the table that people read."""

from __future__ import annotations

import pytest

from noonbell.model.run import BORN, FAILURES, FINAL, OVERLAPPING, SUCCEEDED, TRANSITIONS, RunStatus, final_status

FROM = {
    "SCHEDULED": {"RUNNING"},
    "RUNNING": {"SCHEDULED", "RETRYING"},
    "RETRYING": {"RUNNING", "CALLBACK_PENDING"},
    "CALLBACK_PENDING": {"RUNNING"},
    "SUCCESS": {"RUNNING"},
    # An earlier attempt's callback also finishes a run that waits for a further attempt.
    "CALLBACK_SUCCESS": {"CALLBACK_PENDING", "RUNNING", "SCHEDULED", "RETRYING"},
    "FAILED": {"RUNNING", "CALLBACK_PENDING"},
    "TIMEOUT": {"RUNNING"},
    "FAILED_TIMEOUT": {"CALLBACK_PENDING"},
    "CANCELED": {"SCHEDULED", "RUNNING", "RETRYING", "CALLBACK_PENDING"},
    "SKIPPED": {"SCHEDULED"},
}


@pytest.mark.parametrize("status", list(RunStatus))
def test_a_status_is_reached_from_exactly_the_ones_that_the_contract_names(status):
    assert {origin for origin, onward in TRANSITIONS.items() if status in onward} == FROM[status]


def test_the_statuses_are_the_eleven_of_document_002():
    assert {str(status) for status in RunStatus} == {
        *("SCHEDULED", "RUNNING", "SUCCESS", "FAILED", "TIMEOUT", "RETRYING", "CALLBACK_PENDING", "CALLBACK_SUCCESS"),
        *("FAILED_TIMEOUT", "CANCELED", "SKIPPED"),
    }


def test_every_status_has_its_row():
    assert list(TRANSITIONS) == list(RunStatus)


def test_nothing_leaves_a_final_status_and_everything_else_can_be_canceled():
    for status, onward in TRANSITIONS.items():
        assert (status in FINAL) == (not onward)
        assert status in FINAL or RunStatus.CANCELED in onward


def test_a_run_is_born_waiting_or_skipped():
    assert {"SCHEDULED", "SKIPPED"} == BORN


def test_every_status_can_be_reached_from_birth_and_reaches_an_end():
    seen, ahead = set(), list(BORN)
    while ahead:
        status = ahead.pop()
        if status not in seen:
            seen.add(status)
            ahead += TRANSITIONS[status]
    assert seen == set(RunStatus)


def test_the_groups_do_not_overlap_and_the_final_ones_are_complete():
    assert not OVERLAPPING & FINAL
    assert not SUCCEEDED & FAILURES
    assert SUCCEEDED | FAILURES | {RunStatus.SKIPPED} == FINAL


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("SCHEDULED", None),
        ("RUNNING", None),
        ("RETRYING", None),
        ("CALLBACK_PENDING", None),
        ("SUCCESS", "SUCCESS"),
        ("CALLBACK_SUCCESS", "SUCCESS"),
        ("FAILED", "FAILED"),
        ("TIMEOUT", "FAILED"),
        ("FAILED_TIMEOUT", "FAILED"),
        ("CANCELED", "CANCELED"),
        ("SKIPPED", "SKIPPED"),
    ],
)
def test_final_status_is_one_of_four_and_none_before_the_end(status, said):
    assert final_status(RunStatus(status)) == said
