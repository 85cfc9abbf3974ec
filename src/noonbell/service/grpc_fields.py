"""What the declaration of a gRPC call cannot say: its address, metadata and certificates; and what descriptors say of its method.

protobuf is imported where descriptors are read: it belongs to the extra `grpc`, as what sends the calls does.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from noonbell.fields.problems import ReadContext
from noonbell.model.grpc_call import GrpcCall, GrpcTls
from noonbell.sealing import is_sealed
from noonbell.service.secrets import MASK
from noonbell.service.target_fields import value_problem

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

NEEDS_EXTRA: Final = "needs the extra grpc, which is not installed: pip install 'noonbell[grpc]'"
_MODULES: Final = ("grpc", "grpc_reflection", "google.protobuf")
_NAME: Final = re.compile(r"[0-9a-z_.-]{1,128}")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_OWNED: Final = frozenset({"content-type", "host", "te", "user-agent", "connection"})
"""What the client sets by itself; so does it with all that begin with `grpc-`."""
BINARY: Final = "-bin"


@cache
def is_extra_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _MODULES)
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class GrpcAddress:
    host: str
    port: int
    is_tls: bool

    @property
    def authority(self) -> str:
        """HOST:PORT, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(call: GrpcCall) -> GrpcAddress:
    """ValueError says what was expected."""
    text = call.address.strip()
    scheme, there, _ = text.partition("://")
    try:
        parts = urlsplit(text if there else f"grpc://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("HOST:PORT, with a port from 1 to 65535") from None
    if there and scheme not in ("grpc", "grpcs"):
        raise ValueError("HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT")
    if "@" in parts.netloc:
        raise ValueError("an address without user and password; send them as metadata, which is masked")
    if not host or parts.path.strip("/") or parts.query or parts.fragment or any(sign in text for sign in " \t\\{}%,"):
        raise ValueError("HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT")
    is_tls = scheme == "grpcs" if there else call.tls is not None
    port = port if port is not None else 443 if is_tls else None
    if not port:
        raise ValueError("HOST:PORT, with a port from 1 to 65535")
    return GrpcAddress(host, port, is_tls)


def check_grpc(values: Mapping[str, Any], at: ReadContext, _check_template: Any) -> None:
    call = values.get("grpc")
    if any(name.startswith(at.name_of("grpc")) for name in at.problems.found):
        return
    if not isinstance(call, GrpcCall):
        at.wrong("grpc", "is missing; expected an object with the address and the method to call")
        return
    if not is_extra_installed():
        at.wrong("grpc", NEEDS_EXTRA)
        return
    inner = at.inside("grpc")
    try:
        address = address_of(call)
    except ValueError as problem:
        inner.expected("address", call.address, str(problem))
    else:
        if call.tls is not None and not address.is_tls:
            inner.wrong("tls", "is set, but grpc:// addresses do not use TLS; expected grpcs://, or no tls")
    _check_metadata(call.metadata, inner.inside("metadata"))
    if call.tls is not None:
        _check_tls(call.tls, inner.inside("tls"))
    if call.descriptor_set is not None:
        try:
            method_in(pool_of(call.descriptor_set), call.method)
        except BadMethod as problem:
            inner.wrong("method" if problem.is_of_method else "descriptor_set", str(problem))


def _check_metadata(metadata: Mapping[str, Any], at: ReadContext) -> None:
    for name, value in metadata.items():
        problem = _metadata_problem(name, value)
        if problem is not None:
            at.wrong(str(name)[:60], problem)


def _metadata_problem(name: Any, value: Any) -> str | None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return "is not a metadata name; expected lowercase letters, digits, _ . and -"
    if name in _OWNED or name.startswith("grpc-"):
        return "is set by the client that sends the call; leave it out"
    if problem := value_problem(value):
        return problem
    if name.endswith(BINARY):
        return None if decoded(value) is not None else "has a value that is not base64, as names that end in -bin have"
    return (
        None
        if _VALUE.fullmatch(value)
        else "has a value with a character that metadata cannot contain; use a name that ends in -bin"
    )


def _check_tls(tls: GrpcTls, at: ReadContext) -> None:
    for name in ("ca", "cert", "key"):
        text = getattr(tls, name)
        if text == MASK:
            at.wrong(name, "is the mask shown in place of secrets; expected the text itself")
        elif text is not None and is_sealed(text):
            at.wrong(name, "is encrypted, and no key in secrets.key_file decrypts it; expected the text itself")
        elif text is not None and "-----BEGIN " not in text:
            at.wrong(name, "is not PEM text; expected text that begins with -----BEGIN")
    if (tls.cert is None) != (tls.key is None):
        at.wrong("key" if tls.key is None else "cert", "is missing; expected cert and key together")


def decoded(text: str) -> bytes | None:
    """The bytes of a base64 text, padded or not; None if it is none."""
    try:
        return base64.b64decode("".join(text.split()) + "=" * (-len("".join(text.split())) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


# Descriptors


class BadMethod(Exception):
    """Raised when these descriptors have no such method, or none that can be called."""

    def __init__(self, message: str, *, is_of_method: bool = False) -> None:
        super().__init__(message)
        self.is_of_method = is_of_method
        """The descriptors can be read, and it is the method that is wrong."""


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    path: str
    """/PACKAGE.SERVICE/METHOD."""
    request: type[Message]
    response: type[Message]
    pool: DescriptorPool
    """Knows the types that a `google.protobuf.Any` inside may hold."""


def pool_of(descriptor_set: str) -> DescriptorPool:
    """BadMethod for a text that is no descriptor set."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    data = decoded(descriptor_set)
    if data is None:
        raise BadMethod("is not base64; expected what protoc --descriptor_set_out writes, in base64")
    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError:
        raise BadMethod(
            "is not a descriptor set; expected what protoc --descriptor_set_out writes, in base64"
        ) from None
    return pool_with(files)


def pool_with(files: Any) -> DescriptorPool:
    """Of these files, in any order. What protobuf brings itself (google/protobuf/*.proto) need not be among them."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, known = DescriptorPool(), {file.name: file for file in files}
    added: set[str] = set()

    def add(name: str, path: tuple[str, ...]) -> None:
        if name in added:
            return
        if name in path or len(path) > _DEEPEST:
            raise BadMethod(f"imports of {name} are circular or nested too deep")
        file = known.get(name) or _well_known(name)
        if file is None:
            raise BadMethod(f"lacks {name}, which is imported; protoc --include_imports includes it")
        for needed in file.dependency:
            add(needed, (*path, name))
        pool.Add(file)
        added.add(name)

    try:
        for name in known:
            add(name, ())
    except BadMethod:
        raise
    except Exception as error:  # what protobuf raises for descriptors that contradict themselves is not written down
        raise BadMethod(f"cannot be read: {str(error)[:200]}") from None
    return pool


_DEEPEST: Final = 200


def _well_known(name: str) -> FileDescriptorProto | None:
    if not name.startswith("google/protobuf/"):
        return None
    from google.protobuf import (  # noqa: F401 - importing them puts them into the pool
        any_pb2,
        api_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )

    try:
        found = descriptor_pool.Default().FindFileByName(name)
    except KeyError:
        return None
    file = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    return file


def method_in(pool: DescriptorPool, name: str) -> UnaryMethod:
    """BadMethod if there is none of that name, or it streams."""
    from google.protobuf.message_factory import GetMessageClass

    service_name, _, method_name = name.partition("/")
    try:
        service = pool.FindServiceByName(service_name)
    except KeyError:
        raise BadMethod(
            f"names the service {service_name!r}, which the descriptors do not have", is_of_method=True
        ) from None
    method: MethodDescriptor | None = service.methods_by_name.get(method_name)
    if method is None:
        there = ", ".join(sorted(service.methods_by_name)[:20])
        raise BadMethod(f"names no method of {service_name}; there are {there or 'none'}", is_of_method=True)
    if method.client_streaming or method.server_streaming:
        sides = [
            side
            for side, streams in (("client", method.client_streaming), ("server", method.server_streaming))
            if streams
        ]
        raise BadMethod(
            f"is {name}, which streams ({' and '.join(sides)}); only unary methods can be called", is_of_method=True
        )
    return UnaryMethod(f"/{name}", GetMessageClass(method.input_type), GetMessageClass(method.output_type), pool)
