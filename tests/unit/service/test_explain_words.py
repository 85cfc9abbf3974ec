"""The sentences of `explain`: there is one for every cause, and both languages tell the same facts."""

from __future__ import annotations

import string

import pytest

from noonbell.service.explain_findings import CAUSES
from noonbell.service.explain_words import span
from noonbell.service.translation import Translator, catalogue

SENTENCES = {
    key.removeprefix("finding."): (text, catalogue("zh")[key])
    for key, text in catalogue("en").items()
    if key.startswith("finding.")
}


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_a_sentence(cause: str):
    assert cause in SENTENCES


@pytest.mark.parametrize("key", SENTENCES)
def test_both_languages_tell_the_same_facts(key: str):
    english, chinese = SENTENCES[key]
    assert names_in(english) == names_in(chinese)


@pytest.mark.parametrize("key", SENTENCES)
def test_a_sentence_is_one_in_its_own_script(key: str):
    english, chinese = SENTENCES[key]
    assert english.isascii()
    assert english.endswith(".")
    assert chinese.endswith("。")


def test_a_sentence_is_filled_in():
    facts = {"blocking": "7"}
    assert (
        Translator("en")("finding.overlap", **facts)
        == "Skipped: run 7 of the task had not ended yet (overlap_action SKIP)."
    )
    assert Translator("zh")("finding.overlap", **facts) == "已跳过：该任务的执行 7 尚未结束（overlap_action SKIP）。"


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (0, "0 s", "0 秒"),
        (0.9, "0 s", "0 秒"),
        (59, "59 s", "59 秒"),
        (60, "1 min", "1 分"),
        (725, "12 min 5 s", "12 分 5 秒"),
        (3600, "1 h", "1 小时"),
        (3605, "1 h", "1 小时"),
        (90_000, "1 d 1 h", "1 天 1 小时"),
        (-5, "0 s", "0 秒"),
    ],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, english: str, chinese: str):
    assert (span(seconds, Translator("en")), span(seconds, Translator("zh"))) == (english, chinese)
