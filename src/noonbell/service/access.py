"""Access: tokens made, shown once, revoked; who a token belongs to; and the audit log."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from noonbell.clock import rfc3339
from noonbell.errors import InvalidArgument, NoonbellError, RateLimited, Unauthorized
from noonbell.model.access import SHOWN, AuditEntry, Deed, Role, Token, hash_of, new_secret
from noonbell.model.task import HTTP_QUEUE
from noonbell.ports import AccessStore
from noonbell.service.peers import group_of
from noonbell.service.reader import unfit

log = logging.getLogger("noonbell")

_MOST_TOGETHER: Final = 500
_NAME: Final = re.compile(r"[\w.@ -]{1,100}")
_FRESH: Final = 5.0
"""Seconds that a token is known for without asking the store: so long does a revoked one stay good, at most."""
_MOST_KNOWN: Final = 1_000
_MOST_SECONDS: Final = 10 * 366 * 86_400
_MOST_QUEUES: Final = 100
_LOOKUPS: Final = 4
"""Unknown tokens that are looked up in the store at the same time: guesses leave its connections to others."""
NOT_MINTED: Final = (
    "no token is asked for here, so none is made: an unknown caller would keep it. On the store itself,"
    " noonbell token create --role admin --name NAME makes one; auth.enabled: true asks for it"
)


class Access:
    def __init__(self, store: AccessStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self._known: OrderedDict[str, tuple[float, Token]] = OrderedDict()
        self._by_id: dict[int, tuple[float, Token]] = {}
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._doubt = Doubt(monotonic)
        self._scribe = Scribe(store)

    # Tokens

    async def create(
        self,
        name: str,
        role: str,
        *,
        seconds: float | None = None,
        by: str | None = None,
        queues: Sequence[str] = (),
    ) -> tuple[Token, str]:
        """The token and its secret, which is shown here and nowhere else."""
        problems: dict[str, str] = {}
        if not _NAME.fullmatch(name):
            problems["name"] = f"is {name!r}; expected up to 100 letters, digits, spaces and . _ - @"
        if role not in list(Role):
            problems["role"] = f"is {role!r}; expected {', '.join(Role)}"
        if seconds is not None and not 0 < seconds <= _MOST_SECONDS:
            problems["expires_in"] = f"is {seconds!r}; expected seconds, up to ten years"
        if found := _queues_problem(role, queues):
            problems["queues"] = found
        if problems:
            raise InvalidArgument.fields(problems)
        secret = new_secret()
        token = await self._store.create_token(
            name, Role(role), hash_of(secret), shown=secret[:SHOWN], by=by, seconds=seconds, queues=queues
        )
        return token, secret

    async def tokens(self) -> list[dict[str, Any]]:
        return [shown(token) for token in await self._store.tokens()]

    async def revoke(self, name: str) -> Token:
        token = await self._store.revoke_token(name)
        self._known.clear()
        self._by_id.clear()
        return token

    async def who(self, secret: str, peer: str) -> Token:
        """Whose secret it is. Unauthorized if nobody's; RateLimited for a peer that has guessed too often.

        A good secret is good whatever its peer has sent before: others may share the address.
        """
        hashed = hash_of(secret)
        at, token = self._known.get(hashed, (0.0, None))
        if token is None:
            async with self._lookups:
                token = await self._learn(hashed)
        elif self._monotonic() - at > _FRESH:
            token = await self._learn(hashed)
        if token is None or not token.is_good(await self._store.now() if token.expires_at else 0):
            self._doubt.check(peer)
            self._doubt.failed(peer)
            raise Unauthorized("the token is not known, revoked or has expired")
        return token

    async def _learn(self, hashed: str) -> Token | None:
        token = await self._store.token_of(hashed)
        if token is None:
            return None
        self._known[hashed] = (self._monotonic(), token)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        await self._store.note_token_use(token.id)
        return token

    async def by_id(self, token_id: int) -> Token | None:
        """The token, if it is good: what somebody who has shown it before is asked again. Known for a few seconds."""
        at, token = self._by_id.get(token_id, (0.0, None))
        if token is None or self._monotonic() - at > _FRESH:
            now = self._monotonic()
            self._by_id = {token.id: (now, token) for token in await self._store.tokens()}
            _, token = self._by_id.get(token_id, (0.0, None))
        if token is None or not token.is_good(await self._store.now() if token.expires_at else 0):
            return None
        return token

    # The audit log

    async def note(self, deed: Deed) -> None:
        """Returns when it is written."""
        await self._scribe.write(deed)

    async def log(
        self, before: int | None, limit: int, actor: str | None = None, **narrowed: Any
    ) -> list[dict[str, Any]]:
        """Newest first. `narrowed` is what else `AccessStore.audit_log` takes."""
        return [shown_entry(entry) for entry in await self._store.audit_log(before, limit, actor=actor, **narrowed)]


def _queues_problem(role: str, queues: Sequence[str]) -> str | None:
    if role != Role.WORKER:
        return f"are for the role {Role.WORKER}; leave them out" if queues else None
    if not queues:
        return "are missing; expected the queues that the worker may claim from"
    if len(queues) > _MOST_QUEUES or len(set(queues)) != len(queues):
        return f"are {len(queues)}; expected at most {_MOST_QUEUES}, each of them once"
    wrong = [name for name in queues if name == HTTP_QUEUE or not 1 <= len(name) <= 255 or unfit(name) is not None]
    return f"name {wrong[0][:100]!r}, which no worker can claim from" if wrong else None


class Scribe:
    """Writes deeds down, those of the same moment together: however many change something, the log is one line."""

    def __init__(self, store: AccessStore) -> None:
        self._store = store
        self._waiting: list[tuple[Deed, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def write(self, deed: Deed) -> None:
        """Returns when it is written. A log that cannot be written is said, and the change stands."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((deed, done))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        try:
            await done
        except NoonbellError as error:
            log.warning("the audit log could not be written: %s by %s: %s", deed.action, deed.actor, error)

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
            try:
                await self._store.write_audit([deed for deed, _ in batch])
            except Exception as error:
                _tell(batch, error)
            else:
                _tell(batch, None)


def _tell(batch: Sequence[tuple[Deed, asyncio.Future[None]]], error: Exception | None) -> None:
    for _, done in batch:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


class Doubt:
    """Peers that come with wrong tokens: after a few they wait, however many they try. An IPv6 peer is its /64."""

    FREE: Final = 10
    """Wrong tokens that cost nothing, in every `PER` seconds."""
    PER: Final = 60.0
    MOST: Final = 10_000

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, peer: str) -> None:
        since, count = self._failures.get(group_of(peer), (0.0, 0))
        left = since + self.PER - self._monotonic()
        if count >= self.FREE and left > 0:
            raise RateLimited(
                f"too many wrong tokens from this address; try again in {left:.0f} s",
                details={"retry_after": int(left) + 1},
            )

    def failed(self, peer: str) -> None:
        group = group_of(peer)
        since, count = self._failures.pop(group, (0.0, 0))
        now = self._monotonic()
        self._failures[group] = (now, 1) if now - since > self.PER else (since, count + 1)
        while len(self._failures) > self.MOST:
            self._failures.popitem(last=False)


def shown(token: Token) -> dict[str, Any]:
    def moment(instant: int | None) -> str | None:
        return None if instant is None else rfc3339(instant)

    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "queues": list(token.queues) or None,
        "token": f"{token.shown}…",
        "created_at": moment(token.created_at),
        "created_by": token.created_by,
        "expires_at": moment(token.expires_at),
        "revoked_at": moment(token.revoked_at),
        "used_at": moment(token.used_at),
    }


def shown_entry(entry: AuditEntry) -> dict[str, Any]:
    deed = entry.deed
    return {
        "id": entry.id,
        "at": rfc3339(entry.at),
        "actor": deed.actor,
        "action": deed.action,
        "subject": deed.subject,
        "peer": deed.peer,
        "request_id": deed.request_id,
        "details": deed.details,
        "hash": entry.hash,
    }
