"""From plain words to a schedule, in English and Chinese: a proposal for a person to look at, never more.

    every weekday at 2:30      每天凌晨2点      工作日 8:30      每15分钟      last day of the month at 23:00

What is not understood to the last word is not understood: half a sentence would be a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Proposal:
    """A cron expression; or, where cron has none that is even (every 45 minutes), an interval."""

    cron: str | None = None
    every: int = 0
    unit: str = ""
    """`second`, `minute`, `hour`, `day`."""


@dataclass(frozen=True, slots=True)
class _Days:
    """The last three fields of a cron expression."""

    day: str = "*"
    month: str = "*"
    weekday: str = "*"


def propose(text: str) -> Proposal | None:
    """What the words may mean; None where they are no words, or not understood."""
    said = re.sub(r"\s+", " ", text.strip().lower().rstrip(".。!！")).strip()
    if not said or len(said) > _LONGEST or not re.search(r"[a-z\u4e00-\u9fff]", said) or said.startswith("@"):
        return None
    return _english(said) or _chinese(said.replace(" ", ""))


def from_quartz(text: str) -> str | None:
    """The same moments in our numbers, where the text has the signs of Quartz: `?`, weekdays from 1, a year.

    Quartz counts Sunday as 1; cron as 0 or 7. Names say the same in both, so numbers become names.
    """
    parts = text.strip().upper().split()
    if len(parts) == 7 and parts[6] == "*":
        parts = parts[:6]
    elif len(parts) != 6:
        return None
    if "?" not in parts[3:] and len(text.split()) != 7:
        return None
    parts[5] = re.sub(r"(?<![#\d/])([1-7])(?!\d)", lambda found: _WEEKDAY_NAMES[int(found[1]) - 1], parts[5])
    parts[5] = re.sub(r"([A-Z]{3})L", lambda found: f"{_WEEKDAY_NAMES.index(found[1])}L", parts[5])
    made = " ".join(parts)
    return None if made == text.strip().upper() else made


_WEEKDAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


# English

_UNITS: Final = {
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), "second"),
    **dict.fromkeys(("minute", "minutes", "min", "mins", "m"), "minute"),
    **dict.fromkeys(("hour", "hours", "h", "hr", "hrs"), "hour"),
    **dict.fromkeys(("day", "days", "d"), "day"),
}
_NUMBERS: Final = {
    word: number
    for number, word in enumerate(
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 1
    )
} | {"other": 2, "fifteen": 15, "twenty": 20, "thirty": 30}
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_ONE_WEEKDAY: Final = r"(?:sun|mon|tue|tues|wed|wednes|thu|thur|thurs|fri|sat|satur)(?:day)?s?"
_SEVERAL: Final = rf"{_ONE_WEEKDAY}(?:(?:, ?and |, ?| and | ?- ?| to | through ){_ONE_WEEKDAY})*"
_TIME: Final = r"(?:\d{1,2}(?::\d\d)? ?(?:am|pm|a\.m\.|p\.m\.)?|noon|midnight)"
_AT: Final = rf"(?: ?(?:at|@)? ?(?P<time>{_TIME}(?:(?:, ?| and ){_TIME})*)(?: o'?clock)?)?"


def _english(said: str) -> Proposal | None:
    for pattern, make in _ENGLISH:
        found = re.fullmatch(pattern, said)
        if found is not None:
            return make(found)
    return None


def _stepped(found: re.Match[str]) -> Proposal | None:
    word = found["count"] or "1"
    count = int(word) if word.isdecimal() else _NUMBERS.get(word, 0)
    return _every(count, _UNITS[found["unit"]])


def _every(count: int, unit: str) -> Proposal | None:
    if not 1 <= count <= 100_000:
        return None
    if unit == "second" and 60 % count == 0 and count < 60:
        return Proposal("* * * * * *" if count == 1 else f"*/{count} * * * * *")
    if unit == "minute" and 60 % count == 0 and count < 60:
        return Proposal("* * * * *" if count == 1 else f"*/{count} * * * *")
    if unit == "hour" and 24 % count == 0 and count < 24:
        return Proposal("0 * * * *" if count == 1 else f"0 */{count} * * *")
    return Proposal(every=count, unit=unit)


def _on(days: Callable[[re.Match[str]], _Days | None]) -> Callable[[re.Match[str]], Proposal | None]:
    """Certain days, at the times that the words name; at midnight where they name none."""

    def make(found: re.Match[str]) -> Proposal | None:
        times: list[tuple[int, int] | None] = [(0, 0)]
        if found["time"]:
            times = [_clock(each) for each in re.split(r", ?| and ", found["time"])]
        return _at(times, days(found))

    return make


def _at(times: list[tuple[int, int] | None], days: _Days | None) -> Proposal | None:
    known = [time for time in times if time is not None]
    if days is None or len(known) != len(times) or len({minute for _, minute in known}) != 1:
        return None  # two times with other minutes are no single expression
    hours = ",".join(str(hour) for hour in sorted({hour for hour, _ in known}))
    return Proposal(f"{known[0][1]} {hours} {days.day} {days.month} {days.weekday}")


def _clock(text: str) -> tuple[int, int] | None:
    if text in ("noon", "midnight"):
        return (12 if text == "noon" else 0), 0
    found = re.fullmatch(r"(\d{1,2})(?::(\d\d))? ?([ap])?\.?m?\.?", text.strip())
    if found is None:
        return None
    hour, minute, half = int(found[1]), int(found[2] or 0), found[3]
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "p" else 0)
    return (hour, minute) if hour < 24 and minute < 60 else None


def _named_days(found: re.Match[str]) -> _Days | None:
    text = re.sub(r" ?- ?| to | through ", "-", found["days"])
    items = []
    for item in re.split(r", ?and |, ?| and ", text):
        ends = [_weekday(each) for each in item.split("-")]
        if None in ends or len(ends) > 2:
            return None
        items.append("-".join(str(each) for each in ends))
    return _Days(weekday=",".join(items))


def _weekday(text: str) -> int | None:
    return next((number for number, name in enumerate(_WEEKDAYS) if name.startswith(text[:3])), None)


def _month_day(found: re.Match[str]) -> _Days | None:
    number = int(found["day"])
    return _Days(day=str(number)) if 1 <= number <= 31 else None


_ENGLISH: Final[tuple[tuple[str, Callable[[re.Match[str]], Proposal | None]], ...]] = (
    (rf"(?:every|each) (?:(?P<count>\d+|{'|'.join(_NUMBERS)}) ?)?(?P<unit>{'|'.join(_UNITS)})", _stepped),
    (r"(?P<unit>hour)ly(?P<count>)", _stepped),
    (rf"(?:(?:every|each) (?:week ?day|working day|workday)s?|(?:on )?week ?days|workdays){_AT}",
     _on(lambda _: _Days(weekday="1-5"))),
    (rf"(?:(?:every|each) weekend|(?:on |at )?weekends){_AT}", _on(lambda _: _Days(weekday="0,6"))),
    (rf"(?:every ?day|each day|daily|(?:every|each) (?:night|morning))?{_AT}", _on(lambda _: _Days())),
    (rf"(?:(?:every|each|weekly on|on) )?(?P<days>{_SEVERAL}){_AT}", _on(_named_days)),
    (rf"weekly{_AT}", _on(lambda _: _Days(weekday="1"))),
    (rf"(?:on )?(?:the )?last day of (?:the|every|each) month{_AT}", _on(lambda _: _Days(day="L"))),
    (rf"(?:month ?end|(?:at )?(?:the )?end of (?:the|every|each) month){_AT}", _on(lambda _: _Days(day="L"))),
    (rf"(?:on )?(?:the )?first day of (?:the|every|each) month{_AT}", _on(lambda _: _Days(day="1"))),
    (rf"(?:on )?(?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:day )?of (?:the|every|each) month{_AT}",
     _on(_month_day)),
    (rf"(?:monthly|every month|each month)(?: on the (?P<day>\d{{1,2}})(?:st|nd|rd|th)?)?{_AT}",
     _on(lambda found: _month_day(found) if found["day"] else _Days(day="1"))),
    (rf"(?:yearly|annually|every year|each year){_AT}", _on(lambda _: _Days(day="1", month="1"))),
)  # fmt: skip


# Chinese

_DIGITS: Final = {"零": 0, "〇": 0, **{digit: number for number, digit in enumerate("一二三四五六七八九", 1)}, "两": 2}
_ZH_UNITS: Final = {
    "秒": "second",
    "秒钟": "second",
    "分": "minute",
    "分钟": "minute",
    "小时": "hour",
    "个小时": "hour",
}
_ZH_UNITS_DAYS: Final = {**_ZH_UNITS, "天": "day", "日": "day"}
_ZH_NUMBER: Final = r"(?:\d{1,5}|[零〇一二两三四五六七八九十半]{1,3})"
_ZH_TIME: Final = (
    rf"(?:的|在)?(?P<part>凌晨|清晨|早上|早晨|上午|中午|下午|傍晚|晚上|晚|早|夜里|半夜|午夜)?"
    rf"(?:(?P<hour>{_ZH_NUMBER})(?:[::](?P<exact>\d\d)|[点时](?:钟|整)?(?:(?P<minute>{_ZH_NUMBER})分?|(?P<quarter>一刻|三刻))?))?"
)
_ZH_WEEKDAYS: Final = "日一二三四五六"
_ZH_DAYS: Final[tuple[tuple[str, Callable[[re.Match[str]], _Days | None]], ...]] = (
    (r"(?:每个?|逢)?工作日|周一至周五|周一到周五|每?周一[至到]五|星期一[至到]星期五", lambda _: _Days(weekday="1-5")),
    (r"(?:每个?)?周末", lambda _: _Days(weekday="0,6")),
    (r"每天|每日|天天|每晚(?=上|\d)?", lambda _: _Days()),
    (r"(?:每个?)?(?:周|星期|礼拜)(?P<weekdays>[日天一二三四五六](?:[、,，和]?(?:周|星期)?[日天一二三四五六])*)",
     lambda found: _zh_weekdays(found["weekdays"])),
    (r"每个?月(?:底|末|的?最后一天)|月底|月末", lambda _: _Days(day="L")),
    (rf"每个?月(?:的?第?(?P<day>{_ZH_NUMBER})[号日天])", lambda found: _zh_month_day(found["day"])),
    (r"每个?月初|月初", lambda _: _Days(day="1")),
)  # fmt: skip
_ZH_MOMENTS: Final = tuple((rf"(?:{pattern}){_ZH_TIME}", days) for pattern, days in _ZH_DAYS)


def _chinese(said: str) -> Proposal | None:
    found = re.fullmatch(
        rf"每(?:隔|过)?(?P<count>{_ZH_NUMBER})?(?P<unit>秒钟?|分钟?|个?小时|天|日)(?:(?:执行|运行)?一次)?", said
    )
    if found is not None and (found["count"] or found["unit"] not in ("天", "日")):
        if found["count"] == "半":
            return Proposal("*/30 * * * *") if "小时" in found["unit"] else None
        count = 1 if not found["count"] else _zh_number(found["count"])
        return None if count is None else _every(count, _ZH_UNITS_DAYS[found["unit"]])
    said = re.sub(r"(?:执行|运行)(?:一次)?$", "", said)
    for pattern, days in _ZH_MOMENTS:
        found = re.fullmatch(pattern, said)
        if found is not None:
            return _at([_zh_clock(found)], days(found))
    return None


def _zh_clock(found: re.Match[str]) -> tuple[int, int] | None:
    part = found["part"] or ""
    if found["hour"] is None:
        named = {"中午": 12, "午夜": 0, "半夜": 0}
        return (named[part], 0) if part in named else (0, 0) if not part else None
    hour = _zh_number(found["hour"])
    minute: int | None = 0
    if found["exact"] is not None:
        minute = int(found["exact"])
    elif found["quarter"] is not None:
        minute = 15 if found["quarter"] == "一刻" else 45
    elif found["minute"] is not None:
        minute = 30 if found["minute"] == "半" else _zh_number(found["minute"])
    if hour is None or minute is None:
        return None
    if part in ("下午", "傍晚", "晚上", "晚") and 1 <= hour < 12:
        hour += 12
    if part == "中午" and 1 <= hour <= 2:
        hour += 12
    if (part in ("凌晨", "半夜", "午夜", "夜里") and hour == 12) or (part in ("晚上", "晚") and hour == 12):
        hour = 0
    return (hour, minute) if hour < 24 and minute < 60 else None


def _zh_number(text: str) -> int | None:
    """Up to 99 in words, any number in digits."""
    if text.isdecimal() and text.isascii():
        return int(text)
    if "十" in text:
        tens, _, ones = text.partition("十")
        high, low = (_DIGITS.get(tens) if tens else 1), (_DIGITS.get(ones) if ones else 0)
        return None if high is None or low is None else high * 10 + low
    return _DIGITS.get(text)


def _zh_weekdays(text: str) -> _Days | None:
    numbers = sorted(
        {_ZH_WEEKDAYS.index(letter.replace("天", "日")) for letter in text if letter in "天日一二三四五六"}
    )
    return _Days(weekday=",".join(str(number) for number in numbers))


def _zh_month_day(text: str) -> _Days | None:
    number = _zh_number(text)
    return _Days(day=str(number)) if number is not None and 1 <= number <= 31 else None
