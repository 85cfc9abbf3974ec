"""The pages that teach flows, as a reader follows them: their files are written, their commands run, and print what they say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acceptance.harness import COMMAND, PATIENCE, until
from noonbell import yaml_text
from services.size import size

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = DOCS / "tutorial/nightly-flow.md"
MOVING = DOCS / "how-to/from-celery-bullmq-airflow.md"
SERVED = re.compile(r"http://127\.0\.0\.1:\d+")


class Reader:
    """Somebody with `noonbell dev FILE` in another terminal."""

    def __init__(self, folder: Path, environment: dict[str, str], log: Path) -> None:
        self._folder, self._environment, self._log = folder, environment, log

    @property
    def printed(self) -> str:
        """By the first terminal."""
        return self._log.read_text()

    def types(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", text],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


@contextmanager
def reading(folder: Path, file: str) -> Iterator[Reader]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
    clean["PATH"] = f"{Path(COMMAND).parent}:{clean['PATH']}"
    log = folder / "dev.log"
    with log.open("wb") as out:
        dev = subprocess.Popen(
            [COMMAND, "dev", file, "--port", "0"],
            cwd=folder,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        address = until(lambda: SERVED.search(log.read_text()), "dev to say where it is", PATIENCE)
        yield Reader(folder, {**clean, "NOONBELL_URL": address[0], "NOONBELL_OUTPUT": "table"}, log)
    finally:
        dev.send_signal(signal.SIGTERM)
        dev.wait(PATIENCE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each, in the order of the page."""
    return re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def block(page: Path, language: str) -> str:
    (found,) = [text for each, text in blocks(page) if each == language]
    return found


def without_numbers(text: str) -> list[str]:
    """What is the same in every run: ids and spans are not."""
    return [re.sub(r"\d+(\.\d+)? m?s\b", "SPAN", re.sub(r"\d{6,}", "ID", line)) for line in text.splitlines()]


def test_a_reader_of_the_tutorial_of_flows_sees_what_it_says(tmp_path: Path):
    (tmp_path / "nightly.py").write_text(block(TUTORIAL, "python"))
    (tmp_path / "nightly.yaml").write_text(block(TUTORIAL, "yaml"))
    assert block(TUTORIAL, "console") == "$ noonbell dev nightly.py\n"
    told = blocks(TUTORIAL)
    with reading(tmp_path, "nightly.py") as reader:
        for (language, text), (after, said) in zip(told, [*told[1:], ("", "")], strict=True):
            if language == "bash":
                done = reader.types(text)
                assert after == "text" or done.returncode == 0, done.stderr
                assert after != "text" or without_numbers(done.stdout) == without_numbers(said), done.stderr
        assert re.search(r"nightly of \S+: load FAILED", reader.printed)
        assert re.search(r"^  \S+  nightly/parts\[1\] +SUCCESS ", reader.printed, re.MULTILINE)
    assert sum(language == "text" for language, _ in told) == 4


@pytest.mark.longer
def test_every_example_for_those_who_move_here_ends_as_the_page_says(tmp_path: Path):
    (tmp_path / "jobs.py").write_text(block(MOVING, "python"))
    told = blocks(MOVING)
    examples = [(text, told[number + 1][1]) for number, (language, text) in enumerate(told) if language == "yaml"]
    assert len(examples) == 8
    with reading(tmp_path, "jobs.py") as reader:
        for number, (text, said) in enumerate(examples[:: size(3, 1)]):
            file = f"flow{number}.yaml"
            (tmp_path / file).write_text(text)
            names = [task["name"] for task in yaml_text.read(text)["tasks"]]
            name, last = names[0], names[-1]
            done = reader.types(f"noonbell apply -f {file} && noonbell trigger {name} --wait")
            assert ("FAILED" in done.stdout) is (name in ("caught", "always")), done
            newest = f"noonbell run list --task {last} --status success --status failed -o name | head -n 1"
            run = until(lambda newest=newest: reader.types(newest).stdout.strip(), f"a run of {last} to end", PATIENCE)
            done = reader.types(f"noonbell run graph {run}")
            assert [lasting(line) for line in done.stdout.splitlines()[1:]] == said.splitlines(), done


def lasting(line: str) -> str:
    """A line of a graph without its ids and spans."""
    return re.sub(r"  (run \d+|\d+(\.\d+)? m?s)(?=  |$)", "", line)


def test_every_row_for_those_who_move_here_leads_to_an_example_that_is_there():
    text = MOVING.read_text()
    titles = {
        title.lower().replace(" ", "-").replace(",", "") for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    named = set(re.findall(r"\]\(#([\w-]+)\)", text))
    assert named <= titles
    assert len(named) == 8
