"""One connection of HTTP/1.1, and the exchange on it: a request goes out, a response comes in, and then perhaps the next.

The C parser of httptools cuts the response; what it lets pass and HTTP does not is refused here. Everything that arrives is
put into the `HttpExchange` at once, so that a deadline, a cut or a broken response leaves behind what was there until then.
One future and no task waits for a request; its result is what went wrong. A complete response counts, even if more bytes
follow it; the connection is then dropped. How the bytes are split into packets changes nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import select
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from yarl import URL

from noonbell.engine import failpoint

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


class HttpExchange:
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
        self._decoders: Sequence[Inflater] = ()

    def began(self) -> None:
        """Another request of the attempt: one that follows a redirect."""
        self.came_from = self.dialled
        self.address = self.dialled = self.status = None
        self._decoders = ()
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
            raise zlib.error("the compressed body is truncated")


def decoders_for(encodings: Sequence[str], limit: int) -> list[Inflater]:
    """What undoes these encodings, the last one first. One that was not asked for is left as it came."""
    names = [name.strip().lower() for name in reversed(encodings)]
    return [Inflater(name.removeprefix("x-"), limit) for name in names if name in {"gzip", "x-gzip", "deflate"}]


class HttpOrigin(NamedTuple):
    scheme: str
    host: str
    """As it is looked up: in ASCII, an IPv6 address without its brackets."""
    port: int


def origin_of(url: URL) -> HttpOrigin:
    """Raises ValueError for a URL that leads to no host."""
    host, port = url.raw_host, url.port
    if not host or port is None:
        raise ValueError(f"{url} has no host")
    return HttpOrigin(url.scheme, host, port)


LONGEST_HEAD = 64 * 1024
"""Bytes that may come without a byte of the body among them: the head, what precedes it, or what follows the body."""

_STEP = 4 * 1024
"""Bytes that are parsed at once: `LONGEST_HEAD` is kept to within two steps, however the bytes arrive."""
_READ = 64 * 1024
"""After this many bytes from one read, other calls have their turn before the next read."""

LONGEST_NAME = 1024

REDIRECTS = frozenset({301, 302, 303, 307, 308})

_PIECE = 256 * 1024
"""A longer body is sent piece by piece, so that other calls have their turn in between."""

_WATCHED = frozenset({"content-encoding", "content-type", "keep-alive", "location", "retry-after"})
_CACHED = 64


class Disconnected(Exception):
    """The target closed the connection without a whole answer."""


class NotHttp(Exception):
    """What came is no answer of HTTP/1.x."""


class BrokenBody(Exception):
    """The head was well, and what follows is not what it says."""


class _Stop(Exception):
    """Makes the parser stop; why is known already."""


Result = Exception | None


class _Watched(ctypes.Structure):
    """`struct pollfd` of the system."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


_poll: Any = ctypes.PyDLL(None)["poll"] if os.name == "posix" else None
"""The call behind `select.poll`, which lets other threads go on in Python first, as if it could take long. A store's thread did, at every
attempt, and the event loop waited for it: a look that waits for nothing keeps its turn.
"""
_ONE = ctypes.c_ulong(1)


class HttpConnection(asyncio.Protocol):
    __slots__ = (
        *("_dry", "_exchange", "_follows", "_has_head", "_is_bodiless", "_is_chunked", "_is_framed"),
        *(
            "_is_mended",
            "_is_over",
            "_is_paused",
            "_lines",
            "_loop",
            "_lost",
            "_parser",
            "_reason",
            "_refused",
            "_rest",
        ),
        *("_look", "_seen", "_stays", "_transport", "_waiter", "_why"),
        *("address", "dialled", "has_begun", "idle_seconds", "idle_since", "idle_until", "is_sent", "keeps", "place"),
    )

    def __init__(
        self,
        place: HttpOrigin,
        dialled: str,
        address: str,
        loop: asyncio.AbstractEventLoop,
        lost: Callable[[HttpConnection], None],
    ) -> None:
        """`dialled` is the numeric address; `address` the same with its port, as it is shown."""
        self.place, self.dialled, self.address, self._loop, self._lost = place, dialled, address, loop, lost
        self.has_begun = False
        """Of the answer to the last request, at least a byte has come."""
        self.keeps = False
        """The answer is whole, and another request may follow."""
        self.is_sent = False
        """Of the last request, a byte may have reached the target."""
        self.idle_since = self.idle_until = 0.0
        self.idle_seconds: float | None = None
        """How long the target keeps an idle connection, where it says so (`Keep-Alive: timeout`)."""
        self._transport: asyncio.Transport | None = None
        self._look: Any = None
        """What `is_quiet` hands to the system; made with the first look."""
        self._parser = _parser(self)
        self._exchange: HttpExchange | None = None
        self._waiter: asyncio.Future[Result] | None = None
        self._rest: memoryview | None = None
        self._is_paused = self._is_chunked = self._is_framed = self._is_bodiless = self._follows = False
        self._is_over = self._has_head = self._stays = self._is_mended = False
        self._seen: list[bytes] = []
        """What came of the answer while its head is not whole."""
        self._refused: HttpParserError | None = None
        """Why the parser refused a head that can perhaps be mended once all of it is here."""
        self._lines: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._dry = 0
        self._why: Exception | None = None

    # The caller's side

    def ask(
        self, head: bytes, content: bytes | None, exchange: HttpExchange, *, is_head: bool, follows: bool
    ) -> asyncio.Future[Result]:
        """Send a request; the future is done when its answer is whole or hopeless. Who cancels it drops the connection.

        `is_head`: the method is HEAD, whose answers have no body. `follows`: the body of a redirect is not read.
        """
        self._waiter = waiter = self._loop.create_future()
        self._is_over = self._has_head = self._is_mended = self.has_begun = self.keeps = self.is_sent = False
        self._seen, self._refused = [], None
        transport = self._transport
        if transport is None or transport.is_closing():
            self._waiter = None
            waiter.set_result(Disconnected())
            return waiter
        self._exchange, self._is_bodiless, self._follows = exchange, is_head, follows
        self._dry = 0
        self.is_sent = True
        if content is None:
            transport.write(head)
        elif len(content) <= _PIECE:
            transport.write(head + content)
        else:
            transport.write(head)
            self._rest = memoryview(content)
            self._send_on()
            return waiter
        failpoint.hit("K5")
        return waiter

    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Whether it is open, and nothing has come on it that the loop has not read yet: no byte, and no end."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        look = self._look
        if look is None:
            watched = _Watched(transport.get_extra_info("socket").fileno(), select.POLLIN, 0)
            look = self._look = ctypes.byref(watched)
        return not _poll(look, _ONE, 0)

    def is_to_this_machine(self) -> bool:
        """Whether the other end has the address of this one, on any interface."""
        assert self._transport is not None  # noqa: S101 - asked while it is open
        ends = [self._transport.get_extra_info(name) for name in ("sockname", "peername")]
        return None not in ends and ends[0][0] == ends[1][0]

    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return waiting + (0 if self._rest is None else len(self._rest))

    def drop(self) -> None:
        """Let go of the connection at once, also with bytes still to be sent or read."""
        self._exchange = self._waiter = self._rest = None
        self.keeps = False
        if self._transport is not None:
            self._transport.abort()

    def hang_up(self) -> None:
        """Let go as if the target had: the waiting call ends with an error."""
        if self._waiter is not None:
            self._settle(Disconnected())
        self.drop()

    # The loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # a stream is all that we dial

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._rest = None
        if self._waiter is not None:
            is_end = exc is None and self._has_head and not self._is_framed
            self._settle(self._ended() if is_end else Disconnected())
        del self._parser  # it holds on to us
        self._lost(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send_on()

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:  # not asked for: it would be taken for the answer to the next request
            self.drop()
            return
        self.has_begun = True
        if len(data) <= _STEP:
            self._parse(data)
            return
        if len(data) >= _READ and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)
        for at in range(0, len(data), _STEP):
            self._parse(data[at : at + _STEP])
            if self._waiter is None:
                if at + _STEP < len(data):
                    self.drop()  # what is left is not the answer to the next request
                return

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _parse(self, data: bytes) -> None:
        """At most a step; settles when the answer is whole or hopeless."""
        self._dry += len(data)
        if not self._has_head:
            self._seen.append(data)
        try:
            if self._refused is None:
                self._parser.feed_data(data)
            else:
                self._mend(self._refused)
        except HttpParserUpgrade:
            self._stays = False
            self._settle(None if self._is_over else NotHttp("it switches to another protocol"))
        except HttpParserError as error:
            if self._may_be_mended(error):
                self._refused = error
                self._parse(b"")
                return
            self._stays = False
            self._settle(self._judged(error))
        else:
            if self._has_head:
                self._seen.clear()
            if self._is_over:
                self._settle(None)
            elif self._dry > LONGEST_HEAD + 2 * _STEP:
                self._settle(self._bad(f"more than {LONGEST_HEAD} bytes of headers"))
            elif self._has_head and self._is_bodiless:
                self._parser = _parser(self)  # the old one waits for a body
                self._stays = self._stays and not self._follows
                self._settle(self._ended())

    def _may_be_mended(self, error: HttpParserError) -> bool:
        is_first = self._refused is None and not self._is_mended
        return is_first and not self._has_head and self._why is None and "Content-Length" in str(error)

    def _mend(self, refused: HttpParserError) -> None:
        """Parse the head without repeated lengths, once it is whole; the parser's own error, if that was not the trouble."""
        head = mended_head(b"".join(self._seen))
        if head is None:
            return
        if not head:
            raise refused
        self._refused, self._is_mended = None, True
        self._parser, self._lines, self._reason = _parser(self), [], b""
        self._parser.feed_data(head)

    # The parser's side

    def on_message_begin(self) -> None:
        if self._is_over:  # more than was asked for
            self._stays = False

    def on_status(self, status: bytes) -> None:
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_over:
            raise _Stop
        parser = self._parser
        status = parser.get_status_code()
        lines, self._lines = self._lines, []
        reason, self._reason = self._reason, b""
        if 100 <= status < 200 and status != 101:
            return
        version = parser.get_http_version()
        if version not in {"1.1", "1.0"}:
            self._stop(NotHttp(f"it speaks HTTP/{version}"))
        if status < 200:
            self._stop(NotHttp(f"its status is {status}"))
        size = 0
        headers: dict[str, str] = {}
        repeated: dict[str, list[str]] = {}
        watched: dict[str, str] = {}
        codings: list[str] = []
        self._is_framed = False
        for raw, value in lines:
            size += len(raw) + len(value) + 4
            if size > LONGEST_HEAD:
                self._stop(NotHttp(f"more than {LONGEST_HEAD} bytes of headers"))
            if b"\0" in value:
                self._stop(NotHttp("a header holds NUL"))
            if len(raw) > LONGEST_NAME:
                self._stop(NotHttp(f"a header's name has {len(raw)} bytes"))
            name, lower = _name(raw) if len(raw) <= _CACHED else _read_name(raw)
            text = value.decode("utf-8", "replace")
            if name not in headers:
                headers[name] = text
            else:
                repeated.setdefault(name, [headers[name]]).append(text)
            if lower in _WATCHED:
                watched.setdefault(lower, text)
            elif lower == "content-length":
                self._is_framed = True
            elif lower == "transfer-encoding":
                codings += [coding.strip().lower() for coding in text.split(",")]
        for name, texts in repeated.items():
            headers[name] = ", ".join(texts)
        self._is_chunked = bool(codings) and codings[-1] == "chunked"
        if self._is_chunked:
            self._is_framed = True
            codings.pop()
        self._has_head = True
        self._dry = 0
        self._stays = parser.should_keep_alive() and not self._is_mended
        self.idle_seconds = _idle_seconds(watched.get("keep-alive"))
        if self._follows:
            self._follows = status in REDIRECTS
            self._is_bodiless = self._is_bodiless or self._follows
        assert self._exchange is not None  # noqa: S101 - data without a request is not parsed
        self._exchange.answered(status, reason.decode("utf-8", "replace"), headers, watched, codings)

    def on_body(self, body: bytes) -> None:
        self._dry = 0
        if self._is_bodiless:
            self._stays = self._stays and self._follows  # a redirect may have one, an answer to HEAD may not
            return
        assert self._exchange is not None  # noqa: S101 - data without a request is not parsed
        try:
            self._exchange.take(body)
        except (TooLarge, zlib.error) as error:
            self._stop(error)

    def on_message_complete(self) -> None:
        if not self._has_head:  # 100, 103 and their like: the answer is still to come
            return
        error = self._ended()
        if error is not None:
            self._stop(error)
        self._is_over = True

    # Inside

    def _stop(self, error: Exception) -> None:
        self._why = error
        raise _Stop

    def _judged(self, error: HttpParserError) -> Result:
        """What the parser's refusal means."""
        if self._why is not None:
            return self._why
        if self._is_over:  # ignore what follows: the answer that was asked for is whole
            return None
        if self._has_head and self._is_bodiless:
            return self._ended()
        return self._bad(str(error))

    def _bad(self, what: str) -> Exception:
        return BrokenBody(what) if self._has_head else NotHttp(what)

    def _ended(self) -> Result:
        """The answer is at its end; what is wrong with that."""
        assert self._exchange is not None  # noqa: S101 - asked while a request is under way
        if self._follows:
            return None  # its body was not read
        try:
            self._exchange.end()
        except zlib.error as error:
            return error
        return None

    def _settle(self, result: Result) -> None:
        """Tell the one who asked. The connection stays open only if another request can follow."""
        waiter, self._waiter, self._exchange, self._why = self._waiter, None, None, None
        transport = self._transport
        if (
            result is None
            and self._stays
            and transport is not None
            and self._rest is None
            and not transport.get_write_buffer_size()
        ):
            if self._is_chunked:
                self._parser, self._lines = _parser(self), []  # trailers may be left over
            self.keeps = True
        else:
            self._rest = None
            if transport is not None:
                transport.abort()
        if waiter is not None and not waiter.done():
            waiter.set_result(result)

    def _send_on(self) -> None:
        """The next piece of a long body, if the last one has left."""
        if self._rest is None or self._transport is None or self._is_paused:
            return
        self._transport.write(self._rest[:_PIECE])
        self._rest = self._rest[_PIECE:] if len(self._rest) > _PIECE else None
        if self._rest is None:
            failpoint.hit("K5")
        elif not self._is_paused:
            self._loop.call_soon(self._send_on)


def _parser(wire: HttpConnection) -> HttpResponseParser:
    parser = HttpResponseParser(wire)
    # Lines that end in LF alone, folded headers, a blank after a chunk's size: odd, and harmless in an answer.
    parser.set_dangerous_leniencies(
        lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
    )
    return parser


def mended_head(data: bytes) -> bytes | None:
    """An answer whose head repeats its length (`5` twice, or `5, 5`), with the length said once, and what follows the head.

    None while the head is not whole; nothing, if there are no lengths that agree.
    """
    start = 0
    while True:
        end = _BLANK_LINE.search(data, start)
        if end is None:
            return None
        if not _INTERIM.match(data, start):
            break
        start = end.end()
    lines = data[start : end.start()].split(b"\n")
    lengths = [line for line in lines if _is_length(line)]
    said = {value.strip() for line in lengths for value in line.split(b":", 1)[1].split(b",")}
    if len(said) != 1 or not (length := said.pop()).isdigit():
        return b""
    kept = [line.removesuffix(b"\r") for line in lines if not _is_length(line)]
    return b"\r\n".join([*kept, b"Content-Length: " + length, b"", data[end.end() :]])


_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_INTERIM = re.compile(rb"\s*HTTP/1\.\d 1\d\d\b")


def _is_length(line: bytes) -> bool:
    return line[:15].lower() == b"content-length:"


def _idle_seconds(keep_alive: str | None) -> float | None:
    """The `timeout` of a Keep-Alive header."""
    found = None if keep_alive is None else _TIMEOUT.search(keep_alive)
    return None if found is None else float(found[1])


_TIMEOUT = re.compile(r"(?:^|[,;\s])timeout\s*=\s*\"?([0-9]{1,6})", re.IGNORECASE)


def _read_name(raw: bytes) -> tuple[str, str]:
    name = raw.decode("ascii", "replace")
    return name, name.lower()


_name = lru_cache(maxsize=1024)(_read_name)
