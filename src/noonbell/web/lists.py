"""Lists: filters that live in the address, the text that they are typed as, and the links that lead through them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import Response

from noonbell.service.reader import Problems, Reader
from noonbell.web import asking, tokens
from noonbell.web.tokens import RUNS, TASKS, Grammar
from noonbell.web.visit import Visit, merged
from noonbell.web.words import Words, catalogue

PAGE_SIZE: Final = 25
DENSITIES: Final = ("comfortable", "compact")
_NUMBERS: Final = frozenset({"page", "page_size", "parent_id"})


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to. `known` are the names that it has, in the order of the bar."""

    query: Mapping[str, str]
    known: tuple[str, ...]
    problem: str = ""
    """Why the list cannot be narrowed so; then it is empty."""
    grammar: Grammar = TASKS

    @property
    def active(self) -> dict[str, str]:
        return {name: self.query[name] for name in self.known if self.query.get(name)}

    def value(self, name: str) -> str:
        return self.query.get(name, "")

    def without(self, name: str) -> dict[str, Any]:
        return merged(self.query, **{name: None})

    @property
    def tokens(self) -> dict[str, str]:
        """Each filter as somebody would type it."""
        return {name: self.grammar.token(name, value) for name, value in self.active.items()}

    @property
    def beside(self) -> dict[str, str]:
        """What the bar carries along beside its text."""
        return {name: value for name, value in self.active.items() if name != self.grammar.rest}

    def changed(self, **changes: Any) -> dict[str, Any]:
        return merged(self.query, **changes)


@dataclass(frozen=True, slots=True)
class Pager:
    """Where the list goes on. `total` is None where nobody counted."""

    first: dict[str, Any] | None = None
    previous: dict[str, Any] | None = None
    next: dict[str, Any] | None = None
    page: int = 1
    pages: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What would be found if one of the filters were gone."""

    name: str
    token: str
    count: int
    is_more: bool = False
    """More than were counted."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The list as others would ask for it."""

    curl: str
    command: str
    address: str = field(default="")


def density(visit: Visit) -> str:
    wanted = visit.request.cookies.get("noonbell_density", DENSITIES[0])
    return wanted if wanted in DENSITIES else DENSITIES[0]


def copies(visit: Visit, room: str, active: Mapping[str, str]) -> Copies:
    server = str(visit.request.base_url).rstrip("/")
    curl = asking.as_curl(server, room, active, with_token=visit.site.asks_for_tokens)
    return Copies(curl, asking.as_command(room, active), asking.address(room, active))


def typed(
    visit: Visit, path: str, known: tuple[str, ...], aliases: Mapping[str, str], usual: str = ""
) -> Response | None:
    """Where the text of a filter bar leads to: the same list with plain parameters. None: nothing was typed.

    `usual` is the order that needs no saying.
    """
    text = visit.request.query_params.get("q")
    if text is None:
        return None
    grammar = RUNS if path == "/runs" else TASKS
    kept = {name: visit.query[name] for name in (*known, "sort") if name != grammar.rest and name in visit.query}
    if kept.get("sort") == usual:
        del kept["sort"]

    def meaning(parameter: str, value: str) -> str:
        if parameter == "status":
            return ",".join(aliases.get(each.casefold(), each) for each in value.split(","))
        if parameter in ("from", "to"):
            return tokens.moment(value, visit.now, visit.zone.name)
        return value

    return visit.redirect(visit.url(path, **{**kept, **grammar.read(text[:2_000], meaning)}).removeprefix(visit.root))


def status_aliases(statuses: Iterable[str], words: Words, more: Mapping[str, str]) -> dict[str, str]:
    """What people may write for a status: its name, its word in their language, the name of a group."""
    found: dict[str, str] = {}
    for status in statuses:
        for each in (status, catalogue("en").get(f"status.{status}", ""), words(f"status.{status}")):
            found[each.replace(" ", "_").casefold()] = str(status)
    return {**found, **more}


def reader_of(query: Mapping[str, str], allowed: tuple[str, ...], **defaults: Any) -> Reader:
    """The filters of a query string, for `service.filters`; what belongs to the page alone is left out."""
    given: dict[str, Any] = {"page_size": PAGE_SIZE, **defaults}
    for name in (*allowed, "page", "cursor", "sort"):
        if value := query.get(name):
            given[name] = int(value) if name in _NUMBERS and value.isdecimal() and len(value) < 17 else value
    return Reader(given, Problems())


def pager_by_number(query: Mapping[str, str], page: int, total: int | None, size: int = PAGE_SIZE) -> Pager:
    pages = max(1, -(-(total or 0) // size))
    return Pager(
        previous={**query, "page": page - 1} if page > 1 else None,
        next={**query, "page": page + 1} if page < pages else None,
        page=page,
        pages=pages,
        total=total,
    )


def pager_by_cursor(query: Mapping[str, str], next_cursor: str | None) -> Pager:
    kept = {name: value for name, value in query.items() if name != "cursor"}
    return Pager(
        first=kept if "cursor" in query else None,
        next=None if next_cursor is None else {**kept, "cursor": next_cursor},
    )
