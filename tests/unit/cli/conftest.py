"""The command line as a user has it, run in this process."""

from __future__ import annotations

import pytest

from noonbell.cli import main


@pytest.fixture
def noonbell(capsys, monkeypatch, tmp_path):
    """`noonbell("next", "@daily")` → (exit code, stdout, stderr), in an empty folder and an empty environment."""
    for name in ("LANG", "LC_ALL", "LC_MESSAGES", "NOONBELL_LANG", "NOONBELL_TZ"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return run
