"""Tasks that fire in each second of a stretch that lies ahead, so that the slots are known before anything has run; and their account."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from acceptance.harness import until
from faults.checker import Row, Seen, Slot, Verdict, percentile
from faults.sink import Delivery, Sink
from services import forked

Ask = Callable[..., Any]
"""`ask(method, path, body, expect=200)`: the answer of a node."""
LEASE = {"worker_timeout_ms": 2000, "ping_interval_ms": 500}
ANSWER = "/slow/0.02"
"""A target that takes 20 ms: long enough for kills to hit requests that are open."""


def at_most_once(tasks: int) -> frozenset[str]:
    """The tasks that are delivered at most once: every fifth."""
    return frozenset(f"t{number}" for number in range(0, tasks, 5))


def audited(url: str) -> str:
    """What `noonbell audit` says of the store that is left."""
    done = forked.run("audit", "--quiet", "--store", url)
    return done.stdout + done.stderr


def create_tasks(ask: Ask, sink: Sink, tasks: int, seconds: int, **more: Any) -> tuple[list[Slot], dict[int, str]]:
    """All slots, and the names of the tasks by their ids. `more`: fields that every task has."""
    first = int(time.time()) + 5 + tasks // 20
    last = first + seconds - 1
    common = {"cron_expr": "* * * * * *", "start_at": rfc3339(first), "end_at": rfc3339(last), "max_concurrency": None}
    names: dict[int, str] = {}
    for number in range(tasks):
        name = f"t{number}"
        mode = "at_most_once" if name in at_most_once(tasks) else "at_least_once"
        fields = {"name": name, "target_url": sink.url(f"{ANSWER}?{name}"), "delivery": mode, **common, **LEASE, **more}
        names[int(ask("POST", "/tasks", fields, expect=201)["id"])] = name
    assert time.time() < first, "the machine is too slow to create the tasks in time"
    return [Slot(name, second) for second in range(first, last + 1) for name in names.values()], names


def settle_down(ask: Ask) -> None:
    """Wait until every task is COMPLETED and every run is final."""

    def is_quiet() -> bool:
        left = ask("GET", "/tasks?status=ENABLED&page_size=1")["total"]
        return not left and not ask("GET", "/runs?status=SCHEDULED,RUNNING,RETRYING&page_size=1")["total"]

    until(is_quiet, "every task to be COMPLETED and every run to be final", 120)


def rows_of(ask: Ask, names: dict[int, str]) -> list[Row]:
    return [row_of(run, names) for run in runs_of(ask)]


def runs_of(ask: Ask) -> list[Any]:
    """All of them, oldest first."""
    runs: list[Any] = []
    page = ask("GET", "/runs?page_size=1000&sort=id")
    while page["items"]:
        runs += page["items"]
        if page["next_cursor"] is None:
            break
        page = ask("GET", f"/runs?page_size=1000&sort=id&cursor={page['next_cursor']}")
    return runs


def row_of(run: dict[str, Any], names: dict[int, str]) -> Row:
    slot = Slot(names[run["task_id"]], second_of(run["scheduled_time"]))
    return Row(slot, str(run["id"]), run["final_status"], (run["error_details"] or {}).get("kind"))


def seen_of(delivery: Delivery) -> Seen:
    slot = Slot(delivery.path.partition("?")[2], second_of(delivery.slot))
    return Seen(slot, delivery.run, delivery.key, delivery.at, delivery.node)


class Figures:
    """From the sink's log alone."""

    def __init__(self, expected: Sequence[Slot], seen: Sequence[Seen], kills: Mapping[str, float]) -> None:
        self.kills = kills
        first: dict[Slot, Seen] = {}
        for one in sorted(seen, key=lambda one: one.at):
            first.setdefault(one.slot, one)
        self.lags = [first[slot].at - slot.at for slot in expected if slot in first]
        self.fail_overs = [
            found for life, at in self.kills.items() if (found := _next_fired(life, at, first)) is not None
        ]
        arrivals = sorted(one.at for one in seen)
        self.gaps = [later - earlier for earlier, later in pairwise(arrivals)]
        again = [one for one in seen if first[one.slot] is not one]
        self.retaken = [one.at - self.kills[node] for one in again if (node := first[one.slot].node) in self.kills]

    def fail_over(self, share: float) -> float:
        return percentile(self.fail_overs, share)


def _next_fired(life: str, killed_at: float, first: dict[Slot, Seen]) -> float | None:
    """Seconds from a kill to the first request, of another node, for a slot that was not due yet at the kill."""
    later = [one.at - killed_at for slot, one in first.items() if slot.at > killed_at and one.node != life]
    return min(later, default=None)


def spread(seconds: Sequence[float]) -> str:
    p50, p99, longest = (percentile(seconds, share) for share in (0.5, 0.99, 1.0))
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s, max {longest:.2f} s"


def told(verdict: Verdict) -> str:
    lines = []
    for name in ("lost", "doubled", "unexpected", "unended", "strange", "unexcused"):
        found = getattr(verdict, name)
        lines += [f"{name}: {len(found)}", *(f"  {one}" for one in found[:10])]
    return "\n".join(lines)


def rfc3339(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")


def second_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
