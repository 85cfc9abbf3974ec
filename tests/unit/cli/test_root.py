"""The front of the command line: quick, complete, and the same exit codes everywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from noonbell import errors
from noonbell.cli.root import COMMANDS, MEANINGS, exit_code, root
from noonbell.version import __version__

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
HEAVY = {"asyncio", "fastapi", "aiohttp", "msgspec", "yaml", "prometheus_client", "uvicorn", "zoneinfo", "asyncpg"}


def loaded_by(*arguments):
    script = f"import sys\nfrom noonbell.cli import main\ntry: main({arguments!r})\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_nothing_heavy():
    assert not {module.partition(".")[0] for module in loaded_by("--help")} & HEAVY


def test_the_help_of_a_command_does_not_import_the_client():
    assert not loaded_by("task", "list", "--help") & (
        (HEAVY - {"zoneinfo"}) | {"noonbell.client", "http.client", "ssl"}
    )


def test_next_imports_schedules_and_neither_settings_nor_an_event_loop():
    loaded = loaded_by("next", "*/5 * * * *")
    assert not loaded & ((HEAVY - {"msgspec", "zoneinfo"}) | {"noonbell.settings", "noonbell.service", "ssl"})


def test_a_server_imports_no_client_of_a_broker_before_a_message_is_sent():
    """They take half as long to import as all else that a server imports."""
    script = (
        "import asyncio, sys\nfrom noonbell.settings import Settings\nfrom noonbell.stores import open_store\n"
        "from noonbell.model.target_kind import OWN_QUEUES\nfrom noonbell.targets import TargetParts, make_target\n"
        "parts = TargetParts(Settings(), open_store('memory://'))\n"
        "async def opened():\n"
        "    for kind in OWN_QUEUES.values():\n"
        "        target = make_target(kind, parts)\n        await target.open()\n        await target.close()\n"
        "asyncio.run(opened())\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {*done.stdout.split()} & {"aiormq", "pamqp", "nats", "redis", "aiomqtt", "paho", "grpc", "aiohttp"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_named_like_its_entry_and_says_the_same(name):
    command = root.get_command(click.Context(root), name)
    assert command.name == name
    assert command.get_short_help_str(200)


@pytest.mark.parametrize("arguments", [("version",), ("--version",)])
def test_the_version(noonbell, arguments):
    assert noonbell(*arguments) == (0, f"noonbell {__version__}\n", "")


def test_help_lists_every_command(noonbell):
    for arguments in (("--help",), ("-h",), ("help",)):
        code, out, _ = noonbell(*arguments)
        assert code == 0
        assert [name for name in COMMANDS if f"  {name} " not in out] == []


def test_a_misspelt_command_is_answered_with_the_nearest(noonbell):
    code, out, err = noonbell("migarte")
    assert (code, out) == (2, "")
    assert "did you mean migrate?" in err


def test_the_exit_codes_are_explained(noonbell):
    _, out, _ = noonbell("help", "exit-codes")
    told = {int(line[:3]): line[5:] for line in out.splitlines()}
    assert told == MEANINGS
    written = {
        int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    }
    assert written == MEANINGS


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NoonbellError("x"), 1),
        (errors.ScheduleError("x"), 1),
        (errors.SettingsError("x"), 2),
        (errors.NotFound("x"), 3),
        (errors.Forbidden("x"), 4),
        (errors.AlreadyExists("x"), 5),
        (errors.StoreUnavailable("x"), 8),
        (errors.SchemaMismatch("x"), 1),
    ],
)
def test_an_error_has_its_exit_code(error, code):
    assert exit_code(error) == code


def test_every_command_is_in_the_reference():
    page = PAGE.read_text()
    assert [name for name in COMMANDS if f"`noonbell {name}" not in page] == []


@pytest.mark.parametrize("group", ["", "task", "run", "queue", "token", "config", "secrets"])
def test_a_group_without_a_command_prints_its_help_as_help(noonbell, group):
    code, out, err = noonbell(*filter(None, [group]))
    asked, helped, _ = noonbell(*filter(None, [group]), "--help")
    assert (code, out, err) == (2, "", helped)
    assert asked == 0
    assert len(err.splitlines()) > 5


@pytest.mark.parametrize("words", [("token", "list"), ("token", "revoke", "a")])
def test_looking_at_tokens_makes_no_store(noonbell, tmp_path, monkeypatch, words):
    monkeypatch.setenv("NOONBELL_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("NOONBELL_STORE__URL", raising=False)
    code, out, err = noonbell(*words)
    assert (code != 0, out) == (True, "")
    assert "there is no file noonbell.db" in err
    assert "--store" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("explain", "did you mean task explain or run explain?"),
        ("drain", "did you mean worker drain or queue drain?"),
        ("tusk", "did you mean task?"),
    ],
)
def test_a_command_of_a_group_is_found_by_its_own_name(noonbell, given, told):
    code, out, err = noonbell(given, "x")
    assert (code, out) == (2, "")
    assert f"there is no command {given!r}; {told} (see noonbell --help)\n" in err


@pytest.mark.parametrize("words", [("version",), ("--help",), ("next", "@daily"), ("help", "exit-codes")], ids=" ".join)
def test_a_reader_who_has_left_is_no_error(words):
    reads, writes = os.pipe()
    os.close(reads)
    try:
        script = "from noonbell.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", script, *words], stdout=writes, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")
