"""Publish: create runs outside the schedule, then signal the workers of their queues.

Died between the commit and the signal: the runs are there, and a poll finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import TaskCache
from noonbell.model.request import Canceled, Publication, PublishOutcome, PublishResult
from noonbell.model.run import RunId
from noonbell.model.task import Task, TaskId
from noonbell.ports import ANY_QUEUE, ORDERS, PLAN, Store, Wakeup, queue_topic

_FRESH_ENOUGH = 5.0
"""Seconds for which a task's queue is taken as known: a signal on the wrong queue costs a poll, no more."""


async def publish(
    store: Store, wakeup: Wakeup, publications: Sequence[Publication], tasks: TaskCache | Mapping[TaskId, Task]
) -> list[PublishResult]:
    """Publish as the store's `publish` does, then wake the workers of these queues, or the planner if a run is for
    later. `tasks`: those that the caller has read anyway, or the cache to find them in.
    """
    # Before the commit: what is written must not look refused because the clock could not be read.
    now = await store.about_now() if any(publication.run_at is not None for publication in publications) else None
    answers = await store.publish(publications)
    if any(publication.dedupe is not None for publication in publications):
        failpoint.hit("K27")
    born = [
        publication
        for publication, answer in zip(publications, answers, strict=True)
        if answer.outcome in (PublishOutcome.CREATED, PublishOutcome.UPDATED)
    ]
    for topic in await topics_of(born, tasks, now):
        wakeup.signal(topic)
    return answers


async def cancel(
    store: Store, wakeup: Wakeup, run_ids: Sequence[RunId], *, by: str | None = None, reason: str = ""
) -> list[Canceled]:
    """Cancel as the store's `cancel` does, then signal the workers that hold these runs, and those that wait for the
    places that are free now.
    """
    answers = await store.cancel(run_ids, by=by, reason=reason)
    if any(answer.canceled for answer in answers):
        for topic in (ORDERS, ANY_QUEUE, PLAN):
            wakeup.signal(topic)
    return answers


async def topics_of(
    publications: Sequence[Publication], tasks: TaskCache | Mapping[TaskId, Task], now: Instant | None = None
) -> list[str]:
    """Who is to be woken once these are born. `now` is roughly the store's; without it, every `run_at` may have come."""
    topics: set[str] = set()
    queued: set[TaskId] = set()
    for publication in publications:
        is_debounced = publication.dedupe is not None and publication.dedupe.is_for_later
        is_delayed = publication.delay_seconds > 0 or is_debounced
        run_at = publication.run_at
        if is_delayed or run_at is not None:
            topics.add(PLAN)
        if not is_delayed and (run_at is None or now is None or run_at <= now + SECOND):
            queued.add(publication.task_id)
    for task_id in queued:
        topics.add(await _topic_of(task_id, tasks))
    return sorted(topics)


async def _topic_of(task_id: TaskId, tasks: TaskCache | Mapping[TaskId, Task]) -> str:
    task = await tasks.newest(task_id, _FRESH_ENOUGH) if isinstance(tasks, TaskCache) else tasks.get(task_id)
    return ANY_QUEUE if task is None else queue_topic(task.spec.queue)
