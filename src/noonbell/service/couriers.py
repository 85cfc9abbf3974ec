"""What is done to a channel and to a notice for the moment of sending: secrets are opened, and held nowhere; links to the
dashboard are added, as the settings of the node that sends have them.
"""

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


class LinkingCourier:
    """Tells with each notice where on the dashboard its task and its run are, so that a phone is one tap away."""

    def __init__(self, courier: Courier, dashboard: str) -> None:
        self._courier, self._dashboard = courier, dashboard

    async def send(self, channel: Channel, notice: Mapping[str, Any], delivery_id: str) -> int | None:
        return await self._courier.send(channel, {**notice, "links": self._links(notice)}, delivery_id)

    def _links(self, notice: Mapping[str, Any]) -> dict[str, str]:
        found = {"dashboard": f"{self._dashboard}/"}
        if (task_id := notice.get("task_id")) is not None:
            found["task"] = f"{self._dashboard}/tasks/{task_id}"
        if (run_id := notice.get("run_id")) is not None:
            found["run"] = f"{self._dashboard}/runs/{run_id}"
        return found
