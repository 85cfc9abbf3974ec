"""Reading alert rules and channels, from a body or from the settings: every problem is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from noonbell.errors import InvalidArgument, SettingsError
from noonbell.model.alert import AFTER_SECONDS, Channel, ChannelKind, Rule, RuleKind
from noonbell.sealing import is_sealed
from noonbell.service.alert_json import shown_url
from noonbell.service.http_fields import OWNED_HEADERS, is_of_the_connection
from noonbell.service.reader import Problems, Reader
from noonbell.service.secrets import MASK, unmasked

SETTINGS: Final = "settings"
"""`managed_by` of what the settings declare."""

DEFAULT_RULES: Final[Mapping[str, Any]] = {
    kind: {} for kind in (RuleKind.FAILED, RuleKind.NO_WORKER, RuleKind.OVERDUE, RuleKind.STORE)
}
"""What channels are told of where nobody says."""

READ_ONLY: Final = ("managed_by", "created_at", "updated_at")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}", re.ASCII)
_DAY: Final = 86_400.0

T = TypeVar("T")


def read_rule(given: Mapping[str, Any]) -> Rule:
    """`kind` is the name, where the name is a kind."""
    reader = Reader(given, Problems())
    name = _read_name(reader)
    if reader.get("kind") is None and name in set(RuleKind):
        kind = RuleKind(name)
    else:
        kind = reader.choice("kind", RuleKind, RuleKind.FAILED)
        if reader.get("kind") is None:
            reader.expected("kind", f"one of {', '.join(RuleKind)}")
    after = None
    if reader.get("after_seconds") is not None:
        after = reader.number("after_seconds", 0, 0, 30 * _DAY)
        if kind not in AFTER_SECONDS:
            reader.wrong("after_seconds", f"is for {', '.join(AFTER_SECONDS)}; {kind} is told at once")
    repeat = reader.number("repeat_seconds", 0, 60, 30 * _DAY) if reader.get("repeat_seconds") is not None else None
    rule = Rule(
        name=name,
        kind=kind,
        enabled=reader.flag("enabled", default=True),
        tasks=reader.texts("tasks", most=1_000),
        channels=reader.texts("channels", most=100, length=100),
        count=reader.integer("count", 3, 1, 10_000),
        after_seconds=after,
        factor=reader.number("factor", 3.0, 1.0, 1_000.0),
        repeat_seconds=repeat,
    )
    _finish(reader, "an alert rule")
    return rule


def read_channel(given: Mapping[str, Any], there: Channel | None) -> Channel:
    """MASK stands for what `there` has."""
    reader = Reader(given, Problems())
    name = _read_name(reader)
    kind: ChannelKind = "webhook"
    if reader.get("kind") == "apprise":
        kind = "apprise"
    elif reader.get("kind") not in (None, "webhook"):
        reader.expected("kind", "webhook or apprise")
    url = reader.text("url", "", least=1, most=4_000)
    if there is not None and url == shown_url(there):
        url = there.url
    if not url or (kind == "webhook" and not _is_web_address(url)) or (kind == "apprise" and "://" not in url):
        what = "http://HOST/… or https://HOST/…" if kind == "webhook" else "an address that apprise reads"
        reader.wrong("url", f"is missing or wrong; expected {what}")
    secret = reader.text("secret", None, least=1, most=1_000)
    if secret == MASK and there is not None:
        secret = there.secret
    for field, text in (("url", url), ("secret", secret)):
        if text is not None and is_sealed(text):
            reader.wrong(field, "is sealed, and no key of secrets.key_file opens it; expected the value itself")
    if secret is not None and kind == "apprise":
        reader.wrong("secret", "is for webhooks; apprise has it in the url")
    channel = Channel(
        name=name,
        kind=kind,
        url=url,
        secret=secret,
        headers=_read_headers(reader, {} if there is None else there.headers),
        enabled=reader.flag("enabled", default=True),
    )
    _finish(reader, "an alert channel")
    return channel


def _read_name(reader: Reader) -> str:
    name = reader.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        reader.expected("name", "1 to 100 letters, digits, dots, dashes and underscores, a letter or digit first")
        return "wrong"
    return name


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # ValueError for one out of range
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None


def _read_headers(reader: Reader, kept: Mapping[str, str]) -> dict[str, str]:
    value = reader.get("headers")
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > 50:
        reader.expected("headers", "an object of at most 50 headers")
        return {}
    found = unmasked(value, kept)
    for name, text in found.items():
        is_ours = str(name).lower() in OWNED_HEADERS or is_of_the_connection(str(name))
        is_name = _TOKEN.fullmatch(str(name)) is not None and not is_ours
        if not is_name or not isinstance(text, str) or not text.isprintable() or len(text) > 8_000:
            reader.wrong(f"headers.{str(name)[:60]}", "is not a header of one line that a channel may set")
        elif is_sealed(text):
            problem = "is sealed, and no key of secrets.key_file opens it; expected the value itself"
            reader.wrong(f"headers.{str(name)[:60]}", problem)
    return found


def _finish(reader: Reader, what: str) -> None:
    reader.know(READ_ONLY)  # an answer that is written back is taken
    reader.finish(what)
    reader.problems.finish()


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
