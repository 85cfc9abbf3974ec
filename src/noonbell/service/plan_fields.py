"""From a plan as its publisher writes it to the task that it is. The inverse is `plan_json`.

    none             once, now
    time             once, at plan_time; late it runs only with no_keep
    second … day     interval from plan_time: no_keep false = fixed rate, what is missed is skipped and used up
                                              no_keep true  = fixed delay, nothing is skipped
    week, month      weekly, monthly, at the time of day of plan_time

All of it in UTC, as the publisher's clock is. A plan has no model of its own: what its publisher wrote is in the payload
that its runs carry, and everything else is the task's.
"""

from __future__ import annotations

import enum
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from noonbell import when
from noonbell.clock import Instant, instant_of, rfc3339, slot_of
from noonbell.model.plan import JOB_TYPE, MARK, PlanTarget
from noonbell.model.task import (
    HTTP_QUEUE,
    Fanout,
    MisfirePolicy,
    OnExhausted,
    OverlapAction,
    RetryPolicy,
    RetryStrategy,
    TaskSpec,
    TaskStatus,
)
from noonbell.service.reader import Problems, Reader, read_moment
from noonbell.service.rules import Rules
from noonbell.when.interval import UNITS
from noonbell.when.schedule import LATEST

LABEL: Final = "plan"
"""The label that says which type of plan a task is; by it they are found."""

MOST_MESSAGES: Final = 1_000
MOST_PUBLISHED: Final = 262_144
"""Bytes of messages that an event carries to whoever listens, whole."""
LONGEST_STEP: Final = 32_766
MOST_SLOTS: Final = 2**31 - 1

RETRY: Final = RetryPolicy(max_retries=3, strategy=RetryStrategy.FIXED, initial_delay=1)
"""An attempt that errs goes back to the same slot at once, or nearly so: a second lets a station catch its breath."""

_ID = re.compile(r"[0-9a-f]{1,32}")


class PlanType(enum.StrEnum):
    NONE = "none"
    TIME = "time"
    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


ONE_SHOT: Final = frozenset({PlanType.NONE, PlanType.TIME})
INTERVALS: Final = (PlanType.SECOND, PlanType.MINUTE, PlanType.HOUR, PlanType.DAY)

_VALUES: Final = {
    **dict.fromkeys(INTERVALS, (1, LONGEST_STEP, f"the length of the interval, 1 to {LONGEST_STEP}")),
    PlanType.WEEK: (0, 6, "a weekday from 0 (Sunday) to 6 (Saturday)"),
    PlanType.MONTH: (-31, 31, "a day from 1 to 31, 0 for the last day, or -1 to -31 for days before the last"),
}


@dataclass(frozen=True, slots=True)
class PlanDraft:
    spec: TaskSpec
    status: TaskStatus
    """COMPLETED where every slot that it names has passed."""


def read_plan(given: Mapping[str, Any], now: Instant, rules: Rules) -> PlanDraft:
    """Raises InvalidArgument with every problem by its field's name. `now` is when the plan was received."""
    problems = Problems()
    reader = Reader(given, problems)
    plan = _read_identity(reader)
    kind = _read_type(reader)
    plan |= {"plan_type": kind, "plan_value": _read_value(reader, kind), "plan_repet": _read_repeat(reader, kind)}
    plan["no_keep"] = reader.flag("no_keep", default=False)
    plan["target"] = target = reader.choice("target", PlanTarget, PlanTarget.API)
    moment = _read_time(reader, kind)
    messages = _read_messages(reader, target)
    delete = reader.flag("delete_on_complete", default=False)
    reader.finish("a plan")
    problems.finish()
    plan["plan_time"] = rfc3339(instant_of(_base(kind, moment, now)))
    return _draft(plan, messages, now, rules, delete_on_complete=delete)


def plan_id_of(text: str) -> str | None:
    """As it is kept: hexadecimal digits, in lower case. None if it is no plan's id."""
    return text.lower() if _ID.fullmatch(text.lower()) else None


def schedule_of(plan: Mapping[str, Any], repeat: int | None) -> dict[str, Any]:
    """The schedule of a plan that names `repeat` slots, in its normal form. None: for ever."""
    kind, value, moment = PlanType(plan["plan_type"]), plan["plan_value"], plan["plan_time"]
    spec: dict[str, Any]
    if kind in ONE_SHOT:
        spec = {"type": "once", "at": moment, "run_if_late": kind is PlanType.NONE or plan["no_keep"]}
    elif kind in INTERVALS:
        mode = "fixed_delay" if plan["no_keep"] else "fixed_rate"
        spec = {"type": "interval", "every": value, "unit": str(kind), "anchor": moment, "mode": mode, "repeat": repeat}
    elif kind is PlanType.WEEK:
        spec = {"type": "weekly", "weekday": value, "time": moment[11:19], "repeat": repeat}
    else:
        spec = {"type": "monthly", "day": value, "time": moment[11:19], "repeat": repeat}
    return when.normalise(spec, "UTC", slot_of(read_moment(moment)))


def repeat_of(plan: Mapping[str, Any]) -> int | None:
    """How many slots a plan asks for; None for ever."""
    if plan["plan_type"] in ONE_SHOT:
        return 1
    return None if plan["plan_repet"] == -1 else int(plan["plan_repet"])


# Reading


def _read_identity(reader: Reader) -> dict[str, Any]:
    station = reader.text("station", "", least=1, most=200)
    if reader.get("station") is None:
        reader.wrong("station", "is missing; expected the queue that its workers claim from")
    elif station != station.strip():
        reader.expected("station", "a name without a blank at its ends")
    elif station == HTTP_QUEUE:
        reader.wrong("station", f"is {HTTP_QUEUE!r}; that queue is for HTTP targets, expected another one")
    return {
        "plan_id": _read_id(reader),
        "request_id": reader.text("request_id", None),
        "station": station,
        "caller": reader.text("caller", None),
        "description": reader.text("description", "", most=4_000, lines=True),
    }


def _read_id(reader: Reader) -> str:
    """The publisher's own, so that a plan is published only once; or one that nobody has."""
    value = reader.get("plan_id")
    if value is None:
        return secrets.token_hex(8)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return f"{value:x}"
    found = plan_id_of(value) if isinstance(value, str) else None
    if found is None:
        reader.expected("plan_id", "1 to 32 hexadecimal digits, or a number from 0 to 2^63 - 1")
    return found or ""


def _read_type(reader: Reader) -> PlanType:
    if reader.get("plan_type") is None:
        reader.wrong("plan_type", f"is missing; expected one of {', '.join(PlanType)}")
    return reader.choice("plan_type", PlanType, PlanType.NONE)


def _read_value(reader: Reader, kind: PlanType) -> int:
    """One-shot plans have no value; what stands there is passed over, as their repeat is."""
    if kind in ONE_SHOT:
        return reader.integer("plan_value", 0, -MOST_SLOTS, MOST_SLOTS)
    low, high, what = _VALUES[kind]
    if reader.get("plan_value") is None:
        reader.wrong("plan_value", f"is missing; expected {what}")
    return reader.integer("plan_value", low, low, high, what)


def _read_repeat(reader: Reader, kind: PlanType) -> int:
    if kind in ONE_SHOT:
        return reader.integer("plan_repet", 0, -1, MOST_SLOTS)
    what = f"-1 for ever, or how many times, 1 to {MOST_SLOTS}"
    count = reader.integer("plan_repet", 0, -1, MOST_SLOTS, what)
    if reader.get("plan_repet") is None:
        reader.wrong("plan_repet", f"is missing; expected {what}")
    elif count == 0:
        reader.expected("plan_repet", what)
    return count


def _read_time(reader: Reader, kind: PlanType) -> int:
    """Seconds since 1970; 0 where nothing was said."""
    value = reader.get("plan_time")
    what = f'Unix seconds from 0 to {LATEST}, or an RFC 3339 time such as "2026-11-15T02:30:00Z"'
    found = 0
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = int(value) if 0 <= value <= LATEST and value == int(value) else -1
    elif value is not None:
        try:
            found = slot_of(read_moment(value))
        except ValueError:
            found = -1
    if found < 0:
        reader.expected("plan_time", what)
    elif found == 0 and kind is PlanType.TIME:
        said = "missing" if value is None else "0"
        reader.wrong("plan_time", f"is {said}; expected the moment of the plan: {what}")
    elif kind in INTERVALS and found + LONGEST_STEP * UNITS[kind] > LATEST:
        reader.wrong("plan_time", "is so late that no interval fits behind it; expected a time before the year 9900")
    return max(found, 0)


def _read_messages(reader: Reader, target: PlanTarget) -> list[Any]:
    """What the station is sent. Without a command there is nothing to carry out."""
    value = reader.json("messages")
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_MESSAGES:
        what = "what is published" if target is PlanTarget.PUB else "the command first, and what belongs to it"
        if value is None:
            reader.wrong("messages", f"are missing; expected a list: {what}")
        else:
            reader.expected("messages", f"a list of 1 to {MOST_MESSAGES}: {what}")
        return []
    if target is PlanTarget.PUB and len(msgspec.json.encode(value)) > MOST_PUBLISHED:
        reader.wrong("messages", f"are more than the {MOST_PUBLISHED} bytes that can be published")
    return value


# The task that it is


def _base(kind: PlanType, moment: int, now: Instant) -> int:
    """Where the plan counts from. For an interval, 0 is when it was received; for week and month it is midnight."""
    return slot_of(now) if kind is PlanType.NONE or (moment == 0 and kind in INTERVALS) else moment


def _draft(
    plan: dict[str, Any], messages: list[Any], now: Instant, rules: Rules, *, delete_on_complete: bool
) -> PlanDraft:
    kind, target = PlanType(plan["plan_type"]), plan["target"]
    passed = _passed(plan, now)
    repeat = repeat_of(plan)
    left = None if repeat is None else repeat - passed
    is_over = left is not None and left <= 0
    is_late = kind is PlanType.TIME and read_moment(plan["plan_time"]) < instant_of(slot_of(now))
    spec = TaskSpec(
        name=f"plan:{plan['station']}:{plan['plan_id']}",
        description=plan["description"],
        labels={LABEL: kind},
        external_id=plan["plan_id"],
        meta={MARK: {"target": target, "passed": passed}},
        schedule=schedule_of(plan, repeat if is_over else left),
        job_type=JOB_TYPE,
        payload={"plan": plan, "messages": messages},
        queue=plan["station"],
        timeout_seconds=rules.plan_timeout,
        retry_policy=RETRY,
        overlap_action=OverlapAction.SKIP,
        misfire_policy=MisfirePolicy.SKIP,
        # A moment that had passed when the plan came in is late, be it by a second.
        misfire_grace_seconds=0 if is_late else 10,
        fanout=Fanout(workers="all") if target is PlanTarget.VOTE else None,
        on_lost=rules.on_lost,
        on_exhausted=OnExhausted.ERROR,
        delete_on_complete=delete_on_complete,
    )
    return PlanDraft(spec, TaskStatus.COMPLETED if is_over else TaskStatus.ENABLED)


def _passed(plan: Mapping[str, Any], now: Instant) -> int:
    """Slots of a fixed rate that lay in the past when the plan came in: skipped, and used up."""
    kind = PlanType(plan["plan_type"])
    if kind not in INTERVALS or plan["no_keep"]:
        return 0
    base = slot_of(read_moment(plan["plan_time"]))
    step: int = plan["plan_value"] * UNITS[kind]
    return max(0, (slot_of(now) - base) // step)
