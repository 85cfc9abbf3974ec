"""Channels of kind `webhook`: a POST with JSON, signed as Standard Webhooks where the channel has a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from yarl import URL

from noonbell.alerts.channel_kind import ChannelKind
from noonbell.alerts.posting import PostSender, check_web_address, is_success, maker, refused
from noonbell.clock import SECOND
from noonbell.masking import origin_alone
from noonbell.model.alert import Channel
from noonbell.targets.http import signing


class WebhookSender(PostSender):
    async def send(self, channel: Channel, message: Mapping[str, Any], delivery_id: str) -> int | None:
        content = msgspec.json.encode(message)
        own = {"webhook-id": delivery_id}
        if channel.secret:
            own |= signing.sign(channel.secret, delivery_id, self._now() // SECOND, content)
        answer = await self.post(URL(channel.url), content, channel.headers, own)
        if not is_success(answer):
            raise refused(answer)
        return answer.status


KIND: Final = ChannelKind(
    name="webhook",
    make_sender=maker(WebhookSender),
    check=check_web_address,
    shown_url=origin_alone,
    credential="signs as Standard Webhooks",
    fields=("url", "secret", "headers"),
)
