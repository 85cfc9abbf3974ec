"""The table of the API's endpoints without a server: their handlers are not to be called."""

from __future__ import annotations

from typing import Any

from noonbell.api.app import all_endpoints
from noonbell.api.endpoint import Endpoint
from noonbell.service import Services
from noonbell.service.task_fields import Rules
from noonbell.settings import Settings


def endpoint_table() -> list[Endpoint]:
    nothing: Any = object()
    services = Services(nothing, nothing, Rules.of(Settings()), nothing, nothing)
    return all_endpoints(services, health=dict, hub=nothing, alerts=nothing, access=nothing, webhooks=nothing)
