"""Step 20: labels of workers.

`workers.labels` is what a worker says of itself, `tasks.worker_labels` what a task asks for. `needed_labels` has the latter as rows, each as
`name=value`: a claim looks there for runs that ask for labels.

Code from before this step would give a run to a worker without the labels that it asks for. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    pair = "varchar(600)" if dialect in ("mysql", "mariadb") else "text"
    empty = "('{}')" if dialect in ("mysql", "mariadb") else "'{}'"
    columns = f"task_id {types['id']} not null, pair {pair} not null, primary key (task_id, pair)"
    return [
        f"create table needed_labels ({columns}){types['end']}",
        f"alter table tasks add column worker_labels {types['long']} not null default {empty}",
        f"alter table workers add column labels {types['long']} not null default {empty}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        "alter table workers drop column labels",
        "alter table tasks drop column worker_labels",
        "drop table needed_labels",
    ]
