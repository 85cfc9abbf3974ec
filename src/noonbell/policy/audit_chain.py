"""Whether the audit log is as it was written: entries are taken in order, and what is wrong comes out.

Each entry's hash covers the one before it, so a hash that is known to be right vouches for everything up to it. What the
hashes alone cannot tell is whether all of them were made anew. Three things outside the store can:

    a signature       the hash, signed with a key of `secrets.key_file`; who has the store alone cannot make one
    an expected head  number and hash as the server wrote them into its own log; it also tells that the end was cut off
    a rotation        the line of `noonbell secrets rotate`, signed with the new key: it says up to where the log was checked
                      with the old keys, so that these can go

Entries before the first signed one are from before the key. Later ones without a good signature are flaws, unless an
expected head or a rotation vouches for them. A process without any key checks the hashes and leaves signatures alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from noonbell.model.access import AuditEnd, AuditEntry, Head, chained

ROTATION: Final = "rotate_secrets"
CHECKED_TO: Final = "log_checked_to"
"""In the details of a rotation: the last entry that was checked with the keys of that day."""
_MOST: Final = 1_000
"""Ranges of entries in a report; beyond them the last one is extended."""

IsSigned: TypeAlias = Callable[[str, str], bool | None]
"""Whether a hash has this signature; None: by a key that is not at hand."""


class Wrong(enum.StrEnum):
    CHANGED = "changed"
    """It does not follow from the entry before it: one of the two was changed, or one between them is gone."""
    FORGED = "forged"
    """The key that its signature names did not make it."""
    UNSIGNED = "unsigned"
    """Without a signature, though an earlier entry has one."""
    UNKNOWN_KEY = "unknown_key"
    """Signed with a key that is not at hand, and nothing vouches for it."""
    NEVER_SIGNED = "never_signed"
    """There is a key, and no entry has a signature."""
    CUT = "cut"
    """An entry that was there is not there any more, and none after it."""
    REPLACED = "replaced"
    """Another entry stands in the place of the expected one."""


_VOUCHED: Final = (Wrong.UNSIGNED, Wrong.UNKNOWN_KEY, Wrong.NEVER_SIGNED)
"""What an expected head or a rotation clears up: a hash that is known to be right covers these entries."""


@dataclass(frozen=True, slots=True)
class LogFlaw:
    wrong: Wrong
    first: int
    last: int
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class LogState:
    """What a check found out."""

    since: int
    """The first entry that was looked at."""
    head: Head | None
    """The last one; None of an empty log."""
    signed: int = 0
    """Entries with a signature, good or not."""
    signed_since: int | None = None
    """The first of them, among those that were looked at."""
    flaws: tuple[LogFlaw, ...] = ()
    checks_signatures: bool = False
    """False: there is no key here, so signatures were left alone."""

    @property
    def is_sound(self) -> bool:
        return not self.flaws


class ChainCheck:
    def __init__(
        self, is_signed: IsSigned | None, expected: Iterable[Head] = (), before: AuditEntry | None = None
    ) -> None:
        """`is_signed`: None without a key. `before`: the entry before the first that comes, taken as it is."""
        self._is_signed = is_signed
        self._expected = {head.number: head.hash for head in expected}
        self._since = 1 if before is None else before.id + 1
        self._number, self._hash = (0, "") if before is None else (before.id, before.hash)
        self._was_signed = before is not None and before.signature is not None
        self._signed = 0
        self._signed_since: int | None = None
        self._flaws: list[LogFlaw] = []
        self._unvouched: list[LogFlaw] = []
        """What a later hash that is known to be right clears up."""

    def take(self, entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            self._take(entry)

    def finish(self, end: AuditEnd) -> LogState:
        """`end`: seen before the first entry was read. What was there then must have come."""
        if self._is_signed is not None and self._number >= self._since and not self._was_signed:
            self._note(Wrong.NEVER_SIGNED, self._since, self._number)
            for number in [number for number in self._expected if number <= self._number]:
                self._vouch(number)
        if end.entry is not None and end.entry.id > end.counted:
            self._note(Wrong.CHANGED, end.counted + 1, end.entry.id)
        last = max([end.counted, *self._expected])
        if last > self._number:
            self._flaws.append(LogFlaw(Wrong.CUT, self._number + 1, last))
        return LogState(
            since=self._since,
            head=Head(self._number, self._hash) if self._number else None,
            signed=self._signed,
            signed_since=self._signed_since,
            flaws=tuple(sorted((*self._flaws, *self._unvouched), key=lambda flaw: flaw.first)),
            checks_signatures=self._is_signed is not None,
        )

    def _take(self, entry: AuditEntry) -> None:
        follows = entry.id == self._number + 1 and entry.hash == chained(self._hash, entry.id, entry.at, entry.deed)
        if not follows:
            self._note(Wrong.CHANGED, entry.id)
        self._number, self._hash = entry.id, entry.hash
        self._look_at_signature(entry, follows=follows)
        if (expected := self._expected.get(entry.id)) is not None:
            if expected == entry.hash:
                self._vouch(entry.id)
            else:
                self._note(Wrong.REPLACED, entry.id)

    def _look_at_signature(self, entry: AuditEntry, *, follows: bool) -> None:
        if entry.signature is None:
            if self._was_signed and self._is_signed is not None:
                self._note(Wrong.UNSIGNED, entry.id)
            return
        self._was_signed, self._signed = True, self._signed + 1
        self._signed_since = self._signed_since or entry.id
        if self._is_signed is None:
            return
        good = self._is_signed(entry.hash, entry.signature)
        if good is None:
            self._note(Wrong.UNKNOWN_KEY, entry.id, key_id=entry.key_id or "")
        elif not good:
            self._note(Wrong.FORGED, entry.id, key_id=entry.key_id or "")
        elif follows:
            self._vouch(checked_by(entry))

    def _note(self, wrong: Wrong, first: int, last: int | None = None, key_id: str = "") -> None:
        """Entries that follow each other are one flaw. Past the bound, what may be vouched for is one long range."""
        flaw = LogFlaw(wrong, first, first if last is None else last, key_id)
        flaws = self._unvouched if wrong in _VOUCHED else self._flaws
        newest = flaws[-1] if flaws else None
        if newest is not None and (newest.wrong, newest.last + 1, newest.key_id) == (wrong, first, key_id):
            flaws[-1] = replace(newest, last=flaw.last)
        elif newest is None or len(flaws) < _MOST:
            flaws.append(flaw)
        elif flaws is self._unvouched:
            flaws[-1] = replace(newest, last=flaw.last)

    def _vouch(self, number: int) -> None:
        """For all entries up to this one."""
        left = [flaw for flaw in self._unvouched if flaw.last > number]
        self._unvouched = [replace(flaw, first=max(flaw.first, number + 1)) for flaw in left]


def checked_by(entry: AuditEntry) -> int:
    """Up to where a rotation says that it checked the log; 0 for any other entry."""
    number = entry.deed.details.get(CHECKED_TO) if entry.deed.action == ROTATION else None
    return number if isinstance(number, int) and 0 < number < entry.id else 0
