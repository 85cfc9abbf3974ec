"""`data_cleanup`, as its worker calls it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any

import pytest

from conformance.store.builders import claim_one, finished, runs_of
from noonbell.clock import ManualClock
from noonbell.errors import InvalidArgument
from noonbell.model.run import Assignment, execution_id_of
from noonbell.service import Services
from noonbell.settings import JobSettings, Settings
from noonbell.stores.sqlite import MemoryStore
from noonbell.targets.jobs import builtin
from noonbell.targets.jobs.handler import Context, Handler, ReadyResult

DAY = 86_400


class Listener:
    """The other end of a handler's line."""

    cancelled = False

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.newest: dict[str, Any] = {}

    def log(self, level: str, message: str) -> None:
        self.lines.append((level, message))

    def progress(self, progress: dict[str, Any]) -> Awaitable[None]:
        self.newest = progress
        return ReadyResult(None)

    def extend(self, seconds: float) -> Awaitable[bool]:
        return ReadyResult(seconds > 0)


def handler(store: MemoryStore, days: int = 30) -> Handler:
    (found,) = builtin.handlers(store, Settings(jobs=JobSettings(history_retention_days=days)))
    return found


async def test_it_removes_what_is_old_and_reports_it(
    services: Services, store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    task = await services.tasks.create({"name": "worked", "job_type": "x"})
    for _ in range(3):
        await finished(store, task)
    clock.advance(31 * DAY)
    cleaning = await services.tasks.create_built_in(builtin.TASKS[0])
    assert cleaning is not None
    await services.publishing.trigger(cleaning.id, {})
    lease = await claim_one(store, queues=("system",))
    listener = Listener()
    context = Context(Assignment(lease=lease, task=cleaning), listener)
    cleanup = handler(store)
    with caplog.at_level(logging.INFO, "noonbell.jobs"):
        result = await cleanup.call(context, cleanup.read(lease.payload))
    assert result == {"deleted_count": 3, "retention_days": 30, "retention_runs": None}
    assert await runs_of(store, task) == []
    assert (await store.run(lease.run_id)) is not None, "its own run is not final"
    assert [message for _, message in listener.lines] == [
        "remove runs that ended more than 30 days ago",
        "removed 3 runs",
    ]
    assert listener.newest["current"] == 3
    began, ended = (record.getMessage() for record in caplog.records if record.name == "noonbell.jobs")
    for line in (began, ended):
        assert f"execution_id={execution_id_of(lease.run_id)}" in line
    assert "job_name=noonbell-data-cleanup retention_days=30" in began
    assert "deleted_count=3" in ended


async def test_its_payload_says_how_long_and_the_settings_say_the_rest(store: MemoryStore):
    read = handler(store, days=7).read
    assert (read(None).days, read({}).days, read({"retention_days": 90}).days) == (7, 7, 90)
    assert (read({"retention_runs": 5}).days, read({"retention_runs": 5}).runs) == (7, 5)


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"retention_days": "30"}, "retention_days"),
        ({"retention_days": -1}, "retention_days"),
        ({"retention": 30}, "retention"),
        ([30], "payload"),
    ],
)
async def test_a_payload_that_does_not_fit_is_refused_by_the_name_of_the_field(store: MemoryStore, payload, field):
    with pytest.raises(InvalidArgument) as refused:
        handler(store).read(payload)
    assert set(refused.value.details) == {field}
