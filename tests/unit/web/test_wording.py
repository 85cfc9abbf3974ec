"""The words of the dashboard: one term for one thing, plain English, and codes said in words."""

from __future__ import annotations

import re

import pytest

from noonbell.service.translation import Translator, catalogue

EN, ZH = Translator("en"), Translator("zh")

TRANSLATED = re.compile(
    r"\b(so many|[Ww]hoever|nobody|is told|are told|nineteen in twenty|once more|Drop it|as it was to|of every temper)\b"
)
"""Phrases that an operator would not expect."""


def test_no_text_reads_as_translated():
    explained = ("finding.", "doctor.", "refused.", "advice.")  # sentences of the API, which have tests of their own
    odd = {
        key: text for key, text in catalogue("en").items() if TRANSLATED.search(text) and not key.startswith(explained)
    }
    assert odd == {}


OTHER_WORDS = re.compile(
    "时点|触发时刻|时间表|载荷|回填|通道|仪表盘|应答|存活|被计划|在计划|负责计划|开始延迟|请求正文|响应正文|更改|过滤|前置任务|您"
)
"""Chinese words for which the glossary has another one."""
HALF_WIDTH = re.compile("[一-鿿](?:[,;!?()]|:(?! |哈希|值|分|[0-9])| …(?!；))|[一-鿿][A-Za-z0-9{]|[}A-Za-z0-9][一-鿿]")
"""Punctuation of English after a Chinese character, and Chinese beside Latin without a space."""
TIGHT = ("month.", "time.", "timeline.month")
"""Stamps, which are compact."""


def test_chinese_has_one_word_for_one_thing_and_its_own_punctuation():
    found = {key: text for key, text in catalogue("zh").items() if not key.startswith(TIGHT)}
    assert {key: text for key, text in found.items() if OTHER_WORDS.search(text)} == {}
    assert {key: text for key, text in found.items() if HALF_WIDTH.search(text)} == {}


@pytest.mark.parametrize(
    ("words", "waiting", "paused"), [(EN, "Waiting", "Paused"), (ZH, "等待中", "已暂停")], ids=["en", "zh"]
)
def test_one_term_stands_for_one_thing(words, waiting, paused):
    assert words("status.SCHEDULED") == words("status.WAITING") == words("group.waiting") == waiting
    assert words("status.DISABLED") == words("status.paused") == paused


def test_large_counts_have_separators_everywhere():
    assert EN("task.sampled", n=2_500) == "The chart shows the last 2,500 runs."
    assert EN("bulk.title_delete", n=5_000) == "Delete 5,000 tasks?"
    assert EN("bulk.title_delete", n=999) == "Delete 999 tasks?"
    assert EN("bulk.title_delete", n=1) == "Delete 1 task?"
    assert "5,000" in ZH("bulk.title_delete", n=5_000)
