"""Calls without a task: one, or up to 10,000 in one transaction. What is made is a run of the built-in task of its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.publish import publish
from noonbell.errors import AlreadyExists, InvalidState
from noonbell.fields import Moment, filled, meta, plain, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.account import KeyLine
from noonbell.model.call import (
    CALL_TYPE,
    CONCURRENCY_KEY,
    LONGEST_QUEUE,
    MAX_PER_KEY,
    RATE_KEY,
    Call,
    call_of,
    name_of,
    stored,
    task_spec,
)
from noonbell.model.request import Publication, PublishOutcome, PublishResult
from noonbell.model.run import Origin, RunId
from noonbell.model.service_url import resolve_service
from noonbell.model.target_kind import HTTP_QUEUE
from noonbell.model.task import RetryPolicy, Task
from noonbell.ports import ANY_QUEUE, Store, Wakeup
from noonbell.service.publishing import LONGEST_DELAY, Priority, ShownPublished
from noonbell.service.secrets import is_secret, masked
from noonbell.service.target_fields import check_http_headers, service_problem, url_problem
from noonbell.service.task_fields import MOST_BYTES, Rules

MOST_CALLS: Final = 10_000
"""In one batch."""
_AT_ONCE: Final = 100
"""Calls of a batch that are read in one turn of the event loop."""
LONGEST_BODY: Final = 1_048_576
USUAL_RETRIES: Final = 3


_ConcurrencyKey = Annotated[
    str,
    meta("At most `max_per_key` calls of the queue with the same key run at once.", min_length=1, examples=["acme"]),
]

_RateKey = Annotated[
    str,
    meta(
        "Calls of the queue with the same key share one rate limit; each key has its own. It has no effect if the queue has no rate limit.",
        min_length=1,
        examples=["acme"],
    ),
]


class CallWrite(Call, frozen=True, kw_only=True):
    """A call as its caller writes it."""

    example: ClassVar[dict[str, Any]] = {
        "url": "https://svc.internal/mails",
        "body": {"to": "a@example.com"},
        "delay_seconds": 30,
        "key": "mail-4711",
    }

    body: Annotated[Any, meta("A string is sent as is, anything else as JSON.", examples=[{"to": "a@example.com"}])] = (
        None
    )
    delay_seconds: Annotated[
        float | msgspec.UnsetType,
        meta("Start no earlier than this many seconds from now.", ge=0, le=LONGEST_DELAY, default=0),
    ] = msgspec.UNSET
    run_at: Annotated[Moment | None, meta("Start no earlier than this time.", examples=[None])] = None
    expires_at: Annotated[
        Moment | None, meta("Skipped as `expired` if no worker has claimed it by then.", examples=[None])
    ] = None
    key: Annotated[str | None, meta("Idempotency key, unique in its queue.", min_length=1)] = None
    queue: Annotated[
        str, meta("The queue that it waits in; it can be paused and limited.", min_length=1, max_length=LONGEST_QUEUE)
    ] = HTTP_QUEUE
    priority: Annotated[Priority, meta("Higher runs first.")] = 0
    concurrency_key: _ConcurrencyKey | None = None
    max_per_key: Annotated[
        int,
        meta(
            "Calls with the same `concurrency_key` that run at once, across all nodes; the first call of an idle key sets it.",
            ge=1,
            le=1_000_000,
        ),
    ] = 1
    rate_key: _RateKey | None = None


class CallBatchWrite(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a batch of calls"
    example: ClassVar[dict[str, Any]] = {
        "calls": [
            {"url": "https://svc.internal/mails", "body": "1"},
            {"url": "https://svc.internal/mails", "body": "2"},
        ]
    }

    calls: Annotated[list[CallWrite], meta("All of them, or none.", min_length=1, max_length=MOST_CALLS)]


class CallBatchAnswer(msgspec.Struct, frozen=True):
    calls: list[ShownPublished]


class ShownCall(Call, frozen=True, kw_only=True, omit_defaults=False):
    """A call as answers show it: without its body, which the attempt's request has, and its secrets masked."""

    component: ClassVar[str] = "Call"

    concurrency_key: _ConcurrencyKey | None = None
    max_per_key: Annotated[int | None, meta("Null without a `concurrency_key`.", examples=[1])] = None
    rate_key: _RateKey | None = None

    @classmethod
    def of(cls, overrides: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The call that a run carries; None where it is no call."""
        call = call_of(overrides)
        if call is None:
            return None
        limits = {name: (overrides or {}).get(name) for name in (CONCURRENCY_KEY, MAX_PER_KEY, RATE_KEY)}
        return plain(filled(cls, call, **limits, headers=masked(call.headers)))


class Calls:
    def __init__(self, store: Store, wakeup: Wakeup, cache: TaskCache, rules: Rules) -> None:
        self._store, self._wakeup, self._cache, self._rules = store, wakeup, cache, rules
        self._tasks: dict[str, Task] = {}
        """The built-in tasks by queue. They are never changed nor deleted."""

    async def call(self, given: Mapping[str, Any], *, trace_id: str | None = None) -> PublishResult:
        at = ReadContext(Problems())
        asked = self._read(given, at)
        await self._check_expiry([(asked, at)])
        at.problems.finish()
        (made,) = await self._publish([asked], trace_id)
        return made

    async def call_batch(
        self, given: Sequence[Any], problems: Problems | None = None, *, trace_id: str | None = None
    ) -> list[PublishResult]:
        """All in one transaction; answers in the order of the calls. `problems`: what was found wrong around them."""
        problems = problems or Problems()
        if not 1 <= len(given) <= MOST_CALLS:
            problems.add("calls", f"are {len(given)}; expected 1 to {MOST_CALLS}")
            problems.finish()
        asked: list[tuple[CallWrite, ReadContext]] = []
        for index, each in enumerate(given):
            if problems.are_enough:
                break
            if index % _AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn: a large batch takes a good part of a second
            if isinstance(each, Mapping):
                at = ReadContext(problems, f"calls[{index}]")
                asked.append((self._read(each, at), at))
            else:
                problems.add(f"calls[{index}]", "is not an object")
        await self._check_expiry(asked)
        problems.finish()
        return await self._publish([call for call, _ in asked], trace_id)

    async def shown(self, run_ids: Sequence[RunId]) -> dict[RunId, dict[str, Any]]:
        """What those of the runs that are calls call, their secrets masked."""
        inputs = await self._store.inputs(run_ids)
        found = {run_id: ShownCall.of(each.overrides) for run_id, each in inputs.items()}
        return {run_id: call for run_id, call in found.items() if call is not None}

    async def key_lines(self, queue: str, limit: int) -> list[KeyLine]:
        """The keys behind which calls of the queue wait, the longest line first."""
        task = await self._store.task_named(name_of(queue))
        return [] if task is None else await self._store.key_lines(task.id, limit)

    def _read(self, given: Mapping[str, Any], at: ReadContext) -> CallWrite:
        asked = read_into(CallWrite, _over_defaults(given, self._rules), at)
        for name in ("url", "success_url", "failure_url"):
            url = getattr(asked, name)
            if url is not None and at.name_of(name) not in at.problems.found:
                self._check_url(name, url, at)
        check_http_headers(asked.headers, at.inside("headers"))
        if asked.run_at is not None and asked.delay_seconds is not msgspec.UNSET:
            at.wrong("run_at", "cannot be combined with delay_seconds; expected one of the two")
        if asked.concurrency_key is None and given.get("max_per_key") is not None:
            at.wrong("max_per_key", "requires concurrency_key: it limits the calls that share one")
        if asked.body is not None and _size(asked.body) > LONGEST_BODY:
            at.wrong("body", "has more than {most} bytes", most=LONGEST_BODY)
        if len(msgspec.json.encode(asked.labels)) > MOST_BYTES:
            at.wrong("labels", "are more than {most} bytes", most=MOST_BYTES)
        return asked

    async def _check_expiry(self, asked: Sequence[tuple[CallWrite, ReadContext]]) -> None:
        """Asks the store for the time only where a call expires."""
        expiring = [(call, at) for call, at in asked if call.expires_at is not None]
        now = await self._store.now() if expiring else Instant(0)
        for call, at in expiring:
            delay = 0 if call.delay_seconds is msgspec.UNSET else call.delay_seconds
            due_at = max(call.run_at or now, Instant(now + round(delay * SECOND)))
            if (call.expires_at or now) <= due_at:
                at.wrong("expires_at", "is before the call is due; expected a later time")

    def _check_url(self, name: str, url: str, at: ReadContext) -> None:
        expected = url_problem(url)
        if expected is not None:
            at.expected(name, url, expected)
            return
        services = self._rules.services
        problem = None if services is None else service_problem(url, services)
        if problem is not None:
            at.wrong(name, problem)
        elif (denied := self._rules.address_problem(resolve_service(url, services or {}))) is not None:
            at.wrong(name, "may not be called: {denied}", denied=denied)

    async def _publish(self, asked: Sequence[CallWrite], trace_id: str | None) -> list[PublishResult]:
        tasks = {queue: await self._task_of(queue) for queue in {each.queue for each in asked}}
        publications = [self._publication(each, tasks[each.queue], trace_id) for each in asked]
        made = await publish(self._store, self._wakeup, publications, {task.id: task for task in tasks.values()})
        if any(queue != HTTP_QUEUE for queue in tasks) and any(one.outcome is PublishOutcome.CREATED for one in made):
            self._wakeup.signal(ANY_QUEUE)  # workers that make calls listen to the signals of their own queue alone
        return made

    def _publication(self, asked: CallWrite, task: Task, trace_id: str | None) -> Publication:
        call = filled(Call, asked, headers=self._sealed(asked.headers))
        return Publication(
            task_id=task.id,
            origin=Origin.CALL,
            overrides=stored(call, asked.body, asked.concurrency_key, asked.max_per_key, asked.rate_key),
            key=asked.key,
            delay_seconds=0 if asked.delay_seconds is msgspec.UNSET else asked.delay_seconds,
            run_at=asked.run_at,
            expires_at=asked.expires_at,
            priority=asked.priority,
            trace_id=trace_id,
        )

    def _sealed(self, headers: Mapping[str, str]) -> dict[str, str]:
        seal = self._rules.sealer.seal
        return {name: seal(value, None) if value and is_secret(name) else value for name, value in headers.items()}

    async def _task_of(self, queue: str) -> Task:
        """The built-in task of the queue's calls; nodes that need it at the same time make it once."""
        task = self._tasks.get(queue) or await self._store.task_named(name_of(queue))
        if task is None:
            try:
                task = await self._store.create_task(task_spec(queue), by="system", system=True)
            except AlreadyExists:
                task = await self._store.task_named(name_of(queue))
        if task is None or task.spec.job_type != CALL_TYPE:
            raise InvalidState(
                f"a task has the name {name_of(queue)!r}, which is needed for the calls of that queue; rename it"
            )
        self._tasks[queue] = task
        self._cache.note(task)
        return task


def _over_defaults(given: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """What is left out of a call, and of its retry policy, has the defaults of the installation."""
    filled = dict(given)
    if filled.get("timeout_seconds") is None:
        filled["timeout_seconds"] = rules.http_timeout
    policy = filled.get("retry_policy")
    if policy is None or isinstance(policy, Mapping):
        usual = rules.http_retry if rules.http_retry.max_retries else RetryPolicy(max_retries=USUAL_RETRIES)
        said = {name: value for name, value in (policy or {}).items() if value is not None}
        filled["retry_policy"] = {**msgspec.to_builtins(usual), **said}
    return filled


def _size(body: Any) -> int:
    return len(body.encode("utf-8", "replace")) if isinstance(body, str) else len(msgspec.json.encode(body))
