"""Alerts by API and by settings: rules and channels are read, kept and shown; secrets are masked."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from noonbell.clock import rfc3339
from noonbell.errors import AlreadyExists, InvalidState, NotFound, SettingsError
from noonbell.model.alert import Channel, DeliveryStatus, Notice, Rule, What
from noonbell.ports import AlertStore, Courier, Undeliverable
from noonbell.sealing import Sealer
from noonbell.service.alert_fields import SETTINGS, read_channel, read_declared, read_rule
from noonbell.service.alert_json import channel_json, delivery_json, rule_json, state_json
from noonbell.service.secrets import opened_where_possible, sealed


class Alerts:
    def __init__(self, store: AlertStore, couriers: Mapping[str, Courier], sealer: Sealer | None = None) -> None:
        self._store, self._couriers, self._sealer = store, couriers, sealer or Sealer()

    async def open_alerts(self) -> list[dict[str, Any]]:
        """What is raised and not over."""
        kinds = {rule.name: rule.kind for rule in await self._store.alert_rules()}
        states = [state for state in await self._store.alert_states() if state.raised_at is not None]
        return [state_json(state, kinds.get(state.rule)) for state in states]

    # Rules

    async def rules(self) -> list[dict[str, Any]]:
        return [rule_json(rule) for rule in await self._store.alert_rules()]

    async def rule(self, name: str) -> dict[str, Any]:
        return rule_json(await self._rule(name))

    async def create_rule(self, given: Mapping[str, Any]) -> dict[str, Any]:
        rule = read_rule(given)
        if any(known.name == rule.name for known in await self._store.alert_rules()):
            raise AlreadyExists(f"there is a rule {rule.name!r} already", details={"name": "is taken"})
        return rule_json(await self._store.put_alert_rule(rule))

    async def change_rule(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """All fields anew; those that are left out take their defaults."""
        _check_ours(await self._rule(name))
        return rule_json(await self._store.put_alert_rule(read_rule({**given, "name": name})))

    async def remove_rule(self, name: str) -> None:
        _check_ours(await self._rule(name))
        await self._store.remove_alert_rule(name)

    async def _rule(self, name: str) -> Rule:
        for rule in await self._store.alert_rules():
            if rule.name == name:
                return rule
        raise NotFound(f"there is no rule {name!r}")

    # Channels

    async def channels(self) -> list[dict[str, Any]]:
        return [channel_json(self._opened(channel)) for channel in await self._store.alert_channels()]

    async def channel(self, name: str) -> dict[str, Any]:
        return channel_json(self._opened(await self._channel(name)))

    async def create_channel(self, given: Mapping[str, Any]) -> dict[str, Any]:
        channel = read_channel(given, None)
        if any(known.name == channel.name for known in await self._store.alert_channels()):
            raise AlreadyExists(f"there is a channel {channel.name!r} already", details={"name": "is taken"})
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
        notice = Notice(
            type=What.TEST,
            time=now,
            rule="test",
            kind="test",
            subject="test",
            title="Noonbell: a test",
            message=f"Channel {name} works: this is how alerts will arrive.",
        )
        error, code, status = None, None, DeliveryStatus.DELIVERED
        try:
            courier = self._couriers.get(channel.kind)
            if courier is None:
                raise Undeliverable(f"nobody brings notices to a channel of kind {channel.kind!r}", again=False)
            code = await courier.send(channel, msgspec.to_builtins(notice), f"alert_{secrets.token_hex(8)}")
        except Undeliverable as problem:
            error, code, status = str(problem), problem.response_code, DeliveryStatus.FAILED
        await self._store.note_delivery(name, notice, status, error=error, response_code=code)
        return {"delivered": error is None, "response_code": code, "error": error}

    async def _channel(self, name: str) -> Channel:
        for channel in await self._store.alert_channels():
            if channel.name == name:
                return channel
        raise NotFound(f"there is no channel {name!r}")

    # The log

    async def deliveries(
        self, *, limit: int = 100, before: int | None = None, channel: str | None = None
    ) -> list[dict[str, Any]]:
        found = await self._store.alert_deliveries(limit, before=before, channel=channel)
        return [delivery_json(delivery) for delivery in found]

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
        raise InvalidState(f"{there.name!r} is declared in the settings; change it there, under `alerts`")


def _check_free(what: str, names: list[str], known: Mapping[str, str]) -> None:
    taken = [name for name in names if known.get(name, SETTINGS) != SETTINGS]
    if taken:
        problem = "was made by API under the same name; remove that one, or call this one otherwise"
        raise SettingsError.fields({f"alerts.{what}.{name}": problem for name in taken})


def _left(known: Mapping[str, str]) -> set[str]:
    return {name for name, managed_by in known.items() if managed_by == SETTINGS}
