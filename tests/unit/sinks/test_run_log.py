"""The line that each settled attempt leaves in the log."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest

from noonbell.clock import Instant
from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.model.run import Lease, Origin, RunId, RunStatus
from noonbell.model.settlement import Move, Settled, Settlement
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.sinks.logs import set_up
from noonbell.sinks.run_log import RunLog

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


class Answer:
    async def execute(self, assignment):
        return Outcome(kind=OutcomeKind.SUCCESS)


def settlement(move, **fields):
    return Settlement(run_id=LEASE.run_id, token=1, move=move, **fields)


async def test_the_line_has_everything_that_is_known(caplog):
    log = RunLog()
    await log.watch(Answer()).execute(Assignment(lease=LEASE, task=TASK))
    with caplog.at_level(logging.INFO):
        log.settled([(LEASE, settlement(Move.FINISH, status=RunStatus.SUCCESS), Settled.DONE)])
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("INFO", "run ended")
    assert (record.task_id, record.run_id, record.attempt, record.trace_id) == (
        1,
        42,
        2,
        "4bf92f3577b34da6a3ce929d0e0e4736",
    )
    assert (record.status, record.target_url, record.err) == ("SUCCESS", "http://x.example/a", None)
    assert record.latency_ms >= 0


@pytest.mark.parametrize(
    ("done", "answer", "level", "says", "status"),
    [
        (settlement(Move.FINISH, status=RunStatus.FAILED), Settled.DONE, "WARNING", "run ended", "FAILED"),
        (settlement(Move.RETRY, status=RunStatus.FAILED), Settled.DONE, "INFO", "run will be retried", "RETRYING"),
        (settlement(Move.PARK), Settled.DONE, "INFO", "run awaits its callback", "CALLBACK_PENDING"),
        (settlement(Move.RELEASE), Settled.DONE, "INFO", "run handed back", "SCHEDULED"),
        (settlement(Move.FINISH, status=RunStatus.SUCCESS), Settled.LOST, "WARNING", "result came too late", "SUCCESS"),
    ],
)
def test_what_came_of_it(caplog, done, answer, level, says, status):
    with caplog.at_level(logging.INFO):
        RunLog().settled([(LEASE, done, answer)])
    (record,) = caplog.records
    assert (record.levelname, record.status) == (level, status)
    assert record.getMessage().startswith(says)


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
        settlement(Move.FINISH, status=RunStatus.SUCCESS),
        settlement(Move.PARK),
        settlement(Move.FINISH, status=RunStatus.FAILED, error_message='bad "thing"\nat http://me:secret@x.example/'),
    ],
)
@pytest.mark.parametrize("url", ["http://x.example/a?token=secret", "http://x.example/a b=c", None])
async def test_lines_that_are_written_together_are_as_their_records_would_be(alone, as_json, done, url):
    async def lines_with(*others):
        stream = io.StringIO()
        set_up("info", as_json=as_json, stream=stream)
        for other in others:
            logging.getLogger().addHandler(other)
        log = RunLog()
        if url is not None:
            log._calls[LEASE.run_id] = (12.5, url)
        log.settled([(LEASE, done, Settled.DONE), (LEASE, done, Settled.LOST)])
        for other in others:
            logging.getLogger().removeHandler(other)
        lines = stream.getvalue().splitlines()
        return [re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z *", "", line) for line in lines]

    together, one_by_one = await lines_with(), await lines_with(logging.NullHandler())
    assert together == one_by_one
    assert len(together) == 2
    assert not any("secret" in line for line in together)


def test_below_the_level_nothing_is_written(alone):
    stream = io.StringIO()
    set_up("warning", as_json=True, stream=stream)
    failed = settlement(Move.FINISH, status=RunStatus.FAILED)
    fine = settlement(Move.FINISH, status=RunStatus.SUCCESS)
    RunLog().settled([(LEASE, fine, Settled.DONE), (LEASE, failed, Settled.DONE)])
    assert [json.loads(line)["status"] for line in stream.getvalue().splitlines()] == ["FAILED"]


async def test_nothing_is_kept_once_it_is_settled():
    log = RunLog()
    await log.watch(Answer()).execute(Assignment(lease=LEASE, task=TASK))
    log.settled([(LEASE, settlement(Move.FINISH, status=RunStatus.SUCCESS), Settled.DONE)])
    assert log._calls == {}
