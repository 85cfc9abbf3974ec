"""The command target: carries out a run by a program, under a supervisor process that ends all that the program started.

    exit code in `ok_codes`     success; the last line of stdout that is JSON is the result
    another one                 kind `exit_code`, retried as `error` is
    killed by a signal          kind `signal`, as well
    more processes than allowed kind `too_many_processes`, as well
    could not be started        kind `not_started`, as well: the program or the directory is not there
    not allowed by the worker   kind `command_not_allowed`, never retried
    canceled, timed out         SIGTERM to all its processes, SIGKILL after the grace; the attempt ends when they are gone

    K29  died before the process starts            the lease runs out; nothing was done. At most once: FAILED, kind `unknown`
    K30  died after its exit, before it is settled  as K4: the run is attempted again

The worker's death at any other moment closes the socket: the supervisor kills the command, and the lease runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from noonbell.clock import rfc3339
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import Deadlines
from noonbell.errors import InvalidState, StoreUnavailable
from noonbell.masking import is_harmless_variable
from noonbell.model.failure_text import failure_text, said_by, said_in
from noonbell.model.run import Assignment, Outcome, OutcomeKind, idempotency_key_of
from noonbell.ports import Store
from noonbell.sealing import Sealer
from noonbell.targets.command import supervisor
from noonbell.targets.command.allowed import PATH, Allowed, NotAllowed, Plan
from noonbell.targets.http.request import conceal, hidden_texts
from noonbell.targets.jobs.outcome import clean, encoded
from noonbell.targets.jobs.reporting import AttemptReports, ReportWriter

_OUTPUT: Final = {
    "head_bytes": 1 << 20,
    "head_lines": 10_000,
    "tail_bytes": 65_536,
    "tail_lines": 1_000,
    "longest": 16_384,
}
"""How much of what a command writes is kept as the log of its run: the first megabyte, and the last 64 kB."""
_LONGEST_FRAME: Final = 16 << 20
_LONGEST_MESSAGE: Final = 1_000
_LONGEST_RESULT: Final = 1 << 20
_PATIENCE: Final = 10.0
"""Seconds beyond the grace until the supervisor itself is killed: a process that waits for a disk cannot be ended by anybody."""
_AT_ONCE: Final = 2_000
"""Lines after which the store is waited for: a command that is faster than the store is slowed down by its full pipe."""
_SCRIPT: Final = str(Path(supervisor.__file__).absolute())
_LEVELS: Final = {"out": "info", "err": "warning"}


class SupervisorLost(Exception):
    """The supervisor ended without a word."""


class CommandTarget:
    def __init__(self, allowed: Allowed, store: Store, sealer: Sealer | None = None) -> None:
        self._allowed, self._sealer = allowed, sealer or Sealer()
        self._scribe, self._deadlines = ReportWriter(store), Deadlines()

    async def open(self) -> None:
        """Nothing is made before it is needed."""

    async def close(self) -> None:
        await self._scribe.close()

    async def execute(self, assignment: Assignment) -> Outcome:
        spec = assignment.task.spec
        try:
            env = {name: self._sealer.open(value) for name, value in spec.env.items()}
        except InvalidState as error:
            return _failure("error", error.message, ())
        secret = [value for name, value in env.items() if not is_harmless_variable(name)]
        hidden = hidden_texts({*secret, *(line for value in secret for line in value.splitlines())})
        try:
            plan = self._allowed.plan(spec, env)
        except NotAllowed as refusal:
            return _failure("command_not_allowed", said_in(refusal), hidden)
        reports = AttemptReports(self._scribe, assignment.lease)
        failpoint.hit("K29")
        try:
            ended = await self._in_time(assignment, plan, reports, hidden)
        finally:
            if reports.are_unsaid:
                await self._scribe.last_words(reports)
        return ended

    async def _in_time(
        self, assignment: Assignment, plan: Plan, reports: AttemptReports, hidden: Sequence[str]
    ) -> Outcome:
        deadline = self._deadlines.of_attempt(assignment.timeout_seconds)
        process: Supervised | None = None
        try:
            process = await Supervised.start(_order(assignment, plan, self._allowed))
            ended = await process.follow(reports, hidden)
            return _outcome(ended, assignment.task.spec.ok_codes, hidden)
        except asyncio.CancelledError:
            if process is not None:
                await process.stop(self._allowed.file.grace_seconds + _PATIENCE, reports, hidden)
            if not deadline.expired_alone():
                raise
            return _failure(
                "timeout", failure_text("took_longer", seconds=f"{assignment.task.spec.timeout_seconds:g}"), hidden
            )
        except SupervisorLost:
            return _failure("crash", failure_text("supervisor_ended"), hidden)
        finally:
            self._deadlines.remove(deadline)
            if process is not None:
                await process.end()


class Supervised:
    """One command with its supervisor, from its start to its end."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self._group: int | None = None
        self._following: asyncio.Task[dict[str, Any]] | None = None

    @classmethod
    async def start(cls, order: Mapping[str, Any]) -> Supervised:
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-B", _SCRIPT, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        made = cls(process, reader, writer)
        made._say({"start": order})
        return made

    async def follow(self, reports: AttemptReports, hidden: Sequence[str]) -> dict[str, Any]:
        """Pass on what the command writes until it has ended, and return how. SupervisorLost where nothing says so."""
        self._following = asyncio.get_running_loop().create_task(self._follow(reports, hidden))
        return await asyncio.shield(self._following)

    async def _follow(self, reports: AttemptReports, hidden: Sequence[str]) -> dict[str, Any]:
        unwritten = 0
        while True:
            heard = await self._hear()
            if "pid" in heard:
                self._group = int(heard["pid"])
            unwritten += len(heard.get("log", ()))
            if unwritten >= _AT_ONCE:
                with contextlib.suppress(StoreUnavailable):  # they wait, as far as there is room for them
                    await reports.write()
                unwritten = 0
            for stream, line, is_cut in heard.get("log", ()):
                reports.log(_LEVELS[stream], _shown(line, hidden, is_cut=is_cut))
            if "dropped" in heard:
                lines, size = heard["dropped"]
                reports.log("warning", f"{size} bytes in {lines} lines were left out here")
            if "ended" in heard or "failed" in heard:
                return heard

    async def stop(self, seconds: float, reports: AttemptReports, hidden: Sequence[str]) -> None:
        """SIGTERM, and SIGKILL after the grace. Returns when all its processes are gone, however often it is canceled
        meanwhile.
        """
        self._say({"stop": True})
        following = self._following or asyncio.get_running_loop().create_task(self._follow(reports, hidden))
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not following.done() and (left := until - loop.time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([following], timeout=left)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError, SupervisorLost):
            await following

    async def end(self) -> None:
        """The supervisor goes, and takes what is left with it."""
        if self._following is not None and not self._following.done():
            self._following.cancel()
        if self._process.returncode is None:
            self._writer.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._process.wait()), _PATIENCE)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if self._process.returncode != 0 and self._group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)
        self._writer.close()

    def _say(self, message: Mapping[str, Any]) -> None:
        body = msgspec.json.encode(message)
        self._writer.write(supervisor.LENGTH.pack(len(body)) + body)

    async def _hear(self) -> dict[str, Any]:
        try:
            (length,) = supervisor.LENGTH.unpack(await self._reader.readexactly(supervisor.LENGTH.size))
            if length > _LONGEST_FRAME:
                raise SupervisorLost
            heard: dict[str, Any] = msgspec.json.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError) as error:
            raise SupervisorLost from error
        return heard


def _order(assignment: Assignment, plan: Plan, allowed: Allowed) -> dict[str, Any]:
    return {
        "path": plan.path,
        "argv": plan.argv,
        "env": environment(assignment, {**home_of(plan.user), **plan.env}),
        "cwd": plan.cwd,
        "real_cwd": plan.real_cwd,
        "user": plan.user,
        "stdin": stdin_of(assignment.lease.payload),
        "processes": allowed.file.max_processes,
        "memory_mb": allowed.file.max_memory_mb,
        "grace": allowed.file.grace_seconds,
        "output": _OUTPUT,
    }


def environment(assignment: Assignment, own: Mapping[str, str]) -> dict[str, str]:
    """All variables of a command: a fixed few, what its run is, and its own. Nothing of the worker's."""
    lease, task = assignment.lease, assignment.task
    found = {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        **own,
        "NOONBELL_RUN_ID": str(lease.run_id),
        "NOONBELL_TASK_ID": str(task.id),
        "NOONBELL_TASK": task.name,
        "NOONBELL_ATTEMPT": str(lease.attempt),
        "NOONBELL_SCHEDULED_TIME": rfc3339(lease.scheduled_time),
        "NOONBELL_IDEMPOTENCY_KEY": idempotency_key_of(lease.run_id, lease.scheduled_time, lease.idempotency_key),
    }
    if assignment.previous_scheduled_time is not None:
        found["NOONBELL_PREVIOUS_SCHEDULED_TIME"] = rfc3339(assignment.previous_scheduled_time)
    if lease.key is not None:
        found["NOONBELL_KEY"] = lease.key
    if assignment.traceparent is not None:
        found["TRACEPARENT"] = assignment.traceparent
    return {name: clean(value) for name, value in found.items()}


def home_of(user: str | None) -> dict[str, str]:
    """Who it runs as, as cron would say it."""
    try:
        found = pwd.getpwuid(os.geteuid()) if user is None else pwd.getpwnam(user)
    except KeyError:  # a container's user may have no name
        return {"HOME": "/"}
    return {"HOME": found.pw_dir, "USER": found.pw_name, "LOGNAME": found.pw_name}


def stdin_of(payload: Any) -> str:
    """A text as it is, anything else as JSON; nothing for null."""
    if payload is None:
        return ""
    return payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()


def _shown(line: str, hidden: Sequence[str], *, is_cut: bool) -> str:
    """A line for the log, its secrets concealed; where its end is missing, the piece of a secret that may stand there, too."""
    text = conceal(line, hidden)
    if not is_cut:
        return text
    return f"{text[: len(text) - max(map(len, hidden), default=0)]}… (cut)"


def _outcome(heard: Mapping[str, Any], ok_codes: Sequence[int], hidden: Sequence[str]) -> Outcome:
    if "failed" in heard:
        return _failure("not_started", str(heard["failed"]), hidden)
    ended = heard["ended"]
    code, number = ended["code"], ended["signal"]
    if ended["killed"] == "processes":
        return _failure("too_many_processes", failure_text("too_many_processes"), hidden)
    if number is not None:
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return _failure("signal", failure_text("command_killed", signal=name), hidden, signal=name)
    if code is None:
        return _failure("crash", failure_text("command_no_code"), hidden)
    if code not in ok_codes:
        return _failure("exit_code", failure_text("command_exit", code=code), hidden, exit_code=code)
    result = ended["result"]
    outcome = Outcome(kind=OutcomeKind.SUCCESS)
    if result is not None and len(result) <= _LONGEST_RESULT:
        outcome = _result(conceal(result, hidden))
    return outcome if code == 0 else msgspec.structs.replace(outcome, error_details={"exit_code": code})


def _result(text: str) -> Outcome:
    """What the last line says, as every store can hold it; nothing, where concealing has left no JSON."""
    try:
        return encoded(msgspec.json.encode(msgspec.json.decode(clean(text).encode())))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Outcome(kind=OutcomeKind.SUCCESS)


def _failure(kind: str, message: str, hidden: Sequence[str], **details: Any) -> Outcome:
    return Outcome(
        kind=OutcomeKind.FAILURE,
        failure=kind,
        error_message=conceal(clean(message), hidden)[:_LONGEST_MESSAGE],
        error_details={**details, "kind": kind, **said_by(message, lambda text: conceal(clean(text), hidden))},
    )
