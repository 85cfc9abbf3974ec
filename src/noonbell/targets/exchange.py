"""One attempt on the wire: where it was dialled, and as much of the answer as has come.

It is filled in as things happen, so that a deadline, a cut or a broken answer leaves behind what was there until then.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

MOST_MEMBERS = 1_000
"""Texts that one gzip body may be made of. An empty one has twenty bytes, and costs far more than it brings."""

_GZIP = b"\x1f\x8b"
"""What every gzip text begins with."""
_WINDOW = 16 * 1024
"""Bytes that are given to zlib at once: what it does not use, it copies."""
_MADE = 64 * 1024
"""Bytes that zlib makes at once."""


class TooLarge(Exception):
    """The answer is longer than may be kept."""


class Exchange:
    __slots__ = (
        *("_decoders", "address", "body", "came_from", "dialled", "headers", "is_resent", "is_whole", "limit"),
        *("reason", "status", "watched"),
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Bytes of the body that are kept."""
        self.address: str | None = None
        """The last address that was dialled, with its port."""
        self.dialled: str | None = None
        """The same without its port."""
        self.came_from: str | None = None
        """Where the redirect came from that is followed; None for the first request."""
        self.status: int | None = None
        self.reason = ""
        self.headers: dict[str, str] = {}
        """Of the answer, as it spells them; one that came several times is joined by commas."""
        self.watched: dict[str, str] = {}
        """Those that mean something to us, by their names in lower case; of several, the first."""
        self.body = bytearray()
        self.is_whole = False
        """The answer came to its end."""
        self.is_resent = False
        """A request of the attempt was sent a second time, because its first connection was lost."""
        self._decoders: list[Inflater] = []

    def began(self) -> None:
        """A new request of the attempt: the first, or one that follows a redirect."""
        self.came_from = self.dialled
        self.address = self.dialled = self.status = None
        self._decoders = []
        self.is_whole = False

    def answered(
        self,
        status: int,
        reason: str,
        headers: dict[str, str],
        watched: dict[str, str],
        codings: Sequence[str] = (),
    ) -> None:
        """The head has come. `codings`: what was done to the body for its transfer, in that order, without the chunks."""
        self.status, self.reason, self.headers, self.watched = status, reason, headers, watched
        encoding = watched.get("content-encoding")
        if encoding is not None or codings:
            self._decoders = decoders_for([encoding or "", *codings], self.limit)

    def take(self, chunk: bytes) -> None:
        """A piece of the body as it came. TooLarge, as soon as it makes more than the limit; zlib.error, if it is broken."""
        body = self.body
        for part in self._decoded(chunk) if self._decoders else (chunk,):
            body += part
            if len(body) > self.limit:
                del body[self.limit :]
                raise TooLarge

    def _decoded(self, chunk: bytes) -> Iterator[bytes]:
        parts: Iterator[bytes] = iter((chunk,))
        for decoder in self._decoders:
            parts = decoder.decoded(parts)
        return parts

    def end(self) -> None:
        """The body has come to its end; zlib.error, if it cannot end here."""
        for decoder in self._decoders:
            decoder.end()
        self.is_whole = True


class Inflater:
    """gzip and deflate. What it makes comes in small parts, so that the reader can stop at its limit.

    Bytes behind the text are left alone, as every browser does; only gzip may be several texts, one after the other. The
    texts are the same however the bytes are split.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        """`limit`: the bytes that may be made in the end. A compressed text that is longer than that is too large."""
        self._is_gzip = encoding == "gzip"
        self._wbits = 31 if self._is_gzip else 15
        self._inflate = zlib.decompressobj(self._wbits)
        self._is_begun = self._is_done = False
        self._members = 1
        self._next = b""
        """Behind a text: the first bytes of what may be the next one."""
        self._left = limit + limit // 100 + 64 * 1024
        """Bytes that may still be read."""

    def decoded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            for at in range(0, min(len(chunk), self._left), _WINDOW):
                yield from self._inflated(chunk[at : min(at + _WINDOW, self._left)])
            self._left -= len(chunk)
            if self._left < 0:
                raise TooLarge

    def _inflated(self, window: bytes) -> Iterator[bytes]:
        if not self._is_begun:
            self._is_begun = True
            # `deflate` means the zlib form; some servers send the bare one. The low nibble of the first byte tells.
            if not self._is_gzip and window[0] & 0x0F != 8:
                self._wbits = -15
                self._inflate = zlib.decompressobj(self._wbits)
        while window and not self._is_done:
            if self._inflate.eof:
                window = self._after(window)
            else:
                yield from self._made(window)
                window = self._inflate.unused_data or self._inflate.unconsumed_tail

    def _made(self, window: bytes) -> Iterator[bytes]:
        before = self._inflate.copy()
        try:
            part = self._inflate.decompress(window, _MADE)
        except zlib.error:
            # zlib forgets what it made before it found the error. That may be more than the limit: then the error is
            # not to be seen, as it is not if the bytes come one by one.
            self._inflate = before
            for byte in window:
                yield self._inflate.decompress(bytes((byte,)), _MADE)
            raise
        yield part
        while len(part) == _MADE and not self._inflate.unconsumed_tail and not self._inflate.eof:
            part = self._inflate.decompress(b"", _MADE)  # all was read, and not all of it was made
            yield part

    def _after(self, window: bytes) -> bytes:
        """What follows a text: the next one, whose bytes are returned, or nothing that counts."""
        window = self._next + window
        if not self._is_gzip or not window.startswith(_GZIP[: len(window)]):
            self._is_done = True
        elif len(window) < len(_GZIP):
            self._next = window
        else:
            self._members += 1
            if self._members > MOST_MEMBERS:
                raise TooLarge
            self._next = b""
            self._inflate = zlib.decompressobj(self._wbits)
            return window
        return b""

    def end(self) -> None:
        """Raise, if the text cannot end here."""
        if self._is_begun and not self._inflate.eof:
            raise zlib.error("the compressed body ends in the middle")


def decoders_for(encodings: Sequence[str], limit: int) -> list[Inflater]:
    """What undoes these encodings, the last one first. One that was not asked for is left as it came."""
    names = [name.strip().lower() for name in reversed(encodings)]
    return [Inflater(name.removeprefix("x-"), limit) for name in names if name in {"gzip", "x-gzip", "deflate"}]
