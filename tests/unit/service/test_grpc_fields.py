"""What is wrong with a gRPC call is said when its task is saved, by the name of the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument
from noonbell.model.grpc_call import GrpcCall, GrpcTls
from noonbell.model.target_kind import GRPC, ExecType, target_kind
from noonbell.model.task import TaskSpec
from noonbell.sealing import Sealer, is_sealed, new_key_line, read_keys
from noonbell.service import grpc_fields, secrets
from noonbell.service.grpc_fields import address_of
from noonbell.service.task_fields import Rules, read_task
from services.grpc_bell import descriptor_set

CALL = {"address": "127.0.0.1:9", "method": "bell.v1.Bell/Echo"}
NOW = Instant(1_767_348_000_000_000)


def read(call: Any = None, **fields: Any) -> TaskSpec:
    return read_task({"name": "ring", "grpc": CALL if call is None else call, **fields}, NOW, Rules()).spec


def problems(call: Any = None, **fields: Any) -> dict[str, Any]:
    with pytest.raises(InvalidArgument) as raised:
        read(call, **fields)
    return dict(raised.value.details)


def test_a_task_with_grpc_and_no_exec_type_is_one() -> None:
    spec = read(payload={"name": "ding"})
    assert (spec.exec_type, spec.queue) == (ExecType.GRPC, "target:grpc")
    assert spec.grpc == GrpcCall(address="127.0.0.1:9", method="bell.v1.Bell/Echo")
    assert (spec.timeout_seconds, spec.max_concurrency, spec.retries.max_retries) == (10, 1, 0)
    assert target_kind(None, {"grpc": CALL}) is GRPC


def test_a_callback_is_waited_for_as_long_as_the_task_says() -> None:
    spec = read({**CALL, "callback": True}, callback_timeout_sec=7)
    assert spec.awaits_callback
    assert spec.callback_timeout_sec == 7
    assert not read().awaits_callback


@pytest.mark.parametrize(
    ("address", "tls", "host", "port", "is_tls"),
    [
        ("a.test:50051", None, "a.test", 50051, False),
        ("a.test:50051", GrpcTls(), "a.test", 50051, True),
        ("grpc://a.test:1", None, "a.test", 1, False),
        ("grpcs://a.test", None, "a.test", 443, True),
        ("[::1]:65535", None, "::1", 65535, False),
    ],
)
def test_an_address_says_host_port_and_tls(
    address: str, tls: GrpcTls | None, host: str, port: int, is_tls: bool
) -> None:
    found = address_of(GrpcCall(address=address, method="a.B/C", tls=tls))
    assert (found.host, found.port, found.is_tls) == (host, port, is_tls)


@pytest.mark.parametrize(
    "address",
    ["a.test", "a.test:0", "a.test:65536", "http://a.test:1", "grpc://me:pw@a.test:1", "a.test:1/path", "a b:1", ":1"]
    + ["a.test:1,b.test:2", "unix:/run/bell", "grpc://a.test:1?x=1", "{{payload.host}}:1", "xds:///a"],
)
def test_a_bad_address_is_refused(address: str) -> None:
    assert set(problems({**CALL, "address": address})) == {"grpc.address"}


@pytest.mark.parametrize("method", ["Echo", "/bell.v1.Bell/Echo", "bell.v1.Bell.Echo", "a b/C", "bell..v1/C", "1a/b"])
def test_a_bad_method_is_refused(method: str) -> None:
    assert set(problems({**CALL, "method": method})) == {"grpc.method"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "x"),
        ("grpc-timeout", "1S"),
        ("content-type", "x"),
        ("a b", "x"),
        (":path", "x"),
        ("x-a", "two\nlines"),
        ("x-a", "ä"),
        ("x-bin", "no base64!"),
        ("authorization", "***"),
    ],
)
def test_metadata_that_cannot_be_sent_is_refused(name: str, value: str) -> None:
    assert set(problems({**CALL, "metadata": {name: value}})) == {f"grpc.metadata.{name}"}


def test_a_descriptor_set_is_read_when_the_task_is_saved() -> None:
    assert read({**CALL, "descriptor_set": descriptor_set()}).grpc is not None
    assert set(problems({**CALL, "descriptor_set": "no base64!"})) == {"grpc.descriptor_set"}
    assert set(problems({**CALL, "descriptor_set": "AAAA"})) == {"grpc.descriptor_set"}
    found = problems({**CALL, "descriptor_set": descriptor_set(whole=False)})
    assert "bell/v1/messages.proto" in found["grpc.descriptor_set"]
    found = problems({**CALL, "method": "bell.v1.Bell/Watch", "descriptor_set": descriptor_set()})
    assert "streams (server)" in found["grpc.method"]
    found = problems({**CALL, "method": "bell.v1.Bell/Nope", "descriptor_set": descriptor_set()})
    assert "Echo" in found["grpc.method"]


def test_certificates_are_pem_and_come_in_pairs() -> None:
    assert set(problems({**CALL, "tls": {"ca": "x"}})) == {"grpc.tls.ca"}
    assert set(problems({**CALL, "tls": {"cert": "-----BEGIN CERTIFICATE-----"}})) == {"grpc.tls.key"}
    assert set(problems({**CALL, "address": "grpc://a:1", "tls": {}})) == {"grpc.tls"}


def test_fields_of_other_kinds_are_refused_and_so_is_grpc_beside_them() -> None:
    assert "job_type" in problems(exec_type="GRPC", job_type="resize")
    assert "grpc" in problems(exec_type="SYNC", target_url="http://a.test/")
    assert "queue" in problems(queue="pdf")
    assert "grpc" in problems({}, exec_type="GRPC") or "grpc.address" in problems({}, exec_type="GRPC")


def test_a_missing_extra_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_fields, "is_extra_installed", lambda: False)
    assert "pip install 'noonbell[grpc]'" in problems()["grpc"]


SECRET = GrpcCall(
    address="grpcs://a.test:1",
    method="a.B/C",
    metadata={"authorization": "Bearer canary", "x-request-id": "7"},
    tls=GrpcTls(cert="-----BEGIN CERTIFICATE-----", key="-----BEGIN PRIVATE KEY----- canary"),
)


def test_secrets_are_sealed_opened_masked_and_taken_back_from_the_mask() -> None:
    sealer = Sealer(read_keys(new_key_line("k1").encode()))
    spec = TaskSpec(name="ring", grpc=SECRET)
    kept = secrets.sealed(spec, sealer)
    assert kept.grpc is not None
    assert kept.grpc.tls is not None
    assert is_sealed(kept.grpc.metadata["authorization"])
    assert is_sealed(kept.grpc.tls.key or "")
    assert kept.grpc.metadata["x-request-id"] == "7"
    assert secrets.opened(kept, sealer) == spec
    shown = secrets.masked_call(msgspec.to_builtins(SECRET))
    assert "canary" not in str(shown)
    assert msgspec.convert(secrets.unmasked_call(shown, SECRET), GrpcCall) == SECRET


@pytest.mark.parametrize(
    "change",
    [{"address": "grpcs://b.test:1"}, {"address": "grpc://a.test:1", "tls": None}, {"tls": {"server_name": "b.test"}}],
)
def test_a_change_of_the_server_carries_no_masked_secret_along(change: dict[str, Any]) -> None:
    given = {**(secrets.masked_call(msgspec.to_builtins(SECRET)) or {}), **change}
    made = {"grpc": secrets.unmasked_call(given, SECRET)}
    with pytest.raises(InvalidArgument) as raised:
        secrets.refuse_carried(TaskSpec(name="ring", grpc=SECRET), {"grpc": given}, made)
    assert "grpc.metadata.authorization" in raised.value.details
    secrets.refuse_carried(
        TaskSpec(name="ring", grpc=SECRET),
        {"grpc": {**given, "metadata": {"authorization": "new"}, "tls": None}},
        {"grpc": {**given, "metadata": {"authorization": "new"}, "tls": None}},
    )


def test_a_step_of_a_flow_can_be_a_grpc_call() -> None:
    spec = read_task(
        {"name": "flow", "steps": [{"id": "a", "grpc": {**CALL, "metadata": {"authorization": "canary"}}}]},
        NOW,
        Rules(),
    ).spec
    assert spec.steps[0].exec_type is ExecType.GRPC
    sealer = Sealer(read_keys(new_key_line("k1").encode()))
    kept = secrets.sealed(spec, sealer)
    assert "canary" not in msgspec.json.encode(kept).decode()
    assert secrets.opened(kept, sealer) == spec
    assert "canary" not in str(secrets.masked_steps(msgspec.to_builtins(spec.steps)))
