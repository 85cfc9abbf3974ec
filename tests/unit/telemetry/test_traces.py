"""Spans of attempts, kept in memory by OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from noonbell import App, Context
from noonbell.model.run import Assignment, Outcome, OutcomeKind, trace_id_of
from noonbell.model.target_kind import ExecType
from noonbell.targets.http.request import RequestTemplates, build, default_headers
from noonbell.telemetry.traces import caller, traced
from unit.targets.make import TEN, assignment


class Target:
    """Answers as it is told, and keeps what it was given."""

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.outcome = outcome
        self.given: list[Assignment] = []

    async def execute(self, assignment: Assignment) -> Outcome:
        self.given.append(assignment)
        if self.outcome is None:
            raise asyncio.CancelledError
        return self.outcome


OK = Outcome(kind=OutcomeKind.SUCCESS, response_code=204)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield kept
    provider.shutdown()


async def test_an_http_attempt_is_a_client_span_in_the_trace_of_its_run(spans: InMemorySpanExporter):
    target = Target(OK)
    given = assignment("https://target.test/a?key=secret", http_method="POST")
    assert await traced(target).execute(given) is OK
    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind, span.status.status_code) == ("POST greet", SpanKind.CLIENT, StatusCode.UNSET)
    assert f"{span.context.trace_id:032x}" == trace_id_of(42, TEN, None)
    assert dict(span.attributes) == {
        "noonbell.task.id": 7,
        "noonbell.task.name": "greet",
        "noonbell.run.id": 42,
        "noonbell.run.attempt": 1,
        "noonbell.run.scheduled_time": "2026-01-02T10:00:00Z",
        "http.request.method": "POST",
        "server.address": "target.test",
        "server.port": 443,
        "http.response.status_code": 204,
    }


async def test_the_span_of_a_call_by_a_name_has_the_name_of_the_service(spans: InMemorySpanExporter):
    await traced(Target(OK)).execute(assignment("service://billing/a/{{run_id}}"))
    (span,) = spans.get_finished_spans()
    assert span.attributes["peer.service"] == "billing"
    assert not {"server.address", "server.port"} & span.attributes.keys()


async def test_the_target_is_told_the_span_that_calls_it(spans: InMemorySpanExporter):
    target = Target(OK)
    await traced(target).execute(assignment())
    (span,) = spans.get_finished_spans()
    parent = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"
    plans = RequestTemplates(default_headers({}), 1000, lambda: TEN)
    for way in (plans.request, lambda given: build(given, default_headers({}), now=TEN, max_body=1000)):
        request = way(target.given[0])
        assert request.headers["traceparent"] == parent
        assert f"traceparent: {parent}\r\n".encode() in request.head


async def test_attempts_of_a_run_share_its_trace_and_have_spans_of_their_own(spans: InMemorySpanExporter):
    for attempt in (1, 2):
        await traced(Target(OK)).execute(assignment(attempt=attempt))
    first, second = spans.get_finished_spans()
    assert first.context.trace_id == second.context.trace_id
    assert first.context.span_id != second.context.span_id
    assert first.parent == second.parent


async def test_a_run_that_a_span_published_hangs_below_it(spans: InMemorySpanExporter):
    given = f"00-{'4b' * 16}-{'a1' * 8}-01"
    await traced(Target(OK)).execute(assignment(trace_id=given))
    (span,) = spans.get_finished_spans()
    assert f"00-{span.parent.trace_id:032x}-{span.parent.span_id:016x}-01" == given


async def test_a_failure_is_the_status_of_the_span(spans: InMemorySpanExporter):
    failure = Outcome(kind=OutcomeKind.FAILURE, failure="http_5xx", response_code=503, error_message="it is busy")
    await traced(Target(failure)).execute(assignment())
    (span,) = spans.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "it is busy")
    assert span.attributes["error.type"] == "http_5xx"


async def test_a_cancel_goes_on_and_is_no_exception_of_the_span(spans: InMemorySpanExporter):
    with pytest.raises(asyncio.CancelledError):
        await traced(Target(None)).execute(assignment())
    (span,) = spans.get_finished_spans()
    assert (span.attributes["error.type"], span.events) == ("canceled", ())


async def test_a_job_is_a_consumer_span_of_its_queue(spans: InMemorySpanExporter):
    await traced(Target(OK)).execute(assignment(exec_type=ExecType.JOB, job_type="report"))
    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind) == ("process http", SpanKind.CONSUMER)
    assert span.attributes["messaging.operation.name"] == "report"
    assert span.attributes["messaging.message.id"] == "42"


async def test_from_the_caller_through_publish_to_the_handler_it_is_one_trace(spans: InMemorySpanExporter):
    app = App()
    tracer = trace.get_tracer_provider().get_tracer("the application")

    @app.job
    async def outer(ctx: Context) -> str:
        with tracer.start_as_current_span("inner"):
            return ctx.trace_id

    @app.job
    def threaded() -> None:
        with tracer.start_as_current_span("in a thread"):
            pass

    async with app.running("memory://"):
        with tracer.start_as_current_span("request") as request:
            published, other = await outer.publish(), await threaded.publish()
        trace_id = await published.result(20)
        await other.result(20)
    found = {span.name: span for span in spans.get_finished_spans() if span.name != "process default"}
    attempts = {span.context.span_id: span for span in spans.get_finished_spans() if span.name == "process default"}
    assert trace_id == f"{request.get_span_context().trace_id:032x}"
    assert {span.context.trace_id for span in spans.get_finished_spans()} == {request.get_span_context().trace_id}
    assert {span.parent.span_id for span in attempts.values()} == {request.get_span_context().span_id}
    assert {found["inner"].parent.span_id, found["in a thread"].parent.span_id} == set(attempts)


def test_without_an_sdk_the_target_is_left_as_it_is():
    target = Target(OK)
    assert (traced(target), caller()) == (target, None)


def test_without_the_package_the_target_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    target = Target(OK)
    assert (traced(target), caller()) == (target, None)
