"""The diagram in docs/explanation/run-states.md is the one that the code obeys."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from noonbell.model.run import TRANSITIONS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("diagram", ROOT / "tools" / "diagram.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_docs_show_the_present_table(tool):
    page = tool.PAGE.read_text(encoding="utf-8")
    assert page == tool.updated(page), "out of date: run `python tools/diagram.py --write`"


def test_every_allowed_change_is_one_arrow(tool):
    arrows = [line.split() for line in tool.diagram().splitlines() if "-->" in line]
    between = {(start, end) for start, _, end in arrows if "[*]" not in (start, end)}
    assert between == {(start, end) for start, onward in TRANSITIONS.items() for end in onward}
    assert len(arrows) == len({tuple(arrow) for arrow in arrows})


def test_a_page_without_markers_is_refused(tool):
    with pytest.raises(SystemExit, match="markers"):
        tool.updated("# The states of a run\n")
