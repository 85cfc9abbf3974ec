"""The form of a task: what it shows and what it asks for are inverse, and nothing is lost by saving."""

from __future__ import annotations

import pytest

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument
from noonbell.model.account import Activity
from noonbell.model.task import RetryPolicy, Task, TaskId, TaskSpec, TaskStatus
from noonbell.service.task_fields import Rules, read_task
from noonbell.service.tasks import shown
from noonbell.service.translation import LANGUAGES, catalogue
from noonbell.web import task_form

NOW = Instant(1_800_000_000_000_000)

TASKS = [
    {"name": "plain", "target_url": "http://h/x"},
    {"name": "post", "target_url": "http://h/x", "http_method": "POST", "body_template": "a\nb {{run_id}}"},
    {"name": "cron", "target_url": "http://h/x", "cron_expr": "*/7 2 * * 1-5", "timezone": "Asia/Shanghai"},
    {"name": "dialect", "target_url": "http://h/x", "schedule": {"type": "cron", "expr": "1 2 * * *", "repeat": 3}},
    {"name": "every", "target_url": "http://h/x", "schedule": {"type": "interval", "every": 5, "unit": "minute"}},
    {"name": "week", "target_url": "http://h/x", "schedule": {"type": "weekly", "weekday": 1, "time": "09:00:00"}},
    {"name": "month", "target_url": "http://h/x", "schedule": {"type": "monthly", "day": -1, "time": "09:00:00"}},
    {"name": "once", "target_url": "http://h/x", "schedule": {"type": "once", "at": "2030-01-01T00:00:00Z"}},
    {"name": "job", "job_type": "resize", "payload": {"big": 2**63 - 1}, "queue": "pdf", "max_concurrency": 3},
    {
        "name": "all",
        "target_url": "http://h/x",
        "exec_type": "ASYNC",
        "callback_timeout_sec": 77,
        "headers": {"Accept": "b: c"},
        "labels": {"team": "a=b"},
        "retry_policy": {"max_retries": 4, "initial_delay": 2.5, "max_delay": 9, "retry_on": ["5xx"], "jitter": 0.5},
        "rate_limit": {"max": 3, "per_seconds": 10},
        "max_concurrency": None,
        "overlap_action": "SKIP",
        "misfire_policy": "CATCH_UP_LIMITED",
        "catchup_limit": 4,
        "meta": {"retention_days": 3},
        "start_at": "2030-01-01T00:00:00Z",
        "on_lost": "FAIL",
        "timeout_seconds": 1.5,
    },
]


def task_of(given) -> Task:
    spec = read_task(given, NOW, Rules()).spec
    return Task(id=TaskId(1), version=1, status=TaskStatus.ENABLED, spec=spec, created_at=NOW, updated_at=NOW)


@pytest.mark.parametrize("given", TASKS, ids=lambda given: given["name"])
def test_what_the_form_shows_is_what_saving_it_asks_for(given):
    task = task_of(given)
    fields = task_form.fields_of(shown(task, Activity()))
    asked = task_form.change_of(fields, shown(task, Activity()))
    assert asked.pop("status") == "ENABLED"
    assert read_task(asked, NOW, Rules(), kept=task.spec).spec == task.spec


def test_every_slip_is_told_by_its_field_at_once():
    fields = {
        **task_form.EMPTY,
        "kind": "job",
        "payload": "{",
        "labels": "no equals",
        "priority": "many",
        "rest": "[1]",
        "when": "interval",
        "every": "x",
    }
    with pytest.raises(InvalidArgument) as caught:
        task_form.given_of(fields)
    assert sorted(caught.value.details) == ["every", "labels", "payload", "priority", "rest"]


def test_a_problem_of_the_service_is_shown_at_the_field_that_it_is_about():
    error = InvalidArgument.fields(
        {
            "schedule.expr": "is bad",
            "target_url": "is missing",
            "retry_policy.max_retries": "is -1",
            "fanout": "is odd",
            "rate_limit.per_seconds": "is missing",
            "on_lost": "is odd",
        }
    )
    found = task_form.problems_of(error)
    boxes = {"cron_expr", "target_url", "max_retries", "fanout_workers", "rate_limit_per_seconds"}
    assert set(found) == {*boxes, ""}
    assert found[""] == "on_lost: is odd"


@pytest.mark.parametrize("given", TASKS, ids=lambda given: given["name"])
def test_a_default_of_the_installation_does_not_reach_a_task_that_is_saved_unchanged(given):
    other = Rules(http_retry=RetryPolicy(max_retries=7, max_delay=11), job_retry=RetryPolicy(max_retries=7, jitter=0.4))
    task = task_of(given)
    asked = task_form.change_of(task_form.fields_of(shown(task, Activity())), shown(task, Activity()))
    assert asked.pop("status") == "ENABLED"
    assert read_task(asked, NOW, other, kept=task.spec).spec == task.spec


def test_what_is_taken_out_of_the_rest_has_its_default_again():
    task = task_of(
        {"name": "a", "target_url": "http://h/x", "queue_depth": 3, "retry_policy": {"max_retries": 1, "jitter": 1}}
    )
    fields = {**task_form.fields_of(shown(task, Activity())), "rest": ""}
    asked = task_form.change_of(fields, shown(task, Activity()))
    assert "queue_depth" not in asked
    assert "jitter" not in asked["retry_policy"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_kind_of_schedule_and_target_and_every_box_of_theirs_has_its_words(lang):
    boxes = (*task_form.SCHEDULE_BOXES, *task_form.TARGET_BOXES)
    asked = {f"when.{kind}" for kind in task_form.WHENS} | {f"kind.{kind}" for kind in task_form.KINDS}
    asked |= {f"field.{box.name}" for box in boxes}
    asked |= {f"{box.prefix}{option}" for box in boxes for option in box.options}
    assert sorted(asked - set(catalogue(lang))) == []


def test_no_box_of_a_schedule_has_the_name_of_a_field_of_a_task():
    assert {*task_form.SCHEDULE} & {*TaskSpec.__struct_fields__, *RetryPolicy.__struct_fields__} == set()
