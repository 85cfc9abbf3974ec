"""A gRPC server to call, with reflection. Its messages are made from descriptors at run time, so that no generated code is needed.

`python -m services.grpc_bell PORT [KEY CERT]` serves it from a process of its own, which a test can kill.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection

SERVICE = "bell.v1.Bell"
_TYPE = descriptor_pb2.FieldDescriptorProto


def _field(name: str, number: int, kind: int, type_name: str | None = None, *, repeated: bool = False) -> _TYPE:
    label = _TYPE.LABEL_REPEATED if repeated else _TYPE.LABEL_OPTIONAL
    return _TYPE(name=name, number=number, type=kind, label=label, type_name=type_name)  # type: ignore[arg-type]


def _message(name: str, *fields: _TYPE) -> descriptor_pb2.DescriptorProto:
    return descriptor_pb2.DescriptorProto(name=name, field=fields)


def _method(name: str, *, asks: bool = False, answers: bool = False) -> descriptor_pb2.MethodDescriptorProto:
    return descriptor_pb2.MethodDescriptorProto(
        name=name,
        input_type=".bell.v1.Ring",
        output_type=".bell.v1.Sound",
        client_streaming=asks,
        server_streaming=answers,
    )


UNARY = ("Echo", "Succeeds", "Fails", "Hangs", "Ends", "Large", "Leaks", "Dies")

MESSAGES = descriptor_pb2.FileDescriptorProto(
    name="bell/v1/messages.proto",
    package="bell.v1",
    syntax="proto3",
    dependency=["google/protobuf/timestamp.proto"],
    message_type=[
        _message(
            "Ring",
            _field("name", 1, _TYPE.TYPE_STRING),
            _field("times", 2, _TYPE.TYPE_INT64),
            _field("at", 3, _TYPE.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            _field("labels", 4, _TYPE.TYPE_STRING, repeated=True),
            _field("raw_bytes", 5, _TYPE.TYPE_BYTES),
        ),
        _message(
            "Sound",
            _field("name", 1, _TYPE.TYPE_STRING),
            _field("times", 2, _TYPE.TYPE_INT64),
            _field("at", 3, _TYPE.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            _field("metadata", 4, _TYPE.TYPE_STRING, repeated=True),
            _field("deadline_seconds", 5, _TYPE.TYPE_DOUBLE),
            _field("peer", 6, _TYPE.TYPE_STRING),
        ),
    ],
)
METHODS = descriptor_pb2.FileDescriptorProto(
    name="bell/v1/bell.proto",
    package="bell.v1",
    syntax="proto3",
    dependency=[MESSAGES.name],
    service=[
        descriptor_pb2.ServiceDescriptorProto(
            name="Bell",
            method=[
                *(_method(name) for name in UNARY),
                _method("Watch", answers=True),
                _method("Collect", asks=True),
            ],
        )
    ],
)


def descriptor_set(*, whole: bool = True) -> str:
    """In base64. Not `whole`: without the file that the service's own imports."""
    files = [MESSAGES, METHODS] if whole else [METHODS]
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()).decode()


def pool_with(*files: descriptor_pb2.FileDescriptorProto) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    for file in (known, *files):
        pool.Add(file)
    return pool


class Bell:
    """The service. What it was called with is in `calls`, as (method, metadata, request)."""

    def __init__(
        self, *files: descriptor_pb2.FileDescriptorProto, reflects: bool = True, service: str = SERVICE
    ) -> None:
        self.pool = pool_with(*(files or (MESSAGES, METHODS)))
        self.service, self._reflects = service, reflects
        self.ring = GetMessageClass(self.pool.FindMessageTypeByName("bell.v1.Ring"))
        self.sound = GetMessageClass(self.pool.FindMessageTypeByName("bell.v1.Sound"))
        self.calls: list[tuple[str, dict[str, str | bytes], Any]] = []
        self.reached, self.released = asyncio.Event(), asyncio.Event()
        self.server: grpc.aio.Server | None = None
        self.port = 0

    async def start(
        self, port: int = 0, keys: tuple[bytes, bytes] | None = None, host: str = "127.0.0.1", ca: bytes | None = None
    ) -> None:
        """`keys`: the private key and the certificates, as PEM. `ca`: the caller must have a certificate of it."""
        server = self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        found = self.pool.FindServiceByName(self.service)
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._handler(name), self.ring.FromString, self.sound.SerializeToString
            )
            for name in found.methods_by_name
            if hasattr(self, f"_{name.lower()}")
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self.service, handlers),))
        if self._reflects:
            reflection.enable_server_reflection((self.service,), server, pool=self.pool)
        if keys is None:
            self.port = server.add_insecure_port(f"{host}:{port}")
        else:
            credentials = grpc.ssl_server_credentials([keys], ca, ca is not None)
            self.port = server.add_secure_port(f"{host}:{port}", credentials)
        await server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(None)
            self.server = None

    async def __aenter__(self) -> Self:
        if self.server is None:
            await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    def _handler(self, name: str) -> Any:
        work = getattr(self, f"_{name.lower()}")

        async def handle(asked: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            self.calls.append((name, dict(context.invocation_metadata() or ()), asked))  # type: ignore[arg-type]
            return await work(asked, context)

        return handle

    async def _succeeds(self, _asked: Any, _context: Any) -> Any:
        return self.sound(name="ding")

    async def _echo(self, asked: Any, context: Any) -> Any:
        told = [f"{name}={value}" for name, value in context.invocation_metadata()]
        answer = self.sound(
            name=asked.name,
            times=asked.times,
            metadata=sorted(told),
            deadline_seconds=context.time_remaining() or 0,
            peer=context.peer(),
        )
        if asked.HasField("at"):
            answer.at.CopyFrom(asked.at)
        await context.send_initial_metadata((("x-first", "1"),))
        context.set_trailing_metadata((("x-api-token", "trailing-secret"), ("x-request-id", "77")))
        return answer

    async def _fails(self, _asked: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the bell is cracked")

    async def _hangs(self, _asked: Any, _context: Any) -> Any:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.released.set()

    async def _ends(self, asked: Any, context: Any) -> Any:
        """With the status that the request names."""
        await context.abort(grpc.StatusCode[asked.name], f"it ended as {asked.name}")

    async def _large(self, asked: Any, _context: Any) -> Any:
        return self.sound(name="x" * asked.times)

    async def _leaks(self, _asked: Any, context: Any) -> Any:
        """Repeats everything that it was sent, as careless servers do."""
        told = " ".join(f"{name}={value}" for name, value in context.invocation_metadata())
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"cannot do this with {told}")

    async def _dies(self, asked: Any, _context: Any) -> Any:
        """Without an answer where the request says so; else with one, and then."""
        import os

        if asked.name == "before":
            os._exit(9)
        asyncio.get_running_loop().call_later(0.2, os._exit, 9)
        return self.sound(name="last words")


async def _serve(port: int, keys: tuple[bytes, bytes] | None) -> None:
    bell = Bell()
    await bell.start(port, keys)
    sys.stdout.write(f"{bell.port}\n")
    sys.stdout.flush()
    assert bell.server is not None
    await bell.server.wait_for_termination()


if __name__ == "__main__":
    given = [Path(name).read_bytes() for name in sys.argv[2:]]
    asyncio.run(_serve(int(sys.argv[1]), (given[0], given[1]) if given else None))
