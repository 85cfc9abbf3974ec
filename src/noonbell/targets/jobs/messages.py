"""What a worker and its sandboxes say to each other: MessagePack, each message with its length before it.

    worker ──▶ sandbox    Prepare once, then Carry for each run; Cancel; MoreTime, the answer to Extend
    sandbox ──▶ worker    Ready once; Log, Progress, Extend while a run goes on; Done at its end

The worker trusts none of it: a message that it cannot read, or that is too long, ends the sandbox.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from noonbell.model.attempt import Assignment, Outcome

LENGTH: Final = struct.Struct("!I")
LONGEST: Final = 64 * 1024 * 1024


class Prepare(msgspec.Struct, tag=True):
    location: str
    memory_mb: int | None
    path: list[str]
    """Where the worker imports from."""


class Carry(msgspec.Struct, tag=True):
    assignment: Assignment


class Cancel(msgspec.Struct, tag=True):
    pass


class MoreTime(msgspec.Struct, tag=True):
    is_ours: bool


class Ready(msgspec.Struct, tag=True):
    problem: str | None = None
    """Why it is not."""


class Log(msgspec.Struct, tag=True):
    level: str
    message: str


class Progress(msgspec.Struct, tag=True):
    progress: dict[str, Any]


class Extend(msgspec.Struct, tag=True):
    seconds: float


class Done(msgspec.Struct, tag=True):
    outcome: Outcome
    result: bytes | None = None
    """The outcome's result, as JSON: it goes to the store as it is."""
    is_spent: bool = False
    """The sandbox has run out of memory, or of trust in itself: it is not to be used again."""


ToSandbox = Prepare | Carry | Cancel | MoreTime
ToWorker = Ready | Log | Progress | Extend | Done

_encoder = msgspec.msgpack.Encoder()
_in_sandbox: msgspec.msgpack.Decoder[ToSandbox] = msgspec.msgpack.Decoder(ToSandbox)
_in_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def packed(message: ToSandbox | ToWorker) -> bytes:
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def read_in_sandbox(body: bytes) -> ToSandbox:
    return _in_sandbox.decode(body)


def read_in_worker(body: bytes) -> ToWorker:
    """Raises msgspec.MsgspecError."""
    return _in_worker.decode(body)
