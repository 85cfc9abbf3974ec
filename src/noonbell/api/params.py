"""Reading a request: ids in the path, the query string, headers, who calls, and the body within its limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from noonbell import fields
from noonbell.errors import InvalidArgument, Sentence
from noonbell.fields.problems import SHOWN, LocalTime, Problems, ReadContext
from noonbell.json_text import decoded, joined, too_large
from noonbell.model.access import TokenScope
from noonbell.model.run import RunId
from noonbell.service import filters
from noonbell.service.filters import ENCODED_SLASH, TaskRef

S = TypeVar("S", bound=msgspec.Struct)

ACTOR: Final = "noonbell.actor"
"""Where the scope of a request holds the caller's name, once the token has been checked."""
BOUNDS: Final = "noonbell.bounds"
"""Where it holds what a worker's token is for; None for other tokens, and where no token is asked for."""

AUDIT_DETAILS: Final = "noonbell.audit_details"
"""Where it holds what the audit log says of the change besides its address."""

AUDIT_SUBJECT: Final = "noonbell.audit_subject"
"""Where it holds the address of what the call made, for the audit log."""

NOTHING_CHANGED: Final = "noonbell.nothing_changed"
"""Where it holds that the call came to nothing: no line in the audit log."""

_ETAG = re.compile(r'(?:W/)?"?([0-9]{1,9})"?', re.ASCII)


def actor(request: Request) -> str | None:
    """The name of the caller's token; None where no token is required."""
    found: str | None = request.scope.get(ACTOR)
    return found


def bounds(request: Request) -> TokenScope | None:
    """The only queues and job types that a worker may touch; None: all of them."""
    found: TokenScope | None = request.scope.get(BOUNDS)
    return found


def add_to_audit(request: Request, **details: Any) -> None:
    """Say more in the audit log than the address of the call does: a name, a count, new limits."""
    request.scope.setdefault(AUDIT_DETAILS, {}).update(details)


def name_in_audit(request: Request, name: str) -> None:
    """Let the line in the audit log be about what was made under this name, as the lines of its changes are."""
    request.scope[AUDIT_SUBJECT] = f"{request.scope['path']}/{name.replace('/', '%2F')}"


def nothing_changed(request: Request) -> None:
    """A dry run, or a call that found everything as it should be, leaves no line in the audit log."""
    request.scope[NOTHING_CHANGED] = True


def task_ref(request: Request) -> TaskRef:
    return filters.task_ref(request.path_params["id"].replace(ENCODED_SLASH, "/"))


def run_id(request: Request) -> RunId:
    return filters.run_id(request.path_params["run_id"])


def bulk_id(request: Request) -> int:
    return filters.operation_id(request.path_params["bulk_id"])


def accepted_language(request: Request) -> str:
    return request.headers.get("accept-language", "en")[:100]


def piece(request: Request, name: str) -> str:
    return str(request.path_params[name]).replace(ENCODED_SLASH, "/")


def read_query(request: Request, struct: type[S], zone: LocalTime | None = None) -> S:
    """The query string as a Struct. InvalidArgument names every problem."""
    problems = Problems()
    found = fields.read_into(struct, query_of(request, struct), ReadContext(problems, zone=zone))
    problems.finish()
    return found


def query_of(request: Request, struct: type[msgspec.Struct]) -> dict[str, Any]:
    return fields.from_query(struct, request.query_params.multi_items())


async def read_body(request: Request, struct: type[S], *, required: bool = False) -> S:
    """The body as a Struct. InvalidArgument names every problem."""
    return fields.read(struct, await read_object(request, required=required))


def check_query(request: Request, known: Mapping[str, bool]) -> None:
    """A parameter that the call does not have is refused: a filter with a slip in its name would find everything."""
    problems = Problems()
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            problems.add(name[:60], f"is not a parameter of this call; expected {listed}")
        elif name in seen and not known[name]:
            problems.add(name, "is given twice")
        seen.add(name)
    problems.finish()


def expected_version(request: Request) -> int | None:
    """`If-Match: "3"`: change version 3 and no other. `*` is any."""
    text = request.headers.get("if-match")
    if text is None or text.strip() == "*":
        return None
    found = _ETAG.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument.field("If-Match", f'is {text[:60]!r}; expected the version that was read, such as "3"')
    return int(found.group(1))


MOST_BYTES: Final = 8 * 1024 * 1024
"""Of one request's body. What says it is larger is refused before a byte of it is read.

Half of what MariaDB takes in one statement by default: what comes in can be kept on every store.
"""
USUAL_BYTES: Final = 1024 * 1024
"""Of the body of an endpoint that takes neither payloads of runs nor many things at once."""
DISCARDED_BYTES: Final = 64 * 1024
"""Of a body that is not looked at: a caller that has sent no more than this hears the answer on a whole connection."""

BODY_LIMIT: Final = "noonbell.most_bytes"
"""In a request's scope: the largest body that its endpoint takes."""


async def read_bytes(request: Request) -> bytes:
    """The body; PayloadTooLarge if it is larger than the endpoint takes, unread if it says so itself."""
    most_bytes: int = request.scope.get(BODY_LIMIT, USUAL_BYTES)
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > most_bytes:
        raise too_large(most_bytes)
    return await joined(request.stream(), most_bytes)


async def discard_body(request: Request) -> None:
    """Read a body that is of no use, and stop after DISCARDED_BYTES of it."""
    left = DISCARDED_BYTES
    try:
        async for piece in request.stream():
            left -= len(piece)
            if left <= 0:
                return
    except ClientDisconnect:
        return


async def read_json(request: Request) -> Any:
    """The body as JSON; None if there is none. InvalidJson within milliseconds, for any input."""
    body = await read_bytes(request)
    return await decoded(body) if body.strip() else None


async def read_object(request: Request, *, required: bool = False) -> dict[str, Any]:
    """The body as an object; without a body, an empty one."""
    return as_object(await read_json(request), required=required)


async def read_list(request: Request, name: str, what: str, noun: str) -> tuple[list[Any], Problems]:
    """The list of a batch, and what is wrong around it. Who reads what is in it adds to these problems, and raises all at once."""
    given = await read_object(request, required=True)
    problems = Problems()
    for other in given.keys() - {name}:
        problems.add(str(other)[:SHOWN], f"is not a field of {noun}; it has {name}")
    found = given.get(name)
    if isinstance(found, list):
        return found, problems
    if name in given:
        ReadContext(problems).expected(name, found, what)
    else:
        problems.add(name, Sentence("is missing; expected {what}", what=what))
    problems.finish()
    return [], problems


def as_object(value: Any, *, required: bool = False) -> dict[str, Any]:
    if value is None and not required:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument("the body is not an object; expected {…} with the fields that /docs lists")
    return value
