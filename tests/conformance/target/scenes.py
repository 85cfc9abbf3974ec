"""For each kind of target: something real that it calls, which succeeds, fails, hangs or is not there.

A new kind needs a `Scene` and a line in `SCENES`; the suite beside this file then runs on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import redis.asyncio

from integration.targets.sink import Asked, Line, http, listening
from noonbell.errors import Fail
from noonbell.fields import read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.broker import AmqpMessage, MqttMessage, NatsMessage, RedisMessage
from noonbell.model.grpc_call import GrpcCall
from noonbell.model.target_kind import BROKERS, COMMANDS, GRPC, HTTP, JOBS, TargetKind
from noonbell.ports import Store
from noonbell.settings import Settings
from noonbell.targets import OpenableTarget, TargetParts, allowed_commands, make_target
from noonbell.targets.jobs.handler import Context, Handler, HandlerKind, Handlers
from services.brokers import Broker, CutProxy, cut_proxy, new_name
from services.grpc_bell import SERVICE, Bell
from services.ports import reserved_port


class Scene(Protocol):
    target: OpenableTarget
    """Open."""
    reached: asyncio.Event
    """Set when a call has arrived that hangs."""
    released: asyncio.Event
    """Set when a call that hung was let go of."""

    def task(self, way: str) -> dict[str, Any]:
        """The fields of a task whose call `succeeds`, `fails`, `hangs`, or which is `absent`: nothing answers it."""


class HttpScene:
    def __init__(self, target: OpenableTarget, absent: str) -> None:
        self.target, self.url, self._absent = target, "", absent
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    def task(self, way: str) -> dict[str, Any]:
        return {"target_url": self._absent if way == "absent" else f"{self.url}{way}"}

    async def answer(self, asked: Asked, line: Line) -> None:
        if asked.path == "/hangs":
            self.reached.set()
            await line.until_dropped()
            self.released.set()
            return
        await line.say(http(200 if asked.path == "/succeeds" else 500, b"ok"))


@contextlib.asynccontextmanager
async def http_scene(store: Store) -> AsyncIterator[Scene]:
    target = make_target(HTTP, TargetParts(Settings(), store))
    await target.open()
    with reserved_port() as port:
        scene = HttpScene(target, f"http://127.0.0.1:{port}/")
        async with listening(scene.answer) as sink:
            scene.url = sink.url("/")
            try:
                yield scene
            finally:
                await target.close()


class JobScene:
    def __init__(self, store: Store) -> None:
        handlers = Handlers(
            Handler(job_type=name, kind=HandlerKind.ASYNC, call=call, read=lambda payload: payload)
            for name, call in (("succeeds", self._succeed), ("fails", self._fail), ("hangs", self._hang))
        )
        self.target = make_target(JOBS, TargetParts(Settings(), store, handlers=handlers))
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    def task(self, way: str) -> dict[str, Any]:
        return {"job_type": way}

    async def _succeed(self, _context: Context, _payload: Any) -> str:
        return "ok"

    async def _fail(self, _context: Context, _payload: Any) -> None:
        raise Fail("it broke")

    async def _hang(self, _context: Context, _payload: Any) -> None:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.released.set()


@contextlib.asynccontextmanager
async def job_scene(store: Store) -> AsyncIterator[Scene]:
    scene = JobScene(store)
    await scene.target.open()
    try:
        yield scene
    finally:
        await scene.target.close()


_POLL = 0.01


class CommandScene:
    """Programs of this machine, run by the shell; the hanging one tells its process id in a file, and is gone when that is."""

    def __init__(self, store: Store, folder: Path) -> None:
        allowed = folder / "allow.yaml"
        allowed.write_text("programs: [/bin/sh, /nowhere/at/all]\n")
        allowed.chmod(0o600)
        self.target = make_target(COMMANDS, TargetParts(Settings(), store, commands=allowed_commands(str(allowed))))
        self.reached, self.released = asyncio.Event(), asyncio.Event()
        self._told = folder / "pid"

    def task(self, way: str) -> dict[str, Any]:
        if way == "absent":
            return {"command": ["/nowhere/at/all"]}
        said = {"succeeds": "echo ok", "fails": "exit 3", "hangs": f"echo $$ > {self._told}; sleep 1000"}
        return {"command": said[way], "shell": True}

    async def watch(self) -> None:
        while not (self._told.exists() and self._told.read_text().strip()):  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(_POLL)
        self.reached.set()
        pid = int(self._told.read_text())
        while is_running(pid):  # noqa: ASYNC110 - as above
            await asyncio.sleep(_POLL)
        self.released.set()


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.asynccontextmanager
async def command_scene(store: Store) -> AsyncIterator[Scene]:
    with tempfile.TemporaryDirectory() as folder:
        scene = CommandScene(store, Path(folder))
        await scene.target.open()
        watching = asyncio.create_task(scene.watch())
        try:
            yield scene
        finally:
            watching.cancel()
            await scene.target.close()


MESSAGES = {"amqp": AmqpMessage, "nats": NatsMessage, "redis": RedisMessage, "mqtt": MqttMessage}

REFUSED: dict[str, dict[str, Any]] = {
    "amqp": {"exchange": "no-such-exchange"},
    "nats": {"jetstream": True},
    "redis": {"stream": "not-a-stream"},
    "mqtt": {"topic": "$SYS/not-for-clients"},
}
"""What each broker says no to: there is no such exchange, no stream for the subject, another kind of value under the key, and topics
that only the broker publishes to."""


class BrokerScene:
    """A real broker, behind a proxy that holds back the messages which are to hang."""

    def __init__(self, target: OpenableTarget, broker: Broker, proxy: CutProxy, name: str, absent: int) -> None:
        self.target, self._broker, self._name, self._absent = target, broker.at(proxy.port), name, absent
        self.reached, self.released = proxy.reached, proxy.released

    def task(self, way: str) -> dict[str, Any]:
        kind = self._broker.kind
        broker = self._broker.at(self._absent) if way == "absent" else self._broker
        said = broker.message(f"{way}-{self._name}")
        if kind == "amqp":
            said |= {"mandatory": False}
        if way == "fails":
            said |= REFUSED[kind]
        return {kind: message_of(kind, said)}


def message_of(kind: str, said: dict[str, Any]) -> Any:
    problems = Problems()
    made = read_into(MESSAGES[kind], said, ReadContext(problems))
    problems.finish()
    return made


@contextlib.asynccontextmanager
async def broker_scene(kind: TargetKind, store: Store, broker: Broker) -> AsyncIterator[Scene]:
    target = make_target(kind, TargetParts(Settings(), store))
    await target.open()
    name = new_name()
    if broker.kind == "redis":
        await _spoil(broker.url)
    with reserved_port() as absent:
        async with cut_proxy(broker.port, {f"hangs-{name}".encode(): "hold"}) as proxy:
            try:
                yield BrokerScene(target, broker, proxy, name, absent)
            finally:
                await target.close()


class GrpcScene:
    def __init__(self, target: OpenableTarget, bell: Bell, absent: int) -> None:
        self.target, self._bell, self._absent = target, bell, absent
        self.reached, self.released = bell.reached, bell.released

    def task(self, way: str) -> dict[str, Any]:
        if way == "absent":
            return {"grpc": GrpcCall(address=f"127.0.0.1:{self._absent}", method=f"{SERVICE}/Succeeds")}
        return {"grpc": GrpcCall(address=f"127.0.0.1:{self._bell.port}", method=f"{SERVICE}/{way.capitalize()}")}


@contextlib.asynccontextmanager
async def grpc_scene(store: Store) -> AsyncIterator[Scene]:
    target = make_target(GRPC, TargetParts(Settings(), store))
    await target.open()
    with reserved_port() as port:
        async with Bell() as bell:
            try:
                yield GrpcScene(target, bell, port)
            finally:
                await target.close()


async def _spoil(url: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:
        await client.set(REFUSED["redis"]["stream"], "text")


SCENES: dict[str, Callable[..., AbstractAsyncContextManager[Scene]]] = {
    HTTP.name: http_scene,
    JOBS.name: job_scene,
    COMMANDS.name: command_scene,
    GRPC.name: grpc_scene,
    **{kind.name: partial(broker_scene, kind) for kind in BROKERS},
}
"""Those of brokers get the broker, too."""
