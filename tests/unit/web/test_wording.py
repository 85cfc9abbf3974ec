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
