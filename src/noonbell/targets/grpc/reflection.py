"""What a server says of its own methods: gRPC server reflection, version 1, and v1alpha where a server has only that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from noonbell.service.grpc_fields import BadMethod, pool_with

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool

_VERSIONS: Final = ("v1", "v1alpha")
"""Their messages are the same."""
_MOST_FILES: Final = 1_000
_MOST_BYTES: Final = 16 * 1024 * 1024
_LEAST: Final = 0.001

NO_REFLECTION: Final = "the server offers no reflection; upload a descriptor set (grpc.descriptor_set)"


async def described(
    channel: grpc.aio.Channel, service: str, metadata: Sequence[tuple[str, Any]], seconds: float
) -> DescriptorPool:
    """The file that has the service, and all that it imports. BadMethod where the server knows none, or offers no reflection."""
    for version in _VERSIONS:
        try:
            return pool_with(await _files(channel, version, service, metadata, seconds))
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    raise BadMethod(NO_REFLECTION)


async def _files(
    channel: grpc.aio.Channel, version: str, service: str, metadata: Sequence[tuple[str, Any]], seconds: float
) -> list[FileDescriptorProto]:
    # A stream of one request and one answer is a unary call on the wire. Asked as a stream, a server that ends it at once
    # may be heard as a failed write instead of by its status.
    ask: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    found: dict[str, FileDescriptorProto] = {}
    asked: set[str] = set()
    wanted = [ServerReflectionRequest(file_containing_symbol=service)]
    while wanted:
        answer = await ask(wanted.pop(), metadata=metadata, timeout=max(due - loop.time(), _LEAST))
        for file in _read(answer, service):
            found.setdefault(file.name, file)
        if len(found) > _MOST_FILES or sum(file.ByteSize() for file in found.values()) > _MOST_BYTES:
            raise BadMethod(f"the server's reflection says more than {_MOST_FILES} files or {_MOST_BYTES} bytes")
        lacking = {name for file in found.values() for name in file.dependency} - found.keys() - asked
        lacking = {name for name in lacking if not name.startswith("google/protobuf/")}
        asked |= lacking
        wanted += [ServerReflectionRequest(file_by_filename=name) for name in sorted(lacking)]
    return list(found.values())


def _read(answer: Any, service: str) -> list[FileDescriptorProto]:
    if answer.WhichOneof("message_response") == "error_response":
        error = answer.error_response
        if error.error_code == grpc.StatusCode.NOT_FOUND.value[0]:
            raise BadMethod(f"the server's reflection does not know {service!r}", is_of_method=True)
        raise BadMethod(f"the server's reflection failed: {error.error_message[:200]}")
    try:
        return [FileDescriptorProto.FromString(each) for each in answer.file_descriptor_response.file_descriptor_proto]
    except DecodeError:
        raise BadMethod("the server's reflection answers with what is no descriptor") from None
