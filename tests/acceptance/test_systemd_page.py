"""The page about systemd, typed line by line into a shell: with our wheel, in a folder instead of `/`, and without systemd.

Only what needs root, a network or systemd is another program here: `useradd`, `runuser`, `systemctl`, `journalctl`, and the `python3`
and `pip` that would install. `systemctl enable --now` starts what the unit says, with its environment and its folder.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.harness import PATIENCE
from services.ports import reserved_port

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/run-under-systemd.md"
UNITS = ("noonbell.service", "noonbell-worker@.service")
FOLDERS = ("/etc/noonbell", "/etc/systemd/system", "/opt/noonbell", "/opt/myapp", "/var/lib/noonbell")
APP = """
from noonbell import App

app = App()


@app.job()
async def hello() -> str:
    return "Hello"
"""
SYSTEMCTL = """
import json, os, pathlib, shlex, socket, subprocess, sys

root, folders = pathlib.Path(os.environ["PAGE_ROOT"]), json.loads(os.environ["PAGE_FOLDERS"])
if sys.argv[1:3] != ["enable", "--now"]:
    sys.exit()
for name in sys.argv[3:]:
    base, at, instance = name.partition("@")
    text = (root / f"etc/systemd/system/{base}{at}.service").read_text()
    for folder in folders:
        text = text.replace(f"{root}{folder}", folder).replace(folder, f"{root}{folder}")
    text = text.replace("%H", socket.gethostname()).replace("%i", instance)
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    env = dict(os.environ)
    for line in pathlib.Path(said["EnvironmentFile"].removeprefix("-")).read_text().splitlines():
        key, value = line.split("=", 1)
        env[key] = value.strip('"')
    with (root / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            shlex.split(said["ExecStart"]), env=env, cwd=said["WorkingDirectory"], stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )
    (root / f"{name}.pid").write_text(str(process.pid))
    while "is ready" not in (root / f"{name}.log").read_text():
        if process.poll() is not None:
            sys.exit((root / f"{name}.log").read_text())
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as packed:
        packed.extractall(folder / "unpacked")
    return folder / "unpacked"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def machine(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder that stands for `/`, as it is when the first block has been typed."""
    programs = tmp_path / "programs"
    for name in ("useradd", "journalctl", "python3"):
        script(programs / name, "#!/bin/sh\n")
    script(programs / "runuser", '#!/bin/sh\nshift 3\nexec "$@"\n')
    script(programs / "systemctl", f"#!{sys.executable}\n{SYSTEMCTL}")
    installed = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(wheel)!r})\n"
    script(tmp_path / "opt/noonbell/bin/noonbell", installed + "from noonbell.cli import main\nmain()\n")
    script(tmp_path / "opt/noonbell/bin/pip", f'#!/bin/sh\necho "$@" > {tmp_path}/installed\n')
    for folder in ("etc/systemd/system", "opt/myapp", "var/lib/noonbell"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "opt/myapp/myapp.py").write_text(APP)
    yield tmp_path
    for pid in tmp_path.glob("*.pid"):
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


def test_the_page_works_as_it_is_printed(machine: Path, postgres_url: str, port: int):

    def here(text: str) -> str:
        for folder in FOLDERS:
            text = text.replace(folder, f"{machine}{folder}")
        return text.replace("8080", str(port)).replace(
            "postgresql://noonbell:secret@db.internal/noonbell", postgres_url
        )

    first, *rest = [here(block) for block in blocks("sh")]
    (settings,), (environment,) = blocks("yaml"), blocks("ini")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
    shell = {
        **clean,
        "PATH": f"{machine}/programs{os.pathsep}{clean['PATH']}",
        "PAGE_ROOT": str(machine),
        "PAGE_FOLDERS": str(list(FOLDERS)).replace("'", '"'),
        "NOONBELL_URL": f"http://127.0.0.1:{port}",
        "PYTHONPATH": "",
    }

    def typed(lines: str) -> str:
        command = ["bash", "-e", "-u", "-o", "pipefail", "-c", lines]
        done = subprocess.run(
            command, env=shell, cwd=machine, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    typed(first)
    assert (machine / "installed").read_text() == "install noonbell[postgres]\n", "the extra of the store's driver"
    secret = machine / "etc/noonbell/environment"
    assert secret.stat().st_mode & 0o777 == 0o600
    (machine / "etc/noonbell/noonbell.yaml").write_text(here(settings))
    secret.write_text(here(environment))
    said = typed("\n".join(rest))
    assert '"items":[]' in said.replace(" ", ""), "the tasks, with the token"
    refused = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{port}/api/v1/tasks"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert refused.stdout == "401", "without one"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("unit", ["node", "worker"])
def test_systemd_takes_the_unit_that_is_printed(machine: Path, unit: str):
    name = UNITS[unit == "worker"]
    printed = subprocess.run(
        [machine / "opt/noonbell/bin/noonbell", "config", "systemd", unit], capture_output=True, text=True, check=True
    ).stdout
    assert printed.count(str(machine / "opt/noonbell/bin/noonbell")) == 1
    assert printed.replace(str(machine / "opt/noonbell"), "/opt/noonbell") == (ROOT / "deploy" / name).read_text()
    (machine / name).write_text(printed)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(machine / name)], capture_output=True, text=True, check=False
    )
    assert [line for line in (done.stdout + done.stderr).splitlines() if name.partition(".")[0] in line] == []
