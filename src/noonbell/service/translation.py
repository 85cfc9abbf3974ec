"""Texts in the reader's language, for the dashboard and for sentences that the API answers with.

Each language has one complete catalogue in `locales/`; a test compares the catalogues and their uses. `a|b` in a text
separates singular from plural: `n` chooses. What is wrong with fields has catalogues of its own, in `locales/problems/`, by
its English templates (decision 0182). Schedules are put into words by `when`, which knows the grammar of each language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from importlib.resources import files
from string import Formatter
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.errors import InvalidArgument, NoonbellError, Sentence, both
from noonbell.model.failure_text import CAUSE, GIVEN_UP, SAID, TEXTS

LANGUAGES: Final = {"en": "English", "zh": "简体中文"}


class Marks(NamedTuple):
    """Punctuation between parts that a page puts together."""

    comma: str
    item: str
    """Between the items of a list."""
    colon: str
    stop: str
    aside: str
    """What stands in brackets after something."""


MARKS: Final = {"en": Marks(", ", ", ", ": ", ". ", " ({})"), "zh": Marks("，", "、", "：", "。", "（{}）")}


@cache
def catalogue(lang: str) -> dict[str, str]:
    text = files("noonbell.service").joinpath("locales", f"{lang}.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, str])


def language(wanted: str) -> str:
    """`en` or `zh`, from a word such as `zh-CN` or a whole `Accept-Language`."""
    for part in wanted.split(","):
        word = part.strip()[:2].lower()
        if word in LANGUAGES:
            return word
    return "en"


def wanted_language(cookies: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """What a browser asks for: the reader's choice in the dashboard, else what its headers say. For `language`."""
    return (cookies.get("noonbell_lang") or headers.get("accept-language", "en"))[:100]


def counted(number: int) -> str:
    """A count as every page and text has it: 5,000."""
    return f"{number:,}"


@cache
def _known_problems(lang: str) -> dict[str, str]:
    """What is wrong with fields, by the English template."""
    text = files("noonbell.service").joinpath("locales", "problems", f"{lang}.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, str])


def problem_words(problem: str, words: Translator) -> str:
    """What is wrong with a field, in the reader's language; in English where a part of it is not known there."""
    if words.lang == "en":
        return problem
    return _problem(problem, _known_problems(words.lang), words) or problem


def error_words(error: NoonbellError, words: Translator) -> str:
    """What an error says, in the reader's language as far as it is known there."""
    named = [Sentence("{name}: {problem}", name=name, problem=each) for name, each in error.sentences.items()]
    whole = reduce(both, named) if named and isinstance(error, InvalidArgument) else error.sentence
    return problem_words(whole if whole == error.message else error.sentence, words)


def _problem(problem: str, known: Mapping[str, str], words: Translator) -> str | None:
    if not isinstance(problem, Sentence):
        return known.get(problem)
    template = known.get(problem.template)
    told = {name: _problem(fact, known, words) for name, fact in problem.facts.items() if name in _IN_WORDS}
    if "status" in problem.facts:
        told["status"] = words.get(f"status.{problem.facts['status']}", str(problem.facts["status"]))
    if "denied" in problem.facts:
        told["denied"] = exchange_words(problem.facts["denied"], words)
    return None if template is None or None in told.values() else template.format(**{**problem.facts, **told})


_IN_WORDS: Final = frozenset({"what", "problem", "first", "second", "field", "noun"})
"""Facts of a Sentence that are sentences themselves; the others are values, names and numbers."""


def recognized(text: str, templates: Iterable[str]) -> str:
    """A text that was kept as plain English, as the Sentence that it was; itself where no template fits."""
    for template in templates if len(text) <= _LONGEST else ():
        if found := _pattern(template).fullmatch(text):
            return Sentence(template, **found.groupdict())
    return text


_LONGEST: Final = 2_000
"""A template with two placeholders takes time that grows with the square of the text."""


@cache
def _pattern(template: str) -> re.Pattern[str]:
    parts = ((re.escape(plain), name) for plain, name, _, _ in Formatter().parse(template))
    return re.compile("".join(plain + (f"(?P<{name}>.+?)" if name else "") for plain, name in parts), re.DOTALL)


_OF_EXCHANGES: Final = (
    *("source_answered", "source_too_large"),
    *("refused", "no_connection", "no_answer_of", "no_whole_answer", "no_such_host", "host_unreachable"),
    *(
        "network_unreachable",
        "unreachable",
        "lost_in_answer",
        "lost_after_sending",
        "not_http",
        "broken_body",
        "tls_failed",
    ),
    *("port_denied", "address_denied", "scheme_denied", "alert_answered"),
)
"""Codes of what can go wrong with a request to the receiver of a webhook, or to the source of a calendar."""


def exchange_words(error: str, words: Translator) -> str:
    """Why a webhook was not delivered, its subscription disabled or a calendar not fetched: stored as English text alone."""
    if words.lang == "en":
        return error
    whole = recognized(error, (GIVEN_UP,))
    if isinstance(whole, Sentence):
        facts = {**whole.facts, "error": exchange_words(whole.facts["error"], words)}
        return problem_words(Sentence(GIVEN_UP, **facts), words)
    said = re.sub(r"^[a-z_]+: ", "", error)
    for code in _OF_EXCHANGES:
        found = recognized(said, (TEXTS[code],))
        if found == TEXTS[code] or isinstance(found, Sentence):
            return failure_words(said, {SAID: {"code": code, "facts": getattr(found, "facts", {})}}, words)
    return error


def failure_words(message: str | None, details: Mapping[str, Any] | None, words: Translator) -> str:
    """What went wrong, in the reader's language where Noonbell said it; in their own words where a target or a handler did."""
    said = (details or {}).get(SAID, _canceled(message, details or {}))
    if not isinstance(said, Mapping) or said.get("code") not in TEXTS or not isinstance(said.get("facts"), Mapping):
        return message or ""
    if not said["facts"] and "{" in TEXTS[said["code"]]:
        return message or ""
    facts = dict(said["facts"])
    if said["code"] == "address_denied":  # why, in a few words of ours
        why = str(facts.get("error"))
        facts["error"] = words.get(f"denied.{re.sub(r'[^a-z0-9]+', '_', why.lower())}", why)
    kinds: dict[str, str] = {}
    cause = (details or {}).get(CAUSE)
    if isinstance(cause, Mapping) and isinstance(facts.get("error"), str):  # of a flow: why its step failed
        ran = "run_id" in cause
        facts["error"] = failure_words(facts["error"], cause, words) if ran else step_words(facts["error"], words)
    if said["code"].startswith(_OF_INPUTS):  # the kind of a value, and what is wrong with an item
        kinds = _kinds_of_values(facts, words)
        facts.update(kinds)
        if isinstance(facts.get("error"), str):
            facts["error"] = step_words(facts["error"], words)
    try:
        told = words(f"failure.{said['code']}", **facts)
        for kind in kinds.values():  # Chinese has no spaces around its own words
            told = told.replace(f" {kind}", kind).replace(f"{kind} ", kind)
        return told
    except (KeyError, IndexError, ValueError):  # a handler may call one of its own details the same
        return message or ""


_OF_INPUTS: Final = "input_"
"""How the codes begin that say why a step of a flow could not be given what it needs."""


def _kinds_of_values(facts: Mapping[str, Any], words: Translator) -> dict[str, str]:
    """Those of these facts that say what a value is, such as "a list", where the reader's language has another word."""
    known = _known_problems(words.lang) if words.lang != "en" else {}
    return {
        name: known[value]
        for name in ("found", "other")
        if isinstance(value := facts.get(name), str) and value in known
    }


def step_words(error: str, words: Translator) -> str:
    """Why a step had no run: stored as English text alone. Anything else as it is."""
    if words.lang == "en":
        return error
    for code in TEXTS:
        if code.startswith(_OF_INPUTS):
            found = recognized(error, (TEXTS[code],))
            if isinstance(found, Sentence):
                return failure_words(error, {SAID: {"code": code, "facts": found.facts}}, words)
    return error


def _canceled(message: str | None, details: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is said of a run that was canceled; None where whoever canceled it has said so in their own words."""
    if details.get("kind") != "canceled":
        return None
    by, why = details.get("by"), details.get("why")
    code = f"canceled_{why}" if why else "canceled_by" if by else "canceled"
    facts = {"by": by} if code == "canceled_by" else {}
    is_ours = code in TEXTS and TEXTS[code].format(**facts) == message
    return {"code": code, "facts": facts} if is_ours else None


class FailureFact(NamedTuple):
    """What went wrong with a run, as a fact of a sentence."""

    message: str
    details: Mapping[str, Any] | None

    def in_words(self, words: Translator) -> str:
        return failure_words(self.message, self.details, words).rstrip(".")


class Translator:
    """`words("bulk.done_disable", n=3)`. A key that is not there is a mistake of the caller, and raised."""

    def __init__(self, lang: str) -> None:
        self.lang = lang if lang in LANGUAGES else "en"
        self.marks = MARKS[self.lang]
        self._texts = catalogue(self.lang)

    def __call__(self, key: str, /, **facts: Any) -> str:
        text = self._texts[key]
        if "|" in text and "n" in facts:
            one, many = text.split("|", 1)
            text = one if facts["n"] == 1 else many
        if isinstance(facts.get("n"), int):
            facts["n"] = counted(facts["n"])
        return text.format(**facts) if facts else text

    def has(self, key: str) -> bool:
        return key in self._texts

    def get(self, key: str, default: str) -> str:
        """For what services and users name: a status, an operation, an event."""
        return self._texts.get(key, default)
