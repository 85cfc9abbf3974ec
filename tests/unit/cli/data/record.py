"""Record what the real systems say, so that the tests need none of them: `python record.py` where they are installed.

In a virtual environment of its own: pip install 'apscheduler<4' celery. `systemd-analyze` comes with systemd. Each part writes its
file beside this one: an expression or trigger with the next moments that the real system computes for it.

`python record.py stores`, in another one: pip install 'apscheduler==4.0.0a6' 'sqlalchemy[asyncio]<2.1' aiosqlite sniffio cbor2
django-celery-beat. It writes what their databases hold, as SQL; those of APScheduler with the next moments of each schedule.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
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
        CronTrigger(hour="0-0/4,7-9/2", minute="30/20", timezone=zone),
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
            made["fields"] = {each.name: [_expression(one) for one in each.expressions] for each in trigger.fields}
        else:
            made["seconds"] = trigger.interval.total_seconds()
            made["start_date"] = trigger.start_date.isoformat()
        found.append(made)
    return found


def _expression(one: object) -> str | dict[str, object]:
    """Its text, and for a range with a step also its ends, which the text does not always tell."""
    is_range = getattr(one, "step", None) and getattr(one, "first", None) is not None
    return {"text": str(one), "first": one.first, "last": one.last} if is_range else str(one)


def report(kind: str = "") -> None:
    """What the schedules of APScheduler 4 call."""


async def apscheduler4() -> None:
    from apscheduler import AsyncScheduler, CoalescePolicy
    from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
    from apscheduler.serializers.cbor import CBORSerializer
    from apscheduler.serializers.json import JSONSerializer
    from apscheduler.serializers.pickle import PickleSerializer
    from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
    from apscheduler.triggers.combining import AndTrigger, OrTrigger
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.date import DateTrigger
    from apscheduler.triggers.interval import IntervalTrigger
    from sqlalchemy.ext.asyncio import create_async_engine

    def cron(**fields: object) -> CronTrigger:
        return CronTrigger(**fields, timezone="Europe/Berlin", start_time=FROM)

    triggers = {
        "weekdays": lambda: cron(hour=2, minute=30, day_of_week="mon-fri"),
        "last": lambda: cron(day="last", hour=23),
        "second_friday": lambda: cron(day="2nd fri", hour=10),
        "quarters": lambda: cron(minute="*/15"),
        "ping": lambda: IntervalTrigger(minutes=10, start_time=FROM),
        "weeks": lambda: IntervalTrigger(weeks=1, hours=2, start_time=FROM),
        "once": lambda: DateTrigger(FROM + timedelta(days=1000)),
        "either": lambda: OrTrigger([cron(hour=5, minute="*/30"), cron(hour=3, day="last")]),
        "both": lambda: AndTrigger([cron(hour=5), cron(hour="*")]),
        "daily": lambda: CalendarIntervalTrigger(days=1, hour=8, timezone="Europe/Berlin", start_date=FROM.date()),
        "weekly": lambda: CalendarIntervalTrigger(weeks=1, hour=9, timezone="Europe/Berlin", start_date=FROM.date()),
        "monthly": lambda: CalendarIntervalTrigger(months=1, hour=9, timezone="Europe/Berlin", start_date=FROM.date()),
        "yearly": lambda: CalendarIntervalTrigger(years=1, hour=9, timezone="Europe/Berlin", start_date=FROM.date()),
        "fortnight": lambda: CalendarIntervalTrigger(weeks=2, timezone="Europe/Berlin", start_date=FROM.date()),
    }
    more = {
        "weekdays": {"kwargs": {"kind": "daily"}, "misfire_grace_time": 60, "coalesce": CoalescePolicy.all},
        "ping": {"args": ["x"], "paused": True},
        "either": {"max_jitter": 5},
        "last": {"coalesce": CoalescePolicy.earliest},
    }
    for name, serializer in (("json", JSONSerializer()), ("pickle", PickleSerializer()), ("cbor", CBORSerializer())):
        with tempfile.TemporaryDirectory() as folder:
            engine = create_async_engine(f"sqlite+aiosqlite:///{folder}/a.db")
            async with AsyncScheduler(SQLAlchemyDataStore(engine, serializer=serializer)) as scheduler:
                for id_, make in triggers.items():
                    if name == "json" or id_ == "weekdays":
                        await scheduler.add_schedule(report, make(), id=id_, **more.get(id_, {}))
            await engine.dispose()
            _dump(f"{folder}/a.db", f"apscheduler4_{name}.sql", ("tasks", "schedules"))
    moments = {}
    for id_, make in triggers.items():
        trigger = make()
        fires = [trigger.next() for _ in range(1 if id_ in ("once", "both") else COUNT)]
        moments[id_] = [each.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for each in fires]
    (HERE / "apscheduler4.json").write_text(json.dumps(moments, indent=1) + "\n")


def django_celery_beat() -> None:
    import django
    from django.conf import settings
    from django.core.management import call_command

    with tempfile.TemporaryDirectory() as folder:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/a.db"}
        settings.configure(
            INSTALLED_APPS=["django.contrib.contenttypes", "django_celery_beat"],
            DATABASES={"default": database},
            USE_TZ=True,
        )
        django.setup()
        call_command("migrate", verbosity=0)
        from django_celery_beat import models

        crontab = models.CrontabSchedule.objects.create(
            minute="30", hour="2", day_of_week="1-5", timezone="Europe/Berlin"
        )
        interval = models.IntervalSchedule.objects.create(every=10, period="minutes")
        clocked = models.ClockedSchedule.objects.create(clocked_time=datetime(2030, 1, 1, tzinfo=UTC))
        solar = models.SolarSchedule.objects.create(event="sunset", latitude=31.2, longitude=121.5)
        make = models.PeriodicTask.objects.create
        make(
            name="report",
            task="shop.report",
            crontab=crontab,
            kwargs='{"kind": "daily"}',
            queue="reports",
            expire_seconds=60,
        )
        make(name="ping", task="shop.ping", interval=interval, args="[1]", enabled=False, description="x")
        make(name="once", task="shop.once", clocked=clocked, one_off=True)
        make(name="sun", task="shop.sun", solar=solar)
        start, end = datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
        make(name="hourly", task="shop.ping", interval=interval, last_run_at=FROM, start_time=start, expires=end)
        make(name="first", task="shop.ping", interval=interval, one_off=True)
        make(name="tonight", task="shop.report", crontab=crontab, one_off=True)
        make(name="was tonight", task="shop.report", crontab=crontab, one_off=True, total_run_count=1)
        tables = ("crontabschedule", "intervalschedule", "clockedschedule", "solarschedule", "periodictask")
        _dump(f"{folder}/a.db", "django_celery_beat.sql", tuple(f"django_celery_beat_{table}" for table in tables))


def _dump(file: str, name: str, tables: tuple[str, ...]) -> None:
    """The tables and their rows, without indexes."""
    link = sqlite3.connect(file)
    wanted = re.compile(rf"""(?:CREATE TABLE|INSERT INTO) "?(?:{"|".join(tables)})\b""")
    (HERE / name).write_text("\n".join(line for line in link.iterdump() if wanted.match(line)) + "\n")
    link.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["stores"]:
        asyncio.run(apscheduler4())
        django_celery_beat()
        sys.exit()
    for part in (systemd, celery, apscheduler):
        (HERE / f"{part.__name__}.json").write_text(json.dumps(part(), indent=1) + "\n")
