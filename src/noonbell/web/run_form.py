"""Run a task with parameters: a form with a box for each field of the job's payload, and key, delay and priority.

The fields come from `meta.payload_schema` of the task, which an App writes from the signature of its job; without it,
the payload is one text of JSON. An HTTP task has its body instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import ConcurrencyLimit, InvalidArgument, Sentence
from noonbell.fields.problems import Problems
from noonbell.model.access import Role
from noonbell.model.task import Task
from noonbell.service.scope import ScopeRule
from noonbell.web.context import PageContext, as_json
from noonbell.web.forms import number_or_text, read_json_box
from noonbell.web.page import get, post
from noonbell.web.task_page import task_of

SCHEMA: Final = "payload_schema"
_BOX: Final = "p."
"""How the names of the payload's boxes begin."""
_KINDS: Final = {"integer": "number", "number": "number", "boolean": "check", "string": "text"}


@dataclass(frozen=True, slots=True)
class PayloadBox:
    name: str
    kind: str
    """`number`, `check`, `text`, `select`, or `json` for anything else."""
    choices: tuple[str, ...]
    is_required: bool
    default: str
    """What the handler takes where it is left out; empty where that is not known."""

    @property
    def box(self) -> str:
        return _BOX + self.name


def payload_boxes(meta: Mapping[str, Any]) -> list[PayloadBox]:
    """By the schema that the task's `meta` has; none where it has no such schema."""
    schema = meta.get(SCHEMA)
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(fields, dict):
        return []
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    return [_box(str(name), each if isinstance(each, dict) else {}, name in needed) for name, each in fields.items()]


def _box(name: str, schema: Mapping[str, Any], is_required: bool) -> PayloadBox:
    choices, given = schema.get("enum"), schema.get("default")
    default = given if isinstance(given, str) else as_json(given) if isinstance(given, int | float) else ""
    if isinstance(choices, list) and choices and all(isinstance(each, str) for each in choices):
        return PayloadBox(name, "select", tuple(choices), is_required, default)
    return PayloadBox(name, _KINDS.get(str(schema.get("type")), "json"), (), is_required, default)


def texts_of(boxes: list[PayloadBox], payload: Any) -> dict[str, str]:
    """What the boxes say at first: the task's own payload."""
    given = payload if isinstance(payload, dict) else {}
    return {each.box: _text(each, given[each.name]) for each in boxes if given.get(each.name) is not None}


def _text(box: PayloadBox, value: Any) -> str:
    return value if isinstance(value, str) and box.kind in ("text", "select") else as_json(value)


def read_payload(boxes: list[PayloadBox], sent: Mapping[str, str], own: Any, problems: Problems) -> dict[str, Any]:
    """Of the boxes; what the task's payload has beside them stays."""
    payload = dict(own) if isinstance(own, dict) else {}
    for each in boxes:
        text = sent.get(each.box, "")
        payload.pop(each.name, None)
        if each.kind == "text" and text:
            payload[each.name] = text
        elif text.strip():
            payload[each.name] = text if each.kind == "select" else _read(each, text.strip(), problems)
        elif each.is_required:
            problems.add(each.box, "is missing")
    return payload


def _read(box: PayloadBox, text: str, problems: Problems) -> Any:
    if box.kind == "check":
        return text == "true"
    if box.kind == "number":
        found = number_or_text(text)
        if isinstance(found, str):
            problems.add(box.box, Sentence("is {value}; expected {what}", value=repr(text[:40]), what="a number"))
        return found
    return read_json_box(box.box, text, problems)


async def ask(ctx: PageContext) -> Response:
    task = await task_of(ctx)
    spec = task.spec
    fields = {**texts_of(_boxes_of(task), spec.payload), "payload": as_json(spec.payload) if spec.payload else ""}
    fields["override_body"] = spec.body_template or ""
    return _page(ctx, task, fields, {})


async def carry_out(ctx: PageContext) -> Response:
    task, sent = await task_of(ctx), await ctx.fields()
    try:
        wanted = _wanted(task, sent)
        published = await ctx.services.publishing.trigger(task.id, wanted, trace_id=ctx.request_id)
    except InvalidArgument as error:
        return _page(ctx, task, sent, error.sentences or {"": error.sentence}, 400)
    except ConcurrencyLimit as error:
        return _page(ctx, task, sent, {"": error.sentence}, 409)
    text = ctx.words("task.triggered", name=task.name)
    return ctx.done(text, go=f"/tasks/{task.id}" if published.run_id is None else f"/runs/{published.run_id}")


def _wanted(task: Task, sent: Mapping[str, str]) -> dict[str, Any]:
    problems = Problems()
    wanted: dict[str, Any] = {}
    text = sent.get("payload", "").replace("\r\n", "\n")
    if task.spec.target_kind.takes_overrides:
        body = sent.get("override_body", "").replace("\r\n", "\n")
        if body and body != (task.spec.body_template or ""):
            wanted["override_body"] = body
    elif boxes := _boxes_of(task):
        wanted["payload"] = read_payload(boxes, sent, task.spec.payload, problems)
    elif text.strip():
        wanted["payload"] = read_json_box("payload", text, problems)
    if key := sent.get("key", "").strip():
        wanted["key"] = key
    for name in ("delay_seconds", "priority"):
        if given := sent.get(name, "").strip():
            wanted[name] = number_or_text(given)
    problems.finish()
    return wanted


def _boxes_of(task: Task) -> list[PayloadBox]:
    return [] if task.spec.target_kind.takes_overrides else payload_boxes(task.spec.meta)


def _page(
    ctx: PageContext, task: Task, fields: Mapping[str, str], problems: Mapping[str, str], status: int = 200
) -> Response:
    return ctx.page(
        "task_run.html",
        status,
        task=task,
        is_http=task.spec.target_kind.takes_overrides,
        boxes=_boxes_of(task),
        fields=fields,
        problems=problems,
    )


PAGES: Final = [
    get("/tasks/{id}/run", ask, role=Role.OPERATOR, scope=ScopeRule.TASK),
    post("/tasks/{id}/run", carry_out, "trigger_task", scope=ScopeRule.TASK),
]
