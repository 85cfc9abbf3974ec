"""An endpoint: an address, its handler, the role that may call it, and what the API's description says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypedDict, TypeVar, Unpack

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noonbell.api import params
from noonbell.api.params import BODY_LIMIT, USUAL_BYTES
from noonbell.fields import table
from noonbell.fields.kinds import ListKind
from noonbell.model.access import Role
from noonbell.service.scope import ScopeRule

BASE: Final = "/api/v1"

LEGACY: Final = "legacy_"
"""How the names of calls in the words of another service begin."""

Handler = Callable[[Request], Awaitable[Response]]


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
    role: Role | None = Role.ADMIN
    """Of the tokens that may call it, this one or a higher one; None: no token is needed."""
    scope: ScopeRule = ScopeRule.NOTHING
    answer: type[msgspec.Struct] | None = None
    """What a good answer is; None for plain text."""
    answer_is_list: bool = False
    """Whether it is a bare list of those."""
    answer_example: str = ""
    """Of plain text."""
    status: int = 200
    body: type[msgspec.Struct] | None = None
    """What the body is; None where there is none."""
    body_required: bool = False
    query: type[msgspec.Struct] | None = None
    """What the query string is."""
    errors: tuple[str, ...] = ()
    """Codes, besides those that every call may answer with."""
    notes: str = ""
    base: str = BASE
    most_bytes: int = USUAL_BYTES
    """The largest body that it takes."""
    versioned: bool = False
    """Takes `If-Match`."""
    is_counted: bool = True
    """Whether a call counts for `auth.calls_per_minute`. A worker that is held up loses its lease, and its work is done twice."""
    is_audited: bool = True
    """Whether a change is written into the audit log; not where the run itself records what was done."""

    @property
    def action(self) -> str:
        """What the audit log calls it. A legacy call does what the call of the same name does."""
        return self.name.removeprefix(LEGACY)

    @property
    def parameters(self) -> Mapping[str, bool]:
        """The names of the query string, each with whether it may be there several times."""
        fields = {} if self.query is None else table(self.query)
        return {name: isinstance(each.kind, ListKind) for name, each in fields.items()}


H = TypeVar("H", bound=Callable[..., Awaitable[Response]])


class Described(TypedDict, total=False):
    """What `call` takes besides the address, the name, the summary and the role: see `Endpoint`."""

    scope: ScopeRule
    answer: type[msgspec.Struct] | None
    answer_is_list: bool
    answer_example: str
    status: int
    body: type[msgspec.Struct] | None
    body_required: bool
    query: type[msgspec.Struct]
    errors: tuple[str, ...]
    notes: str
    most_bytes: int
    versioned: bool
    is_counted: bool
    is_audited: bool


def call(
    methods: str, path: str, name: str, summary: str, role: Role | None, **more: Unpack[Described]
) -> Callable[[H], H]:
    """Makes a method an endpoint: `GET` or `PATCH POST`, and where. Its docstring is the `notes` of the description.

    A method may have several addresses, each with a line of its own.
    """

    def mark(handler: H) -> H:
        found = handler.__dict__.setdefault("described", [])
        found.insert(
            0,
            {
                "notes": " ".join((handler.__doc__ or "").split()),
                **more,
                "at": (methods, path, name, summary),
                "role": role,
            },
        )
        return handler

    return mark


def endpoints_of(
    calls: object, tag: str, *, base: str = BASE, wrap: Callable[[Handler], Handler] | None = None
) -> list[Endpoint]:
    """The endpoints of an object with methods that `call` has marked, in the order of the class. `tag` is their group."""
    found = []
    for name, method in vars(type(calls)).items():
        for each in getattr(method, "described", ()):
            methods, path, operation, summary = each["at"]
            more = {key: value for key, value in each.items() if key != "at"}
            handler = getattr(calls, name) if wrap is None else wrap(getattr(calls, name))
            found.append(Endpoint(tuple(methods.split()), path, handler, operation, summary, tag, base=base, **more))
    return found


class EndpointGuard(Protocol):
    """Called before each endpoint, and after it."""

    async def admit(self, request: Request, endpoint: Endpoint) -> None: ...

    async def note(self, request: Request, endpoint: Endpoint, answer: Response) -> None: ...


def routes(endpoints: Sequence[Endpoint], guard: EndpointGuard | None = None) -> list[Route]:
    """One route for each address, so that the answer to a wrong method lists all the right ones.

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


def _dispatch(here: Mapping[str, Endpoint], guard: EndpointGuard | None) -> Handler:
    allowed = ", ".join([*here, *(["HEAD"] if "GET" in here else [])])

    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = here.get(method)
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": allowed})
        if guard is not None:
            await guard.admit(request, endpoint)
        request.scope[BODY_LIMIT] = endpoint.most_bytes
        if request.scope["query_string"]:
            params.check_query(request, endpoint.parameters)
        answer = await endpoint.handler(request)
        if guard is not None:
            await guard.note(request, endpoint, answer)
        return answer

    return handle
