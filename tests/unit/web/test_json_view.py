"""JSON that folds on a page says what the text says, digit for digit, and no more."""

from __future__ import annotations

import html
import json
import re

import pytest

from noonbell.web.context import as_json, pretty
from noonbell.web.render import json_view


def counted(n: int, is_object: bool) -> str:
    return f"{n} {'keys' if is_object else 'items'}"


def drawn(text: str) -> str:
    return str(json_view(text, counted))


def read(page: str) -> str:
    """What a person who has unfolded everything reads."""
    page = re.sub(r'<span class="json-more">.*?</span>', "", page)
    return html.unescape(re.sub(r"<[^>]+>", "", page))


LONG = {f"key{n}": {"list": [1, 2.5, None, True], "text": '<b>"&\\\n名', "empty": {}, "none": []} for n in range(5)}


def test_what_is_drawn_is_the_same_json():
    page = drawn(as_json(LONG))
    assert json.loads(read(page)) == LONG
    assert "<b>" not in page


def test_every_digit_and_every_doubled_key_stays():
    text = '{\n"a": 1.000000000000000000001,\n"a": 1e400,\n"b": 12345678901234567890123' + "\n" * 12 + "}"
    shown = read(drawn(text))
    assert shown.replace(" ", "") == '{"a":1.000000000000000000001,"a":1e400,"b":12345678901234567890123}'


def test_objects_and_lists_fold_and_large_ones_are_folded_at_first():
    page = drawn(as_json({"few": [1, 2], "many": list(range(100)), "more": list(range(9))}))
    assert page.count("<details") == 4
    assert page.count("<details open") == 3
    assert "100 items" in page
    assert "3 keys" in page


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        '{"a": 1}',
        "{" + "\n" * 20 + "no json",
        pretty(json.dumps(list(range(5_000)))),
        "[" * 100 + "\n" * 20 + "]" * 100,
        "[" * 100_000 + "\n" * 20,
    ],
)
def test_what_is_short_or_no_json_or_too_much_is_plain_text(text: str):
    page = drawn(text)
    assert page.startswith('<pre class="body" tabindex="0"><code>')
    assert read(page) == text
