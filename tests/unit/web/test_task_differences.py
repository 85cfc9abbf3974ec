"""Two people changed one task: who alone changed a field is taken, and where both did, somebody has to choose."""

from __future__ import annotations

import pytest

from noonbell.errors import InvalidArgument
from noonbell.web import task_form_page as task_preview
from noonbell.web import task_form_page as task_yaml
from noonbell.web.forms import write_yaml
from noonbell.web.task_versions import differences, settled, taken

BASE = {"name": "a", "cron_expr": "0 1 * * *", "description": "", "enabled": "on", "version": "1"}


def test_who_alone_changed_a_field_is_taken_and_both_is_a_conflict():
    mine = {**BASE, "cron_expr": "0 2 * * *", "description": "mine"}
    theirs = {**BASE, "name": "b", "description": "theirs", "version": "2"}
    found = {each.name: each for each in differences(BASE, mine, theirs)}
    assert {name: (each.take, each.is_conflict) for name, each in found.items()} == {
        "name": ("theirs", False),
        "cron_expr": ("mine", False),
        "description": ("mine", True),
    }
    shown = settled(mine, list(found.values()))
    assert (shown["name"], shown["cron_expr"], shown["description"]) == ("b", "0 2 * * *", "mine")


def test_a_box_that_was_not_ticked_is_not_sent_and_counts_as_off():
    mine = {name: value for name, value in BASE.items() if name != "enabled"}
    (choice,) = differences(BASE, mine, BASE)
    assert (choice.name, choice.mine, choice.theirs) == ("enabled", "", "on")


def test_a_version_that_nobody_knows_any_longer_makes_every_difference_a_conflict():
    (choice,) = differences(None, {**BASE, "name": "x"}, BASE)
    assert (choice.base, choice.take, choice.is_conflict) == (None, "mine", True)


def test_choices_are_made_and_leave_the_form():
    theirs = {**BASE, "name": "b"}
    fields = {**BASE, "take-name": "theirs", "take-cron_expr": "mine", "take-nonsense": "theirs"}
    assert taken(fields, theirs) == {**BASE, "name": "b"}


# YAML


@pytest.mark.parametrize(
    "text",
    ["a: &x [1]\nb: *x", "- a", "just words", "a: [", "tasks: [{name: a}, {name: b}]", "? [1]\n: 2", "x" * 200_001, ""],
    ids=["alias", "list", "words", "broken", "two", "key", "long", "empty"],
)
async def test_what_is_not_one_task_is_refused(text):
    with pytest.raises(InvalidArgument):
        await task_yaml.read_task(text)


async def test_a_task_comes_back_as_it_was_written_and_moments_are_text():
    given = {"name": "一 b", "labels": {"team": "x"}, "schedule": {"type": "cron", "expr": "0 2 * * *", "repeat": None}}
    assert await task_yaml.read_task(await write_yaml(lambda: given, width=100)) == given
    assert await task_yaml.read_task("tasks:\n- name: a\n  start_at: 2027-01-01T00:00:00Z") == {
        "name": "a",
        "start_at": "2027-01-01T00:00:00Z",
    }


# What is meant


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("*/5 * * * *", "five"),
        ("0 */5 * * * *", "six"),
        ("0 0 12 ? * 2-6", "quartz"),
        ("0 23 L * *", "quartz"),
        ("0 0 * * 5#3", "quartz"),
        ("0 0 * JUL WED", "five"),
        ("@daily", "nickname"),
    ],
)
def test_the_dialect_has_a_name(text, dialect):
    assert task_preview.dialect_of({"type": "cron", "expr": text}) == dialect


def test_words_are_proposed_with_what_they_would_mean_and_crons_are_left_alone():
    meant = task_preview.meant({"when": "cron", "cron_expr": "every weekday at 2:30"}, "en")
    assert meant is not None
    assert meant.fields == {"when": "cron", "cron_expr": "30 2 * * 1-5"}
    assert "Monday" in meant.sentence
    every = task_preview.meant({"when": "cron", "cron_expr": "每45分钟"}, "zh")
    assert every is not None
    assert every.fields == {"when": "interval", "every": "45", "unit": "minute"}
    assert task_preview.meant({"when": "cron", "cron_expr": "0 2 * * *"}, "en") is None
    assert task_preview.meant({"when": "weekly", "cron_expr": "daily"}, "en") is None
