"""The Dockerfile, read: its instructions, and which of them make the environment."""

from __future__ import annotations

import re
from pathlib import Path

DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Each as its word and the rest, lines joined, remarks left out."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line.strip())
    return [(word.upper(), rest.strip()) for word, rest in pairs]


def build_stage() -> list[tuple[str, str]]:
    """The instructions of the first stage, after its FROM."""
    found = instructions()
    first, second = [place for place, (word, _) in enumerate(found) if word == "FROM"]
    return found[first + 1 : second]
