"""What the description says of the account: slots and explain."""

from __future__ import annotations

from typing import Final

from noonbell.api.endpoint import Param
from noonbell.api.paper import MOMENT, paper, whole
from noonbell.api.schemas import ID, STATUS, TEXT, WHOLE, Schema, ref
from noonbell.api.schemas import _list as listed
from noonbell.api.schemas import _object as an_object
from noonbell.api.schemas import _or_null as or_null
from noonbell.service.account import Fate
from noonbell.service.finding import CAUSES
from noonbell.service.slots import LARGEST_PAGE

_ID: Final = ("INVALID_ID", "NOT_FOUND", "INVALID_ARGUMENT")
_LANG: Final = Param("lang", "Of the sentence; else as `Accept-Language` says.", {"enum": ["en", "zh"]}, "zh")
_SLOT: Final = {
    "slot": "2026-11-15T02:30:00Z",
    "local": "2026-11-15T10:30:00+08:00",
    "last": "2026-11-15T02:30:00Z",
    "count": 1,
    "outcome": "skipped",
    "reason": "overlap",
    "run_id": 7340033,
    "status": "SKIPPED",
    "actor": None,
    "since": None,
    "task_version": 1,
}
_EXPLANATION: Final = {
    "cause": "overlap",
    "message": "Skipped: run 7340031 of the task was not over yet (overlap_action SKIP).",
    "slot": "2026-11-15T02:30:00Z",
    "run_id": 7340033,
    "blocking_run_id": 7340031,
    "policy": {"overlap_action": "SKIP"},
    "actor": None,
    "since": None,
    "next_slot": "2026-11-15T02:35:00Z",
}

SLOTS = paper(
    "list_slots",
    "tasks",
    "The slots of a stretch, each with its outcome",
    answer="SlotPage",
    answer_example={
        "items": [_SLOT],
        "from": "2026-11-15T00:00:00Z",
        "to": "2026-11-16T00:00:00Z",
        "next_from": None,
    },
    query=(
        Param("from", "From then on; a day before `to` if left out.", MOMENT, "2026-11-15T00:00:00Z"),
        Param("to", "Until then, the future too; now if left out.", MOMENT, "2026-11-16T00:00:00Z"),
        Param("limit", "How many items, at most.", whole(1, LARGEST_PAGE, 100), 100),
    ),
    errors=_ID,
    notes="Past slots are those of the versions of the task that were in force then. Slots that share a fate (dropped, "
    "off) are one item: `count` of them, from `slot` to `last`. Ask again from `next_from` for more.",
)
TASK = paper(
    "explain_task",
    "tasks",
    "Why it did, or didn't, run",
    answer="Explanation",
    answer_example=_EXPLANATION,
    query=(
        Param(
            "at",
            "The moment; without an offset, local time of the task's zone. Left out: what keeps the task from running, "
            "else its newest slot, else its next.",
            MOMENT,
            "2026-11-15T02:30:00Z",
        ),
        _LANG,
    ),
    errors=_ID,
)
RUN = paper(
    "explain_run",
    "runs",
    "Why it ran as it did, or waits",
    answer="Explanation",
    answer_example=_EXPLANATION,
    query=(_LANG,),
    errors=_ID,
)


def schemas() -> Schema:
    """By name, for `components.schemas`."""
    moment = {"type": "string", "format": "date-time"}
    return {
        "Slot": an_object(
            {
                "slot": {**moment, "description": "The first of them."},
                "local": {**TEXT, "description": "The same in the task's zone."},
                "last": moment,
                "count": WHOLE,
                "outcome": {"type": "string", "enum": [str(fate) for fate in Fate]},
                "reason": {**or_null(TEXT), "description": "Why it was skipped or dropped."},
                "run_id": or_null(ID),
                "status": or_null(STATUS),
                "actor": {**or_null(TEXT), "description": "Who turned the task off."},
                "since": or_null(moment),
                "task_version": WHOLE,
            }
        ),
        "SlotPage": an_object(
            {"items": listed(ref("Slot")), "from": moment, "to": moment, "next_from": or_null(moment)},
        ),
        "Explanation": an_object(
            {
                "cause": {"type": "string", "enum": list(CAUSES)},
                "message": TEXT,
                "slot": {**or_null(moment), "description": "Null where the moment is none."},
                "run_id": or_null(ID),
                "blocking_run_id": {**or_null(ID), "description": "The run that stood in the way."},
                "policy": {
                    **or_null({"type": "object"}),
                    "description": "The fields of the task that decided, with their values then.",
                },
                "actor": {**or_null(TEXT), "description": "Who disabled, deleted, paused, canceled or skipped."},
                "since": {**or_null(moment), "description": "Since when, or when it happened."},
                "next_slot": {**or_null(moment), "description": "When it fires next."},
            }
        ),
    }
