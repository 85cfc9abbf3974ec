"""The tasks of the demo, and what their targets do. Everybody who asks about a slot hears the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

LABEL: Final = ("demo", "true")
"""What every task of the demo has, and what cleaning up goes by."""
OWNER: Final = "code:noonbell-demo"
PAUSED: Final = "demo-paused"
"""The task that somebody has paused."""


@dataclass(frozen=True, slots=True)
class Act:
    """What a target does with one request."""

    seconds: float
    """Until it answers."""
    status: int = 200
    calls_back_after: float | None = None
    """Seconds after its answer; None: never."""


def act(name: str, slot: int, attempt: int) -> Act:
    """`slot` in seconds. The same question always has the same answer."""
    luck, pace = _unit(name, slot, attempt, "luck"), _unit(name, slot, attempt, "pace")
    match name:
        case "demo-flaky":
            return Act(0.1 + 0.9 * pace, 200 if luck > 0.3 else 503)
        case "demo-slow":
            return Act(4 + 8 * pace)
        case "demo-overlapping":
            return Act(200 + 250 * pace)
        case "demo-callback":
            return Act(0.05 + 0.1 * pace, 202, calls_back_after=3 + 9 * luck)
        case "demo-callback-lost":
            return Act(0.05 + 0.1 * pace, 202)
        case "demo-circuit":
            # Ill for some hours, well for some: whole days of one colour would teach nobody anything.
            is_ill = _unit(name, slot // 21_600, 0, "health") < 0.4
            return Act(0.2 + 0.3 * pace, 500 if is_ill else 200)
        case "demo-backup":
            return Act(35 + 30 * pace)
        case "demo-report":
            return Act(15 + 20 * pace, 200 if luck > 0.1 else 504)
        case _:
            return Act(0.02 + 0.1 * pace)


def declared(url: str) -> Sequence[Mapping[str, Any]]:
    """Their declarations, on targets at that address."""
    return [{"labels": dict([LABEL]), **task} for task in (*_steady(url), *_stubborn(url), *_calendar(url))]


def _steady(url: str) -> Sequence[Mapping[str, Any]]:
    return (
        {
            "name": "demo-healthy",
            "description": "Every five minutes, and all is well",
            "cron_expr": "*/5 * * * *",
            "http_method": "POST",
            "target_url": f"{url}/demo-healthy",
            "body_template": '{"run": {{run_id}}, "slot": "{{scheduled_time}}"}',
            "misfire_policy": "FIRE_ONCE",
        },
        {
            "name": "demo-flaky",
            "description": "Fails three times out of ten; two retries usually mend it",
            "cron_expr": "*/10 * * * *",
            "target_url": f"{url}/demo-flaky",
            "retry_policy": {"max_retries": 2, "initial_delay": 5},
            "misfire_policy": "FIRE_ONCE",
        },
        {
            "name": "demo-slow",
            "description": "Takes its time: 4 to 12 seconds",
            "cron_expr": "*/15 * * * *",
            "target_url": f"{url}/demo-slow",
            "timeout_seconds": 30,
            "misfire_policy": "FIRE_ONCE",
        },
        {
            "name": "demo-callback",
            "description": "Accepted at once, done later: a callback says so",
            "cron_expr": "*/20 * * * *",
            "exec_type": "ASYNC",
            "http_method": "POST",
            "target_url": f"{url}/demo-callback",
            "callback_timeout_sec": 60,
            "misfire_policy": "SKIP",
        },
        {
            "name": PAUSED,
            "description": "Somebody has paused it",
            "cron_expr": "*/30 * * * *",
            "target_url": f"{url}/{PAUSED}",
        },
    )


def _stubborn(url: str) -> Sequence[Mapping[str, Any]]:
    return (
        {
            "name": "demo-overlapping",
            "description": "Every five minutes, and sometimes takes longer than that: such slots are skipped, and it is said why",
            "cron_expr": "*/5 * * * *",
            "target_url": f"{url}/demo-overlapping",
            "timeout_seconds": 900,
            "overlap_action": "SKIP",
            "misfire_policy": "FIRE_ONCE",
        },
        {
            "name": "demo-callback-lost",
            "description": "Accepted, and then nobody calls back: its deadline ends it",
            "cron_expr": "7 */2 * * *",
            "exec_type": "ASYNC",
            "http_method": "POST",
            "target_url": f"{url}/demo-callback-lost",
            "callback_timeout_sec": 90,
            "misfire_policy": "SKIP",
        },
        {
            "name": "demo-circuit",
            "description": "Its target is ill for hours: after three failures in a row the circuit opens, and a probe closes it",
            "cron_expr": "*/15 * * * *",
            "target_url": f"{url}/demo-circuit",
            "failure_action": "HALF_OPEN",
            "circuit": {"failures": 3, "cool_down_seconds": 3600},
            "misfire_policy": "SKIP",
        },
        {
            "name": "demo-no-worker",
            "description": "A job that no worker can take: its runs wait until one comes",
            "cron_expr": "0 9 * * 1",
            "job_type": "demo_unmanned",
            "queue": "demo-unmanned",
            "payload": {"region": "eu"},
        },
    )


def _calendar(url: str) -> Sequence[Mapping[str, Any]]:
    return (
        {
            "name": "demo-backup",
            "description": "At 02:00 in Berlin, together with another one",
            "cron_expr": "0 2 * * *",
            "timezone": "Europe/Berlin",
            "target_url": f"{url}/demo-backup",
            "timeout_seconds": 300,
        },
        {
            "name": "demo-report",
            "description": "At 02:00 in Berlin, together with another one",
            "cron_expr": "0 2 * * *",
            "timezone": "Europe/Berlin",
            "target_url": f"{url}/demo-report",
            "timeout_seconds": 120,
            "retry_policy": {"max_retries": 1, "initial_delay": 60},
        },
        {
            "name": "demo-month-end",
            "description": "On the last day of each month, however long that is",
            "schedule": {"type": "monthly", "day": 0, "time": "23:00:00"},
            "timezone": "Asia/Shanghai",
            "target_url": f"{url}/demo-month-end",
        },
    )


def _unit(name: str, slot: int, attempt: int, what: str) -> float:
    """From [0, 1), and always the same."""
    digest = hashlib.sha256(f"{name} {slot} {attempt} {what}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
