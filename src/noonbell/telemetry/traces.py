"""OpenTelemetry: a span for each attempt, in the run's own trace.

    the caller's span ─▶ attempt (CLIENT for calls, CONSUMER for messages) ─▶ the target's, or what the handler makes

A run that was born from a slot has no caller: its spans hang below one that is not recorded, so that all its attempts share
the trace id that logs, API and `traceparent` show. Where no SDK is set up, nothing of this is in the way of a run: it is
asked once, when a worker is put together.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from noonbell.clock import rfc3339
from noonbell.model.run import Assignment, Lease, Outcome, OutcomeKind, trace_id_of
from noonbell.model.service_url import service_name
from noonbell.model.target_kind import HTTP
from noonbell.ports import Target
from noonbell.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_SAMPLED: Final = 1


def traced(target: Target) -> Target:
    """A target that records a span for each attempt; the target itself where no spans are recorded."""
    tracer = _tracer()
    return target if tracer is None else _Traced(target, tracer)


def caller() -> Callable[[], str | None] | None:
    """The traceparent of the span that publishes; None where there are no spans."""
    return None if _tracer() is None else _current


def _tracer() -> Tracer | None:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None  # the API is there, and nothing behind it
    return provider.get_tracer("noonbell", __version__)


def _current() -> str | None:
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return _written(context) if context.is_valid else None


def _written(context: Any) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


class _Traced:
    def __init__(self, target: Target, tracer: Tracer) -> None:
        self._target, self._tracer = target, tracer

    async def execute(self, assignment: Assignment) -> Outcome:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        with self._tracer.start_as_current_span(
            _name(assignment),
            context=_above(assignment.lease),
            kind=SpanKind.CONSUMER if assignment.task.spec.target_kind.is_message else SpanKind.CLIENT,
            attributes=_attributes(assignment),
        ) as span:
            given = msgspec.structs.replace(assignment, traceparent=_written(span.get_span_context()))
            try:
                outcome = await self._target.execute(given)
            except asyncio.CancelledError:
                # Not the span's exception to record: the attempt was canceled on request.
                span.set_attribute("error.type", "canceled")
                span.set_status(Status(StatusCode.ERROR, "canceled"))
                raise
            if outcome.response_code is not None:
                span.set_attribute("http.response.status_code", outcome.response_code)
            if outcome.kind is OutcomeKind.FAILURE:
                span.set_attribute("error.type", outcome.failure or "error")
                span.set_status(Status(StatusCode.ERROR, outcome.error_message))
            return outcome


def _name(assignment: Assignment) -> str:
    spec = assignment.task.spec
    if spec.target_kind.is_message:
        return f"process {assignment.lease.queue}"
    return f"{spec.http_method if spec.target_kind is HTTP else spec.target_kind.name} {spec.name}"


def _above(lease: Lease) -> Any:
    """The span that published the run; else one in its trace that is not recorded."""
    from opentelemetry import trace

    trace_id = trace_id_of(lease.run_id, lease.scheduled_time, lease.trace_id)
    found = _PARENT.fullmatch(lease.trace_id or "")
    above = int(found[2], 16) if found is not None else int(trace_id[16:], 16)
    context = trace.SpanContext(int(trace_id, 16), above or 1, is_remote=True, trace_flags=trace.TraceFlags(_SAMPLED))
    return trace.set_span_in_context(trace.NonRecordingSpan(context))


def _attributes(assignment: Assignment) -> dict[str, str | int]:
    """No payloads and no addresses with their paths: those may hold personal data or secrets."""
    spec, lease = assignment.task.spec, assignment.lease
    found: dict[str, str | int] = {
        "noonbell.task.id": lease.task_id,
        "noonbell.task.name": spec.name,
        "noonbell.run.id": lease.run_id,
        "noonbell.run.attempt": lease.attempt,
        "noonbell.run.scheduled_time": rfc3339(lease.scheduled_time),
    }
    if spec.target_kind.is_message:
        found |= {
            "messaging.system": "noonbell",
            "messaging.operation.type": "process",
            "messaging.operation.name": getattr(spec, spec.target_kind.named_by) or "",
            "messaging.destination.name": lease.queue,
            "messaging.message.id": str(lease.run_id),
        }
    if spec.message is not None:
        found |= {
            "messaging.system": {"AMQP": "rabbitmq"}.get(spec.exec_type, spec.exec_type.lower()),
            "messaging.operation.type": "send",
            "messaging.message.id": str(lease.run_id),
        }
    if spec.target_kind is HTTP:
        found |= {"http.request.method": spec.http_method, **_server(spec.target_url or "")}
    if spec.grpc is not None:
        service, _, method = spec.grpc.method.partition("/")
        address = spec.grpc.address
        found |= {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        found |= _server(address if "://" in address else f"grpc://{address}")
    return found


def _server(url: str) -> dict[str, str | int]:
    if (name := service_name(url)) is not None:
        return {"peer.service": name}
    if "{{" in url:
        return {}  # known only when the request is made
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return {}
    if not host:
        return {}
    return {"server.address": host, "server.port": port or (443 if parts.scheme in ("https", "grpcs") else 80)}
