"""The server's API as commands call it, with the address and token of the environment; and `noonbell api`, any call of it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import click

from noonbell import errors
from noonbell.cli.root import did_you_mean

Query = Mapping[str, Any]
_MOST_NAMES = 2_000
_TEXTS = ("/version", "/healthz", "/livez", "/readyz", "/metrics", "/runs/export", "/openapi.json")
"""What a server answers as text; everything else of its API is JSON."""


class Remote:
    """The client is imported when one is made: help and completion start without it."""

    def __init__(self, url: str, token: str | None = None, patience: float | None = None) -> None:
        """`url` is where the server is reached, with the prefix that it lives under, if any, and without `/api/v1`.

        `patience` is how many seconds an answer may take [60].
        """
        from noonbell.client import transport

        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        if self.url.endswith(transport.BASE):
            problem = f"is {url!r}; leave {transport.BASE} out: NOONBELL_URL={self.url.removesuffix(transport.BASE)}"
            raise errors.SettingsError.field("NOONBELL_URL", problem)
        try:
            self._wire = transport.Transport(self.url, token, patience or transport.PATIENCE)
        except errors.InvalidArgument:
            problem = f"is {url!r}; expected an address such as {transport.DEFAULT_URL}"
            raise errors.SettingsError.field("NOONBELL_URL", problem) from None

    @classmethod
    def of_environment(cls, patience: float | None = None) -> Remote:
        from noonbell.client.transport import DEFAULT_URL

        return cls(os.environ.get("NOONBELL_URL") or DEFAULT_URL, os.environ.get("NOONBELL_TOKEN") or None, patience)

    def get(self, path: str, query: Query | None = None) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None) -> Any:
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: Any = None, *, query: Query | None = None) -> Any:
        """The answer, read as JSON where it is JSON. An error of the server is raised as the error it was."""
        try:
            return self._send(method, path, body, query)
        except errors.NoonbellError as error:
            raise self._with_hint(error, path) from None

    def _with_hint(self, error: errors.NoonbellError, path: str) -> errors.NoonbellError:
        """The same error, with what to do about it on the command line."""
        hint = ""
        match error:
            case errors.NotFound():
                return errors.NotFound(self._missing(path) or error.message, details=error.details)
            case errors.InvalidId():
                noun, ref = _noun_and_ref(path)
                hint = f"noonbell run list --task {shlex.quote(ref)} lists the runs of a task" if noun == "runs" else ""
            case errors.AlreadyExists() if path in ("/alerts/channels", "/alerts/rules"):
                hint = f"noonbell api PUT {path}/NAME changes it"
            case errors.Unauthorized():
                hint = "set a token in NOONBELL_TOKEN; noonbell token create creates one"
            case _ if "url" in error.details and error.details["url"] == self.url:
                hint = f"NOONBELL_URL is {self.url}"
            case errors.StoreUnavailable() if error.message.startswith("no server at"):
                hint = "start one with `noonbell serve`, or give its address in NOONBELL_URL"
        mark = " " if error.message.endswith("?") else "; "
        return type(error)(f"{error.message}{mark}{hint}", details=error.details) if hint else error

    def _send(self, method: str, path: str, body: Any, query: Query | None) -> Any:
        from noonbell.client.transport import BASE, ClientRequest

        base = "" if path.startswith(("/api/", "/metrics", "/openapi.json")) else BASE
        answer = self._wire.call(ClientRequest(method, base + path, query or {}, body))
        if isinstance(answer, str) and answer and not path.removeprefix(BASE).partition("?")[0].startswith(_TEXTS):
            raise self._no_noonbell()
        return answer

    def _no_noonbell(self) -> errors.NoonbellError:
        return errors.StoreUnavailable(f"{self.url} responds, but is not a Noonbell server", details={"url": self.url})

    def _missing(self, path: str) -> str | None:
        """The task or run that is not there, with names that are near. None: something else of this path is missing."""
        noun, ref = _noun_and_ref(path)
        if noun == "calendars" and ref:
            return self._missing_calendar(ref)
        if noun not in ("tasks", "runs") or not ref:
            return None
        try:
            self._send("GET", f"/{noun}/{segment(ref)}", None, None)
        except errors.NotFound:
            what = noun.removesuffix("s")
            if not ref.startswith("name:"):
                return f"there is no {what} {ref}; noonbell {what} list shows the existing ones"
            name = ref.removeprefix("name:")
            return f"there is no task {name!r}{did_you_mean(name, self._task_names())}"
        except errors.NoonbellError:
            pass
        return None

    def _missing_calendar(self, name: str) -> str | None:
        with contextlib.suppress(errors.NoonbellError):
            known = [each["name"] for each in self._send("GET", "/calendars", None, None)["items"]]
            if name not in known:
                return f"there is no calendar {name!r}{did_you_mean(name, known)}"
        return None

    def _task_names(self) -> list[str]:
        """For suggestions: the names of the first `_MOST_NAMES` tasks; empty where the server does not give them."""
        with contextlib.suppress(errors.NoonbellError):
            return [task["name"] for task in self.pages("/tasks", {}, _MOST_NAMES)]
        return []

    def pages(self, path: str, query: Query, most: int | None) -> Iterator[Any]:
        """Every item of a list, page by page, until there are no more or `most` have come."""
        cursor, left = "", most
        while True:
            size = 200 if left is None else max(1, min(200, left))
            page = self.get(path, {**query, "page_size": size, "cursor": cursor})
            if not isinstance(page, dict) or "items" not in page:
                raise self._with_hint(self._no_noonbell(), path)
            yield from page["items"][:left]
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next_cursor") or ""
            if not cursor or (left is not None and left <= 0):
                return

    def events(self, query: Query, last_id: str | None) -> Iterator[dict[str, Any]]:
        """The event stream from here on; ends when the server does."""
        from noonbell.client.transport import listening

        yield from self._wire.stream(listening(last_id, query))


def _noun_and_ref(path: str) -> tuple[str, str]:
    """`("tasks", "name:a/b")` of `/tasks/name%3Aa%2Fb/trigger`."""
    _, noun, ref, *_ = [*path.split("/"), "", ""]
    return noun, urllib.parse.unquote(ref)


class Named(NamedTuple):
    """What the names that a command takes stand for."""

    argument: str
    address: Callable[[str], str]
    """From a name to the path of what it names."""
    complete: Callable[[click.Context, click.Parameter, str], list[str]] | None = None
    check: Callable[[Remote, str], None] = lambda _remote, _name: None
    """Called before each name is acted on."""


def post_for_each(group: click.Group, verb: str, does: str, named: Named, tell: Callable[[str, Any], None]) -> None:
    """Declare `GROUP VERB NAME…`: POST to ADDRESS/VERB for each name; `tell` prints the name and the answer."""

    @group.command(verb, help=does)
    @click.argument(named.argument, nargs=-1, required=True, shell_complete=named.complete)
    def command(**given: tuple[str, ...]) -> None:
        remote = Remote.of_environment()
        for name in given[named.argument]:
            named.check(remote, name)
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
@click.option("-d", "--data", metavar="JSON", help="The body; - for stdin.")
def api_command(method: str, path: str, data: str | None) -> None:
    """Call the API: `noonbell api GET /tasks`, `noonbell api POST /tasks/1/trigger -d '{}'`."""
    text = sys.stdin.read() if data == "-" else data
    try:
        body = None if text is None else json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="--data") from None
    answer = Remote.of_environment().call(method.upper(), f"/{path.lstrip('/')}", body)
    click.echo(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, indent=2))
