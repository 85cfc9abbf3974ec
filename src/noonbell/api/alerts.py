"""Endpoints of alerts: what is raised, rules, channels, and the log of deliveries."""

from __future__ import annotations

from starlette.requests import Request

from noonbell.alerts.channels import AlertChannel, AlertChannelChange, AlertChannelWrite
from noonbell.alerts.service import (
    AlertAcknowledge,
    AlertAcknowledged,
    AlertKey,
    AlertMuteWrite,
    Alerts,
    AlertTested,
    AllChannels,
    AllDeliveries,
    AllMutes,
    AllRules,
    DeliveryList,
    OpenAlerts,
)
from noonbell.api import params
from noonbell.api.endpoint import Given, call
from noonbell.api.responses import Deleted
from noonbell.model.access import Role
from noonbell.model.alert import Mute, Rule, RuleBody, RuleChange


class AlertCalls:
    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts

    @call("GET", "/alerts", "alerts", "Open alerts", Role.VIEWER, answer=OpenAlerts)
    async def open_alerts(self) -> object:
        return {"items": await self._alerts.open_alerts()}

    @call(
        "POST", "/alerts/acknowledge", "acknowledge_alert", "Acknowledge an open alert", Role.OPERATOR,
        body=AlertAcknowledge, body_required=True, answer=AlertAcknowledged, errors=("NOT_FOUND",),
    )  # fmt: skip
    async def acknowledge(self, request: Request, given: Given, by: str | None) -> object:
        """An acknowledged alert is not sent again while it lasts; its end is sent. A second call replaces the note."""
        await self._alerts.acknowledge(given, by=by)
        params.add_to_audit(request, **{name: given[name] for name in ("rule", "subject")})
        return {"acknowledged": True}

    @call(
        "POST", "/alerts/unacknowledge", "unacknowledge_alert", "Withdraw an acknowledgement", Role.OPERATOR,
        body=AlertKey, body_required=True, answer=AlertAcknowledged, errors=("NOT_FOUND",),
    )  # fmt: skip
    async def unacknowledge(self, request: Request, given: Given) -> object:
        await self._alerts.withdraw_acknowledgement(given)
        params.add_to_audit(request, **{name: given[name] for name in ("rule", "subject")})
        return {"acknowledged": False}

    @call("GET", "/alerts/mutes", "alert_mutes", "List mutes", Role.VIEWER, answer=AllMutes)
    async def mutes(self) -> object:
        return {"items": await self._alerts.mutes()}

    @call(
        "POST", "/alerts/mutes", "mute_alerts", "Mute alerts for a while", Role.OPERATOR,
        status=201, body=AlertMuteWrite, body_required=True, answer=Mute, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def mute(self, request: Request, given: Given, by: str | None) -> object:
        """Muted alerts are opened and shown, but not sent. An alert that is still open when the mute ends is sent
        then.
        """
        made = await self._alerts.mute(given, by=by)
        params.name_in_audit(request, str(made["id"]))
        held = {name: made[name] for name in ("rule", "tasks", "labels") if made[name]}
        params.add_to_audit(request, until=made["until"], reason=made["reason"], **held)
        return made

    @call(
        "DELETE", "/alerts/mutes/{mute}", "unmute_alerts", "End a mute", Role.OPERATOR,
        answer=Deleted, errors=("NOT_FOUND",),
    )  # fmt: skip
    async def unmute(self, mute: str) -> object:
        await self._alerts.unmute(mute)
        return {"deleted": True}

    @call("GET", "/alerts/rules", "alert_rules", "All rules", Role.VIEWER, answer=AllRules)
    async def rules(self) -> object:
        return {"items": await self._alerts.rules()}

    @call(
        "POST", "/alerts/rules", "create_alert_rule", "Create a rule", Role.OPERATOR,
        status=201, body=RuleBody, body_required=True, answer=Rule, errors=("ALREADY_EXISTS", "INVALID_STATE"),
    )  # fmt: skip
    async def create_rule(self, request: Request, given: Given) -> object:
        made = await self._alerts.create_rule(given)
        params.name_in_audit(request, made["name"])
        return made

    @call("GET", "/alerts/rules/{rule}", "alert_rule", "One rule", Role.VIEWER, answer=Rule)
    async def rule(self, rule: str) -> object:
        return await self._alerts.rule(rule)

    @call(
        "PUT", "/alerts/rules/{rule}", "change_alert_rule", "Replace a rule", Role.OPERATOR,
        body=RuleChange, body_required=True, answer=Rule, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def change_rule(self, given: Given, rule: str) -> object:
        return await self._alerts.change_rule(rule, given)

    @call(
        "DELETE", "/alerts/rules/{rule}", "remove_alert_rule", "Delete a rule, and its state", Role.OPERATOR,
        answer=Deleted, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def remove_rule(self, rule: str) -> object:
        await self._alerts.remove_rule(rule)
        return {"deleted": True}

    @call("GET", "/alerts/channels", "alert_channels", "All channels", Role.VIEWER, answer=AllChannels)
    async def channels(self) -> object:
        return {"items": await self._alerts.channels()}

    @call(
        "POST", "/alerts/channels", "create_alert_channel", "Create a channel", Role.ADMIN,
        status=201, body=AlertChannelWrite, body_required=True, answer=AlertChannel, errors=("ALREADY_EXISTS", "INVALID_STATE"),
    )  # fmt: skip
    async def create_channel(self, request: Request, given: Given) -> object:
        made = await self._alerts.create_channel(given)
        params.name_in_audit(request, made["name"])
        return made

    @call("GET", "/alerts/channels/{channel}", "alert_channel", "One channel", Role.VIEWER, answer=AlertChannel)
    async def channel(self, channel: str) -> object:
        return await self._alerts.channel(channel)

    @call(
        "PUT", "/alerts/channels/{channel}", "change_alert_channel", "Replace a channel", Role.ADMIN,
        body=AlertChannelChange, body_required=True, answer=AlertChannel, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def change_channel(self, given: Given, channel: str) -> object:
        return await self._alerts.change_channel(channel, given)

    @call(
        "DELETE", "/alerts/channels/{channel}", "remove_alert_channel", "Delete a channel", Role.ADMIN,
        answer=Deleted, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def remove_channel(self, channel: str) -> object:
        await self._alerts.remove_channel(channel)
        return {"deleted": True}

    @call(
        "POST", "/alerts/channels/{channel}/test", "test_alert_channel", "Send a test message to a channel", Role.ADMIN,
        answer=AlertTested,
    )  # fmt: skip
    async def test_channel(self, channel: str) -> object:
        return await self._alerts.test_channel(channel)

    @call(
        "GET", "/alerts/deliveries", "alert_deliveries", "The notifications that were sent, and their"
        " results", Role.VIEWER,
        query=DeliveryList, answer=AllDeliveries,
    )  # fmt: skip
    async def deliveries(self, asked: DeliveryList) -> object:
        return {"items": await self._alerts.deliveries(limit=asked.limit, before=asked.before, channel=asked.channel)}
