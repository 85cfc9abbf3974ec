"""The supervisor of one command: a small process between the worker and the program, which ends all that the program started.

It runs as a script by itself (`python -I -S supervisor.py FD`) and knows nothing of Noonbell, so that it starts fast and holds
no secret but the command's own. Standard library only.

    worker ──socket──▶ supervisor (session of its own, adopts orphans) ──▶ command (session and process group of its own)

    the command exits      what it left behind is killed, its last output is read, and the worker gets the exit code
    stop                   SIGTERM to all its processes, SIGKILL `grace` seconds later
    the worker dies        the socket closes, or the parent is another one: SIGKILL to all its processes at once
    the supervisor dies    the kernel kills the command (PR_SET_PDEATHSIG), the worker kills its group

A process that leaves the group (`setsid`, a double fork) is still a descendant: the supervisor adopts orphans
(PR_SET_CHILD_SUBREAPER), so it finds it under itself and kills it too.

Both sides send frames: four bytes of length, and JSON.

    worker → supervisor    {"start": {...}}, then perhaps {"stop": true}
    supervisor → worker    {"pid": n} or {"failed": why, "errno": n}; {"log": [[stream, line, is_cut], ...]}; {"ended": {...}}
"""

from __future__ import annotations

import ctypes
import errno
import grp
import json
import os
import pwd
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any, NoReturn

LENGTH = struct.Struct("!I")
LOOK = 0.05
"""Seconds between two looks at the parent and at the number of processes."""
LAST_OUTPUT = 2.0
"""Seconds for the output of processes that are dead. It is there at once, unless another process has the other end of
the pipe.
"""
_PDEATHSIG, _SUBREAPER, _NO_NEW_PRIVS = 1, 36, 38
_CHUNK = 65_536
_STREAMS = ("out", "err")


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the rest of the protection has to do."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


_KNOWS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Most kernels are built so."""


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def descendants(root: int) -> list[int]:
    """All processes below one, the nearest first."""
    found: list[int] = []
    waiting = [root]
    while waiting:
        for child in _children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    if not _KNOWS_CHILDREN:
        return [child for child, parent in _parents().items() if parent == pid]
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:  # it is gone
        return found
    return found


def processes_of(uid: int) -> int:
    """How many processes and threads of a user there are: RLIMIT_NPROC counts all of them."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


class CommandRefused(Exception):
    """The command could not be started; the message says at which step."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


class Output:
    """What the command writes: the first of it is passed on line by line, of the rest the last is kept. Memory is bounded.

    What lies between is dropped unread but for its size: a command may write more than lines could be counted.
    """

    def __init__(self, limits: dict[str, int]) -> None:
        self._bytes, self._lines = limits["head_bytes"], limits["head_lines"]
        self._tail_bytes, self._tail_lines, self._longest = (
            limits["tail_bytes"],
            limits["tail_lines"],
            limits["longest"],
        )
        self._partial = dict.fromkeys(_STREAMS, b"")
        self._tail: deque[tuple[str, bytes]] = deque()
        self._tail_size = 0
        self._is_full = False
        self.head_size = 0
        self.ready: list[tuple[str, bytes, bool]] = []
        """Stream, line, and whether its end is missing."""
        self.dropped_bytes = self.dropped_lines = 0
        self.result: bytes | None = None
        """The last line of stdout that is JSON."""

    def add(self, stream: str, chunk: bytes) -> None:
        if self._is_full:
            self._keep(stream, chunk)
            return
        text = self._partial[stream] + chunk
        start = 0
        while (end := text.find(b"\n", start)) >= 0:
            size = end - start + 1
            if size > self._bytes or self._lines <= 0:
                self._fill(stream, text[start:])
                return
            self._bytes -= size
            self._lines -= 1
            self._put(stream, text[start:end])
            start = end + 1
        self._partial[stream] = text[start:]
        if len(self._partial[stream]) > self._bytes:
            self._fill(stream, self._partial[stream])

    def finish(self) -> None:
        for stream in _STREAMS:
            if self._partial[stream]:
                self._put(stream, self._partial[stream])
        last: dict[str, list[bytes]] = {}
        for stream in _STREAMS:
            text = b"".join(chunk for of, chunk in self._tail if of == stream)
            whole = text.splitlines()
            skipped = max(0, len(whole) - self._tail_lines, int(self.dropped_bytes > 0 and bool(whole)))
            self.dropped_lines += skipped
            self.dropped_bytes += sum(len(line) + 1 for line in whole[:skipped])
            last[stream] = whole[skipped:]
        self.head_size = len(self.ready)
        for stream, lines in last.items():
            for line in lines:
                self._put(stream, line)

    def _fill(self, stream: str, rest: bytes) -> None:
        """From here on only the end is kept."""
        self._is_full = True
        self._partial[stream] = b""
        self._keep(stream, rest)
        for other in _STREAMS:
            if self._partial[other]:
                self._keep(other, self._partial[other])
                self._partial[other] = b""

    def _keep(self, stream: str, chunk: bytes) -> None:
        self._tail.append((stream, chunk))
        self._tail_size += len(chunk)
        while self._tail_size - len(self._tail[0][1]) >= self._tail_bytes:
            _, gone = self._tail.popleft()
            self._tail_size -= len(gone)
            self.dropped_bytes += len(gone)
            self.dropped_lines += gone.count(b"\n")

    def _put(self, stream: str, line: bytes) -> None:
        line = line.rstrip(b"\r")
        if stream == "out" and line[:1] in _JSON_BEGINS and _is_json(line):
            self.result = line
        self.ready.append((stream, line[: self._longest], len(line) > self._longest))


_JSON_BEGINS = tuple(bytes([each]) for each in b'{["-0123456789tfn \t')


def _is_json(line: bytes) -> bool:
    if not line.strip():
        return False
    try:
        json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> NoReturn:
    """NaN and Infinity are no JSON."""
    raise ValueError(name)


class Supervisor:
    def __init__(self, way: socket.socket) -> None:
        self._way, self._parent = way, os.getppid()
        self._said = b""
        self._pid = 0
        self._status: int | None = None
        self._kill_at: float | None = None
        self._killed: str | None = None
        """Why all processes were killed, where it was the supervisor's own decision."""
        self._start: dict[str, Any] = {}
        self._priority = 0

    # The worker

    def hear(self) -> list[dict[str, Any]] | None:
        """What the worker has sent by now; None: it is gone."""
        try:
            part = self._way.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not part:
            return None
        self._said += part
        found: list[dict[str, Any]] = []
        while len(self._said) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._said)
            if len(self._said) < LENGTH.size + length:
                break
            found.append(json.loads(self._said[LENGTH.size : LENGTH.size + length]))
            self._said = self._said[LENGTH.size + length :]
        return found

    def say(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        try:
            self._way.sendall(LENGTH.pack(len(body)) + body)
        except OSError:
            self.end_all()
            os._exit(1)

    # The command

    def run(self) -> None:
        heard = self.hear()
        while heard == []:
            heard = self.hear()
        if heard is None:
            return
        self._start = heard[0]["start"]
        prctl(_SUBREAPER, 1)
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        with suppress(OSError):  # root alone may: it must have its turn among as many processes as a command can start
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        wake, woken = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken)
        try:
            pipes = self._spawn()
        except CommandRefused as refusal:
            self.say({"failed": str(refusal), "errno": refusal.number})
            return
        self.say({"pid": self._pid})
        output = Output(self._start["output"])
        self._watch(pipes, output, wake)
        self.end_all()
        self._read_last(pipes, output)
        output.finish()
        head, output.ready = output.ready[: output.head_size], output.ready[output.head_size :]
        last, output.ready = output.ready, head
        self._pass_on(output)
        if output.dropped_bytes:
            self.say({"dropped": [output.dropped_lines, output.dropped_bytes]})
        output.ready = last
        self._pass_on(output)
        self.say({"ended": self._ended(output)})

    def _ended(self, output: Output) -> dict[str, Any]:
        status = self._status
        code = None if status is None or not os.WIFEXITED(status) else os.WEXITSTATUS(status)
        number = None if status is None or not os.WIFSIGNALED(status) else os.WTERMSIG(status)
        return {
            "code": code,
            "signal": number,
            "killed": self._killed,
            "result": None if output.result is None else output.result.decode("utf-8", "replace"),
        }

    def _watch(self, pipes: dict[int, str], output: Output, wake: int) -> None:
        """Until the command has exited or nothing of it may be left."""
        with selectors.DefaultSelector() as watched:
            for end in (*pipes, wake, self._way.fileno()):
                watched.register(end, selectors.EVENT_READ)
            look_at = 0.0
            while self._status is None:
                for key, _ in watched.select(LOOK):
                    if key.fd in pipes:
                        if not _read(key.fd, pipes[key.fd], output):
                            watched.unregister(key.fd)
                    elif key.fd == wake:
                        with suppress(BlockingIOError):
                            os.read(wake, 512)
                    else:
                        self._obey()
                self._pass_on(output)
                self._reap()
                now = time.monotonic()
                if self._kill_at is not None and now >= self._kill_at:
                    return
                if now >= look_at:
                    look_at = now + LOOK
                    if os.getppid() != self._parent:
                        self.end_all()
                        os._exit(1)
                    if len(descendants(os.getpid())) > self._start["processes"]:
                        self._killed = "processes"
                        return

    def _obey(self) -> None:
        heard = self.hear()
        if heard is None:
            self.end_all()
            os._exit(1)
        if any(message.get("stop") for message in heard) and self._kill_at is None:
            self._kill_at = time.monotonic() + float(self._start["grace"])
            for pid in descendants(os.getpid()):
                _kill(pid, signal.SIGTERM)

    def _pass_on(self, output: Output) -> None:
        """A batch at a time: a frame stays small."""
        while output.ready:
            batch, output.ready = output.ready[:200], output.ready[200:]
            self.say({"log": [[stream, line.decode("utf-8", "replace"), is_cut] for stream, line, is_cut in batch]})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._status = status

    def end_all(self) -> None:
        """Kill everything below this process, until there is nothing left. A killed process forks no more, so this
        comes to an end.
        """
        me, pause = os.getpid(), 0.001
        while True:
            found = descendants(me)
            for pid in found:
                _kill(pid, signal.SIGKILL)
            self._reap()
            if not found:
                try:
                    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                except ChildProcessError:
                    return
            time.sleep(pause)
            pause = min(pause * 1.5, LOOK)

    def _read_last(self, pipes: dict[int, str], output: Output) -> None:
        until = time.monotonic() + LAST_OUTPUT
        with selectors.DefaultSelector() as watched:
            for end in pipes:
                watched.register(end, selectors.EVENT_READ)
            while watched.get_map() and time.monotonic() < until:
                for key, _ in watched.select(LOOK):
                    if not _read(key.fd, pipes[key.fd], output):
                        watched.unregister(key.fd)
                self._pass_on(output)

    # Starting it

    def _spawn(self) -> dict[int, str]:
        start = self._start
        account = _account(start["user"])
        limits = _limits(start, os.getuid() if account is None else account.pw_uid)
        given = _stdin(start["stdin"])
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        said, said_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become(start, account, (limits, self._priority), (given, out_end, err_end), said_end)
        self._pid = pid
        for end in (given, out_end, err_end, said_end):
            os.close(end)
        problem = b""
        while part := os.read(said, 4096):
            problem += part
        os.close(said)
        if problem:
            self._reap()
            what = json.loads(problem)
            raise CommandRefused(what["message"], what["errno"])
        os.set_blocking(out, False)
        os.set_blocking(err, False)
        return {out: "out", err: "err"}


def _stdin(text: str) -> int:
    """A file in memory: a pipe would have to be fed while the command runs, and a command that does not read would be
    waited for.
    """
    made = os.memfd_create("stdin")
    with os.fdopen(made, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "replace"))
    end = os.open(f"/proc/self/fd/{made}", os.O_RDONLY)
    os.close(made)
    return end


def _read(end: int, stream: str, output: Output) -> bool:
    """False at its end."""
    try:
        chunk = os.read(end, _CHUNK)
    except BlockingIOError:
        return True
    if chunk:
        output.add(stream, chunk)
    return bool(chunk)


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _account(name: str | None) -> pwd.struct_passwd | None:
    if name is None:
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise CommandRefused(f"this machine has no user {name!r}") from None


def _limits(start: dict[str, Any], uid: int) -> list[tuple[int, int]]:
    found = [(resource.RLIMIT_CORE, 0)]
    if uid != 0:  # the kernel does not count the processes of root
        found.append((resource.RLIMIT_NPROC, processes_of(uid) + int(start["processes"])))
    if start["memory_mb"] is not None:
        found.append((resource.RLIMIT_AS, int(start["memory_mb"]) << 20))
    return found


def _become(
    start: dict[str, Any],
    account: pwd.struct_passwd | None,
    bounds: tuple[list[tuple[int, int]], int],
    ends: tuple[int, int, int],
    said: int,
) -> NoReturn:
    """In the child: turn into the command, or tell why not. Never returns."""
    step = "prepare it"
    try:
        parent = os.getppid()
        os.setsid()
        limits, priority = bounds
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, priority)
        for place, end in enumerate(ends):
            os.dup2(end, place)
        signal.set_wakeup_fd(-1)
        for number in signal.Signals:
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
        step = "limit it"
        for limit, value in limits:
            hard = resource.getrlimit(limit)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (bound, bound))
        if account is not None:
            step = f"become user {account.pw_name!r}"
            os.setgroups([group.gr_gid for group in grp.getgrall() if account.pw_name in group.gr_mem])
            os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
            os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
        # After the change of user, which would take both back.
        prctl(_NO_NEW_PRIVS, 1)
        prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        step = f"go to {start['cwd']}"
        _enter(start["cwd"], start["real_cwd"])
        step = f"run {start['path']}"
        os.set_inheritable(said, False)
        os.closerange(3, said)
        os.closerange(said + 1, 1 << 20)
        os.execve(start["path"], start["argv"], start["env"])  # noqa: S606 - the worker's file allows it
    except OSError as error:
        why = f"could not {step}: {os.strerror(error.errno or errno.EIO)}"
        os.write(said, json.dumps({"message": why, "errno": error.errno or 0}).encode())
    except BaseException as error:
        os.write(said, json.dumps({"message": f"could not {step}: {error}", "errno": 0}).encode())
    finally:
        os._exit(127)


def _enter(path: str, real: str) -> None:
    """Into the directory that the worker has judged, and no other that has taken its place."""
    end = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(end)
    os.close(end)
    if os.getcwd() != real:
        raise OSError(errno.EPERM, "it leads elsewhere")


def main() -> None:
    way = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Supervisor(way).run()


if __name__ == "__main__":
    main()
