"""What is wrong with a field is told in the reader's language: by its English template, with the facts put in."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import msgspec
import pytest

import noonbell
from noonbell import errors
from noonbell.alerts.channels import AlertChannelWrite
from noonbell.alerts.service import AlertMuteWrite
from noonbell.clock import Instant
from noonbell.errors import InvalidArgument, NoonbellError, Sentence, both
from noonbell.fields import read, table
from noonbell.model.alert import RuleBody
from noonbell.model.task import Circuit, TaskSpec
from noonbell.service.calendars import CalendarWrite
from noonbell.service.calls import CallWrite
from noonbell.service.task_fields import Rules, read_task
from noonbell.service.translation import Translator, problem_words
from noonbell.subscriptions.service import SubscriptionWrite

ROOM = Path(noonbell.__file__).parent
KNOWN: dict[str, str] = json.loads((ROOM / "service/locales/problems/zh.json").read_text())
FORMS = (
    *("fields", "model", "when", "web", "subscriptions"),
    *(f"policy/{name}.py" for name in ("flows", "placeholders", "value_path", "expressions")),
    "stores/sql/joins.py",
    *(f"service/{name}_fields.py" for name in ("task", "target", "grpc")),
    *(f"service/{name}.py" for name in ("preview", "pauses", "publishing", "queues", "access", "calendars", "filters")),
    *(f"alerts/{name}.py" for name in ("channels", "apprise", "posting", "email", "telegram", "chat")),
)
"""Where the problems come from that a form can show; what only a call of the API can do wrong stays in English."""


ERRORS = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, NoonbellError)}


def texts(node: ast.expr | None) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=first, orelse=second):
            yield from (*texts(first), *texts(second))


def problems_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Sentence"), args=[template, *_], keywords=facts):
                yield from texts(template)
                yield from (text for fact in facts if fact.arg in ("what", "noun") for text in texts(fact.value))
            case ast.Call(func=ast.Attribute(attr="wrong"), args=[_, problem], keywords=facts):
                yield from texts(problem)
                yield from (text for fact in facts if fact.arg in ("what", "noun") for text in texts(fact.value))
            case ast.Call(func=ast.Attribute(attr="add", value=ast.Name(id="problems")), args=[_, problem]):
                yield from texts(problem)
            case ast.Call(func=ast.Attribute(attr="expected"), args=[_, _, what]):
                yield from texts(what)
            case ast.Call(func=ast.Name(id="meta"), keywords=keywords):
                yield from (
                    text for each in keywords if each.arg in ("expected", "missing") for text in texts(each.value)
                )
            case ast.Assign(targets=[ast.Name(id="template")], value=template):
                yield from texts(template)
            case ast.AnnAssign(target=ast.Name(id="noun"), value=noun):
                yield from texts(noun)


def test_what_a_form_can_show_is_in_the_chinese_catalogue():
    found = {
        text
        for place in FORMS
        for path in sorted((ROOM / place).rglob("*.py") if (ROOM / place).is_dir() else [ROOM / place])
        for text in problems_in(ast.parse(path.read_text()))
    }
    assert len(found) > 120
    assert sorted(found - set(KNOWN)) == []


def test_what_a_field_is_found_to_have_is_in_the_chinese_catalogue():
    """Functions that say what is wrong with a value of a form: a plain text, or a Sentence where it has facts."""
    plain: set[str] = set()
    formatted: list[str] = []
    for place in FORMS:
        for path in sorted((ROOM / place).rglob("*.py") if (ROOM / place).is_dir() else [ROOM / place]):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef) and function.name.endswith("_problem"):
                    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
                    plain |= {text for value in returned for text in texts(value)} - {""}
                    formatted += [f"{path.name}: {ast.unparse(value)}" for value in returned if is_formatted(value)]
    assert len(plain) > 20
    assert sorted(plain - set(KNOWN)) == []
    assert formatted == [_LIBRARY_S]


_LIBRARY_S = (
    """target_fields.py: f"is wrong; expected {' or '.join((f'{scheme}://' for scheme in schemes))}, {error}\""""
)
"""What a library says of an address."""


def is_formatted(value: ast.expr | None) -> bool:
    return value is not None and any(
        isinstance(each, ast.JoinedStr)
        for each in (value, *((value.body, value.orelse) if isinstance(value, ast.IfExp) else ()))
    )


def template_in(node: ast.AST) -> ast.expr | None:
    """The template of a Sentence: its own, or that of an error or of a problem that is given its facts."""
    match node:
        case ast.Call(func=ast.Name(id="Sentence"), args=[template, *_]):
            return template
        case ast.Call(func=ast.Attribute(attr="wrong"), args=[_, template], keywords=[_, *_]):
            return template
        case ast.Call(func=ast.Name(id=name), args=[template], keywords=facts) if name in ERRORS:
            return template if any(fact.arg != "details" for fact in facts) else None
    return None


def test_every_sentence_is_in_the_chinese_catalogue():
    """They are made for pages; a plain text does for what only callers of the API read."""
    found = {
        text
        for path in ROOM.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for text in texts(template_in(node))
    }
    assert len(found) > 50
    assert sorted(found - set(KNOWN)) == []


def expectations(struct: type[msgspec.Struct], seen: set[type]) -> Iterator[str]:
    """What the fields of a Struct are said to expect, and those of the Structs in it."""
    seen.add(struct)
    for each in table(struct).values():
        yield from filter(None, (each.kind.what, each.extra.get("missing")))
        for inner in each.kind.structs():
            if inner not in seen:
                yield from expectations(inner, seen)


@pytest.mark.parametrize(
    "body", [TaskSpec, CallWrite, AlertChannelWrite, RuleBody, AlertMuteWrite, SubscriptionWrite, CalendarWrite]
)
def test_what_the_fields_of_a_form_expect_is_told_in_chinese(body: type[msgspec.Struct]):
    for what in expectations(body, set()):
        problem = Sentence("is missing; expected {what}", what=what)
        assert re.search("[一-鿿]", problem_words(problem, Translator("zh"))), what


CONDITIONS = (
    *(
        "",
        "1 = 1",
        "payload.x && 1",
        "payload.x || 1",
        "!payload.x",
        "1 === 1",
        "1 !== 1",
        "1 <> 1",
        "2 ** 3",
        "1 // 2",
        "1 := 2",
    ),
    *("1 => 2", "1 =< 2", "1 & 2", "1 | 2", "{}", "{{ payload.x }}", "1 }}", ".5", "payload.x ;", "1.", "0x1", "1e999"),
    *(
        "9" * 19,
        r"'\q'",
        "'abc",
        "x == 1",
        "NOT 1",
        "len(payload)",
        "payload()",
        "payload.x is 1",
        "payload.",
        "payload[-1]",
    ),
    *("steps", "steps.a", "steps.a.x", "steps.a-b.result", "slot.x", "payload" + ".x" * 40, "steps.b.result == 1"),
    *("1 < 2 < 3", "1 2", "1 not 2", "1 ==", ")", "(1", "[1", "1 not in", "(" * 30),
)


def wrong_flows() -> Iterator[list[dict[str, Any]]]:
    a, b = {"id": "a", "job_type": "j"}, {"id": "b", "job_type": "j"}
    yield from ([a, {**b, "needs": ["a"], "when": condition}] for condition in CONDITIONS)
    yield from (
        [{**a, "foreach": [1]}, {**b, "needs": ["a"], **more}]
        for more in (
            *(
                {"payload": text}
                for text in ("{{ x }}", "{{ item", "{{ item }}", "{{ steps.c.result }}", "{{ slot.x }}")
            ),
            *(
                {"payload": text}
                for text in ("{{ steps.a.result }}", "{{ steps.a }}", "{{ steps.a.x }}", "{{ steps }}")
            ),
            {"foreach": "text"},
            {"foreach": [0] * 10_001},
            {"max_parallel": 3},
        )
    )
    yield from (
        [a, a],
        [a, {**b, "needs": ["c"]}],
        [{**a, "needs": ["b"]}, {**b, "needs": ["a"]}],
        [{**a, "on": "failure"}],
    )


@pytest.mark.parametrize("steps", list(wrong_flows()), ids=lambda steps: str(steps[-1])[:80])
def test_what_is_wrong_with_a_flow_is_told_in_chinese(steps: list[dict[str, Any]]):
    with pytest.raises(InvalidArgument) as raised:
        read_task({"name": "n", "steps": steps}, Instant(0), Rules())
    for problem in raised.value.sentences.values():
        told = problem_words(problem, Translator("zh"))
        assert re.search("[一-鿿]", told), problem
        assert not re.search(r"\b(expected|unknown|is|the|cannot)\b", told.replace("'is'", "")), told


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schedule", "x"),
        ("schedule", {}),
        ("schedule", {"type": "hourly"}),
        ("exclude", "x"),
        ("exclude", ["x"]),
        ("schedules", [{"type": 3}]),
        ("quiet", [{"from": "22:00", "to": "22:00"}]),
        ("quiet", [{"from": "22:00", "to": "23:00", "timezone": "Mars/X"}]),
        ("timezone", "Mars/X"),
        *(
            ("cron_expr", text)
            for text in ("99 * * * *", "* * *", "* * * * XYZ", "* * 30 2 *", "@often", "@reboot", "a b c d e")
        ),
        ("schedule", {"type": "weekly", "days": ["xyz"], "at": "02:00"}),
        ("schedule", {"type": "weekly", "days": ["mon"], "at": "25:00"}),
        ("schedule", {"type": "monthly", "days": [32], "at": "02:00"}),
        ("schedule", {"type": "once", "at": "tomorrow"}),
        ("schedule", {"type": "interval", "seconds": 0}),
    ],
)
def test_what_is_wrong_with_a_schedule_is_told_in_chinese(field: str, value: Any):
    usual = {} if field in ("schedule", "schedules", "cron_expr") else {"cron_expr": "0 2 * * *"}
    with pytest.raises(InvalidArgument) as raised:
        read_task({"name": "n", "target_url": "http://x/", **usual, field: value}, Instant(0), Rules())
    assert raised.value.sentences
    for problem in raised.value.sentences.values():
        told = problem_words(problem, Translator("zh"))
        assert re.search("[一-鿿]", told), problem
        assert not re.search(r"\b(expected|unknown|is|the|cannot)\b", told), told


def facts(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("template", [each for each in KNOWN if "{" in each and '{"' not in each and "{…}" not in each])
def test_a_problem_takes_the_same_facts_in_chinese(template: str):
    assert facts(KNOWN[template]) == facts(template)


def test_a_problem_is_told_in_the_readers_language():
    with pytest.raises(InvalidArgument) as raised:
        read(Circuit, {"failures": 0, "cool_down": 3})
    problems = raised.value.sentences
    assert raised.value.details == problems
    assert all(type(each) is str for each in raised.value.details.values())
    told = {name: problem_words(each, Translator("zh")) for name, each in problems.items()}
    assert told == {
        "failures": "为 0；应为 1 到 1000000 之间的整数",
        "cool_down": "不是熔断设置的字段；是否指 cool_down_seconds？",
    }
    assert {name: problem_words(each, Translator("en")) for name, each in problems.items()} == problems


def test_what_is_not_known_in_part_is_told_in_english_as_a_whole():
    odd = Sentence("is {value}; expected {what}", value="7", what="something that nobody has put into Chinese")
    assert problem_words(odd, Translator("zh")) == str(odd)
    assert problem_words(both(odd, "is missing"), Translator("zh")) == f"{odd}; is missing"
    assert problem_words(both("is missing", "is missing"), Translator("zh")) == "缺失；缺失"
