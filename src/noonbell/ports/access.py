"""Who may come in, what they did, and how secrets are sealed anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from noonbell.clock import Instant
from noonbell.model.access import AuditEntry, Deed, Role, Token


class AccessStore(Protocol):
    """Tokens and the audit log. What it says of the `Store` holds here too."""

    async def now(self) -> Instant: ...

    async def create_token(
        self,
        name: str,
        role: Role,
        hashed: str,
        *,
        shown: str,
        by: str | None = None,
        seconds: float | None = None,
        queues: Sequence[str] = (),
    ) -> Token:
        """A token that is good for `seconds`, or until it is revoked. A name that a good one has: AlreadyExists."""

    async def tokens(self) -> list[Token]:
        """All that there ever were, oldest first. Their secrets are nowhere."""

    async def token_of(self, hashed: str) -> Token | None:
        """The token with this hash, good or not."""

    async def note_token_use(self, token_id: int) -> None:
        """`used_at` becomes now, unless it was noted within the last minute."""

    async def revoke_token(self, name: str) -> Token:
        """It is good for nothing from now on; its name is free. Unknown: NotFound."""

    async def write_audit(self, deeds: Sequence[Deed]) -> list[AuditEntry]:
        """Append to the audit log, all in one transaction. Numbers have no gap; each hash covers the entry before."""

    async def audit_log(
        self,
        before: int | None = None,
        limit: int = 100,
        *,
        actor: str | None = None,
        actions: Collection[str] = (),
        about: Collection[str] = (),
        text: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> list[AuditEntry]:
        """Newest first; with `before`, those with smaller numbers.

        Where that is said: of one actor, of some actions, `about` some paths such as `/tasks/7` and what lies under them,
        with a `text` anywhere in the record, written from `since` to `until`.
        """

    async def broken_audit(self, since: int = 1, limit: int = 1000) -> tuple[int | None, int]:
        """The first entry of the next `limit` from `since` on that was changed, or that follows a gap; and how far that is."""


class SecretStore(Protocol):
    """Secrets sealed anew, a batch in each transaction. `reseal` gets the secret fields of a row (`headers`, `secret`,
    `url`) and gives them back as they are to be.

    Nothing else is written: no version, cursor or time moves, and no event is told. A row that somebody changes at the
    same time is left as they leave it, and not counted. What `reseal` raises comes out, and that batch is not written.
    """

    async def reseal_tasks(
        self, after: int, limit: int, reseal: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> tuple[int | None, int]:
        """The next `limit` tasks after that id, deleted ones too: where to go on (None: at the end), and how many were written."""

    async def reseal_versions(
        self, after: tuple[int, int], limit: int, reseal: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> tuple[tuple[int, int] | None, int]:
        """The same for the kept versions of tasks, after that task and version."""

    async def reseal_channels(self, reseal: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
        """All channels of alerts; how many were written."""
