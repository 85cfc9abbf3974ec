"""What a doctor's findings say, in English: what is so, and what to do. The dashboard has the same in its own languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ENGLISH: Final[Mapping[str, tuple[str, str]]] = {
    # the store and its clock
    "clock_differs": (
        "the store's clock is {skew} s from this machine's; the store's decides what is due",
        "set both by NTP",
    ),
    "store_slow": ("a question to the store took {ms} ms", "look at its load"),
    "store_well": ("answers in {ms} ms, its clock is {skew} s from ours", ""),
    "node_stalled": (
        "is not ready: {why}",
        "readyz names each loop; end the session that holds a lock, or mend the store",
    ),
    "node_well": ("ready: every loop gets on", ""),
    "size": ("{tasks} tasks, {runs} runs, {events} events", ""),
    # planning, workers, queues
    "planner_late": (
        "{n} tasks have slots that nobody planned, the oldest {name!r} since {since}",
        "start a node that plans: noonbell serve, with scheduler.enabled",
    ),
    "planner_well": ("no slot is overdue", ""),
    "workers_lost": (
        "{n} of {all} are silent: {names}",
        "their runs go to others; if they were stopped for good, they are forgotten after a day",
    ),
    "workers_drained": (
        "{n} of {all} are drained inside a node that goes on: {names}",
        "they take nothing until they are resumed: noonbell worker resume ID",
    ),
    "workers_well": ("{n} there, none silent", ""),
    "queue_unserved": (
        "nobody works on {name} ({n} waiting)",
        "start a worker for it: noonbell worker --queues {name} …",
    ),
    "queues_served": ("every queue with work in it has a worker", ""),
    "queue_paused": ("{name!r} is paused with {n} waiting", "noonbell queue resume {name}, when that is over"),
    "queues_open": ("none is paused with work in it", ""),
    # settings
    "access_open": ("others can reach it and nobody is asked for a token", "set auth.enabled to true"),
    "access_tokens": ("tokens are asked for", ""),
    "access_local": ("only this machine can reach it", ""),
    "callbacks_unset": (
        "callback.base_url is not set: targets on other machines cannot call back",
        "set it to where they reach this service",
    ),
    "file_open": ("every user of this machine can read {file}", "chmod o-r {file}"),
    # the machine
    "zones_packaged": ("time zones of tzdata {release}", ""),
    "zones_machine": ("time zones of the machine ({folder})", "pip install tzdata"),
    "files_few": ("at most {n} are allowed", "ulimit -n {wanted}, for many targets"),
    "files_well": ("up to {n} are allowed", ""),
    "disk_shut": ("{folder} cannot be written to", "give this user the right to"),
    "disk_full": ("{free} MiB are free in {folder}", "make room, or keep less history"),
    "disk_well": ("{free} GiB are free", ""),
}
"""By the code of a finding; in the braces are its facts."""
