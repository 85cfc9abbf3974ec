"""The server, as the command line speaks to it: the address and token of the environment, and words that help."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from noonbell import errors
from noonbell.client.wire import BASE, Ask, Wire

DEFAULT_URL: Final = "http://127.0.0.1:8080"
PATIENCE: Final = 60.0
"""Seconds that an answer may take."""

Query = Mapping[str, Any]


class Remote:
    def __init__(self, url: str, token: str | None = None) -> None:
        """`url` is where the server is reached, with the prefix that it lives under, if any, and without `/api/v1`."""
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        try:
            self._wire = Wire(self.url, token, PATIENCE)
        except errors.InvalidArgument:
            problem = f"is {url!r}; takes an address such as {DEFAULT_URL}"
            raise errors.SettingsError.field("NOONBELL_URL", problem) from None

    @classmethod
    def of_environment(cls) -> Remote:
        return cls(os.environ.get("NOONBELL_URL") or DEFAULT_URL, os.environ.get("NOONBELL_TOKEN") or None)

    def get(self, path: str, query: Query | None = None) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None) -> Any:
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: Any = None, *, query: Query | None = None) -> Any:
        """The answer, read as JSON where it is JSON. An error of the server is raised as the error it was."""
        base = "" if path.startswith(("/api/", "/metrics", "/openapi.json")) else BASE
        try:
            return self._wire.call(Ask(method, base + path, query or {}, body))
        except errors.Unauthorized as error:
            raise errors.Unauthorized(f"{error.message}; put a token into NOONBELL_TOKEN") from None
        except errors.StoreUnavailable as error:
            if not error.message.startswith("no server at"):
                raise
            hint = "start one with `noonbell serve`, or say where it is with NOONBELL_URL"
            raise errors.StoreUnavailable(f"{error.message}; {hint}") from None

    def pages(self, path: str, query: Query, most: int | None) -> Iterator[Any]:
        """Every item of a list, page by page, until there are no more or `most` have come."""
        cursor, left = "", most
        while True:
            size = 200 if left is None else max(1, min(200, left))
            page = self.get(path, {**query, "page_size": size, "cursor": cursor})
            yield from page["items"][:left]
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next_cursor") or ""
            if not cursor or (left is not None and left <= 0):
                return

    def events(self, query: Query, last_id: str | None) -> Iterator[dict[str, Any]]:
        """The event stream from here on; ends when the server does."""
        headers = {"accept": "text/event-stream", **({"last-event-id": last_id} if last_id else {})}
        yield from self._wire.stream(Ask("GET", f"{BASE}/events", query, headers=headers))


def segment(text: str) -> str:
    """A name or id, as a part of a path."""
    return urllib.parse.quote(text, safe="")


def task_segment(name_or_id: str) -> str:
    """`{id}` of a task: its number, or `name:NAME`."""
    return segment(name_or_id if name_or_id.isdecimal() or name_or_id.startswith("name:") else f"name:{name_or_id}")
