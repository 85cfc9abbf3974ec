"""A task as JSON, and back: what is shown, what is masked, what a change keeps."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.errors import InvalidArgument
from noonbell.fields.kinds import read_moment
from noonbell.model.account import Activity
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.service.secrets import MASK, is_secret, masked
from noonbell.service.task_fields import READ_ONLY, Rules, read_task
from noonbell.service.tasks import check_new, merged, replaced, shown

NOW = read_moment("2026-11-15T09:00:00Z")

FULL: dict[str, Any] = {
    "name": "a",
    "description": "d",
    "labels": {"team": "x"},
    "cron_expr": "*/5 * * * *",
    "timezone": "Asia/Shanghai",
    "start_at": "2026-11-15T00:00:00.25Z",
    "exec_type": "ASYNC",
    "http_method": "POST",
    "target_url": "http://svc.internal/x",
    "headers": {"Authorization": "Bearer canary", "Accept": "1"},
    "secret": "whsec_canary",
    "body_template": "{}",
    "retry_policy": {"max_retries": 4, "initial_delay": 1},
    "max_concurrency": None,
    "rate_limit": {"max": 5, "per_seconds": 10},
    "specific_worker_ids": ["w1"],
}


def task_of(given: dict[str, Any], status: TaskStatus = TaskStatus.ENABLED) -> Task:
    spec = read_task(given, NOW, Rules()).spec
    return Task(id=TaskId(1), version=3, status=status, spec=spec, created_at=NOW, updated_at=NOW)


def again(task: Task, fields: dict[str, Any]) -> TaskSpec:
    return read_task(fields, NOW, Rules(), kept=task.spec).spec


def test_every_field_is_shown():
    fields = shown(task_of(FULL), Activity())
    assert set(TaskSpec.__struct_fields__) <= set(fields)
    assert set(fields) >= {
        *("id", "status", "version", "created_by", "created_at", "updated_at", "next_fire_at", "last_run_id"),
        *("last_run_at", "last_run_status", "active_runs", "queued_runs", "skip_next", "cron_expr"),
    }
    assert fields["cron_expr"] == "0 */5 * * * *"
    assert fields["start_at"] == "2026-11-15T00:00:00.25Z"


def test_secrets_are_masked():
    fields = shown(task_of(FULL), Activity())
    assert fields["headers"] == {"Authorization": MASK, "Accept": "1"}
    assert fields["secret"] == MASK
    assert "canary" not in str(fields)


@pytest.mark.parametrize(
    "name", ["Authorization", "proxy-authorization", "Cookie", "X-Api-Key", "apikey", "X-Auth-Token", "X-Secret"]
)
def test_a_header_that_carries_credentials_is_secret(name):
    assert is_secret(name)


KEYS_OF_SERVICES = [
    *("X-Functions-Key", "Ocp-Apim-Subscription-Key", "aeg-sas-key", "x-ms-client-principal"),  # Azure
    *("DD-API-KEY", "DD-APPLICATION-KEY", "X-Insert-Key", "X-License-Key", "X-Query-Key", "Api-Key"),  # monitoring
    *("X-Amz-Security-Token", "X-Goog-Api-Key", "X-Goog-IAM-Authority-Selector", "X-Amz-Content-Sha256"),
    *("CF-Access-Client-Id", "CF-Access-Client-Secret", "X-Auth-Email", "X-Auth-Key", "Fastly-Key", "AccessKey"),
    *("X-Vault-Token", "X-Consul-Token", "X-Gitlab-Token", "PRIVATE-TOKEN", "Circle-Token", "X-Hub-Signature-256"),
    *(
        "X-Shopify-Access-Token",
        "Stripe-Signature",
        "X-Postmark-Server-Token",
        "X-Typesense-API-Key",
        "X-Parse-Master-Key",
    ),
    *(
        "X-Algolia-API-Key",
        "X-Algolia-Application-Id",
        "X-Appwrite-Key",
        "X-Master-Key",
        "X-Bin-Meta",
        "X-RapidAPI-Key",
    ),
    *("X-JWT-Assertion", "X-Access-JWT", "X-Api-Passphrase", "X-Pin", "X-Otp", "X-Key", "X-Hasura-Admin-Secret", "X-A"),
    *("X-Forwarded-Access-Token", "X-Forwarded-Authorization", "X-RateLimit-Token"),  # under prefixes of harmless ones
]
"""As their manuals write them, and not as a rule of ours would have them."""


@pytest.mark.parametrize("name", KEYS_OF_SERVICES)
def test_the_headers_in_which_services_take_their_keys_are_secret(name):
    assert is_secret(name)
    assert masked({name: "canary"}) == {name: MASK}
    assert masked({name: ""}) == {name: ""}


@pytest.mark.parametrize(
    "name",
    [
        *("Content-Type", "Accept", "X-Request-Id", "X-Noonbell-Run", "Idempotency-Key"),
        *("X-Forwarded-For", "X-RateLimit-Remaining", "Access-Control-Allow-Credentials"),
    ],
)
def test_other_headers_are_not(name):
    assert not is_secret(name)


@pytest.mark.parametrize("way", [merged, replaced])
def test_a_task_sent_back_as_it_was_shown_is_unchanged(way):
    task = task_of(FULL)
    assert again(task, way(task, shown(task, Activity()))) == task.spec


@pytest.mark.parametrize("way", [merged, replaced])
def test_a_mask_written_back_keeps_the_secret_under_any_spelling_of_the_name(way):
    task = task_of(FULL)
    spec = again(task, way(task, {**FULL, "headers": {"authorization": MASK}, "secret": MASK}))
    assert (spec.headers, spec.secret) == ({"authorization": "Bearer canary"}, "whsec_canary")


def test_a_mask_under_a_new_name_is_no_value():
    task = task_of(FULL)
    with pytest.raises(InvalidArgument):
        again(task, merged(task, {"headers": {"X-Other-Token": MASK}}))


def test_a_new_secret_replaces_the_old():
    task = task_of(FULL)
    spec = again(task, merged(task, {"headers": {"Authorization": "Bearer new"}, "secret": None}))
    assert (spec.headers, spec.secret) == ({"Authorization": "Bearer new"}, None)


def test_a_partial_change_keeps_the_rest():
    task = task_of(FULL)
    spec = again(task, merged(task, {"description": "new"}))
    assert spec == read_task({**FULL, "description": "new"}, NOW, Rules()).spec


def test_a_full_change_sets_the_rest_to_its_default():
    task = task_of(FULL)
    given = {"name": "a", "target_url": "http://svc.internal/x"}
    assert again(task, replaced(task, given)) == TaskSpec(**given)


def test_policies_are_changed_field_by_field():
    task = task_of(FULL)
    spec = again(task, merged(task, {"retry_policy": {"max_delay": 9}, "rate_limit": {"max": 7}}))
    assert (spec.retries.max_retries, spec.retries.initial_delay, spec.retries.max_delay) == (4, 1, 9)
    assert (spec.rate_limit.max, spec.rate_limit.per_seconds) == (7, 10)


def test_null_goes_back_to_the_default():
    task = task_of(FULL)
    spec = again(task, merged(task, {"retry_policy": None, "rate_limit": None, "description": None}))
    assert (spec.retries.max_retries, spec.rate_limit, spec.description) == (0, None, "")


def test_maps_are_replaced_whole():
    task = task_of(FULL)
    spec = again(task, merged(task, {"headers": {"X-New": "1"}, "labels": {}}))
    assert (spec.headers, spec.labels) == ({"X-New": "1"}, {})


def test_a_new_cron_expression_keeps_dialect_and_repeat():
    given = {**FULL, "cron_expr": None, "schedule": {"type": "cron", "expr": "* * * * *", "repeat": 3}}
    task = task_of(given)
    spec = again(task, merged(task, {"cron_expr": "*/10 * * * *"}))
    assert (spec.schedule["expr"], spec.schedule["repeat"]) == ("0 */10 * * * *", 3)
    assert spec.schedule["source"] == "*/10 * * * *"


def test_a_cron_expression_takes_the_place_of_another_kind():
    task = task_of({**FULL, "cron_expr": None, "schedule": {"type": "weekly", "weekday": 1, "time": "10:00"}})
    assert again(task, merged(task, {"cron_expr": "* * * * *"})).schedule["type"] == "cron"


@pytest.mark.parametrize("change", [{"schedule": None}, {"cron_expr": None}])
def test_a_schedule_can_be_taken_away(change):
    task = task_of(FULL)
    assert again(task, merged(task, change)).schedule is None


def test_of_a_schedule_in_both_forms_the_one_that_was_edited_counts():
    task = task_of(FULL)
    read = shown(task, Activity())
    by_short = again(task, replaced(task, {**read, "cron_expr": "0 0 * * * *"}))
    by_long = again(task, replaced(task, {**read, "schedule": {"type": "cron", "expr": "0 0 * * * *"}}))
    assert by_short.schedule["expr"] == by_long.schedule["expr"] == "0 0 * * * *"


def test_both_forms_edited_is_refused():
    task = task_of(FULL)
    read = {**shown(task, Activity()), "cron_expr": "0 0 * * * *", "schedule": {"type": "cron", "expr": "@daily"}}
    with pytest.raises(InvalidArgument):
        again(task, replaced(task, read))


def test_an_http_task_can_become_a_job_and_back():
    task = task_of({"name": "a", "target_url": "http://x/", "cron_expr": "* * * * *"})
    spec = again(task, merged(task, {"job_type": "resize"}))
    assert (spec.exec_type, spec.queue, spec.timeout_seconds, spec.max_concurrency) == ("JOB", "default", 300, None)
    job = task_of({"name": "a", "job_type": "resize"})
    spec = again(job, merged(job, {"exec_type": "SYNC", "target_url": "http://x/"}))
    assert (spec.exec_type, spec.queue, spec.timeout_seconds, spec.job_type) == ("SYNC", "http", 10, None)


def test_what_was_set_by_hand_survives_a_change_of_kind():
    task = task_of({"name": "a", "target_url": "http://x/", "timeout_seconds": 77})
    assert again(task, merged(task, {"job_type": "resize"})).timeout_seconds == 77


@pytest.mark.parametrize("status", [TaskStatus.COMPLETED, TaskStatus.ERROR])
def test_a_standing_status_sent_back_asks_for_nothing(status):
    task = task_of(FULL, status)
    assert read_task(merged(task, {"status": str(status)}), NOW, Rules()).status is None


@pytest.mark.parametrize("name", sorted(READ_ONLY))
def test_a_new_task_names_no_field_that_is_read_only(name):
    with pytest.raises(InvalidArgument) as caught:
        check_new({"name": "a", name: 1})
    assert list(caught.value.details) == [name]
