"""Step 1: every table of the foundation.

How a run is kept. `runs` is the wide row of history, written when the run is born and when it is settled. `live` is the
narrow row of a run that is not final: where it waits, or who holds it. A claim reads and writes `live` alone. On
PostgreSQL `live` is split by place, so that the rows a claim walks lie in a small table of their own.

No index of `runs` covers a column that a successful settle changes, so that PostgreSQL can update in place; `trouble`
is null unless the run ended otherwise, and serves the lists of what went wrong.

Uniqueness among some rows only (names of tasks not deleted, keys of the newest run) is a nullable column beside the
full one: MariaDB has no partial indexes. The others leave out the nulls, so that an ordinary run is in two indexes.
"""

from __future__ import annotations

import re

_TYPES = {
    "sqlite": {"id": "integer", "int": "integer", "small": "integer", "real": "real",
               "key": "text", "text": "text", "long": "text", "end": ""},
    "postgres": {"id": "bigint", "int": "integer", "small": "smallint", "real": "double precision",
                 "key": "text", "text": "text", "long": "text", "end": ""},
    "mysql": {"id": "bigint", "int": "integer", "small": "smallint", "real": "double",
              "key": "varchar(255)", "text": "text", "long": "longtext",
              "end": " engine=InnoDB default charset=utf8mb4 collate=utf8mb4_0900_bin"},
}  # fmt: skip
_TYPES["mariadb"] = {**_TYPES["mysql"], "end": " engine=InnoDB default charset=utf8mb4 collate=utf8mb4_nopad_bin"}
# Both collations tell apart whatever differs, down to a space at the end.

_TABLES = {
    "counters": """
        name {key} primary key,
        value {id} not null""",
    "tasks": """
        id {id} primary key,
        version {int} not null,
        status {key} not null,
        name {key} not null,
        live_name {key} unique,
        description {long} not null,
        labels {long} not null,
        managed_by {key} not null,
        external_id {key},
        live_external_id {key} unique,
        meta {long} not null,
        schedule {text},
        timezone {key} not null,
        start_at {id},
        end_at {id},
        jitter_seconds {int} not null,
        exec_type {key} not null,
        http_method {key} not null,
        target_url {text},
        headers {long} not null,
        body_template {long},
        follow_redirects {small} not null,
        secret {text},
        callback_method {key} not null,
        callback_timeout_sec {int} not null,
        job_type {key},
        payload {long} not null,
        queue {key} not null,
        timeout_seconds {real} not null,
        retry_policy {text} not null,
        max_concurrency {int},
        concurrency_policy {key} not null,
        queue_depth {int},
        overlap_action {key} not null,
        failure_action {key} not null,
        circuit {text} not null,
        misfire_policy {key} not null,
        catchup_limit {int} not null,
        misfire_grace_seconds {int} not null,
        priority {int} not null,
        rate_limit {text},
        worker_timeout_ms {id} not null,
        ping_interval_ms {id} not null,
        specific_worker_ids {long} not null,
        min_worker_version {int} not null,
        fanout {text},
        delivery {key} not null,
        on_lost {key} not null,
        max_lost {int} not null,
        on_exhausted {key} not null,
        delete_on_complete {small} not null,
        created_by {key},
        created_at {id} not null,
        updated_at {id} not null,
        deleted_at {id}""",
    "cursors": """
        task_id {id} primary key,
        version {int} not null,
        next_fire_at {id},
        fired {id} not null,
        skip_next {int} not null,
        accounted_to {id} not null""",
    "task_versions": """
        task_id {id} not null,
        version {int} not null,
        valid_from {id} not null,
        status {key} not null,
        deleted {small} not null,
        changed_by {key},
        spec {long} not null,
        primary key (task_id, version)""",
    "task_labels": """
        task_id {id} not null,
        name {key} not null,
        value {key} not null,
        primary key (task_id, name)""",
    "rounds": """
        task_id {id} primary key,
        run_id {id} not null,
        status {key} not null,
        attempt {int} not null,
        end_time {id},
        failures {int} not null,
        replaced {small} not null,
        skipped_run_id {id}""",
    "dropped": """
        task_id {id} not null,
        first {id} not null,
        last {id} not null,
        count {id} not null,
        reason {key} not null,
        at {id} not null,
        primary key (task_id, first)""",
    "runs": """
        id {id} primary key,
        task_id {id} not null,
        task_version {int} not null,
        origin {key} not null,
        status {key} not null,
        slot {id},
        scheduled_time {id} not null,
        run_at {id} not null,
        created_at {id} not null,
        updated_at {id} not null,
        queue {key} not null,
        priority {int} not null,
        "key" {key},
        live_key {key},
        attempt {int} not null,
        retry_count {int} not null,
        lost_count {int} not null,
        retry_of_run_id {id},
        parent_id {id},
        shard_index {int},
        shard_total {int},
        skip_reason {key},
        trouble {key},
        start_time {id},
        end_time {id},
        next_retry_time {id},
        callback_deadline {id},
        worker_id {key},
        response_code {int},
        error_message {long},
        error_details {long},
        trace_id {key},
        result {long}""",
    "live": """
        run_id {id} not null,
        place {small} not null,
        task_id {id} not null,
        queue {key} not null,
        turn {int} not null,
        run_at {id} not null,
        at {id},
        job_type {key},
        gate {id},
        round_of {id},
        rate_key {key},
        flags {int} not null,
        min_version {int} not null,
        parent_id {id},
        attempt {int} not null,
        retry_count {int} not null,
        lost_count {int} not null,
        token {id} not null,
        worker_id {key},
        claimed_at {id},
        expires_at {id},
        deadline_at {id}""",
    "inputs": """
        run_id {id} primary key,
        payload {long},
        overrides {long}""",
    "bodies": """
        run_id {id} not null,
        attempt {int} not null,
        request_headers {long},
        request_body {long},
        response_headers {long},
        response_body {long},
        truncated {small} not null,
        primary key (run_id, attempt)""",
    "attempts": """
        run_id {id} not null,
        attempt {int} not null,
        status {key} not null,
        worker_id {key},
        start_time {id},
        end_time {id},
        response_code {int},
        result {long},
        error_message {long},
        error_details {long},
        primary key (run_id, attempt)""",
    "callback_tokens": """
        hash {key} primary key,
        run_id {id} not null""",
    "callbacks": """
        id {id} primary key,
        run_id {id},
        task_id {id},
        received_at {id} not null,
        status {key} not null,
        reason {long},
        headers {long} not null,
        body {long} not null""",
    "progress": """
        run_id {id} primary key,
        data {long} not null,
        at {id} not null""",
    "run_log": """
        run_id {id} not null,
        seq {int} not null,
        at {id} not null,
        level {key} not null,
        message {long} not null,
        primary key (run_id, seq)""",
    "pins": """
        run_id {id} not null,
        worker_id {key} not null,
        primary key (run_id, worker_id)""",
    "gates": """
        task_id {id} primary key,
        queue {key} not null,
        lim {int},
        rated {small} not null,
        used {int} not null,
        waiting {int} not null,
        passed {int} not null,
        top {int} not null,
        blocked_until {id} not null,
        open {small} generated always as (case when waiting > 0 and (lim is null or used < lim) then 1 else 0 end) stored
        """,
    "rates": """
        scope {key} primary key,
        tat {id} not null,
        log {long} not null""",
    "queues": """
        name {key} primary key,
        paused {small} not null,
        concurrency {int},
        rate_limit {text}""",
    "workers": """
        id {key} primary key,
        incarnation {key} not null,
        version {int} not null,
        queues {text} not null,
        job_types {text},
        concurrency {int} not null,
        state {key} not null,
        started_at {id} not null,
        heartbeat_at {id} not null,
        meta {long} not null""",
    "events": """
        id {id} primary key,
        seq {id} unique,
        at {id} not null,
        type {key} not null,
        data {long} not null""",
}

_INDEXES = (
    "create index cursors_due on cursors (next_fire_at)",
    "create index tasks_status on tasks (status, id)",
    "create index task_labels_value on task_labels (name, value, task_id)",
    "create index runs_task on runs (task_id, id)",
    "create unique index runs_slot on runs (task_id, slot){slot is not null}",
    "create unique index runs_key on runs (task_id, live_key){live_key is not null}",
    "create index runs_parent on runs (parent_id, id){parent_id is not null}",
    "create index runs_trouble on runs (trouble, id){trouble is not null}",
    "create index callback_tokens_run on callback_tokens (run_id)",
    "create index callbacks_run on callbacks (run_id, id)",
    "create index pins_worker on pins (worker_id, run_id)",
    "create index gates_open on gates (open, queue, top)",
)

# LATER 0, READY 1, GATED 2, CAREFUL 3, LEASED 4, PARKED 5, PARENT 6, PINNED 7: see stores.sql.place
_LIVE_SQLITE = (
    "create index live_ready on live (queue, turn, run_at, run_id) where place = 1",
    "create index live_careful on live (queue, turn, run_at, run_id) where place = 3",
    "create index live_gated on live (gate, turn, run_at, run_id) where place = 2",
    "create index live_later on live (at) where place = 0",
    "create index live_leased on live (at) where place = 4",
    "create index live_parked on live (at) where place = 5",
    "create index live_parts on live (parent_id) where parent_id is not null",
    "create index live_rounds on live (round_of) where round_of is not null",
)

_LIVE_POSTGRES = (
    "create table live_ready partition of live for values in (1) with (fillfactor = 90)",
    "create table live_leased partition of live for values in (4) with (fillfactor = 70)",
    "create table live_rest partition of live default",
    "create unique index live_ready_run on live_ready (run_id)",
    "create index live_ready_order on live_ready (queue, turn, run_at, run_id)",
    "create unique index live_leased_run on live_leased (run_id)",
    "create index live_leased_at on live_leased (at)",
    "create unique index live_rest_run on live_rest (run_id)",
    "create index live_rest_careful on live_rest (queue, turn, run_at, run_id) where place = 3",
    "create index live_rest_gated on live_rest (gate, turn, run_at, run_id) where place = 2",
    "create index live_rest_later on live_rest (at) where place = 0",
    "create index live_rest_parked on live_rest (at) where place = 5",
    "create index live_rest_parts on live_rest (parent_id) where parent_id is not null",
    "create index live_leased_parts on live_leased (parent_id) where parent_id is not null",
    "create index live_rest_rounds on live_rest (round_of) where round_of is not null",
    "create index live_leased_rounds on live_leased (round_of) where round_of is not null",
    "alter table runs set (fillfactor = 50)",
    "alter table cursors set (fillfactor = 70)",
    "alter table gates set (fillfactor = 50)",
)

_LIVE_MYSQL = (
    "create index live_order on live (place, queue, turn, run_at, run_id)",
    "create index live_at on live (at, place)",
    "create index live_gated on live (gate, place, turn, run_at, run_id)",
    "create index live_parts on live (parent_id)",
    "create index live_rounds on live (round_of)",
)


_SEED = (
    f"insert into counters (name, value) values ('ids', 0), ('events', 0), ('tasks', 0), ('system_tasks', {1 << 52})"
)
"""The counters that a new store starts with."""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    statements = []
    for table, columns in _TABLES.items():
        body, end = columns.format(**types), types["end"]
        if table == "live":
            if dialect == "postgres":
                end = " partition by list (place)"
            else:
                body += ",\n        primary key (run_id)"
        statements.append(f"create table {table} ({body}){end}")
    live = {"sqlite": _LIVE_SQLITE, "postgres": _LIVE_POSTGRES}.get(dialect, _LIVE_MYSQL)
    partial = dialect in ("sqlite", "postgres")
    indexes = [re.sub(r"\{(.+)\}", r" where \1" if partial else "", index) for index in _INDEXES]
    # Where a step is not one transaction, this may be met a second time.
    seed = _SEED if dialect in ("sqlite", "postgres") else _SEED.replace("insert", "insert ignore", 1)
    return [*statements, *indexes, *live, seed]


def down(dialect: str) -> list[str]:
    del dialect
    return [f"drop table {table}" for table in reversed(_TABLES)]
