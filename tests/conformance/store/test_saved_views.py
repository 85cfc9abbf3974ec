"""Saved views: one for each name in a list, replaced as a whole, and no more than a list may have."""

from __future__ import annotations

import pytest

from noonbell.clock import ManualClock
from noonbell.errors import InvalidState
from noonbell.model.view import SavedView, ViewedList
from noonbell.ports import Store

TASKS, RUNS = ViewedList.TASKS, ViewedList.RUNS


async def test_a_view_is_kept_by_list_and_name_and_replaced_as_a_whole(store: Store, clock: ManualClock):
    first = await store.save_view(RUNS, "失败", "status=FAILED", 5, by="ann")
    assert first == SavedView(list=RUNS, name="失败", query="status=FAILED", saved_by="ann", saved_at=clock.now())
    await store.save_view(RUNS, "a", "", 5)
    await store.save_view(TASKS, "a", "label=team%3Db", 5)
    clock.advance(7)
    again = await store.save_view(RUNS, "失败", "queue=q", 5, by="bob")
    assert await store.saved_views(RUNS) == [
        SavedView(list=RUNS, name="a", query="", saved_at=first.saved_at),
        again,
    ]
    assert (again.query, again.saved_by, again.saved_at) == ("queue=q", "bob", clock.now())
    assert (await store.remove_view(RUNS, "a"), await store.remove_view(RUNS, "a")) == (True, False)
    assert [view.name for view in await store.saved_views(TASKS)] == ["a"]


async def test_a_full_list_takes_no_more_views_but_changes_those_it_has(store: Store):
    for name in ("a", "b"):
        await store.save_view(TASKS, name, "", 2)
    with pytest.raises(InvalidState):
        await store.save_view(TASKS, "c", "", 2)
    await store.save_view(TASKS, "b", "status=ERROR", 2)
    await store.save_view(RUNS, "c", "", 2)
    assert [view.query for view in await store.saved_views(TASKS)] == ["", "status=ERROR"]
