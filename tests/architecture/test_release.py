"""`make release-check`: what is built here passes, and each of its checks says no to what is wrong."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tools import release_check

ROOT = Path(__file__).parents[2]
TRACKED = {"LICENSE", "README.md", "pyproject.toml", "src/noonbell/version.py"}
METADATA = "Version: 1.2.3\nLicense-Expression: MIT\nRequires-Python: >=3.11\n"
INFO = "noonbell-1.2.3.dist-info"
WHEEL = {
    "noonbell/version.py": "",
    **dict.fromkeys(release_check.UNITS, ""),
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/licenses/LICENSE": "MIT",
}
NOTES = "## Unreleased\n\n### Upgrading\n\nStop every node, take the new steps of the schema, and start the nodes.\n"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/release_check.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


def test_what_is_built_here_is_whole():
    done = run("--no-install")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✔") == 5


@pytest.mark.full
def test_what_is_built_here_installs_without_a_compiler_and_works():
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✔") == 9


@pytest.mark.parametrize(
    ("version", "changelog", "tags"),
    [
        ("1.2.3", "## Unreleased\n", []),
        ("1.2.3", "## Unreleased\n## 1.2.2 – 2026-01-31\n", []),
        ("1.2.3", "## 1.2.3 – 2026-01-31\n", []),
        ("1.2.3rc1", "## 1.2.3rc1 – 2026-01-31\n## 1.2.2 – 2025-01-31\n", ["v1.2.3rc1"]),
    ],
)
def test_version_changelog_and_tag_that_agree(version, changelog, tags):
    assert release_check.check_versions(version, changelog, tags) == []


@pytest.mark.parametrize(
    ("version", "changelog", "tags"),
    [
        ("", "## Unreleased\n", []),
        ("1.2", "## Unreleased\n", []),
        ("1.2.3", "", []),
        ("1.2.3", "## 1.2.2 – 2026-01-31\n", []),
        ("1.2.3", "## 1.2.3\n", []),
        ("1.2.3", "## 1.2.3 – 2026-01-31\n## Unreleased\n", []),
        ("1.2.3", "## Unreleased\n", ["v1.2.3"]),
        ("1.2.3", "## Unreleased\n## 1.2.3 – 2026-01-31\n", ["v1.2.3"]),
        ("1.2.3", "## 1.2.3 – 2026-01-31\n", ["v1.2.4"]),
        ("1.2.3", "## 1.2.3 – 2026-01-31\n", ["1.2.3"]),
    ],
)
def test_version_changelog_and_tag_that_do_not_agree(version, changelog, tags):
    assert release_check.check_versions(version, changelog, tags) != []


def test_the_version_is_found_where_it_is_written():
    assert release_check.version_of((ROOT / "src/noonbell/version.py").read_text())


@pytest.mark.parametrize(
    ("changelog", "page", "problems"),
    [
        (NOTES, "CHANGELOG.md", 0),
        (NOTES, "", 1),
        ("## Unreleased\n\n### Added\n", "CHANGELOG.md", 1),
        ("## Unreleased\n\n### Upgrading\n\nNothing.\n", "CHANGELOG.md", 1),
        (f"## Unreleased\n\n### Added\n{NOTES.replace('Unreleased', '1.2.2 – 2026-01-31')}", "CHANGELOG.md", 1),
    ],
)
def test_notes_on_upgrading_are_those_of_the_newest_section(changelog, page, problems):
    assert len(release_check.check_upgrade_notes(changelog, page)) == problems


def wheel(folder: Path, members: dict[str, str], name: str = "a.whl") -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return folder / name


def without(name: str) -> dict[str, str]:
    return {member: text for member, text in WHEEL.items() if member != name}


def test_a_wheel_with_all_that_is_ours_is_good(tmp_path):
    assert release_check.check_wheel(wheel(tmp_path, WHEEL), TRACKED, "1.2.3") == []


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (WHEEL | {"noonbell/__pycache__/version.pyc": ""}, "version.pyc"),
        (WHEEL | {"tests/test_x.py": ""}, "tests/test_x.py"),
        (without("noonbell/version.py"), "lacks noonbell/version.py"),
        (without("noonbell/deploy/noonbell.service"), "lacks noonbell/deploy/noonbell.service"),
        (without(f"{INFO}/licenses/LICENSE"), "no licence"),
        (WHEEL | {f"{INFO}/METADATA": METADATA.replace("1.2.3", "1.2.4")}, "Version: 1.2.3"),
        (without(f"{INFO}/METADATA"), "Requires-Python"),
    ],
)
def test_a_wheel_with_too_much_or_too_little_is_refused(tmp_path, members, said):
    problems = release_check.check_wheel(wheel(tmp_path, members), TRACKED, "1.2.3")
    assert any(said in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("names", "said"),
    [(TRACKED | {"noonbell.db"}, "noonbell.db"), (TRACKED - {"LICENSE"}, "LICENSE"), (TRACKED | {"PKG-INFO"}, None)],
)
def test_an_sdist_has_what_git_tracks(tmp_path, names, said):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"noonbell-1.2.3/{name}"), io.BytesIO())
    problems = release_check.check_sdist(tmp_path / "a.tar.gz", TRACKED, "1.2.3")
    assert [said in problem for problem in problems] == ([] if said is None else [True])


def test_wheels_that_differ_are_told_by_the_member(tmp_path):
    first, same = wheel(tmp_path, WHEEL), wheel(tmp_path, WHEEL, "b.whl")
    other = wheel(tmp_path, WHEEL | {"noonbell/version.py": "x"}, "c.whl")
    assert release_check.check_same(first, same) == []
    assert "noonbell/version.py" in release_check.check_same(first, other)[0]


class HalfDashboard(BaseHTTPRequestHandler):
    """A page of which one file is missing and one is empty."""

    def do_GET(self) -> None:
        page = b'<link href="there.css"><script src="missing.js"></script><img src="empty.png">'
        found = {"/": page, "/there.css": b"x", "/empty.png": b""}.get(self.path)
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def half_dashboard() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), HalfDashboard) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_dashboard_whose_files_are_not_there_is_refused(half_dashboard):
    problems = release_check.check_page(half_dashboard)
    assert len(problems) == 2
    assert all(name in " ".join(problems) for name in ("missing.js", "empty.png"))


@pytest.fixture
def dumb_programs(tmp_path: Path) -> Path:
    """A `python` without any package, and a `noonbell` that starts no node."""
    for name in ("python", "noonbell"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'there is no such thing' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_programs_that_do_not_do_their_work_are_refused(dumb_programs):
    assert release_check.check_extras(dumb_programs, ["asyncpg"]) == ["there is no such thing"]
    assert "there is no such thing" in release_check.check_without_extras(dumb_programs, dumb_programs)[0]
    with pytest.raises(subprocess.CalledProcessError):
        release_check.try_installed(dumb_programs, dumb_programs, "1.2.3")


def test_packages_of_extras_are_those_of_the_project_and_a_missing_one_is_told():
    packages = release_check.packages_of_extras((ROOT / "pyproject.toml").read_text())
    assert {"asyncpg", "asyncmy", "redis", "cryptography", "grpcio"} <= set(packages)
    here = Path(sys.executable).parent
    assert release_check.check_extras(here, packages) == []
    assert release_check.check_extras(here, ["asyncpg", "no-such-package"]) == ["no-such-package is not installed"]


def test_a_check_that_cannot_be_made_is_a_failure(capsys):
    report = release_check.Report()
    report.tell("all is well", list)
    assert report.is_well

    def stumble() -> list[str]:
        raise TimeoutError("still waiting")

    report.tell("a node comes up", stumble)
    report.tell("and another", list)
    assert not report.is_well
    assert "✖ a node comes up" in capsys.readouterr().out
