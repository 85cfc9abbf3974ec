"""YAML from a page: short texts are read here, long ones by a process that can be ended."""

from __future__ import annotations

import pytest

from noonbell.errors import InvalidArgument
from noonbell.web import forms
from noonbell.web.forms import read_yaml

MOST = 1_000_000
LONG = "# a comment\n" * 1_000
"""Before a text, it makes a long one of it."""


@pytest.mark.parametrize("before", ["", LONG], ids=["short", "long"])
async def test_a_text_says_the_same_whoever_reads_it(before):
    text = before + "tasks:\n- name: 一\n  start_at: 2027-01-01T00:00:00Z\n  day: 2027-01-02\n  x: {a: 1.5, 2: null}\n"
    assert await read_yaml(text, MOST) == {
        "tasks": [{"name": "一", "start_at": "2027-01-01T00:00:00Z", "day": "2027-01-02", "x": {"a": 1.5, "2": None}}]
    }


@pytest.mark.parametrize("before", ["", LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x", "alias"),
        ("a: [", "neither YAML nor JSON"),
        ("a: .nan", "JSON"),
        ("a: !!python/object:os.system x", "neither YAML nor JSON"),
        ("a: !!binary aGVsbG8=", "JSON cannot represent"),
        ("[" * 70 + "]" * 70, "deeper"),
        ("[" * 200_000, "nested too deep"),
    ],
)
async def test_what_cannot_be_taken_is_refused_with_its_reason(before, text, message):
    with pytest.raises(InvalidArgument, match=message):
        await read_yaml(before + text, MOST)


async def test_a_text_that_would_take_hours_is_given_up(monkeypatch):
    to_the_base_of_60 = "- 1" + ":1" * 300_000
    monkeypatch.setattr(forms, "_PROCESSOR_SECONDS", 1)
    with pytest.raises(InvalidArgument, match="too long to read"):
        await read_yaml(to_the_base_of_60, MOST)


async def test_a_text_that_is_too_long_is_not_read():
    with pytest.raises(InvalidArgument, match="expected 10 at most"):
        await read_yaml("a" * 11, 10)
