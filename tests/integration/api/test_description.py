"""The description of the API is complete, true and served without anybody else's script."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin

import msgspec
import pytest

from integration.api.serving import Api, serving
from noonbell.api import openapi
from noonbell.api.openapi import document
from noonbell.clock import Instant
from noonbell.errors import HTTP_STATUS, NoonbellError
from noonbell.model.task import TaskSpec
from noonbell.service.task_fields import Rules, read_task
from noonbell.service.translation import Translator
from noonbell.settings import ServerSettings
from services.endpoints import endpoint_table

DOCUMENT = msgspec.json.decode(msgspec.json.encode(document(endpoint_table())))
OPERATIONS = [
    pytest.param(path, method, operation, id=f"{method} {path}")
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def resolved(node: Any) -> Any:
    if isinstance(node, dict) and "$ref" in node:
        found: Any = DOCUMENT
        for step in node["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        return resolved(found)
    return node


def refs(node: Any):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from refs(value)


def mismatch(schema: Any, value: Any, where: str = "$") -> str | None:
    """The first place where an example is not what its schema says: the keywords that we use, no more."""
    schema = resolved(schema)
    if "anyOf" in schema or "oneOf" in schema:
        ways = schema.get("anyOf") or schema["oneOf"]
        found = [mismatch(way, value, where) for way in ways]
        return None if None in found else found[0]
    if "enum" in schema and value not in schema["enum"]:
        return f"{where}: {value!r} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        return f"{where}: {value!r} is not {schema['const']!r}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    known = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
        "null": type(None),
    }  # fmt: skip
    if kinds and not any(isinstance(value, known[kind]) for kind in kinds):
        return f"{where}: {value!r} is not {kinds}"
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                return f"{where}.{name} is missing"
        for name, inner in value.items():
            here = schema.get("properties", {}).get(name)
            if here is None and schema.get("additionalProperties") is False:
                return f"{where}.{name} is not in the schema"
            if here is None and isinstance(schema.get("additionalProperties"), dict):
                here = schema["additionalProperties"]
            if here is not None and (wrong := mismatch(here, inner, f"{where}.{name}")):
                return wrong
    if isinstance(value, list) and "items" in schema:
        for index, inner in enumerate(value):
            if wrong := mismatch(schema["items"], inner, f"{where}[{index}]"):
                return wrong
    return None


async def test_it_is_served(quick_api: Api):
    told = await quick_api.good("GET", "//openapi.json")
    assert told["openapi"] == "3.1.0"
    assert told["paths"].keys() == DOCUMENT["paths"].keys()


def test_every_route_is_described():
    described = {(path, method.upper()) for path, methods in DOCUMENT["paths"].items() for method in methods}
    routed = {(each.base + each.path, method) for each in endpoint_table() for method in each.methods}
    assert described == routed


def test_every_reference_leads_somewhere():
    for ref in set(refs(DOCUMENT)):
        assert resolved({"$ref": ref}) is not None


def test_operations_have_names_of_their_own():
    names = [param.values[2]["operationId"] for param in OPERATIONS]
    assert len(names) == len(set(names))


def test_the_codes_of_document_002_are_among_them_with_their_statuses():
    named = {
        "INVALID_JSON": 400,
        "INVALID_ARGUMENT": 400,
        "INVALID_ID": 400,
        "NOT_FOUND": 404,
        "CONCURRENCY_LIMIT": 409,
    }
    assert named.items() | {("INTERNAL", 500)} <= HTTP_STATUS.items()


def test_every_error_code_has_a_status_and_an_answer():
    def codes(error: type[NoonbellError]) -> set[str]:
        return {error.code}.union(*(codes(each) for each in error.__subclasses__()))

    assert codes(NoonbellError) <= set(HTTP_STATUS)
    assert set(DOCUMENT["components"]["responses"]) == set(HTTP_STATUS)


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_every_operation_has_examples_that_fit_their_schemas(path, method, operation):
    assert operation["summary"]
    for status, answer in operation["responses"].items():
        for media in resolved(answer)["content"].values():
            examples = [media["example"]] if "example" in media else [e["value"] for e in media["examples"].values()]
            for example in examples:
                assert mismatch(media["schema"], example) is None, status
    if "requestBody" in operation:
        media = operation["requestBody"]["content"]["application/json"]
        assert mismatch(media["schema"], media["example"]) is None
    for param in operation.get("parameters", []):
        assert param["description"]
        if "example" in param:
            assert mismatch(param["schema"], param["example"]) is None, param["name"]
    wanted = set(re.findall(r"\{(\w+)\}", path))
    assert wanted == {param["name"] for param in operation.get("parameters", []) if param["in"] == "path"}


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_every_operation_names_its_errors(path, method, operation):
    assert {"500", "503"} <= set(operation["responses"])
    if "{id}" in path or "{run_id}" in path:
        assert {"400", "404"} <= set(operation["responses"])


def test_a_task_is_described_field_by_field():
    from noonbell.service.task_fields import READ_ONLY

    fields = set(DOCUMENT["components"]["schemas"]["TaskWrite"]["properties"])
    assert not (fields & (READ_ONLY - {"version"}))
    written = dict.fromkeys(fields - {"version"}) | {"name": "a", "target_url": "http://x/"}
    assert read_task(written, Instant(0), Rules()).spec.name == "a"
    assert set(TaskSpec.__struct_fields__) <= fields


async def test_answers_are_what_the_description_says(api: Api):
    await api.create(cron_expr="*/5 * * * *", headers={"A": "1"}, rate_limit={"max": 1, "per_seconds": 1})
    run_id = await api.trigger(1)
    await api.claim()
    for path, template in (
        ("/tasks", "/tasks"),
        ("/tasks/1", "/tasks/{id}"),
        ("/tasks/1/next", "/tasks/{id}/next"),
        ("/tasks/1/runs", "/tasks/{id}/runs"),
        ("/runs", "/runs"),
        (f"/runs/{run_id}", "/runs/{run_id}"),
        (f"/runs/{run_id}/attempts", "/runs/{run_id}/attempts"),
        (f"/runs/{run_id}/log", "/runs/{run_id}/log"),
        (f"/runs/{run_id}/callbacks", "/runs/{run_id}/callbacks"),
        ("/stats", "/stats"),
        ("/readyz", "/readyz"),
    ):
        told = await api.good("GET", path)
        answer = DOCUMENT["paths"][f"/api/v1{template}"]["get"]["responses"]["200"]
        schema = resolved(answer["content"]["application/json"]["schema"])
        assert mismatch(schema, told) is None, path
        if "items" not in told and path != "/readyz":
            assert set(told) == set(schema["properties"]), path


async def test_the_page_needs_no_script_and_nobody_else(quick_api: Api):
    told = await quick_api.call("GET", "//docs")
    assert told.status == 200
    assert "<script" not in told.text
    assert "://" not in re.sub(r"<pre>.*?</pre>", "", told.text, flags=re.DOTALL)
    assert "default-src 'none'" in told.headers["content-security-policy"]
    for path in DOCUMENT["paths"]:
        assert path in told.text


async def test_the_page_sets_code_as_code_and_shows_no_markers(quick_api: Api):
    text = (await quick_api.call("GET", "//docs")).text
    assert "<p>Its <code>ETag</code> is its version, for <code>If-Match</code>." in text
    assert "<td>The task&#x27;s id, or <code>name:NAME</code>." in text
    outside = re.sub(r"<(code|style)>.*?</\1>", "", text, flags=re.DOTALL)
    assert "`" not in outside
    assert "**" not in outside
    assert text.count("<pre><code>") == text.count("<pre")


def test_markers_are_rendered_and_what_is_between_them_is_escaped():
    assert openapi.marked("a `<b>` & **so `c`**") == "a <code>&lt;b&gt;</code> &amp; <b>so <code>c</code></b>"
    assert openapi.marked('shows as `"***"`; 2 ** 3') == "shows as <code>&quot;***&quot;</code>; 2 ** 3"


async def test_the_page_leads_back_to_the_dashboard_also_under_a_prefix():
    async with serving("memory://", server=ServerSettings(public_url="http://127.0.0.1/cron/bell/")) as api:
        text = (await api.call("GET", "//cron/bell/docs")).text
        assert '<a href="./">Back to the dashboard</a>' in text
        for link in re.findall(r'href="([^"]*)"', text):
            there = urljoin("/cron/bell/docs", link)
            assert there in ("/cron/bell/", "/cron/bell/openapi.json")
            assert (await api.call("GET", f"/{there}", headers={"accept": "text/html"})).status == 200


async def test_the_page_is_built_once_for_each_language(quick_api: Api, monkeypatch: pytest.MonkeyPatch):
    built: list[str] = []
    build = openapi.page

    def counted(document: dict[str, Any], words: Translator) -> str:
        built.append(words.lang)
        return build(document, words)

    monkeypatch.setattr(openapi, "page", counted)
    for lang, word in (("en", "Back to the dashboard"), ("zh-CN", "返回控制台"), ("en-GB", "Back to the dashboard")):
        told = await quick_api.call("GET", "//docs", headers={"accept-language": lang})
        assert word in told.text
    chosen = {"accept-language": "en", "cookie": "noonbell_lang=zh"}
    assert '<html lang="zh-CN">' in (await quick_api.call("GET", "//docs", headers=chosen)).text
    assert built == ["en", "zh"]
