"""What the tests of importers share: entries, their next moments, and what real systems recorded (`data/record.py`)."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

from noonbell import when
from noonbell.cli.importers import report
from noonbell.cli.importers.programs import ProgramOptions
from noonbell.cli.importers.report import checked
from noonbell.clock import slot_of
from noonbell.fields.kinds import read_moment

DATA = Path(__file__).parent / "data"
FROM = slot_of(read_moment("2026-03-01T00:00:00Z"))
COMMANDS = ProgramOptions(commands=True)


def recorded(name: str) -> list[dict]:
    return json.loads((DATA / f"{name}.json").read_text())


def moments(task: dict, count: int, *, after: int = FROM) -> list[str]:
    zone = task.get("timezone", "UTC")
    spec = task.get("schedule") or {
        "type": "cron",
        "expr": task["cron_expr"],
        "dialect": task.get("cron_dialect", "standard"),
    }
    schedule, found = when.parse(spec, zone), []
    while len(found) < count and (slot := schedule.next(after)) is not None:
        found.append(datetime.fromtimestamp(slot, ZoneInfo("UTC")).strftime("%Y-%m-%dT%H:%M:%SZ"))
        after = slot
    return found


def only(entries) -> report.Imported:
    (entry,) = checked(entries)
    return entry


def job_of(**more):
    kind = type("DateTrigger", (SimpleNamespace,), {"__str__": lambda self: "date"})
    usual = {
        "id": "report",
        "name": "report",
        "func_ref": "shop.tasks:report",
        "trigger": kind(run_date=datetime(2027, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))),
        "args": (),
        "kwargs": {"kind": "yearly"},
        "max_instances": 2,
        "misfire_grace_time": 30,
        "coalesce": True,
        "executor": "default",
    }
    return SimpleNamespace(**(usual | more))
