"""PostgreSQL, MariaDB and Redis for the tests: found, else started, else installed and started.

For each kind, in this order:

1. its address in `NOONBELL_TEST_POSTGRES`, `NOONBELL_TEST_MYSQL` or `NOONBELL_TEST_REDIS`, and then only that one;
2. a server that answers on its default port of 127.0.0.1 and lets us create databases;
3. a private server, from installed binaries, in the temporary folder of this test run;
4. as root on a Debian-like system: the same, after `apt-get install`.

Nothing is looked for before the first test that needs it. One folder per test run is shared by pytest's controller and
its workers: a lock file per kind makes sure that a server is started once, a note beside it tells the others.

A private server is the child of a keeper (`python services.py keep …`), which stops it, and nothing else, when it is
told to or when the process that runs the tests is gone: kill -9 of a test run leaves no server behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["postgres", "mysql", "redis"]

VARIABLES: dict[Kind, str] = {
    "postgres": "NOONBELL_TEST_POSTGRES",
    "mysql": "NOONBELL_TEST_MYSQL",
    "redis": "NOONBELL_TEST_REDIS",
}
PACKAGES: dict[Kind, str] = {"postgres": "postgresql", "mysql": "mariadb-server", "redis": "redis-server"}
SKIP_DEFAULT_PORTS = "NOONBELL_TEST_SKIP_DEFAULT_PORTS"
"""Set to 1, step 2 is left out: how the private servers themselves are tested."""

START_SECONDS = 60
STOP_SECONDS = 20


class Unavailable(Exception):
    """Why a kind of server is not to be had here, in words for the summary."""


@dataclass(frozen=True)
class Service:
    kind: Kind
    url: str | None
    """Where databases may be created, or None."""
    story: str
    """How it was found or started, or what is missing."""


class Services:
    """The servers of one test run, made on first use. `folder` is shared by all its processes."""

    def __init__(self, folder: Path, owner_pid: int) -> None:
        self.folder = folder
        self.owner_pid = owner_pid

    def get(self, kind: Kind) -> Service:
        note = self.folder / f"{kind}.json"
        with _locked(self.folder / f"{kind}.lock"):
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
        _wait_until(lambda: not any(_alive(pid) for pid in keepers), STOP_SECONDS + 5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _obtain(self, kind: Kind) -> Service:
        variable = VARIABLES[kind]
        if url := os.environ.get(variable):
            refusal = _refusal(kind, url)
            return Service(kind, None if refusal else url, f"{variable}={url}: {refusal or 'answers'}")
        if os.environ.get(SKIP_DEFAULT_PORTS) != "1":
            for url in _default_urls(kind):
                if _refusal(kind, url) is None:
                    return Service(kind, url, f"found at {url}")
        try:
            return self._start(kind)
        except Unavailable as problem:
            return Service(kind, None, f"{problem}; or set {variable}")

    def _start(self, kind: Kind) -> Service:
        starter = {"postgres": _postgres, "mysql": _mariadb, "redis": _redis}[kind]
        try:
            command = starter(self.folder / kind)
        except FileNotFoundError as missing:
            _install(kind, missing)
            command = starter(self.folder / kind)
        self._keep(kind, command)
        refusal = _wait_until_none(lambda: _refusal(kind, command.url), START_SECONDS)
        if refusal is not None:
            raise Unavailable(f"{command.arguments[0]} was started but {refusal}:\n{_tail(command.log)}")
        return Service(kind, command.url, f"started {command.arguments[0]} at {command.url}")

    def _keep(self, kind: Kind, command: Command) -> None:
        plan = {"owner_pid": self.owner_pid, "stop_signal": int(command.stop_signal), "user": command.user}
        plan |= {"arguments": command.arguments, "log": str(command.log), "folder": str(self.folder)}
        keeper = subprocess.Popen(
            [sys.executable, __file__, "keep", json.dumps(plan)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        (self.folder / kind / "keeper.pid").write_text(str(keeper.pid))
        keeper.returncode = 0  # Not ours to wait for: the process that made it may end long before the test run does.


def new_folder() -> Path:
    """A folder with a short path (sockets have a limit) that a server's own user can walk through."""
    folder = Path(tempfile.mkdtemp(prefix="noonbell-test-", dir="/tmp" if Path("/tmp").is_dir() else None))  # noqa: S108
    folder.chmod(0o755)
    return folder


# ---- finding


def _default_urls(kind: Kind) -> list[str]:
    if kind == "redis":
        return ["redis://127.0.0.1:6379/0"]
    if kind == "mysql":
        return ["mysql://root@127.0.0.1:3306/mysql"]
    users = dict.fromkeys(["root", "postgres", pwd.getpwuid(os.getuid()).pw_name])
    return [f"postgresql://{user}@127.0.0.1:5432/{name}" for user in users for name in ("postgres", "test")]


def _refusal(kind: Kind, url: str) -> str | None:
    """Why the server at `url` cannot serve the tests; None if it can."""
    try:
        asyncio.run({"postgres": _try_postgres, "mysql": _try_mysql, "redis": _try_redis}[kind](url))
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


async def _try_postgres(url: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url, timeout=5)
    try:
        may = await connection.fetchval("SELECT rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user")
        if not may:
            raise Unavailable("its user may not create databases")
    finally:
        await connection.close()


async def _try_mysql(url: str) -> None:
    connection = await connect_mysql(url)
    try:
        async with connection.cursor() as cursor:
            await cursor.execute("SHOW GRANTS")
            grants = " ".join(row[0] for row in await cursor.fetchall())
            if "ALL PRIVILEGES ON *.*" not in grants and "CREATE" not in grants:
                raise Unavailable("its user may not create databases")
    finally:
        connection.close()


async def _try_redis(url: str) -> None:
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url, socket_connect_timeout=5)
    try:
        await client.ping()
    finally:
        await client.aclose()


async def connect_mysql(url: str):
    """An asyncmy connection from a `mysql://user:password@host:port/name` address."""
    from urllib.parse import unquote, urlsplit

    import asyncmy

    parts = urlsplit(url)
    return await asyncmy.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        db=parts.path.lstrip("/") or None,
        autocommit=True,
        connect_timeout=5,
    )


# ---- starting


@dataclass(frozen=True)
class Command:
    arguments: list[str]
    url: str
    log: Path
    user: str | None
    """The account to run as, where we are root and the server would refuse to be."""
    stop_signal: signal.Signals = signal.SIGTERM


def _postgres(folder: Path) -> Command:
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    initdb = _binary("initdb", *reversed(candidates), *_prefixes("postgresql*/bin"))
    user = _account("postgres")
    data = _own_folder(folder, user) / "data"
    superuser = "postgres"
    _run([initdb, "-D", data, "-U", superuser, "--auth=trust", "--encoding=UTF8", "--locale=C"], user, folder)
    port = _spare_port()
    options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "max_connections": 200}
    return Command(
        [str(initdb.with_name("postgres")), "-D", str(data)]
        + [word for name, value in options.items() for word in ("-c", f"{name}={value}")],
        f"postgresql://{superuser}@127.0.0.1:{port}/postgres",
        folder / "log",
        user,
        signal.SIGINT,  # "Fast": does not wait for clients, but still writes a clean end.
    )


def _mariadb(folder: Path) -> Command:
    server = _binary("mariadbd", Path("/usr/sbin"), Path("/usr/libexec"), *_prefixes("mariadb*/bin"))
    install = _binary("mariadb-install-db", *_prefixes("mariadb*/bin"))
    user = _account("mysql")
    data = _own_folder(folder, user) / "data"
    _run(
        [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"],
        user,
        folder,
    )
    port = _spare_port()
    options = {"datadir": data, "port": port, "bind-address": "127.0.0.1", "socket": folder / "socket"}
    options |= {"pid-file": folder / "pid", "max-connections": 300, "character-set-server": "utf8mb4"}
    return Command(
        [str(server), "--no-defaults", *(f"--{name}={value}" for name, value in options.items())],
        f"mysql://root@127.0.0.1:{port}/mysql",
        folder / "log",
        user,
    )


def _redis(folder: Path) -> Command:
    server = _binary("redis-server", *_prefixes("redis*/bin"))
    _own_folder(folder, None)
    port = _spare_port()
    return Command(
        [str(server), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
        f"redis://127.0.0.1:{port}/0",
        folder / "log",
        None,
    )


def _binary(name: str, *folders: Path) -> Path:
    """In one of `folders`, else on the PATH. FileNotFoundError if it is not installed."""
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return Path(found)


def _prefixes(pattern: str) -> list[Path]:
    """Where Homebrew keeps servers that it does not link."""
    return sorted(Path("/opt/homebrew/opt").glob(pattern)) + sorted(Path("/usr/local/opt").glob(pattern))


def _account(preferred: str) -> str | None:
    """The account for a server that refuses to run as root; None if we are not root."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam(preferred).pw_name
    except KeyError:
        return "nobody"


def _own_folder(folder: Path, user: str | None) -> Path:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    if user is not None:
        shutil.chown(folder, user)
    return folder


def _run(arguments: list[str | Path], user: str | None, folder: Path) -> None:
    done = subprocess.run(
        [str(word) for word in arguments], cwd=folder, capture_output=True, text=True, check=False, **_as_user(user)
    )
    if done.returncode != 0:
        raise Unavailable(f"{arguments[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")


def _as_user(user: str | None) -> dict:
    """Arguments of Popen that give the process to `user`."""
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "MYSQL"))}
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "env": environment | {"HOME": "/"}}


def _spare_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else "(no log)"


# ---- installing


def _install(kind: Kind, missing: FileNotFoundError) -> None:
    """With apt-get, where we may. If the package starts its own server, that one is left alone."""
    package = PACKAGES[kind]
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"{missing}; install {package}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with _locked(Path(tempfile.gettempdir()) / "noonbell-test-apt.lock"):
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", package]):
            command = ["apt-get", "-q", *arguments]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{missing}; {' '.join(command)} failed: {done.stderr.strip()[-500:]}")


# ---- keeping


def keep(plan: dict) -> None:
    """Run one server until we are told to stop or the owner is gone; then stop it and wait for its end."""
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    with Path(plan["log"]).open("ab") as log:
        server = subprocess.Popen(
            plan["arguments"], cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_as_user(plan["user"])
        )
    while not told and _alive(plan["owner_pid"]) and server.poll() is None:
        time.sleep(0.1)
    server.send_signal(plan["stop_signal"])
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if not told and not _alive(plan["owner_pid"]):
        shutil.rmtree(plan["folder"], ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A process that nobody has waited for yet still has its number, and is over all the same.
    stat = Path(f"/proc/{pid}/stat")
    with contextlib.suppress(OSError):
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return not Path("/proc/self").exists()


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return true


def _wait_until_none(refusal: Callable[[], str | None], seconds: float) -> str | None:
    """The last refusal at the deadline, or None as soon as there is none."""
    last = []
    _wait_until(lambda: (last.append(refusal()) or last[-1]) is None, seconds)
    return last[-1]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    keep(json.loads(sys.argv[2]))
