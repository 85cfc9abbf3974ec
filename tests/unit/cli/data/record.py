"""Record what the real systems say, so that the tests need none of them: `python record.py` where they are installed.

In a virtual environment of its own: pip install 'apscheduler<4' celery. `systemd-analyze` comes with systemd. Each part writes its
file beside this one: an expression or trigger with the next moments that the real system computes for it.
"""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

HERE = Path(__file__).parent
FROM = datetime(2026, 3, 1, tzinfo=UTC)
COUNT = 8

CALENDARS = [
    "minutely",
    "hourly",
    "daily",
    "weekly",
    "monthly",
    "quarterly",
    "semiannually",
    "yearly",
    "Mon..Fri 09:00",
    "Sat,Sun *-*-* 10:30:15",
    "*:0/15",
    "*-*-* 08..18/2:05",
    "*-*-1..7 12:00",
    "Mon *-*-1..7 12:00",
    "*-*~1 23:00",
    "*-02~03 01:02:03",
    "*-1,7-15 06:00",
    "*-*-* 04:00 Asia/Shanghai",
    "2027-01-01 00:00",
    "*-*-* *:*:0/20",
    "12:00",
    "*-10-* 00:00:00",
]


def systemd() -> list[dict]:
    found = []
    for text in CALENDARS:
        command = ["systemd-analyze", "calendar", f"--iterations={COUNT}", f"--base-time={FROM:%Y-%m-%d %H:%M:%S} UTC"]
        said = subprocess.run([*command, text], check=True, capture_output=True, text=True, env={"TZ": "UTC"}).stdout
        moments = re.findall(r"(?:Next elapse|Iteration #\d+|Iter\. #\d+): \w+ (\S+ \S+) UTC", said)
        found.append({"calendar": text, "moments": [f"{each.replace(' ', 'T')}Z" for each in moments]})
    return found


def celery() -> list[dict]:
    from celery import Celery
    from celery.schedules import crontab

    app = Celery("fixture", set_as_current=True)
    app.conf.timezone = "Europe/Berlin"
    zone = ZoneInfo("Europe/Berlin")
    cases = [
        {"minute": 0, "hour": 7},
        {"minute": "*/15"},
        {"minute": 30, "hour": "*/3", "day_of_week": "mon-fri"},
        {"minute": 0, "hour": 0, "day_of_month": "1-7", "day_of_week": "sunday"},
        {"minute": "5,35", "hour": "8-18"},
        {"minute": 0, "hour": 12, "day_of_week": "0,6"},
        {"minute": 0, "hour": 4, "day_of_month": "1", "month_of_year": "*/3"},
        {"minute": 1, "hour": 1, "day_of_week": "*/2"},
    ]
    found = []
    for case in cases:
        at, moments = FROM, []
        while len(moments) < COUNT:
            plan = crontab(**case, app=app, nowfun=lambda at=at: at.astimezone(zone))
            at = (at + plan.remaining_estimate(at)).replace(microsecond=0)
            moments.append(at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        found.append({"crontab": case, "moments": moments})
    return found


def apscheduler() -> list[dict]:
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.interval import IntervalTrigger

    zone = "Europe/Berlin"
    triggers = [
        CronTrigger(hour=7, timezone=zone),
        CronTrigger(minute="*/15", timezone=zone),
        CronTrigger(day_of_week="mon-fri", hour=9, minute=30, timezone=zone),
        CronTrigger(day_of_week=0, hour=9, timezone=zone),
        CronTrigger(day="last", hour=23, timezone=zone),
        CronTrigger(day="2nd fri", hour=10, timezone=zone),
        CronTrigger(day="last sun", hour=2, minute=30, timezone="UTC"),
        CronTrigger(day="1-7", day_of_week="6", hour=1, timezone=zone),
        CronTrigger(second="*/20", minute="59", timezone=zone),
        CronTrigger(month="1,7", day=1, hour=0, timezone=zone),
        CronTrigger(week=3, timezone=zone),
        CronTrigger(year=2027, month=1, day=1, timezone=zone),
        CronTrigger.from_crontab("0 12 * * sat", timezone=zone),
        IntervalTrigger(hours=6, start_date=FROM + timedelta(minutes=7), timezone="UTC"),
        IntervalTrigger(seconds=90, start_date=FROM, timezone="UTC"),
    ]
    found = []
    for trigger in triggers:
        previous, at, moments = None, FROM, []
        while len(moments) < COUNT:
            fire = trigger.get_next_fire_time(previous, at)
            if fire is None:
                break
            moments.append(fire.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            previous, at = fire, fire + timedelta(microseconds=1)
        made = {"kind": type(trigger).__name__, "timezone": str(trigger.timezone), "moments": moments}
        if isinstance(trigger, CronTrigger):
            made["fields"] = {each.name: [str(one) for one in each.expressions] for each in trigger.fields}
        else:
            made["seconds"] = trigger.interval.total_seconds()
            made["start_date"] = trigger.start_date.isoformat()
        found.append(made)
    return found


if __name__ == "__main__":
    for part in (systemd, celery, apscheduler):
        (HERE / f"{part.__name__}.json").write_text(json.dumps(part(), indent=1) + "\n")
