"""The gRPC target against real servers: what is sent, what comes back, and how each way of going wrong is named."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from noonbell.model.grpc_call import GrpcCall, GrpcTls
from noonbell.model.run import Assignment, Outcome, OutcomeKind
from noonbell.model.task import Delivery, RetryPolicy, TaskSpec
from noonbell.policy.retry import Failure, Retry, decide
from noonbell.sealing import Sealer, new_key_line, read_keys
from noonbell.service.secrets import sealed
from noonbell.targets.grpc.target import GrpcTarget
from noonbell.targets.http.guard import AddressGuard
from services.grpc_bell import MESSAGES, METHODS, SERVICE, Bell, descriptor_set
from services.ports import make_deaf, reserved_port
from unit.targets.make import TOKEN, assignment

TESTS = Path(__file__).parents[2]
Opened = Callable[..., Awaitable[GrpcTarget]]
ONE_RETRY = RetryPolicy(max_retries=1)


@pytest.fixture
async def opened_grpc() -> AsyncIterator[Opened]:
    async with contextlib.AsyncExitStack() as cleanup:

        async def open_one(**settings: Any) -> GrpcTarget:
            made = GrpcTarget(**settings)
            await made.open()
            cleanup.push_async_callback(made.close)
            return made

        yield open_one


@pytest.fixture
async def target(opened_grpc: Opened) -> GrpcTarget:
    return await opened_grpc()


@pytest.fixture
async def bell() -> AsyncIterator[Bell]:
    async with Bell() as made:
        yield made


class Names:
    """Answers as it is told to, and counts how often it is asked."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(self, host: str) -> Sequence[str]:
        del host
        return self.addresses

    async def close(self) -> None:
        pass


def asking(
    address: str | int, method: str, payload: Any = None, *, fields: dict[str, Any] | None = None, **call: Any
) -> Assignment:
    where = f"127.0.0.1:{address}" if isinstance(address, int) else address
    spec = TaskSpec(
        name="ring",
        grpc=GrpcCall(address=where, method=f"{SERVICE}/{method}", **call),
        **{"timeout_seconds": 20, **(fields or {})},
    )
    given = assignment(payload=payload, callback_token=TOKEN if spec.awaits_callback else None)
    return msgspec.structs.replace(
        given,
        task=msgspec.structs.replace(given.task, spec=spec),
        callback_url=f"http://noonbell.test/callbacks/{TOKEN}" if spec.awaits_callback else None,
    )


async def test_the_payload_is_the_request_and_the_response_is_the_result(target: GrpcTarget, bell: Bell) -> None:
    payload = {"name": "ding", "times": 2**60, "at": "2026-01-02T03:04:05Z", "rawBytes": "AAH/"}
    outcome = await target.execute(asking(bell.port, "Echo", payload))
    assert outcome.kind is OutcomeKind.SUCCESS, outcome
    assert outcome.result["name"] == "ding"
    assert outcome.result["times"] == str(2**60)
    assert outcome.result["at"] == "2026-01-02T03:04:05Z"
    assert 0 < outcome.result["deadlineSeconds"] <= 20
    (_, _, asked) = bell.calls[0]
    assert asked.raw_bytes == b"\x00\x01\xff"


async def test_a_run_without_payload_sends_an_empty_message_and_defaults_are_in_the_result(
    target: GrpcTarget, bell: Bell
) -> None:
    outcome = await target.execute(asking(bell.port, "Succeeds"))
    assert outcome.result == {"name": "ding", "times": "0", "metadata": [], "deadlineSeconds": 0.0, "peer": ""}


async def test_metadata_says_which_run_calls(target: GrpcTarget, bell: Bell) -> None:
    own = {"x-tenant": "acme", "trace-bin": base64.b64encode(b"\x00\xff").decode()}
    outcome = await target.execute(asking(bell.port, "Echo", metadata=own))
    (_, seen, _) = bell.calls[0]
    assert seen["x-tenant"] == "acme"
    assert seen["trace-bin"] == b"\x00\xff"
    assert (seen["x-noonbell-run"], seen["x-noonbell-task"], seen["x-noonbell-attempt"]) == ("42", "7", "1")
    assert seen["x-noonbell-scheduled-time"] == "2026-01-02T10:00:00Z"
    assert seen["idempotency-key"]
    assert "x-callback-token" not in seen
    assert outcome.bodies is not None
    assert outcome.bodies.request_headers is not None
    assert outcome.bodies.request_headers["x-noonbell-run"] == "42"
    assert outcome.bodies.response_headers == {"x-api-token": "***", "x-request-id": "77"}


async def test_with_callback_the_address_and_token_are_sent_and_ok_is_an_acceptance(
    target: GrpcTarget, bell: Bell
) -> None:
    outcome = await target.execute(asking(bell.port, "Succeeds", callback=True))
    assert outcome.kind is OutcomeKind.ACCEPTED
    (_, seen, _) = bell.calls[0]
    assert seen["x-callback-url"] == f"http://noonbell.test/callbacks/{TOKEN}"
    assert seen["x-callback-token"] == TOKEN
    assert TOKEN not in msgspec.json.encode(outcome.bodies).decode()


CODES = {
    "CANCELLED": ("grpc_cancelled", True),
    "UNKNOWN": ("grpc_unknown", True),
    "INVALID_ARGUMENT": ("grpc_invalid_argument", False),
    "DEADLINE_EXCEEDED": ("timeout", True),
    "NOT_FOUND": ("grpc_not_found", False),
    "ALREADY_EXISTS": ("grpc_already_exists", False),
    "PERMISSION_DENIED": ("grpc_permission_denied", False),
    "RESOURCE_EXHAUSTED": ("grpc_resource_exhausted", True),
    "FAILED_PRECONDITION": ("grpc_failed_precondition", False),
    "ABORTED": ("grpc_aborted", True),
    "OUT_OF_RANGE": ("grpc_out_of_range", False),
    "UNIMPLEMENTED": ("grpc_unimplemented", False),
    "INTERNAL": ("grpc_internal", True),
    "UNAVAILABLE": ("grpc_unavailable", True),
    "DATA_LOSS": ("grpc_data_loss", False),
    "UNAUTHENTICATED": ("grpc_unauthenticated", False),
}


def is_retried(outcome: Outcome, **fields: Any) -> bool:
    spec = TaskSpec(name="x", grpc=GrpcCall(address="a:1", method="a.B/C"), **fields)
    return isinstance(decide(spec, 0, 0, Failure(outcome.failure or ""), 0.5), Retry)


def test_every_status_is_in_the_table() -> None:
    assert set(CODES) == {code.name for code in grpc.StatusCode} - {"OK"}


@pytest.mark.parametrize("name", list(CODES))
async def test_the_status_decides_whether_a_call_is_tried_again(target: GrpcTarget, bell: Bell, name: str) -> None:
    outcome = await target.execute(asking(bell.port, "Ends", {"name": name}))
    kind, retried = CODES[name]
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILURE, kind)
    assert (outcome.error_details or {})["grpc_status"] == name
    assert is_retried(outcome, retry_policy=ONE_RETRY) is retried
    assert not is_retried(outcome, retry_policy=ONE_RETRY, delivery=Delivery.AT_MOST_ONCE), (
        "at most once is never repeated"
    )


async def test_nothing_is_sent_twice_when_the_server_refuses(target: GrpcTarget, bell: Bell) -> None:
    await target.execute(asking(bell.port, "Ends", {"name": "UNAVAILABLE"}))
    assert len(bell.calls) == 1


@pytest.mark.parametrize(("method", "side"), [("Watch", "server"), ("Collect", "client")])
async def test_a_method_that_streams_is_refused(target: GrpcTarget, bell: Bell, method: str, side: str) -> None:
    outcome = await target.execute(asking(bell.port, method))
    assert outcome.failure == "bad_method"
    assert f"streams ({side})" in str(outcome.error_message)
    assert not is_retried(outcome, retry_policy=ONE_RETRY)


async def test_an_unknown_method_or_service_is_named(target: GrpcTarget, bell: Bell) -> None:
    outcome = await target.execute(asking(bell.port, "Nope"))
    assert outcome.failure == "bad_method"
    assert "Echo" in str(outcome.error_message)
    other = asking(bell.port, "Echo")
    spec = msgspec.structs.replace(
        other.task.spec, grpc=GrpcCall(address=f"127.0.0.1:{bell.port}", method="other.Service/Do")
    )
    other = msgspec.structs.replace(other, task=msgspec.structs.replace(other.task, spec=spec))
    outcome = await target.execute(other)
    assert outcome.failure == "bad_method"
    assert "other.Service" in str(outcome.error_message)


async def test_a_payload_that_is_no_such_message_is_never_retried(target: GrpcTarget, bell: Bell) -> None:
    outcome = await target.execute(asking(bell.port, "Echo", {"nmae": "ding"}))
    assert outcome.failure == "invalid_payload"
    assert "nmae" in str(outcome.error_message)
    assert not bell.calls


async def test_a_descriptor_set_does_without_reflection(target: GrpcTarget) -> None:
    async with Bell(reflects=False) as bell:
        outcome = await target.execute(asking(bell.port, "Echo", {"name": "ding"}))
        assert outcome.failure == "bad_method"
        assert "descriptor set" in str(outcome.error_message)
        outcome = await target.execute(asking(bell.port, "Echo", {"name": "ding"}, descriptor_set=descriptor_set()))
        assert outcome.result["name"] == "ding"


async def test_a_server_that_learns_a_method_is_asked_again(target: GrpcTarget) -> None:
    older = type(METHODS)()
    older.CopyFrom(METHODS)
    del older.service[0].method[1:]
    with reserved_port() as port:
        bell = Bell(MESSAGES, older)
        await bell.start(port)
        async with bell:
            assert (await target.execute(asking(port, "Echo"))).kind is OutcomeKind.SUCCESS
            assert (await target.execute(asking(port, "Succeeds"))).failure == "bad_method"
        newer = Bell()
        await newer.start(port)
        async with newer:
            assert (await target.execute(asking(port, "Succeeds"))).kind is OutcomeKind.SUCCESS


async def test_the_answer_may_not_be_larger_than_the_limit(opened_grpc: Opened, bell: Bell) -> None:
    target = await opened_grpc(max_body_bytes=50_000)
    outcome = await target.execute(asking(bell.port, "Large", {"times": 60_000}))
    assert outcome.failure == "too_large"
    assert not is_retried(outcome, retry_policy=ONE_RETRY)
    outcome = await target.execute(asking(bell.port, "Large", {"times": 40_000}))
    assert len(outcome.result["name"]) == 40_000


async def test_a_result_that_grows_past_the_limit_as_json_is_kept_in_part(opened_grpc: Opened, bell: Bell) -> None:
    target = await opened_grpc(max_body_bytes=50_000)
    outcome = await target.execute(asking(bell.port, "Large", {"times": 49_990}))
    assert outcome.kind is OutcomeKind.SUCCESS
    assert outcome.result is None
    assert outcome.bodies is not None
    assert outcome.bodies.truncated
    assert len(outcome.bodies.response_body or "") == 50_000


async def test_a_request_may_not_be_larger_than_the_limit(opened_grpc: Opened, bell: Bell) -> None:
    target = await opened_grpc(max_body_bytes=50_000)
    outcome = await target.execute(asking(bell.port, "Echo", {"name": "x" * 60_000}))
    assert outcome.failure == "too_large"
    assert not bell.calls


async def test_secrets_are_in_no_error_and_in_nothing_that_is_kept(opened_grpc: Opened, bell: Bell) -> None:
    sealer = Sealer(read_keys(new_key_line("k1").encode()))
    target = await opened_grpc(sealer=sealer)
    given = asking(
        bell.port,
        "Leaks",
        metadata={"authorization": "Bearer canary-of-a-token", "x-api-key": "canary-key"},
        callback=True,
    )
    spec = sealed(given.task.spec, sealer)
    given = msgspec.structs.replace(given, task=msgspec.structs.replace(given.task, spec=spec))
    outcome = await target.execute(given)
    assert outcome.failure == "grpc_invalid_argument"
    assert bell.calls[0][1]["authorization"] == "Bearer canary-of-a-token"
    kept = msgspec.json.encode(outcome).decode()
    assert "canary" not in kept
    assert TOKEN not in kept


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]", "localhost", "[::ffff:127.0.0.1]", "any.test"])
async def test_a_denied_address_is_never_dialled(opened_grpc: Opened, bell: Bell, address: str) -> None:
    names = None if address == "localhost" else Names("127.0.0.1", "::1")
    guard = AddressGuard(deny_networks=["127.0.0.0/8", "::1/128"])
    target = await opened_grpc(guard=guard, resolver=names)
    outcome = await target.execute(asking(f"{address}:{bell.port}", "Echo"))
    assert outcome.failure == "blocked_address", outcome
    assert not bell.calls


async def test_the_address_that_was_checked_is_the_one_that_is_dialled(opened_grpc: Opened, bell: Bell) -> None:
    target = await opened_grpc(resolver=Names("127.0.0.1"))
    outcome = await target.execute(asking(f"nowhere.invalid:{bell.port}", "Echo"))
    assert outcome.kind is OutcomeKind.SUCCESS
    assert outcome.result["peer"].startswith("ipv4:127.0.0.1")


async def test_a_proxy_of_the_environment_is_not_asked(
    opened_grpc: Opened, bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reserved_port() as nobody:
        for name in ("grpc_proxy", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{nobody}")
        target = await opened_grpc()
        assert (await target.execute(asking(bell.port, "Succeeds"))).kind is OutcomeKind.SUCCESS


async def test_a_name_of_two_families_is_called_where_the_server_listens(opened_grpc: Opened, bell: Bell) -> None:
    target = await opened_grpc(resolver=Names("::1", "127.0.0.1"))
    assert (await target.execute(asking(f"bell.test:{bell.port}", "Succeeds"))).kind is OutcomeKind.SUCCESS
    assert len(bell.calls) == 1


async def test_a_server_that_is_not_there_is_refused_and_found_when_it_is_back(target: GrpcTarget) -> None:
    with reserved_port() as port:
        for _ in range(3):
            outcome = await target.execute(asking(port, "Succeeds"))
            assert outcome.failure == "connection_refused"
        bell = Bell()
        await bell.start(port)
        async with bell:
            assert (await target.execute(asking(port, "Succeeds"))).kind is OutcomeKind.SUCCESS


async def test_a_server_that_does_not_answer_the_dial_is_a_connect_timeout(opened_grpc: Opened) -> None:
    import socket

    target = await opened_grpc(connect_timeout=0.3)
    with contextlib.ExitStack() as held, socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        make_deaf(server, held)
        outcome = await target.execute(asking(server.getsockname()[1], "Succeeds"))
        assert outcome.failure == "connect_timeout", outcome.error_message


async def test_what_speaks_no_grpc_is_a_failure_with_a_name(target: GrpcTarget) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        outcome = await target.execute(asking(server.sockets[0].getsockname()[1], "Succeeds"))
    assert outcome.failure == "connection_refused"
    assert "HTTP" in str(outcome.error_message)


@contextlib.contextmanager
def a_server_process(*files: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "services.grpc_bell", "0", *map(str, files)]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


async def test_a_server_killed_before_its_answer_is_a_lost_connection(target: GrpcTarget) -> None:
    with a_server_process() as (process, port):
        outcome = await target.execute(asking(port, "Dies", {"name": "before"}))
        assert outcome.failure == "connection_lost", outcome.error_message
        assert process.wait(30) == 9
    assert is_retried(outcome, retry_policy=ONE_RETRY)


async def test_a_server_killed_after_its_answer_has_answered(target: GrpcTarget) -> None:
    with a_server_process() as (process, port):
        outcome = await target.execute(asking(port, "Dies", {"name": "after"}))
        assert outcome.result["name"] == "last words"
        assert process.wait(30) == 9
        outcome = await target.execute(asking(port, "Succeeds"))
        assert outcome.failure in ("connection_refused", "connection_lost")


async def test_at_most_once_dials_anew_for_each_attempt(target: GrpcTarget, bell: Bell) -> None:
    once = {"delivery": Delivery.AT_MOST_ONCE}
    peers = [(await target.execute(asking(bell.port, "Echo", fields=once))).result["peer"] for _ in range(3)]
    assert len(set(peers)) == 3
    kept = [(await target.execute(asking(bell.port, "Echo"))).result["peer"] for _ in range(3)]
    assert len(set(kept)) == 1


async def test_tasks_with_other_credentials_share_no_connection(target: GrpcTarget, bell: Bell) -> None:
    peers = {
        (await target.execute(asking(bell.port, "Echo", metadata={"authorization": f"Bearer {who}"}))).result["peer"]
        for who in ("ann", "bob", "ann")
    }
    assert len(peers) == 2


class Keys(msgspec.Struct, frozen=True):
    ca: str
    other_ca: str
    key: Path
    cert: Path


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """A CA of our own, a server's certificate of it for bell.test and 127.0.0.1, and a CA that signed nothing."""
    folder = tmp_path_factory.mktemp("grpc-tls")

    def run(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ("ca", "other"):
        run(
            "req",
            "-x509",
            *curve,
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.crt",
        )
    run("req", *curve, "-subj", "/CN=bell", "-keyout", "bell.key", "-out", "bell.csr")
    (folder / "names").write_text("subjectAltName=DNS:bell.test,IP:127.0.0.1\n")
    signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-out", "bell.crt"]
    run("x509", "-req", "-in", "bell.csr", "-days", "2", *signed)
    return Keys(
        (folder / "ca.crt").read_text(), (folder / "other.crt").read_text(), folder / "bell.key", folder / "bell.crt"
    )


@pytest.fixture
async def secure(keys: Keys) -> AsyncIterator[Bell]:
    bell = Bell()
    await bell.start(keys=(keys.key.read_bytes(), keys.cert.read_bytes()))
    async with bell:
        yield bell


async def test_tls_is_verified_by_our_own_ca(opened_grpc: Opened, secure: Bell, keys: Keys) -> None:
    target = await opened_grpc(resolver=Names("127.0.0.1"))
    for address in (f"grpcs://bell.test:{secure.port}", f"127.0.0.1:{secure.port}"):
        outcome = await target.execute(asking(address, "Succeeds", tls=GrpcTls(ca=keys.ca)))
        assert outcome.kind is OutcomeKind.SUCCESS, outcome
    named = GrpcTls(ca=keys.ca, server_name="bell.test")
    outcome = await target.execute(asking(f"elsewhere.test:{secure.port}", "Succeeds", tls=named))
    assert outcome.kind is OutcomeKind.SUCCESS, outcome


@pytest.mark.parametrize(
    ("address", "of_other", "server_name"),
    [("elsewhere.test", False, None), ("bell.test", True, None), ("bell.test", False, "elsewhere.test")],
)
async def test_a_wrong_name_or_a_foreign_ca_is_refused(
    opened_grpc: Opened, secure: Bell, keys: Keys, address: str, of_other: bool, server_name: str | None
) -> None:
    target = await opened_grpc(resolver=Names("127.0.0.1"))
    tls = GrpcTls(ca=keys.other_ca if of_other else keys.ca, server_name=server_name)
    outcome = await target.execute(asking(f"{address}:{secure.port}", "Succeeds", tls=tls))
    assert outcome.failure == "tls", outcome.error_message
    assert not secure.calls


async def test_without_a_ca_the_system_decides_and_ours_is_refused(opened_grpc: Opened, secure: Bell) -> None:
    target = await opened_grpc(resolver=Names("127.0.0.1"))
    outcome = await target.execute(asking(f"grpcs://bell.test:{secure.port}", "Succeeds"))
    assert outcome.failure == "tls", outcome.error_message


async def test_the_caller_shows_its_own_certificate(opened_grpc: Opened, keys: Keys) -> None:
    bell = Bell()
    await bell.start(keys=(keys.key.read_bytes(), keys.cert.read_bytes()), ca=keys.ca.encode())
    async with bell:
        target = await opened_grpc(resolver=Names("127.0.0.1"))
        address = f"grpcs://bell.test:{bell.port}"
        without = await target.execute(asking(address, "Succeeds", tls=GrpcTls(ca=keys.ca)))
        assert without.kind is OutcomeKind.FAILURE
        assert not bell.calls
        own = GrpcTls(ca=keys.ca, cert=keys.cert.read_text(), key=keys.key.read_text())
        outcome = await target.execute(asking(address, "Succeeds", tls=own))
        assert outcome.kind is OutcomeKind.SUCCESS, outcome
