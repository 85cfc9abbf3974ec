"""An App that was connected before fork(): in the child it publishes, or says at once what to do instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from noonbell.stores import open_store

PATIENCE = 60
"""Seconds; what hangs fails by this."""

SCRIPT = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of fork() with threads
from noonbell import App

app = App("shop")

@app.job
async def work(by: str) -> None: ...

def in_child(what):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        what()
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(7)
    sys.exit(0)  # by way of atexit, as most children end

url, how = sys.argv[1:]
if how == "connected":
    with app.connected(url):
        early = work.publish_sync(by="parent")
        print(in_child(lambda: work.publish_sync(by="child")), in_child(lambda: work.publish_sync(by="child")))
        print(in_child(lambda: early.result_sync(timeout=5)))
        in_child(app.close_sync)
        work.publish_sync(by="parent")
else:
    with app.running(url, scheduler=False):
        print(in_child(lambda: work.publish_sync(by="child")))
"""


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def payloads(url: str) -> list[str]:
    store = open_store(url)
    await store.open()
    rows = await store.fetch("select payload from inputs order by run_id")
    await store.close()
    return [row[0] for row in rows]


async def test_a_child_after_fork_publishes_and_its_parent_goes_on(server_url: str):
    said = run(SCRIPT, server_url, "connected").splitlines()
    assert said[0] == "0 0"
    assert "no longer connected" in said[1], "what the parent published is the parent's to wait for"
    assert said[2] == "7"
    assert sorted("child" in payload for payload in await payloads(server_url)) == [False, False, True, True]


def test_a_child_after_fork_is_refused_at_once_on_sqlite(tmp_path: Path):
    said = run(SCRIPT, f"sqlite:///{tmp_path}/store.db", "connected").splitlines()
    assert said[0].startswith("InvalidState: the app was connected before fork(), and SQLite")
    assert said[2] == "7 7"


def test_a_child_of_an_app_that_works_is_told_to_connect_by_itself(tmp_path: Path):
    said = run(SCRIPT, f"sqlite:///{tmp_path}/store.db", "running").splitlines()
    assert said[0].startswith("InvalidState: the app was connected before fork()")
    assert "in each child, after the fork" in said[0]
    assert said[1] == "7"


def test_a_script_that_never_leaves_its_app_ends_without_a_word(sql_url: str):
    script = SCRIPT.partition("url, how")[0] + "app.connected(sys.argv[1]).__enter__(); work.publish_sync(by='me')"
    done = subprocess.run(
        [sys.executable, "-c", script, sql_url], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
