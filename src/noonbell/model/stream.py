"""Where a reader of the event stream is, and what it wants to hear of."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from noonbell.errors import InvalidArgument
from noonbell.model.event import Event
from noonbell.model.run import RunId
from noonbell.model.task import TaskId

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
