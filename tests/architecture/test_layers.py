"""The rooms of the house import one way only: pyproject.toml holds the contract, docs/explanation/layers.md the why."""

from __future__ import annotations

import tomllib
from pathlib import Path

from importlinter import cli

ROOT = Path(__file__).parents[2]


def test_imports_go_down_the_layers(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    # The linter sets up logging for a process of its own, which would switch off every logger that tests listen to.
    monkeypatch.setattr("logging.config.dictConfig", lambda config: None)
    assert cli.lint_imports(no_logo=True) == cli.EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_every_room_is_a_package():
    """Without an `__init__.py`, the check above would pass by a whole folder without a word."""
    source = ROOT / "src" / "noonbell"
    folders = {folder for path in source.rglob("*.py") for folder in path.parents if source in folder.parents}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def test_the_explanation_names_every_layer():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    page = (ROOT / "docs/explanation/layers.md").read_text()
    rooms = [room.strip(" ()") for layer in contract["layers"] for room in layer.split("|")]
    assert [room for room in rooms if f"`{room}`" not in page] == []
