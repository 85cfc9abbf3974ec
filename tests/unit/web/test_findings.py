"""What the doctor finds, what people did and what rules watch for: in every language, and in English as the command line says it."""

from __future__ import annotations

import pytest

from noonbell.api.roles import ROLES, UNTOLD
from noonbell.model.access import Role
from noonbell.model.alert import RuleKind
from noonbell.service.doctor import Finding, Mark, finding
from noonbell.service.doctor_words import ENGLISH
from noonbell.web.activity.deeds import GROUPS, word_of_deed, word_of_event
from noonbell.web.activity.system import KINDS
from noonbell.web.findings import report, said
from noonbell.web.words import LANGUAGES, Words, catalogue


@pytest.mark.parametrize("code", ENGLISH)
def test_every_finding_is_said_in_every_language_and_in_english_as_on_the_command_line(code):
    says, fix = ENGLISH[code]
    assert catalogue("en")[f"doctor.{code}"] == says
    assert catalogue("en").get(f"doctor.{code}.fix", "") == fix
    assert all((f"doctor.{code}.fix" in catalogue(lang)) is bool(fix) for lang in LANGUAGES)


def test_a_finding_is_told_in_the_language_of_the_page_with_its_facts():
    found = finding("planner", Mark.ILL, "planner_late", n=3, name="nightly", since="2026-11-15T02:00:00Z")
    told = said(found, Words("zh"))
    assert told.check == "计划"
    assert "3 个任务" in told.says
    assert "nightly" in told.says
    assert "noonbell serve" in told.fix
    assert found.says.startswith("3 tasks have slots that nobody planned, the oldest 'nightly'")


def test_a_finding_without_a_code_says_what_it_says():
    told = said(Finding("schema", Mark.CARE, "is at step 3", "noonbell migrate"), Words("zh"))
    assert (told.check, told.says, told.fix) == ("schema", "is at step 3", "noonbell migrate")


def test_the_report_is_the_same_for_everybody():
    text = report([finding("queues", Mark.CARE, "queue_paused", name="pdf", n=2)], "sqlite")
    assert text.splitlines()[1:] == [
        "[care] queues: 'pdf' is paused with 2 waiting",
        "    -> noonbell queue resume pdf, when that is over",
    ]


CHANGES = sorted(name for name, role in ROLES.items() if role is not Role.VIEWER and name not in UNTOLD)


@pytest.mark.parametrize("action", [name for name in CHANGES if name not in ("list_tokens", "audit_log")])
def test_whatever_is_written_into_the_audit_log_has_its_word(action):
    assert all(word_of_deed(action, Words(lang)) != action for lang in LANGUAGES)


def test_groups_name_what_the_api_has():
    by_command_line = {"rotate_secrets"}
    assert sorted({each for group in GROUPS.values() for each in group} - ROLES.keys() - by_command_line) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_has_its_words(kind):
    types = [f"{kind}.{what}" for what in KINDS[kind]]
    assert all(word_of_event(type_, Words(lang)) != type_ for lang in LANGUAGES for type_ in types)


@pytest.mark.parametrize("kind", RuleKind)
def test_every_kind_of_rule_has_its_words(kind):
    assert all(f"rule.{kind}" in catalogue(lang) for lang in LANGUAGES)
