"""What every measured process prints: one line of JSON. Standard library only, because peers import it too."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass

PAYLOAD = b"x" * 100
BATCH = 1000
"""Rows per publish call, for everyone who can publish more than one."""


@dataclass(frozen=True)
class Sample:
    """Rates are per second. None: this one has no such thing, or was not asked for it."""

    peer: str
    version: str
    publish_one: float | None
    publish_batch: float | None
    drain: float | None
    n: int
    settings: str
    plan: float | None = None

    def print(self) -> None:
        print(json.dumps(asdict(self)), flush=True)


@dataclass
class Handler:
    """Counts no-op calls. The rate runs from the first to the last of them, so that start-up is left out."""

    expected: int
    count: int = 0
    first: float = 0.0
    last: float = 0.0

    def hit(self) -> bool:
        """True on the last expected call."""
        self.count += 1
        if self.count == 1:
            self.first = time.perf_counter()
        if self.count != self.expected:
            return False
        self.last = time.perf_counter()
        return True

    @property
    def rate(self) -> float:
        if self.count < self.expected:
            raise SystemExit(f"bench: only {self.count} of {self.expected} jobs ran")
        return (self.expected - 1) / (self.last - self.first)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True, help="a fresh database: a PostgreSQL address or a file name")
    parser.add_argument("--one", type=int, required=True, help="how many to publish one by one")
    parser.add_argument("--drain", type=int, required=True, help="how many to publish in batches, then drain")
    return parser.parse_args()
