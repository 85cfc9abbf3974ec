"""The server's API as commands call it, with the address and token of the environment; and `noonbell api`, any call of it."""

from __future__ import annotations

import json
import os
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import click

from noonbell import errors

Query = Mapping[str, Any]


class Remote:
    """The client is imported when one is made: help and completion start without it."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """`url` is where the server is reached, with the prefix that it lives under, if any, and without `/api/v1`."""
        from noonbell.client import transport

        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        try:
            self._wire = transport.Transport(self.url, token, transport.PATIENCE)
        except errors.InvalidArgument:
            problem = f"is {url!r}; takes an address such as {transport.DEFAULT_URL}"
            raise errors.SettingsError.field("NOONBELL_URL", problem) from None

    @classmethod
    def of_environment(cls) -> Remote:
        from noonbell.client.transport import DEFAULT_URL

        return cls(os.environ.get("NOONBELL_URL") or DEFAULT_URL, os.environ.get("NOONBELL_TOKEN") or None)

    def get(self, path: str, query: Query | None = None) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None) -> Any:
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: Any = None, *, query: Query | None = None) -> Any:
        """The answer, read as JSON where it is JSON. An error of the server is raised as the error it was."""
        from noonbell.client.transport import BASE, ClientRequest

        base = "" if path.startswith(("/api/", "/metrics", "/openapi.json")) else BASE
        try:
            return self._wire.call(ClientRequest(method, base + path, query or {}, body))
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
        from noonbell.client.transport import listening

        yield from self._wire.stream(listening(last_id, query))


class Named(NamedTuple):
    """What the names that a command takes stand for."""

    argument: str
    address: Callable[[str], str]
    """From a name to the path of what it names."""
    complete: Callable[[click.Context, click.Parameter, str], list[str]] | None = None


def post_for_each(group: click.Group, verb: str, does: str, named: Named, tell: Callable[[str, Any], None]) -> None:
    """Declare `GROUP VERB NAME…`: POST to ADDRESS/VERB for each name; `tell` prints the name and the answer."""

    @group.command(verb, help=does)
    @click.argument(named.argument, nargs=-1, required=True, shell_complete=named.complete)
    def command(**given: tuple[str, ...]) -> None:
        remote = Remote.of_environment()
        for name in given[named.argument]:
            tell(name, remote.post(f"{named.address(name)}/{verb}"))


def segment(text: str) -> str:
    """A name or id, as a part of a path."""
    return urllib.parse.quote(text, safe="")


def task_segment(name_or_id: str) -> str:
    """`{id}` of a task: its number, or `name:NAME`."""
    return segment(name_or_id if name_or_id.isdecimal() or name_or_id.startswith("name:") else f"name:{name_or_id}")


@click.command("api")
@click.argument("method")
@click.argument("path")
@click.option("-d", "--data", metavar="JSON", help="The body; - reads stdin.")
def api_command(method: str, path: str, data: str | None) -> None:
    """Call the API: `noonbell api GET /tasks`, `noonbell api POST /tasks/1/trigger -d '{}'`."""
    text = sys.stdin.read() if data == "-" else data
    try:
        body = None if text is None else json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="--data") from None
    answer = Remote.of_environment().call(method.upper(), f"/{path.lstrip('/')}", body)
    click.echo(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, indent=2))
