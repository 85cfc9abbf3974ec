"""Channels of alerts: made, changed, tried, removed. What is secret in them is written here and never shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState
from noonbell.model.access import Role
from noonbell.service.secrets import MASK
from noonbell.web.page import Page
from noonbell.web.settings.alerts import PATH, alerts_of, has_apprise
from noonbell.web.settings.frame import mistyped, problems_of, removal, section
from noonbell.web.site import Site
from noonbell.web.visit import Visit

_FIELDS: Final = ("name", "kind", "url", "secret", "headers", "enabled")
_NOTHING: Final = {"name": "", "kind": "webhook", "url": "", "secret": "", "headers": "", "enabled": "on"}
SHAPES: Final = {
    "DingTalk 钉钉": "dingtalk://TOKEN/",
    "WeCom 企业微信": "wecombot://BOT_KEY/",
    "Feishu 飞书": "feishu://TOKEN/",
    "Slack": "slack://TOKEN_A/TOKEN_B/TOKEN_C/#CHANNEL",
    "Telegram": "tgram://BOT_TOKEN/CHAT_ID/",
    "E-mail": "mailtos://USER:PASSWORD@SMTP_HOST/?from=ADDRESS&to=ADDRESS",
}
"""How an address is written that apprise reads; its documentation has the others."""


async def ask_new(visit: Visit) -> Response:
    alerts_of(visit)
    return _form(visit, _NOTHING, None)


async def create(visit: Visit) -> Response:
    given = await visit.fields()
    try:
        made = await alerts_of(visit).create_channel(wanted(given, None))
    except (InvalidArgument, AlreadyExists) as error:
        return _form(visit, given, None, problems_of(error, _FIELDS))
    visit.subject, visit.details = f"/alerts/channels/{made['name']}", {"kind": made["kind"]}
    return visit.done(visit.words("alerts.channel_saved", name=made["name"]), go=PATH)


async def ask_change(visit: Visit) -> Response:
    channel = await alerts_of(visit).channel(visit.piece("name"))
    return _form(visit, fields_of(channel), channel)


async def change(visit: Visit) -> Response:
    name, given = visit.piece("name"), await visit.fields()
    channel = await alerts_of(visit).channel(name)
    try:
        await alerts_of(visit).change_channel(name, wanted(given, channel))
    except InvalidArgument as error:
        return _form(visit, given, channel, problems_of(error, _FIELDS))
    visit.subject = f"/alerts/channels/{name}"
    return visit.done(visit.words("alerts.channel_saved", name=name), go=PATH)


def fields_of(channel: Mapping[str, Any]) -> dict[str, str]:
    """As the form has them. A secret is not among them, but a mask for it."""
    return {
        "name": channel["name"],
        "kind": channel["kind"],
        "url": channel["url"],
        "secret": "",
        "headers": "\n".join(f"{name}: {value}" for name, value in channel["headers"].items()),
        "enabled": "on" if channel["enabled"] else "",
    }


def wanted(given: Mapping[str, str], there: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the API would be sent. A secret that is left empty stays as it is, unless it is to go."""
    found: dict[str, Any] = {
        "name": given.get("name", "").strip() if there is None else there["name"],
        "kind": given.get("kind", ""),
        "url": given.get("url", "").strip(),
        "headers": _headers(given.get("headers", "")),
        "enabled": bool(given.get("enabled")),
    }
    secret = given.get("secret", "").strip()
    keeps = there is not None and there["secret"] is not None and not given.get("no_secret")
    if secret or (keeps and found["kind"] == "webhook"):
        found["secret"] = secret or MASK
    return found


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidArgument.field("headers", "has a line that is no header; expected Name: value on each")
        found[name.strip()] = value.strip()
    return found


def _form(
    visit: Visit, given: Mapping[str, str], channel: Mapping[str, Any] | None, problems: dict[str, str] | None = None
) -> Response:
    return section(
        visit,
        "alerts",
        "settings_channel.html",
        400 if problems else 200,
        fields={name: given.get(name, "") for name in _FIELDS},
        channel=channel,
        problems=problems or {},
        shapes=SHAPES,
        has_apprise=has_apprise(),
        is_declared=channel is not None and channel["managed_by"] == "settings",
    )


async def test(visit: Visit) -> Response:
    """What the other side really said."""
    name = visit.piece("name")
    told = await alerts_of(visit).test_channel(name)
    visit.subject, visit.details = f"/alerts/channels/{name}", {"delivered": told["delivered"]}
    code = told["response_code"]
    if not told["delivered"]:
        raise InvalidState(visit.words("settings.not_delivered", name=name, why=told["error"]))
    text = visit.words("settings.delivered", name=name)
    return visit.done(text if code is None else f"{text} HTTP {code}", PATH)


# Removing one


async def ask_remove(visit: Visit, problem: str = "") -> Response:
    channel = await alerts_of(visit).channel(visit.piece("name"))
    rules = [rule for rule in await alerts_of(visit).rules() if channel["name"] in rule["channels"]]
    return removal(
        visit,
        channel["name"],
        f"/settings/channels/{channel['name']}/remove",
        problem,
        title=visit.words("alerts.remove_channel", name=channel["name"]),
        what=visit.words("alerts.remove_channel_what", n=len(rules))
        if rules
        else visit.words("alerts.remove_channel_unused"),
        used_by=[rule["name"] for rule in rules],
    )


async def remove(visit: Visit) -> Response:
    name = visit.piece("name")
    if problem := await mistyped(visit, name):
        return await ask_remove(visit, problem)
    await alerts_of(visit).remove_channel(name)
    visit.subject = f"/alerts/channels/{name}"
    return visit.done(visit.words("alerts.removed", name=name), go=PATH)


def pages(site: Site) -> list[Page]:
    del site
    admin, one = Role.ADMIN, "/settings/channels/{name}"
    return [
        Page("/settings/new/channel", ask_new, role=admin),
        Page("/settings/new/channel", create, "POST", admin, deed="create_alert_channel"),
        Page(one, ask_change, role=admin),
        Page(one, change, "POST", admin, deed="change_alert_channel"),
        Page(f"{one}/test", test, "POST", admin, deed="test_alert_channel"),
        Page(f"{one}/remove", ask_remove, role=admin),
        Page(f"{one}/remove", remove, "POST", admin, deed="remove_alert_channel"),
    ]
