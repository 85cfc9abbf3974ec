"""A run that was published, in the hands of whoever did it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from noonbell.errors import ConcurrencyLimit, RunFailed
from noonbell.model import request as model
from noonbell.model.request import Outcome
from noonbell.model.run import SUCCEEDED, Run, RunId

if TYPE_CHECKING:
    from noonbell.app.connection import Connection
    from noonbell.app.job import Job

R = TypeVar("R")


class Published(Generic[R]):
    """What became of a publish. `run_id` is the run that will do it: a new one, or the one that had the key already."""

    __slots__ = ("_answer", "_connection", "_job")

    def __init__(self, job: Job[..., R], answer: model.Published, connection: Connection) -> None:
        self._job, self._answer, self._connection = job, answer, connection

    def __repr__(self) -> str:
        return f"<Published {self._job.name}, run {self._answer.run_id}, {self.outcome}>"

    @property
    def outcome(self) -> Outcome:
        """`created`; with a key also `exists`, `running`, `updated`. In a batch `refused`: the task is at its limit."""
        return self._answer.outcome

    @property
    def run_id(self) -> int:
        """ConcurrencyLimit if the run was refused."""
        if self._answer.run_id is None:
            raise ConcurrencyLimit(
                f"task {self._job.name!r} is at its limit and takes no further run ({self._answer.reason})",
                details={"reason": self._answer.reason},
            )
        return self._answer.run_id

    async def run(self) -> Run:
        """The run as it stands."""
        return await self._connection.on_its_loop(self._connection.run(RunId(self.run_id)))

    async def cancel(self) -> bool:
        """False if it was final already."""
        return await self._connection.on_its_loop(self._connection.cancel(RunId(self.run_id)))

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - its meaning, not a guard
        """What the handler returns, as soon as the run is final; in the type that it says it returns.

        RunFailed if it ends in another way, TimeoutError after `timeout` seconds. In a transaction, the run begins only
        when that has committed.
        """
        return await self._connection.on_its_loop(self._wait(timeout))

    def result_sync(self, timeout: float | None = None) -> R:
        """As `result`, for code without an event loop."""
        return self._connection.from_thread(self._wait(timeout))

    async def _wait(self, timeout: float | None) -> R:  # noqa: ASYNC109 - as above
        # A run that was published in a transaction is not there before its commit.
        return self._result_of(await self._connection.wait(RunId(self.run_id), timeout, must_exist=False))

    def _result_of(self, run: Run) -> R:
        if run.status not in SUCCEEDED:
            raise RunFailed(run.id, run.status, run.error_message or "", run.error_details)
        result: Any = self._job.signature.result(run.result)
        return result  # type: ignore[no-any-return]
