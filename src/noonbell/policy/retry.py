"""Retry: what follows when an attempt did not succeed, or its worker was lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

from noonbell.model.run import RunStatus
from noonbell.model.task import Delivery, OnLost, RetryPolicy, RetryStrategy, TaskSpec

LONGEST_RETRY_AFTER = 86_400.0
"""A target that asks for more than a day is heard as a day: its word must not park a run for years."""

_WORD: dict[str, str | None] = {
    **dict.fromkeys(("connection_refused", "dns", "connect_timeout", "connection_lost", "tls"), "network"),
    **dict.fromkeys(("network_unreachable", "host_unreachable"), "network"),
    "http_5xx": "5xx",
    **{kind: kind for kind in ("timeout", "error", "callback_failed", "callback_timeout")},
    **dict.fromkeys(("http_3xx", "http_4xx", "too_large", "blocked_address", "canceled", "fail"), None),
    "unknown_service": None,
    "grpc_unavailable": "network",
    "grpc_internal": "5xx",
    "grpc_resource_exhausted": "429",
    **dict.fromkeys(("grpc_invalid_argument", "grpc_not_found", "grpc_already_exists", "grpc_permission_denied"), None),
    **dict.fromkeys(("grpc_failed_precondition", "grpc_out_of_range", "grpc_unimplemented", "grpc_data_loss"), None),
    **dict.fromkeys(("grpc_unauthenticated", "bad_method"), None),
    **dict.fromkeys(("invalid_payload", "invalid_result", "lost", "unknown", "command_not_allowed"), None),
    **dict.fromkeys(("authentication", "refused", "unroutable"), None),
    **dict.fromkeys(("nacked", "no_responders"), "error"),
}
"""The word of `retry_on` that covers each kind of failure; None = never retried. 429 is recognised by its code."""

_ENDS_AS = {
    "timeout": RunStatus.TIMEOUT,
    "callback_timeout": RunStatus.FAILED_TIMEOUT,
    "canceled": RunStatus.CANCELED,
}
"""The final status of a kind, where it is not FAILED."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt ended. `kind` is what `error_details.kind` shows; one that is not known here counts as `error`."""

    kind: str
    code: int | None = None
    """The HTTP status, where there was one."""
    retry_after: float | None = None
    """Seconds, as the target asked in `Retry-After`. Heard on 429 and 503 only."""


@dataclass(frozen=True, slots=True)
class Retry:
    """RETRYING, until `delay_seconds` from now."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Lose:
    """Back to SCHEDULED for another worker, one loss more."""


@dataclass(frozen=True, slots=True)
class Final:
    status: RunStatus
    kind: str
    """For `error_details.kind`."""


Decision = Retry | Lose | Final


def decide(spec: TaskSpec, retry_count: int, lost_count: int, failure: Failure, unit: float) -> Decision:
    """What follows a failed attempt after `retry_count` retries. `unit` is a random draw from [0, 1)."""
    if failure.kind == "lost":
        return lost(spec, lost_count, started=True)
    policy = spec.retries
    if retry_count < policy.max_retries and _covered(policy, failure):
        asked = failure.retry_after if failure.code in (429, 503) else None
        return Retry(delay(policy, retry_count, unit, asked))
    return Final(_ENDS_AS.get(failure.kind, RunStatus.FAILED), failure.kind)


def delay(policy: RetryPolicy, retry_count: int, unit: float, retry_after: float | None) -> float:
    """Seconds to wait before retry number `retry_count` + 1: the policy's own, or what the target asks if it is longer.

    `max_delay` caps the growth, so a fixed delay is taken as it is; jitter comes on top of the cap.
    """
    match policy.strategy:
        case RetryStrategy.FIXED:
            seconds = policy.initial_delay
        case RetryStrategy.EXPONENTIAL:
            seconds = min(policy.initial_delay * 2.0 ** min(retry_count, 64), policy.max_delay)
        case _:
            assert_never(policy.strategy)
    own = seconds * (1 + policy.jitter * (2 * unit - 1))
    asked = 0.0 if retry_after is None or math.isnan(retry_after) else min(retry_after, LONGEST_RETRY_AFTER)
    return max(own, asked, 0.0)


def lost(spec: TaskSpec, lost_count: int, *, started: bool) -> Lose | Final:
    """What follows a lost lease after `lost_count` earlier losses.

    `started` matters to at-most-once tasks alone: what was begun there is never sent again, and it is unknown how far it
    came; what was not begun is handed on, also where `on_lost` says FAIL, because no work can have been done.
    """
    if spec.delivery is Delivery.AT_MOST_ONCE:
        if started:
            return Final(RunStatus.FAILED, "unknown")
        return _hand_on(spec, lost_count)
    match spec.on_lost:
        case OnLost.RETRY:
            return _hand_on(spec, lost_count)
        case OnLost.FAIL:
            return Final(RunStatus.FAILED, "lost")
        case _:
            assert_never(spec.on_lost)


def _hand_on(spec: TaskSpec, lost_count: int) -> Lose | Final:
    return Lose() if lost_count < spec.max_lost else Final(RunStatus.FAILED, "lost")


def _covered(policy: RetryPolicy, failure: Failure) -> bool:
    word = "429" if failure.code == 429 and failure.kind == "http_4xx" else _WORD.get(failure.kind, "error")
    return word in policy.retry_on
