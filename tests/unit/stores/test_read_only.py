"""What a store says of a database that takes no writes: a server's own words alone name a statement that no user has written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from asyncmy import errors as mysql_errors

from noonbell.errors import StoreUnavailable
from noonbell.stores import mysql, sqlite
from noonbell.stores.hosts import READ_ONLY


@pytest.mark.parametrize("code", [1290, 1792, 1836])
def test_a_mysql_server_that_is_read_only_is_named_as_that(code: int):
    error = mysql._translated(mysql_errors.OperationalError(code, "running with the --read-only option"))
    assert isinstance(error, StoreUnavailable)
    assert error.message.endswith(READ_ONLY)


def test_a_text_that_is_no_utf8_is_an_error_of_the_store():
    with pytest.raises(sqlite3.OperationalError) as unread:
        sqlite3.connect(":memory:").execute("select cast(x'ff' as text)").fetchall()
    assert isinstance(sqlite._translated(unread.value), StoreUnavailable)


def test_a_file_that_is_read_only_is_named_as_that(tmp_path: Path):
    sqlite3.connect(tmp_path / "bell.db").close()
    link = sqlite3.connect(f"file:{tmp_path}/bell.db?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as refused:
        link.execute("create table a (b)")
    link.close()
    error = sqlite._translated(refused.value)
    assert isinstance(error, StoreUnavailable)
    assert "make the file and its folder writable" in error.message
