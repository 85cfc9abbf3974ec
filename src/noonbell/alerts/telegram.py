"""Channels of kind `telegram`: a bot of Telegram writes to chats.

BotFather hands out a token, `123456:AA…`: it is the channel's secret. The address is that of the Bot API, and need not
be given; an address with the token in it, as people paste it (`https://api.telegram.org/bot123456:AA…/getUpdates`), is
taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from yarl import URL

from noonbell.alerts import chat
from noonbell.alerts.channel_kind import ChannelKind, Undeliverable
from noonbell.alerts.posting import Answer, is_success, maker, refused
from noonbell.fields.problems import ReadContext
from noonbell.masking import origin_alone
from noonbell.model.alert import Channel
from noonbell.model.failure_text import failure_text
from noonbell.service.target_fields import is_web_address

_LONGEST = 4_000
"""Bytes; a message may have 4,096 characters."""
_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{10,100}")
_IN_PATH = re.compile(rf"/bot({_TOKEN.pattern})(/.*)?$")
_CHAT = re.compile(r"-?[0-9]{1,20}|@[A-Za-z0-9_]{4,64}")


class TelegramSender(chat.ChatSender):
    def request_of(self, channel: Channel, message: Mapping[str, Any]) -> list[chat.ChatRequest]:
        url = URL(f"{channel.url.rstrip('/')}/bot{channel.secret}/sendMessage", encoded=True)
        text = chat.text_of(message, _LONGEST)
        return [chat.ChatRequest(url, {"chat_id": chat_id, "text": text}) for chat_id in channel.to]

    def problem_of(self, answer: Answer) -> Undeliverable | None:
        said = chat.read_json(answer.body)
        if is_success(answer) and said.get("ok") is True:
            return None
        if is_success(answer):
            return Undeliverable(failure_text("alert_no_bot"), again=False, response_code=answer.status)
        return refused(answer, str(said.get("description") or ""))


def taken_apart(channel: Channel) -> Channel:
    """The token of a pasted address, or one that was written as the address, becomes the secret."""
    url = channel.url
    if found := _TOKEN.fullmatch(url):
        return msgspec.structs.replace(channel, url=DEFAULT_URL, secret=channel.secret or found.group())
    if found := _IN_PATH.search(url):
        return msgspec.structs.replace(channel, url=url[: found.start()], secret=channel.secret or found.group(1))
    return channel


def check(channel: Channel, at: ReadContext) -> None:
    if not is_web_address(channel.url) or URL(channel.url).query_string:
        at.wrong("url", "is wrong; expected the URL of a Bot API, such as https://api.telegram.org")
    if channel.secret is None or not (_TOKEN.fullmatch(channel.secret)):
        at.wrong("secret", "is missing or wrong; expected the bot's token, such as 123456:AA…")
    if not channel.to:
        at.wrong("to", "is missing; expected ids of chats, such as -1001234567890 or @channel")
    for chat_id in channel.to:
        if _CHAT.fullmatch(chat_id) is None:
            template = "has {value}; expected an id of a chat, such as -1001234567890, or @channel"
            at.wrong("to", template, value=repr(chat_id[:40]))


DEFAULT_URL: Final = "https://api.telegram.org"
KIND: Final = ChannelKind(
    name="telegram",
    make_sender=maker(TelegramSender),
    check=check,
    shown_url=origin_alone,
    credential="the token of the bot, required",
    fields=("secret", "to", "url"),
    sends_secret=True,
    default_url=DEFAULT_URL,
    tidy=taken_apart,
    owns=lambda url: chat.is_at(url, "api.telegram.org"),
)
