"""Plain words become a proposal, in both languages; what is not understood whole is not understood."""

from __future__ import annotations

import pytest

from noonbell import when
from noonbell.when.natural_language import Proposal, from_quartz, propose

CRONS = {
    "every weekday at 2:30": "30 2 * * 1-5",
    "weekdays at 8:30": "30 8 * * 1-5",
    "every 15 minutes": "*/15 * * * *",
    "Every minute": "* * * * *",
    "every two hours": "0 */2 * * *",
    "hourly": "0 * * * *",
    "every hour": "0 * * * *",
    "daily at 2am": "0 2 * * *",
    "every day at 2 pm.": "0 14 * * *",
    "every day at 12am": "0 0 * * *",
    "at noon": "0 12 * * *",
    "daily": "0 0 * * *",
    "at 9 and 17": "0 9,17 * * *",
    "every monday at 9:00": "0 9 * * 1",
    "Mondays and Thursdays at 18:05": "5 18 * * 1,4",
    "mon-fri at 7": "0 7 * * 1-5",
    "weekends at 10:00": "0 10 * * 0,6",
    "last day of the month at 23:00": "0 23 L * *",
    "end of the month": "0 0 L * *",
    "the 15th of every month at 6pm": "0 18 15 * *",
    "monthly on the 3rd at 4:05": "5 4 3 * *",
    "monthly": "0 0 1 * *",
    "yearly": "0 0 1 1 *",
    "每天凌晨2点": "0 2 * * *",
    "每天 2:30": "30 2 * * *",
    "工作日 8:30": "30 8 * * 1-5",
    "周一至周五 9点半": "30 9 * * 1-5",
    "every 10 seconds": "*/10 * * * * *",
    "every second": "* * * * * *",
    "每10秒": "*/10 * * * * *",
    "每15分钟": "*/15 * * * *",
    "每隔十五分钟执行一次": "*/15 * * * *",
    "每分钟": "* * * * *",
    "每小时": "0 * * * *",
    "每两小时": "0 */2 * * *",
    "每半小时": "*/30 * * * *",
    "每天下午3点一刻": "15 15 * * *",
    "每天晚上十一点": "0 23 * * *",
    "每天中午": "0 12 * * *",
    "每周一上午九点": "0 9 * * 1",
    "每周一、三、五 18:00": "0 18 * * 1,3,5",
    "周末10点": "0 10 * * 0,6",
    "每月1号 0点": "0 0 1 * *",
    "每月十五日凌晨三点": "0 3 15 * *",
    "每月最后一天23点": "0 23 L * *",
    "月底 23:00": "0 23 L * *",
}


@pytest.mark.parametrize("words", CRONS)
def test_plain_words_propose_a_cron_that_can_be_read(words):
    proposal = propose(words)
    assert proposal is not None
    assert proposal.cron == CRONS[words]
    assert when.parse({"type": "cron", "expr": proposal.cron}).next(1_800_000_000) is not None


@pytest.mark.parametrize(
    ("words", "every", "unit"),
    [
        ("every 45 minutes", 45, "minute"),
        ("every 45 seconds", 45, "second"),
        ("every 3 days", 3, "day"),
        ("every 5 hours", 5, "hour"),
        ("每45分钟", 45, "minute"),
        ("每7秒", 7, "second"),
        ("每3天", 3, "day"),
    ],
)
def test_what_cron_cannot_do_evenly_is_proposed_as_an_interval(words, every, unit):
    assert propose(words) == Proposal(every=every, unit=unit)


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "0 2 * * *", "*/5 * * * *", "@daily", "0 2 * * MON-FRI", "0 0 L * *"),
        *("every blue moon", "every weekday at 25:00", "every day at 13 pm", "at 9:00 and 17:30", "every 0 minutes"),
        *(
            "daily at 2am unless it rains",
            "the 32nd of every month",
            "每天25点",
            "每月40号",
            "每天凌晨",
            "有空的时候",
            "每",
        ),
        *("every 9999999 minutes", "x" * 10_000, "每" * 10_000),
    ],
    ids=lambda text: text[:40],
)
def test_no_guess_is_made_of_what_is_cron_already_or_is_not_understood_whole(text):
    assert propose(text) is None


@pytest.mark.parametrize(
    ("quartz", "ours"),
    [
        ("0 30 2 ? * 2-6", "0 30 2 ? * MON-FRI"),
        ("0 0 12 ? * 1", "0 0 12 ? * SUN"),
        ("0 0 12 ? * 6L", "0 0 12 ? * 5L"),
        ("0 0 12 ? * 6#3", "0 0 12 ? * FRI#3"),
        ("0 0 12 * * ? *", "0 0 12 * * ?"),
    ],
)
def test_numbers_of_quartz_weekdays_become_names_that_mean_the_same_in_both(quartz, ours):
    assert from_quartz(quartz) == ours
    assert when.parse({"type": "cron", "expr": ours}).next(1_800_000_000) is not None


@pytest.mark.parametrize("text", ["0 2 * * 1-5", "0 0 2 * * 1-5", "0 0 12 ? * MON-FRI", "", "0 0 12 * * ? 2027"])
def test_what_reads_the_same_in_both_is_left_alone(text):
    assert from_quartz(text) is None
