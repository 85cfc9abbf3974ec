"""Publish: create runs outside the schedule, then signal the workers of their queues.

Died between the commit and the signal: the runs are there, and a poll finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    """As the store's `publish`; then workers of these queues are woken, or the planner if it is for later.

    `tasks`: those that the caller has read anyway, or the cache to find them in.
    """
    answers = await store.publish(publications)
    if any(publication.dedupe is not None for publication in publications):
        failpoint.hit("K27")
    born = [
        publication
        for publication, answer in zip(publications, answers, strict=True)
        if answer.outcome in (PublishOutcome.CREATED, PublishOutcome.UPDATED)
    ]
    for topic in await topics_of(born, tasks):
        wakeup.signal(topic)
    return answers


async def cancel(
    store: Store, wakeup: Wakeup, run_ids: Sequence[RunId], *, by: str | None = None, reason: str = ""
) -> list[Canceled]:
    """As the store's `cancel`; then the workers that hold these runs hear of it at once, and places are free."""
    answers = await store.cancel(run_ids, by=by, reason=reason)
    if any(answer.canceled for answer in answers):
        for topic in (ORDERS, ANY_QUEUE, PLAN):
            wakeup.signal(topic)
    return answers


async def topics_of(publications: Sequence[Publication], tasks: TaskCache | Mapping[TaskId, Task]) -> list[str]:
    """Who is to be woken once these are born."""
    topics: set[str] = set()
    queued: set[TaskId] = set()
    for publication in publications:
        is_debounced = publication.dedupe is not None and publication.dedupe.is_for_later
        if publication.delay_seconds > 0 or publication.run_at is not None or is_debounced:
            topics.add(PLAN)
        else:
            queued.add(publication.task_id)
    for task_id in queued:
        topics.add(await _topic_of(task_id, tasks))
    return sorted(topics)


async def _topic_of(task_id: TaskId, tasks: TaskCache | Mapping[TaskId, Task]) -> str:
    task = await tasks.newest(task_id, _FRESH_ENOUGH) if isinstance(tasks, TaskCache) else tasks.get(task_id)
    return ANY_QUEUE if task is None else queue_topic(task.spec.queue)
