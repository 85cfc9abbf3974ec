"""Every table of the schema is moved and backed up, or says why not."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from noonbell.stores import migrations
from noonbell.stores.migrations.ownership import STEPS_TABLE, shape_of
from noonbell.stores.sql import copying

OF_ONE_DATABASE = {
    "live_ready": "a partition",
    "live_leased": "a partition",
    "live_rest": "a partition",
    "run_slots": "written with each run (`stores.sql.ids`)",
    "live_keys": "written with each run",
    "wakeup_listeners": "addresses of processes that wait on this server",
}


@pytest.mark.parametrize("variant", ["sqlite", "postgres", "mysql", "mariadb"])
def test_every_table_of_a_database_is_copied_or_named_as_one_that_is_not(variant: str):
    made = shape_of(tuple(sql for step in migrations.STEPS for sql in step.up(variant))).tables
    rest = made.keys() - copying.tables().keys() - copying.NOT_COPIED.keys()
    assert rest <= OF_ONE_DATABASE.keys()
    for name, table in copying.tables().items():
        assert set(table.columns) | copying.GENERATED.get(name, frozenset()) == made[name], name


def test_the_keys_are_those_that_the_database_has():
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute(STEPS_TABLE)
        for step in migrations.STEPS:
            for sql in step.up("sqlite"):
                database.execute(sql)
        for name, table in copying.tables().items():
            found = database.execute("select name from pragma_table_info(?) where pk > 0 order by pk", (name,))
            assert table.key == tuple(row[0] for row in found), name
            assert table.key, name
    assert copying.COPIED_AT_ONCE.keys() <= copying.tables().keys()


def test_a_batch_is_cut_by_its_size_and_no_row_is_left_out():
    rows = [(number, "x" * size) for number, size in enumerate([10, copying.BATCH_BYTES, 10, 10, copying.BATCH_BYTES])]
    parts = copying.parts(rows)
    assert [len(part) for part in parts] == [1, 1, 2, 1]
    assert [row for part in parts for row in part] == rows
    assert copying.parts([]) == []
    assert copying.rows_for_next(1_000, 4 * copying.BATCH_BYTES) == 250
    assert copying.rows_for_next(200, 1) == 800
