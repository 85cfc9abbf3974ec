"""A call: one HTTP request, now or later, that needs no task of its own.

A call is a run of the built-in task of its queue. That task says nothing of the request: what is called is stored with the
run, in its `overrides`, and takes the place of the task's spec wherever the run is carried out (`spec_of`). The task's
`job_type` is CALL_TYPE, so only workers that can make HTTP requests claim its runs, on every queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.fields import meta
from noonbell.model.broker import Headers
from noonbell.model.target_kind import COMMAND_TYPE, ExecType, Method
from noonbell.model.task import RetryPolicy, TaskSpec
from noonbell.model.task_schedule import Labels

CALL: Final = "call"
"""The key of the call in a run's `overrides`; its body is `override_body`, as that of any run that brings one."""
CONCURRENCY_KEY: Final = "concurrency_key"
MAX_PER_KEY: Final = "max_per_key"
"""Beside it: the key that limits the call, and how many of that key the queue lets in. The first call of a key decides."""
RATE_KEY: Final = "rate_key"
"""Beside it: the key under which the queue's rate limit counts the call."""
CALL_TYPE: Final = "noonbell.call"
"""The job type of the built-in tasks of calls: what a worker advertises that can make HTTP requests."""
NAMED_TYPES: Final = (CALL_TYPE, COMMAND_TYPE)
"""Job types that a worker has only if it names them: one that takes any job type has neither."""
MOST_SECONDS: Final = 3_600
"""The longest timeout of a call. The built-in tasks have it, so the store waits that long for an attempt that hangs."""
LONGEST_QUEUE: Final = 200

_Url = Annotated[str, meta(max_length=4_096)]


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is called, as it is stored; the values of secret headers are sealed."""

    noun: ClassVar[str] = "a call"

    url: Annotated[
        str,
        meta(
            "An http or https URL, or service://NAME/PATH with a name of `executor.services`. Sent as it is: {{ }} means nothing in it.",
            max_length=4_096,
            missing="the URL to call",
            examples=["https://svc.internal/mails"],
        ),
    ]
    method: Annotated[str, meta("Method of the request.", choices=tuple(Method))] = "POST"
    headers: Annotated[
        Headers,
        meta(
            "Sent with the request. All but harmless ones are masked in responses.",
            examples=[{"Content-Type": "application/json"}],
        ),
    ] = {}
    timeout_seconds: Annotated[
        float | None,
        meta(
            "Timeout of one attempt. Default `executor.request_timeout`, 10.", ge=0.001, le=MOST_SECONDS, default=None
        ),
    ] = None
    retry_policy: Annotated[
        RetryPolicy | None,
        meta(
            "Retries after the first attempt; 3 by default, exponential.", default=None, examples=[{"max_retries": 5}]
        ),
    ] = None
    success_url: Annotated[
        _Url | None, meta("Called with the outcome when the call has succeeded.", examples=[None])
    ] = None
    failure_url: Annotated[
        _Url | None, meta("Called with the outcome when the call has failed for good or was canceled.", examples=[None])
    ] = None
    labels: Annotated[Labels, meta("Your own names and values; shown with the call.", max_length=50)] = {}


OUTCOME_RETRY: Final = RetryPolicy(max_retries=10)
"""Of the call that tells of an outcome."""
OUTCOME_SECONDS: Final = 10.0
"""The least timeout of such a call: who is told may be slower than what was called."""


def name_of(queue: str) -> str:
    """Of the built-in task of a queue's calls."""
    return f"calls:{queue}"


def task_spec(queue: str) -> TaskSpec:
    """The built-in task of a queue's calls."""
    return TaskSpec(
        name=name_of(queue),
        description="Calls without a task: what is called is stored with each run.",
        managed_by="system",
        job_type=CALL_TYPE,
        queue=queue,
        timeout_seconds=MOST_SECONDS,
        max_concurrency=None,
    )


def stored(
    call: Call,
    body: Any,
    concurrency_key: str | None = None,
    max_per_key: int = 1,
    rate_key: str | None = None,
) -> dict[str, Any]:
    """The `overrides` of the run that makes this call."""
    kept: dict[str, Any] = {CALL: msgspec.to_builtins(call)}
    if concurrency_key is not None:
        kept |= {CONCURRENCY_KEY: concurrency_key, MAX_PER_KEY: max_per_key}
    if rate_key is not None:
        kept[RATE_KEY] = rate_key
    return kept if body is None else {**kept, "override_body": body}


def call_of(overrides: Mapping[str, Any] | None) -> Call | None:
    """The call that a run makes; None for a run of any other task."""
    found = None if overrides is None else overrides.get(CALL)
    return None if found is None else msgspec.convert(found, Call)


def spec_of(queue: str, overrides: Mapping[str, Any] | None) -> TaskSpec | None:
    """What a run that is a call carries out, in place of its task's spec; None for any other run.

    Calls that differ in their bodies alone have the same spec, and get the same object: what is made of it need be made once.
    """
    found = None if overrides is None else overrides.get(CALL)
    return None if found is None else _spec(queue, msgspec.json.encode(found))


@lru_cache(maxsize=1_024)
def _spec(queue: str, text: bytes) -> TaskSpec:
    call = msgspec.json.decode(text, type=Call)
    return TaskSpec(
        name=name_of(queue),
        labels=call.labels,
        managed_by="system",
        exec_type=ExecType.SYNC,
        http_method=call.method,
        target_url=call.url,
        headers=call.headers,
        queue=queue,
        timeout_seconds=call.timeout_seconds or 0,
        retry_policy=call.retry_policy,
        max_concurrency=None,
    )
