"""S15: how often a good token may call, where `auth.calls_per_minute` says so."""

from __future__ import annotations

import pytest

from integration.api.serving import JOB, Api, serving
from integration.web.asking import HTML, signed_in
from noonbell.errors import RateLimited
from noonbell.model.access import Role
from noonbell.service.access import CallRate
from noonbell.settings import AuthSettings

ONE = {"auth": AuthSettings(enabled=True, session_key="k" * 32, calls_per_minute=1)}


async def bearer(api: Api, name: str, role: Role = Role.OPERATOR) -> dict[str, str]:
    _, secret = await api.parts.access.create(name, role)
    return {"Authorization": f"Bearer {secret}"}


class Watch:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def taken(rate: CallRate, times: int, token_id: int = 1) -> int:
    """How many of so many calls are not refused."""
    good = 0
    for _ in range(times):
        try:
            rate.count(token_id)
        except RateLimited:
            continue
        good += 1
    return good


def test_a_minute_has_as_many_calls_as_the_limit_and_they_come_back_evenly():
    watch = Watch()
    rate = CallRate(30, watch)
    assert taken(rate, 100) == 30
    watch.seconds += 1.9
    assert taken(rate, 1) == 0
    watch.seconds += 0.2
    assert taken(rate, 5) == 1
    watch.seconds += 3_600
    assert taken(rate, 100) == 30


def test_each_token_has_its_own_count_and_without_a_limit_none_has():
    rate = CallRate(2, Watch())
    assert [taken(rate, 5, token) for token in (1, 2, 1)] == [2, 2, 0]
    assert taken(CallRate(None, Watch()), 1_000) == 1_000


def test_the_wait_that_is_told_is_long_enough():
    watch = Watch()
    rate = CallRate(7, watch)
    assert taken(rate, 7) == 7
    with pytest.raises(RateLimited) as caught:
        rate.count(1)
    watch.seconds += caught.value.details["retry_after"]
    assert taken(rate, 1) == 1


async def test_a_token_beyond_its_limit_waits_and_no_other_does():
    async with serving("memory://", **ONE) as api:
        busy, other = await bearer(api, "busy"), await bearer(api, "other")
        await api.good("GET", "/tasks", headers=busy)
        told = await api.call("POST", "/tasks", JOB, headers=busy)
        assert (told.status, told.code) == (429, "RATE_LIMITED")
        assert 1 <= int(told.headers["retry-after"]) <= 60
        assert (await api.good("GET", "/tasks", headers=other))["total"] == 0


async def test_pages_of_a_session_count_for_its_token():
    async with serving("memory://", **ONE) as api:
        cookie = await signed_in(api)
        sent = {**cookie, **HTML, "Accept-Language": "zh"}
        assert (await api.call("GET", "//tasks", headers=sent)).status == 200
        told = await api.call("GET", "//tasks", headers=sent)
        assert (told.status, "此令牌这一分钟的调用次数已用完" in told.text) == (429, True)
        assert (await api.call("GET", "/tasks", headers=cookie)).status == 429


async def test_what_a_worker_reports_is_not_counted():
    async with serving("memory://", **ONE) as api:
        await api.good("POST", "/tasks", JOB, 201, headers=await bearer(api, "one"))
        await api.good("POST", "/tasks/1/trigger", headers=await bearer(api, "two"))
        worker, claim = await bearer(api, "w"), {"queues": ["default"], "wait_seconds": 0}
        (run,) = (await api.good("POST", "/workers/w/claim", claim, headers=worker))["runs"]
        assert (await api.call("POST", "/workers/w/claim", claim, headers=worker)).status == 429
        held = {"worker_id": "w", "token": run["token"]}
        beats = {"runs": [{"run_id": run["run_id"], "token": run["token"]}]}
        await api.good("POST", "/workers/w/heartbeat", beats, headers=worker)
        for verb, more in (
            ("progress", {"current": 1}),
            ("log", {"message": "x"}),
            ("extend", {"seconds": 60}),
            ("settle", {"outcome": "success"}),
        ):
            await api.good("POST", f"/runs/{run['run_id']}/{verb}", {**held, **more}, headers=worker)


async def test_by_default_there_is_no_limit():
    async with serving("memory://", auth=AuthSettings(enabled=True)) as api:
        headers = await bearer(api, "busy")
        assert {(await api.call("GET", "/tasks", headers=headers)).status for _ in range(200)} == {200}
