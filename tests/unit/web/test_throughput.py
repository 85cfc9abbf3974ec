"""The pace of queues and workers: what ended in each of the last ten minutes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from noonbell.clock import SECOND, Instant
from noonbell.model.rollup import MINUTE, Figures, RollUp
from noonbell.web import queues

SINCE = 30_000_000 * MINUTE.length
NOW = SINCE + 9 * MINUTE.length + 30 * SECOND


def row(name: str, minute: int, **counts: int) -> RollUp:
    figures = Figures(counts={status.upper(): count for status, count in counts.items()})
    return RollUp(name, Instant(SINCE + minute * MINUTE.length), figures)


def test_what_ended_is_counted_by_name_and_minute_and_the_rate_is_of_the_time_that_has_passed():
    found = queues.paces([row("http", 0, success=3), row("http", 9, failed=16), row("pdf", 4, canceled=1)], SINCE, NOW)
    assert found["http"].went == (3, *[0] * 8, 16)
    assert found["http"].per_minute_out == "2.0"
    assert found["pdf"].went[4] == 1


def test_rates_are_put_in_order_as_numbers_not_as_they_are_written():
    found = queues.paces([row("slow", 0, success=75), row("fast", 0, success=120)], SINCE, NOW)
    assert (found["slow"].per_minute_out, found["fast"].per_minute_out) == ("7.9", "13")
    assert found["slow"].per_minute < found["fast"].per_minute
    for orders in (queues.QUEUE_ORDERS, queues.WORKER_ORDERS):
        rows: list[Any] = [SimpleNamespace(pace=each, worker={"state": "running"}) for each in found.values()]
        assert sorted(rows, key=orders["per_minute"]) == rows  # type: ignore[arg-type]


def test_what_was_skipped_is_not_counted():
    assert queues.paces([row("http", 1, skipped=5)], SINCE, NOW) == {}


def test_a_spark_is_as_tall_as_its_tallest_column_and_never_nothing():
    bars = queues.spark([0, 2, 4])
    assert [bar.height for bar in bars] == [1.0, 9.0, 18.0]
    assert [bar.mark for bar in bars] == ["idle", "active", "active"]
