"""Settle: from how an attempt ended to what becomes of its run. The decision is `policy.retry`'s; the store writes it.

Pure, so that the built-in worker, the worker protocol, the sweep and callbacks say the same thing in the same words.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from noonbell.model.failure_text import failure_text, said_by
from noonbell.model.run import (
    Assignment,
    FlowStep,
    Lease,
    Outcome,
    OutcomeKind,
    Precondition,
    RunId,
    RunStatus,
    Settlement,
    Transition,
)
from noonbell.model.task import TaskSpec
from noonbell.policy import retry
from noonbell.policy.retry import Decision, Failure, Final, Lose, Retry


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whose attempt ended: the run, the token that it was held with, and what the retry policy asks about it."""

    run_id: RunId
    token: int
    retry_count: int = 0
    lost_count: int = 0
    worker_id: str | None = None
    task_version: int | None = None
    plain: bool = False
    counted: bool = False
    in_flow: FlowStep | None = None
    keyed: bool = False
    lease: Lease | None = None
    precondition: Precondition = Precondition.HELD


def subject_of(lease: Lease, task_version: int | None = None) -> Subject:
    return Subject(
        run_id=lease.run_id,
        token=lease.token,
        retry_count=lease.retry_count,
        lost_count=lease.lost_count,
        worker_id=lease.worker_id,
        task_version=lease.task_version if task_version is None else task_version,
        plain=lease.plain,
        counted=lease.counted,
        in_flow=lease.in_flow,
        keyed=lease.keyed,
        lease=lease,
    )


def settlement_of(assignment: Assignment, outcome: Outcome, unit: float) -> Settlement:
    """What a worker settles an attempt with. `unit` is a random draw from [0, 1), for the jitter of a retry."""
    if outcome.kind is OutcomeKind.SUCCESS:  # what most come to, without a detour
        lease = assignment.lease
        return Settlement(
            run_id=lease.run_id,
            token=lease.token,
            transition=Transition.FINISH,
            status=RunStatus.SUCCESS,
            worker_id=lease.worker_id,
            task_version=assignment.task.version,
            response_code=outcome.response_code,
            result=outcome.result,
            error_details=outcome.error_details,
            bodies=outcome.bodies,
            plain=lease.plain,
            counted=lease.counted,
            in_flow=lease.in_flow,
            keyed=lease.keyed,
            lease=lease,
        )
    return settlement(assignment.task.spec, subject_of(assignment.lease, assignment.task.version), outcome, unit)


def settlement(spec: TaskSpec, subject: Subject, outcome: Outcome, unit: float) -> Settlement:
    match outcome.kind:
        case OutcomeKind.SUCCESS:
            return written(
                subject,
                Transition.FINISH,
                status=RunStatus.SUCCESS,
                response_code=outcome.response_code,
                result=outcome.result,
                error_details=outcome.error_details,
                bodies=outcome.bodies,
            )
        case OutcomeKind.ACCEPTED:
            return written(
                subject,
                Transition.PARK,
                status=RunStatus.CALLBACK_PENDING,
                delay_seconds=spec.callback_seconds,
                response_code=outcome.response_code,
                result=outcome.result,
                bodies=outcome.bodies,
            )
        case OutcomeKind.GATHERING:
            return written(subject, Transition.GATHER)
        case OutcomeKind.FAILURE:
            decision = retry.decide(spec, subject.retry_count, subject.lost_count, failure_of(outcome), unit)
            return failed(subject, decision, outcome)
        case _:
            assert_never(outcome.kind)


def failure_of(outcome: Outcome) -> Failure:
    return Failure(outcome.failure or "error", outcome.response_code, outcome.retry_after)


def failed(subject: Subject, decision: Decision, outcome: Outcome) -> Settlement:
    """A failed attempt, with what was decided about it."""
    kind = outcome.failure or "error"
    fields: dict[str, Any] = {
        "response_code": outcome.response_code,
        "result": outcome.result,
        "error_message": outcome.error_message or kind,
        "bodies": outcome.bodies,
    }
    match decision:
        case Retry(delay_seconds):
            status = RunStatus.TIMEOUT if kind == "timeout" else RunStatus.FAILED
            transition, more = Transition.RETRY, {"status": status, "delay_seconds": delay_seconds}
        case Lose():
            transition, more = Transition.LOSE, {}
        case Final(status, final_kind):
            transition, more, kind = Transition.FINISH, {"status": status}, final_kind
        case _:
            assert_never(decision)
    return written(subject, transition, error_details={"kind": kind, **_more(outcome)}, **fields, **more)


def released(subject: Subject, *, begun: bool) -> Settlement:
    """Handed back by a worker that stops or may not go on. At most once forbids that for what has begun."""
    if not begun:
        return written(subject, Transition.RELEASE)
    stopped = failure_text("worker_stopped")
    return written(
        subject,
        Transition.FINISH,
        status=RunStatus.FAILED,
        error_message=stopped,
        error_details={"kind": "unknown", **said_by(stopped)},
    )


def unwritable(settlement: Settlement, error: Exception) -> Settlement:
    """The settlement of an outcome that the store cannot take: the run fails and says why, instead of being tried for
    ever.
    """
    message = failure_text("not_stored", error=type(error).__name__)
    return Settlement(
        run_id=settlement.run_id,
        token=settlement.token,
        transition=Transition.FINISH,
        status=RunStatus.FAILED,
        worker_id=settlement.worker_id,
        task_version=settlement.task_version,
        error_message=message,
        error_details={"kind": "error", **said_by(message)},
        plain=settlement.plain,
        counted=settlement.counted,
        in_flow=settlement.in_flow,
        keyed=settlement.keyed,
        lease=settlement.lease,
    )


def _more(outcome: Outcome) -> dict[str, Any]:
    return {name: value for name, value in (outcome.error_details or {}).items() if name != "kind"}


def written(subject: Subject, transition: Transition, **fields: Any) -> Settlement:
    return Settlement(
        run_id=subject.run_id,
        token=subject.token,
        transition=transition,
        worker_id=subject.worker_id,
        task_version=subject.task_version,
        plain=subject.plain,
        counted=subject.counted,
        in_flow=subject.in_flow,
        keyed=subject.keyed,
        lease=subject.lease,
        precondition=subject.precondition,
        **fields,
    )


def failure(kind: str, message: str) -> Outcome:
    details = {"kind": kind, **said_by(message)}
    return Outcome(kind=OutcomeKind.FAILURE, failure=kind, error_message=str(message), error_details=details)


def described(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
