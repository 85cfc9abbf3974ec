"""The fields of a form, as the browser sent them."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.web.context import _PIECE, _fields

PARTS = st.sampled_from(
    [b"a", b"%", b"%4", b"%41", b"%e4%b8%80", b"+", b"=", b"&", b"&&", b"%zz", "一".encode(), b"%ff"]
)


@given(st.lists(PARTS, max_size=30), st.integers(0, 6))
def test_fields_are_what_the_standard_library_reads(parts, before):
    """Also where a piece that is unquoted at once ends in the middle of an escape."""
    body = b"x" * (_PIECE - before) + b"".join(parts)
    assert _fields(body) == parse_qsl(body.decode(), keep_blank_values=True)


@pytest.mark.parametrize("body", [b"&".join([b"a=1"] * 2_001), b"a=\xff"], ids=["too many", "not UTF-8"])
def test_a_form_that_cannot_be_read_is_refused(body):
    with pytest.raises(ValueError):
        _fields(body)
