"""Access: tokens made, shown once, revoked; who a token belongs to, how often it may call, how often a wrong one may be tried."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, read_monotonic
from noonbell.errors import AlreadyExists, InvalidArgument, NotFound, RateLimited, StoreUnavailable, Unauthorized
from noonbell.fields import Moment, filled, list_of, meta, plain, read_into
from noonbell.fields.kinds import unfit
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import SHOWN, AuditAction, Role, Token, hash_of, new_secret
from noonbell.model.target_kind import OWN_QUEUES
from noonbell.model.task import TaskId
from noonbell.ports import Store
from noonbell.sealing import Sealer
from noonbell.service.audit_log import AuditLog, AuditWriter, shown_entry

_FRESH: Final = 5.0
"""Seconds that a token is known for without asking the store: so long does a revoked one stay good, at most."""
_MOST_KNOWN: Final = 1_000
_MOST_SECONDS: Final = 10 * 366 * 86_400
_MOST_QUEUES: Final = 100
_MOST_LABELS: Final = 20
_TRIES: Final = 5
_FREE_GUESSES: Final = 10
"""Wrong tokens in a minute that cost their peer nothing."""
_LOOKUPS: Final = 4
"""Unknown tokens that are looked up in the store at the same time: guesses leave its connections to others."""
NOT_MINTED: Final = (
    "no token is required here, so none is created: an unknown caller would get it. Create one on the"
    " store itself with noonbell token create --role admin --name NAME, then set auth.enabled to true"
)


class TokenWrite(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a token"
    example: ClassVar[dict[str, Any]] = {"name": "ci", "role": "operator"}

    name: Annotated[
        str,
        meta(
            "Unique.",
            min_length=1,
            max_length=100,
            pattern=r"[\w.@ -]{1,100}",
            expected="up to 100 letters, digits, spaces and . _ - @",
        ),
    ]
    role: Annotated[Role, meta("The role: what it may do.")]
    labels: Annotated[
        dict[str, str] | None,
        meta(
            "Only for tasks that have all of these; not for workers and admins.",
            max_length=_MOST_LABELS,
            examples=[{"team": "billing"}],
        ),
    ] = None
    queues: Annotated[
        tuple[str, ...] | None,
        meta(
            "Only for tasks and runs of these queues; role worker: those that it may claim from.",
            max_length=_MOST_QUEUES,
            examples=[["mail"]],
        ),
    ] = None
    job_types: Annotated[
        tuple[str, ...] | None,
        meta("Only for tasks of these job types.", max_length=_MOST_QUEUES, examples=[["send_mail"]]),
    ] = None
    expires_in: Annotated[
        float | None,
        meta("Seconds; null: never.", ge=0.001, le=_MOST_SECONDS, expected="seconds, up to ten years"),
    ] = None


class ShownToken(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Token"

    id: Annotated[int, meta(examples=[1])]
    name: Annotated[str, meta(examples=["ci"])]
    role: Annotated[Role, meta(examples=["operator"])]
    labels: Annotated[dict[str, str] | None, meta(examples=[None])]
    queues: Annotated[list[str] | None, meta(examples=[None])]
    job_types: Annotated[list[str] | None, meta(examples=[None])]
    token: Annotated[
        str, meta("Its first characters; the whole token only when it is created.", examples=["nb_Y1kbhna…"])
    ]
    created_at: Moment
    created_by: Annotated[str | None, meta(examples=["ada"])]
    expires_at: Annotated[Moment | None, meta(examples=[None])]
    revoked_at: Annotated[Moment | None, meta(examples=[None])]
    used_at: Annotated[Moment | None, meta("Approximate: recorded once a minute.")]


TokenList = list_of("TokenList", ShownToken)


class TokenRevoked(msgspec.Struct, frozen=True):
    name: Annotated[str, meta(examples=["ci"])]
    revoked: Annotated[bool, meta(examples=[True])]


class Access:
    def __init__(
        self,
        store: Store,
        sealer: Sealer | None = None,
        *,
        calls_per_minute: int | None = None,
    ) -> None:
        """`sealer` signs the audit log; without a key it is not signed. Close it: the log may owe a line.

        `calls_per_minute`: of one token; None for any number.
        """
        sealer = sealer or Sealer()
        self._store = store
        self._rate = CallRate(calls_per_minute)
        self._known: OrderedDict[str, tuple[float, Token]] = OrderedDict()
        self._by_id: dict[int, tuple[float, Token]] = {}
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._guesses = PeerLimit(_FREE_GUESSES)
        self._writer = AuditWriter(store, sealer.sign)
        self.audit_log = AuditLog(store, sealer)

    async def close(self) -> None:
        """Lines that could not be written are tried once more. The store is still open."""
        await self._writer.close()

    async def task_id(self, name: str) -> TaskId | None:
        """The id of the task that has this name now: what is done to it is recorded under its id."""
        task = await self._store.task_named(name)
        return None if task is None else task.id

    # Tokens

    async def create(
        self,
        name: str,
        role: str,
        *,
        seconds: float | None = None,
        by: str | None = None,
        queues: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        job_types: Sequence[str] = (),
    ) -> tuple[Token, str]:
        """The token and its secret, which is shown here and nowhere else. `queues`, `labels` and `job_types` are its scope."""
        at = ReadContext(Problems())
        bounds = {"queues": list(queues), "labels": dict(labels or {}), "job_types": list(job_types)}
        given = {"name": name, "role": role, "expires_in": seconds}
        asked = read_into(TokenWrite, {**given, **{key: value or None for key, value in bounds.items()}}, at)
        if "role" not in at.problems.found:
            for field, problem in _scope_problems(asked.role, queues, labels or {}, job_types).items():
                at.wrong(field, problem)
        at.problems.finish()
        secret = new_secret()
        token = await self._store.create_token(
            name,
            asked.role,
            hash_of(secret),
            shown=secret[:SHOWN],
            by=by,
            seconds=seconds,
            queues=queues,
            labels=labels,
            job_types=job_types,
        )
        return token, secret

    async def signed_in(self, name: str, role: Role, seconds: float) -> Token:
        """The token of a person that another system vouches for. Its secret is thrown away. It ends after `seconds` at most.

        While one of the same role is good for half of that at least, it is used again: other sessions of the person go on.
        """
        for _ in range(_TRIES):
            now = await self._store.now()
            for token in await self._store.tokens():
                is_alike = token.name == name and token.role is role and token.scope is None and token.is_good(now)
                if is_alike and token.expires_at is not None and token.expires_at - now > seconds * SECOND / 2:
                    return token
            with contextlib.suppress(NotFound):  # another role now, or nearly over
                await self.revoke(name)
            with contextlib.suppress(AlreadyExists):  # another node was quicker
                return (await self.create(name, role, seconds=seconds))[0]
        raise StoreUnavailable("the session could not be started; try again")

    async def tokens(self) -> list[dict[str, Any]]:
        return [shown(token) for token in await self._store.tokens()]

    async def revoke(self, name: str) -> Token:
        token = await self._store.revoke_token(name)
        self._known.clear()
        self._by_id.clear()
        return token

    async def who(self, secret: str, peer: str) -> Token:
        """The token of a secret. Unauthorized if there is none; RateLimited for a peer that has guessed too often.

        A good secret stays good even if its peer has sent wrong ones before: others may share the address.
        """
        hashed = hash_of(secret)
        at, token = self._known.get(hashed, (0.0, None))
        if token is None:
            async with self._lookups:
                token = await self._learn(hashed)
        elif read_monotonic() - at > _FRESH:
            token = await self._learn(hashed)
        if token is None or not token.is_good(await self._store.now() if token.expires_at else 0):
            self.check_peer(peer)
            self.guessed(peer)
            raise Unauthorized("the token is unknown, revoked or expired")
        return token

    def check_peer(self, peer: str) -> None:
        """RateLimited for a peer that has guessed too often."""
        if left := self._guesses.seconds_left(peer):
            raise RateLimited(
                f"too many wrong tokens from this address; try again in {left:.0f} s",
                details={"retry_after": int(left) + 1},
            )

    def guessed(self, peer: str) -> None:
        """A peer came with a token or password that is not valid."""
        self._guesses.note(peer)

    def count(self, token: Token) -> None:
        """A call with this token. RateLimited, if the token has called too often."""
        self._rate.count(token.id)

    async def _learn(self, hashed: str) -> Token | None:
        token = await self._store.token_of(hashed)
        if token is None:
            return None
        self._known[hashed] = (read_monotonic(), token)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        await self._store.note_token_use(token.id)
        return token

    async def by_id(self, token_id: int) -> Token | None:
        """The token, if it is still good: for a session that showed it before. Cached for a few seconds."""
        at, token = self._by_id.get(token_id, (0.0, None))
        if token is None or read_monotonic() - at > _FRESH:
            now = read_monotonic()
            self._by_id = {token.id: (now, token) for token in await self._store.tokens()}
            _, token = self._by_id.get(token_id, (0.0, None))
        if token is None or not token.is_good(await self._store.now() if token.expires_at else 0):
            return None
        return token

    # The audit log

    async def note(self, deed: AuditAction) -> bool:
        """Returns when it is written. False: it could not be, and will be tried again."""
        return await self._writer.write(deed)

    async def log(
        self, before: int | None, limit: int, actor: str | None = None, **narrowed: Any
    ) -> list[dict[str, Any]]:
        """Newest first. `narrowed` is what else `Store.audit_log` takes."""
        return [shown_entry(entry) for entry in await self._store.audit_log(before, limit, actor=actor, **narrowed)]


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """Each as NAME=VALUE, each name once; InvalidArgument names `labels`."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidArgument.field("labels", f"name {pair[:100]!r}; expected NAME=VALUE")
        if name in found:
            raise InvalidArgument.field("labels", f"name {name[:100]!r} twice; a task has one value of it")
        found[name] = value
    return found


def scope_of(token: Token) -> dict[str, Any]:
    """What the audit log says of a new token besides its name."""
    return {"role": token.role, **{name: value for name, value in _bounds(token).items() if value}}


def _bounds(token: Token) -> dict[str, Any]:
    return {"queues": list(token.queues), "labels": token.labels, "job_types": list(token.job_types)}


def _scope_problems(
    role: str, queues: Sequence[str], labels: Mapping[str, str], job_types: Sequence[str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    if role == Role.ADMIN:
        given = {"queues": queues, "labels": labels, "job_types": job_types}
        return {
            name: f"cannot be set for the role {Role.ADMIN}, which covers everything"
            for name, value in given.items()
            if value
        }
    if role == Role.WORKER and labels:
        found["labels"] = (
            f"cannot be set for the role {Role.WORKER}: a worker claims by queue and job type; leave them out"
        )
    if role == Role.WORKER and not queues:
        found["queues"] = "are missing; expected the queues that the worker may claim from"
    for field, names in (("queues", queues), ("job_types", job_types)):
        if len(names) > _MOST_QUEUES or len(set(names)) != len(names):
            found[field] = f"are {len(names)}; expected at most {_MOST_QUEUES}, each of them once"
        elif wrong := [name for name in names if not 1 <= len(name) <= 255 or unfit(name) is not None]:
            found[field] = f"name {wrong[0][:100]!r}, which no task can have"
    if role == Role.WORKER and (own := [name for name in queues if name in OWN_QUEUES]):
        found["queues"] = f"name {own[0][:100]!r}, which no worker can claim from"
    for name, value in labels.items():
        if not 1 <= len(name) <= 255 or "=" in name or len(value) > 255 or unfit(name + value) is not None:
            found["labels"] = f"name {name[:100]!r}, a label that no task can have"
    return found


MOST_PEERS: Final = 10_000
"""Remembered at once; when there are more, those who have been quiet for longest are forgotten."""


class PeerLimit:
    """Counts what peers do wrong: after `most` times in `seconds`, they wait. An IPv6 peer is its /64."""

    def __init__(self, most: int, seconds: float = 60.0, monotonic: Callable[[], float] = read_monotonic) -> None:
        self._most, self._seconds, self._monotonic = most, seconds, monotonic
        self._seen: dict[str, tuple[float, int]] = {}

    def seconds_left(self, peer: str) -> float:
        """How long a peer has to wait that has done wrong too often; 0 for any other."""
        since, count = self._seen.get(group_of(peer), (0.0, 0))
        return max(0.0, since + self._seconds - self._monotonic()) if count >= self._most else 0.0

    def note(self, peer: str) -> None:
        """The peer has done wrong once more."""
        now, group = self._monotonic(), group_of(peer)
        since, count = self._seen.pop(group, (now, 0))
        self._seen[group] = (now, 1) if now - since >= self._seconds else (since, count + 1)
        while len(self._seen) > MOST_PEERS:
            del self._seen[next(iter(self._seen))]


def shown(token: Token) -> dict[str, Any]:
    bounds = {name: each or None for name, each in _bounds(token).items()}
    return plain(filled(ShownToken, token, token=f"{token.shown}…", **bounds))


_MOST_COUNTED: Final = 10_000
"""Tokens that are counted at once; the one that has been quiet for longest is forgotten first."""


class CallRate:
    """A bucket for each token: it holds `per_minute` calls, and fills up evenly in a minute. This process counts alone."""

    def __init__(self, per_minute: int | None, monotonic: Callable[[], float] = read_monotonic) -> None:
        """None: any number."""
        self._per_minute, self._monotonic = per_minute, monotonic
        self._left: dict[int, tuple[float, float]] = {}

    def count(self, token_id: int) -> None:
        """RateLimited for a call beyond the limit, which costs nothing."""
        if self._per_minute is None:
            return
        now, per_second = self._monotonic(), self._per_minute / 60
        at, left = self._left.pop(token_id, (now, float(self._per_minute)))
        left = min(self._per_minute, left + (now - at) * per_second)
        self._left[token_id] = (now, left if left < 1 else left - 1)
        while len(self._left) > _MOST_COUNTED:
            del self._left[next(iter(self._left))]
        if left < 1:
            wait = math.ceil((1 - left) / per_second)
            raise RateLimited(
                f"this token has used its {self._per_minute} calls per minute (auth.calls_per_minute);"
                f" try again in {wait} s",
                details={"retry_after": wait},
            )


def group_of(peer: str) -> str:
    """What the peer is counted as: its address; of an IPv6 address the /64, all of which one caller usually has."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
