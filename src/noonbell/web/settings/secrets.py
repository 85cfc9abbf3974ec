"""Secrets: who has some, and whether they are sealed. Their values are on no page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell.model.request import TaskQuery
from noonbell.model.task import Task
from noonbell.sealing import is_sealed
from noonbell.service.secrets import MASK, is_secret
from noonbell.web.page import Page
from noonbell.web.settings.frame import section
from noonbell.web.site import Site
from noonbell.web.visit import Visit

_LOOKED_AT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Holder:
    name: str
    path: str
    names: list[str]
    """Of its secret headers, and `secret` or `url`."""
    sealed: bool | None
    """None where nobody can tell from outside."""


async def show(visit: Visit) -> Response:
    tasks = await visit.site.services.store.tasks(TaskQuery(page_size=_LOOKED_AT, sort="name"))
    channels = [] if visit.site.alerts is None else await visit.site.alerts.channels()
    found = [holder for task in tasks.items if (holder := of_task(task)) is not None]
    return section(
        visit,
        "secrets",
        "settings_secrets.html",
        is_sealing=visit.site.settings.secrets.key_file is not None,
        tasks=found,
        channels=[holder for channel in channels if (holder := of_channel(channel)) is not None],
        plain=sum(holder.sealed is False for holder in found),
        looked_at=len(tasks.items) if tasks.next_cursor is not None else None,
    )


def of_task(task: Task) -> Holder | None:
    values = {name: value for name, value in task.spec.headers.items() if value and is_secret(name)}
    if task.spec.secret:
        values["secret"] = task.spec.secret
    if not values:
        return None
    return Holder(task.name, f"/tasks/{task.id}", sorted(values), all(is_sealed(value) for value in values.values()))


def of_channel(channel: dict[str, Any]) -> Holder | None:
    """Told by its masks: the service opens what it can before it shows it."""
    names = [name for name, value in channel["headers"].items() if value == MASK]
    names += [name for name in ("secret", "url") if MASK in (channel[name] or "")]
    return Holder(channel["name"], f"/settings/channels/{channel['name']}", names, None) if names else None


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/settings/secrets", show)]
