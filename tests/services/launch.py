"""How each private server is prepared and which command runs it; and how a missing one is installed.

The servers keep their defaults where they matter to us: fsync stays on. They listen on 127.0.0.1 only, without
passwords, for as long as the tests run.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from services.keeper import Command, as_user
from services.probe import Kind

START_SECONDS = 60
PACKAGES: dict[Kind, str] = {
    "postgres": "postgresql",
    "mysql": "mariadb-server",
    "redis": "redis-server",
    "rabbitmq": "rabbitmq-server",
    "nats": "nats-server",
    "mosquitto": "mosquitto",
}


class Unavailable(Exception):
    """Why a kind of server is not to be had here, in words for the summary."""


def postgres(folder: Path) -> Command:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    initdb = binary("initdb", *versions, *homebrew("postgresql*/bin"))
    user = account("postgres")
    data = own_folder(folder, user) / "data"
    run([initdb, "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"], user, folder)
    port = spare_port()
    options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "max_connections": 200}
    return Command(
        [str(initdb.with_name("postgres")), "-D", str(data)]
        + [word for name, value in options.items() for word in ("-c", f"{name}={value}")],
        f"postgresql://postgres@127.0.0.1:{port}/postgres",
        folder / "log",
        user,
        signal.SIGINT,  # A fast stop: does not wait for clients, as SIGTERM would.
    )


def mariadb(folder: Path) -> Command:
    server = binary("mariadbd", Path("/usr/sbin"), Path("/usr/libexec"), *homebrew("mariadb*/bin"))
    install_db = binary("mariadb-install-db", *homebrew("mariadb*/bin"))
    user = account("mysql")
    data = own_folder(folder, user) / "data"
    choices = ["--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"]
    run([install_db, *choices], user, folder)
    port = spare_port()
    options = {"datadir": data, "port": port, "bind-address": "127.0.0.1", "socket": folder / "socket"}
    options |= {"pid-file": folder / "pid", "max-connections": 300, "character-set-server": "utf8mb4"}
    return Command(
        [str(server), "--no-defaults", *(f"--{name}={value}" for name, value in options.items())],
        f"mysql://root@127.0.0.1:{port}/mysql",
        folder / "log",
        user,
    )


def redis(folder: Path) -> Command:
    server = binary("redis-server", *homebrew("redis*/bin"))
    own_folder(folder, None)
    port = spare_port()
    return Command(
        [str(server), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
        f"redis://127.0.0.1:{port}/0",
        folder / "log",
        None,
    )


def rabbitmq(folder: Path) -> Command:
    server = binary("rabbitmq-server", Path("/usr/lib/rabbitmq/bin"), *homebrew("rabbitmq*/sbin"))
    user = account("rabbitmq")
    own_folder(folder, user)
    port = spare_port()
    names = {
        "HOME": folder,
        "RABBITMQ_NODENAME": f"noonbell-test-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": port,
        "RABBITMQ_DIST_PORT": spare_port(),
        "RABBITMQ_MNESIA_BASE": folder / "data",
        "RABBITMQ_LOG_BASE": folder,
        "RABBITMQ_CONFIG_FILE": folder / "none",
        "RABBITMQ_CONF_ENV_FILE": folder / "none.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    return Command(
        ["/usr/bin/env", *(f"{name}={value}" for name, value in names.items()), str(server)],
        f"amqp://guest:guest@127.0.0.1:{port}/",
        folder / "log",
        user,
    )


def nats(folder: Path) -> Command:
    server = binary("nats-server", *homebrew("nats-server*/bin"))
    own_folder(folder, None)
    port = spare_port()
    return Command(
        [str(server), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "data")],
        f"nats://127.0.0.1:{port}",
        folder / "log",
        None,
    )


def mosquitto(folder: Path) -> Command:
    server = binary("mosquitto", Path("/usr/sbin"), *homebrew("mosquitto*/sbin"))
    own_folder(folder, None)
    port = spare_port()
    (folder / "conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nuser root\n")
    return Command([str(server), "-c", str(folder / "conf")], f"mqtt://127.0.0.1:{port}", folder / "log", None)


COMMANDS = {
    "postgres": postgres,
    "mysql": mariadb,
    "redis": redis,
    "rabbitmq": rabbitmq,
    "nats": nats,
    "mosquitto": mosquitto,
}


def install(kind: Kind, missing: FileNotFoundError) -> None:
    """With apt-get, where we may. If the package starts a server of its own, that one is left alone."""
    install_package(PACKAGES[kind], missing)


def install_package(package: str, missing: FileNotFoundError) -> None:
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"{missing}; install {package}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-q", "update"], env=environment, capture_output=True, check=False)
    command = ["apt-get", "-q", "install", "-y", "--no-install-recommends", package]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{missing}; {' '.join(command)} failed: {done.stderr.strip()[-500:]}")


def binary(name: str, *folders: Path) -> Path:
    """In one of `folders`, else on the PATH. FileNotFoundError if it is not installed."""
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return Path(found)


def homebrew(pattern: str) -> list[Path]:
    """Where Homebrew keeps servers that it does not link."""
    return [path for root in ("/opt/homebrew/opt", "/usr/local/opt") for path in sorted(Path(root).glob(pattern))]


def account(preferred: str) -> str | None:
    """The account for a server that refuses to run as root; None if we are not root."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam(preferred).pw_name
    except KeyError:
        return "nobody"


def own_folder(folder: Path, user: str | None) -> Path:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    if user is not None:
        shutil.chown(folder, user)
    return folder


def run(words: list[str | Path], user: str | None, folder: Path) -> None:
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **as_user(user))
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")


def spare_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else "(no log)"
