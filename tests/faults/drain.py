"""A script that makes runs end: `python -m faults.drain URL COUNT` publishes and carries out so many, in batches, on several tasks, queues and
workers; one in eleven fails. Killed in the middle, it may be started again.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from noonbell import stores
from noonbell.errors import AlreadyExists
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Lease, RunStatus, Settlement, Transition
from noonbell.model.task import Task, TaskSpec

QUEUES = ("default", "pdf", "mail")
WORKERS = ("w1", "w2", "w3")
BATCH = 500
FAILS = 11


async def main(url: str, wanted: int) -> None:
    store = stores.open_store(url)
    await store.open()
    try:
        tasks = [await task_of(store, queue) for queue in QUEUES]
        number = count()
        done = 0
        while done < wanted:
            for task in tasks:
                await store.publish([Publication(task_id=task.id) for _ in range(BATCH)])
            for worker in WORKERS:
                claimed = await store.claim(
                    ClaimRequest(worker_id=worker, queues=QUEUES, max=BATCH, job_types=("work",))
                )
                await store.settle([ended(lease, worker, next(number)) for lease in claimed.leases])
                done += len(claimed.leases)
            sys.stdout.write(f"{done}\n")
            sys.stdout.flush()
    finally:
        await store.close()


async def task_of(store: stores.SqlStore, queue: str) -> Task:
    try:
        return await store.create_task(TaskSpec(name=f"work-{queue}", job_type="work", queue=queue))
    except AlreadyExists:
        found = await store.task_named(f"work-{queue}")
        assert found is not None
        return found


def ended(lease: Lease, worker: str, number: int) -> Settlement:
    return Settlement(
        run_id=lease.run_id,
        token=lease.token,
        worker_id=worker,
        transition=Transition.FINISH,
        status=RunStatus.FAILED if number % FAILS == 0 else RunStatus.SUCCESS,
        task_version=lease.task_version,
        plain=lease.plain,
        lease=lease,
        counted=lease.counted,
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
