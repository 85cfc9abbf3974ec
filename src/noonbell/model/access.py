"""Who may do what: a token with a role; and the audit log of who did what."""

from __future__ import annotations

import enum
import hashlib
import re
import secrets
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.clock import Instant
from noonbell.model.task import SYSTEM_TASK_IDS, Task, TaskSpec

PREFIX: Final = "nb_"
SHOWN: Final = 10
"""Characters of a token that lists show: enough to recognise it, and useless without the rest."""
OWN_RUN: Final = "own_run_without_token"
"""`details.reason` of the answer to a run that calls the API of its own installation without a token."""
_HEAD: Final = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})", re.ASCII)


class Role(enum.StrEnum):
    VIEWER = "viewer"
    """Reads."""
    WORKER = "worker"
    """Claims runs of the token's queues, and says how they go."""
    OPERATOR = "operator"
    """Makes and changes tasks, runs, queues and workers; does what workers and viewers do."""
    ADMIN = "admin"
    """Makes tokens, and reads the audit log; does what all others do."""

    def includes(self, other: Role) -> bool:
        """A viewer and a worker have nothing in common; an operator may do what both may, an admin everything."""
        order = list(Role)
        return self is other or (self in (Role.OPERATOR, Role.ADMIN) and order.index(self) > order.index(other))


class TokenScope(msgspec.Struct, frozen=True, kw_only=True):
    """What a token is for: tasks that have all of `labels`, one of `queues` and one of `job_types`; empty: any.

    Built-in tasks are in no scope. A flow has steps of several queues and job types: only a scope of labels alone holds it.
    """

    labels: tuple[tuple[str, str], ...] = ()
    queues: tuple[str, ...] = ()
    job_types: tuple[str, ...] = ()

    @property
    def has_one_target(self) -> bool:
        """Whether queues or job types are named, and so no flow is held."""
        return bool(self.queues or self.job_types)

    def holds(self, spec: TaskSpec) -> bool:
        return (
            all(spec.labels.get(name) == value for name, value in self.labels)
            and (not self.queues or spec.queue in self.queues)
            and (not self.job_types or spec.job_type in self.job_types)
            and not (self.has_one_target and spec.steps)
        )

    def holds_task(self, task: Task) -> bool:
        return task.id <= SYSTEM_TASK_IDS and self.holds(task.spec)

    def holds_run(self, task: Task, queue: str | None) -> bool:
        """A run of the task that is, or was, on that queue."""
        return self.holds_task(task) and (not self.queues or queue in self.queues)

    def holds_queue(self, name: str) -> bool:
        """Whether the queue as a whole is in it: only where nothing else narrows what it holds of that queue."""
        return name in self.queues and not self.labels and not self.job_types

    def __str__(self) -> str:
        said = [f"label {name}={value}" for name, value in self.labels]
        said += [f"queue {' or '.join(self.queues)}"] if self.queues else []
        said += [f"job type {' or '.join(self.job_types)}"] if self.job_types else []
        return ", ".join(said)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept: the secret itself is shown once, when it is made."""

    id: int
    name: str
    role: Role
    shown: str
    """How it begins."""
    queues: tuple[str, ...] = ()
    """The queues that it is for; empty: all. A worker's token has one at least."""
    labels: dict[str, str] = {}
    """The tasks that it is for have all of these."""
    job_types: tuple[str, ...] = ()
    """The job types that it is for; empty: all."""
    created_at: Instant
    created_by: str | None = None
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    used_at: Instant | None = None
    """Roughly: noted once a minute."""

    @property
    def scope(self) -> TokenScope | None:
        """None: it is for everything that its role reaches. What a worker's token is bound to, the worker protocol checks."""
        if self.role is Role.WORKER or not (self.queues or self.labels or self.job_types):
            return None
        return self.bounds

    @property
    def bounds(self) -> TokenScope:
        return TokenScope(labels=tuple(sorted(self.labels.items())), queues=self.queues, job_types=self.job_types)

    def is_good(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def new_secret() -> str:
    """256 random bits, and a beginning that scanners for leaked secrets can look for."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """A plain hash will do: what it hides is random, and cannot be guessed word by word."""
    return hashlib.sha256(secret.encode()).hexdigest()


class AuditAction(msgspec.Struct, frozen=True, kw_only=True):
    """One change that a caller made, before it is written to the audit log."""

    actor: str | None
    action: str
    """The operation's id in the API's description, such as `create_task`."""
    subject: str = ""
    """What it was done to: the address that was called."""
    peer: str = ""
    request_id: str = ""
    details: dict[str, Any] = {}


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action in the log. `hash` covers it and the entry before it, and so everything up to here."""

    id: int
    at: Instant
    deed: AuditAction
    hash: str
    signature: str | None = None
    """Of `hash`, as `KEYID:HEX`: what the store alone cannot make. None: written by a process without a key."""

    @property
    def key_id(self) -> str | None:
        return None if self.signature is None else self.signature.partition(":")[0]


class Head(NamedTuple):
    """The newest entry at some moment. Kept outside the store, it tells whether the log still has all that it had then."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"

    @classmethod
    def read(cls, text: str) -> Head:
        """ValueError for what is none."""
        found = _HEAD.fullmatch(text.strip())
        if found is None:
            raise ValueError("expected NUMBER:HASH, the hash with 64 hexadecimal digits")
        return cls(int(found[1]), found[2])


class AuditEnd(NamedTuple):
    """Where the log ends, seen at one moment."""

    entry: AuditEntry | None
    counted: int
    """How many entries were ever written, by the counter that gives their numbers."""

    @property
    def head(self) -> Head | None:
        return None if self.entry is None else Head(self.entry.id, self.entry.hash)


def chained(before: str, number: int, at: int, deed: AuditAction) -> str:
    """The hash of an entry that follows the one whose hash is `before`."""
    text = msgspec.json.encode([before, number, at, msgspec.to_builtins(deed)], order="deterministic")
    return hashlib.sha256(text).hexdigest()
