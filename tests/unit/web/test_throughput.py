"""The pace of queues and workers, from the newest runs."""

from __future__ import annotations

import pytest

from noonbell.clock import SECOND, Instant
from noonbell.model.run import Origin, Run, RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.web import queues

NOW = 1_800_000_000 * SECOND


def run(number: int, ago: float, ended: float | None = None, status: str = "SUCCESS", **more) -> Run:
    """Born so many seconds ago, and ended."""
    at = Instant(NOW - round(ago * SECOND))
    return Run(
        id=RunId(number),
        task_id=TaskId(1),
        task_name="t",
        task_version=1,
        origin=Origin.TRIGGER,
        status=RunStatus(status),
        scheduled_time=at,
        run_at=at,
        created_at=at,
        updated_at=at,
        queue=more.pop("queue", "http"),
        end_time=None if ended is None else Instant(NOW - round(ended * SECOND)),
        **more,
    )


def test_what_came_and_what_ended_are_counted_by_queue_within_ten_minutes():
    runs = [run(4, 5), run(3, 30, 10), run(2, 599, 100, queue="pdf"), run(1, 700, 20), run(0, 900, 800)]
    found = queues.throughputs(runs, NOW, lambda each: each.queue)
    assert (sum(found["http"].came), sum(found["http"].went)) == (2, 2)
    assert (sum(found["pdf"].came), sum(found["pdf"].went)) == (1, 1)
    assert found["pdf"].came[0] == 1
    assert found["http"].came[-1] == 2
    assert (found["http"].per_minute_in, found["http"].minutes) == ("0.2", 10)


def test_where_the_look_ends_sooner_the_pace_is_that_of_the_shorter_stretch():
    runs = [run(number, number * 0.06) for number in range(1, queues.THROUGHPUT_SAMPLE + 1)]
    (found,) = queues.throughputs(runs, NOW, lambda each: each.queue).values()
    assert found.minutes == pytest.approx(1)
    assert found.per_minute_in == "1000"


def test_what_was_skipped_or_belongs_to_nobody_is_not_counted():
    runs = [run(1, 5, status="SKIPPED"), run(2, 5, 1)]
    assert queues.throughputs(runs, NOW, lambda each: each.worker_id) == {}


def test_a_spark_is_as_tall_as_its_tallest_column_and_never_nothing():
    bars = queues.spark([0, 2, 4])
    assert [bar.height for bar in bars] == [1.0, 9.0, 18.0]
    assert [bar.mark for bar in bars] == ["idle", "active", "active"]
