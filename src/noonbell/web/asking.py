"""The same question elsewhere: what a list shows, as a call of the API and as a command. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

OPTIONS: Final[dict[str, dict[str, str]]] = {
    "tasks": {"status": "--status", "name": "--name", "label": "--label"},
    "runs": {"task": "--task", "status": "--status", "queue": "--queue", "key": "--key", "from": "--since"},
}
"""The filters that `noonbell task list` and `noonbell run list` have an option for."""


def address(room: str, active: Mapping[str, str]) -> str:
    """Behind `/api/v1`."""
    pairs = [(name, each) for name, value in active.items() for each in _each(name, value)]
    query = urlencode(pairs, quote_via=quote, safe=":=,")
    return f"/{room}?{query}" if query else f"/{room}"


def as_curl(server: str, room: str, active: Mapping[str, str], *, with_token: bool) -> str:
    token = ' -H "Authorization: Bearer $NOONBELL_TOKEN"' if with_token else ""
    return f"curl -s{token} {shlex.quote(f'{server}/api/v1{address(room, active)}')}"


def as_command(room: str, active: Mapping[str, str]) -> str:
    """With the options that there are; a filter without one is asked for by `noonbell api`, which takes them all."""
    options = OPTIONS[room]
    if not set(active) <= set(options):
        return f"noonbell api GET {shlex.quote(address(room, active))}"
    words = ["noonbell", "task" if room == "tasks" else "run", "list"]
    for name, value in active.items():
        for each in _each(name, value):
            words += [options[name], shlex.quote(each)]
    return " ".join(words)


def _each(name: str, value: str) -> list[str]:
    return value.split(",") if name == "status" else [value]
