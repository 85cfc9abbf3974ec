"""Channels of kind `teams`: a workflow of Microsoft Teams that begins with "When a Teams webhook request is received".

The address ends in `&sig=…`, which is all that protects it. It takes a message with one adaptive card and answers 202.
The older connectors (`….webhook.office.com`) take the same card, and answer 200 to what they refuse, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from yarl import URL

from noonbell.alerts import chat
from noonbell.alerts.channel_kind import Undeliverable
from noonbell.alerts.posting import Answer
from noonbell.model.alert import AlertMessageType, Channel
from noonbell.model.failure_text import failure_text

_LONGEST = 20_000
"""Of the text: a message may have 28 KB."""
_FAILED: Final = "message delivery failed"
_OPEN: Final = {"en": "Open", "zh": "打开"}


class TeamsSender(chat.ChatSender):
    def request_of(self, channel: Channel, message: Mapping[str, Any]) -> list[chat.ChatRequest]:
        is_well = message["type"] in (AlertMessageType.RECOVERED, AlertMessageType.TEST)
        title = {
            "type": "TextBlock",
            "text": chat.title_of(message),
            "weight": "Bolder",
            "size": "Medium",
            "color": "Good" if is_well else "Attention",
            "wrap": True,
        }
        said = {"type": "TextBlock", "text": chat.shortened(str(message["message"] or ""), _LONGEST), "wrap": True}
        link = chat.link_of(message)
        actions = [{"type": "Action.OpenUrl", "title": _OPEN[channel.language], "url": link}] if link else []
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": [title, *([said] if said["text"] else [])],
            "actions": actions,
        }
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return [chat.ChatRequest(URL(channel.url, encoded=True), {"type": "message", "attachments": [attachment]})]

    def problem_of(self, answer: Answer) -> Undeliverable | None:
        if (problem := super().problem_of(answer)) is not None:
            return problem
        said = chat.text_in(answer)
        return (
            Undeliverable(
                failure_text("alert_answered_why", status=answer.status, error=said[:300]), response_code=answer.status
            )
            if _FAILED in said
            else None
        )


KIND: Final = chat.chat_kind(
    "teams",
    TeamsSender,
    {"Microsoft Teams": "https://HOST/workflows/ID/triggers/manual/paths/invoke?api-version=…&sig=KEY"},
    lambda url: chat.is_at(url, ".webhook.office.com"),
)
