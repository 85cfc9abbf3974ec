"""Saved views as rows."""

from __future__ import annotations

from noonbell.errors import InvalidState, Sentence
from noonbell.model.view import SavedView, ViewedList
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Fetch, Now, Work, delete, insert, update


def saved_views(of: ViewedList) -> Work[list[SavedView]]:
    rows = yield Fetch(
        "select name, query, saved_by, saved_at from saved_views where room = :room order by name", {"room": of}
    )
    return [SavedView(list=of, name=name, query=query, saved_by=by, saved_at=at) for name, query, by, at in rows]


def save_view(
    q: Dialect, of: ViewedList, name: str, query: str, most: int, *, by: str | None = None
) -> Work[SavedView]:
    key = {"room": of, "name": name}
    rows = yield Fetch(f"select query from saved_views where room = :room and name = :name{q.lock}", key)
    now = yield Now()
    if rows:
        yield update("saved_views", key, query=query, saved_by=by, saved_at=now)
    else:
        ((count,),) = yield Fetch("select count(*) from saved_views where room = :room", {"room": of})
        if count >= most:
            raise InvalidState(
                Sentence("there are {most} saved views of {list}, the maximum; remove one first", most=most, list=of)
            )
        yield insert("saved_views", **key, query=query, saved_by=by, saved_at=now)
    return SavedView(list=of, name=name, query=query, saved_by=by, saved_at=now)


def remove_view(of: ViewedList, name: str) -> Work[bool]:
    return bool((yield delete("saved_views", room=of, name=name)))
