"""Which workers could take a run and what they lack where none could; how many parts a fan-out has, and how it ends. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import msgspec

from noonbell.model.call import CALL_TYPE
from noonbell.model.task import Fanout
from noonbell.model.worker import Lack, WorkerInfo, WorkerState, knows_type, label_pairs


class WorkerNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks of its worker."""

    queue: str
    job_type: str | None = None
    """None: any worker of the queue can do it."""
    min_version: int = 0
    workers: frozenset[str] | None = None
    """Only these; None: any."""
    labels: frozenset[str] = frozenset()
    """All of these, each as `name=value`."""
    had: frozenset[str] = frozenset()
    """For a part of a fan-out: these have had another part of it, and may not have this one."""


def takes_runs(worker: WorkerInfo) -> bool:
    """One that is lost, drained or limited to nothing takes none."""
    return worker.state is WorkerState.RUNNING and worker.concurrency > 0


def lack(workers: Sequence[WorkerInfo], wanted: WorkerNeeds) -> Lack | None:
    """What the workers lack, by the first condition that leaves none of them. None: one could take it if it had a place free.

    `workers`: those that are alive, or that say that they are lost.
    """
    left = [worker for worker in workers if takes_runs(worker)]
    for missing, fits in _CONDITIONS:
        left = [worker for worker in left if fits(worker, wanted)]
        if not left:
            return missing
    return None


def makes_calls(worker: WorkerInfo, wanted: WorkerNeeds) -> bool:
    """Whether this is a call, which waits on any queue, and a worker that takes calls from every queue."""
    return wanted.job_type == CALL_TYPE and CALL_TYPE in (worker.job_types or ())


_CONDITIONS: Sequence[tuple[Lack, Callable[[WorkerInfo, WorkerNeeds], bool]]] = (
    (Lack.QUEUE, lambda worker, wanted: wanted.queue in worker.queues or makes_calls(worker, wanted)),
    (Lack.JOB_TYPE, lambda worker, wanted: knows_type(worker.job_types, wanted.job_type)),
    (Lack.VERSION, lambda worker, wanted: worker.version >= wanted.min_version),
    (Lack.LABELS, lambda worker, wanted: wanted.labels <= set(label_pairs(worker.labels))),
    (Lack.NAMED, lambda worker, wanted: wanted.workers is None or worker.id in wanted.workers),
    (Lack.PART, lambda worker, wanted: worker.id not in wanted.had),
)


class FanoutVerdict(enum.StrEnum):
    UNDECIDED = "undecided"
    SUCCESS = "success"
    FAILED = "failed"


def parts(fanout: Fanout, alive_workers: Sequence[str]) -> int | list[str]:
    """A number: that many parts, each for whichever worker comes first. A list: one part for each of these workers.

    An empty list means that no worker is alive: the run waits.
    """
    if isinstance(fanout.workers, int):
        return fanout.workers
    return sorted(set(alive_workers))


def verdict(success: int | str, total: int, succeeded: int, failed: int) -> FanoutVerdict:
    """Given as soon as no part that is still out can change it. `success` is "all", "any" or how many must succeed."""
    if total == 0:
        return FanoutVerdict.UNDECIDED
    needed = {"all": total, "any": 1}[success] if isinstance(success, str) else success
    if succeeded >= needed:
        return FanoutVerdict.SUCCESS
    if total - failed < needed:
        return FanoutVerdict.FAILED
    return FanoutVerdict.UNDECIDED
