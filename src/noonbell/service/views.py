"""Saved views: what is kept under a name for everyone who sees a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from noonbell.errors import InvalidId, NotFound
from noonbell.fields import list_of, meta, read
from noonbell.fields.kinds import unfit
from noonbell.model.view import SavedView, ViewedList
from noonbell.ports import Store

MOST_VIEWS: Final = 200
"""Of one list."""
_OF_A_PAGE: Final = frozenset({"page", "cursor", "q"})
"""What an address says of a place in the list, not of the list."""


class ViewWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What a saved view shows."""

    noun: ClassVar[str] = "a saved view"

    query: Annotated[
        str,
        meta(
            "The filters and the order, as in the URL of the page. Empty: the whole list.",
            max_length=2_000,
            examples=["status=FAILED&queue=pdf"],
        ),
    ] = ""


class ViewsAsked(msgspec.Struct, frozen=True, kw_only=True):
    list: Annotated[ViewedList, meta("The list that the views are for.")]


AllViews = list_of("AllViews", SavedView)


class Views:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self, of: ViewedList) -> list[SavedView]:
        """By name."""
        return await self._store.saved_views(of)

    async def save(self, of: str, name: str, given: Mapping[str, Any], *, by: str | None = None) -> SavedView:
        """A new view, or another query for the one of that name."""
        room = _list_of(of)
        asked = read(ViewWrite, given)
        return await self._store.save_view(room, _checked(name), of_list(asked.query), MOST_VIEWS, by=by)

    async def remove(self, of: str, name: str) -> None:
        if not await self._store.remove_view(_list_of(of), _checked(name)):
            raise NotFound("there is no saved view {name} of {list}", name=repr(name), list=of)


def of_list(query: str) -> str:
    """What a query string says of the list itself."""
    return urlencode([(name, value) for name, value in parse_qsl(query) if name not in _OF_A_PAGE])


def _list_of(text: str) -> ViewedList:
    try:
        return ViewedList(text)
    except ValueError:
        raise InvalidId(f"there are no views of {text[:20]!r}; expected tasks or runs") from None


def _checked(name: str) -> str:
    if not 1 <= len(name) <= 60 or unfit(name) is not None or name != name.strip():
        raise InvalidId("the name of a view has 1 to 60 characters, and none that controls a terminal")
    return name
