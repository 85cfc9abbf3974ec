"""Starting anew when a file changes: `noonbell dev` watches, and a process of its own does the work.

The watching process imports nothing of the App, so a change can never be half loaded; the store outlives the reloads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from noonbell.targets.jobs.locate import split

EVERY = 0.3
"""Seconds between two looks at the files."""
_MOST_FILES = 5_000
_ENDS_IN = 15.0

Seen = dict[Path, int]
"""Files with the moment of their last change."""


def watched(location: str | None, store: str | None, port: str) -> int:
    """Run `noonbell dev --no-reload`, again whenever a Python file near the App changes. The exit code of the last."""
    with _store(store) as url:
        command = ["dev", "--no-reload", "--store", url, "--port", port]
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
                return code
            _say("a file has changed; starting anew" if code == _CHANGED else "waiting for a change")
            if code != _CHANGED:
                self._wait_for_change(folders, before)
                if self._stopping:
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
        """The child is told once of each signal; a second one ends it at once."""
        self._stopping = True
        is_told = self._has_terminal and number == signal.SIGINT
        if self._child is not None and self._child.poll() is None and not is_told:
            self._child.send_signal(number)


_NOONBELL = "from noonbell.cli import main; main()"
_CHANGED = -1000
"""No exit code: it was ended because of a change."""


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
