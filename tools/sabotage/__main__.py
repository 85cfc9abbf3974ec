"""Remove each protection of the security map once, in a copy of the tree, and see that its tests go red.

    .venv/bin/python tools/sabotage                what is not known yet; cut off, it goes on where it was
    .venv/bin/python tools/sabotage --only S7 S15  the rules that are named
    .venv/bin/python tools/sabotage --anew         all of it again
    .venv/bin/python tools/sabotage --write        and write the table into docs/reference/security-map.md

The removals are in removals.py. Each test is first run in the unchanged copy, where it must be green: a test that is red
anyway proves nothing. Results are kept in build/sabotage.json; one is good until the removal, a file that it changes, or the
file of its test changes.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from removals import REMOVALS, SRC, Edit, Removal, found_times

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "sabotage.json"
PAGE = ROOT / "docs" / "reference" / "security-map.md"
BEGIN, END = "<!-- sabotage: begin -->", "<!-- sabotage: end -->"
LONGEST = 600
"""Seconds that one test may take."""

_moments = itertools.count(int(time.time()) - 10_000_000, 10)


class Result(NamedTuple):
    outcome: str
    """`red`, as it should be; `green`, `skipped`, or `broken`: no test came to its end."""
    seconds: float = 0.0
    why: str = ""
    """What the failed test said, in one line."""


class Trial(NamedTuple):
    """One removal and one test that must see it."""

    removal: Removal
    test: str
    key: str
    """Changes with the removal, with a file that it changes, and with the file of the test."""

    @classmethod
    def of(cls, removal: Removal, test: str) -> Trial:
        files = [*(edit.file for edit in removal.edits), f"tests/{test.partition('::')[0]}"]
        contents = [hashlib.sha256((ROOT / file).read_bytes()).hexdigest() for file in files]
        return cls(removal, test, hashlib.sha256(repr((removal, test, contents)).encode()).hexdigest())


class Copy:
    """The tree in another folder, whose tests import the source that lies beside them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._source = os.pathsep.join(filter(None, [str(folder / "src"), os.environ.get("PYTHONPATH")]))
        listed = _output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        for name in filter(None, listed):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        (folder / ".venv").symlink_to(ROOT / ".venv")
        origin = self._python("-c", "import noonbell; print(noonbell.__file__)").stdout.strip()
        if not Path(origin).is_relative_to(folder):
            raise SystemExit(f"sabotage: the copy imports {origin}, and not its own source")

    @contextmanager
    def without(self, removal: Removal) -> Iterator[None]:
        before = {edit.file: (self._folder / edit.file).read_text() for edit in removal.edits}
        try:
            for edit in removal.edits:
                text = (self._folder / edit.file).read_text()
                self._write(edit.file, text.replace(edit.text, edit.instead))
            yield
        finally:
            for file, text in before.items():
                self._write(file, text)

    def _write(self, file: str, text: str) -> None:
        """With another time for each writing: Python takes compiled code for current that is of the same second."""
        path, moment = self._folder / file, next(_moments)
        path.write_text(text)
        os.utime(path, (moment, moment))

    def tested(self, tests: Sequence[str], *more: str) -> dict[str, Result]:
        """What became of each test function, its cases taken together: those that `make test` runs."""
        report = self._folder / "report.xml"
        report.unlink(missing_ok=True)
        began = time.monotonic()
        nodes = [f"tests/{test}" for test in tests]
        try:
            done = self._python(
                *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", "-m", "not full"),
                *(f"--junitxml={report}", f"--basetemp={self._folder / 'base'}", *more, *nodes),
                seconds=LONGEST * len(tests),
            )
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            said = "Timeout"
        seconds = round(time.monotonic() - began, 1)
        missing = [test for test in tests if re.search(rf"^ERROR: not found: .*{re.escape(test)}$", said, re.MULTILINE)]
        if missing:  # then pytest runs none of them
            there = [test for test in tests if test not in missing]
            found = self.tested(there, *more) if there else {}
            return {**found, **dict.fromkeys(missing, Result("broken", 0.0, "there is no such test"))}
        if not report.exists():  # a test that runs into its timeout ends the process
            outcome = "red" if "Timeout" in said and len(tests) == 1 else "broken"
            return dict.fromkeys(tests, Result(outcome, seconds, "it ran into its timeout"))
        return {test: _result(report, test, seconds) for test in tests}

    def _python(self, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": self._source}
        command = [str(self._folder / ".venv" / "bin" / "python"), *words]
        return subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )


def _result(report: Path, test: str, seconds: float) -> Result:
    path, _, name = test.partition("::")
    cases = [
        case
        for case in ET.parse(report).iter("testcase")  # noqa: S314 - made by our own pytest
        if case.get("file") == f"tests/{path}" and name in (case.get("name"), str(case.get("name")).partition("[")[0])
    ]
    found = {kind: [each for case in cases for each in case.findall(kind)] for kind in ("failure", "error", "skipped")}
    for kind, outcome in (("failure", "red"), ("error", "broken")):
        if found[kind]:
            why = " ".join(str(found[kind][0].get("message")).split())
            # What a test's fixtures watch for (requests that leave the node, complaints of the browser) is judged as they end.
            judged_at_its_end = why.startswith("failed on teardown") and "AssertionError" in str(found[kind][0].text)
            return Result("red" if judged_at_its_end else outcome, seconds, why[:300])
    if not cases:
        return Result("broken", seconds, "there is no such test")
    return Result("skipped" if len(found["skipped"]) == len(cases) else "green", seconds)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def lost(removals: Iterable[Removal]) -> list[str]:
    """Texts that their files do not hold exactly once: then the table is out of date."""
    return [
        f"{removal.rule}, {edit.file}: {edit.text!r} is there {times} times{_elsewhere(edit)}"
        for removal in removals
        for edit in removal.edits
        if (times := found_times(ROOT, edit)) != 1
    ]


def _elsewhere(edit: Edit) -> str:
    files = [path for path in (ROOT / SRC).rglob("*") if path.suffix in (".py", ".js", ".html")]
    found = [str(path.relative_to(ROOT)) for path in files if edit.text in path.read_text()]
    return f"; it is in {', '.join(found)}" if found else ""


def run(trials: Sequence[Trial], known: dict[str, Result]) -> None:
    """Try what is not known, and keep each result as it comes."""
    waiting = [trial for trial in trials if trial.key not in known]
    if not waiting:
        return
    with tempfile.TemporaryDirectory(prefix="noonbell-sabotage-") as folder:
        copy = Copy(Path(folder))
        tests = sorted({trial.test for trial in waiting})
        print(f"sabotage: {len(tests)} tests without a removal", file=sys.stderr, flush=True)
        before = copy.tested(tests)
        for trial in waiting:
            result = before[trial.test]
            if result.outcome == "green":
                with copy.without(trial.removal):
                    result = copy.tested([trial.test], "-x")[trial.test]
                known[trial.key] = result
                _keep(known)
            else:  # told at the end, and not kept
                result = known[trial.key] = result._replace(outcome=f"{result.outcome} without a removal")
            said = f"{trial.removal.rule:4} {result.outcome:6} {result.seconds:6.1f} s  {trial.removal.what}"
            print(f"{said}: {trial.test}\n     {result.why}", file=sys.stderr, flush=True)


def _keep(known: dict[str, Result]) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps({key: list(result) for key, result in known.items()}, indent=1))


def _kept() -> dict[str, Result]:
    return {key: Result(*result) for key, result in json.loads(KEPT.read_text()).items()} if KEPT.exists() else {}


def table(trials: Sequence[Trial], known: dict[str, Result]) -> str:
    lines = ["| rule | protection removed | test that went red | seconds |", "| --- | --- | --- | --- |"]
    for trial in trials:
        result = known[trial.key]
        mark = "" if result.outcome == "red" else f"**{result.outcome}**: "
        path, _, name = trial.test.partition("::")
        lines.append(
            f"| {trial.removal.rule} | {trial.removal.what} | {mark}`{path}` `{name}` | {result.seconds:.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="sabotage", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="RULE", help="rules such as S7")
    parser.add_argument("--anew", action="store_true", help="forget what is known")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reference/security-map.md")
    asked = parser.parse_args()
    if problems := lost(REMOVALS):
        print("sabotage: the table is out of date", *problems, sep="\n", file=sys.stderr)
        return 2
    trials = [Trial.of(removal, test) for removal in REMOVALS for test in removal.tests]
    known = {} if asked.anew else _kept()
    chosen = [trial for trial in trials if asked.only is None or trial.removal.rule in asked.only]
    run(chosen, known)
    print(table(chosen, known))
    if asked.write:
        if missing := [trial for trial in trials if trial.key not in known]:
            print(f"sabotage: {len(missing)} are not known; the page stays as it is", file=sys.stderr)
            return 2
        head, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{table(trials, known)}\n{END}{rest.partition(END)[2]}")
    return 1 if any(known[trial.key].outcome != "red" for trial in chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
