"""What is exported is short, and means the same as the task that it came from."""

from __future__ import annotations

import msgspec
import pytest

from noonbell.cli.task_files import task_as_written
from noonbell.clock import Instant
from noonbell.model.account import Activity
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.service.task_fields import Rules, read_task
from noonbell.service.tasks import shown

NOW = Instant(1_790_000_000_000_000)
HTTP = {"name": "t", "target_url": "http://h/"}
JOB = {"name": "t", "job_type": "j"}


def answered(given: dict) -> dict:
    """As `GET /tasks/{id}` answers."""
    draft = read_task(given, NOW, Rules())
    task = Task(
        id=TaskId(1),
        version=3,
        status=draft.status or TaskStatus.ENABLED,
        spec=draft.spec,
        created_at=NOW,
        updated_at=NOW,
        next_fire_at=NOW,
    )
    answer: dict = msgspec.json.decode(msgspec.json.encode(shown(task, Activity())))
    return answer


@pytest.mark.parametrize(
    "given",
    [
        HTTP,
        JOB,
        HTTP | {"cron_expr": "0 2 * * *", "timezone": "Asia/Shanghai"},
        HTTP | {"schedule": {"type": "cron", "expr": "0 0 2 * * *", "dialect": "cronjob"}},
        HTTP | {"schedule": {"type": "cron", "expr": "@daily", "repeat": 3}},
        HTTP | {"schedule": {"type": "interval", "every": 5, "unit": "minute"}},
        HTTP | {"schedule": {"type": "monthly", "day": -1, "time": "06:00:00"}},
        HTTP | {"max_concurrency": None, "overlap_action": "SKIP", "labels": {"team": "x"}, "priority": 5},
        HTTP | {"status": "DISABLED", "exec_type": "ASYNC", "http_method": "POST", "body_template": "{{run_id}}"},
        HTTP | {"retry_policy": {"max_retries": 2}, "start_at": "2026-01-01T00:00:00Z", "meta": {"a": [1]}},
        JOB | {"payload": {"a": None}, "queue": "slow", "fanout": {"workers": "all"}, "max_concurrency": 2},
        JOB | {"rate_limit": {"max": 5, "per_seconds": 1, "key": "user"}, "delivery": "at_most_once"},
    ],
    ids=str,
)
def test_reading_what_was_exported_gives_the_same_task(given):
    task = answered(given)
    exported = task_as_written(task)
    assert answered(exported) == task
    assert len(exported) <= len(given) + 1  # no defaults


def test_the_version_is_there_when_asked_for():
    assert task_as_written(answered(HTTP), versions=True)["version"] == 3
    assert "version" not in task_as_written(answered(HTTP))
