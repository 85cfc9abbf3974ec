"""Placeholders: what is refused when a task is saved, and how values are written where they stand."""

from __future__ import annotations

import json
import time
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.errors import InvalidArgument, PayloadTooLarge
from noonbell.targets.http import template
from noonbell.targets.http.template import check, escape_for, render

VALUES = {
    "run_id": 42,
    "task_name": 'Ann "the bell" O\\Neil',
    "previous_scheduled_time": None,
    "payload": {
        "id": "a/b?c=d&e#f",
        "deep": {"list": [1, {"x": "found"}]},
        "flag": True,
        "none": None,
        "text": "plain",
    },
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no placeholder, and {single} braces",
        '{"a": {"b": 1}}',
        "{% for x in y %}{{run_id}}{% endfor %}",
        "{{ run_id }}",
        *(f"{{{{{name}}}}}" for name in sorted(template.NAMES)),
        "{{payload.order.items.0.name}}",
        "{{payload.with-dash.and_underscore}}",
        "{{payload['a b'].x}}",
        "}} closes nothing",
    ],
)
def test_a_text_without_unknown_placeholders_is_accepted(text):
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{",
        "{{run_id",
        "{{run_id}",
        "{{}}",
        "{{ }}",
        "{{nobody}}",
        "{{RUN_ID}}",
        "{{run_id.real}}",
        "{{payload.}}",
        "{{payload..x}}",
        "{{payload.a b}}",
        "{{''.__class__}}",
        "{{''.__class__.__mro__[1].__subclasses__()}}",
        "{{cycler.__init__.__globals__.os.popen('id').read()}}",
        "{{config}}",
        "{{self}}",
        "{{run_id|center(100000000)}}",
        "{{ 'a' * 10**8 }}",
        "{{run_id}}{{task_name.__class__}}",
        "{{{run_id}}}",
        "{{payload" + ".x" * 33 + "}}",
        "{{item}}",
        "{{slot}}",
        "{{steps.extract.result}}",
    ],
)
def test_what_is_not_a_known_placeholder_is_refused_when_saved_and_when_rendered(text):
    with pytest.raises(InvalidArgument):
        check(text)
    with pytest.raises(InvalidArgument):
        render(text, VALUES)


def test_the_refusal_names_the_placeholder_and_what_there_is():
    with pytest.raises(InvalidArgument, match=r"\{\{nobody\}\}.*run_id.*payload\.FIELD"):
        check("hello {{nobody}}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run {{run_id}}", "run 42"),
        ("{{payload.text}} and {{ payload.deep.list.1.x }}", "plain and found"),
        ("{{payload.deep}}", '{"list":[1,{"x":"found"}]}'),
        ("{{payload.flag}}", "true"),
        ("[{{payload.missing}}{{payload.none}}{{previous_scheduled_time}}{{attempt}}]", "[]"),
        ("{{payload.text.upper}}{{payload.deep.list.9}}{{payload.deep.list.-1}}", ""),
    ],
)
def test_text_takes_values_as_they_are(text, expected):
    assert render(text, VALUES) == expected


def test_attributes_and_methods_of_a_value_cannot_be_reached():
    names = (
        "__class__",
        "items",
        "keys",
        "__len__",
        "__init__",
        "x.upper",
        "x.__class__",
        "y.append",
        "n.real",
        "n.__doc__",
    )
    payload = {"x": "text", "y": [1], "n": 1}
    assert [render(f"{{{{payload.{name}}}}}", {"payload": payload}) for name in names] == [""] * len(names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"run": {{run_id}}}', {"run": 42}),
        ('{"run": "{{run_id}}"}', {"run": "42"}),
        ('{"name": {{task_name}}}', {"name": VALUES["task_name"]}),
        ('{"name": "Dear {{task_name}}!"}', {"name": f"Dear {VALUES['task_name']}!"}),
        ('{"quoted \\" here": "{{task_name}}"}', {'quoted " here': VALUES["task_name"]}),
        ('{"p": {{payload}}}', {"p": VALUES["payload"]}),
        ('["{{payload.missing}}", {{payload.missing}}]', ["", None]),
        ("{{payload}}", VALUES["payload"]),
    ],
)
def test_json_stays_json_whatever_the_value(text, expected):
    assert escape_for(text, None) == "json"
    assert json.loads(render(text, VALUES, escape="json")) == expected


@given(st.text(), st.text())
def test_no_value_can_leave_its_string_in_a_json_body(name, text):
    body = render(
        '{"a": "{{task_name}}", "b": {{payload.x}}}', {"task_name": name, "payload": {"x": text}}, escape="json"
    )
    assert json.loads(body) == {"a": name, "b": text}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda text: text.strip(".")))
def test_no_value_can_leave_its_piece_of_a_url(text):
    url = render("http://h/a/{{payload.x}}/b?q={{payload.x}}#f", {"payload": {"x": text}}, escape="url")
    path, _, query = url.removeprefix("http://h/a/").partition("/b?q=")
    assert not set(path) & set("/?#&=@:\\ \r\n\0")
    assert unquote(path) == unquote(query.removesuffix("#f")) == text


@pytest.mark.parametrize("value", [None, "", ".", "..", "..."])
def test_a_url_with_a_hole_or_a_step_up_is_refused(value):
    with pytest.raises(InvalidArgument, match="cannot be part of a URL"):
        render("http://h/users/{{payload.id}}", {"payload": {"id": value}}, escape="url")


@pytest.mark.parametrize(
    ("text", "content_type", "escape"),
    [
        ('{"a": 1}', None, "json"),
        (' \n["{{run_id}}"]', None, "json"),
        ("{{payload}}", None, "json"),
        ("{{task_name}} rang", None, "none"),
        ("a=1", None, "none"),
        ("{{task_name}}", "application/json; charset=utf-8", "json"),
        ("{{task_name}}", "application/problem+json", "json"),
        ('{"a": 1}', "text/plain", "none"),
        ("a={{task_name}}", "application/x-www-form-urlencoded", "url"),
    ],
)
def test_a_body_is_escaped_by_its_content_type_or_else_by_its_look(text, content_type, escape):
    assert escape_for(text, content_type) == escape


def test_what_is_rendered_has_a_limit_that_is_kept_while_rendering():
    values = {"payload": "x" * 1_000_000}
    began = time.process_time()
    with pytest.raises(PayloadTooLarge):
        render("{{payload}}" * 100_000, values, limit=3_000_000)
    assert time.process_time() - began < 2


FLOW = {
    **VALUES,
    "steps": {"extract": {"result": {"files": ["a b", "c"], "name": 'say "hi"'}}},
    "item": {"n": 3},
    "slot": "s",
}


@pytest.mark.parametrize(
    ("text", "escape", "expected"),
    [
        (
            "http://h/{{ steps.extract.result.files[0] }}?n={{item.n}}&run={{run_id}}",
            "url",
            "http://h/a%20b?n=3&run=42",
        ),
        ('{"f": {{steps.extract.result.files}}, "s": "{{slot}}"}', "json", '{"f": ["a b","c"], "s": "s"}'),
        ('{"name": "{{ steps["extract"].result["name"] }}"}', "json", '{"name": "say \\"hi\\""}'),
        ("{{item}} {{payload.text}}", "none", '{"n":3} plain'),
    ],
)
def test_a_step_of_a_flow_writes_its_values_like_those_of_a_run(text, escape, expected):
    written = render(text, FLOW, escape=escape)
    assert json.loads(written) == json.loads(expected) if escape == "json" else written == expected


def test_what_a_flow_lacks_is_an_error_that_names_it():
    with pytest.raises(
        InvalidArgument, match=r"steps\.extract\.result\.nobody is not there: steps\.extract\.result has no"
    ):
        render("{{ steps.extract.result.nobody }}", FLOW)


def test_a_value_is_never_read_as_a_template():
    assert (
        render("{{payload.x}}", {"payload": {"x": "{{callback_token}}"}, "callback_token": "t"}) == "{{callback_token}}"
    )
