"""Use cases that API, command line and SDK share: no HTTP, no SQL.

`build` makes them all over one store.
"""

from __future__ import annotations

from dataclasses import dataclass

from noonbell.ports import Store, Wakeup
from noonbell.service.callbacks import Callbacks
from noonbell.service.preview import Previews
from noonbell.service.publishing import Publishing
from noonbell.service.rules import Rules
from noonbell.service.runs import Runs
from noonbell.service.stats import Stats
from noonbell.service.tasks import Tasks

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


def build(store: Store, wakeup: Wakeup, rules: Rules | None = None) -> Services:
    rules = rules or Rules()
    return Services(
        store=store,
        wakeup=wakeup,
        tasks=Tasks(store, wakeup, rules),
        runs=Runs(store, wakeup),
        publishing=Publishing(store, wakeup),
        callbacks=Callbacks(store, wakeup, rules),
        previews=Previews(store, rules),
        stats=Stats(store),
    )
