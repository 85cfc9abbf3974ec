"""Database servers that a test may kill, freeze, promote and start again. Each belongs to one test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import NoReturn

import pytest

from services import keeper, launch, probe, wait_until
from services.keeper import Command
from services.probe import Kind


class PrivateServer:
    def __init__(self, kind: Kind, command: Command, folder: Path) -> None:
        self.kind, self.command, self.folder = kind, command, folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        """HOST:PORT."""
        return self.command.url.partition("@")[2].partition("/")[0]

    def start(self) -> None:
        with self.command.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command.arguments, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **keeper.as_user(self.command.user),
            )  # fmt: skip
        wait_until(lambda: probe.refusal(self.kind, self.command.url) is None, launch.START_SECONDS)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class PrivateServers:
    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="nb-servers-"))
        self._folder.chmod(0o755)
        self._all: list[PrivateServer] = []

    def postgres(self, **settings: object) -> PrivateServer:
        return self._started("postgres", launch.postgres(self._next()), settings)

    def mariadb(self, **settings: object) -> PrivateServer:
        command = launch.mariadb(self._next())
        command.arguments.extend(f"--{name.replace('_', '-')}={value}" for name, value in settings.items())
        return self._started("mysql", command, {})

    def standby_of(self, primary: PrivateServer, own: int | None = None) -> PrivateServer:
        """A copy of a PostgreSQL server that follows it, asynchronously. `own`: its port."""
        folder = launch.own_folder(self._next(), primary.command.user)
        host, port = primary.host.split(":")
        tool = launch.binary("pg_basebackup", Path(primary.command.arguments[0]).parent)
        made = [tool, "-h", host, "-p", port, "-U", "postgres", "-D", folder / "data", "-R", "-c", "fast"]
        launch.run(made, primary.command.user, folder)
        own = own or launch.spare_port()
        arguments = [word.replace(f"port={port}", f"port={own}") for word in primary.command.arguments]
        arguments[arguments.index("-D") + 1] = str(folder / "data")
        url = primary.command.url.replace(f":{port}/", f":{own}/")
        command = Command(arguments, url, folder / "log", primary.command.user, primary.command.stop_signal)
        return self._started("postgres", command, {})

    def galera(self, count: int) -> list[PrivateServer]:
        """The servers of one cluster of MariaDB, all of them writers."""
        provider = Path("/usr/lib/galera/libgalera_smm.so")
        if not provider.exists() or shutil.which("rsync") is None:
            raise FileNotFoundError("galera-4 and rsync are not installed")
        places = [f"127.0.0.1:{launch.spare_port()}" for _ in range(count)]
        made: list[PrivateServer] = []
        for number, place in enumerate(places):
            command = launch.mariadb(self._next())
            options = f"gmcast.listen_addr=tcp://{place};ist.recv_addr=127.0.0.1:{launch.spare_port()}"
            settings = {
                "wsrep-on": "ON",
                "wsrep-provider": provider,
                "wsrep-provider-options": options,
                "wsrep-cluster-address": f"gcomm://{','.join(places) if number else ''}",
                "wsrep-cluster-name": f"noonbell-{places[0]}",
                "wsrep-node-name": str(number),
                "wsrep-node-address": place,
                "wsrep-sst-method": "rsync",
                "wsrep-sst-receive-address": f"127.0.0.1:{launch.spare_port()}",
                "binlog-format": "ROW",
                "innodb-autoinc-lock-mode": 2,
            }
            command.arguments.extend(f"--{name}={value}" for name, value in settings.items())
            made.append(self._started("mysql", command, {}))
        return made

    def close(self) -> None:
        for server in self._all:
            with contextlib.suppress(ProcessLookupError):
                server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _next(self) -> Path:
        return self._folder / str(len(self._all))

    def _started(self, kind: Kind, command: Command, settings: dict[str, object]) -> PrivateServer:
        for name, value in settings.items():
            command.arguments.extend(("-c", f"{name}={value}"))
        server = PrivateServer(kind, command, command.log.parent)
        self._all.append(server)
        server.start()
        return server


def missing(what: object) -> NoReturn:
    """Skips the test; in CI it fails, as it does for every server that is missing there."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(f"CI=true, and a server is missing: {what}")
    pytest.skip(f"a private server is missing: {what}")


@contextlib.contextmanager
def private_servers() -> Iterator[PrivateServers]:
    servers = PrivateServers()
    try:
        yield servers
    finally:
        servers.close()
