"""The demo's tasks, and the server on loopback that answers them. For the same slot the answer is always the same."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from noonbell import yaml_text
from noonbell.wiring.application import Listening
from noonbell.wiring.dev import CallbackSender, answer, body_of
from noonbell.wiring.process import Stop

LABEL: Final = ("demo", "true")
"""What every task of the demo has, and what cleaning up goes by."""
OWNER: Final = "code:noonbell-demo"
PAUSED: Final = "demo-paused"
"""The task that is paused."""


@dataclass(frozen=True, slots=True)
class Act:
    """What a target does with one request."""

    seconds: float
    """Until it answers."""
    status: int = 200
    calls_back_after: float | None = None
    """Seconds after its answer; None: never."""


def act(name: str, slot: int, attempt: int) -> Act:
    """`slot` in seconds. The same question always has the same answer."""
    luck, pace = _unit(name, slot, attempt, "luck"), _unit(name, slot, attempt, "pace")
    match name:
        case "demo-flaky":
            return Act(0.1 + 0.9 * pace, 200 if luck > 0.3 else 503)
        case "demo-slow":
            return Act(4 + 8 * pace)
        case "demo-overlapping":
            return Act(200 + 250 * pace)
        case "demo-callback":
            return Act(0.05 + 0.1 * pace, 202, calls_back_after=3 + 9 * luck)
        case "demo-callback-lost":
            return Act(0.05 + 0.1 * pace, 202)
        case "demo-circuit":
            # Ill for some hours, well for some: days of one colour would show nothing.
            is_ill = _unit(name, slot // 21_600, 0, "health") < 0.4
            return Act(0.2 + 0.3 * pace, 500 if is_ill else 200)
        case "demo-backup":
            return Act(35 + 30 * pace)
        case "demo-report":
            return Act(15 + 20 * pace, 200 if luck > 0.1 else 504)
        case _:
            return Act(0.02 + 0.1 * pace)


def declared(url: str) -> Sequence[Mapping[str, Any]]:
    """Their declarations, on targets at that address."""
    text = files("noonbell.demo").joinpath("tasks.yaml").read_text(encoding="utf-8")
    tasks: list[dict[str, Any]] = yaml_text.read(text.replace("$URL", url))["tasks"]
    return [{"labels": dict([LABEL]), **task} for task in tasks]


def _unit(name: str, slot: int, attempt: int, what: str) -> float:
    """From [0, 1), and always the same."""
    digest = hashlib.sha256(f"{name} {slot} {attempt} {what}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def place(wanted: int) -> socket.socket:
    """A socket on that port of loopback, so that tasks keep their address from one time to the next; else on a free one."""
    try:
        return socket.create_server(("127.0.0.1", wanted))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.asynccontextmanager
async def answering(listener: socket.socket) -> AsyncIterator[None]:
    targets = _Targets()
    async with Listening(targets).listening(listener, Stop()):
        try:
            yield
        finally:
            await targets.close()


class _Targets:
    """As ASGI has it. The path names the task; its slot and attempt are in the headers that every request has."""

    def __init__(self) -> None:
        self._callbacks = CallbackSender()
        self._is_over = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await body_of(receive)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        name, slot = scope["path"].strip("/"), _slot(headers.get("x-noonbell-scheduled-time", ""))
        does = act(name, slot, _number(headers.get("x-noonbell-attempt", "")))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), does.seconds)
            await answer(send, 503, {"error": "the demo is over"})
            return
        await answer(send, does.status, {"task": name, "took": round(does.seconds, 3)})
        callback = headers.get("x-callback-url")
        if callback is not None and does.calls_back_after is not None:
            self._callbacks.start(callback, does.calls_back_after)

    async def close(self) -> None:
        """Answers the calls that still wait."""
        self._is_over.set()
        await self._callbacks.close()


def _slot(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 1
