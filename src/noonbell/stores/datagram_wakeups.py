"""Wake-ups by datagrams between the processes of a store that cannot push by itself: SQLite and MySQL.

    listener    binds a socket of its own and makes it known, when a caller first waits
    publisher   after its commit, sends one datagram to each listener that is known: the sender's name and the topics

    SQLite      a Unix socket in the folder FILE-wakeup beside the file, or where that cannot be (the path is too long, the file
                system has no sockets) in a folder of the temporary directory that is named for the file's device and inode.
                The folder is its owner's alone, who has to be the owner of the file
    MySQL       a UDP port, and a row of `wakeup_listeners` with the address and a random key. On the loopback, for processes
                of the same host; with `cluster.advertise` under that address, for those of all hosts

A datagram carries no work: who hears it looks at the store. It begins with a code that only a holder of the listener's key
can make, and any other is ignored. What happens when

    a listener dies             SQLite: the next publisher finds its socket dead and removes it. MySQL: its row counts no longer
                                after `_GONE_AFTER` seconds
    its socket is removed       it sees that within `_STAY_EVERY` seconds and binds another; until then the poll finds the work
    its buffer is full          SQLite: the publisher tries again. MySQL: the datagram is lost. Who finds many datagrams at once
                                wakes everybody
    sockets are not allowed     one warning; the poll finds the work
    a listener is new           MySQL: publishers read the table at most every `_FRESH_FOR` seconds, and send newcomers what was
                                signalled since the last time
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import ipaddress
import logging
import os
import secrets
import socket
import stat
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noonbell.clock import SystemClock
from noonbell.settings.kinds import parse_udp_address
from noonbell.stores.sql.dialect import TableNames
from noonbell.stores.wakeups import PushedWakeup, payloads

logger = logging.getLogger("noonbell.wakeup")

_CODE = 16
"""Bytes at the beginning of a datagram that prove that its sender knows the listener's key."""
_MOST_BYTES = 16_384
_MANY = 64
"""Datagrams found at once after which some may have been dropped."""
_FULL_AGAIN = 0.005
"""Seconds until a listener whose buffer was full is tried again."""
_STAY_EVERY = 5.0
"""Seconds between two looks of a listener whether it is still known."""
_GONE_AFTER = 30.0
_FRESH_FOR = 0.25
_DENIED_FOR = 60.0
"""Seconds until a process that may not have a socket tries again."""


class WakeupListener(NamedTuple):
    """One process, as its publishers know it."""

    address: Any
    """What `sendto` takes."""
    family: int
    key: bytes


def sealed(key: bytes, message: str) -> bytes:
    body = message.encode()
    return hmac.digest(key, body, hashlib.sha256)[:_CODE] + body


def opened(key: bytes, datagram: bytes) -> str | None:
    """The message; None if it was not made with this key."""
    code, body = datagram[:_CODE], datagram[_CODE:]
    if not hmac.compare_digest(code, hmac.digest(key, body, hashlib.sha256)[:_CODE]):
        return None
    return body.decode(errors="replace")


class ListenerRegistry(ABC):
    """Where the listeners of a store are found. Used by one asyncio task."""

    by: str
    """What carries the signals, for people."""
    fresh_for: float
    """Seconds for which `listeners` need not be asked again. 0: it costs next to nothing."""
    reaches_everybody: bool
    """Any process that can open the store can also reach this listener."""
    own: tuple[socket.socket, WakeupListener] | None = None

    @abstractmethod
    async def listeners(self) -> Mapping[str, WakeupListener]:
        """All listeners but this process, by name."""

    @abstractmethod
    async def enter(self) -> tuple[socket.socket, WakeupListener]:
        """Bind a socket, make it known and keep it as `own`. OSError: this process may not have one."""

    @abstractmethod
    async def stay(self) -> bool:
        """Say that the listener is still there. False: it is no longer known, and has to enter again."""

    @abstractmethod
    async def leave(self) -> None:
        """Remove this process from the registry. Where that fails, the others remove it."""

    @abstractmethod
    async def close(self) -> None: ...

    def forget(self, name: str) -> None:
        """Remove a listener whose socket is dead: no later call of `listeners` finds it."""
        del name  # nothing to do where dead ones go by themselves


class DatagramWakeup(PushedWakeup):
    patience = 0.0

    def __init__(self, registry: ListenerRegistry, retry_seconds: float = 1.0) -> None:
        super().__init__(retry_seconds)
        self.by = registry.by
        self._registry = registry
        self._is_wanted = False
        self._known: Mapping[str, WakeupListener] = {}
        self._known_at = self._stay_at = float("-inf")
        self._since_known: set[str] = set()
        """Topics that listeners have not got who came after `_known` was read."""
        self._full: dict[str, set[str]] = {}
        """Topics by the name of a listener whose buffer had no room."""
        self._senders: dict[int, socket.socket] = {}
        self._was_denied = False

    @property
    def hears_everybody(self) -> bool:
        return self._registry.reaches_everybody

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if not self._is_wanted:
            self._is_wanted = True
            self._news.set()
        return await super().wait(topics, timeout)

    async def _tell_the_rest(self) -> None:
        self._news.set()
        await super()._tell_the_rest()

    def _has_told_all(self) -> bool:
        return super()._has_told_all() and not self._since_known and not self._full

    async def _session(self) -> None:
        try:
            await self._read()
            while True:
                if self._is_wanted and not self._is_closing and time.monotonic() >= self._stay_at:
                    await self._listen()
                topics = await self._to_tell_within(self._seconds_left())
                if topics or self._full or self._since_known:
                    await self._tell(topics)
        finally:
            await self._end()

    async def _to_tell_within(self, seconds: float | None) -> list[str]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._to_tell()
        return []

    def _seconds_left(self) -> float | None:
        """Seconds until there is something to do although nothing is signalled; None: never."""
        now = time.monotonic()
        due = [self._stay_at - now] if self._is_wanted and not self._is_closing else []
        if self._full:
            due.append(_FULL_AGAIN)
        if self._since_known:
            due.append(0.0 if self._is_closing else self._known_at + self._registry.fresh_for - now)
        return max(0.0, min(due)) if due else None

    # Listening

    async def _listen(self) -> None:
        self._stay_at = time.monotonic() + _STAY_EVERY
        registry = self._registry
        if registry.own is not None:
            if await registry.stay():
                return
            await self._stop_listening()
        try:
            receiver, own = await registry.enter()
            asyncio.get_running_loop().add_reader(receiver, self._receive, receiver, own.key)
        except (OSError, NotImplementedError) as error:
            self._stay_at = time.monotonic() + _DENIED_FOR
            if not self._was_denied:
                logger.warning(
                    "no wake-ups by %s (%s): what other processes publish is found by polling", self.by, error
                )
            self._was_denied = True
            return
        self._listens()

    async def _stop_listening(self) -> None:
        if self._registry.own is not None:
            receiver, _ = self._registry.own
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().remove_reader(receiver)
            await self._registry.leave()
            receiver.close()

    def _receive(self, receiver: socket.socket, key: bytes) -> None:
        for _ in range(_MANY):
            try:
                message = opened(key, receiver.recv(_MOST_BYTES))
            except OSError:  # nothing more, mostly
                return
            if message is not None:
                self._heard(message)
        self._wake_all()

    # Telling

    async def _read(self) -> Mapping[str, WakeupListener]:
        """The listeners that have come since the last time."""
        before, self._known = self._known, await self._registry.listeners()
        self._known_at = time.monotonic()
        return {name: listener for name, listener in self._known.items() if name not in before}

    async def _tell(self, topics: Sequence[str]) -> None:
        fresh_for = self._registry.fresh_for
        if not fresh_for:
            await self._read()
        full, self._full = self._full, {}
        for name, listener in self._known.items():
            self._send(name, listener, {*topics, *full.get(name, ())})
        if not fresh_for:
            return
        self._since_known.update(topics)
        if self._since_known and (self._is_closing or time.monotonic() >= self._known_at + fresh_for):
            for name, listener in (await self._read()).items():
                self._send(name, listener, self._since_known)
            self._since_known = set()

    def _send(self, name: str, listener: WakeupListener, topics: set[str]) -> None:
        for message in payloads(self._name, sorted(topics)):
            try:
                self._sender(listener.family).sendto(sealed(listener.key, message), listener.address)
            except BlockingIOError:
                self._full.setdefault(name, set()).update(topics)
            except (ConnectionRefusedError, FileNotFoundError):
                self._registry.forget(name)
            except OSError as error:
                logger.debug("a wake-up could not be sent by %s: %s", self.by, error)

    def _sender(self, family: int) -> socket.socket:
        found = self._senders.get(family)
        if found is None:
            found = self._senders[family] = socket.socket(family, socket.SOCK_DGRAM)
            found.setblocking(False)
        return found

    async def _end(self) -> None:
        await self._stop_listening()
        self._stay_at = float("-inf")
        for sender in self._senders.values():
            sender.close()
        self._senders = {}
        await self._registry.close()


# SQLite: a folder of sockets

_LONGEST_PATH = 107
"""Bytes of the path of a Unix socket: what `sun_path` holds on Linux. Other systems take a few less, and refuse."""


_LOOKED_AGAIN = 1.0
"""Seconds for which it is relied on where the file is, and which sockets are in a folder that has not changed."""
_COARSE = 100_000_000
"""Nanoseconds: two changes of a folder within this time may have the same time of change."""


class SocketFolder(ListenerRegistry):
    by = "Unix sockets"
    fresh_for = 0.0
    reaches_everybody = True

    def __init__(self, file: str, mark: str = "") -> None:
        self._file = file
        # The folder keeps others out. The key only tells the stores of one file apart.
        self._key = f"noonbell:{mark}".encode()
        self._folders: list[str] = []
        self._looked_at = float("-inf")
        self._seen: dict[str, tuple[int, dict[str, WakeupListener]]] = {}
        """By folder: when it last changed, and the sockets in it."""

    def folders(self) -> list[Path]:
        """Where sockets may be, the best place first; none if there is no file, or it is another user's."""
        try:
            path = Path(self._file).resolve(strict=True)
            found = path.stat()
        except OSError:
            return []
        if found.st_uid != os.geteuid():
            return []
        aside = f"noonbell-wakeup-{found.st_uid}-{found.st_dev:x}-{found.st_ino:x}"
        return [Path(f"{path}-wakeup"), Path(tempfile.gettempdir(), aside)]

    async def listeners(self) -> Mapping[str, WakeupListener]:
        now = time.monotonic()
        if not self._folders or now - self._looked_at > _LOOKED_AGAIN:
            self._folders, self._looked_at, self._seen = [str(folder) for folder in self.folders()], now, {}
        found: dict[str, WakeupListener] = {}
        for folder in self._folders:
            with contextlib.suppress(OSError):
                found |= self._in_folder(folder)
        if self.own is not None:
            found.pop(self.own[1].address, None)
        return found

    def _in_folder(self, folder: str) -> dict[str, WakeupListener]:
        """Each of its sockets. It is read again when it has changed, or may have changed while it was read."""
        changed_at = _check_private(folder).st_mtime_ns
        seen = self._seen.get(folder)
        if seen is not None and seen[0] == changed_at:
            return seen[1]
        is_settled = SystemClock().now() * 1000 - changed_at > _COARSE
        listeners = {path: self._listener(path) for path in (entry.path for entry in os.scandir(folder))}
        if is_settled:
            self._seen[folder] = changed_at, listeners
        return listeners

    def _listener(self, path: str) -> WakeupListener:
        return WakeupListener(path, socket.AF_UNIX, self._key)

    async def enter(self) -> tuple[socket.socket, WakeupListener]:
        refusal: OSError = PermissionError("the file is not there or belongs to another user")
        for folder in self.folders():
            path = str(folder / secrets.token_hex(4))
            if len(os.fsencode(path)) > _LONGEST_PATH:
                continue
            try:
                self.own = _bind_in(folder, path), self._listener(path)
            except OSError as error:
                refusal = error
            else:
                return self.own
        raise refusal

    async def stay(self) -> bool:
        return self.own is not None and self._is_there(Path(self.own[1].address))

    def _is_there(self, path: Path) -> bool:
        return path.exists() and path.parent in self.folders()

    async def leave(self) -> None:
        if self.own is not None:
            path, self.own = self.own[1].address, None
            self.forget(path)
            with contextlib.suppress(OSError):  # others listen there
                os.rmdir(Path(path).parent)  # noqa: PTH106 - takes no longer than any call here

    async def close(self) -> None:
        """Nothing is open but the listener."""

    def forget(self, name: str) -> None:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.lstat(name).st_mode):
                Path(name).unlink()


def _bind_in(folder: Path, path: str) -> socket.socket:
    for left in reversed(range(5)):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        _check_private(folder)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.setblocking(False)
        try:
            bound.bind(path)
        except OSError as error:
            bound.close()
            # The last listener of the folder may just have left and taken the folder along.
            if not isinstance(error, FileNotFoundError) or not left:
                raise
        else:
            return bound
    raise AssertionError("unreachable")


def _check_private(folder: Path | str) -> os.stat_result:
    """Raises PermissionError where another user could have put sockets there, or can reach those that are there."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return found


# MySQL: a table of addresses

_TABLE = "wakeup_listeners"
_ANSWER = 10.0
"""Seconds that the server has for a statement."""


class ListenerTable(ListenerRegistry):
    by = "UDP"
    fresh_for = _FRESH_FOR

    def __init__(self, url: str, names: TableNames, advertise: str | None = None) -> None:
        self._url, self._table, self._advertise = url, names.table(_TABLE), advertise
        self._connection: Any = None
        self._id = ""

    @property
    def reaches_everybody(self) -> bool:  # type: ignore[override]
        """On the loopback that is so if the database is there too; it is not known who else connects to another host."""
        from noonbell.stores.mysql import hosts_of

        return self._advertise is not None or all(_is_loopback(host) for host, _ in hosts_of(self._url))

    async def listeners(self) -> Mapping[str, WakeupListener]:
        from noonbell.stores.mysql import NOW

        rows = await self._fetch(
            f"select id, address, port, secret from {self._table}"
            f" where (host is null or host = %s) and id <> %s and seen_at > {NOW} - %s",
            [host_mark(), self._id, int(_GONE_AFTER * 1e6)],
        )
        return {
            id_: WakeupListener((address, port), _family(address), bytes.fromhex(key))
            for id_, address, port, key in rows
        }

    async def enter(self) -> tuple[socket.socket, WakeupListener]:
        from noonbell.stores.mysql import NOW

        bound = _bind_udp(self._advertise)
        try:
            address, port = parse_udp_address(self._advertise or "127.0.0.1")
            port = port or bound.getsockname()[1]
            own = WakeupListener((address, port), bound.family, secrets.token_bytes(16))
            self._id = secrets.token_hex(8)
            await self._fetch(f"delete from {self._table} where seen_at < {NOW} - %s", [int(2 * _GONE_AFTER * 1e6)])
            await self._fetch(
                f"insert into {self._table} (id, host, address, port, secret, seen_at) values (%s, %s, %s, %s, %s, {NOW})",
                [self._id, None if self._advertise else host_mark(), address, port, own.key.hex()],
            )
        except BaseException:
            bound.close()
            raise
        self.own = bound, own
        return self.own

    async def stay(self) -> bool:
        from noonbell.stores.mysql import NOW

        return bool(await self._execute(f"update {self._table} set seen_at = {NOW} where id = %s", [self._id]))

    async def leave(self) -> None:
        self.own, id_, self._id = None, self._id, ""
        with contextlib.suppress(Exception):  # the server is away: the row is too old soon
            async with asyncio.timeout(1):
                await self._execute(f"delete from {self._table} where id = %s", [id_])

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _fetch(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        _, rows = await self._ask(sql, values)
        return rows

    async def _execute(self, sql: str, values: Sequence[Any]) -> int:
        count, _ = await self._ask(sql, values)
        return count

    async def _ask(self, sql: str, values: Sequence[Any]) -> tuple[int, Sequence[Sequence[Any]]]:
        """A connection that the server has closed for being idle is opened again."""
        from noonbell.stores.mysql import connect

        async with asyncio.timeout(_ANSWER):
            for is_used in (True, False) if self._connection is not None else (False,):
                try:
                    if self._connection is None:
                        self._connection = await connect(self._url)
                    cursor = self._connection.cursor()
                    count = await cursor.execute(sql, values)
                    return int(count), await cursor.fetchall()
                except Exception:
                    await self.close()
                    if not is_used:
                        raise
        raise AssertionError("unreachable")


def _bind_udp(advertise: str | None) -> socket.socket:
    address, port = parse_udp_address(advertise or "127.0.0.1")
    bound = socket.socket(_family(address), socket.SOCK_DGRAM)
    bound.setblocking(False)
    try:
        try:
            bound.bind((address, port or 0))
        except OSError:
            if advertise is None:
                raise
            # Others reach it under an address that no interface of this host has: behind a router, in a container.
            bound.bind(("::" if bound.family == socket.AF_INET6 else "0.0.0.0", port or 0))  # noqa: S104 - as the setting asks
    except OSError:
        bound.close()
        raise
    return bound


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@functools.cache
def host_mark() -> str:
    """The same for two processes whose loopback is the same: the host since its start, and the network within it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        network = Path("/proc/self/ns/net").stat().st_ino
        text = f"{boot}/{network}"
    except OSError:
        text = socket.gethostname()
    return hashlib.sha256(text.encode()).hexdigest()[:32]
