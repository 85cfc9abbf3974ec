"""The composition root: Settings → store, wake-up, targets, node, API. Only this room knows everyone.

A process stops in this order, each step after the one before it:

    stop claiming and planning; let running work end, up to `server.graceful_timeout`; hand the rest back
    stop listening; end requests and event streams
    close targets, wake-up and store

While work drains, the API still answers: callbacks and cancels come through. A second signal ends the process at once,
which is as safe as kill -9: leases run out by themselves.
"""

from noonbell.app.embedded import WorkerOptions
from noonbell.wiring.application import Listening, asks_for_tokens, is_loopback, listen, warn
from noonbell.wiring.assemble import NodeParts, assembled, make_store
from noonbell.wiring.declared_tasks import reconcile
from noonbell.wiring.process import EXIT_AT_ONCE, Stop
from noonbell.wiring.serving import run, run_worker, serve, work

__all__ = [
    "EXIT_AT_ONCE",
    "Listening",
    "NodeParts",
    "Stop",
    "WorkerOptions",
    "asks_for_tokens",
    "assembled",
    "is_loopback",
    "listen",
    "make_store",
    "reconcile",
    "run",
    "run_worker",
    "serve",
    "warn",
    "work",
]
