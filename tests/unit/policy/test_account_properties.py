"""The promise itself: each due slot ends in exactly one place, whatever the policies and however late the pass."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell import when
from noonbell.clock import Instant, instant_of, rfc3339
from noonbell.model.run import RunStatus
from noonbell.model.task import (
    Circuit,
    ConcurrencyPolicy,
    FailureAction,
    MisfirePolicy,
    OverlapAction,
    RetryPolicy,
)
from noonbell.policy.account import Account, Facts, account
from unit.policy.make import TEN, previous, spec, task

SCHEDULES = st.one_of(
    st.sampled_from(["* * * * * *", "*/7 * * * * *", "0 * * * * *", "5,6,50 */2 * * * *", "0 30 * * * *"]).map(
        lambda expr: {"type": "cron", "expr": expr}
    ),
    st.integers(1, 90).map(
        lambda every: {
            "type": "interval",
            "every": every,
            "unit": "second",
            "anchor": rfc3339(instant_of(TEN - 3)),
        }
    ),
)
REPEATS = st.none() | st.integers(1, 400)

SPECS = st.fixed_dictionaries(
    {
        "overlap_action": st.sampled_from(OverlapAction),
        "failure_action": st.sampled_from(FailureAction),
        "concurrency_policy": st.sampled_from(ConcurrencyPolicy),
        "misfire_policy": st.sampled_from(MisfirePolicy),
        "catchup_limit": st.integers(1, 8),
        "misfire_grace_seconds": st.integers(0, 60),
        "max_concurrency": st.none() | st.integers(0, 3),
        "queue_depth": st.none() | st.integers(0, 3),
        "jitter_seconds": st.integers(0, 60),
        "circuit": st.builds(Circuit, failures=st.integers(1, 3), cool_down_seconds=st.integers(0, 60)),
        "retry_policy": st.builds(RetryPolicy, initial_delay=st.floats(0, 50), max_delay=st.floats(0, 90)),
        "end_at": st.none() | st.integers(TEN, TEN + 900).map(instant_of),
    }
)


@st.composite
def facts(draw) -> Facts:
    waiting, running = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    rounds = st.builds(
        previous,
        st.sampled_from([status for status in RunStatus if status not in ("SCHEDULED", "SKIPPED")]),
        attempt=st.integers(1, 5),
        failures=st.integers(0, 6),
        end_time=st.integers(TEN - 100, TEN + 900).map(instant_of),
        replaced=st.booleans(),
        skipped_run_id=st.sampled_from([None, 40, 41]),
    )
    return Facts(round=draw(st.none() | rounds), occupied=running + waiting, waiting=waiting)


def slots_named(schedule, cursor: int, until: int, end: Instant | None, most: int | None) -> list[int]:
    """The slots that are due, found by nothing but asking for the next one."""
    found: list[int] = []
    slot = schedule.next(cursor - 1)
    while slot is not None and slot <= until and (end is None or instant_of(slot) <= end) and len(found) != most:
        found.append(slot)
        slot = schedule.next(slot)
    return found


def slots_accounted(answer: Account, due: list[int]) -> list[int]:
    covered = [slot for part in answer.dropped for slot in due if part.first <= slot <= part.last]
    assert len(covered) == sum(part.count for part in answer.dropped)
    return sorted(covered + [outcome.slot for outcome in answer.outcomes])


@settings(max_examples=300, deadline=None)
@given(
    rule=SCHEDULES, repeat=REPEATS, fields=SPECS, known=facts(), late=st.integers(0, 800),
    fired=st.integers(0, 5), skip_next=st.integers(-1, 5), cap=st.integers(1, 20),
)  # fmt: skip
def test_each_due_slot_is_accounted_for_exactly_once(rule, repeat, fields, known, late, fired, skip_next, cap):
    rule = rule | {"repeat": repeat}
    schedule = when.parse(rule, "UTC")
    cursor = schedule.next(TEN)
    assert cursor is not None
    now = cursor + late
    remaining = None if repeat is None else max(0, repeat - fired)
    due = slots_named(schedule, cursor, now, fields["end_at"], remaining)

    held = task(spec(schedule=rule, **fields), cursor=cursor, fired=fired, skip_next=skip_next)
    answer = account(held, schedule, known, instant_of(now), cap)

    assert slots_accounted(answer, due) == due
    assert answer.fired == fired + len(due)
    slots = [outcome.slot for outcome in answer.outcomes]
    assert slots == sorted(set(slots))
    assert all(part.last < slots[0] for part in answer.dropped if slots)
    assert answer.next_fire_at is None or answer.next_fire_at > instant_of(now)
    assert answer.completed == (answer.next_fire_at is None)
    assert answer.skip_next == skip_next or 0 <= answer.skip_next < skip_next


@settings(max_examples=150, deadline=None)
@given(rule=SCHEDULES, fields=SPECS, passes=st.lists(st.integers(0, 120), min_size=1, max_size=12))
def test_over_many_passes_no_slot_is_lost_or_doubled_and_the_cursor_never_moves_back(rule, fields, passes):
    schedule = when.parse(rule, "UTC")
    cursor = first = schedule.next(TEN)
    assert first is not None
    now, fired, seen = first - 5, 0, []
    all_due = slots_named(schedule, first, first - 5 + sum(passes), fields["end_at"], None)
    for pause in passes:
        now += pause
        held = task(spec(schedule=rule, **fields), cursor=cursor, fired=fired)
        answer = account(held, schedule, Facts(), instant_of(now), cap=5)
        seen += slots_accounted(answer, all_due)
        fired = answer.fired
        if answer.next_fire_at is None:
            assert answer.completed
            break
        following = answer.next_fire_at // 1_000_000
        assert following >= cursor
        cursor = following
    assert seen == all_due
    assert fired == len(all_due)
