"""The texts that keys are made of never change: a run of an older version must keep its key after an upgrade."""

from __future__ import annotations

import hashlib

from noonbell.model.run import idempotency_key_of, key_of_asked, key_of_part, key_of_slot


def digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def test_what_each_kind_of_key_is_made_of():
    assert key_of_slot("here", "uid", 1767348000000000) == digits("slot here uid 1767348000000000")
    assert key_of_part("parent", 1, 3) == digits("part parent 1 3")


def test_keys_as_they_were_made_on_the_first_day():
    assert key_of_slot("here", "uid", 1767348000000000) == "37da6ff0cc493efc76e2b03aaa7071fd"
    assert key_of_part("parent", 1, 3) == "927f051db47609cda106384a4f09fee6"


def test_a_run_without_a_stored_key_keeps_the_former_form():
    assert idempotency_key_of(42, 1767348000_000_000, None) == "noonbell-42-1767348000"
    assert idempotency_key_of(42, 1767348000_000_000, "stored") == "stored"


def test_the_key_of_a_run_that_was_asked_for_is_that_of_the_installation_and_of_the_run():
    assert idempotency_key_of(42, 1767348000_000_000, key_of_asked("here")) == "here-42"
