"""Processes of the `noonbell` command that need not import it each time: they are forked from one that has.

Importing takes a second of a processor, most of what a test that starts a node costs. A forked process is as real as another: it has
its own memory, files, signals and exit code. What the command itself does when it starts cold is tested where it is called by its name.

`python forked.py FD` is the process that forks. It has one thread and no event loop, so that a fork is safe. It ends when the other
end of its socket does.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

COMMAND = str(Path(sys.executable).with_name("noonbell"))
COLD = "PYTHON"
"""Variables that count when Python starts: what has one is started as usual."""

PRELOADED = ("opentelemetry.propagate", "uvloop")
"""Besides every module of Noonbell."""

PR_SET_PDEATHSIG = 1
"""Of Linux: the signal that a process gets when its parent ends."""

File = IO[bytes]


class Forked:
    """As much of `subprocess.Popen` as the tests use."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid, self.returncode = pid, None
        self._status = status

    returncode: int | None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(COMMAND, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = int(os.read(self._status, 16))
            os.close(self._status)
        return self.returncode


class Forkery:
    """Our end of the process that forks, which is started with the first fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def fork(self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[File]) -> Forked:
        """`files` are its stdin, stdout and stderr."""
        mine, theirs = os.pipe()
        request = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}).encode()
        fds = [file.fileno() for file in files]
        with self._lock:
            if self._socket is None:
                self._socket = self._start()
            socket.send_fds(self._socket, [request], [*fds, theirs])
            os.close(theirs)
            return Forked(int(self._socket.recv(16)), mine)

    @staticmethod
    def _start() -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        command = [sys.executable, str(Path(__file__)), str(theirs.fileno())]
        process = subprocess.Popen(command, env=clean, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours


_forkery = Forkery()


def start(
    *arguments: str, cwd: Path, env: Mapping[str, str], stdout: File, stderr: File, program: Path | None = None
) -> Forked | subprocess.Popen[bytes]:
    """`noonbell ARGUMENTS`, with nothing to read. `program`: another one, which is started as usual."""
    with Path(os.devnull).open("rb") as nothing:
        is_cold = any(name.startswith(COLD) and os.environ.get(name) != value for name, value in env.items())
        if is_cold or program is not None:
            command = [str(program or COMMAND), *arguments]
            return subprocess.Popen(command, cwd=cwd, env=dict(env), stdin=nothing, stdout=stdout, stderr=stderr)
        return _forkery.fork(arguments, cwd, env, (nothing, stdout, stderr))


def run(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str = "",
    seconds: float = 60,
) -> subprocess.CompletedProcess[str]:
    """`noonbell ARGUMENTS` from beginning to end, and what it said."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given.encode())
        stdin.seek(0)
        process = _forkery.fork(
            arguments, cwd or Path.cwd(), os.environ if env is None else env, (stdin, stdout, stderr)
        )
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        said = []
        for file in (stdout, stderr):
            file.seek(0)
            said.append(file.read().decode())
        return subprocess.CompletedProcess([COMMAND, *arguments], code, *said)


# ---- the process that forks


def serve(asks: socket.socket) -> list[str] | None:
    """None when the tests have ended; in each child, the arguments that it is to run with."""
    told, tells = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asks, told], [], [])
        if told in ready:
            os.read(told, 4096)
            report(running)
        if asks in ready:
            request, fds, _, _ = socket.recv_fds(asks, 1 << 20, 4)
            if not request:
                return None
            *standard, status = fds
            if (pid := os.fork()) == 0:
                for fd in (told, tells, status, *running.values()):
                    os.close(fd)
                asks.close()
                return become(json.loads(request), standard)
            for fd in standard:
                os.close(fd)
            running[pid] = status
            asks.send(str(pid).encode())


def report(running: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(running[pid], str(os.waitstatus_to_exitcode(status)).encode())
        os.close(running.pop(pid))


def become(request: Mapping[str, Any], standard: Sequence[int]) -> list[str]:
    if sys.platform == "linux":  # tests that are killed leave no node behind: it goes with the process that forked it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    if "NOONBELL_FAILPOINT" in os.environ:  # which is read when the module is imported
        importlib.reload(importlib.import_module("noonbell.engine.failpoint"))
    sys.argv = [COMMAND, *request["arguments"]]
    sys.path[0] = str(Path(COMMAND).parent)
    return sys.argv[1:]


def preload() -> None:
    import noonbell

    ours = (found.name for found in pkgutil.walk_packages(noonbell.__path__, "noonbell."))
    for name in (*PRELOADED, *ours):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    if (given := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        from noonbell.cli import main

        main(given)
