"""The typed client says what the endpoints declare: every route has a method, and every Struct its type."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from noonbell.client import types
from noonbell.client.calls import ApiCalls
from noonbell.client.transport import ApiCall
from noonbell.clock import Instant
from noonbell.fields import example, table
from noonbell.model.event import Event
from noonbell.service.filters import event_json

ROOT = Path(__file__).parents[2]
PLAIN_TEXT = {"export_runs", "healthz", "livez", "version", "metrics"}
"""Methods whose answer is a text."""


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


TOOL = loaded("client_types")
ENDPOINTS = TOOL.endpoints()
ANSWERS = TOOL.answers()


def signatures() -> Iterator[tuple[str, str, str]]:
    """Name, parameters and answer of each method, as they are written."""
    source = inspect.getsource(sys.modules[ApiCalls.__module__])
    for found in re.finditer(r"    def (\w+)\(\s*self,? ?(.*?)\s*\) -> ([\w.]+):\n        \"\"\"", source, re.DOTALL):
        yield found[1], found[2], found[3]


WRITTEN = {name: (parameters, answer) for name, parameters, answer in signatures() if name in vars(ApiCalls)}


@pytest.mark.parametrize("name", TOOL.MODULES)
def test_the_types_are_as_the_endpoints_declare_them(name: str):
    text = (TOOL.TYPES / f"{name}.py").read_text()
    assert text == TOOL.type_modules()[name], "out of date: run `python tools/reference.py --write`"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_a_route_has_a_method_with_the_type_of_its_answer(endpoint: Any):
    if endpoint.name in TOOL.STREAMS:
        return
    call = vars(ApiCalls)[endpoint.name]
    assert isinstance(call, ApiCall)
    assert (call.method in endpoint.methods, call.base + call.path) == (True, endpoint.base + endpoint.path)
    parameters, answer = WRITTEN[endpoint.name]
    assert answer == ("str" if endpoint.name in PLAIN_TEXT else f"types.{ANSWERS[endpoint.answer]}")
    assert "Any" not in parameters
    for given in (endpoint.body, endpoint.query):
        assert given is None or f"types.{TOOL.inputs()[given]}" in parameters


@pytest.mark.parametrize("struct", ANSWERS, ids=lambda struct: struct.__name__)
def test_a_type_has_the_fields_that_an_answer_has(struct: Any):
    made = getattr(types, ANSWERS[struct])
    tag = struct.__struct_config__.tag_field
    assert made.__required_keys__ | made.__optional_keys__ == {*table(struct), *([] if tag is None else [tag])}
    assert made.__required_keys__ <= example(struct).keys()


def test_an_event_has_its_type():
    event = Event(seq=1, index=0, at=Instant(0), type="run.started", topic="a", queue="default")
    assert event_json(event).keys() == get_type_hints(types.EventJson).keys()
