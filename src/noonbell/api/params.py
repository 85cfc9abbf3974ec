"""What a request says outside its body: ids in the path, the query string, `If-Match`, who is asking."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from starlette.requests import Request

from noonbell.api.edge import ENCODED_SLASH
from noonbell.errors import InvalidArgument
from noonbell.model.run import RunId
from noonbell.service import naming
from noonbell.service.naming import TaskRef
from noonbell.service.reader import Problems, Reader

ACTOR: Final = "noonbell.actor"
"""Where the scope of a request holds who is asking, once somebody has found out."""
QUEUES: Final = "noonbell.queues"
"""Where it holds the queues that a worker's token is for; None for other tokens, and where no token is asked for."""

MANY: Final = frozenset({"status"})
"""May be given several times, or as a list parted by commas."""

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_INTEGERS: Final = frozenset({"page", "page_size", "parent_id", "count", "limit", "after"})
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_FLAG_NAMES: Final = frozenset({"enabled", "include_system", "cancel_running", "purge", "dry_run"})
_MOMENTS: Final = frozenset({"from", "to", "at"})
_ETAG = re.compile(r'(?:W/)?"?([0-9]{1,9})"?', re.ASCII)


def actor(request: Request) -> str | None:
    """Who is asking; None while nobody has to say."""
    found: str | None = request.scope.get(ACTOR)
    return found


def queues(request: Request) -> tuple[str, ...] | None:
    """The only queues that the caller may touch; None: all of them."""
    found: tuple[str, ...] | None = request.scope.get(QUEUES)
    return found


def task_ref(request: Request) -> TaskRef:
    return naming.task_ref(request.path_params["id"].replace(ENCODED_SLASH, "/"))


def run_id(request: Request) -> RunId:
    return naming.run_id(request.path_params["run_id"])


def piece(request: Request, name: str) -> str:
    return str(request.path_params[name]).replace(ENCODED_SLASH, "/")


def query(request: Request) -> Reader:
    """The query string, its numbers and flags read. What is there twice, or is not known, is refused elsewhere."""
    given: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name in MANY:
            given.setdefault(name, []).extend(part for part in text.split(",") if part)
        elif text != "":
            given[name] = _read(name, text)
    return Reader(given, Problems())


def check_query(request: Request, known: Collection[str]) -> None:
    """A parameter that the call does not have is refused: a filter with a slip in its name would find everything."""
    problems = Problems()
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            problems.add(name[:60], f"is not a parameter of this call; it has {listed}")
        elif name in seen and name not in MANY:
            problems.add(name, "is there twice")
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


def _read(name: str, text: str) -> Any:
    if name in _INTEGERS and _INTEGER.fullmatch(text):
        return int(text)
    if name in _FLAG_NAMES:
        return _FLAGS.get(text.lower(), text)
    if name in _MOMENTS:
        # An offset's plus sign that was not encoded arrives as a blank.
        return re.sub(r" (\d\d:\d\d)$", r"+\1", text)
    return text
