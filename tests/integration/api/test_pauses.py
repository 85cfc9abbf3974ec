"""The switch that stops every start, over HTTP: the calls, what else shows it, the command line and the pages."""

from __future__ import annotations

import pytest

from integration.api.serving import JOB, Api
from integration.web.asking import get, post
from noonbell.model.request import ClaimRequest
from noonbell.service.doctor import CheckStatus, look_at_store

ASK = ClaimRequest(worker_id="w", queues=("default", "http"), max=10)


async def test_it_is_paused_shown_and_resumed(api: Api):
    nothing = {"paused": False, "reason": None, "by": None, "since": None}
    assert await api.good("GET", "/pause") == nothing
    answer = await api.good("POST", "/pause", {"reason": " the database moves "})
    since = answer["since"]
    standing = {"paused": True, "reason": "the database moves", "by": None, "since": since}
    assert answer == {**standing, "changed": True}
    assert await api.good("GET", "/pause") == standing
    assert await api.good("POST", "/pause", {"reason": "another"}) == {**standing, "changed": False}
    assert await api.good("POST", "/resume") == {**nothing, "changed": True}
    assert await api.good("POST", "/resume") == {**nothing, "changed": False}


@pytest.mark.parametrize(
    ("body", "field"), [({"reason": "x" * 501}, "reason"), ({"reason": 3}, "reason"), ({"why": "x"}, "why")]
)
async def test_what_is_no_reason_is_refused_and_nothing_is_paused(quick_api: Api, body: dict[str, object], field: str):
    answer = await quick_api.call("POST", "/pause", body)
    assert (answer.status, answer.body["code"]) == (400, "INVALID_ARGUMENT")
    assert field in answer.body["details"]
    assert (await quick_api.good("GET", "/pause"))["paused"] is False


async def test_publishes_are_taken_and_wait(quick_api: Api):
    task = (await quick_api.good("POST", "/tasks", {**JOB, "name": "j"}, 201))["id"]
    await quick_api.good("POST", "/pause")
    run_id = await quick_api.trigger(task)
    assert (await quick_api.good("GET", f"/runs/{run_id}"))["status"] == "SCHEDULED"
    assert (await quick_api.good("GET", f"/runs/{run_id}/explain"))["cause"] == "paused"
    claimed = await quick_api.good("POST", "/workers/w1/claim", {"queues": ["default"], "wait_seconds": 0})
    assert claimed["runs"] == []
    await quick_api.good("POST", "/resume")
    assert [lease.run_id for lease in (await quick_api.store.claim(ASK)).leases] == [run_id]


async def test_metrics_and_the_doctor_say_it(quick_api: Api):
    await quick_api.good("POST", "/pause", {"reason": "it burns"})
    assert "noonbell_paused 1.0" in (await quick_api.call("GET", "//metrics")).text
    found = [one async for one in look_at_store(quick_api.store, lambda: 0) if one.check == "pause"]
    assert [(one.mark, one.code, one.fix) for one in found] == [
        (CheckStatus.CARE, "paused", "to resume: noonbell resume")
    ]
    assert "it burns" in found[0].says


PAGES = ("/", "/tasks", "/runs", "/timeline", "/queues", "/workers", "/activity", "/settings", "/tasks/new")


async def test_every_page_says_who_paused_everything_and_why_and_offers_the_way_back(api: Api):
    assert "Pause everything" in await get(api, "/")
    assert (await post(api, "/pause", {"reason": "the database moves"}))[:2] == (303, "/")
    for path in PAGES:
        text = await get(api, path)
        assert "Everything is paused." in text, path
        assert "Reason: the database moves" in text, path
        assert 'action="./resume"' in text or 'action="../resume"' in text, path
    (entry,) = (await api.good("GET", "/audit?limit=1"))["items"]
    assert (entry["action"], entry["details"]["reason"]) == ("pause_all", "the database moves")
    assert (await post(api, "/resume"))[:2] == (303, "/")
    assert "Everything is paused." not in await get(api, "/")
    (entry,) = (await api.good("GET", "/audit?limit=1"))["items"]
    assert entry["action"] == "resume_all"


async def test_the_audit_log_keeps_the_reason_that_the_api_was_given(quick_api: Api):
    task = await quick_api.create(name="t")
    for path, action in (("/pause", "pause_all"), (f"/tasks/{task}/disable", "disable_task")):
        await quick_api.good("POST", path, {"reason": "the database moves"})
        (entry,) = (await quick_api.good("GET", "/audit?limit=1"))["items"]
        assert (entry["action"], entry["details"]["reason"]) == (action, "the database moves")


async def test_the_banner_speaks_chinese_too(quick_api: Api):
    await quick_api.good("POST", "/pause", {"reason": "x"})
    text = await get(quick_api, "/", "zh")
    assert "全部已暂停。" in text
    assert "Everything is paused" not in text
