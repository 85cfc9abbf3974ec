"""A year of schedules through `noonbell.testing.simulate`: how long a million slots take."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from bench.tables import markdown
from noonbell.testing import simulate

START = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = datetime(2027, 1, 1, tzinfo=UTC)
MONTH = datetime(2026, 2, 1, tzinfo=UTC)
MOST_SECONDS = 90
"""The goal, for the year."""


def tasks() -> list[dict[str, object]]:
    """Somewhat over a million slots in a year, in four zones; half of the tasks have policies that look back."""
    zones = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Shanghai")
    found: list[dict[str, object]] = [
        *({"cron_expr": f"{n} */5 * * * *", "overlap_action": "SKIP" if n % 2 else "ALLOW"} for n in range(8)),
        *({"cron_expr": f"{n} * * * *", "failure_action": "BACKOFF" if n % 2 else "RUN_NEW"} for n in range(20)),
        *({"cron_expr": f"{n % 60} {n % 24} * * *"} for n in range(100)),
        {"schedule": {"type": "interval", "every": 10, "unit": "minute", "mode": "fixed_delay"}},
        {"schedule": {"type": "weekly", "weekday": 1, "time": "09:00:00"}},
        {"schedule": {"type": "monthly", "day": 0, "time": "23:00:00"}},
    ]
    return [
        {"name": f"task {number}", "target_url": "http://127.0.0.1/", "timezone": zones[number % 4], **fields}
        for number, fields in enumerate(found)
    ]


def table(*, quick: bool) -> str:
    began = time.perf_counter()
    fired = skipped = 0
    until = MONTH if quick else YEAR
    for slot in simulate(
        tasks(), START, until, lasts=lambda _, slot: slot % 701, succeeds=lambda _, slot: slot % 7 > 0
    ):
        fired += 1
        skipped += slot.skipped is not None
    seconds = time.perf_counter() - began
    verdict = "–" if quick else "met" if fired >= 1_000_000 and seconds < MOST_SECONDS else "**missed**"
    row = [f"{len(tasks())}", f"{fired:,}", f"{skipped:,}", f"{seconds:.1f}", f"{seconds / fired * 1e6:.1f}", verdict]
    head = ["tasks", "slots", "of them skipped", "seconds", "µs a slot", f"1,000,000 under {MOST_SECONDS} s"]
    return markdown(head, [row], right=(0, 1, 2, 3, 4))
