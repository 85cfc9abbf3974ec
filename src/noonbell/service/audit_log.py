"""The audit log: its entries written and shown; where it ends, whether it is as it was written, from where on it is signed.

The consistency of everything else in a store is checked in `consistency`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SystemClock, rfc3339
from noonbell.errors import InvalidArgument, StoreUnavailable
from noonbell.fields import Moment, counted, filled, meta, plain
from noonbell.model.access import AuditAction, AuditEnd, AuditEntry, Head
from noonbell.model.task import Task
from noonbell.policy.audit_chain import ChainCheck, IsSigned, LogFlaw, LogState, Wrong
from noonbell.ports import Sign, Store, unsigned
from noonbell.sealing import SETTING, Sealer

SIGNING: Final = "sign_audit_log"
_BATCH: Final = 500
"""Entries that are checked in one go: a few milliseconds."""
_MOST_TOGETHER: Final = 500
_MOST_OWED: Final = 10_000
"""Lines that are kept in memory while the store does not take them."""
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0
"""Seconds between two tries of a line that could not be written."""
_LAST_TRY: Final = 3.0

log = logging.getLogger("noonbell")


_commands: ContextVar[list[str] | None] = ContextVar("noonbell_commands", default=None)
_MOST_COMMANDS: Final = 20
_LONGEST_COMMAND: Final = 500


def expect_commands() -> None:
    """A request begins: its line in the audit log names the commands that it sets."""
    _commands.set([])


def note_commands(tasks: Iterable[Task]) -> None:
    """These tasks were saved by the request under way."""
    found = _commands.get()
    if found is None:
        return
    for task in tasks:
        steps = [(f"{task.name}/{step.id}", step.command_line) for step in task.spec.steps]
        for name, line in ((task.name, task.spec.command_line), *steps):
            if line and len(found) < _MOST_COMMANDS:
                found.append(f"{name}: {line}"[:_LONGEST_COMMAND])


def noted_commands() -> dict[str, Any]:
    """Which commands the request has set, for the details of its line; empty where it has set none."""
    found = _commands.get()
    return {"command": "; ".join(found)} if found else {}


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, meta("The most to return.", ge=1, le=1_000)] = 100
    before: Annotated[int | None, meta("The `next_before` of the previous page.", ge=0, le=2**53 - 1)] = None
    actor: Annotated[str | None, meta("Only changes by this actor.", examples=["ada"])] = None


class ShownEntry(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "AuditEntry"

    id: Annotated[int, meta(examples=[1])]
    at: Moment
    actor: Annotated[str | None, meta(examples=["ada"])]
    action: Annotated[str, meta("The operation's id in this API description.", examples=["create_task"])]
    subject: Annotated[str, meta("The path that was called.", examples=["/api/v1/tasks/1"])]
    peer: Annotated[str, meta(examples=["10.0.0.7"])]
    request_id: Annotated[str, meta(examples=["4bf92f3577b34da6a3ce929d0e0e4736"])]
    details: dict[str, Any]
    hash: Annotated[str, meta(examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"])]
    key: Annotated[str | None, meta("The key that signed it; null: not signed.", examples=["k1"])]


class AuditPage(msgspec.Struct, frozen=True):
    items: list[ShownEntry]
    next_before: Annotated[int | None, meta(examples=[None])]


class AuditCheck(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, meta("How many of the newest entries.", ge=1, le=100_000)] = 10_000
    expect_head: Annotated[
        str | None, meta("An entry that the log must have, `NUMBER:HASH`, from `audit log head` in a server's log.")
    ] = None


class AuditFlaw(msgspec.Struct, frozen=True, kw_only=True):
    kind: Annotated[Wrong, meta(examples=["cut"])]
    first: Annotated[int, meta(examples=[513])]
    last: Annotated[int, meta(examples=[520])]
    key: Annotated[str | None, meta("The key that a signature names.", examples=[None])]


class AuditState(msgspec.Struct, frozen=True, kw_only=True):
    is_sound: Annotated[bool, meta(examples=[True])]
    since: Annotated[int, meta("The first entry that was checked.", examples=[1])]
    head: Annotated[str | None, meta("The last one, `NUMBER:HASH`.", examples=[f"512:{'9f86d081884c7d65' * 4}"])]
    signed: Annotated[int, meta("How many of them are signed.", examples=[473])]
    signed_since: Annotated[int | None, meta("The first of those.", examples=[40])]
    key: Annotated[str | None, meta("The key that signs new entries; null: they are not signed.", examples=["k1"])]
    flaws: Annotated[list[AuditFlaw], meta(examples=[[]])]


class AuditLog:
    def __init__(self, store: Store, sealer: Sealer | None = None) -> None:
        self._store, self._sealer = store, sealer or Sealer()
        self._checking = asyncio.Lock()

    @property
    def key_id(self) -> str | None:
        """The key that signs new entries; None: they are not signed."""
        return self._sealer.first

    async def end(self) -> AuditEnd:
        return await self._store.audit_end()

    async def check(self, expected: Sequence[Head] = (), newest: int | None = None) -> LogState:
        """The whole log, or the newest entries only; one check at a time.

        An expected head is compared wherever it is; it vouches for the entries that are looked at.
        """
        async with self._checking:
            end = await self._store.audit_end()
            before = None
            if newest is not None and end.entry is not None and end.entry.id > newest:
                before = next(iter(await self._store.audit_entries(end.entry.id - newest, 1)), None)
            state = await self._walk(end, before, expected)
            return await self._with_older(state, expected)

    async def check_since(self, seen: AuditEntry) -> LogState:
        """What came after an entry that was seen before; and whether that one is still there."""
        async with self._checking:
            end = await self._store.audit_end()
            state = await self._walk(end, seen, ())
            return await self._with_older(state, [Head(seen.id, seen.hash)])

    async def begin_signing(self) -> AuditEntry | None:
        """Write a signed entry that covers all before it, where there is a key and the newest entry has no signature."""
        end = await self._store.audit_end()
        if self.key_id is None or end.entry is None or end.entry.signature is not None:
            return None
        deed = AuditAction(actor=None, action=SIGNING, subject="/audit", details={"key": self.key_id})
        return (await self._store.write_audit([deed], self._sealer.sign))[0]

    async def _walk(self, end: AuditEnd, before: AuditEntry | None, expected: Sequence[Head]) -> LogState:
        since = 1 if before is None else before.id + 1
        check = ChainCheck(self._is_signed, [head for head in expected if head.number >= since], before)
        while entries := await self._store.audit_entries(since, _BATCH):
            check.take(entries)
            since = entries[-1].id + 1
            await asyncio.sleep(0)  # in memory the store answers without a pause
        return check.finish(end)

    async def _with_older(self, state: LogState, expected: Sequence[Head]) -> LogState:
        """With the expected heads from before the entries that were looked at."""
        flaws = list(state.flaws)
        for head in expected:
            if head.number < state.since:
                found = next(iter(await self._store.audit_entries(head.number, 1)), None)
                if found is None:
                    flaws.append(LogFlaw(Wrong.CUT, head.number, head.number))
                elif (found.id, found.hash) != head:
                    flaws.append(LogFlaw(Wrong.REPLACED, head.number, head.number))
        return replace(state, flaws=tuple(sorted(flaws, key=lambda flaw: flaw.first)))

    @property
    def _is_signed(self) -> IsSigned | None:
        return None if self._sealer.first is None else self._sealer.is_signed


def expected_heads(texts: Sequence[str], field: str) -> list[Head]:
    """InvalidArgument, naming the field, for a text that is no head."""
    try:
        return [Head.read(text) for text in texts]
    except ValueError as error:
        raise InvalidArgument.fields({field: f"is not a head of the audit log; {error}"}) from None


def shown_state(state: LogState, key_id: str | None) -> dict[str, Any]:
    """As the API and programs see it."""
    flaws = [filled(AuditFlaw, flaw, kind=flaw.wrong, key=flaw.key_id or None) for flaw in state.flaws]
    head = None if state.head is None else str(state.head)
    return plain(filled(AuditState, state, head=head, key=key_id, flaws=flaws))


def state_in_words(state: LogState, key_id: str | None) -> str:
    """One line for the command line, in English: how far it goes, and what it can be relied on for."""
    if state.head is None:
        return "audit log: no entries"
    return f"audit log: {state.head.number} entries, {_how_signed(state, key_id)}; head {state.head}"


def _how_signed(state: LogState, key_id: str | None) -> str:
    if key_id is None and state.signed:
        return f"signatures not checked, since {SETTING} is not set here"
    if key_id is None:
        return f"not signed, since {SETTING} is not set: who can write to the store can write all of it anew"
    if state.signed_since is None:
        return "none signed"
    return f"signed from entry {state.signed_since} on"


def in_words(flaw: LogFlaw) -> str:
    """For the command line and the server's log, in English."""
    which = f"entry {flaw.first}" if flaw.first == flaw.last else f"entries {flaw.first} to {flaw.last}"
    many, them = flaw.first != flaw.last, "them" if flaw.first != flaw.last else "it"
    are = "are" if many else "is"
    match flaw.wrong:
        case Wrong.CHANGED:
            return f"{which} of the audit log, or the one before {them}, {are} not as written"
        case Wrong.FORGED:
            return f"{which} of the audit log {'have signatures' if many else 'has a signature'} that key {flaw.key_id!r} did not make"
        case Wrong.UNSIGNED:
            return (
                f"{which} of the audit log {are} not signed, though earlier ones are: a process without {SETTING} wrote"
                f" {them}, or a hand in the database"
            )
        case Wrong.UNKNOWN_KEY:
            return (
                f"{which} of the audit log {are} signed with key {flaw.key_id!r}, which {SETTING} does not hold, and no"
                f" rotation checked {them}"
            )
        case Wrong.NEVER_SIGNED:
            return (
                f"{which} of the audit log: none is signed, though {SETTING} is set. No server has started with the key"
                " yet, or the signatures were taken away"
            )
        case Wrong.CUT:
            return f"the audit log ends before its time: entry {flaw.last} was expected"
        case Wrong.REPLACED:
            return (
                f"{which} of the audit log {are} not the expected one: the log was written anew from there or earlier"
            )


def shown_entry(entry: AuditEntry) -> dict[str, Any]:
    written = {"id": entry.id, "at": rfc3339(entry.at), **msgspec.to_builtins(entry.deed)}
    return {**written, "hash": entry.hash, "key": entry.key_id}


@dataclass(slots=True)
class PendingEntry:
    """An action on its way into the log, and the future of the caller that waits for it."""

    deed: AuditAction
    written: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    is_late: bool = False

    def end(self, *, written: bool) -> None:
        if not self.written.done():
            self.written.set_result(written)

    def fail(self, error: Exception) -> None:
        """Logged once, in full: the server's own log has the entry until the audit log has it."""
        self.end(written=False)
        if self.is_late:
            return
        said = msgspec.json.encode(self.deed).decode()
        log.error("the audit log could not be written; the change stands: %s: %s", said, error)
        at = rfc3339(SystemClock().now())
        self.deed = msgspec.structs.replace(self.deed, details={**self.deed.details, "done_at": at})
        self.is_late = True


class AuditWriter:
    """Writes entries, those of the same moment in one batch: the log is a chain, so only one batch is written at a time.

    The change was made before, in a transaction of its own, and stands even if its entry is not written: an answer that it
    failed would be false. So an entry that the store does not take now is written into the server's log, kept, and tried
    again until the store takes it. An entry may come twice where the store took it and its answer was lost. A process that
    dies meanwhile leaves the entry in the server's log alone.
    """

    def __init__(self, store: Store, sign: Sign = unsigned) -> None:
        self._store, self._sign = store, sign
        self._waiting: list[PendingEntry] = []
        self._more = asyncio.Event()
        self._closing = False
        self._writer: asyncio.Task[None] | None = None

    async def write(self, deed: AuditAction) -> bool:
        """Returns when it is written: True. False: it could not be now, and is tried again."""
        line = PendingEntry(deed)
        self._waiting.append(line)
        self._more.set()
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        return await line.written

    async def close(self) -> None:
        """Try once more to write what is owed."""
        self._closing = True
        self._more.set()
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=_LAST_TRY)
            self._writer.cancel()
        if self._waiting:
            log.error(
                "%s of the audit log could not be written; see above in this log",
                counted(len(self._waiting), "entry", "entries"),
            )

    async def _write_all(self) -> None:
        pause = _FIRST_PAUSE
        while self._waiting:
            self._more.clear()
            batch = self._waiting[:_MOST_TOGETHER]
            try:
                await self._write(batch)
                pause = _FIRST_PAUSE
            except StoreUnavailable as error:
                for line in self._waiting:
                    line.fail(error)
                self._forget_oldest()
                if self._closing:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._more.wait()
                pause = min(2 * pause, _LAST_PAUSE)

    async def _write(self, batch: list[PendingEntry]) -> None:
        """StoreUnavailable: they are kept. What the store does not take for any other reason is given up, alone."""
        try:
            await self._store.write_audit([line.deed for line in batch], self._sign)
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(batch) > 1:
                for line in batch:
                    await self._write([line])
                return
            batch[0].fail(error)
            log.exception("an entry of the audit log was dropped: the store does not accept it")
        else:
            late = sum(line.is_late for line in batch)
            if late:
                log.warning("%s of the audit log written late", counted(late, "entry", "entries"))
        for line in batch:
            line.end(written=True)
        self._waiting = self._waiting[len(batch) :]

    def _forget_oldest(self) -> None:
        if len(self._waiting) > _MOST_OWED:
            log.error("%s of the audit log dropped", counted(len(self._waiting) - _MOST_OWED, "entry", "entries"))
            self._waiting = self._waiting[-_MOST_OWED:]
