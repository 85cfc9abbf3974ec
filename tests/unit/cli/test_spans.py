"""Spans of time on the command line: one rule for every option that takes one, and one text for what is none."""

from __future__ import annotations

import io

import click
import pytest

from noonbell.cli.options import interval
from noonbell.cli.output import exact_span
from noonbell.cli.root import COMMANDS, root
from noonbell.cli.run import moment

REMOTE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("text", "every", "unit"),
    [
        ("10", 10, "second"),
        ("300", 300, "second"),
        ("10s", 10, "second"),
        ("60s", 60, "second"),
        ("5m", 5, "minute"),
        ("1h30m", 90, "minute"),
        ("2 h", 2, "hour"),
        ("1.5h", 90, "minute"),
        ("24h", 24, "hour"),
        ("1d12h", 36, "hour"),
    ],
)
def test_an_interval_takes_every_span_and_a_bare_number_is_seconds(text, every, unit):
    assert interval(text) == {"type": "interval", "every": every, "unit": unit}


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("next", "--every"), "--every"),
        (("task", "create", "t", "--url", "http://a/", "--every"), "--every"),
        (("task", "create", "t", "--url", "http://a/", "--timeout"), "--timeout"),
        (("task", "disable", "t", "--for"), "--for"),
        (("trigger", "t", "--delay"), "--delay"),
        (("call", "http://a/", "--call-timeout"), "--call-timeout"),
        (("run", "list", "--since"), "--since"),
        (("run", "export", "--since"), "--since"),
        (("bulk", "start", "retry-runs", "--since"), "--since"),
        (("bulk", "start", "retry-runs", "--until"), "--until"),
        (("queue", "limit", "q", "--rate"), "--rate"),
        (("alert", "mute", "--for"), "--for"),
        (("token", "create", "--role", "viewer", "--name", "n", "--expires"), "--expires"),
    ],
)
def test_what_is_no_span_is_refused_in_the_same_words_by_every_option(noonbell, monkeypatch, words, option):
    monkeypatch.setenv("NOONBELL_URL", REMOTE)
    wrong = "5/soon" if option == "--rate" else "soon"
    code, out, err = noonbell(*words, wrong)
    assert (code, out) == (2, "")
    assert f"{option}: " in err or f"{option}':" in err
    assert "is 'soon'; expected 30s, 5m, 1h30m, or a number of seconds" in err


def test_the_test_above_knows_every_option_that_is_a_span():
    """A new one that reads spans in its own way would be another rule."""

    def options(command, path):
        if isinstance(command, click.Group):
            for name in command.list_commands(None):
                yield from options(command.get_command(None, name), (*path, name))
        else:
            yield from ((path, each) for each in command.params if each.metavar and "SPAN" in each.metavar)

    found = {
        name for name in COMMANDS for _, each in options(root.get_command(None, name), (name,)) for name in each.opts
    }
    assert found == {
        *("--every", "--timeout", "--for", "--delay", "--expires", "--throttle", "--debounce", "--max-wait"),
        *("--call-timeout", "--since", "--until", "--rate", "--spread", "--drain"),
    }


def test_an_interval_of_no_whole_seconds_says_so(noonbell):
    code, _, err = noonbell("next", "--every", "1.5")
    assert (code, "is '1.5', and a schedule has whole seconds; expected 30s, 5m, 1h30m" in err) == (2, True)
    code, _, err = noonbell("next", "--every", "0")
    assert (code, "or a number of seconds, above 0" in err) == (2, True)


def test_next_echoes_what_a_bare_number_is(noonbell):
    code, out, _ = noonbell("next", "--every", "10", "-n", "1")
    assert (code, "Every 10 seconds" in out) == (0, True)


@pytest.mark.parametrize("expr", ["1h30m", "every 10", "every 5m", "@every 90s"])
def test_an_interval_that_was_given_as_an_expression_names_the_option(noonbell, expr):
    code, _, err = noonbell("next", expr)
    assert (code, "noonbell next --every" in err) == (2, True)


def test_since_takes_a_span_a_bare_number_of_seconds_a_date_and_a_time(monkeypatch):
    from noonbell.clock import SystemClock

    monkeypatch.setattr(SystemClock, "now", lambda self: 1_000_000 * 1_000_000)
    assert moment("90") == moment("90s") == moment("1m30s") == "1970-01-12T13:45:10+00:00"
    assert moment("2026-11-19T10:00:00Z") == "2026-11-19T10:00:00+00:00"
    assert moment("20261119").startswith("2026-11-19T00:00:00")
    assert moment("10000000s") == moment("166666m40s")
    for slip in ("20261319", "1763200000"):
        with pytest.raises(click.BadParameter, match=f"is '{slip}'; expected 30s"):
            moment(slip)


def test_history_that_is_older_than_days_takes_a_unit_as_well(noonbell, monkeypatch):
    monkeypatch.setenv("NOONBELL_URL", REMOTE)
    code, _, err = noonbell("queue", "clean", "q", "--older-than", "soon")
    assert (code, "is 'soon'; expected a number of days, or 30m, 12h, 7d" in err) == (2, True)
    bare = (("7", "7 days"), (".5", "0.5 days"), ("5.", "5 days"), ("+30", "30 days"), ("1e2", "100 days"))
    for given, days in (*bare, ("7d", "7 days"), ("36h", "1.5 days")):
        monkeypatch.setattr("sys.stdin", io.StringIO())
        assert f"that ended over {days} ago" in noonbell("queue", "clean", "q", "--older-than", given)[2]


@pytest.mark.parametrize(
    ("seconds", "said"), [(2.0, "2 s"), (0.25, "250 ms"), (2.5, "2.5 s"), (5400, "1 h 30 m"), (90_000, "1 d 1 h")]
)
def test_a_span_is_said_back_without_rounding(seconds, said):
    assert exact_span(seconds) == said
