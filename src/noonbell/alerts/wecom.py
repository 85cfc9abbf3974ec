"""Channels of kind `wecom`: a robot of a WeCom (企业微信) group.

The robot page hands out `https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…`; the key is all that protects it. A
refusal comes with status 200. A text may have 2,048 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from yarl import URL

from noonbell.alerts import chat
from noonbell.model.alert import Channel

_LONGEST = 2_048


class WeComSender(chat.CodedSender):
    busy_codes = frozenset({-1, 45009})
    """The system is busy; more than twenty messages in a minute."""

    def request_of(self, channel: Channel, message: Mapping[str, Any]) -> list[chat.ChatRequest]:
        body = {"msgtype": "text", "text": {"content": chat.text_of(message, _LONGEST)}}
        return [chat.ChatRequest(URL(channel.url), body)]


KIND: Final = chat.chat_kind(
    "wecom",
    WeComSender,
    {"WeCom 企业微信": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=KEY"},
    lambda url: chat.is_at(url, "qyapi.weixin.qq.com"),
    check=chat.check_address("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…", lambda url: "key" in url.query),
)
