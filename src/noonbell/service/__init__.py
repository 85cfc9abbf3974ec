"""Use cases that API, command line and SDK share: no HTTP, no SQL."""

from __future__ import annotations

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

__all__ = ["Rules", "Services"]


class Services:
    """All of them over one store."""

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        rules: Rules,
        cache: TaskCache | None = None,
        long_poll: LongPoll | None = None,
        fetch: FetchFile | None = None,
    ) -> None:
        """`cache`: the node's, if it has one. `long_poll`: where workers that come by the API wait, if they may come.

        `fetch`: gets the files that calendars are made from, where this process may.
        """
        cache = cache or TaskCache(store)
        self.store = store
        self.wakeup = wakeup
        self.rules = rules
        self.tasks = Tasks(store, wakeup, rules)
        self.runs = Runs(store, wakeup, cache)
        self.publishing = Publishing(store, wakeup, cache)
        self.calls = Calls(store, wakeup, cache, rules)
        self.callbacks = Callbacks(store, wakeup, rules, cache)
        self.previews = Previews(store, rules)
        self.stats = Stats(store)
        self.levels = ServiceLevels(store)
        self.series = TimeSeries(store)
        self.timelines = Timelines(store)
        self.explain = Explain(store)
        self.slots = Slots(store)
        self.workers = Workers(store, wakeup)
        self.queues = Queues(store, wakeup, self.runs)
        self.cleanings = Cleanings(store)
        self.pauses = Pauses(store, wakeup)
        self.bulk = Bulk(store, wakeup)
        self.bulk_loop = BulkLoop(store, wakeup, cache, BatchReader(store, self.runs, self.tasks))
        """Not started."""
        self.views = Views(store)
        self.calendars = Calendars(store, wakeup, fetch, rules.address_problem)
        self.backfills = Backfills(store, wakeup, self.tasks)
        self.history = HistoryImport(store, self.tasks)
        self.protocol = None if long_poll is None else WorkerProtocol(WorkerBackend(store, wakeup, cache, long_poll))
        """None where no worker can come by the API."""
