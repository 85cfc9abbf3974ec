"""The port of tokens and the audit log, as the SQL stores keep it: each method runs one transition in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from noonbell.clock import Instant
from noonbell.model.access import AuditEntry, Deed, Role, Token
from noonbell.stores.sql import access
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work

T = TypeVar("T")


class AccessMethods(ABC):
    dialect: Dialect

    @abstractmethod
    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T: ...

    @abstractmethod
    async def _read(self, work: Callable[[], Work[T]]) -> T: ...

    @abstractmethod
    async def _settled(self, work: Callable[[TaskView], Work[T]]) -> T: ...

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
        return await self._settled(
            lambda _: access.create(self.dialect, name, role, hashed, shown, by, seconds, tuple(queues))
        )

    async def tokens(self) -> list[Token]:
        return await self._read(access.all_tokens)

    async def token_of(self, hashed: str) -> Token | None:
        return await self._read(lambda: access.by_hash(hashed))

    async def note_token_use(self, token_id: int) -> None:
        await self._write(lambda _: access.used(token_id))

    async def revoke_token(self, name: str) -> Token:
        return await self._write(lambda _: access.revoke(self.dialect, name))

    async def write_audit(self, deeds: Sequence[Deed]) -> list[AuditEntry]:
        return await self._write(lambda _: access.write(self.dialect, deeds))

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
        which = access.Which(actor, tuple(actions), tuple(about), text, since, until)
        return await self._read(lambda: access.page(self.dialect, before, limit, which))

    async def broken_audit(self, since: int = 1, limit: int = 1000) -> tuple[int | None, int]:
        return await self._read(lambda: access.broken(since, limit))
