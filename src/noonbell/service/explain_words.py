"""A finding as the API tells it: one message in the reader's language, the policy that decided, times in the zone of the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from noonbell.clock import instant_of, rfc3339, rfc3339_or_none, slot_of
from noonbell.fields import Moment, meta
from noonbell.model.run import DropReason, RunId
from noonbell.model.task import TaskSpec
from noonbell.policy.slot_history import VersionSpan
from noonbell.service.account import TaskHistory
from noonbell.service.explain_findings import CAUSES, SlotFinding
from noonbell.service.translation import FailureFact, Translator, problem_words
from noonbell.when import zones

_POLICIES: Final[Mapping[str, tuple[str, ...]]] = {
    "overlap": ("overlap_action",),
    "failure": ("failure_action",),
    "backoff": ("failure_action", "retry_policy"),
    "circuit_open": ("failure_action", "circuit"),
    "concurrency": ("concurrency_policy", "max_concurrency"),
    "queue_full": ("concurrency_policy", "max_concurrency", "queue_depth"),
    "rate_limited": ("rate_limit",),
    "key_full": ("concurrency_key", "max_per_key"),
    "misfire": ("misfire_policy", "misfire_grace_seconds"),
    "catchup_cap": ("misfire_policy",),
    "store_went_back": ("delivery",),
    "paused_dropped": ("misfire_policy", "misfire_grace_seconds"),
    "lost": ("on_lost", "max_lost"),
    "expired": ("expires_in_seconds",),
    "concurrency_queue": (),
    "concurrency_queue_shut": (),
    "calendar": ("calendar",),
    "quiet": ("quiet", "spread_seconds"),
    "canceled_replaced": ("overlap_action",),
}
"""The fields of a task that decided, by cause or by the key of the sentence."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    cause: Annotated[str, meta(examples=["overlap"], schema={"enum": list(CAUSES)})]
    message: Annotated[str, meta(examples=["Skipped: run 7340031 of the task was not over yet (overlap_action SKIP)."])]
    slot: Annotated[Moment | None, meta("Null where the moment is none.")]
    run_id: Annotated[RunId | None, meta(examples=[7340033])]
    blocking_run_id: Annotated[RunId | None, meta("The run that stood in the way.", examples=[7340031])]
    policy: Annotated[
        dict[str, Any] | None,
        meta("The fields of the task that decided, with their values then.", examples=[{"overlap_action": "SKIP"}]),
    ]
    actor: Annotated[str | None, meta("Who disabled, deleted, paused, canceled or skipped.", examples=[None])]
    since: Annotated[Moment | None, meta("Since when, or when it happened.", examples=[None])]
    next_slot: Annotated[Moment | None, meta("When it fires next.", examples=["2026-11-15T02:35:00Z"])]


def shown(history: TaskHistory, found: SlotFinding, lang: str) -> dict[str, Any]:
    told = _Teller(history, found, lang)
    return {
        "cause": found.cause,
        "message": " ".join(told.sentences()),
        "slot": None if found.slot is None else rfc3339(instant_of(found.slot)),
        "run_id": found.run_id,
        "blocking_run_id": found.blocking_run_id,
        "policy": _policy(told.spec, found),
        "actor": found.actor,
        "since": rfc3339_or_none(found.since),
        "next_slot": rfc3339_or_none(history.task.next_fire_at),
    }


def _policy(spec: TaskSpec, found: SlotFinding) -> dict[str, Any] | None:
    names = _POLICIES.get(found.key, _POLICIES.get(found.cause))
    said = {name: getattr(spec, name) for name in names or ()}
    return None if all(value is None for value in said.values()) else said  # what its task does not say has not decided


class _Teller:
    """Facts as words: times in the zone that the task had."""

    def __init__(self, history: TaskHistory, found: SlotFinding, lang: str) -> None:
        stretch = None if found.slot is None else history.at(found.slot)
        self.spec = history.task.spec if stretch is None else stretch.spec
        self._found, self._words, self._zone = found, Translator(lang), zones.find(self.spec.timezone)

    def sentences(self) -> list[str]:
        said = [(self._found.key or self._found.cause, self._found.facts), *self._found.more]
        told = [(key, {name: self._word(name, value) for name, value in facts.items()}) for key, facts in said]
        return [self._words(f"finding.{key}", **facts) for key, facts in told]

    def _word(self, name: str, value: Any) -> str:
        if isinstance(value, VersionSpan):
            return "" if value.schedule is None else value.schedule.describe(self._words.lang)
        if isinstance(value, FailureFact):
            return value.in_words(self._words)
        if value is None:
            return self._words("finding_word.somebody" if name == "actor" else "finding_word.none")
        if name in TIMES:
            return self._zone.local(int(slot_of(value))).isoformat(" ")
        return span(value, self._words) if name == "span" else code_words(name, value, self._words)


def code_words(name: str, value: Any, words: Translator) -> str:
    """A fact. English sentences name statuses, origins and reasons as the API does, others in their own words."""
    if isinstance(value, DropReason):
        return problem_words(value, words)
    begin = {"status": "status", "origin": "origin", "rule": "sla.rule"}.get(name)
    return str(value) if begin is None or words.lang == "en" else words.get(f"{begin}.{value}", str(value))


def span(seconds: float, words: Translator) -> str:
    """The two largest units that say something: `3 d 13 h`, `12 min 5 s`, `0 s`."""
    days, rest = divmod(max(0, int(seconds)), 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    begin = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(
        f"{count} {words(f'finding_unit.{unit}')}" for count, unit in parts[begin : begin + 2] if count or begin == 3
    )


TIMES: Final = frozenset(
    {"at", "slot", "started", "ended", "since", "until", "planned", "before", "after", "last"},
)
"""The facts that are moments, of all sentences."""
