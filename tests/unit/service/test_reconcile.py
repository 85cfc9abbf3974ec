"""Declared tasks: what is made, changed, left alone, refused."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from noonbell.clock import ManualClock
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, NotFound, VersionConflict
from noonbell.model.task import TaskStatus
from noonbell.service import Services
from noonbell.service.task_files import ReconcileReport, reconcile
from noonbell.stores.sql.statement import update
from noonbell.stores.sqlite import MemoryStore

OWNER = "file:tasks.yaml"


def declaration(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "target_url": "http://svc.internal/x", "cron_expr": "*/5 * * * *", **more}


async def declare(services: Services, *declared: dict[str, Any], **more: Any) -> ReconcileReport:
    return await reconcile(services, OWNER, declared, by=OWNER, **more)


async def test_what_is_missing_is_created_and_belongs_to_its_owner(services: Services):
    report = await declare(services, declaration("a"), declaration("b"))
    assert report == ReconcileReport(created=("a", "b"))
    task = await services.tasks.get("a")
    assert (task.spec.managed_by, task.created_by, task.version) == (OWNER, OWNER, 1)


async def test_a_task_that_is_as_declared_is_not_written_to(services: Services, clock: ManualClock):
    every = {"type": "interval", "every": 7, "unit": "minute"}
    declared = (declaration("a", timeout_seconds=20), {**declaration("b", schedule=every), "cron_expr": None})
    await declare(services, *declared)
    clock.advance(3_600)
    assert await declare(services, *declared) == ReconcileReport(unchanged=("a", "b"))
    for name in ("a", "b"):
        task = await services.tasks.get(name)
        assert task.version == 1
        assert task.next_fire_at is not None
        assert task.next_fire_at < clock.now(), "its slots are left to the planner"


async def test_a_field_that_is_no_longer_declared_has_its_default_again(services: Services):
    await declare(services, declaration("a", timeout_seconds=99, labels={"team": "x"}))
    assert await declare(services, declaration("a")) == ReconcileReport(changed=("a",))
    task = await services.tasks.get("a")
    assert (task.spec.timeout_seconds, task.spec.labels, task.version) == (10, {}, 2)


async def test_one_bad_declaration_stops_all_of_them_and_each_problem_is_named(services: Services):
    bad = declaration("bad", timeout_seconds="soon", colour="red")
    with pytest.raises(InvalidArgument) as refused:
        await declare(services, declaration("good"), bad, {"target_url": "http://x/"}, prune=True)
    assert set(refused.value.details) == {"tasks[bad].timeout_seconds", "tasks[bad].colour", "tasks[2].name"}
    with pytest.raises(NotFound):
        await services.tasks.get("good")


async def test_a_name_or_an_external_id_that_is_declared_twice_is_refused(services: Services):
    with pytest.raises(InvalidArgument) as refused:
        await declare(services, declaration("a", external_id="1"), declaration("a"), declaration("b", external_id="1"))
    assert set(refused.value.details) == {"tasks[1] a.name", "tasks[b].external_id"}


def following(name: str, *upstreams: str) -> dict[str, Any]:
    return declaration(name, after={"tasks": [{"task": upstream} for upstream in upstreams]})


@pytest.mark.parametrize("later", [declaration("load"), following("load", "fetch")])
async def test_an_upstream_goes_with_the_edge_to_it(services: Services, later: dict[str, Any]):
    first = [declaration("extract"), following("clean", "extract"), following("load", "extract", "clean")]
    await declare(services, *first)
    wanted = [declaration("fetch"), later]
    expected = ReconcileReport(created=("fetch",), changed=("load",), pruned=("clean", "extract"))
    planned = await declare(services, *wanted, prune=True, dry_run=True)
    done = await declare(services, *wanted, prune=True)
    for report in (planned, done):
        assert dataclasses.replace(report, pruned=tuple(sorted(report.pruned))) == expected
    for name in ("extract", "clean"):
        with pytest.raises(NotFound):
            await services.tasks.get(name)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("is_declared", [True, False])
async def test_an_upstream_that_is_still_followed_is_not_pruned_and_nothing_is_written(
    services: Services, is_declared: bool, dry_run: bool
):
    await declare(services, declaration("extract"), following("load", "extract"), declaration("other"))
    if not is_declared:
        await services.tasks.create({**following("theirs", "extract")})
    kept = following("load", "extract") if is_declared else declaration("load")
    with pytest.raises(InvalidState) as caught:
        await declare(services, kept, declaration("other", timeout_seconds=99), prune=True, dry_run=dry_run)
    followers = "'load'" if is_declared else "'theirs'"
    assert caught.value.details == {"extract": f"is followed by {followers}; change those first, or declare it"}
    assert caught.value.message == f"task 'extract' is followed by {followers}; change those first, or declare it"
    assert (await services.tasks.get("other")).version == 1
    assert (await services.tasks.get("load")).spec.after is not None


@pytest.mark.parametrize("other", ["api", "code:billing", "file:other.yaml"])
async def test_the_task_of_another_owner_is_told_and_not_touched(services: Services, other: str):
    await services.tasks.create(declaration("a", managed_by=other, timeout_seconds=20))
    report = await declare(services, declaration("a", timeout_seconds=30), declaration("b"))
    assert report == ReconcileReport(created=("b",), foreign={"a": other})
    task = await services.tasks.get("a")
    assert (task.version, task.spec.timeout_seconds, task.spec.managed_by) == (1, 20, other)


async def test_adopting_takes_a_task_over(services: Services):
    await services.tasks.create(declaration("a"))
    assert (await declare(services, declaration("a"), adopt={"file:old.yaml"})).foreign == {"a": "api"}
    assert await declare(services, declaration("a"), adopt=True) == ReconcileReport(changed=("a",))
    assert (await services.tasks.get("a")).spec.managed_by == OWNER


async def test_a_built_in_task_is_never_adopted(services: Services, store: MemoryStore):
    task = await services.tasks.create(declaration("x"))
    spec = type(task.spec)(name="noonbell-x", managed_by="system", target_url="http://svc.internal/x")
    await store.create_task(spec, system=True)
    assert (await declare(services, declaration("noonbell-x"), adopt=True)).foreign == {"noonbell-x": "system"}


async def test_pruning_deletes_what_the_owner_no_longer_declares_and_nothing_else(services: Services):
    await services.tasks.create(declaration("by hand"))
    await reconcile(services, "file:other.yaml", [declaration("other")], by="x")
    await declare(services, declaration("a"), declaration("b"))
    assert await declare(services, declaration("a")) == ReconcileReport(unchanged=("a",))
    assert await declare(services, declaration("a"), prune=True) == ReconcileReport(unchanged=("a",), pruned=("b",))
    for name in ("by hand", "other", "a"):
        await services.tasks.get(name)
    with pytest.raises(NotFound):
        await services.tasks.get("b")


async def test_a_dry_run_says_what_would_be_done_and_writes_nothing(services: Services):
    await declare(services, declaration("a"), declaration("b"), declaration("c"))
    declared = (declaration("a", timeout_seconds=20), declaration("b"), declaration("d"))
    expected = ReconcileReport(created=("d",), changed=("a",), unchanged=("b",), pruned=("c",))
    assert await declare(services, *declared, prune=True, dry_run=True) == expected
    assert (await services.tasks.get("a")).version == 1
    assert (await services.tasks.get("c")).version == 1
    assert await declare(services, *declared, prune=True) == expected


async def test_the_pause_of_a_person_survives_unless_the_declaration_names_a_status(services: Services):
    await declare(services, declaration("a"))
    await services.tasks.disable("a", by="alice")
    assert await declare(services, declaration("a")) == ReconcileReport(unchanged=("a",))
    await declare(services, declaration("a", timeout_seconds=20))
    assert (await services.tasks.get("a")).status is TaskStatus.DISABLED
    await declare(services, declaration("a", status="ENABLED"))
    assert (await services.tasks.get("a")).status is TaskStatus.ENABLED


async def test_a_pause_that_was_declared_ends_with_its_declaration(services: Services):
    await declare(services, declaration("a", status="DISABLED"))
    assert (await services.tasks.get("a")).status is TaskStatus.DISABLED
    await declare(services, declaration("a", status="DISABLED", timeout_seconds=20))
    await declare(services, declaration("a", timeout_seconds=20))
    assert (await services.tasks.get("a")).status is TaskStatus.ENABLED


async def test_a_finished_task_is_not_started_again_by_its_declaration(services: Services, clock: ManualClock):
    once = {"name": "a", "target_url": "http://svc.internal/x", "status": "ENABLED"}
    once["schedule"] = {"type": "once", "at": "2026-11-15T09:00:10Z"}  # type: ignore[assignment]
    await declare(services, once)
    clock.advance(60)
    await services.store.plan(10)
    assert (await services.tasks.get("a")).status is TaskStatus.COMPLETED
    version = (await services.tasks.get("a")).version
    assert await declare(services, once) == ReconcileReport(unchanged=("a",))
    assert (await services.tasks.get("a")).version == version


async def test_an_external_id_of_somebody_else_is_refused_by_the_name_of_the_declaration(services: Services):
    await services.tasks.create(declaration("hers", external_id="1"))
    with pytest.raises(AlreadyExists) as refused:
        await declare(services, declaration("mine", external_id="1"))
    assert "tasks[mine].external_id" in refused.value.details


async def test_nodes_that_declare_at_the_same_time_make_each_task_once(services: Services):
    declared = [declaration(f"t{number}") for number in range(5)]
    reports = await asyncio.gather(*(declare(services, *declared) for _ in range(4)))
    made = [name for report in reports for name in report.created]
    assert sorted(made) == [f"t{number}" for number in range(5)]
    assert all(len(report.created) + len(report.unchanged) == 5 for report in reports)


class Calls:
    """The names of the store's calls, in their order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def called(self, name: str) -> None:
        self.names.append(name)

    def answered(self, name: str, seconds: float, answer: Any, given: tuple[Any, ...]) -> None:
        """Nothing is made of it."""

    def failed(self, name: str, seconds: float, error: BaseException) -> None:
        """Nothing is made of it."""


async def test_those_that_differ_are_changed_in_one_transaction(services: Services, store: MemoryStore):
    names = ("a", "b", "c", "d")
    await declare(services, *(declaration(name) for name in names))
    store.observer = calls = Calls()
    wanted = [declaration(name, timeout_seconds=30 if name != "c" else 10) for name in names]
    report = await declare(services, *wanted, declaration("e"))
    assert report == ReconcileReport(created=("e",), changed=("a", "b", "d"), unchanged=("c",))
    assert calls.names.count("change_tasks") == 1
    assert "change_task" not in calls.names
    assert [(await services.tasks.get(name)).version for name in names] == [2, 2, 1, 2]


async def test_one_that_was_changed_since_it_was_seen_keeps_all_as_they_are(services: Services):
    await declare(services, *(declaration(name) for name in ("a", "b", "c")))
    await services.tasks.change("b", {"priority": 3}, partial=True)
    with pytest.raises(VersionConflict):
        await declare(
            services,
            *(declaration(name, timeout_seconds=30) for name in ("a", "b", "c")),
            versions={"a": 1, "b": 1, "c": 1},
        )
    assert [(await services.tasks.get(name)).spec.timeout_seconds for name in ("a", "b", "c")] == [10, 10, 10]


async def test_one_that_cannot_be_changed_keeps_all_as_they_are_and_is_named(services: Services, store: MemoryStore):
    await declare(services, *(declaration(name) for name in ("a", "b", "c")))
    broken = (await services.tasks.get("b")).id

    def break_it(_: object) -> Any:
        yield update("tasks", {"id": broken}, status="ERROR")

    await store._write(break_it)
    with pytest.raises(InvalidState) as refused:
        await declare(services, *(declaration(name, status="DISABLED") for name in ("a", "b", "c")))
    assert list(refused.value.details) == ["tasks[b]"]
    assert [(await services.tasks.get(name)).status for name in ("a", "c")] == [TaskStatus.ENABLED] * 2


async def test_a_name_that_another_owner_took_meanwhile_keeps_only_itself_from_being_changed(services: Services):
    await declare(services, *(declaration(name) for name in ("a", "b")))
    await services.tasks.create({**declaration("c"), "managed_by": "code:other"})
    report = await declare(services, *(declaration(name, timeout_seconds=30) for name in ("a", "b", "c")))
    assert report == ReconcileReport(changed=("a", "b"), foreign={"c": "code:other"})


async def test_names_that_change_hands_are_settled_one_by_one(services: Services):
    await declare(services, declaration("a", external_id="1"), declaration("b", external_id="2"))
    report = await declare(services, declaration("a", external_id=None), declaration("b", external_id="1"))
    assert report == ReconcileReport(changed=("a", "b"))
    assert (await services.tasks.get("b")).spec.external_id == "1"
