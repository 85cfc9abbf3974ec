"""Step 25: `tasks.grpc`, the method that a task of exec_type GRPC calls, as JSON. Null for all others.

Code from before this step can read no task of that exec_type. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    return [f"alter table tasks add column grpc {_TYPES[dialect]['long']}"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["alter table tasks drop column grpc"]
