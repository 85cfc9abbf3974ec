"""What is unique among all runs, where an index cannot see to it: PostgreSQL, which has them in partitions.

run_slots   (task, slot): a slot has one run
live_keys   (task, key): the newest run of a key holds it

A row whose run is gone, because it was deleted by hand, holds nothing: it is removed where it would stand in the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.clock import SECOND
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.ids import floor_at
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Row, Work

TABLES: Final = {"slot": "run_slots", "live_key": "live_keys"}
"""By their column, which `runs` has too."""
_EARLIEST: Final = 15 * 86_400 * SECOND


def with_unique(insert: InsertMany) -> list[InsertMany]:
    """Rows of `runs`, and those that say what they take; of other tables the rows alone."""
    found = [insert]
    if insert.table == "runs":
        id_, task = insert.columns.index("id"), insert.columns.index("task_id")
        for column, table in TABLES.items():
            if column in insert.columns:
                place = insert.columns.index(column)
                rows = [(row[task], row[place], row[id_]) for row in insert.rows if row[place] is not None]
                if rows:
                    found.append(InsertMany(table, ("task_id", column, "run_id"), rows))
    return found


_HAS_RUN: Final = "(select 1 from runs r where r.id = u.run_id) is not null"
"""For each row by itself: with `exists`, PostgreSQL might read all runs."""


def without_run(table: str, which: str) -> str:
    """Before a `select`: of these rows, those whose run is gone are removed in the same statement, which sees them still."""
    return f"with gone as (delete from {table} u where {which} and not ({_HAS_RUN}))"


def taken_slots(q: Dialect, task_ids: Sequence[int], slots: Sequence[int]) -> Work[Sequence[Row]]:
    """(task, slot) of what has a run, among these tasks and slots."""
    which = f"{q.ids('task_id', 'tasks')} and {q.ids('slot', 'slots')}"
    sql = f"select task_id, slot from runs where {which}"
    params = {"tasks": q.pack(task_ids), "slots": q.pack(slots)}
    if q.has_partitions:
        # Runs from before `run_slots` are not in it. None was born long before its slot: calendars move one by two weeks at most.
        taken = f"select task_id, slot from run_slots u where {which} and {_HAS_RUN}"
        sql = f"{without_run('run_slots', which)} {taken} union all {sql} and id >= :first"
        params["first"] = floor_at(slots[0] - _EARLIEST)
    rows: Sequence[Row] = yield Fetch(sql, params)
    return rows


def forget(q: Dialect, run_ids: Sequence[int], columns: Sequence[str] = tuple(TABLES)) -> Work[None]:
    """What these runs take is free. Before they are deleted, or lose their key."""
    if not q.has_partitions or not run_ids:
        return
    for column in columns:
        yield Execute(
            f"delete from {TABLES[column]} u using runs r where {q.ids('r.id', 'ids')} and r.{column} is not null"
            f" and u.task_id = r.task_id and u.{column} = r.{column} and u.run_id = r.id",
            {"ids": q.pack(run_ids)},
        )


def forget_task(q: Dialect, task_id: int) -> Work[None]:
    if q.has_partitions:
        for table in TABLES.values():
            yield Execute(f"delete from {table} where task_id = :task", {"task": task_id})
