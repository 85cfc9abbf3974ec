"""Schedules in words: natural where there is a phrase, and never wrong."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from random import Random

import pytest

from conformance.schedules.expressions import random_expression
from noonbell.errors import ScheduleError
from noonbell.when import normalise, parse
from noonbell.when.cron import both_days, days_of
from services.size import size

NOW = 1_794_733_200  # 2026-11-15T09:00:00Z


def told(spec, tz="UTC"):
    schedule = parse(normalise(spec, tz, NOW), tz)
    return schedule.describe("en"), schedule.describe("zh")


def cron(expr, tz="Asia/Shanghai"):
    return told({"type": "cron", "expr": expr}, tz)


@pytest.mark.parametrize(
    ("expr", "english", "chinese"),
    [
        ("30 2 * * 1-5", "At 02:30, Monday to Friday, Asia/Shanghai", "工作日 02:30（Asia/Shanghai）"),
        (
            "30 2 * 1 1-5",
            "At 02:30, Monday to Friday, in January, Asia/Shanghai",
            "每年 1 月的工作日 02:30（Asia/Shanghai）",
        ),
        (
            "0 9 * * 1-3,5",
            "At 09:00 on Monday to Wednesday and Friday, Asia/Shanghai",
            "每周一至周三、周五 09:00（Asia/Shanghai）",
        ),
        ("30 2 * * *", "At 02:30 every day, Asia/Shanghai", "每天 02:30（Asia/Shanghai）"),
        ("*/5 * * * *", "Every 5 minutes", "每 5 分钟"),
        ("* * * * *", "Every minute", "每分钟"),
        ("* * * * * *", "Every second", "每秒"),
        ("*/10 * * * * *", "Every 10 seconds", "每 10 秒"),
        ("@hourly", "Every hour", "每小时整点"),
        ("15 * * * *", "Every hour at minute 15", "每小时的第 15 分"),
        ("30 15 * * * *", "Every hour at minute 15, second 30", "每小时的第 15 分 30 秒"),
        ("0 */2 * * *", "Every 2 hours, Asia/Shanghai", "每 2 小时整点（Asia/Shanghai）"),
        ("0 23 L * *", "At 23:00 on the last day of the month, Asia/Shanghai", "每月最后一天 23:00（Asia/Shanghai）"),
        (
            "0 23 L-3 * *",
            "At 23:00 on the day 3 days before the last day of the month, Asia/Shanghai",
            "每月最后一天的前 3 天 23:00（Asia/Shanghai）",
        ),
        (
            "0 9 LW * *",
            "At 09:00 on the last weekday (Monday to Friday) of the month, Asia/Shanghai",
            "每月最后一个工作日（周一至周五）09:00（Asia/Shanghai）",
        ),
        (
            "0 9 15W * *",
            "At 09:00 on the weekday (Monday to Friday) nearest day 15 of the month, Asia/Shanghai",
            "每月离 15 日最近的工作日（周一至周五）09:00（Asia/Shanghai）",
        ),
        (
            "0 9 * * MON#1",
            "At 09:00 on the first Monday of the month, Asia/Shanghai",
            "每月第 1 个周一 09:00（Asia/Shanghai）",
        ),
        (
            "0 9 * * 5L",
            "At 09:00 on the last Friday of the month, Asia/Shanghai",
            "每月最后一个周五 09:00（Asia/Shanghai）",
        ),
        ("0 9 * * 1,3", "At 09:00 on Monday and Wednesday, Asia/Shanghai", "每周一、周三 09:00（Asia/Shanghai）"),
        ("0 9 * * 0,6", "At 09:00 on Saturday and Sunday, Asia/Shanghai", "每周六、周日 09:00（Asia/Shanghai）"),
        (
            "0 0 1 1 *",
            "At 00:00 on day 1 of the month in January, Asia/Shanghai",
            "每年 1 月 1 日 00:00（Asia/Shanghai）",
        ),
        (
            "0 0 1,15 * *",
            "At 00:00 on days 1 and 15 of the month, Asia/Shanghai",
            "每月 1、15 日 00:00（Asia/Shanghai）",
        ),
        (
            "0 0 1 * MON",
            "At 00:00 on day 1 of the month or on Monday, Asia/Shanghai",
            "每月 1 日或每周一 00:00（Asia/Shanghai）",
        ),
        (
            "0 0 */2 * MON",
            "At 00:00 on every 2nd day from 1 to 31 of the month if also on Monday, Asia/Shanghai",
            "每月 1 至 31 日（步长 2）且为周一 00:00（Asia/Shanghai）",
        ),
        (
            "*/10 9-17 * * 1-5",
            "Every 10 minutes from 09:00 to 17:59, Monday to Friday, Asia/Shanghai",
            "工作日 09:00 至 17:59 每 10 分钟（Asia/Shanghai）",
        ),
        ("0 8-18 * * *", "Every hour from 08:00 to 18:00, Asia/Shanghai", "08:00 至 18:00 每小时（Asia/Shanghai）"),
        ("5 8-18 * * *", "Every hour from 08:05 to 18:05, Asia/Shanghai", "08:05 至 18:05 每小时（Asia/Shanghai）"),
        (
            "*/7 3 * * *",
            "At every 7th minute from 0 to 56 of hour 3, Asia/Shanghai",
            "每天 3 点的第 0 至 56 分（步长 7）（Asia/Shanghai）",
        ),
        (
            "1,2,40-45 1,5 * 6-8 *",
            "At minutes 1, 2 and 40 to 45 of hours 1 and 5 from June to August, Asia/Shanghai",
            "每年 6 至 8 月每天 1、5 点的第 1 至 2、40 至 45 分（Asia/Shanghai）",
        ),
        ("0 0 1-31 * MON", "At 00:00 every day, Asia/Shanghai", "每天 00:00（Asia/Shanghai）"),
        ("0 0 13 * 0-6", "At 00:00 every day, Asia/Shanghai", "每天 00:00（Asia/Shanghai）"),
        ("0,30 2 * * *", "At 02:00 and 02:30 every day, Asia/Shanghai", "每天 02:00、02:30（Asia/Shanghai）"),
        ("5 30 2 * * *", "At 02:30:05 every day, Asia/Shanghai", "每天 02:30:05（Asia/Shanghai）"),
    ],
)
def test_cron_in_words(expr, english, chinese):
    assert cron(expr) == (english, chinese)


@pytest.mark.parametrize(
    ("spec", "english", "chinese"),
    [
        (
            {"type": "once", "at": "2026-12-24T18:00:00Z"},
            "Once, on 2026-12-24 at 19:00:00, Europe/Berlin",
            "2026-12-24 19:00:00 执行一次（Europe/Berlin）",
        ),
        ({"type": "interval", "every": 1, "unit": "hour"}, "Every hour", "每小时"),
        ({"type": "interval", "every": 90, "unit": "minute"}, "Every 90 minutes", "每 90 分钟"),
        (
            {"type": "interval", "every": 1, "unit": "day", "mode": "fixed_delay"},
            "1 day after the end of the run before",
            "上一次执行结束后 1 天",
        ),
        (
            {"type": "weekly", "weekday": 0, "time": "02:30"},
            "At 02:30 every Sunday, Europe/Berlin",
            "每周日 02:30（Europe/Berlin）",
        ),
        (
            {"type": "monthly", "day": 5, "time": "02:30:10"},
            "At 02:30:10 on day 5 of every month, Europe/Berlin",
            "每月 5 日 02:30:10（Europe/Berlin）",
        ),
        (
            {"type": "monthly", "day": 30, "time": "02:30"},
            "At 02:30 on day 30 of every month, or its last day, Europe/Berlin",
            "每月 30 日（不足则为最后一天）02:30（Europe/Berlin）",
        ),
        (
            {"type": "monthly", "day": 0, "time": "02:30"},
            "At 02:30 on the last day of every month, Europe/Berlin",
            "每月最后一天 02:30（Europe/Berlin）",
        ),
        (
            {"type": "monthly", "day": -1, "time": "02:30"},
            "At 02:30, 1 day before the last day of every month, Europe/Berlin",
            "每月最后一天的前 1 天 02:30（Europe/Berlin）",
        ),
    ],
)
def test_the_other_kinds_in_words(spec, english, chinese):
    assert told(spec, "Europe/Berlin") == (english, chinese)


@pytest.mark.parametrize(
    ("expr", "tz", "english", "chinese"),
    [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "At 02:30 every day, Europe/Berlin, by the wall clock only",
            "每天 02:30（Europe/Berlin，只看当地时钟）",
        ),
        ("0 0-23 * * *", "Europe/Berlin", "Every hour, by the wall clock only", "每小时整点（只看当地时钟）"),
        ("0 */2 * * *", "Europe/Berlin", "Every 2 hours, Europe/Berlin", "每 2 小时整点（Europe/Berlin）"),
        ("30 2 * * *", "+01:00", "At 02:30 every day, +01:00", "每天 02:30（+01:00）"),
    ],
)
def test_the_wall_clock_is_told_where_it_makes_a_difference(expr, tz, english, chinese):
    assert told({"type": "cron", "expr": expr, "dst": "wall"}, tz) == (english, chinese)


@pytest.mark.parametrize(("lang", "first"), [("zh-CN", "每"), ("ZH", "每"), ("en-GB", "E"), ("fr", "E"), ("", "E")])
def test_a_language_tag_finds_its_language(lang, first):
    assert parse({"type": "cron", "expr": "*/5 * * * *"}).describe(lang)[0] == first


@pytest.mark.longer
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_sentence_stands_for_two_different_schedules(lang):
    """Were a sentence wrong for one of them, some other schedule would have it by right."""
    random = Random(f"words {lang}")
    meanings = {}
    for number in range(size(1500, 6000)):
        expr = f"{random.choice(('0', '0', '*', '*/15', '5,6', '59'))} {random_expression(random)}"
        if number % 3 == 0:
            expr = " ".join(random.choice(("*", "0", "*/2", "1-5", "3,4,5", "1", "0/2", "1-12/2")) for _ in range(6))
            expr = expr.replace(" 0 ", " 1 ")
        try:
            schedule = parse({"type": "cron", "expr": expr})
        except ScheduleError:
            continue
        days = days_of(*schedule.fields[3:], both=both_days(schedule.fields, schedule.dialect))
        meaning = (
            tuple(each.mask for each in schedule.fields[:3]),
            tuple(days.month(index)[0] for index in range(2024 * 12, 2030 * 12)),
        )
        assert meanings.setdefault(schedule.describe(lang), (meaning, expr))[0] == meaning, (
            expr,
            meanings[schedule.describe(lang)][1],
            schedule.describe(lang),
        )
    assert len(meanings) > size(900, 3000)


def test_both_languages_have_the_same_texts_with_the_same_facts():
    texts = [
        json.loads(files("noonbell.when").joinpath("locales", f"{lang}.json").read_text("utf-8"))
        for lang in ("en", "zh")
    ]
    facts = [{name: sorted(set(re.findall(r"\{\w+\}", text))) for name, text in each.items()} for each in texts]
    assert facts[0] == facts[1]
