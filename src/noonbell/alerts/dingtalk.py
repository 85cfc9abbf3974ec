r"""Channels of kind `dingtalk`: a custom robot of a DingTalk group.

The robot page hands out `https://oapi.dingtalk.com/robot/send?access_token=…`, and a secret that begins with SEC where "sign" is chosen.
The signature is in the address: HMAC-SHA256 of `TIMESTAMP\nSECRET` under the secret, in base64. A refusal comes with status 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from yarl import URL

from noonbell.alerts import chat
from noonbell.clock import SECOND
from noonbell.model.alert import Channel

_LONGEST = 16_000


class DingTalkSender(chat.CodedSender):
    busy_codes = frozenset({-1, 130101, 130102, 410100})
    """The system is busy; too many messages in a minute."""

    def request_of(self, channel: Channel, message: Mapping[str, Any]) -> list[chat.ChatRequest]:
        url = URL(channel.url)
        if channel.secret:
            stamp = str(self._now() // (SECOND // 1000))
            url = url.update_query(timestamp=stamp, sign=chat.signature(channel.secret, f"{stamp}\n{channel.secret}"))
        return [chat.ChatRequest(url, {"msgtype": "text", "text": {"content": chat.text_of(message, _LONGEST)}})]


KIND: Final = chat.chat_kind(
    "dingtalk",
    DingTalkSender,
    {"DingTalk 钉钉": "https://oapi.dingtalk.com/robot/send?access_token=TOKEN"},
    lambda url: chat.is_at(url, "oapi.dingtalk.com", "api.dingtalk.com"),
    check=chat.check_address(
        "https://oapi.dingtalk.com/robot/send?access_token=…", lambda url: "access_token" in url.query
    ),
    signs="signs the address, where the robot's security setting is a signature",
)
