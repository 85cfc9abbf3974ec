"""`noonbell next EXPR`: the next slots of a schedule, worked out here and now."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from noonbell.cli.options import interval, quiet_hours, quiet_option, seconds_in, zone_hint
from noonbell.cli.output import terminal_language
from noonbell.errors import NoonbellError, ScheduleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonbell.model.calendar import QuietHours
    from noonbell.policy.quiet import Quiet
    from noonbell.when import Schedule
    from noonbell.when.due import Preview
    from noonbell.when.zones import Zone

_LANGUAGES = {
    "en": {
        "days": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
        "units": ("d", "h", "m", "s"),
        "in": "in {0}",
        "ago": "{0} ago",
        "forward": "← clocks went forward on {0}",
        "back": "← clocks went back on {0}",
        "hold": "← quiet hours: held until {0}",
        "skip": "← quiet hours: skipped",
        "note": "note: {0}",
    },
    "zh": {
        "days": ("周一", "周二", "周三", "周四", "周五", "周六", "周日"),
        "units": ("天", "小时", "分", "秒"),
        "in": "{0}后",
        "ago": "{0}前",
        "forward": "← {0} 时钟拨快",
        "back": "← {0} 时钟拨慢",
        "hold": "← 静默时段：推迟到 {0}",
        "skip": "← 静默时段：跳过",
        "note": "注意：{0}",
    },
}


@click.command("next")
@click.argument("expr", required=False)
@click.option(
    "--every", metavar="SPAN", help="Instead of EXPR: an interval such as 10s, 5m, 1h30m; a bare number is seconds."
)
@click.option("--tz", default=None, metavar="ZONE", help="Time zone, such as Asia/Shanghai or +08:00 [UTC].")
@click.option("-n", "count", default=5, type=click.IntRange(1, 1000), show_default=True, help="How many slots.")
@click.option("--from", "start", metavar="TIME", help="Count from here instead of now: 2026-03-26T12:00, in the zone.")
@click.option(
    "--also", multiple=True, metavar="EXPR", help="Another schedule; a slot of both counts once. May be repeated."
)
@click.option("--exclude", multiple=True, metavar="EXPR", help="A schedule whose slots are left out. May be repeated.")
@quiet_option
@click.option(
    "--gap",
    type=click.Choice(["next", "skip", "earlier"]),
    help="For times that a clock change skips: dst.gap of a task.",
)
@click.option(
    "--repeated",
    type=click.Choice(["first", "both", "last"]),
    help="For times that the clock shows twice: dst.repeat of a task.",
)
@click.option("--dialect", type=click.Choice(["standard", "cronjob", "quartz"]), help="How cron fields are read.")
@click.option("--lang", metavar="LANG", help="en or zh [the language of the terminal].")
@click.option(
    "-o", "output", default="table", type=click.Choice(["table", "json"]), help="Output for people or for programs."
)
def next_command(
    expr: str | None,
    every: str | None,
    tz: str | None,
    count: int,
    start: str | None,
    also: tuple[str, ...],
    exclude: tuple[str, ...],
    quiet: tuple[str, ...],
    gap: str | None,
    repeated: str | None,
    dialect: str | None,
    lang: str | None,
    output: str,
) -> None:
    """Show the next slots of EXPR, a cron expression or a schedule as JSON."""
    if (expr is None) is (every is None):
        said = "Missing argument 'EXPR', or --every" if expr is None else "give EXPR or --every, not both"
        raise click.UsageError(said, click.get_current_context())
    if expr is not None and (span := _span_in(expr)):
        said = f"{expr!r} is an interval, no cron expression: noonbell next --every {span}"
        raise click.UsageError(said, click.get_current_context())
    from noonbell.clock import SystemClock, slot_of
    from noonbell.when.due import preview_of
    from noonbell.when.zones import find

    language = _language(lang)
    named = tz or os.environ.get("NOONBELL_TZ") or "UTC"
    try:
        zone = find(named)
    except ScheduleError as error:
        raise ScheduleError(f"{error.message}{zone_hint(named)}") from None
    after = slot_of(SystemClock().now()) if start is None else _moment(start, zone)
    specs = [_spec(expr, dialect) if expr is not None else interval(str(every))]
    specs += [_spec(each, dialect, "--also") for each in also]
    left_out = [_spec(each, dialect, "--exclude") for each in exclude]
    dst = {name: value for name, value in (("gap", gap), ("repeat", repeated)) if value is not None}
    schedule = _schedule(specs, left_out, dst, zone.name, after, expr)
    shown = preview_of(schedule, zone.name, count, after, language)
    rests = [_quiet_at(hours, zone.name, local) for hours in [_hours(quiet)] for _, local in shown.next_fires]
    if output == "json":
        told = shown.as_json()
        told["next_fires"] = [
            {**fire, **_rest_json(rest)} for fire, rest in zip(told["next_fires"], rests, strict=True)
        ]
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        click.echo(_as_table(shown, zone, after, language, rests, is_from_now=start is None))


def _span_in(expr: str) -> str:
    """`5m` of `5m`, `every 5m` and `@every 5m`, `10` of `every 10`; empty for any other text."""
    text = expr.strip().removeprefix("@")
    span = text.removeprefix("every").strip()
    if not span or (
        span == text and not span[-1].isalpha()
    ):  # a bare number is rather the beginning of a cron expression
        return ""
    try:
        seconds_in(span)
    except ValueError:
        return ""
    return span


def _hours(quiet: tuple[str, ...]) -> tuple[QuietHours, ...]:
    """Checked as those of a task are."""
    if not quiet:
        return ()
    from noonbell.fields import read_into
    from noonbell.fields.problems import Problems, ReadContext
    from noonbell.model.worker import QueueLimits
    from noonbell.policy.quiet import hours_problems

    problems = Problems()
    hours = read_into(QueueLimits, {"quiet": quiet_hours(quiet)}, ReadContext(problems)).quiet
    for field, problem in hours_problems("quiet", hours).items():
        problems.add(field, problem)
    problems.finish()
    return hours


def _quiet_at(hours: tuple[QuietHours, ...], zone: str, local: str) -> Quiet | None:
    if not hours:
        return None
    from noonbell.clock import from_datetime
    from noonbell.policy.quiet import quiet_at

    return quiet_at(hours, zone, from_datetime(datetime.fromisoformat(local)))


def _rest_json(rest: Quiet | None) -> dict[str, str]:
    """As the API marks a slot in quiet hours."""
    from noonbell.clock import rfc3339

    return {} if rest is None else {"quiet": str(rest.action), "quiet_until": rfc3339(rest.until)}


_FOR_A_HINT = 2.0
"""Seconds that a server may take to say whether it has a task of that name."""


def _of_argument(error: ScheduleError, expr: str | None, option: str | None = None) -> ScheduleError:
    """The same in words of the command line: EXPR, or the option, where a task has `schedule.expr`."""
    message = error.message
    if option is not None:
        return ScheduleError(message.replace("schedule.expr", option, 1))
    if message.startswith("schedule.expr ") and expr is not None:
        message = message.replace("schedule.expr", "EXPR", 1)
        if len(expr.split()) == 1 and _is_task(expr):
            message += f"; there is a task named {expr}: noonbell task get {expr} shows when it fires next"
    return ScheduleError(message)


def _is_task(name: str) -> bool:
    from noonbell.cli.api import Remote, task_segment

    try:
        Remote.of_environment(_FOR_A_HINT).get(f"/tasks/{task_segment(f'name:{name}')}")
    except NoonbellError:
        return False
    return True


def _language(asked: str | None) -> str:
    """What was asked for, else the first variable that says something."""
    if asked is not None and asked.lower().replace("_", "-").split("-")[0] not in _LANGUAGES:
        raise click.BadParameter(f"is {asked!r}; expected en or zh", param_hint="--lang")
    return terminal_language() if asked is None else "zh" if asked.lower().startswith("zh") else "en"


def _schedule(
    specs: list[dict[str, Any]],
    exclude: list[dict[str, Any]],
    dst: dict[str, str],
    zone: str,
    after: int,
    expr: str | None,
) -> Schedule:
    """The one schedule that all of them make, as a task that is made now would have it."""
    import msgspec

    from noonbell import when
    from noonbell.model.task_schedule import ClockChanges

    changes = msgspec.convert(dst, ClockChanges) if dst else None
    made: list[dict[str, Any]] = []
    for number, spec in enumerate((*specs, *exclude)):
        option = None if number == 0 else "--also" if number < len(specs) else "--exclude"
        try:
            made.append(when.normalise(spec, zone, after, changes=changes))
        except ScheduleError as error:
            raise _of_argument(error, expr, option) from None
        is_single = made[-1]["type"] == "once" and number < len(specs)
        if len(specs) + len(exclude) > 1 and (is_single or made[-1].get("mode") == "fixed_delay"):
            raise click.UsageError("--also and --exclude require schedules that repeat, not once or fixed_delay")
    schedule = when.compose(made[: len(specs)], made[len(specs) :], zone, changes)
    if isinstance(schedule, when.Composed) and schedule.leaves_out_everything(after):
        raise ScheduleError(f"--exclude leaves out every slot of the next {schedule.most_days:,} days that have one")
    return schedule


def _spec(expr: str, dialect: str | None, option: str = "EXPR") -> dict[str, Any]:
    if not expr.lstrip().startswith("{"):
        spec: dict[str, Any] = {"type": "cron", "expr": expr}
        return spec | ({"dialect": dialect} if dialect else {})
    try:
        found: dict[str, Any] = json.loads(expr)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint=option) from None
    return found


def _moment(text: str, zone: Zone) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"is {text!r}; expected a time such as 2026-03-26T12:00", param_hint="--from"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone.tzinfo)
    return int(moment.timestamp())


def _as_table(
    shown: Preview, zone: Zone, after: int, lang: str, rests: Sequence[Quiet | None], *, is_from_now: bool
) -> str:
    """With `is_from_now`, each line says how far away its slot is."""
    words = _LANGUAGES[lang]
    before = zone.local(after)
    lines = [f"{shown.description}  (UTC{before.isoformat()[-6:]})"]
    for (_, local), rest in zip(shown.next_fires, rests, strict=True):
        moment = datetime.fromisoformat(local)
        offset = moment.isoformat()[-6:]
        when = f"  {moment:%Y-%m-%d} {words['days'][moment.weekday()]} {moment:%H:%M:%S} {offset}"
        seconds = int(moment.timestamp()) - after
        told = str(words["in" if seconds >= 0 else "ago"]).format(_span(abs(seconds), lang))
        away = f"   {told}" if is_from_now else ""
        lines.append(f"{when}{away}{_clock_change(before, moment, zone, lang)}{_rest(rest, zone, lang)}")
        before = moment
    lines += [str(words["note"]).format(note.message) for note in shown.notes]
    return "\n".join(lines)


def _rest(rest: Quiet | None, zone: Zone, lang: str) -> str:
    if rest is None:
        return ""
    until = zone.local(rest.until // 1_000_000)
    return "   " + str(_LANGUAGES[lang][str(rest.action)]).format(f"{until:%Y-%m-%d %H:%M}")


def _span(seconds: int, lang: str) -> str:
    """The two largest units that say something: 3 d 13 h, 14 h 30 m, 5 s."""
    words = _LANGUAGES[lang]
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = list(zip((days, hours, minutes, rest), words["units"], strict=True))
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    told = [part for part in parts[first : first + 2] if part[0]] or [parts[-1]]
    return " ".join(f"{count} {unit}" for count, unit in told)


def _clock_change(before: datetime, moment: datetime, zone: Zone, lang: str) -> str:
    """Said at the first slot after a change of the clocks."""
    earlier, later = before.utcoffset(), moment.utcoffset()
    if earlier is None or later is None or earlier == later:
        return ""
    low, high = int(before.timestamp()), int(moment.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if zone.local(middle).utcoffset() != later else (low, middle)
    changed = zone.local(high)
    day = f"{changed.month} 月 {changed.day} 日" if lang == "zh" else f"{changed.day} {changed:%b}"
    return "   " + str(_LANGUAGES[lang]["forward" if later > earlier else "back"]).format(day)
