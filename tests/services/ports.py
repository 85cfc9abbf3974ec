"""Ports that no other process is given while a test needs them."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port that servers of the test may listen on, one after the other; the system gives it to nobody else.

    A socket is bound to it that never listens. Beside such a one a server may listen, as long as both allow addresses to be used
    again, which Python's servers do. While none listens, callers are refused.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, 0))
        yield int(held.getsockname()[1])


_OTHERS_LEAVE = 30.0
"""Seconds after which whoever listens on a port is no other test: it stays."""


@contextlib.contextmanager
def taken_port(port: int, host: str = "127.0.0.1") -> Iterator[None]:
    """Something listens on that port as long as the test lasts: a socket of this test or, where it is never free, what else there is.

    Another test may hold it, and would leave it free in the midst of this one: so this one waits until it has it itself.
    """
    deadline = time.monotonic() + _OTHERS_LEAVE
    with contextlib.ExitStack() as listening:
        while True:
            try:
                listening.enter_context(socket.create_server((host, port)))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
            break
        yield


def bound_to_one_port(*hosts: str) -> list[socket.socket]:
    """A socket for each address, all on the same port, which was free on all of them."""
    while True:
        with contextlib.ExitStack() as opened:
            sockets = [opened.enter_context(socket.socket()) for _ in hosts]
            try:
                port = 0
                for host, each in zip(hosts, sockets, strict=True):
                    each.bind((host, port))
                    port = each.getsockname()[1]
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            opened.pop_all()
            return sockets


def make_deaf(server: socket.socket, held: contextlib.ExitStack) -> None:
    """Let the bound socket listen, and fill its queue: whoever connects from now on gets no answer."""
    server.listen(0)
    clients = [held.enter_context(socket.socket()) for _ in range(4)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(server.getsockname())
    assert select.select([], clients, [], 10)[1], "not even the first got through"
