"""One attempt on the wire: where it was dialled, and as much of the answer as has come.

It is filled in as things happen, so that a deadline, a cut or a broken answer leaves behind what was there until then.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

import aiohttp

from noonbell.targets.guard import BlockedAddress

current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)
"""The exchange of the attempt that runs in this context: how the dial, which knows no request, finds it."""


class TooLarge(Exception):
    """The answer is longer than may be kept."""


@dataclass(slots=True)
class Exchange:
    address: str | None = None
    """The last address that was dialled, with its port."""
    blocked: BlockedAddress | None = None
    dials: int = 0
    """Connections begun. None, while a request is under way, means that it went out on one from the pool."""
    transport: asyncio.WriteTransport | None = None
    status: int | None = None
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the answer; a name is found in any case, and may be there several times."""
    body: bytearray = field(default_factory=bytearray)
    is_whole: bool = False
    """The answer came to its end."""

    def began(self) -> None:
        """A new request of the attempt: the first, or one that follows a redirect."""
        self.dials = 0
        self.blocked = self.address = self.transport = self.status = None

    def answered(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.reason = response.reason or ""
        self.headers = response.headers

    def drop(self) -> None:
        """Let go of the connection at once, whatever is still to be sent or read."""
        if self.transport is not None:
            self.transport.abort()

    def drop_if_stuck(self) -> None:
        """An answer may come before the request has been read. What is left of it would wait for ever."""
        if self.transport is not None and self.transport.get_write_buffer_size():
            self.transport.abort()

    async def read(self, response: aiohttp.ClientResponse, limit: int) -> None:
        """Take in the body, decoded, up to `limit` bytes; TooLarge if there is more."""
        decoder = decoder_for(response.headers.get("Content-Encoding"))
        stream = response.content
        while chunk := await stream.readany():
            for part in decoder.decoded(chunk, limit - len(self.body) + 1):
                self.body += part
                if len(self.body) > limit:
                    del self.body[limit:]
                    raise TooLarge
        decoder.end()
        self.is_whole = True


class Decoder:
    """Passes bytes on as they came."""

    def decoded(self, chunk: bytes, room: int) -> list[bytes]:
        """What the chunk holds; of a longer text at least the first `room` bytes, and never much more."""
        return [chunk[:room]]

    def end(self) -> None:
        """Raise, if the text cannot end here."""


class Inflater(Decoder):
    """gzip and deflate. Never makes more than it was asked for, however little that was made of."""

    def __init__(self, encoding: str) -> None:
        self._wbits = 31 if encoding == "gzip" else 15
        self._inflate = zlib.decompressobj(self._wbits)
        self._is_begun = False

    def decoded(self, chunk: bytes, room: int) -> list[bytes]:
        if not self._is_begun:
            self._is_begun = True
            # `deflate` means the zlib form; some servers send the bare one. The low nibble of the first byte tells.
            if self._wbits == 15 and chunk[0] & 0x0F != 8:
                self._wbits = -15
                self._inflate = zlib.decompressobj(self._wbits)
        parts = []
        while chunk and room > 0:
            if self._inflate.eof:  # a gzip text may be several, one after the other
                self._inflate = zlib.decompressobj(self._wbits)
            part = self._inflate.decompress(chunk, room)
            parts.append(part)
            room -= len(part)
            chunk = self._inflate.unused_data or self._inflate.unconsumed_tail
        return parts

    def end(self) -> None:
        if self._is_begun and not self._inflate.eof:
            raise zlib.error("the compressed body ends in the middle")


def decoder_for(encoding: str | None) -> Decoder:
    """What undoes a Content-Encoding. One that was not asked for is left as it came."""
    name = (encoding or "").strip().lower()
    return Inflater(name.removeprefix("x-")) if name in {"gzip", "x-gzip", "deflate"} else Decoder()
