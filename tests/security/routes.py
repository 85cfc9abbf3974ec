"""Every route that there is, from the API's own description, and calls of all of them: no test forgets the next one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from integration.api.serving import Api
from security.role_table import ROUTES

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
        return f"/{address_of(self.path)}"

    @property
    def queries(self) -> list[dict[str, Any]]:
        return [each for each in self.operation.get("parameters", []) if each["in"] == "query"]

    @property
    def is_stream(self) -> bool:
        return self.path.endswith("/events")


def address_of(path: str, **values: str) -> str:
    """The path with a value for each of its `{parts}`."""
    return re.sub(r"\{(\w+)\}", lambda part: {**VALUES, **values}.get(part[1], "x"), path)


async def statuses(api: Api, headers: dict[str, str], table: Iterable[str] = ROUTES, **values: str) -> dict[str, int]:
    """By line of the table of routes: the status of a call with these headers. No body of an answer is read: streams have
    no end.
    """
    found = {}
    for line in table:
        method, path = line.split(" ")
        body = {"wait_seconds": 0} if path.endswith("/claim") else None if method == "GET" else {}
        async with api.session.request(
            method, api.root + address_of(path, **values), json=body, headers=headers
        ) as answer:
            found[line] = answer.status
    return found


async def routes(api: Api, **more: Any) -> list[Route]:
    document = await api.good("GET", "//openapi.json", **more)
    found = [
        Route(method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    assert len(found) > 80
    return found
