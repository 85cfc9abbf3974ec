"""A module of Celery as people write it; it is read and never executed: the import below would fail."""

from datetime import timedelta

from celery import Celery
from celery.schedules import crontab, solar

app = Celery("shop")
raise_if_executed = 1 / 0
EVERY = 5 * 60.0

app.conf.timezone = "Europe/Berlin"
app.conf.beat_schedule = {
    "add-every-30-seconds": {"task": "tasks.add", "schedule": 30.0, "args": (16, 16)},
    "monday-morning": {
        "task": "tasks.report",
        "schedule": crontab(hour=7, minute=30, day_of_week=1),
        "kwargs": {"kind": "weekly"},
        "options": {"queue": "reports", "expires": 3600, "priority": 3, "compression": "gzip"},
    },
    "first-sunday": {"task": "tasks.count", "schedule": crontab(0, 0, day_of_month="1-7", day_of_week="sun")},
    "five-minutes": {"task": "tasks.ping", "schedule": EVERY},
    "delta": dict(task="tasks.sweep", schedule=timedelta(hours=2)),
    "fraction": {"task": "tasks.tick", "schedule": 0.5},
    "sunset": {"task": "tasks.lamp", "schedule": solar("sunset", -37.8, 144.9)},
    "computed": {"task": "tasks.x", "schedule": crontab(minute=app.conf.minute)},
    "nothing": {"schedule": 10},
}
