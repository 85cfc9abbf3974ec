"""Alerts in the reader's language: from the codes and facts of states and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.model.alert import AlertDelivery, AlertMessageType
from noonbell.model.failure_text import CAUSE, SAID
from noonbell.policy.alerts import TEXTS
from noonbell.service.explain_words import span
from noonbell.service.translation import Translator, exchange_words, failure_words, problem_words

_NAMED: Final = 20
"""Tasks that a message about many names."""


def said_in_words(code: str, facts: Mapping[str, Any], message: str, words: Translator) -> str:
    """What is wrong. `message`: as it was written, for what was raised before there were codes."""
    if code not in TEXTS:
        return message
    told = {name: value for name, value in facts.items() if name not in (SAID, CAUSE)}
    if SAID in facts:
        told["error"] = failure_words(str(told.get("error", "")), facts, words)
    if "status" in told:
        told["status"] = words.get(f"status.{told['status']}", str(told["status"]))
    if "rule" in told:
        told["rule"] = words.get(f"sla.rule.{told['rule']}", str(told["rule"]))
    if code == "slots_dropped":
        told["reason"] = problem_words(str(told.get("reason")), words)
    if code == "subscription_disabled":
        told["reason"] = exchange_words(str(told.get("reason")), words)
    if isinstance(told.get("seconds"), int):
        told["span"] = span(told["seconds"], words)
    try:
        return words(f"alert_said.{code}", **told)
    except (KeyError, IndexError, ValueError):
        return message


def message_of(delivery: AlertDelivery) -> dict[str, Any]:
    """What is sent: without what the last attempt said."""
    return {name: value for name, value in delivery.notice.items() if name != SAID}


def in_language(notice: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """A message to a channel, with title and text in its language."""
    if lang == "en" or not notice.get("code"):
        return dict(notice)
    words = Translator(lang)
    said = said_in_words(notice["code"], notice.get("facts") or {}, notice["message"], words)
    is_over = notice["type"] == AlertMessageType.RECOVERED
    names = list(notice.get("names") or ())
    name = notice.get("task_name") or (names[0] if names else notice["subject"])
    about = {"name": name, "count": notice.get("count", 0)}
    kind = notice["kind"]
    title = words(f"alert_over.{kind}", **about) if is_over else words(f"alert_title.{kind}", **about)
    if is_over:
        said = words("alert.began", since=notice.get("since"), said=said)
    if names:
        title = words("alert.others", title=title, n=len(names) - 1)
        listed = words.marks.item.join(names[:_NAMED])
        more = words("alert.more_names", n=len(names) - _NAMED) if len(names) > _NAMED else ""
        said = words("alert.many", names=f"{listed}{more}", name=name, said=said)
    return {**notice, "title": title, "message": said}
