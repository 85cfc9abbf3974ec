"""Canaries: a secret in every field that takes one, a target that says back whatever it hears, and a look for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sqlite3
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from integration.api.serving import Api
from integration.targets.sink import Asked, Line, Sink, http, listening
from services.probe import connect_mysql


def canary(what: str) -> str:
    """A secret that nothing else looks like."""
    return f"canary-{what}-{secrets.token_hex(8)}"


class Planted:
    """One canary for each secret field there is."""

    def __init__(self) -> None:
        self.authorization = canary("authorization")
        self.cookie = canary("cookie")
        self.api_key = f'{canary("api-key")}"\\ё/'
        self.subscription = canary("subscription-key")
        self.signing = canary("signing-secret")
        self.everywhere = canary("global-header")
        self.channel_secret = canary("channel-secret")
        self.channel_header = canary("channel-header")
        self.apprise = canary("apprise-password")
        self.hook_path = canary("hook-path")
        self.webhook_secret = canary("webhook-secret")
        self.webhook_path = canary("webhook-path")
        self.broker_password = canary("broker-password")
        self.broker_header = canary("broker-header")
        self.metadata = canary("metadata")
        self.variable = canary("variable")

    def all(self) -> list[str]:
        """What to look for; one with letters that JSON and addresses spell otherwise is looked for by its stem."""
        return [value.partition('"')[0] for value in vars(self).values()]

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.authorization}",
            "Cookie": f"session={self.cookie}",
            "X-Api-Key": self.api_key,
            "Ocp-Apim-Subscription-Key": self.subscription,
            "Accept-Language": "{{run_id}}",
        }

    def task(self, url: str, **more: Any) -> dict[str, Any]:
        return {
            "name": "planted",
            "http_method": "POST",
            "target_url": url,
            "headers": self.headers,
            "secret": self.signing,
            "body_template": '{"run": {{run_id}}, "token": "{{callback_token}}"}',
            **more,
        }

    def others(self) -> list[dict[str, Any]]:
        """Tasks that reach something else than HTTP. Nothing listens there: their runs fail, or wait for a worker."""
        url, headers = "127.0.0.1:9/{}", {"Authorization": f"Bearer {self.broker_header}"}
        once = {"retry_policy": {"max_retries": 0}}
        return [
            {
                "name": "amqp",
                "amqp": {
                    "url": f"amqp://ann:{self.broker_password}@{url.format('')}",
                    "routing_key": "q",
                    "headers": headers,
                },
                **once,
            },
            {
                "name": "redis",
                "redis": {"url": f"redis://:{self.broker_password}@{url.format(0)}", "stream": "s"},
                **once,
            },
            {
                "name": "grpc",
                "grpc": {
                    "address": "127.0.0.1:9",
                    "method": "bell.Bell/Ring",
                    "metadata": {"authorization": f"Bearer {self.metadata}"},
                },
                **once,
            },
            {"name": "command", "command": ["/bin/ls"], "env": {"API_KEY": self.variable}},
        ]

    def channels(self, url: str) -> list[dict[str, Any]]:
        headers = {"X-Token": self.channel_header}
        return [
            {
                "name": "hook",
                "url": f"{url.rstrip('/')}/{self.hook_path}",
                "secret": self.channel_secret,
                "headers": headers,
            },
            {"name": "mail", "kind": "apprise", "url": f"json://user:{self.apprise}@127.0.0.1:9/{self.apprise}"},
        ]

    def webhook(self, url: str) -> dict[str, Any]:
        url = f"{url.rstrip('/')}/{self.webhook_path}"
        return {"name": "hook", "url": url, "secret": self.webhook_secret, "types": ["run"]}

    def found_in(self, text: str) -> list[str]:
        return found_in(text, self.all())


def found_in(text: str, canaries: Iterable[str]) -> list[str]:
    return [each for each in canaries if each in text]


async def parrot(asked: Asked, line: Line) -> None:
    """Everything that it hears it says: in headers, in a JSON body, and in an address."""
    heard = {name.lower(): value.encode("latin-1").decode() for name, value in asked.header_lines}
    body = json.dumps({"headers": heard, "asked": asked.body.decode()}).encode()
    said = {f"Echo-{name}": value for name, value in asked.header_lines if name.lower().startswith(("auth", "cook"))}
    failing = "fail" in asked.path
    await line.say(http(500 if failing else 200, body, Content_Type="application/json", **said))


@contextlib.asynccontextmanager
async def parrots() -> AsyncIterator[Sink]:
    async with listening(parrot) as sink:
        yield sink


async def ended(api: Api, run_id: int, **more: Any) -> dict[str, Any]:
    """The run, when it has come to its end."""
    for _ in range(500):
        run = await api.good("GET", f"/runs/{run_id}", **more)
        if run["final_status"] is not None or run["status"] == "CALLBACK_PENDING":
            return dict(run)
        await asyncio.sleep(0.02)
    raise AssertionError(f"run {run_id} did not end")


async def dumped(url: str) -> str:
    """Everything that lies in the database, as text."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        file = Path(parts.path[1:] if parts.path.startswith("//") else parts.path)
        rows = _sqlite_rows(file)
        # Pages that are free again count too: whoever has the file has them.
        raw = [each.read_bytes().decode("latin-1") for each in file.parent.glob(f"{file.name}*") if each.is_file()]
        return "\n".join([rows, *raw])
    if parts.scheme.startswith("postgres"):
        connection = await asyncpg.connect(url)
        try:
            names = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
            rows = [await connection.fetch(f'select * from "{name[0]}"') for name in names]
            return "\n".join(str(tuple(row)) for table in rows for row in table)
        finally:
            await connection.close()
    connection = await connect_mysql(url)
    try:
        async with connection.cursor() as cursor:
            await cursor.execute("show tables")
            found = []
            for (name,) in await cursor.fetchall():
                await cursor.execute(f"select * from `{name}`")
                found += [str(row) for row in await cursor.fetchall()]
            return "\n".join(found)
    finally:
        connection.close()


def _sqlite_rows(file: Path) -> str:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        return "\n".join(str(row) for name in names for row in connection.execute(f'select * from "{name}"'))
