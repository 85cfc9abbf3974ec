"""`noonbell dev`: a node with targets to call that prints how every run ended and starts anew when a file changes.

A watching process starts another one that does the work. It imports nothing of the App, so a change can never be half
loaded; the store outlives the reloads. The targets (an echo, and one that accepts and calls back) listen on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from noonbell.app import App
from noonbell.app.connection import declare_jobs
from noonbell.clock import to_datetime
from noonbell.engine.event_hub import Hub
from noonbell.model.event import Event, Filter
from noonbell.model.run import Run
from noonbell.model.task import TaskId
from noonbell.ports import Store
from noonbell.service.task_files import reconcile
from noonbell.settings import Settings
from noonbell.targets.jobs.handler import split
from noonbell.telemetry import logs
from noonbell.version import __version__
from noonbell.wiring.application import Listening
from noonbell.wiring.assemble import NodeParts, store_in_words
from noonbell.wiring.declared_tasks import load_app
from noonbell.wiring.process import Stop, loop_factory
from noonbell.wiring.serving import serve, url_for_commands

_ENDS = Filter(types=("run.succeeded", "run.failed", "run.retrying", "run.canceled", "run.skipped"))
_MOST_LINES = 20
"""Lines for what ended at the same time; of more than that, only the number is printed."""
_WIDEST = 100
STOPPED = "Noonbell has stopped"
"""The last line of `dev` and `demo`."""


def run_dev(settings: Settings, location: str | None, *, prune: bool = False) -> int:
    """`prune`: tasks of jobs that the App no longer has are deleted, as suits a store that is not shared."""
    logs.set_up(settings.logging.level, as_json=settings.logging.json)
    app = None if location is None else load_app(location, "APP")

    def beside(parts: NodeParts, address: str) -> contextlib.AbstractAsyncContextManager[None]:
        return _beside(parts, address, settings, app, prune=prune)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(settings, app=app, beside=beside))
    return 0


@contextlib.asynccontextmanager
async def _beside(
    parts: NodeParts, address: str, settings: Settings, app: App | None, *, prune: bool
) -> AsyncIterator[None]:
    async with targets() as url:
        if app is None:
            await reconcile(parts.services, "code:noonbell-dev", tasks(url), by="dev")
        elif prune:
            await declare_jobs(parts.services, app.owner, list(app.jobs.values()), prune=True)
        _say(_where(address, url, settings, app))
        telling = asyncio.create_task(_tell(parts.hub, parts.services.store))
        try:
            yield
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling


def _where(address: str, targets: str, settings: Settings, app: App | None) -> list[str]:
    names = ", ".join(app.jobs) if app is not None else "sample-echo, sample-async"
    return [
        f"Noonbell {__version__} is ready. Ctrl-C stops it.",
        f"  dashboard  {address}/",
        f"  API        {address}/api/v1, described at {address}/docs",
        f"  tasks      {names or 'none yet'}",
        f"  echo       {targets}/echo returns what it was sent",
        f"  async      {targets}/async accepts, and calls back after {CALLS_BACK_IN:g} s",
        f"  store      {store_in_words(settings.store.url)}",
        *commands_line(address),
        "Runs, as they end:",
    ]


def commands_line(address: str) -> list[str]:
    """How commands in another terminal find the server, unless they do by themselves."""
    url = url_for_commands(address)
    return [] if url is None else [f"  commands   export NOONBELL_URL={url}"]


async def _tell(hub: Hub, store: Store) -> None:
    shown: dict[TaskId, str] = {}
    async with hub.listen(_ENDS) as listener:
        while not listener.is_cut:
            batch = await listener.next()
            if batch is None:
                continue
            ended = batch.chosen(_ENDS)
            _say([line for event in ended[:_MOST_LINES] for line in await _lines(store, event, shown)])
            if len(ended) > _MOST_LINES:
                _say([f"  … and {len(ended) - _MOST_LINES} more"])


async def _lines(store: Store, event: Event, shown: dict[TaskId, str]) -> list[str]:
    """What became of a run. The traceback of an attempt that is tried again stands below it, unless the task's last one in
    `shown` was the same; that of the last attempt is in the log.
    """
    run = None if event.run_id is None else await store.run(event.run_id)
    if run is None:
        return [f"  {event.type} of a run that is gone"]
    trace = str((run.error_details or {}).get("traceback", "")) if event.type == "run.retrying" else ""
    is_new = bool(trace) and shown.get(run.task_id) != trace
    if is_new:
        shown[run.task_id] = trace
    return [_line(event, run), *([f"    | {each}" for each in trace.rstrip("\n").split("\n")] if is_new else [])]


def _line(event: Event, run: Run) -> str:
    at = to_datetime(event.at).astimezone().strftime("%H:%M:%S")
    took = "" if run.duration_ms is None else f"{run.duration_ms} ms"
    return f"  {at}  {_name(run):<20}  {_status(event, run):<16}  {took:>8}  {_said(run)}".rstrip()


def _name(run: Run) -> str:
    """`nightly`, or of a step of that flow `nightly/parts[1]`."""
    item = "" if run.item_index is None else f"[{run.item_index}]"
    return run.task_name if run.step_id is None else f"{run.task_name}/{run.step_id}{item}"


def _status(event: Event, run: Run) -> str:
    return "RETRYING" if event.type == "run.retrying" else str(run.status)


def _said(run: Run) -> str:
    """What came of it, cut to a line."""
    text = run.error_message or (str(run.skip_reason) if run.skip_reason is not None else None)
    if text is None:
        text = "" if run.result is None else json.dumps(run.result, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…"


def _say(lines: Sequence[str]) -> None:
    """On stdout, which a user who tries things reads."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


CALLS_BACK_IN = 2.0
"""Seconds."""


@contextlib.asynccontextmanager
async def targets() -> AsyncIterator[str]:
    """Their address, while they answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        callbacks = CallbackSender()
        async with Listening(_Samples(callbacks)).listening(listener, Stop()):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        await callbacks.close()


def tasks(url: str) -> Sequence[Mapping[str, Any]]:
    """Declarations of two tasks that call them."""
    return (
        {
            "name": "sample-echo",
            "cron_expr": "*/5 * * * * *",
            "http_method": "POST",
            "target_url": f"{url}/echo",
            "body_template": '{"run": {{run_id}}, "slot": "{{scheduled_time}}"}',
        },
        {
            "name": "sample-async",
            "cron_expr": "*/10 * * * * *",
            "exec_type": "ASYNC",
            "http_method": "POST",
            "target_url": f"{url}/async",
        },
    )


class CallbackSender:
    """Calls back in the name of targets that have accepted a run."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self, url: str, seconds: float) -> None:
        """Call that address after `seconds`."""
        task = asyncio.create_task(self._call_back(url, seconds))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _call_back(self, url: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError, http.client.HTTPException):  # the server has gone: so will we
            await asyncio.to_thread(_post, url, {"status": "SUCCESS", "data": {"took_seconds": round(seconds, 1)}})


class _Samples:
    """As ASGI has it."""

    def __init__(self, callbacks: CallbackSender) -> None:
        self._callbacks = callbacks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = await body_of(receive)
        callback = headers.get("x-callback-url")
        if scope["path"] == "/async" and callback is not None:
            self._callbacks.start(callback, CALLS_BACK_IN)
            await answer(send, 202, {"accepted": True})
            return
        said = {"method": scope["method"], "path": scope["path"], "headers": headers, "body": body}
        await answer(send, 200, said)


async def body_of(receive: Receive) -> str:
    parts = bytearray()
    while True:
        message = await receive()
        parts += message.get("body", b"")
        if not message.get("more_body"):
            return parts.decode("utf-8", "replace")


async def answer(send: Send, status: int, said: Mapping[str, Any]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


def _post(url: str, said: Mapping[str, Any]) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=5)
    try:
        connection.request("POST", parts.path, json.dumps(said), {"content-type": "application/json"})
        connection.getresponse().read()
    finally:
        connection.close()


EVERY = 0.3
"""Seconds between two looks at the files."""
_MOST_FILES = 5_000
_ENDS_IN = 15.0

Seen = dict[Path, int]
"""Files with the moment of their last change."""


def run_reloading(location: str | None, store: str | None, port: str) -> int:
    """Run `noonbell dev --no-reload`, again whenever a Python file near the App changes. The exit code of the last."""
    with _store(store) as url:
        command = ["dev", "--no-reload", "--watched", "--store", url, "--port", port]
        command += ["--own-store"] if store is None else []
        return _Watch([*command, *([location] if location else [])]).run(roots(location))


@contextlib.contextmanager
def _store(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="noonbell-dev-") as folder:
        yield f"sqlite:///{folder}/noonbell.db"


def roots(location: str | None) -> list[Path]:
    """Where the files of an App are: the folder of its file, or the one that modules are imported from."""
    if location is None:
        return []
    place, _ = split(location)
    return [Path(place).resolve().parent if place.endswith(".py") else Path.cwd()]


def seen(folders: list[Path]) -> Seen:
    """Python files below, without what is hidden or installed."""
    found: Seen = {}
    for root in folders:
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if not name.startswith((".", "_")) and name not in _INSTALLED]
            for name in files:
                if name.endswith(".py") and len(found) < _MOST_FILES:
                    path = Path(folder, name)
                    with contextlib.suppress(OSError):
                        found[path] = path.stat().st_mtime_ns
    return found


_INSTALLED = {"node_modules", "site-packages", "venv", "env", "build", "dist"}


class _Watch:
    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._stopping = False
        self._has_terminal = sys.stdin is not None and sys.stdin.isatty()
        """Then the child stays in its group: it can be debugged there, and hears of Ctrl-C by itself."""
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, folders: list[Path]) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        while True:
            before = seen(folders)
            code = self._until_changed(folders, before)
            if self._stopping or not folders:
                return self._ended(code)
            _announce("a file has changed; restarting" if code == _CHANGED else "waiting for a change")
            if code != _CHANGED:
                self._wait_for_change(folders, before)
                if self._stopping:
                    return self._ended(code)

    def _ended(self, code: int) -> int:
        if self._stopping:
            _announce(STOPPED)
        return code

    def _until_changed(self, folders: list[Path], before: Seen) -> int:
        command = [sys.executable, "-c", _NOONBELL, *self._arguments]
        self._child = child = subprocess.Popen(command, process_group=None if self._has_terminal else 0)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(EVERY)
            if not self._stopping and seen(folders) != before:
                self._end(child)
                return _CHANGED

    def _wait_for_change(self, folders: list[Path], before: Seen) -> None:
        while not self._stopping and seen(folders) == before:
            time.sleep(EVERY)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_ENDS_IN)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """The child gets each signal once; a second one ends it at once."""
        self._stopping = True
        is_told = self._has_terminal and number == signal.SIGINT
        if self._child is not None and self._child.poll() is None and not is_told:
            self._child.send_signal(number)


_NOONBELL = "from noonbell.cli import main; main()"
_CHANGED = -1000
"""No exit code: it was ended because of a change."""


def _announce(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
