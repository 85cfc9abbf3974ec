"""The audit log while the store does not take its lines: the change stands, and the line comes later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from noonbell.errors import InvalidArgument, StoreUnavailable
from noonbell.model.access import AuditAction
from noonbell.service.audit_log import AuditWriter
from noonbell.stores.sqlite import MemoryStore


class Shaky:
    """A store in memory, whose audit log can be made to fail."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.error: Exception | None = None
        self.refused = ""
        """An action that the store does not take, whatever is with it."""
        self.tried = asyncio.Event()

    async def write_audit(self, deeds, sign):
        self.tried.set()
        if self.error is not None:
            raise self.error
        if any(deed.action == self.refused for deed in deeds):
            raise InvalidArgument("a letter that the database has not got")
        return await self._store.write_audit(deeds, sign)

    async def actions(self) -> list[str]:
        return [entry.deed.action for entry in await self._store.audit_entries(1, 1_000)]

    async def details(self) -> list[dict]:
        return [entry.deed.details for entry in await self._store.audit_entries(1, 1_000)]


@pytest.fixture
async def store() -> AsyncIterator[Shaky]:
    memory = MemoryStore()
    await memory.open()
    yield Shaky(memory)
    await memory.close()


def deed(action: str) -> AuditAction:
    return AuditAction(actor="ada", action=action, subject="/tasks/1")


async def test_a_line_that_the_store_does_not_take_is_written_when_it_is_back(store, caplog):
    writer = AuditWriter(store)
    store.error = StoreUnavailable("gone")
    assert await writer.write(deed("first")) is False
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert '"action":"first"' in record.getMessage()
    assert await writer.write(deed("second")) is False
    store.error = None
    assert await writer.write(deed("third")) is True
    assert await store.actions() == ["first", "second", "third"]
    assert ["done_at" in details for details in await store.details()] == [True, True, False]
    await writer.close()


async def test_it_is_tried_again_without_another_change(store, monkeypatch):
    monkeypatch.setattr("noonbell.service.audit_log._FIRST_PAUSE", 0.001)
    writer = AuditWriter(store)
    store.error = StoreUnavailable("gone")
    assert await writer.write(deed("only")) is False
    store.tried.clear()
    await store.tried.wait()
    store.error = None
    async with asyncio.timeout(60):
        while await store.actions() != ["only"]:
            store.tried.clear()
            await store.tried.wait()
    await writer.close()


async def test_a_stop_tries_once_more(store):
    writer = AuditWriter(store)
    store.error = StoreUnavailable("gone")
    await writer.write(deed("only"))
    store.error = None
    await writer.close()
    assert await store.actions() == ["only"]


async def test_a_stop_does_not_wait_for_a_store_that_is_gone(store, caplog):
    writer = AuditWriter(store)
    store.error = StoreUnavailable("gone")
    await writer.write(deed("only"))
    await writer.close()
    assert "1 entry of the audit log could not be written" in caplog.text


async def test_one_line_that_the_store_never_takes_holds_up_no_other(store, caplog):
    writer = AuditWriter(store)
    store.refused = "bad"
    written = await asyncio.gather(*(writer.write(deed(action)) for action in ("a", "bad", "b")))
    assert written == [True, False, True]
    assert await store.actions() == ["a", "b"]
    assert await writer.write(deed("c")) is True
    assert "was dropped" in caplog.text
    await writer.close()


async def test_every_caller_is_answered_while_the_store_is_gone(store):
    """However many wait: more than are written together."""
    writer = AuditWriter(store)
    store.error = StoreUnavailable("gone")
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(writer.write(deed(f"d{number}")) for number in range(1_200)))
    assert not any(answers)
    store.error = None
    await writer.close()
    assert await store.actions() == [f"d{number}" for number in range(1_200)][:1_000]
