"""Use cases that API, command line and SDK share: no HTTP, no SQL.

`build` makes them all over one store.
"""

from __future__ import annotations

from dataclasses import dataclass

from noonbell.ports import Store, Wakeup
from noonbell.service.callbacks import Callbacks, Receive
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


def build(store: Store, wakeup: Wakeup, rules: Rules, receive: Receive) -> Services:
    """`receive` is what a callback does: `engine.callback.receive`, bound to store, wake-up and known tasks."""
    return Services(
        store=store,
        wakeup=wakeup,
        tasks=Tasks(store, wakeup, rules),
        runs=Runs(store, wakeup),
        publishing=Publishing(store, wakeup),
        callbacks=Callbacks(store, rules, receive),
        previews=Previews(store, rules),
        stats=Stats(store),
    )
