"""`noonbell migrate`: forward, back, and where it is."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from noonbell.stores.migrations import LATEST, STEPS


def test_forward_back_and_where_it_is(noonbell, sqlite_url):
    def migrate(*arguments):
        return noonbell("migrate", "--store", sqlite_url, *arguments)

    titles = {step.number: step.title for step in STEPS}
    code, out, err = migrate("--status")
    assert (code, out) == (0, "".join(f"{n:>4}  open  {title}\n" for n, title in titles.items()))
    assert ("are not steps" in err) is (len(titles) < LATEST)
    assert migrate() == (0, "".join(f"forward {n}\n" for n in titles), "")
    assert migrate() == (0, "", "nothing to do\n")
    assert migrate("--status")[1] == "".join(f"{n:>4}  done  {title}\n" for n, title in titles.items())
    code, out, err = migrate("--to", "0")
    assert (code, out) == (2, "")
    assert "--yes" in err
    code, out, err = migrate("--to", "0", "--yes")
    assert (code, out) == (0, "".join(f"back {n}\n" for n in reversed(titles)))
    told = err.splitlines()
    assert [line.partition(" (")[0] for line in told if "%" not in line] == [f"step {n}" for n in reversed(titles)]
    assert [line.strip() for line in told if "%" in line] == ["25 %", "50 %", "75 %", "100 %"]


def test_a_bar_moves_on_a_terminal_from_the_first_statement_to_the_last(noonbell, sqlite_url):
    noonbell("migrate", "--store", sqlite_url, "--to", "20")
    ours, theirs = pty.openpty()
    words = [str(Path(sys.executable).parent / "noonbell"), "migrate", "--store", sqlite_url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        told = b""
        with contextlib.suppress(OSError):  # that is how a terminal ends
            while piece := os.read(ours, 65_536):
                told += piece
        assert process.stdout is not None
        out = process.stdout.read().decode()
    os.close(ours)
    later = [step for step in STEPS if step.number > 20]
    assert out == "".join(f"forward {step.number}\n" for step in later)
    shown = [int(percent) for percent in re.findall(r"(\d+) %  \[#* *\]", told.decode())]
    assert shown == sorted(shown)
    assert (shown[0] < 25, shown[-1]) == (True, 100)
    assert all(f"step {step.number} ({step.title})" in told.decode() for step in later)
    assert told.decode().rpartition("]")[2].startswith("\r\x1b[K"), "the last bar stays on the screen"


def test_a_copy_gets_an_installation_id_of_its_own(noonbell, sqlite_url):
    def installation():
        return noonbell("doctor", "--store", sqlite_url)[1].partition(", installation ")[2].split()[0]

    noonbell("migrate", "--store", sqlite_url)
    before = installation()
    code, out, err = noonbell("migrate", "--store", sqlite_url, "--new-installation")
    assert (code, err) == (0, "")
    assert out == f"installation {installation()}\n"
    assert installation() != before
    code, _, err = noonbell("migrate", "--store", sqlite_url, "--new-installation", "--status")
    assert (code, "cannot be combined with --to or --status" in err) == (2, True)


def test_a_step_that_nobody_knows_is_refused(noonbell, sqlite_url):
    code, _, err = noonbell("migrate", "--store", sqlite_url, "--to", str(LATEST + 1))
    assert code == 1
    assert f"the steps 0 to {LATEST}" in err


def test_a_newer_schema_is_shown_and_not_touched(noonbell, sqlite_url):
    noonbell("migrate", "--store", sqlite_url)
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file, file:
        file.execute("insert into schema_steps (number, title) values (999, 'from the future')")
    assert " 999  done  newer than" in noonbell("migrate", "--store", sqlite_url, "--status")[1]
    code, _, err = noonbell("migrate", "--store", sqlite_url, "--to", "0")
    assert code == 1
    assert "upgrade Noonbell" in err


def test_a_file_whose_name_is_written_with_escapes_is_found(noonbell, tmp_path):
    url = f"sqlite:///{tmp_path}/two%20words.db"
    noonbell("migrate", "--store", url)
    assert (tmp_path / "two words.db").exists()
    assert "there is no file" not in noonbell("doctor", "--store", url)[1]
    assert "open" not in noonbell("migrate", "--store", url, "--status")[1].split()
