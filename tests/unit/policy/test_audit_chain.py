"""What a check of the audit log says, entry by entry: table tests without a store."""

from __future__ import annotations

import msgspec
import pytest

from noonbell.clock import Instant
from noonbell.model.access import AuditAction, AuditEnd, AuditEntry, Head, chained
from noonbell.policy.audit_chain import CHECKED_TO, ROTATION, ChainCheck, LogState

GOOD = "k1"
"""The key that is at hand; its signature of a hash is the hash itself."""


def is_signed(text: str, signature: str) -> bool | None:
    key_id, _, made = signature.partition(":")
    return made == text if key_id == GOOD else None


def log(*marks: str) -> list[AuditEntry]:
    """An entry for each mark: `-` has no signature, `x` a wrong one, `k1` a good one, `vN` is a rotation that checked up to N."""
    entries: list[AuditEntry] = []
    for number, mark in enumerate(marks, 1):
        vouches = mark.startswith("v")
        deed = AuditAction(
            actor="ada",
            action=ROTATION if vouches else "create_task",
            details={CHECKED_TO: int(mark[1:])} if vouches else {},
        )
        hashed = chained(entries[-1].hash if entries else "", number, number, deed)
        key_id = GOOD if vouches else mark
        signature = None if mark == "-" else f"{GOOD}:nonsense" if mark == "x" else f"{key_id}:{hashed}"
        entries.append(AuditEntry(id=number, at=Instant(number), deed=deed, hash=hashed, signature=signature))
    return entries


def check(entries, *, keys=True, expected=(), before=None, counted=None) -> LogState:
    one = ChainCheck(is_signed if keys else None, expected, before)
    one.take(entries)
    newest = entries[-1] if entries else before
    return one.finish(AuditEnd(newest, (newest.id if newest else 0) if counted is None else counted))


def told(state: LogState) -> list[tuple[str, int, int]]:
    return [(str(flaw.wrong), flaw.first, flaw.last) for flaw in state.flaws]


@pytest.mark.parametrize(
    "marks, expected",
    [
        ([], []),
        (["k1", "k1"], []),
        (["-", "-", "k1"], []),
        (["-", "-"], [("never_signed", 1, 2)]),
        (["k1", "-", "-", "k1", "-"], [("unsigned", 2, 3), ("unsigned", 5, 5)]),
        (["k1", "x", "k1"], [("forged", 2, 2)]),
        (["k0", "k0", "k1"], [("unknown_key", 1, 2)]),
        (["k0", "-", "k1"], [("unknown_key", 1, 1), ("unsigned", 2, 2)]),
        (["k0", "k0", "v2", "k1"], []),
        (["k0", "k0", "v1", "k1"], [("unknown_key", 2, 2)]),
        (["k0", "v1", "k0", "k1"], [("unknown_key", 3, 3)]),
        (["k0", "v2"], [("unknown_key", 1, 1)]),
        (["k0", "v9"], [("unknown_key", 1, 1)]),
        (["k1", "x", "v2"], [("forged", 2, 2)]),
    ],
)
def test_what_is_wrong_with_signatures(marks, expected):
    assert told(check(log(*marks))) == expected
    assert told(check(log(*marks), keys=False)) == []


def test_a_rotation_that_no_key_signed_vouches_for_nothing():
    entries = log("k0", "k0", "v2")
    for signature in (None, f"{GOOD}:nonsense", f"k0:{entries[2].hash}"):
        forged = [*entries[:2], msgspec.structs.replace(entries[2], signature=signature)]
        assert ("unknown_key", 1, 2) in [(kind, first, min(last, 2)) for kind, first, last in told(check(forged))]


def test_a_rotation_that_was_changed_vouches_for_nothing():
    entries = log("k0", "k0", "v1")
    raised = msgspec.structs.replace(entries[2].deed, details={CHECKED_TO: 2})
    forged = [*entries[:2], msgspec.structs.replace(entries[2], deed=raised)]
    assert told(check(forged)) == [("unknown_key", 1, 2), ("changed", 3, 3)]


def test_an_expected_head_vouches_for_what_is_before_it_and_for_nothing_after():
    entries = log("k1", "-", "k0", "-", "k1")
    assert told(check(entries, expected=[Head(3, entries[2].hash)])) == [("unsigned", 4, 4)]
    assert told(check(entries, expected=[Head(5, entries[4].hash)])) == []
    assert told(check(log("-", "-"), expected=[Head(1, log("-")[0].hash)])) == [("never_signed", 2, 2)]


def test_an_expected_head_that_is_not_there_is_told():
    entries = log("k1", "k1")
    assert told(check(entries, expected=[Head(2, "a" * 64)])) == [("replaced", 2, 2)]
    assert told(check(entries, expected=[Head(4, "a" * 64)])) == [("cut", 3, 4)]
    assert told(check([], expected=[Head(4, "a" * 64)])) == [("cut", 1, 4)]


def test_the_counter_and_the_entries_must_agree():
    assert told(check(log("k1", "k1"), counted=5)) == [("cut", 3, 5)]
    assert told(check(log("k1", "k1"), counted=1)) == [("changed", 2, 2)]
    assert told(check([], counted=3)) == [("cut", 1, 3)]


def test_a_check_may_begin_in_the_middle():
    entries = log("-", "k1", "-", "k1")
    assert told(check(entries[2:], before=entries[1])) == [("unsigned", 3, 3)]
    assert told(check(entries[1:], before=entries[0])) == [("unsigned", 3, 3)]
    state = check(entries[3:], before=entries[2])
    assert (state.since, state.signed, state.signed_since, told(state)) == (4, 1, 4, [])
    assert told(check([], before=entries[3])) == []


def test_a_gap_is_told_once_and_the_rest_is_looked_at():
    entries = log(*["k1"] * 6)
    assert told(check([*entries[:2], *entries[3:]])) == [("changed", 4, 4)]
    assert told(check(entries[1:], counted=6)) == [("changed", 2, 2)]


def test_flaws_without_end_are_told_in_bounds_and_none_is_lost():
    entries = log("k1", *["-", "k1"] * 1500)
    flaws = check(entries).flaws
    assert (len(flaws), flaws[0].first, flaws[-1].last) == (1_000, 2, 3_000)
    assert told(check(entries, expected=[Head(2_999, entries[2_998].hash)])) == [("unsigned", 3_000, 3_000)]


@pytest.mark.parametrize("text", ["", "1", ":", f"1:{'A' * 64}", f"01:{'a' * 64}", f"1:{'a' * 64}b", f"-1:{'a' * 64}"])
def test_a_head_is_read_as_it_is_written_and_nothing_else(text):
    head = Head(512, "0123456789abcdef" * 4)
    assert Head.read(f" {head}\n") == head
    with pytest.raises(ValueError, match="NUMBER:HASH"):
        Head.read(text)
