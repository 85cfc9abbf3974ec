"""The kill points, and what each promises: the table of docs/reference/faults.md as code.

A scenario says what is done until the process dies, what is done once it is there again, and how the run must end in
each delivery mode.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faults.trial import Ending, Trial

ALO, AMO = "at_least_once", "at_most_once"
Step = Callable[[Trial], None]


@dataclass(frozen=True)
class Promise:
    status: str = "SUCCESS"
    kind: str | None = None
    attempts: int = 1
    deliveries: tuple[int, ...] = (1,)
    """The numbers that are allowed."""
    callbacks: tuple[str, ...] = ()

    def broken_by(self, ending: Ending) -> list[str]:
        """What is otherwise, in words; nothing if the promise was kept."""
        wanted = {
            "status": self.status,
            "kind": self.kind,
            "attempts": self.attempts,
            "recorded": self.attempts,
            "rows": 1,
            "keys": min(1, ending.deliveries),
            "rising": True,
            "callbacks": self.callbacks,
        }
        wrong = [
            f"{name} is {getattr(ending, name)!r} instead of {value!r}"
            for name, value in wanted.items()
            if getattr(ending, name) != value
        ]
        if ending.deliveries not in self.deliveries:
            wrong.append(f"{ending.deliveries} deliveries instead of {' or '.join(map(str, self.deliveries))}")
        return wrong

    def __str__(self) -> str:
        ending = self.status + (f" `{self.kind}`" if self.kind else "")
        return f"{ending}; {_count(self.deliveries, 'delivery', 'deliveries')}, {_count((self.attempts,), 'attempt')}"


def _count(numbers: tuple[int, ...], one: str, many: str | None = None) -> str:
    return f"{' or '.join(map(str, numbers))} {one if numbers == (1,) else many or f'{one}s'}"


def _nothing(_trial: Trial) -> None:
    """The process dies, and the run ends, by themselves."""


@dataclass(frozen=True)
class Scenario:
    name: str
    """The failpoint, and a word for a variant of it: `K7 retry`."""
    dies: str
    promises: Mapping[str, Promise]
    """By delivery mode."""
    path: str = "/ok"
    fields: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """For the process that dies."""
    before: Step = _nothing
    after: Step = _nothing

    @property
    def point(self) -> str:
        return self.name.split(" ")[0]


def both(promise: Promise) -> Mapping[str, Promise]:
    return {ALO: promise, AMO: promise}


UNKNOWN = Promise("FAILED", "unknown")
ASYNC = {"exec_type": "ASYNC", "http_method": "POST", "body_template": '{"run": "{{run_id}}"}'}
PATIENT = {"worker_timeout_ms": 20_000}
"""A lease that outlasts the restart: the callback comes first."""


def answer_for_the_dead(trial: Trial) -> None:
    """The target calls back with the token that the first process sent out."""
    answer = trial.call_back(trial.again, trial.first_delivery().token)
    assert answer is not None
    assert (answer.status, answer.json["final_status"]) == (200, "SUCCESS")


def call_into_death(trial: Trial) -> None:
    """The run waits for its callback; the callback kills the process, so nobody answers it."""
    trial.wait_status(trial.armed, "CALLBACK_PENDING")
    assert trial.call_back(trial.armed, trial.first_delivery().token) is None


def answer_the_second(trial: Trial) -> None:
    """The target did not hear of the first request's end, and answers the last request that it got."""
    trial.wait_status(trial.again, "CALLBACK_PENDING", "FAILED")
    trial.call_back(trial.again, trial.sink.deliveries()[-1].token)


def stop_while_it_runs(trial: Trial) -> None:
    trial.first_delivery()
    trial.armed.send(signal.SIGTERM)


def release(trial: Trial) -> None:
    trial.sink.release()


SCENARIOS = [
    Scenario("K1", "before the slot's commit", both(Promise())),
    # Without a worker of its own: one in the same process may claim between the commit and the planner's next step.
    Scenario("K2", "after it, before the claim", both(Promise()), arguments=("--no-worker",)),
    Scenario("K3", "after the claim", both(Promise(attempts=2))),
    Scenario(
        "K4", "begun, nothing sent", {ALO: Promise(attempts=2), AMO: Promise("FAILED", "unknown", deliveries=(0,))}
    ),
    Scenario("K5", "sent, no response yet", {ALO: Promise(attempts=2, deliveries=(1, 2)), AMO: UNKNOWN}),
    Scenario(
        "K5 body",
        "the same, with a body",
        {ALO: Promise(attempts=2, deliveries=(1, 2)), AMO: UNKNOWN},
        fields={"http_method": "POST", "body_template": '{"run": "{{run_id}}"}'},
    ),
    Scenario("K6", "response in hand, not settled", {ALO: Promise(attempts=2, deliveries=(2,)), AMO: UNKNOWN}),
    Scenario("K7", "settled, nobody told", both(Promise())),
    Scenario(
        "K7 retry",
        "settled as RETRYING, nobody told",
        {ALO: Promise(attempts=2, deliveries=(2,))},
        path="/once/503",
        fields={"retry_policy": {"max_retries": 1, "strategy": "fixed", "initial_delay": 1}},
    ),
    Scenario(
        "K8",
        "202 in hand, not parked; the callback comes",
        both(Promise("CALLBACK_SUCCESS", callbacks=("RECEIVED",))),
        path="/accept",
        fields=ASYNC | PATIENT,
        after=answer_for_the_dead,
    ),
    Scenario(
        "K8 silent",
        "the same, and no callback comes",
        {
            ALO: Promise("CALLBACK_SUCCESS", attempts=2, deliveries=(2,), callbacks=("RECEIVED",)),
            AMO: Promise("FAILED", "unknown", callbacks=("IGNORED",)),
        },
        path="/accept",
        fields=ASYNC,
        after=answer_the_second,
    ),
    Scenario(
        "K9",
        "in a callback, before its commit",
        both(Promise("CALLBACK_SUCCESS", callbacks=("RECEIVED",))),
        path="/accept",
        fields=ASYNC,
        before=call_into_death,
        after=answer_for_the_dead,
    ),
    Scenario(
        "K10",
        "in a callback, before the reply",
        both(Promise("CALLBACK_SUCCESS", callbacks=("RECEIVED", "IGNORED"))),
        path="/accept",
        fields=ASYNC,
        before=call_into_death,
        after=answer_for_the_dead,
    ),
    Scenario(
        "K15",
        "in a graceful stop, work in hand",
        {ALO: Promise(attempts=2, deliveries=(2,)), AMO: UNKNOWN},
        path="/hold",
        fields={"timeout_seconds": 60},
        before=stop_while_it_runs,
        after=release,
    ),
]
