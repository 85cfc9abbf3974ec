"""Why something ran, or did not, as a page says it: the sentences of `explain` with times, runs and statuses as pages show
them everywhere, on the clock that the visitor has chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup, escape

from noonbell.policy.past import Stretch
from noonbell.service import explain_words
from noonbell.service.account import Life
from noonbell.service.explain_json import TIMES
from noonbell.service.finding import Finding
from noonbell.web import render, times
from noonbell.web.badges import badge
from noonbell.web.visit import Visit

_RUNS: Final = frozenset({"run", "blocking"})
"""The facts that are ids of runs."""


@dataclass(frozen=True, slots=True)
class Explained:
    cause: str
    key: str
    """The sentence, where a cause has several."""
    text: Markup
    run_id: int | None = None
    blocking_run_id: int | None = None


def explained(visit: Visit, found: Finding, *, here: int | None = None) -> Explained:
    """`here` is the run whose page it is: it is not linked to, and its error stands above the sentence already."""
    key = found.key or found.cause
    if here is not None and key == "ran_badly":
        key = "ran"
    said = [(key, found.facts), *found.more]
    text = Markup(" ").join(_sentence(visit, each, facts, here) for each, facts in said)
    return Explained(found.cause, key, text, found.run_id, found.blocking_run_id)


def unclear(message: str) -> Explained:
    """The question was none that can be answered."""
    return Explained("", "", escape(message))


def of(visit: Visit, told: tuple[Life, Finding], *, here: int | None = None) -> Explained:
    return explained(visit, told[1], here=here)


def _sentence(visit: Visit, key: str, facts: Mapping[str, Any], here: int | None) -> Markup:
    text = explain_words.SENTENCES[key][visit.words.lang == "zh"]
    return Markup(text).format(**{name: _word(visit, name, value, here) for name, value in facts.items()})  # noqa: S704 - ours


def _word(visit: Visit, name: str, value: Any, here: int | None) -> Markup | str:
    chinese = visit.words.lang == "zh"
    if isinstance(value, Stretch):
        return "" if value.schedule is None else value.schedule.describe(visit.words.lang)
    if value is None:
        return explain_words.SOMEBODY[chinese] if name == "actor" else explain_words.NONE[chinese]
    if name in TIMES:
        return render.moment(visit, value, relative=False)
    if name == "span":
        return times.span(value, visit.words)
    if name == "status":
        return badge(str(value), visit.words)
    if name in _RUNS:
        return Markup('<span class="mono">{}</span>').format(value) if value == here else _link(visit, value)
    return str(value)


def _link(visit: Visit, run_id: int) -> Markup:
    return Markup('<a class="mono" href="{}">{}</a>').format(visit.url(f"/runs/{run_id}"), run_id)
