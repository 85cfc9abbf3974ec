"""A courier for channels whose secrets are sealed: they are opened for the moment of sending, and held nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noonbell.errors import InvalidState
from noonbell.model.alert import Channel
from noonbell.ports import Courier, Undeliverable
from noonbell.sealing import Sealer
from noonbell.service.secrets import opened


class OpeningCourier:
    def __init__(self, courier: Courier, sealer: Sealer) -> None:
        self._courier, self._sealer = courier, sealer

    async def send(self, channel: Channel, notice: Mapping[str, Any], delivery_id: str) -> int | None:
        try:
            plain = opened(channel, self._sealer)
        except InvalidState as error:
            raise Undeliverable(error.message) from None
        return await self._courier.send(plain, notice, delivery_id)
