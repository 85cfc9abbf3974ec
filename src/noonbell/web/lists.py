"""Lists: filters that live in the address, and the links that lead through them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noonbell.service.reader import Problems, Reader
from noonbell.web.visit import merged

PAGE_SIZE: Final = 25
_NUMBERS: Final = frozenset({"page", "page_size", "parent_id"})


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to. `known` are the names that it has, in the order of the bar."""

    query: Mapping[str, str]
    known: tuple[str, ...]
    problem: str = ""
    """Why the list cannot be narrowed so; then it is empty."""

    @property
    def active(self) -> dict[str, str]:
        return {name: self.query[name] for name in self.known if self.query.get(name)}

    def value(self, name: str) -> str:
        return self.query.get(name, "")

    def without(self, name: str) -> dict[str, Any]:
        return merged(self.query, **{name: None})

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
class Column:
    """A heading that the list can be ordered by."""

    key: str
    sort: str = ""
    css: str = ""
    label: str = field(default="")


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
