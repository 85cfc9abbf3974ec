"""Two failures are one reason if they differ in nothing but numbers, ids and times."""

from __future__ import annotations

import time

import pytest

from noonbell.web.recent import _LONGEST_FINGERPRINT, error_fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("port 9001 refused after 3 ms", "port 9002 refused after 12.5 ms"),
        ("GET https://a.example/x?id=7&key=abc failed", "GET https://a.example/x?id=8 failed"),
        ("GET https://a.example/x#part failed", "GET https://a.example/x failed"),
        ("user 3f2504e0-4f89-11d3-9a0c-0305e82c3301 is gone", "user 6ba7b810-9dad-11d1-80b4-00c04fd430c8 is gone"),
        ("no row run_01JC9F2K", "no row run_77AC0012"),
        ("object at 0x7f3a91 is closed", "object at 0x55d0aa is closed"),
        ("commit deadbeef01 is missing", "commit 0123456789abcdef is missing"),
        ("due 2026-11-15T02:00:00Z, came late", "due 2026-11-16 03:30:01.5+08:00, came late"),
        ("10.2.0.7:8080: Connection refused", "10.2.0.9:8081: Connection refused"),
        ("first line\nsecond  line", "first line second line"),
    ],
)
def test_what_differs_from_time_to_time_is_left_out(one, other):
    assert error_fingerprint(one) == error_fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Connection refused", "Connection reset by peer"),
        ("GET https://a.example/x failed", "GET https://b.example/x failed"),
        ("GET https://a.example/x failed", "GET https://a.example/y failed"),
        ("KeyError: 'name'", "KeyError: 'address'"),
        ("回调超时", "目标拒绝连接"),
    ],
)
def test_what_somebody_would_call_another_error_is_another(one, other):
    assert error_fingerprint(one) != error_fingerprint(other)


def test_it_is_short_and_nothing_is_left_of_nothing():
    assert len(error_fingerprint("long " * 100_000)) <= _LONGEST_FINGERPRINT
    assert error_fingerprint("") == error_fingerprint("  \n ") == ""


@pytest.mark.parametrize("piece", ["a", "a1", "0", "://", "0x", "a_", "-", "2026-11-15 "])
def test_a_hostile_text_takes_no_time(piece):
    begun = time.process_time()
    error_fingerprint(piece * 200_000)
    assert time.process_time() - begun < 1
