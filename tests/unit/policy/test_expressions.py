"""The language of `when`: what it can say, what it refuses and where, and what it does with values that do not fit."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.errors import InvalidArgument
from noonbell.policy.expressions import DEEPEST, LARGEST, LONGEST, LONGEST_TEXT, ExpressionError, parse
from noonbell.policy.value_path import InputError

SCOPE: dict[str, Any] = {
    "steps": {
        "extract": {"status": "SUCCESS", "result": {"files": ["a.csv", "b.csv"], "count": 2, "or": 1, "数量": 7}},
        "parts": {"status": "FAILED", "total": 3, "succeeded": 2, "failed": 1, "results": [1, None, {"rows": 5}]},
        "a-b": {"status": "SKIPPED", "result": None},
    },
    "payload": {
        "n": 3,
        "x": 0.5,
        "text": "nightly",
        "yes": True,
        "no": False,
        "null": None,
        "a b": [1, [2]],
        "big": 2**80,
    },
    "slot": "2026-03-01T02:00:00Z",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps.parts.failed == 0", False),
        ("steps.parts.failed", 1),
        ("steps.extract.result.files[0]", "a.csv"),
        ("steps.extract.result.files.1", "b.csv"),
        ("steps.parts.results[2].rows", 5),
        ('steps["a-b"].status == "SKIPPED"', True),
        ("steps['a-b'].result == null", True),
        ("steps.extract.result.or", 1),
        ("steps.extract.result.数量", 7),
        ('payload["a b"][1][0]', 2),
        ("slot >= '2026-03-01' and slot < '2026-04-01'", True),
        ("true", True),
        ("True and None", None),
        ("[]", []),
        ("[1, 'a', null,]", [1, "a", None]),
        ("not payload.no", True),
        ("not payload.n == 4", True),
        ("not not payload.n", True),
        ("payload.no or payload.n", 3),
        ("payload.n and payload.text", "nightly"),
        ("false and payload.nobody", False),
        ("true or payload.nobody", True),
        ("true or false and false", True),
        ("(true or false) and false", False),
        ("'x' in payload and payload.x > 0.25", True),
        ("'nobody' in payload and payload.nobody > 1", False),
        ("'a.csv' in steps.extract.result.files", True),
        ("'c.csv' not in steps.extract.result.files", True),
        ("'night' in payload.text", True),
        ("payload.n in [1, 2, 3]", True),
        ("payload.n not in []", True),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 - 2 - 1", 4),
        ("7 % 4 * 2", 6),
        ("1 / 4", 0.25),
        ("6 / 2 == 3", True),
        ("-payload.n + 1", -2),
        ("2 - -3", 5),
        ("- -3", 3),
        ("-7 % 3", 2),
        ("1.5e1", 15.0),
        ("'a' + 'b' + \"c\"", "abc"),
        ("'it\\'s' + '\\n' + \"\\\\\"", "it's\n\\"),
        ("payload.big > 1", True),
        ("payload.big == payload.big", True),
        ("1 == 1.0", True),
        ("payload.yes == 1", False),
        ("1 == true", False),
        ("0 == false", False),
        ("true in [1]", False),
        ("[true] == [1]", False),
        ("[1, [2]] == payload['a b']", True),
        ("null == false", False),
        ("'1' == 1", False),
        ("payload != steps.extract.result", True),
        (" \n\tpayload.n\n>\n2 ", True),
    ],
)  # fmt: skip
def test_an_expression_has_the_value_that_its_words_say(text, expected):
    value = parse(text).evaluate(SCOPE)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "expected a condition such as"),
        (" \n", 0, "expected a condition such as"),
        ("1 +", 3, "expected a name, a number"),
        ("and 1", 0, "expected a name, a number"),
        ("1 2", 2, "expected and, or, an operator or the end"),
        ("payload.n = 3", 10, "expected =="),
        ("payload.n === 3", 10, "expected =="),
        ("payload.n !== 3", 10, "expected !="),
        ("payload.n <> 3", 10, "expected !="),
        ("payload.n is 3", 10, "expected =="),
        ("payload.n && 1", 10, "expected 'and'"),
        ("payload.n || 1", 10, "expected 'or'"),
        ("!payload.n", 0, "expected 'not'"),
        ("1 AND 2", 2, "expected 'and'"),
        ("1 < 2 < 3", 6, "expected 'and' or 'or' between two comparisons"),
        ("1 in [1] in [2]", 9, "expected 'and' or 'or' between two comparisons"),
        ("payload.n not 3", 14, "expected 'in' after 'not'"),
        ("(1 + 2", 6, r"expected '\)' for the '\(' at position 0"),
        ("1 + (2))", 7, "expected and, or, an operator or the end"),
        ("[1, 2", 5, r"expected ',' or '\]' for the '\[' at position 0"),
        ("[1 2]", 3, r"expected ',' or '\]'"),
        ("()", 1, "expected a name, a number"),
        ("'abc", 0, "never closed; expected '"),
        (r"'a\x41'", 2, "is no escape"),
        ("'a\\", 2, "is no escape"),
        ("2 ** 3", 2, "there is no power here"),
        ("7 // 2", 2, r"expected one of \+ - \* / %"),
        ("1 if true else 2", 2, "'if' is unknown"),
        ("lambda: 1", 0, "'lambda' is unknown"),
        ("nobody == 1", 0, "expected steps, payload, slot or a value"),
        ("item == 1", 0, "expected steps, payload, slot or a value"),
        ("len(payload)", 0, "'len' is unknown"),
        ("payload.keys()", 12, "nothing can be called"),
        ("__import__('os')", 0, "is unknown"),
        ("payload.", 8, "expected a name or a number after the dot"),
        ("payload..x", 8, "expected a name or a number after the dot"),
        ("payload[n]", 7, "expected an index such as"),
        ("payload[-1]", 7, "expected an index such as"),
        ("payload[0", 7, "expected an index such as"),
        ("payload[1:2]", 7, "expected an index such as"),
        ("payload .n", 8, "stands alone"),
        ("(payload)[0]", 9, "expected and, or, an operator or the end"),
        ("'abc'[0]", 5, "expected and, or, an operator or the end"),
        ("steps", 0, "expected steps.ID.FIELD"),
        ("1 in steps", 5, "expected steps.ID.FIELD"),
        ("steps.extract", 0, "expected one of status, result"),
        ("steps.extract.faild", 0, "a step has status, result"),
        ("steps.a-b.failed", 0, r'is written steps\["a-b"\]'),
        ("slot.x", 0, "slot has no fields"),
        ("payload" + ".x" * 33, 0, "more than 32 levels deep"),
        ("{{ payload.n }} > 1", 0, "without braces"),
        ("{'a': 1}", 0, "objects cannot be written"),
        (".5", 0, "a digit before it"),
        ("5.", 0, "is no number"),
        ("0x10", 0, "is no number"),
        ("1_000", 0, "is no number"),
        ("1e", 0, "is no number"),
        ("٣", 0, "is unknown"),
        ("payload.n # comment", 10, "'#' is unknown"),
        ("payload.n; 1", 9, "';' is unknown"),
        ("payload.n\0", 9, "is unknown"),
        ("é + 1 = 2", 0, "'é' is unknown"),
        ("'数量' = 2", 5, "expected =="),
        ("'\U0001f514' = 2", 4, "expected =="),
        ("\ud800", 0, "is unknown"),
        ("f'{payload}'", 0, "'f' is unknown"),
        ("(yield)", 1, "is unknown"),
        ("(x := 1)", 1, "is unknown"),
        (str(LARGEST + 1), 0, "too large"),
        ("9" * 999, 0, "too large"),
        ("1e999", 0, "too large"),
        ("(" * 21 + "1" + ")" * 21, 21, "at most 20 levels"),
        ("[" * 400 + "]" * 400, 21, "at most 20 levels"),
        ("not " * 200 + "1", 84, "at most 20 levels"),
        ("-" * 999 + "1", 21, "at most 20 levels"),
        ("1" + " " * LONGEST, LONGEST, "expected at most 1000"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_place_and_what_was_expected(text, position, expected):
    with pytest.raises(ExpressionError, match=expected) as caught:
        parse(text)
    assert caught.value.position == position
    assert f"(at position {position})" in caught.value.message
    assert isinstance(caught.value, InvalidArgument)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("payload.nobody", "payload.nobody is not there: payload has no 'nobody'; it has n, x, text"),
        ("steps.later.result == 1", "steps has no 'later'; it has extract, parts, a-b"),
        ("steps.extract.total == 0", "steps.extract has no 'total'; it has status, result"),
        ("steps.parts.results[3]", "steps.parts.results is a list of 3"),
        ("steps['a-b'].result.x", "steps.a-b.result is null"),
        ("payload.text.upper", "payload.text is a text"),
        ("payload.n.real", "payload.n is a number"),
        ("payload.__class__", "payload has no '__class__'"),
        ("payload.yes.x", "payload.yes is true"),
        ("payload[0]", "payload has no 0"),
        ("payload.text < 3", "payload.text is a text and 3 is a number; < compares two numbers or two texts"),
        ("payload.null >= 3", "payload.null is null and 3 is a number"),
        ("true > false", "true is true and false is false"),
        ("[1] < [2]", "is a list"),
        ("payload < payload", "is an object"),
        ("'a' * 3", "'a' is a text; \\* takes numbers"),
        ("3 * 'a'", "'a' is a text"),
        ("[1] * 3", "a list; \\* takes numbers"),
        ("[1] + [2]", "a list; \\+ takes two numbers or two texts"),
        ("'%s' % 1", "% takes numbers"),
        ("'a' + 1", "'a' is a text; \\+ takes two numbers or two texts"),
        ("1 + 2 + 'a'", "'a' is a text"),
        ("1 + true", "true is true; \\+ takes"),
        ("-payload.text", "payload.text is a text; - takes numbers"),
        ("1 / 0", "divides by zero"),
        ("1 % (1 - 1)", "divides by zero"),
        ("1.5 % 0", "divides by zero"),
        (f"{LARGEST} + 1", "too large a number"),
        (f"{LARGEST} * {LARGEST}", "too large a number"),
        ("1e308 * 10", "too large a number"),
        ("payload.big + 1", "payload.big is too large a number"),
        ("1 in 2", "2 is a number; 'in' looks into a list, a text or an object"),
        ("1 in payload.text", "1 is a number; a text is looked for in a text"),
        ("[1] in payload", "a text is looked for in an object"),
        ("1 in payload.null", "payload.null is null"),
    ],
)
def test_values_that_do_not_fit_are_an_error_that_names_them(text, problem):
    with pytest.raises(InputError, match=problem) as caught:
        parse(text).evaluate(SCOPE)
    assert caught.value.kind == "fail"
    assert len(caught.value.message) < 900


def test_an_expression_says_which_steps_and_names_it_reads():
    expression = parse(
        'steps.extract.result.n > 1 and (steps["a-b"].failed == 0 or payload.x in [steps.extract.total])'
    )
    assert expression.steps == {"extract", "a-b"}
    assert {path.text for path in expression.paths} == {
        *("steps.extract.result.n", 'steps["a-b"].failed', "payload.x", "steps.extract.total"),
    }
    assert {path.field for path in expression.paths if path.step} == {"result", "failed", "total"}
    assert parse("slot == ''").steps == frozenset()


def test_a_scope_without_a_name_is_an_error_and_not_a_crash():
    with pytest.raises(InputError, match="this run has no slot"):
        parse("slot == ''").evaluate({})


def test_no_text_grows_beyond_the_bound():
    scope = {"payload": {"t": "x" * (LONGEST_TEXT // 2 + 1)}}
    with pytest.raises(InputError, match="makes a text of over"):
        parse(" + ".join(["payload.t"] * 80)).evaluate(scope)


def test_long_rows_need_no_deep_stack():
    assert parse("+".join(["1"] * 500)).evaluate({}) == 500
    assert parse("or ".join(["0 "] * 200)).evaluate({}) == 0
    assert parse("(" * DEEPEST + "1" + ")" * DEEPEST).evaluate({}) == 1


def test_values_nested_without_end_are_an_error_and_not_a_crash():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    other: list[Any] = []
    for _ in range(100_000):
        other = [other]
    with pytest.raises(InputError, match="nested too deep"):
        parse("payload[0] == payload[1]").evaluate({"payload": [deep, other]})


# Properties

_ANYTHING = st.text(
    alphabet=st.one_of(
        st.sampled_from("payloadstepsinotrue \t.,()[]{}+-*/%<>=!&|'\"\\0123456789_é数"), st.characters()
    ),
    max_size=80,
)


def _refused(text: str) -> ExpressionError | InputError | None:
    try:
        parse(text).evaluate(SCOPE)
    except (ExpressionError, InputError) as error:
        return error
    return None


@given(_ANYTHING)
def test_any_text_is_an_expression_or_refused_at_a_place_in_it(text):
    error = _refused(text)
    assert error is None or error.message
    if isinstance(error, ExpressionError):
        assert 0 <= error.position <= len(text)


_NUMBERS = st.integers(0, 50).map(str)
_SUMS = st.recursive(
    _NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-({text})"),
    ),
    max_leaves=8,
)
_CONDITIONS = st.recursive(
    st.tuples(_SUMS, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), _SUMS).map(" ".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
        inner.map(lambda text: f"not ({text})"),
        inner.map(lambda text: f"({text})"),
    ),
    max_leaves=6,
)


def _by_python(node: ast.AST) -> Any:
    """What Python's own grammar makes of the same text."""
    match node:
        case ast.Expression(body=body):
            return _by_python(body)
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=op, operand=operand):
            value = _by_python(operand)
            return not value if isinstance(op, ast.Not) else -value
        case ast.BoolOp(op=op, values=values):
            found = [_by_python(each) for each in values]
            return all(found) if isinstance(op, ast.And) else any(found)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _by_python(left), _by_python(right)
            return a + b if isinstance(op, ast.Add) else a - b if isinstance(op, ast.Sub) else a * b
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            a, b = _by_python(left), _by_python(right)
            orders = {ast.Eq: a == b, ast.NotEq: a != b, ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}
            return orders[type(op)]
        case _:
            raise AssertionError(node)


@given(_CONDITIONS)
def test_operators_bind_as_they_do_in_python(text):
    error = _refused(text)
    if error is None:
        assert bool(parse(text).evaluate({})) is bool(_by_python(ast.parse(text, mode="eval")))
    else:
        assert "at most 20 levels" in error.message or "too large" in error.message


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.0, 1.0, 0.5]), st.text(max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=1), inner, max_size=3)),
    max_leaves=6,
)


def _plain(value: Any) -> Any:
    """A form in which Python tells true from 1 and takes 1.0 for 1."""
    if isinstance(value, bool) or value is None:
        return ("word", value)
    if isinstance(value, int | float):
        return ("number", float(value))
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


@given(_JSON, _JSON)
def test_equality_is_that_of_json(left, right):
    scope = {"payload": {"l": left, "r": right}}
    assert parse("payload.l == payload.r").evaluate(scope) is (_plain(left) == _plain(right))
    assert parse("payload.l != payload.r").evaluate(scope) is (_plain(left) != _plain(right))
    assert parse("payload.l in [payload.r]").evaluate(scope) is (_plain(left) == _plain(right))
    assert parse("payload.l == payload.l").evaluate(scope) is True


@given(st.text(max_size=40).filter(lambda text: not set(json.dumps(text, ensure_ascii=False)) & set("\\")))
def test_a_text_in_quotes_is_that_text(text):
    assert parse(f'"{text}"').evaluate({}) == text
