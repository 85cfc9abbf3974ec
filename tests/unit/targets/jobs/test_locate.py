"""An App is found by module or file, with or without its name; what is wrong is said in words."""

from __future__ import annotations

import sys

import pytest

from noonbell.errors import InvalidArgument
from noonbell.targets.jobs.handler import find_app, split

HAS_ONE = "class A:\n    def __init__(self):\n        self.handlers = Handlers()\n\n"
HEAD = "from noonbell.targets.jobs.handler import Handlers\n\n" + HAS_ONE


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module that nobody has imported, and forgets it afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(name, text):
        file = tmp_path / f"{name}.py"
        file.write_text(HEAD + text)
        return file

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("location", "parts"),
    [
        ("shop.jobs:app", ("shop.jobs", "app")),
        ("shop.jobs", ("shop.jobs", "")),
        ("a/b.py", ("a/b.py", "")),
        ("a/b.py:x.y", ("a/b.py", "x.y")),
    ],
)
def test_a_location_is_a_place_and_a_name(location, parts):
    assert split(location) == parts


def test_a_file_with_a_name(write):
    file = write("located_one", "first = A()\nsecond = A()\n")
    found = find_app(f"{file}:second")
    assert found is sys.modules["located_one"].second


def test_a_module_beside_a_file_can_be_imported_by_it(write):
    write("located_beside", "app = A()\n")
    file = write("located_importer", "from located_beside import app\n")
    assert find_app(str(file)) is sys.modules["located_beside"].app


def test_without_a_name_it_is_app(write):
    file = write("located_app", "other = A()\napp = A()\n")
    assert find_app(str(file)) is sys.modules["located_app"].app


def test_without_a_name_it_is_the_only_one(write):
    file = write("located_only", "jobs = A()\nsame = jobs\n")
    assert find_app(str(file)) is sys.modules["located_only"].jobs


def test_by_the_name_of_its_module(write, monkeypatch, tmp_path):
    write("located_module", "app = A()\n")
    monkeypatch.chdir(tmp_path)
    assert find_app("located_module:app") is sys.modules["located_module"].app


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("a = A()\nb = A()\n", "", "has several: a, b"),
        ("", "", "has none"),
        ("app = A()\n", ":other", "no App called 'other'; those that it has: app"),
        ("one = A()\ntwo = A()\n", ":three", "no App called 'three'; those that it has: one, two"),
        ("app = 7\n", ":app", "no App called 'app'; it has none"),
    ],
)
def test_what_cannot_be_found_is_said(write, text, name, said):
    file = write("located_wrong", text)
    with pytest.raises(InvalidArgument, match=said) as refused:
        find_app(f"{file}{name}")
    assert list(refused.value.details) == ["--app"]


def test_a_module_that_is_not_there_is_said_with_the_folder_that_was_looked_in(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument) as refused:
        find_app("located_nowhere:app", "APP")
    said = str(refused.value.details["APP"])
    assert f"is 'located_nowhere', and there is no such module in {tmp_path};" in said


def test_a_file_that_breaks_is_not_remembered(write):
    file = write("located_broken", "1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        find_app(str(file))
    file.write_text(HEAD + "app = A()\n")
    assert find_app(str(file)) is not None


def test_a_module_that_misses_another_one_says_which(write):
    file = write("located_missing", "import there_is_no_such_thing\n")
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_thing"):
        find_app(str(file))
