"""Every error that Noonbell raises on purpose, each with the stable code that API and command line show.

NoonbellError                 INTERNAL
├── InvalidArgument           INVALID_ARGUMENT    a field is wrong; `details` names each one
│   ├── ScheduleError         INVALID_ARGUMENT    a schedule names no moment, or cannot be read
│   └── SettingsError         INVALID_ARGUMENT    a setting is wrong; `details` names its path
├── InvalidJson               INVALID_JSON
├── InvalidId                 INVALID_ID
├── Unauthorized              UNAUTHORIZED
├── Forbidden                 FORBIDDEN
├── NotFound                  NOT_FOUND
├── AlreadyExists             ALREADY_EXISTS
├── ConcurrencyLimit          CONCURRENCY_LIMIT   the task is at its limit and its policy is SKIP
├── InvalidState              INVALID_STATE       allowed, but not in the state it is in now
├── LeaseLost                 LEASE_LOST          the fencing token is no longer the current one
├── VersionConflict           VERSION_CONFLICT    another caller changed it first
├── PayloadTooLarge           PAYLOAD_TOO_LARGE
├── RateLimited               RATE_LIMITED
└── StoreUnavailable          UNAVAILABLE         the store is not responding; trying again may help
    └── SchemaMismatch        UNAVAILABLE         the store's schema is not the one this code speaks
        └── StoreMoved        UNAVAILABLE         the store was moved to another address, or a move has not finished

Two stand apart. Fail: a handler raises it to end its run for good. RunFailed: who waits for a result hears by it that
there will be none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self


class Sentence(str):
    """A text in English that knows the template and the facts that it was made of: a page tells it in the reader's language."""

    __slots__ = ("facts", "template")

    template: str
    facts: dict[str, Any]

    def __new__(cls, template: str, /, **facts: Any) -> Self:
        made = super().__new__(cls, template.format(**facts))
        made.template, made.facts = template, facts
        return made


def both(first: str, second: str) -> Sentence:
    return Sentence("{first}; {second}", first=first, second=second)


class NoonbellError(Exception):
    """The root. `message` is one line for people: what is wrong, which value, what to do; with facts, a Sentence's template."""

    code: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, /, *, details: Mapping[str, Any] | None = None, **facts: Any) -> None:
        message = Sentence(message, **facts) if facts else message
        super().__init__(str(message))
        self.message = str(message)
        self.sentence = message
        """The message; a Sentence where one was given."""
        self.sentences: dict[str, str] = {
            name: value if isinstance(value, str) else str(value) for name, value in (details or {}).items()
        }
        """The details as texts; a Sentence where one was given."""
        self.details: dict[str, Any] = {
            name: str(value) if isinstance(value, Sentence) else value for name, value in (details or {}).items()
        }


class InvalidArgument(NoonbellError):
    """`details` maps each wrong field to what is wrong with it."""

    code = "INVALID_ARGUMENT"

    @classmethod
    def field(cls, name: str, problem: str) -> InvalidArgument:
        return cls(f"{name}: {problem}", details={name: problem})

    @classmethod
    def fields(cls, problems: Mapping[str, str]) -> InvalidArgument:
        text = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        return cls(text, details=problems)


class ScheduleError(InvalidArgument):
    pass


class InvalidJson(NoonbellError):
    code = "INVALID_JSON"


class InvalidId(NoonbellError):
    code = "INVALID_ID"


class Unauthorized(NoonbellError):
    code = "UNAUTHORIZED"


class Forbidden(NoonbellError):
    code = "FORBIDDEN"


class NotFound(NoonbellError):
    code = "NOT_FOUND"


class AlreadyExists(NoonbellError):
    code = "ALREADY_EXISTS"


class ConcurrencyLimit(NoonbellError):
    code = "CONCURRENCY_LIMIT"


class InvalidState(NoonbellError):
    code = "INVALID_STATE"


class LeaseLost(NoonbellError):
    code = "LEASE_LOST"


class VersionConflict(NoonbellError):
    code = "VERSION_CONFLICT"


class PayloadTooLarge(NoonbellError):
    code = "PAYLOAD_TOO_LARGE"


class RateLimited(NoonbellError):
    code = "RATE_LIMITED"


class StoreUnavailable(NoonbellError):
    code = "UNAVAILABLE"


class SchemaMismatch(StoreUnavailable):
    pass


class StoreMoved(SchemaMismatch):
    pass


class SettingsError(InvalidArgument):
    pass


class Fail(Exception):
    """Raised by a handler: the run has failed for good, and no retry would help. `details` are kept with the run."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class RunFailed(Exception):
    """Who waits for a run's result hears that it ended in another way. `details` are the run's `error_details`."""

    def __init__(self, run_id: int, status: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"run {run_id} ended {status}: {message}" if message else f"run {run_id} ended {status}")
        self.run_id = run_id
        self.status = status
        self.message = message
        self.details: dict[str, Any] = dict(details or {})


class Parked(BaseException):
    """Raised by `ctx.gather`: the attempt ends here, and the run goes on when its children have ended. Not to be caught."""


HTTP_STATUS: Final[Mapping[str, int]] = {
    "INVALID_JSON": 400,
    "INVALID_ARGUMENT": 400,
    "INVALID_ID": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "ALREADY_EXISTS": 409,
    "CONCURRENCY_LIMIT": 409,
    "INVALID_STATE": 409,
    "LEASE_LOST": 409,
    "VERSION_CONFLICT": 412,
    "PAYLOAD_TOO_LARGE": 413,
    "RATE_LIMITED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
"""Every code that an answer may carry, with its HTTP status."""
