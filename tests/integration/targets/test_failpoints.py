"""Where an attempt can be made to die: K5 after the request has left, K8 after an ASYNC target has taken it on."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from integration.targets.sink import listening, replies, silence
from noonbell.engine import failpoint
from noonbell.model.target_kind import ExecType
from unit.targets.make import assignment

TESTS = Path(__file__).parents[2]
CALL = """
import asyncio, sys
from noonbell.model.target_kind import ExecType
from noonbell.targets.http.target import HttpTarget
from unit.targets.make import assignment

async def main(url, method, body, kind):
    target = HttpTarget()
    await target.open()
    await target.execute(assignment(url, http_method=method, exec_type=ExecType(kind), body_template=body or None))
    await target.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def dies(point: str, url: str, method: str, body: str, kind: str) -> int | None:
    """The exit status of a process that makes the call with this failpoint armed."""
    before = os.environ.get("PYTHONPATH")
    env = os.environ | {
        failpoint.VARIABLE: point,
        "PYTHONPATH": os.pathsep.join([str(TESTS), *([before] if before else [])]),
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CALL, url, method, body, kind, env=env)
    return await asyncio.wait_for(process.wait(), 60)


@pytest.mark.parametrize(("method", "body"), [("GET", ""), ("POST", "hello")])
async def test_at_k5_the_whole_request_has_left(method, body):
    async with listening(silence) as sink:
        assert await dies("K5", sink.url(), method, body, "SYNC") == failpoint.STATUS
        await asyncio.wait_for(sink.dropped.wait(), 60)
    (asked,) = sink.asked
    assert (asked.method, asked.body) == (method, body.encode())


async def test_at_k8_an_async_target_has_answered():
    async with listening(replies(202)) as sink:
        assert await dies("K8", sink.url(), "POST", "hello", "ASYNC") == failpoint.STATUS
        assert await dies("K8", sink.url(), "POST", "hello", "SYNC") == 0
    assert len(sink.asked) == 2


async def test_a_refused_async_call_does_not_reach_k8(target, monkeypatch):
    hits = []
    monkeypatch.setattr(failpoint, "hit", hits.append)
    async with listening(replies(500)) as sink:
        await target.execute(assignment(sink.url(), exec_type=ExecType.ASYNC))
    assert hits == ["K5"]
