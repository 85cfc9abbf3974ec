"""Two processes and a pipe each: what they print is waited for with a deadline."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from bench.http import end
from bench.rounds import ROOT, Failed


class Lines:
    """Lines of a pipe, read by a thread: a pipe itself cannot be waited for with a deadline."""

    def __init__(self, pipe: IO[str]) -> None:
        self._read: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._follow, args=(pipe,), daemon=True).start()

    def _follow(self, pipe: IO[str]) -> None:
        for line in pipe:
            self._read.put(line.strip())

    def next(self, seconds: float) -> str:
        try:
            return self._read.get(timeout=seconds)
        except queue.Empty:
            raise Failed(f"nothing was printed for {seconds:g} s") from None


class Process:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self.lines = process.stdin, Lines(process.stdout)

    def ask(self) -> None:
        self._stdin.write("\n")
        self._stdin.flush()


@contextmanager
def started(command: Sequence[str]) -> Iterator[Process]:
    """A process that prints `ready` when it is; ended by SIGTERM."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        found = Process(process)
        if (said := found.lines.next(30)) != "ready":
            raise Failed(f"printed {said!r}; expected ready")
        yield found
    finally:
        end(process)
