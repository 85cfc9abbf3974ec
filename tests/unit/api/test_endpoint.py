"""What a method of an endpoint takes is read from the request by the names of its parameters; what it returns is the answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api.endpoint import Endpoint, Given, call, endpoints_of
from noonbell.errors import InvalidId, InvalidJson
from noonbell.model.access import Role
from noonbell.model.run import RunId


class Box(msgspec.Struct, frozen=True, kw_only=True):
    noun = "a box"

    size: int = 1


class BoxCalls:
    @call("POST", "/boxes/{box}", "make_box", "Make a box", Role.OPERATOR, status=201, body=Box, query=Box)
    async def make(self, box: str, asked: Box, body: Box, by: str | None) -> object:
        return {"box": box, "asked": asked.size, "size": body.size, "by": by}

    @call("PUT", "/boxes/{run_id}", "change_box", "Change a box", Role.OPERATOR, body=Box, body_required=True)
    async def change(self, run_id: RunId, given: Given) -> object:
        return {"run_id": run_id, **given}

    @call("DELETE", "/boxes/{box}", "remove_box", "Remove a box", Role.OPERATOR)
    async def remove(self) -> object:
        return Response("gone", 410)


def request(body: str, path: dict[str, str], query: str = "", **scope: Any) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    http = {"type": "http", "method": "POST", "headers": [], "path_params": path, "query_string": query.encode()}
    return Request({**http, **scope}, receive)


def endpoint(name: str) -> Endpoint:
    return next(each for each in endpoints_of(BoxCalls(), "boxes") if each.name == name)


async def test_a_method_gets_what_its_parameters_name_and_its_answer_has_the_declared_status():
    sent = request('{"size": 3}', {"box": "blue"}, "size=2", **{"noonbell.actor": "alice"})
    answer = await endpoint("make_box").handler(sent)
    assert answer.status_code == 201
    assert json.loads(answer.body) == {"box": "blue", "asked": 2, "size": 3, "by": "alice"}


async def test_the_request_is_read_in_the_order_of_the_parameters():
    with pytest.raises(InvalidId):
        await endpoint("change_box").handler(request("no JSON", {"run_id": "x"}))
    with pytest.raises(InvalidJson):
        await endpoint("change_box").handler(request("no JSON", {"run_id": "7"}))
    answer = await endpoint("change_box").handler(request('{"size": 3}', {"run_id": "7"}))
    assert json.loads(answer.body) == {"run_id": 7, "size": 3}


async def test_a_response_is_sent_as_it_is():
    answer = await endpoint("remove_box").handler(request("", {"box": "blue"}))
    assert (answer.status_code, answer.body) == (410, b"gone")


def test_a_parameter_that_names_nothing_of_the_request_is_refused_at_start():
    class Slip:
        @call("GET", "/boxes/{box}", "get_box", "Read a box", Role.VIEWER)
        async def get(self, boks: str) -> object:
            return boks

    with pytest.raises(TypeError, match=r"/boxes/\{box\} has nothing by the name of boks"):
        endpoints_of(Slip(), "boxes")
