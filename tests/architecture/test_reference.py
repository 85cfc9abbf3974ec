"""The pages of reference that are made from the source are as the source is, and the contents list every page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from noonbell.errors import HTTP_STATUS
from noonbell.policy import retry

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load_tool():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")  # it has neighbours, which it finds beside itself when it is started
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tool():
    return load_tool()


@pytest.mark.parametrize("name", ["errors", "cli", "api", "python"])
def test_a_page_of_reference_is_up_to_date(tool, name):
    page = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert page == tool.updated(name, page), "out of date: run `python tools/reference.py --write`"


def test_the_options_of_a_job_are_the_fields_of_a_task(tool):
    text = tool.OPTIONS.read_text(encoding="utf-8")
    assert text == tool.updated_options(text), "out of date: run `python tools/reference.py --write`"


def test_the_methods_of_the_client_are_the_endpoints(tool):
    text = tool.CALLS.read_text(encoding="utf-8")
    assert text == tool.updated_calls(text), "out of date: run `python tools/reference.py --write`"


def test_every_code_has_its_advice(tool):
    assert set(tool.ADVICE) == set(HTTP_STATUS)


def test_every_error_class_is_on_the_page(tool):
    page = (DOCS / "reference" / "errors.md").read_text()
    assert [error.__name__ for error in tool.classes() if f"`{error.__name__}`" not in page] == []


def test_every_kind_of_failure_is_on_the_page():
    page = (DOCS / "reference" / "errors.md").read_text()
    assert [kind for kind in retry._WORD if f"`{kind}`" not in page] == []


def test_a_page_without_markers_is_refused(tool):
    with pytest.raises(SystemExit, match="markers"):
        tool.updated("errors", "# Errors\n")


def test_the_contents_list_every_page():
    listed = set(re.findall(r"\]\(([^)#:]+)", (DOCS / "README.md").read_text()))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}
    assert pages - listed - {"README.md"} == set()


def test_the_decisions_list_every_note():
    listed = set(re.findall(r"\]\((\d{4}[^)]*)\)", (DOCS / "decisions" / "README.md").read_text()))
    assert {page.name for page in (DOCS / "decisions").glob("[0-9]*.md")} == listed
