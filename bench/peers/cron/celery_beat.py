"""Celery on Redis: one beat, as its documentation asks, and workers that acknowledge late. Its crontab has no seconds.

`celery -A bench.peers.cron.celery_beat beat|worker` reads this module.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urldefrag

from celery import Celery  # type: ignore[import-not-found, unused-ignore]
from celery.schedules import crontab  # type: ignore[import-not-found, unused-ignore]
from celery.signals import before_task_publish  # type: ignore[import-not-found, unused-ignore]

from bench.peers.cron.task import Settings, deliver

VISIBILITY = 10
"""Seconds until a message that was not acknowledged goes to another worker; must be longer than a task."""

_settings = Settings.read()
_broker, _prefix = urldefrag(_settings.url)

app = Celery("bench", broker=_broker)
app.conf.update(
    timezone="UTC",
    task_default_queue=_prefix,
    broker_transport_options={"global_keyprefix": f"{_prefix}:", "visibility_timeout": VISIBILITY},
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    beat_sync_every=1,
    beat_schedule={name: {"task": "fire", "schedule": crontab(), "args": (name,)} for name in _settings.names},
)


@before_task_publish.connect  # type: ignore[untyped-decorator, unused-ignore]
def tell_slot(headers: dict[str, Any], **_: object) -> None:
    """A message is not told its time, so it takes along the minute in which the beat makes it."""
    headers["slot"] = time.time() // 60 * 60


@app.task(name="fire", bind=True)  # type: ignore[untyped-decorator, unused-ignore]
def fire(self: Any, schedule: str) -> None:
    deliver(schedule, self.request.slot, self.request.id)
