"""A task that says nothing of policies: it waits at its limit, and runs every slot that is late."""

from __future__ import annotations

from noonbell.clock import ManualClock
from noonbell.model.account import Activity
from noonbell.model.request import ClaimRequest, RunQuery
from noonbell.model.run import RunStatus
from noonbell.service import Services
from noonbell.service.tasks import shown

SECONDS = {"type": "interval", "every": 1, "unit": "second"}


async def test_every_late_slot_becomes_a_run_and_all_but_one_wait(services: Services, clock: ManualClock):
    task = await services.tasks.create({"name": "t", "target_url": "http://h/", "schedule": SECONDS})
    told = shown(task, Activity())
    assert (told["misfire_policy"], told["concurrency_policy"], told["max_concurrency"]) == ("FIRE_NOW", "QUEUE", 1)
    clock.advance(60)
    await services.store.plan(10)
    born = (await services.store.runs(RunQuery(sort="id", page_size=100))).items
    assert [run.status for run in born] == [RunStatus.SCHEDULED] * 60
    assert [run.scheduled_time for run in born] == sorted(run.scheduled_time for run in born)
    claimed = await services.store.claim(ClaimRequest(worker_id="w", queues=("http",), max=10))
    assert [lease.run_id for lease in claimed.leases] == [born[0].id]
