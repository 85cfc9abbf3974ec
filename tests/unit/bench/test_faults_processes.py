"""The processes of a contender: killed with their children, started again, and never the last one of several."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.faults.__main__ import shorten
from bench.faults.processes import Processes
from bench.peers.cron.task import Settings
from bench.rounds import Failed

WAITS = ("sh", "-c", "sleep 600 & echo child $!; echo is ready; wait")
ENDS = ("sh", "-c", "echo is ready; echo no more; exit 3")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"still waiting: {what}"
        time.sleep(0.01)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    every: list[Processes] = []

    def make(**commands: tuple[str, ...]) -> Processes:
        every.append(Processes(commands, re.compile("is ready"), os.environ, tmp_path, random.Random(1)))
        return every[-1]

    yield make
    for each in every:
        each.end()


def is_running(pid: int) -> bool:
    """Not one that has ended and whose parent has not asked for it yet."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_a_kill_takes_the_children_along(made: Callable[..., Processes], tmp_path: Path):
    processes = made(a=WAITS)
    processes.start_all()
    processes.wait_ready()
    child = int((tmp_path / "a-1.log").read_text().split()[1])
    assert is_running(child)
    assert processes.kill_one()
    until(lambda: not is_running(child), "the child to be gone")
    assert processes.kills == 1
    assert processes.ready() == []


def test_what_was_killed_comes_back_in_a_life_of_its_own(made: Callable[..., Processes], tmp_path: Path):
    processes = made(a=WAITS, b=WAITS)
    processes.start_all()
    processes.wait_ready()
    assert processes.kill_one()
    assert not processes.kill_one(), "the last one that is ready is left alone"

    def is_back() -> bool:
        processes.bring_back()
        return len(processes.ready()) == 2

    until(is_back, "both to be ready")
    assert len(list(tmp_path.glob("*-2.log"))) == 1


def test_all_of_them_stay_away_until_they_are_started(made: Callable[..., Processes]):
    processes = made(a=WAITS, b=WAITS)
    processes.start_all()
    processes.wait_ready()
    processes.kill_one()
    processes.kill_all()
    processes.bring_back()
    assert processes.ready() == []
    assert processes.kills == 2
    processes.start_all()
    processes.wait_ready()
    assert sorted(processes.ready()) == ["a", "b"]


def test_one_that_ends_by_itself_is_told_and_started_again(made: Callable[..., Processes], tmp_path: Path):
    processes = made(a=ENDS)
    processes.start_all()

    def has_a_second_life() -> bool:
        processes.bring_back()
        return (tmp_path / "a-2.log").exists()

    until(has_a_second_life, "it to be started again")
    assert processes.ended[0] == "a, life 1, exit 3: is ready\nno more"
    assert processes.kills == 0


def test_one_that_does_not_get_ready_fails_with_its_last_words(made: Callable[..., Processes]):
    processes = made(a=("sh", "-c", "echo no such module; exit 1"))
    processes.start_all()
    with pytest.raises(Failed, match="no such module"):
        processes.wait_ready()


def test_commands_are_shown_without_what_is_of_this_machine():
    settings = Settings("redis://host/0#name", "http://127.0.0.1:1", 1, False, "/x/build/celery")
    commands = {
        "a": ("/x/bin/python", "-m", "bench.peers.cron.pgqueuer", "a"),
        "b": ("/x/bin/python", "-m", "bench.peers.cron.pgqueuer", "b"),
        "beat": ("/x/bin/celery", "beat", "--schedule=/x/build/celery/beat", "--url", "redis://host/0#name"),
    }
    assert shorten(commands, settings) == [
        "python -m bench.peers.cron.pgqueuer",
        "celery beat --schedule=beat --url URL",
    ]
