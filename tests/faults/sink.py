"""The witness: an HTTP target with a log of its own, so that Noonbell's bookkeeping is never trusted about itself.

    /ok             200 at once           /slow/0.02     200 after so many seconds
    /accept         202 at once           /hold          200 when `release` was called
    /once/503       that status to a run's first request, 200 to the rest

Four count, and answer with JSON after COUNTING seconds, so that a later step of a flow can be given what an earlier one got:

    /range/3        {"n": 0, "items": [0, 1, 2]}      /plus/3        {"n": 4}
    /sum            {"n": the sum of the n of the objects in the list that is the body}      /add/3/4       {"n": 7}

A query (`/ok?task-7`) only tells requests apart. The log is written a line for each request before it is answered.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

COUNTING = 0.02
"""Seconds: long enough for kills to hit requests that are open."""
REASONS = {200: "OK", 202: "Accepted", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request that arrived whole."""

    at: float
    """By the wall clock of this machine, which is the databases' as well."""
    path: str
    run: str
    attempt: int
    slot: str
    key: str
    token: str | None = None
    """Of an ASYNC request: what its callback is sent to."""
    node: str | None = None
    """The header X-Node, where the nodes were told to send one."""


class Sink:
    """Serves in a thread of its own, from construction to `close`."""

    def __init__(self, log: Path) -> None:
        self._log: TextIO = log.open("a", encoding="utf-8")
        self._deliveries: list[Delivery] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._held = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def deliveries(self, path: str | None = None) -> list[Delivery]:
        """In the order of their arrival; with a path, those that asked for it."""
        with self._lock:
            return [one for one in self._deliveries if path is None or one.path == path]

    def release(self) -> None:
        """Answer everybody who waits at /hold, and whoever comes later."""
        self._loop.call_soon_threadsafe(self._held.set)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._log.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length") or 0))
                path = head[0].split(" ")[1]
                first = self._note(path, headers)
                asked = path.partition("?")[0]
                status, content = await self._status(asked, first), _counted(asked, body)
                if content != "ok":
                    await asyncio.sleep(COUNTING)
                sent = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Length: {len(content)}\r\n\r\n{content}"
                writer.write(sent.encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the node was killed, or has closed the connection
        except asyncio.CancelledError:
            pass  # the sink itself is closed
        finally:
            writer.transport.abort()

    def _note(self, path: str, headers: Mapping[str, str]) -> bool:
        """Write it down. True: the first request of its run."""
        delivery = Delivery(
            at=time.time(),
            path=path,
            run=headers["x-noonbell-run"],
            attempt=int(headers["x-noonbell-attempt"]),
            slot=headers["x-noonbell-scheduled-time"],
            key=headers["idempotency-key"],
            token=headers.get("x-callback-token"),
            node=headers.get("x-node"),
        )
        self._log.write(json.dumps(asdict(delivery)) + "\n")
        self._log.flush()
        with self._lock:
            self._deliveries.append(delivery)
            return sum(one.run == delivery.run for one in self._deliveries[-50:]) == 1

    async def _status(self, path: str, first: bool) -> int:
        kind, _, rest = path.lstrip("/").partition("/")
        if kind == "hold":
            await self._held.wait()
        elif kind == "slow":
            await asyncio.sleep(float(rest))
        elif kind == "once":
            return int(rest) if first else 200
        return 202 if kind == "accept" else 200


def _counted(path: str, body: bytes) -> str:
    """What the paths that count answer; `ok` for the others."""
    kind, *words = path.lstrip("/").split("/")
    match kind:
        case "range":
            return json.dumps({"n": 0, "items": list(range(int(words[0])))})
        case "plus":
            return json.dumps({"n": int(words[0]) + 1})
        case "add":
            return json.dumps({"n": sum(map(int, words))})
        case "sum":
            return json.dumps({"n": sum(each["n"] for each in json.loads(body))})
        case _:
            return "ok"
