"""Which slots each version of a task named: table tests over made-up versions."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell import when
from noonbell.clock import SECOND, Instant
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus, TaskVersion
from noonbell.model.task_schedule import NEVER
from noonbell.policy.slot_history import State, VersionSpan, version_spans

ON, OFF, DONE = TaskStatus.ENABLED, TaskStatus.DISABLED, TaskStatus.COMPLETED
EVERY_10 = {"type": "interval", "every": 10, "unit": "second", "anchor": "1970-01-01T00:00:00Z"}
EVERY_7 = {**EVERY_10, "every": 7}
AT_50 = {"type": "once", "at": "1970-01-01T00:00:50Z"}


def spec(schedule: dict[str, Any] | None, **fields: Any) -> TaskSpec:
    normal = None if schedule is None else when.normalise(schedule, "UTC", 0)
    return TaskSpec(name="t", job_type="work", schedule=normal, **fields)


def life(*versions: tuple[float, TaskStatus, TaskSpec] | tuple[float, TaskStatus, TaskSpec, int]) -> list[VersionSpan]:
    """Each version as (when it began, status, spec, the last slot accounted for by then)."""
    listed = [
        TaskVersion(
            task_id=TaskId(1),
            version=number,
            valid_from=Instant(round(since * SECOND)),
            status=status,
            deleted=False,
            changed_by=f"by{number}",
            spec=of,
            accounted_to=Instant(accounted[0] * SECOND) if accounted else NEVER,
        )
        for number, (since, status, of, *accounted) in enumerate(versions, 1)
    ]
    newest = listed[-1]
    task = Task(
        id=TaskId(1),
        version=newest.version,
        status=newest.status,
        spec=newest.spec,
        created_at=listed[0].valid_from,
        updated_at=newest.valid_from,
    )
    return version_spans(task, listed)


def slots(stretch: VersionSpan, until: int) -> list[int]:
    found = []
    for slot in stretch.slots():
        if slot > until:
            break
        found.append(slot)
    return found


def test_a_task_has_slots_only_after_it_was_created():
    (only,) = life((20.5, ON, spec(EVERY_10)))
    assert slots(only, 60) == [30, 40, 50, 60]


def test_a_slot_at_the_very_moment_of_a_change_belongs_to_the_version_before():
    first, second = life((0, ON, spec(EVERY_10)), (20, ON, spec(EVERY_7), 20))
    assert slots(first, 100) == [10, 20]
    assert slots(second, 40) == [21, 28, 35]


def test_an_edit_of_something_else_goes_on_where_the_version_before_stopped():
    first, second = life((0, ON, spec(EVERY_10)), (25, ON, spec(EVERY_10, description="new"), 20))
    assert (slots(first, 100), slots(second, 50)) == ([10, 20], [30, 40, 50])


def test_off_nothing_counts_and_on_again_it_starts_from_that_moment():
    on, off, again = life((0, ON, spec(EVERY_10)), (15, OFF, spec(EVERY_10), 10), (35, ON, spec(EVERY_10), 10))
    assert (slots(on, 99), slots(again, 60)) == ([10], [40, 50, 60])
    assert (off.state, off.counts, off.count(off.after, off.until)) == (State.OFF, False, 2)


def test_who_turned_it_off_is_remembered_over_edits():
    _, off, edited = life(
        (0, ON, spec(EVERY_10)), (15, OFF, spec(EVERY_10), 10), (25, OFF, spec(EVERY_7), 10)
    )  # fmt: skip
    assert (edited.by, edited.since) == (off.by, off.since) == ("by2", 15 * SECOND)
    assert edited.changed_by == "by3"


def test_after_a_step_back_no_version_names_what_is_accounted_for():
    first, second = life((0, ON, spec(EVERY_10)), (15, ON, spec(EVERY_7), 30))
    assert slots(first, 100) == [10, 20, 30]
    assert slots(second, 45) == [35, 42]


def test_after_a_step_back_before_its_creation_a_task_still_begins_there():
    first, second = life((50, ON, spec(EVERY_10)), (20, ON, spec(EVERY_10, description="new")))
    assert slots(first, 100) == []
    assert slots(second, 80) == [60, 70, 80]


def test_a_moment_that_has_passed_counts_unless_it_is_accounted_for():
    late, again = life((60, ON, spec(AT_50)), (80, ON, spec({**AT_50, "run_if_late": False}), 50))
    assert (slots(late, 100), slots(again, 100)) == ([50], [])


def test_a_repeat_count_ends_the_slots_of_a_version():
    (only,) = life((0, ON, spec({**EVERY_10, "repeat": 3})))
    assert list(only.slots()) == [10, 20, 30]
    assert list(only.slots(15)) == [20, 30]
    assert list(only.slots(500)) == []


def test_bounds_are_inclusive():
    (only,) = life((0, ON, spec(EVERY_10, start_at=Instant(20 * SECOND), end_at=Instant(40 * SECOND))))
    assert slots(only, 100) == [20, 30, 40]
    assert (only.count(0, 100), only.previous(100), only.previous(20)) == (3, 40, None)


@pytest.mark.parametrize("schedule", [None, {**EVERY_10, "mode": "fixed_delay"}])
def test_what_cannot_be_worked_out_has_no_slots(schedule: dict[str, Any] | None):
    (only,) = life((0, ON, spec(schedule)))
    assert list(only.slots()) == []
    assert not only.names(10)
    assert (only.counts, only.is_chained) == (schedule is not None, schedule is not None)


def test_a_zone_that_is_gone_leaves_a_version_without_slots():
    (only,) = life((0, ON, spec(EVERY_10, timezone="Mars/Olympus")))
    assert (only.schedule, only.counts) == (None, False)
