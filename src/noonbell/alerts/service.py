"""What the API, the pages and the settings do with alerts: rules and channels are read, kept and shown, with secrets masked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec

from noonbell.alerts.channel_kind import Undeliverable
from noonbell.alerts.channels import AlertChannel, ChannelSender, channel_json, read_channel
from noonbell.alerts.wording import in_language
from noonbell.clock import SECOND, rfc3339
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, NotFound, SettingsError
from noonbell.fields import Moment, filled, list_of, meta, plain, read, read_into, shortened
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.alert import (
    AFTER_SECONDS,
    MONTH,
    MOST_CHANNELS,
    MOST_NAMES,
    MOST_PATTERNS,
    MOST_RULES,
    AlertDelivery,
    AlertMessage,
    AlertMessageType,
    Channel,
    DeliveryStatus,
    Mute,
    Rule,
    RuleBody,
    RuleKind,
)
from noonbell.model.failure_text import SAID, said_by, said_in
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.policy.alerts import in_english, is_pattern, mute_of
from noonbell.ports import Store
from noonbell.sealing import Sealer
from noonbell.service.secrets import opened_where_possible, sealed

SETTINGS: Final = "settings"
"""`managed_by` of what the settings declare."""

DEFAULT_RULES: Final[Mapping[str, Any]] = {
    kind: {} for kind in (RuleKind.FAILED, RuleKind.NO_WORKER, RuleKind.OVERDUE, RuleKind.STORE, RuleKind.SUBSCRIPTION)
}
"""The rules of settings that declare channels and no rules."""

MOST_MUTES: Final = 100
T = TypeVar("T")


# Answers


AllRules = list_of("AlertRules", Rule)
AllChannels = list_of("AlertChannels", AlertChannel)


class OpenAlert(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Alert"

    rule: Annotated[str, meta(examples=["billing-fails"])]
    kind: Annotated[str | None, meta(examples=["failed"])]
    subject: Annotated[str, meta(examples=["task:1"])]
    task_id: Annotated[TaskId | None, meta(examples=[1])]
    task_name: Annotated[str | None, meta(examples=["billing-nightly"])]
    run_id: Annotated[RunId | None, meta(examples=[7340033])]
    since: Moment
    raised_at: Moment | None
    count: Annotated[int, meta(examples=[4])]
    acknowledged_at: Annotated[Moment | None, meta("When it was acknowledged; it is not repeated after that.")] = None
    acknowledged_by: Annotated[str | None, meta("The name of the token, if one was used.", examples=["alice"])] = None
    note: Annotated[
        str | None, meta("The note given when it was acknowledged.", examples=["the vendor looks into it"])
    ] = None
    muted_until: Annotated[Moment | None, meta("No messages about it are sent before this time.", examples=[None])] = (
        None
    )
    mute_reason: Annotated[str | None, meta(examples=[None])] = None
    message: Annotated[str, meta(examples=["run 7340033 ended FAILED: the target returned 503 Service Unavailable"])]
    code: Annotated[str, meta("The code of the sentence in `message`.", examples=["ended_with"])]
    facts: Annotated[
        dict[str, Any], meta("The values in that sentence.", examples=[{"run": 7340033, "status": "FAILED"}])
    ]


OpenAlerts = list_of("Alerts", OpenAlert)


AllMutes = list_of("AlertMutes", Mute)


class AlertMuteWrite(Mute, frozen=True, kw_only=True):
    example: ClassVar[dict[str, Any]] = {
        "tasks": ["billing-*"],
        "until": "2026-11-15T04:00:00Z",
        "reason": "the database moves",
    }


class AlertKey(msgspec.Struct, frozen=True, kw_only=True):
    """An open alert: its rule, and what it is about."""

    noun: ClassVar[str] = "an alert"

    rule: Annotated[str, meta("The name of its rule.", min_length=1, max_length=100, examples=["billing-fails"])]
    subject: Annotated[str, meta("As `GET /alerts` has it.", min_length=1, max_length=200, examples=["task:1"])]


class AlertAcknowledge(AlertKey, frozen=True, kw_only=True):
    note: Annotated[
        str, meta("A note for others who see the alert.", max_length=500, examples=["the vendor looks into it"])
    ] = ""


class AlertAcknowledged(msgspec.Struct, frozen=True, kw_only=True):
    acknowledged: Annotated[bool, meta(examples=[True])]


class ShownDelivery(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "AlertDelivery"

    id: Annotated[int, meta(examples=[7340099])]
    channel: Annotated[str, meta(examples=["ops"])]
    rule: Annotated[str, meta(examples=["billing-fails"])]
    type: Annotated[str | None, meta(examples=["alert.raised"])]
    subject: Annotated[str, meta(examples=["task:1"])]
    title: Annotated[str | None, meta(examples=["billing-nightly failed"])]
    status: Annotated[DeliveryStatus, meta(examples=["DELIVERED"])]
    attempts: Annotated[int, meta(examples=[1])]
    next_attempt_at: Annotated[Moment | None, meta(examples=[None])]
    created_at: Moment
    ended_at: Moment | None
    response_code: Annotated[int | None, meta(examples=[200])]
    error: Annotated[str | None, meta(examples=[None])]
    said: Annotated[
        dict[str, Any] | None,
        meta(
            "The code and facts of the sentence in `error`. Null if the text is a service's own.",
            examples=[None],
        ),
    ] = None


AllDeliveries = list_of("AlertDeliveries", ShownDelivery)


class DeliveryList(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, meta("The most to return, newest first.", ge=1, le=1_000)] = 100
    before: Annotated[
        int | None, meta("Only those before this id.", ge=0, le=2**53 - 1, expected="the id of a delivery")
    ] = None
    channel: Annotated[
        str | None, meta("Only those of this channel.", min_length=1, max_length=100, examples=["ops"])
    ] = None


class AlertTested(msgspec.Struct, frozen=True):
    delivered: Annotated[bool, meta(examples=[True])]
    response_code: Annotated[int | None, meta(examples=[200])]
    error: Annotated[str | None, meta(examples=[None])]
    said: Annotated[
        dict[str, Any] | None,
        meta("The code and facts of the sentence in `error`.", examples=[None]),
    ] = None


def _delivery_json(delivery: AlertDelivery, lang: str) -> dict[str, Any]:
    message = in_language(delivery.notice, lang)
    said = {"type": message.get("type"), "title": message.get("title"), SAID: message.get(SAID)}
    return plain(filled(ShownDelivery, delivery, **said, next_attempt_at=delivery.next_at))


# Reading


def read_rule(given: Mapping[str, Any]) -> Rule:
    """A rule without a `kind` has the kind that it is named after. InvalidArgument names every problem."""
    at = ReadContext(Problems())
    named = given.get("name")
    if given.get("kind") is None and isinstance(named, str) and named in set(RuleKind):
        given = {**given, "kind": named}
    asked = read_into(RuleBody, given, at)
    if given.get("kind") is None:
        at.expected("kind", None, f"one of {', '.join(RuleKind)}")
    elif asked.after_seconds is not None and asked.kind not in AFTER_SECONDS:
        template = "is for {kinds}; an alert of kind {kind} is raised at once"
        at.wrong("after_seconds", template, kinds=", ".join(AFTER_SECONDS), kind=asked.kind)
    patterns = sum(is_pattern(each) for each in asked.tasks)
    if patterns > MOST_PATTERNS:
        template = "has {count} patterns; expected at most {most} texts with *, ? or [ in them, and at most {all} names and patterns in all"
        at.wrong("tasks", template, count=patterns, most=MOST_PATTERNS, all=f"{MOST_NAMES:,}")
    at.problems.finish()
    return filled(Rule, asked)


def read_declared(declared: Mapping[str, Any]) -> tuple[list[Rule], list[Channel]]:
    """The `alerts` of the settings. SettingsError names every problem by its path."""
    problems = Problems()
    for name in declared:
        if name not in ("rules", "channels"):
            problems.add(f"alerts.{name}", "is not known; alerts have rules and channels")
    channels = _each(declared.get("channels"), "channels", problems, lambda given: read_channel(given, None))
    given = declared.get("rules")
    rules = _each(DEFAULT_RULES if given is None and channels else given, "rules", problems, read_rule)
    known = {channel.name for channel in channels}
    for rule in rules:
        for name in rule.channels:
            if name not in known:
                problems.add(f"alerts.rules.{rule.name}.channels", f"names {name!r}, which is not in alerts.channels")
    if problems.found:
        raise SettingsError.fields(problems.found)
    return (
        [msgspec.structs.replace(rule, managed_by=SETTINGS) for rule in rules],
        [msgspec.structs.replace(channel, managed_by=SETTINGS) for channel in channels],
    )


def _each(given: Any, what: str, problems: Problems, read: Callable[[Mapping[str, Any]], T]) -> list[T]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        problems.add(f"alerts.{what}", "is not a mapping; takes names, each with its fields")
        return []
    found: list[T] = []
    for name, fields in given.items():
        if not isinstance(fields, Mapping | None):
            problems.add(f"alerts.{what}.{name}", "is not a mapping; takes its fields")
            continue
        try:
            found.append(read({**(fields or {}), "name": name}))
        except InvalidArgument as error:
            problems.take(error, under=f"alerts.{what}.{name}")
    return found


# Use cases


class Alerts:
    def __init__(self, store: Store, sender: ChannelSender, sealer: Sealer | None = None) -> None:
        self._store, self._sender, self._sealer = store, sender, sealer or Sealer()

    async def open_alerts(self) -> list[dict[str, Any]]:
        """What is raised and not over."""
        kinds = {rule.name: rule.kind for rule in await self._store.alert_rules()}
        states = [state for state in await self._store.alert_states() if state.raised_at is not None]
        acknowledged = {(one.rule, one.subject): one for one in await self._store.acknowledgements()} if states else {}
        mutes = await self._store.alert_mutes() if states else []
        with_labels = any(mute.labels for mute in mutes)
        ids = {state.task_id for state in states if state.task_id is not None} if with_labels else set()
        labels = await self._store.labels_of_tasks(ids)
        found = []
        for state in states:
            seen = acknowledged.get((state.rule, state.subject))
            mute = mute_of(mutes, state, labels.get(state.task_id or 0, {}))
            more = {
                "acknowledged_at": None if seen is None else seen.at,
                "acknowledged_by": None if seen is None else seen.by,
                "note": None if seen is None else seen.note,
                "muted_until": None if mute is None else mute.until,
                "mute_reason": None if mute is None else mute.reason,
            }
            found.append(plain(filled(OpenAlert, state, kind=kinds.get(state.rule), **more)))
        return found

    async def acknowledge(self, given: Mapping[str, Any], *, by: str | None = None) -> None:
        """It is not repeated from now on, until it is over. NotFound, if no such alert is open."""
        asked = read(AlertAcknowledge, given)
        kept = await self._store.acknowledge_alert(asked.rule, asked.subject, by=by, note=asked.note.strip())
        if kept is None:
            raise NotFound(
                "there is no open alert of rule {rule} about {subject}",
                rule=repr(asked.rule),
                subject=repr(asked.subject),
            )

    async def withdraw_acknowledgement(self, given: Mapping[str, Any]) -> None:
        asked = read(AlertKey, given)
        if not await self._store.withdraw_acknowledgement(asked.rule, asked.subject):
            raise NotFound(
                "the alert of rule {rule} about {subject} is not acknowledged",
                rule=repr(asked.rule),
                subject=repr(asked.subject),
            )

    # Mutes

    async def mutes(self) -> list[dict[str, Any]]:
        return [plain(mute) for mute in await self._store.alert_mutes()]

    async def mute(self, given: Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """InvalidArgument names every problem."""
        at = ReadContext(Problems())
        asked = read_into(AlertMuteWrite, given, at)
        now = await self._store.now()
        if "until" in given and not at.problems.found and not now < asked.until <= now + round(MONTH * SECOND):
            at.wrong("until", "is not within the next 30 days; expected a time in the future")
        if asked.rule is not None and all(rule.name != asked.rule for rule in await self._store.alert_rules()):
            at.wrong("rule", "is {value}; there is no such rule", value=repr(asked.rule))
        if len(await self._store.alert_mutes()) >= MOST_MUTES:
            raise InvalidState("there are already {most} mutes, the maximum; end one first", most=MOST_MUTES)
        at.problems.finish()
        return plain(await self._store.add_alert_mute(filled(Mute, asked, by=by)))

    async def unmute(self, id_: str) -> None:
        """By its id, as a path names it."""
        is_id = id_.isdecimal() and len(id_) <= 17
        if not is_id or not await self._store.remove_alert_mute(int(id_)):
            raise NotFound("there is no mute {mute}", mute=repr(id_[:20]))

    # Rules

    async def rules(self) -> list[dict[str, Any]]:
        return [plain(rule) for rule in await self._store.alert_rules()]

    async def rule(self, name: str) -> dict[str, Any]:
        return plain(await self._rule(name))

    async def create_rule(self, given: Mapping[str, Any]) -> dict[str, Any]:
        rule = read_rule(given)
        known = await self._store.alert_rules()
        if any(each.name == rule.name for each in known):
            raise AlreadyExists(
                "a rule named {name} already exists", name=repr(rule.name), details={"name": "is taken"}
            )
        if len(known) >= MOST_RULES:
            raise InvalidState(
                "there are {count} rules, the maximum is {most}; put more tasks into one",
                count=len(known),
                most=MOST_RULES,
            )
        await self._check_channels(rule)
        return plain(await self._store.put_alert_rule(rule))

    async def change_rule(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """All fields anew; those that are left out take their defaults."""
        _check_ours(await self._rule(name))
        rule = read_rule({**given, "name": name})
        await self._check_channels(rule)
        return plain(await self._store.put_alert_rule(rule))

    async def _check_channels(self, rule: Rule) -> None:
        """A rule that names a channel which is not there would be silent."""
        if not rule.channels:
            return
        known = sorted(channel.name for channel in await self._store.alert_channels())
        missing = [repr(name) for name in rule.channels if name not in known]
        if missing:
            there = f"there are {shortened(known)}" if known else "there are none yet; make one first"
            raise InvalidArgument.field("channels", f"there is no channel {shortened(missing)}; {there}")

    async def remove_rule(self, name: str) -> None:
        _check_ours(await self._rule(name))
        await self._store.remove_alert_rule(name)

    async def _rule(self, name: str) -> Rule:
        for rule in await self._store.alert_rules():
            if rule.name == name:
                return rule
        raise NotFound("there is no rule {name}", name=repr(name))

    # Channels

    async def channels(self) -> list[dict[str, Any]]:
        return [channel_json(self._opened(channel)) for channel in await self._store.alert_channels()]

    async def channel(self, name: str) -> dict[str, Any]:
        return channel_json(self._opened(await self._channel(name)))

    async def create_channel(self, given: Mapping[str, Any]) -> dict[str, Any]:
        channel = read_channel(given, None)
        known = await self._store.alert_channels()
        if any(each.name == channel.name for each in known):
            raise AlreadyExists(
                "a channel named {name} already exists", name=repr(channel.name), details={"name": "is taken"}
            )
        if len(known) >= MOST_CHANNELS:
            raise InvalidState(
                "there are {count} channels, the maximum is {most}; delete one first",
                count=len(known),
                most=MOST_CHANNELS,
            )
        return await self._put(channel)

    async def change_channel(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """All fields anew; a masked value that is written back keeps the secret."""
        there = await self._channel(name)
        _check_ours(there)
        return await self._put(read_channel({**given, "name": name}, self._opened(there)), there)

    async def _put(self, channel: Channel, kept: Channel | None = None) -> dict[str, Any]:
        return channel_json(self._opened(await self._store.put_alert_channel(sealed(channel, self._sealer, kept))))

    def _opened(self, channel: Channel) -> Channel:
        """To be shown, masked, or to be read anew; one whose key is lost can still be seen and replaced."""
        return opened_where_possible(channel, self._sealer)

    async def remove_channel(self, name: str) -> None:
        _check_ours(await self._channel(name))
        await self._store.remove_alert_channel(name)

    async def test_channel(self, name: str) -> dict[str, Any]:
        """Send a notice that says that it is a test, now and once; what came of it is answered and logged."""
        channel = await self._channel(name)
        now = rfc3339(await self._store.now())
        notice = AlertMessage(
            type=AlertMessageType.TEST,
            time=now,
            rule="test",
            kind="test",
            subject="test",
            title="Noonbell: test alert",
            message=in_english("test", {"name": name}),
            code="test",
            facts={"name": name},
        )
        error, code, status = None, None, DeliveryStatus.DELIVERED
        try:
            written = in_language(msgspec.to_builtins(notice), channel.language)
            code = await self._sender.send(channel, written, f"alert_{secrets.token_hex(8)}")
        except Undeliverable as problem:
            error, code, status = said_in(problem), problem.response_code, DeliveryStatus.FAILED
        await self._store.note_delivery(name, notice, status, error=error, response_code=code)
        told = {"delivered": error is None, "response_code": code, "error": None if error is None else str(error)}
        return {**told, **said_by(error or "")}

    async def _channel(self, name: str) -> Channel:
        channels = {channel.name: channel for channel in await self._store.alert_channels()}
        if name in channels:
            return channels[name]
        there = f"there are {shortened(sorted(channels))}" if channels else "there are none yet"
        raise NotFound(f"there is no channel {name!r}; {there}")

    # The log

    async def deliveries(
        self, *, limit: int = 100, before: int | None = None, channel: str | None = None, lang: str = "en"
    ) -> list[dict[str, Any]]:
        """`lang`: of their titles."""
        found = await self._store.alert_deliveries(limit, before=before, channel=channel)
        return [_delivery_json(delivery, lang) for delivery in found]

    # Settings

    async def declare(self, declared: Mapping[str, Any]) -> None:
        """Make rules and channels what the settings say; those that they named before and no longer name are removed.

        Channels without rules get the usual ones. A name that was made by API is refused. A node whose settings say
        nothing of alerts leaves them to the others.
        """
        if not declared:
            return
        rules, channels = read_declared(declared)
        known_rules = {rule.name: rule.managed_by for rule in await self._store.alert_rules()}
        known_channels = {channel.name: channel.managed_by for channel in await self._store.alert_channels()}
        _check_free("rules", [rule.name for rule in rules], known_rules)
        _check_free("channels", [channel.name for channel in channels], known_channels)
        for channel in channels:
            await self._store.put_alert_channel(sealed(channel, self._sealer))
        for rule in rules:
            await self._store.put_alert_rule(rule)
        for name in _left(known_rules) - {rule.name for rule in rules}:
            await self._store.remove_alert_rule(name)
        for name in _left(known_channels) - {channel.name for channel in channels}:
            await self._store.remove_alert_channel(name)


def _check_ours(there: Rule | Channel) -> None:
    if there.managed_by == SETTINGS:
        raise InvalidState("{name} is declared in the settings; change it there, under `alerts`", name=repr(there.name))


def _check_free(what: str, names: list[str], known: Mapping[str, str]) -> None:
    taken = [name for name in names if known.get(name, SETTINGS) != SETTINGS]
    if taken:
        problem = "was made by API under the same name; remove that one, or call this one otherwise"
        raise SettingsError.fields({f"alerts.{what}.{name}": problem for name in taken})


def _left(known: Mapping[str, str]) -> set[str]:
    return {name for name, managed_by in known.items() if managed_by == SETTINGS}
