"""The buffers that pages of the dashboard and calls of the API read, each asked of the whole application in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from unittest import mock

from bench.rounds import Failed
from noonbell.settings import Settings, StoreSettings
from noonbell.stores.postgres import PostgresStore
from noonbell.stores.sql.statement import Fetch, Statement
from noonbell.wiring import assemble
from noonbell.wiring.application import application

ALONG: Final = (
    *("/", "/tasks", "/tasks/{rare}", "/tasks/{rare}/runs", "/runs/{run}", "/timeline?span=24h", "/activity"),
    *("/queues", "/queues/default", "/queues/default/redrive", "/workers", "/runs", "/runs?status=FAILED"),
    *("/runs?task={often}", "/runs?task={rare}", "/runs?queue=default", "/runs/bulk?act=retry"),
    *("/api/v1/runs", "/api/v1/runs?status=FAILED", "/api/v1/runs?queue=default", "/api/v1/runs/{run}"),
    *("/api/v1/tasks/{often}/runs", "/api/v1/tasks/{rare}/runs", "/api/v1/stats"),
)
"""An index leads to what they show, or most runs are what they show."""
COUNTED: Final = frozenset({"/api/v1/tasks/{rare}/runs"})
"""Of these, the ones that count more in a long history: up to 10,000 runs, in an index, of the 950 that a twentieth has."""
COUNTED_PAGES: Final = 100
LOOKING: Final = (
    *("/runs?key=nobody", "/runs?search=nobody", "/api/v1/runs?key=nobody", "/queues/nobody/clean?days=0"),
    *("/runs?task={often}&status=FAILED", "/runs?task={rare}&status=FAILED", "/tasks/{rare}/runs?show=failed"),
)
"""They look at runs one by one."""


class Counting(PostgresStore):
    """Adds up the buffers that its questions read."""

    buffers = 0

    async def _do(self, connection: Any, statement: Statement) -> Any:
        if (
            isinstance(statement, Fetch)
            and statement.sql.lstrip().startswith(("select", "with"))
            and "for update" not in statement.sql
        ):
            text, names = self._parse(statement.sql)
            plan = await connection.fetch(
                f"explain (analyze, buffers, format json) {text}", *(statement.params[name] for name in names)
            )
            top = json.loads(plan[0][0])[0]["Plan"]
            self.buffers += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        return await super()._do(connection, statement)


async def buffers(url: str, facts: Mapping[str, int]) -> dict[str, int]:
    """By page, the least of three times, once it has been asked for. `facts`: a task that runs often, one that runs rarely, a run.

    What looks at the store by itself now and then falls into one of them.
    """
    store, settings = Counting(url), Settings(store=StoreSettings(url=url))
    found = {}
    with mock.patch.object(assemble, "make_store", return_value=store):
        async with (
            assemble.assembled(settings, 8080, scheduler=False, worker=False) as parts,
            application(parts, settings, lambda: {"ok": True, "workers": []}) as app,
        ):
            for page in (*ALONG, *LOOKING):
                counts = []
                for _ in range(4):
                    store.buffers = 0
                    await _get(app, page.format(**facts))
                    counts.append(store.buffers)
                found[page] = min(counts[1:])
            await parts.hub.close()
    return found


async def _get(app: Any, address: str) -> None:
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
        "headers": [(b"host", b"127.0.0.1:8080")],
    }
    answer = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        answer.append(message)

    await app(scope, receive, send)
    if answer[0]["status"] != 200:
        raise Failed(f"{address}: {answer[0]['status']} {answer[1]['body'][:500]!r}")
