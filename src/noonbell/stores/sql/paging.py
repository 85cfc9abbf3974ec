"""Pages: by number, with a total; or by cursor, which stays put while rows are added in front of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from noonbell.errors import InvalidArgument
from noonbell.stores.sql.rows import to_json

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Order:
    """`expression` is the sort key, `id` breaks ties. Both are ours, never the caller's text."""

    name: str
    expression: str
    id: str
    descending: bool

    @classmethod
    def read(cls, sort: str, known: Mapping[str, str], id_: str) -> Order:
        name = sort.removeprefix("-")
        if name not in known:
            raise InvalidArgument.field(
                "sort", f"is {sort!r}; expected one of {', '.join(known)}, or one with a leading -"
            )
        return cls(name, known[name], id_, sort.startswith("-"))

    @property
    def clause(self) -> str:
        way = " desc" if self.descending else ""
        if self.expression == self.id:
            return f" order by {self.id}{way}"
        return f" order by {self.expression}{way}, {self.id}{way}"

    def after(self, cursor: str, params: dict[str, Any]) -> str:
        """The condition for what comes after a cursor."""
        value, id_ = _decode(self.name, cursor)
        params["cursor_value"], params["cursor_id"] = value, id_
        than = "<" if self.descending else ">"
        if self.expression == self.id:
            del params["cursor_value"]
            return f"{self.id} {than} :cursor_id"
        return (
            f"({self.expression} {than} :cursor_value or"
            f" ({self.expression} = :cursor_value and {self.id} {than} :cursor_id))"
        )

    def cursor(self, value: Any, id_: int) -> str:
        return base64.urlsafe_b64encode(to_json([self.name, value, id_]).encode()).decode().rstrip("=")


def _decode(name: str, cursor: str) -> tuple[Any, int]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        made_for, value, id_ = msgspec.json.decode(text, type=tuple[str, int | str, int])
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidArgument.field("cursor", "is not one that was handed out here") from error
    if made_for != name or isinstance(value, str) is not (name == "name") or not 0 <= id_ <= 1 << 62:
        raise InvalidArgument.field("cursor", "belongs to a list with another sort order")
    return value, id_


def like(text: str) -> str:
    """A pattern for `like … escape '!'`: the text anywhere, its own wildcards taken literally, in lower case."""
    for special in ("!", "%", "_"):
        text = text.replace(special, "!" + special)
    return f"%{text.lower()}%"


def check(page: int, page_size: int) -> None:
    if page < 1:
        raise InvalidArgument.field("page", f"is {page}; expected 1 or more")
    if not 1 <= page_size <= MAX_PAGE:
        raise InvalidArgument.field("page_size", f"is {page_size}; expected 1 to {MAX_PAGE}")


def where(conditions: Sequence[str]) -> str:
    return f" where {' and '.join(conditions)}" if conditions else ""
