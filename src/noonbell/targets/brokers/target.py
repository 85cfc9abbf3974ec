"""The target of every kind of broker: one attempt publishes one message, and the broker's word makes its outcome.

    K32  died after the message was sent, before the broker's word   the lease runs out, and the message is published again
         with the same Idempotency-Key. At most once: FAILED, kind `unknown`
    K33  died after it, before the settlement                         the same

A connection that is lost before the broker's word leaves open whether it has the message: `connection_lost`, and the retry policy
decides. A task that is delivered at most once has a connection of its own for each run, and nothing is sent twice on it.

With `reply` the attempt goes on until the consumer has answered, or its time is over.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Any, Final

from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import Deadlines
from noonbell.model.failure_text import failure_text, said_by, said_in
from noonbell.model.run import Assignment, Outcome, OutcomeKind
from noonbell.model.task import Delivery
from noonbell.sealing import Sealer
from noonbell.targets.brokers.message import Outgoing, outgoing
from noonbell.targets.brokers.pool import OTHER_PORTS, BrokerFailure, BrokerPool, BrokerReceipt, Dialler, LoadClient
from noonbell.targets.http.guard import AddressGuard
from noonbell.targets.http.pool import NameCache, Resolver
from noonbell.targets.http.request import Unsendable, conceal, is_async
from noonbell.targets.http.target import CONNECT_TIMEOUT, MAX_BODY_BYTES, storable

_LONGEST_MESSAGE: Final = 1000


class BrokerTarget:
    """Open it inside the event loop that it is used in."""

    def __init__(
        self,
        client: LoadClient,
        *,
        guard: AddressGuard | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        max_body_bytes: int = MAX_BODY_BYTES,
        sealer: Sealer | None = None,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.client = client
        self._guard = guard or AddressGuard(deny_ports=OTHER_PORTS)
        self._connect_timeout, self._max_body_bytes = connect_timeout, max_body_bytes
        self._sealer = sealer or Sealer()
        self._resolver, self._ssl_context = resolver, ssl_context
        self._pool: BrokerPool | None = None
        self._names: NameCache | None = None
        self._deadlines = Deadlines()
        """For calls that are no attempt of a worker."""

    async def open(self) -> None:
        self._names = NameCache(self._resolver)
        dialler = Dialler(self._guard, self._names, self._ssl_context)
        self._pool = BrokerPool(self.client, dialler, self._connect_timeout)

    async def close(self) -> None:
        """Drop every connection. Attempts that are under way fail."""
        if self._pool is not None:
            await self._pool.close()
        if self._names is not None:
            await self._names.close()
        self._pool = None

    async def execute(self, assignment: Assignment) -> Outcome:
        """Publish the message once and say what came of it. CancelledError drops the connection; the deadline's is a timeout."""
        pool = self._pool
        if pool is None:
            raise RuntimeError("the target is not open")
        try:
            message = outgoing(assignment, self._sealer, self._max_body_bytes)
        except Unsendable as problem:
            return _failed(problem.kind, str(problem))
        spec = assignment.task.spec
        is_once = spec.delivery is Delivery.AT_MOST_ONCE
        deadline = self._deadlines.of_attempt(spec.timeout_seconds)
        dialled: list[str] = []
        try:
            async with pool.connection(message, dialled, anew=is_once) as connection:
                receipt = await connection.publish(message)
        except asyncio.CancelledError:
            if not deadline.expired_alone():
                raise
            code = "no_consumer_answer" if message.waits_for_reply else "no_broker_answer"
            wrong = BrokerFailure("timeout", failure_text(code, seconds=f"{spec.timeout_seconds:g}"))
        except BrokerFailure as error:
            wrong = error
        except Exception as error:  # every failure of an attempt has a name
            wrong = BrokerFailure("error", f"{type(error).__name__}: {error}")
        else:
            return _succeeded(assignment, message, receipt, self._max_body_bytes)
        finally:
            self._deadlines.remove(deadline)
        return _failed(wrong.kind, said_in(wrong), message, dialled)


def _succeeded(assignment: Assignment, message: Outgoing, receipt: BrokerReceipt, max_body: int) -> Outcome:
    if receipt.reply is None:
        kind = OutcomeKind.ACCEPTED if is_async(assignment) else OutcomeKind.SUCCESS
        if kind is OutcomeKind.ACCEPTED:
            failpoint.hit("K8")
        return Outcome(kind=kind, result=receipt.result, bodies=message.bodies())
    is_cut = len(receipt.reply) > max_body
    text = receipt.reply[:max_body].decode("utf-8", "replace")
    result, problem = answer_of(text)
    problem = receipt.problem or problem
    bodies = message.bodies(text, truncated=is_cut)
    if problem is not None:
        said = conceal(storable(problem)[:_LONGEST_MESSAGE], message.hidden)
        return Outcome(
            kind=OutcomeKind.FAILURE,
            failure="callback_failed",
            error_message=said,
            error_details={"kind": "callback_failed", **said_by(problem)},
            bodies=bodies,
        )
    return Outcome(kind=OutcomeKind.SUCCESS, result=None if is_cut else result, bodies=bodies)


def answer_of(text: str) -> tuple[Any, str | None]:
    """The result that a consumer's answer stands for, and why it is a failure, if it is one.

    `{"status": "SUCCESS" or "FAILED", "data": …, "error_message": …}` as in a callback; anything else is the result itself.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return storable(text), None
    if not isinstance(answer, Mapping) or answer.get("status") not in ("SUCCESS", "FAILED"):
        return answer, None
    if answer["status"] == "SUCCESS":
        return answer.get("data"), None
    said = answer.get("error_message")
    return None, str(said) if said else failure_text("consumer_failed")


def _failed(kind: str, text: str, message: Outgoing | None = None, dialled: list[str] | None = None) -> Outcome:
    hidden = () if message is None else message.hidden
    details: dict[str, Any] = {"kind": kind, **said_by(text, lambda fact: conceal(storable(fact), hidden))}
    if dialled:
        details["address"] = dialled[-1]
    said = storable(text)[:_LONGEST_MESSAGE]
    return Outcome(
        kind=OutcomeKind.FAILURE,
        failure=kind,
        error_message=said if message is None else conceal(said, message.hidden),
        error_details=details,
        bodies=None if message is None else message.bodies(),
    )
