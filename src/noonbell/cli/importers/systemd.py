"""systemd timers: `NAME.timer` files, with the `.service` beside each that it starts.

`OnCalendar` becomes cron: the words of systemd.time(7), with `..` ranges, `/` steps, `~` from the month's end and weekdays, which
all must match. What a timer counts from the machine's start has no moment of its own and is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from noonbell.cli.importers.cron_text import WEEKDAYS, cron_fields, interval_of, listed, schedule_of_cron
from noonbell.cli.importers.programs import Program, ProgramOptions, program_options, target_of
from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries, say_zone
from noonbell.cli.importers.sources import text_from
from noonbell.errors import ScheduleError
from noonbell.when.zones import find

_SHORT: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}
_UNITS: Final = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("ms", "msec"), 0.001),
    **dict.fromkeys(("us", "usec", "μs"), 0.000_001),
}
_FROM_START: Final = ("OnBootSec", "OnStartupSec", "OnActiveSec")
_NO_EFFECT: Final = ("AccuracySec", "Unit", "WakeSystem", "RemainAfterElapse")

_CARRIED: Final = (
    *("ExecStart", "ExecStartPre", "ExecStartPost", "Environment", "EnvironmentFile", "User", "WorkingDirectory"),
    *("RuntimeMaxSec", "TimeoutStartSec"),
)
_WITHOUT_MEANING: Final = (
    *("Description", "Documentation", "After", "Before", "Wants", "DefaultDependencies"),
    *("Type", "SyslogIdentifier"),
)
"""What says nothing of when and how a command runs that a timer starts."""

Sections = dict[str, dict[str, list[str]]]


def read_unit(text: str) -> Sections:
    """Each section's settings, in order; an empty value takes back the ones before it, as systemd does."""
    sections: Sections = {}
    name = ""
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped[0] == "[" and stripped[-1] == "]":
            name = stripped[1:-1]
            continue
        key, _, value = stripped.partition("=")
        values = sections.setdefault(name, {}).setdefault(key.strip(), [])
        if value.strip():
            values.append(value.strip())
        else:
            values.clear()
    return sections


def read_timers(
    timers: Sequence[tuple[str, str]], services: dict[str, str], zone: str, options: ProgramOptions
) -> Iterator[Imported]:
    """Timers by their file names, and the texts of the services that are known."""
    return read_entries((name, name, partial(_task, name, text, services, zone, options)) for name, text in timers)


def _task(
    file: str, text: str, services: dict[str, str], zone: str, options: ProgramOptions, found: Findings
) -> dict[str, Any]:
    unit = read_unit(text)
    timer = unit.get("Timer", {})
    started = _last(timer, "Unit") or f"{file.removesuffix('.timer')}.service"
    if started not in services:
        template = f"{started.partition('@')[0]}@.service"
        if template not in services:
            raise Refused(f"starts {started}, which is not beside it")
        started = template
    for name in timer:
        if name not in (*_NO_EFFECT, *_KNOWN):
            found.notes.append(f"{name} is unknown and was left out")
    service = read_unit(services[started])
    for name, sections in ((file, {"Unit": unit.get("Unit", {})}), (started, service)):
        if lost := _lost(sections):
            found.changes.append(f"of {name} is left out: {', '.join(lost)}")
    description = _last(unit.get("Unit", {}), "Description")
    task = {
        "name": file.removesuffix(".timer"),
        **({"description": description} if description else {}),
        **_when(timer, zone),
        **_policies(timer, found),
        **_target(service, options, found),
    }
    found.say_time_limit(task)
    return task


_KNOWN: Final = (
    *("OnCalendar", "OnUnitActiveSec", "OnUnitInactiveSec", "Persistent", "RandomizedDelaySec", "FixedRandomDelay"),
    *_FROM_START,
)


def _lost(sections: Sections) -> list[str]:
    """Conditions, what follows a failure, limits and the sandbox: a command has none of them."""
    settings = {name for part in ("Unit", "Service") for name, values in sections.get(part, {}).items() if values}
    return sorted(settings - {*_CARRIED, *_WITHOUT_MEANING})


def _last(section: dict[str, list[str]], name: str) -> str | None:
    values = section.get(name)
    return values[-1] if values else None


def _when(timer: dict[str, list[str]], zone: str) -> dict[str, Any]:
    calendars = timer.get("OnCalendar", [])
    after_start, after_end = timer.get("OnUnitActiveSec", []), timer.get("OnUnitInactiveSec", [])
    if sum(map(bool, (calendars, after_start, after_end))) > 1 or len(after_start) + len(after_end) > 1:
        raise Refused("mixes OnCalendar with spans, or has several spans; make a task of each")
    if after_start:
        return {"timezone": zone, "schedule": interval_of(_seconds(after_start[0]))}
    if after_end:
        return {"timezone": zone, "schedule": {**interval_of(_seconds(after_end[0])), "mode": "fixed_delay"}}
    if not calendars:
        named = next((name for name in _FROM_START if timer.get(name)), None)
        raise Refused(f"has only {named}, which counts from the machine's start" if named else "names no moment")
    read = [cron_of_calendar(each, zone) for each in calendars]
    zones = {each["timezone"] for each in read}
    if len(zones) > 1:
        raise Refused(f"has moments in several time zones: {', '.join(sorted(zones))}")
    if len(read) == 1:
        return read[0]
    return {"timezone": zones.pop(), "schedules": [schedule_of_cron(each) for each in read]}


def _policies(timer: dict[str, list[str]], found: Findings) -> dict[str, Any]:
    persistent = (_last(timer, "Persistent") or "no").lower() in ("yes", "true", "on", "1")
    fields: dict[str, Any] = {
        "misfire_policy": "FIRE_ONCE" if persistent else "SKIP",
        "overlap_action": "SKIP",
    }
    delay = _last(timer, "RandomizedDelaySec")
    if delay is not None and (seconds := int(_seconds(delay))):
        fields["jitter_seconds"] = seconds
        if (_last(timer, "FixedRandomDelay") or "no").lower() not in ("yes", "true", "on", "1"):
            found.changes.append("RandomizedDelaySec was drawn anew each time; here a slot always has the same delay")
    for name in _FROM_START:
        if timer.get(name):
            found.changes.append(f"{name} is left out: a task does not start with the machine")
    return fields


def _target(service: Sections, options: ProgramOptions, found: Findings) -> dict[str, Any]:
    settings = service.get("Service", {})
    starts = settings.get("ExecStart", [])
    if beside := next((name for name in ("ExecStartPre", "ExecStartPost") if settings.get(name)), None):
        raise Refused(f"its service has {beside}; a flow has several steps")
    if len(starts) != 1:
        raise Refused("its service has not exactly one ExecStart; a flow has several steps")
    line = starts[0].lstrip("@-:+!")
    if starts[0].startswith("-"):
        found.changes.append("the `-` of ExecStart is left out: a command that fails is a run that failed")
    if "%" in line.replace("%%", ""):
        raise Refused("its ExecStart has a specifier such as %i; write out what it stands for")
    try:
        words = shlex.split(line.replace("%%", "%"))
        env = dict(each.partition("=")[::2] for value in settings.get("Environment", []) for each in shlex.split(value))
    except ValueError as error:
        raise Refused(f"cannot be read: {error}") from None
    if ";" in words:
        raise Refused("its ExecStart has several commands; a flow has several steps")
    if "@" in starts[0][: len(starts[0]) - len(line)]:
        del words[1:2]  # the name that the program gets as its own: its argv[0]
    words = [*words[:1], *(filled for word in words[1:] for filled in _filled(word, env))]
    if settings.get("EnvironmentFile"):
        found.changes.append("EnvironmentFile is left out: the worker's own file says what its commands see")
    program = Program(words, env=env, user=_last(settings, "User"), cwd=_last(settings, "WorkingDirectory"))
    target = target_of(program, options, found)
    limit = _last(settings, "RuntimeMaxSec") or (
        _last(settings, "TimeoutStartSec") if _last(settings, "Type") == "oneshot" else None
    )
    if limit is not None and limit != "infinity":
        target["timeout_seconds"] = _seconds(limit)
    return target


def _filled(word: str, env: Mapping[str, str]) -> list[str]:
    """What systemd makes of a word: `$NAME` alone becomes the words of its value, `${NAME}` its value, `$$` a dollar."""

    def value(name: str) -> str:
        if name not in env:
            raise Refused(
                f"its ExecStart uses {name}, which its Environment does not have; write out what it stands for"
            )
        return env[name]

    if found := re.fullmatch(r"\$([A-Za-z_]\w*)", word):
        return value(found[1]).split()
    return [re.sub(r"\$\$|\$\{([A-Za-z_]\w*)\}", lambda found: value(found[1]) if found[1] else "$", word)]


def _seconds(text: str) -> float:
    """A span of systemd.time(7): `1h 30min`, `90`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([A-Za-zμ]*)", text)
    if not parts or any(unit not in _UNITS for _, unit in parts):
        raise Refused(f"the span {text!r} is not supported")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not total:
        raise Refused(f"the span {text!r} is nothing")
    return total


def cron_of_calendar(text: str, zone: str) -> dict[str, Any]:
    """`cron_expr`, `cron_dialect` and `timezone` of a calendar event. Refused names what cron cannot say."""
    words = text.split()
    zone = _take_zone(words, zone)
    if len(words) == 1:
        words = _SHORT.get(words[0].lower(), words[0]).split()
    weekday = _weekdays(words.pop(0)) if words and words[0][0].isalpha() else "*"
    date = words.pop(0) if words and ("-" in words[0] or "~" in words[0]) else "*-*-*"
    time = words.pop(0) if words else "00:00:00"
    if words:
        raise Refused(f"OnCalendar={text} is not supported")
    month, day = _date(date, text)
    parts = time.split(":")
    if not 2 <= len(parts) <= 3:
        raise Refused(f"OnCalendar={text} is not supported")
    hour, minute, second = (*parts, "0")[:3]
    try:
        found = cron_fields(
            second=_field(second, 0, 59, text),
            minute=_field(minute, 0, 59, text),
            hour=_field(hour, 0, 23, text),
            day=day,
            month=month,
            weekday=weekday,
            zone=zone,
        )
    except ScheduleError as error:
        raise Refused(f"OnCalendar={text}: {error.message}") from None
    return {"timezone": zone, **found}


def _take_zone(words: list[str], zone: str) -> str:
    if len(words) < 2 or not words[-1][0].isalpha():
        return zone
    try:
        found = find(words[-1]).name
    except ScheduleError:
        if "/" in words[-1]:
            raise
        return zone  # a weekday, or nothing that is known: its reader says so
    words.pop()
    return found


def _weekdays(text: str) -> str:
    days: list[int] = []
    for item in text.rstrip(",").split(","):
        first, _, last = item.replace("..", "-").partition("-")
        low = _weekday(first)
        high = _weekday(last) if last else low
        days += [(low + step) % 7 for step in range((high - low) % 7 + 1)]
    return "*" if len(set(days)) == 7 else ",".join(WEEKDAYS[day] for day in sorted(set(days)))


def _weekday(text: str) -> int:
    name = text[:3].upper()
    if name not in WEEKDAYS or text.upper() not in (name, _LONG_WEEKDAYS[WEEKDAYS.index(name)]):
        raise Refused(f"the weekday {text!r} is not known")
    return WEEKDAYS.index(name)


_LONG_WEEKDAYS: Final = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")


def _date(text: str, whole: str) -> tuple[str, str]:
    from_end = "~" in text
    parts = text.replace("~", "-").split("-")
    if len(parts) == 2:
        parts.insert(0, "*")
    if len(parts) != 3:
        raise Refused(f"OnCalendar={whole} is not supported")
    year, month, day = parts
    if year != "*":
        raise Refused(f"OnCalendar={whole} names years; give the task `start_at` and `end_at`")
    if not from_end:
        return _field(month, 1, 12, whole), _field(day, 1, 31, whole)
    if not day.isdigit() or not 1 <= int(day) <= 31:
        raise Refused(f"OnCalendar={whole}: only one day from the month's end can be said")
    return _field(month, 1, 12, whole), "L" if int(day) == 1 else f"L-{int(day) - 1}"


def _field(text: str, low: int, high: int, whole: str) -> str:
    """A list of values, `a..b` ranges and `a/b` steps, as the numbers that they name."""
    found: set[int] = set()
    for item in text.split(","):
        base, _, step = item.partition("/")
        first, dots, last = base.partition("..")
        if base == "*" and not step:
            found.update(range(low, high + 1))
            continue
        try:
            start = low if base == "*" else int(first)
            stop = int(last) if dots else (high if step else start)
            values = range(start, stop + 1, int(step) if step else 1)
        except ValueError:
            raise Refused(f"OnCalendar={whole}: {item!r} is not supported") from None
        if not low <= start <= high or not low <= stop <= high:
            raise Refused(f"OnCalendar={whole}: {item!r} is not within {low} to {high}")
        found.update(values)
    return listed(found, low, high)


@click.command("systemd")
@click.argument("sources", nargs=-1, required=True, metavar="FILE|FOLDER...")
@click.option("--tz", metavar="ZONE", help="The zone of the machine [UTC].")
@program_options
@import_options
def systemd_command(
    sources: tuple[str, ...], tz: str | None, job_type: str | None, commands: bool, **given: Any
) -> int:
    """Systemd timers: .timer files or folders of them, with the services beside them."""
    options, zone = ProgramOptions.of(job_type, commands=commands), find(tz or "UTC").name
    places = [Path(source) for source in sources]
    timers = [each for place in places for each in (sorted(place.glob("*.timer")) if place.is_dir() else [place])]
    services = {each.name: _unit_text(each) for timer in timers for each in timer.parent.glob("*.service")}
    found = read_timers([(each.name, _unit_text(each)) for each in timers], services, zone, options)
    code = finish(found, "systemd", **given)
    if tz is None:
        say_zone(zone, "timers")
    return code


def _unit_text(unit: Path) -> str:
    """With the files that override it: those for all units of its kind, then its own, in the order of their names."""
    places = (unit.parent / f"{unit.suffix[1:]}.d", unit.parent / f"{unit.name}.d")
    parts = {each.name: each for place in places for each in place.glob("*.conf")}
    return "\n".join(text_from(str(each)) for each in (unit, *(parts[name] for name in sorted(parts))))
