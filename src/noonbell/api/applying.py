"""The endpoint of tasks as files."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import MOST_BYTES, read_object
from noonbell.api.paper import paper
from noonbell.api.schemas import FLAG, TEXT, WHOLE, Schema, ref
from noonbell.service import Services
from noonbell.service.applying import Applying
from noonbell.service.reader import Problems, Reader

_OWNER = re.compile(r"[\w./ -]{1,200}")
_OR_NULL = {"anyOf": [TEXT, {"type": "null"}]}


class ApplyCalls:
    def __init__(self, services: Services) -> None:
        self._applying = Applying(services)

    async def apply(self, request: Request) -> Response:
        problems = Problems()
        reader = Reader(await read_object(request, required=True), problems)
        owner = reader.text("owner", "", most=200)
        if not _OWNER.fullmatch(owner):
            reader.expected("owner", "a name for this set of tasks, such as billing")
        tasks = reader.get("tasks")
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            reader.expected("tasks", "a list of tasks")
        prune, adopt = reader.flag("prune", default=False), reader.flag("adopt", default=False)
        dry_run = reader.flag("dry_run", default=False)
        reader.finish("an apply")
        problems.finish()
        done = await self._applying.apply(
            f"file:{owner}", tasks or [], by=params.actor(request), prune=prune, adopt=adopt, dry_run=dry_run
        )
        return json_answer(done)


PAPER = paper(
    "apply_tasks",
    "tasks",
    "Bring the tasks of one owner to what a file says",
    answer="Applied",
    answer_example={
        "dry_run": True,
        "created": ["nightly-report"],
        "changed": [
            {
                "name": "sync_stats",
                "version": 3,
                "fields": {"timeout_seconds": [10, 30]},
                "next_before": "2026-11-16T02:00:00Z",
                "next_after": "2026-11-16T02:00:00Z",
                "running": 1,
            }
        ],
        "unchanged": [],
        "pruned": [],
    },
    body="Apply",
    most_bytes=MOST_BYTES,
    body_example={
        "owner": "billing",
        "tasks": [{"name": "nightly-report", "cron_expr": "0 2 * * *", "target_url": "http://reports.internal/run"}],
        "dry_run": True,
    },
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT", "ALREADY_EXISTS", "VERSION_CONFLICT", "PAYLOAD_TOO_LARGE"),
    notes="Everything is checked before anything is written. A `version` in a task is the one that its writer saw; another "
    "one is 412. A task of another owner is 409, unless `adopt`. `prune` deletes what the owner has and no longer names.",
)


def schemas() -> Schema:
    """By name, for `components.schemas`."""
    change = {
        "name": TEXT,
        "version": WHOLE,
        "fields": {"type": "object", "additionalProperties": {"type": "array", "minItems": 2, "maxItems": 2}},
        "next_before": _OR_NULL,
        "next_after": _OR_NULL,
        "running": WHOLE,
    }
    names = {"type": "array", "items": TEXT}
    answer = {
        "dry_run": FLAG,
        "created": names,
        "changed": {"type": "array", "items": {"type": "object", "properties": change, "required": list(change)}},
        "unchanged": names,
        "pruned": names,
    }
    task = {"allOf": [ref("TaskWrite")]}
    body = {"owner": TEXT, "tasks": {"type": "array", "items": task}, "prune": FLAG, "adopt": FLAG, "dry_run": FLAG}
    return {
        "Applied": {"type": "object", "properties": answer, "required": list(answer)},
        "Apply": {
            "type": "object",
            "properties": body,
            "required": ["owner", "tasks"],
            "additionalProperties": False,
        },
    }


def endpoints(services: Services) -> list[Endpoint]:
    calls = ApplyCalls(services)
    return [Endpoint(("POST",), "/tasks/apply", calls.apply, **PAPER)]
