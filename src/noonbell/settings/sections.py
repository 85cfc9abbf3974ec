"""The settings themselves: every key with its default, what it takes and what it means. Frozen, checked when built."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, dataclass_transform

from noonbell.errors import SettingsError
from noonbell.settings import kinds
from noonbell.settings.kinds import SettingKind, UnusableAddress

MIB = 1024 * 1024
CALLBACK_PATH = "/api/v1/callbacks"
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names of all addresses, each with one of them


def key(default: Any, kind: SettingKind, means: str) -> Any:
    """One setting. A default that can be changed in place is copied for each section that is built."""
    metadata = {"kind": kind, "means": means}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Section:
    """Checks each of its keys when it is built, so that settings made by hand are as sound as those from a file.

    Each section is a frozen dataclass.
    """

    path: ClassVar[str]

    def __init_subclass__(cls, *, path: str) -> None:
        cls.path = path
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        problems: dict[str, str] = {}
        for item in dataclasses.fields(self):
            if (kind := item.metadata.get("kind")) is None:
                continue
            value = getattr(self, item.name)
            try:
                object.__setattr__(self, item.name, kind.read(value))
            except UnusableAddress as error:
                problems[f"{self.path}.{item.name}"] = str(error)
            except (ValueError, TypeError):
                problems[f"{self.path}.{item.name}"] = f"is {value!r}; expected {kind.takes}"
        if not problems:
            problems = {f"{self.path}.{name}": problem for name, problem in self.contradictions().items()}
        if problems:
            raise SettingsError.fields(problems)

    def contradictions(self) -> Mapping[str, str]:
        """Keys that are sound each by itself, but not together."""
        return {}


class ServerSettings(Section, path="server"):
    host: str = key(
        "127.0.0.1", kinds.text, "The address to listen on. Any address other than loopback requires `auth.enabled`."
    )
    port: int = key(8080, kinds.number(0, 65_535), "The port to listen on; 0: a free one.")
    public_url: str | None = key(
        None,
        kinds.optional(kinds.web_address),
        "The URL of the dashboard: alerts link to it, and a proxy may pass its path on. Null: the listening address,"
        " if it is one.",
    )
    allowed_hosts: tuple[str, ...] = key(
        (),
        kinds.host_names,
        "Host names that callers may use where no token is required, besides `localhost`, addresses and the hosts of"
        ' `public_url` and `callback.base_url`. `["*"]` accepts any name, and lets any web page in by DNS rebinding.',
    )
    trusted_proxies: tuple[str, ...] = key(
        (),
        kinds.networks,
        "Addresses and networks of reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted.",
    )
    allowed_callers: tuple[str, ...] = key(
        (),
        kinds.networks,
        "Addresses and networks that requests may come from, including probes and workers; others get 403. Behind a"
        " proxy of `trusted_proxies`, the address of the proxy's caller counts. Empty: anywhere.",
    )
    environment: str | None = key(
        None,
        kinds.optional(kinds.text),
        "The name of this installation, such as prod or staging, shown as a badge on every page of the dashboard."
        " Null: no badge.",
    )
    legacy_api: bool = key(
        False,
        kinds.boolean,
        "Whether `/legacy/api/v1` serves the API of the cronjob service that tasks were imported from: its names,"
        " bare lists and task IDs.",
    )
    graceful_timeout: float = key(10.0, kinds.duration(0), "On shutdown: how long running work may continue.")
    body_timeout: float = key(
        20.0,
        kinds.duration(0.1, 3_600),
        "How long a request's body may take to arrive, and a response to be read, plus a second for each `least_rate`"
        " bytes transferred. Slower connections are closed.",
    )
    least_rate: int = key(
        16_384, kinds.number(1, 1_073_741_824), "Bytes that give a body or a response another second."
    )
    max_connections_per_peer: int | None = key(
        None,
        kinds.optional(kinds.number(1, 1_000_000)),
        "Connections of one address, or one IPv6 /64, at once; beyond that, only probes and reports of workers are"
        " accepted. Null: half of all accepted connections, and no limit for this machine and `trusted_proxies`.",
    )
    max_bodies_bytes: int = key(
        128 * MIB,
        kinds.number(MIB, 1_099_511_627_776),
        "Bytes of request bodies in memory at once, besides the first 64 KiB of each; beyond that, requests get 503.",
    )


class StoreSettings(Section, path="store"):
    url: str = key("sqlite:///noonbell.db", kinds.store_address, "The store.")
    pool_size: int = key(8, kinds.number(1, 1_000), "Connections to PostgreSQL or MySQL, at most.")
    schema: str | None = key(
        None,
        kinds.optional(kinds.sql_name(63)),
        "PostgreSQL: the schema that the tables are in; created if it is missing. Null: the connection's own.",
    )
    table_prefix: str | None = key(
        None,
        kinds.optional(kinds.sql_name(30)),
        "Prefix of the names of all tables and indexes, to share a database with other systems. Null: no prefix.",
    )
    pooler: str = key(
        "none",
        kinds.choice("none", "transaction"),
        "PostgreSQL: transaction, if the address is that of a pooler such as PgBouncer in transaction mode.",
    )
    network_disk: bool = key(
        False,
        kinds.boolean,
        "SQLite: allow a network file system (NFS, SMB), where locks of other hosts may not be visible. Use it only"
        " if a single host opens the file.",
    )

    def contradictions(self) -> Mapping[str, str]:
        if self.pooler != "none" and not self.url.startswith(("postgresql:", "postgres:")):
            return {"pooler": f"is {self.pooler!r}, but the store is not on PostgreSQL"}
        if self.schema is not None and not self.url.startswith(("postgresql:", "postgres:")):
            return {"schema": f"is {self.schema!r}, but only PostgreSQL has schemas; use store.table_prefix"}
        return {}


class WakeupSettings(Section, path="wakeup"):
    url: str | None = key(
        None,
        kinds.optional(kinds.wakeup_address),
        "A Redis through which nodes wake each other, for any store; or the direct address of the PostgreSQL behind"
        " the pooler in store.url. Null: what the store itself provides.",
    )


class ClusterSettings(Section, path="cluster"):
    advertise: str | None = key(
        None,
        kinds.optional(kinds.udp_address),
        "On MySQL and MariaDB without `wakeup.url`: the UDP address at which other hosts can wake this one. Without a"
        " port, each process uses a free one. Null: only processes on the same host wake each other; others poll.",
    )


class EventSettings(Section, path="events"):
    retention: float = key(
        90_000.0, kinds.duration(86_400.0), "How far back listeners can resume; older events are removed."
    )


class SubscriptionSettings(Section, path="subscriptions"):
    timeout: float = key(10.0, kinds.duration(0.1, 300), "How long a receiver of events may take to respond.")
    retry_window: float = key(
        86_400.0, kinds.duration(1), "How long a delivery may fail before its subscription is disabled, with an alert."
    )
    first_pause: float = key(5.0, kinds.duration(0.01, 3_600), "The delay after a first failure; it then doubles.")
    longest_pause: float = key(
        600.0, kinds.duration(0.01, 86_400), "The longest delay between two attempts of a delivery."
    )
    keep: float = key(
        604_800.0, kinds.duration(60), "How long deliveries are kept; at most the newest 10,000 of each subscription."
    )


class SchedulerSettings(Section, path="scheduler"):
    enabled: bool = key(True, kinds.boolean, "Whether this node plans: turns slots into runs.")
    poll_interval: float = key(1.0, kinds.duration(0.01, 3_600), "The longest that planning waits without a wake-up.")
    batch_limit: int = key(500, kinds.number(1, 100_000), "Most tasks planned in one transaction.")
    max_catchup: int = key(
        100, kinds.number(1, 1_000_000), "With FIRE_NOW: most late slots of one task that become runs."
    )
    misfire_on_start: str = key(
        "policy",
        kinds.choice("policy", "skip"),
        "Slots missed during downtime: `policy` applies each task's misfire policy, `skip` drops them.",
    )
    enable_seconds_field: bool = key(True, kinds.boolean, "Whether cron expressions may have six fields.")
    cron_dialect: str = key(
        "standard",
        kinds.choice("standard", "cronjob", "quartz"),
        "How a cron expression without a dialect is read when it is saved; stored expressions keep their own.",
    )
    ahead_seconds: float = key(
        0.0, kinds.duration(0), "Accepted for old configurations; has no effect, since nothing is planned ahead."
    )


class RetrySettings(Section, path="executor.default_retry"):
    """What an HTTP task's `retry_policy` is where the task leaves it out; null leaves the built-in default."""

    max_retries: int | None = key(None, kinds.optional(kinds.number(0, 1_000)), "Attempts after the first.")
    strategy: str | None = key(
        None, kinds.optional(kinds.choice("fixed", "exponential")), "How the delay grows from retry to retry."
    )
    initial_delay: float | None = key(None, kinds.optional(kinds.duration(0)), "The first delay.")
    max_delay: float | None = key(None, kinds.optional(kinds.duration(0)), "The longest delay.")
    jitter: float | None = key(
        None, kinds.optional(kinds.fraction(0, 1)), "Random spread of the delay, as a fraction of it."
    )
    retry_on: tuple[str, ...] | None = key(
        None,
        kinds.optional(kinds.words("network", "timeout", "5xx", "429", "error", "callback_failed", "callback_timeout")),
        "Which failures are retried.",
    )
    local: bool | None = key(
        None, kinds.optional(kinds.boolean), "Whether the worker that holds the run retries it itself."
    )

    def given(self) -> dict[str, Any]:
        """The fields that are set, under the names of a task's `retry_policy`."""
        return {
            item.name: value for item in dataclasses.fields(self) if (value := getattr(self, item.name)) is not None
        }


class ExecutorSettings(Section, path="executor"):
    worker_pool_size: int = key(16, kinds.number(1, 10_000), "HTTP runs that this node executes at once.")
    request_timeout: float | None = key(
        None,
        kinds.optional(kinds.duration(0.001)),
        "Timeout of HTTP tasks that set none (10s if this is null). Never a cap.",
    )
    connect_timeout: float = key(5.0, kinds.duration(0.001), "How long a connection to a target may take.")
    max_body_bytes: int = key(
        8 * MIB,
        kinds.number(0, 1024 * MIB),
        "How much of a request or response body is kept; truncated bodies are marked.",
    )
    default_retry: RetrySettings = field(default_factory=RetrySettings)
    global_headers: Mapping[str, str] = key(
        {}, kinds.headers, "Headers sent with every HTTP run; a task's own headers take precedence."
    )
    services: Mapping[str, str] = key(
        {},
        kinds.services,
        "Services to call by a name: `service://NAME/PATH` in a task or a call stands for PATH at that service's"
        " address. All nodes need the same.",
    )
    call_secret: str | None = key(
        None,
        kinds.optional(kinds.text),
        "Signs calls without a task, and the requests that report their outcomes, as Standard Webhooks specifies."
        " Null: they are not signed.",
    )
    allow_networks: tuple[str, ...] = key(
        (), kinds.networks, "Networks that targets may be in although they would be denied otherwise."
    )
    deny_networks: tuple[str, ...] = key(
        (), kinds.networks, "Networks that targets may not be in. Link-local and cloud metadata are always denied."
    )


class CallbackSettings(Section, path="callback"):
    base_url: str | None = key(
        None,
        kinds.optional(kinds.web_address),
        f"The URL at which targets reach this service. Without a path, `{CALLBACK_PATH}` is added. Null: the"
        " listening address.",
    )
    token_ttl: float = key(
        3_600.0,
        kinds.duration(1),
        "How long a callback token stays valid after its attempt; until the attempt ends, it is always valid.",
    )
    allow_id_mode: bool = key(
        True, kinds.boolean, "Whether callbacks may identify the run by task ID and run ID instead of a token."
    )
    require_signature: bool = key(
        False,
        kinds.boolean,
        "Whether callbacks for a task with a secret must be signed with it. A wrong signature is always rejected.",
    )


class RecoverySettings(Section, path="recovery"):
    orphaned_runs: str = key(
        "retry", kinds.choice("retry", "fail"), "What happens to a lost run if its task sets no `on_lost`."
    )


class JobSettings(Section, path="jobs"):
    enabled: bool = key(
        False,
        kinds.boolean,
        "Whether the jobs that `jobs.jobs` declares are enabled; if not, they are paused. Other jobs run either way.",
    )
    worker_concurrency: int = key(
        4, kinds.number(0, 10_000), "Jobs that this node executes at once; 0: none, which requires `enabled` to be off."
    )
    worker_labels: Mapping[str, str] = key(
        {}, kinds.labels, "Labels of the workers of this process, for `worker_labels` of tasks."
    )
    commands_file: str | None = key(
        None,
        kinds.optional(kinds.text),
        "File of the programs that the job worker of `noonbell serve` may run for COMMAND tasks. Null: it runs none.",
    )
    poll_interval: float = key(
        1.0, kinds.duration(0.01, 3_600), "The longest that the worker waits for jobs without a wake-up."
    )
    job_timeout: float = key(300.0, kinds.duration(0.001), "Timeout of jobs that set none.")
    max_retries: int = key(3, kinds.number(0, 1_000), "Retries of jobs that set none.")
    retry_delay: float = key(
        60.0, kinds.duration(0), "Delay between retries of jobs of `/api/jobs` and `jobs.jobs` that set none."
    )
    history_retention_days: int = key(
        30,
        kinds.number(0, 36_500),
        "Runs that ended longer ago are removed, once a day, unless their task sets `meta.retention_days`.",
    )
    jobs: tuple[Mapping[str, Any], ...] = key(
        (),
        kinds.mappings,
        "Jobs declared here: `job_name`, `job_type`, `cron`, `allow_concurrent`, `max_concurrent` and so on.",
    )

    def contradictions(self) -> Mapping[str, str]:
        if self.enabled and self.worker_concurrency == 0:
            return {"worker_concurrency": "is 0 while jobs.enabled is true; expected 1 or more, or jobs.enabled: false"}
        if self.commands_file is not None and self.worker_concurrency == 0:
            return {"commands_file": "is set while jobs.worker_concurrency is 0: no worker would run a command"}
        return {}


class PlanSettings(Section, path="plans"):
    exec_timeout: float = key(300.0, kinds.duration(0.001), "Timeout of a plan's runs.")


class MetricsSettings(Section, path="metrics"):
    enabled: bool = key(True, kinds.boolean, "Whether `/metrics` is served.")
    task_id_label: bool = key(
        True, kinds.boolean, "Whether there are series per task. Turn it off for large numbers of tasks."
    )
    task_id_limit: int = key(
        200, kinds.number(1, 100_000), 'Most tasks with their own series; the rest share `task_id="other"`.'
    )


class LoggingSettings(Section, path="logging"):
    level: str = key("info", kinds.choice("debug", "info", "warning", "error"), "The lowest level that is written.")
    json: bool = key(False, kinds.boolean, "One JSON object per line instead of readable text.")


_OIDC_ROLES = ("viewer", "operator", "admin")


class OidcSettings(Section, path="auth.oidc"):
    issuer: str | None = key(
        None,
        kinds.optional(kinds.web_address),
        "The issuer URL of the OpenID provider that people sign in with. Null: they sign in with a token. Requires"
        " `noonbell[oidc]`; the redirect URL is `server.public_url` followed by `/oidc-callback`.",
    )
    client_id: str | None = key(None, kinds.optional(kinds.text), "The client ID of this installation at the provider.")
    client_secret: str | None = key(
        None, kinds.optional(kinds.text), "The secret of that client; null for a public client, which uses PKCE only."
    )
    scopes: str = key("openid profile email", kinds.text, "The scopes to request, including `openid`.")
    role_claim: str = key(
        "roles",
        kinds.text,
        "The claim of the ID token that determines the role; dots reach into objects: `realm_access.roles`.",
    )
    roles: Mapping[str, Any] = key(
        {},
        kinds.mapping,
        "Maps values of that claim to viewer, operator or admin; the highest counts, and users without one get 403.",
    )
    name_claim: str = key(
        "email", kinds.text, "The claim that the audit log shows as the user; `sub` if it is missing."
    )

    def contradictions(self) -> Mapping[str, str]:
        if self.issuer is None:
            return {}
        found = {}
        if self.client_id is None:
            found["client_id"] = "is missing; the provider assigns one to each client"
        if not self.roles:
            found["roles"] = (
                "is empty, so no user would have a role; map values of role_claim to viewer, operator or admin"
            )
        wrong = [value for value in self.roles.values() if value not in _OIDC_ROLES]
        if wrong:
            found["roles"] = f"maps to {str(wrong[0])[:40]!r}; expected {', '.join(_OIDC_ROLES)}"
        if "openid" not in self.scopes.split():
            found["scopes"] = "lacks openid, without which there is no ID token"
        return found


class AuthSettings(Section, path="auth"):
    enabled: bool | None = key(
        None, kinds.switch, "Whether the API requires a token. auto: not on loopback, but anywhere else."
    )
    session_key: str | None = key(
        None,
        kinds.optional(kinds.text),
        "Signs the dashboard's sessions; the same on all nodes, at least 32 random characters. Null: generated at"
        " each start.",
    )
    calls_per_minute: int | None = key(
        None,
        kinds.optional(kinds.number(1, 1_000_000)),
        "Calls per minute that one token may make at one node, including pages of its sessions; more get 429."
        " Workers' reports about their runs are not counted. Null: no limit.",
    )
    oidc: OidcSettings = field(default_factory=OidcSettings)

    def contradictions(self) -> Mapping[str, str]:
        if self.session_key is not None and len(self.session_key) < 32:
            return {"session_key": "is too short for signing; take 32 random characters or more"}
        return {}


class SecretSettings(Section, path="secrets"):
    key_file: str | None = key(
        None,
        kinds.optional(kinds.text),
        "A file of keys that encrypt secrets in the store and sign the audit log, one ID:BASE64 per line; the first"
        " is used for new ones. Null: not encrypted, not signed.",
    )


@dataclass(frozen=True)
class DeclaredTask:
    """A task as a file declares it, not looked into yet."""

    file: str
    """The file's name, for `managed_by: file:NAME`."""
    fields: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Settings:
    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    wakeup: WakeupSettings = field(default_factory=WakeupSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    events: EventSettings = field(default_factory=EventSettings)
    subscriptions: SubscriptionSettings = field(default_factory=SubscriptionSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)
    callback: CallbackSettings = field(default_factory=CallbackSettings)
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    plans: PlanSettings = field(default_factory=PlanSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    secrets: SecretSettings = field(default_factory=SecretSettings)
    alerts: Mapping[str, Any] = key({}, kinds.mapping, "Alert rules and channels.")
    sla: Mapping[str, Any] = key(
        {}, kinds.mapping, "Service levels by label, `NAME=VALUE`, for tasks without their own."
    )
    tasks: tuple[DeclaredTask, ...] = ()
    """In the order of the files; of two with the same name, the later one."""
    jobs_from: str = "settings"
    """The name of the file that declares `jobs.jobs`: theirs is `managed_by: file:NAME`."""

    def callback_url(self, port: int | None = None) -> str:
        """What a callback token is appended to, after a slash. `port`: the one that is really listened on."""
        if self.callback.base_url is not None:
            has_path = "/" in self.callback.base_url.split("://", 1)[1]
            return self.callback.base_url if has_path else self.callback.base_url + CALLBACK_PATH
        host = _EVERYWHERE.get(self.server.host, self.server.host)
        return _origin(host, self.server.port if port is None else port) + CALLBACK_PATH

    def dashboard_url(self, port: int | None) -> str | None:
        """Where people find the dashboard, without a slash at its end; None where no setting says it.

        `port`: the one that is really listened on, None for none. Who listens on every address has none that a phone
        could be sent to.
        """
        if self.server.public_url is not None:
            return self.server.public_url.rstrip("/")
        return None if port is None or self.server.host in _EVERYWHERE else _origin(self.server.host, port)


def _origin(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True, slots=True)
class SettingKey:
    """A setting, as the tables of help, reference and loading know it."""

    path: str
    kind: SettingKind
    means: str
    default: Any


def keys() -> Iterator[SettingKey]:
    """Every key there is, in the order of this file."""
    yield from _keys_of(Settings(), "")


def _keys_of(section: Any, prefix: str) -> Iterator[SettingKey]:
    for item in dataclasses.fields(section):
        value = getattr(section, item.name)
        if dataclasses.is_dataclass(value):
            yield from _keys_of(value, f"{prefix}{item.name}.")
        elif "kind" in item.metadata:
            yield SettingKey(f"{prefix}{item.name}", item.metadata["kind"], item.metadata["means"], value)


def _sections_of(parent: Settings | Section) -> Iterator[Section]:
    for item in dataclasses.fields(parent):
        if isinstance(section := getattr(parent, item.name), Section):
            yield section
            yield from _sections_of(section)


SECTIONS: Mapping[str, type[Section]] = {section.path: type(section) for section in _sections_of(Settings())}
