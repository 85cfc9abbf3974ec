"""What one attempt publishes: its body, headers and destination, made of the task, its run and the settings. No network here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from noonbell.errors import InvalidArgument, InvalidState, PayloadTooLarge
from noonbell.model.broker import BrokerAddress, BrokerMessage, MqttMessage, read_address
from noonbell.model.run import Assignment, RunBodies, idempotency_key_of
from noonbell.sealing import Sealer
from noonbell.service.secrets import opened
from noonbell.targets.http import template
from noonbell.targets.http.request import (
    TASK,
    Unsendable,
    callback_headers,
    check_value,
    conceal,
    content_of,
    hidden_values,
    is_async,
    masked_headers,
    override_of,
    own_headers,
    values_of,
)
from noonbell.targets.http.target import storable

TASK_NAME: Final = "X-Noonbell-Task-Name"
LONGEST_DESTINATION: Final = 1_024
_SHORTEST_SECRET: Final = 3
"""A shorter password is left alone in texts: it would blot out words that only look like it."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it is sent."""

    spec: BrokerMessage
    """As the task has it, secrets opened; `destination` and `headers` here are filled in."""
    address: BrokerAddress
    destination: str
    headers: Mapping[str, str]
    content: bytes
    key: str
    """The Idempotency-Key."""
    waits_for_reply: bool
    hidden: Sequence[str]
    """What must not turn up in a stored text."""

    @property
    def pool_key(self) -> tuple[BrokerAddress, str]:
        """Attempts with the same one can share a connection."""
        return self.address, str(self.spec.version) if isinstance(self.spec, MqttMessage) else ""

    def bodies(self, response: str | None = None, *, truncated: bool = False) -> RunBodies:
        """What is kept of the message and of what was said to it."""
        return RunBodies(
            request_headers=masked_headers(self.headers, self.hidden),
            request_body=conceal(storable(self.content.decode()), self.hidden),
            response_body=None if response is None else conceal(storable(response), self.hidden),
            truncated=truncated,
        )


def outgoing(assignment: Assignment, sealer: Sealer, max_body: int) -> Outgoing:
    """Everything that goes to the broker, or Unsendable."""
    try:
        spec = opened(assignment.task.spec, sealer)
        if spec is not assignment.task.spec:
            assignment = msgspec.structs.replace(assignment, task=msgspec.structs.replace(assignment.task, spec=spec))
        return _outgoing(assignment, max_body)
    except PayloadTooLarge as error:
        raise Unsendable("too_large", error.message) from None
    except (InvalidArgument, InvalidState) as error:
        raise Unsendable("fail", error.message) from None


def _outgoing(assignment: Assignment, max_body: int) -> Outgoing:
    message = assignment.task.spec.message
    if message is None:
        raise InvalidArgument("the task does not define the message")
    try:
        address = read_address(message.url)
    except ValueError as error:
        raise InvalidArgument(f"the address of the broker cannot be read; expected {error}") from None
    values = values_of(assignment)
    headers = {name: template.render(value, values) for name, value in message.headers.items()}
    headers |= _own_headers(assignment)
    for name, value in headers.items():
        check_value(name, value)
    if is_async(assignment) and not message.has_headers:
        raise InvalidArgument("the message has no headers, so it cannot carry a callback's address")
    lease = assignment.lease
    return Outgoing(
        spec=message,
        address=address,
        destination=_destination(message, values),
        headers=headers,
        content=content_of(_body(assignment), max_body),
        key=idempotency_key_of(lease.run_id, lease.scheduled_time, lease.idempotency_key),
        waits_for_reply=message.awaits_reply and not is_async(assignment),
        hidden=[*hidden_values(headers, lease.callback_token), *_credentials(address)],
    )


def _own_headers(assignment: Assignment) -> dict[str, str]:
    """Those of an HTTP call, and the name of the task: consumers read messages of many tasks."""
    lease, task = assignment.lease, assignment.task
    return {
        TASK: str(lease.task_id),
        TASK_NAME: task.name or str(lease.task_id),
        **own_headers(assignment),
        **callback_headers(assignment),
    }


def _body(assignment: Assignment) -> str:
    given = override_of(assignment.lease)
    if isinstance(given, str):
        return given
    return json.dumps(assignment.lease.payload if given is None else given, ensure_ascii=False)


def _destination(message: BrokerMessage, values: Mapping[str, Any]) -> str:
    text = template.render(message.destination, values, limit=LONGEST_DESTINATION)
    if (problem := message.destination_problem(text)) is not None:
        raise InvalidArgument(f"the destination of the message is {text[:80]!r}: it {problem}")
    return text


def _credentials(address: BrokerAddress) -> list[str]:
    """The password, or the token in its place, in the spellings that an error may quote it in."""
    secret = address.password if address.password is not None else address.user
    if secret is None or len(secret) < _SHORTEST_SECRET:
        return []
    spellings = {secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    return sorted(spellings, key=len, reverse=True)
