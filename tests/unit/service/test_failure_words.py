"""What went wrong is stored as a code with facts, and read in the reader's language."""

from __future__ import annotations

import re

import pytest

from noonbell.alerts.wording import in_language, said_in_words
from noonbell.engine.settle import failure
from noonbell.model.alert import AlertMessageType, AlertState, Rule, RuleKind
from noonbell.model.failure_text import TEXTS, failure_text, said_by
from noonbell.policy import alerts
from noonbell.service.translation import Translator, catalogue, failure_words, step_words
from noonbell.targets.http.guard import DENIED

ZH = Translator("zh")


def facts_in(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


@pytest.mark.parametrize("prefix, texts", [("failure.", TEXTS), ("alert_said.", alerts.TEXTS)])
def test_every_sentence_is_in_both_catalogues(prefix: str, texts: dict[str, str]):
    for code, text in texts.items():
        assert catalogue("en")[f"{prefix}{code}"] == text
        assert facts_in(catalogue("zh")[f"{prefix}{code}"]) == facts_in(text)
    for lang in ("en", "zh"):
        assert {key.removeprefix(prefix) for key in catalogue(lang) if key.startswith(prefix)} == set(texts)


@pytest.mark.parametrize("kind", list(RuleKind))
@pytest.mark.parametrize("what", [AlertMessageType.RAISED, AlertMessageType.RECOVERED])
def test_titles_of_alerts_are_the_same_in_policy_and_catalogue(kind: RuleKind, what: AlertMessageType):
    state = AlertState(rule="r", subject="task:1", since=0, told_at=0, task_name="t", count=3)  # type: ignore[arg-type]
    made = alerts.notice(what, Rule(name="r", kind=kind), state)
    key = "over" if what is AlertMessageType.RECOVERED else "title"
    assert made.title == Translator("en")(f"alert_{key}.{kind}", name="t", count=3)


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_a_failure_is_told_in_chinese(code: str):
    facts = {name: f"<{name}>" for name in facts_in(TEXTS[code])}
    outcome = failure("error", failure_text(code, **facts))
    assert outcome.error_message == TEXTS[code].format(**facts)
    assert type(outcome.error_message) is str
    told = failure_words(outcome.error_message, outcome.error_details, ZH)
    assert told == catalogue("zh")[f"failure.{code}"].format(**facts)
    assert not re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", re.sub(r"`[^`]*`", "", told)), "no English sentence"


@pytest.mark.parametrize(
    ("message", "details", "told"),
    [
        ("canceled", {}, "已取消"),
        ("canceled by alice", {"by": "alice"}, "已被 alice 取消"),
        ("its flow has ended", {"why": "flow"}, "所属流程已结束"),
        ("its task was deleted", {"why": "deleted", "by": "alice"}, "所属任务已删除"),
        ("not today", {"by": "alice"}, "not today"),
        ("not today", {"why": "flow"}, "not today"),
        ("canceled", {"why": "something new"}, "canceled"),
    ],
)
def test_why_a_run_was_canceled_is_told_in_chinese_or_in_the_words_of_whoever_did_it(
    message: str, details: dict[str, str], told: str
):
    assert failure_words(message, {"kind": "canceled", **details}, ZH) == told


@pytest.mark.parametrize(
    "details",
    [
        None,
        {},
        {"said": "hello"},
        {"said": {"code": "answered"}},
        {"said": {"code": "answered", "facts": {}}},
        {"said": {"code": "__class__", "facts": {}}},
        {"said": {"code": "none", "facts": {"status": 1}}},
    ],
)
def test_what_a_handler_says_is_left_as_it_is(details):
    assert failure_words("KeyError: 'x'", details, ZH) == "KeyError: 'x'"


def test_why_an_address_is_denied_is_told_too():
    for reason in {*DENIED.values(), "denied by executor.deny_networks"}:
        said = said_by(failure_text("address_denied", address="x", error=reason))
        assert reason in failure_words("", said, Translator("en"))
        assert re.search("[一-鿿]", failure_words("", said, ZH).split("；")[0]), reason


def test_facts_lose_their_secrets():
    said = failure_text("tls_failed", error="bad hunter2")
    assert said_by(said, lambda text: text.replace("hunter2", "***"))["said"]["facts"] == {"error": "bad ***"}
    assert said_by("plain") == {}


def test_an_alert_is_told_in_the_language_of_its_channel():
    said = {"code": "answered", "facts": {"status": "503 Service Unavailable"}}
    facts = {"run": 7, "status": "FAILED", "error": "the target returned 503 Service Unavailable", "said": said}
    message = alerts.in_english("ended_with", facts)
    assert message == "run 7 ended FAILED: the target returned 503 Service Unavailable"
    state = AlertState(
        rule="r",
        subject="task:1",
        since=0,
        told_at=0,
        task_name="报表",
        message=message,
        code="ended_with",
        facts=facts,
    )  # type: ignore[arg-type]
    rule = Rule(name="r", kind=RuleKind.FAILED)
    made = alerts.notice(AlertMessageType.RAISED, rule, state)
    import msgspec

    sent = in_language(msgspec.to_builtins(made), "zh")
    assert sent["title"] == "报表 失败"
    assert sent["message"] == "执行 7 结束：失败，目标返回 503 Service Unavailable"
    assert in_language(msgspec.to_builtins(made), "en") == msgspec.to_builtins(made)
    many = alerts.grouped(AlertMessageType.RAISED, rule, [state] * 7)
    sent = in_language(msgspec.to_builtins(many), "zh")
    assert sent["title"] == "报表 失败，另有 6 个任务"
    assert "目标返回 503" in sent["message"]
    over = in_language(msgspec.to_builtins(alerts.notice(AlertMessageType.RECOVERED, rule, state)), "zh")
    assert over["message"].startswith("开始于 ")


def test_an_alert_from_before_there_were_codes_keeps_its_words():
    assert said_in_words("", {}, "run 7 ended FAILED", ZH) == "run 7 ended FAILED"


@pytest.mark.parametrize("code", sorted(code for code in TEXTS if code.startswith("input_")))
def test_why_a_step_had_no_run_is_known_by_its_text(code: str):
    """It is stored as text alone: of two texts that fit, the one that was made is found."""
    facts = {name: f"<{name}>" for name in facts_in(TEXTS[code])}
    told = step_words(TEXTS[code].format(**facts), ZH)
    assert told == catalogue("zh")[f"failure.{code}"].format(**facts)


def test_kinds_of_values_and_errors_of_items_are_told_in_chinese_too():
    error = failure_text("input_not_in", right="payload.x", found="null")
    item = str(failure_text("input_item", index=3, error=str(error)))
    assert step_words(item, ZH) == "第 3 项：payload.x 是 null；'in' 只能用于列表、文本或对象"
    assert step_words("the disk is full", ZH) == "the disk is full"
