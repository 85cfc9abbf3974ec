"""Saved views: the filters and the order of a list under a name, for everyone who sees that list."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from noonbell.fields import Moment, meta


class ViewedList(StrEnum):
    TASKS = "tasks"
    RUNS = "runs"


class SavedView(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "SavedView"

    list: Annotated[ViewedList, meta("The list that the view is for.", examples=["runs"])]
    name: Annotated[str, meta("Unique in its list.", examples=["failed billing"])]
    query: Annotated[
        str,
        meta("The filters and the order, as in the URL of the page.", examples=["status=FAILED&queue=pdf"]),
    ]
    saved_by: Annotated[str | None, meta("The name of the token, if one was used.", examples=["alice"])] = None
    saved_at: Annotated[Moment, meta(examples=["2026-11-15T02:30:00Z"])]
