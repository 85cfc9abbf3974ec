"""Use cases that API, command line and SDK share: no HTTP, no SQL.

`build` makes them all over one store.
"""

from __future__ import annotations

from dataclasses import dataclass

from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.worker_protocol import LongPoll, WorkerBackend
from noonbell.ports import Store, Wakeup
from noonbell.service.account import Slots
from noonbell.service.bulk_operations import BatchReader, Bulk, BulkLoop
from noonbell.service.calendars import Calendars, FetchFile
from noonbell.service.callbacks import Callbacks
from noonbell.service.calls import Calls
from noonbell.service.cleaning import Cleanings
from noonbell.service.explain import Explain
from noonbell.service.history import HistoryImport
from noonbell.service.pauses import Pauses
from noonbell.service.preview import Previews
from noonbell.service.publishing import Backfills, Publishing
from noonbell.service.queues import Queues
from noonbell.service.runs import Runs
from noonbell.service.service_levels import ServiceLevels
from noonbell.service.stats import Stats
from noonbell.service.task_fields import Rules
from noonbell.service.tasks import Tasks
from noonbell.service.time_series import TimeSeries
from noonbell.service.timeline import Timelines
from noonbell.service.views import Views
from noonbell.service.workers import WorkerProtocol, Workers

__all__ = ["Rules", "Services", "build"]


@dataclass(frozen=True, slots=True)
class Services:
    store: Store
    wakeup: Wakeup
    rules: Rules
    tasks: Tasks
    runs: Runs
    publishing: Publishing
    calls: Calls
    callbacks: Callbacks
    previews: Previews
    stats: Stats
    levels: ServiceLevels
    series: TimeSeries
    timelines: Timelines
    explain: Explain
    slots: Slots
    workers: Workers
    queues: Queues
    cleanings: Cleanings
    pauses: Pauses
    bulk: Bulk
    bulk_loop: BulkLoop
    """Not started."""
    views: Views
    calendars: Calendars
    backfills: Backfills
    history: HistoryImport
    protocol: WorkerProtocol | None
    """None where no worker can come by the API."""


def build(
    store: Store,
    wakeup: Wakeup,
    rules: Rules,
    cache: TaskCache | None = None,
    long_poll: LongPoll | None = None,
    fetch: FetchFile | None = None,
) -> Services:
    """`cache`: the node's, if it has one. `long_poll`: where workers that come by the API wait, if they may come.

    `fetch`: gets the files that calendars are made from, where this process may.
    """
    cache = cache or TaskCache(store)
    tasks, previews = Tasks(store, wakeup, rules), Previews(store, rules)
    runs = Runs(store, wakeup, cache)
    return Services(
        store=store,
        wakeup=wakeup,
        rules=rules,
        tasks=tasks,
        runs=runs,
        publishing=Publishing(store, wakeup, cache),
        calls=Calls(store, wakeup, cache, rules),
        callbacks=Callbacks(store, wakeup, rules, cache),
        previews=previews,
        history=HistoryImport(store, tasks),
        stats=Stats(store),
        levels=ServiceLevels(store),
        series=TimeSeries(store),
        timelines=Timelines(store),
        explain=Explain(store),
        slots=Slots(store),
        workers=Workers(store, wakeup),
        queues=Queues(store, wakeup, runs),
        cleanings=Cleanings(store),
        pauses=Pauses(store, wakeup),
        bulk=Bulk(store, wakeup),
        bulk_loop=BulkLoop(store, wakeup, cache, BatchReader(store, runs, tasks)),
        views=Views(store),
        calendars=Calendars(store, wakeup, fetch, rules.address_problem),
        backfills=Backfills(store, wakeup, tasks),
        protocol=None if long_poll is None else WorkerProtocol(WorkerBackend(store, wakeup, cache, long_poll)),
    )
