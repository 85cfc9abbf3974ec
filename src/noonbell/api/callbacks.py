"""Endpoints of callbacks: what targets call when they are done."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api import run_papers as papers
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import as_object, discard_body, read_body
from noonbell.service import Services
from noonbell.service.callbacks import Answer, Proof
from noonbell.service.json_text import decoded
from noonbell.service.run_json import shown_callback
from noonbell.service.secrets import masked

_LONGEST_TOKEN = 256


class CallbackCalls:
    def __init__(self, services: Services) -> None:
        self._callbacks = services.callbacks

    async def by_token(self, request: Request) -> Response:
        """A token that belongs to no run is refused before its body is read: anyone can send one."""
        token = params.piece(request, "callback_token")[:_LONGEST_TOKEN]
        if not await self._callbacks.knows(token):
            await discard_body(request)
            headers, peer = _sender(request)
            await self._callbacks.refuse(token, headers=headers, peer=peer)
        given, came = await _come(request)
        return _told(await self._callbacks.by_token(token, given, **came))

    async def by_ids(self, request: Request) -> Response:
        given, came = await _come(request)
        return _told(await self._callbacks.by_ids(given, **came))

    async def rejected(self, request: Request) -> Response:
        reader = params.query(request)
        limit = reader.integer("limit", 100, 1, 1_000)
        reader.problems.finish()
        found = await self._callbacks.rejected(limit)
        return json_answer({"items": [shown_callback(callback) for callback in found]})


async def _come(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """What it says, and what is recorded of it: headers without their secrets, and the body as it came."""
    sent = await read_body(request)
    given = as_object(await decoded(sent) if sent.strip() else None, required=True)
    headers, peer = _sender(request)
    body = sent.decode("utf-8", "replace").replace("\x00", "")
    return given, {"headers": headers, "body": body, "peer": peer, "proof": Proof(request.headers, sent)}


def _sender(request: Request) -> tuple[dict[str, str], str]:
    """The headers that are recorded, and the address that the callback came from."""
    headers = masked({name: value.replace("\x00", "") for name, value in request.headers.items()})
    peer = "" if request.client is None else request.client.host
    if peer:  # as a proxy would: whoever looks for the sender of a refused one finds it with the others
        headers["x-forwarded-for"] = ", ".join(filter(None, (headers.get("x-forwarded-for"), peer)))
    return headers, peer


def _told(answer: Answer) -> Response:
    return json_answer({"run_id": answer.run_id, "final_status": answer.final_status})


def endpoints(services: Services) -> list[Endpoint]:
    calls = CallbackCalls(services)
    methods = ("POST", "PUT", "PATCH")
    return [
        Endpoint(methods, "/callbacks/{callback_token}", calls.by_token, **papers.CALLBACK),
        Endpoint(methods, "/callbacks", calls.by_ids, **papers.CALLBACK_BY_IDS),
        Endpoint(("GET",), "/callbacks", calls.rejected, **papers.REJECTED),
    ]
