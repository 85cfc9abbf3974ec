r"""Channels of kind `feishu`: a custom bot of a Feishu or Lark group.

The bot page hands out `https://open.feishu.cn/open-apis/bot/v2/hook/…` (Lark: open.larksuite.com), and a secret where signatures are
chosen. The signature is in the body: HMAC-SHA256 of nothing under the key `TIMESTAMP\nSECRET`, in base64. A refusal comes with status 200.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from yarl import URL

from noonbell.alerts import chat
from noonbell.clock import SECOND
from noonbell.model.alert import Channel

_LONGEST = 16_000
_MENTION = re.compile(r"<(?=/?at\b)", re.IGNORECASE)


class FeishuSender(chat.CodedSender):
    code_names = ("code", "StatusCode")
    text_name = "msg"
    busy_codes = frozenset({9499, 11232, 11233})
    """Too many messages at once."""

    def request_of(self, channel: Channel, message: Mapping[str, Any]) -> list[chat.ChatRequest]:
        text = without_mentions(chat.text_of(message, _LONGEST))
        body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
        if channel.secret:
            stamp = str(self._now() // SECOND)
            body |= {"timestamp": stamp, "sign": chat.signature(f"{stamp}\n{channel.secret}", "")}
        return [chat.ChatRequest(URL(channel.url), body)]


def without_mentions(text: str) -> str:
    """`<at user_id="all">` in a text calls everybody of the group: an error message must not. There is no way to escape it."""
    return _MENTION.sub("< ", text)


KIND: Final = chat.chat_kind(
    "feishu",
    FeishuSender,
    {
        "Feishu 飞书": "https://open.feishu.cn/open-apis/bot/v2/hook/TOKEN",
        "Lark": "https://open.larksuite.com/open-apis/bot/v2/hook/TOKEN",
    },
    lambda url: chat.is_at(url, "open.feishu.cn", "open.larksuite.com"),
    check=chat.check_address("https://open.feishu.cn/open-apis/bot/v2/hook/…", lambda url: "/hook/" in url.path),
    signs="signs the body, where the bot asks for a signature",
)
