"""How runs are carried out. `MAKERS` is the table of targets: for each kind of `model.target_kind.TARGET_KINDS`, what
makes its target.

A target is imported when it is made: the command line and the process of a sandbox start without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from noonbell.model.target_kind import AMQP, COMMANDS, GRPC, HTTP, JOBS, MQTT, NATS, REDIS, TargetKind
from noonbell.ports import Target

if TYPE_CHECKING:
    from noonbell.engine.in_flight import AbandonedThreads
    from noonbell.ports import Store
    from noonbell.settings import Settings
    from noonbell.targets.brokers.amqp import AmqpConnection
    from noonbell.targets.brokers.mqtt import MqttConnection
    from noonbell.targets.brokers.nats import NatsConnection
    from noonbell.targets.brokers.pool import LoadClient
    from noonbell.targets.brokers.redis import RedisConnection
    from noonbell.targets.brokers.target import BrokerTarget
    from noonbell.targets.command.allowed import Allowed
    from noonbell.targets.command.target import CommandTarget
    from noonbell.targets.http.guard import AddressGuard
    from noonbell.targets.http.target import HttpTarget
    from noonbell.targets.jobs.handler import Handlers
    from noonbell.targets.jobs.target import JobTarget


class OpenableTarget(Target, Protocol):
    """With a beginning and an end."""

    async def open(self) -> None:
        """In the event loop that it is used in, before the first attempt."""

    async def close(self) -> None:
        """Release everything. Attempts that are under way fail."""


@dataclass(frozen=True, slots=True)
class TargetParts:
    """What a target is made from."""

    settings: Settings
    store: Store
    own_ports: Collection[int] = field(default=())
    """Where this process listens."""
    handlers: Handlers | None = None
    abandoned: AbandonedThreads | None = None
    commands: Allowed | None = None
    """What the worker's own file allows; None: no command at all."""


def guard_of(settings: Settings) -> AddressGuard:
    """Which addresses may be dialled."""
    from noonbell.targets.http.guard import AddressGuard

    return AddressGuard(settings.executor.allow_networks, settings.executor.deny_networks)


def http_target(settings: Settings, own_ports: Collection[int] = ()) -> HttpTarget:
    from noonbell import sealing
    from noonbell.targets.http.target import HttpTarget

    executor = settings.executor
    return HttpTarget(
        connect_timeout=executor.connect_timeout,
        max_body_bytes=executor.max_body_bytes,
        global_headers=executor.global_headers,
        guard=guard_of(settings),
        sealer=sealing.from_file(settings.secrets.key_file),
        own_ports=own_ports,
        call_secret=executor.call_secret,
        services=executor.services,
    )


def _grpc_target(parts: TargetParts) -> OpenableTarget:
    from noonbell import sealing
    from noonbell.targets.grpc import DeferredGrpcTarget

    executor = parts.settings.executor
    return DeferredGrpcTarget(
        guard=guard_of(parts.settings),
        connect_timeout=executor.connect_timeout,
        max_body_bytes=executor.max_body_bytes,
        sealer=sealing.from_file(parts.settings.secrets.key_file),
    )


def _job_target(parts: TargetParts) -> JobTarget:
    from noonbell.targets.jobs.handler import Handlers
    from noonbell.targets.jobs.target import JobTarget

    return JobTarget(parts.handlers or Handlers(), parts.store, abandoned=parts.abandoned)


def allowed_commands(path: str) -> Allowed:
    """The file that says which programs a worker may run. SettingsError names what is wrong with it."""
    from noonbell.targets.command.allowed import Allowed

    return Allowed.from_file(path)


def _command_target(parts: TargetParts) -> CommandTarget:
    from noonbell import sealing
    from noonbell.targets.command.target import CommandTarget

    if parts.commands is None:
        raise ValueError("a worker without a file of allowed commands cannot run them")
    return CommandTarget(parts.commands, parts.store, sealing.from_file(parts.settings.secrets.key_file))


def broker_target(settings: Settings, client: LoadClient) -> BrokerTarget:
    from noonbell import sealing
    from noonbell.targets.brokers.pool import OTHER_PORTS
    from noonbell.targets.brokers.target import BrokerTarget
    from noonbell.targets.http.guard import AddressGuard

    executor = settings.executor
    return BrokerTarget(
        client,
        guard=AddressGuard(executor.allow_networks, executor.deny_networks, deny_ports=OTHER_PORTS),
        connect_timeout=executor.connect_timeout,
        max_body_bytes=executor.max_body_bytes,
        sealer=sealing.from_file(settings.secrets.key_file),
    )


def _amqp_client() -> type[AmqpConnection]:
    from noonbell.targets.brokers.amqp import AmqpConnection

    return AmqpConnection


def _nats_client() -> type[NatsConnection]:
    from noonbell.targets.brokers.nats import NatsConnection

    return NatsConnection


def _redis_client() -> type[RedisConnection]:
    from noonbell.targets.brokers.redis import RedisConnection

    return RedisConnection


def _mqtt_client() -> type[MqttConnection]:
    from noonbell.targets.brokers.mqtt import MqttConnection

    return MqttConnection


def _of_broker(client: LoadClient) -> Callable[[TargetParts], BrokerTarget]:
    return lambda parts: broker_target(parts.settings, client)


MAKERS: Final[Mapping[str, Callable[[TargetParts], OpenableTarget]]] = {
    HTTP.name: lambda parts: http_target(parts.settings, parts.own_ports),
    JOBS.name: _job_target,
    COMMANDS.name: _command_target,
    AMQP.name: _of_broker(_amqp_client),
    NATS.name: _of_broker(_nats_client),
    REDIS.name: _of_broker(_redis_client),
    MQTT.name: _of_broker(_mqtt_client),
    GRPC.name: _grpc_target,
}


def make_target(kind: TargetKind, parts: TargetParts) -> OpenableTarget:
    """The target of a kind, not opened yet."""
    return MAKERS[kind.name](parts)
