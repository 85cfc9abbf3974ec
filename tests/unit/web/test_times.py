"""Time as people read it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from noonbell.clock import from_datetime
from noonbell.service.translation import Translator
from noonbell.web import i18n
from noonbell.when import zones

NOW = from_datetime(datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC))
EN, ZH = Translator("en"), Translator("zh")


@pytest.mark.parametrize(
    ("seconds", "en", "zh"),
    [
        (0.412, "412 ms", "412 毫秒"),
        (9.25, "9.2 s", "9.2 秒"),
        (12, "12 s", "12 秒"),
        (72, "1 m 12 s", "1 分 12 秒"),
        (3600, "1 h", "1 小时"),
        (3605, "1 h", "1 小时"),
        (50_160, "13 h 56 m", "13 小时 56 分"),
        (270_000, "3 d 3 h", "3 天 3 小时"),
    ],
)
def test_a_span_has_two_units_at_most(seconds, en, zh):
    assert (i18n.span(seconds, EN), i18n.span(seconds, ZH)) == (en, zh)


def test_a_moment_is_relative_and_exact_and_says_its_zone():
    at = from_datetime(datetime(2026, 11, 15, 18, 0, 0, tzinfo=UTC))
    shown = i18n.shown(at, NOW, zones.find("Asia/Shanghai"), EN)
    assert (shown.relative, shown.local, shown.offset) == ("in 6 h", "16 Nov 02:00:00", "+08:00")
    assert shown.iso == "2026-11-15T18:00:00Z"


def test_today_needs_no_date_and_another_year_is_named():
    utc = zones.find("UTC")
    assert i18n.shown(NOW - 5_000_000, NOW, utc, EN).local == "11:59:55"
    assert i18n.shown("2025-01-02T03:04:05Z", NOW, utc, EN).local == "2 Jan 2025 03:04:05"
    assert i18n.shown("2025-01-02T03:04:05Z", NOW, utc, ZH).local == "2025年1月2日 03:04:05"


def test_both_sides_of_a_clock_change_have_their_own_offset():
    berlin = zones.find("Europe/Berlin")
    shown = [i18n.shown(f"2026-03-29T0{hour}:30:00Z", NOW, berlin, EN) for hour in (0, 1)]
    assert [(each.local[-8:], each.offset) for each in shown] == [("01:30:00", "+01:00"), ("03:30:00", "+02:00")]
