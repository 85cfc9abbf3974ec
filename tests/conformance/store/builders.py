"""Short ways to say what the store's tests say all the time: specs, claims, settlements, and the runs of a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from noonbell import when
from noonbell.clock import SECOND, Instant, from_datetime, slot_of
from noonbell.model.event import Event
from noonbell.model.failure_text import SAID
from noonbell.model.request import ClaimRequest, Publication, PublishOutcome, PublishResult, RunQuery, TaskChange
from noonbell.model.run import (
    DroppedRange,
    Lease,
    Origin,
    Precondition,
    Run,
    RunId,
    RunStatus,
    Settlement,
    SettleResult,
    SkipReason,
    Transition,
)
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Task, TaskSpec, TaskStatus
from noonbell.ports import Store
from noonbell.stores.sql.statement import Execute, Work
from noonbell.stores.sql.store import SqlStore

S = RunStatus

Node = Callable[[], Awaitable[Store]]
"""Opens one more store on the same database, with the same clock."""

Sizes = Callable[[], Awaitable[dict[str, int]]]
"""Rows by table."""

START = from_datetime(datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC))
"""Where every test's clock stands at first: a whole second, on the minute."""

FAR = Instant(START + 400 * 86_400 * SECOND)
QUEUES = ("default", "http")


def at(seconds: float) -> Instant:
    """So many seconds after START."""
    return Instant(START + round(seconds * SECOND))


# ---- specs


def every(seconds: int, **more: Any) -> dict[str, Any]:
    """Slots at START + k·seconds."""
    fields = {"type": "interval", "every": seconds, "unit": "second", "anchor": "2026-01-01T10:00:00Z"}
    return fields | {"mode": "fixed_rate"} | more


def after_each(seconds: int, **more: Any) -> dict[str, Any]:
    """The first slot at START + seconds, then so long after each run's end."""
    return every(seconds, mode="fixed_delay", **more)


def cron(expr: str, **more: Any) -> dict[str, Any]:
    return {"type": "cron", "expr": expr} | more


def once(moment: str | None, **more: Any) -> dict[str, Any]:
    return {"type": "once", "at": moment} | more


def job(name: str = "j", *, schedule: Mapping[str, Any] | None = None, **fields: Any) -> TaskSpec:
    """A job without any limit, on queue `default`."""
    return _spec(name, schedule, {"job_type": "work"} | fields)


def http(name: str = "h", *, schedule: Mapping[str, Any] | None = None, **fields: Any) -> TaskSpec:
    """A call to an HTTP target on queue `http`, one at a time."""
    return _spec(name, schedule, {"exec_type": ExecType.SYNC, "target_url": "http://target.test/"} | fields)


def asynchronous(name: str = "a", *, schedule: Mapping[str, Any] | None = None, **fields: Any) -> TaskSpec:
    """An HTTP target that answers by callback."""
    return http(name, schedule=schedule, exec_type=ExecType.ASYNC, **fields)


def _spec(name: str, schedule: Mapping[str, Any] | None, fields: dict[str, Any]) -> TaskSpec:
    return TaskSpec(name=name, schedule=normal(schedule, fields.get("timezone", "UTC")), **fields)


def normal(schedule: Mapping[str, Any] | None, timezone: str = "UTC") -> dict[str, Any] | None:
    """A schedule as a spec holds it."""
    return None if schedule is None else when.normalise(schedule, timezone, slot_of(START))


# ---- tasks


async def edit(store: Store, task: Task, *, status: TaskStatus | None = None, **fields: Any) -> Task:
    """Change some fields of the spec, or the status."""
    if isinstance(fields.get("schedule"), Mapping):
        fields["schedule"] = normal(fields["schedule"], fields.get("timezone", task.spec.timezone))

    def change(now: Task) -> TaskChange:
        return TaskChange(spec=msgspec.structs.replace(now.spec, **fields), status=status or now.status)

    return await store.change_task(task.id, change)


async def disable(store: Store, task: Task) -> Task:
    return await edit(store, task, status=TaskStatus.DISABLED)


async def enable(store: Store, task: Task) -> Task:
    return await edit(store, task, status=TaskStatus.ENABLED)


async def reread(store: Store, task: Task) -> Task:
    found = await store.task(task.id)
    assert found is not None
    return found


# ---- runs


async def publish(store: Store, task: Task, **fields: Any) -> RunId:
    """One new run."""
    (answer,) = await store.publish([Publication(task_id=task.id, **fields)])
    assert answer.outcome is PublishOutcome.CREATED, answer
    assert answer.run_id is not None
    return answer.run_id


async def publish_many(store: Store, task: Task, count: int, **fields: Any) -> list[RunId]:
    answers = await store.publish([Publication(task_id=task.id, **fields) for _ in range(count)])
    assert {answer.outcome for answer in answers} == {PublishOutcome.CREATED}
    return ids(answers)


async def publish_as(store: Store, task: Task, key: str, **fields: Any) -> PublishResult:
    """The answer to a publish with a key."""
    (answer,) = await store.publish([Publication(task_id=task.id, key=key, **fields)])
    return answer


async def trigger(store: Store, task: Task, **fields: Any) -> RunId:
    return await publish(store, task, origin=Origin.TRIGGER, **fields)


def ids(answers: Sequence[PublishResult]) -> list[RunId]:
    return [answer.run_id for answer in answers if answer.run_id is not None]


async def run_of(store: Store, run_id: RunId) -> Run:
    found = await store.run(run_id)
    assert found is not None
    return found


def details_of(run: Run) -> dict[str, Any]:
    """Of its error, but for the code of what Noonbell said."""
    return {name: value for name, value in (run.error_details or {}).items() if name != SAID}


async def status_of(store: Store, run_id: RunId) -> RunStatus:
    return (await run_of(store, run_id)).status


async def runs_of(store: Store, task: Task, *status: RunStatus) -> list[Run]:
    """Every run of a task, oldest first."""
    page = await store.runs(RunQuery(task_id=task.id, status=status, sort="id", page_size=1000))
    return page.items


async def born_at(store: Store, task: Task) -> list[float]:
    """The slots that became runs to be carried out, in seconds after START."""
    return [seconds(run) for run in await runs_of(store, task) if run.status is not S.SKIPPED]


async def skips(store: Store, task: Task) -> list[tuple[float, SkipReason | None]]:
    """The slots that were skipped, and why."""
    return [(seconds(run), run.skip_reason) for run in await runs_of(store, task, S.SKIPPED)]


def seconds(run: Run) -> float:
    """A run's slot, in seconds after START."""
    return (run.scheduled_time - START) / SECOND


async def dropped(store: Store, task: Task) -> list[DroppedRange]:
    return await store.dropped(task.id, Instant(0), FAR)


# ---- claims


def ask(worker: str = "w1", count: int = 100, **more: Any) -> ClaimRequest:
    return ClaimRequest(worker_id=worker, max=count, **({"queues": QUEUES} | more))


async def claim(store: Store, worker: str = "w1", count: int = 100, **more: Any) -> list[Lease]:
    return (await store.claim(ask(worker, count, **more))).leases


async def claim_one(store: Store, worker: str = "w1", **more: Any) -> Lease:
    """The one run that there is to be had."""
    (lease,) = await claim(store, worker, **more)
    return lease


async def claim_due(store: Store, worker: str = "w1", count: int = 100, **more: Any) -> list[Lease]:
    """Claim after what waited for its time has been made ready."""
    await store.promote(1000)
    return await claim(store, worker, count, **more)


async def started(store: Store, task: Task, worker: str = "w1", **publication: Any) -> Lease:
    """A new run of the task, claimed; nothing else may be there to be had."""
    run_id = await publish(store, task, **publication)
    lease = await claim_one(store, worker)
    assert lease.run_id == run_id
    return lease


def claimed_ids(leases: Sequence[Lease]) -> list[RunId]:
    return [lease.run_id for lease in leases]


# ---- settlements


def settlement(lease: Lease, transition: Transition, **more: Any) -> Settlement:
    fields: dict[str, Any] = {
        "run_id": lease.run_id,
        "token": lease.token,
        "worker_id": lease.worker_id,
        "task_version": lease.task_version,
        "plain": lease.plain,
        "counted": lease.counted,
        "in_flow": lease.in_flow,
        "keyed": lease.keyed,
        "lease": lease,
    }
    return Settlement(transition=transition, **(fields | more))


def finish(lease: Lease, status: RunStatus = S.SUCCESS, **more: Any) -> Settlement:
    return settlement(lease, Transition.FINISH, status=status, **more)


def fail(lease: Lease, **more: Any) -> Settlement:
    return finish(lease, S.FAILED, **({"error_message": "it broke"} | more))


def retry(lease: Lease, delay: float = 5, **more: Any) -> Settlement:
    return settlement(lease, Transition.RETRY, delay_seconds=delay, **({"status": S.FAILED} | more))


def park(lease: Lease, delay: float = 300, **more: Any) -> Settlement:
    return settlement(lease, Transition.PARK, delay_seconds=delay, **({"status": S.CALLBACK_PENDING} | more))


def release(lease: Lease, **more: Any) -> Settlement:
    return settlement(lease, Transition.RELEASE, **more)


def lose(lease: Lease, **more: Any) -> Settlement:
    """What the sweep writes for a lease that ran out."""
    return settlement(lease, Transition.LOSE, **({"precondition": Precondition.EXPIRED} | more))


async def settle(store: Store, one: Settlement) -> SettleResult:
    (answer,) = await store.settle([one])
    return answer


async def done(store: Store, one: Settlement) -> None:
    """Settle, and be heard."""
    assert await settle(store, one) is SettleResult.DONE


async def lost(store: Store, one: Settlement) -> None:
    """Settle, and be refused."""
    assert await settle(store, one) is SettleResult.LOST


async def finished(store: Store, task: Task, status: RunStatus = S.SUCCESS, **publication: Any) -> RunId:
    """A new run of the task, carried out."""
    lease = await started(store, task, **publication)
    await done(store, finish(lease, status))
    return lease.run_id


def left_over(before: Mapping[str, int], after: Mapping[str, int], *but: str) -> dict[str, int]:
    """The tables that have more rows than before; but those of events, counters, roll-ups and what the caller names."""
    return {
        table: count
        for table, count in after.items()
        if count > before.get(table, 0) and not any(word in table for word in ("event", "counter", "rollup", *but))
    }


# ---- events


async def newest(store: Store) -> int:
    """The number of the last event so far."""
    after = 0
    while events := await store.events(after):
        after = events[-1].seq
    return after


async def news(store: Store, after: int) -> list[Event]:
    """All that happened since."""
    found: list[Event] = []
    while events := await store.events(after):
        found += events
        after = events[-1].seq
    return found


# ---- what no method of the port does


async def execute(store: Store, sql: str, **params: Any) -> None:
    """One statement on the tables themselves, as a restore or an operator would change them."""

    def work(_: Any) -> Work[None]:
        yield Execute(sql, params)

    assert isinstance(store, SqlStore)
    await store._write(work)
