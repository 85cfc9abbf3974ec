"""The composition root: Settings → store, wake-up, targets, node, API. Only this room knows everyone.

A process stops in this order, each step after the one before it:

    stop claiming and planning; let running work end, up to `server.graceful_timeout`; hand the rest back
    stop listening; end requests and event streams
    close targets, wake-up and store

While work drains, the API still answers: callbacks and cancels come through. A second signal ends the process at once,
which is as safe as kill -9: leases run out by themselves.
"""

from noonbell.wiring.listening import Listening, asks_for_tokens, is_loopback, listen
from noonbell.wiring.parts import Parts, assembled, make_store
from noonbell.wiring.reconciling import reconcile
from noonbell.wiring.serving import run, serve
from noonbell.wiring.stopping import EXIT_AT_ONCE, Stop
from noonbell.wiring.warnings import warn
from noonbell.wiring.workers import Badge
from noonbell.wiring.working import run_worker, work

__all__ = [
    "EXIT_AT_ONCE",
    "Badge",
    "Listening",
    "Parts",
    "Stop",
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
