"""What a task calls: the fields of every kind of target, and for each kind which of them its tasks have, where its runs wait,
and what they have by default.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Final

import msgspec

from noonbell.fields import meta as described
from noonbell.model.broker import AmqpMessage, Headers, MqttMessage, NatsMessage, RedisMessage
from noonbell.model.grpc_call import GrpcCall
from noonbell.model.task_schedule import YEAR, ScheduledTask

HTTP_QUEUE = "http"
"""Runs with an HTTP target live here; only built-in workers claim from it."""


class ExecType(enum.StrEnum):
    SYNC = "SYNC"
    ASYNC = "ASYNC"
    JOB = "JOB"
    FLOW = "FLOW"
    COMMAND = "COMMAND"
    AMQP = "AMQP"
    NATS = "NATS"
    REDIS = "REDIS"
    MQTT = "MQTT"
    GRPC = "GRPC"


class Method(enum.StrEnum):
    """Of a request to a target."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    HEAD = "HEAD"
    OPTIONS = "OPTIONS"


CALLBACK_METHODS = (Method.POST, Method.PUT, Method.PATCH)


class TargetedTask(ScheduledTask, frozen=True, kw_only=True):
    """The fields of `TaskSpec` that say what is called; and those of a task that has a name and a schedule."""

    exec_type: Annotated[
        ExecType,
        described(
            "SYNC: the response is the result. ASYNC: a callback is the result. JOB: a handler in a worker. FLOW: steps. COMMAND: a"
            " program. AMQP, NATS, REDIS, MQTT: a message to a broker. GRPC: a gRPC method. Default JOB with a `job_type`, FLOW with"
            " `steps`, that of a command, a broker or gRPC with its field, else SYNC.",
            default=None,
        ),
    ] = ExecType.SYNC
    http_method: Annotated[str, described("Method of the request.", choices=tuple(Method))] = "GET"
    target_url: Annotated[
        str | None,
        described(
            "An http or https URL, or service://NAME/PATH with a name of `executor.services`; placeholders allowed, but not in the name.",
            max_length=4_096,
            examples=["http://svc.internal/api/sync"],
        ),
    ] = None
    headers: Annotated[
        Headers,
        described(
            "Sent with the request; placeholders allowed in values. All but harmless ones are masked in responses.",
            examples=[{"Content-Type": "application/json"}],
        ),
    ] = msgspec.field(default_factory=dict)
    body_template: Annotated[
        str | None, described("The body; {{placeholders}} are filled in.", max_length=1_048_576, lines=True)
    ] = None
    follow_redirects: Annotated[bool, described("Whether a redirect is followed.")] = False
    secret: Annotated[
        str | None,
        described(
            "Signs the requests as Standard Webhooks specifies. Masked in responses.", min_length=1, max_length=1_024
        ),
    ] = None
    callback_method: Annotated[str, described("How the target calls back.", choices=CALLBACK_METHODS)] = "POST"
    callback_timeout_sec: Annotated[int, described("ASYNC: how long to wait for the callback.", ge=1, le=YEAR)] = 300
    cancel_url: Annotated[
        str | None,
        described(
            "Called with the run's ids and the reason when a run is canceled while an attempt is running or a callback is awaited."
            " A URL as `target_url`, without placeholders.",
            max_length=4_096,
            examples=["http://svc.internal/api/stop"],
        ),
    ] = None
    job_type: Annotated[str | None, described("JOB: the name of the handler.", min_length=1, examples=["resize"])] = (
        None
    )
    payload: Annotated[
        Any,
        described(
            "Any JSON: a job's arguments, {{payload.x}} of an HTTP call, the stdin of a command, or"
            " the message to a broker or of a gRPC call."
        ),
    ] = None
    amqp: Annotated[AmqpMessage | None, described("AMQP: the message, and where RabbitMQ is.")] = None
    nats: Annotated[NatsMessage | None, described("NATS: the message, and where the server is.")] = None
    redis: Annotated[RedisMessage | None, described("REDIS: the message, and where the server is.")] = None
    mqtt: Annotated[MqttMessage | None, described("MQTT: the message, and where the broker is.")] = None
    grpc: Annotated[GrpcCall | None, described("GRPC: the unary method to call with the payload.")] = None
    queue: Annotated[
        str,
        described('JOB and COMMAND: the queue of its runs. Default "default"; HTTP targets use "http".', default=None),
    ] = ""

    command: Annotated[
        Any,
        described(
            "COMMAND: the absolute path of the program and its arguments, as a list of strings; with `shell`, one string.",
            examples=[["/usr/local/bin/backup", "--all"]],
        ),
    ] = None
    shell: Annotated[bool, described("COMMAND: `command` is a string for /bin/sh.")] = False
    env: Annotated[
        dict[str, Annotated[str, described(anything=True, max_length=32_768)]],
        described(
            "COMMAND: environment variables, in addition to PATH, LANG, HOME, USER and NOONBELL_…. All but harmless ones are masked in responses.",
            max_length=200,
            expected="an object of at most 200 variables",
            examples=[{"TZ": "Asia/Shanghai"}],
        ),
    ] = msgspec.field(default_factory=dict)
    cwd: Annotated[
        str | None,
        described(
            "COMMAND: the directory that it runs in, an absolute path. Default `/`.",
            min_length=1,
            max_length=4_096,
            examples=[None],
        ),
    ] = None
    user: Annotated[
        str | None,
        described(
            "COMMAND: the user that it runs as, if the worker is root and its file allows that user.",
            min_length=1,
            max_length=64,
            examples=[None],
        ),
    ] = None
    ok_codes: Annotated[
        tuple[Annotated[int, described(ge=0, le=255)], ...],
        described("COMMAND: the exit codes that count as success.", min_length=1, max_length=256),
    ] = (0,)


class TargetKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of target, as far as tasks and services know it. What carries its runs out is made by `targets.MAKERS`."""

    name: str
    exec_types: tuple[ExecType, ...]
    """Those of its tasks, the default first."""
    named_by: str
    """The field that says what is called: a task with it and without an `exec_type` is of this kind."""
    fields: Mapping[str, Any]
    """Fields that tasks of other kinds cannot have, each with its default."""
    queue: str
    """Where its runs wait, unless a task names another queue."""
    has_own_queue: bool = False
    """Only workers of the server claim from `queue`: no task names another one, and no other kind's task names this one."""
    timeout_seconds: float = 10
    max_retries: int = 0
    max_concurrency: int | None = 1
    takes_overrides: bool = False
    """A run may bring a body of its own, or ask for a callback."""
    is_message: bool = False
    """A run is a message that a handler processes; else it is a call of a server."""
    kill_point: str
    """The failpoint between the end of an attempt and its settlement."""
    claimed_as: str | None = None
    """The job type that its runs wait under: only a worker that names it claims them. None: that of the task, if it has one."""
    client: str | None = None
    """The module that its target cannot do without, where an installation may lack it."""
    extra: str | None = None
    """What brings it: `pip install 'noonbell[EXTRA]'`."""
    shared_fields: tuple[str, ...] = ()
    """Fields of another kind that its tasks have as well."""
    not_for_others: str = "is for tasks of exec_type {kind}, and this one is {exec_type}; leave one of the two out"
    """What is wrong with a field of its own in a task of another kind."""

    def lacks_client(self) -> bool:
        """Whether its runs cannot be carried out by this installation."""
        return self.client is not None and find_spec(self.client) is None

    @property
    def how_to_install(self) -> str:
        return f"pip install 'noonbell[{self.extra}]'"


_PLAIN: Final = TargetedTask(name="")


def _with_defaults(*names: str) -> dict[str, Any]:
    return {name: getattr(_PLAIN, name) for name in names}


COMMAND_TYPE: Final = "noonbell.command"
"""What a worker advertises that carries out commands: its own file of allowed programs made it so."""

HTTP: Final = TargetKind(
    name="HTTP",
    exec_types=(ExecType.SYNC, ExecType.ASYNC),
    named_by="target_url",
    fields=_with_defaults(
        "http_method",
        "target_url",
        "headers",
        "body_template",
        "follow_redirects",
        "secret",
        "callback_method",
        "callback_timeout_sec",
        "cancel_url",
    ),
    not_for_others="is for HTTP targets, and this task is a {exec_type}; leave it out",
    queue=HTTP_QUEUE,
    has_own_queue=True,
    takes_overrides=True,
    kill_point="K6",
)
JOBS: Final = TargetKind(
    name="JOB",
    exec_types=(ExecType.JOB,),
    named_by="job_type",
    fields=_with_defaults("job_type"),
    queue="default",
    timeout_seconds=300,
    max_retries=3,
    max_concurrency=None,
    is_message=True,
    kill_point="K12",
)
FLOWS: Final = TargetKind(
    name="FLOW",
    exec_types=(ExecType.FLOW,),
    named_by="steps",
    fields={"steps": ()},
    queue=HTTP_QUEUE,
    timeout_seconds=0,
    kill_point="K16",
)
"""No target carries out its runs: the claim of a run starts the first steps, and the end of each step the next ones. So any
worker of its queue can start it."""
COMMANDS: Final = TargetKind(
    name="COMMAND",
    exec_types=(ExecType.COMMAND,),
    named_by="command",
    fields=_with_defaults("command", "shell", "env", "cwd", "user", "ok_codes"),
    queue="default",
    timeout_seconds=3_600,
    kill_point="K30",
    claimed_as=COMMAND_TYPE,
)


def _broker(exec_type: ExecType, client: str) -> TargetKind:
    name = exec_type.value
    return TargetKind(
        name=name,
        exec_types=(exec_type,),
        named_by=name.lower(),
        fields=_with_defaults(name.lower()),
        queue=f"target:{name.lower()}",
        has_own_queue=True,
        max_retries=3,
        max_concurrency=None,
        takes_overrides=True,
        kill_point="K33",
        client=client,
        extra=name.lower(),
    )


AMQP: Final = _broker(ExecType.AMQP, "aiormq")
NATS: Final = _broker(ExecType.NATS, "nats")
REDIS: Final = _broker(ExecType.REDIS, "redis")
MQTT: Final = _broker(ExecType.MQTT, "aiomqtt")
BROKERS: Final = (AMQP, NATS, REDIS, MQTT)
"""A run publishes a message. Their queues have names that no queue of jobs is likely to have already."""
MESSAGE_FIELDS: Final = tuple(kind.named_by for kind in BROKERS)
GRPC: Final = TargetKind(
    name="GRPC",
    exec_types=(ExecType.GRPC,),
    named_by="grpc",
    fields=_with_defaults("grpc"),
    queue="target:grpc",
    has_own_queue=True,
    kill_point="K6",
    shared_fields=("callback_timeout_sec",),
    client="grpc_reflection",
    extra="grpc",
)
TARGET_KINDS: Final = (JOBS, FLOWS, COMMANDS, *BROKERS, GRPC, HTTP)
"""The first whose `named_by` a task has is its kind; the last where it has none."""

OWN_QUEUES: Final = {kind.queue: kind for kind in TARGET_KINDS if kind.has_own_queue}
"""The queues that only workers of the server claim from, each with its kind."""

KIND_OF: Final = {exec_type: kind for kind in TARGET_KINDS for exec_type in kind.exec_types}


_NAMES: Final = (str, list, tuple, Mapping, msgspec.Struct)


def target_kind(exec_type: object, given: Mapping[str, Any]) -> TargetKind:
    """The kind of a task's target: by its `exec_type`; without one, by what it names. An unknown exec_type counts as none."""
    if isinstance(exec_type, str) and exec_type in KIND_OF:
        return KIND_OF[ExecType(exec_type)]
    found = (kind for kind in TARGET_KINDS if given.get(kind.named_by) and isinstance(given[kind.named_by], _NAMES))
    return next(found, TARGET_KINDS[-1])
