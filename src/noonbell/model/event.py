"""Events: one fact each; a reader's position in their stream, and the filter of what it wants. And results as events: which
tasks have the result of each run published as an event, and under which topic.

A task asks for that by a field of its `meta`, as plans do (`dialects.plans`). No other part of the core knows of plans.
"""

from __future__ import annotations

import enum
import re
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from noonbell.clock import Instant, to_datetime
from noonbell.errors import InvalidArgument
from noonbell.fields import Moment, meta
from noonbell.model.run import Omitted, RunId
from noonbell.model.task import TaskId, TaskSpec


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Numbered in the order of commit: a reader that has read up to `seq` has missed nothing before it.

    A batch of runs that changed together shares one `seq`; `index` is the place in the batch.
    """

    seq: int
    index: int
    at: Instant
    type: str
    task_id: TaskId | None = None
    run_id: RunId | None = None
    data: dict[str, Any] = {}
    topic: str | None = None
    """The task's name as it is when the event is read; None for what is about no task, or a purged one."""
    queue: str | None = None
    """The queue that it is about: its own, or its task's."""

    @property
    def id(self) -> str:
        """`SEQ.INDEX`: where a reader goes on who has read this one."""
        return f"{self.seq}.{self.index}"

    @property
    def time(self) -> datetime:
        """`at`, for those who think in datetimes; it has its zone, UTC."""
        return to_datetime(self.at)


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the stream, in the order of commit."""

    events: list[Event]
    upto: int
    """The number up to which the stream has been looked through; what was not wanted has been passed over."""
    newest: int
    """The highest number that was given by then."""
    is_full: bool
    """There may be more at once."""
    has_gap: bool
    """Events after the asked number have been removed already: the reader has missed something."""


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """A callback as it came in, accepted or not."""

    component: ClassVar[str] = "CallbackRecord"

    id: Annotated[int, meta(examples=[7340044])]
    run_id: Annotated[RunId | None, meta("Null: it matched no run.", examples=[7340033])]
    task_id: Annotated[TaskId | None, meta(examples=[1])]
    received_at: Moment
    status: Annotated[str, meta(examples=["RECEIVED"], schema={"enum": ["RECEIVED", "IGNORED"]})]
    reason: Annotated[str | None, meta("Why it was ignored.", examples=[None])]
    headers: Annotated[dict[str, str], meta(examples=[{"content-type": "application/json"}])]
    body: Annotated[str, meta(examples=['{"status": "SUCCESS", "data": {"rows": 42}}'])]
    omitted: Omitted = msgspec.UNSET


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    run_id: RunId
    seq: Annotated[int, meta(examples=[1])]
    at: Moment
    level: Annotated[str, meta(examples=["info"])]
    message: Annotated[str, meta(examples=["starting"])]


_ID = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?", re.ASCII)

WHOLE: Final = 1 << 62
"""Past any index: all of a row."""


class Position(msgspec.Struct, frozen=True, order=True):
    """The last event that was read. Whole rows are read up to `seq`; of the row `seq` itself, events up to `index`."""

    seq: int
    index: int = WHOLE

    @classmethod
    def read(cls, text: str, field: str = "Last-Event-ID") -> Position:
        found = _ID.fullmatch(text.strip())
        if found is None:
            raise InvalidArgument.field(field, f"is {text[:60]!r}; expected the id of an event, such as 17.0")
        return cls(int(found[1])) if found[2] is None else cls(int(found[1]), int(found[2]))


class Filter(msgspec.Struct, frozen=True):
    """What a listener wants to hear of. Empty: everything."""

    types: tuple[str, ...] = ()
    """`run` is every `run.…`, `run.failed` that one."""
    task_id: TaskId | None = None
    task: str | None = None
    run_id: RunId | None = None
    queue: str | None = None

    def wants(self, event: Event) -> bool:
        return (
            (not self.types or self._wants_type(event.type))
            and (self.task_id is None or event.task_id == self.task_id)
            and (self.task is None or event.topic == self.task)
            and (self.run_id is None or event.run_id == self.run_id)
            and (self.queue is None or event.queue == self.queue)
        )

    def _wants_type(self, type_: str) -> bool:
        return any(type_ == wanted or type_.startswith(f"{wanted}.") for wanted in self.types)


EVERYTHING = Filter()


MARK: Final = "plan"
"""The field of `meta`: an object with a `target`. Its name is in stored tasks."""


class ResultTarget(enum.StrEnum):
    API = "api"
    """One worker of the queue carries a run out."""
    PUB = "pub"
    """No worker does: when a run is due, its messages are published as an event, and it is done."""
    VOTE = "vote"
    """Every worker of the queue does, each with a result of its own."""


class ResultAddress(NamedTuple):
    """What the events of a task's results are filed under."""

    topic: str
    subject: str


def target_of(spec: TaskSpec) -> ResultTarget | None:
    """None: the task does not ask for events. `meta` is free text of callers, so its shape is checked."""
    mark = spec.meta.get(MARK) if spec.meta else None
    value = mark.get("target") if isinstance(mark, dict) else None
    return ResultTarget(value) if isinstance(value, str) and value in _TARGETS else None


def is_event_only(spec: TaskSpec) -> bool:
    """Whether its runs need no worker: they are done once they are published."""
    return target_of(spec) is ResultTarget.PUB


def address_of(spec: TaskSpec) -> ResultAddress | None:
    target = target_of(spec)
    if target is None:
        return None
    return ResultAddress(spec.queue if target is ResultTarget.PUB else spec.name, spec.external_id or spec.name)


_TARGETS: Final = frozenset(str(target) for target in ResultTarget)
