"""Preview: what a schedule will do, before anything is saved and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell import when
from noonbell.clock import Instant, rfc3339, slot_of
from noonbell.errors import ScheduleError
from noonbell.fields import Moment, meta, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.task import Task
from noonbell.policy.account import bounds_of
from noonbell.ports import Store
from noonbell.service.task_fields import Rules, schedule_asked_for, short_name
from noonbell.service.translation import language
from noonbell.when.cron import with_dialect
from noonbell.when.cron_fields import CronDialect
from noonbell.when.due import first
from noonbell.when.due import preview as preview_of

MOST_FIRES: Final = 1_000
SHOWN_ON_SAVE: Final = 5


class Fire(msgspec.Struct, frozen=True):
    utc: Moment
    local: Annotated[str, meta(examples=["2026-11-15T10:35:00+08:00"])]


class ShownNote(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Note"

    code: Annotated[str, meta("Stable.")]
    message: Annotated[str, meta("In the language of the caller.")]


class PreviewBody(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "PreviewWrite"
    noun: ClassVar[str] = "a preview"
    example: ClassVar[dict[str, Any]] = {"cron_expr": "*/5 * * * *", "timezone": "Asia/Shanghai", "count": 5}

    schedule: Annotated[Any, meta("This, or its short form `cron_expr`.", anything=True)] = None
    cron_expr: Annotated[Any, meta("Short for a schedule of type cron.", anything=True)] = None
    cron_dialect: Annotated[Any, meta("How `cron_expr` is read: standard, cronjob or quartz.", anything=True)] = None
    timezone: Annotated[Any, meta("An IANA name or an offset such as +08:00.", anything=True)] = "UTC"
    count: Annotated[int, meta("How many slots.", ge=1, le=MOST_FIRES)] = 5
    since: Annotated[Moment | None, meta("Slots after this; now if it is left out.")] = msgspec.field(
        name="from", default=None
    )
    lang: Annotated[
        str | None, meta("Of the sentence, `en` or `zh`; else as `Accept-Language` says.", min_length=1, max_length=20)
    ] = None


class PreviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Preview"

    next_fires: list[Fire]
    description: Annotated[str, meta(examples=["Every 5 minutes"])]
    notes: Annotated[list[ShownNote], meta(examples=[[]])]


class Previews:
    def __init__(self, store: Store, rules: Rules) -> None:
        self._store = store
        self._rules = rules

    @property
    def cron_dialect(self) -> CronDialect:
        """Of a cron schedule that names none."""
        return self._rules.cron_dialect

    async def of(self, given: Mapping[str, Any], lang: str = "en") -> dict[str, Any]:
        """The answer of `POST /schedules/preview`. Raises InvalidArgument with every wrong field."""
        at = ReadContext(Problems())
        asked = read_into(PreviewBody, given, at)
        spec = schedule_asked_for(given, at)
        if given.get("schedule") is None and given.get("cron_expr") is None:
            at.wrong("schedule", "is missing; expected a schedule, or a cron_expr")
        after = slot_of(await self._store.now() if asked.since is None else asked.since)
        if spec is not None:
            try:
                spec = when.normalise(
                    with_dialect(spec, self._rules.cron_dialect),
                    asked.timezone,
                    after,
                    seconds_field=self._rules.seconds_field,
                )
            except ScheduleError as error:
                for name, problem in error.details.items():
                    at.wrong(short_name(given, name), str(problem))
        at.problems.finish()
        return preview_of(spec, asked.timezone, asked.count, after, language(asked.lang or lang)).as_json()

    def on_save(self, task: Task, lang: str = "en") -> dict[str, Any]:
        """`next_fires` and `notes`, for the answer to a created or changed task; the notes are of the time of that change."""
        return self._shown(task, task.updated_at, lang)

    def _shown(self, task: Task, now: Instant, lang: str) -> dict[str, Any]:
        if task.spec.schedule is None:
            return {"next_fires": [], "notes": []}
        schedule = when.parse(task.spec.schedule, task.spec.timezone)
        notes = [note.as_json() for note in schedule.notes(language(lang), slot_of(now))]
        return {"next_fires": next_fires(task, SHOWN_ON_SAVE), "notes": notes}

    async def next(self, task: Task, count: int = 5, lang: str = "en") -> dict[str, Any]:
        """The answer of `GET /tasks/{id}/next`: from the cursor on, so what is really going to happen."""
        sentence = ""
        if task.spec.schedule is not None:
            sentence = when.parse(task.spec.schedule, task.spec.timezone).describe(language(lang))
        return {
            **self._shown(task, await self._store.now(), lang),
            "next_fires": next_fires(task, count),
            "description": sentence,
        }


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
