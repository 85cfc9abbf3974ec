"""Calls to services by their names: the address of the settings takes the place of the name when the request is made."""

from __future__ import annotations

import pytest

from integration.targets.sink import listening, replies
from noonbell.model.failure_text import SAID
from noonbell.model.run import OutcomeKind, RunStatus
from noonbell.model.task import RetryPolicy
from noonbell.policy import retry
from noonbell.service.translation import Translator, failure_words
from unit.targets.make import assignment


@pytest.mark.parametrize(
    "base, url, path",
    [
        ("", "service://billing", "/"),
        ("/api", "service://billing", "/api"),
        ("/api", "service://billing/", "/api/"),
        ("/api", "service://billing?x=1", "/api?x=1"),
        ("/api", "service://billing/orders/{{payload.id}}?of={{task_name}}#top", "/api/orders/a%2Fb?of=greet"),
    ],
)
@pytest.mark.parametrize("headers", [{}, {"X-Task": "{{task_name}}"}], ids=["plan", "long way"])
async def test_the_address_takes_the_place_of_the_name(opened, base, url, path, headers):
    async with listening(replies(200)) as sink:
        target = await opened(services={"billing": sink.url(base), "bill": "http://127.0.0.1:9"})
        given = assignment(url, headers=headers, payload={"id": "a/b"})
        for _ in range(2):
            assert (await target.execute(given)).kind is OutcomeKind.SUCCESS
    assert [asked.path for asked in sink.asked] == [path, path]
    assert {asked.headers["host"] for asked in sink.asked} == {f"127.0.0.1:{sink.port}"}


async def test_a_call_without_a_task_is_sent_to_the_service_as_it_is(opened):
    async with listening(replies(200)) as sink:
        target = await opened(services={"billing": sink.url("/api")})
        for url in ("service://billing/a", "service://billing/{{run_id}}"):
            outcome = await target.execute(assignment(url, overrides={"call": {"url": url}}))
            assert outcome.kind is OutcomeKind.SUCCESS
    assert [asked.path for asked in sink.asked] == ["/api/a", "/api/%7B%7Brun_id%7D%7D"]


async def test_the_guard_judges_the_address_of_a_service(opened):
    target = await opened(services={"metadata": "http://169.254.169.254/latest"})
    outcome = await target.execute(assignment("service://metadata/"))
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILURE, "blocked_address")


async def test_no_answer_of_a_target_leads_to_a_service(opened):
    async with listening(replies(302, Location="service://billing/x")) as sink:
        target = await opened(services={"billing": sink.url("/api")})
        outcome = await target.execute(assignment(sink.url(), follow_redirects=True))
    assert outcome.failure == "blocked_address"
    assert len(sink.asked) == 1


@pytest.mark.parametrize(
    "services, message, in_chinese",
    [
        (
            {"mail": "http://m", "billing": "http://b"},
            "this node has no service bill: executor.services has billing, mail",
            "本节点没有服务 bill：executor.services 中有 billing, mail",
        ),
        (
            {},
            "this node has no service bill: executor.services is empty",
            "本节点没有服务 bill：executor.services 为空",
        ),
    ],
)
async def test_an_unknown_name_fails_for_good_and_lists_those_that_are_known(opened, services, message, in_chinese):
    target = await opened(services=services)
    given = assignment("service://bill/x", retry_policy=RetryPolicy(max_retries=5))
    outcome = await target.execute(given)
    assert (outcome.kind, outcome.failure, outcome.error_message) == (OutcomeKind.FAILURE, "unknown_service", message)
    assert outcome.error_details is not None
    assert outcome.error_details["kind"] == "unknown_service"
    assert outcome.error_details[SAID]["facts"]["name"] == "bill"
    assert failure_words(outcome.error_message, outcome.error_details, Translator("zh")) == in_chinese
    decision = retry.decide(given.task.spec, 0, 0, retry.Failure("unknown_service"), 0.5)
    assert decision == retry.Final(RunStatus.FAILED, "unknown_service")
