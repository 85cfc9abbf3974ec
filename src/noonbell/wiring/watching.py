"""Who listens and who watches: the hub of events, the watchman of alerts, and the couriers that he sends."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import cast

from noonbell import sealing
from noonbell.engine.listen import Hub
from noonbell.engine.tell import Nudge, telling
from noonbell.engine.watchman import Watchman
from noonbell.ports import AlertStore, Courier, Store, Wakeup
from noonbell.service.alerts import Alerts
from noonbell.service.couriers import LinkingCourier, OpeningCourier
from noonbell.settings import Settings
from noonbell.sinks.apprise import AppriseCourier
from noonbell.sinks.metrics import Metrics
from noonbell.targets.guard import Guard
from noonbell.targets.webhook import WebhookCourier


def tell_events(store: Store, wakeup: Wakeup, open_parts: contextlib.AsyncExitStack) -> Store:
    """The store; listeners, here and on other nodes, are told when it has written events."""
    nudge = Nudge(wakeup)
    open_parts.callback(nudge.close)
    return telling(store, nudge)


def hear_events(
    store: Store, wakeup: Wakeup, metrics: Metrics | None, open_parts: contextlib.AsyncExitStack
) -> tuple[Store, Hub]:
    """The store, telling of what it writes; and the hub that hears it."""
    hub = Hub(cast("AlertStore", store), wakeup, observe=None if metrics is None else metrics.listening)
    open_parts.push_async_callback(hub.close)
    return tell_events(store, wakeup, open_parts), hub


async def watch(
    settings: Settings,
    store: Store,
    metrics: Metrics | None,
    open_parts: contextlib.AsyncExitStack,
    port: int | None = None,
) -> tuple[Watchman, Alerts]:
    """The watchman, not started; and what API and settings do with alerts, those of the settings done already."""
    executor = settings.executor
    webhook = WebhookCourier(
        guard=Guard(executor.allow_networks, executor.deny_networks), connect_timeout=executor.connect_timeout
    )
    open_parts.push_async_callback(webhook.close)
    await webhook.open()
    sealer = sealing.from_file(settings.secrets.key_file)
    couriers: Mapping[str, Courier] = {
        "webhook": OpeningCourier(webhook, sealer),
        "apprise": OpeningCourier(AppriseCourier(), sealer),
    }
    if (dashboard := settings.dashboard_url(port)) is not None:
        couriers = {kind: LinkingCourier(courier, dashboard) for kind, courier in couriers.items()}
    kept = cast("AlertStore", store)
    alerts = Alerts(kept, couriers, sealer)
    await alerts.declare(settings.alerts)
    observe = None if metrics is None else metrics.delivered
    watchman = Watchman(kept, couriers, retention=settings.events.retention, observe=observe)
    open_parts.push_async_callback(watchman.close)
    return watchman, alerts
