"""Histories: the tasks that a seed makes, and the steps that it takes with them: what callers do, and what goes wrong.

A history is made from its seed alone and is a list of steps, each at its second. So it can be printed, and steps can be left out
of it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from noonbell.testing.simulation.targets import CHILD_TYPE, PARENT_TYPE, Character
from noonbell.testing.simulation.world import SWEEP

SECONDS: Final = 10.0
"""That a history takes until it is healed."""
NODES: Final = 3
EXTRA: Final = "extra"
"""A task that no step touches."""

SLOW: Final = "slow"

FAULTS: Final = frozenset(
    {
        *("crash", "die_before", "die_after", "lost_request", "lost_answer", "late_request", "late_answer"),
        *("freeze", "outage", "lost_signals", "clock", "stall", "stall_at", "freeze_at", "last_words", "meet"),
    }
)


@dataclass(frozen=True, slots=True)
class HistoryStep:
    at: float
    """Seconds since the history began."""
    kind: str
    place: int = 0
    """Of the node that it befalls, or that is asked."""
    what: str = ""
    """The name of a task or of a call."""
    number: float = 0

    def __str__(self) -> str:
        more = " ".join(filter(None, (self.what, f"{self.number:g}" if self.number else "")))
        where = "" if self.kind in ("outage", "lost_signals", "clock") else f" at node {self.place}"
        return f"{self.at:6.2f} s  {self.kind}{where}{' ' if more else ''}{more}"


@dataclass(frozen=True, slots=True)
class History:
    seed: int
    tasks: tuple[dict[str, Any], ...]
    """As `POST /tasks` takes them, in order of creation."""
    characters: dict[str, Character]
    steps: tuple[HistoryStep, ...]
    seconds: float = SECONDS
    queue_limit: int | None = 2
    """Of the queue `narrow`. Without one, and with no limit waiting, claims and settlements go the short way."""
    is_filled_up: bool = True
    """It goes on until it has as many faults and transitions as each history should have."""


def history_of(seed: int) -> History:
    draw = random.Random(f"history {seed}")
    tasks, characters = _tasks(draw)
    names = tuple(task["name"] for task in tasks)
    tasks.append({**_HTTP, "name": EXTRA, "max_concurrency": None})
    steps = [*_asked(draw, names), *_faults(draw)]
    return History(
        seed=seed,
        tasks=tuple(tasks),
        characters=characters,
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        queue_limit=draw.choice((None, None, 1, 2)),
    )


def _tasks(draw: random.Random) -> tuple[list[dict[str, Any]], dict[str, Character]]:
    """Each kind of task where policies and transitions differ: some in every history, some in a part of them."""
    made = [_free("free-a"), _once(), _gated(draw)]
    others = [_alone(), _replaced(), _called_back(), _delayed(), _keyed(), _narrow(), _expiring(), _fanned(), _slow()]
    made += draw.sample(others, 2)
    match draw.randrange(3):
        case 0:
            made += [_free("free-b"), _after(draw)]
        case 1:
            made.append(_flow())
        case _:
            made += _family()
    characters = {
        task["name"]: Character(
            longest=draw.choice((0.05, 0.5, 1.5, 1.5)),
            fails=draw.choice((0.0, 0.1, 0.4)),
            hangs=draw.choice((0.0, 0.05)),
        )
        for task in made
    }
    for task in made:
        if task["name"] == SLOW or (task["name"] in ("free-a", "once") and draw.random() < 0.3):
            task["timeout_seconds"] = 8  # longer than its lease, which is renewed
            longer = {"shortest": 1.5, "longest": 4.0, "hangs": 0.0}
            characters[task["name"]] = msgspec.structs.replace(characters[task["name"]], **longer)
    for task in made:
        if "schedule" in task:
            if task["schedule"] == EVERY:
                task["schedule"] = {**EVERY, "every": draw.choice((1, 1, 2))}
            task["misfire_policy"] = draw.choice(("FIRE_NOW", "FIRE_ONCE", "SKIP", "CATCH_UP_LIMITED"))
            task["misfire_grace_seconds"] = draw.choice((1, 3, 10))
            if task["misfire_policy"] == "CATCH_UP_LIMITED":
                task["catchup_limit"] = 2
    return made, characters


EVERY: Final = {"type": "interval", "every": 2, "unit": "second"}
_RETRIES: Final = {"max_retries": 2, "strategy": "fixed", "initial_delay": 1}
_HTTP: Final = {
    "target_url": "http://target/",
    "timeout_seconds": 2,
    "worker_timeout_ms": 2_000,
    "ping_interval_ms": 500,
    "retry_policy": _RETRIES,
}


def _free(name: str) -> dict[str, Any]:
    return {**_HTTP, "name": name, "schedule": EVERY, "max_concurrency": None}


def _once() -> dict[str, Any]:
    return {**_HTTP, "name": "once", "schedule": EVERY, "delivery": "at_most_once", "retry_policy": {"max_retries": 0}}


def _gated(draw: random.Random) -> dict[str, Any]:
    return {**_HTTP, "name": "gated", "schedule": EVERY, "max_concurrency": draw.choice((1, 2))}


def _alone() -> dict[str, Any]:
    return {
        **_HTTP,
        "name": "alone",
        "schedule": EVERY,
        "max_concurrency": 1,
        "concurrency_policy": "SKIP",
        "overlap_action": "SKIP",
    }


def _replaced() -> dict[str, Any]:
    return {**_HTTP, "name": "replaced", "schedule": EVERY, "overlap_action": "CANCEL_PREV"}


def _called_back() -> dict[str, Any]:
    more = {"exec_type": "ASYNC", "callback_timeout_sec": 2, "max_concurrency": 2}
    return {**_HTTP, "name": "called-back", "schedule": EVERY, **more}


def _delayed() -> dict[str, Any]:
    schedule = {**EVERY, "mode": "fixed_delay"}
    return {**_HTTP, "name": "delayed", "schedule": schedule}


def _keyed() -> dict[str, Any]:
    return {**_HTTP, "name": "keyed", "concurrency_key": "payload.customer", "max_per_key": 1, "exec_type": "SYNC"}


def _narrow() -> dict[str, Any]:
    job = {"job_type": "work", "timeout_seconds": 2, "worker_timeout_ms": 2_000, "ping_interval_ms": 500}
    return {**job, "name": "narrow", "queue": "narrow", "schedule": EVERY, "retry_policy": _RETRIES}


def _expiring() -> dict[str, Any]:
    return {**_HTTP, "name": "expiring", "schedule": EVERY, "expires_in_seconds": 1, "max_concurrency": 1}


def _fanned() -> dict[str, Any]:
    job = {"job_type": "work", "timeout_seconds": 2, "worker_timeout_ms": 2_000, "ping_interval_ms": 500}
    return {**job, "name": "fanned", "fanout": {"workers": 2}, "schedule": EVERY, "retry_policy": {"max_retries": 0}}


def _slow() -> dict[str, Any]:
    """Its attempts last longer than a lease: they are renewed."""
    return {**_HTTP, "name": SLOW, "schedule": EVERY, "max_concurrency": None}


def _after(draw: random.Random) -> dict[str, Any]:
    on = draw.choice(("success", "any"))
    after = {
        "tasks": [{"task": "free-a", "on": on}, {"task": "free-b", "on": on}],
        "join": draw.choice(("all", "any")),
        "same_slot": draw.choice((True, False)),
        "within_seconds": 4,
    }
    return {**_HTTP, "name": "after", "after": after}


def _flow() -> dict[str, Any]:
    step = {"target_url": "http://target/", "timeout_seconds": 2, "worker_timeout_ms": 2_000, "ping_interval_ms": 500}
    steps = [
        {**step, "id": "first"},
        {**step, "id": "each", "needs": ["first"], "foreach": [1, 2, 3, 4], "max_parallel": 2, "allow_failure": True},
        {**step, "id": "beside", "needs": ["first"]},
        {**step, "id": "last", "needs": ["each", "beside"], "on": "any"},
    ]
    return {"name": "flow", "steps": steps, "schedule": {**EVERY, "every": 5}, "max_concurrency": 1}


def _family() -> list[dict[str, Any]]:
    job = {"timeout_seconds": 3, "worker_timeout_ms": 2_000, "ping_interval_ms": 500, "retry_policy": _RETRIES}
    return [
        {**job, "name": CHILD_TYPE, "job_type": CHILD_TYPE},
        {**job, "name": "parent", "job_type": PARENT_TYPE, "schedule": {**EVERY, "every": 5}},
    ]


def _asked(draw: random.Random, names: tuple[str, ...]) -> list[HistoryStep]:
    """What callers do."""
    kinds: tuple[str, ...] = ("publish",) * 6 + ("cancel",) * 4 + ("edit",) * 2 + ("disable", "enable", "retry", "skip")
    kinds += ("pause", "resume", "pause_queue", "resume_queue", "delete")
    kinds += ("pause_task", "bulk_cancel", "bulk_retry", "bulk_trigger", "call", "call", "batch", "dedupe", "dedupe")
    steps = []
    for _ in range(draw.randint(10, 20)):
        at = round(draw.uniform(1.0, SECONDS - 1.0), 2)
        kind = draw.choice(kinds)
        steps.append(HistoryStep(at, kind, draw.randrange(NODES), draw.choice(names), draw.randrange(1, 1000)))
        if kind in ("disable", "pause", "pause_queue") and draw.random() < 0.8:
            on = {"disable": "enable", "pause": "resume", "pause_queue": "resume_queue"}[kind]
            steps.append(HistoryStep(round(at + draw.uniform(0.1, 3), 2), on, steps[-1].place, steps[-1].what))
    return steps


_CALLS: Final = (
    "plan",
    "settle",
    "settle",
    "settle",
    "claim",
    "begin",
    "promote",
    "heartbeat",
    "publish",
    "spawn",
    "any",
    SWEEP,
)


def _faults(draw: random.Random) -> list[HistoryStep]:
    steps = []
    for _ in range(draw.randint(7, 14)):
        at, place = round(draw.uniform(0.5, SECONDS - 0.5), 2), draw.randrange(NODES)
        kind = draw.choice(
            ("crash", "crash", "die_before", "die_after", "lost_request", "lost_request", "lost_answer", "lost_answer")
            + ("late_request", "late_request", "late_answer", "freeze", "freeze", "stall", "outage", "lost_signals")
            + ("clock", "stall_at", "freeze_at")
        )
        match kind:
            case "crash" | "die_before" | "die_after":
                call = "" if kind == "crash" else draw.choice(_CALLS)
                steps.append(HistoryStep(at, kind, place, call))
                again = "restart_same" if draw.random() < 0.3 else "restart"
                steps.append(HistoryStep(round(at + draw.uniform(0.2, 4), 2), again, place))
            case "lost_request" | "lost_answer":
                steps.append(HistoryStep(at, kind, place, draw.choice(_CALLS)))
            case "late_request" | "late_answer":
                steps.append(HistoryStep(at, kind, place, draw.choice(_CALLS), round(draw.choice((0.3, 1, 3, 6)), 2)))
            case "stall_at" | "freeze_at":
                steps.append(HistoryStep(at, kind, place, draw.choice(_CALLS), draw.choice((2.5, 3, 4))))
            case "freeze" | "stall":
                steps.append(HistoryStep(at, kind, place, "", round(draw.choice((0.5, 2.5, 5)), 2)))
            case "outage" | "lost_signals":
                steps.append(HistoryStep(at, kind, 0, "", round(draw.choice((0.5, 2, 4)), 2)))
            case "clock":
                steps.append(HistoryStep(at, kind, 0, "", draw.choice((-30, -30, -3, 1, 3, 12))))
    if draw.random() < 0.3:
        at, place = round(draw.uniform(1, SECONDS - 4), 2), draw.randrange(NODES)
        steps += [HistoryStep(at, "stop", place), HistoryStep(round(at + 3.5, 2), "restart", place)]
    for scenario, part in _SCENARIOS:
        if draw.random() < part:
            steps += scenario(draw)
    return steps


def _cut_off(draw: random.Random) -> list[HistoryStep]:
    """A node is cut off as it begins, settles or renews, for longer than its lease: another one has the run when it
    comes back.
    """
    at, place = round(draw.uniform(1, SECONDS - 5), 2), draw.randrange(NODES)
    call = draw.choice(("begin", "begin", "settle", "heartbeat"))
    return [HistoryStep(at, "stall_at", place, call, round(draw.uniform(2.3, 4), 2))]


def _meeting(draw: random.Random) -> list[HistoryStep]:
    """A node is cut off at a call, until another node makes a call of a given kind: its own arrives just before that."""
    at, place = round(draw.uniform(0.5, SECONDS - 4), 2), draw.randrange(NODES)
    return [HistoryStep(at, "meet", place, draw.choice(_MEETINGS), 5)]


_MEETINGS: Final = (
    *(f"begin:{SWEEP}", f"begin:{SWEEP}", "begin:begin", f"heartbeat:{SWEEP}", f"settle:{SWEEP}", "settle:begin"),
    *("settle:cancel", "heartbeat:cancel", "settle:callback", "plan:plan"),
)
"""What a node is cut off with, and what it goes on before."""


def _overtaken(draw: random.Random) -> list[HistoryStep]:
    """A node dies with a settlement on its way. Another process works under its id, and has the run again when that arrives: the
    others are frozen.
    """
    at, place = round(draw.uniform(1, SECONDS - 5), 2), draw.randrange(NODES)
    others = [other for other in range(NODES) if other != place]
    return [
        HistoryStep(at, "last_words", place, "settle", round(draw.uniform(2, 4), 2)),
        HistoryStep(round(at + 0.9, 2), "clock", 0, "", 20),
        HistoryStep(round(at + 1, 2), "restart_same", place),
        *(HistoryStep(round(at + 0.9, 2), "freeze", other, "", 4) for other in others),
    ]


def _undone(draw: random.Random) -> list[HistoryStep]:
    """The clock is set back, and transactions that take numbers are undone."""
    at = round(draw.uniform(1, SECONDS - 4), 2)
    steps = [HistoryStep(at, "clock", 0, "", -30)]
    for _ in range(draw.randint(3, 6)):
        when, place = round(at + draw.uniform(0.1, 3), 2), draw.randrange(NODES)
        call = draw.choice(("plan", "publish", "settle", "claim"))
        steps.append(HistoryStep(when, "lost_request", place, call))
        steps.append(HistoryStep(when, "publish", place, EXTRA, draw.randrange(1, 1000)))
    return steps


def _taken_over(draw: random.Random) -> list[HistoryStep]:
    """A process is frozen for so long that another one takes its id; then it goes on."""
    at, place = round(draw.uniform(2, SECONDS - 6), 2), draw.randrange(NODES)
    return [
        HistoryStep(at, "freeze", place, "", round(draw.uniform(1.2, 3), 2)),
        HistoryStep(round(at + 0.2, 2), "clock", 0, "", 20),
        HistoryStep(round(at + 0.4, 2), "restart_same", place),
    ]


_SCENARIOS: Final = ((_taken_over, 0.25), (_cut_off, 0.3), (_meeting, 0.7), (_overtaken, 0.25), (_undone, 0.2))
"""What needs several things at once, and in what part of the histories it is tried."""
