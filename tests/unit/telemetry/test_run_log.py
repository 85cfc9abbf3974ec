"""The line that each settled attempt leaves in the log."""

from __future__ import annotations

import io
import json
import logging
import re

import msgspec
import pytest

from noonbell.clock import Instant
from noonbell.model.run import Lease, Origin, RunId, RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.telemetry.logs import RunLogger, set_up

NOON = Instant(1_794_744_000_000_000)
LEASE = Lease(
    run_id=RunId(42),
    task_id=TaskId(1),
    task_version=1,
    worker_id="w",
    token=1,
    attempt=2,
    retry_count=1,
    lost_count=0,
    queue="http",
    priority=0,
    origin=Origin.SCHEDULE,
    scheduled_time=NOON,
    claimed_at=NOON,
    expires_at=NOON,
    deadline_at=NOON,
    trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
)
TASK = Task(
    id=TaskId(1),
    version=1,
    status=TaskStatus.ENABLED,
    spec=TaskSpec(name="a", target_url="http://x.example/a"),
    created_at=NOON,
    updated_at=NOON,
)


def settlement(move, **fields):
    return Settlement(run_id=LEASE.run_id, token=1, transition=move, **fields)


def test_the_line_has_everything_that_is_known(caplog):
    log = RunLogger(lambda _: TASK)
    with caplog.at_level(logging.INFO):
        log.settled([(LEASE, settlement(Transition.FINISH, status=RunStatus.SUCCESS), SettleResult.DONE, 0.0125)])
    (record,) = caplog.records
    assert (record.levelname, record.event, record.task_name) == ("INFO", "run ended", "a")
    assert (record.task_id, record.run_id, record.attempt, record.trace_id) == (
        1,
        42,
        2,
        "4bf92f3577b34da6a3ce929d0e0e4736",
    )
    assert (record.status, record.target_url, record.err) == ("SUCCESS", "http://x.example/a", None)
    assert record.latency_ms == 12.5


@pytest.mark.parametrize(
    ("done", "answer", "level", "says", "status"),
    [
        (settlement(Transition.FINISH, status=RunStatus.FAILED), SettleResult.DONE, "WARNING", "run ended", "FAILED"),
        (
            settlement(Transition.RETRY, status=RunStatus.FAILED),
            SettleResult.DONE,
            "INFO",
            "run will be retried",
            "RETRYING",
        ),
        (settlement(Transition.PARK), SettleResult.DONE, "INFO", "run awaits its callback", "CALLBACK_PENDING"),
        (settlement(Transition.RELEASE), SettleResult.DONE, "INFO", "run handed back", "SCHEDULED"),
        (
            settlement(Transition.FINISH, status=RunStatus.SUCCESS),
            SettleResult.LOST,
            "WARNING",
            "result came too late",
            "SUCCESS",
        ),
    ],
)
def test_what_came_of_it(caplog, done, answer, level, says, status):
    with caplog.at_level(logging.INFO):
        RunLogger().settled([(LEASE, done, answer, 0.0125)])
    (record,) = caplog.records
    assert (record.levelname, record.status) == (level, status)
    assert record.getMessage().startswith(says)


TRACE = '  File "jobs.py", line 7, in send\n    raise ValueError("no")\n'
RAISED = {
    "status": RunStatus.FAILED,
    "error_message": "ValueError: no\nat http://me:secret@x.example/",
    "error_details": {"kind": "error", "type": "ValueError", "traceback": TRACE},
}


def as_a_plain_program_has_it(*settled, level=logging.WARNING, task_of=lambda _: TASK):
    """What `logging.basicConfig()` shows."""
    stream, log = io.StringIO(), logging.getLogger("noonbell.runs")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    log.addHandler(handler)
    before, log.propagate = log.level, False
    log.setLevel(level)
    try:
        RunLogger(task_of).settled(settled)
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        log.propagate = True
    return stream.getvalue().splitlines()


def test_the_message_alone_names_task_run_attempt_outcome_and_error():
    line, *_ = as_a_plain_program_has_it((LEASE, settlement(Transition.FINISH, **RAISED), SettleResult.DONE, 0.0125))
    assert line == (
        "WARNING:noonbell.runs:run ended: a, run 42, attempt 2, FAILED: ValueError: no\\nat http://me:***@x.example/"
    )


def test_a_message_says_only_what_is_known():
    done = settlement(Transition.FINISH, status=RunStatus.SUCCESS)
    (line,) = as_a_plain_program_has_it(
        (LEASE, done, SettleResult.DONE, 0.0125), level=logging.INFO, task_of=lambda _: None
    )
    assert line == "INFO:noonbell.runs:run ended: task 1, run 42, attempt 2, SUCCESS"


def test_what_a_handler_raised_is_shown_with_where_it_was_raised():
    _, *lines = as_a_plain_program_has_it((LEASE, settlement(Transition.FINISH, **RAISED), SettleResult.DONE, 0.0125))
    assert lines == [
        "Traceback (most recent call last):",
        '  File "jobs.py", line 7, in send',
        '    raise ValueError("no")',
        "ValueError: no\\nat http://me:***@x.example/",
    ]


def test_of_an_attempt_that_is_tried_again_the_traceback_is_for_those_who_debug():
    again = (LEASE, settlement(Transition.RETRY, **RAISED), SettleResult.DONE, 0.0125)
    (line,) = as_a_plain_program_has_it(again)
    assert line.startswith("WARNING:noonbell.runs:run will be retried: a, run 42, attempt 2, RETRYING: ValueError: no")
    assert "Traceback (most recent call last):" in as_a_plain_program_has_it(again, level=logging.DEBUG)


def test_no_task_is_looked_up_for_a_line_that_has_no_reader():
    asked = []
    fine = settlement(Transition.FINISH, status=RunStatus.SUCCESS)
    lines = as_a_plain_program_has_it((LEASE, fine, SettleResult.DONE, 0.0125), task_of=asked.append)
    assert (lines, asked) == ([], [])


def test_what_the_program_has_switched_off_is_not_written(alone):
    stream = io.StringIO()
    set_up("info", as_json=True, stream=stream)
    logging.disable(logging.INFO)
    try:
        RunLogger().settled(
            [(LEASE, settlement(Transition.FINISH, status=RunStatus.SUCCESS), SettleResult.DONE, 0.0125)]
        )
    finally:
        logging.disable(logging.NOTSET)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_noonbells_own_line_names_the_task_beside_its_id(alone, as_json):
    stream = io.StringIO()
    set_up("info", as_json=as_json, stream=stream)
    RunLogger(lambda _: TASK).settled([(LEASE, settlement(Transition.FINISH, **RAISED), SettleResult.DONE, 0.0125)])
    first, *rest = stream.getvalue().splitlines()
    if as_json:
        line = json.loads(first)
        assert (line["task_id"], line["task_name"], line["msg"]) == (1, "a", "run ended")
        assert line["stack"][1] == '  File "jobs.py", line 7, in send'
        assert rest == []
    else:
        assert "run ended trace_id=4bf92f3577b34da6a3ce929d0e0e4736 task_id=1 task_name=a run_id=42" in first
        assert rest[1] == '    |   File "jobs.py", line 7, in send'


@pytest.fixture
def alone():
    """The log of runs with no listener but one of ours."""
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    for handler in before[1]:
        root.removeHandler(handler)
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    "done",
    [
        settlement(Transition.FINISH, status=RunStatus.SUCCESS),
        settlement(Transition.PARK),
        settlement(
            Transition.FINISH, status=RunStatus.FAILED, error_message='bad "thing"\nat http://me:secret@x.example/'
        ),
        settlement(Transition.FINISH, **RAISED),
        settlement(Transition.RETRY, **RAISED),
    ],
)
@pytest.mark.parametrize("url", ["http://x.example/a?token=secret", "http://x.example/a b=c", None])
async def test_lines_that_are_written_together_are_as_their_records_would_be(alone, as_json, done, url):
    async def lines_with(*others):
        stream = io.StringIO()
        set_up("info", as_json=as_json, stream=stream)
        for other in others:
            logging.getLogger().addHandler(other)
        spec = msgspec.structs.replace(TASK.spec, target_url=url)
        log = RunLogger(lambda _: msgspec.structs.replace(TASK, spec=spec))
        log.settled([(LEASE, done, SettleResult.DONE, 0.0125), (LEASE, done, SettleResult.LOST, None)])
        for other in others:
            logging.getLogger().removeHandler(other)
        lines = stream.getvalue().splitlines()
        return [re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z *", "", line) for line in lines]

    together, one_by_one = await lines_with(), await lines_with(logging.NullHandler())
    assert together == one_by_one
    assert sum("run_id" in line for line in together) == 2
    assert not any("secret" in line for line in together)


def test_below_the_level_nothing_is_written(alone):
    stream = io.StringIO()
    set_up("warning", as_json=True, stream=stream)
    failed = settlement(Transition.FINISH, status=RunStatus.FAILED)
    fine = settlement(Transition.FINISH, status=RunStatus.SUCCESS)
    RunLogger().settled([(LEASE, fine, SettleResult.DONE, 0.0125), (LEASE, failed, SettleResult.DONE, 0.0125)])
    assert [json.loads(line)["status"] for line in stream.getvalue().splitlines()] == ["FAILED"]
