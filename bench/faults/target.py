"""The target: an HTTP server in a thread, which notes every request in a file before it answers.

GET /SCHEDULE?slot=SECONDS&key=KEY of a peer, `made` instead of `slot` where that is all that it knows; of Noonbell /SCHEDULE, and the same in the headers that it sends.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TextIO
from urllib.parse import parse_qs, urlsplit

from bench.faults.account import Arrival

ANSWERS_AFTER = 0.02
"""Seconds: long enough for kills to hit requests that are open."""
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Target:
    """Serves from construction to `close`."""

    def __init__(self, log: Path) -> None:
        self._log: TextIO = log.open("w", encoding="utf-8")
        self._arrivals: list[Arrival] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def arrivals(self) -> list[Arrival]:
        return list(self._arrivals)

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
        """One connection, request after request. None has a body."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                named = (line.partition(":") for line in head[1:])
                self._note(
                    arrival(time.time(), head[0].split(" ")[1], {name.lower(): v.strip() for name, _, v in named})
                )
                await asyncio.sleep(ANSWERS_AFTER)
                writer.write(_ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the process was killed, or has closed the connection
        finally:
            writer.transport.abort()

    def _note(self, one: Arrival) -> None:
        self._log.write(json.dumps(asdict(one)) + "\n")
        self._log.flush()
        self._arrivals.append(one)


def arrival(at: float, path: str, headers: Mapping[str, str]) -> Arrival:
    parts = urlsplit(path)
    told = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if "x-noonbell-scheduled-time" in headers:
        slot = datetime.fromisoformat(headers["x-noonbell-scheduled-time"]).timestamp()
        told = {"slot": str(slot), "key": headers["idempotency-key"]}
    slot_told = told.get("slot", told.get("made"))
    slot = None if slot_told is None else round(float(slot_told))
    return Arrival(parts.path.lstrip("/"), at, slot, told.get("key"), is_exact="made" not in told)
