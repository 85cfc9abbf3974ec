"""How an answer is read: Retry-After, charsets, and what may be stored of it."""

from __future__ import annotations

import errno
import time
import tracemalloc

import pytest

from noonbell.clock import SECOND, Instant
from noonbell.targets.http.connection import HttpExchange, decoders_for
from noonbell.targets.http.pool import HttpOrigin, Undialled
from noonbell.targets.http.target import of_error, retry_after, storable, text_of
from unit.targets.make import TEN


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("9" * 400, 1e9),
        ("Fri, 02 Jan 2026 10:01:30 GMT", 90),
        ("Friday, 02-Jan-26 10:01:30 GMT", 90),
        ("Fri Jan  2 10:01:30 2026", 90),
        ("Fri, 02 Jan 2026 09:00:00 GMT", 0),
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("١٢", None),
        ("Fri, 99 Jan 2026 10:01:30 GMT", None),
        ("Fri, 02 Jan 99999999999 10:01:30 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value, seconds):
    assert retry_after(value, TEN) == seconds


def test_a_part_of_a_second_is_waited_for_too():
    assert retry_after("Fri, 02 Jan 2026 10:00:30 GMT", Instant(TEN + SECOND // 2)) == 30


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"plain", None, "plain"),
        ("grün".encode(), "text/plain", "grün"),
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
        ("钟".encode("gbk"), 'text/html; charset="gbk"', "钟"),
        (b"\xff", "text/plain", "\ufffd"),
        (b"a\0b", "text/plain", "a\ufffdb"),
        (b"plain", "text/plain; charset=nonsense", "plain"),
        (b"plain", "text/plain; charset=zlib_codec", "plain"),
        (b"uryyb", "text/plain; charset=rot13", "uryyb"),
        (b"+2AA-", "text/plain; charset=utf-7", "+2AA-"),
        (b"\\ud800", "text/plain; charset=unicode_escape", "\\ud800"),
    ],
)
def test_a_body_is_read_by_its_charset_where_that_is_a_known_one(body, content_type, text):
    assert text_of(body, content_type) == text


@pytest.mark.parametrize("charset", ["idna", "punycode"])
def test_a_charset_cannot_make_us_work_for_hours(charset):
    began = time.process_time()
    text_of(b"-a." * 700_000, f"text/plain; charset={charset}")
    assert time.process_time() - began < 10


def test_what_databases_refuse_is_replaced():
    assert storable("a\0b\ud800c") == "a\ufffdb\ufffdc"


def test_an_answer_of_nul_bytes_takes_little_memory():
    size = 1 << 20
    tracemalloc.start()
    try:
        text = text_of(bytes(size), None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text == "\ufffd" * size
    assert peak < 8 * size


@pytest.mark.parametrize("encoding", ["", "identity", "br", "gzip, gzip"])
def test_an_encoding_that_was_not_asked_for_is_left_alone(encoding):
    assert decoders_for([encoding], 100) == []


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ECONNREFUSED, "connection_refused"),
        (errno.ENETUNREACH, "network_unreachable"),
        (errno.ENETDOWN, "network_unreachable"),
        (errno.EHOSTUNREACH, "host_unreachable"),
        (errno.EHOSTDOWN, "host_unreachable"),
        (errno.EADDRNOTAVAIL, "connection_refused"),
    ],
)
def test_a_connection_that_is_not_made_is_called_by_what_was_in_the_way(number, kind):
    exchange = HttpExchange(1_000)
    exchange.address = "203.0.113.7:80"
    undialled = Undialled(HttpOrigin("http", "a.test", 80), OSError(number, "said by the system"))
    found, message = of_error(undialled, exchange, 10.0)
    assert (found, "203.0.113.7:80" in message) == (kind, True)
