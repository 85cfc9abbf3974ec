"""Channels: the table of their kinds, how one is read and shown, and the senders of this node.

A channel's url, secret and headers may all be secrets: they are kept sealed, shown masked, and opened for sending only.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec
from yarl import URL

from noonbell.alerts import apprise, dingtalk, email, feishu, slack, teams, telegram, webhook, wecom
from noonbell.alerts.channel_kind import AlertSender, ChannelKind, Undeliverable
from noonbell.errors import InvalidState
from noonbell.fields import filled, meta, plain, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.alert import Channel
from noonbell.model.failure_text import FailureText, failure_text, said_in
from noonbell.policy.quiet import hours_problems
from noonbell.sealing import Sealer, is_sealed, key_id_of
from noonbell.service.secrets import MASK, masked, opened, unmasked
from noonbell.service.target_fields import OWNED_HEADERS, is_of_the_connection
from noonbell.settings import Settings
from noonbell.targets.http.request import conceal, hidden_parts, secret_values
from noonbell.targets.http.target import storable

KINDS: Final[Mapping[str, ChannelKind]] = {
    module.KIND.name: module.KIND
    for module in (webhook, email, slack, teams, telegram, dingtalk, feishu, wecom, apprise)
}
OF_SOME_KINDS: Final = ("url", "secret", "headers", "to", "sender")
"""Fields of a channel that not every kind has."""

_SHOWN: Final = 1_000
"""Characters of a problem that are kept."""
_SEALED: Final = "is encrypted, and no key in secrets.key_file decrypts it; expected the value itself"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}", re.ASCII)


class AlertChannel(Channel, frozen=True, kw_only=True):
    kind: Annotated[str, meta("How notices are sent.", choices=tuple(KINDS))] = webhook.KIND.name
    secret: Annotated[
        str | None,
        meta(
            "".join(f"`{kind.name}`: {kind.credential}. " for kind in KINDS.values() if kind.credential)
            + "Never shown.",
            min_length=1,
            max_length=1_000,
            examples=["***"],
        ),
    ] = None


class AlertChannelWrite(AlertChannel, frozen=True, kw_only=True):
    example: ClassVar[dict[str, Any]] = {
        "name": "ops",
        "url": "https://hooks.example.com/noonbell",
        "secret": "whsec_MfKQ9r8GKYqrTwjU",
    }


class AlertChannelChange(AlertChannelWrite, frozen=True, kw_only=True):
    example: ClassVar[dict[str, Any]] = {"url": "https://hooks.example.com/noonbell"}

    name: Annotated[str, meta("The name in the path.", read_only=True, default=None)] = ""


def read_channel(given: Mapping[str, Any], there: Channel | None) -> Channel:
    """MASK, and a url as it was shown, stand for what `there` has. InvalidArgument names every problem."""
    at = ReadContext(Problems())
    if isinstance(given.get("headers"), Mapping):
        given = {**given, "headers": unmasked(given["headers"], {} if there is None else there.headers)}
    asked = read_into(AlertChannelWrite, given, at)
    channel = filled(Channel, asked)
    if there is not None:
        url = there.url if asked.url == shown_url(there) else asked.url
        secret = there.secret if asked.secret == MASK else asked.secret
        channel = msgspec.structs.replace(channel, url=url, secret=secret)
        if asked.secret == MASK and KINDS[channel.kind].sends_secret and _server(channel) != _server(there):
            at.wrong("secret", "is not sent to another server; enter it again, or leave it out")
    kind = KINDS[channel.kind]
    channel = kind.tidy(channel if channel.url else msgspec.structs.replace(channel, url=kind.default_url))
    _check_kind(kind, channel, at)
    for name, text in (("url", channel.url), ("secret", channel.secret)):
        if text is not None and is_sealed(text):
            at.wrong(name, _SEALED)
    _check_headers(channel.headers, ReadContext(at.problems, "headers"))
    for name, problem in hours_problems("quiet", channel.quiet).items():
        at.wrong(name, problem)
    at.problems.finish()
    return channel


def _server(channel: Channel) -> tuple[str, str]:
    """Which server a channel's secret is sent to."""
    kind = KINDS.get(channel.kind)
    url = urlsplit(channel.url or ("" if kind is None else kind.default_url))
    return channel.kind, f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def _check_kind(kind: ChannelKind, channel: Channel, at: ReadContext) -> None:
    for name in OF_SOME_KINDS:
        if name not in kind.fields and getattr(channel, name):
            others = ", ".join(each.name for each in KINDS.values() if name in each.fields)
            at.wrong(name, "is for channels of kind {others}; {kind} has none", others=others, kind=kind.name)
    owner = next((each for each in KINDS.values() if each is not kind and each.owns(channel.url)), None)
    if owner is not None:
        template = "is an address for channels of kind {kind}; expected kind {kind}, or another address"
        at.wrong("url", template, kind=owner.name)
    else:
        kind.check(channel, at)


def _check_headers(headers: Mapping[str, str], at: ReadContext) -> None:
    for name, text in headers.items():
        is_ours = name.lower() in OWNED_HEADERS or is_of_the_connection(name)
        if is_ours or _TOKEN.fullmatch(name) is None or not text.isprintable():
            at.wrong(name[:60], "is not a one-line header that a channel can set")
        elif is_sealed(text):
            at.wrong(name[:60], _SEALED)


def channel_json(channel: Channel) -> dict[str, Any]:
    secret = None if channel.secret is None else MASK
    return {**plain(channel), "url": shown_url(channel), "secret": secret, "headers": masked(channel.headers)}


def shown_url(channel: Channel) -> str:
    """MASK where the url is sealed with a key that this node lacks, or the kind is unknown to this version."""
    kind = KINDS.get(channel.kind)
    return MASK if kind is None or is_sealed(channel.url) else kind.shown_url(channel.url)


class ChannelSender:
    """Sends to channels of every kind: opens their secrets for that moment, and adds links to the dashboard."""

    def __init__(
        self, senders: Mapping[str, AlertSender], sealer: Sealer | None = None, dashboard: str | None = None
    ) -> None:
        self._senders, self._sealer, self._dashboard = senders, sealer or Sealer(), dashboard

    async def send(self, channel: Channel, message: Mapping[str, Any], delivery_id: str) -> int | None:
        """As AlertSender's. The channel's secrets may be sealed."""
        sender = self._senders.get(channel.kind)
        if sender is None:
            raise Undeliverable(failure_text("alert_no_kind", kind=channel.kind), again=False)
        try:
            channel = opened(channel, self._sealer)
        except InvalidState:
            sealed = filter(is_sealed, (channel.url, channel.secret or "", *channel.headers.values()))
            keys = ", ".join(sorted({key_id_of(text)[:40] for text in sealed}))
            raise Undeliverable(failure_text("alert_sealed", keys=keys)) from None
        if self._dashboard is not None:
            message = {**message, "links": links(self._dashboard, message)}
        try:
            return await sender.send(channel, message, delivery_id)
        except Undeliverable as problem:  # it may repeat what was answered, and an answer what was sent
            why = _shown(said_in(problem), _hidden(channel))
            raise Undeliverable(why, again=problem.again, response_code=problem.response_code) from None


def _shown(why: str, hidden: list[str]) -> str:
    """Without what must not be kept, still with its code and facts where it has them."""

    def kept(text: str) -> str:
        return conceal(storable(text), hidden)[:_SHOWN]

    if not isinstance(why, FailureText):
        return kept(why)
    return failure_text(
        why.code, **{name: kept(fact) if isinstance(fact, str) else fact for name, fact in why.facts.items()}
    )


def _hidden(channel: Channel) -> list[str]:
    """What must not be kept of a problem. The words that every address of the kind has are no secrets."""
    kind = KINDS[channel.kind]
    known = {part for example in kind.url_examples.values() for part in urlsplit(example).path.split("/")}
    secrets = [*(channel.secret or "").split(), *secret_values(channel.headers)]
    try:
        url = URL(channel.url)
    except ValueError:
        return [channel.url, *secrets]
    return hidden_parts(url, secrets, known)


async def open_senders(
    settings: Settings, sealer: Sealer, dashboard: str | None, open_parts: contextlib.AsyncExitStack
) -> ChannelSender:
    """A sender of each kind; `open_parts` closes them. `dashboard` is the address that links begin with."""
    senders = {kind.name: kind.make_sender(settings) for kind in KINDS.values()}
    for sender in senders.values():
        open_parts.push_async_callback(sender.close)
        await sender.open()
    return ChannelSender(senders, sealer, dashboard)


def links(dashboard: str, message: Mapping[str, Any]) -> dict[str, str]:
    """Where the dashboard shows the task and the run of a message."""
    found = {"dashboard": f"{dashboard}/"}
    if (task_id := message.get("task_id")) is not None:
        found["task"] = f"{dashboard}/tasks/{task_id}"
    if (run_id := message.get("run_id")) is not None:
        found["run"] = f"{dashboard}/runs/{run_id}"
    return found
