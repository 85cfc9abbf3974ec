"""A flow as its caller writes it: steps with the fields of a task, and every problem by its step and field."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell import yaml_text
from noonbell.errors import InvalidArgument
from noonbell.fields.kinds import read_moment
from noonbell.model.target_kind import ExecType
from noonbell.model.task import TaskSpec
from noonbell.sealing import Sealer, new_key_line, read_keys
from noonbell.service import secrets
from noonbell.service.task_fields import Rules, read_task
from noonbell.targets.http import template

NOW = read_moment("2026-11-15T09:00:00Z")
RULES = Rules(check_template=template.check, http_timeout=7)
URL = "http://svc.internal/x"

SPEC_YAML = """
name: nightly
cron_expr: "0 2 * * *"
steps:
  - {id: extract, target_url: "http://svc/extract"}
  - {id: parts, needs: [extract], foreach: "{{ steps.extract.result.files }}", job_type: convert, payload: {file: "{{ item }}"}, max_parallel: 8, allow_failure: true}
  - {id: load, needs: [parts], when: "steps.parts.failed == 0", job_type: load, retry_policy: {max_retries: 3}}
  - {id: page, needs: [load], on: failure, target_url: "http://svc/page"}
"""


def read(*steps: Any, **fields: Any) -> TaskSpec:
    return read_task({"name": "nightly", "steps": list(steps), **fields}, NOW, RULES).spec


def problems(*steps: Any, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidArgument) as caught:
        read(*steps, **fields)
    return caught.value.details


def test_the_flow_of_the_manual_is_read_from_yaml():
    spec = read_task(yaml_text.read(SPEC_YAML), NOW, RULES).spec
    assert spec.exec_type is ExecType.FLOW
    assert (spec.queue, spec.max_concurrency, spec.concurrency_policy, spec.timeout_seconds) == ("http", 1, "QUEUE", 0)
    extract, parts, load, page = spec.steps
    assert (extract.exec_type, extract.queue, extract.timeout_seconds, extract.retries.max_retries) == (
        "SYNC",
        "http",
        7,
        0,
    )
    assert (parts.exec_type, parts.queue, parts.timeout_seconds, parts.retries.max_retries) == (
        "JOB",
        "default",
        300,
        3,
    )
    assert (parts.max_parallel, parts.allow_failure, load.when) == (8, True, "steps.parts.failed == 0")
    assert (page.on, page.needs) == ("failure", ("load",))


@pytest.mark.parametrize(
    ("steps", "name", "part"),
    [
        ([{"id": "a", "target_url": URL}] * 1001, "steps", "a list of 1 to 1000 steps"),
        (["x"], "steps[0]", "expected an object"),
        ([{"target_url": URL}], "steps[0].id", "is missing"),
        ([{"id": "1a", "target_url": URL}], "steps[0].id", "the first a letter or _"),
        ([{"id": "a"}], "steps[0].target_url", "is missing"),
        ([], "target_url", "or steps for a flow"),
        ([{"id": "a", "target_url": "ftp://x"}], "steps[0].target_url", "http or https"),
        ([{"id": "a", "job_type": "j", "target_url": URL}], "steps[0].target_url", "is for HTTP targets"),
        ([{"id": "a", "target_url": URL, "fanout": {"workers": 2}}], "steps[0].fanout", "is not a field of a step"),
        ([{"id": "a", "target_url": URL, "cron_expr": "* * * * *"}], "steps[0].cron_expr", "is not a field of a step"),
        ([{"id": "a", "steps": []}], "steps[0].steps", "is not a field of a step"),
        ([{"id": "a", "steps": [{"id": "b", "target_url": URL}]}], "steps[0].steps", "cannot be used in a step"),
        ([{"id": "a", "exec_type": "FLOW"}], "steps[0].exec_type", "cannot be used in a step"),
        ([{"id": "a", "target_url": URL, "queue": "mine"}], "steps[0].queue", "live on the queue 'http'"),
        ([{"id": "a", "target_url": URL, "on": "never"}], "steps[0].on", "one of success, failure, skipped, any"),
        ([{"id": "a", "target_url": URL, "max_parallel": 0, "foreach": []}], "steps[0].max_parallel", "1 to 1000"),
        ([{"id": "a", "target_url": URL, "needs": ["b"]}], "steps[0].needs", "names 'b', which is not a step"),
        ([{"id": "a", "target_url": URL, "when": "x"}], "steps[0].when", "(at position 0)"),
        ([{"id": "a", "target_url": URL, "headers": {"Host": "x"}}], "steps[0].headers.Host", "leave it out"),
        (
            [{"id": "a", "target_url": URL, "retry_policy": {"max_retries": -1}}],
            "steps[0].retry_policy.max_retries",
            "0",
        ),
    ],
)
def test_a_problem_is_named_by_its_step_and_field(steps: list[Any], name: str, part: str):
    found = problems(*steps)
    assert name in found, found
    assert part in found[name]


def test_a_circle_is_named_by_its_steps():
    found = problems({"id": "a", "target_url": URL, "needs": ["b"]}, {"id": "b", "target_url": URL, "needs": ["a"]})
    (problem,) = found.values()
    assert "→" in problem


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"fanout": {"workers": 2}}, "fanout"),
        ({"retry_policy": {"max_retries": 2}}, "retry_policy"),
        ({"target_url": URL}, "target_url"),
        ({"job_type": "j"}, "steps"),
        ({"exec_type": "JOB", "job_type": "j"}, "steps"),
    ],
)
def test_what_is_not_for_a_flow_is_refused(fields: dict[str, Any], name: str):
    assert name in problems({"id": "a", "target_url": URL}, **fields)


@pytest.mark.parametrize("queue", ["mine", "http"])
def test_a_flow_may_name_the_queue_whose_workers_start_it(queue: str):
    given = {"name": "x", "steps": [{"id": "a", "target_url": URL}], "queue": queue}
    assert read_task(given, NOW, RULES).spec.queue == queue


def test_a_flow_without_steps_is_refused():
    with pytest.raises(InvalidArgument) as caught:
        read_task({"name": "x", "exec_type": "FLOW"}, NOW, RULES)
    assert caught.value.details == {"steps": "is missing; expected a list of 1 to 1000 steps"}


def test_a_step_without_an_id_is_refused_beside_a_step_called_none():
    spec = read({"id": "None", "target_url": URL, "secret": "canary"})
    assert secrets.unmasked_steps([{"target_url": URL}, 7], spec.steps)[1] == 7


def test_the_secrets_of_steps_are_sealed_opened_and_masked():
    sealer = Sealer(read_keys(new_key_line("k1").encode()))
    spec = read({"id": "a", "target_url": URL, "headers": {"Authorization": "canary"}, "secret": "canary-2"})
    shown = secrets.masked_steps([{"headers": dict(spec.steps[0].headers), "secret": spec.steps[0].secret}])
    assert "canary" not in str(shown)
    back = secrets.unmasked_steps([{"id": "a", **shown[0]}], spec.steps)
    assert (back[0]["headers"], back[0]["secret"]) == ({"Authorization": "canary"}, "canary-2")
    kept = secrets.sealed(spec, sealer)
    assert "canary" not in str(kept)
    assert secrets.opened(kept, sealer) == spec
    again = secrets.sealed(spec, sealer, kept)
    assert again == kept, "what is the same stays as it was sealed"
