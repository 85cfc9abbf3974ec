"""What the page of a run is told from: its course over time, refusals, advice, bodies, comparisons. No server."""

from __future__ import annotations

import base64

import pytest

from noonbell.clock import Instant
from noonbell.engine.callback import STALE
from noonbell.model.callback_refusal import REFUSALS
from noonbell.model.event import Callback
from noonbell.model.run import Attempt, Origin, Run, RunId, RunStatus
from noonbell.model.task import TaskId, TaskSpec
from noonbell.policy.retry import _WORD
from noonbell.service.explain_findings import CAUSES
from noonbell.service.translation import LANGUAGES, catalogue
from noonbell.targets.http import signing
from noonbell.web import explanation, run_compare, run_page
from noonbell.web import run_timeline as run_time
from noonbell.web.explanation import refusal

T0 = 1_800_000_000_000_000
S = 1_000_000


def run(status: str = "FAILED", **more) -> Run:
    start = Instant(T0)
    fields = {"run_at": start, "start_time": start, "end_time": Instant(T0 + 60 * S), "queue": "http", **more}
    return Run(
        id=RunId(7),
        task_id=TaskId(1),
        task_name="t",
        task_version=1,
        origin=Origin.SCHEDULE,
        status=RunStatus(status),
        scheduled_time=fields.pop("scheduled_time", start),
        created_at=start,
        updated_at=start,
        **fields,
    )


def attempt(number: int, status: str, start: int, end: int | None, **more) -> Attempt:
    ends = None if end is None else Instant(T0 + end * S)
    return Attempt(
        run_id=RunId(7), attempt=number, status=status, start_time=Instant(T0 + start * S), end_time=ends, **more
    )


def callback(number: int, at: int, body: str = "{}", reason: str | None = None) -> Callback:
    return Callback(
        id=number,
        run_id=RunId(7),
        task_id=TaskId(1),
        received_at=Instant(T0 + at * S),
        status="RECEIVED" if reason is None else "IGNORED",
        reason=reason,
        headers={},
        body=body,
    )


# Over time


def test_a_delayed_run_waits_from_its_publication_on_and_its_axis_is_whole():
    later = run("SCHEDULED", run_at=Instant(T0 + 3_600 * S), start_time=None, end_time=None)
    planned, waits = run_time.bars(later, [], [], T0 + 30 * S)
    assert (planned.kind, waits.kind) == ("planned", "queue")
    assert (waits.end - waits.start, waits.is_open) == (30 * S, True)
    assert run_time.left_out([planned, waits]) == 0


def test_attempts_and_what_lies_between_them_are_in_the_order_of_time():
    found = run_time.bars(run(), [attempt(1, "FAILED", 0, 1), attempt(2, "FAILED", 11, 12)], [], T0 + 60 * S)
    assert [bar.kind for bar in found] == ["planned", "queue", "attempt", "backoff", "attempt"]
    assert found[3].end - found[3].start == 10 * S


def test_the_wait_for_a_callback_shows_its_calls_for_more_time_and_its_deadline():
    ended = run("FAILED_TIMEOUT", callback_deadline=Instant(T0 + 60 * S))
    beats = [callback(2, 30, '{"status": "RUNNING"}'), callback(1, 10, '{"status": "RUNNING"}')]
    found = run_time.bars(ended, [attempt(1, "FAILED_TIMEOUT", 0, 60)], beats, T0 + 90 * S, 30)
    wait = found[-1]
    assert (wait.kind, wait.mark, [point.kind for point in wait.points]) == (
        "waiting",
        "bad",
        ["beat", "beat", "deadline"],
    )
    assert [round(point.x) for point in wait.points] == [167, 500, 1000]


def test_without_such_calls_the_wait_begins_when_the_target_had_taken_it_on():
    waiting = run("CALLBACK_PENDING", callback_deadline=Instant(T0 + 35 * S), end_time=None)
    found = run_time.bars(waiting, [attempt(1, "CALLBACK_PENDING", 0, None)], [], T0 + 20 * S, 30)
    begun, wait = found[-2], found[-1]
    assert (begun.end, wait.start, wait.end, wait.is_open) == (T0 + 5 * S, T0 + 5 * S, T0 + 20 * S, True)


def test_a_refused_callback_has_a_row_of_its_own():
    pending = run("CALLBACK_PENDING", callback_deadline=Instant(T0 + 90 * S), end_time=None)
    refused = callback(3, 12, '{"status": "SUCCESS"}', "its signature does not match: x")
    found = run_time.bars(pending, [attempt(1, "CALLBACK_PENDING", 0, None)], [refused], T0 + 20 * S, 90)
    assert (found[-1].kind, found[-1].mark, found[-1].number) == ("callback", "bad", 3)


def test_progress_tells_what_is_left_at_the_pace_so_far():
    going = run("RUNNING", end_time=None, progress={"current": 25, "total": 100, "message": "pages"})
    told = run_time.progress(going, T0 + 10 * S)
    assert (told.percent, told.left_seconds, told.message) == (25.0, 30.0, "pages")
    for odd in (
        {"current": "x"},
        {"current": 0, "total": 9},
        {"total": 0, "current": 1},
        {"current": True, "total": 2},
    ):
        assert run_time.progress(run("RUNNING", end_time=None, progress=odd), T0 + S).left_seconds is None
    assert run_time.progress(run(), T0) is None


# Refusals


def test_every_reason_that_the_engine_gives_has_words_of_its_own():
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    signed = signing.sign(secret, "m", 1000, b"{}")
    told = {
        STALE: "stale",
        "the run is SUCCESS already": "over",
        "the run is RETRYING and takes no callback": "not_open",
        "the run is SCHEDULED and awaits no callback": "not_open",
        "the run awaits no callback: its task is not ASYNC": "not_async",
        "unknown token": "unknown",
        "the run is not of this task": "elsewhere",
        signing.objection(secret, signed, b"{ }", 1000): "signature",
        signing.objection(secret, signed, b"{}", 9000): "clock",
        signing.objection(secret, {signing.SIGNATURE: "v1,x"}, b"{}", 1000): "unsigned",
        "unknown run": "no_run",
        "its signature cannot be checked: no key": "unchecked",
        "it is not signed, but callback.require_signature requires it": "not_signed",
    }
    assert {reason: refusal(reason).key for reason in told} == told
    assert {*told.values()} == {*REFUSALS}
    for key in told.values():
        assert all(f"refused{more}.{key}" in catalogue(lang) for lang in LANGUAGES for more in ("", ".why"))
    assert refusal("the run is SUCCESS already").status == "SUCCESS"
    assert (refusal("something new").key, refusal(None)) == ("", None)


# Advice


@pytest.mark.parametrize("kind", sorted(kind for kind in _WORD if kind != "canceled"))
def test_every_kind_of_failure_has_advice_in_every_language(kind):
    found = explanation.advice(run(error_details={"kind": kind}), TaskSpec(name="t"), "ran")
    assert found.key != "other"
    for lang in LANGUAGES:
        assert catalogue(lang)[f"advice.{found.key}"].format(**found.facts)


def test_advice_is_told_by_the_answer_where_that_says_more():
    def key(code: int) -> str:
        failed = run(response_code=code, error_details={"kind": "http_4xx"})
        return explanation.advice(failed, TaskSpec(name="t"), "ran").key

    assert [key(code) for code in (401, 403, 404, 429, 422)] == [
        *("credentials", "credentials", "not_there", "too_many", "refuses"),
    ]


def test_a_callback_that_was_refused_is_what_to_see_to_first():
    lost = run("FAILED_TIMEOUT", error_details={"kind": "callback_timeout"})
    assert explanation.advice(lost, TaskSpec(name="t"), "ran", refused="signature").key == "callback_signature"
    assert explanation.advice(lost, TaskSpec(name="t"), "ran").key == "no_callback"


def test_a_run_that_waits_or_was_skipped_has_advice_by_its_cause():
    waits = run("SCHEDULED", start_time=None, end_time=None, queue="reports")
    found = explanation.advice(waits, None, "no_worker")
    assert (found.key, found.place, found.facts["queue"]) == ("no_worker", "/workers", "reports")
    typed = explanation.advice(waits, TaskSpec(name="t", job_type="x"), "no_worker", key="no_worker_type")
    assert (typed.key, typed.place, typed.facts["job_type"]) == ("no_worker_type", "/workers", "x")
    assert explanation.advice(run("SKIPPED"), None, "circuit_open").key == "circuit"
    assert explanation.advice(waits, None, "waiting") is None
    assert explanation.advice(run("SUCCESS"), None, "ran") is None
    assert set(explanation.BY_CAUSE) <= set(CAUSES)


def test_every_advice_has_its_words():
    keys = {
        *explanation.BY_CODE.values(),
        *explanation.BY_KIND.values(),
        *explanation.BY_CAUSE.values(),
        *explanation.PLACES,
        *explanation.TASK,
    }
    assert sorted(key for key in keys for lang in LANGUAGES if f"advice.{key}" not in catalogue(lang)) == []


# Bodies and comparisons


def test_a_long_body_is_cut_and_not_copied_and_its_size_is_in_bytes():
    assert run_page.body("") is run_page.body(None) is run_page.value(None) is None
    short = run_page.body('{"a":9223372036854775807}')
    assert (short.shown, short.whole) == ('{\n  "a": 9223372036854775807\n}', '{"a":9223372036854775807}')
    long = run_page.body("é" * run_page.MOST_SHOWN * 2)
    assert (len(long.shown), long.whole, long.size, long.is_cut) == (
        *(run_page.MOST_SHOWN, "", run_page.MOST_SHOWN * 4, True),
    )
    assert "123456789012345678901234567890" in run_page.value({"n": 123456789012345678901234567890}).shown


def test_lines_that_belong_together_stand_side_by_side():
    text = run_compare.text_diff("x", "a\nb\nc", "a\nB\nc\nd")
    assert text.rows == [("same", "a", "a"), ("changed", "b", "B"), ("same", "c", "c"), ("came", "", "d")]
    assert text.differs
    assert not run_compare.text_diff("x", "a", "a").differs
    assert run_compare.text_diff("x", "a\n" * 1000, "").is_cut


def test_the_axis_of_a_run_that_was_due_long_after_its_slot_is_broken_there():
    retried = run(scheduled_time=Instant(T0 - 1_320 * S), end_time=Instant(T0 + 10 * S))
    found = run_time.bars(retried, [attempt(1, "FAILED", 2, 10)], [], T0 + 60 * S)
    planned, queue, tried = found
    assert (planned.x, queue.x) == (0, run_time.BREAK)
    assert queue.width == pytest.approx(0.2 * (run_time.WIDTH - run_time.BREAK), abs=0.2)
    assert tried.x == pytest.approx(run_time.BREAK + 0.2 * (run_time.WIDTH - run_time.BREAK), abs=0.2)
    assert tried.x + tried.width == pytest.approx(run_time.WIDTH, abs=0.2)
    assert run_time.left_out(found) == 1_320 * S


def test_the_axis_of_a_run_that_was_due_at_its_slot_is_whole():
    found = run_time.bars(run(), [attempt(1, "FAILED", 2, 10)], [], T0 + 60 * S)
    assert run_time.left_out(found) == 0
    assert found[1].x == 0
    late = run_time.bars(run(scheduled_time=Instant(T0 - 5 * S)), [attempt(1, "FAILED", 2, 10)], [], T0 + 60 * S)
    assert run_time.left_out(late) == 0, "a gap that leaves room for the rest is drawn"


def test_headers_that_every_request_has_its_own_of_are_no_difference():
    left = "date: Mon\nidempotency-key: a\ntraceparent: 00-1\nx-noonbell-run: 1\nx-shop: 1"
    right = "date: Tue\nidempotency-key: b\ntraceparent: 00-2\nx-noonbell-run: 2\nx-shop: 1"
    found = run_compare.text_diff("h", left, right, run_compare.header_key)
    assert not found.differs
    assert [kind for kind, _, _ in found.rows] == ["own"] * 4 + ["same"]
    assert found.rows[0] == ("own", "date: Mon", "date: Tue")
    assert run_compare.text_diff("h", left, right.replace("x-shop: 1", "x-shop: 2"), run_compare.header_key).differs
