"""`noonbell migrate`: forward, back, and where it is."""

from __future__ import annotations

import contextlib
import sqlite3

from noonbell.stores.migrations import LATEST, STEPS


def test_forward_back_and_where_it_is(noonbell, sqlite_url):
    def migrate(*arguments):
        return noonbell("migrate", "--store", sqlite_url, *arguments)

    titles = {step.number: step.title for step in STEPS}
    code, out, err = migrate("--status")
    assert (code, out) == (0, "".join(f"{n:>4}  open  {title}\n" for n, title in titles.items()))
    assert ("belong to no step" in err) is (len(titles) < LATEST)
    assert migrate() == (0, "".join(f"forward {n}\n" for n in titles), "")
    assert migrate() == (0, "", "nothing to do\n")
    assert migrate("--status")[1] == "".join(f"{n:>4}  done  {title}\n" for n, title in titles.items())
    code, out, err = migrate("--to", "0")
    assert (code, out) == (2, "")
    assert "--yes" in err
    code, out, err = migrate("--to", "0", "--yes")
    assert (code, out) == (0, "".join(f"back {n}\n" for n in reversed(titles)))
    assert [line.partition(" (")[0] for line in err.splitlines()] == [f"step {n}" for n in reversed(titles)]


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
    assert (code, "neither --to nor --status" in err) == (2, True)


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
