"""Handlers that tests let run in a process of their own: this file is imported there."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from noonbell.errors import Fail
from noonbell.targets.jobs.handler import Handler, HandlerKind, Handlers

LOCATION = f"{Path(__file__).resolve()}:app"


class Application:
    """What a sandbox needs of an App."""

    def __init__(self):
        self.handlers = Handlers()
        self.opened = False

    @contextlib.asynccontextmanager
    async def alive(self):
        self.opened = True
        yield


app = Application()


def sandboxed(function=None, **more):
    def add(function):
        app.handlers.add(
            Handler(
                job_type=function.__name__,
                kind=HandlerKind.SANDBOX,
                read=lambda payload: payload,
                call=function,
                location=LOCATION,
                **more,
            )
        )
        return function

    return add if function is None else add(function)


def note(payload, text):
    Path(payload["file"]).write_text(text)


@sandboxed
def whoami(_context, _payload):
    return {"pid": os.getpid(), "group": os.getpgid(0), "opened": app.opened}


@sandboxed
def settings_in_sight(_context, _payload):
    return sorted(name for name in os.environ if name.startswith("NOONBELL_") or name == "FOR_HANDLERS")


@sandboxed
async def in_a_loop(context, payload):
    await asyncio.sleep(0)
    await context.progress(1, 2, "half")
    return {"payload": payload, "extended": await context.extend(60)}


@sandboxed
def talk(context, _payload):
    for number in range(200):
        context.log(f"line {number}")
        context.progress(number)
    return bool(context.extend(60))


@sandboxed
def stay(context, _payload):
    """Beyond its timeout, by asking for more."""
    for _ in range(4):
        context.extend(60)
        time.sleep(0.3)
    return "there"


@sandboxed
def fail(_context, _payload):
    raise Fail("no", customer=7)


@sandboxed
def raise_error(_context, _payload):
    raise KeyError("broken")


@sandboxed
def return_object(_context, _payload):
    return object()


@sandboxed
def leave(_context, _payload):
    os._exit(3)


@sandboxed
def segfault(_context, _payload):
    ctypes.string_at(0)


@sandboxed
def exit_politely(_context, _payload):
    sys.exit(3)


@sandboxed(memory_mb=64)
def eat(_context, payload):
    return len(bytearray(payload["mb"] * 1024 * 1024))


@sandboxed
def spin(_context, payload):
    """Never lets another thread run."""
    note(payload, str(os.getpid()))
    re.match(r"(a|a)*$", "a" * 200 + "b")


@sandboxed
def sleep_with_child(_context, payload):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    note(payload, f"{os.getpid()} {child.pid}")
    signal.pause()


@sandboxed
def wait_for_cancel(context, payload):
    note(payload, str(os.getpid()))
    while not context.cancelled:
        time.sleep(0.01)
    note(payload, "saw it")


@sandboxed
def ask_after_cancel(context, payload):
    note(payload, str(os.getpid()))
    while not context.cancelled:
        time.sleep(0.01)
    note(payload, f"more time: {bool(context.extend(60))}")


@sandboxed
async def wait_in_a_loop(_context, payload):
    note(payload, str(os.getpid()))
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        note(payload, "saw it")
        raise
