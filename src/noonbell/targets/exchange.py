"""One attempt on the wire: where it was dialled, and as much of the answer as has come.

It is filled in as things happen, so that a deadline, a cut or a broken answer leaves behind what was there until then.
"""

from __future__ import annotations

import zlib


class TooLarge(Exception):
    """The answer is longer than may be kept."""


class Exchange:
    __slots__ = ("_decoder", "address", "body", "headers", "is_whole", "limit", "reason", "status", "watched")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Bytes of the body that are kept."""
        self.address: str | None = None
        """The last address that was dialled, with its port."""
        self.status: int | None = None
        self.reason = ""
        self.headers: dict[str, str] = {}
        """Of the answer, as it spells them; one that came several times is joined by commas."""
        self.watched: dict[str, str] = {}
        """Those that mean something to us, by their names in lower case; of several, the first."""
        self.body = bytearray()
        self.is_whole = False
        """The answer came to its end."""
        self._decoder: Decoder | None = None

    def began(self) -> None:
        """A new request of the attempt: the first, or one that follows a redirect."""
        self.address = self.status = self._decoder = None
        self.is_whole = False

    def answered(self, status: int, reason: str, headers: dict[str, str], watched: dict[str, str]) -> None:
        self.status, self.reason, self.headers, self.watched = status, reason, headers, watched
        encoding = watched.get("content-encoding")
        self._decoder = None if encoding is None else decoder_for(encoding)

    def take(self, chunk: bytes) -> None:
        """A piece of the body as it came. TooLarge, as soon as it makes more than the limit; zlib.error, if it is broken."""
        body = self.body
        if self._decoder is None:
            body += chunk
            if len(body) > self.limit:
                del body[self.limit :]
                raise TooLarge
            return
        for part in self._decoder.decoded(chunk, self.limit - len(body) + 1):
            body += part
            if len(body) > self.limit:
                del body[self.limit :]
                raise TooLarge

    def end(self) -> None:
        """The body has come to its end; zlib.error, if it cannot end here."""
        if self._decoder is not None:
            self._decoder.end()
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
