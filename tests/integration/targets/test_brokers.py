"""Messages to brokers: real brokers on loopback, and a proxy in between that cuts a connection where a test wants it cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets as random_bytes
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
import redis.asyncio

from conformance.target.scenes import MESSAGES, message_of
from integration.targets.alone_brokers import tried_alone
from noonbell.engine.settle import failure_of
from noonbell.model.run import Assignment, Outcome, OutcomeKind
from noonbell.model.target_kind import TARGET_KINDS
from noonbell.model.task import Delivery, TaskSpec
from noonbell.policy import retry
from noonbell.policy.retry import Final, Retry
from noonbell.settings import ExecutorSettings, Settings
from noonbell.targets import MAKERS, OpenableTarget, TargetParts
from noonbell.targets.brokers.pool import OTHER_PORTS
from noonbell.targets.brokers.target import BrokerTarget
from noonbell.targets.http.guard import AddressGuard
from services import wait_until
from services.brokers import Broker, Cut, CutProxy, Taken, cut_proxy, new_name
from unit.targets.make import TOKEN, assignment

KINDS = {kind.named_by: kind for kind in TARGET_KINDS}
PATIENCE = 30.0
BAD_PASSWORD = "hunter2-canary"


@contextlib.asynccontextmanager
async def opened(kind: str, **executor: Any) -> AsyncIterator[OpenableTarget]:
    target = MAKERS[KINDS[kind].name](TargetParts(Settings(executor=ExecutorSettings(**executor)), None))  # type: ignore[arg-type]
    await target.open()
    try:
        yield target
    finally:
        await target.close()


@pytest.fixture
async def target(broker: Broker) -> AsyncIterator[OpenableTarget]:
    async with opened(broker.kind) as made:
        yield made


def attempt(kind: str, said: dict[str, Any], **fields: Any) -> Assignment:
    lease = {name: fields.pop(name) for name in ("payload", "overrides", "callback_token", "attempt") if name in fields}
    given = {name: fields.pop(name) for name in ("callback_url",) if name in fields}
    made = assignment(**lease, **given)
    spec = TaskSpec(name="greet", **{"timeout_seconds": 20, **fields, kind: message_of(kind, said)})
    return msgspec.structs.replace(made, task=msgspec.structs.replace(made.task, spec=spec))


def decided(outcome: Outcome, given: Assignment) -> retry.Decision:
    return retry.decide(given.task.spec, 0, 0, failure_of(outcome), 0.5)


async def arrived(taken: asyncio.Queue[Taken]) -> Taken:
    async with asyncio.timeout(PATIENCE):
        return await taken.get()


async def test_a_message_carries_the_payload_and_what_identifies_its_run(
    broker: Broker, target: OpenableTarget
) -> None:
    name = new_name()
    async with broker.consumer(name) as taken:
        given = attempt(
            broker.kind, broker.message(name, headers={"X-Shop": "of {{payload.shop}}"}), payload={"shop": "Käse"}
        )
        outcome = await target.execute(given)
        assert outcome.kind is OutcomeKind.SUCCESS, outcome
        message = await arrived(taken)
    assert json.loads(message.body) == {"shop": "Käse"}
    told = {
        "X-Shop": "of Käse",
        "X-Noonbell-Task": "7",
        "X-Noonbell-Task-Name": "greet",
        "X-Noonbell-Run": "42",
        "X-Noonbell-Attempt": "1",
        "X-Noonbell-Scheduled-Time": "2026-01-02T10:00:00Z",
        "Idempotency-Key": "noonbell-42-1767348000",
    }
    assert {key: message.headers.get(key) for key in told} == told


async def test_a_trigger_may_bring_another_body(broker: Broker, target: OpenableTarget) -> None:
    name = new_name()
    async with broker.consumer(name) as taken:
        for body, sent in (({"own": 1}, b'{"own": 1}'), ("as it is", b"as it is")):
            given = attempt(
                broker.kind, broker.message(name), payload={"of": "the task"}, overrides={"override_body": body}
            )
            assert (await target.execute(given)).kind is OutcomeKind.SUCCESS
            assert (await arrived(taken)).body == sent


async def test_the_destination_may_hold_placeholders(broker: Broker, target: OpenableTarget) -> None:
    name = new_name()
    async with broker.consumer(name) as taken:
        given = attempt(broker.kind, broker.message("{{payload.where}}"), payload={"where": name})
        assert (await target.execute(given)).kind is OutcomeKind.SUCCESS
        await arrived(taken)


async def test_connections_are_kept_and_shared_one_after_the_other(broker: Broker, target: OpenableTarget) -> None:
    name = new_name()
    async with broker.consumer(name), cut_proxy(broker.port, {}) as proxy:
        for _ in range(3):
            given = attempt(broker.kind, broker.at(proxy.port).message(name))
            assert (await target.execute(given)).kind is OutcomeKind.SUCCESS
        assert proxy.dials == 1


async def test_at_most_once_dials_anew_for_each_message(broker: Broker, target: OpenableTarget) -> None:
    name = new_name()
    async with broker.consumer(name), cut_proxy(broker.port, {}) as proxy:
        for _ in range(3):
            said = broker.at(proxy.port).message(name)
            given = attempt(broker.kind, said, delivery=Delivery.AT_MOST_ONCE)
            assert (await target.execute(given)).kind is OutcomeKind.SUCCESS
        assert proxy.dials == 3


@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_broker_that_dies_before_or_after_its_word_is_a_lost_connection_and_nothing_is_sent_twice(
    broker: Broker, target: OpenableTarget, cut: Cut, delivery: Delivery
) -> None:
    name = new_name()
    async with broker.consumer(name) as taken, cut_proxy(broker.port, {name.encode(): cut}) as proxy:
        more = {"jetstream": False} if broker.kind == "nats" else {}
        given = attempt(broker.kind, broker.at(proxy.port).message(name, **more), delivery=delivery)
        outcome = await target.execute(given)
        assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILURE, "connection_lost"), outcome
        assert (proxy.dials, proxy.seen) == (1, 1), "sent once, on one connection"
        assert type(decided(outcome, given)) is (Retry if delivery is Delivery.AT_LEAST_ONCE else Final)
        if cut == "after":
            await arrived(taken)
        assert taken.empty()


async def test_a_kept_connection_that_the_broker_closed_is_not_used(broker: Broker, target: OpenableTarget) -> None:
    name = new_name()
    async with broker.consumer(name), cut_proxy(broker.port, {}) as proxy:
        given = attempt(broker.kind, broker.at(proxy.port).message(name))
        assert (await target.execute(given)).kind is OutcomeKind.SUCCESS
        proxy.cut_all()
        async with asyncio.timeout(PATIENCE):
            await proxy.quiet.wait()
        for _ in range(10):
            await asyncio.sleep(0)  # rounds of the loop, in which the client hears of it
        assert (await target.execute(given)).kind is OutcomeKind.SUCCESS
        assert proxy.dials == 2


async def test_a_refused_connection_is_retried(broker: Broker, target: OpenableTarget) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        given = attempt(broker.kind, broker.at(taken.getsockname()[1]).message("x"))
        outcome = await target.execute(given)
    assert outcome.failure == "connection_refused"
    assert isinstance(decided(outcome, given), Retry)


async def test_what_does_not_speak_the_protocol_gets_no_payload(broker: Broker, target: OpenableTarget) -> None:
    """A canary in the payload, and a server that says something of its own to all that comes."""
    heard = bytearray()

    async def parrot(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.test ESMTP\r\n")
        while data := await reader.read(65536):
            heard.extend(data)
            writer.write(b"500 what?\r\n")
        writer.close()

    server = await asyncio.start_server(parrot, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        given = attempt(broker.kind, broker.at(port).message("canary-name"), payload="canary-body", timeout_seconds=7)
        outcome = await target.execute(given)
    assert outcome.kind is OutcomeKind.FAILURE
    assert b"canary" not in heard


@pytest.mark.parametrize(
    ("broker", "more", "kind"),
    [
        ("amqp", {"exchange": "no-such-exchange"}, "refused"),
        ("amqp", {"routing_key": "no-such-queue"}, "unroutable"),
        ("redis", {"stream": "not-a-stream"}, "refused"),
        ("mqtt", {"topic": "$SYS/not-for-clients"}, "refused"),
    ],
    indirect=["broker"],
)
async def test_what_the_broker_refuses_is_not_retried(
    broker: Broker, target: OpenableTarget, more: dict[str, Any], kind: str
) -> None:
    if broker.kind == "redis":
        async with redis.asyncio.Redis.from_url(broker.url) as client:
            await client.set("not-a-stream", "text")
    given = attempt(broker.kind, broker.message(new_name()) | more)
    outcome = await target.execute(given)
    assert outcome.failure == kind, outcome
    assert isinstance(decided(outcome, given), Final)


@pytest.mark.parametrize("broker", ["amqp"], indirect=True)
async def test_without_mandatory_a_message_that_no_queue_is_bound_for_is_a_success(
    broker: Broker, target: OpenableTarget
) -> None:
    given = attempt("amqp", broker.message(new_name(), mandatory=False))
    assert (await target.execute(given)).kind is OutcomeKind.SUCCESS


@pytest.mark.parametrize("broker", ["nats"], indirect=True)
async def test_a_stream_acknowledges_and_knows_a_message_that_comes_again(
    broker: Broker, target: OpenableTarget
) -> None:
    name = new_name()
    client = await nats.connect(broker.url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=name, subjects=[f"{name}.>"])
        given = attempt("nats", broker.message(f"{name}.a", jetstream=True))
        first, again = await target.execute(given), await target.execute(given)
        assert (first.result["seq"], again.result["seq"], again.result["duplicate"]) == (1, 1, True)
        stored = await stream.get_msg(name, 1)
        assert (stored.headers or {})["Nats-Msg-Id"] == "noonbell-42-1767348000"
        await stream.delete_stream(name)
    finally:
        await client.close()
    outcome = await target.execute(given)
    assert outcome.failure == "no_responders"
    assert isinstance(decided(outcome, given), Retry)


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
async def test_a_stream_is_cut_to_its_length_and_a_channel_tells_who_listened(
    broker: Broker, target: OpenableTarget
) -> None:
    name = new_name()
    async with redis.asyncio.Redis.from_url(broker.url) as client:
        for _ in range(300):
            await client.xadd(name, {"a": "b"})
        outcome = await target.execute(attempt("redis", broker.message(name, maxlen=10)))
        assert outcome.result["id"] == (await client.xrevrange(name, count=1))[0][0].decode()
        assert await client.xlen(name) < 300
        async with client.pubsub() as listener:
            await listener.subscribe(name)
            await listener.get_message(timeout=PATIENCE)
            outcome = await target.execute(attempt("redis", {"url": broker.url, "channel": name}, payload=[1]))
            assert outcome.result == {"receivers": 1}
            assert (await listener.get_message(timeout=PATIENCE))["data"] == b"[1]"


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("broker", ["mqtt"], indirect=True)
async def test_mqtt_publishes_with_every_quality_of_service(
    broker: Broker, target: OpenableTarget, qos: int, version: str
) -> None:
    name = new_name()
    said = broker.message(name, qos=qos, version=version, retain=True)
    assert (await target.execute(attempt("mqtt", said, payload={"n": qos}))).kind is OutcomeKind.SUCCESS
    async with broker.consumer(name) as taken:
        assert json.loads((await arrived(taken)).body) == {"n": qos}, "retained"
    assert (await target.execute(attempt("mqtt", said, overrides={"override_body": ""}))).kind is OutcomeKind.SUCCESS


# Answers


async def answered(broker: Broker, target: OpenableTarget, answer: bytes) -> Outcome:
    name = new_name()
    async with broker.consumer(name) as taken:
        under_way = asyncio.create_task(
            target.execute(attempt(broker.kind, broker.message(name, reply=True), payload=2))
        )
        message = await arrived(taken)
        assert message.answer is not None
        assert not under_way.done()
        await message.answer(answer)
        async with asyncio.timeout(PATIENCE):
            return await under_way


@pytest.mark.parametrize("broker", ["amqp", "nats"], indirect=True)
@pytest.mark.parametrize(
    ("answer", "kind", "result", "message"),
    [
        (b'{"sum": 4}', OutcomeKind.SUCCESS, {"sum": 4}, None),
        (b"plain", OutcomeKind.SUCCESS, "plain", None),
        (b'{"status": "SUCCESS", "data": [1]}', OutcomeKind.SUCCESS, [1], None),
        (b'{"status": "FAILED", "error_message": "no stock"}', OutcomeKind.FAILURE, None, "no stock"),
    ],
)
async def test_the_reply_of_a_consumer_is_the_result(
    broker: Broker, target: OpenableTarget, answer: bytes, kind: OutcomeKind, result: Any, message: str | None
) -> None:
    outcome = await answered(broker, target, answer)
    assert (outcome.kind, outcome.result, outcome.error_message) == (kind, result, message)
    assert (await answered(broker, target, answer)).kind is kind, "the connection serves again"


@pytest.mark.parametrize("broker", ["amqp", "nats"], indirect=True)
async def test_no_reply_is_a_timeout_that_names_the_consumer(broker: Broker, target: OpenableTarget) -> None:
    name = new_name()
    async with broker.consumer(name):
        given = attempt(broker.kind, broker.message(name, reply=True), timeout_seconds=0.3)
        outcome = await target.execute(given)
    assert (outcome.failure, outcome.error_message) == ("timeout", "no response from the consumer within 0.3 s")


@pytest.mark.parametrize("broker", ["amqp", "nats"], indirect=True)
async def test_a_connection_that_is_lost_while_a_reply_is_awaited_ends_the_attempt(
    broker: Broker, target: OpenableTarget
) -> None:
    name = new_name()
    async with broker.consumer(name) as taken, cut_proxy(broker.port, {}) as proxy:
        said = broker.at(proxy.port).message(name, reply=True)
        under_way = asyncio.create_task(target.execute(attempt(broker.kind, said)))
        await arrived(taken)
        proxy.cut_all()
        async with asyncio.timeout(PATIENCE):
            assert (await under_way).failure == "connection_lost"


async def test_with_callback_the_message_carries_the_address_and_the_run_waits(
    broker: Broker, target: OpenableTarget
) -> None:
    name = new_name()
    url = f"http://127.0.0.1:1/api/v1/callbacks/{TOKEN}"
    async with broker.consumer(name) as taken:
        given = attempt(broker.kind, broker.message(name, callback=True), callback_token=TOKEN, callback_url=url)
        outcome = await target.execute(given)
        headers = (await arrived(taken)).headers
    assert outcome.kind is OutcomeKind.ACCEPTED
    assert (headers["X-Callback-Url"], headers["X-Callback-Token"]) == (url, TOKEN)
    assert TOKEN not in msgspec.json.encode(outcome.bodies).decode()


# Secrets and addresses


def with_password(broker: Broker, password: str) -> Broker:
    return Broker(
        broker.kind,
        f"{broker.kind}://someone:{password}@127.0.0.1:{broker.port}" + ("/0" if broker.kind == "redis" else ""),
    )


@pytest.mark.parametrize("broker", ["amqp", "redis"], indirect=True)
async def test_wrong_credentials_are_not_retried_and_shown_nowhere(broker: Broker, target: OpenableTarget) -> None:
    said = with_password(broker, BAD_PASSWORD).message("x", headers={"Authorization": "Bearer canary-header"})
    given = attempt(broker.kind, said)
    outcome = await target.execute(given)
    assert outcome.failure == "authentication", outcome
    assert isinstance(decided(outcome, given), Final)
    text = msgspec.json.encode(outcome).decode()
    assert BAD_PASSWORD not in text
    assert "canary-header" not in text


@pytest.fixture
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A NATS server or a Mosquitto of its own that asks for a password."""
    kind = request.param
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    request.getfixturevalue("broker_named")(kind)  # its binary is there then, or the test is skipped
    conf = tmp_path / "conf"
    if kind == "nats":
        conf.write_text(f'listen: "127.0.0.1:{port}"\nauthorization {{ user: "u", password: "right-password" }}\n')
        command = [binary("nats-server"), "-c", str(conf)]
    else:
        passwords = tmp_path / "passwords"
        passwords.touch(mode=0o600)
        subprocess.run(
            [binary("mosquitto_passwd"), "-b", passwords, "u", "right-password"], check=True, capture_output=True
        )
        conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\nuser root\n")
        command = [binary("mosquitto"), "-c", str(conf)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port), PATIENCE)
        yield Broker(kind, f"{kind}://u:right-password@127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def binary(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_password_that_the_server_repeats_is_shown_nowhere() -> None:
    """A Redis that says in its refusal what it was sent."""
    heard: list[str] = []

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            text = (await reader.read(1000)).decode()
            heard.append(text)
            writer.write(f"-ERR cannot take {' '.join(text.split())}\r\n".encode())
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(repeat, "127.0.0.1", 0)
    url = f"redis://ann:{BAD_PASSWORD}@127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    async with server, opened("redis") as target:
        outcome = await target.execute(attempt("redis", {"url": url, "stream": "s"}))
    assert BAD_PASSWORD in heard[0]
    assert (outcome.kind, "cannot take" in str(outcome.error_message)) == (OutcomeKind.FAILURE, True), outcome
    assert BAD_PASSWORD not in msgspec.json.encode(outcome).decode()


@pytest.mark.parametrize("guarded", ["nats", "mqtt"], indirect=True)
async def test_a_broker_with_passwords_takes_the_right_one_and_no_other(guarded: Broker) -> None:
    async with opened(guarded.kind) as target:
        right = await target.execute(attempt(guarded.kind, guarded.message("a")))
        assert right.kind is OutcomeKind.SUCCESS, right
        wrong = Broker(guarded.kind, guarded.url.replace("right-password", BAD_PASSWORD))
        given = attempt(guarded.kind, wrong.message("a"))
        outcome = await target.execute(given)
    assert outcome.failure == "authentication", outcome
    assert isinstance(decided(outcome, given), Final)
    assert BAD_PASSWORD not in msgspec.json.encode(outcome).decode()


async def test_a_denied_address_is_not_dialled(broker: Broker) -> None:
    async with opened(broker.kind, deny_networks=("127.0.0.0/8",)) as target, cut_proxy(broker.port, {}) as proxy:
        outcome = await target.execute(attempt(broker.kind, broker.at(proxy.port).message("x")))
        assert outcome.failure == "blocked_address"
        assert proxy.dials == 0


async def test_ports_of_other_protocols_are_denied(broker: Broker, target: OpenableTarget) -> None:
    outcome = await target.execute(attempt(broker.kind, broker.at(25).message("x")))
    assert outcome.failure == "blocked_address"


class Rebinding:
    """A name that leads to a broker the first time, and then to the metadata service."""

    def __init__(self) -> None:
        self.asked = 0

    async def resolve(self, host: str) -> list[str]:
        del host
        self.asked += 1
        return ["127.0.0.1"] if self.asked == 1 else ["169.254.169.254"]

    async def close(self) -> None: ...


async def test_the_address_that_was_checked_is_the_one_that_is_dialled(broker: Broker) -> None:
    """No client of a broker asks for the name again."""
    names = Rebinding()
    async with cut_proxy(broker.port, {}) as proxy:
        made = MAKERS[KINDS[broker.kind].name](TargetParts(Settings(), None))  # type: ignore[arg-type]
        assert isinstance(made, BrokerTarget)
        target = BrokerTarget(made.client, guard=AddressGuard(deny_ports=OTHER_PORTS), resolver=names)
        await target.open()
        said = broker.at(proxy.port).message(new_name()) | ({"mandatory": False} if broker.kind == "amqp" else {})
        said["url"] = said["url"].replace("127.0.0.1", "broker.test")
        outcome = await target.execute(attempt(broker.kind, said))
        assert outcome.kind is OutcomeKind.SUCCESS, outcome
        assert (names.asked, proxy.dials) == (1, 1)
        await target.close()


def test_metadata_addresses_are_not_dialled_by_any_client() -> None:
    """In a network of its own, where every address leads to a canary."""
    for kind, answers in tried_alone(sorted(MESSAGES)).items():
        assert answers["open"] == {"seen": 1}, f"{kind}: without the guard the canary is reached"
        assert answers["guarded"] == {"failure": "blocked_address", "seen": 0}, kind


@pytest.fixture
async def tls_proxy(broker: Broker, certificate: Path) -> AsyncIterator[int]:
    """TLS in front of the broker, with a certificate for 127.0.0.1 and secure.test."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    proxy = CutProxy(broker.port, {})
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


SECURE = {"amqp": "amqps", "redis": "rediss", "mqtt": "mqtts"}


class AlwaysLoopback:
    async def resolve(self, host: str) -> list[str]:
        del host
        return ["127.0.0.1"]

    async def close(self) -> None: ...


@pytest.mark.parametrize("broker", list(SECURE), indirect=True)
async def test_tls_is_verified_by_the_name_of_the_broker(broker: Broker, tls_proxy: int, certificate: Path) -> None:
    said = broker.at(tls_proxy).message(new_name()) | ({"mandatory": False} if broker.kind == "amqp" else {})
    said["url"] = said["url"].replace(f"{broker.kind}://", f"{SECURE[broker.kind]}://")
    made = MAKERS[KINDS[broker.kind].name](TargetParts(Settings(), None))  # type: ignore[arg-type]
    assert isinstance(made, BrokerTarget)
    outcomes = {}
    for host in ("secure.test", "127.0.0.1", "other.test"):
        trusted = ssl.create_default_context(cafile=str(certificate))
        guard = AddressGuard(deny_ports=OTHER_PORTS)
        target = BrokerTarget(made.client, guard=guard, resolver=AlwaysLoopback(), ssl_context=trusted)
        await target.open()
        outcome = await target.execute(attempt(broker.kind, said | {"url": said["url"].replace("127.0.0.1", host)}))
        outcomes[host] = outcome.failure
        await target.close()
    assert outcomes == {"secure.test": None, "127.0.0.1": None, "other.test": "tls"}
    async with opened(broker.kind) as target:
        assert (await target.execute(attempt(broker.kind, said))).failure == "tls", "nobody has signed it"


@pytest.mark.parametrize("broker", ["nats"], indirect=True)
async def test_no_credentials_are_sent_to_a_server_without_tls_where_the_address_asks_for_it(
    broker: Broker, target: OpenableTarget
) -> None:
    token = random_bytes.token_hex(8)
    said = broker.message("a") | {"url": f"tls://{token}@127.0.0.1:{broker.port}"}
    outcome = await target.execute(attempt("nats", said))
    assert outcome.failure == "tls", outcome
    assert token not in msgspec.json.encode(outcome).decode()


async def test_a_message_that_is_too_large_is_not_sent(broker: Broker) -> None:
    async with opened(broker.kind, max_body_bytes=1000) as target:
        given = attempt(broker.kind, broker.message("x"), payload="x" * 1001)
        outcome = await target.execute(given)
    assert outcome.failure == "too_large"
    assert isinstance(decided(outcome, given), Final)


@pytest.mark.parametrize("broker", ["nats"], indirect=True)
async def test_a_message_that_is_larger_than_the_server_takes_is_not_sent(
    broker: Broker, target: OpenableTarget
) -> None:
    outcome = await target.execute(attempt("nats", broker.message("x"), payload="x" * 2_000_000))
    assert outcome.failure == "too_large"


async def test_nats_has_the_message_before_it_is_asked_whether_it_has_it() -> None:
    """The client writes a PING past what waits to be written: its answer would say nothing of the message."""
    verbs: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id": "x", "version": "2.9.10", "headers": true, "max_payload": 1048576}\r\n')
        while line := await reader.readline():
            verbs.append(line.split()[0].decode())
            if verbs[-1] == "HPUB":
                await reader.readexactly(int(line.split()[-1]) + 2)
            elif verbs[-1] == "PING":
                writer.write(b"PONG\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, opened("nats") as target:
        broker = Broker("nats", f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        outcome = await target.execute(attempt("nats", broker.message("a")))
    assert outcome.kind is OutcomeKind.SUCCESS, outcome
    assert verbs == ["CONNECT", "PING", "HPUB", "PING"]
