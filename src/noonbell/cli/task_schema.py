"""The JSON Schema of a file of tasks, made from the API's own: for editors to complete and check by."""

from __future__ import annotations

import json
from typing import Any


def task_schema() -> dict[str, Any]:
    from noonbell.api.schemas import all_schemas

    schemas = all_schemas()
    needed: dict[str, Any] = {}
    wanted = ["TaskWrite"]
    while wanted:
        name = wanted.pop()
        if name not in needed:
            needed[name] = schemas[name]
            text = json.dumps(schemas[name])
            wanted += [other for other in schemas if f'"#/components/schemas/{other}"' in text]
    text = json.dumps(dict(sorted(needed.items()))).replace("#/components/schemas/", "#/$defs/")
    definitions: dict[str, Any] = json.loads(text)
    task = definitions["TaskWrite"]
    if "properties" in task:
        task["properties"]["version"] = {"type": "integer", "description": "The version that the writer has seen."}
        task["required"] = ["name"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tasks of Noonbell",
        "type": "object",
        "properties": {"tasks": {"type": "array", "items": {"$ref": "#/$defs/TaskWrite"}}},
        "required": ["tasks"],
        "additionalProperties": False,
        "$defs": definitions,
    }
