"""Flows: steps become runs as the steps before them end, in the transaction in which they do."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    Node,
    S,
    ask,
    at,
    claim,
    details_of,
    done,
    edit,
    every,
    execute,
    fail,
    finish,
    publish,
    retry,
    run_of,
    status_of,
)
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.failure_text import TEXTS, failure_text, said_by
from noonbell.model.flow import StepState
from noonbell.model.request import ClaimRequest, RunQuery
from noonbell.model.run import (
    Lease,
    Origin,
    Precondition,
    RunBodies,
    RunId,
    SettleResult,
    idempotency_key_of,
    key_of_step,
)
from noonbell.model.task import OverlapAction, Step, StepOn, Task, TaskSpec
from noonbell.ports import Store
from noonbell.service.consistency import audit
from noonbell.service.translation import Translator, failure_words
from noonbell.stores.sql.store import SqlStore
from services.size import size


def step(id_: str, *needs: str, **fields: Any) -> Step:
    """A job, unless it has a URL."""
    target = {} if "target_url" in fields else {"job_type": id_}
    return Step(id=id_, needs=needs, **(target | fields))


async def flow(store: Store, *steps: Step, **fields: Any) -> Task:
    return await store.create_task(TaskSpec(name=fields.pop("name", "nightly"), steps=steps, **fields))


async def states(store: Store, run_id: RunId) -> dict[str, StepState]:
    return {state.step_id: state for state in await store.flow_states(run_id)}


async def shown(store: Store, run_id: RunId) -> dict[str, str]:
    """Each step's status, with the reason where there is one."""
    found = await store.flow_states(run_id)
    return {one.step_id: f"{one.status} {one.reason}" if one.reason else str(one.status) for one in found}


async def take(store: Store, *ids: str, worker: str = "w1") -> dict[str, Lease]:
    """Claim all there is, which must be these steps."""
    leases = await claim(store, worker, 1000)
    found = {f"{one.step.id}" if one.item_index is None else f"{one.step.id}.{one.item_index}": one for one in leases}  # type: ignore[union-attr]
    assert sorted(found) == sorted(ids)
    return found


async def carry_out(
    store: Store, fails: dict[str, Any] | None = None, results: dict[str, Any] | None = None
) -> list[str]:
    """Claim and settle until nothing is left to do; the steps in the order in which they ran."""
    order = []
    for _ in range(10_000):
        leases = await claim(store, "w1", 100)
        if not leases:
            return order
        for lease in leases:
            assert lease.step is not None
            order.append(lease.step.id)
            if lease.step.id in (fails or {}):
                await done(store, fail(lease))
            else:
                await done(store, finish(lease, result=(results or {}).get(lease.step.id)))
    raise AssertionError("it does not end")


async def test_steps_run_in_the_order_of_their_needs_and_the_flow_succeeds(store: Store, clock: ManualClock):
    task = await flow(store, step("c", "a", "b"), step("a"), step("b", "a"), step("d", "c"))
    run_id = await publish(store, task)
    first = await take(store, "a")
    assert (await run_of(store, run_id)).status is S.RUNNING
    assert await shown(store, run_id) == {"c": "WAITING", "a": "RUNNING", "b": "WAITING", "d": "WAITING"}
    assert await claim(store) == []
    clock.advance(1)
    await done(store, finish(first["a"]))
    await done(store, finish((await take(store, "b"))["b"]))
    await done(store, finish((await take(store, "c"))["c"]))
    assert await status_of(store, run_id) is S.RUNNING
    await done(store, finish((await take(store, "d"))["d"]))
    run = await run_of(store, run_id)
    assert (run.status, run.result, run.error_message) == (S.SUCCESS, {"success": 4}, None)
    assert await shown(store, run_id) == dict.fromkeys("cabd", "SUCCESS")
    found = await states(store, run_id)
    assert (found["a"].started_at, found["a"].ended_at, found["b"].started_at) == (at(0), at(1), at(1))


async def test_the_run_of_a_step_says_what_it_belongs_to(store: Store):
    task = await flow(
        store, step("a", payload={"x": 1}, priority=3, queue="default"), payload={"all": True}, priority=2
    )
    run_id = await publish(store, task, trace_id="a" * 32)
    lease = (await take(store, "a"))["a"]
    assert (lease.parent_id, lease.task_id, lease.payload, lease.priority) == (run_id, task.id, {"x": 1}, 5)
    assert (lease.origin, lease.trace_id) == (Origin.FLOW, "a" * 32)
    run = await run_of(store, lease.run_id)
    assert (run.parent_id, run.step_id, run.item_index, run.queue) == (run_id, "a", None, "default")
    assert [one.id for one in (await store.runs(RunQuery(parent_id=run_id))).items] == [run.id]
    assert [one.id for one in (await store.runs(RunQuery(task_id=task.id))).items] == [run_id]
    assert (await states(store, run_id))["a"].step_run_id == lease.run_id


async def test_a_step_without_a_payload_has_that_of_the_flows_run(store: Store):
    task = await flow(store, step("a"), payload={"day": 1})
    await publish(store, task, payload={"day": 2})
    assert (await take(store, "a"))["a"].payload == {"day": 2}


async def test_the_key_of_a_step_is_made_of_its_flows_key(store: Store, clock: ManualClock):
    task = await flow(store, step("a", foreach=[1, 2]), step("b", "a"), schedule=every(60))
    clock.advance(60)
    await store.plan(100)
    (run,) = (await store.runs(RunQuery(task_id=task.id))).items
    key = idempotency_key_of(run.id, run.scheduled_time, run.idempotency_key)
    taken = await take(store, "a.0", "a.1")
    assert [lease.idempotency_key for lease in taken.values()] == [key_of_step(key, "a", 0), key_of_step(key, "a", 1)]
    for lease in taken.values():
        await done(store, finish(lease))
    assert (await take(store, "b"))["b"].idempotency_key == key_of_step(key, "b", None)


@pytest.mark.parametrize(
    ("on", "of_a", "expected"),
    [
        (StepOn.SUCCESS, "ok", "SUCCESS"),
        (StepOn.SUCCESS, "bad", "SKIPPED upstream"),
        (StepOn.FAILURE, "ok", "SKIPPED upstream"),
        (StepOn.FAILURE, "bad", "SUCCESS"),
        (StepOn.SKIPPED, "ok", "SKIPPED upstream"),
        (StepOn.SKIPPED, "skipped", "SUCCESS"),
        (StepOn.SUCCESS, "skipped", "SKIPPED upstream"),
        (StepOn.ANY, "ok", "SUCCESS"),
        (StepOn.ANY, "bad", "SUCCESS"),
        (StepOn.ANY, "skipped", "SUCCESS"),
    ],
)
async def test_on_says_after_which_endings_a_step_runs(store: Store, on: StepOn, of_a: str, expected: str):
    when = "payload.go" if of_a == "skipped" else None
    task = await flow(store, step("a", when=when), step("b", "a", on=on), payload={"go": False})
    run_id = await publish(store, task)
    await carry_out(store, fails={"a": True} if of_a == "bad" else {})
    assert (await shown(store, run_id))["b"] == expected
    assert await status_of(store, run_id) is (S.FAILED if of_a == "bad" else S.SUCCESS)


async def test_a_skip_goes_on_to_all_that_need_it_in_the_same_transaction(store: Store):
    chain = [step(f"s{n}", f"s{n - 1}") for n in range(1, 50)]
    task = await flow(store, step("s0", when="false"), *chain)
    run_id = await publish(store, task)
    assert await claim(store) == []
    assert await shown(store, run_id) == {"s0": "SKIPPED condition"} | {
        f"s{n}": "SKIPPED upstream" for n in range(1, 50)
    }
    run = await run_of(store, run_id)
    assert (run.status, run.result) == (S.SUCCESS, {"skipped": 50})


async def test_a_step_that_may_fail_does_not_fail_the_flow(store: Store):
    task = await flow(store, step("a", allow_failure=True), step("b", "a"))
    run_id = await publish(store, task)
    assert await carry_out(store, fails={"a": True}) == ["a", "b"]
    assert await shown(store, run_id) == {"a": "FAILED", "b": "SUCCESS"}
    assert await status_of(store, run_id) is S.SUCCESS


async def test_a_flow_that_fails_names_the_steps(store: Store):
    task = await flow(store, step("a"), step("b"), step("c", "a"))
    run_id = await publish(store, task)
    await carry_out(store, fails={"a": True, "b": True})
    run = await run_of(store, run_id)
    assert (run.status, run.error_message) == (S.FAILED, "steps a, b failed; step a was the first: it broke")
    told = details_of(run)
    assert (told["kind"], told["steps"], told["cause"]["step"]) == ("step", ["a", "b"], "a")
    assert run.result == {"failed": 2, "skipped": 1}


async def test_a_flow_that_fails_says_why_the_first_step_failed(store: Store, clock: ManualClock):
    task = await flow(store, step("a"), step("b"), step("c", "a", on=StepOn.FAILURE))
    run_id = await publish(store, task)
    leases = await take(store, "a", "b")
    why = failure_text("took_longer", seconds=3)
    await done(store, fail(leases["b"], error_message=str(why), error_details={"kind": "timeout", **said_by(why)}))
    clock.advance(1)
    await done(store, fail(leases["a"], error_message="the disk is full"))
    await done(store, finish((await take(store, "c"))["c"]))
    run = await run_of(store, run_id)
    assert run.error_message == "steps a, b failed; step b was the first: it took longer than 3 s"
    assert run.error_details is not None
    assert run.error_details["cause"] == {
        "step": "b",
        "run_id": leases["b"].run_id,
        "kind": "timeout",
        "said": {"code": "took_longer", "facts": {"seconds": 3}},
    }
    told = failure_words(run.error_message, run.error_details, Translator("zh"))
    assert told == "步骤 a, b 失败；最先失败的是步骤 b：耗时超过 3 秒"


async def test_a_long_error_of_a_step_is_cut_in_the_message_of_its_flow(store: Store):
    task = await flow(store, step("a", foreach=[1, 2]))
    run_id = await publish(store, task)
    leases = await take(store, "a.0", "a.1")
    await done(store, finish(leases["a.0"]))
    await done(store, fail(leases["a.1"], error_message="x" * 100_000))
    run = await run_of(store, run_id)
    assert run.error_message == f"step a failed: {'x' * 499}…"
    assert details_of(run)["cause"]["run_id"] == leases["a.1"].run_id


async def test_results_reach_the_steps_that_follow(store: Store):
    task = await flow(
        store,
        step("a"),
        step("b", "a", payload={"n": "{{ steps.a.result.n }}", "text": "n={{ steps.a.result.n }}", "s": "{{ slot }}"}),
    )
    await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"], result={"n": 7}))
    payload = (await take(store, "b"))["b"].payload
    assert payload == {"n": 7, "text": "n=7", "s": "2026-01-01T10:00:00Z"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"files": [1, 2]}', {"files": [1, 2]}),
        ("hello", {"code": 200, "text": "hello"}),
        ("", {"code": 200, "text": ""}),
        (None, {"code": 200, "text": ""}),
        ("null", None),
    ],
)
async def test_the_result_of_an_http_step_is_its_answer(store: Store, body: str | None, expected: Any):
    task = await flow(
        store, step("a", target_url="http://t.test/"), step("b", "a", payload={"got": "{{ steps.a.result }}"})
    )
    await publish(store, task)
    bodies = RunBodies(response_body=body)
    await done(store, finish((await take(store, "a"))["a"], response_code=200, bodies=bodies))
    assert (await take(store, "b"))["b"].payload == {"got": expected}


async def test_an_http_step_that_nothing_answered_has_no_result(store: Store):
    task = await flow(
        store,
        step("a", target_url="http://t.test/"),
        step("b", "a", on=StepOn.FAILURE, payload=["{{ steps.a.result }}"]),
    )
    await publish(store, task)
    await done(store, fail((await take(store, "a"))["a"]))
    assert (await take(store, "b"))["b"].payload == [None]


async def test_a_step_that_reads_an_answer_which_was_cut_fails(store: Store):
    task = await flow(
        store, step("a", target_url="http://t.test/"), step("b", "a", payload={"got": "{{ steps.a.result }}"})
    )
    run_id = await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"], bodies=RunBodies(response_body="[1", truncated=True)))
    assert await shown(store, run_id) == {"a": "SUCCESS", "b": "FAILED fail"}
    assert (await run_of(store, run_id)).error_message == (
        "step b failed: the answer of step a was too large to be kept whole"
    )


async def test_the_texts_of_an_http_step_find_the_values_that_they_name(store: Store):
    task = await flow(
        store,
        step("a"),
        step("b", "a", target_url="http://t.test/{{ steps.a.result.id }}", body_template='{"run": {{run_id}}}'),
    )
    await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"], result={"id": 5, "more": "unused"}))
    lease = (await take(store, "b"))["b"]
    assert lease.overrides == {"values": {"steps": {"a": {"result": {"id": 5}}}}}


async def test_a_condition_that_cannot_be_carried_out_fails_the_step(store: Store):
    task = await flow(store, step("a"), step("b", "a", when="steps.a.result < 3"))
    run_id = await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"], result="text"))
    assert (await shown(store, run_id))["b"] == "FAILED fail"
    assert await status_of(store, run_id) is S.FAILED


async def test_what_is_too_large_to_be_given_fails_the_step(store: Store):
    task = await flow(store, step("a"), step("b", "a", payload=["{{ steps.a.result }}"] * 3))
    run_id = await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"], result="x" * 400_000))
    assert (await shown(store, run_id))["b"] == "FAILED too_large"


# Foreach


async def test_a_foreach_has_a_run_for_each_item(store: Store):
    task = await flow(
        store,
        step("a"),
        step("b", "a", foreach="{{ steps.a.result }}", payload={"item": "{{ item }}"}),
        step("c", "b", payload={"all": "{{ steps.b.results }}", "of": "{{ steps.b.total }}"}),
    )
    run_id = await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"], result=["x", {"y": 1}, None]))
    taken = await take(store, "b.0", "b.1", "b.2")
    assert [taken[f"b.{n}"].payload for n in range(3)] == [{"item": "x"}, {"item": {"y": 1}}, {"item": None}]
    for n in (2, 0, 1):
        assert (await shown(store, run_id))["c"] == "WAITING"
        await done(store, finish(taken[f"b.{n}"], result=n * 10))
    assert (await take(store, "c"))["c"].payload == {"all": [0, 10, 20], "of": 3}
    found = (await states(store, run_id))["b"]
    assert (found.total, found.succeeded, found.failed, str(found.status)) == (3, 3, 0, "SUCCESS")


async def test_no_more_items_are_under_way_than_max_parallel(store: Store):
    task = await flow(store, step("a", foreach=list(range(250)), max_parallel=3, payload="{{ item }}"))
    run_id = await publish(store, task)
    seen: list[Any] = []
    while leases := await claim(store, "w1", 1000):
        assert len(leases) <= 3
        seen += [lease.payload for lease in leases]
        assert [await store.settle([finish(lease) for lease in leases])] == [[SettleResult.DONE] * len(leases)]
    assert seen == list(range(250))
    assert (await run_of(store, run_id)).status is S.SUCCESS
    if isinstance(store, SqlStore):
        assert await store.fetch("select count(*) from flow_items") == [(0,)]


async def test_an_empty_list_is_a_success(store: Store):
    task = await flow(store, step("a", foreach=[]), step("b", "a", payload="{{ steps.a.results }}"))
    run_id = await publish(store, task)
    assert (await take(store, "b"))["b"].payload == []
    assert (await shown(store, run_id))["a"] == "SUCCESS"


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_foreach_fails_with_an_item_unless_it_may(store: Store, allowed: bool):
    task = await flow(
        store,
        step("a", foreach=[1, 2], allow_failure=allowed),
        step("b", "a", when="steps.a.failed == 0", on=StepOn.ANY),
    )
    run_id = await publish(store, task)
    taken = await take(store, "a.0", "a.1")
    await done(store, fail(taken["a.0"]))
    await done(store, finish(taken["a.1"]))
    assert await shown(store, run_id) == {"a": "SUCCESS" if allowed else "FAILED", "b": "SKIPPED condition"}
    assert await status_of(store, run_id) is (S.SUCCESS if allowed else S.FAILED)


@pytest.mark.parametrize("room", [40, 150, 400])
async def test_a_long_foreach_feeds_the_worker_that_settles_and_those_that_come_later(store: Store, room: int):
    count = 1_300
    task = await flow(store, step("a", foreach=list(range(count)), payload="{{ item }}"))
    run_id = await publish(store, task)
    seen: list[int] = []
    leases = await claim(store, "w1", room)
    while leases:
        seen += [lease.payload for lease in leases]
        answers, claimed = await store.settle_and_claim([finish(lease) for lease in leases], ask("w1", room))
        assert set(answers) == {SettleResult.DONE}
        leases = claimed.leases
        others = await claim(store, "w2", 7)
        assert len(others) == min(7, count - len(seen) - len(leases)), "another worker is not left without"
        seen += [lease.payload for lease in others]
        await store.settle([finish(lease) for lease in others])
    assert sorted(seen) == list(range(count))
    assert await status_of(store, run_id) is S.SUCCESS
    assert (await audit(store)).flaws == []


@pytest.mark.parametrize(("value", "why"), [({"x": 1}, "an object"), (5, "a number"), (None, "null")])
async def test_a_foreach_over_something_else_fails_the_step(store: Store, value: Any, why: str):
    task = await flow(store, step("a"), step("b", "a", foreach="{{ steps.a.result }}"))
    run_id = await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"], result=value))
    assert (await run_of(store, run_id)).error_message == f"step b failed: foreach is {why}, and not a list"


async def test_a_foreach_of_too_many_items_fails_the_step(store: Store):
    task = await flow(store, step("a"), step("b", "a", foreach="{{ steps.a.result }}"))
    run_id = await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"], result=[0] * 10_001))
    assert (await states(store, run_id))["b"].message == "foreach has 10001 items; at most 10000 are allowed"


async def test_an_item_that_cannot_be_given_counts_as_failed(store: Store):
    task = await flow(store, step("a", foreach=[{"x": 1}, 5], payload="{{ item.x }}", allow_failure=True))
    run_id = await publish(store, task)
    taken = await take(store, "a.0")
    await done(store, finish(taken["a.0"]))
    found = (await states(store, run_id))["a"]
    assert (found.succeeded, found.failed, str(found.status)) == (1, 1, "SUCCESS")
    assert found.message is not None
    assert found.message.startswith("item 1: ")


# What befalls runs


async def test_a_step_is_retried_as_its_own_policy_says(store: Store):
    task = await flow(store, step("a"), step("b", "a"))
    run_id = await publish(store, task)
    lease = (await take(store, "a"))["a"]
    await done(store, retry(lease, 0))
    again = (await take(store, "a"))["a"]
    assert (again.run_id, again.attempt, again.step) == (lease.run_id, 2, lease.step)
    await done(store, finish(again))
    await take(store, "b")
    assert (await shown(store, run_id))["a"] == "SUCCESS"


async def test_a_step_that_was_settled_twice_counts_once(store: Store):
    task = await flow(store, step("a"), step("b", "a"))
    await publish(store, task)
    lease = (await take(store, "a"))["a"]
    assert await store.settle([finish(lease), finish(lease)]) == [SettleResult.DONE, SettleResult.LOST]
    assert await store.settle([finish(lease)]) == [SettleResult.LOST]
    await take(store, "b")


async def test_cancel_ends_what_is_under_way_and_starts_nothing(store: Store):
    task = await flow(store, step("a"), step("b"), step("c", "a"))
    run_id = await publish(store, task)
    taken = await take(store, "a", "b")
    await done(store, finish(taken["b"]))
    (answer,) = await store.cancel([run_id], by="me")
    assert answer.canceled
    assert await shown(store, run_id) == {"a": "CANCELED", "b": "SUCCESS", "c": "CANCELED"}
    assert await status_of(store, taken["a"].run_id) is S.CANCELED
    assert await store.settle([finish(taken["a"])]) == [SettleResult.LOST]
    assert await claim(store) == []
    assert await status_of(store, run_id) is S.CANCELED


async def test_a_step_that_is_canceled_alone_counts_as_failed(store: Store):
    task = await flow(store, step("a"), step("b", "a", on=StepOn.FAILURE))
    run_id = await publish(store, task)
    lease = (await take(store, "a"))["a"]
    await store.cancel([lease.run_id])
    await done(store, finish((await take(store, "b"))["b"]))
    assert await shown(store, run_id) == {"a": "CANCELED", "b": "SUCCESS"}
    assert await status_of(store, run_id) is S.FAILED


async def test_the_flow_holds_one_place_and_its_steps_none(store: Store):
    task = await flow(store, step("a"), step("b"))
    first, second = await publish(store, task), await publish(store, task)
    taken = await take(store, "a", "b")
    assert {lease.parent_id for lease in taken.values()} == {first}
    for lease in taken.values():
        await done(store, finish(lease))
    assert {lease.parent_id for lease in (await take(store, "a", "b")).values()} == {second}


async def test_steps_are_those_of_the_version_with_which_the_flow_started(store: Store):
    task = await flow(store, step("a"), step("b", "a", timeout_seconds=7))
    run_id = await publish(store, task)
    lease = (await take(store, "a"))["a"]
    await edit(store, task, steps=(step("a"), step("z", "a")))
    await done(store, finish(lease))
    later = (await take(store, "b"))["b"]
    assert (later.task_version, later.deadline_at - later.claimed_at) == (1, 7_000_000)
    await done(store, finish(later))
    assert await shown(store, run_id) == {"a": "SUCCESS", "b": "SUCCESS"}
    await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"]))
    await take(store, "z")


async def test_a_flow_that_is_deleted_while_it_runs_goes_on_unless_it_is_canceled(store: Store):
    task = await flow(store, step("a"), step("b", "a"))
    run_id = await publish(store, task)
    lease = (await take(store, "a"))["a"]
    await store.delete_task(task.id)
    await done(store, finish(lease))
    await done(store, finish((await take(store, "b"))["b"]))
    assert await status_of(store, run_id) is S.SUCCESS
    other = await flow(store, step("a"), step("b", "a"))
    run_id = await publish(store, other)
    await take(store, "a")
    await store.delete_task(other.id, cancel_running=True)
    assert await claim(store) == []
    assert await status_of(store, run_id) is S.CANCELED
    assert await shown(store, run_id) == {"a": "CANCELED", "b": "CANCELED"}


async def test_a_purge_leaves_nothing_of_a_flow(store: Store):
    task = await flow(store, step("a", foreach=list(range(300)), max_parallel=1), step("b", "a"))
    await publish(store, task)
    await take(store, "a.0")
    await store.delete_task(task.id, purge=True)
    if isinstance(store, SqlStore):
        for table in ("flows", "flow_steps", "flow_items", "live", "runs"):
            assert await store.fetch(f"select count(*) from {table}") == [(0,)]


async def test_a_new_round_cancels_the_steps_of_the_one_before(store: Store, clock: ManualClock):
    task = await flow(
        store,
        step("a"),
        step("b", "a"),
        schedule=every(60),
        overlap_action=OverlapAction.CANCEL_PREV,
        max_concurrency=None,
    )
    clock.advance(60)
    await store.plan(100)
    lease = (await take(store, "a"))["a"]
    clock.advance(60)
    await store.plan(100)
    assert await store.settle([finish(lease)]) == [SettleResult.LOST]
    first, *_ = (await store.runs(RunQuery(task_id=task.id, sort="id"))).items
    assert first.status is S.CANCELED


async def test_a_flow_with_a_timeout_ends_with_it(store: Store, clock: ManualClock):
    task = await flow(store, step("a", timeout_seconds=1000), timeout_seconds=30)
    run_id = await publish(store, task)
    lease = (await take(store, "a"))["a"]
    clock.advance(29)
    assert [one for one in await store.overdue(10) if one.run_id == run_id] == []
    clock.advance(1)
    (late,) = [one for one in await store.overdue(10) if one.run_id == run_id]
    assert late.precondition is Precondition.OVERTIME
    over = msgspec.structs.replace(finish(lease), run_id=run_id, token=late.token, worker_id=None)
    over = msgspec.structs.replace(over, precondition=Precondition.OVERTIME, status=S.TIMEOUT)
    assert await store.settle([over]) == [SettleResult.DONE]
    assert await status_of(store, run_id) is S.TIMEOUT
    canceled = await run_of(store, lease.run_id)
    assert (canceled.status, canceled.error_message) == (S.CANCELED, TEXTS["canceled_flow"])


async def test_a_step_that_is_lost_is_found_with_its_own_spec(store: Store, clock: ManualClock):
    task = await flow(store, step("a", worker_timeout_ms=1_000, ping_interval_ms=100, max_lost=7))
    await publish(store, task)
    lease = (await take(store, "a"))["a"]
    clock.advance(2)
    (late,) = await store.overdue(10)
    assert (late.run_id, late.is_step) == (lease.run_id, True)
    found = await store.run_task(lease.run_id)
    assert found is not None
    assert (found.spec.max_lost, found.spec.job_type, found.name) == (7, "a", "nightly")


async def test_events_tell_of_each_step_that_has_ended(store: Store):
    task = await flow(store, step("a"), step("b", "a", when="false"))
    run_id = await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"]))
    told = [event for event in await store.events(0) if event.type == "run.step"]
    assert [(event.run_id, event.data) for event in told] == [
        (run_id, {"step_id": "a", "status": "SUCCESS"}),
        (run_id, {"step_id": "b", "status": "SKIPPED", "reason": "condition"}),
    ]


async def test_the_claim_that_starts_a_flow_says_where_its_steps_wait(store: Store):
    await publish(store, await flow(store, step("a", queue="far"), step("b", target_url="http://t.test/")))
    claimed = await store.claim(ClaimRequest(worker_id="w1", queues=("http",), max=10))
    assert claimed.split == ("far", "http")
    assert [lease.step.id for lease in claimed.leases if lease.step] == ["b"]


async def test_the_queues_of_the_next_steps_are_told_after_the_commit(store: Store):
    told: list[set[str]] = []
    store.on_fed = lambda queues: told.append(set(queues))
    await publish(store, await flow(store, step("a"), step("b", "a", queue="far"), step("c", "b")))
    lease = (await take(store, "a"))["a"]
    await done(store, finish(lease))
    (later,) = await claim(store, queues=("far",))
    await done(store, finish(later))
    assert told == [{"default"}, {"far"}, {"default"}]


async def test_audit_finds_flows_that_do_not_end_and_steps_that_were_started_twice(store: Store):
    task = await flow(store, step("a"), step("b", "a"))
    run_id = await publish(store, task)
    lease = (await take(store, "a"))["a"]
    assert (await audit(store)).flaws == []
    await execute(store, "update flow_steps set status = 'SUCCESS'")
    assert [flaw.message for flaw in await store.flaws()] == [f"every step of run {run_id} has ended, and it has not"]
    await execute(store, "update flow_steps set status = case step_id when 'a' then 'RUNNING' else 'WAITING' end")
    await done(store, finish(lease))
    await execute(store, "update runs set step_id = 'a' where step_id = 'b'")
    flaws = await store.flaws()
    assert [flaw.kind for flaw in flaws] == ["flow"]
    assert flaws[0].message == f"step 'a' of run {run_id} was started 2 times"
    await execute(store, "update live set parent_id = null where parent_id is not null")
    assert f"run {run_id} has steps that have not ended, and none of them is under way" in [
        flaw.message for flaw in await store.flaws()
    ]


async def test_audit_finds_a_step_that_was_started_although_it_was_kept_or_skipped(store: Store):
    task = await flow(store, step("a"), step("b", "a"), step("c", "a", on=StepOn.FAILURE))
    first = await publish(store, task)
    await carry_out(store, fails={"b": True})
    second = await again(store, task, first)
    await carry_out(store)
    assert (await audit(store)).flaws == []
    await execute(store, "update runs set step_id = 'a' where step_id = 'b' and parent_id = :run", run=second)
    await execute(store, "update runs set step_id = 'c' where step_id = 'b' and parent_id = :run", run=first)
    assert sorted(flaw.message for flaw in await store.flaws()) == [
        f"step 'a' of run {second} was kept from run {first}, and was started all the same",
        f"step 'c' of run {first} is SKIPPED, and was started all the same",
    ]


async def test_audit_finds_a_step_whose_run_is_gone(store: Store, clock: ManualClock):
    task = await flow(store, step("a"), step("b", "a", foreach=[1, 2, 3]), step("c", "b"))
    first = await publish(store, task)
    await carry_out(store, fails={"c": True})
    clock.advance(3600)
    second = await again(store, task, first)
    await carry_out(store)
    assert (await audit(store)).flaws == []
    (a,) = [state.step_run_id for state in await store.flow_states(first) if state.step_id == "a"]
    await execute(store, "delete from runs where id = :id", id=a)
    await execute(store, "delete from runs where parent_id = :run and item_index = 1", run=first)
    assert sorted(flaw.message for flaw in await store.flaws()) == [
        f"step 'a' of run {first} was carried out by run {a}, which is not there",
        f"step 'b' of run {first} succeeded 3 times, and has 2 runs",
    ]
    assert await store.clean(Instant(clock.now() - 60 * SECOND), 100) == 1
    assert {state.copied_from for state in await store.flow_states(second)} == {first, None}
    assert (await audit(store)).flaws == [], "what retention has removed, and a later run has kept of it, is no flaw"


async def test_a_queues_limit_counts_steps(store: Store):
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, concurrency=2))
    await publish(store, await flow(store, step("a", foreach=[1, 2, 3, 4])))
    assert len(await claim(store)) == 2
    assert await claim(store, "w2") == []


async def test_two_nodes_settle_the_steps_of_one_flow(store: Store, another_node: Node):
    task = await flow(store, step("a"), step("b"), step("c", "a", "b"))
    run_id = await publish(store, task)
    taken = await take(store, "a", "b")
    other = await another_node()
    await done(store, finish(taken["a"]))
    await done(other, finish(taken["b"]))
    await done(other, finish((await take(other, "c"))["c"]))
    assert await status_of(store, run_id) is S.SUCCESS


async def test_two_nodes_that_settle_the_last_two_needs_start_what_follows_once(store: Store, another_node: Node):
    other = await another_node()
    task = await flow(store, step("a"), step("b"), step("c", "a", "b"), max_concurrency=None)
    for _ in range(10):
        run_id = await publish(store, task)
        taken = await take(store, "a", "b")
        answers = await asyncio.gather(store.settle([finish(taken["a"])]), other.settle([finish(taken["b"])]))
        assert answers == [[SettleResult.DONE], [SettleResult.DONE]]
        await done(store, finish((await take(store, "c"))["c"]))
        assert await status_of(store, run_id) is S.SUCCESS
    assert (await audit(store)).flaws == []


async def test_items_that_two_nodes_settle_at_once_are_each_given_out_once(store: Store, another_node: Node):
    other = await another_node()
    count = 350
    each = step("each", foreach="{{ payload.items }}", payload={"n": "{{ item }}"}, max_parallel=60)
    task = await flow(store, each, step("end", "each", payload={}))
    run_id = await publish(store, task, payload={"items": list(range(count))})
    given: list[Any] = []

    async def lane(node: Store, worker: str, leases: list[Lease]) -> None:
        while leases:
            given.extend(lease.payload.get("n") for lease in leases)
            answers, claimed = await node.settle_and_claim([finish(one) for one in leases], ask(worker, len(leases)))
            assert set(answers) == {SettleResult.DONE}
            leases = claimed.leases

    nodes = {"w1": store, "w2": other, "w3": store, "w4": other}
    for _ in range(3):
        taken = {worker: await claim(node, worker, 15) for worker, node in nodes.items()}
        await asyncio.gather(*(lane(nodes[worker], worker, leases) for worker, leases in taken.items()))
    assert sorted(given, key=str) == sorted([*range(count), None], key=str)
    state = (await states(store, run_id))["each"]
    assert (state.total, state.succeeded, state.next_item, state.failed) == (count, count, count, 0)
    assert (await audit(store)).flaws == []


# Again


async def again(store: Store, task: Task, run_id: RunId, from_step: str | None = None) -> RunId:
    asked = {"run_id": run_id} | ({} if from_step is None else {"from_step": from_step})
    return await publish(store, task, origin=Origin.RETRY, retry_of_run_id=run_id, overrides={"retry": asked})


async def test_a_retry_keeps_what_succeeded_and_restarts_what_failed(store: Store):
    task = await flow(
        store,
        step("a"),
        step("b", "a", payload="{{ steps.a.result }}"),
        step("c"),
        step("d", "b", "c", payload="{{ steps.a.result }}"),
        step("e", "b", on=StepOn.FAILURE),
    )
    first = await publish(store, task)
    assert sorted(await carry_out(store, fails={"b": True}, results={"a": 5})) == ["a", "b", "c", "e"]
    second = await again(store, task, first)
    lease = (await take(store, "b"))["b"]
    assert (lease.payload, lease.parent_id) == (5, second)
    found = await states(store, second)
    assert {one for one, state in found.items() if state.copied_from == first} == {"a", "c"}
    await done(store, finish(lease))
    last = (await take(store, "d"))["d"]
    assert last.payload == 5
    await done(store, finish(last))
    assert await status_of(store, second) is S.SUCCESS
    assert await shown(store, second) == dict.fromkeys("abcd", "SUCCESS") | {"e": "SKIPPED upstream"}
    assert await status_of(store, first) is S.FAILED


async def test_a_retry_from_a_step_runs_it_and_what_needs_it_again(store: Store):
    task = await flow(store, step("a"), step("b", "a"), step("c", "b"), step("d"))
    first = await publish(store, task)
    await carry_out(store)
    second = await again(store, task, first, "b")
    assert await carry_out(store) == ["b", "c"]
    assert await status_of(store, second) is S.SUCCESS


async def test_a_retry_of_a_canceled_flow_goes_on_where_it_was(store: Store):
    task = await flow(store, step("a"), step("b", "a"), step("c", "b"))
    first = await publish(store, task)
    await done(store, finish((await take(store, "a"))["a"]))
    await store.cancel([first])
    second = await again(store, task, first)
    assert await carry_out(store) == ["b", "c"]
    third = await again(store, task, second, "c")
    assert await carry_out(store) == ["c"]
    assert {state.copied_from for state in (await states(store, third)).values()} == {first, second, None}


async def test_the_results_of_a_kept_foreach_are_read_from_the_run_that_made_them(store: Store):
    task = await flow(store, step("a", foreach=[1, 2]), step("b", "a", payload="{{ steps.a.results }}"))
    first = await publish(store, task)
    await carry_out(store, fails={"b": True}, results={"a": "x"})
    await again(store, task, first)
    assert (await take(store, "b"))["b"].payload == ["x", "x"]


@pytest.mark.longer
async def test_a_chain_of_a_thousand_steps_ends(store: Store, kind: str):
    """`make test` has the thousand in memory alone: each step costs a server two round trips."""
    length = 1000 if kind == "memory" else size(100, 1000)
    task = await flow(store, step("s0"), *(step(f"s{n}", f"s{n - 1}") for n in range(1, length)))
    run_id = await publish(store, task)
    order = await carry_out(store)
    assert order == [f"s{n}" for n in range(length)]
    assert await status_of(store, run_id) is S.SUCCESS


async def test_a_thousand_steps_side_by_side_meet_in_one(store: Store):
    task = await flow(store, *(step(f"s{n}") for n in range(999)), step("end", *(f"s{n}" for n in range(999))))
    run_id = await publish(store, task)
    while leases := await claim(store, "w1", 500):
        await store.settle([finish(lease) for lease in leases])
    assert await status_of(store, run_id) is S.SUCCESS


# Settled and claimed in one call, as a worker does it


def named(leases: list[Lease]) -> list[str]:
    return [one.step.id for one in leases if one.step is not None]


async def test_the_call_that_settles_a_step_brings_the_next_one(store: Store, clock: ManualClock):
    task = await flow(store, step("a"), step("b", "a", payload={"x": "{{ steps.a.result.n }}"}), step("c", "b"))
    run_id = await publish(store, task, trace_id="b" * 32)
    (lease,) = (await take(store, "a")).values()
    clock.advance(1)
    answers, claimed = await store.settle_and_claim([finish(lease, result={"n": 7})], ask())
    assert answers == [SettleResult.DONE]
    (second,) = claimed.leases
    assert named([second]) == ["b"]
    assert (second.payload, second.attempt, second.trace_id, second.parent_id) == ({"x": 7}, 1, "b" * 32, run_id)
    assert (second.claimed_at, second.expires_at > at(1), second.deadline_at > at(1)) == (at(1), True, True)
    run = await run_of(store, second.run_id)
    assert (run.status, run.worker_id, run.step_id) == (S.RUNNING, "w1", "b")
    assert second.idempotency_key == run.idempotency_key
    assert (await store.heartbeat("w1", [(second.run_id, second.token)])).orders[0].lease_expires_at is not None
    assert await store.settle([finish(lease, result={"n": 8})]) == [SettleResult.LOST]
    _, claimed = await store.settle_and_claim([retry(second)], ask())
    assert claimed.leases == []
    clock.advance(5)
    await store.promote(10)
    (again,) = await claim(store)
    assert (named([again]), again.attempt, again.payload) == (["b"], 2, {"x": 7})
    _, claimed = await store.settle_and_claim([finish(again)], ask())
    _, claimed = await store.settle_and_claim([finish(one) for one in claimed.leases], ask())
    assert (claimed.leases, await status_of(store, run_id)) == ([], S.SUCCESS)
    assert (await audit(store)).flaws == []


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"queue": "elsewhere"}, {}),
        ({}, {"job_types": ("a",)}),
        ({"min_worker_version": 3}, {"version": 2}),
        ({"specific_worker_ids": ("w2",)}, {}),
    ],
)
async def test_a_worker_is_not_given_a_step_that_it_may_not_have(
    store: Store, fields: dict[str, Any], more: dict[str, Any]
):
    await publish(store, await flow(store, step("a"), step("b", "a", **fields)))
    (lease,) = (await take(store, "a")).values()
    _, claimed = await store.settle_and_claim([finish(lease)], ask(**more))
    assert claimed.leases == []
    able = {"queues": ("default", "elsewhere"), "version": 3}
    assert named(await claim(store, "w2", **able)) == ["b"]


async def test_a_step_waits_while_its_queue_is_paused_or_full(store: Store):
    await publish(store, await flow(store, step("a"), step("b", "a"), step("c", "b")))
    (lease,) = (await take(store, "a")).values()
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, paused=True))
    _, claimed = await store.settle_and_claim([finish(lease)], ask())
    assert claimed.leases == []
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, paused=False, concurrency=1))
    (second,) = await claim(store)
    other = await publish(store, await flow(store, step("d"), name="other"))
    _, claimed = await store.settle_and_claim([finish(second)], ask())
    assert len(claimed.leases) == 1
    assert await claim(store) == []
    assert await status_of(store, other) in (S.SCHEDULED, S.RUNNING)


async def test_steps_and_other_runs_are_claimed_in_the_order_of_their_priority(store: Store, clock: ManualClock):
    plain = await store.create_task(TaskSpec(name="plain", job_type="plain"))
    task = await flow(store, step("a"), step("b", "a", priority=5), step("c", "a"))
    await publish(store, task)
    (lease,) = (await take(store, "a")).values()
    waits = [await publish(store, plain), await publish(store, plain, priority=9)]
    clock.advance(1)
    _, claimed = await store.settle_and_claim([finish(lease)], ask(count=3))
    taken = {one.run_id for one in claimed.leases}
    assert len(taken) == 3
    assert set(waits) <= taken
    assert named(claimed.leases) == ["b"]
    assert named(await claim(store)) == ["c"]


async def test_nothing_is_given_with_a_step_while_everything_is_paused(store: Store):
    await publish(store, await flow(store, step("a"), step("b", "a")))
    (lease,) = (await take(store, "a")).values()
    await store.pause_installation("why", by="me")
    answers, claimed = await store.settle_and_claim([finish(lease)], ask())
    assert (answers, claimed.leases, claimed.is_paused) == ([SettleResult.DONE], [], True)
    await store.resume_installation(by="me")
    assert named(await claim(store)) == ["b"]
