"""What has passed already: a run that was cut off goes on where it was.

`build/faults/KEY.json` has the seconds of each test that passed, and `KEY.report` what those have to tell. The key is the
code (what these tests run, as committed and as changed since) and the variables of the run. A run that finds nothing left starts anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

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
    def __init__(self, folder: Path, key: str, minutes: float = MINUTES) -> None:
        self._passed_file, self._report_file = folder / f"{key}.json", folder / f"{key}.report"
        self._until = time.monotonic() + minutes * 60
        self.passed: dict[str, float] = {}
        """Seconds by the name of the test."""
        self.earlier: set[str] = set()

    def left_of(self, names: Sequence[str]) -> list[str]:
        """Those that have not passed yet; all of them, from the beginning, where every one has."""
        if self._passed_file.exists():
            self.passed = json.loads(self._passed_file.read_text())
        left = [name for name in names if name not in self.passed]
        if not left:
            self.passed = {name: seconds for name, seconds in self.passed.items() if name not in names}
            left = list(names)
        self.earlier = set(names) - set(left)
        return left

    def report(self) -> Report:
        """What the tests that passed earlier have told."""
        if self.earlier and self._report_file.exists():
            found = pickle.loads(self._report_file.read_bytes())  # noqa: S301 - we wrote it
            assert isinstance(found, Report)
            return found
        return Report()

    def keep(self, name: str, seconds: float, report: Report) -> None:
        """At once: who knows what comes next."""
        self.passed[name] = round(seconds, 1)
        self._passed_file.parent.mkdir(parents=True, exist_ok=True)
        for file, content in ((self._passed_file, json.dumps(self.passed)), (self._report_file, pickle.dumps(report))):
            new = file.with_suffix(".new")
            new.write_bytes(content.encode() if isinstance(content, str) else content)
            new.replace(file)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until

    def summary(self, names: Sequence[str]) -> str:
        done = [name for name in names if name in self.passed]
        seconds = sum(self.passed[name] for name in done)
        text = f"faults: {len(done)} of {len(names)} passed in {seconds / 60:.1f} minutes in all"
        if self.earlier:
            text += f", {len(self.earlier)} of them in an earlier run of the same code"
        return text + ("" if len(done) == len(names) else "; the same command goes on with the rest")
