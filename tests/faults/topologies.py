"""Databases of several servers, started for one test: where nodes find them, and what their fail-over is.

A topology installs nothing. Where a program is missing, `Unavailable` has the line that installs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

import asyncpg

from integration.private_servers import PrivateServer, PrivateServers
from integration.test_galera import say
from integration.test_several_hosts import caught_up, promote
from noonbell.stores import postgres_pool
from services import keeper, launch, probe, wait_until
from services.launch import Unavailable
from services.ports import reserved_port
from services.probe import apart

LOST = 4.0
"""Seconds of commits that never reach an asynchronous standby."""


def needed(*programs: str, packages: str) -> list[Path]:
    try:
        return [launch.binary(program, Path("/usr/sbin")) for program in programs]
    except FileNotFoundError as error:
        raise Unavailable(f"{error}: apt-get install --no-install-recommends {packages}") from error


class Topology:
    """One that has been started."""

    name: str
    stores: str | Mapping[str, str]
    """The address for all nodes, or that of each of a, b, c."""
    env: Mapping[str, str] = {}
    """Settings of the nodes."""
    fail_overs = 3
    """How often `fail` is called in a run."""
    seconds = 60
    """How long slots fire."""

    def __init__(self, servers: PrivateServers) -> None:
        self.servers = servers

    @property
    def audited_at(self) -> str:
        """Where the store is at the end."""
        return self.stores if isinstance(self.stores, str) else self.stores["a"]

    def prepare(self) -> None:
        """Some seconds before `fail`."""

    def fail(self) -> float:
        """Kill -9 of the server that takes writes, and what makes another one take its place. When it was killed."""
        raise NotImplementedError

    def mend(self) -> None:
        """There is a server again that can take the place of this one."""

    def close(self) -> None:
        """Its servers, but not those of `servers`."""


class Standby(Topology):
    """A primary and a standby of PostgreSQL. Each new standby has the next port of the list that the nodes know."""

    def __init__(self, servers: PrivateServers, *, is_synchronous: bool) -> None:
        super().__init__(servers)
        self.is_synchronous = is_synchronous
        self.name = f"PostgreSQL, {'synchronous' if is_synchronous else 'asynchronous'} standby"
        try:
            self.primary = servers.postgres()
        except FileNotFoundError as error:
            raise Unavailable(f"{error}: apt-get install --no-install-recommends postgresql") from error
        # No other test may be given one of them before its standby is started.
        self._reserved = contextlib.ExitStack()
        self._ports = [self._reserved.enter_context(reserved_port()) for _ in range(self.fail_overs)]
        hosts = [self.primary.host, *(f"127.0.0.1:{port}" for port in self._ports)]
        self.stores = f"postgresql://postgres@{','.join(hosts)}/postgres"
        self.mend()

    def mend(self) -> None:
        if not self._ports:
            return
        self.standby = self.servers.standby_of(self.primary, self._ports.pop(0))
        wait_until(lambda: bool(ask(self.primary, "select pid from pg_stat_replication where state = 'streaming'")), 60)
        if self.is_synchronous:
            ask(self.primary, "alter system set synchronous_standby_names = '*'")
            ask(self.primary, "select pg_reload_conf()")
            wait_until(
                lambda: bool(ask(self.primary, "select 1 from pg_stat_replication where sync_state = 'sync'")), 60
            )

    def prepare(self) -> None:
        if self.is_synchronous:
            return
        apart(lambda: asyncio.run(caught_up(self.primary, self.standby)))
        (sender,) = ask(self.primary, "select pid from pg_stat_replication")
        os.kill(sender, signal.SIGSTOP)
        self._held_back_at = time.monotonic()

    def fail(self) -> float:
        if not self.is_synchronous:
            wait_until(lambda: time.monotonic() > self._held_back_at + LOST, LOST + 5)
        killed_at = time.time()
        crash(self.primary)
        apart(lambda: asyncio.run(promote(self.standby)))
        self.primary = self.standby
        return killed_at

    def close(self) -> None:
        self._reserved.close()


def crash(server: PrivateServer) -> None:
    """The server and the processes that it has made, as when a machine goes."""
    kill_with_children(server.pid)
    server.kill()


def kill_with_children(main: int) -> None:
    children = [int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split()]
    for each in (main, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def ask(server: PrivateServer, statement: str) -> list[object]:
    """The first column of the answer."""

    async def asked() -> list[object]:
        connection = await asyncpg.connect(server.command.url)
        try:
            return [row[0] for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return apart(lambda: asyncio.run(asked()))


class Pooled(Topology):
    """PgBouncer before a primary with a synchronous standby. After a fail-over it is told of the new primary and reloads."""

    def __init__(self, servers: PrivateServers, mode: str) -> None:
        (program,) = needed("pgbouncer", packages="pgbouncer postgresql")
        super().__init__(servers)
        self.name = f"PgBouncer, {mode} mode"
        self.env = {"NOONBELL_STORE__POOLER": "transaction"} if mode == "transaction" else {}
        self._behind = Standby(servers, is_synchronous=True)
        self._mode, self._port = mode, launch.spare_port()
        self._folder = Path(mkdtemp(prefix="nb-bouncer-"))
        user = launch.account("postgres")
        launch.own_folder(self._folder, user)
        self._configure()
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, self._folder / "ini"], stdout=log, stderr=log, cwd="/", **keeper.as_user(user)
            )
        self.stores = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    @property
    def audited_at(self) -> str:
        return self._behind.primary.command.url

    def _configure(self) -> None:
        server = urlsplit(self._behind.primary.command.url)
        lines = [
            "[databases]",
            f"* = host={server.hostname} port={server.port} user=postgres",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self._port}",
            "unix_socket_dir =",
            "auth_type = any",
            f"pool_mode = {self._mode}",
            f"default_pool_size = {8 if self._mode == 'transaction' else 60}",
            "server_login_retry = 1",
        ]
        if self._mode == "session":
            lines.append(f"ignore_startup_parameters = {', '.join(ignored_settings())}")
        (self._folder / "ini").write_text("\n".join([*lines, ""]))

    def fail(self) -> float:
        killed_at = self._behind.fail()
        self._configure()
        self._process.send_signal(signal.SIGHUP)
        return killed_at

    def mend(self) -> None:
        self._behind.mend()

    def close(self) -> None:
        self._behind.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def ignored_settings() -> list[str]:
    """What a node asks for when it connects. A pooler in session mode refuses what it is not told to ignore."""
    asked = {*postgres_pool.LOCAL, *postgres_pool.WITHOUT_LIMIT, *postgres_pool.RESERVING, *postgres_pool.KEEPING_PLANS}
    return sorted(asked - {"timezone"})  # which PgBouncer knows


class Galera(Topology):
    """Three servers of MariaDB that all take writes; each node begins with one of its own. The servers are killed in turn."""

    name = "Galera, three writers"
    seconds = 75

    def __init__(self, servers: PrivateServers) -> None:
        super().__init__(servers)
        try:
            self._members = servers.galera(3)
        except FileNotFoundError as error:
            line = "apt-get install --no-install-recommends mariadb-server galera-4 rsync"
            raise Unavailable(f"{error}: {line}") from error
        joining = next(
            word for word in self._members[1].command.arguments if word.startswith("--wsrep-cluster-address=")
        )
        for member in self._members:  # the first one has begun the cluster, and must not begin another
            words = member.command.arguments
            words[:] = [joining if word.startswith("--wsrep-cluster-address=") else word for word in words]
        apart(lambda: asyncio.run(say(self._members[0], "create database noonbell character set utf8mb4")))
        hosts = [member.host for member in self._members]
        self.stores = {
            name: f"mysql://root@{','.join(hosts[number:] + hosts[:number])}/noonbell"
            for number, name in enumerate("abc")
        }
        self._next = 0

    def fail(self) -> float:
        killed_at = time.time()
        crash(self._members[self._next])
        return killed_at

    def mend(self) -> None:
        self._members[self._next].start()
        self._next += 1


class Patroni(Topology):
    """Two servers of PostgreSQL under Patroni, synchronous, with etcd; HAProxy leads to the one that is the primary."""

    name = "Patroni, etcd, HAProxy"
    fail_overs = 2
    seconds = 120

    def __init__(self, servers: PrivateServers) -> None:
        packages = "patroni etcd-server haproxy postgresql"
        self._patroni, etcd, haproxy = needed("patroni", "etcd", "haproxy", packages=packages)
        super().__init__(servers)
        self._user = launch.account("postgres")
        self._folder = launch.own_folder(Path(mkdtemp(prefix="nb-patroni-")), self._user)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._etcd, self._rest, self._ports = launch.spare_port(), *([launch.spare_port() for _ in "ab"] for _ in "ab")
        at, peers = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{launch.spare_port()}"
        self._start(
            "etcd",
            *(str(etcd), "--data-dir", str(self._folder / "etcd"), "--listen-client-urls", at),
            *("--advertise-client-urls", at, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}"),
        )
        try:
            for number in range(2):
                self._start_member(number)
                wait_until(lambda: self._leader() is not None, 90)
            wait_until(lambda: self._answers(1 - (self._leader() or 0), "/synchronous"), 90)
            self._proxy(haproxy)
        except BaseException:
            self.close()
            raise

    def _proxy(self, program: Path) -> None:
        port = launch.spare_port()
        checked = "check inter 1s fall 2 rise 1 on-marked-down shutdown-sessions port"
        status = self._folder / "haproxy.sock"
        lines = [
            "global",
            f"  stats socket {status}",
            "defaults",
            "  mode tcp",
            "  timeout connect 2s",
            "  timeout client 30m",
            "  timeout server 30m",
            "listen primary",
            f"  bind 127.0.0.1:{port}",
            "  option httpchk GET /primary",
            "  http-check expect status 200",
            *(f"  server m{n} 127.0.0.1:{self._ports[n]} {checked} {self._rest[n]}" for n in range(2)),
        ]
        (self._folder / "haproxy.cfg").write_text("\n".join([*lines, ""]))
        self._start("haproxy", str(program), "-db", "-f", str(self._folder / "haproxy.cfg"))
        self.stores = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        # Until it has asked both, HAProxy takes both for primaries.
        wait_until(lambda: states_by(status) in (["UP", "DOWN"], ["DOWN", "UP"]), 60)
        wait_until(lambda: probe.refusal("postgres", str(self.stores)) is None, 60)

    def _start_member(self, number: int) -> None:
        port, rest = f"127.0.0.1:{self._ports[number]}", f"127.0.0.1:{self._rest[number]}"
        trusted = [f"host {what} all 127.0.0.1/32 trust" for what in ("all", "replication")]
        name = {"username": "postgres"}
        settings = {
            "scope": "noonbell",
            "name": f"m{number}",
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"host": f"127.0.0.1:{self._etcd}"},
            "bootstrap": {
                "dcs": {
                    "ttl": 20,
                    "loop_wait": 2,
                    "retry_timeout": 5,
                    "synchronous_mode": True,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"wal_log_hints": "on", "max_connections": 100},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": port,
                "connect_address": port,
                "data_dir": str(self._folder / f"m{number}"),
                "bin_dir": str(max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))),
                "pgpass": str(self._folder / f"pgpass{number}"),
                "authentication": {"superuser": name, "replication": name, "rewind": name},
                "parameters": {"unix_socket_directories": ""},
                "pg_hba": trusted,
            },
        }
        file = self._folder / f"m{number}.yml"
        file.write_text(json.dumps(settings))
        self._start(f"m{number}", str(self._patroni), str(file))

    def _start(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **keeper.as_user(self._user)
            )

    def _answers(self, number: int, path: str) -> bool:
        link = http.client.HTTPConnection("127.0.0.1", self._rest[number], timeout=2)
        try:
            link.request("GET", path)
            return link.getresponse().status == 200
        except OSError:
            return False
        finally:
            link.close()

    def _leader(self) -> int | None:
        return next((number for number in range(2) if self._answers(number, "/primary")), None)

    def fail(self) -> float:
        """The machine of the primary goes: Patroni and its server."""
        leader = self._leader()
        assert leader is not None
        self._killed = leader
        killed_at = time.time()
        self._running[f"m{leader}"].kill()
        self._running[f"m{leader}"].wait()
        self._kill_server(leader)
        wait_until(lambda: self._leader() not in (None, leader), 90)
        return killed_at

    def mend(self) -> None:
        self._start_member(self._killed)
        wait_until(lambda: self._answers(self._killed, "/synchronous"), 90)

    def _kill_server(self, number: int) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError):
            kill_with_children(int((self._folder / f"m{number}/postmaster.pid").read_text().split()[0]))

    def close(self) -> None:
        for process in reversed(self._running.values()):
            process.kill()
            process.wait()
        for number in range(2):
            self._kill_server(number)
        shutil.rmtree(self._folder, ignore_errors=True)


def states_by(stats: Path) -> list[str]:
    """What HAProxy says of each server behind it, at its socket for figures."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(2)
            link.connect(str(stats))
            link.sendall(b"show stat\n")
            told = b"".join(iter(lambda: link.recv(65536), b"")).decode()
    except OSError:
        return []
    rows = csv.DictReader(told.removeprefix("# ").splitlines())
    return [row["status"].partition(" ")[0] for row in rows if row["svname"] not in ("FRONTEND", "BACKEND")]


@contextlib.contextmanager
def started(kind: str) -> Iterator[Topology]:
    servers = PrivateServers()
    topology: Topology | None = None
    try:
        match kind:
            case "asynchronous standby":
                topology = Standby(servers, is_synchronous=False)
            case "synchronous standby":
                topology = Standby(servers, is_synchronous=True)
            case "session pooler" | "transaction pooler":
                topology = Pooled(servers, kind.partition(" ")[0])
            case "galera":
                topology = Galera(servers)
            case "patroni":
                topology = Patroni(servers)
            case _:
                raise ValueError(kind)
        yield topology
    finally:
        if topology is not None:
            topology.close()
        servers.close()
