"""The README's own command, and the first run in another terminal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from acceptance.harness import COMMAND, PATIENCE, READY, until

ROOT = Path(__file__).parents[2]


def test_make_serve_on_a_port_that_is_taken_names_it_and_how_to_take_another(sqlite_url):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NOONBELL_", "MAKE"))}
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = ["make", "serve", f"ARGS=--port {port} --store {sqlite_url}"]
        done = subprocess.run(words, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert f"127.0.0.1:{port}: the port is in use" in done.stderr
    assert "make serve ARGS='--port 9000'" in done.stderr


def test_make_serve_and_a_trigger_in_another_terminal_are_a_green_run(sqlite_url, target, tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NOONBELL_", "MAKE"))}
    log = tmp_path / "serve.log"
    with log.open("wb") as out:
        serve = subprocess.Popen(
            ["make", "serve", f"ARGS=--port 0 --store {sqlite_url}"],
            cwd=ROOT,
            env=clean,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        found = until(lambda: READY.search(log.read_text()), "make serve to be ready", 60)
        assert f":{found['port']} (dashboard; API at /api/v1) on sqlite:///" in log.read_text()
        env = clean | {"NOONBELL_URL": f"http://127.0.0.1:{found['port']}"}
        for words in (("task", "create", "hello", "--url", target.url("/ok")), ("trigger", "hello", "--wait")):
            done = subprocess.run(
                [COMMAND, *words], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            assert done.returncode == 0, done.stderr
        assert "SUCCESS" in done.stdout
        assert len(target.at("/ok")) == 1
        os.killpg(serve.pid, signal.SIGINT)  # as Ctrl-C does
        serve.wait(PATIENCE)
        assert log.read_text().endswith(" stopped\n"), "without a line of make's about an error"
    finally:
        if serve.poll() is None:
            os.killpg(serve.pid, signal.SIGTERM)
            serve.wait(PATIENCE)
