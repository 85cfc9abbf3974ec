"""Calls: runs that bring what is called with them, who may claim them, and what is told when they end."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    Node,
    S,
    ask,
    asynchronous,
    at,
    claim,
    claim_one,
    done,
    edit,
    every,
    finish,
    finished,
    http,
    ids,
    job,
    lose,
    newest,
    news,
    park,
    publish,
    publish_as,
    reread,
    retry,
    run_of,
    runs_of,
    started,
)
from noonbell.clock import ManualClock
from noonbell.errors import AlreadyExists, InvalidState
from noonbell.model.call import CALL_TYPE, Call, call_of, name_of, stored, task_spec
from noonbell.model.request import Publication, PublishOutcome, RunQuery, TaskQuery
from noonbell.model.run import Lease, Origin, RunBodies, RunId, idempotency_key_of
from noonbell.model.target_kind import ExecType
from noonbell.model.task import OverlapAction, RetryPolicy, Task
from noonbell.model.worker import WorkerInfo
from noonbell.ports import Store

URL = "http://target.test/{{not a placeholder}}"


async def calls_of(store: Store, queue: str = "http") -> Task:
    return await store.create_task(task_spec(queue), by="system", system=True)


def carried(body: str | None = "hello", **fields: Any) -> dict[str, Any]:
    return stored(
        Call(**({"url": URL, "timeout_seconds": 7, "retry_policy": RetryPolicy(max_retries=2)} | fields)), body
    )


async def call(store: Store, task: Task, **fields: Any) -> RunId:
    return await publish(store, task, origin=Origin.CALL, overrides=carried(**fields))


async def claimed(store: Store, queue: str = "http") -> list[Lease]:
    """As a worker that makes calls."""
    return await claim(store, queues=(queue,), job_types=(CALL_TYPE,))


async def told(store: Store, task: Task, run_id: RunId) -> list[tuple[str, dict[str, Any]]]:
    """The URL and the body of each telling of that run's outcome."""
    found = [run.id for run in await runs_of(store, task) if run.upstream_run_ids == (run_id,)]
    inputs = [(await store.inputs([one]))[one].overrides for one in found]
    return [(call_of(each).url, msgspec.json.decode(each["override_body"])) for each in inputs]  # type: ignore[union-attr,index]


async def test_a_claimed_call_is_what_it_brings_and_not_what_its_task_says(store: Store):
    task = await calls_of(store)
    run_id = await call(store, task, method="PUT", headers={"X-A": "b"}, labels={"team": "mail"})
    (lease,) = await claimed(store)
    assert (lease.run_id, lease.origin, lease.queue) == (run_id, Origin.CALL, "http")
    spec = lease.step
    assert spec is not None
    assert (spec.exec_type, spec.http_method, spec.target_url) == (ExecType.SYNC, "PUT", URL)
    assert (spec.headers, spec.timeout_seconds, spec.retries.max_retries) == ({"X-A": "b"}, 7, 2)
    assert (spec.labels, spec.job_type, lease.overrides["override_body"]) == ({"team": "mail"}, None, "hello")  # type: ignore[index]
    found = await store.run_task(run_id)
    assert found is not None
    assert (found.id, found.spec) == (task.id, spec)


async def test_a_retried_and_a_lost_call_bring_the_same_again(store: Store, clock: ManualClock):
    task = await calls_of(store)
    await call(store, task)
    (first,) = await claimed(store)
    await done(store, retry(first, 0))
    (second,) = await claimed(store)
    clock.advance(20)
    (late,) = await store.overdue(10)
    assert (late.run_id, late.is_step) == (second.run_id, True)
    await done(store, lose(second))
    (third,) = await claimed(store)
    assert first.step == second.step == third.step
    assert (third.attempt, third.retry_count, third.lost_count) == (3, 1, 1)


@pytest.mark.parametrize("queue", ["http", "reports"])
async def test_only_a_worker_that_makes_calls_gets_them_from_any_queue(store: Store, queue: str):
    task = await calls_of(store, queue)
    other = await store.create_task(job(queue=queue))
    called, worked = await call(store, task), await publish(store, other)
    following = await call(store, task, success_url="http://target.test/told")  # it takes the long way of a claim
    assert [lease.run_id for lease in await claim(store, queues=(queue,))] == [worked]
    assert await claim(store, queues=(queue,), job_types=("work", "other")) == []
    assert sorted(lease.run_id for lease in await claimed(store, queue)) == [called, following]


async def test_a_call_and_a_settlement_go_in_one_trip(store: Store):
    task = await calls_of(store)
    first, second = await call(store, task), await call(store, task)
    (lease,) = (await store.claim(ask(count=1, queues=("http",), job_types=(CALL_TYPE,)))).leases
    asked = ask(count=1, queues=("http",), job_types=(CALL_TYPE,))
    _, more = await store.settle_and_claim([finish(lease)], asked)
    assert (lease.run_id, [each.run_id for each in more.leases]) == (first, [second])
    assert more.leases[0].step == lease.step
    assert (await run_of(store, first)).status is S.SUCCESS


async def test_a_key_is_asked_for_once_on_its_queue(store: Store):
    http, reports = await calls_of(store), await calls_of(store, "reports")
    first = await publish_as(store, http, "k", overrides=carried())
    again = await publish_as(store, http, "k", overrides=carried())
    other = await publish_as(store, reports, "k", overrides=carried())
    assert (again.run_id, again.outcome) == (first.run_id, PublishOutcome.EXISTS)
    assert (other.outcome, other.run_id != first.run_id) == (PublishOutcome.CREATED, True)


async def test_many_calls_are_made_at_once_and_each_has_its_own(store: Store):
    task = await calls_of(store)
    asked = [
        Publication(task_id=task.id, origin=Origin.CALL, overrides=carried(body=str(n), url=f"http://target.test/{n}"))
        for n in range(500)
    ]
    made = ids(await store.publish(asked))
    leases = await claim(store, count=500, queues=("http",), job_types=(CALL_TYPE,))
    assert [lease.run_id for lease in leases] == made
    sent = [(lease.step.target_url, lease.overrides["override_body"]) for lease in leases]  # type: ignore[union-attr,index]
    assert sent == [(f"http://target.test/{n}", str(n)) for n in range(500)]


@pytest.mark.parametrize(
    ("status", "url"), [(S.SUCCESS, "http://target.test/good"), (S.FAILED, "http://target.test/bad")]
)
async def test_the_outcome_is_told_once_and_nothing_follows_from_the_telling(store: Store, status: S, url: str):
    task = await calls_of(store)
    urls = {"success_url": "http://target.test/good", "failure_url": "http://target.test/bad"}
    run_id = await call(store, task, **urls, labels={"team": "mail"})
    before = await newest(store)
    (lease,) = await claimed(store)
    end = finish(lease, status, response_code=500, error_message="it broke", bodies=RunBodies(response_body="said"))
    await done(store, end)
    ((told_at, outcome),) = await told(store, task, run_id)
    assert told_at == url
    expected = {"run_id": run_id, "url": URL, "status": status, "final_status": status, "attempts": 1}
    expected |= {"response_code": 500, "response_body": "said", "error_message": "it broke", "labels": {"team": "mail"}}
    assert expected.items() <= outcome.items()
    (telling,) = await claimed(store)
    assert telling.step is not None
    assert (telling.step.target_url, telling.step.http_method) == (url, "POST")
    assert telling.step.retries.max_retries > 0
    events = [(event.type, event.run_id) for event in await news(store, before)]
    assert events.index(("run.scheduled", telling.run_id)) > 0
    await done(store, finish(telling, status))
    assert await claimed(store) == []
    assert len(await runs_of(store, task)) == 2


@pytest.mark.parametrize(("seconds", "expected"), [(0.05, 10.0), (None, 10.0), (60.0, 60.0)])
async def test_who_is_told_has_ten_seconds_to_answer_or_as_long_as_what_was_called(
    store: Store, seconds: float | None, expected: float
):
    task = await calls_of(store)
    await call(store, task, success_url="http://target.test/good", timeout_seconds=seconds)
    (lease,) = await claimed(store)
    await done(store, finish(lease))
    (telling,) = await claimed(store)
    assert telling.step is not None
    assert telling.step.timeout_seconds == expected


async def test_a_canceled_call_is_told_as_a_failure_and_one_without_an_address_is_not_told(store: Store):
    task = await calls_of(store)
    waits = await call(store, task, failure_url="http://target.test/bad")
    quiet = await call(store, task, success_url="http://target.test/good")
    await store.cancel([waits, quiet], by="ann")
    ((url, outcome),) = await told(store, task, waits)
    assert (url, outcome["final_status"], outcome["response_body"]) == ("http://target.test/bad", "CANCELED", None)
    assert await told(store, task, quiet) == []


async def test_a_settlement_that_comes_twice_tells_once(store: Store):
    task = await calls_of(store)
    run_id = await call(store, task, success_url="http://target.test/good")
    (lease,) = await claimed(store)
    await store.settle([finish(lease), finish(lease)])
    await store.settle([finish(lease)])
    assert len(await told(store, task, run_id)) == 1


async def test_the_task_of_calls_is_hidden_and_can_be_neither_changed_nor_deleted(store: Store):
    task = await calls_of(store, "reports")
    assert (await store.tasks(TaskQuery(include_system=True))).items == []
    with pytest.raises(InvalidState, match="for calls"):
        await edit(store, task, priority=3)
    with pytest.raises(InvalidState, match="built in"):
        await store.delete_task(task.id)
    with pytest.raises(InvalidState, match="is for calls"):
        await publish(store, task)
    assert await store.call_queues() == ["reports"]


async def test_nodes_that_need_the_task_at_once_make_one(store: Store, another_node: Node):
    stores = [store, await another_node(), await another_node()]

    async def make(one: Store) -> bool:
        try:
            await calls_of(one, "reports")
        except AlreadyExists:
            return False
        return True

    assert sum(await asyncio.gather(*map(make, stores))) == 1
    found = await store.task_named(name_of("reports"))
    assert found is not None
    assert found.spec.job_type == CALL_TYPE


async def test_a_call_waits_for_a_worker_that_makes_calls(store: Store, clock: ManualClock):
    task = await calls_of(store, "reports")
    await call(store, task)
    await store.register_worker(WorkerInfo(id="any", incarnation="a", queues=("reports",)))
    clock.advance(6)
    assert [(one.task_id, one.is_over) for one in await store.unserved(5)] == [(task.id, False)]
    await store.register_worker(WorkerInfo(id="calls", incarnation="a", queues=("http",), job_types=(CALL_TYPE,)))
    await store.heartbeat("any", [])
    assert [(one.task_id, one.is_over) for one in await store.unserved(5)] == [(task.id, True)]


async def test_headers_of_calls_are_sealed_again(store: Store):
    task = await calls_of(store)
    run_ids = [await call(store, task, headers={"Authorization": str(n)}) for n in range(3)]
    await call(store, task)

    def reseal(fields: dict[str, Any]) -> dict[str, Any]:
        return {"headers": {name: f"new {value.removeprefix('new ')}" for name, value in fields["headers"].items()}}

    after: int | None = -1
    written = 0
    while after is not None:
        after, count = await store.reseal_calls(after, 2, reseal)
        written += count
    assert written == 3
    inputs = await store.inputs(run_ids)
    found = [call_of(inputs[run_id].overrides) for run_id in run_ids]
    assert [one.headers["Authorization"] for one in found if one is not None] == ["new 0", "new 1", "new 2"]
    assert inputs[run_ids[0]].overrides["override_body"] == "hello"  # type: ignore[index]


async def test_an_ordinary_run_tells_nothing(store: Store):
    task = await store.create_task(job())
    await finished(store, task)
    lease = await publish(store, task)
    assert (await claim_one(store)).run_id == lease


async def test_calls_are_found_by_their_labels(store: Store):
    task = await calls_of(store)
    labels = [{"team": "mail"}, {"team": "Mail"}, {"team": "mail", 'a "q" $.x': "%'_ü"}, {}, {"mail": "team"}]
    bodies = [None, '{"labels": {"team": "mail"}}']
    asked = [
        Publication(task_id=task.id, origin=Origin.CALL, overrides=stored(Call(url=URL, labels=each), body))
        for body in bodies
        for each in labels
    ]
    made = ids(await store.publish(asked))
    other = await store.create_task(job("other", labels={"team": "mail"}))
    by_task = await publish(store, other)

    async def found(name: str, value: str, **more: Any) -> list[int]:
        query = RunQuery(label=(name, value), sort="id", page_size=50, **more)
        return [run.id for run in (await store.runs(query)).items]

    calls = {"origin": Origin.CALL}
    assert await found("team", "mail", **calls) == [made[0], made[2], made[5], made[7]]
    assert await found("team", "Mail", **calls) == [made[1], made[6]]
    assert await found('a "q" $.x', "%'_ü", **calls) == [made[2], made[7]]
    assert await found("team", "%", **calls) == []
    assert await found("team", "mail", status=(S.SCHEDULED,), **calls) == [made[0], made[2], made[5], made[7]]
    assert await found("team", "mail") == [by_task]
    assert (await store.runs(RunQuery(label=("team", "mail"), origin=Origin.CALL))).total == 4


# The notice of a cancel

STOP = "http://target.test/stop"


async def notices(store: Store, run_id: RunId) -> list[tuple[str, dict[str, Any]]]:
    calls = await store.task_named(name_of("http"))
    return [] if calls is None else await told(store, calls, run_id)


@pytest.mark.parametrize("is_parked", [False, True], ids=["under way", "awaiting its callback"])
async def test_the_target_of_a_run_that_is_canceled_under_way_gets_a_notice(store: Store, is_parked: bool):
    task = await store.create_task(asynchronous("t", cancel_url=STOP, max_concurrency=None))
    lease = await started(store, task)
    if is_parked:
        await done(store, park(lease))
    other = await publish(store, task)
    await store.cancel([lease.run_id, other], by="ann", reason="not needed")
    run = await run_of(store, lease.run_id)
    ((url, notice),) = await notices(store, lease.run_id)
    assert (url, notice["run_id"], notice["task"], notice["task_id"]) == (STOP, run.id, "t", task.id)
    assert (notice["attempt"], notice["idempotency_key"]) == (
        1,
        idempotency_key_of(run.id, run.scheduled_time, run.idempotency_key),
    )
    assert (notice["reason"], notice["details"]) == ("not needed", {"kind": "canceled", "by": "ann"})
    assert await notices(store, other) == [], "its target has never heard of it"
    (call_lease,) = await claimed(store)
    assert call_lease.step is not None
    assert (call_lease.step.http_method, call_lease.step.target_url) == ("POST", STOP)
    assert call_lease.step.retries.max_retries == 10
    await store.cancel([lease.run_id])
    assert len(await notices(store, lease.run_id)) == 1, "a second cancel changes nothing"


async def test_a_round_that_replaces_the_one_before_is_told_to_its_target(store: Store, clock: ManualClock):
    task = await store.create_task(
        http("t", cancel_url=STOP, schedule=every(10), overlap_action=OverlapAction.CANCEL_PREV, max_concurrency=None)
    )
    clock.set(at(10))
    await store.plan(10)
    first = await claim_one(store)
    clock.set(at(20))
    await store.plan(10)
    assert (await run_of(store, first.run_id)).status is S.CANCELED
    ((_, notice),) = await notices(store, first.run_id)
    assert notice["details"] == {"kind": "canceled", "why": "replaced"}
    assert (await reread(store, task)).spec.cancel_url == STOP


async def test_no_notice_is_sent_where_the_task_names_no_url_or_the_run_ended_otherwise(store: Store):
    silent, named = await store.create_task(http("silent")), await store.create_task(http("named"))
    lease = await started(store, silent)
    await store.cancel([lease.run_id])
    assert await store.task_named(name_of("http")) is None
    await edit(store, named, cancel_url=STOP)
    lease = await started(store, named)
    await done(store, finish(lease, S.FAILED))
    waiting = await started(store, named)
    await done(store, retry(waiting, 60))
    await store.cancel([waiting.run_id])
    calls = await store.task_named(name_of("http"))
    assert calls is not None, "the task of calls is made with the first task that needs it"
    assert await runs_of(store, calls) == []
