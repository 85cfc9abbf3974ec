"""JSON texts that callers send, made into values at a cost that their size bounds.

No step here walks over a text's values in Python, and no single step holds the interpreter's lock for longer than a small
part of a second: the event loop waits for that lock too. The number of values in a text is therefore limited, and they are
counted in its bytes, before a single one of them is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from noonbell.errors import InvalidJson, PayloadTooLarge, Sentence

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

DEEPEST: Final = 64
"""How deep a JSON value may be nested."""
MOST_VALUES: Final = 250_000
"""Of one text; an empty list or object counts as two. A batch of 10,000 runs has room for 25 values in each."""
ASIDE_FROM: Final = 256 * 1024
"""Bytes. What is larger is decoded in a thread."""

_decode = msgspec.json.Decoder().decode
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_AS_SQUARE: Final = bytes.maketrans(b"{}", b"[]")

T = TypeVar("T")


async def joined(pieces: AsyncIterable[bytes], most_bytes: int) -> bytes:
    """The pieces of a body as one; PayloadTooLarge as soon as they are more than `most_bytes`."""
    found, size = [], 0
    async for piece in pieces:
        size += len(piece)
        if size > most_bytes:
            raise too_large(most_bytes)
        found.append(piece)
    return b"".join(found)


def too_large(most_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than the {most_bytes} bytes that are taken")


async def decoded(body: bytes) -> Any:
    """What `decode` makes of it; a large one in a thread, one at a time."""
    return await aside(decode, body, size=len(body))


async def aside(work: Callable[..., T], *given: Any, size: int) -> T:
    """`work(*given)`, in a thread if it is about more than ASIDE_FROM bytes.

    All such work shares one thread: with several, the event loop would have to wait for each of them in turn.
    """
    if size <= ASIDE_FROM:
        return work(*given)
    import asyncio  # not at the top: commands that read a schedule start without it

    return await asyncio.get_running_loop().run_in_executor(_thread(), work, *given)


@cache
def _thread() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "noonbell decode")


def decode(body: bytes, what: str = "the body ") -> Any:
    """InvalidJson if it is none or nested too deep, PayloadTooLarge if it has too many values. `what` begins the message."""
    if _has_too_many_values(body):
        raise PayloadTooLarge(f"{what}has more than the {MOST_VALUES} values that are allowed")
    try:
        value = _decode(body)
    except msgspec.MsgspecError as error:
        raise InvalidJson(Sentence("{begin}is not JSON: {error}", begin=what, error=str(error))) from None
    except UnicodeDecodeError as error:
        raise InvalidJson(f"{what}is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise _too_deep(what) from None
    if is_too_deep(body):
        raise _too_deep(what)
    return value


def _too_deep(what: str) -> InvalidJson:
    return InvalidJson(Sentence("{begin}is nested deeper than {most} levels", begin=what, most=DEEPEST))


def is_too_deep(text: bytes) -> bool:
    """Whether the JSON `text`, which can be decoded, is nested deeper than DEEPEST levels."""
    if text.count(b"[") + text.count(b"{") <= DEEPEST:
        return False
    brackets = _outside_strings(_without_escapes(text)).translate(_AS_SQUARE, _NO_BRACKETS)
    for _ in range(DEEPEST):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")  # the innermost level goes
    return bool(brackets)


def _has_too_many_values(body: bytes) -> bool:
    # Each value but the outermost comes after one of these three.
    if sum(map(body.count, (b",", b"[", b"{"))) <= MOST_VALUES:
        return False
    plain = _without_escapes(body)
    if plain.count(b'"') > 4 * MOST_VALUES:  # two quotes to a string, and at most two strings to a value
        return True
    return sum(map(_outside_strings(plain).count, (b",", b"[", b"{"))) > MOST_VALUES


def _without_escapes(text: bytes) -> bytes:
    """The text with as many quotes as open and close a string."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def _outside_strings(text: bytes) -> bytes:
    return b"".join(text.split(b'"')[::2])
