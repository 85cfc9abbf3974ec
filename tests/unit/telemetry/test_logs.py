"""A record becomes one line that tells everything, gives no secret away, and cannot forge another line."""

from __future__ import annotations

import io
import json
import logging

import pytest

from noonbell.telemetry.logs import FIELDS, HumanLines, JsonLines, escaped, redacted, set_up


def record(msg="run ended", level=logging.INFO, exc_info=None, **extra):
    made = logging.LogRecord("noonbell", level, __file__, 1, msg, (), exc_info)
    made.created = 1_794_744_000.25
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return (type(caught), caught, caught.__traceback__)


ALL = {
    "trace_id": "4bf9",
    "task_id": 1,
    "task_name": "a",
    "run_id": 42,
    "attempt": 2,
    "status": "FAILED",
    "err": "http_5xx",
    "latency_ms": 12.5,
    "target_url": "http://x.example/a",
}


def test_a_json_line_has_the_fields_in_their_order():
    line = JsonLines().format(record(**ALL))
    assert list(json.loads(line)) == list(FIELDS)
    assert json.loads(line) == {"ts": "2026-11-15T12:00:00.25Z", "level": "info", "msg": "run ended", **ALL}


def test_a_field_that_is_not_known_is_left_out():
    assert list(json.loads(JsonLines().format(record()))) == ["ts", "level", "msg"]


def test_a_line_for_people():
    line = HumanLines().format(record(run_id=42, status="SUCCESS", err="two words"))
    assert line == '2026-11-15T12:00:00.250Z info    run ended run_id=42 status=SUCCESS err="two words"'


@pytest.mark.parametrize("formatter", [JsonLines(), HumanLines()])
@pytest.mark.parametrize(
    "evil", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\x85b", "a\u2028b", "a\u202eb", "a\x00b", "a\ud800b"]
)
def test_nothing_in_a_record_can_forge_a_line(formatter, evil):
    line = formatter.format(record(msg=evil, err=evil, target_url=evil))
    assert len(line.splitlines()) == 1
    assert line.encode()
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or char in "\u2028\u202e" for char in line)


def test_what_is_written_out_can_be_told_apart():
    assert escaped("a\n\x1b\u2028") == "a\\n\\x1b\\u2028"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hunter2@db/x", "postgresql://me:***@db/x"),
        ("GET https://x.example/?a=1&token=hunter2&b=2", "GET https://x.example/?a=1&token=***&b=2"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: Bearer ***"),
        ("/api/v1/callbacks/hunter2hunter2hunter2", "/api/v1/callbacks/***"),
        ("nothing secret: http://x.example/a?b=c", "nothing secret: http://x.example/a?b=c"),
    ],
)
def test_secrets_are_not_written(text, shown):
    assert redacted(text) == shown


def test_an_error_that_nobody_expected_brings_its_stack():
    error = raised(ValueError("bad\nthing at postgresql://me:hunter2@db/x"))
    line = json.loads(JsonLines().format(record(exc_info=error)))
    assert line["err"] == "ValueError: bad\\nthing at postgresql://me:***@db/x"
    assert any("raised" in row for row in line["stack"])
    text = HumanLines().format(record(exc_info=error))
    assert all(row.startswith("    | ") for row in text.splitlines()[1:])
    assert "hunter2" not in text


@pytest.fixture
def root():
    logger = logging.getLogger()
    before = (logger.level, list(logger.handlers))
    yield logger
    logger.setLevel(before[0])
    for handler in list(logger.handlers):
        if handler not in before[1]:
            logger.removeHandler(handler)


def test_setting_up_twice_writes_each_line_once(root):
    first, second = io.StringIO(), io.StringIO()
    set_up("info", as_json=True, stream=first)
    set_up("warning", as_json=False, stream=second)
    logging.getLogger("noonbell.test").info("quiet")
    logging.getLogger("noonbell.test").warning("loud")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1
    assert "warning loud" in second.getvalue()
