"""Calls from a network of their own, where every address of the world leads to one canary and to nothing else.

Run by `test_addresses.py` as `unshare -n python alone.py`, with the orders as JSON on standard input. In a network
namespace of its own, the process has a loopback interface only; a route then makes every address a local one. So a
call to a metadata service or to a stranger's machine can be tried: what passes the guard ends at the canary, on the
same machine.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import struct
import sys

from noonbell.targets.http.guard import AddressGuard
from noonbell.targets.http.target import HttpTarget
from unit.targets.make import assignment

PORT = 8000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ncanary"


class OpenDoor(AddressGuard):
    """No guard at all: shows that the canary could have been reached."""

    def check(self, address: str, port: int | None = None) -> None:
        pass


def stay_at_home() -> None:
    """Raise unless this process is alone with its loopback interface."""
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        raise SystemExit("not in a network namespace of its own")


def raise_loopback() -> None:
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        now = struct.unpack("16sH", fcntl.ioctl(asking, get_flags, struct.pack("16sH14x", b"lo", 0))[:18])[1]
        fcntl.ioctl(asking, set_flags, struct.pack("16sH14x", b"lo", now | up))


def bring_everything_home(family: int) -> None:
    """Like `ip route add local default dev lo`: one message to the kernel."""
    table_local, by_hand, scope_host, type_local, oif = 255, 3, 254, 2, 4
    route = struct.pack("=BBBBBBBBI", family, 0, 0, 0, table_local, by_hand, scope_host, type_local, 0)
    route += struct.pack("=HHI", 8, oif, socket.if_nametoindex("lo"))
    new_route, request_ack_create_exclusive = 24, 0x1 | 0x4 | 0x400 | 0x200
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.bind((0, 0))
        kernel.send(struct.pack("=IHHII", 16 + len(route), new_route, request_ack_create_exclusive, 1, 0) + route)
        if error := struct.unpack("=i", kernel.recv(4096)[16:20])[0]:
            raise OSError(-error, "no route home")


async def tried(urls: list[str], guard: AddressGuard) -> list[dict[str, object]]:
    """For each URL: the failure's kind, and how many connections the canary saw."""
    seen = 0

    async def canary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    servers = [
        await asyncio.start_server(canary, "0.0.0.0", PORT),
        await asyncio.start_server(canary, "::", PORT),
    ]
    target = HttpTarget(guard=guard, connect_timeout=0.5)
    await target.open()
    answers: list[dict[str, object]] = []
    for url in urls:
        before = seen
        outcome = await target.execute(assignment(url.replace("PORT", str(PORT)), timeout_seconds=2))
        answers.append({"failure": outcome.failure, "message": outcome.error_message, "seen": seen - before})
    await target.close()
    for server in servers:
        server.close()
    return answers


def main() -> None:
    stay_at_home()
    raise_loopback()
    bring_everything_home(socket.AF_INET)
    bring_everything_home(socket.AF_INET6)
    orders = json.load(sys.stdin)
    guard = OpenDoor() if orders["guard"] is None else AddressGuard(**orders["guard"])
    json.dump(asyncio.run(tried(orders["urls"], guard)), sys.stdout)


if __name__ == "__main__":
    main()
