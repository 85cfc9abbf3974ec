"""The kinds of targets: for each, which fields its tasks have, where its runs wait, and what they have by default."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

import msgspec

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


class TargetKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of target, as far as tasks and services know it. What carries its runs out is made by `targets.MAKERS`."""

    name: str
    exec_types: tuple[ExecType, ...]
    """Those of its tasks, the default first."""
    named_by: str
    """The field that says what is called: a task with it and without an `exec_type` is of this kind."""
    fields: Mapping[str, Any]
    """Fields that tasks of other kinds cannot have, each with its default."""
    not_for_others: str
    """What is wrong with such a field in a task of another kind."""
    queue: str
    """Where its runs wait, unless a task names another queue."""
    has_own_queue: bool
    """Only workers of the server claim from `queue`: no task names another one, and no other kind's task names this one."""
    timeout_seconds: float
    max_retries: int
    max_concurrency: int | None
    takes_overrides: bool
    """A run may bring a body of its own, or ask for a callback."""
    is_message: bool
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

    def lacks_client(self) -> bool:
        """Whether its runs cannot be carried out by this installation."""
        return self.client is not None and find_spec(self.client) is None

    @property
    def how_to_install(self) -> str:
        return f"pip install 'noonbell[{self.extra}]'"


COMMAND_TYPE: Final = "noonbell.command"
"""What a worker advertises that carries out commands: its own file of allowed programs made it so."""

HTTP: Final = TargetKind(
    name="HTTP",
    exec_types=(ExecType.SYNC, ExecType.ASYNC),
    named_by="target_url",
    fields={
        "http_method": "GET",
        "target_url": None,
        "headers": {},
        "body_template": None,
        "follow_redirects": False,
        "secret": None,
        "callback_method": "POST",
        "callback_timeout_sec": 300,
        "cancel_url": None,
    },
    not_for_others="is for HTTP targets, and this task is a {exec_type}; leave it out",
    queue=HTTP_QUEUE,
    has_own_queue=True,
    timeout_seconds=10,
    max_retries=0,
    max_concurrency=1,
    takes_overrides=True,
    is_message=False,
    kill_point="K6",
)
JOBS: Final = TargetKind(
    name="JOB",
    exec_types=(ExecType.JOB,),
    named_by="job_type",
    fields={"job_type": None},
    not_for_others="is for tasks of exec_type JOB, and this one is {exec_type}; leave one of the two out",
    queue="default",
    has_own_queue=False,
    timeout_seconds=300,
    max_retries=3,
    max_concurrency=None,
    takes_overrides=False,
    is_message=True,
    kill_point="K12",
)
FLOWS: Final = TargetKind(
    name="FLOW",
    exec_types=(ExecType.FLOW,),
    named_by="steps",
    fields={"steps": ()},
    not_for_others="is for tasks of exec_type FLOW, and this one is {exec_type}; leave one of the two out",
    queue=HTTP_QUEUE,
    has_own_queue=False,
    timeout_seconds=0,
    max_retries=0,
    max_concurrency=1,
    takes_overrides=False,
    is_message=False,
    kill_point="K16",
)
"""No target carries out its runs: the claim of a run starts the first steps, and the end of each step the next ones. So any
worker of its queue can start it."""
COMMANDS: Final = TargetKind(
    name="COMMAND",
    exec_types=(ExecType.COMMAND,),
    named_by="command",
    fields={"command": None, "shell": False, "env": {}, "cwd": None, "user": None, "ok_codes": (0,)},
    not_for_others="is for tasks of exec_type COMMAND, and this one is {exec_type}; leave one of the two out",
    queue="default",
    has_own_queue=False,
    timeout_seconds=3_600,
    max_retries=0,
    max_concurrency=1,
    takes_overrides=False,
    is_message=False,
    kill_point="K30",
    claimed_as=COMMAND_TYPE,
)


def _broker(exec_type: ExecType, client: str) -> TargetKind:
    name = exec_type.value
    return TargetKind(
        name=name,
        exec_types=(exec_type,),
        named_by=name.lower(),
        fields={name.lower(): None},
        not_for_others=f"is for tasks of exec_type {name}, and this one is {{exec_type}}; leave one of the two out",
        queue=f"target:{name.lower()}",
        has_own_queue=True,
        timeout_seconds=10,
        max_retries=3,
        max_concurrency=None,
        takes_overrides=True,
        is_message=False,
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
    fields={"grpc": None},
    not_for_others="is for tasks of exec_type GRPC, and this one is {exec_type}; leave one of the two out",
    queue="target:grpc",
    has_own_queue=True,
    timeout_seconds=10,
    max_retries=0,
    max_concurrency=1,
    takes_overrides=False,
    is_message=False,
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
