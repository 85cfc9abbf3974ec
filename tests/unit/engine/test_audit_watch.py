"""The head of the audit log in the server's own log, and what a node notices by itself."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from noonbell.engine.node import AUDIT_EVERY, AuditWatch
from noonbell.model.access import AuditAction
from noonbell.sealing import Sealer, new_key_line, read_keys
from noonbell.service.audit_log import AuditLog, in_words
from noonbell.stores.sql.statement import Execute
from noonbell.stores.sqlite import MemoryStore


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def sealer() -> Sealer:
    return Sealer(read_keys(new_key_line("k1").encode()))


@pytest.fixture
def watch(store: MemoryStore, sealer: Sealer, caplog: pytest.LogCaptureFixture) -> AuditWatch:
    caplog.set_level(logging.INFO, logger="noonbell.audit")
    return AuditWatch(AuditLog(store, sealer), in_words)


async def meddle(store: MemoryStore, *statements: str) -> None:
    def work(_):
        for statement in statements:
            yield Execute(statement)

    await store._write(work)


async def write(store: MemoryStore, sealer: Sealer, count: int) -> None:
    await store.write_audit([AuditAction(actor="ada", action="create_task") for _ in range(count)], sealer.sign)


async def test_the_head_is_written_when_it_moved(store, sealer, watch, caplog):
    assert await watch.tick() == AUDIT_EVERY
    assert caplog.messages == []
    await write(store, sealer, 2)
    await watch.tick()
    await watch.tick()
    head = (await store.audit_end()).head
    assert caplog.messages == [f"audit log head {head}"]
    assert str(head).startswith("2:")


async def test_a_log_that_was_cut_or_rewritten_meanwhile_is_an_error(store, sealer, watch, caplog):
    await write(store, sealer, 5)
    await watch.tick()
    await meddle(store, "delete from audit where id > 3", "update counters set value = 3 where name = 'audit'")
    await watch.tick()
    assert "entry 5 was expected" in caplog.text
    caplog.clear()
    await write(store, sealer, 4)
    await watch.tick()
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    await store.write_audit([AuditAction(actor="eve", action="create_token")])
    await watch.tick()
    assert "entry 8 of the audit log is not signed" in caplog.text
