"""An endpoint: an address, its handler, the role that may call it, and what the API's description says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable, signature
from typing import Any, Final, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noonbell.api import params
from noonbell.api.params import BODY_LIMIT, USUAL_BYTES
from noonbell.api.responses import json_response, request_id
from noonbell.fields import table
from noonbell.fields.kinds import ListKind
from noonbell.model.access import Role
from noonbell.service.scope import ScopeRule

BASE: Final = "/api/v1"

LEGACY: Final = "legacy_"
"""How the names of calls in the words of another service begin."""

Handler = Callable[[Request], Awaitable[Response]]

Given: TypeAlias = dict[str, Any]
"""A body or a query string as it was sent: an object whose fields are still to be read."""


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


H = TypeVar("H", bound=Callable[..., Awaitable[object]])


class Described(TypedDict, total=False):
    """What `call` takes besides the address, the name, the summary and the role: see `Endpoint`."""

    tag: str
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

    A method may have several addresses, each with a line of its own. What it takes is read from the request by the names of
    its parameters, in their order: `given` is the body as an object, `body` the same as the declared Struct; `query` is the query
    string as an object, `asked` the same as the declared Struct; the others are those of ARGUMENTS and of the path. What it
    returns is sent as JSON with the declared status, unless it is a Response.
    """

    def mark(handler: H) -> H:
        at = {"methods": tuple(methods.split()), "path": path, "name": name, "summary": summary, "role": role}
        notes = " ".join((handler.__doc__ or "").split())
        handler.__dict__.setdefault("described", []).insert(0, {**at, "notes": notes, **more})
        return handler

    return mark


def endpoints_of(
    calls: object, tag: str, *, base: str = BASE, wrap: Callable[[Handler], Handler] | None = None
) -> list[Endpoint]:
    """The endpoints of an object with methods that `call` has marked, in the order of the class. `tag` is the group of those
    that name none.
    """
    found = []
    for name, method in vars(type(calls)).items():
        for each in getattr(method, "described", ()):
            handler = _handler(getattr(calls, name), each)
            found.append(Endpoint(handler=wrap(handler) if wrap else handler, base=base, **{"tag": tag, **each}))
    return found


ARGUMENTS: Final[Mapping[str, Callable[[Request], Any]]] = {
    "request": lambda request: request,
    "by": params.actor,
    "ref": params.task_ref,
    "run_id": params.run_id,
    "bulk_id": params.bulk_id,
    "version": params.expected_version,
    "language": params.accepted_language,
    "trace_id": lambda request: request_id(request.scope),
}
"""What a method of an endpoint may take by these names."""


def _handler(method: Callable[..., Awaitable[object]], described: Mapping[str, Any]) -> Handler:
    readers = [_reader(name, described) for name in signature(method).parameters]
    status = described.get("status", 200)

    async def handle(request: Request) -> Response:
        given = []
        for read in readers:
            found = read(request)
            given.append(await found if isawaitable(found) else found)
        answer = await method(*given)
        return answer if isinstance(answer, Response) else json_response(answer, status)

    return handle


def _reader(name: str, described: Mapping[str, Any]) -> Callable[[Request], Any]:
    match name:
        case "given":
            return partial(params.read_object, required=described.get("body_required", False))
        case "body":
            return partial(params.read_body, struct=described["body"], required=described.get("body_required", False))
        case "query":
            return partial(params.query_of, struct=described["query"])
        case "asked":
            return partial(params.read_query, struct=described["query"])
        case _ if name in ARGUMENTS:
            return ARGUMENTS[name]
        case _ if f"{{{name}}}" in described["path"]:
            return partial(params.piece, name=name)
        case _:
            raise TypeError(f"{described['path']} has nothing by the name of {name}")


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
