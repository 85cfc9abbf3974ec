"""Names that others rely on: what the package exports, and the errors with their codes."""

from __future__ import annotations

import re

import pytest

import noonbell
from noonbell import errors

EXPORTED = [
    *("App", "AsyncClient", "Client", "Context", "Fail", "Job", "NoonbellError", "Published", "RunFailed"),
    "__version__",
]
"""The public names. A change here is a change for every user, and belongs in CHANGELOG.md."""

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.NoonbellError)
]
DRAWN = {
    line.group("name"): (len(line.group("branch")), line.group("code"))
    for line in re.finditer(
        r"^(?P<branch>[ │├└─]*)(?P<name>[A-Z]\w+) +(?P<code>[A-Z_]+)(?: |$)", errors.__doc__ or "", re.MULTILINE
    )
}


def test_the_package_exports_exactly_the_written_list():
    assert sorted(noonbell.__all__) == sorted(EXPORTED)


def test_every_exported_name_is_there():
    assert [name for name in noonbell.__all__ if not hasattr(noonbell, name)] == []


def test_every_error_is_drawn_in_the_tree_and_no_other():
    assert sorted(DRAWN) == sorted(error.__name__ for error in CLASSES)


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_an_error_stands_in_the_tree_under_its_parent_with_its_code(error):
    depth, code = DRAWN[error.__name__]
    assert code == error.code
    names = list(DRAWN)
    above = [name for name in names[: names.index(error.__name__)] if DRAWN[name][0] < depth]
    parent = above[-1] if above else "Exception"
    assert parent == error.__base__.__name__
