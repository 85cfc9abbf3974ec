"""From what a handler returned or raised to how its attempt ended.

Pure, so that worker and sandbox say the same in the same words.

returned           success; what is not JSON is a failure of kind `invalid_result`, never retried
Fail               kind `fail`, never retried
Parked             no end: the run waits for its children, and is attempted again
anything else      kind `error`, retried as the task's policy says; its type and the end of its traceback are kept
unfit payload      kind `invalid_payload`, never retried; `fields` says what is wrong with which
its process died   kind `crash`, retried as `error` is
"""

from __future__ import annotations

import signal
import traceback
from types import TracebackType
from typing import Any, Final

import msgspec

from noonbell.errors import Fail, InvalidArgument
from noonbell.model.failure_text import failure_text, said_by
from noonbell.model.run import Outcome, OutcomeKind

SUCCESS: Final = Outcome(kind=OutcomeKind.SUCCESS)
"""Without a result: what most runs end with."""

_LONGEST_MESSAGE = 4_000
_FRAMES = 8
"""The innermost frames of a traceback: enough to see where, not enough to fill a table."""
_LONGEST_TRACE = 4_000

_encoder = msgspec.json.Encoder()


def returned(value: Any) -> Outcome:
    """The result is encoded here, once; the store writes the text as it is."""
    if value is None:
        return SUCCESS
    try:
        return encoded(_encoder.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        return _failure(
            "invalid_result",
            failure_text("result_not_json", type=type(value).__name__, error=str(error)),
            type=type(value).__name__,
        )


def encoded(result: bytes) -> Outcome:
    return Outcome(kind=OutcomeKind.SUCCESS, result=msgspec.Raw(result))


def raised(error: BaseException) -> Outcome:
    if isinstance(error, Fail):
        return _failure("fail", error.message or failure_text("handler_failed"), **_json(error.details))
    return _failure("error", _said(error), type=_type(error), traceback=_trace(error))


def gathering() -> Outcome:
    """The handler waits for its children."""
    return Outcome(kind=OutcomeKind.GATHERING)


def unfit(error: InvalidArgument) -> Outcome:
    """The payload is not what the handler's signature asks for."""
    return _failure("invalid_payload", failure_text("payload_unfit", error=error.message), fields=_json(error.details))


def unknown(job_type: str | None) -> Outcome:
    return _failure("error", failure_text("no_handler", type=repr(job_type)))


def timed_out(seconds: float, late: float = 0.0) -> Outcome:
    """`late`: for this many seconds after its time was over, a blocked event loop kept it from being ended."""
    if late:
        return _failure("timeout", failure_text("took_longer_blocked", seconds=f"{seconds:g}", late=f"{late:.1f}"))
    return _failure("timeout", failure_text("took_longer", seconds=f"{seconds:g}"))


def crashed(status: int | None) -> Outcome:
    """`status` is the process's return code: below zero, the signal that killed it."""
    if status is None:
        return _failure("crash", failure_text("process_ended"))
    if status >= 0:
        return _failure("crash", failure_text("process_exit", code=status), exit_code=status)
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    code = "process_killed_memory" if -status == signal.SIGKILL else "process_killed"
    return _failure("crash", failure_text(code, signal=name), signal=name)


def unready(problem: str) -> Outcome:
    return _failure("error", failure_text("process_not_ready", error=problem))


def clean(text: str) -> str:
    """What every store can hold: no NUL, no half of a surrogate pair."""
    return text.replace("\x00", "�").encode("utf-8", "replace").decode()


def _failure(kind: str, message: str, **details: Any) -> Outcome:
    return Outcome(
        kind=OutcomeKind.FAILURE,
        failure=kind,
        error_message=clean(message)[:_LONGEST_MESSAGE],
        error_details={**details, "kind": kind, **said_by(message, lambda text: clean(text)[:_LONGEST_MESSAGE])},
    )


def _json(details: dict[str, Any]) -> dict[str, Any]:
    """Each value as JSON has it, or in words."""
    return {clean(str(name)): _plain(value) for name, value in details.items()}


def _plain(value: Any) -> Any:
    try:
        return msgspec.json.decode(_encoder.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return clean(_shown(value))


def _said(error: BaseException) -> str:
    text = _shown(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:  # foreign __str__
        return f"a {type(value).__name__} that cannot be shown"


def _type(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _trace(error: BaseException) -> str:
    """Where it came from, innermost last: what this house's own code did on the way is left out."""
    frames = traceback.extract_tb(_outside(error.__traceback__))[-_FRAMES:]
    return clean("".join(traceback.format_list(frames)))[-_LONGEST_TRACE:]


def _outside(trace: TracebackType | None) -> TracebackType | None:
    inner = trace
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith("noonbell."):
        inner = inner.tb_next
    return inner or trace
