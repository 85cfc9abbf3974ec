"""`make release-check`: build the wheel and the sdist, look into them, install them where there is no compiler, and try what was installed.

Nothing is published. The files are built from what git tracks, in a temporary folder. Each check prints a line; the first line that
begins with ✖ makes the exit code 1. `tests/architecture/test_release.py` shows that each of the checks can fail.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
UNITS = {"noonbell/deploy/noonbell.service", "noonbell/deploy/noonbell-worker@.service"}
"""What the wheel has from outside src/."""

APP = "from noonbell import App\n\napp = App()\n\n\n@app.job\nasync def hello() -> str:\n    return 'Hello'\n"
READY = re.compile(r"is ready: (http://\S+:\d+) ")

Problems = list[str]


# ---- versions and papers


def version_of(source: str) -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    return found[1] if found else ""


def check_versions(version: str, changelog: str, tags: list[str]) -> Problems:
    """Version = changelog = tag: a commit with a tag is a release, and its changelog begins with that version and its day."""
    problems = []
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        problems.append(f"the version {version!r} is not of the form 1.2.3 or 1.2.3rc1")
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    released = [match[1] for heading in headings if (match := re.fullmatch(r"(\S+) – \d{4}-\d\d-\d\d", heading))]
    if wrong := [
        heading for heading in headings if heading != "Unreleased" and heading.partition(" ")[0] not in released
    ]:
        problems.append(f"the changelog has headings that are neither Unreleased nor `1.2.3 – 2026-01-31`: {wrong}")
    if "Unreleased" in headings[1:]:
        problems.append("Unreleased stands below a release in the changelog")
    if tags and (tags != [f"v{version}"] or headings[:1] == ["Unreleased"] or released[:1] != [version]):
        first = headings[0] if headings else "nothing"
        problems.append(
            f"the commit has the tag {', '.join(tags)}; the version is {version}, and the changelog begins with {first}"
        )
    if not tags and headings[:1] != ["Unreleased"] and released[:1] != [version]:
        problems.append(f"the changelog begins with neither Unreleased nor {version}")
    return problems


def check_upgrade_notes(changelog: str, page: str) -> Problems:
    """The newest section of the changelog says what to do on an upgrade, and the page about upgrades leads there."""
    newest = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:2]
    notes = re.search(r"^### Upgrading\n+(.*?)(?=^### |\Z)", newest[0] if newest else "", re.MULTILINE | re.DOTALL)
    problems = []
    if notes is None or len(notes[1].split()) < 10:
        problems.append("the newest section of the changelog has no notes under `### Upgrading`")
    if "CHANGELOG.md" not in page:
        problems.append("docs/how-to/upgrade.md is missing, or does not lead to the changelog")
    return problems


# ---- what was built


def check_wheel(path: Path, tracked: set[str], version: str) -> Problems:
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        info = f"noonbell-{version}.dist-info"
        metadata = wheel.read(f"{info}/METADATA").decode() if f"{info}/METADATA" in names else ""
    ours = {
        f"noonbell/{name.removeprefix('src/noonbell/')}" for name in tracked if name.startswith("src/noonbell/")
    } | UNITS
    inside = {name for name in names if not name.startswith(f"{info}/")}
    problems = [f"the wheel has {name}, which is not ours" for name in sorted(inside - ours)]
    problems += [f"the wheel lacks {name}" for name in sorted(ours - inside)]
    if f"{info}/licenses/LICENSE" not in names:
        problems.append("the wheel has no licence")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in (
        f"Version: {version}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
    ):
        if line not in metadata.splitlines():
            problems.append(f"the wheel's metadata has no line `{line}`")
    return problems


def check_sdist(path: Path, tracked: set[str], version: str) -> Problems:
    with tarfile.open(path) as sdist:
        names = {member.name.removeprefix(f"noonbell-{version}/") for member in sdist.getmembers() if member.isfile()}
    strays = sorted(names - tracked - {"PKG-INFO"})
    lacks = sorted({"LICENSE", "README.md", "pyproject.toml", "src/noonbell/version.py"} - names)
    return [f"the sdist has {name}, which git does not track" for name in strays] + [
        f"the sdist lacks {name}" for name in lacks
    ]


def check_same(first: Path, second: Path) -> Problems:
    """Two wheels, member by member."""
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
        members = [{member.filename: member.CRC for member in wheel.infolist()} for wheel in (one, two)]
    differ = sorted(name for name, _ in members[0].items() ^ members[1].items())
    return [f"the wheel that the sdist makes differs in {', '.join(dict.fromkeys(differ))}"] if differ else []


def build(source: Path, to: Path, *targets: str) -> None:
    words = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(to), *words]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


def copy_of_tracked(to: Path) -> set[str]:
    """What git tracks, as it is in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)
    return names


# ---- what was installed


def install(wheel: Path, venv: Path, extras: str) -> Path:
    """In a new environment, from wheels only and without a compiler, in the versions that the tests run with. The folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    uv = str(ROOT / ".venv/bin/uv")
    command = [uv, "pip", "install", "--quiet", "--python", str(venv / "bin/python"), "--only-binary", ":all:"]
    command += ["--constraint", str(ROOT / "deploy/image.lock"), f"{wheel}{extras}"]
    settings = {
        "CC": "false",
        "CXX": "false",
        "RUSTC": "false",
        "UV_SYSTEM_CERTS": "true",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    subprocess.run(command, check=True, env={**os.environ, **settings})
    return venv / "bin"


@contextlib.contextmanager
def started(command: list[str], folder: Path, name: str) -> Iterator[Callable[[], str]]:
    """A process in `folder`, and what it has said so far."""
    log = folder / f"{name}.log"
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("NOONBELL_", "PYTHON"))}
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=clean, stdout=out, stderr=out)
    try:
        yield log.read_text
    finally:
        process.terminate()
        process.wait(PATIENCE)


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still waiting for {what}")
        time.sleep(0.05)
    return answer


def fetch(address: str, body: Any = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"} if data else {})  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - a server of ours
        return bytes(answer.read())


def try_installed(programs: Path, folder: Path, version: str) -> Problems:
    """Help and version; a node on SQLite that is well, fires a task and shows its dashboard; a worker that carries a job out."""
    noonbell = str(programs / "noonbell")
    said = subprocess.run([noonbell, "--help"], cwd=folder, check=True, capture_output=True, text=True).stdout
    problems = [] if "serve" in said else ["noonbell --help does not name serve"]
    if (
        version
        not in subprocess.run([noonbell, "version"], cwd=folder, check=True, capture_output=True, text=True).stdout
    ):
        problems.append(f"noonbell version is not {version}")
    unit = subprocess.run([noonbell, "config", "systemd"], cwd=folder, check=False, capture_output=True, text=True)
    problems += [] if "ExecStart=" in unit.stdout else ["noonbell config systemd prints no unit"]
    (folder / "app.py").write_text(APP)
    store = f"sqlite:///{folder}/smoke.db"
    with started([noonbell, "serve", "--port", "0", "--store", store], folder, "serve") as told:
        root = until(lambda: READY.search(told()), "the node to be ready")[1]
        api = f"{root}/api/v1"
        if fetch(f"{api}/healthz") != b"ok":
            problems.append("healthz does not say ok")
        every = {"type": "interval", "every": 1, "unit": "second"}
        fetch(f"{api}/tasks", {"name": "smoke", "schedule": every, "target_url": f"{api}/healthz"})
        until(lambda: json.loads(fetch(f"{api}/tasks/name:smoke/runs?status=SUCCESS"))["items"], "a task to fire")
        problems += check_page(root)
        worker = [noonbell, "worker", "--app", "app.py", "--store", store]
        with started(worker, folder, "worker") as worked:
            until(lambda: "ready" in worked(), "the worker to be ready")
            run = json.loads(fetch(f"{api}/tasks/name:hello/trigger", {}))["run_id"]
            ended = until(
                lambda: (found := json.loads(fetch(f"{api}/runs/{run}")))["final_status"] and found, "the job"
            )
            if ended["result"] != "Hello":
                problems.append(f"the job ended as {ended['status']}: {ended['error_message']}")
    return problems


def check_page(root: str) -> Problems:
    """The dashboard's first page, and all that it loads."""
    text = fetch(f"{root}/").decode()
    loaded = re.findall(r'<(?:link|script|img)\b[^>]*?\b(?:href|src)="([^"]+)"', text)
    problems = [] if len(loaded) > 2 else [f"the dashboard loads only {loaded}"]
    for address in loaded:
        try:
            if not fetch(urllib.parse.urljoin(f"{root}/", address)):
                problems.append(f"{address} of the dashboard is empty")
        except OSError as error:
            problems.append(f"{address} of the dashboard: {error}")
    return problems


IMPORTING = """
import importlib, importlib.metadata, re, sys
plain = lambda name: re.sub("[-_.]+", "-", name).lower()
modules = {}
for module, distributions in importlib.metadata.packages_distributions().items():
    for each in distributions:
        modules.setdefault(plain(each), []).append(module)
for name in sys.argv[1:]:
    found = [module for module in modules.get(plain(name), []) if module.isidentifier() and not module.startswith("_")]
    try:
        for module in found:
            importlib.import_module(module)
    except Exception as error:
        print(f"{name} cannot be imported: {error}")
    if not found:
        print(f"{name} is not installed")
"""
"""Run by the Python of an environment, with names of packages: what it prints are problems."""


def packages_of_extras(pyproject: str) -> list[str]:
    extras = tomllib.loads(pyproject)["project"]["optional-dependencies"]
    listed = [each for extra, packages in extras.items() if extra != "all" for each in packages]
    return sorted({re.split(r"[\s<>=!~;\[]", each)[0] for each in listed})


def check_extras(programs: Path, packages: list[str]) -> Problems:
    """Each package of an extra is there and can be imported."""
    done = subprocess.run(
        [programs / "python", "-c", IMPORTING, *packages], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    return done.stdout.splitlines() + ([done.stderr.strip()] if done.returncode else [])


def check_without_extras(programs: Path, folder: Path) -> Problems:
    """A store whose driver is not installed is refused, with the extra that has it."""
    command = [programs / "noonbell", "serve", "--port", "0", "--store", "postgresql://127.0.0.1:9/none"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE)
    return (
        []
        if "noonbell[postgres]" in done.stderr
        else [f"without the extra, PostgreSQL is refused by: {done.stderr.strip()}"]
    )


# ---- all of it


class Report:
    def __init__(self) -> None:
        self.is_well = True

    def tell(self, what: str, work: Callable[[], Problems]) -> None:
        began = time.monotonic()
        try:
            problems = work()
        except (OSError, subprocess.SubprocessError, TimeoutError) as error:
            said = getattr(error, "stderr", None) or b""
            problems = [f"{error} {said.decode() if isinstance(said, bytes) else said}".strip()]
        self.is_well = self.is_well and not problems
        print(f"{'✖' if problems else '✔'} {what} ({time.monotonic() - began:.1f} s)")
        for problem in problems:
            print(f"    {problem}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--no-install", action="store_true", help="only build, and look into what was built")
    given = options.parse_args()
    report = Report()
    version = version_of((ROOT / "src/noonbell/version.py").read_text())
    changelog = (ROOT / "CHANGELOG.md").read_text()
    tags = subprocess.run(["git", "tag", "--points-at", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    page = ROOT / "docs/how-to/upgrade.md"
    report.tell("version, changelog and tag agree", lambda: check_versions(version, changelog, tags.stdout.split()))
    notes = page.read_text() if page.exists() else ""
    report.tell("there are notes on upgrading", lambda: check_upgrade_notes(changelog, notes))
    with tempfile.TemporaryDirectory(prefix="noonbell-release-") as temporary:
        source, dist, again = (Path(temporary) / name for name in ("source", "dist", "again"))
        tracked = copy_of_tracked(source)
        build(source, dist, "sdist", "wheel")
        (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
        report.tell("the wheel has what it should, and no more", lambda: check_wheel(wheel, tracked, version))
        report.tell("the sdist has what git tracks, and no more", lambda: check_sdist(sdist, tracked, version))
        with tarfile.open(sdist) as archive:
            archive.extractall(again, filter="data")
        build(again / f"noonbell-{version}", again / "dist", "wheel")
        report.tell("the sdist makes the same wheel", lambda: check_same(wheel, again / "dist" / wheel.name))
        if not given.no_install:
            for extras in ("", "[all]"):
                try_extras(report, Path(temporary), wheel, extras, version)
    return 0 if report.is_well else 1


def try_extras(report: Report, temporary: Path, wheel: Path, extras: str, version: str) -> None:
    name = "with all extras" if extras else "without extras"
    folder = temporary / name.replace(" ", "-")
    folder.mkdir()
    programs = folder / "venv/bin"

    def installed() -> Problems:
        install(wheel, folder / "venv", extras)
        packages = packages_of_extras((ROOT / "pyproject.toml").read_text())
        return check_extras(programs, packages) if extras else check_without_extras(programs, folder)

    report.tell(f"it installs {name}, without a compiler", installed)
    report.tell(f"it works {name}", lambda: try_installed(programs, folder, version))


if __name__ == "__main__":
    sys.exit(main())
