"""Use cases that API, command line and SDK share: no HTTP, no SQL.

`build` makes them all over one store.
"""

from __future__ import annotations

from dataclasses import dataclass

from noonbell.ports import Store, Wakeup
from noonbell.service.backfill import Backfills
from noonbell.service.callbacks import Callbacks, Receive
from noonbell.service.explain import Explain
from noonbell.service.jobs import Jobs
from noonbell.service.plans import Plans
from noonbell.service.preview import Previews
from noonbell.service.protocol import Desk, WorkerProtocol
from noonbell.service.publishing import Publishing
from noonbell.service.queues import Queues
from noonbell.service.rules import Rules
from noonbell.service.runs import Runs
from noonbell.service.slots import Slots
from noonbell.service.stats import Stats
from noonbell.service.tasks import Tasks
from noonbell.service.workers import Workers

__all__ = ["Rules", "Services", "build"]


@dataclass(frozen=True, slots=True)
class Services:
    store: Store
    wakeup: Wakeup
    tasks: Tasks
    runs: Runs
    publishing: Publishing
    callbacks: Callbacks
    previews: Previews
    stats: Stats
    explain: Explain
    slots: Slots
    jobs: Jobs
    plans: Plans
    workers: Workers
    queues: Queues
    backfills: Backfills
    protocol: WorkerProtocol | None
    """None where no worker can come by the API."""


def build(store: Store, wakeup: Wakeup, rules: Rules, receive: Receive, desk: Desk | None = None) -> Services:
    """`receive` is what a callback does: `engine.callback.receive`, bound to store, wake-up and known tasks.

    `desk` is what serves workers that come by the API: `engine.protocol.Protocol`.
    """
    tasks, previews = Tasks(store, wakeup, rules), Previews(store, rules)
    runs = Runs(store, wakeup)
    return Services(
        store=store,
        wakeup=wakeup,
        tasks=tasks,
        runs=runs,
        publishing=Publishing(store, wakeup),
        callbacks=Callbacks(store, rules, receive),
        previews=previews,
        stats=Stats(store),
        explain=Explain(store),
        slots=Slots(store),
        jobs=Jobs(store, tasks, previews, rules),
        plans=Plans(store, wakeup, rules),
        workers=Workers(store, wakeup),
        queues=Queues(store, wakeup, runs),
        backfills=Backfills(store, wakeup, tasks),
        protocol=None if desk is None else WorkerProtocol(desk),
    )
