"""`noonbell audit` on audit logs that a hand in the database has changed, with the chain of hashes made good again.

The hand has the whole store and our source, and not the key file.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noonbell.cli import main
from noonbell.model.access import AuditAction, chained
from noonbell.sealing import new_key_line


class House:
    """A store with a key file and a configuration, and the command line on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file, self.keys, self.config = folder / "noonbell.db", folder / "keys", folder / "noonbell.yaml"
        self.url = f"sqlite:///{self.file}"
        self._capsys = capsys
        self.set_keys("k1")

    def set_keys(self, *names: str) -> None:
        """The file has these keys, the first in use; none: no file is configured. A name always has the same key."""
        made = self.keys.with_suffix(".all")
        lines = dict(json.loads(made.read_text())) if made.exists() else {}
        lines |= {name: new_key_line(name) for name in names if name not in lines}
        made.write_text(json.dumps(lines))
        self.keys.write_text("\n".join(lines[name] for name in names))
        self.keys.chmod(0o600)
        key_file = f"secrets: {{key_file: '{self.keys}'}}\n" if names else ""
        self.config.write_text(f"store: {{url: '{self.url}'}}\n{key_file}")

    def noonbell(self, *words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--config", str(self.config)])
        told = self._capsys.readouterr()
        return int(ended.value.code or 0), told.out + told.err

    def audit(self, *more: str) -> tuple[int, str]:
        return self.noonbell("audit", "--quiet", *more)

    def head(self) -> str:
        _, out = self.audit("-o", "json")
        return str(json.loads(out)["log"]["head"])

    def change(self, *names: str) -> None:
        """Changes that leave a line each: tokens made."""
        for name in names:
            code, out = self.noonbell("token", "create", "--role", "viewer", "--name", name)
            assert code == 0, out

    # The hand in the database

    def rows(self) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute("select * from audit order by id")]

    def write(self, rows: list[dict[str, Any]]) -> None:
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            db.execute("delete from audit")
            for row in rows:
                marks = ", ".join("?" for _ in row)
                db.execute(f"insert into audit ({', '.join(row)}) values ({marks})", list(row.values()))
            db.execute("update counters set value = ? where name = 'audit'", (len(rows),))
            db.commit()


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> House:
    return House(tmp_path, capsys)


def chained_anew(rows: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    """Numbers and hashes as they must be for the rows to follow from each other."""
    before, written = "", []
    for number, row in enumerate(rows, 1):
        deed = msgspec.json.decode(row["deed"], type=AuditAction)
        before = chained(before, number, row["at"], deed)
        written.append({**row, "id": number, "hash": before, **more})
    return written


def with_another_subject(rows: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    return [
        {**row, "deed": row["deed"].replace("/tokens/b", "/tokens/x")} if row["id"] == number else row for row in rows
    ]


def test_a_log_that_was_rewritten_whole_is_a_flaw(house: House):
    house.change("a", "b", "c")
    assert house.audit()[0] == 0
    house.write(chained_anew(with_another_subject(house.rows(), 2)))
    code, out = house.audit()
    assert (code, "has a signature that key 'k1' did not make" in out or "have signatures" in out) == (1, True), out


def test_a_log_that_was_rewritten_without_signatures_is_a_flaw(house: House):
    house.change("a", "b", "c")
    house.write(chained_anew(with_another_subject(house.rows(), 2), signature=None))
    code, out = house.audit()
    assert (code, "none is signed, though secrets.key_file is set" in out) == (1, True), out


def test_a_line_that_was_put_in_without_a_key_is_a_flaw(house: House):
    house.change("a", "b")
    rows = house.rows()
    house.write(chained_anew([*rows, {**rows[-1], "signature": None}])[:3])
    house.write([*rows, house.rows()[2]])
    house.change("c")
    code, out = house.audit()
    assert (code, "entry 3 of the audit log is not signed, though earlier ones are" in out) == (1, True), out


def test_a_log_whose_newest_lines_were_cut_off_is_a_flaw_against_its_head(house: House):
    house.change("a", "b", "c")
    head = house.head()
    house.write(house.rows()[:2])
    assert house.audit()[0] == 0
    code, out = house.audit("--expect-head", head)
    assert (code, "entry 3 was expected" in out) == (1, True), out
    house.change("d", "e")
    code, out = house.audit("--expect-head", head)
    assert (code, "entry 3 of the audit log is not the expected one" in out) == (1, True), out


def test_without_a_key_the_command_says_what_the_log_is_worth(house: House):
    house.set_keys()
    house.change("a", "b")
    code, out = house.audit()
    assert (code, "2 entries, not signed, since secrets.key_file is not set" in out) == (0, True), out
    head = house.head()
    house.write(chained_anew(with_another_subject(house.rows(), 2)))
    assert house.audit()[0] == 0
    assert house.audit("--expect-head", head)[0] == 1


def test_a_signed_log_is_checked_without_the_key_as_far_as_that_goes(house: House):
    house.change("a", "b")
    house.set_keys()
    code, out = house.audit()
    assert (code, "signatures not checked, since secrets.key_file is not set here" in out) == (0, True), out


def test_lines_from_before_the_key_are_good_and_covered_by_the_first_signed_one(house: House):
    house.set_keys()
    house.change("a", "b")
    house.set_keys("k1")
    house.change("c")
    code, out = house.audit()
    assert (code, "3 entries, signed from entry 3 on" in out) == (0, True), out
    house.write(chained_anew(with_another_subject(house.rows(), 2)))
    assert house.audit()[0] == 1


def test_after_a_rotation_the_old_key_is_not_needed(house: House):
    house.change("a", "b")
    house.set_keys("k2", "k1")
    house.change("c")
    assert house.noonbell("secrets", "rotate")[0] == 0
    house.set_keys("k2")
    house.change("d")
    assert house.audit()[0] == 0
    house.set_keys("k3", "k2")
    assert house.noonbell("secrets", "rotate")[0] == 0
    house.set_keys("k3")
    assert house.audit()[0] == 0


def test_a_key_that_goes_without_a_rotation_is_missed(house: House):
    house.change("a", "b")
    house.set_keys("k2")
    house.change("c")
    code, out = house.audit()
    assert (code, "entries 1 to 2 of the audit log are signed with key 'k1'" in out) == (1, True), out


def test_a_rotation_vouches_for_nothing_that_came_later(house: House):
    """A made-up key would otherwise be as good as one that was rotated out."""
    house.change("a")
    house.set_keys("k2", "k1")
    house.noonbell("secrets", "rotate")
    house.set_keys("k2")
    rows = house.rows()
    house.write([*rows, {**chained_anew([*rows, rows[0]])[-1], "signature": f"k1:{'0' * 64}"}])
    house.change("b")
    code, out = house.audit()
    assert (code, "signed with key 'k1'" in out) == (1, True), out


def test_a_rotation_vouches_for_no_log_that_was_changed(house: House):
    house.change("a", "b", "c")
    house.write(chained_anew(with_another_subject(house.rows(), 2)))
    house.set_keys("k2", "k1")
    code, out = house.noonbell("secrets", "rotate")
    assert (code, "keep the old keys" in out) == (1, True), out
    house.set_keys("k2")
    assert house.audit()[0] == 1


def test_a_line_of_a_process_without_the_key_is_settled_by_a_rotation_that_expects_it(house: House):
    house.change("a")
    house.set_keys()
    house.change("b")
    house.set_keys("k1")
    house.change("c")
    assert house.audit()[0] == 1
    assert house.audit("--expect-head", house.head())[0] == 0
    assert house.noonbell("secrets", "rotate", "--expect-head", house.head())[0] == 0
    assert house.audit()[0] == 0


@pytest.mark.parametrize("text", ["", "7", "x:y", f"0:{'a' * 64}", f"7:{'a' * 63}", f"٧:{'a' * 64}"])
def test_a_head_that_is_none_is_refused(house: House, text: str):
    house.change("a")
    code, out = house.audit("--expect-head", text)
    assert (code, "--expect-head" in out) == (2, True), out
