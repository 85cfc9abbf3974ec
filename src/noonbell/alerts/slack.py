"""Channels of kind `slack`: an incoming webhook of a Slack app, `https://hooks.slack.com/services/T…/B…/…`.

It answers `ok`, or the reason as a plain text with status 4xx. In a text, only `&`, `<` and `>` mean something, and are
written otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from yarl import URL

from noonbell.alerts import chat
from noonbell.model.alert import Channel

_LONGEST = 3_000
"""Of the text: longer ones are cut off in the channel."""


class SlackSender(chat.ChatSender):
    def request_of(self, channel: Channel, message: Mapping[str, Any]) -> list[chat.ChatRequest]:
        said = escaped(chat.shortened(str(message["message"] or ""), _LONGEST))
        link = chat.link_of(message)
        lines = [f"*{escaped(chat.title_of(message))}*", said, f"<{escaped(link)}>" if link else ""]
        return [chat.ChatRequest(URL(channel.url), {"text": "\n".join(filter(None, lines)), "unfurl_links": False})]


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def is_incoming_webhook(url: str) -> bool:
    """Other addresses of Slack start workflows, and take any JSON."""
    return chat.is_at(url, "hooks.slack.com", "hooks.slack-gov.com") and urlsplit(url).path.startswith("/services/")


KIND: Final = chat.chat_kind(
    "slack", SlackSender, {"Slack": "https://hooks.slack.com/services/T000/B000/KEY"}, is_incoming_webhook
)
