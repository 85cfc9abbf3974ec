"""A store that a move has closed refuses every write, and says why."""

from __future__ import annotations

import pytest

from integration.conftest import Open
from integration.support import job
from noonbell.errors import StoreUnavailable
from noonbell.stores.moving import apply
from noonbell.stores.sql import change_capture, copying

pytestmark = pytest.mark.bare_database


async def test_a_write_into_a_closed_store_names_the_move(opened: Open, sql_url: str):
    store = await opened(sql_url)
    for table in copying.batched():
        await apply(store, change_capture.install, store.dialect, table)
    await store.create_task(job("before"))
    await apply(store, change_capture.close, store.dialect)
    with pytest.raises(StoreUnavailable, match=r"closed by a move to another database.*--cancel"):
        await store.create_task(job("meanwhile"))
    await apply(store, change_capture.reopen, store.dialect, store._schema)
    await store.create_task(job("after"))
    assert {task.name for task in await store.tasks_by_id([1, 2, 3])} >= {"before", "after"}
