"""Preview: what a schedule will do, before anything is saved and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell import when
from noonbell.clock import Instant, rfc3339, slot_of
from noonbell.errors import ScheduleError
from noonbell.model.task import Task
from noonbell.policy.account import bounds_of
from noonbell.ports import Store
from noonbell.service.reader import Problems, Reader
from noonbell.service.rules import Rules
from noonbell.service.task_fields import schedule_asked_for, short_name
from noonbell.when.cron import with_dialect
from noonbell.when.cron_fields import Dialect
from noonbell.when.due import first
from noonbell.when.preview import Preview
from noonbell.when.preview import preview as preview_of

MOST_FIRES: Final = 1_000
SHOWN_ON_SAVE: Final = 5

LANGUAGES: Final = ("en", "zh")


class Previews:
    def __init__(self, store: Store, rules: Rules) -> None:
        self._store = store
        self._rules = rules

    @property
    def cron_dialect(self) -> Dialect:
        """Of a cron schedule that names none."""
        return self._rules.cron_dialect

    async def of(self, given: Mapping[str, Any], lang: str = "en") -> dict[str, Any]:
        """The answer of `POST /schedules/preview`. Raises InvalidArgument with every wrong field."""
        problems = Problems()
        reader = Reader(given, problems)
        count = reader.integer("count", 5, 1, MOST_FIRES)
        since = reader.moment("from")
        zone = reader.get("timezone")
        lang = reader.text("lang", lang, least=1, most=20)
        spec = _schedule(reader)
        reader.finish("a preview")
        after = slot_of(await self._store.now() if since is None else since)
        if spec is not None:
            try:
                spec = when.normalise(
                    with_dialect(spec, self._rules.cron_dialect),
                    "UTC" if zone is None else zone,
                    after,
                    seconds_field=self._rules.seconds_field,
                )
            except ScheduleError as error:
                for name, problem in error.details.items():
                    problems.add(short_name(reader, name), str(problem))
        problems.finish()
        return shown(preview_of(spec, zone or "UTC", count, after, language(lang)))

    async def on_save(self, task: Task, lang: str = "en") -> dict[str, Any]:
        """`next_fires` and `notes`, for the answer to whoever made or changed a task."""
        if task.spec.schedule is None:
            return {"next_fires": [], "notes": []}
        now = await self._store.now()
        schedule = when.parse(task.spec.schedule, task.spec.timezone)
        notes = [{"code": note.code, "message": note.message} for note in schedule.notes(language(lang), slot_of(now))]
        return {"next_fires": next_fires(task, SHOWN_ON_SAVE), "notes": notes}

    async def next(self, task: Task, count: int = 5, lang: str = "en") -> dict[str, Any]:
        """The answer of `GET /tasks/{id}/next`: from the cursor on, so what is really going to happen."""
        sentence = ""
        if task.spec.schedule is not None:
            sentence = when.parse(task.spec.schedule, task.spec.timezone).describe(language(lang))
        return {**await self.on_save(task, lang), "next_fires": next_fires(task, count), "description": sentence}


def next_fires(task: Task, count: int) -> list[dict[str, str]]:
    """The coming slots of a task: none while it is off, and no more than its repeat count leaves."""
    if task.spec.schedule is None or task.next_fire_at is None:
        return []
    schedule = when.parse(task.spec.schedule, task.spec.timezone)
    bounds = bounds_of(task.spec)
    left = count if schedule.repeat is None else min(count, schedule.repeat - task.fired)
    zone = when.zones.find(task.spec.timezone)
    fires: list[dict[str, str]] = []
    slot: int | None = int(slot_of(task.next_fire_at))
    while slot is not None and len(fires) < left:
        fires.append({"utc": rfc3339(Instant(slot * 1_000_000)), "local": zone.local(slot).isoformat()})
        slot = first(schedule, bounds, slot)
    return fires


def shown(preview: Preview) -> dict[str, Any]:
    return {
        "next_fires": [{"utc": utc, "local": local} for utc, local in preview.next_fires],
        "description": preview.description,
        "notes": [{"code": note.code, "message": note.message} for note in preview.notes],
    }


def language(wanted: str) -> str:
    """`en` or `zh`, from a word such as `zh-CN` or a whole `Accept-Language`."""
    for part in wanted.split(","):
        word = part.strip()[:2].lower()
        if word in LANGUAGES:
            return word
    return "en"


def _schedule(reader: Reader) -> Any:
    if reader.get("schedule") is None and reader.get("cron_expr") is None:
        reader.wrong("schedule", "is missing; expected a schedule, or a cron_expr")
        return None
    return schedule_asked_for(reader)
