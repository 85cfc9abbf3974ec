"""The options of `@app.job`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from noonbell import App
from noonbell.app.job import NAMES, declared
from noonbell.errors import InvalidArgument
from noonbell.model.target_kind import JOBS, TARGET_KINDS
from noonbell.model.task import TaskSpec


def problems_of(**options) -> dict[str, str]:
    with pytest.raises(InvalidArgument) as refused:
        declared("job", options)
    return refused.value.details


def test_every_field_of_a_job_task_is_an_option():
    of_others = {name for kind in TARGET_KINDS if kind is not JOBS for name in kind.fields}
    settled = {"managed_by", "exec_type", "job_type", *of_others}
    assert {*TaskSpec.__struct_fields__} - settled - NAMES == set()


def test_an_unknown_option_is_refused_with_the_nearest_name():
    assert problems_of(max_concurency=1) == {
        "max_concurency": "is not an option of a job; did you mean max_concurrency?"
    }


@pytest.mark.parametrize("way", ["job", "name", "list", "mapping", "mapping of jobs"])
def test_a_job_runs_after_another_named_in_any_way(way):
    app = App()

    @app.job
    def extract() -> None: ...

    given = {
        "job": extract,
        "name": "extract",
        "list": [extract],
        "mapping": {"tasks": [{"task": "extract"}]},
        "mapping of jobs": {"tasks": [{"task": extract}]},
    }[way]
    assert declared("job", {"after": given}).task["after"] == {"tasks": [{"task": "extract"}]}


def test_what_is_no_upstream_is_refused():
    assert problems_of(after=7.5).keys() == {"after.tasks[0].task"}
    assert problems_of(after={"tasks": "extract"}).keys() == {"after.tasks"}
    assert problems_of(after={"tasks": [{"task": "a", "on": "never"}]}).keys() == {"after.tasks[0].on"}


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"cron": "*/5 * * * *"}, {"cron_expr": "*/5 * * * *"}),
        ({"every": 90}, {"schedule": {"type": "interval", "every": 90, "unit": "second"}}),
        ({"every": "5m"}, {"schedule": {"type": "interval", "every": 5, "unit": "minute"}}),
        ({"every": timedelta(minutes=2)}, {"schedule": {"type": "interval", "every": 120, "unit": "second"}}),
        ({"timeout": timedelta(minutes=1)}, {"timeout_seconds": 60}),
        ({"timeout": 2.5}, {"timeout_seconds": 2.5}),
        ({"retries": 5}, {"retry_policy": {"max_retries": 5}}),
        (
            {"retries": 5, "retry_policy": {"strategy": "fixed"}},
            {"retry_policy": {"strategy": "fixed", "max_retries": 5}},
        ),
        ({"overlap_action": "SKIP", "queue": "mail"}, {"overlap_action": "SKIP", "queue": "mail"}),
    ],
)
def test_an_option_becomes_a_field_of_the_task(options, fields):
    assert declared("job", options).task == {"name": "job", "job_type": "job", **fields}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"cron": "99 * * * *"}, "cron"),
        ({"cron": "* * * * *", "every": 5}, "every"),
        ({"every": 0.5}, "every"),
        ({"every": "five minutes"}, "every"),
        ({"every": "0s"}, "schedule.every"),
        ({"timeout": "60"}, "timeout"),
        ({"timeout": 5, "timeout_seconds": 5}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"retries": 1, "retry_policy": {"max_retries": 1}}, "retries"),
        ({"retry_policy": {"strategy": "slow"}}, "retry_policy.strategy"),
        ({"timezone": "Europe/Nowhere"}, "timezone"),
        ({"overlap_action": "WAIT"}, "overlap_action"),
        ({"queue": "http"}, "queue"),
        ({"sandbox": "yes"}, "sandbox"),
        ({"memory_mb": 64}, "memory_mb"),
        ({"sandbox": True, "memory_mb": 0}, "memory_mb"),
        ({"target_url": "http://x.test"}, "target_url"),
    ],
)
def test_a_wrong_option_is_refused_by_the_name_that_was_written(options, field):
    assert list(problems_of(**options)) == [field]


def test_the_kind_of_handler_is_no_business_of_the_task():
    job = declared("job", {"sandbox": True, "memory_mb": 64})
    assert (job.sandbox, job.memory_mb) == (True, 64)
    assert job.task == {"name": "job", "job_type": "job"}


def test_a_cron_may_name_its_dialect():
    task = declared("report", {"cron": "0 0 9 * * 2", "dialect": "quartz"}).task
    assert (task["cron_expr"], task["cron_dialect"]) == ("0 0 9 * * 2", "quartz")
    assert "dialect" not in task


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cron": "0 0 9 * * 2", "dialect": "spring"}, "dialect"),
        ({"cron": "0 0 9 * * 0", "dialect": "quartz"}, "cron"),
        ({"dialect": "quartz"}, "dialect"),
        ({"cron": "@daily", "dialect": "quartz", "cron_dialect": "quartz"}, "dialect"),
    ],
)
def test_a_dialect_that_cannot_be_is_told_by_its_option(options, named):
    with pytest.raises(InvalidArgument) as refused:
        declared("report", options)
    assert named in refused.value.details
