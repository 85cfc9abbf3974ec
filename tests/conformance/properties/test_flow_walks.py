"""Random flows with random outcomes, settled in random order and batches, canceled and run again, against some plain Python."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from conformance.store.builders import S, ask, claim, fail, finish, publish, status_of
from noonbell.model.request import RunQuery
from noonbell.model.run import FINAL, Origin, SettleResult
from noonbell.model.task import Step, StepOn, TaskSpec
from noonbell.ports import Store
from noonbell.service.consistency import audit
from services.size import size

EXAMPLES = {"memory": 60, "sqlite": 10, "postgres": 15, "mariadb": 8}


def random_flow(chance: random.Random) -> tuple[list[Step], dict[str, list[bool]]]:
    """Steps, and for each how its runs end."""
    steps: list[Step] = []
    ends: dict[str, list[bool]] = {}
    for number in range(chance.randint(1, 14)):
        earlier = [step.id for step in steps]
        needs = tuple(chance.sample(earlier, chance.randint(0, min(3, len(earlier)))))
        id_ = f"s{number}"
        items = chance.choice([None, None, None, 0, 1, 5])
        count = 1 if items is None else items
        ends[id_] = [chance.random() < 0.75 for _ in range(count)]
        steps.append(
            Step(
                id=id_,
                needs=needs,
                job_type="work",
                on=chance.choice(list(StepOn)) if needs else StepOn.SUCCESS,
                when=chance.choice(
                    [None, None, None, "true", "false", *(f"steps.{need}.failed == 0" for need in needs)]
                ),
                allow_failure=chance.random() < 0.25,
                foreach=None if items is None else list(range(items)),
                max_parallel=None if items is None else chance.choice([None, 1, 2]),
            )
        )
    chance.shuffle(steps)
    return steps, ends


class Model:
    """How a flow must end, worked out step by step from the steps that each needs."""

    def __init__(self, steps: list[Step], ends: dict[str, list[bool]]) -> None:
        self.steps, self.ends = {step.id: step for step in steps}, ends
        self.kept: set[str] = set()
        self.found: dict[str, str] = {}
        self.failed: dict[str, int] = {}
        self._look()

    def _look(self) -> None:
        for id_ in self.steps:
            self.status(id_)

    def retry(self, ends: dict[str, list[bool]], from_step: str | None) -> None:
        """A further run: what failed or was canceled, the step that is named, and all that comes after one of them, once more."""
        again = {
            id_
            for id_, status in self.found.items()
            if id_ == from_step or status == "CANCELED" or (status == "FAILED" and not self.steps[id_].allow_failure)
        }
        while more := {id_ for id_, step in self.steps.items() if id_ not in again and again & set(step.needs)}:
            again |= more
        self.kept = self.steps.keys() - again
        self.found = {id_: self.found[id_] for id_ in self.kept}
        self.ends = ends
        self._look()

    def cancel(self, found: dict[str, str], failed: dict[str, int]) -> None:
        """It was ended in the middle: what had ended by then stays as the model says, the rest is canceled."""
        assert all(status in (self.found[id_], "CANCELED") for id_, status in found.items())
        self.found, self.failed = dict(found), dict(failed)

    def status(self, id_: str) -> str:
        if id_ not in self.found:
            self.found[id_] = self._status(self.steps[id_])
        return self.found[id_]

    def _status(self, step: Step) -> str:
        self.failed[step.id] = 0
        before = [self.counts_as(need) for need in step.needs]
        wanted = {
            "success": all(one == "SUCCESS" for one in before),
            "failure": "FAILED" in before,
            "skipped": "SKIPPED" in before,
            "any": True,
        }[step.on]
        if not wanted:
            return "SKIPPED upstream"
        if step.when is not None and not self._holds(step.when):
            return "SKIPPED condition"
        self.failed[step.id] = self.ends[step.id].count(False)
        if not self.failed[step.id]:
            return "SUCCESS"
        return "SUCCESS" if step.foreach is not None and step.allow_failure else "FAILED"

    def _holds(self, when: str) -> bool:
        if when in ("true", "false"):
            return when == "true"
        return self.failed[when.split(".")[1]] == 0

    def counts_as(self, id_: str) -> str:
        status = self.status(id_).split()[0]
        return "SUCCESS" if status == "FAILED" and self.steps[id_].allow_failure else status

    @property
    def ending(self) -> str:
        return "FAILED" if any(self.counts_as(id_) == "FAILED" for id_ in self.steps) else "SUCCESS"


async def carry_out(store: Store, chance: random.Random, ends: dict[str, list[bool]], most: float = math.inf) -> None:
    """Until nothing is left to do, or `most` rounds are over."""
    held: list[Any] = []
    while (most := most - 1) >= 0:
        held += await claim(store, chance.choice(["w1", "w2"]), chance.randint(1, 5))
        if not held and not (more := await claim(store, "w1", 100)):
            return
        held += [] if held else more
        chance.shuffle(held)
        count = chance.randint(1, len(held))
        now, held = held[:count], held[count:]
        if chance.random() < 0.5:  # as a worker does it: its own ones, and as many again as it has room for
            worker = now[0].worker_id
            held += [one for one in now if one.worker_id != worker]
            now = [one for one in now if one.worker_id == worker]
            answers, claimed = await store.settle_and_claim(ended(now, ends), ask(worker, chance.randint(1, 5)))
            held += claimed.leases
        else:
            answers = await store.settle(ended(now, ends))
        assert set(answers) == {SettleResult.DONE}


def ended(leases: list[Any], ends: dict[str, list[bool]]) -> list[Any]:
    return [finish(one) if ends[one.step.id][one.item_index or 0] else fail(one) for one in leases]


async def shown(store: Store, run_id: Any) -> dict[str, str]:
    found = await store.flow_states(run_id)
    return {one.step_id: f"{one.status} {one.reason}" if one.reason else str(one.status) for one in found}


async def check(store: Store, run_id: Any, model: Model) -> None:
    assert await shown(store, run_id) == model.found, model.steps
    assert str(await status_of(store, run_id)) == model.ending
    runs = (await store.runs(RunQuery(parent_id=run_id, page_size=1000))).items
    ran = [id_ for id_, status in model.found.items() if not status.startswith("SKIPPED") and id_ not in model.kept]
    assert len(runs) == sum(len(model.ends[id_]) for id_ in ran)
    assert all(run.status in (S.SUCCESS, S.FAILED) for run in runs)
    assert len({run.idempotency_key for run in runs}) == len(runs)


@pytest.mark.longer
async def test_any_flow_ends_as_its_steps_say_also_when_it_is_canceled_and_run_again(store: Store, kind: str):
    chance = random.Random(f"flows {kind}")
    for number in range(EXAMPLES[kind] * size(1, 10)):
        steps, ends = random_flow(chance)
        task = await store.create_task(TaskSpec(name=f"flow-{number}", steps=tuple(steps)))
        run_id = await publish(store, task)
        model = Model(steps, ends)
        await carry_out(store, chance, ends, chance.choice([math.inf, math.inf, chance.randint(0, 6)]))
        if await status_of(store, run_id) not in FINAL:
            await store.cancel([run_id])
            model.cancel(await shown(store, run_id), await failures(store, run_id))
        else:
            await check(store, run_id, model)
        for _ in range(chance.choice([0, 1, 1, 2])):
            if not model.found:
                break  # it was canceled before it started: all of it runs
            from_step = chance.choice([None, chance.choice(steps).id])
            asked = {"run_id": run_id} | ({} if from_step is None else {"from_step": from_step})
            ends = {id_: [chance.random() < 0.75 for _ in each] for id_, each in ends.items()}
            run_id = await publish(store, task, origin=Origin.RETRY, retry_of_run_id=run_id, overrides={"retry": asked})
            model.retry(ends, from_step)
            await carry_out(store, chance, ends)
            await check(store, run_id, model)
    assert (await audit(store)).flaws == []


async def failures(store: Store, run_id: Any) -> dict[str, int]:
    return {state.step_id: state.failed for state in await store.flow_states(run_id)}
