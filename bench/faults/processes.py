"""The processes of one scheduler: started, killed with all their children, and started again."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.rounds import ROOT, Failed

AWAY = 3.0
"""Seconds that a killed process stays away at most."""


@dataclass
class _Life:
    process: subprocess.Popen[bytes]
    log: Path

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill -9 of the process and its children: each leads a group of its own."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


class Processes:
    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        is_ready: re.Pattern[str],
        env: Mapping[str, str],
        folder: Path,
        draw: random.Random,
    ) -> None:
        """`commands`: by the name of the process. Each life writes a log of its own into the folder."""
        self._commands, self._is_ready, self._env, self._folder, self._draw = commands, is_ready, env, folder, draw
        self._lives = dict.fromkeys(commands, 0)
        self._running: dict[str, _Life] = {}
        self._back_at: dict[str, float] = {}
        self.kills = 0
        self.ended: list[str] = []
        """Lives that ended by themselves, and their last lines; they are started again, as a supervisor would."""

    def start(self, name: str) -> None:
        self._lives[name] += 1
        log = self._folder / f"{name}-{self._lives[name]}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                self._commands[name],
                cwd=ROOT,
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._running[name] = _Life(process, log)

    def start_all(self) -> None:
        self._back_at.clear()
        for name in self._commands:
            if name not in self._running:
                self.start(name)

    def wait_ready(self, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while len(self.ready()) < len(self._commands):
            for name, life in self._running.items():
                if not life.is_running() or time.monotonic() > deadline:
                    raise Failed(f"{name} did not get ready: {life.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def ready(self) -> list[str]:
        return [
            name
            for name, life in self._running.items()
            if life.is_running() and self._is_ready.search(life.log.read_text(errors="replace"))
        ]

    def kill_one(self) -> bool:
        """One that is ready; of several only if another one is ready too. It comes back within AWAY seconds."""
        ready = self.ready()
        if len(ready) < min(2, len(self._commands)):
            return False
        name = self._draw.choice(ready)
        self._running.pop(name).kill()
        self.kills += 1
        self._back_at[name] = time.monotonic() + self._draw.choice([0.0, self._draw.uniform(0, AWAY)])
        return True

    def kill_all(self) -> None:
        """They stay away."""
        self._back_at.clear()
        for name in list(self._running):
            self._running.pop(name).kill()
            self.kills += 1

    def bring_back(self) -> None:
        """Start again those whose time has come, and those that have ended by themselves."""
        for name, life in list(self._running.items()):
            if not life.is_running():
                life.kill()
                last = life.log.read_text(errors="replace").strip()[-500:]
                self.ended.append(f"{name}, life {self._lives[name]}, exit {life.process.returncode}: {last}")
                del self._running[name]
                self._back_at[name] = time.monotonic() + 1
        for name, moment in list(self._back_at.items()):
            if time.monotonic() >= moment:
                del self._back_at[name]
                self.start(name)

    def end(self) -> None:
        for name in list(self._running):
            self._running.pop(name).kill()
