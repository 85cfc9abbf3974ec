"""Files, environment and flags become Settings: the later wins, and every problem is told at once."""

from __future__ import annotations

import pytest

from noonbell.errors import SettingsError
from noonbell.settings import KEYS, Settings, load, plain

DOCUMENT_002 = """
server:
  port: 8080
  graceful_timeout: 10s
mysql:
  dsn: "user:p@ss:w/rd@tcp(127.0.0.1:3306)/cronjob?charset=utf8mb4&parseTime=True&loc=Local"
  max_open_conns: 50
  max_idle_conns: 10
  conn_max_lifetime: 300s
scheduler:
  poll_interval: 1s
  ahead_seconds: 30
  batch_limit: 200
  enable_seconds_field: true
executor:
  worker_pool_size: 16
  request_timeout: 15s
  default_retry:
    max_retries: 0
callback:
  base_url: "http://cronjob.internal/api/v1/callbacks"
  token_ttl: 3600s
metrics:
  enabled: true
logging:
  level: info
"""


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def problems(*files, env=None, flags=None):
    with pytest.raises(SettingsError) as caught:
        load(files, env or {}, flags or {})
    return caught.value.details


def test_without_any_layer_the_defaults_hold():
    loaded = load([], {}, {})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_the_written_defaults():
    s = Settings()
    assert (s.server.host, s.server.port, s.server.graceful_timeout) == ("127.0.0.1", 8080, 10.0)
    assert s.store.url == "sqlite:///noonbell.db"
    assert (s.scheduler.enabled, s.scheduler.poll_interval, s.scheduler.max_catchup) == (True, 1.0, 100)
    assert (s.scheduler.misfire_on_start, s.scheduler.enable_seconds_field) == ("policy", True)
    assert (s.executor.worker_pool_size, s.executor.request_timeout, s.executor.connect_timeout) == (16, None, 5.0)
    assert s.executor.max_body_bytes == 8 * 1024 * 1024
    assert (s.callback.token_ttl, s.callback.allow_id_mode) == (3600.0, True)
    assert s.recovery.orphaned_runs == "retry"
    assert (s.jobs.enabled, s.jobs.worker_concurrency, s.jobs.poll_interval) == (False, 4, 1.0)
    assert (s.jobs.job_timeout, s.jobs.max_retries, s.jobs.retry_delay) == (300.0, 3, 60.0)
    assert s.jobs.history_retention_days == 30
    assert (s.metrics.enabled, s.logging.level, s.auth.enabled) == (True, "info", None)


def test_a_wrong_flag_is_called_as_it_is_typed():
    with pytest.raises(SettingsError, match=r"\(--concurrency\)"):
        load([], {}, {"jobs.worker_concurrency": "x"})


def test_a_flag_beats_the_environment_beats_a_later_file_beats_an_earlier_one(write):
    first = write("first.yaml", "server: {port: 1, host: localhost, graceful_timeout: 1}\nlogging: {level: debug}")
    second = write("second.toml", "[server]\nport = 2\nhost = '::1'\ngraceful_timeout = 2\n")
    env = {"NOONBELL_SERVER__PORT": "3", "NOONBELL_SERVER__HOST": "127.0.0.2"}
    loaded = load([first, second], env, {"server.port": 4, "server.host": None})
    server = loaded.settings.server
    assert (server.port, server.host, server.graceful_timeout) == (4, "127.0.0.2", 2.0)
    assert loaded.settings.logging.level == "debug"
    assert loaded.origins["server.port"] == "--port"
    assert loaded.origins["server.host"] == "NOONBELL_SERVER__HOST"
    assert loaded.origins["server.graceful_timeout"] == f"file {second}"
    assert loaded.origins["logging.level"] == f"file {first}"
    assert loaded.origins["store.url"] == "default"


def test_every_key_has_an_origin():
    assert set(load([], {}, {}).origins) == {*KEYS, "tasks"}


def test_the_configuration_of_document_002_is_understood(write):
    loaded = load([write("config.yaml", DOCUMENT_002)], {}, {})
    s = loaded.settings
    assert s.store.url == "mysql://user:p%40ss%3Aw%2Frd@127.0.0.1:3306/cronjob"
    assert s.store.pool_size == 50
    assert s.executor.request_timeout == 15.0
    assert s.executor.default_retry.given() == {"max_retries": 0}
    assert s.scheduler.ahead_seconds == 30.0
    assert s.callback_url() == "http://cronjob.internal/api/v1/callbacks"
    assert loaded.origins["store.url"].endswith("config.yaml (mysql.dsn)")


def test_the_configuration_of_document_003_is_layered(write):
    default = write("default.toml", "[jobs]\nenabled = false\nworker_concurrency = 4\npoll_interval = 5\n")
    development = write("development.toml", "[jobs]\nenabled = true\nworker_concurrency = 2\npoll_interval = 10\n")
    jobs = load([default, development], {}, {}).settings.jobs
    assert (jobs.enabled, jobs.worker_concurrency, jobs.poll_interval, jobs.max_retries) == (True, 2, 10.0, 3)


def test_jobs_are_declared_in_the_file(write):
    text = "[[jobs.jobs]]\njob_name = 'api_sync'\ncron = '*/10 * * * *'\nallow_concurrent = true\nmax_concurrent = 3\n"
    (job,) = load([write("jobs.toml", text)], {}, {}).settings.jobs.jobs
    assert job == {"job_name": "api_sync", "cron": "*/10 * * * *", "allow_concurrent": True, "max_concurrent": 3}


def test_no_worker_while_jobs_are_on_is_refused_by_name(write):
    found = problems(write("a.toml", "[jobs]\nenabled = true\nworker_concurrency = 0\n"))
    assert list(found) == ["jobs.worker_concurrency"]
    assert "jobs.enabled" in found["jobs.worker_concurrency"]


def test_no_worker_while_jobs_are_off_is_fine():
    env = {"NOONBELL_JOBS__WORKER_CONCURRENCY": "0"}
    assert load([], env, {}).settings.jobs.worker_concurrency == 0


def test_all_problems_are_told_at_once_with_path_value_place_and_what_it_takes(write):
    file = write("a.yaml", "server: {prot: 1, port: eighty}\nscheduler: fast\nexecutor: {deny_networks: [nowhere]}")
    found = problems(file, env={"NOONBELL_LOGGING__LEVEL": "loud"})
    assert set(found) == {"server.prot", "server.port", "scheduler", "executor.deny_networks", "logging.level"}
    assert found["server.prot"] == f"is not a setting (file {file}); did you mean server.port?"
    assert found["server.port"] == f"is 'eighty' (file {file}); expected a whole number from 0 to 65535"
    assert found["logging.level"] == "is 'loud' (NOONBELL_LOGGING__LEVEL); expected debug, info, warning or error"


def test_an_unknown_section_is_answered_with_those_there_are(write):
    (problem,) = problems(write("a.yaml", "zebra: {x: 1}")).values()
    assert "server" in problem
    assert "tasks" in problem


def test_variables_for_the_command_line_are_no_settings():
    assert load([], {"NOONBELL_URL": "http://x", "NOONBELL_TOKEN": "t"}, {}).settings == Settings()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NOONBELL_STORE", "NOONBELL_STORE__URL"),
        ("NOONBELL_STORE_URL", "NOONBELL_STORE__URL"),
        ("NOONBELL_AUTH_OIDC_CLIENT_ID", "NOONBELL_AUTH__OIDC__CLIENT_ID"),
    ],
)
def test_a_variable_with_too_few_underscores_is_refused_with_the_one_that_is_meant(name, meant):
    assert meant in problems(env={name: "sqlite:///x.db"})[name]


def test_such_a_variable_is_somebody_elses_where_its_key_is_set_or_kubernetes_has_set_it():
    assert load([], {"NOONBELL_STORE": "sqlite:///x.db"}, {"store.url": "sqlite:///y.db"}).settings.store.url
    env = {"NOONBELL_SERVER_PORT": "tcp://10.0.0.1:80", "NOONBELL_SERVER_SERVICE_HOST": "10.0.0.1"}
    assert load([], env, {}).settings == Settings()


def test_a_misspelt_variable_is_refused():
    assert "NOONBELL_SEVER__PORT" in problems(env={"NOONBELL_SEVER__PORT": "1"})["sever.port"]


def test_the_environment_reaches_nested_keys_lists_and_mappings():
    env = {
        "NOONBELL_EXECUTOR__DEFAULT_RETRY__MAX_RETRIES": "2",
        "NOONBELL_EXECUTOR__ALLOW_NETWORKS": "10.0.0.0/8, 192.168.1.7",
        "NOONBELL_EXECUTOR__GLOBAL_HEADERS": '{"X-Team": "billing"}',
        "NOONBELL_AUTH__ENABLED": "false",
    }
    s = load([], env, {}).settings
    assert s.executor.default_retry.given() == {"max_retries": 2}
    assert s.executor.allow_networks == ("10.0.0.0/8", "192.168.1.7/32")
    assert s.executor.global_headers == {"X-Team": "billing"}
    assert s.auth.enabled is False


def test_an_alias_beside_its_key_in_one_file_is_refused(write):
    text = "mysql: {dsn: 'u@tcp(h:3306)/d'}\nstore: {url: 'sqlite:///x.db'}"
    assert "store.url" in problems(write("a.yaml", text))["mysql.dsn"]


def test_a_bad_dsn_is_refused_without_its_password(write):
    (problem,) = problems(write("a.yaml", "mysql: {dsn: 'u:hunter2@unix(/tmp/s)/d'}")).values()
    assert "hunter2" not in problem
    assert "tcp(" in problem


@pytest.mark.parametrize("asked", ["skip-verify", "preferred", "my-own"])
def test_a_dsn_never_loses_its_encryption_in_silence(write, asked):
    (problem,) = problems(write("a.yaml", f"mysql: {{dsn: 'u:hunter2@tcp(h:3306)/d?tls={asked}'}}")).values()
    assert f"tls={asked}" in problem
    assert "store.url" in problem
    assert "hunter2" not in problem


def test_a_bad_store_address_is_refused_without_its_password():
    (problem,) = problems(flags={"store.url": "oracle://me:hunter2@host/db"}).values()
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "server: [", "is neither YAML nor JSON: line"),
        ("a.yaml", "- 1", "is not a mapping"),
        ("a.yaml", "server: {port: 1}\nserver: {port: 2}", "line 2: 'server' is given twice"),
        ("a.toml", "[server\n", "is not TOML"),
        ("a.ini", "", "unknown extension"),
        ("gone.yaml", None, "does not exist; check --config"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(write, tmp_path, name, text, says):
    path = tmp_path / name if text is None else write(name, text)
    assert says in problems(path)[str(path)]


def test_an_empty_file_and_an_empty_section_change_nothing(write):
    assert load([write("a.yaml", ""), write("b.yaml", "server:\n")], {}, {}).settings == Settings()


def test_tasks_keep_their_file_and_the_later_of_a_name_wins(write):
    first = write("first.yaml", "tasks: [{name: a, cron_expr: '@daily'}, {name: b, start_at: 2026-01-01T00:00:00Z}]")
    second = write("second.yaml", "tasks: [{name: a, cron_expr: '@hourly'}]")
    loaded = load([first, second], {}, {})
    told = [(task.file, dict(task.fields)) for task in loaded.settings.tasks]
    assert told == [
        ("second.yaml", {"name": "a", "cron_expr": "@hourly"}),
        ("first.yaml", {"name": "b", "start_at": "2026-01-01T00:00:00Z"}),
    ]
    assert loaded.origins["tasks"] == "file second.yaml, file first.yaml"


def test_a_task_without_a_name_and_a_name_twice_are_refused(write):
    found = problems(write("a.yaml", "tasks: [{cron_expr: x}, {name: a}, {name: a}]"))
    assert set(found) == {"tasks[0].name", "tasks[2].name"}


def test_moments_in_toml_stay_texts(write):
    text = "[[tasks]]\nname = 'a'\nstart_at = 2026-01-01T00:00:00Z\n"
    (task,) = load([write("a.toml", text)], {}, {}).settings.tasks
    assert task.fields["start_at"] == "2026-01-01T00:00:00+00:00"


def test_what_is_shown_holds_no_secret(write):
    text = """
    store: {url: "postgresql://me:hunter2@db:5432/bell?sslpassword=hunter2"}
    executor: {global_headers: {Authorization: Bearer hunter2, X-Team: billing}}
    alerts: {channels: [{url: "https://x/hook?token=hunter2", password: hunter2}]}
    tasks: [{name: a, headers: {Cookie: hunter2}}]
    """
    shown = plain(load([write("a.yaml", text)], {}, {}).settings)
    assert "hunter2" not in repr(shown)
    assert shown["store.url"] == "postgresql://me:***@db:5432/bell?sslpassword=***"
    assert shown["executor.global_headers"] == {"Authorization": "***", "X-Team": "***"}
    assert shown["callback.token_ttl"] == "3600s"
    assert shown["auth.enabled"] == "auto"


def test_what_is_shown_can_be_read_again():
    shown = plain(Settings())
    shown.pop("tasks")
    assert load([], {}, shown).settings == Settings()


def test_the_configuration_of_document_004_is_understood(write):
    given = '{"redis_addr": "127.0.0.1:6379", "redis_defdb": 15, "plan_exec_timeout": 30}'
    loaded = load([write("zero.yaml", given)], {}, {})
    assert loaded.settings.plans.exec_timeout == 30
    assert loaded.origins["plans.exec_timeout"].endswith("zero.yaml (plan_exec_timeout)")
