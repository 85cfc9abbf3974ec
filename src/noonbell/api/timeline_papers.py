"""What the description says of the timeline."""

from __future__ import annotations

from typing import Final

from noonbell.api.endpoint import Param
from noonbell.api.paper import MOMENT, paper, whole
from noonbell.api.schemas import ID, STATUS, TEXT, WHOLE, Schema, ref
from noonbell.api.schemas import _list as listed
from noonbell.api.schemas import _object as an_object
from noonbell.api.schemas import _or_null as or_null
from noonbell.service.timeline import MOST_RUNS, MOST_SLOTS
from noonbell.service.timeline_json import LARGEST_PAGE

_LANE: Final = {
    "task_id": 1,
    "task_name": "nightly-report",
    "status": "ENABLED",
    "usual_ms": 1240,
    "runs": [
        {
            "run_id": 7340033,
            "status": "SUCCESS",
            "scheduled_time": "2026-11-15T02:00:00Z",
            "start_time": "2026-11-15T02:00:00Z",
            "end_time": "2026-11-15T02:00:01Z",
        }
    ],
    "earlier": {"count": 0, "failed": 0, "more": False},
    "dropped": [],
    "off": [],
    "planned": ["2026-11-16T02:00:00Z"],
    "more_planned": False,
    "overlap_risk": False,
}

TIMELINE = paper(
    "timeline",
    "tasks",
    "What ran and what is planned, task by task",
    answer="Timeline",
    answer_example={
        "from": "2026-11-15T00:00:00Z",
        "to": "2026-11-16T12:00:00Z",
        "items": [_LANE],
        "total": 1,
        "page": 1,
        "page_size": 20,
    },
    query=(
        Param("from", "From then on; twelve hours ago if left out.", MOMENT, "2026-11-15T00:00:00Z"),
        Param("to", "Until then, a day after `from` if left out; 32 days at most.", MOMENT, "2026-11-16T12:00:00Z"),
        Param("name", "Tasks with this in their name.", example="report"),
        Param("label", "Tasks with this label.", example="team=billing"),
        Param("page", "Which page, from 1 on.", whole(1, 2**31 - 1, 1), 1),
        Param("page_size", "How many tasks a page has.", whole(1, LARGEST_PAGE, 20), 20),
    ),
    errors=("INVALID_ARGUMENT",),
    notes=f"Tasks that fire next come first. Of each task the newest {MOST_RUNS} runs of the stretch are told one by one "
    f"and those before them counted in `earlier`; of what is to come, the first {MOST_SLOTS} slots.",
)


def schemas() -> dict[str, Schema]:
    moment: Schema = dict(MOMENT)
    flag: Schema = {"type": "boolean"}
    return {
        "Lane": an_object(
            {
                "task_id": ID,
                "task_name": TEXT,
                "status": TEXT,
                "usual_ms": {**or_null(WHOLE), "description": "The median of how long its newest runs took."},
                "runs": listed(
                    an_object(
                        {
                            "run_id": ID,
                            "status": STATUS,
                            "scheduled_time": moment,
                            "start_time": or_null(moment),
                            "end_time": or_null(moment),
                        }
                    )
                ),
                "earlier": an_object({"count": WHOLE, "failed": WHOLE, "more": flag}),
                "dropped": listed(an_object({"first": moment, "last": moment, "count": WHOLE, "reason": TEXT})),
                "off": {
                    **listed(
                        an_object({"since": moment, "until": or_null(moment), "reason": TEXT, "by": or_null(TEXT)})
                    ),
                    "description": "When the task, or its queue, stood still.",
                },
                "planned": listed(moment),
                "more_planned": flag,
                "overlap_risk": {
                    **flag,
                    "description": "A run of the usual length would not be over when the next slot comes.",
                },
            }
        ),
        "Timeline": an_object(
            {
                "from": moment,
                "to": moment,
                "items": listed(ref("Lane")),
                "total": or_null(WHOLE),
                "page": WHOLE,
                "page_size": WHOLE,
            }
        ),
    }
