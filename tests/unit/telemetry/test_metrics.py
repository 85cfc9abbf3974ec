"""The numbers: every name that is promised, and each counts what really happened."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from noonbell import when
from noonbell.clock import SECOND, Instant, ManualClock, slot_of
from noonbell.errors import StoreUnavailable
from noonbell.model.calendar import CalendarChange, CalendarSpec, TaskCalendar, WhenClosed
from noonbell.model.request import ClaimRequest, IncomingCallback, Planned, Publication
from noonbell.model.run import (
    Assignment,
    Origin,
    Outcome,
    OutcomeKind,
    Precondition,
    RunStatus,
    Settlement,
    SkipReason,
    Transition,
)
from noonbell.model.target_kind import ExecType
from noonbell.model.task import ConcurrencyPolicy, MisfirePolicy, TaskId, TaskSpec
from noonbell.stores import open_store
from noonbell.telemetry.metrics import Ledger, Metrics, Readings, StoreMetrics, WatchedTarget

START = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"

PROMISED = {
    "cronjob_task_total": ("untyped", {"status"}),
    "cronjob_run_total": ("counter", {"status"}),
    "cronjob_run_duration_seconds": ("histogram", {"task_id"}),
    "cronjob_run_retries_total": ("counter", {"task_id"}),
    "cronjob_http_request_total": ("counter", {"method", "code"}),
    "cronjob_callback_pending": ("gauge", set()),
    "cronjob_scheduler_scan_latency": ("histogram", set()),
    "cronjob_misfire_total": ("counter", {"task_id"}),
    "runs_total": ("counter", {"status"}),
    "task_overlap_skipped_total": ("counter", set()),
    "task_failure_retry_total": ("counter", set()),
    "task_timeout_total": ("counter", set()),
    "concurrency_skipped_total": ("counter", set()),
    "noonbell_start_lag_seconds": ("histogram", set()),
    "noonbell_queue_depth": ("gauge", {"queue", "state"}),
    "noonbell_queue_oldest_age_seconds": ("gauge", {"queue"}),
    "noonbell_queue_unserved": ("gauge", {"queue", "lack"}),
    "noonbell_runs_ended_24h": ("gauge", {"status"}),
    "noonbell_run_times_24h_seconds": ("gauge", {"time", "percentile"}),
    "noonbell_flow_steps_total": ("counter", {"status"}),
    "noonbell_lease_losses_total": ("counter", {"found_by"}),
    "noonbell_store_latency_seconds": ("histogram", {"call"}),
    "noonbell_store_pool_used": ("gauge", set()),
    "noonbell_store_pool_size": ("gauge", set()),
}


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
async def store(clock, metrics):
    store = open_store("memory://", clock=clock)
    await store.open()
    store.observer = StoreMetrics(metrics)
    yield store
    await store.close()


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels) or 0.0


async def claim(store, count=10, worker="w", queue="default"):
    return (await store.claim(ClaimRequest(worker_id=worker, queues=(queue,), max=count))).leases


def settlement(lease, **fields):
    fields = {"transition": Transition.FINISH, "status": RunStatus.SUCCESS, "worker_id": lease.worker_id} | fields
    return Settlement(run_id=lease.run_id, token=lease.token, **fields)


async def job(store, name="a", **fields):
    return await store.create_task(TaskSpec(name=name, job_type="work", **fields))


async def publish(store, task, count=1):
    return await store.publish([Publication(task_id=task.id) for _ in range(count)])


def every_second(clock):
    fields = {"type": "interval", "every": 1, "unit": "second", "mode": "fixed_rate"}
    return when.normalise(fields, "UTC", slot_of(clock.now()))


async def test_every_promised_name_has_its_type_and_labels(store, metrics, clock):
    await publish(store, await job(store), 2)
    (lease,) = await claim(store, 1)
    clock.advance(1)
    await store.settle([settlement(lease)])
    metrics.run_retries.of(1).inc()
    metrics.misfires.of(1).inc()
    metrics.http_requests.labels("GET", "200").inc()
    text = (await Readings(metrics, store).page()).decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    for name, (kind, labels) in PROMISED.items():
        assert types[name] == kind
        pattern = rf"^{name}(?:_count)?(?:\{{(.*?)\}})? "
        (first, *_) = re.findall(pattern, text, re.MULTILINE)
        assert set(re.findall(r'(\w+)="', first)) == labels, name


async def test_the_page_is_sound_text(store, metrics):
    text = (await Readings(metrics, store).page()).decode()
    line = re.compile(r'[a-zA-Z_:][\w:]*(\{(\w+="[^"]*",?)+\})? -?[\d.e+-]+(Inf|NaN)?')
    for row in text.splitlines():
        assert row.startswith(("# HELP ", "# TYPE ")) or line.fullmatch(row), row
    assert "_created" not in text


async def test_a_counter_is_named_so_that_promtool_is_content(store, metrics):
    text = (await metrics.render()).decode()
    counters = re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE)
    assert [name for name in counters if not name.endswith("_total")] == []
    others = re.findall(r"^# TYPE (\S+_total) (?!counter)(\S+)$", text, re.MULTILINE)
    assert others == [("cronjob_task_total", "untyped")]  # document 002 names it so, and its name wins


async def test_runs_are_counted_by_how_they_ended(store, metrics):
    task = await job(store, max_concurrency=None)
    await publish(store, task, 3)
    first, second, third = await claim(store)
    await store.settle([settlement(first), settlement(second, status=RunStatus.FAILED)])
    await store.settle([settlement(third, status=RunStatus.TIMEOUT)])
    assert value(metrics, "cronjob_run_total", status="SUCCESS") == 1
    assert value(metrics, "runs_total", status="FAILED") == 1
    assert value(metrics, "cronjob_run_total", status="TIMEOUT") == 1
    assert value(metrics, "task_timeout_total") == 1
    assert value(metrics, "cronjob_run_duration_seconds_count", task_id=str(task.id)) == 3
    assert value(metrics, "noonbell_runs_executing") == 0


async def test_a_refused_settlement_is_not_counted(store, metrics):
    await publish(store, await job(store))
    (lease,) = await claim(store)
    await store.settle([settlement(lease)])
    await store.settle([settlement(lease)])
    assert value(metrics, "cronjob_run_total", status="SUCCESS") == 1


async def test_settling_and_claiming_in_one_call_counts_both(store, metrics):
    await publish(store, await job(store, max_concurrency=None), 2)
    (lease,) = await claim(store, 1)
    await store.settle_and_claim([settlement(lease)], ClaimRequest(worker_id="w", queues=("default",), max=1))
    assert value(metrics, "cronjob_run_total", status="SUCCESS") == 1
    assert value(metrics, "noonbell_runs_executing") == 1


async def test_retries_are_counted_for_their_task(store, metrics):
    task = await job(store)
    await publish(store, task)
    (lease,) = await claim(store)
    await store.settle([settlement(lease, transition=Transition.RETRY, status=RunStatus.FAILED)])
    assert value(metrics, "cronjob_run_retries_total", task_id=str(task.id)) == 1
    assert value(metrics, "cronjob_run_total", status="FAILED") == 0


async def test_the_lag_from_slot_to_start_is_measured_once_for_each_scheduled_run(store, metrics, clock):
    await job(store, schedule=every_second(clock))
    clock.advance(1)
    await store.plan(10)
    clock.advance(0.2)
    (lease,) = await claim(store)
    assert lease.origin is Origin.SCHEDULE
    assert value(metrics, "noonbell_start_lag_seconds_count") == 1
    assert value(metrics, "noonbell_start_lag_seconds_sum") == pytest.approx(0.2)
    assert value(metrics, "cronjob_scheduler_scan_latency_count") == 1


async def test_the_lag_of_a_slot_that_a_calendar_moved_counts_from_where_it_was_moved_to(store, metrics, clock):
    """A slot of each Saturday, which is due on the Monday."""
    await store.save_calendar(CalendarChange(name="c", spec=CalendarSpec(closed_weekdays=(0, 6))))
    moves = TaskCalendar(name="c", when_closed=WhenClosed.NEXT_OPEN_DAY)
    task = await job(store, schedule={"type": "cron", "expr": "0 0 9 * * 6"}, calendar=moves)
    clock.set(task.next_fire_at)
    await store.plan(10)
    clock.advance(0.2)
    (lease,) = await claim(store)
    assert lease.run_at == task.next_fire_at
    assert lease.run_at - lease.scheduled_time == 2 * 86_400 * SECOND
    assert value(metrics, "noonbell_start_lag_seconds_sum") == pytest.approx(0.2)


async def test_dropped_slots_are_misfires(store, metrics, clock):
    await job(store, schedule=every_second(clock), misfire_policy=MisfirePolicy.FIRE_ONCE)
    clock.advance(5)
    planned = await store.plan(10)
    assert planned.dropped == 4
    total = sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "cronjob_misfire_total"
    )
    assert total == 4


def test_skips_are_counted_by_their_reason_and_misfires_by_their_task(metrics):
    planned = Planned(
        now=Instant(0),
        skipped=4,
        dropped=5,
        skips=(
            (TaskId(1), SkipReason.OVERLAP),
            (TaskId(1), SkipReason.CONCURRENCY),
            (TaskId(2), SkipReason.QUEUE_FULL),
            (TaskId(2), SkipReason.FAILURE),
        ),
        misfires=((TaskId(1), 2), (TaskId(2), 3)),
    )
    Ledger(metrics).plan(planned)
    assert value(metrics, "cronjob_run_total", status="SKIPPED") == 4
    assert value(metrics, "task_overlap_skipped_total") == 1
    assert value(metrics, "concurrency_skipped_total") == 2
    assert value(metrics, "cronjob_misfire_total", task_id="1") == 2
    assert value(metrics, "cronjob_misfire_total", task_id="2") == 3


def test_runs_that_needed_no_worker_are_counted(metrics):
    Ledger(metrics).plan(Planned(now=Instant(0), born=3, event_only=2))
    assert value(metrics, "cronjob_run_total", status="SUCCESS") == 2


async def test_what_a_limit_turns_away_is_counted(store, metrics):
    task = await job(store, max_concurrency=0, concurrency_policy=ConcurrencyPolicy.SKIP)
    await publish(store, task)
    assert value(metrics, "concurrency_skipped_total") == 1


async def test_a_lease_that_ran_out_is_counted_by_the_sweep(store, metrics, clock):
    await publish(store, await job(store))
    (lease,) = await claim(store)
    clock.advance(60)
    (late,) = await store.overdue(10)
    await store.settle(
        [settlement(lease, transition=Transition.LOSE, status=None, worker_id=None, precondition=Precondition.EXPIRED)]
    )
    assert late.run_id == lease.run_id
    assert value(metrics, "noonbell_lease_losses_total", found_by="sweep") == 1


async def test_a_cancel_is_counted_where_it_changed_something(store, metrics):
    (published,) = await publish(store, await job(store))
    await store.cancel([published.run_id])
    await store.cancel([published.run_id])
    assert value(metrics, "cronjob_run_total", status="CANCELED") == 1


async def test_a_callback_ends_its_run_in_the_numbers_too(store, metrics):
    task = await store.create_task(TaskSpec(name="c", exec_type=ExecType.ASYNC, target_url="http://x.example/"))
    await store.publish([Publication(task_id=task.id)])
    (lease,) = await claim(store, queue="http")
    await store.settle([settlement(lease, transition=Transition.PARK, status=None, delay_seconds=60)])
    assert value(metrics, "noonbell_runs_executing") == 0
    await Readings(metrics, store).page()
    assert value(metrics, "cronjob_callback_pending") == 1

    def decide(subject):
        fields = {
            "transition": Transition.FINISH,
            "status": RunStatus.CALLBACK_SUCCESS,
            "precondition": Precondition.ANSWERED,
        }
        return Settlement(run_id=subject.run_id, token=subject.token, **fields)

    await store.callback(IncomingCallback(token=lease.callback_token), decide)
    await store.callback(IncomingCallback(token=lease.callback_token), decide)
    assert value(metrics, "cronjob_run_total", status="CALLBACK_SUCCESS") == 1
    assert value(metrics, "noonbell_callbacks_total", status="RECEIVED") == 1
    assert value(metrics, "noonbell_callbacks_total", status="IGNORED") == 1
    assert value(metrics, "cronjob_run_duration_seconds_count", task_id=str(task.id)) == 1


async def test_a_node_counts_how_often_it_saw_the_stores_clock_set(store, metrics):
    for step in (30.0, -30.0, -2.5):
        await store.note_clock_step(step, "n1")
    assert value(metrics, "noonbell_store_clock_steps_total", direction="forward") == 1
    assert value(metrics, "noonbell_store_clock_steps_total", direction="back") == 2


async def test_tasks_and_queues_are_read_from_the_store(store, metrics, clock):
    await publish(store, await job(store, queue="mail"))
    clock.advance(7)
    await Readings(metrics, store).page()
    assert value(metrics, "cronjob_task_total", status="ENABLED") == 1
    assert value(metrics, "noonbell_queue_depth", queue="mail", state="waiting") == 1
    assert value(metrics, "noonbell_queue_oldest_age_seconds", queue="mail") == 7
    assert value(metrics, "noonbell_queue_unserved", queue="mail", lack="queue") == 1
    assert value(metrics, "noonbell_store_up") == 1


async def test_a_queue_that_is_gone_leaves_the_page(store, metrics):
    (published,) = await publish(store, await job(store, queue="mail"))
    readings = Readings(metrics, store, max_age=0)
    await readings.page()
    await store.cancel([published.run_id])
    assert b'queue="mail"' not in await readings.page()


async def test_without_a_store_there_is_a_page_that_says_so(metrics):
    store = open_store("memory://")  # never opened
    store.observer = StoreMetrics(metrics)
    page = await Readings(metrics, store).page()
    assert b"noonbell_store_up 0.0" in page
    assert value(metrics, "noonbell_store_errors_total", call="tasks") == 1


async def test_readings_are_kept_for_a_while(metrics):
    asked = []

    class Slow:
        async def tasks(self, query):
            asked.append(query)
            raise StoreUnavailable("away")

    readings = Readings(metrics, Slow(), max_age=3600)
    await readings.page()
    await readings.page()
    assert len(asked) == 1


def test_tasks_past_the_limit_share_a_series():
    metrics = Metrics(task_id_limit=2)
    for task_id in (1, 2, 3, 4, 1):
        metrics.run_retries.of(task_id).inc()
    assert value(metrics, "cronjob_run_retries_total", task_id="1") == 2
    assert value(metrics, "cronjob_run_retries_total", task_id="other") == 2
    assert value(metrics, "cronjob_run_retries_total", task_id="3") == 0


def test_the_task_label_can_be_switched_off():
    metrics = Metrics(task_id_label=False)
    metrics.run_retries.of(1).inc()
    metrics.run_duration.of(2).observe(1)
    assert value(metrics, "cronjob_run_retries_total") == 1
    assert value(metrics, "cronjob_run_duration_seconds_count") == 1


def test_two_processes_in_one_have_numbers_of_their_own():
    one, other = Metrics(), Metrics()
    one.timeouts.inc()
    assert value(other, "task_timeout_total") == 0


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(kind=OutcomeKind.SUCCESS, response_code=204), "204"),
        (Outcome(kind=OutcomeKind.FAILURE, failure="http_5xx", response_code=503), "503"),
        (Outcome(kind=OutcomeKind.FAILURE, failure="connection_refused"), "connection_refused"),
    ],
)
async def test_calls_are_counted_by_method_and_code(store, metrics, outcome, code):
    task = await store.create_task(TaskSpec(name="h", http_method="POST", target_url="http://x.example/"))
    await store.publish([Publication(task_id=task.id)])
    (lease,) = await claim(store, queue="http")

    class Answer:
        async def execute(self, assignment):
            return outcome

    assert await WatchedTarget(Answer(), metrics).execute(Assignment(lease=lease, task=task)) is outcome
    assert value(metrics, "cronjob_http_request_total", method="POST", code=code) == 1


def test_every_name_is_explained_in_the_reference():
    names = {re.sub(r"_total$", "", family.name) for family in Metrics().registry.collect()}
    text = PAGE.read_text()
    assert sorted(name for name in names if f"`{name}" not in text) == []
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert [name for name in rows if rows.count(name) > 1] == []
