"""Failpoints: places where a test makes the process die as `kill -9` would. Off unless the environment names one.

`NOONBELL_FAILPOINT=K3` dies the first time that K3 is reached, `K3:2` the second time; several are parted by commas.
The names are those of the kill points in docs/explanation/engine.md. Where the variable is not set, `hit` is a function
that does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

VARIABLE = "NOONBELL_FAILPOINT"
STATUS = 137
"""What a shell reports of a process that was killed with signal 9."""


def parse(text: str) -> dict[str, int]:
    """Each name with the count at which it strikes: "K3,K7:2" is {"K3": 1, "K7": 2}."""
    points: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, count = part.partition(":")
        points[name] = max(1, int(count)) if count.isdigit() else 1
    return points


def armed(points: Mapping[str, int], die: Callable[[int], object] = os._exit) -> Callable[[str], None]:
    """A `hit` for these points. `die` is called at most once for each of them."""
    left = dict(points)

    def hit(name: str) -> None:
        count = left.get(name)
        if count is None:
            return
        left[name] = count - 1
        if count == 1:
            del left[name]
            die(STATUS)

    return hit


def _nothing(_name: str) -> None:
    """No failpoint is armed."""


_points = parse(os.environ.get(VARIABLE, ""))
is_armed = bool(_points)
hit: Callable[[str], None] = armed(_points) if _points else _nothing
"""`hit("K3")`: the process ends here, without another word, if K3 is armed."""
