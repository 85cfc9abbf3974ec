"""A body of 8 MiB on every route, of every hostile shape in turn: the event loop of a real server goes on.

`python -m bench hostile` sends every shape to every route and prints what `livez` took meanwhile.
"""

from __future__ import annotations

import re
import sys
from itertools import islice

import pytest
from bench.hostile import Probe, Server, attacks

pytestmark = pytest.mark.acceptance

STALL = re.compile(r"stalled for ([\d.]+) s \(([\d.]+) s of processor time by this process\): (.*)")
MOST = 1.0
"""Seconds of processor time without a turn of the loop: what a busy machine adds does not count."""


@pytest.mark.parametrize("caller", ["anonymous", "admin"])
@pytest.mark.slow
def test_no_body_on_any_route_holds_the_event_loop(tmp_path, caller):
    with Server(tmp_path) as server, Probe(server.port) as probe:
        routes = server.routes()
        assert len(routes) > 120
        # Each route gets another shape than its neighbour: over the table every shape is sent many times.
        every_tenth = islice(attacks(server, routes, caller), 0, None, 10)
        statuses = [attack()[2] for attack in every_tenth]
        # Callbacks need no token, so they get all of them.
        callbacks = [route for route in routes if "callbacks" in route.path]
        statuses += [attack()[2] for attack in attacks(server, callbacks, caller)]
        sys.stdout.write(f"{caller}: {len(statuses)} bodies, the highest livez was {probe.worst * 1000:.0f} ms\n")
        _, page = server.call("GET", "/metrics", authorization=f"Bearer {server.token}")
        log = server.log
    assert b"noonbell_loop_stall_seconds_count" in page
    assert probe.refused == 0
    assert probe.answers > 0
    assert max(statuses) < 500
    stalls = [found.groups() for found in STALL.finditer(log)]
    assert [stall for stall in stalls if min(float(stall[0]), float(stall[1])) > MOST] == []
