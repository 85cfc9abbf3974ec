"""A finding as the answer of `explain`: its sentence, its times, and the fields of the task that decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.clock import instant_of, rfc3339, slot_of
from noonbell.model.task import TaskSpec
from noonbell.policy.past import Stretch
from noonbell.service import explain_words as words
from noonbell.service.account import Life
from noonbell.service.finding import Finding
from noonbell.when import zones

_POLICIES: Final[Mapping[str, tuple[str, ...]]] = {
    "overlap": ("overlap_action",),
    "failure": ("failure_action",),
    "backoff": ("failure_action", "retry_policy"),
    "circuit_open": ("failure_action", "circuit"),
    "concurrency": ("concurrency_policy", "max_concurrency"),
    "queue_full": ("concurrency_policy", "max_concurrency", "queue_depth"),
    "rate_limited": ("rate_limit",),
    "misfire": ("misfire_policy", "misfire_grace_seconds"),
    "catchup_cap": ("misfire_policy",),
    "lost": ("on_lost", "max_lost"),
    "canceled_replaced": ("overlap_action",),
}
"""The fields of a task that decided, by cause or by the key of the sentence."""


def shown(life: Life, found: Finding, lang: str) -> dict[str, Any]:
    told = _Teller(life, found, lang)
    return {
        "cause": found.cause,
        "message": " ".join(told.sentences()),
        "slot": None if found.slot is None else rfc3339(instant_of(found.slot)),
        "run_id": found.run_id,
        "blocking_run_id": found.blocking_run_id,
        "policy": _policy(told.spec, found),
        "actor": found.actor,
        "since": None if found.since is None else rfc3339(found.since),
        "next_slot": None if life.task.next_fire_at is None else rfc3339(life.task.next_fire_at),
    }


def _policy(spec: TaskSpec, found: Finding) -> dict[str, Any] | None:
    names = _POLICIES.get(found.key) or _POLICIES.get(found.cause)
    return None if names is None else {name: getattr(spec, name) for name in names}


class _Teller:
    """Facts as words: times in the zone that the task had."""

    def __init__(self, life: Life, found: Finding, lang: str) -> None:
        stretch = None if found.slot is None else life.at(found.slot)
        self.spec = life.task.spec if stretch is None else stretch.spec
        self._found, self._lang, self._zone = found, lang, zones.find(self.spec.timezone)

    def sentences(self) -> list[str]:
        key = self._found.key or self._found.cause
        said = [(key, self._found.facts), *self._found.more]
        return [words.sentence(key, self._lang, {n: self._word(n, v) for n, v in facts.items()}) for key, facts in said]

    def _word(self, name: str, value: Any) -> str:
        chinese = self._lang == "zh"
        if isinstance(value, Stretch):
            return "" if value.schedule is None else value.schedule.describe(self._lang)
        if value is None:
            return words.SOMEBODY[chinese] if name == "actor" else words.NONE[chinese]
        if name in TIMES:
            return self._zone.local(int(slot_of(value))).isoformat(" ")
        return words.span(value, self._lang) if name == "span" else str(value)


TIMES: Final = frozenset(
    {"at", "slot", "started", "ended", "since", "until", "planned", "before", "after", "last"},
)
"""The facts that are moments, whatever sentence they stand in."""
