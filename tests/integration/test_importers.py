"""Importers on real databases: tables made as their documents and migrations make them, read and left as they were."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest
import redis
import yaml

from noonbell.cli import main
from noonbell.cli.importers.database import rows_of
from noonbell.errors import StoreUnavailable

CRONJOB = [
    """create table tasks (
        id bigint primary key auto_increment, name varchar(128) unique, description varchar(512), cron_expr varchar(64),
        timezone varchar(64) default 'UTC/+08', exec_type enum('SYNC','ASYNC'), http_method varchar(8),
        target_url varchar(512), headers_json json, body_template text, timeout_seconds int, retry_policy_json json,
        max_concurrency int, concurrency_policy enum('QUEUE','SKIP','PARALLEL'),
        misfire_policy enum('FIRE_NOW','SKIP','CATCH_UP_LIMITED'), catchup_limit int, callback_method varchar(8),
        callback_timeout_sec int, status enum('ENABLED','DISABLED'), version int, created_at datetime,
        updated_at datetime, deleted tinyint) default charset=utf8mb4""",
    """insert into tasks (name, description, cron_expr, exec_type, http_method, target_url, headers_json, timeout_seconds,
        retry_policy_json, max_concurrency, concurrency_policy, misfire_policy, catchup_limit, callback_method,
        callback_timeout_sec, status, version, created_at, deleted) values
        ('sync_stats', '统计同步', '0 */5 * * * *', 'SYNC', 'POST', 'http://svc.internal/api/sync', '{"A": "b"}', 10,
         '{"max_retries":3,"initial_delay":5,"strategy":"exponential","max_delay":60}', 1, 'QUEUE', 'FIRE_NOW', 5, 'POST', 300,
         'ENABLED', 1, now(), 0),
        ('gone', '', '0 0 * * * *', 'SYNC', 'GET', 'http://h/', null, 10, null, 1, 'SKIP', 'SKIP', 0, 'POST', 300, 'ENABLED', 1, now(), 1),
        ('broken', '', '99 * * * * *', 'SYNC', 'GET', 'http://h/', null, 10, null, 1, 'SKIP', 'SKIP', 0, 'POST', 300, 'ENABLED', 1, now(), 0)""",
]
XXL_JOB = [
    "create table xxl_job_group (id int primary key, app_name varchar(64) not null)",
    """create table xxl_job_info (
        id int primary key, job_group int not null, job_desc varchar(255) not null, author varchar(64), alarm_email varchar(255),
        schedule_type varchar(50) not null default 'NONE', schedule_conf varchar(128), misfire_strategy varchar(50) not null default 'DO_NOTHING',
        executor_route_strategy varchar(50), executor_handler varchar(255), executor_param varchar(512),
        executor_block_strategy varchar(50), executor_timeout int not null default 0,
        executor_fail_retry_count int not null default 0, glue_type varchar(50) not null, child_jobid varchar(255),
        trigger_status tinyint not null default 0, trigger_last_time bigint not null default 0,
        trigger_next_time bigint not null default 0) default charset=utf8mb4""",
    "insert into xxl_job_group values (1, 'xxl-job-executor-sample')",
    """insert into xxl_job_info values (1, 1, '测试任务1', 'XXL', '', 'CRON', '0 0 0 * * ? *', 'DO_NOTHING', 'FIRST', 'demoJobHandler',
        '', 'SERIAL_EXECUTION', 0, 0, 'BEAN', '', 0, 0, 0)""",
]
JOBS = [
    """create table jobs (
        id serial primary key, job_name varchar(255) not null unique, job_type varchar(100) not null,
        cron_expression varchar(255), enabled boolean not null default true, allow_concurrent boolean not null default false,
        max_concurrent integer, max_retries integer not null default 3, retry_delay_seconds integer not null default 60,
        timeout_seconds integer not null default 300, payload jsonb, last_run_at timestamp, last_run_status varchar(50),
        next_run_at timestamp, description text, created_at timestamp not null default current_timestamp,
        updated_at timestamp not null default current_timestamp, created_by varchar(255),
        check (max_concurrent is null or max_concurrent > 0))""",
    """insert into jobs (job_name, job_type, cron_expression, allow_concurrent, payload, enabled)
        values ('cleanup', 'data_cleanup', '0 0 3 * * 1', true, '{"retention_days": 30}', false)""",
]
DJANGO = [
    """create table django_celery_beat_crontabschedule (id integer primary key, minute varchar(240), hour varchar(96),
        day_of_week varchar(64), day_of_month varchar(124), month_of_year varchar(64), timezone varchar(63))""",
    "create table django_celery_beat_intervalschedule (id integer primary key, every integer, period varchar(24))",
    "create table django_celery_beat_clockedschedule (id integer primary key, clocked_time {moment})",
    """create table django_celery_beat_periodictask (id integer primary key, name varchar(200), task varchar(200), args text,
        kwargs text, queue varchar(200), exchange varchar(200), routing_key varchar(200), headers text, priority integer,
        expires {moment}, expire_seconds integer, one_off {bool}, start_time {moment}, enabled {bool}, description text,
        clocked_id integer, crontab_id integer, interval_id integer, solar_id integer)""",
    "insert into django_celery_beat_crontabschedule values (1, '30', '2', '1-5', '*', '*', 'Europe/Berlin')",
    "insert into django_celery_beat_intervalschedule values (1, 10, 'minutes'), (2, 5, 'microseconds')",
    "insert into django_celery_beat_clockedschedule values (1, '2030-01-01 00:00:00')",
    """insert into django_celery_beat_periodictask (id, name, task, args, kwargs, queue, headers, priority, expire_seconds, enabled,
        description, clocked_id, crontab_id, interval_id, solar_id) values
        (1, 'report', 'shop.report', '[]', '{{"kind": "daily"}}', 'reports', '{{}}', null, 60, {true}, '', null, 1, null, null),
        (2, 'ping', 'shop.ping', '[1]', '{{}}', null, '{{}}', null, null, {false}, 'x', null, null, 1, null),
        (3, 'once', 'shop.once', '[]', '{{}}', null, '{{}}', null, null, {true}, '', 1, null, null, null),
        (4, 'quick', 'shop.q', '[]', '{{}}', null, '{{}}', null, null, {true}, '', null, null, 2, null),
        (5, 'sun', 'shop.s', '[]', '{{}}', null, '{{}}', null, null, {true}, '', null, null, null, 1),
        (6, 'celery.backend_cleanup', 'celery.backend_cleanup', '[]', '{{}}', null, '{{}}', null, null, {true}, '', null, 1, null, null)""",
]


async def _in_mysql(url: str, statements: list[str]) -> None:
    parts = urlsplit(url)
    link = await asyncmy.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or "", db=parts.path[1:],
        autocommit=True, charset="utf8mb4",
    )  # fmt: skip
    async with link.cursor() as cursor:
        for each in statements:
            await cursor.execute(each)
    await link.ensure_closed()


async def _in_postgres(url: str, statements: list[str]) -> None:
    link = await asyncpg.connect(url)
    for each in statements:
        await link.execute(each)
    await link.close()


def made(url: str, statements: list[str]) -> str:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as link:
            for each in statements:
                link.execute(each)
        link.close()
    else:
        asyncio.run((_in_mysql if url.startswith("mysql") else _in_postgres)(url, statements))
    return url


@pytest.fixture
def imported(capsys):
    def run(*arguments: str) -> tuple[int, dict[str, dict], str]:
        with pytest.raises(SystemExit) as ended:
            main(["import", *arguments])
        told = capsys.readouterr()
        tasks = (yaml.safe_load(told.out) or {}).get("tasks") or []
        return int(ended.value.code or 0), {task["name"]: task for task in tasks}, told.err

    return run


def test_the_table_of_a_cronjob_service_is_read_and_left_as_it_was(fresh_mysql, imported):
    url = made(fresh_mysql(), CRONJOB)
    before = rows_of(url, {"tasks": "select * from tasks"})
    code, tasks, err = imported("cronjob", url)
    assert (code, list(tasks)) == (1, ["sync_stats"])
    assert (tasks["sync_stats"]["timezone"], tasks["sync_stats"]["headers"]) == ("+08:00", {"A": "b"})
    assert tasks["sync_stats"]["description"] == "统计同步"
    assert "1 translated, 1 of them with a change of meaning, 1 refused, 1 left out" in err
    assert rows_of(url, {"tasks": "select * from tasks"}) == before


def test_the_tables_of_xxl_job_are_read(fresh_mysql, imported):
    code, tasks, _ = imported("xxl-job", made(fresh_mysql(), XXL_JOB))
    assert code == 0
    task = tasks["测试任务1"]
    assert (task["queue"], task["job_type"], task["cron_dialect"]) == (
        "xxl-job-executor-sample",
        "demoJobHandler",
        "quartz",
    )


def test_the_table_of_jobs_is_read(fresh_postgres, imported):
    code, tasks, err = imported("jobs", made(fresh_postgres(), JOBS))
    assert code == 0, err
    task = tasks["cleanup"]
    assert (task["payload"], task["status"], task["cron_dialect"]) == ({"retention_days": 30}, "DISABLED", "quartz")
    assert "1 = Sunday" in err


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"])
def test_the_tables_of_django_celery_beat_are_read(kind, request, tmp_path, imported):
    url = f"sqlite:///{tmp_path}/db.sqlite3" if kind == "sqlite" else request.getfixturevalue(f"fresh_{kind}")()
    words = {
        "moment": {"postgres": "timestamptz", "mysql": "datetime"}.get(kind, "datetime"),
        "bool": "boolean" if kind == "postgres" else "tinyint",
        "true": "true" if kind == "postgres" else "1",
        "false": "false" if kind == "postgres" else "0",
    }
    statements = [each.format(**words) for each in DJANGO]
    if kind == "postgres":
        statements.insert(0, "set timezone to 'UTC'")
    code, tasks, err = imported("celery", made(url, statements))
    assert (code, list(tasks)) == (1, ["report", "ping", "once"])
    assert "3 translated, 1 of them with a change of meaning, 2 refused, 1 left out" in err
    assert tasks["report"]["cron_expr"] == "30 2 * * MON,TUE,WED,THU,FRI"
    assert (tasks["report"]["timezone"], tasks["report"]["expires_in_seconds"]) == ("Europe/Berlin", 60)
    assert (tasks["ping"]["status"], tasks["ping"]["payload"]) == ("DISABLED", {"args": [1], "kwargs": {}})
    assert tasks["once"]["schedule"] == {"type": "once", "at": "2030-01-01T00:00:00Z"}


def test_plans_in_redis_are_read_and_left_as_they_were(redis_url, imported):
    message = {
        "plan_id": 8010, "request_id": "r", "station": "billing", "caller": "shop", "description": "settle", "plan_type": 6,
        "plan_value": 0, "plan_repet": -1, "real_repet": 4, "no_keep": False, "last_state": 0, "plan_time": 36000,
        "exec_time": 0, "messages": ["settle"],
    }  # fmt: skip
    with redis.Redis.from_url(redis_url) as link:
        link.set("plan:msg:billing:1f4a", json.dumps(message))
        link.set("plan:msg:billing:bad", "{")
        link.zadd("plan:time:set", {"plan:msg:billing:1f4a": 4_000_000_000, "plan:msg:billing:lost": 4_000_000_000})
        before = sorted(link.keys())
        code, tasks, err = imported("plans", redis_url)
        assert sorted(link.keys()) == before
    assert (code, list(tasks)) == (1, ["plan:billing:1f4a"])
    assert tasks["plan:billing:1f4a"]["schedule"]["weekday"] == 0
    assert "2 refused" in err


def test_a_source_that_cannot_be_read_is_one_line(fresh_postgres, tmp_path):
    for url in (f"sqlite:///{tmp_path}/none.db", fresh_postgres(), "mysql://root@127.0.0.1:1/x"):
        with pytest.raises(StoreUnavailable):
            rows_of(url, {"a": "select * from no_such_table"})
    assert not list(tmp_path.iterdir())
