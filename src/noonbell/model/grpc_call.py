"""The `grpc` field of a task: which unary method is called, where, and with what."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from noonbell.fields import meta as described
from noonbell.model.broker import HeaderValues

MOST_DESCRIPTORS = 524_288
"""Characters of a descriptor set in base64: 384 kB of descriptors."""


class GrpcTls(msgspec.Struct, frozen=True, kw_only=True):
    """How the server is known, and how it knows the caller. `{}`: by the certificates that the system trusts."""

    noun: ClassVar[str] = "a TLS setting"

    ca: Annotated[
        str | None,
        described(
            "Certificates, as PEM: only servers that one of them vouches for. Null: those that the system trusts.",
            min_length=1,
            max_length=65_536,
            lines=True,
        ),
    ] = None
    server_name: Annotated[
        str | None,
        described(
            "The name that the server's certificate must have. Null: the host of the address.",
            min_length=1,
            max_length=253,
        ),
    ] = None
    cert: Annotated[
        str | None,
        described("The caller's own certificate, as PEM, with `key`.", min_length=1, max_length=65_536, lines=True),
    ] = None
    key: Annotated[
        str | None,
        described("The private key of `cert`, as PEM. Masked in answers.", min_length=1, max_length=65_536, lines=True),
    ] = None


class GrpcCall(msgspec.Struct, frozen=True, kw_only=True):
    """The request message is the run's payload, the response message the run's result, both as protobuf's JSON."""

    noun: ClassVar[str] = "a gRPC call"

    address: Annotated[
        str,
        described(
            "HOST:PORT, grpc://HOST:PORT, or grpcs://HOST:PORT, which is TLS.",
            min_length=1,
            max_length=512,
            missing="the address of the server, HOST:PORT",
            examples=["grpcs://billing.internal:8443"],
        ),
    ]
    method: Annotated[
        str,
        described(
            "PACKAGE.SERVICE/METHOD; a unary one.",
            max_length=512,
            pattern=r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*/[A-Za-z_][A-Za-z0-9_]*",
            expected="PACKAGE.SERVICE/METHOD",
            missing="PACKAGE.SERVICE/METHOD",
            examples=["billing.v1.Invoices/Close"],
        ),
    ]
    metadata: Annotated[
        HeaderValues,
        described(
            "Sent with the call. Names in small letters; the value of a name that ends in -bin is base64. All but harmless ones are masked"
            " in answers.",
            max_length=100,
            expected="an object of at most 100 entries",
            examples=[{"x-tenant": "acme"}],
        ),
    ] = {}
    descriptor_set: Annotated[
        str | None,
        described(
            "A FileDescriptorSet in base64, as `protoc --include_imports --descriptor_set_out` writes it. Null: the server is asked by"
            " reflection.",
            min_length=1,
            max_length=MOST_DESCRIPTORS,
        ),
    ] = None
    tls: Annotated[GrpcTls | None, described("TLS with these settings; null: TLS only with a grpcs:// address.")] = None
    callback: Annotated[
        bool,
        described("OK means that the work was taken on: the run waits for the callback, `callback_timeout_sec` long."),
    ] = False
