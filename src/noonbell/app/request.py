"""What a publish asks for: a job, its payload, and the options that stand beside the payload's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from noonbell.errors import InvalidArgument
from noonbell.model.request import Publication
from noonbell.model.run import Origin
from noonbell.model.task import TaskId
from noonbell.service.publishing import read_publication
from noonbell.service.reader import Problems, Reader

if TYPE_CHECKING:
    from noonbell.app.job import Job

R = TypeVar("R")

OPTIONS: Final = frozenset(
    {"key", "delay", "run_at", "priority", "if_finished", "update_waiting", "specific_worker_ids", "transaction"}
)
"""Given by keyword beside the payload's fields, so no field can have one of these names."""

_NOBODY: Final = TaskId(0)


@dataclass(frozen=True, slots=True)
class Request(Generic[R]):
    """One run to be published, checked. Made by `Job.request`; `App.publish_many` takes any number of them."""

    job: Job[..., R]
    payload: Any
    """JSON, or UNSET: the handler takes nothing."""
    options: Mapping[str, Any] = field(default_factory=dict)
    transaction: Any = None

    def publication(self, task_id: TaskId) -> Publication:
        if not self.options:
            return Publication(task_id=task_id, payload=self.payload)
        problems = Problems()
        fields = dict(self.options)
        if self.payload is not msgspec.UNSET:
            fields["payload"] = self.payload
        if "delay" in fields:
            fields["delay_seconds"] = _seconds(fields.pop("delay"))
        publication = read_publication(Reader(fields, problems), task_id, Origin.PUBLISH)
        if "delay_seconds" in problems.found:
            problems.found["delay"] = problems.found.pop("delay_seconds")
        problems.finish()
        return publication


def read_request(job: Job[..., R], positional: tuple[Any, ...], given: Mapping[str, Any]) -> Request[R]:
    """InvalidArgument names each field or option that is wrong; nothing has been published then."""
    if positional:
        raise InvalidArgument(f"{job.name}.publish takes its payload by keyword; write {_by_keyword(job)}")
    options = {name: value for name, value in given.items() if name in OPTIONS and value is not None}
    transaction = options.pop("transaction", None)
    payload: Any = job.signature.write({name: value for name, value in given.items() if name not in OPTIONS})
    if not payload and job.declared.task.get("payload") is None:
        payload = msgspec.UNSET
    request = Request(job, payload, options, transaction)
    if options:
        request.publication(_NOBODY)
    return request


def _by_keyword(job: Job[..., Any]) -> str:
    return f"publish({', '.join(f'{name}=…' for name in job.signature.types)})"


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
