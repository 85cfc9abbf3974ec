"""Every route that there is, from the API's own description: a test that walks them all does not forget the next one."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from integration.api.serving import Api

VALUES = {
    "id": "1",
    "run_id": "1",
    "plan_id": "ab",
    "callback_token": "x" * 43,
    "name": "q",
    "worker_id": "w",
}

CAREFUL = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Written out: a header that the code forgets is missed here."""


class Route(NamedTuple):
    method: str
    path: str
    """With its `{parts}`."""
    operation: dict[str, Any]

    @property
    def address(self) -> str:
        """For `Api.call`."""
        return "/" + re.sub(r"\{(\w+)\}", lambda part: VALUES.get(part[1], "x"), self.path)

    @property
    def queries(self) -> list[dict[str, Any]]:
        return [each for each in self.operation.get("parameters", []) if each["in"] == "query"]

    @property
    def is_stream(self) -> bool:
        return self.path.endswith("/events")


async def routes(api: Api, **more: Any) -> list[Route]:
    document = await api.good("GET", "//openapi.json", **more)
    found = [
        Route(method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    assert len(found) > 80
    return found
