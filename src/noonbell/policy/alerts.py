"""Which alerts to raise and which are over: pure decisions over events and readings.

    a rule sees something bad     it is counted; enough of it, and the alert is raised: told once
    it goes on                    counted, not told; told again after `repeat_seconds`, where the rule says so
    all is well again             the state goes; an alert that was raised sends that it is over
    it is muted                   it is raised and shown, and nothing is sent; if it still lasts when the mute ends, a message is sent then
    it is acknowledged            no more messages but that it is over

A rule remembers one state for each task. So a task that fails every minute alerts once, and says when it is well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.model.alert import (
    BY_EVENT,
    MOST_RULES,
    AlertMessage,
    AlertMessageType,
    AlertState,
    AlertStep,
    Mute,
    OverdueTask,
    Rule,
    RuleKind,
)
from noonbell.model.event import Event
from noonbell.model.failure_text import CAUSE, SAID

_BAD: Mapping[RuleKind, frozenset[str]] = {
    RuleKind.FAILED: frozenset({"run.failed"}),
    RuleKind.FAILURES: frozenset({"run.failed"}),
    RuleKind.CALLBACK_TIMEOUT: frozenset({"run.failed"}),
    RuleKind.LOST: frozenset({"run.lost", "run.failed"}),
    RuleKind.NO_WORKER: frozenset({"task.no_worker"}),
    RuleKind.MISFIRE: frozenset({"task.misfired"}),
    RuleKind.SUBSCRIPTION: frozenset({"subscription.disabled"}),
    RuleKind.SLA_BREACHED: frozenset({"run.sla_breached", "task.sla_breached"}),
    RuleKind.SLA_FORESEEN: frozenset({"run.sla_foreseen"}),
}
_GOOD: Mapping[RuleKind, frozenset[str]] = {
    **dict.fromkeys(BY_EVENT, frozenset({"run.succeeded"})),
    RuleKind.NO_WORKER: frozenset({"task.has_worker", "run.started"}),
    RuleKind.SUBSCRIPTION: frozenset({"subscription.enabled", "subscription.removed"}),
    RuleKind.SLA_BREACHED: frozenset({"run.succeeded", "task.sla_recovered"}),
}
_END = "task.deleted"

_TOGETHER = 5
"""More messages than this of one rule in one pass become one."""
_NAMED = 20

_LOST_KINDS = frozenset({"lost", "unknown"})


def types_wanted(rules: Iterable[Rule], states: Iterable[AlertState]) -> frozenset[str]:
    """The types of events that can change anything. Good news is only read where there was bad."""
    kinds = {rule.name: rule.kind for rule in rules}
    remembered = {kinds[state.rule] for state in states if state.rule in kinds}
    wanted = frozenset[str]().union(*(_BAD.get(kind, frozenset()) for kind in kinds.values()))
    if remembered:
        wanted = wanted.union({_END}, *(_GOOD.get(kind, frozenset()) for kind in remembered))
    return wanted


@dataclass(slots=True)
class Pass:
    """One pass: feed it events and readings in order, then take its `step`."""

    rules: Sequence[Rule]
    channels: Sequence[str]
    """Names of those that are in use."""
    states: dict[tuple[str, str], AlertState]
    labels: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Of the tasks that are about to be heard of, by their ids; only needed where rules or mutes name labels."""
    mutes: Sequence[Mute] = ()
    """Those that have not ended."""
    acknowledged: Collection[tuple[str, str]] = ()
    """Rule and subject."""
    _changed: set[tuple[str, str]] = field(default_factory=set)
    _told: list[tuple[AlertMessageType, Rule, AlertState, bool]] = field(default_factory=list)
    """At the end whether it is sent: what is muted is not."""
    _before: frozenset[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._before = frozenset(self.states)
        known = {rule.name for rule in self.rules}
        for key in [key for key in self.states if key[0] not in known]:
            del self.states[key]  # its rule is switched off, and would never end it

    def hear(self, event: Event) -> None:
        subject = _subject(event)
        if subject is None or "parent_id" in event.data:
            return  # a step of a flow: the flow has an event of its own when it ends
        for rule in self.rules:
            if rule.kind not in BY_EVENT:
                continue
            key = (rule.name, subject)
            if event.type == _END:
                self._forget(key)
            elif is_bad(rule, event):
                labels = self.labels.get(event.task_id or 0, {})
                if rule.kind is RuleKind.SUBSCRIPTION or concerns(rule, event.topic or "", labels):
                    self._worse(rule, key, _seen(key, event))
            elif event.type in _GOOD[rule.kind] and not self._is_late_itself(rule, key, event):
                self._better(rule, key, event.at)

    def _is_late_itself(self, rule: Rule, key: tuple[str, str], event: Event) -> bool:
        """A run that broke its service level, or will, and succeeds all the same has not kept it: the next one may."""
        if rule.kind not in (RuleKind.SLA_BREACHED, RuleKind.SLA_FORESEEN):
            return False
        state = self.states.get(key)
        if state is None:
            return False
        is_of_runs = event.type == "run.succeeded"
        return is_of_runs is (state.run_id is None) or event.run_id == state.run_id is not None

    def read(self, rule: Rule, late: Sequence[OverdueTask], now: Instant, *, is_whole: bool) -> None:
        """What a rule that looks for itself has found. `is_whole`: there is nothing else that it could have found."""
        found = {
            f"task:{one.task_id}": one
            for one in late
            if concerns(rule, one.task_name, self.labels.get(one.task_id, {}))
        }
        for subject, one in found.items():
            seen = AlertState(
                rule=rule.name,
                subject=subject,
                count=one.count,
                since=one.since,
                task_id=one.task_id,
                task_name=one.task_name,
                run_id=one.run_id,
                **_worded(_said_of(rule, one, now)),
            )
            self._worse(rule, (rule.name, subject), seen, at=now)
        if is_whole:
            for key in [key for key in self.states if key[0] == rule.name and key[1] not in found]:
                self._better(rule, key, now)

    def tell_unmuted(self, now: Instant) -> None:
        """What was raised while it was muted, and still lasts when that is over."""
        rules = {rule.name: rule for rule in self.rules}
        for key, state in list(self.states.items()):
            if state.raised_at is None or state.told_at is not None or self._is_muted(state):
                continue
            told = msgspec.structs.replace(state, told_at=now)
            self._told.append((AlertMessageType.RAISED, rules[state.rule], told, True))
            self.states[key] = told
            self._changed.add(key)

    def step(self) -> AlertStep:
        """All that has to be written."""
        notices: list[tuple[str, AlertMessage]] = []
        groups: dict[tuple[AlertMessageType, str], list[tuple[Rule, AlertState]]] = {}
        for what, rule, state, is_sent in self._told:
            if is_sent:
                groups.setdefault((what, rule.name), []).append((rule, state))
        for (what, _), members in groups.items():
            rule = members[0][0]
            states = [state for _, state in members]
            told = [grouped(what, rule, states)] if len(states) > _TOGETHER else [notice(what, rule, s) for s in states]
            channels = [name for name in self.channels if not rule.channels or name in rule.channels]
            notices += [(channel, one) for one in told for channel in channels]
        return AlertStep(
            states=[self.states[key] for key in sorted(self._changed) if key in self.states],
            closed=sorted(key for key in self._before if key not in self.states),
            notices=notices,
            told=[(what, state) for what, _, state, _ in self._told],
        )

    def _worse(self, rule: Rule, key: tuple[str, str], seen: AlertState, at: Instant | None = None) -> None:
        known = self.states.get(key)
        moment = seen.since if at is None else at
        count = seen.count if at is not None or known is None else known.count + 1
        state = msgspec.structs.replace(
            seen,
            count=count,
            since=seen.since if known is None else known.since,
            raised_at=None if known is None else known.raised_at,
            told_at=None if known is None else known.told_at,
        )
        if state.raised_at is None and (rule.kind is not RuleKind.FAILURES or count >= rule.count):
            is_muted = self._is_muted(state)
            state = msgspec.structs.replace(state, raised_at=moment, told_at=None if is_muted else moment)
            self._told.append((AlertMessageType.RAISED, rule, state, not is_muted))
        elif is_to_repeat(rule, state, moment) and key not in self.acknowledged and not self._is_muted(state):
            state = msgspec.structs.replace(state, told_at=moment)
            self._told.append((AlertMessageType.REPEATED, rule, state, True))
        elif at is not None and known is not None:
            return  # nothing new: a reading that says the same is not worth a write
        self.states[key] = state
        self._changed.add(key)

    def _better(self, rule: Rule, key: tuple[str, str], at: Instant) -> None:
        state = self.states.get(key)
        if state is None:
            return
        self._forget(key)
        if state.raised_at is not None:
            is_sent = state.told_at is not None and not self._is_muted(state)
            told = msgspec.structs.replace(state, told_at=at)
            self._told.append((AlertMessageType.RECOVERED, rule, told, is_sent))

    def _is_muted(self, state: AlertState) -> bool:
        return mute_of(self.mutes, state, self.labels.get(state.task_id or 0, {})) is not None

    def _forget(self, key: tuple[str, str]) -> None:
        self.states.pop(key, None)
        self._changed.discard(key)


def _subject(event: Event) -> str | None:
    """What a rule remembers it by; None for what no rule is about."""
    if event.task_id is not None:
        return f"task:{event.task_id}"
    name = event.data.get("subscription")
    return None if name is None else f"subscription:{name}"


def is_to_repeat(rule: Rule, state: AlertState, now: Instant) -> bool:
    if rule.repeat_seconds is None or state.told_at is None:
        return False
    return now - state.told_at >= rule.repeat_seconds * SECOND


def is_bad(rule: Rule, event: Event) -> bool:
    if event.type not in _BAD[rule.kind]:
        return False
    if rule.kind is RuleKind.CALLBACK_TIMEOUT:
        return event.data.get("status") == "FAILED_TIMEOUT"
    if rule.kind is RuleKind.LOST:
        return event.type == "run.lost" or event.data.get("kind") in _LOST_KINDS
    return True


def concerns(rule: Rule, task_name: str, labels: Mapping[str, str] | None = None) -> bool:
    """The first question about a rule compiles its patterns, which may take 0.2 s; all further ones take microseconds."""
    return (not rule.tasks or matches(rule.tasks, task_name)) and has_labels(rule.labels, labels or {})


def has_labels(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a task with these labels has all that are wanted."""
    return all(labels.get(name) == value for name, value in wanted.items())


def mute_of(mutes: Sequence[Mute], state: AlertState, labels: Mapping[str, str]) -> Mute | None:
    """The mute that lasts longest of those that hold this alert; None if it is not muted."""
    held = [
        mute
        for mute in mutes
        if mute.rule in (None, state.rule)
        and (not mute.tasks or matches(mute.tasks, state.task_name or ""))
        and has_labels(mute.labels, labels)
    ]
    return max(held, key=lambda mute: mute.until, default=None)


def matches(tasks: tuple[str, ...], task_name: str) -> bool:
    """Whether one of these names and patterns is the task's."""
    return _matcher(tasks)(task_name)


def is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


@lru_cache(maxsize=2 * MOST_RULES)
def _matcher(tasks: tuple[str, ...]) -> Callable[[str], bool]:
    names = frozenset(text for text in tasks if not is_pattern(text))
    patterns = [translate(text) for text in tasks if is_pattern(text)]
    if not patterns:
        return names.__contains__
    match = re.compile("|".join(patterns)).match
    return lambda name: name in names or match(name) is not None


def _seen(key: tuple[str, str], event: Event) -> AlertState:
    return AlertState(
        rule=key[0],
        subject=key[1],
        count=1,
        since=event.at,
        task_id=event.task_id,
        task_name=event.topic,
        run_id=event.run_id,
        **_worded(_said(event)),
    )


def _said(event: Event) -> tuple[str, dict[str, Any]]:
    """The code of a sentence, and what stands in it."""
    data = event.data
    match event.type:
        case "task.misfired":
            return "slots_dropped", {"n": data.get("count", 1), "reason": str(data.get("reason", "misfire"))}
        case "task.no_worker":
            return "no_worker", {"queue": data.get("queue") or event.queue}
        case "subscription.disabled":
            return "subscription_disabled", {"name": data.get("subscription"), "reason": data.get("reason")}
        case "run.sla_breached" | "run.sla_foreseen" | "task.sla_breached":
            return _said_of_level(event)
        case "run.lost":
            return "worker_lost", {"worker": data.get("worker_id"), "run": event.run_id}
        case _:
            facts: dict[str, Any] = {"run": event.run_id, "status": str(data.get("status", "FAILED"))}
            if not data.get("error"):
                return "ended", facts
            worded = {name: data[name] for name in (SAID, CAUSE) if data.get(name)}
            return "ended_with", {**facts, "error": data["error"], **worded}


def _said_of_level(event: Event) -> tuple[str, dict[str, Any]]:
    data = event.data
    if event.type == "task.sla_breached":
        percent = {name: f"{100 * (data.get(name) or 0):g}" for name in ("ratio", "wanted")}
        return "sla_ratio", {**percent, "window": data.get("window")}
    facts = {"run": event.run_id, "rule": str(data.get("rule")), "deadline": data.get("deadline")}
    if event.type == "run.sla_breached":
        return "sla_breached", facts
    facts["expected"] = data.get("expected_at")
    if data.get("usual_ms") is None:
        return "sla_foreseen", facts
    return "sla_foreseen_usual", {**facts, "seconds": f"{data['usual_ms'] / 1000:.0f}"}


def _said_of(rule: Rule, late: OverdueTask, now: Instant) -> tuple[str, dict[str, Any]]:
    seconds = max(0, now - late.since) // SECOND
    if rule.kind is RuleKind.OVERDUE:
        return "overdue", {"slot": rfc3339(late.since), "seconds": seconds}
    if rule.kind is RuleKind.LATE_START:
        return "late_start", {"n": late.count, "seconds": seconds}
    return "slow", {"run": late.run_id, "seconds": seconds, "usual": f"{late.usual_seconds or 0:.1f}"}


TEXTS: Mapping[str, str] = {
    "slots_dropped": "{n} slots were dropped: {reason}",
    "no_worker": "runs wait on queue {queue}, and no connected worker can take them",
    "subscription_disabled": "webhook subscription {name} is disabled: {reason}",
    "worker_lost": "worker {worker} was lost with run {run}",
    "ended": "run {run} ended {status}",
    "ended_with": "run {run} ended {status}: {error}",
    "overdue": "its slot at {slot} was due {span} ago and has not been planned",
    "late_start": "{n} run is due and has not started; it has waited {span}|{n} runs are due and have not started;"
    " the first has waited {span}",
    "slow": "run {run} has taken {seconds} s so far; usually {usual} s",
    "sla_ratio": "{ratio} % of its runs succeeded in {window}; the target is {wanted} %",
    "sla_breached": "run {run} missed its service level ({rule}): the deadline was {deadline}",
    "sla_foreseen": "run {run} is expected at {expected}; its deadline is {deadline} ({rule})",
    "sla_foreseen_usual": "at its usual {seconds} s, run {run} is expected at {expected}; its deadline is {deadline} ({rule})",
    "test": "Channel {name} works: this is how alerts will arrive.",
    "store_away": "seen from {node}: {error}",
    "store_back": "seen from {node}: it was unreachable for {span}",
}
"""What messages say, in English; `alert_said.CODE` of the catalogues has the other languages. `n` chooses between `one|many`."""


def in_english(code: str, facts: Mapping[str, Any]) -> str:
    text = TEXTS[code]
    if "|" in text:
        one, many = text.split("|", 1)
        text = one if facts.get("n") == 1 else many
    count = {"n": f"{facts['n']:,}"} if isinstance(facts.get("n"), int) else {}
    waited = {"span": _span(facts["seconds"])} if isinstance(facts.get("seconds"), int) else {}
    return text.format(**{**facts, **count, **waited})


def _span(seconds: int) -> str:
    """The two largest units: `2 d 12 h`, `1 min 5 s`. `service.explain_words.span` says the same in every language."""
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    units = [f"{count} {unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))]
    begin = next((place for place, count in enumerate((days, hours, minutes)) if count), 3)
    return " ".join(unit for unit in units[begin : begin + 2] if not unit.startswith("0 ") or begin == 3)


def _worded(said: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """The fields of a state that tell what is wrong."""
    code, facts = said
    return {"message": in_english(code, facts), "code": code, "facts": facts}


_TITLES: Mapping[RuleKind, tuple[str, str]] = {
    RuleKind.FAILED: ("{} failed", "{} succeeds again"),
    RuleKind.FAILURES: ("{} failed {count} times in a row", "{} succeeds again"),
    RuleKind.CALLBACK_TIMEOUT: ("{}: no callback in time", "{} succeeds again"),
    RuleKind.LOST: ("{}: a worker was lost", "{} succeeds again"),
    RuleKind.NO_WORKER: ("{}: no worker for its runs", "{} has a worker again"),
    RuleKind.MISFIRE: ("{}: slots were dropped", "{} runs again"),
    RuleKind.LATE_START: ("{} starts late", "{} starts on time again"),
    RuleKind.OVERDUE: ("{} is overdue", "{} is on time again"),
    RuleKind.SLOW: ("{} takes longer than usual", "{} is no longer slow"),
    RuleKind.STORE: ("the store is not responding", "the store is responding again"),
    RuleKind.SUBSCRIPTION: ("{} is disabled", "{} is active again, or was deleted"),
    RuleKind.SLA_BREACHED: ("{} missed its service level", "{} meets its service level again"),
    RuleKind.SLA_FORESEEN: ("{} is expected to miss its service level", "{} met its service level"),
}


def notice(what: AlertMessageType, rule: Rule, state: AlertState) -> AlertMessage:
    bad, good = _TITLES[rule.kind]
    name = state.task_name or state.subject
    title = (good if what is AlertMessageType.RECOVERED else bad).format(name, count=state.count)
    return AlertMessage(
        type=what,
        time=rfc3339(state.told_at or state.since),
        rule=rule.name,
        kind=rule.kind,
        subject=state.subject,
        title=title,
        message=f"it began at {rfc3339(state.since)}; {state.message}"
        if what is AlertMessageType.RECOVERED
        else state.message,
        since=rfc3339(state.since),
        count=state.count,
        task_id=state.task_id,
        task_name=state.task_name,
        run_id=state.run_id,
        code=state.code,
        facts=state.facts,
    )


def grouped(what: AlertMessageType, rule: Rule, states: Sequence[AlertState]) -> AlertMessage:
    """One notice for many tasks, so that a fault of everything is not told a thousand times."""
    one = notice(what, rule, states[0])
    names = [state.task_name or state.subject for state in states]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return msgspec.structs.replace(
        one,
        subject="tasks",
        title=f"{one.title}, and {len(states) - 1} other tasks",
        message=f"{listed}. {one.task_name}: {one.message}",
        task_id=None,
        task_name=None,
        run_id=None,
        names=tuple(names),
    )
