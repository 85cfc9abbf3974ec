"""Schedules in Chinese."""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.when.cron_fields import CronField
from noonbell.when.phrases import Every, Hourly, Shape, TimeParts, Times, clock, progression, runs, time_shape, values

WEEKDAYS = ("周日", "周一", "周二", "周三", "周四", "周五", "周六", "周日")
UNITS = {"second": "秒", "minute": "分钟", "hour": "小时", "day": "天"}
_WORKDAYS = 0b0111110


def cron(fields: Sequence[CronField], both_days: bool) -> str:
    shape = time_shape(fields)
    days = _days(
        fields, both_days, isinstance(shape, Times) or (isinstance(shape, TimeParts) and shape.hour is not None)
    )
    return f"{days}{'' if not days or days.endswith('）') else ' '}{_time(shape)}"


def every(number: int, unit: str) -> str:
    return f"每 {number} {UNITS[unit]}" if number > 1 else f"每{UNITS[unit]}"


def in_zone(sentence: str, zone: str, *, wall: bool = False) -> str:
    place = "，".join(filter(None, (zone, "只看当地时钟" if wall else "")))
    return f"{sentence}（{place}）" if place else sentence


def composed(sentences: Sequence[str], excluded: Sequence[str]) -> str:
    said = "；以及".join(sentences)
    return f"{said}，但不包括：{'；'.join(excluded)}" if excluded else said


def _time(shape: Shape) -> str:
    match shape:
        case Times(times):
            return "、".join(clock(time) for time in times)
        case Every(step, unit, hours):
            between = f"{hours[0]:02d}:00 至 {hours[1]:02d}:59 " if hours else ""
            return f"{between}{every(step, unit)}"
        case Hourly():
            return _hourly(shape)
        case TimeParts(second, minute, hour):
            return _parts(second, minute, hour)


def _hourly(shape: Hourly) -> str:
    past = shape.minute * 60 + shape.second
    if shape.hours is not None:
        first, last = (clock(hour * 3600 + past) for hour in shape.hours)
        return f"{first} 至 {last} 每小时"
    place = f"的第 {shape.minute} 分" if past else "整点"
    place += f" {shape.second} 秒" if shape.second else ""
    return f"{every(shape.step, 'hour')}{place}"


def _parts(second: tuple[int, ...] | None, minute: tuple[int, ...] | None, hour: tuple[int, ...] | None) -> str:
    phrases = []
    if hour is not None:
        phrases.append(_numbers(hour, "点"))
    phrases.append("每分钟" if minute is None else f"第 {_numbers(minute, '分')}")
    if second is None:
        phrases.append("每秒")
    elif second != (0,):
        phrases.append(f"第 {_numbers(second, '秒')}")
    return "的".join(phrases)


def _numbers(numbers: tuple[int, ...], unit: str) -> str:
    step = progression(numbers)
    if step is not None:
        return f"{numbers[0]} 至 {numbers[-1]} {unit}（步长 {step}）"
    return "、".join(str(low) if low == high else f"{low} 至 {high}" for low, high in runs(numbers)) + f" {unit}"


def _days(fields: Sequence[CronField], both_days: bool, daily: bool) -> str:
    day, month, weekday = fields[3:]
    months = "" if month.is_any else f"每年 {_numbers(values(month), '月')}"
    told = [field for field in (day, weekday) if not field.is_any]
    if not both_days and len(told) < 2:
        # Either is enough: a field that matches every day leaves nothing to say.
        told = []
    if len(told) == 2:
        joined = f"{_dates(day)}且为{_weekdays(weekday)}" if both_days else f"{_dates(day)}或{_each(weekday)}"
        return _after(months or "每月", joined)
    if told == [day]:
        return _after(months or "每月", _dates(day))
    if told == [weekday]:
        monthly = "" if months or weekday.is_plain else "每月"
        named = _each(weekday)
        return _after(months + monthly, f"的{named}" if months and named == "工作日" else named)
    return _after(months, "每天") if daily else months


def _after(start: str, rest: str) -> str:
    """A space only where a number begins."""
    return f"{start} {rest}" if start and rest[0].isdigit() else f"{start}{rest}"


def _each(weekday: CronField) -> str:
    named = _weekdays(weekday)
    return f"每{named}" if weekday.is_plain and weekday.mask != _WORKDAYS else named


def _dates(day: CronField) -> str:
    pieces = []
    if day.mask:
        pieces.append(_numbers(values(day), "日"))
    pieces += ["最后一天" if back == 0 else f"最后一天的前 {back} 天" for back in sorted(day.from_last)]
    if day.last_workday:
        pieces.append("最后一个工作日（周一至周五）")
    pieces += [f"离 {n} 日最近的工作日（周一至周五）" for n in sorted(day.nearest)]
    return "、".join(pieces)


def _weekdays(weekday: CronField) -> str:
    pieces = []
    if weekday.mask == _WORKDAYS and weekday.is_plain:
        return "工作日"
    if weekday.mask:
        order = [n for n in (1, 2, 3, 4, 5, 6, 7) if weekday.mask >> n % 7 & 1]
        names = [
            WEEKDAYS[low] if low == high else f"{WEEKDAYS[low]}{'、' if high == low + 1 else '至'}{WEEKDAYS[high]}"
            for low, high in runs(order)
        ]
        pieces.append("、".join(names))
    pieces += [f"第 {nth} 个{WEEKDAYS[n]}" for n, nth in sorted(weekday.nth)]
    pieces += [f"最后一个{WEEKDAYS[n]}" for n in sorted(weekday.last_of)]
    return "、".join(pieces)
