"""The seams. A protocol's docstrings are laws: the conformance suite tests each sentence on every implementation.

`Store` is a list of named transitions. Each is one transaction: all of it happens, or nothing does. Each is fenced: it
names the state, version or token that it expects, and where that no longer holds it changes nothing and says so. So any
number of nodes may call them at the same time, and none of them needs to be the leader.

Time is the store's clock (the database's, or the clock it was built with). Where a law says *now*, it means that.
"""

from __future__ import annotations

from noonbell.ports.access import AccessStore, SecretStore
from noonbell.ports.account import AccountStore
from noonbell.ports.alerts import AlertStore, Courier, EventStore, Undeliverable
from noonbell.ports.running import RunningStore
from noonbell.ports.runs import RunStore
from noonbell.ports.store import Store
from noonbell.ports.target import Target
from noonbell.ports.tasks import TaskStore
from noonbell.ports.wakeup import Wakeup
from noonbell.ports.workers import WorkerStore

__all__ = [
    "AccessStore",
    "AccountStore",
    "AlertStore",
    "Courier",
    "EventStore",
    "RunStore",
    "RunningStore",
    "SecretStore",
    "Store",
    "Target",
    "TaskStore",
    "Undeliverable",
    "Wakeup",
    "WorkerStore",
]
