"""The fenced blocks of a page, and a terminal that a reader types them into."""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from services import forked

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    *(page for kind in ("how-to", "reference", "explanation") for page in sorted((ROOT / "docs" / kind).glob("*.md"))),
    ROOT / "CONTRIBUTING.md",
]
SHELL = {"sh", "bash", "console"}
FENCE = re.compile(r"^ *```(?P<language>[^\s`]*)(?P<mark>[^\n`]*)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
PATIENCE = 60.0


@dataclass(frozen=True)
class Snippet:
    page: str
    """As seen from the root of the repository."""
    language: str
    text: str
    line: int
    mark: str = ""
    """The word behind the language: tests pass over `norun`."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class TypedCommand:
    """A command of a block, and what the page says that it prints."""

    command: str
    prints: str
    place: str


def blocks(page: Path) -> list[Snippet]:
    text = page.read_text()
    name = str(page.relative_to(ROOT))
    return [
        Snippet(
            name,
            found["language"],
            textwrap.dedent(found["text"]),
            text[: found.start()].count("\n") + 1,
            found["mark"].strip(),
        )
        for found in FENCE.finditer(text)
    ]


def typed(block: Snippet) -> Iterator[TypedCommand]:
    """The commands of a block of shell, in their order. In `console` they stand behind `$ `, and output is between them."""
    command, prints = "", ""
    for line in block.text.splitlines():
        if command.endswith("\\\n"):
            command += line + "\n" * line.endswith("\\")
        elif block.language != "console" or line.startswith("$ "):
            if command:
                yield TypedCommand(command, prints, block.place)
            command, prints = line.removeprefix("$ ") + "\n" * line.endswith("\\"), ""
        else:
            prints += line + "\n"
    if command:
        yield TypedCommand(command, prints, block.place)


def normal(text: str) -> list[str]:
    """The lines of an output without what differs from run to run: numbers, times, tokens."""
    text = re.sub(r"nb_[\w-]+…?", "TOKEN", text)
    return [re.sub(r"\d+", "N", re.sub(r"\b\d+:[0-9a-f]{64}\b", "HEAD", line)).rstrip() for line in text.splitlines()]


@dataclass
class ShellAnswer:
    code: int
    text: str


class Terminal:
    """A shell in a folder of its own. What is exported stays; what does not end is left running until `close`."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self._running: list[forked.Forked | subprocess.Popen[bytes]] = []

    def types(self, command: str) -> ShellAnswer:
        if command.startswith("export "):
            return self._export(command)
        words, output = plain_words(command)
        if words[0] != "noonbell":
            return self._shell(command)
        done = forked.run(*words[1:], cwd=self.folder, env=self.environment, seconds=PATIENCE)
        if output:
            (self.folder / output).write_text(done.stdout)
        return ShellAnswer(done.returncode, done.stdout + done.stderr)

    def starts(self, command: str) -> str:
        """Of a command that does not end: what it had said when it was ready, or when it ended."""
        words, _ = plain_words(command)
        log = self.folder / f"running-{len(self._running)}.log"
        with log.open("wb") as out:
            process = forked.start(*words[1:], cwd=self.folder, env=self.environment, stdout=out, stderr=out)
        self._running.append(process)
        deadline = time.monotonic() + PATIENCE
        while "ready" not in log.read_text() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return log.read_text()

    def close(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(PATIENCE)

    def _export(self, command: str) -> ShellAnswer:
        told = self._shell(f"{command} && env -0")
        if told.code == 0:
            self.environment = dict(each.split("=", 1) for each in told.text.split("\0") if "=" in each)
        return told

    def _shell(self, command: str) -> ShellAnswer:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return ShellAnswer(done.returncode, done.stdout + done.stderr)


def plain_words(command: str) -> tuple[list[str], str]:
    """The words of one program's call, and the file that its output goes to; of anything more, only `bash`."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    output = ""
    if len(words) > 2 and words[-2] == ">":
        *words, _, output = words
    if set(words) & {"|", "&&", ";", "<", ">"} or "$(" in command or re.search(r"\"[^\"]*\$", command):
        return ["bash"], ""
    return words, output


def has_grammar(command: str) -> bool:
    """Whether bash could read it."""
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False).returncode == 0
