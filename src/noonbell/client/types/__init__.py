"""The JSON of the API as types: what `Client` and `AsyncClient` answer (`…Json`), and what they are given (`…Input`)."""

from __future__ import annotations

from typing import Any, TypedDict

# Each name is declared in one of these modules, and imported from here: `from noonbell.client.types import TaskJson`.
from noonbell.client.types.others import *  # noqa: F403
from noonbell.client.types.runs import *  # noqa: F403
from noonbell.client.types.task_inputs import *  # noqa: F403
from noonbell.client.types.tasks import *  # noqa: F403


class EventJson(TypedDict):
    """Of `client.events()`; docs/how-to/events.md has every `type` and its `data`."""

    id: str
    time: str
    type: str
    topic: str | None
    subject: str | int | None
    task_id: int | None
    run_id: int | None
    queue: str | None
    data: dict[str, Any]
