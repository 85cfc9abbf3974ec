"""What has passed already: a run that was cut off goes on where it was.

`build/faults/KEY.jsonl` has a line for each test that passed: its seconds and what it has to tell. It is written by one process, the
one that the others report to, as soon as a test is over: whatever ends a run, only the tests in hand are lost. The key is the code
(what these tests run, as committed and as changed since) and the variables of the run. A run that finds nothing left starts anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faults.report import Report

MINUTES = float(os.environ.get("FAULTS_MINUTES") or 60)
"""No test is begun after this."""
_CODE = ("src", "tests/faults", "tests/services", "pyproject.toml", "requirements.lock")


def key_of(root: Path) -> str:
    code = _git(root, "rev-parse", *(f"HEAD:{path}" for path in _CODE))
    variables = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("FAULTS_"))
    variables = [each for each in variables if not each.startswith("FAULTS_MINUTES=")]
    differs = _git(root, "diff", "HEAD", "--", *_CODE)
    return hashlib.sha256("\0".join([code, differs, *variables]).encode()).hexdigest()[:20]


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


class Record:
    def __init__(self, folder: Path, key: str) -> None:
        self._file = folder / f"{key}.jsonl"
        self._began = time.monotonic()
        self._asked: list[str] = []
        self.passed: dict[str, float] = {}
        """Seconds by the name of the test."""
        self.told: dict[str, Mapping[str, Any]] = {}
        """What each test has to tell, those that failed in this run included."""
        self.earlier: set[str] = set()

    def left_of(self, names: Sequence[str]) -> list[str]:
        """Those that have not passed yet; all of them, from the beginning, where every one has."""
        self._asked = list(names)
        for name, seconds, told in self._lines():
            self.passed[name], self.told[name] = seconds, told
        left = [name for name in names if name not in self.passed]
        if names and not left:
            left = list(names)
            for name in names:
                del self.passed[name], self.told[name]
            self._rewrite()
        self.earlier = set(names) - set(left)
        return left

    def _lines(self) -> Iterator[tuple[str, float, dict[str, Any]]]:
        for line in self._file.read_text().splitlines() if self._file.exists() else []:
            try:
                name, seconds, told = json.loads(line)
            except ValueError:
                continue  # the run ended while it was written
            yield name, seconds, told

    def _rewrite(self) -> None:
        lines = [json.dumps([name, seconds, self.told[name]]) for name, seconds in self.passed.items()]
        new = self._file.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self._file)

    def keep(self, name: str, seconds: float) -> None:
        """It has passed."""
        self.passed[name] = round(seconds, 1)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps([name, self.passed[name], self.told.get(name, Report().plain())])
        with self._file.open("a") as file:
            file.write(f"\n{line}\n")  # whatever a run that was cut off has left of its last line ends here

    def report(self) -> Report:
        """What the tests that were asked for have to tell, in their order, whichever run told it."""
        return Report.of(self.told[name] for name in self._asked if name in self.told)

    def summary(self) -> str:
        done = [name for name in self._asked if name in self.passed]
        seconds, took = sum(self.passed[name] for name in done), time.monotonic() - self._began
        text = (
            f"faults: {len(done)} of {len(self._asked)} passed; this run took {took / 60:.1f} minutes,"
            f" one after the other they take {seconds / 60:.1f}"
        )
        if self.earlier:
            text += f"; {len(self.earlier)} passed in an earlier run of the same code"
        return text + ("" if len(done) == len(self._asked) else "; the same command goes on with the rest")
