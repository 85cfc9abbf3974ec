"""Names in statements: tables where SQL expects a table, and nothing else."""

from __future__ import annotations

import pytest

from noonbell.stores import migrations
from noonbell.stores.sql.dialect import MAX_PREFIX, PLAIN, TableNames

TABLES, INDEXES = migrations.names("postgres")
PREFIX = TableNames(None, "nb_", tables=TABLES, indexes=INDEXES)
SCHEMA = TableNames("bell", "", tables=TABLES, indexes=INDEXES)


@pytest.mark.parametrize(
    ("given", "prefixed", "in_schema"),
    [
        ("select id from runs", "select id from nb_runs", 'select id from "bell".runs'),
        (
            "select r.id from runs r left join attempts a on a.run_id = r.id",
            "select r.id from nb_runs r left join nb_attempts a on a.run_id = r.id",
            'select r.id from "bell".runs r left join "bell".attempts a on a.run_id = r.id',
        ),
        (
            "update live set token = live.token + 1",
            "update nb_live set token = nb_live.token + 1",
            'update "bell".live set token = live.token + 1',
        ),
        (
            "select d.attempts, queues from workers where queues = 'from runs'",
            "select d.attempts, queues from nb_workers where queues = 'from runs'",
            "select d.attempts, queues from \"bell\".workers where queues = 'from runs'",
        ),
        (
            "insert into workers (id) values (1) on duplicate key update queues = values(queues)",
            "insert into nb_workers (id) values (1) on duplicate key update queues = values(queues)",
            'insert into "bell".workers (id) values (1) on duplicate key update queues = values(queues)',
        ),
        (
            "create unique index runs_slot on runs (task_id, slot)",
            "create unique index nb_runs_slot on nb_runs (task_id, slot)",
            'create unique index runs_slot on "bell".runs (task_id, slot)',
        ),
        ("drop index runs_stray", "drop index nb_runs_stray", 'drop index "bell".runs_stray'),
        (
            "drop index if exists runs_stray",
            "drop index if exists nb_runs_stray",
            'drop index if exists "bell".runs_stray',
        ),
        (
            "create table live_ready partition of live for values in (1)",
            "create table nb_live_ready partition of nb_live for values in (1)",
            'create table "bell".live_ready partition of "bell".live for values in (1)',
        ),
        (
            "select 1 from pg_class where n = current_schema() -- from runs",
            "select 1 from pg_class where n = current_schema() -- from runs",
            "select 1 from pg_class where n = 'bell' -- from runs",
        ),
    ],
)
def test_tables_are_renamed_and_columns_are_not(given: str, prefixed: str, in_schema: str):
    assert (PREFIX.apply(given), SCHEMA.apply(given), PLAIN.apply(given)) == (prefixed, in_schema, given)


def test_the_longest_name_fits_with_the_longest_prefix():
    assert max(map(len, TABLES | INDEXES)) + MAX_PREFIX <= 63


def test_stores_that_are_called_otherwise_have_other_locks_and_channels():
    names = [TableNames(), TableNames("a"), TableNames(None, "a"), TableNames("a", "a"), TableNames("b")]
    assert len({each.mark for each in names}) == len({each.lock_number for each in names}) == len(names)
    assert all(0 < each.lock_number < 1 << 63 for each in names)
