"""The description of the API, OpenAPI 3.1, made from the table of endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from noonbell.api import (
    alert_papers,
    applying,
    explain_papers,
    jobs_papers,
    plan_papers,
    queue_papers,
    timeline_papers,
    tokens,
    worker_papers,
)
from noonbell.api.endpoint import Endpoint, Param
from noonbell.api.errors import STATUS
from noonbell.api.schemas import all_schemas, ref
from noonbell.version import __version__

EVERYWHERE: Final = ("UNAUTHORIZED", "FORBIDDEN", "PAYLOAD_TOO_LARGE", "RATE_LIMITED", "INTERNAL", "UNAVAILABLE")
"""What any call may answer with."""

_MEANS: Final = {
    "INVALID_JSON": "The body is not JSON.",
    "INVALID_ARGUMENT": "A field or a parameter is wrong; `details` names each.",
    "INVALID_ID": "The id in the address is not one.",
    "UNAUTHORIZED": "A token is needed.",
    "FORBIDDEN": "Not allowed.",
    "NOT_FOUND": "There is no such thing.",
    "METHOD_NOT_ALLOWED": "The address does not take this method.",
    "ALREADY_EXISTS": "The name is taken.",
    "CONCURRENCY_LIMIT": "The task is at its limit and does not queue; no run was made.",
    "INVALID_STATE": "Allowed, but not in the state it is in now.",
    "LEASE_LOST": "The lease is somebody else's by now.",
    "VERSION_CONFLICT": "Somebody else changed it first.",
    "PAYLOAD_TOO_LARGE": "The body is too large.",
    "RATE_LIMITED": "Too many requests.",
    "INTERNAL": "Something went wrong here.",
    "UNAVAILABLE": "The store does not answer; try again.",
}
_DETAILS: Final = {
    "INVALID_ARGUMENT": {"cron_expr": "minute '61' is wrong; expected 0-59, a list, a range or a step"},
    "VERSION_CONFLICT": {"version": 4},
    "ALREADY_EXISTS": {"name": "is taken", "id": 1},
}
_PATH_PARAMS: Final = {
    "id": ("The task's id, or `name:NAME`.", {"type": "string"}, "1"),
    "run_id": ("The run's id.", {"type": "integer"}, 7340033),
    "plan_id": ("The plan's id, in hexadecimal digits.", {"type": "string"}, "1f4a"),
    "worker_id": ("The worker's id, its own choice.", {"type": "string"}, "resizer-1"),
    "name": ("The queue's name.", {"type": "string"}, "default"),
    "rule": ("The rule's name.", {"type": "string"}, "billing-fails"),
    "channel": ("The channel's name.", {"type": "string"}, "ops"),
    "token": ("The token's name.", {"type": "string"}, "ci"),
    "callback_token": ("The token that came with the request.", {"type": "string"}, "u2fsdGVkX1-9example"),
}
_TAGS: Final = {
    "tasks": "What to do, when, and under which policies.",
    "runs": "One piece of work, born from a slot or a trigger.",
    "callbacks": "How a target says that it is done.",
    "schedules": "When a schedule fires.",
    "jobs": "Tasks whose target is a handler, in the words of a jobs table.",
    "plans": "Messages to stations by interval, weekday or day of month: tasks, in the words of a plan dispatcher.",
    "events": "What happens, as it happens.",
    "alerts": "Who is told when something goes wrong.",
    "queues": "Named lanes of runs, with their limits.",
    "workers": "Who claims runs.",
    "worker protocol": "What a worker of any language calls.",
    "access": "Tokens, and who changed what.",
    "stats": "Figures.",
    "system": "Health, version, metrics.",
}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        here = paths.setdefault(endpoint.base + endpoint.path, {})
        for method in endpoint.methods:
            here[method.lower()] = _operation(endpoint, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Noonbell",
            "version": __version__,
            "summary": "A distributed job scheduler that accounts for every slot.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": means} for name, means in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {
                **all_schemas(),
                **applying.schemas(),
                **tokens.schemas(),
                **jobs_papers.schemas(),
                **plan_papers.schemas(),
                **worker_papers.schemas(),
                **queue_papers.schemas(),
                **explain_papers.schemas(),
                **timeline_papers.schemas(),
                **alert_papers.schemas(),
            },
            "responses": {code: _error(code) for code in STATUS},
        },
    }


def _operation(endpoint: Endpoint, method: str) -> dict[str, Any]:
    is_first = method == endpoint.methods[0]
    operation: dict[str, Any] = {
        "operationId": endpoint.name if is_first else f"{endpoint.name}_{method.lower()}",
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "responses": {str(endpoint.status): _good(endpoint), **_bad(endpoint)},
    }
    if endpoint.notes:
        operation["description"] = endpoint.notes
    parameters = [
        *(_path_param(name) for name in re.findall(r"\{(\w+)\}", endpoint.path)),
        *(_query_param(param) for param in endpoint.query),
    ]
    if endpoint.versioned:
        parameters.append(_IF_MATCH)
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body_required,
            "content": {"application/json": {"schema": ref(endpoint.body), "example": endpoint.body_example}},
        }
    return operation


_IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The version that was read: change that one and no other.",
    "schema": {"type": "string"},
    "example": '"3"',
}
_REQUEST_ID: Final = {
    "X-Request-Id": {"description": "The trace id, for logs and questions.", "schema": {"type": "string"}}
}


def _good(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is None:
        content = {"text/plain": {"schema": {"type": "string"}, "example": endpoint.answer_example}}
    else:
        content = {"application/json": {"schema": ref(endpoint.answer), "example": endpoint.answer_example}}
    return {"description": endpoint.summary, "headers": _REQUEST_ID, "content": content}


def _bad(endpoint: Endpoint) -> dict[str, Any]:
    """By status; where two codes share one, both are there as examples."""
    codes: dict[str, list[str]] = {}
    for code in dict.fromkeys((*endpoint.errors, *EVERYWHERE)):
        codes.setdefault(str(STATUS[code]), []).append(code)
    return {status: _ref_or_several(here) for status, here in sorted(codes.items())}


def _ref_or_several(codes: list[str]) -> dict[str, Any]:
    if len(codes) == 1:
        return {"$ref": f"#/components/responses/{codes[0]}"}
    examples = {code: {"summary": _MEANS[code], "value": _example(code)} for code in codes}
    return {
        "description": " ".join(f"{code}: {_MEANS[code]}" for code in codes),
        "headers": _REQUEST_ID,
        "content": {"application/json": {"schema": ref("Error"), "examples": examples}},
    }


def _error(code: str) -> dict[str, Any]:
    return {
        "description": f"{code}: {_MEANS[code]}",
        "headers": _REQUEST_ID,
        "content": {"application/json": {"schema": ref("Error"), "example": _example(code)}},
    }


def _example(code: str) -> dict[str, Any]:
    return {
        "code": code,
        "message": _MEANS[code],
        "request_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "details": _DETAILS.get(code, {}),
        "error": code,
    }


def _path_param(name: str) -> dict[str, Any]:
    means, schema, example = _PATH_PARAMS[name]
    return {"name": name, "in": "path", "required": True, "description": means, "schema": schema, "example": example}


def _query_param(param: Param) -> dict[str, Any]:
    described = {
        "name": param.name,
        "in": "query",
        "required": False,
        "description": param.means,
        "schema": dict(param.schema),
    }
    if param.schema.get("type") == "array":
        described["explode"] = False
    return described if param.example is None else {**described, "example": param.example}
