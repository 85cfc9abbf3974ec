"""The gRPC target. gRPC itself is imported when the first call is made: few installations have such tasks, and it starts threads.

It must not be forked once it has been used; nothing here is, since sandboxes are processes of their own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noonbell.engine.settle import failure
from noonbell.model.run import Assignment, Outcome
from noonbell.service.grpc_fields import NEEDS_EXTRA, is_extra_installed

if TYPE_CHECKING:
    from noonbell.targets.grpc.target import GrpcTarget


class DeferredGrpcTarget:
    """A `GrpcTarget` that is made when it is first needed."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._target: GrpcTarget | None = None

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        if self._target is not None:
            await self._target.close()

    async def execute(self, assignment: Assignment) -> Outcome:
        if self._target is None:
            if not is_extra_installed():
                return failure("error", f"this node {NEEDS_EXTRA}")
            os.environ.setdefault(
                "GRPC_VERBOSITY", "ERROR"
            )  # else it writes a line of its own for each failed handshake
            from noonbell.targets.grpc.target import GrpcTarget

            target = GrpcTarget(**self._options)
            await target.open()
            self._target = target
        return await self._target.execute(assignment)
