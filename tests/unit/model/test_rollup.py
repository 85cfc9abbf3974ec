"""The sketch keeps its bound however it was put together, and a stretch is covered by rows without a gap or an overlap."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from noonbell.clock import Instant
from noonbell.model.rollup import (
    DAY,
    ERROR,
    HOUR,
    MINUTE,
    SPANS,
    Fact,
    Figures,
    Sketch,
    Stretch,
    finest,
    pieces,
    stretch_of,
)

NOW = 1_790_000_000_000_000
VALUES = st.lists(st.integers(0, 10**13), min_size=1, max_size=200)


def sketch_of(values: list[int]) -> Sketch:
    sketch = Sketch()
    for value in values:
        sketch.add(value, 1)
    return sketch


@given(VALUES, st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_percentile_is_within_its_bound_of_the_true_one(values: list[int], share: float):
    true = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    found = sketch_of(values).percentile(share)
    assert found is not None
    assert abs(found - true) <= ERROR * true + 1


@given(VALUES, st.integers(0, 200))
def test_sketches_of_parts_add_up_to_that_of_all(values: list[int], cut: int):
    first, second = sketch_of(values[:cut]), sketch_of(values[cut:])
    first.merge(second)
    assert first == sketch_of(values)
    assert msgspec.json.decode(msgspec.json.encode(first), type=Sketch) == first


def test_a_sketch_of_nothing_has_no_percentile_and_no_mean():
    assert (Sketch().percentile(0.5), Sketch().mean) == (None, None)


def test_a_thousand_alike_cost_one_bucket():
    sketch = Sketch()
    sketch.add(5_000, 1_000)
    assert (sketch.count, sketch.mean, len(sketch.buckets)) == (1_000, 5_000, 1)


def test_figures_part_runs_from_slots_without_a_run():
    figures = Figures()
    for status, number in (("SUCCESS", 6), ("CALLBACK_SUCCESS", 1), ("TIMEOUT", 2), ("FAILED", 1), ("CANCELED", 4)):
        figures.add(Fact(1, "q", None, status, 0, NOW, number, None, None, None))
    figures.add(Fact(1, "q", None, "SKIPPED", 0, NOW, 3, None, None, None))
    figures.add(Fact(1, None, None, "DROPPED", 0, NOW, 90, None, None, None))
    told = (figures.runs, figures.succeeded, figures.failed, figures.canceled, figures.skipped, figures.dropped)
    assert told == (17, 7, 3, 4, 3, 90)
    assert figures.success == 0.7


@given(st.integers(0, 1_000 * DAY.length), st.integers(0, 100 * DAY.length))
def test_a_stretch_is_covered_without_a_gap_or_an_overlap(ago: int, length: int):
    since = NOW - ago
    stretch = stretch_of(since, since + length, NOW)
    assert stretch.since <= since
    assert stretch.until >= since + length
    covered = sorted(pieces(stretch, NOW), key=lambda piece: piece[1])
    for span, begin, end in covered:
        assert begin % span.length == end % span.length == 0
        assert begin < end
        assert begin >= NOW - span.kept, "rows that old are gone"
    assert [piece[2] for piece in covered[:-1]] == [piece[1] for piece in covered[1:]]
    if covered:
        assert covered[0][1] == stretch.since
        assert covered[-1][2] >= stretch.until


def test_a_month_is_read_from_few_rows():
    stretch = stretch_of(NOW - 30 * DAY.length, NOW, NOW)
    rows = sum((end - begin) // span.length for span, begin, end in pieces(stretch, NOW))
    assert rows < 30 + 2 * 24


def test_the_shortest_rows_that_are_kept_tell_of_a_stretch():
    assert [finest(NOW - days * DAY.length, NOW) for days in (1, 3, 100)] == [MINUTE, HOUR, DAY]
    assert stretch_of(NOW - 90, NOW, NOW) == Stretch(Instant(MINUTE.begin(NOW - 90)), Instant(MINUTE.end(NOW)))
    assert [span.length for span in SPANS] == sorted({MINUTE.length, HOUR.length, DAY.length})
