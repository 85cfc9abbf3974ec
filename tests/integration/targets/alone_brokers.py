"""Messages from a network of their own, where every address of the world leads to one canary and to nothing else: see `alone.py`.

Run as `unshare -n python alone_brokers.py`, with the kinds of brokers as JSON on standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from integration.targets.alone import OpenDoor, bring_everything_home, raise_loopback, stay_at_home

TESTS = Path(__file__).parents[2]
PORT = 8000
METADATA = "169.254.169.254"


def tried_alone(kinds: list[str]) -> dict[str, Any]:
    """For each kind: what came of a message to the metadata service, with the guard and without it."""
    from integration.targets.test_addresses import unshare

    command = [*unshare(), sys.executable, __file__]
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, input=json.dumps(kinds), capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def tried(kinds: list[str]) -> dict[str, Any]:
    from conformance.target.scenes import message_of
    from noonbell.model.target_kind import TARGET_KINDS
    from noonbell.model.task import TaskSpec
    from noonbell.settings import Settings
    from noonbell.targets import MAKERS, TargetParts
    from noonbell.targets.brokers.target import BrokerTarget
    from services.brokers import Broker
    from unit.targets.make import assignment

    seen = 0

    async def canary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        writer.close()

    server = await asyncio.start_server(canary, "0.0.0.0", PORT)
    answers: dict[str, Any] = {}
    for kind in kinds:
        name = next(each.name for each in TARGET_KINDS if each.named_by == kind)
        made = MAKERS[name](TargetParts(Settings(), None))  # type: ignore[arg-type]
        assert isinstance(made, BrokerTarget)
        given = assignment()
        message = message_of(kind, Broker(kind, f"{kind}://{METADATA}:{PORT}").message("x"))
        spec = TaskSpec(name="greet", timeout_seconds=5, **{kind: message})
        given = msgspec.structs.replace(given, task=msgspec.structs.replace(given.task, spec=spec))
        answers[kind] = {}
        for way, target in (("open", BrokerTarget(made.client, guard=OpenDoor())), ("guarded", made)):
            before = seen
            await target.open()
            outcome = await target.execute(given)
            await target.close()
            said = {"failure": outcome.failure} if way == "guarded" else {}
            answers[kind][way] = {**said, "seen": seen - before}
    server.close()
    return answers


def main() -> None:
    stay_at_home()
    raise_loopback()
    bring_everything_home(socket.AF_INET)
    json.dump(asyncio.run(tried(json.load(sys.stdin))), sys.stdout)


if __name__ == "__main__":
    main()
