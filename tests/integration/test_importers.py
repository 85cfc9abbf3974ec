"""Importers on real databases: tables made as their documents and migrations make them, read and left as they were."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest
import redis
import yaml

from integration.api.serving import serving
from noonbell.cli import main
from noonbell.cli.importers import sources
from noonbell.cli.importers.sources import rows_of
from noonbell.errors import StoreUnavailable
from noonbell.service.consistency import audit

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


TASK_RUNS = [
    """create table task_runs (
        id bigint primary key auto_increment, task_id bigint, scheduled_time datetime, start_time datetime, end_time datetime,
        status enum('SCHEDULED','RUNNING','SUCCESS','FAILED','TIMEOUT','RETRYING','CALLBACK_PENDING','CALLBACK_SUCCESS',
        'FAILED_TIMEOUT','CANCELED','SKIPPED'), attempt int, request_headers json, request_body mediumtext, response_code int,
        response_body mediumtext, error_message varchar(1024), next_retry_time datetime, callback_token char(32),
        callback_deadline datetime, trace_id varchar(64), created_at datetime, updated_at datetime,
        key idx_task_time (task_id, scheduled_time)) default charset=utf8mb4""",
    """insert into task_runs (task_id, scheduled_time, start_time, end_time, status, attempt, request_headers, request_body,
        response_code, response_body, error_message, trace_id, created_at, updated_at) values
        (1, '2026-10-14 10:05:00', '2026-10-14 10:05:00', '2026-10-14 10:05:02', 'SUCCESS', 1, '{"A": "b"}', '{"run_id": "1"}', 200,
         '{"结果": 42}', '', 't-1', '2026-10-14 10:05:00', '2026-10-14 10:05:02'),
        (1, '2026-10-14 10:10:00', '2026-10-14 10:10:00', '2026-10-14 10:10:01', 'FAILED', 3, null, null, 500, 'no', 'status 500', '',
         '2026-10-14 10:10:00', '2026-10-14 10:10:01'),
        (1, '2026-10-14 10:15:00', null, null, 'SKIPPED', 0, null, null, null, null, '', '', '2026-10-14 10:15:00', '2026-10-14 10:15:00'),
        (1, '2026-10-14 10:20:00', '2026-10-14 10:20:00', null, 'RUNNING', 1, null, null, null, null, '', '', '2026-10-14 10:20:00', '2026-10-14 10:20:00'),
        (2, '2026-10-14 10:20:00', '2026-10-14 10:20:00', '2026-10-14 10:20:00', 'SUCCESS', 1, null, null, 200, '', '', '', '2026-10-14 10:20:00', '2026-10-14 10:20:00')""",
]
DOCUMENTED_RUN = """{
  "ID": 12,
  "TaskID": 1,
  "ScheduledTime": "2025-10-14T10:05:00Z",
  "StartTime": "2025-10-14T10:05:00Z",
  "EndTime": "2025-10-14T10:05:00Z",
  "Status": "SUCCESS",           // 可能值：SCHEDULED, RUNNING, SUCCESS, FAILED, CANCELED, SKIPPED
  "Attempt": 1,
  "RequestHeaders": "",          // 未来会写入真实发送头
  "RequestBody": "",             // 未来支持 body_template 渲染
  "ResponseCode": 200,
  "ResponseBody": "{...}",
  "ErrorMessage": "",
  "NextRetryTime": null,          // 重试未实现
  "CallbackToken": "",           // 异步未实现
  "CallbackDeadline": null,
  "TraceID": "",
  "CreatedAt": "2025-10-14T10:05:00Z",
  "UpdatedAt": "2025-10-14T10:05:00Z"
}"""
"""Word by word as document 002 prints it."""


async def in_thread(imported, *arguments):
    return await asyncio.to_thread(imported, *arguments)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"])
async def test_the_history_of_a_cronjob_service_is_brought_over_once(kind, request, fresh_mysql, imported, monkeypatch):
    old = await asyncio.to_thread(made, fresh_mysql(), CRONJOB + TASK_RUNS)
    before = await asyncio.to_thread(rows_of, old, {"tasks": "select * from tasks", "runs": "select * from task_runs"})
    async with serving(request.getfixturevalue(f"{kind}_url")) as api:
        monkeypatch.setenv("NOONBELL_URL", api.root)
        code, _, err = await in_thread(imported, "cronjob", old, "--history", "--dry-run")
        assert "history: 5 runs read, 0 imported, 0 known already, 2 left out, 0 refused" in err
        assert (await api.good("GET", "/tasks"))["total"] == 0
        code, _, err = await in_thread(imported, "cronjob", old, "--history", "--apply")
        assert code == 1  # one of its tasks is refused
        assert "history: 5 runs read, 3 imported, 0 known already, 2 left out, 0 refused" in err
        assert "1 run: RUNNING, so not final" in err
        assert "1 run: the task was not translated, or is deleted there" in err
        assert "100 %" in err
        runs = (await api.good("GET", "/runs?sort=id"))["items"]
        assert [(run["key"], run["origin"], run["status"], run["attempt"]) for run in runs] == [
            ("cronjob:1", "import", "SUCCESS", 1),
            ("cronjob:2", "import", "FAILED", 3),
            ("cronjob:3", "import", "SKIPPED", 0),
        ]
        assert [run["scheduled_time"] for run in runs][:2] == ["2026-10-14T10:05:00Z", "2026-10-14T10:10:00Z"]
        assert [run["end_time"] for run in runs] == [
            *("2026-10-14T10:05:02Z", "2026-10-14T10:10:01Z", "2026-10-14T10:15:00Z"),
        ]
        whole = await api.good("GET", f"/runs/{runs[0]['id']}")
        assert (whole["request_body"], whole["response_body"]) == ('{"run_id": "1"}', '{"结果": 42}')
        assert (whole["response_code"], whole["duration_ms"]) == (200, 2000)
        for run in runs:
            assert (await api.good("GET", f"/runs/{run['id']}/explain"))["run_id"] == run["id"]
            page = await api.call("GET", f"//runs/{run['id']}", headers={"Accept": "text/html"})
            assert page.status == 200
        code, _, err = await in_thread(imported, "cronjob", old, "--history", "--apply")
        assert "history: 5 runs read, 0 imported, 3 known already, 2 left out, 0 refused" in err
        assert (await api.good("GET", "/runs"))["total"] == 3
        report = await audit(api.store)
        assert report.is_sound, report.flaws
    assert before == await asyncio.to_thread(
        rows_of, old, {"tasks": "select * from tasks", "runs": "select * from task_runs"}
    )


async def test_answers_of_a_cronjob_service_are_taken_as_they_are(tmp_path, imported, monkeypatch):
    task = {"ID": 1, "Name": "demo_task", "CronExpr": "0 */5 * * * *", "TargetURL": "https://httpbin.org/get"}
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    (tmp_path / "runs.json").write_text(f"[{DOCUMENTED_RUN}]")
    odd = [{"ID": 13, "TaskID": 1, "Status": "LOST"}, {"ID": 14, "TaskID": 1, "Status": "FAILED"}, 7]
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    report = tmp_path / "report.json"
    async with serving("memory://") as api:
        monkeypatch.setenv("NOONBELL_URL", api.root)
        files = ("--runs", str(tmp_path / "runs.json"), "--runs", str(tmp_path / "odd.json"))
        told = await in_thread(
            imported, "cronjob", str(tmp_path / "tasks.json"), *files, "--apply", "--report", str(report)
        )
        assert told[0] == 1
        (run,) = (await api.good("GET", "/runs"))["items"]
        assert (run["key"], run["end_time"], run["response_code"]) == ("cronjob:12", "2025-10-14T10:05:00Z", 200)
    history = json.loads(report.read_text())["history"]
    assert (history["read"], history["imported"]) == (4, 1)
    assert history["refused"] == [
        "run 13: its status 'LOST' is not known",
        "run 14: has no scheduled_time",
        "run ?: has no status",
    ]


def test_a_history_without_a_server_to_send_it_to_is_refused(imported, tmp_path):
    (tmp_path / "tasks.json").write_text("[]")
    for words in (("--history", "--apply"), ("--runs", "x.json"), ("--tz", "Nowhere/City")):
        code, _, err = imported("cronjob", str(tmp_path / "tasks.json"), *words)
        assert (code, "error" in err.lower()) == (2, True)


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
    assert "3 translated, 3 of them with a change of meaning, 2 refused, 1 left out" in err
    assert tasks["report"]["cron_expr"] == "30 2 * * MON,TUE,WED,THU,FRI"
    assert (tasks["report"]["timezone"], tasks["report"]["expires_in_seconds"]) == ("Europe/Berlin", 60)
    assert (tasks["ping"]["status"], tasks["ping"]["payload"]) == ("DISABLED", {"args": [1], "kwargs": {}})
    assert tasks["once"]["schedule"] == {"type": "once", "at": "2030-01-01T00:00:00Z"}


async def test_a_task_of_somebody_else_is_taken_over_only_when_asked(sqlite_url, imported, monkeypatch, tmp_path):
    source = tmp_path / "tasks.json"
    rows = [{"name": f"t{n}", "target_url": "http://h/a", "cron_expr": "0 0 3 * * *"} for n in range(201)]
    source.write_text(json.dumps(rows))
    async with serving(sqlite_url) as api:
        monkeypatch.setenv("NOONBELL_URL", api.root)
        await api.good("POST", "/tasks", {"name": "t200", "target_url": "http://h/b"}, status=201)
        code, _, err = await in_thread(imported, "cronjob", str(source), "--apply", "--dry-run")
        assert (code, "were applied" in err) == (5, False)
        code, _, err = await in_thread(imported, "cronjob", str(source), "--apply")
        assert (code, "200 of 201 tasks were applied\n" in err) == (5, True), "giving it again would not help"
        assert "tasks[t200] belongs to api" in err
        code, _, err = await in_thread(imported, "cronjob", str(source), "--apply", "--adopt")
        assert (code, "1 changed, 200 unchanged as file:import-cronjob" in err) == (0, True), err
        assert (await api.good("GET", "/tasks/name:t200"))["target_url"] == "http://h/a"


def test_plans_in_redis_are_read_and_left_as_they_were(redis_url, imported):
    message = {
        "plan_id": 8010, "request_id": "r", "station": "billing", "caller": "shop", "description": "settle", "plan_type": 6,
        "plan_value": 0, "plan_repet": -1, "real_repet": 4, "no_keep": False, "last_state": 0, "plan_time": 36000,
        "exec_time": 0, "messages": ["settle"],
    }  # fmt: skip
    with redis.Redis.from_url(redis_url) as link:
        link.set("plan:msg:billing:1f4a", json.dumps(message))
        link.set("plan:msg:billing:bad", "{")
        link.set("plan:msg:billing:bytes", b"\xff\xfe")
        link.set("plan:msg:billing:deep", "[" * 100_000)
        link.rpush("plan:msg:billing:list", "not a text")
        link.zadd("plan:time:set", {"plan:msg:billing:1f4a": 4_000_000_000, "plan:msg:billing:lost": 4_000_000_000})
        before = sorted(link.keys())
        code, tasks, err = imported("plans", redis_url)
        assert sorted(link.keys()) == before
    assert (code, list(tasks)) == (1, ["plan:billing:1f4a"])
    assert tasks["plan:billing:1f4a"]["schedule"]["weekday"] == 0
    assert "5 refused" in err


def test_a_source_is_never_read_in_plain_text_where_its_address_asks_for_encryption(fresh_mysql):
    url = made(fresh_mysql(), ["create table a (id int)"])
    assert rows_of(url, {"a": "select * from a"}) == {"a": []}
    with pytest.raises(StoreUnavailable, match=r"SSL|TLS"):  # the server of the tests has none
        rows_of(f"{url}?ssl-mode=VERIFY_IDENTITY", {"a": "select * from a"})


def test_a_source_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(sources, "_TIMEOUT", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for scheme in ("mysql", "postgresql"):
            with pytest.raises(StoreUnavailable, match=r"cannot read from 127\.0\.0\.1: no answer within 1 s"):
                rows_of(f"{scheme}://me@127.0.0.1:{silent.getsockname()[1]}/x", {"a": "select 1"})


def test_a_source_that_cannot_be_read_is_one_line(fresh_postgres, tmp_path):
    for url in (f"sqlite:///{tmp_path}/none.db", fresh_postgres(), "mysql://root@127.0.0.1:1/x"):
        with pytest.raises(StoreUnavailable):
            rows_of(url, {"a": "select * from no_such_table"})
    assert not list(tmp_path.iterdir())
