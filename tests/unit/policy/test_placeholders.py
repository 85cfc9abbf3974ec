"""Placeholders in what a step is given: what is refused when a flow is saved, and what becomes of them when a step starts."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noonbell.errors import InvalidArgument
from noonbell.policy import placeholders
from noonbell.policy.placeholders import HTTP_ROOTS, check, check_http_text, gather, names_in, render, size_of
from noonbell.policy.value_path import InputError

SCOPE: dict[str, Any] = {
    "steps": {
        "extract": {"status": "SUCCESS", "result": {"files": ["a.csv", "b.csv"], "n": 2, "none": None, "ok": True}},
        "two-words": {"status": "SUCCESS", "result": "done"},
        "parts": {"total": 2, "succeeded": 1, "failed": 1, "results": [{"rows": 5}, None]},
    },
    "item": {"file": "a.csv", "a b": 1},
    "payload": {"day": "mon", "数量": 7},
    "slot": "2026-03-01T02:00:00Z",
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{{ steps.extract.result.files }}", ["a.csv", "b.csv"]),
        ("{{steps.extract.result.n}}", 2),
        ("{{ steps.extract.result.ok }}", True),
        ("{{ steps.extract.result.none }}", None),
        ("{{ steps.extract.result }}", SCOPE["steps"]["extract"]["result"]),
        ("{{ steps.two-words.result }}", "done"),
        ('{{ steps["two-words"].result }}', "done"),
        ("{{ steps.parts.results[0].rows }}", 5),
        ("{{ steps.parts.results.0.rows }}", 5),
        ("{{ steps.parts.failed }}", 1),
        ("{{ item }}", SCOPE["item"]),
        ("{{ item['a b'] }}", 1),
        ("{{ payload.数量 }}", 7),
        ("{{ slot }}", "2026-03-01T02:00:00Z"),
        ("{{\n slot\t}}", "2026-03-01T02:00:00Z"),
        (" {{ steps.extract.result.n }}", " 2"),
        ("{{ item.file }}{{ payload.day }}", "a.csvmon"),
        ("n={{ steps.extract.result.n }}, {{ steps.extract.result.ok }}", "n=2, true"),
        ("<{{ steps.extract.result.none }}>", "<>"),
        ("files {{ steps.extract.result.files }}", 'files ["a.csv","b.csv"]'),
        ("{{ item }}!", '{"file":"a.csv","a b":1}!'),
        ("no placeholder, { single } braces and }} alone", "no placeholder, { single } braces and }} alone"),
        (
            {"a": ["{{ item.file }}", {"b": "x{{ slot }}"}], "n": 1},
            {"a": ["a.csv", {"b": "x2026-03-01T02:00:00Z"}], "n": 1},
        ),
        ({"{{ slot }}": 1}, {"{{ slot }}": 1}),
        (None, None),
        (3, 3),
        ([], []),
    ],
)
def test_a_value_that_is_one_placeholder_keeps_its_type_and_any_other_becomes_text(value, expected):
    given_, scope = deepcopy(value), deepcopy(SCOPE)
    made = render(value, SCOPE)
    assert made == expected
    assert type(made) is type(expected)
    assert (value, SCOPE) == (given_, scope)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ steps.later.result }}", "steps has no 'later'"),
        ("{{ steps.extract.result.nobody }}", "steps.extract.result has no 'nobody'; it has files, n, none, ok"),
        ("x{{ steps.extract.result.files[2] }}", "steps.extract.result.files is a list of 2"),
        ("{{ steps.two-words.result.x }}", "steps.two-words.result is a text"),
        ("{{ payload.nobody }}", "payload has no 'nobody'"),
        ("{{ item.file.upper }}", "item.file is a text"),
        ("{{ item.__class__ }}", "item has no '__class__'"),
        ("{{ steps.extract.result.files.append }}", "is a list of 2"),
    ],
)
def test_what_is_missing_when_a_step_starts_is_an_error_that_names_it(text, problem):
    with pytest.raises(InputError, match=problem) as caught:
        render({"deep": [text]}, SCOPE)
    assert caught.value.kind == "fail"


def test_a_run_without_items_or_slot_says_so():
    with pytest.raises(InputError, match="this run has no item"):
        render("{{ item }}", {"steps": {}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{", "never closed"),
        ("{{ slot", "never closed"),
        ("{{ slot }", "never closed"),
        ("{{}}", "unknown placeholder"),
        ("{{ nobody }}", "unknown placeholder {{ nobody }}; there are item, payload, slot, steps"),
        ("{{ run_id }}", "unknown placeholder"),
        ("{{ steps }}", "names no step"),
        ("{{ steps.extract }}", "names no field"),
        ("{{ steps.extract.faild }}", "a step has status, result"),
        ("{{ steps.later.result }}", "reads the step 'later', which is none of those before it: extract, parts"),
        ("{{ slot.x }}", "slot has no fields"),
        ("{{ payload. }}", "unknown placeholder"),
        ("{{ payload.a b }}", "unknown placeholder"),
        ("{{ payload[x] }}", "unknown placeholder"),
        ("{{ payload[-1] }}", "unknown placeholder"),
        ("{{ payload.x() }}", "unknown placeholder"),
        ("{{ payload.x | upper }}", "unknown placeholder"),
        ("{{ 'a' * 10 }}", "unknown placeholder"),
        ("{{ ''.__class__ }}", "unknown placeholder"),
        ("{{{ slot }}}", "never closed|unknown placeholder"),
        ("{{ {{ slot }} }}", "never closed|unknown placeholder"),
        ("{{ payload" + ".x" * 33 + " }}", "more than 32 levels"),
        ("{{ item }}", "only a step with foreach has an item"),
        ("{{ slot }} {{ item.x }}", "only a step with foreach has an item"),
    ],
)
def test_what_cannot_be_read_is_refused_when_a_flow_is_saved_with_the_path_of_the_field(text, problem):
    value = {"good": "{{ slot }}", "files": [1, {"name": text}]}
    found = check(value, "steps[1].payload", steps=["extract", "parts"], has_item=False)
    assert list(found) == ["steps[1].payload.files[1].name"]
    assert any(each in found["steps[1].payload.files[1].name"] for each in problem.split("|"))
    with pytest.raises(InvalidArgument):
        check_http_text(text.replace("run_id", "nobody"), steps=["extract", "parts"], has_item=False)


def test_every_wrong_text_is_reported_at_once():
    found = check(["{{ a }}", "fine", {"x": "{{ b }}"}], "foreach", steps=[], has_item=True)
    assert sorted(found) == ["foreach[0]", "foreach[2].x"]
    assert check("{{ item }} {{ steps.a.result }}", "payload", steps=["a"], has_item=True) == {}


def test_a_text_of_an_http_step_may_name_its_run_as_well():
    check_http_text("{{run_id}} {{steps.a.result}} {{callback_url}} {{item}} {{slot}}", steps=["a"], has_item=True)
    with pytest.raises(InvalidArgument, match="run_id has no fields"):
        check_http_text("{{run_id.real}}", steps=[], has_item=False)
    with pytest.raises(InvalidArgument, match="none of those before it: none"):
        check_http_text("{{steps.a.result}}", steps=[], has_item=False)


def test_the_names_in_a_value_are_those_of_all_its_texts():
    value = {"a": ["{{ steps.extract.result.n }} {{ item }}", {"b": "{{payload.x}}"}], "c": 3, "{{ slot }}": 1}
    assert {path.text for path in names_in(value)} == {"steps.extract.result.n", "item", "payload.x"}
    assert {path.step for path in names_in(value)} == {"extract", None}
    assert [path.text for path in names_in("{{run_id}}", HTTP_ROOTS)] == ["run_id"]


def test_what_is_put_in_is_never_read_as_a_template():
    scope = {"payload": {"x": "{{ slot }}", "deep": ["{{ slot }}"]}, "slot": "secret"}
    assert render(["{{ payload.x }}", "<{{ payload.x }}>", "{{ payload.deep }}"], scope) == [
        "{{ slot }}",
        "<{{ slot }}>",
        ["{{ slot }}"],
    ]


# Size

LIMIT = placeholders.MOST_BYTES


@pytest.mark.parametrize(
    "value",
    [
        ["{{ payload.big }}"] * 1_000_000,
        ["<{{ payload.big }}>"] * 100_000,
        "{{ payload.big }}" * 60_000,
        "<{{ payload.big }}>",
        {"a": "{{ payload.big }}", "b": "{{ payload.wide }}"},
        "{{ payload.wide }}" + "é" * (LIMIT // 2),
        "x" * LIMIT,
    ],
    ids=["copies", "texts", "one text", "text", "two values", "bytes", "no placeholder"],
)
def test_what_is_too_large_is_refused_before_it_is_made(value):
    scope = {"payload": {"big": "x" * (LIMIT - 3), "wide": "y" * 100}}
    with pytest.raises(InputError, match=f"more than {LIMIT} bytes") as caught:
        render(value, scope)
    assert caught.value.kind == "too_large"


def test_the_bound_counts_bytes_of_json_and_is_met_exactly():
    scope = {"payload": {"x": "é" * 50}}
    whole = render(["{{ payload.x }}"], scope, most_bytes=104)
    assert size_of(whole) == 104
    with pytest.raises(InputError):
        render(["{{ payload.x }}"], scope, most_bytes=103)


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(("outer", "inner"), [(1, 64), (40, 40), (1, 5_000)])
def test_what_is_nested_deeper_than_can_be_read_again_is_refused(outer, inner):
    value: Any = "{{ payload }}"
    for _ in range(outer):
        value = [value]
    with pytest.raises(InputError, match="nested deeper") as caught:
        render(value, {"payload": _nested(inner)})
    assert caught.value.kind == "too_large"
    assert render(["{{ payload }}"], {"payload": _nested(63)}) == [_nested(63)]


@pytest.mark.parametrize("value", ["\ud800", object()])
def test_what_is_no_json_is_an_error_and_not_a_crash(value):
    with pytest.raises(InputError, match="written as JSON") as caught:
        render("{{ payload }}", {"payload": value})
    assert caught.value.kind == "fail"


# What the texts of an HTTP step read is put aside


def test_only_what_is_read_is_kept_for_later():
    text = (
        "{{steps.extract.result.n}} {{ steps.parts.results[0].rows }} {{item.file}} {{payload.day}} {{run_id}} {{slot}}"
    )
    kept = gather(names_in(text, HTTP_ROOTS), SCOPE)
    assert kept == {
        "steps": {"extract": {"result": {"n": 2}}, "parts": {"results": [{"rows": 5}, None]}},
        "item": {"file": "a.csv"},
        "slot": SCOPE["slot"],
    }


def test_what_is_kept_as_a_whole_stays_whole_and_the_source_unchanged():
    before = deepcopy(SCOPE)
    text = "{{steps.extract.result.n}} {{steps.extract.result}} {{item['a b']}} {{item}}"
    assert gather(names_in(text), SCOPE) == {
        "steps": {"extract": {"result": SCOPE["steps"]["extract"]["result"]}},
        "item": SCOPE["item"],
    }
    assert before == SCOPE


def test_what_is_missing_or_too_large_is_an_error_already_when_it_is_kept():
    with pytest.raises(InputError, match="steps has no 'later'"):
        gather(names_in("{{ steps.later.result }}"), SCOPE)
    with pytest.raises(InputError) as caught:
        gather(names_in("{{ item }}"), {"item": "x" * LIMIT})
    assert caught.value.kind == "too_large"


# Properties

_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=8,
)


@given(_JSON)
def test_any_value_passes_through_one_placeholder_unchanged(value):
    assert render({"x": ["{{ item }}"]}, {"item": value}) == {"x": [value]}
    text = render("<{{ item }}>", {"item": value})[1:-1]
    assert text == ("" if value is None else value if isinstance(value, str) else text)
    if not isinstance(value, str | None):
        assert json.loads(text) == value


@given(_JSON.filter(lambda value: "{{" not in json.dumps(value)))
def test_a_value_without_placeholders_stays_as_it_is(value):
    assert list(names_in(value)) == []
    assert check(value, "payload", steps=[], has_item=False) == {}
    assert render(value, {}) == value


@given(st.text(st.sampled_from("{{}} .[]\"'stepsitemslotpayload0-é\n"), max_size=60))
def test_any_text_is_refused_when_saved_or_rendered_when_its_names_are_there(text):
    if check(text, "payload", steps=["extract"], has_item=True):
        with pytest.raises(InvalidArgument):
            list(names_in(text))
        return
    try:
        made = render(text, SCOPE)
    except InputError as error:
        made = error.message
    assert msgspec.json.encode(made)


@given(_JSON, st.lists(st.lists(_KEYS.filter(re.compile(r"[^\W\d]\w*").fullmatch), max_size=3), max_size=4))
def test_what_is_kept_answers_every_path_as_the_whole_does(value, keys):
    text = " ".join("{{ " + ".".join(["item", *each]) + " }}" for each in keys)
    scope = {"item": value}
    try:
        whole = render(text, scope)
    except InputError:
        with pytest.raises(InputError):
            gather(names_in(text), scope)
    else:
        assert render(text, gather(names_in(text), scope)) == whole


def outcome(rendered: Any, *given: Any, **named: Any) -> Any:
    try:
        return rendered(*given, **named)
    except InputError as error:
        return error.kind, error.message


_PARTS = st.sampled_from(
    [
        "{{ item }}",
        "{{ item.file }}",
        "{{ payload.none }}",
        "a {{ slot }}",
        "plain",
        7,
        None,
        ["{{ item.file }}"],
        {"b": "{{ slot }}"},
    ]
)


@given(st.one_of(_PARTS, st.dictionaries(st.sampled_from("abcdefghijkl{"), _PARTS)), st.sampled_from([30, 200, 10_000]))
@example({"a": "{{ item }}", "b": "{{ item }}", "c": "{{ payload.none }}"}, 30)
def test_a_template_renders_as_the_value_itself_does(value: Any, most_bytes: int):
    expected = outcome(placeholders.rendered, value, SCOPE, most_bytes=most_bytes)
    assert outcome(placeholders.Template(value).rendered, SCOPE, most_bytes=most_bytes) == expected
