"""What the doctor finds, what people did and what rules watch for: in every language, and in English as the command line says it."""

from __future__ import annotations

import inspect
import re

import pytest

from noonbell.model.access import Role
from noonbell.model.alert import RuleKind
from noonbell.model.worker import Lack
from noonbell.service import doctor
from noonbell.service.doctor import CheckStatus, Finding, finding
from noonbell.service.translation import LANGUAGES, Translator, catalogue
from noonbell.web.activity import ACTION_GROUPS, EVENT_KINDS
from noonbell.web.recent import finding_text, findings_report
from services.endpoints import endpoint_table

CODES = sorted(set(re.findall(r'(?:CheckStatus\.\w+,\s*| else )"([a-z]\w+)"', inspect.getsource(doctor))))


@pytest.mark.parametrize("code", [*CODES, *(f"lacks_{lack}" for lack in Lack if lack is not Lack.QUEUE)])
def test_every_finding_is_said_in_every_language(code):
    assert all(f"doctor.{code}" in catalogue(lang) for lang in LANGUAGES)


def test_a_finding_is_told_in_the_language_of_the_page_with_its_facts():
    found = finding("planner", CheckStatus.ILL, "planner_late", n=3, name="nightly", since="2026-11-15T02:00:00Z")
    told = finding_text(found, Translator("zh"))
    assert told.check == "调度进度"
    assert "3 个任务" in told.says
    assert "nightly" in told.says
    assert "noonbell serve" in told.fix
    assert found.says.startswith("3 tasks have slots that no node planned; the oldest: nightly, since")


def test_a_finding_without_a_code_says_what_it_says():
    told = finding_text(Finding("schema", CheckStatus.CARE, "is at step 3", "noonbell migrate"), Translator("zh"))
    assert (told.check, told.says, told.fix) == ("schema", "is at step 3", "noonbell migrate")


def test_the_report_is_the_same_for_everybody():
    text = findings_report([finding("queues", CheckStatus.CARE, "queue_paused", name="pdf", n=2)], "sqlite")
    assert text.splitlines()[1:] == [
        "[care] queues: queue pdf is paused; 2 waiting",
        "    -> to resume it: noonbell queue resume pdf",
    ]


ENDPOINTS = {each.name: each for each in endpoint_table()}
CHANGES = sorted(
    name
    for name, each in ENDPOINTS.items()
    if each.role not in (None, Role.VIEWER) and each.is_audited and each.methods != ("GET",)
)


@pytest.mark.parametrize("action", CHANGES)
def test_whatever_is_written_into_the_audit_log_has_its_word(action):
    assert all(Translator(lang).has(f"deed.{action}") for lang in LANGUAGES)


def test_groups_name_what_the_api_has():
    by_command_line = {"rotate_secrets", "sign_audit_log"}
    assert (
        sorted({each for group in ACTION_GROUPS.values() for each in group} - ENDPOINTS.keys() - by_command_line) == []
    )


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_event_has_its_words(kind):
    types = [f"{kind}.{what}" for what in EVENT_KINDS[kind]]
    assert all(Translator(lang).has(f"event.{type_}") for lang in LANGUAGES for type_ in types)


@pytest.mark.parametrize("kind", RuleKind)
def test_every_kind_of_rule_has_its_words(kind):
    assert all(f"rule.{kind}" in catalogue(lang) for lang in LANGUAGES)
