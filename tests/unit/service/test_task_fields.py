"""Every field of a task: what it takes, what it refuses, what it is when it is left out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from noonbell.clock import Instant, from_datetime, rfc3339
from noonbell.errors import InvalidArgument
from noonbell.fields.kinds import read_moment
from noonbell.fields.problems import MOST_PROBLEMS
from noonbell.model.task import RetryPolicy, TaskSpec
from noonbell.service.task_fields import Draft, Rules, read_task
from noonbell.settings import (
    ExecutorSettings,
    JobSettings,
    RecoverySettings,
    RetrySettings,
    SchedulerSettings,
    Settings,
)
from noonbell.targets.http import template

NOW = read_moment("2026-11-15T09:00:00Z")
RULES = Rules(check_template=template.check)

HTTP = {"name": "a", "target_url": "http://svc.internal/x"}
JOB = {"name": "a", "job_type": "resize"}
CRON = {"type": "cron", "expr": "*/5 * * * *"}


def read(given: dict[str, Any], rules: Rules = RULES, **more: Any) -> Draft:
    return read_task(given, NOW, rules, **more)


def spec_of(base: dict[str, Any], **fields: Any) -> TaskSpec:
    return read({**base, **fields}).spec


def problems_of(given: dict[str, Any], rules: Rules = RULES) -> dict[str, str]:
    with pytest.raises(InvalidArgument) as caught:
        read(given, rules)
    return caught.value.details


def test_defaults_of_an_http_target():
    assert spec_of(HTTP) == TaskSpec(name="a", target_url="http://svc.internal/x")
    spec = spec_of(HTTP)
    assert (spec.exec_type, spec.http_method, spec.queue, spec.timeout_seconds) == ("SYNC", "GET", "http", 10)
    assert (spec.max_concurrency, spec.retries.max_retries) == (1, 0)
    assert (spec.concurrency_policy, spec.misfire_policy, spec.catchup_limit) == ("QUEUE", "FIRE_NOW", 0)


def test_defaults_of_a_job():
    spec = spec_of(JOB)
    assert spec == TaskSpec(name="a", job_type="resize")
    assert (spec.exec_type, spec.queue, spec.timeout_seconds) == ("JOB", "default", 300)
    assert (spec.max_concurrency, spec.retries.max_retries) == (None, 3)


GOOD = [
    ("name", "x" * 255, "x" * 255),
    ("name", "统计同步", "统计同步"),
    ("name", "a/b:c", "a/b:c"),
    ("description", "line\nline\ttab", "line\nline\ttab"),
    ("labels", {"team": "billing"}, {"team": "billing"}),
    ("external_id", "e-1", "e-1"),
    ("meta", {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    ("managed_by", "file:tasks.yaml", "file:tasks.yaml"),
    ("timezone", "Asia/Shanghai", "Asia/Shanghai"),
    ("timezone", "+08:00", "+08:00"),
    ("start_at", "2026-11-15T10:00:00+08:00", read_moment("2026-11-15T02:00:00Z")),
    ("end_at", "2030-01-01T00:00:00.5Z", read_moment("2030-01-01T00:00:00.5Z")),
    ("exec_type", "ASYNC", "ASYNC"),
    ("http_method", "DELETE", "DELETE"),
    ("target_url", "https://[::1]:8443/p?q=1", "https://[::1]:8443/p?q=1"),
    ("target_url", "http://{{payload.host}}/{{run_id}}", "http://{{payload.host}}/{{run_id}}"),
    ("headers", {"X-A": "tab\there", "X-Run": "{{run_id}}"}, {"X-A": "tab\there", "X-Run": "{{run_id}}"}),
    ("body_template", '{"run": "{{run_id}}"}\r\n', '{"run": "{{run_id}}"}\r\n'),
    ("body_template", "", ""),
    ("follow_redirects", True, True),
    ("secret", "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"),
    ("callback_method", "PUT", "PUT"),
    ("callback_timeout_sec", 1, 1),
    ("payload", [1, "x", None], [1, "x", None]),
    ("timeout_seconds", 0.5, 0.5),
    ("timeout_seconds", 0, 10),
    ("timeout_seconds", -1, 10),
    ("timeout_seconds", 15.0, 15),
    ("max_concurrency", None, None),
    ("max_concurrency", 0, 0),
    ("max_concurrency", 5.0, 5),
    ("concurrency_policy", "SKIP", "SKIP"),
    ("queue_depth", 0, 0),
    ("overlap_action", "CANCEL_PREV", "CANCEL_PREV"),
    ("failure_action", "HALF_OPEN", "HALF_OPEN"),
    ("misfire_policy", "FIRE_ONCE", "FIRE_ONCE"),
    ("catchup_limit", 5, 5),
    ("misfire_grace_seconds", 0, 0),
    ("priority", -7, -7),
    ("specific_worker_ids", ["w1", "w2", "w1"], ("w1", "w2")),
    ("min_worker_version", 3, 3),
    ("delivery", "at_most_once", "at_most_once"),
    ("on_lost", "FAIL", "FAIL"),
    ("max_lost", 0, 0),
    ("on_exhausted", "ERROR", "ERROR"),
    ("delete_on_complete", True, True),
    ("worker_timeout_ms", 60_000, 60_000),
    ("ping_interval_ms", 100, 100),
]


@pytest.mark.parametrize(("field", "value", "kept"), GOOD)
def test_a_good_value_is_kept(field, value, kept):
    assert getattr(spec_of(HTTP, **{field: value}), field) == kept


BAD = [
    ("name", "", "1 to 255"),
    ("name", "x" * 256, "1 to 255"),
    ("name", 7, "text"),
    ("name", " a", "spaces"),
    ("name", "a\x00b", "U+0000"),
    ("name", "a\nb", "U+000A"),
    ("name", "\ud800", "surrogate"),
    ("description", "\x00", "U+0000"),
    ("description", "x" * 4_001, "4000"),
    ("labels", ["a"], "object"),
    ("labels.team", 5, "text"),
    ("external_id", "", "1 to 255"),
    ("meta", "x", "object"),
    ("managed_by", "system", "file:NAME"),
    ("status", "enabled", "ENABLED"),
    ("status", "COMPLETED", "ENABLED or DISABLED"),
    ("cron_expr", "61 * * * *", "0-59"),
    ("cron_expr", "0 0 30 2 *", "never fires"),
    ("cron_expr", 5, "expected"),
    ("cron_expr", "", "expected"),
    ("schedule", "daily", "object"),
    ("timezone", "Mars/Olympus", "IANA"),
    ("timezone", 8, "IANA"),
    ("start_at", "tomorrow", "RFC 3339"),
    ("start_at", 1_700_000_000, "RFC 3339"),
    ("end_at", "2026-13-01T00:00:00Z", "RFC 3339"),
    ("jitter_seconds", -1, "whole number"),
    ("jitter_seconds", True, "whole number"),
    ("exec_type", "sync", "SYNC, ASYNC, JOB"),
    ("http_method", "get", "GET"),
    ("http_method", "TRACE", "GET"),
    ("target_url", "ftp://x/y", "http or https"),
    ("target_url", "file:///etc/passwd", "http or https"),
    ("target_url", "http://", "host"),
    ("target_url", "svc.internal/x", "http or https"),
    ("target_url", "http://a b/", "spaces"),
    ("target_url", "http://a/\r\nX: y", "U+000D"),
    ("target_url", "http://x:99999/", "port"),
    ("target_url", "http://[::1/", "http"),
    ("target_url", "http://me:pw@x/", "Authorization"),
    ("target_url", "http://x/{{nope}}", "unknown placeholder"),
    ("target_url", "http://x/" + "a" * 5_000, "4096"),
    ("headers", "X-A: 1", "object"),
    ("headers.X-A", 5, "text"),
    ("headers.X-A", "a\r\nX-B: y", "U+000D"),
    ("headers.X-A", "a\nb", "U+000A"),
    ("headers.X-A", "a\x00b", "U+0000"),
    ("headers.X-A", "{{nope}}", "unknown placeholder"),
    ("headers.X-A", "***", "mask"),
    ("headers.Host", "evil", "leave it out"),
    ("headers.Connection", "X-Api-Key", "leave it out"),
    ("headers.Upgrade", "h2c", "leave it out"),
    ("headers.TE", "trailers", "leave it out"),
    ("headers.Expect", "100-continue", "leave it out"),
    ("headers.Keep-Alive", "timeout=9", "leave it out"),
    ("headers.Proxy-Connection", "close", "leave it out"),
    ("headers.Transfer_Encoding", "chunked", "leave it out"),
    ("headers.content-length", "5", "leave it out"),
    ("headers.Transfer-Encoding", "chunked", "leave it out"),
    ("headers.a b", "1", "not the name"),
    ("body_template", {"a": 1}, "text"),
    ("body_template", "a\x00", "U+0000"),
    ("body_template", "{{''.__class__}}", "unknown placeholder"),
    ("body_template", "{{run_id", "never closed"),
    ("follow_redirects", "yes", "true or false"),
    ("follow_redirects", 1, "true or false"),
    ("secret", "", "1 to 1024"),
    ("secret", "***", "mask"),
    ("callback_method", "GET", "POST"),
    ("callback_timeout_sec", 0, "whole number"),
    ("queue", "mine", "'http'"),
    ("job_type", "", "1 to 255"),
    ("payload", float("nan"), "JSON"),
    ("payload", "\ud800", "surrogate"),
    ("payload", object(), "JSON"),
    ("timeout_seconds", "5", "seconds"),
    ("timeout_seconds", True, "seconds"),
    ("timeout_seconds", 1e12, "seconds"),
    ("timeout_seconds", float("nan"), "seconds"),
    ("retry_policy", 3, "object"),
    ("retry_policy.max_retries", -1, "whole number"),
    ("retry_policy.max_retries", True, "whole number"),
    ("retry_policy.max_retries", 1.5, "whole number"),
    ("retry_policy.strategy", "linear", "fixed, exponential"),
    ("retry_policy.initial_delay", -1, "number"),
    ("retry_policy.max_delay", "60", "number"),
    ("retry_policy.jitter", 2, "0 to 1"),
    ("retry_policy.local", "x", "true or false"),
    ("retry_policy.retry_on", "5xx", "list"),
    ("retry_policy.max_attempts", 3, "not a field of a retry policy"),
    ("max_concurrency", -1, "null for no limit"),
    ("max_concurrency", True, "null for no limit"),
    ("max_concurrency", "1", "null for no limit"),
    ("concurrency_policy", "queue", "QUEUE, SKIP, PARALLEL"),
    ("queue_depth", -1, "null for no limit"),
    ("overlap_action", "skip", "ALLOW, SKIP, CANCEL_PREV, PARALLEL"),
    ("failure_action", "x", "RUN_NEW, SKIP, RETRY, BACKOFF, HALF_OPEN"),
    ("circuit", [], "object"),
    ("circuit.failures", 0, "whole number"),
    ("circuit.cool_down_seconds", -5, "whole number"),
    ("circuit.open", True, "not a field of a circuit"),
    ("misfire_policy", "fire_now", "FIRE_NOW, FIRE_ONCE, SKIP, CATCH_UP_LIMITED"),
    ("catchup_limit", -1, "whole number"),
    ("misfire_grace_seconds", -1, "whole number"),
    ("priority", 1e300, "whole number"),
    ("rate_limit", 5, "object"),
    ("worker_timeout_ms", 5, "whole number"),
    ("ping_interval_ms", 15_000, "less than worker_timeout_ms"),
    ("specific_worker_ids", "w1", "list"),
    ("min_worker_version", -1, "whole number"),
    ("fanout", "all", "object"),
    ("delivery", "exactly_once", "at_least_once, at_most_once"),
    ("on_lost", "retry", "RETRY, FAIL"),
    ("max_lost", -1, "whole number"),
    ("on_exhausted", "DROP", "KEEP, ERROR"),
    ("delete_on_complete", "no", "true or false"),
    ("skip_next", -2, "whole number"),
    ("taget_url", "http://x/", "did you mean target_url?"),
    ("timeout", 5, "did you mean timeout_seconds?"),
]


@pytest.mark.parametrize(("path", "value", "said"), BAD)
def test_a_bad_value_is_refused_by_its_name(path, value, said):
    field, _, inner = path.partition(".")
    given = {**HTTP, field: {inner: value} if inner else value}
    found = problems_of(given)
    assert list(found) == [path]
    assert said in found[path]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, {"name", "target_url"}),
        ({"name": "a", "exec_type": "JOB"}, {"job_type"}),
        ({**HTTP, "job_type": "resize", "exec_type": "SYNC"}, {"job_type"}),
        ({**JOB, "target_url": "http://x/", "headers": {"A": "1"}}, {"target_url", "headers"}),
        ({**JOB, "queue": "http"}, {"queue"}),
        ({**HTTP, "cron_expr": "* * * * *", "schedule": CRON}, {"cron_expr"}),
        ({**HTTP, "schedule": {"type": "cron", "expr": "x", "foo": 1}}, {"schedule.expr", "schedule.foo"}),
        ({**HTTP, "schedule": {"type": "yearly"}}, {"schedule.type"}),
        ({**HTTP, "schedule": CRON, "jitter_seconds": 300}, {"jitter_seconds"}),
        ({**HTTP, "misfire_policy": "CATCH_UP_LIMITED"}, {"catchup_limit"}),
        ({**HTTP, "start_at": "2026-11-15T10:00:00Z", "end_at": "2026-11-15T09:00:00Z"}, {"end_at"}),
        ({**HTTP, "headers": {"X-A": "1", "x-a": "2"}}, {"headers.x-a"}),
        ({**HTTP, "retry_policy": {"retry_on": ["5xx", "4xx"]}}, {"retry_policy.retry_on[1]"}),
        ({**HTTP, "specific_worker_ids": ["a", 5, ""]}, {"specific_worker_ids[1]", "specific_worker_ids[2]"}),
        ({**HTTP, "rate_limit": {"per": 1}}, {"rate_limit.max", "rate_limit.per_seconds", "rate_limit.per"}),
        ({**HTTP, "rate_limit": {"max": 0, "per_seconds": 0}}, {"rate_limit.max", "rate_limit.per_seconds"}),
        ({**JOB, "fanout": {}}, {"fanout.workers"}),
        ({**JOB, "fanout": {"workers": 0, "success": "most"}}, {"fanout.workers", "fanout.success"}),
        ({**JOB, "fanout": {"workers": 2, "success": 3}}, {"fanout.success"}),
        ({**HTTP, "schedule": CRON, "timezone": "Nowhere", "priority": "x"}, {"timezone", "priority"}),
    ],
)
def test_every_problem_is_named(given, named):
    assert set(problems_of(given)) == named


def test_all_problems_of_a_body_come_at_once():
    found = problems_of({"name": "", "cron_expr": "61 * * * *", "timeout_seconds": "x", "foo": 1, "bar": 2})
    assert set(found) == {"name", "target_url", "cron_expr", "timeout_seconds", "foo", "bar"}


def test_no_more_problems_are_told_than_anybody_reads():
    assert len(problems_of({**HTTP, **{f"field{n}": n for n in range(1_000)}})) == MOST_PROBLEMS


def test_the_message_of_a_bad_value_is_one_line():
    with pytest.raises(InvalidArgument) as caught:
        read({**HTTP, "headers": {"a\r\nX: y": "1"}})
    assert "\n" not in caught.value.message
    assert "\r" not in caught.value.message


@pytest.mark.parametrize("policy", [None, {}])
def test_an_empty_retry_policy_is_the_default_of_the_kind(policy):
    assert spec_of(HTTP, retry_policy=policy).retries == RetryPolicy(max_retries=0)
    assert spec_of(JOB, retry_policy=policy).retries == RetryPolicy(max_retries=3)


def test_policies_are_read_whole():
    spec = spec_of(
        JOB,
        retry_policy={
            "max_retries": 2, "strategy": "fixed", "local": True, "initial_delay": 0.5, "max_delay": 9, "jitter": 0.1,
            "retry_on": ["timeout", "callback_failed"],
        },
        circuit={"failures": 5, "cool_down_seconds": 60},
        rate_limit={"max": 10, "per_seconds": 1, "key": "customer"},
        fanout={"workers": 3, "success": 2},
    )  # fmt: skip
    assert msgspec.to_builtins(spec.retries) == {
        "max_retries": 2, "strategy": "fixed", "local": True, "initial_delay": 0.5, "max_delay": 9, "jitter": 0.1,
        "retry_on": ("timeout", "callback_failed"),
    }  # fmt: skip
    assert (spec.circuit.failures, spec.circuit.cool_down_seconds) == (5, 60)
    assert (spec.rate_limit.max, spec.rate_limit.per_seconds, spec.rate_limit.key) == (10, 1, "customer")
    assert (spec.fanout.workers, spec.fanout.success) == (3, 2)


def test_five_fields_are_stored_as_six():
    assert spec_of(HTTP, cron_expr="*/5 * * * *").schedule["expr"] == "0 */5 * * * *"
    assert spec_of(HTTP, cron_expr="*/5 * * * *") == spec_of(HTTP, schedule=CRON)


def test_six_fields_are_refused_where_the_settings_say_so():
    rules = Rules.of(Settings(scheduler=SchedulerSettings(enable_seconds_field=False)))
    assert set(problems_of({**HTTP, "cron_expr": "*/5 * * * * *"}, rules)) == {"cron_expr"}
    assert read({**HTTP, "cron_expr": "*/5 * * * *"}, rules).spec.schedule["expr"] == "0 */5 * * * *"


def test_at_once_is_now():
    assert spec_of(HTTP, schedule={"type": "once"}).schedule["at"] == rfc3339(NOW)


def test_a_schedule_that_is_asked_for_again_keeps_its_moment():
    every = {"type": "interval", "every": 30, "unit": "second"}
    spec = spec_of(HTTP, schedule={**every, "anchor": "2026-11-01T00:00:00Z"})
    assert read({**HTTP, "schedule": every}, kept=spec).spec.schedule == spec.schedule
    slower = {**every, "every": 60}
    assert read({**HTTP, "schedule": slower}, kept=spec).spec.schedule["anchor"] == rfc3339(NOW)


def test_a_time_without_an_offset_is_local_to_the_task():
    spec = spec_of(HTTP, timezone="Asia/Shanghai", start_at="2026-11-15T10:00:00")
    assert rfc3339(spec.start_at) == "2026-11-15T02:00:00Z"


def test_jitter_may_be_as_long_as_almost_the_gap():
    assert spec_of(HTTP, schedule=CRON, jitter_seconds=299).jitter_seconds == 299


def test_a_short_lease_gets_a_heartbeat_that_fits():
    assert spec_of(JOB, worker_timeout_ms=3_000).ping_interval_ms == 1_000


def test_status_and_skip_are_apart_from_the_spec():
    draft = read({**HTTP, "status": "DISABLED", "skip_next": 2})
    assert (draft.status, draft.skip_next) == ("DISABLED", 2)
    assert (read(HTTP).status, read(HTTP).skip_next) == (None, None)


def test_settings_give_the_defaults():
    settings = Settings(
        executor=ExecutorSettings(request_timeout=15, default_retry=RetrySettings(max_retries=2, strategy="fixed")),
        jobs=JobSettings(job_timeout=60, max_retries=1),
        recovery=RecoverySettings(orphaned_runs="fail"),
    )
    rules = Rules.of(settings)
    http, job = read(HTTP, rules).spec, read(JOB, rules).spec
    assert (http.timeout_seconds, http.retries.max_retries, http.retries.strategy) == (15, 2, "fixed")
    assert (job.timeout_seconds, job.retries.max_retries) == (60, 1)
    assert (http.on_lost, job.on_lost) == ("FAIL", "FAIL")
    assert read({**HTTP, "timeout_seconds": 60, "on_lost": "RETRY"}, rules).spec.timeout_seconds == 60


def test_deep_json_is_refused_and_not_followed():
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert "nested" in problems_of({**HTTP, "payload": deep})["payload"]


def test_the_documents_own_example_is_taken():
    body = {
        "name": "sync_stats", "description": "统计同步", "cron_expr": "0 */5 * * *", "exec_type": "SYNC",
        "http_method": "POST", "target_url": "http://svc.internal/api/sync",
        "headers": {"Content-Type": "application/json"}, "body_template": '{"run_id": "{{run_id}}"}',
        "timeout_seconds": 10,
        "retry_policy": {"max_retries": 3, "initial_delay": 5, "strategy": "exponential", "max_delay": 60},
        "max_concurrency": 1, "concurrency_policy": "QUEUE", "misfire_policy": "FIRE_NOW", "catchup_limit": 5,
    }  # fmt: skip
    spec = read(body).spec
    assert (spec.schedule["expr"], spec.retries.max_delay, spec.catchup_limit) == ("0 0 */5 * * *", 60, 5)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", 1),
        ("1970-01-01 08:00:00+08:00", 0),
        ("1970-01-01T00:00:00.123456789Z", 0.123456),
    ],
)
def test_a_moment_is_read(text, seconds):
    assert read_moment(text) == Instant(round(seconds * 1_000_000))


def test_moments_are_exact_both_ways():
    instant = from_datetime(datetime.fromisoformat("2026-11-15T09:00:00.000001+00:00"))
    assert read_moment(rfc3339(instant)) == instant


NINE = {"type": "cron", "expr": "0 9 * * *"}
TEN = {"type": "cron", "expr": "0 10 * * *"}


def test_several_schedules_and_excluded_ones_are_stored_in_their_normal_form():
    spec = spec_of(HTTP, schedules=[NINE, {"type": "interval", "every": 5, "unit": "minute"}], exclude=[TEN])
    assert [each["type"] for each in spec.schedules] == ["cron", "interval"]
    assert spec.schedules[0]["expr"] == "0 0 9 * * *"
    assert spec.schedules[1]["anchor"] == rfc3339(NOW)
    assert spec.exclude[0]["expr"] == "0 0 10 * * *"
    assert spec.schedule is None
    assert spec.is_scheduled


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({"schedules": [NINE, {"type": "cron", "expr": "61 * * * *"}]}, {"schedules[1].expr"}),
        ({"schedules": [NINE, {"type": "yearly"}]}, {"schedules[1].type"}),
        ({"schedules": [NINE, "daily"]}, {"schedules[1]"}),
        ({"schedules": "daily"}, {"schedules"}),
        ({"schedules": [NINE] * 21}, {"schedules"}),
        ({"schedules": [NINE], "schedule": TEN}, {"schedules"}),
        ({"schedules": [NINE], "cron_expr": "0 10 * * *"}, {"schedules"}),
        ({"schedules": [{"type": "once", "at": "2027-01-01T00:00:00Z"}]}, {"schedules[0].type"}),
        (
            {"schedules": [{"type": "interval", "every": 5, "unit": "minute", "mode": "fixed_delay"}]},
            {"schedules[0].mode"},
        ),
        ({"schedules": [{**NINE, "repeat": 3}]}, {"schedules[0].repeat"}),
        ({"schedule": NINE, "exclude": [{**NINE, "repeat": 3}]}, {"exclude[0].repeat"}),
        (
            {"schedule": NINE, "exclude": [{"type": "monthly", "day": 40, "time": "9"}]},
            {"exclude[0].day", "exclude[0].time"},
        ),
        ({"exclude": [NINE]}, {"exclude"}),
        ({"schedule": {"type": "once"}, "exclude": [NINE]}, {"exclude"}),
        (
            {"schedule": {"type": "interval", "every": 5, "unit": "minute", "mode": "fixed_delay"}, "exclude": [NINE]},
            {"exclude"},
        ),
        ({"schedule": NINE, "exclude": [{"type": "cron", "expr": "* * * * *"}]}, {"exclude"}),
        ({"schedules": [NINE, TEN], "exclude": [TEN, NINE]}, {"exclude"}),
        ({"schedule": NINE, "dst": {"gap": "later"}}, {"dst.gap"}),
        ({"schedule": NINE, "dst": {"repeat": "never"}}, {"dst.repeat"}),
        ({"schedule": NINE, "dst": {"gaps": "skip"}}, {"dst.gaps"}),
        ({"schedule": {**NINE, "dst": "wall"}, "dst": {"gap": "skip"}}, {"schedule.dst"}),
        ({"schedules": [NINE, {**TEN, "dst": "wall"}], "dst": {"gap": "skip"}}, {"schedules[1].dst"}),
    ],
)
def test_what_is_wrong_with_several_schedules_is_named_with_its_place(fields, problems):
    assert set(problems_of({**HTTP, **fields})) == problems


def test_exclusions_that_leave_nothing_over_are_refused_in_words():
    told = problems_of({**HTTP, "schedule": NINE, "exclude": [{"type": "cron", "expr": "* 9 * * *"}]})["exclude"]
    assert told == (
        "leaves out every slot of the next 4,000 days that have one; expected schedules that leave some slots over"
    )


def test_jitter_is_measured_against_all_schedules_together():
    near = {"type": "monthly", "day": 1, "time": "09:00:30"}
    assert read({**HTTP, "schedules": [NINE, near], "jitter_seconds": 29})
    with pytest.raises(InvalidArgument, match="less than the 30 seconds"):
        read({**HTTP, "schedules": [NINE, near], "jitter_seconds": 30})


def test_schedules_that_are_asked_for_again_keep_their_moments():
    every = {"type": "interval", "every": 30, "unit": "minute"}
    seldom = {"type": "interval", "every": 7, "unit": "hour"}
    kept = spec_of(HTTP, schedules=[NINE, {**every, "anchor": "2026-11-01T00:00:00Z"}], exclude=[seldom])
    again = read({**HTTP, "schedules": [NINE, every], "exclude": [seldom]}, kept=kept).spec
    assert again.schedules == kept.schedules
    assert again.exclude == kept.exclude


SERVICES = Rules.of(Settings(executor=ExecutorSettings(services={"mail": "http://m", "billing": "http://b"})))


@pytest.mark.parametrize(
    "url",
    ["service://billing", "service://billing/", "SERVICE://billing/a/{{payload.x}}?y={{run_id}}", "service://mail?a#b"],
)
def test_a_url_may_name_a_service_of_the_settings(url):
    assert read({**HTTP, "target_url": url}, SERVICES).spec.target_url == url


@pytest.mark.parametrize(
    "url",
    [
        *(
            "service:",
            "service:/billing",
            "service://",
            "service:///x",
            "service://Billing/x",
            "service://billing:80/x",
        ),
        *("service://{{payload.x}}/", "service://billing{{payload.x}}/", "service://me@billing/", "service://-/x"),
    ],
)
def test_a_service_url_without_a_plain_name_is_refused(url):
    for rules in (RULES, SERVICES):
        assert "service://NAME/PATH" in problems_of({**HTTP, "target_url": url}, rules)["target_url"]


def test_a_service_that_the_settings_lack_is_refused_with_the_names_that_they_have():
    step = {"id": "s", "target_url": "service://c/"}
    assert problems_of({**HTTP, "target_url": "service://bill/x", "cancel_url": "service://stop"}, SERVICES) == {
        "target_url": "names the service 'bill', which is not in executor.services; expected one of billing, mail",
        "cancel_url": "names the service 'stop', which is not in executor.services; expected one of billing, mail",
    }
    assert list(
        problems_of({"name": "f", "steps": [{**step, "id": "r", "target_url": "http://a/"}, step]}, SERVICES)
    ) == ["steps[1].target_url"]
    none = problems_of({**HTTP, "target_url": "service://bill/x"}, Rules.of(Settings()))
    assert none == {"target_url": "names the service 'bill', which is not in executor.services; it is empty"}


def test_where_no_settings_are_read_any_name_of_a_service_is_taken():
    assert read({**HTTP, "target_url": "service://any/x"}).spec.target_url == "service://any/x"


def test_a_task_whose_service_the_settings_have_lost_can_be_changed_in_other_fields_only():
    urls = {"target_url": "service://gone/x", "cancel_url": "service://gone/stop"}
    kept = spec_of(HTTP, **urls)
    assert read({**HTTP, **urls, "description": "new"}, SERVICES, kept=kept).spec.description == "new"
    with pytest.raises(InvalidArgument) as caught:
        read({**HTTP, **urls, "target_url": "service://gone/y"}, SERVICES, kept=kept)
    assert list(caught.value.details) == ["target_url"]
