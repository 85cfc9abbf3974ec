from __future__ import annotations

from pathlib import Path

import pytest

from noonbell import sealing


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(sealing.new_key_line("k1") + "\n")
    file.chmod(0o600)
    return file
