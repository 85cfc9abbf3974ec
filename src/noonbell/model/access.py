"""Who may do what: a token with a role; and the audit log of who did what."""

from __future__ import annotations

import enum
import hashlib
import re
import secrets
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.clock import Instant

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


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept: the secret itself is shown once, when it is made."""

    id: int
    name: str
    role: Role
    shown: str
    """How it begins."""
    queues: tuple[str, ...] = ()
    """Of a worker's token: the queues that it is for, one at least. Others have none, and are for all."""
    created_at: Instant
    created_by: str | None = None
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    used_at: Instant | None = None
    """Roughly: noted once a minute."""

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
