"""Puts a text into every string that the API takes, as its own description lists them: a field that is added is sown too.

What is refused by its name is left out, and the rest tried again; `taken` and `refused` say which was which.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from yarl import URL

NOTHING: Final = object()
_INDEX = re.compile(r"\[\d+\]|\[.*\]|\.\d+(?=\.|$)", re.DOTALL)
"""Which of a list a refusal is about: by number, or by a name, which may hold anything."""
ALSO: Final = {
    "schedule.expr": "cron_expr",
    "tasks.schedule.expr": "tasks.cron_expr",
    "after.tasks.task": "tasks.after.tasks.task",
}
"""What is said of the long form where the short one was given; and of a cycle in a file of tasks, without the file's part."""
ONLY_FOR_A_TEXT: Final = ("schedules", "exclude", "grpc")
"""Objects that a task has instead of others: they are left out as soon as no text goes into them."""
_MOST_TRIES: Final = 12
_ENOUGH: Final = 6


@dataclass
class Told:
    status: int
    body: Any


@dataclass
class Sower:
    session: aiohttp.ClientSession
    root: str
    document: dict[str, Any]
    headers: dict[str, str]
    taken: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By `Schema.field`: the names of the texts."""
    refused: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    stopped: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """By operation and text: why nothing of it was taken."""
    sown: set[str] = field(default_factory=set)
    """The schemas of bodies that were tried."""
    _vain: dict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _good: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    async def sow(
        self,
        operation: str,
        name: str,
        text: str,
        base: dict[str, Any] | None = None,
        plain: dict[str, Any] | None = None,
        parts: dict[str, Any] | None = None,
    ) -> Any | None:
        """Call it with that text wherever one fits and `base` does not say otherwise; `plain` stands in for what is refused, by its
        path (`runs.task`).

        None: nothing of it was taken.
        """
        method, path, schema = self.operation(operation)
        self.sown.add(schema)
        where = (operation, str((base or {}).get("exec_type")))
        skip = self._hopeless(where)
        for _ in range(_MOST_TRIES):
            filled = Filled(self.document, text, frozenset(skip), plain or {})
            body = filled.of({"$ref": f"#/components/schemas/{schema}"}, "")
            rest = {key: value for key, value in (plain or {}).items() if "." not in key}
            body = {**rest, **({} if body is NOTHING else body), **(base or {})}
            leaves = {leaf for leaf in filled.leaves if leaf.partition(".")[0].rstrip("~") not in (base or {})}
            told = await self.call(method, path, body, parts)
            assert told.status < 500, (operation, name, told)
            if told.status < 400:
                for leaf in leaves:
                    self.taken[f"{schema}.{leaf}"].add(name)
                self._good[where] |= leaves
                return told.body
            # A head that is too long is refused by the server itself, in plain words.
            dropped = blamed(leaves, told.body["details"] or {}) if isinstance(told.body, dict) else set()
            for leaf in dropped or leaves:
                self.refused[f"{schema}.{leaf}"].add(name)
                self._vain[where][leaf] += 1
            if not dropped:
                self.stopped[operation][name] = str(told.body)[:500]
                return None
            skip |= dropped
        raise AssertionError(f"{operation} refuses {name} again and again: {told}")

    def _hopeless(self, where: tuple[str, str]) -> set[str]:
        """What has refused several texts and taken none: a time zone is no place for any of them."""
        return {leaf for leaf, count in self._vain[where].items() if count >= _ENOUGH and leaf not in self._good[where]}

    def operation(self, wanted: str) -> tuple[str, str, str]:
        for path, item in self.document["paths"].items():
            for method, operation in item.items():
                if operation["operationId"] == wanted:
                    return method.upper(), path, schema_of(operation) or ""
        raise LookupError(wanted)

    async def call(self, method: str, path: str, body: Any = None, parts: dict[str, Any] | None = None) -> Told:
        filled = {part: quote(str(value), safe="", errors="replace") for part, value in (parts or {}).items()}
        address = URL(self.root + re.sub(r"\{(\w+)\}", lambda part: filled[part[1]], path), encoded=True)
        more: dict[str, Any] = {} if body is None else {"json": body}
        async with self.session.request(method, address, headers=self.headers, **more) as response:
            is_json = response.content_type == "application/json"
            return Told(response.status, await response.json() if is_json else await response.text())


def schema_of(operation: dict[str, Any]) -> str | None:
    """The name of the body's schema."""
    content = operation.get("requestBody", {}).get("content", {})
    return content["application/json"]["schema"]["$ref"].rpartition("/")[2] if content else None


def blamed(leaves: set[str], details: dict[str, Any]) -> set[str]:
    """The leaves that a refusal names; of a map first its key, then its value."""
    found: set[str] = set()
    paths = {_INDEX.sub("", name) for name in details}
    for path in paths | {ALSO[path] for path in paths & ALSO.keys()}:
        near = {
            leaf
            for leaf in leaves
            for plain in (leaf.rstrip("~"),)
            if path == plain or path.startswith((f"{plain}.", f"{plain}[")) or plain.startswith(f"{path}.")
        }
        found |= {leaf for leaf in near if leaf.endswith("~")} or near
    return found


class Filled:
    """A body by its schema, with a text for every free string; enums, numbers and moments only where they are needed."""

    def __init__(self, document: dict[str, Any], text: str, skip: frozenset[str], plain: dict[str, Any]) -> None:
        self._schemas = document["components"]["schemas"]
        self._text, self._skip, self._plain = text, skip, plain
        self._touched = 0
        self.leaves: set[str] = set()
        """Where the text went. `labels~` is the name in a map, `labels` its value."""

    def of(self, schema: dict[str, Any], at: str) -> Any:
        if "$ref" in schema:
            return self.of(self._schemas[schema["$ref"].rpartition("/")[2]], at)
        for name in ("anyOf", "oneOf", "allOf"):
            if name in schema:
                return self._first(schema[name], at)
        if schema.keys() & {"enum", "const", "format"}:
            return NOTHING
        kinds = schema.get("type", "any")
        if "string" in ([kinds] if isinstance(kinds, str) else kinds):
            return self._leaf(at)
        match kinds:
            case "array":
                item = self.of(schema["items"], at)
                return NOTHING if item is NOTHING else [item]
            case "object" if "properties" in schema:
                return self._object(schema, at)
            case "object" | "any":
                return self._map(at)
        return NOTHING

    def _first(self, schemas: list[dict[str, Any]], at: str) -> Any:
        """By the first that has a place for a text, whether or not one is put there."""
        before = self._touched
        for schema in schemas:
            value = self.of(schema, at)
            if self._touched > before:
                return value
        return NOTHING

    def _leaf(self, at: str) -> Any:
        self._touched += 1
        if at in self._skip:
            return self._plain.get(at, NOTHING) if "." in at else NOTHING
        self.leaves.add(at)
        return self._text

    def _map(self, at: str) -> Any:
        value = self._leaf(at)
        if value is NOTHING:
            return NOTHING
        return {"x" if self._leaf(f"{at}~") is NOTHING else self._text: value}

    def _object(self, schema: dict[str, Any], at: str) -> Any:
        needed = schema.get("required", []) if at else []  # of the body itself, the caller says what is needed
        if (self._skip - self._plain.keys()) & {f"{at}.{name}" for name in needed}:
            self._touched += 1
            return NOTHING
        parts, before = schema["properties"].items(), len(self.leaves)
        found = {name: self.of(part, f"{at}.{name}" if at else name) for name, part in parts}
        found = {name: value for name, value in found.items() if value is not NOTHING}
        if not found or (at.rpartition(".")[2] in ONLY_FOR_A_TEXT and len(self.leaves) == before):
            return NOTHING
        given = {name: self._plain.get(f"{at}.{name}", least(schema["properties"][name])) for name in needed}
        return given | found


def least(schema: dict[str, Any]) -> Any:
    """Something that fits, for what is needed and is no text."""
    if "const" in schema or "enum" in schema:
        return schema.get("const") or schema["enum"][0]
    return {"boolean": False, "string": "x"}.get(str(schema.get("type")), 1)
