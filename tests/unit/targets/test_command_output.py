"""What a command writes, as far as it is kept: the supervisor's own part, without processes."""

from __future__ import annotations

import pytest

from noonbell.targets.command.supervisor import Output

LIMITS = {"head_bytes": 20, "head_lines": 3, "tail_bytes": 10, "tail_lines": 2, "longest": 8}


def output(*chunks: tuple[str, bytes], **limits: int) -> Output:
    made = Output({**LIMITS, **limits})
    for stream, chunk in chunks:
        made.add(stream, chunk)
    made.finish()
    return made


def lines(made: Output) -> list[tuple[str, bytes]]:
    return [(stream, line) for stream, line, _ in made.ready]


def test_lines_are_passed_on_in_their_order_however_they_arrive():
    made = output(("out", b"a\nb"), ("err", b"x\r\n"), ("out", b"c\nd"))
    assert lines(made) == [("out", b"a"), ("err", b"x"), ("out", b"bc"), ("out", b"d")]
    assert (made.dropped_bytes, made.dropped_lines) == (0, 0)


def test_of_too_many_lines_the_first_and_the_last_are_kept():
    made = output(("out", b"".join(b"%d\n" % n for n in range(100))))
    assert lines(made) == [("out", b"0"), ("out", b"1"), ("out", b"2"), ("out", b"98"), ("out", b"99")]
    assert made.head_size == 3
    assert (made.dropped_lines, made.dropped_bytes) == (95, sum(len(b"%d\n" % n) for n in range(3, 98)))


def test_what_lies_between_is_dropped_whole_chunk_by_whole_chunk():
    made = output(*(("out", b"%04d\n" % n) for n in range(1000)))
    assert lines(made) == [("out", b"0000"), ("out", b"0001"), ("out", b"0002"), ("out", b"0999")], (
        "0998 may be half a line"
    )
    assert made.dropped_bytes >= 4900


def test_a_line_without_an_end_is_cut():
    made = output(("out", b"x" * 1000))
    assert sum(len(line) for _, line in lines(made)) <= LIMITS["longest"]


def test_a_long_line_is_marked_as_cut():
    (entry,) = output(("out", b"123456789\n")).ready
    assert entry == ("out", b"12345678", True)


@pytest.mark.parametrize(
    ("written", "result"),
    [
        (b'log\n{"a": 1}\nmore\n', b'{"a": 1}'),
        (b"1\n2\n", b"2"),
        (b'  {"a": 1}  ', b'  {"a": 1}  '),
        (b'"text"', b'"text"'),
        (b"NaN\n", None),
        (b"true story\n", None),
        (b"[1,\n", None),
        (b"\n\n", None),
        (b"", None),
    ],
)
def test_the_last_line_that_is_json_is_the_result(written: bytes, result: bytes | None):
    assert output(("out", written), head_bytes=1000, head_lines=100, longest=100).result == result


def test_json_on_stderr_is_no_result():
    assert output(("err", b"1\n")).result is None


def test_the_result_is_found_at_the_end_of_much_output():
    made = output(("out", b"x\n" * 1000), ("out", b"7\n"))
    assert made.result == b"7"
