"""Any order of ends, retries and backfills of upstreams, against a few lines of plain Python: the same runs follow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noonbell.clock import SECOND, Instant, ManualClock, from_datetime, to_datetime
from noonbell.model.request import ClaimRequest, Publication, RunQuery
from noonbell.model.run import Origin, RunId, RunStatus, Settlement, Transition
from noonbell.model.task import TaskSpec
from noonbell.model.task_schedule import After, JoinMode, Upstream, UpstreamOutcome
from noonbell.stores import open_store
from services.size import size

START = from_datetime(to_datetime(1_767_261_600 * SECOND))
EXAMPLES = {"memory": size(150, 600), "postgres": size(12, 60), "mariadb": size(12, 60)}
URLS = {"postgres": "postgres_url", "mariadb": "mysql_url"}
FITS = {
    "success": {RunStatus.SUCCESS},
    "failure": {RunStatus.FAILED, RunStatus.CANCELED, RunStatus.TIMEOUT},
    "any": {RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.CANCELED, RunStatus.TIMEOUT},
}
End = tuple[int, int, RunStatus, bool]
"""Which upstream, which slot, how it ended, and whether it is a retry of the last run there."""

ends = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from(
            [RunStatus.SUCCESS, RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.CANCELED, RunStatus.TIMEOUT]
        ),
        st.booleans(),
    ),
    max_size=25,
)
shapes = st.tuples(
    st.lists(st.sampled_from(["success", "success", "failure", "any"]), min_size=1, max_size=3),
    st.sampled_from(["all", "any"]),
    st.booleans(),
)


class Model:
    """What must follow, by SPEC 26.1 and 37.4."""

    def __init__(self, on: list[str], join: str, same_slot: bool) -> None:
        self.on, self.join, self.same_slot = on, join, same_slot
        self.filled: dict[int, dict[int, int]] = {}
        self.done: dict[int, int] = {}
        """By slot, the upstream that completed it."""
        self.followed: list[set[int]] = []

    def end(self, upstream: int, slot: int, status: RunStatus, run_id: int, *, is_retry: bool) -> None:
        if status not in FITS[self.on[upstream]]:
            return
        if not self.same_slot and (self.join == "any" or len(self.on) == 1):
            self.followed.append({run_id})
        elif not self.same_slot:
            places = self.filled.setdefault(0, {})
            places[upstream] = run_id
            if len(places) == len(self.on):
                self.followed.append(set(places.values()))
                self.filled.clear()
        elif self.join == "any":
            if slot not in self.done or is_retry or self.done[slot] == upstream:
                self.done[slot] = upstream
                self.followed.append({run_id})
        else:
            places = self.filled.setdefault(slot, {})
            places[upstream] = run_id
            if len(places) == len(self.on):
                self.followed.append(set(places.values()))


async def walk(url: str, shape: tuple[list[str], str, bool], story: list[End], name: str) -> None:
    on, join, same_slot = shape
    store = open_store(url, clock=ManualClock(START))
    await store.open()
    try:
        queue = f"q{name}"
        ups = [
            await store.create_task(TaskSpec(name=f"{name}-{number}", job_type="x", queue=queue))
            for number in range(len(on))
        ]
        upstreams = tuple(Upstream(task=task.id, on=UpstreamOutcome(each)) for task, each in zip(ups, on, strict=True))
        after = After(tasks=upstreams, join=JoinMode(join), same_slot=same_slot)
        load = await store.create_task(TaskSpec(name=name, job_type="x", queue=f"{queue}-load", after=after))
        model = Model(on, join, same_slot)
        last: dict[tuple[int, int], RunId] = {}
        for number, slot, status, wants_retry in story:
            upstream = number % len(on)
            before = last.get((upstream, slot)) if wants_retry else None
            fields: dict[str, Any] = {"origin": Origin.BACKFILL, "scheduled_time": Instant(START + slot * SECOND)}
            if before is not None:
                fields |= {"origin": Origin.RETRY, "retry_of_run_id": before}
            await store.publish([Publication(task_id=ups[upstream].id, **fields)])
            (lease,) = (await store.claim(ClaimRequest(worker_id="w", queues=(queue,), max=2))).leases
            ended = Settlement(
                run_id=lease.run_id,
                token=lease.token,
                worker_id="w",
                transition=Transition.FINISH,
                status=status,
                task_version=lease.task_version,
                plain=lease.plain,
            )
            await store.settle([ended])
            last[upstream, slot] = lease.run_id
            model.end(upstream, slot, status, lease.run_id, is_retry=before is not None)
        runs = (await store.runs(RunQuery(task_id=load.id, sort="id", page_size=1000))).items
        assert [set(run.upstream_run_ids or ()) for run in runs] == model.followed
        assert await store.flaws() == []
    finally:
        await store.close()


@pytest.mark.longer
@pytest.mark.parametrize("kind", EXAMPLES)
def test_what_follows_is_what_the_model_says(kind: str, request: pytest.FixtureRequest):
    url = "memory://" if kind == "memory" else str(request.getfixturevalue(URLS[kind]))
    count = iter(range(1_000_000))

    @settings(
        max_examples=EXAMPLES[kind],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(shapes, ends)
    def check(shape: tuple[list[str], str, bool], story: list[End]) -> None:
        asyncio.run(walk(url, shape, story, f"t{next(count)}"))

    check()
