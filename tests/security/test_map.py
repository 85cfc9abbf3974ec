"""The security map: of every rule a protection whose removal turns a test red.

The removals are in tools/sabotage/removals.py, and `make sabotage` tries them all. Here it is checked that each of them still
fits the tree, and that the pages say the same: docs/explanation/security.md explains the rules and what is missing in one of
them, docs/reference/security-map.md has the table of what was removed and which test went red.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from tools.sabotage import removals
from tools.sabotage.removals import REMOVALS, Removal, found_times

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
EXPLAINED = ROOT / "docs" / "explanation" / "security.md"
MAP = ROOT / "docs" / "reference" / "security-map.md"

RULES = [f"S{number}" for number in range(1, 42)]
DATA_RULES = [f"D{number}" for number in range(1, 16)]

HALF = {
    "S13": "projects: a scope is by labels, queues and job types",
    "S35": "pip-audit, SBOM, signed releases",
    "S36": "a test of a running container",
}
"""What the rule asks for besides, and is not there: in the words of the page's row, behind "Not there:"."""

CONTROLS: dict[str, list[str]] = {
    "S1": [f"{removals.ADDRESSES}::test_without_the_guard_the_canary_is_reached"],
    "S6": [f"{removals.AT_REST}::test_without_a_key_the_dump_does_hold_them"],
    "S7": [f"{removals.CANARIES}::test_the_secret_itself_did_arrive"],
    "S9": [
        f"{removals.TEXT}::test_every_text_went_into_every_field_that_takes_one",
        f"{removals.STATIC}::test_the_rule_sees_markup",
    ],
    "S16": [
        f"{removals.CALLERS}::test_ninety_headers_of_a_usual_size_are_taken",
        "acceptance/test_hostile_bodies.py::test_no_body_on_any_route_holds_the_event_loop",
    ],
    "S21": [f"{removals.EDGE}::test_a_malformed_request_is_refused_by_the_server_itself"],
    "S23": [f"{removals.STATIC}::test_the_rule_sees_a_pattern_that_was_sent"],
    "S26": [f"{removals.STATIC}::test_the_rule_sees_what_it_forbids"],
    "S35": ["acceptance/test_image.py::test_a_package_with_another_hash_is_refused"],
    "S33": [f"{removals.CALLERS}::test_no_route_answers_with_a_table_that_a_spreadsheet_would_run"],
}
"""Tests for which nothing of ours can be removed: they show that the others look in the right place, or watch a library."""


def named(removal: Removal) -> str:
    return f"{removal.rule} {removal.what}"


@cache
def names_in(path: str) -> set[str]:
    file = TESTS / path
    tree = ast.parse(file.read_text() if file.exists() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    return name.partition("[")[0] in names_in(path)


def test_every_rule_has_a_removal():
    assert sorted({removal.rule for removal in REMOVALS}) == sorted(RULES + DATA_RULES)


def test_no_two_removals_have_one_name():
    assert len({named(removal) for removal in REMOVALS}) == len(REMOVALS)


@pytest.mark.parametrize("removal", REMOVALS, ids=named)
def test_a_removal_fits_the_tree(removal: Removal):
    assert [(edit.file, edit.text) for edit in removal.edits if found_times(ROOT, edit) != 1] == []
    changed = {edit.file: (ROOT / edit.file).read_text() for edit in removal.edits}
    for edit in removal.edits:
        assert edit.instead != edit.text
        changed[edit.file] = changed[edit.file].replace(edit.text, edit.instead)
    for file, text in changed.items():
        if file.endswith(".py"):
            ast.parse(text)  # what cannot be read would turn every test red


@pytest.mark.parametrize("removal", REMOVALS, ids=named)
def test_the_tests_of_a_removal_are_there(removal: Removal):
    assert removal.tests
    assert [test for test in removal.tests if not is_there(test)] == []


@pytest.mark.parametrize("path", sorted({test.partition("::")[0] for removal in REMOVALS for test in removal.tests}))
def test_no_test_of_a_removal_is_left_out_of_make_test(path: str):
    """`services.thinned` leaves out no case of them; here, that none has the mark itself, or gets it from its file."""
    left_out = {
        node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else "all of them"
        for node in ast.parse((TESTS / path).read_text()).body
        if "mark.full" in " ".join(ast.unparse(each) for each in marks_of(node))
    }
    named_there = {test.partition("::")[2] for removal in REMOVALS for test in removal.tests if test.startswith(path)}
    assert left_out & {"all of them", *(name.partition("[")[0] for name in named_there)} == set()


def marks_of(node: ast.stmt) -> list[ast.expr]:
    """Decorators that are a mark; the marks of a file. What is marked among the parameters of a test is a case of it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [each for each in node.decorator_list if isinstance(each, ast.Attribute)]
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
        return [node.value]
    return []


def test_the_controls_are_there():
    assert set(CONTROLS) <= set(RULES)
    assert [test for tests in CONTROLS.values() for test in tests if not is_there(test)] == []


def test_the_table_of_what_went_red_has_every_removal():
    """Written by `make sabotage ARGS=--write`."""
    rows = re.findall(r"^\| ([SD]\d+) \| (.+) \| `(.+)` `(.+)` \| \d+ \|$", MAP.read_text(), re.MULTILINE)
    expected = [(each.rule, each.what, *test.split("::")) for each in REMOVALS for test in each.tests]
    assert rows == expected


@pytest.mark.parametrize("rule", RULES)
def test_the_page_explains_the_rule_and_says_what_is_missing(rule):
    (row,) = re.findall(rf"^\| {rule} \|.*$", EXPLAINED.read_text(), re.MULTILINE)
    _, mark, missing = row.rstrip(" |").partition("Not there: ")
    assert missing == HALF.get(rule, "")
    assert bool(mark) is (rule in HALF)


def test_of_a_half_the_other_half_is_proved():
    assert set(HALF) <= {removal.rule for removal in REMOVALS}
