"""Stores of SQLite that need not take every step of the schema again: thousands of tests open one, and the steps are most of its cost.

The steps are taken once in each test process, by the store itself, and the pages that they made are copied. What the steps do is tested
where they are taken: `integration/test_migrations.py` and its kin, `conformance/store/test_life.py`, and every process that a test starts.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from noonbell.stores import migrations
from noonbell.stores.sqlite import MemoryStore, SqliteConnection
from services.probe import apart

STEPS, LATEST = migrations.STEPS, migrations.LATEST
_open_from_nothing = MemoryStore.open


def keep() -> None:
    """From now on every store in memory of this process begins with the pages that the steps made."""
    MemoryStore.open = _open  # type: ignore[method-assign]


async def _open(self: MemoryStore) -> None:
    if (migrations.STEPS, migrations.LATEST) != (STEPS, LATEST):  # a test has its own
        await _open_from_nothing(self)
        return
    self._connection = SqliteConnection(":memory:", self._time)
    pages().backup(self._connection._db)
    await self._bring_up_to_date()


@functools.cache
def pages() -> sqlite3.Connection:
    """A database as the steps leave it: without the id of an installation, which each store gets when it is opened."""
    kept = sqlite3.connect(":memory:", check_same_thread=False)

    async def make() -> None:
        store = MemoryStore()
        await _open_from_nothing(store)
        assert store._connection is not None
        store._connection._db.execute("delete from installation")
        store._connection._db.backup(kept)
        await store.close()

    apart(lambda: asyncio.run(make()))
    return kept


def fill(url: str) -> None:
    """Make the file of a store, as the steps leave it."""
    path = Path(urlsplit(url).path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(sqlite3.connect(path)) as file:
        file.execute("pragma synchronous = off")
        pages().backup(file)
