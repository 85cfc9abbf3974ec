"""Sealing anew: the secrets of tasks, of their earlier versions and of channels, a batch in each transaction.

Only what is secret is written: no version, no cursor and no time moves, and no event is told. An update names the row as
it was read; one that somebody changed meanwhile is left to the next pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noonbell.stores.sql.rows import from_json, to_json
from noonbell.stores.sql.statement import Execute, Fetch, Work

Fields = dict[str, Any]
Reseal = Callable[[Fields], Fields]
"""From the secret fields of a row to what they are to be."""

After = tuple[int, int]
"""How far a walk has come: task and version."""


def tasks(after: int, limit: int, reseal: Reseal) -> Work[tuple[int | None, int]]:
    rows = yield Fetch(
        "select id, version, headers, secret from tasks where id > :after order by id limit :limit",
        {"after": after, "limit": limit},
    )
    written = 0
    for task_id, version, headers, secret in rows:
        was = {"headers": from_json(headers), "secret": secret}
        found = reseal(was)
        if found != was:
            written += yield Execute(
                "update tasks set headers = :headers, secret = :secret where id = :id and version = :version",
                {
                    "headers": to_json(found["headers"]),
                    "secret": found["secret"],
                    "id": task_id,
                    "version": version,
                },
            )
    return (rows[-1][0] if len(rows) == limit else None), written


def versions(after: After, limit: int, reseal: Reseal) -> Work[tuple[After | None, int]]:
    rows = yield Fetch(
        "select task_id, version, spec from task_versions"
        " where task_id > :task or (task_id = :task and version > :version) order by task_id, version limit :limit",
        {"task": after[0], "version": after[1], "limit": limit},
    )
    written = 0
    for task_id, version, text in rows:
        spec = from_json(text)
        found = reseal(_secrets_of(spec))
        if {**spec, **found} != spec:
            written += yield Execute(
                "update task_versions set spec = :spec where task_id = :task and version = :version",
                {"spec": to_json({**spec, **found}), "task": task_id, "version": version},
            )
    return ((rows[-1][0], rows[-1][1]) if len(rows) == limit else None), written


def channels(reseal: Reseal) -> Work[int]:
    rows = yield Fetch("select name, updated_at, spec from alert_channels order by name")
    written = 0
    for name, updated_at, text in rows:
        spec = from_json(text)
        found = {**spec, **reseal(_secrets_of(spec))}
        if found != spec:
            written += yield Execute(
                "update alert_channels set spec = :spec where name = :name and updated_at = :at",
                {"spec": to_json(found), "name": name, "at": updated_at},
            )
    return written


def _secrets_of(spec: Fields) -> Fields:
    return {name: spec[name] for name in ("headers", "secret", "url") if name in spec}
