"""Nodes on one store that are killed and come back, each life under a name of its own."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceptance.harness import PATIENCE, READY, Nodes, ServerNode, until

RESTART_WITHIN = 3.0
"""Seconds that a node stays away at most, chosen anew each time."""


class Cluster:
    """`size` nodes. A life's name (`b3`: the third of node b) goes out with each request, as the header X-Node."""

    def __init__(
        self,
        folder: Path,
        store: str | Mapping[str, str],
        size: int,
        seed: int,
        *,
        program: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`store`: one address for all, or one for each of a, b, c. `program`: see `ServerNode`; it may be changed for
        the lives that follow.
        """
        self._nodes = Nodes(folder)
        self._store, self._env = store, dict(env or {})
        self.program = program
        self._random = random.Random(seed)
        self._lives = dict.fromkeys("abcdefgh"[:size], 0)
        self._running: dict[str, ServerNode] = {}
        self._back_at: dict[str, float] = {}
        self.kills: dict[str, float] = {}
        """When each life was ended, by the wall clock."""

    def start(self) -> None:
        for name in self._lives:
            self.launch(name)
        until(lambda: len(self.ready()) == len(self._lives), "all nodes to be ready", 2 * PATIENCE)

    def launch(self, name: str) -> ServerNode:
        self._lives[name] += 1
        life = f"{name}{self._lives[name]}"
        env = self._env | {"NOONBELL_EXECUTOR__GLOBAL_HEADERS": json.dumps({"X-Node": life})}
        store = self._store if isinstance(self._store, str) else self._store[name]
        node = self._nodes.launch("--store", store, "--port", "0", name=life, env=env, program=self.program)
        self._running[name] = node
        return node

    def take_out(self, name: str) -> ServerNode:
        """It may end, or has ended, by itself."""
        return self._running.pop(name)

    def kill(self, name: str) -> None:
        """Kill -9, wherever the others are."""
        victim = self.take_out(name)
        self.kills[victim.name] = time.time()
        victim.kill()

    def ready(self) -> list[ServerNode]:
        """Those that have said so. None may have ended by itself."""
        ready = []
        for node in self._running.values():
            assert node.is_running, f"{node.name} ended by itself:\n{node.log[-4000:]}"
            if node.port == 0 and (found := READY.search(node.log)):
                node.port = int(found["port"])
            if node.port:
                ready.append(node)
        return ready

    def kill_one(self) -> str | None:
        """Kill -9 of one that is ready, if another one is."""
        ready = self.ready()
        if len(ready) < 2:
            return None
        victim = self._random.choice(ready)
        name = victim.name[0]
        self.kill(name)
        self._back_at[name] = time.monotonic() + self._random.choice([0.0, self._random.uniform(0, RESTART_WITHIN)])
        return victim.name

    def bring_back(self, *, at_once: bool = False) -> None:
        """Start again those whose time has come."""
        for name, moment in list(self._back_at.items()):
            if at_once or time.monotonic() >= moment:
                del self._back_at[name]
                self.launch(name)

    def ask(self, method: str, path: str, body: Any = None, *, expect: int = 200) -> Any:
        return self.ready()[0].ask(method, path, body, expect=expect)

    def logs(self) -> dict[str, str]:
        return {node.name: node.log for node in self._nodes._started}

    def end(self) -> None:
        self._nodes.end()
