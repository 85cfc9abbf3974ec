"""A sandbox: the process that carries runs out for a worker (`python -m noonbell.targets.jobs.sandbox_child`), and its messages.

Handlers run in the main thread, as they would in a program of their own; async ones in an event loop there. A second
thread listens to the worker. A guard, forked before anything else is there, waits for the worker's end and then kills the
whole group: that works even where a handler never lets another thread run.

Messages are MessagePack, each with its length before it:

    worker ──▶ sandbox    Prepare once, then Carry for each run; Cancel; the answers MoreTime, Spawned, Children
    sandbox ──▶ worker    Ready once; LogMessage, ProgressMessage, Park and the questions Extend, Spawn, AskChildren while a
                          run goes on; Done at its end

The worker trusts none of it: a message that it cannot read, or that is too long, ends the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import queue
import signal
import socket
import struct
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from noonbell.errors import Fail, LeaseLost, Parked
from noonbell.model.run import Assignment, ChildRequest, ChildState, Outcome
from noonbell.targets.jobs import outcome
from noonbell.targets.jobs.handler import Context, Handlers, ReadyResult

T = TypeVar("T")

LENGTH: Final = struct.Struct("!I")
LONGEST: Final = 64 * 1024 * 1024


class Prepare(msgspec.Struct, tag=True):
    location: str
    memory_mb: int | None
    path: list[str]
    """Where the worker imports from."""


class Carry(msgspec.Struct, tag=True):
    assignment: Assignment


class Cancel(msgspec.Struct, tag=True):
    pass


class MoreTime(msgspec.Struct, tag=True):
    is_ours: bool


class Spawned(msgspec.Struct, tag=True):
    run_ids: list[int] = []
    problem: str | None = None
    """Why no child was made."""
    is_final: bool = False
    """No retry would help."""


class Children(msgspec.Struct, tag=True):
    states: list[ChildState]


class Ready(msgspec.Struct, tag=True):
    problem: str | None = None
    """Why it is not."""


class LogMessage(msgspec.Struct, tag=True):
    level: str
    message: str


class ProgressMessage(msgspec.Struct, tag=True):
    progress: dict[str, Any]


class Extend(msgspec.Struct, tag=True):
    seconds: float


class Spawn(msgspec.Struct, tag=True):
    requests: list[ChildRequest]


class AskChildren(msgspec.Struct, tag=True):
    positions: list[int]


class Park(msgspec.Struct, tag=True):
    pass


class Done(msgspec.Struct, tag=True):
    outcome: Outcome
    result: bytes | None = None
    """The outcome's result, as JSON: it goes to the store as it is."""
    is_spent: bool = False
    """The sandbox has run out of memory, or of trust in itself: it is not to be used again."""


Answer = MoreTime | Spawned | Children
ToSandbox = Prepare | Carry | Cancel | Answer
ToWorker = Ready | LogMessage | ProgressMessage | Extend | Spawn | AskChildren | Park | Done

_encoder = msgspec.msgpack.Encoder()
_in_sandbox: msgspec.msgpack.Decoder[ToSandbox] = msgspec.msgpack.Decoder(ToSandbox)
_in_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def packed(message: ToSandbox | ToWorker) -> bytes:
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def read_in_worker(body: bytes) -> ToWorker:
    """Raises msgspec.MsgspecError."""
    return _in_worker.decode(body)


_MB = 1024 * 1024


def main() -> None:
    talk, guard = int(sys.argv[1]), int(sys.argv[2])
    _fork_guard(talk, guard)
    os.close(guard)
    inside = Inside(socket.socket(fileno=talk))
    threading.Thread(target=inside.listen, name="noonbell sandbox", daemon=True).start()
    inside.work()


def _fork_guard(talk: int, guard: int) -> None:
    """A process of the group that does nothing but wait for the worker's end of the pipe to close."""
    if os.fork():
        return
    os.close(talk)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.read(guard, 1)
    os.killpg(0, signal.SIGKILL)


class Inside:
    """The `Line` of the handler that runs, and the way to the worker."""

    def __init__(self, way: socket.socket) -> None:
        self.cancelled = False
        self._way = way
        self._saying = threading.Lock()
        self._runs: queue.SimpleQueue[Prepare | Carry] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._opened: contextlib.AsyncExitStack | None = None

    # The worker's words

    def listen(self) -> None:
        """In a thread of its own, until the worker closes the line: then the work is over."""
        try:
            with contextlib.suppress(OSError, EOFError):
                while True:
                    self._heed(self._hear())
        finally:  # a sandbox that does not hear would keep its next run until that times out
            os.killpg(0, signal.SIGKILL)

    def _heed(self, heard: ToSandbox) -> None:
        match heard:
            case Cancel():
                self.cancelled = True
                loop, task = self._loop, self._task  # the other thread may be done with it at any moment
                if loop is not None and task is not None:
                    loop.call_soon_threadsafe(task.cancel)
            case MoreTime() | Spawned() | Children():
                self._answers.put(heard)
            case _:
                self._runs.put(heard)

    def _hear(self) -> ToSandbox:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        return _in_sandbox.decode(self._read(length))

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._way.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def _say(self, message: ToWorker) -> None:
        with self._saying:
            self._way.sendall(packed(message))

    # As a Line

    def log(self, level: str, message: str) -> None:
        self._say(LogMessage(level, outcome.clean(message)))

    def progress(self, progress: dict[str, Any]) -> Awaitable[None]:
        self._say(ProgressMessage(progress))
        return ReadyResult(None)

    def extend(self, seconds: float) -> Awaitable[bool]:
        return self._ask(Extend(seconds), _is_ours)

    def spawn(self, requests: Sequence[ChildRequest]) -> Awaitable[list[int]]:
        return self._ask(Spawn(list(requests)), _run_ids)

    def children(self, positions: Sequence[int]) -> Awaitable[list[ChildState]]:
        return self._ask(AskChildren(list(positions)), _states)

    def park(self) -> None:
        self._say(Park())

    def _ask(self, question: ToWorker, read: Callable[[Answer], T]) -> Awaitable[T]:
        """In an event loop to be awaited; elsewhere the answer is there when it returns."""
        self._say(question)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return ReadyResult(read(self._answers.get()))
        return loop.run_in_executor(None, lambda: read(self._answers.get()))

    # Work

    def work(self) -> None:
        """The first message prepares, each further one is a run."""
        prepare = self._runs.get()
        handlers: Handlers | None = None
        try:
            if isinstance(prepare, Prepare):
                handlers = self._prepared(prepare)
            problem = None
        except BaseException as error:  # importing an application may raise anything: its run fails by it
            problem = outcome.raised(error).error_message or "it did not say why"
        self._say(Ready(problem))
        while handlers is not None:
            run = self._runs.get()
            if isinstance(run, Carry):
                self._say(self._carry(handlers, run))

    def _prepared(self, prepare: Prepare) -> Handlers:
        sys.path[:0] = [entry for entry in prepare.path if entry not in sys.path]
        from noonbell.targets.jobs.handler import find_app

        app = find_app(prepare.location, "the App of a sandbox")
        handlers: Handlers = app.handlers
        if hasattr(app, "alive"):
            self._opened = contextlib.AsyncExitStack()
            self._run(self._opened.enter_async_context(app.alive()))
        if prepare.memory_mb is not None:
            _limit_memory(prepare.memory_mb)
        return handlers

    def _carry(self, handlers: Handlers, run: Carry) -> Done:
        self.cancelled = False
        job_type = run.assignment.task.spec.job_type
        handler = handlers.get(job_type)
        if handler is None:
            return Done(outcome.unknown(job_type))
        try:
            context = Context(run.assignment, self, handler.resources)
            value = handler.call(context, handler.read(run.assignment.lease.payload))
            if inspect.isawaitable(value):
                value = self._run(_awaited(value))
        except Parked:
            return Done(outcome.gathering())
        except MemoryError as error:
            return Done(outcome.raised(error), is_spent=True)
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: the process is the worker's
            return Done(outcome.raised(error))
        ended = outcome.returned(value)
        return Done(ended) if ended.result is None else Done(outcome.SUCCESS, bytes(ended.result))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """In the event loop of this process, which stays for the next."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(self._task)
        finally:
            self._task = None


def _is_ours(answer: Answer) -> bool:
    return isinstance(answer, MoreTime) and answer.is_ours


def _run_ids(answer: Answer) -> list[int]:
    if not isinstance(answer, Spawned):
        raise LeaseLost("the run is no longer held")
    if answer.problem is not None:
        raise Fail(answer.problem) if answer.is_final else RuntimeError(answer.problem)
    return answer.run_ids


def _states(answer: Answer) -> list[ChildState]:
    if not isinstance(answer, Children):
        raise LeaseLost("the run is no longer held")
    return answer.states


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _limit_memory(megabytes: int) -> None:
    """On top of what the process has taken so far, its application included."""
    import resource

    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = taken + megabytes * _MB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
