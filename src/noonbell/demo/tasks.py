"""The demo's tasks, and the server on loopback that answers them. For the same slot the answer is always the same."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.types import Receive, Scope, Send

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
    return [{"labels": dict([LABEL]), **task} for task in (*_steady(url), *_stubborn(url), *_calendar(url))]


def _steady(url: str) -> Sequence[Mapping[str, Any]]:
    return (
        {
            "name": "demo-healthy",
            "description": "Every five minutes, and all is well",
            "cron_expr": "*/5 * * * *",
            "http_method": "POST",
            "target_url": f"{url}/demo-healthy",
            "body_template": '{"run": {{run_id}}, "slot": "{{scheduled_time}}"}',
            "misfire_policy": "FIRE_ONCE",
        },
        {
            "name": "demo-flaky",
            "description": "Fails three times out of ten; two retries usually mend it",
            "cron_expr": "*/10 * * * *",
            "target_url": f"{url}/demo-flaky",
            "retry_policy": {"max_retries": 2, "initial_delay": 5},
            "misfire_policy": "FIRE_ONCE",
        },
        {
            "name": "demo-slow",
            "description": "Takes its time: 4 to 12 seconds",
            "cron_expr": "*/15 * * * *",
            "target_url": f"{url}/demo-slow",
            "timeout_seconds": 30,
            "misfire_policy": "FIRE_ONCE",
        },
        {
            "name": "demo-callback",
            "description": "Accepted at once, done later: a callback says so",
            "cron_expr": "*/20 * * * *",
            "exec_type": "ASYNC",
            "http_method": "POST",
            "target_url": f"{url}/demo-callback",
            "callback_timeout_sec": 60,
            "misfire_policy": "SKIP",
        },
        {
            "name": PAUSED,
            "description": "Somebody has paused it",
            "cron_expr": "*/30 * * * *",
            "target_url": f"{url}/{PAUSED}",
        },
    )


def _stubborn(url: str) -> Sequence[Mapping[str, Any]]:
    return (
        {
            "name": "demo-overlapping",
            "description": "Every five minutes, and sometimes takes longer than that: such slots are skipped, and it is said why",
            "cron_expr": "*/5 * * * *",
            "target_url": f"{url}/demo-overlapping",
            "timeout_seconds": 900,
            "overlap_action": "SKIP",
            "misfire_policy": "FIRE_ONCE",
        },
        {
            "name": "demo-callback-lost",
            "description": "Accepted, and then nobody calls back: its deadline ends it",
            "cron_expr": "7 */2 * * *",
            "exec_type": "ASYNC",
            "http_method": "POST",
            "target_url": f"{url}/demo-callback-lost",
            "callback_timeout_sec": 90,
            "misfire_policy": "SKIP",
        },
        {
            "name": "demo-circuit",
            "description": "Its target is ill for hours: after three failures in a row the circuit opens, and a probe closes it",
            "cron_expr": "*/15 * * * *",
            "target_url": f"{url}/demo-circuit",
            "failure_action": "HALF_OPEN",
            "circuit": {"failures": 3, "cool_down_seconds": 3600},
            "misfire_policy": "SKIP",
        },
        {
            "name": "demo-no-worker",
            "description": "A job that no worker can take: its runs wait until one comes",
            "cron_expr": "0 9 * * 1",
            "job_type": "demo_unmanned",
            "queue": "demo-unmanned",
            "payload": {"region": "eu"},
        },
    )


def _calendar(url: str) -> Sequence[Mapping[str, Any]]:
    return (
        {
            "name": "demo-backup",
            "description": "At 02:00 in Berlin, together with another one",
            "cron_expr": "0 2 * * *",
            "timezone": "Europe/Berlin",
            "target_url": f"{url}/demo-backup",
            "timeout_seconds": 300,
        },
        {
            "name": "demo-report",
            "description": "At 02:00 in Berlin, together with another one",
            "cron_expr": "0 2 * * *",
            "timezone": "Europe/Berlin",
            "target_url": f"{url}/demo-report",
            "timeout_seconds": 120,
            "retry_policy": {"max_retries": 1, "initial_delay": 60},
        },
        {
            "name": "demo-month-end",
            "description": "On the last day of each month, however long that is",
            "schedule": {"type": "monthly", "day": 0, "time": "23:00:00"},
            "timezone": "Asia/Shanghai",
            "target_url": f"{url}/demo-month-end",
        },
    )


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
