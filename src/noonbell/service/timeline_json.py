"""A lane of the timeline as JSON: runs one by one as far as they are, the rest counted."""

from __future__ import annotations

from typing import Any, Final

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.service.timeline import FAILED, MOST_SLOTS, Lane

LARGEST_PAGE: Final = 200


def shown(lane: Lane) -> dict[str, Any]:
    return {
        "task_id": lane.task.id,
        "task_name": lane.task.name,
        "status": lane.task.status,
        "usual_ms": None if lane.usual is None else lane.usual // 1000,
        "runs": [
            {
                "run_id": run.id,
                "status": run.status,
                "scheduled_time": rfc3339(run.scheduled_time),
                "start_time": None if run.start_time is None else rfc3339(run.start_time),
                "end_time": None if run.end_time is None else rfc3339(run.end_time),
            }
            for run in lane.runs
        ],
        "earlier": {
            "count": len(lane.before),
            "failed": sum(one.status in FAILED for one in lane.before),
            "more": lane.is_cut,
        },
        "dropped": [
            {"first": rfc3339(one.first), "last": rfc3339(one.last), "count": one.count, "reason": one.reason}
            for one in lane.dropped
        ],
        "off": [
            {
                "since": rfc3339(one.since),
                "until": None if one.until is None else rfc3339(one.until),
                "reason": one.reason,
                "by": one.by,
            }
            for one in lane.off
        ],
        "planned": [rfc3339(Instant(slot * SECOND)) for slot in lane.planned[:MOST_SLOTS]],
        "more_planned": lane.is_dense,
        "overlap_risk": lane.overlaps,
    }
