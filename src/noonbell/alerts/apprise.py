"""Channels of kind `apprise`: the library sends to Discord, PagerDuty, ntfy and a hundred more.

The library is an extra. It opens its own connections, past our outbound guard: channels of this kind are the administrator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from noonbell.alerts.channel_kind import AlertSender, ChannelKind, Undeliverable
from noonbell.fields.problems import ReadContext
from noonbell.model.alert import AlertMessageType, Channel
from noonbell.model.failure_text import failure_text
from noonbell.service.secrets import MASK

TIMEOUT = 30.0


class AppriseSender(AlertSender):
    async def send(self, channel: Channel, message: Mapping[str, Any], delivery_id: str) -> int | None:
        del delivery_id  # the services have no field for it
        try:
            async with asyncio.timeout(TIMEOUT):
                arrived = await asyncio.to_thread(_notify, channel.url, message)
        except TimeoutError:
            raise Undeliverable(failure_text("alert_no_answer", seconds=f"{TIMEOUT:g}")) from None
        except Undeliverable:
            raise
        except Exception as error:  # its text may hold the address
            raise Undeliverable(failure_text("alert_apprise_error", error=type(error).__name__)) from error
        if not arrived:
            raise Undeliverable(failure_text("alert_apprise_refused"))
        return None


def _notify(url: str, message: Mapping[str, Any]) -> bool:
    try:
        import apprise
    except ModuleNotFoundError:
        raise Undeliverable(failure_text("alert_apprise_missing"), again=False) from None
    library = apprise.Apprise()
    if not library.add(url):
        raise Undeliverable(failure_text("alert_apprise_url"), again=False)
    is_well = message["type"] == AlertMessageType.RECOVERED
    kind = apprise.NotifyType.SUCCESS if is_well else apprise.NotifyType.WARNING
    return bool(library.notify(title=message["title"], body=body_of(message), notify_type=kind))


def body_of(message: Mapping[str, Any]) -> str:
    """The text, and below it the link that shows the most: the run, its task, the dashboard."""
    links = message.get("links") or {}
    found = [links[name] for name in ("run", "task", "dashboard") if name in links][:1]
    return "\n".join([message["message"] or message["title"], *found])


def check(channel: Channel, at: ReadContext) -> None:
    if "://" not in channel.url:
        at.wrong("url", "is missing or wrong; expected an address that Apprise supports")


def shown_url(url: str) -> str:
    """The name of the service: the rest is made of passwords and tokens."""
    return f"{url.partition('://')[0]}://{MASK}"


KIND: Final = ChannelKind(
    name="apprise",
    make_sender=lambda _: AppriseSender(),
    check=check,
    shown_url=shown_url,
    url_examples={
        "Discord": "discord://WEBHOOK_ID/WEBHOOK_TOKEN/",
        "PagerDuty": "pagerduty://INTEGRATION_KEY@API_KEY",
        "ntfy": "ntfys://HOST/TOPIC",
    },
    package="apprise",
    extra="alerts",
)
