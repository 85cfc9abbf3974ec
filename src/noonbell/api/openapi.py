"""The description of the API, made from the table of endpoints: OpenAPI 3.1. The page `/docs` shows the same to people. It has no script and loads nothing. The words around the description are in the reader's language; the description itself is in English. Addresses are relative,
so the page is the same under every prefix.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET

from noonbell.api.endpoint import Endpoint
from noonbell.errors import HTTP_STATUS
from noonbell.fields import REF, component_of, example, meta, reached, schema, table
from noonbell.fields.kinds import ListKind
from noonbell.service.translation import Translator
from noonbell.version import __version__

EVERYWHERE: Final = ("UNAUTHORIZED", "FORBIDDEN", "PAYLOAD_TOO_LARGE", "RATE_LIMITED", "INTERNAL", "UNAVAILABLE")
"""What any call may answer with."""

_MEANS: Final = {
    "INVALID_JSON": "The body is not JSON.",
    "INVALID_ARGUMENT": "A field or a parameter is wrong; `details` names each.",
    "INVALID_ID": "The ID in the path is not valid.",
    "UNAUTHORIZED": "A token is required.",
    "FORBIDDEN": "Not allowed.",
    "NOT_FOUND": "There is no such thing.",
    "METHOD_NOT_ALLOWED": "The path does not support this method.",
    "ALREADY_EXISTS": "The name is already in use.",
    "CONCURRENCY_LIMIT": "The task is at its limit and does not queue; no run was created.",
    "INVALID_STATE": "Not allowed in its current state.",
    "LEASE_LOST": "Another worker holds the lease now.",
    "VERSION_CONFLICT": "It was changed by someone else first.",
    "PAYLOAD_TOO_LARGE": "The body is too large.",
    "RATE_LIMITED": "Too many requests.",
    "INTERNAL": "Something went wrong on the server.",
    "UNAVAILABLE": "The store is not responding; try again.",
}
_DETAILS: Final = {
    "INVALID_ARGUMENT": {"cron_expr": "minute '61' is wrong; expected 0-59, a list, a range or a step"},
    "VERSION_CONFLICT": {"version": 4},
    "ALREADY_EXISTS": {"name": "is taken", "id": 1},
}
_PATH_PARAMS: Final = {
    "id": ("The task's id, or `name:NAME`.", {"type": "string"}, "1"),
    "run_id": ("The run's id.", {"type": "integer"}, 7340033),
    "bulk_id": ("The bulk operation's id.", {"type": "integer"}, 7340121),
    "plan_id": ("The plan's id, in hexadecimal digits.", {"type": "string"}, "1f4a"),
    "worker_id": ("The worker's ID, which it chooses itself.", {"type": "string"}, "resizer-1"),
    "name": ("The queue's name.", {"type": "string"}, "default"),
    "rule": ("The rule's name.", {"type": "string"}, "billing-fails"),
    "channel": ("The channel's name.", {"type": "string"}, "ops"),
    "mute": ("The id of a mute.", {"type": "string"}, "7340101"),
    "subscription": ("The subscription's name.", {"type": "string"}, "billing"),
    "calendar": ("The calendar's name.", {"type": "string"}, "china"),
    "of": ("Whose view it is: tasks or runs.", {"type": "string"}, "runs"),
    "view": ("The name of the view.", {"type": "string"}, "failed billing"),
    "delivery_id": ("The delivery's id.", {"type": "integer"}, 7340099),
    "token": ("The token's name.", {"type": "string"}, "ci"),
    "callback_token": ("The token that came with the request.", {"type": "string"}, "u2fsdGVkX1-9example"),
}
_PATH_ERRORS: Final = {
    "name": ("INVALID_ID",),
    **dict.fromkeys(("rule", "channel", "mute", "subscription", "token", "callback_token"), ("NOT_FOUND",)),
}
"""By parameter of the path; any other one may be no id, or the id of nothing."""
_TAGS: Final = {
    "tasks": "What to do, when, and under which policies.",
    "runs": "One piece of work, created by a slot or a trigger.",
    "bulk": "One change of many runs or tasks, carried out on the server.",
    "views": "Filters of a list, saved under a name for everyone.",
    "calls": "One HTTP request, now or later, without a task.",
    "callbacks": "How a target reports that it is done.",
    "schedules": "When a schedule fires.",
    "calendars": "Which days are closed, and which slots a change moves.",
    "jobs": "Tasks whose target is a handler, in the terms of a jobs table.",
    "legacy": "Tasks and runs in the terms of the cronjob service that they came from.",
    "plans": "Messages to stations by interval, weekday or day of month: tasks, in the terms of a plan dispatcher.",
    "events": "What happens, as it happens.",
    "subscriptions": "Webhook subscriptions: events posted to a URL.",
    "alerts": "Rules that open alerts, and channels that send them.",
    "queues": "Named lanes of runs, with their limits.",
    "workers": "The processes that claim runs.",
    "worker protocol": "The calls of a worker, in any language.",
    "access": "Tokens, and who changed what.",
    "stats": "Figures.",
    "system": "Health, version, metrics.",
}


class Error(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    request_id: str
    details: Annotated[dict[str, Any], meta("For INVALID_ARGUMENT: what is wrong with each field.")]
    error: str


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
            "schemas": {**components(endpoints), "Error": schema(Error, is_body=False)},
            "responses": {code: _error(code) for code in HTTP_STATUS},
        },
    }


def components(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The schemas of all Structs that endpoints take and answer with. One that is a part of both is described as a body."""
    bodies = {struct for each in endpoints for struct in _structs(each.body)}
    answers = {struct for each in endpoints for struct in _structs(each.answer)}
    return {
        component_of(each): schema(each, is_body=each in bodies) for each in sorted(bodies | answers, key=component_of)
    }


def _ref(component: str) -> dict[str, Any]:
    return {"$ref": REF + component}


def _structs(given: type[msgspec.Struct] | None) -> Iterator[type[msgspec.Struct]]:
    return iter(()) if given is None else reached(given)


def _media(given: type[msgspec.Struct]) -> dict[str, Any]:
    return {"schema": _ref(component_of(given)), "example": example(given)}


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
        *_query_params(endpoint.query),
    ]
    if endpoint.versioned:
        parameters.append(_IF_MATCH)
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body_required,
            "content": {"application/json": _media(endpoint.body)},
        }
    return operation


_IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The version that was read; the change fails if it is no longer current.",
    "schema": {"type": "string"},
    "example": '"3"',
}
_REQUEST_ID: Final = {
    "X-Request-Id": {"description": "The trace ID, to find the request in logs.", "schema": {"type": "string"}}
}


def _good(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is None:
        content = {"text/plain": {"schema": {"type": "string"}, "example": endpoint.answer_example}}
    else:
        media = _media(endpoint.answer)
        if endpoint.answer_is_list:
            media = {"schema": {"type": "array", "items": media["schema"]}, "example": [media["example"]]}
        content = {"application/json": media}
    return {"description": endpoint.summary, "headers": _REQUEST_ID, "content": content}


def _bad(endpoint: Endpoint) -> dict[str, Any]:
    """By status; where two codes share one, both are there as examples."""
    codes: dict[str, list[str]] = {}
    for code in dict.fromkeys((*_implied(endpoint), *endpoint.errors, *EVERYWHERE)):
        codes.setdefault(str(HTTP_STATUS[code]), []).append(code)
    return {
        status: {"$ref": f"#/components/responses/{here[0]}"} if len(here) == 1 else _error(*here)
        for status, here in sorted(codes.items())
    }


def _implied(endpoint: Endpoint) -> Iterator[str]:
    """The codes that follow from what an endpoint takes."""
    for name in re.findall(r"\{(\w+)\}", endpoint.path):
        yield from _PATH_ERRORS.get(name, ("INVALID_ID", "NOT_FOUND"))
    if endpoint.body is not None:
        yield "INVALID_JSON"
    if endpoint.body is not None or endpoint.query is not None:
        yield "INVALID_ARGUMENT"


def _error(*codes: str) -> dict[str, Any]:
    """The answer of a status that these codes share."""
    examples = {code: {"summary": _MEANS[code], "value": _example(code)} for code in codes}
    shown = {"examples": examples} if len(codes) > 1 else {"example": _example(codes[0])}
    return {
        "description": " ".join(f"{code}: {_MEANS[code]}" for code in codes),
        "headers": _REQUEST_ID,
        "content": {"application/json": {"schema": _ref("Error"), **shown}},
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


def _query_params(query: type[msgspec.Struct] | None) -> Iterator[dict[str, Any]]:
    for name, each in ({} if query is None else table(query)).items():
        described = each.kind.bounded()
        if each.default is not None and each.default is not UNSET and each.default != ():
            described["default"] = (
                each.example() if not each.extra.get("examples") else msgspec.to_builtins(each.default)
            )
        found = {
            "name": name,
            "in": "query",
            "required": each.is_required,
            "description": each.extra.get("description", ""),
            "schema": described,
        }
        if isinstance(each.kind, ListKind):
            found["explode"] = False
        examples = each.extra.get("examples")
        yield {**found, "example": examples[0]} if examples else found


_STYLE: Final = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
:is(p, td, span) > code { padding: .05rem .25rem; border-radius: .2rem; background: color-mix(in srgb, currentColor 9%, transparent); }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; }
details { border-top: 1px solid var(--line); padding: .4rem 0; }
summary { cursor: pointer; display: flex; gap: .75rem; align-items: baseline; flex-wrap: wrap; }
.method { font-weight: 600; min-width: 4rem; }
.said { opacity: .75; }
table { border-collapse: collapse; }
td { padding: .15rem .75rem .15rem 0; vertical-align: top; }
:not(pre) > code, td { overflow-wrap: anywhere; }
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy that the page is sent with."""
_MARKED: Final = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*")


def page(document: dict[str, Any], words: Translator) -> str:
    return "".join(_page_html(document, words))


def marked(text: str) -> str:
    """Text of the description as HTML: what is between backticks is code, what is between two asterisks on each side is bold."""
    found, end = [], 0
    for match in _MARKED.finditer(text):
        found.append(escape(text[end : match.start()]))
        code, bold = match.groups()
        found.append(f"<code>{escape(code)}</code>" if code is not None else f"<b>{marked(bold)}</b>")
        end = match.end()
    return "".join([*found, escape(text[end:])])


def _page_html(document: dict[str, Any], words: Translator) -> Iterator[str]:
    lang = "zh-CN" if words.lang == "zh" else words.lang
    yield f'<!doctype html><html lang="{lang}"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Noonbell API</title><style>{_STYLE}</style></head><body>"
    yield f'<nav><a href="./">{escape(words("docs.back"))}</a></nav><main><h1>Noonbell API</h1>'
    yield f"<p>{escape(words('docs.version', version=document['info']['version']))} "
    yield f'{escape(words("docs.programs"))} <a href="openapi.json">/openapi.json</a></p><div lang="en">'
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2><p class=said>{marked(tag['description'])}</p>"
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation_html(path, method, operation)
    yield "</div></main></body></html>"


def _operation_html(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<details id={escape(operation['operationId'])}><summary><span class=method>{method.upper()}</span>"
    yield f"<code>{escape(path)}</code><span class=said>{marked(operation['summary'])}</span></summary>"
    if "description" in operation:
        yield f"<p>{marked(operation['description'])}</p>"
    if "parameters" in operation:
        yield "<table>"
        for each in operation["parameters"]:
            yield f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{marked(each['description'])}"
        yield "</table>"
    if "requestBody" in operation:
        yield "<p>Body</p>" + _json_html(operation["requestBody"]["content"]["application/json"]["example"])
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            (content,) = response["content"].values()
            yield f"<p>Answer {status}</p>" + _json_html(content["example"])
    errors = [status for status in operation["responses"] if not status.startswith("2")]
    yield f"<p class=said>Errors: {', '.join(errors)}</p></details>"


def _json_html(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre><code>{escape(text)}</code></pre>"
