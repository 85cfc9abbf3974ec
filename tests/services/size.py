"""How large: `make test` has to be quick, `make test-full` goes on looking."""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("NOONBELL_TEST_FULL") == "1"


def size(usual: int, full: int) -> int:
    """Of a test that is marked `longer`: how many examples, runs or rows."""
    return full if FULL else usual
