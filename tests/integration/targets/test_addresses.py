"""The guard on the wire: whatever the spelling, the name or the redirect, a denied address is never dialled.

What names foreign addresses is tried in a network of its own (`alone.py`), where nothing can leave the machine.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from integration.targets.sink import http, listening, replies
from noonbell.model.run import OutcomeKind
from noonbell.model.target_kind import ExecType
from noonbell.targets.http import guard
from noonbell.targets.http.guard import AddressGuard
from unit.targets.make import TOKEN, assignment

TESTS = Path(__file__).parents[2]
NO_LOOPBACK = {"deny_networks": ["127.0.0.0/8", "::1/128"]}

LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "0",
    "0.0.0.0",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0x7F.0x0.0x0.0x1",
    "0177.0.0.1",
    "017700000001",
    "00000177.1",
    "127.0.0.1.",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "１２７.0.0.1",
    "%31%32%37.0.0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[::127.0.0.1]",
    "[::7f00:1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:db8::5efe:127.0.0.1]",
]
"""Ways to write an address of this machine."""

FOREIGN = [
    "169.254.169.254",
    "169.254.170.2",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fec0::1]",
    "[ff02::1]",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
]
"""Metadata services and other addresses that are denied everywhere."""


def alone(hosts: list[str], guard: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """What becomes of a call to each host, in a network of its own."""
    orders = json.dumps({"urls": [f"http://{host}:PORT/" for host in hosts], "guard": guard})
    done = subprocess.run(
        [*unshare(), sys.executable, Path(__file__).with_name("alone.py")],
        input=orders,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))},
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(hosts, json.loads(done.stdout), strict=True))


@functools.cache
def unshare() -> list[str]:
    """The command that gives a process a network of its own; where there is none, the test is not run."""
    for command in (["unshare", "-n"], ["unshare", "-r", "-n"]):
        if (
            shutil.which("unshare")
            and subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0
        ):
            return command
    reason = "no network namespaces: calls to foreign addresses were NOT tried"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason)
    pytest.skip(reason)


def seen(answers: dict[str, dict[str, Any]]) -> list[str]:
    return [host for host, answer in answers.items() if answer["seen"]]


def test_a_denied_loopback_is_not_dialled_in_any_spelling():
    answers = alone(LOOPBACK, NO_LOOPBACK)
    assert seen(answers) == []
    kinds = {host: answer["failure"] for host, answer in answers.items()}
    assert {host: kind for host, kind in kinds.items() if kind not in {"blocked_address", "fail", "dns"}} == {}
    assert sum(kind == "blocked_address" for kind in kinds.values()) >= 25


def test_metadata_and_its_kin_are_not_dialled_in_any_spelling():
    answers = alone(FOREIGN, {})
    assert seen(answers) == []
    kinds = {host: answer["failure"] for host, answer in answers.items()}
    assert {host: kind for host, kind in kinds.items() if kind not in {"blocked_address", "fail", "dns"}} == {}
    assert sum(kind == "blocked_address" for kind in kinds.values()) >= 18


def test_without_the_guard_the_canary_is_reached():
    """The two tests above mean something: the same calls end at the canary where nobody stands in the way."""
    reached = seen(alone(LOOPBACK + FOREIGN, None))
    assert len(reached) >= 40
    assert {"169.254.169.254", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[::127.0.0.1]"} <= set(reached)


def test_an_allowed_network_is_dialled():
    answers = alone(["169.254.169.254", "169.254.169.253"], {"allow_networks": ["169.254.169.254/32"]})
    assert seen(answers) == ["169.254.169.254"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "127.1", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_a_canary_on_loopback_sees_nothing(opened, host):
    target = await opened(guard=AddressGuard(**NO_LOOPBACK))
    async with listening(replies()) as canary:
        outcome = await target.execute(assignment(canary.url(host=host)))
    assert outcome.failure in {"blocked_address", "fail"}  # some spellings do not even get past the reader of URLs
    assert outcome.response_code is None
    assert canary.connections == 0


class Names:
    """A name server that gives these answers, one after the other, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(self, host):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def close(self):
        pass


async def test_a_name_that_points_elsewhere_the_second_time_is_stopped_at_the_dial(opened):
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    target = await opened(guard=AddressGuard(deny_networks=["127.0.0.2/32"]), resolver=names)
    async with listening(replies(200, b"x", Connection="close")) as sink:
        first = await target.execute(assignment(sink.url(host="rebind.test")))
        target._pool.names.forget()
        second = await target.execute(assignment(sink.url(host="rebind.test")))
    assert first.kind is OutcomeKind.SUCCESS
    assert (second.failure, sink.connections) == ("blocked_address", 1)


async def test_a_denied_address_behind_a_dead_one_is_not_dialled_either(opened):
    target = await opened(
        guard=AddressGuard(deny_networks=["127.0.0.1/32"]), resolver=Names(["127.0.0.2", "127.0.0.1"])
    )
    async with listening(replies()) as canary:  # on 127.0.0.1 alone: 127.0.0.2 refuses
        outcome = await target.execute(assignment(canary.url(host="two.test")))
    assert outcome.failure == "connection_refused"
    assert canary.connections == 0


async def test_a_name_with_one_good_address_is_called_there(opened):
    target = await opened(
        guard=AddressGuard(deny_networks=["127.0.0.2/32"]), resolver=Names(["127.0.0.2", "127.0.0.1"])
    )
    async with listening(replies(200, b"well")) as sink:
        outcome = await target.execute(assignment(sink.url(host="two.test")))
    assert outcome.kind is OutcomeKind.SUCCESS


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:70/", "ws://127.0.0.1/"])
async def test_other_schemes_are_not_spoken(target, url):
    outcome = await target.execute(assignment(url))
    assert outcome.failure == "blocked_address"


async def test_the_ports_of_other_services_are_not_dialled(target):
    outcome = await target.execute(assignment("http://127.0.0.1:25/"))
    said = {"code": "port_denied", "facts": {"port": 25}}
    assert (outcome.failure, outcome.error_details) == ("blocked_address", {"kind": "blocked_address", "said": said})


# Redirects


async def test_a_redirect_is_not_followed_unless_the_task_says_so(target):
    async with listening(replies()) as other, listening(replies(302, Location=other.url())) as sink:
        outcome = await target.execute(assignment(sink.url()))
    assert (outcome.failure, outcome.response_code, other.connections) == ("http_3xx", 302, 0)


async def test_a_redirect_to_another_origin_carries_no_secret(target):
    secrets = {
        "Authorization": "Bearer abcdef",
        "Cookie": "a=b",
        "X-Api-Key": "k",
        "X-My-Token": "t",
        "Accept-Language": "de",
    }
    async with listening(replies(200, b"end")) as other, listening(replies(307, Location=other.url("/z"))) as sink:
        outcome = await target.execute(
            assignment(
                sink.url(),
                http_method="POST",
                body_template="body",
                headers=secrets,
                secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                exec_type=ExecType.ASYNC,
                callback_token=TOKEN,
                callback_url=f"http://bell.test/{TOKEN}",
                follow_redirects=True,
            )
        )
    assert outcome.kind is OutcomeKind.ACCEPTED
    assert outcome.bodies.response_body == "end"
    first, last = sink.asked[0].headers, other.asked[0].headers
    assert set(first) - set(last) == {
        *("authorization", "cookie", "x-api-key", "x-my-token", "x-callback-url", "x-callback-token"),
        *("webhook-id", "webhook-timestamp", "webhook-signature"),
    }
    assert last["accept-language"] == "de"
    assert last["host"] == f"127.0.0.1:{other.port}"
    assert (other.asked[0].method, other.asked[0].path, other.asked[0].body) == ("POST", "/z", b"body")


async def test_a_redirect_on_the_same_origin_keeps_them(target):
    async def answer(asked, line):
        await line.say(http(302, Location="/z") if asked.path == "/" else http(200, b"end"))

    async with listening(answer) as sink:
        headers = {"Authorization": "Bearer abcdef"}
        outcome = await target.execute(assignment(sink.url(), headers=headers, follow_redirects=True))
    assert outcome.kind is OutcomeKind.SUCCESS
    assert [asked.headers["authorization"] for asked in sink.asked] == ["Bearer abcdef"] * 2


async def test_a_redirect_to_a_denied_address_is_stopped_at_the_dial(opened):
    target = await opened(guard=AddressGuard(deny_networks=["127.0.0.2/32"]))
    async with listening(replies(), host="127.0.0.2") as canary, listening(replies(302, Location=canary.url())) as sink:
        outcome = await target.execute(assignment(sink.url(), follow_redirects=True))
    assert outcome.failure == "blocked_address"
    assert (len(sink.asked), canary.connections) == (1, 0)


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_redirect_from_outside_to_this_machine_is_not_followed(opened, monkeypatch, is_kept):
    """127.0.0.2 stands for a host on the internet."""
    monkeypatch.setattr(guard, "_depth", lambda address: 0 if address == "127.0.0.2" else 2)
    target = await opened()
    async with (
        listening(replies(200, b"done")) as inside,
        listening(replies(307, Location=inside.url("/api/v1/tasks/1/disable")), host="127.0.0.2") as outside,
    ):
        if is_kept:
            await target.execute(assignment(inside.url()))  # leaves a connection
        outcome = await target.execute(assignment(outside.url(), http_method="POST", follow_redirects=True))
        inward = await target.execute(assignment(inside.url("/by-name")))  # the task may name it
    assert (outcome.failure, inward.kind) == ("blocked_address", OutcomeKind.SUCCESS)
    assert [asked.method for asked in inside.asked] == ["GET"] * (1 + is_kept)


async def test_a_redirect_to_our_own_port_is_not_followed(opened):
    async with listening(replies(200, b"done")) as own, listening(replies(307, Location=own.url("/"))) as sink:
        target = await opened(own_ports=(own.port,))
        outcome = await target.execute(assignment(sink.url(), follow_redirects=True))
        direct = await target.execute(assignment(own.url("/direct")))
    assert (outcome.failure, direct.kind) == ("blocked_address", OutcomeKind.SUCCESS)
    assert [asked.path for asked in own.asked] == ["/direct"]


async def test_a_redirect_that_is_dialled_again_after_a_lost_connection_does_not_reach_our_own_port(opened):
    async def once(asked, line):
        if len(elsewhere.asked) == 1:
            await line.say(http(200, b"kept open"))
        else:
            line.writer.close()

    async with (
        listening(replies(200, b"done")) as own,
        listening(once, host="127.0.0.2", port=own.port) as elsewhere,
        listening(replies(307, Location=own.url("/", host="rebind.test"))) as sink,
    ):
        target = await opened(own_ports=(own.port,), resolver=Names(["127.0.0.2"], ["127.0.0.1"]))
        first = await target.execute(assignment(own.url("/", host="rebind.test")))
        target._pool.names.forget()
        outcome = await target.execute(assignment(sink.url(), follow_redirects=True))
    assert (first.kind, len(elsewhere.asked)) == (OutcomeKind.SUCCESS, 2)
    assert (outcome.failure, own.asked) == ("blocked_address", [])


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:70/x", "data:,x"])
async def test_a_redirect_to_another_scheme_is_not_followed(target, location):
    async with listening(replies(302, Location=location)) as sink:
        outcome = await target.execute(assignment(sink.url(), follow_redirects=True))
    assert outcome.failure == "blocked_address"


async def test_a_redirect_loop_ends_after_five_hops(target):
    async with listening(replies(302, Location="/again")) as sink:
        outcome = await target.execute(assignment(sink.url(), follow_redirects=True))
    assert (outcome.failure, outcome.response_code) == ("http_3xx", 302)
    assert "5 redirects" in outcome.error_message
    assert len(sink.asked) == 6


async def test_slow_redirects_end_at_the_deadline_of_the_whole_call(target):
    async def answer(_asked, line):
        await asyncio.sleep(0.15)
        await line.say(http(302, Location="/again"))

    async with listening(answer) as sink:
        outcome = await target.execute(assignment(sink.url(), follow_redirects=True, timeout_seconds=0.4))
    assert outcome.failure == "timeout"
    assert len(sink.asked) <= 3


async def test_a_raw_sink_sees_no_header_that_was_not_meant(target):
    async with listening(replies()) as sink:
        outcome = await target.execute(
            assignment(
                sink.url("/{{payload.x}}"),
                headers={"X-A": "fine"},
                payload={"x": "a HTTP/1.1\r\nX-Smuggled: 1\r\n\r\n"},
            )
        )
        refused = await target.execute(
            assignment(sink.url(), headers={"X-A": "{{payload.x}}"}, payload={"x": "a\r\nX-Smuggled: 1"})
        )
    assert outcome.kind is OutcomeKind.SUCCESS
    assert refused.failure == "fail"
    (asked,) = sink.asked
    assert "x-smuggled" not in asked.headers
    assert unquote(asked.path) == "/a HTTP/1.1\r\nX-Smuggled: 1\r\n\r\n"
