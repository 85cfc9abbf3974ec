"""Two processes at one move: a command that was given again while the first still ran, behind a terminal that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.conftest import Open
from integration.support import job
from noonbell.errors import InvalidState, StoreUnavailable
from noonbell.model.task import TaskStatus
from noonbell.stores import open_store
from noonbell.stores.moving import Move
from noonbell.stores.sql import copying
from noonbell.stores.sql.change_capture import MovePhase

pytestmark = pytest.mark.bare_database


async def test_a_second_process_writes_nothing_into_a_destination_that_is_complete(
    opened: Open, sql_url: str, tmp_path: Path
):
    source = await opened(sql_url)
    destination = open_store(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    source.is_being_moved = destination.is_being_moved = True
    await destination.open()
    try:
        first, second = (Move(source, destination, to="elsewhere") for _ in range(2))
        await first.begin()
        await first.copy()
        await second.begin()
        before, _ = await second.states()
        task = await source.create_task(job("meanwhile"))
        await first.cut_over(await first.stop(0))
        await destination.set_status([task.id], TaskStatus.DISABLED)
        with pytest.raises(InvalidState, match="another process has finished"):
            await second._copy_again(copying.tables()["tasks"], [(task.id,)])
        with pytest.raises(InvalidState, match="another process has finished"):
            await second._copy_rest(before)
        ((status,),) = await destination.fetch("select status from tasks where id = :id", id=task.id)
        assert status == TaskStatus.DISABLED
        with pytest.raises(InvalidState, match="another process has finished"):
            await second.reopen()
        assert (await second.states())[0].phase is MovePhase.MOVED
        with pytest.raises(StoreUnavailable):
            await source.create_task(job("too late"))
    finally:
        await destination.close()
