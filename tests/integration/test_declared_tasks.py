"""What a node makes of its settings when it starts: built-in tasks, declared tasks, declared jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from noonbell.dialects.jobs import JobsDialect
from noonbell.errors import SettingsError
from noonbell.model.task import SYSTEM_TASK_IDS, TaskStatus
from noonbell.service import Services
from noonbell.settings import DeclaredTask, JobSettings, Settings, StoreSettings
from noonbell.wiring import assembled, reconcile

BACKUP = {"job_name": "daily_backup", "cron": "0 2 * * *", "allow_concurrent": False, "max_concurrent": None}
SYNC = {
    "job_name": "api_sync",
    "job_type": "sync",
    "cron": "*/10 * * * *",
    "allow_concurrent": True,
    "max_concurrent": 3,
}
CLEANUP = "noonbell-data-cleanup"


def settings_of(url: str, *jobs: dict[str, Any], tasks: tuple[DeclaredTask, ...] = (), **more: Any) -> Settings:
    section = JobSettings(jobs=jobs, **{"enabled": True, **more})
    return Settings(store=StoreSettings(url=url), jobs=section, jobs_from="jobs.toml", tasks=tasks)


@asynccontextmanager
async def started(settings: Settings) -> AsyncIterator[Services]:
    async with assembled(settings) as parts:
        await reconcile(parts.services, settings)
        yield parts.services


async def test_declared_jobs_become_tasks(sqlite_url: str):
    settings = settings_of(sqlite_url, BACKUP, SYNC, retry_delay=5, max_retries=2)
    async with started(settings) as services:
        backup, sync = await services.tasks.get("daily_backup"), await services.tasks.get("api_sync")
        assert (backup.spec.job_type, backup.spec.max_concurrency) == ("daily_backup", 1)
        assert (sync.spec.job_type, sync.spec.max_concurrency) == ("sync", 3)
        assert (sync.spec.retries.max_retries, sync.spec.retries.initial_delay) == (2, 5)
        assert {backup.spec.managed_by, sync.spec.managed_by} == {"file:jobs.toml"}
    async with started(settings) as services:
        assert (await services.tasks.get("daily_backup")).version == 1


async def test_switched_off_jobs_are_paused_and_come_back_with_the_switch(sqlite_url: str):
    async def status(**more: Any) -> TaskStatus:
        async with started(settings_of(sqlite_url, BACKUP, **more)) as services:
            return (await services.tasks.get("daily_backup")).status

    assert await status() is TaskStatus.ENABLED
    assert await status(enabled=False) is TaskStatus.DISABLED
    assert await status() is TaskStatus.ENABLED


async def test_the_pause_of_a_person_survives_a_start(sqlite_url: str):
    settings = settings_of(sqlite_url, BACKUP)
    async with started(settings) as services:
        await JobsDialect(services).pause("daily_backup", by="alice")
    for each in (settings_of(sqlite_url, BACKUP, enabled=False), settings):
        async with started(each) as services:
            assert (await services.tasks.get("daily_backup")).status is TaskStatus.DISABLED


async def test_what_is_wrong_with_a_declared_job_is_named_in_its_own_words_and_nothing_is_written(sqlite_url: str):
    bad = {"job_name": "bad", "cron": "61 * * * *", "max_concurrent": 0}
    tasks = (DeclaredTask("t.yaml", {"name": "good", "target_url": "http://127.0.0.1:9/"}),)
    settings = settings_of(sqlite_url, SYNC, bad, tasks=tasks)
    async with assembled(settings) as parts:
        with pytest.raises(SettingsError) as refused:
            await reconcile(parts.services, settings)
        assert set(refused.value.details) == {"jobs.jobs[bad].max_concurrent"}
        mended = settings_of(sqlite_url, SYNC, {**bad, "max_concurrent": 1}, tasks=tasks)
        with pytest.raises(SettingsError) as refused:
            await reconcile(parts.services, mended)
        assert set(refused.value.details) == {"jobs.jobs[bad].cron_expression"}
        for name in ("good", "api_sync"):
            assert await parts.services.store.task_named(name) is None


async def test_a_name_that_tasks_and_jobs_both_declare_is_refused(sqlite_url: str):
    tasks = (DeclaredTask("jobs.toml", {"name": "api_sync", "target_url": "http://127.0.0.1:9/"}),)
    settings = settings_of(sqlite_url, SYNC, tasks=tasks)
    async with assembled(settings) as parts:
        with pytest.raises(SettingsError) as refused:
            await reconcile(parts.services, settings)
    assert set(refused.value.details) == {"jobs.jobs[api_sync].job_name"}


async def test_a_task_moves_from_one_settings_file_to_another(sqlite_url: str):
    fields = {"name": "a", "target_url": "http://127.0.0.1:9/"}
    other = DeclaredTask("two.yaml", {**fields, "name": "b"})
    async with started(settings_of(sqlite_url, tasks=(DeclaredTask("one.yaml", fields), other))):
        pass
    tasks = (DeclaredTask("one.yaml", {**fields, "name": "c"}), other, DeclaredTask("two.yaml", fields))
    async with started(settings_of(sqlite_url, tasks=tasks)) as services:
        assert (await services.tasks.get("a")).spec.managed_by == "file:two.yaml"


async def test_the_task_of_somebody_else_is_left_alone_and_the_log_says_so(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
):
    async with started(settings_of(sqlite_url)) as services:
        await services.tasks.create({"name": "api_sync", "job_type": "mine"})
    with caplog.at_level(logging.WARNING, "noonbell"):
        async with started(settings_of(sqlite_url, SYNC)) as services:
            assert (await services.tasks.get("api_sync")).spec.job_type == "mine"
    assert "declares task 'api_sync', which belongs to api" in caplog.text


async def test_the_cleaning_task_is_built_in(sqlite_url: str):
    async with started(settings_of(sqlite_url)) as services:
        task = await services.tasks.get(CLEANUP)
        assert (task.spec.managed_by, task.spec.job_type, task.status) == ("system", "data_cleanup", TaskStatus.ENABLED)
        assert task.id > SYSTEM_TASK_IDS
        assert task.next_fire_at is not None
        changed = await services.tasks.change(
            CLEANUP, {"cron_expr": "0 5 * * *", "payload": {"retention_days": 90}}, partial=True
        )
        assert changed.spec.managed_by == "system"
        assert (await services.tasks.create({"name": "first", "job_type": "x"})).id == 1
    async with started(settings_of(sqlite_url)) as services:
        task = await services.tasks.get(CLEANUP)
        assert (task.version, task.spec.payload) == (2, {"retention_days": 90}), "what an operator changed stays"


@pytest.mark.parametrize("fields", [{"name": "other"}, {"managed_by": "api"}])
async def test_a_built_in_task_stays_what_it_is(sqlite_url: str, fields: dict[str, Any]):
    from noonbell.errors import InvalidArgument, InvalidState

    async with started(settings_of(sqlite_url)) as services:
        with pytest.raises(InvalidArgument) as refused:
            await services.tasks.change(CLEANUP, fields, partial=True)
        assert set(refused.value.details) == set(fields)
        with pytest.raises(InvalidState):
            await services.tasks.delete(CLEANUP)


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
async def test_nodes_that_start_together_make_each_task_once(kind: str, request: pytest.FixtureRequest):
    name = {"postgres": "postgres_url", "mariadb": "mysql_url", "sqlite": "sqlite_url"}[kind]
    settings = settings_of(request.getfixturevalue(name), BACKUP, SYNC)
    async with assembled(settings) as one, assembled(settings) as two, assembled(settings) as three:
        await asyncio.gather(*(reconcile(parts.services, settings) for parts in (one, two, three)))
        for task in (CLEANUP, "daily_backup", "api_sync"):
            assert (await one.services.tasks.get(task)).version == 1
        rows = await one.services.store.counts()
        assert rows["tasks"] == 3
