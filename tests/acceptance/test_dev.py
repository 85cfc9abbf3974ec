"""A new user's path: six lines of Python, one command, and the first run is seen."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from acceptance.harness import COMMAND, PATIENCE, until
from services.ports import taken_port

SIX_LINES = """\
from noonbell import App
app = App()

@app.job(cron="* * * * * *")
async def hello():
    return "Hello"
"""


class Dev:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / "dev.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [COMMAND, "dev", *arguments],
                cwd=folder,
                env=clean,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str, seconds: float = PATIENCE) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.said
            return re.search(pattern, self.said)

        return until(found, f"dev to say {pattern}", seconds)


@pytest.fixture
def dev(tmp_path):
    with contextlib.ExitStack() as started:

        def start(*arguments: str, port: tuple[str, ...] = ("--port", "0")) -> Dev:
            dev = Dev(tmp_path, *arguments, *port)
            started.callback(lambda: dev.process.wait(PATIENCE))
            started.callback(lambda: dev.process.poll() is None and dev.process.send_signal(signal.SIGTERM))
            return dev

        yield start


def test_six_lines_of_python_and_one_command_show_the_first_run_in_a_minute(dev, tmp_path):
    (tmp_path / "app.py").write_text(SIX_LINES)
    dev("app.py").wait_for(r'hello +SUCCESS +\d+ ms +"Hello"', 60)


def test_where_a_server_runs_already_it_takes_another_port_and_keeps_it(dev, tmp_path):
    (tmp_path / "app.py").write_text(SIX_LINES)
    with taken_port(8080):
        running = dev("app.py", port=())
        running.wait_for(r"port 8080 is in use: listening on \d+")
        running.wait_for(r'SUCCESS +\d+ ms +"Hello"')
        (tmp_path / "app.py").write_text(SIX_LINES.replace('"Hello"', '"Hello again"'))
        running.wait_for(r'SUCCESS +\d+ ms +"Hello again"')
    pages = re.findall(r"dashboard +http://127.0.0.1:(\d+)/", running.said)
    assert len(pages) == 2
    assert pages[0] == pages[1]


def test_a_changed_file_is_loaded_anew_and_the_store_stays(dev, tmp_path):
    (tmp_path / "app.py").write_text(SIX_LINES)
    running = dev("app.py")
    running.wait_for(r'SUCCESS +\d+ ms +"Hello"')
    (tmp_path / "app.py").write_text(SIX_LINES.replace('"Hello"', '"Hello again"'))
    running.wait_for(r'SUCCESS +\d+ ms +"Hello again"')
    stores = re.findall(r"store +(\S+)", running.said)
    assert len(stores) == 2
    assert stores[0] == stores[1]


def test_a_job_that_is_gone_from_the_file_runs_no_more(dev, tmp_path):
    (tmp_path / "app.py").write_text(SIX_LINES)
    running = dev("app.py")
    running.wait_for(r"hello +SUCCESS")
    (tmp_path / "app.py").write_text(SIX_LINES.replace("hello", "goodbye"))
    running.wait_for(r"goodbye +SUCCESS")
    assert re.search(r"dashboard +http://127.0.0.1:\d+/$", running.said, re.MULTILINE)
    port = re.findall(r"API +http://127.0.0.1:(\d+)", running.said)[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/tasks") as answer:
        assert [task["name"] for task in json.load(answer)["items"]] == ["goodbye"]


def test_a_file_that_is_broken_for_a_moment_is_waited_for(dev, tmp_path):
    (tmp_path / "app.py").write_text("from noonbell import App\napp = App(\n")
    running = dev("app.py")
    running.wait_for("waiting for a change")
    assert "SyntaxError" in running.said
    assert "handler.py" not in running.said
    (tmp_path / "app.py").write_text(SIX_LINES)
    running.wait_for(r'SUCCESS +\d+ ms +"Hello"')


def test_an_app_that_cannot_be_imported_shows_its_own_lines_only(dev, tmp_path):
    (tmp_path / "app.py").write_text("from mine import number\n")
    (tmp_path / "mine.py").write_text("number = 1 / 0\n")
    running = dev("app.py")
    running.wait_for("waiting for a change")
    files = re.findall(r'\| +File "([^"]+)", line', running.said)
    assert [Path(file).name for file in files if not file.startswith("<frozen")] == ["app.py", "mine.py"]
    assert "number = 1 / 0" in running.said


def test_an_attempt_that_is_tried_again_shows_its_traceback_once(dev, tmp_path):
    (tmp_path / "app.py").write_text(SIX_LINES.replace('"Hello"', "1 / 0"))
    running = dev("app.py")
    running.wait_for(r"(?s)(RETRYING +ZeroDivisionError.*){2}")
    shown = re.findall(
        r'^    \|   File ".*app.py", line 6, in hello\n    \|     return 1 / 0$', running.said, re.MULTILINE
    )
    assert len(shown) == 1


def test_an_app_that_is_not_there_is_told_by_the_name_of_the_argument(dev):
    running = dev("nightly.py")
    running.wait_for("APP: is '.*nightly.py', but there is no such file")
    assert "--app" not in running.said


def test_without_an_app_two_samples_run(dev):
    running = dev()
    running.wait_for(r"sample-echo +SUCCESS")
    running.wait_for(r"sample-async +CALLBACK_SUCCESS")


def test_it_ends_with_the_signal_and_leaves_no_store_behind(dev, tmp_path):
    (tmp_path / "app.py").write_text(SIX_LINES)
    running = dev("app.py")
    store = Path(running.wait_for(r"store +sqlite:///(\S+)")[1])
    assert store.exists()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(PATIENCE) == 0
    assert not store.parent.exists()


@pytest.mark.parametrize("reload", [(), ("--no-reload", "--store", "sqlite:///dev.db")], ids=["reload", "once"])
def test_the_last_line_says_that_it_has_stopped_and_the_first_ones_how_commands_find_it(dev, reload):
    running = dev(*reload)
    found = running.wait_for(r"dashboard +(http://\S+)/[\s\S]*commands +export NOONBELL_URL=(\S+)\n")
    assert found[1] == found[2]
    running.wait_for("Runs, as they end:")
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(PATIENCE) == 0
    assert running.said.splitlines()[-1] == "Noonbell has stopped"
    assert running.said.count("Noonbell has stopped") == 1
