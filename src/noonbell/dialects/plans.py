"""Plans (document 004): messages to stations by interval, weekday or day of month. A plan is a task in other words.

    none             once, now
    time             once, at plan_time; late it runs only with no_keep
    second … day     interval from plan_time: no_keep false = fixed rate, what is missed is skipped and used up
                                              no_keep true  = fixed delay, nothing is skipped
    week, month      weekly, monthly, at the time of day of plan_time

All times are UTC. What the publisher wrote is in the payload that the runs carry; everything else is the task's, so all that can
be done with a task can be done with a plan, by its `task_id`. Order here: reading, answers, use cases, retention.
"""

from __future__ import annotations

import asyncio
import enum
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import UNSET, UnsetType

from noonbell import when
from noonbell.clock import LATEST, Instant, Slot, instant_of, rfc3339, rfc3339_or_none, slot_of
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidId, InvalidState, NotFound
from noonbell.fields import Moment, filled, list_of, meta, plain, read_into
from noonbell.fields.kinds import read_moment
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.event import MARK, ResultTarget
from noonbell.model.request import Page, RunQuery, TaskChange, TaskQuery
from noonbell.model.run import FINAL, Omitted, Origin, Run, RunId, RunStatus
from noonbell.model.target_kind import OWN_QUEUES
from noonbell.model.task import (
    Fanout,
    MisfirePolicy,
    OnExhausted,
    OverlapAction,
    RetryPolicy,
    RetryStrategy,
    Task,
    TaskId,
    TaskSpec,
    TaskStatus,
)
from noonbell.model.worker import WorkerState
from noonbell.ports import ORDERS, PLAN, Store, queue_topic
from noonbell.service import Services
from noonbell.service.filters import PageNumbers, every, from_the_top
from noonbell.service.task_fields import Rules
from noonbell.when.interval import UNITS

JOB_TYPE: Final = "plan"
"""What a worker of the station carries out, for every plan."""
LABEL: Final = "plan"
"""The label that says which type of plan a task is; by it they are found."""

MOST_MESSAGES: Final = 1_000
MOST_PUBLISHED: Final = 262_144
"""Bytes of messages that fit into one event."""
LONGEST_STEP: Final = 32_766
MOST_SLOTS: Final = 2**31 - 1

RETRY: Final = RetryPolicy(max_retries=3, strategy=RetryStrategy.FIXED, initial_delay=1)
"""An attempt that errs is repeated for the same slot after a second."""

WRITTEN: Final = (
    *("plan_id", "request_id", "station", "caller", "description", "plan_type", "plan_value", "plan_repet"),
    *("no_keep", "target", "plan_time"),
)
"""Fields that the payload keeps as the publisher wrote them."""

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


class PlanBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher writes."""

    component: ClassVar[str] = "PlanWrite"
    noun: ClassVar[str] = "a plan"
    example: ClassVar[dict[str, Any]] = {
        "plan_id": "1f4a",
        "request_id": "order-4711",
        "station": "billing",
        "caller": "shop",
        "description": "Settle open orders",
        "plan_type": "minute",
        "plan_value": 10,
        "plan_repet": -1,
        "no_keep": False,
        "plan_time": "2026-11-15T02:00:00Z",
        "messages": ["settle", {"open": True}],
    }

    plan_id: Annotated[
        Annotated[int, meta(ge=0, le=2**63 - 1)]
        | Annotated[str, meta(min_length=1, max_length=32, pattern="[0-9A-Fa-f]{1,32}")]
        | None,
        meta(
            "Chosen by the publisher, in hexadecimal digits or as a number; generated if left out.",
            expected="1 to 32 hexadecimal digits, or a number from 0 to 2^63 - 1",
            default=None,
            examples=["1f4a"],
        ),
    ] = None
    request_id: Annotated[str | None, meta("The publisher's name for the request.", examples=["order-4711"])] = None
    station: Annotated[
        str,
        meta(
            "The queue that its workers claim from.",
            min_length=1,
            max_length=200,
            missing="the queue that its workers claim from",
            examples=["billing"],
        ),
    ]
    caller: Annotated[str | None, meta("Who asked for it.", examples=["shop"])] = None
    description: Annotated[str, meta("A description for people.", max_length=4_000, lines=True)] = ""
    plan_type: Annotated[PlanType, meta("When it runs.", examples=["minute"])]
    plan_value: Annotated[
        int | UnsetType,
        meta(
            "Intervals: 1 to 32766. Week: 0 (Sunday) to 6. Month: -31 to 31, 0 = the last day.",
            ge=-MOST_SLOTS,
            le=MOST_SLOTS,
            examples=[10],
        ),
    ] = UNSET
    plan_repet: Annotated[
        int | UnsetType,
        meta(
            "The number of slots, -1 for no limit. The types none and time ignore it; the others need it.",
            ge=-1,
            le=MOST_SLOTS,
            expected=f"-1 for ever, or how many times, 1 to {MOST_SLOTS}",
            examples=[-1],
        ),
    ] = UNSET
    no_keep: Annotated[bool, meta("Late slots still run; an interval counts from the end of the previous run.")] = False
    target: Annotated[
        ResultTarget, meta("Who receives it: one worker, the listeners of an event, or every worker.")
    ] = ResultTarget.API
    plan_time: Annotated[
        Annotated[int, meta(ge=0, le=LATEST)] | Annotated[str, meta(min_length=1)] | UnsetType,
        meta(
            "Where it counts from, Unix seconds or RFC 3339; 0 for an interval is now.",
            expected=f'Unix seconds from 0 to {LATEST}, or an RFC 3339 time such as "2026-11-15T02:30:00Z"',
            examples=["2026-11-15T02:00:00Z"],
        ),
    ] = UNSET
    messages: Annotated[
        list[Any],
        meta(
            "What is sent to the station: the command first, then its arguments.",
            min_length=1,
            max_length=MOST_MESSAGES,
            examples=[["settle", {"open": True}]],
        ),
    ]
    delete_on_complete: Annotated[bool, meta("Remove it as soon as it is finished.")] = False


def read_plan(given: Mapping[str, Any], now: Instant, rules: Rules) -> PlanDraft:
    """Raises InvalidArgument with every problem by its field's name. `now` is when the plan was received."""
    at = ReadContext(Problems())
    asked = read_into(PlanBody, given, at)
    kind, found = asked.plan_type, at.problems.found
    if "station" not in found:
        _check_station(asked.station, at)
    value, repeat, moment = asked.plan_value, asked.plan_repet, 0
    if "plan_value" not in found and "plan_type" not in found:
        value = _value_of(value, kind, at)
    if "plan_repet" not in found and "plan_type" not in found:
        repeat = _repeat_of(repeat, kind, at)
    if "plan_time" not in found:
        moment = _time_of(asked.plan_time, kind, at)
    if asked.target is ResultTarget.PUB and len(msgspec.json.encode(asked.messages)) > MOST_PUBLISHED:
        at.wrong("messages", f"are more than the {MOST_PUBLISHED} bytes that can be published")
    at.problems.finish()
    plan = {
        **{name: getattr(asked, name) for name in WRITTEN},
        "plan_id": _id_of(asked.plan_id),
        "plan_value": value,
        "plan_repet": repeat,
        "plan_time": rfc3339(instant_of(_base(kind, moment, now))),
    }
    return _draft(plan, asked.messages, now, rules, delete_on_complete=asked.delete_on_complete)


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


# What the fields of a plan ask of each other


def _check_station(station: str, at: ReadContext) -> None:
    if station != station.strip():
        at.expected("station", station, "a name without spaces at its start or end")
    elif station in OWN_QUEUES:
        kind = OWN_QUEUES[station].name
        at.wrong("station", f"is {station!r}; that queue is for {kind} targets, expected another one")


def _id_of(value: int | str | None) -> str:
    """The publisher's own, so that a plan is published only once; or one that no plan has."""
    if value is None:
        return secrets.token_hex(8)
    return f"{value:x}" if isinstance(value, int) else value.lower()


def _value_of(value: int | UnsetType, kind: PlanType, at: ReadContext) -> int:
    """One-shot plans have no value; what stands there is passed over, as their repeat is."""
    if kind in ONE_SHOT:
        return 0 if value is UNSET else value
    low, high, what = _VALUES[kind]
    if value is UNSET:
        at.wrong("plan_value", f"is missing; expected {what}")
    elif not low <= value <= high:
        at.expected("plan_value", value, what)
    return low if value is UNSET else value


def _repeat_of(count: int | UnsetType, kind: PlanType, at: ReadContext) -> int:
    if kind in ONE_SHOT:
        return 0 if count is UNSET else count
    what = f"-1 for ever, or how many times, 1 to {MOST_SLOTS}"
    if count is UNSET:
        at.wrong("plan_repet", f"is missing; expected {what}")
    elif count == 0:
        at.expected("plan_repet", count, what)
    return 0 if count is UNSET else count


def _time_of(value: int | str | UnsetType, kind: PlanType, at: ReadContext) -> int:
    """Seconds since 1970; 0 where nothing was said."""
    what = f'Unix seconds from 0 to {LATEST}, or an RFC 3339 time such as "2026-11-15T02:30:00Z"'
    try:
        found = 0 if value is UNSET else value if isinstance(value, int) else slot_of(read_moment(value))
    except ValueError:
        found = -1
    if found < 0:
        at.expected("plan_time", value, what)
    elif found == 0 and kind is PlanType.TIME:
        said = "missing" if value is UNSET else "0"
        at.wrong("plan_time", f"is {said}; expected the moment of the plan: {what}")
    elif kind in INTERVALS and found + LONGEST_STEP * UNITS[kind] > LATEST:
        at.wrong("plan_time", "is so late that no interval fits behind it; expected a time before the year 9900")
    return max(found, 0)


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
        fanout=Fanout(workers="all") if target is ResultTarget.VOTE else None,
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


class PlanState(enum.StrEnum):
    """Where a plan stands."""

    QUEUE = "queue"
    """Its next slot is to come, or its run waits for a worker."""
    EXECUTE = "execute"
    RETRY = "retry"
    """Its run erred, and waits for another attempt at the same slot."""
    SKIP = "skip"
    """An operator wants the coming slots skipped."""
    PAUSE = "pause"
    ERROR = "error"
    """It has lost its right to run, until it is reset."""
    CLOSE = "close"
    """It names no further slot, or was closed."""


class LastState(enum.StrEnum):
    """The status of its newest run."""

    NONE = "none"
    """There was none yet."""
    QUEUE = "queue"
    NOT_WORKER = "not_worker"
    """It waits, and no worker is there that could take it."""
    RUNNING = "running"
    RETRY = "retry"
    OK = "ok"
    FAILED = "failed"
    """The worker said `fail`: trying again would not help."""
    ERROR = "error"
    """Every attempt erred, or the worker was lost too often."""
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the runs of a plan say, since it was published or reset."""

    last: Run | None = None
    unbegun: int = 0
    """Runs that wait, or were canceled while they did."""
    skipped: int = 0
    """Slots that became SKIPPED runs, or none at all because they were late."""
    is_unattended: bool = False
    """Its newest run waits, and no worker alive could take it."""


_STATE_OF: Final = {
    RunStatus.SCHEDULED: PlanState.QUEUE,
    RunStatus.RUNNING: PlanState.EXECUTE,
    RunStatus.CALLBACK_PENDING: PlanState.EXECUTE,
    RunStatus.RETRYING: PlanState.RETRY,
}
_LAST_OF: Final = {
    RunStatus.SCHEDULED: LastState.QUEUE,
    RunStatus.RUNNING: LastState.RUNNING,
    RunStatus.CALLBACK_PENDING: LastState.RUNNING,
    RunStatus.RETRYING: LastState.RETRY,
    RunStatus.SUCCESS: LastState.OK,
    RunStatus.CALLBACK_SUCCESS: LastState.OK,
    RunStatus.FAILED: LastState.ERROR,
    RunStatus.TIMEOUT: LastState.TIMEOUT,
    RunStatus.FAILED_TIMEOUT: LastState.TIMEOUT,
    RunStatus.CANCELED: LastState.CANCELED,
    RunStatus.SKIPPED: LastState.SKIP,
}


def written(task: Task) -> Mapping[str, Any] | None:
    """What the publisher wrote; None if the task is no plan, or was changed into something else."""
    payload = task.spec.payload
    plan = payload.get("plan") if MARK in task.spec.meta and isinstance(payload, dict) else None
    whole = isinstance(plan, dict) and all(name in plan for name in WRITTEN) and plan["plan_type"] in set(PlanType)
    return plan if whole else None


class ShownPlan(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Plan"
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (PlanBody,)

    plan_id: Annotated[str, meta("In hexadecimal digits.", examples=["1f4a"])]
    plan_time: Moment
    real_repet: Annotated[int, meta("How many times it was executed.", examples=[3])]
    exec_time: Annotated[Moment | None, meta("The next slot.", examples=["2026-11-15T02:40:00Z"])]
    plan_state: PlanState
    last_state: Annotated[LastState, meta("The status of its newest run.", examples=["ok"])]
    skip_set: Annotated[int, meta("How many of the next slots to skip; -1: all, until it is undone.")]
    skip_num: Annotated[int, meta("Slots that were skipped: by an operator, as late, or while it still ran.")]
    note: Annotated[
        str | None, meta("What no other field says, for example that it ended without having run.", examples=[None])
    ]
    task_id: Annotated[TaskId, meta(examples=[1])]
    task_name: Annotated[str, meta("The topic of its results.", examples=["plan:billing:1f4a"])]
    created_at: Moment
    updated_at: Moment


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: Annotated[str | None, meta(examples=["billing-1"])]
    state: Annotated[LastState, meta(examples=["ok"])]
    result: Annotated[Any, meta(examples=[{"settled": 12}])]
    error_message: Annotated[str | None, meta(examples=[None])]
    omitted: Omitted = msgspec.UNSET


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    run_id: Annotated[RunId, meta(examples=[7340033])]
    exec_time: Moment
    state: Annotated[LastState, meta(examples=["ok"])]
    attempt: Annotated[int, meta(examples=[1])]
    participants: list[Participant]
    result: Annotated[Any, meta(examples=[{"settled": 12}])]
    error_message: Annotated[str | None, meta(examples=[None])]
    start_time: Moment | None
    end_time: Moment | None
    omitted: Omitted = msgspec.UNSET


class WholePlan(ShownPlan, frozen=True, kw_only=True):
    component: ClassVar[str] = "PlanWhole"

    results: Annotated[list[PlanResult], meta("The newest runs.")]


PlanPage = list_of("PlanPage", ShownPlan, PageNumbers)


def shown(task: Task, plan: Mapping[str, Any], facts: PlanFacts) -> dict[str, Any]:
    return {
        **{name: plan[name] for name in WRITTEN},
        "real_repet": real_repet(task, facts),
        "exec_time": rfc3339_or_none(task.next_fire_at),
        "plan_state": plan_state(task, facts),
        "last_state": last_state(facts),
        "skip_set": task.skip_next,
        "skip_num": passed(task) + facts.skipped,
        "messages": task.spec.payload["messages"],
        "delete_on_complete": task.spec.delete_on_complete,
        "note": note(task, plan, facts),
        "task_id": task.id,
        "task_name": task.name,
        "created_at": rfc3339(task.created_at),
        "updated_at": rfc3339(task.updated_at),
    }


def passed(task: Task) -> int:
    """Slots that lay in the past when the plan came in."""
    found = task.spec.meta[MARK].get("passed", 0)
    return found if isinstance(found, int) else 0


def counted_from(task: Task) -> Instant:
    """Since when its slots count: it was published, or reset."""
    found = task.spec.meta[MARK].get("reset_at")
    return Instant(found) if isinstance(found, int) else Instant(0)


def real_repet(task: Task, facts: PlanFacts) -> int:
    """How often it was carried out. Counted from what is used up, so that it outlives the history of its runs."""
    return max(0, task.fired - facts.skipped - facts.unbegun)


def plan_state(task: Task, facts: PlanFacts) -> PlanState:
    if task.status is TaskStatus.ERROR:
        return PlanState.ERROR
    if task.status is TaskStatus.DISABLED:
        return PlanState.PAUSE
    if facts.last is not None and facts.last.status not in FINAL:
        return _STATE_OF[facts.last.status]
    if task.status is TaskStatus.COMPLETED:
        return PlanState.CLOSE
    return PlanState.SKIP if task.skip_next else PlanState.QUEUE


def last_state(facts: PlanFacts) -> LastState:
    run = facts.last
    if run is None:
        return LastState.NONE
    if facts.is_unattended:
        return LastState.NOT_WORKER
    said_fail = run.status is RunStatus.FAILED and (run.error_details or {}).get("kind") == "fail"
    return LastState.FAILED if said_fail else _LAST_OF[run.status]


def note(task: Task, plan: Mapping[str, Any], facts: PlanFacts) -> str | None:
    """What its publisher should know and no other field says."""
    if plan_state(task, facts) is PlanState.CLOSE and real_repet(task, facts) == 0:
        past = passed(task) + facts.skipped
        if plan["plan_type"] in ONE_SHOT and past:
            return "ended without having run: its time had passed, and no_keep is false"
        return "ended without having run" + (f": {past} of its slots were skipped" if past else "")
    if passed(task):
        return f"{passed(task)} slots lay in the past when it was published; they are skipped and used up"
    return None


def shown_result(run: Run, parts: Sequence[Run]) -> dict[str, Any]:
    """One run of a plan: who took part, and what came of it."""
    return plain(
        filled(
            PlanResult,
            run,
            run_id=run.id,
            exec_time=run.scheduled_time,
            state=last_state(PlanFacts(last=run)),
            participants=[
                filled(Participant, part, state=last_state(PlanFacts(last=part)))
                for part in (parts or [run])
                if part.worker_id is not None
            ],
        )
    )


MOST_RESULTS: Final = 20
"""Runs that a plan shows with their results, the newest first. All of them: `GET /tasks/{task_id}/runs`."""

MOST_PARTS: Final = 1_000
_AT_ONCE: Final = 8
"""Plans that are looked into side by side."""

_NEWEST: Final = from_the_top("-id")
_FAR: Final = Instant(2**53)
_WAITING: Final = (RunStatus.SCHEDULED, RunStatus.RETRYING)
_ENDED: Final = (TaskStatus.ERROR, TaskStatus.COMPLETED)


class PlansDialect:
    def __init__(self, services: Services) -> None:
        self._store, self._wakeup, self._rules = services.store, services.wakeup, services.rules

    async def publish(self, given: Mapping[str, Any], *, by: str | None = None) -> Task:
        """Raises InvalidArgument with every wrong field, AlreadyExists for a plan_id that is taken."""
        draft = read_plan(given, await self._store.now(), self._rules)
        plan_id = draft.spec.external_id
        try:
            task = await self._store.create_task(draft.spec, status=draft.status, by=by)
        except AlreadyExists as error:
            holder = {"task_id": error.details["id"]} if "id" in error.details else {}
            raise AlreadyExists(
                f"plan_id: a plan {plan_id} already exists", details={"plan_id": "is taken", **holder}
            ) from None
        self._wake(task)
        return task

    async def get(self, plan_id: str) -> Task:
        """The plan that is not removed. InvalidId, NotFound."""
        wanted = plan_id_of(plan_id)
        if wanted is None:
            raise InvalidId(f"{plan_id[:60]!r} is not the id of a plan; expected 1 to 32 hexadecimal digits")
        query = TaskQuery(external_id=wanted, sort="-id", page_size=1, cursor=_NEWEST)
        found = (await self._store.tasks(query)).items
        if not found or written(found[0]) is None:
            raise NotFound("there is no such plan")
        return found[0]

    async def show(self, task: Task) -> dict[str, Any]:
        plan = _plan_of(task)
        return shown(task, plan, await self._facts(task))

    async def show_whole(self, task: Task) -> dict[str, Any]:
        """With the newest runs: who took part, and what came of it. They are read last: a closed plan has its results."""
        shown = await self.show(task)
        page = await self._store.runs(RunQuery(task_id=task.id, page_size=MOST_RESULTS, cursor=_NEWEST))
        results = [shown_result(run, await self._parts(task, run)) for run in page.items]
        return {**shown, "results": results}

    async def page(self, query: TaskQuery, types: tuple[PlanType, ...] = ()) -> Page[dict[str, Any]]:
        wanted = tuple(str(kind) for kind in types or PlanType)
        page = await self._store.tasks(msgspec.structs.replace(query, label_in=(LABEL, wanted)))
        plans = [task for task in page.items if written(task) is not None]
        shown: list[dict[str, Any]] = []
        for start in range(0, len(plans), _AT_ONCE):
            shown += await asyncio.gather(*(self.show(task) for task in plans[start : start + _AT_ONCE]))
        return Page(shown, page.total, page.next_cursor)

    # What operators do

    async def pause(self, plan_id: str, *, by: str | None = None) -> Task:
        """No further slot until it is resumed; a run that waits or executes already goes on."""
        return await self._set_status(plan_id, TaskStatus.DISABLED, by, refused=_ENDED)

    async def resume(self, plan_id: str, *, by: str | None = None) -> Task:
        """From now on; what lay in between is not caught up."""
        return await self._set_status(plan_id, TaskStatus.ENABLED, by, refused=_ENDED)

    async def reset(self, plan_id: str, *, by: str | None = None) -> Task:
        """Back into the queue with its whole count, from any state. Slots that were to be skipped no longer are.

        A one-shot plan whose moment is used up runs again, now.
        """
        task = await self.get(plan_id)
        now = await self._store.now()

        def edit(task: Task) -> TaskChange:
            return TaskChange(spec=_afresh(task, now), status=TaskStatus.ENABLED, recount=True, skip_next=0)

        return await self._change(task, edit, by)

    async def skip(self, plan_id: str, count: int, *, by: str | None = None) -> Task:
        """The next `count` slots are skipped and used up; 0 takes it back, -1 skips until it is taken back or reset."""
        task = await self.get(plan_id)
        repeat = repeat_of(_plan_of(task))
        if repeat is not None and count >= repeat:
            raise InvalidArgument.field(
                "count", f"is {count}, and the plan runs {repeat} times in total; expected fewer, or close it"
            )
        return await self._store.skip_next(task.id, count, by=by)

    async def close(self, plan_id: str, *, by: str | None = None) -> Task:
        """No further slot, for good; a run that waits is canceled, one that executes may end."""
        task = await self._set_status(plan_id, TaskStatus.COMPLETED, by)
        waiting = await self._store.runs(RunQuery(task_id=task.id, status=_WAITING, page_size=1_000))
        if waiting.items:
            await self._store.cancel([run.id for run in waiting.items], by=by, reason="its plan was closed")
        return task

    async def remove(self, plan_id: str, *, by: str | None = None) -> None:
        """In any state. Its plan_id is free again; the history of its runs stays until retention takes it."""
        task = await self.get(plan_id)
        self._wake(await self._store.delete_task(task.id, by=by))

    async def _set_status(
        self, plan_id: str, status: TaskStatus, by: str | None, *, refused: tuple[TaskStatus, ...] = ()
    ) -> Task:
        def edit(task: Task) -> TaskChange:
            if task.status in refused:
                lost = task.status is TaskStatus.ERROR
                ended = "has lost its right to run" if lost else "is closed, or its last slot is past"
                raise InvalidState(f"the plan {ended}; reset it first", details={"status": task.status})
            return TaskChange(spec=task.spec, status=status)

        return await self._change(await self.get(plan_id), edit, by)

    async def _change(self, task: Task, edit: Callable[[Task], TaskChange], by: str | None) -> Task:
        task = await self._store.change_task(task.id, edit, by=by)
        self._wake(task)
        return task

    def _wake(self, task: Task) -> None:
        for topic in (PLAN, ORDERS, queue_topic(task.spec.queue)):
            self._wakeup.signal(topic)

    # What its runs say

    async def _facts(self, task: Task) -> PlanFacts:
        # By cursor, so that a long history is not counted for the sake of its newest run.
        newest = await self._store.runs(
            RunQuery(task_id=task.id, origin=Origin.SCHEDULE, page_size=1, cursor=_NEWEST, sort="-id")
        )
        since = counted_from(task)
        dropped = sum(each.count for each in await self._store.dropped(task.id, since, _FAR))
        if not newest.items:
            return PlanFacts(skipped=dropped)
        last = newest.items[0]
        skipped = await self._count(task, RunStatus.SKIPPED, since)
        waiting = await self._count(task, RunStatus.SCHEDULED, since) + await self._canceled_unbegun(task, since)
        unattended = last.status is RunStatus.SCHEDULED and await self._is_unattended(task)
        return PlanFacts(last=last, unbegun=waiting, skipped=skipped + dropped, is_unattended=unattended)

    async def _count(self, task: Task, status: RunStatus, since: Instant) -> int:
        query = RunQuery(task_id=task.id, origin=Origin.SCHEDULE, status=(status,), since=since, page_size=1)
        return (await self._store.runs(query)).total or 0

    async def _canceled_unbegun(self, task: Task, since: Instant) -> int:
        query = RunQuery(task_id=task.id, origin=Origin.SCHEDULE, status=(RunStatus.CANCELED,), since=since)
        canceled = (await self._store.runs(msgspec.structs.replace(query, page_size=1_000))).items
        return sum(run.start_time is None for run in canceled)

    async def _is_unattended(self, task: Task) -> bool:
        spec = task.spec
        there = [worker for worker in await self._store.workers() if worker.state is WorkerState.RUNNING]
        return not any(worker.serves(spec.queue, spec.job_type) for worker in there)

    async def _parts(self, task: Task, run: Run) -> list[Run]:
        if task.spec.fanout is None:
            return []
        return (await self._store.runs(RunQuery(parent_id=run.id, sort="id", page_size=MOST_PARTS))).items


def _plan_of(task: Task) -> Mapping[str, Any]:
    plan = written(task)
    if plan is None:
        raise NotFound("there is no such plan")
    return plan


def _afresh(task: Task, now: Instant) -> TaskSpec:
    plan, schedule, at_once = _plan_of(task), task.spec.schedule, instant_of(slot_of(now))
    if plan["plan_type"] not in ONE_SHOT:
        schedule = schedule_of(plan, repeat_of(plan))
    elif task.fired and schedule is not None:
        # A slot has one outcome: within the second of the one before it, the new one is the next second.
        fresh = max(at_once, instant_of(Slot(slot_of(task.accounted_to) + 1)))
        schedule = {**schedule, "at": rfc3339(fresh), "run_if_late": True}
    mark = {"target": plan["target"], "reset_at": int(at_once)}
    return msgspec.structs.replace(task.spec, schedule=schedule, meta={**task.spec.meta, MARK: mark})


async def forget_finished(store: Store, before: Instant) -> int:
    """Remove the plans that ended before, once the last of their runs is gone too; how many it was."""
    types = tuple(str(kind) for kind in PlanType)
    query = TaskQuery(label_in=(LABEL, types), status_in=(TaskStatus.COMPLETED,))
    removed = 0
    async for task in every(store.tasks, query):
        if task.updated_at >= before or written(task) is None:
            continue
        if not (await store.runs(RunQuery(task_id=task.id, page_size=1, count_to=1))).items:
            await store.delete_task(task.id, by="noonbell", purge=True)
            removed += 1
    return removed
