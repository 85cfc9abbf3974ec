"""An endpoint: an address, who answers there, and what the API's description says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noonbell.api import params
from noonbell.api.limits import LIMIT, USUAL_BYTES

BASE: Final = "/api/v1"

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of the query string."""

    name: str
    means: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    example: Any = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    methods: tuple[str, ...]
    path: str
    """Under `base`, with `{id}` and the like in it."""
    handler: Handler
    name: str
    """Unique: the operation's id in the description, with the method behind it where there are several."""
    summary: str
    tag: str
    answer: str | None = None
    """The schema of a good answer; None for plain text."""
    answer_example: Any = None
    status: int = 200
    body: str | None = None
    """The schema of the body; None where there is none."""
    body_example: Any = None
    body_required: bool = False
    query: tuple[Param, ...] = ()
    errors: tuple[str, ...] = ()
    """Codes, besides those that every call may answer with."""
    notes: str = ""
    base: str = BASE
    most_bytes: int = USUAL_BYTES
    """The largest body that it takes."""
    versioned: bool = False
    """Takes `If-Match`."""


class Guards(Protocol):
    """Who stands before an endpoint, and behind it."""

    async def admit(self, request: Request, endpoint: Endpoint) -> None: ...

    async def note(self, request: Request, endpoint: Endpoint, answer: Response) -> None: ...


def routes(endpoints: Sequence[Endpoint], guard: Guards | None = None) -> list[Route]:
    """One route for each address, so that a wrong method is told all the right ones.

    A route takes every method: `GET /runs/batch` is a wrong method there, and not the run called batch.
    """
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        here = by_path.setdefault(endpoint.base + endpoint.path, {})
        for method in endpoint.methods:
            here[method] = endpoint
    found = [Route(path, _dispatch(here, guard)) for path, here in sorted(by_path.items(), key=_fixed_first)]
    for route in found:
        route.methods = None
    return found


def _fixed_first(item: tuple[str, Any]) -> list[bool]:
    """An address that is written out comes before one with a part that may be anything."""
    return [piece.startswith("{") for piece in item[0].split("/")]


def _dispatch(here: Mapping[str, Endpoint], guard: Guards | None) -> Handler:
    allowed = ", ".join([*here, *(["HEAD"] if "GET" in here else [])])
    known = {method: frozenset(param.name for param in endpoint.query) for method, endpoint in here.items()}

    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = here.get(method)
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": allowed})
        if guard is not None:
            await guard.admit(request, endpoint)
        request.scope[LIMIT] = endpoint.most_bytes
        if request.scope["query_string"]:
            params.check_query(request, known[method])
        answer = await endpoint.handler(request)
        if guard is not None:
            await guard.note(request, endpoint, answer)
        return answer

    return handle
