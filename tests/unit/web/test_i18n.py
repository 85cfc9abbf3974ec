"""Both catalogues are complete: no key is missing in one of them, none is without a use, and every status has its word."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from noonbell.model.run import Origin, RunStatus, SkipReason
from noonbell.model.task import TaskStatus
from noonbell.model.worker import WorkerState
from noonbell.service.translation import LANGUAGES, Translator, catalogue

WEB = Path(__file__).parents[3] / "src" / "noonbell" / "web"
SERVICES = [
    *(WEB.parent / "service" / name for name in ("explain_words.py", "doctor.py", "translation.py")),
    WEB.parent / "alerts" / "wording.py",
    WEB.parent / "api" / "openapi.py",
]
SOURCES = {path: path.read_text() for path in [*WEB.rglob("*.py"), *WEB.glob("templates/*.html"), *SERVICES]}

WHOLE = re.compile(r"""(?:\bt|words)\(\s*["']([a-z_]+(?:\.[\w-]+)*)["']\s*[,)]""")
"""`t("nav.tasks")`, `words("task.saved", …)`."""
IN_PASSING = re.compile(r"""["']([a-z_]+\.[\w.-]+)["']""")
"""A key that is handed on: `change(enable, "task.enabled")`, `t("a.b" if x else "c.d")`."""
BEGINNINGS = re.compile(
    r"""["']([a-z_]+\.(?:[a-z_]+\.)?[a-z_]*)["'] ~|f["']([a-z_]+\.[a-z_]*)\{|["']([a-z_]+\.(?:[a-z_]+\.)?)["'](?:,|\))"""
)
"""`"status." ~ name`, `f"bulk.{act}"`, a prefix that a macro is given."""


def used() -> set[str]:
    return {key for text in SOURCES.values() for key in (*WHOLE.findall(text), *IN_PASSING.findall(text))}


def beginnings() -> tuple[str, ...]:
    return tuple({next(filter(None, found)) for text in SOURCES.values() for found in BEGINNINGS.findall(text)})


def test_every_language_has_the_same_keys():
    keys = {lang: set(catalogue(lang)) for lang in LANGUAGES}
    assert keys["en"] ^ keys["zh"] == set()


def test_no_key_that_a_page_asks_for_is_missing():
    asked = {key for text in SOURCES.values() for key in WHOLE.findall(text)}
    assert len(asked) > 300
    assert sorted(asked - set(catalogue("en"))) == []


def test_no_key_is_without_a_use():
    known, starts = used(), beginnings()
    assert sorted(key for key in catalogue("en") if key not in known and not key.startswith(starts)) == []


def test_a_text_takes_the_same_facts_in_every_language():
    english, chinese = catalogue("en"), catalogue("zh")
    assert [key for key in english if facts(english[key]) != facts(chinese[key])] == []


def facts(text: str) -> set[str]:
    return {
        name
        for _, name, _, _ in Formatter().parse(text.rsplit("|", maxsplit=1)[-1].replace("{{", "").replace("}}", ""))
        if name
    }


@pytest.mark.parametrize("status", [*RunStatus, *TaskStatus, *WorkerState])
def test_every_status_has_its_word(status):
    assert all(f"status.{status}" in catalogue(lang) for lang in LANGUAGES)


@pytest.mark.parametrize("key", [*(f"origin.{each}" for each in Origin), *(f"skip.{each}" for each in SkipReason)])
def test_every_origin_and_reason_has_its_words(key):
    assert all(key in catalogue(lang) for lang in LANGUAGES)


def test_one_is_told_from_many():
    words = Translator("en")
    assert words("bulk.done_disable", n=1) == "1 task paused."
    assert words("bulk.done_disable", n=2) == "2 tasks paused."


def test_a_language_that_is_not_there_is_english():
    assert Translator("fr")("nav.tasks") == "Tasks"
