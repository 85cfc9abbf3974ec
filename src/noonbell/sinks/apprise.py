"""Notices to whatever `apprise` can reach: e-mail, Slack, DingTalk, Feishu, WeCom, Telegram and a hundred more.

The library is an extra. It speaks to the services by itself, past our outbound guard: channels of this kind are the
administrator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from noonbell.model.alert import Channel, What
from noonbell.ports import Undeliverable

TIMEOUT = 30.0


class AppriseCourier:
    async def send(self, channel: Channel, notice: Mapping[str, Any], delivery_id: str) -> int | None:
        del delivery_id  # nothing to carry it in
        try:
            async with asyncio.timeout(TIMEOUT):
                arrived = await asyncio.to_thread(_notify, channel.url, notice)
        except TimeoutError:
            raise Undeliverable(f"no answer within {TIMEOUT:g} s") from None
        except Undeliverable:
            raise
        except Exception as error:  # whatever the library stumbles over; its words may hold the address
            raise Undeliverable(f"apprise failed: {type(error).__name__}") from error
        if not arrived:
            raise Undeliverable("the service did not take it; the log of apprise says why")
        return None


def _notify(url: str, notice: Mapping[str, Any]) -> bool:
    try:
        import apprise
    except ModuleNotFoundError:
        raise Undeliverable("apprise is not installed: pip install 'noonbell[alerts]'", again=False) from None
    sender = apprise.Apprise()
    if not sender.add(url):
        raise Undeliverable("the url is none that apprise knows", again=False)
    kind = apprise.NotifyType.SUCCESS if notice["type"] == What.RECOVERED else apprise.NotifyType.WARNING
    return bool(sender.notify(title=notice["title"], body=body_of(notice), notify_type=kind))


def body_of(notice: Mapping[str, Any]) -> str:
    """What it says, and below it the link that shows the most of it: the run, its task, the dashboard."""
    links = notice.get("links") or {}
    found = [links[name] for name in ("run", "task", "dashboard") if name in links][:1]
    return "\n".join([notice["message"] or notice["title"], *found])
