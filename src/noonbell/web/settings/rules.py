"""Rules of alerts: what they watch, how patient they are, whom they tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import AlreadyExists, InvalidArgument
from noonbell.model.access import Role
from noonbell.model.alert import AFTER_SECONDS, RuleKind
from noonbell.web.page import Page
from noonbell.web.settings.alerts import PATH, alerts_of
from noonbell.web.settings.frame import mistyped, problems_of, removal, section
from noonbell.web.site import Site
from noonbell.web.visit import Visit

_TEXTS: Final = ("name", "kind", "tasks", "count", "after_seconds", "factor", "repeat_seconds", "enabled")
_FIELDS: Final = (*_TEXTS, "channels")
_NOTHING: Final = {"kind": "failed", "count": "3", "factor": "3", "enabled": "on"}

Given = list[tuple[str, str]]


async def ask_new(visit: Visit) -> Response:
    return await _form(visit, _NOTHING, [], None)


async def create(visit: Visit) -> Response:
    given = await visit.form()
    try:
        made = await alerts_of(visit).create_rule(wanted(given))
    except (InvalidArgument, AlreadyExists) as error:
        return await _form(visit, dict(given), _channels(given), None, problems_of(error, _FIELDS))
    visit.subject, visit.details = f"/alerts/rules/{made['name']}", {"kind": made["kind"]}
    return visit.done(visit.words("alerts.rule_saved", name=made["name"]), go=PATH)


async def ask_change(visit: Visit) -> Response:
    rule = await alerts_of(visit).rule(visit.piece("name"))
    return await _form(visit, fields_of(rule), rule["channels"], rule)


async def change(visit: Visit) -> Response:
    name, given = visit.piece("name"), await visit.form()
    rule = await alerts_of(visit).rule(name)
    try:
        await alerts_of(visit).change_rule(name, wanted([*given, ("name", name)]))
    except InvalidArgument as error:
        return await _form(visit, dict(given), _channels(given), rule, problems_of(error, _FIELDS))
    visit.subject = f"/alerts/rules/{name}"
    return visit.done(visit.words("alerts.rule_saved", name=name), go=PATH)


def fields_of(rule: Mapping[str, Any]) -> dict[str, str]:
    """As the form has them."""
    numbers = {name: _shown(rule[name]) for name in ("count", "after_seconds", "factor", "repeat_seconds")}
    enabled = "on" if rule["enabled"] else ""
    return {
        "name": rule["name"],
        "kind": rule["kind"],
        "tasks": "\n".join(rule["tasks"]),
        "enabled": enabled,
        **numbers,
    }


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:g}" if abs(number) < 100_000 else f"{number:.0f}"


def wanted(given: Given) -> dict[str, Any]:
    """What the API would be sent: a number that is left empty is left to its default."""
    fields = dict(given)
    found: dict[str, Any] = {
        "name": fields.get("name", "").strip(),
        "kind": fields.get("kind", ""),
        "enabled": bool(fields.get("enabled")),
        "tasks": [line.strip() for line in fields.get("tasks", "").splitlines() if line.strip()],
        "channels": _channels(given),
    }
    for name in ("count", "after_seconds", "factor", "repeat_seconds"):
        text = fields.get(name, "").strip()
        if text:
            found[name] = _number(text)
    return found


def _number(text: str) -> int | float | str:
    """What is none stays a text, which the service refuses with the right words."""
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return text[:40]


def _channels(given: Given) -> list[str]:
    return [value for name, value in given if name == "channels"]


async def _form(
    visit: Visit,
    given: Mapping[str, str],
    chosen: list[str],
    rule: Mapping[str, Any] | None,
    problems: dict[str, str] | None = None,
) -> Response:
    known = [channel["name"] for channel in await alerts_of(visit).channels()]
    return section(
        visit,
        "alerts",
        "settings_rule.html",
        400 if problems else 200,
        fields={name: given.get(name, "") for name in _TEXTS},
        chosen=chosen,
        channels=list(dict.fromkeys([*known, *chosen])),
        known=known,
        rule=rule,
        kinds=list(RuleKind),
        after=AFTER_SECONDS,
        problems=problems or {},
        is_declared=rule is not None and rule["managed_by"] == "settings",
    )


# Removing one


async def ask_remove(visit: Visit, problem: str = "") -> Response:
    rule = await alerts_of(visit).rule(visit.piece("name"))
    return removal(
        visit,
        rule["name"],
        f"/settings/rules/{rule['name']}/remove",
        problem,
        title=visit.words("alerts.remove_rule", name=rule["name"]),
        what=visit.words("alerts.remove_rule_what"),
        used_by=[],
    )


async def remove(visit: Visit) -> Response:
    name = visit.piece("name")
    if problem := await mistyped(visit, name):
        return await ask_remove(visit, problem)
    await alerts_of(visit).remove_rule(name)
    visit.subject = f"/alerts/rules/{name}"
    return visit.done(visit.words("alerts.removed", name=name), go=PATH)


def pages(site: Site) -> list[Page]:
    del site
    operator, one = Role.OPERATOR, "/settings/rules/{name}"
    return [
        Page("/settings/new/rule", ask_new, role=operator),
        Page("/settings/new/rule", create, "POST", operator, deed="create_alert_rule"),
        Page(one, ask_change, role=operator),
        Page(one, change, "POST", operator, deed="change_alert_rule"),
        Page(f"{one}/remove", ask_remove, role=operator),
        Page(f"{one}/remove", remove, "POST", operator, deed="remove_alert_rule"),
    ]
