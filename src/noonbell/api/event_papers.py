"""What the description says of the stream of events."""

from __future__ import annotations

from noonbell.api.endpoint import Param
from noonbell.api.paper import paper, whole

_EXAMPLE = (
    "id: 17.0\nevent: run.failed\n"
    'data: {"id":"17.0","time":"2026-11-15T12:00:00.5Z","type":"run.failed","topic":"sync_stats","subject":8123,'
    '"task_id":1,"run_id":8123,"queue":"http","data":{"status":"FAILED"}}\n\n'
)

EVENTS = paper(
    "events",
    "events",
    "What happens, as it happens",
    answer_example=_EXAMPLE,
    query=(
        Param("type", "Types or their first words, parted by commas: `run` is every `run.…`.", example="run,task"),
        Param("task", "Events of this task: its id, or its name.", example="sync_stats"),
        Param("run", "Events of this run.", whole(1, 2**53 - 1)),
        Param("queue", "Events of this queue.", example="default"),
        Param("after", "The id of the last event that was seen; the header `Last-Event-ID` goes before it."),
    ),
    errors=("INVALID_ARGUMENT", "FORBIDDEN"),
    notes="Server-sent events (`text/event-stream`). Come back with `Last-Event-ID` and nothing is missed, over a day"
    " and over restarts. `event: reset` means that the stream does not reach back so far.",
)
