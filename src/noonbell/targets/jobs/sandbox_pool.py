"""Sandboxes, seen from the worker: processes of their own for handlers that must be killable.

A sandbox is no security boundary: a handler in it runs as the worker's user, with its files and its network. It is a
boundary for crashes, memory and time. The worker's own settings (`NOONBELL_…`: store address, keys) are not in its
environment.

One process carries out one run at a time, and is kept for the next; after some runs it is replaced, so that what handlers
leak does not grow. Each leads a process group: what it has started dies with it.

    canceled, timed out    told, and a moment later killed: SIGKILL to the group
    the process dies       its attempt fails with kind `crash`; other attempts go on
    the worker dies        the pipe that it holds closes; a guard in the group sees that and kills the group
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

import msgspec

from noonbell.errors import Fail, NoonbellError
from noonbell.model.run import Assignment, Outcome
from noonbell.targets.jobs import outcome
from noonbell.targets.jobs.reporting import AttemptReports
from noonbell.targets.jobs.sandbox_child import (
    LENGTH,
    LONGEST,
    Answer,
    AskChildren,
    Cancel,
    Carry,
    Children,
    Done,
    Extend,
    LogMessage,
    MoreTime,
    Park,
    Prepare,
    ProgressMessage,
    Ready,
    Spawn,
    Spawned,
    ToSandbox,
    ToWorker,
    packed,
    read_in_worker,
)

RUNS = 100
"""Runs after which a process is replaced."""
GRACE = 0.3
"""Seconds between the word that a run is canceled and the end of its process. Less than the attempt's deadline leaves."""
_ENTRY = "noonbell.targets.jobs.sandbox_child"

Kind = tuple[str, int | None]
"""Location and memory limit: what a process is made for."""


class Crash(Exception):
    """The process ended, or said what no sandbox says."""


class Sandbox:
    """One process, from its start to its end."""

    def __init__(
        self,
        kind: Kind,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        life: int,
    ) -> None:
        """`life` is the end of a pipe that closes with this process, in any way that it ends."""
        self.kind, self.runs = kind, 0
        self.is_spent = False
        self._owes_answer = False
        """It has asked something and waits."""
        self._process, self._reader, self._writer, self._life = process, reader, writer, life

    @classmethod
    async def start(cls, kind: Kind) -> Sandbox:
        ours, theirs = socket.socketpair()
        guard, life = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _ENTRY, str(theirs.fileno()), str(guard)),
                pass_fds=(theirs.fileno(), guard),
                stdin=asyncio.subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(life)
            raise
        finally:
            theirs.close()
            os.close(guard)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(kind, process, reader, writer, life)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._reader.at_eof()

    async def prepare(self) -> str | None:
        """What keeps it from being ready, in words."""
        location, memory_mb = self.kind
        self._say(Prepare(location, memory_mb, [entry for entry in sys.path if entry]))
        heard = await self._hear()
        if not isinstance(heard, Ready):
            raise Crash
        return heard.problem

    async def carry(self, assignment: Assignment, words: AttemptReports) -> Outcome:
        self.runs += 1
        self._say(Carry(assignment))
        while not isinstance(heard := await self._hear(), Done):
            await self._pass_on(heard, words)
        self.is_spent = heard.is_spent
        if heard.result is not None:
            return msgspec.structs.replace(heard.outcome, result=msgspec.Raw(heard.result))
        return heard.outcome

    async def _pass_on(self, heard: ToWorker, words: AttemptReports) -> None:
        match heard:
            case LogMessage(level, message):
                words.log(level, message)
            case ProgressMessage(progress):
                words.progress(progress)
            case Park():
                words.park()
            case Extend() | Spawn() | AskChildren():
                self._owes_answer = True
                self._say(await _answer(heard, words))
                self._owes_answer = False
            case _:
                raise Crash

    async def cancel(self, words: AttemptReports) -> bool:
        """Tell it, and wait a moment. Whether it let go by itself."""
        if self._owes_answer:
            self._say(MoreTime(False))
            self._owes_answer = False
        self._say(Cancel())
        try:
            async with asyncio.timeout(GRACE):
                while not isinstance(heard := await self._hear(), Done):
                    if isinstance(heard, Extend | Spawn | AskChildren):
                        self._say(MoreTime(False))
                    else:
                        await self._pass_on(heard, words)
        except (Crash, TimeoutError):
            return False
        return True

    async def end(self) -> int | None:
        """Kill it and all that it has started. Its return code, where it ended by itself."""
        status = self._process.returncode
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._writer.close()
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
        await self._process.wait()
        return status

    async def status(self) -> int | None:
        """The return code of a process that has closed its end; None if it is still there."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                return await self._process.wait()
        return None

    def _say(self, message: ToSandbox) -> None:
        self._writer.write(packed(message))

    async def _hear(self) -> ToWorker:
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if length > LONGEST:
                raise Crash
            return read_in_worker(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError) as error:
            raise Crash from error


class Sandboxes:
    """Those of a worker. As many as runs go on in them at the same time; those that are idle wait for the next run."""

    def __init__(self, runs: int = RUNS) -> None:
        """`runs`: how many a process carries out before it is replaced."""
        self._runs = runs
        self._idle: dict[Kind, list[Sandbox]] = {}
        self._ending: set[asyncio.Task[int | None]] = set()

    async def execute(
        self, location: str, memory_mb: int | None, assignment: Assignment, words: AttemptReports
    ) -> Outcome:
        sandbox = await self._take((location, memory_mb))
        if isinstance(sandbox, Outcome):
            return sandbox
        try:
            ended = await sandbox.carry(assignment, words)
        except asyncio.CancelledError:
            words.cancelled = True
            is_sound = False
            try:
                is_sound = await sandbox.cancel(words)
            finally:
                await self._leave(sandbox, is_sound=is_sound)
            raise
        except Crash:
            return await _crashed(sandbox)
        except BaseException:
            await sandbox.end()
            raise
        await self._leave(sandbox, is_sound=not sandbox.is_spent)
        return ended

    async def close(self) -> None:
        for sandboxes in self._idle.values():
            for sandbox in sandboxes:
                await sandbox.end()
        self._idle.clear()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _take(self, kind: Kind) -> Sandbox | Outcome:
        """One that is ready; or why there is none."""
        idle = self._idle.get(kind)
        while idle:
            sandbox = idle.pop()
            if sandbox.is_alive:
                return sandbox
            await sandbox.end()
        sandbox = await Sandbox.start(kind)
        try:
            problem = await sandbox.prepare()
        except Crash:
            return await _crashed(sandbox)
        except BaseException:
            await sandbox.end()
            raise
        if problem is None:
            return sandbox
        await sandbox.end()
        return outcome.unready(problem)

    async def _leave(self, sandbox: Sandbox, *, is_sound: bool) -> None:
        """For the next run, or to its end. The end of a sound one is not waited for."""
        if not is_sound:
            await sandbox.end()
        elif sandbox.runs < self._runs:
            self._idle.setdefault(sandbox.kind, []).append(sandbox)
        else:
            ending = asyncio.get_running_loop().create_task(sandbox.end())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


async def _answer(question: Extend | Spawn | AskChildren, words: AttemptReports) -> Answer:
    match question:
        case Extend(seconds):
            return MoreTime(await words.more_time(seconds))
        case AskChildren(positions):
            return Children(await words.children(positions))
        case Spawn(requests):
            try:
                return Spawned(await words.spawned(requests))
            except (Fail, NoonbellError) as error:
                return Spawned(problem=error.message, is_final=isinstance(error, Fail))


async def _crashed(sandbox: Sandbox) -> Outcome:
    """Nothing of it stays, also if no caller waits for the answer any more."""
    try:
        return outcome.crashed(await sandbox.status())
    finally:
        await sandbox.end()
