"""The language of the filter bar, and the same question as a call and as a command."""

from __future__ import annotations

import shlex

import pytest

from noonbell.clock import SECOND, Instant
from noonbell.model.run import RunStatus
from noonbell.service.translation import Translator
from noonbell.web import lists
from noonbell.web.lists import RUN_GRAMMAR, TASK_GRAMMAR, read_typed_moment

NOW = Instant(1_800_000_000 * SECOND)


def read(text: str, grammar=RUN_GRAMMAR) -> dict[str, str]:
    return grammar.read(text, lambda parameter, value: value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("night report", {"search": "night report"}),
        ("status:failed", {"status": "failed"}),
        ("status:failed status:timeout late", {"status": "failed,timeout", "search": "late"}),
        ("STATUS:failed", {"status": "failed"}),
        ("label:team=billing", {"label": "team=billing"}),
        ('label:team="a b" x', {"label": "team=a b", "search": "x"}),
        ('task:"my task"', {"task": "my task"}),
        ("task:a task:b", {"task": "b"}),
        ("after:24h before:2026-01-01", {"from": "24h", "to": "2026-01-01"}),
        ("http://x:80/y", {"search": "http://x:80/y"}),
        ("status:", {"search": "status:"}),
        ('"status:failed"', {"search": "status:failed"}),
    ],
)
def test_words_with_a_key_are_filters_and_the_rest_is_text(text, found):
    assert read(text) == found


@pytest.mark.parametrize("parameter", [*RUN_GRAMMAR.keys.values()])
def test_what_a_filter_is_written_as_reads_back_as_it(parameter):
    assert read(RUN_GRAMMAR.token(parameter, "a b")) == {parameter: "a b"}


def test_each_list_has_its_own_keys():
    assert read("worker:w1", TASK_GRAMMAR) == {"name": "worker:w1"}
    assert read("worker:w1") == {"worker": "w1"}


@pytest.mark.parametrize(
    ("text", "zone", "found"),
    [
        ("24h", "UTC", "2027-01-14T08:00:00Z"),
        ("30m", "UTC", "2027-01-15T07:30:00Z"),
        ("2026-11-15", "Asia/Tokyo", "2026-11-14T15:00:00Z"),
        ("2026-11-15T02:30", "Asia/Tokyo", "2026-11-14T17:30:00Z"),
        ("2026-11-15T02:30:00Z", "Asia/Tokyo", "2026-11-15T02:30:00Z"),
        ("soon", "UTC", "soon"),
    ],
)
def test_a_moment_is_a_span_a_day_or_a_time_on_the_visitors_clock(text, zone, found):
    assert read_typed_moment(text, NOW, zone) == found


def test_a_status_may_be_written_in_words_of_either_language():
    aliases = lists.status_aliases(RunStatus, Translator("zh"), {"failed": "FAILED,TIMEOUT"})
    assert aliases["waiting_for_callback"] == aliases["等待回调"] == aliases["callback_pending"] == "CALLBACK_PENDING"
    assert aliases["failed"] == "FAILED,TIMEOUT"


def test_a_command_has_the_options_that_there_are_and_else_asks_the_api():
    assert lists.cli_line("runs", {"status": "FAILED,TIMEOUT", "task": "a b"}) == (
        "noonbell run list --status FAILED --status TIMEOUT --task 'a b'"
    )
    assert lists.cli_line("tasks", {}) == "noonbell task list"
    assert lists.cli_line("runs", {"label": "team=x"}) == "noonbell api GET '/runs?label=team=x'"


def test_what_is_copied_is_one_word_of_a_shell_whatever_is_in_it():
    wicked = "'; rm -rf / #$(id)`id`&"
    words = shlex.split(lists.curl_line("http://h:1", "runs", {"text": wicked}, with_token=True))
    assert len(words) == 5
    assert words[:4] == ["curl", "-s", "-H", "Authorization: Bearer $NOONBELL_TOKEN"]
    assert words[4].startswith("http://h:1/api/v1/runs?text=")
    assert len(shlex.split(lists.cli_line("tasks", {"name": wicked}))) == 5
