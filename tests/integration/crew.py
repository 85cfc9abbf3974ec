"""The processes of the race tests: `python -m integration.crew ROLE ORDERS`. Each writes down what it was told.

What is written is handed to the kernel at once, so a kill -9 loses no line that came before it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from typing import Any

from noonbell.clock import SECOND
from noonbell.model.request import ClaimRequest
from noonbell.model.run import Lease, Precondition, RunStatus, Settlement, SettleResult, Transition
from noonbell.stores import open_store
from noonbell.stores.sql.store import SqlStore

POLL = 0.05


class Witness:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, *lines: str) -> None:
        if lines:
            os.write(self._file, ("\n".join(lines) + "\n").encode())


def success(lease: Lease) -> Settlement:
    return Settlement(
        run_id=lease.run_id,
        token=lease.token,
        transition=Transition.FINISH,
        status=RunStatus.SUCCESS,
        worker_id=lease.worker_id,
        task_version=lease.task_version,
        plain=lease.plain,
        counted=lease.counted,
        in_flow=lease.in_flow,
        keyed=lease.keyed,
    )


async def work(store: SqlStore, witness: Witness, orders: dict[str, Any]) -> None:
    """Claim and settle in batches of any size, sweep what others left behind, until nothing is left."""
    name, last_sweep = orders["name"], time.monotonic()
    ended: list[Settlement] = []
    while True:
        size = random.randint(1, orders["batch"])
        answers, claimed = await store.settle_and_claim(
            ended, ClaimRequest(worker_id=name, queues=("default",), max=size)
        )
        witness.write(
            *(
                f"{answer} {settlement.run_id} {settlement.token}"
                for settlement, answer in zip(ended, answers, strict=True)
            )
        )
        ended = [success(lease) for lease in claimed.leases]
        if not ended or time.monotonic() - last_sweep > 0.5:
            last_sweep = time.monotonic()
            await sweep(store, witness)
        if not ended:
            if (await store.fetch("select count(*) from live"))[0][0] == 0:
                return
            await asyncio.sleep(POLL)


async def sweep(store: SqlStore, witness: Witness) -> None:
    late = await store.overdue(500)
    answers = await store.settle(
        [
            Settlement(
                run_id=one.run_id, token=one.token, transition=Transition.LOSE, precondition=Precondition.EXPIRED
            )
            for one in late
            if one.precondition is Precondition.EXPIRED
        ]
    )
    witness.write(
        *(
            f"swept {one.run_id} {one.token}"
            for one, answer in zip(late, answers, strict=True)
            if answer is SettleResult.DONE
        )
    )


async def plan(store: SqlStore, witness: Witness, orders: dict[str, Any]) -> None:
    """Plan until no cursor is left."""
    while True:
        planned = await store.plan(orders["batch"])
        if planned.tasks:
            witness.write(f"born {planned.born}")
            continue
        if not await store.fetch("select 1 from cursors where next_fire_at is not null limit 1"):
            return
        await asyncio.sleep(0.01)


async def take_turns(store: SqlStore, witness: Witness, orders: dict[str, Any]) -> None:
    """Many claimers at once, each of which holds what it got for a moment; until all runs have ended."""
    left = True

    async def claimer(number: int) -> None:
        nonlocal left
        request = ClaimRequest(worker_id=f"{orders['name']}-{number}", queues=("default",), max=5)
        while left:
            leases = (await store.claim(request)).leases
            taken = time.monotonic_ns()
            if not leases:
                await asyncio.sleep(random.random() * orders["pause"])
                if number == 0 and (await store.fetch("select count(*) from live"))[0][0] == 0:
                    left = False
                continue
            await asyncio.sleep(random.random() * 0.002)
            random.shuffle(leases)
            middle = random.randint(0, len(leases))
            for part in filter(None, (leases[:middle], leases[middle:])):
                given = time.monotonic_ns()
                answers = await store.settle([success(lease) for lease in part])
                witness.write(
                    *(
                        f"{answer} {lease.task_id} {lease.run_id} {taken} {given}"
                        for lease, answer in zip(part, answers, strict=True)
                    )
                )

    await asyncio.gather(*(claimer(number) for number in range(orders["claimers"])))


async def keep_the_rate(store: SqlStore, witness: Witness, orders: dict[str, Any]) -> None:
    """Start what a limit lets start, as soon as it does, for so many seconds."""
    ahead = await store.now() - time.time_ns() // 1000
    until = time.monotonic() + orders["seconds"]
    ended: list[Settlement] = []
    calls = empty = 0
    while time.monotonic() < until:
        request = ClaimRequest(worker_id=orders["name"], queues=("default",), max=50)
        _, claimed = await store.settle_and_claim(ended, request)
        ended = [success(lease) for lease in claimed.leases]
        calls += 1
        empty += not ended
        now = time.time_ns() // 1000 + ahead
        pause = POLL if claimed.next_at is None else min(POLL, (claimed.next_at - now) / SECOND)
        if pause > 0:
            await asyncio.sleep(pause)
    await store.settle(ended)
    witness.write(f"calls {calls} empty {empty}")


async def publish(store: SqlStore, witness: Witness, orders: dict[str, Any]) -> None:
    """Publish one run after the other, several at a time, and write down each that was acknowledged; for ever."""
    from noonbell.model.request import Publication

    async def publisher() -> None:
        while True:
            (answer,) = await store.publish([Publication(task_id=orders["task_id"], payload="x" * 2000)])
            witness.write(f"published {answer.run_id}")

    await asyncio.gather(*(publisher() for _ in range(orders["at_once"])))


ROLES = {"work": work, "plan": plan, "take_turns": take_turns, "keep_the_rate": keep_the_rate, "publish": publish}


async def main(role: str, orders: dict[str, Any]) -> None:
    store = open_store(orders["url"])
    if "connections" in orders:
        store._connections = orders["connections"]  # type: ignore[attr-defined]
    await store.open()
    try:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        await ROLES[role](store, Witness(orders["witness"]), orders)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
