"""PostgreSQL, MariaDB, Redis and the other brokers for the tests: found, else started, else installed and started.

For each kind, in this order:

1. its address in `NOONBELL_TEST_POSTGRES`, `NOONBELL_TEST_MYSQL`, … (`VARIABLES`), and then only that one;
2. a server that answers on its default port of 127.0.0.1 and lets us create databases (`probe`);
3. a private server, from installed binaries, in the temporary folder of this test run (`launch`);
4. as root on a Debian-like system: the same, after `apt-get install`.

Nothing is looked for before the first test that needs it. One folder per test run is shared by pytest's controller and
its workers: a lock file per kind makes sure that a server is started once, and a note beside it tells the others.
A private server is the child of a `keeper`, which stops it when it is told to or when the test run is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from services import keeper, launch, probe
from services.launch import Unavailable
from services.probe import Kind

KINDS: tuple[Kind, ...] = ("postgres", "mysql", "redis", "rabbitmq", "nats", "mosquitto")
VARIABLES: dict[Kind, str] = {
    "postgres": "NOONBELL_TEST_POSTGRES",
    "mysql": "NOONBELL_TEST_MYSQL",
    "redis": "NOONBELL_TEST_REDIS",
    "rabbitmq": "NOONBELL_TEST_RABBITMQ",
    "nats": "NOONBELL_TEST_NATS",
    "mosquitto": "NOONBELL_TEST_MOSQUITTO",
}
SKIP_DEFAULT_PORTS = "NOONBELL_TEST_SKIP_DEFAULT_PORTS"
"""Set to 1, step 2 is left out: how the private servers are tested on a machine that has the others."""


@dataclass(frozen=True)
class Service:
    kind: Kind
    url: str | None
    """Where databases may be created, or None."""
    story: str
    """How it was found or started, or what is missing."""


class Services:
    """The servers of one test run, each made on first use. `folder` is shared by all processes of the run."""

    def __init__(self, folder: Path, owner_pid: int) -> None:
        self.folder = folder
        self.owner_pid = owner_pid

    def get(self, kind: Kind) -> Service:
        note = self.folder / f"{kind}.json"
        with locked(self.folder / f"{kind}.lock"):
            if note.exists():
                return Service(**json.loads(note.read_text()))
            service = self._obtain(kind)
            note.write_text(json.dumps(asdict(service)))
            return service

    def known(self) -> list[Service]:
        """The servers that some test has asked for so far."""
        return [Service(**json.loads(note.read_text())) for note in sorted(self.folder.glob("*.json"))]

    def stop(self) -> None:
        """Stop what was started here, through the keepers, and remove the folder."""
        keepers = [int(note.read_text()) for note in self.folder.glob("*/keeper.pid")]
        for pid in keepers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(keeper.alive(pid) for pid in keepers), keeper.STOP_SECONDS + 5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _obtain(self, kind: Kind) -> Service:
        variable = VARIABLES[kind]
        if url := os.environ.get(variable):
            refusal = probe.refusal(kind, url)
            return Service(kind, None if refusal else url, f"{variable}: {refusal or 'answers'}")
        if os.environ.get(SKIP_DEFAULT_PORTS) != "1":
            for url in probe.default_urls(kind):
                if probe.refusal(kind, url) is None:
                    return Service(kind, url, f"found at {url}")
        try:
            return self._start(kind)
        except Unavailable as problem:
            return Service(kind, None, f"{problem}; or name a server in {variable}")

    def _start(self, kind: Kind) -> Service:
        folder = self.folder / kind
        try:
            command = launch.COMMANDS[kind](folder)
        except FileNotFoundError as missing:
            with locked(Path(tempfile.gettempdir()) / "noonbell-test-apt.lock"):
                launch.install(kind, missing)
            command = launch.COMMANDS[kind](folder)
        pid = keeper.start(command, self.folder, self.owner_pid)
        (folder / "keeper.pid").write_text(str(pid))

        wait_until(lambda: probe.refusal(kind, command.url) is None or not keeper.alive(pid), launch.START_SECONDS)
        if refusal := probe.refusal(kind, command.url):
            raise Unavailable(f"{command.arguments[0]} was started, but {refusal}\n{launch.tail(command.log)}")
        return Service(kind, command.url, f"started {command.arguments[0]} at {command.url}")


def new_folder() -> Path:
    """A folder with a short path (sockets have a limit) that a server's own user can walk through."""
    folder = Path(tempfile.mkdtemp(prefix="noonbell-test-", dir="/tmp" if Path("/tmp").is_dir() else None))  # noqa: S108
    folder.chmod(0o755)
    return folder


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
