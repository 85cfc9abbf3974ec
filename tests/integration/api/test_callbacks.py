"""Callbacks over HTTP: by token and by ids; early, repeated, late, forged, and for the wrong task."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time

import pytest

from integration.api.serving import JOB, Api, serving
from noonbell.model.run import Lease
from noonbell.settings import CallbackSettings
from noonbell.targets.http.signing import sign


async def sent(api: Api, **fields) -> Lease:
    """A run of an ASYNC task whose first request is under way."""
    if await api.store.task_named("a") is None:
        await api.create(exec_type="ASYNC", max_concurrency=None, **fields)
    await api.trigger("name:a")
    return await api.claim()


async def parked(api: Api, **fields) -> Lease:
    lease = await sent(api, **fields)
    await api.park(lease)
    return lease


async def records(api: Api, run_id: int) -> list[tuple[str, str | None]]:
    found = (await api.good("GET", f"/runs/{run_id}/callbacks"))["items"]
    return [(each["status"], each["reason"]) for each in found]


async def test_a_callback_by_token_ends_the_run(api_everywhere: Api):
    api = api_everywhere
    lease = await parked(api)
    body = {"status": "SUCCESS", "data": {"rows": 3}, "error_message": ""}
    told = await api.good("POST", f"/callbacks/{lease.callback_token}", body)
    assert told == {"run_id": lease.run_id, "final_status": "SUCCESS"}
    run = await api.good("GET", f"/runs/{lease.run_id}")
    assert (run["status"], run["final_status"], run["result"]) == ("CALLBACK_SUCCESS", "SUCCESS", {"rows": 3})
    assert await records(api, lease.run_id) == [("RECEIVED", None)]


async def test_a_callback_may_say_that_it_failed(api: Api):
    lease = await parked(api)
    body = {"status": "FAILED", "error_message": "no disk"}
    told = await api.good("POST", f"/callbacks/{lease.callback_token}", body)
    assert told == {"run_id": lease.run_id, "final_status": "FAILED"}
    run = await api.good("GET", f"/runs/{lease.run_id}")
    assert (run["status"], run["error_message"]) == ("FAILED", "no disk")


async def test_a_failed_callback_is_retried_where_the_policy_says_so(api: Api):
    lease = await parked(api, retry_policy={"max_retries": 1, "retry_on": ["callback_failed"]})
    told = await api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "FAILED"})
    assert told == {"run_id": lease.run_id, "final_status": None}
    assert (await api.good("GET", f"/runs/{lease.run_id}"))["status"] == "RETRYING"


async def test_a_callback_by_ids_ends_the_run(api_everywhere: Api):
    api = api_everywhere
    lease = await parked(api)
    body = {"task_id": lease.task_id, "run_id": lease.run_id, "status": "SUCCESS", "data": {}, "error_message": ""}
    assert await api.good("POST", "/callbacks", body) == {"run_id": lease.run_id, "final_status": "SUCCESS"}


async def test_a_callback_before_the_first_request_has_returned_is_heard(api: Api):
    """F23."""
    lease = await sent(api)
    told = await api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "SUCCESS"})
    assert told["final_status"] == "SUCCESS"
    await api.park(lease)
    assert (await api.good("GET", f"/runs/{lease.run_id}"))["status"] == "CALLBACK_SUCCESS"


async def test_a_repeated_callback_changes_nothing_and_is_recorded(api_everywhere: Api):
    """F21."""
    api = api_everywhere
    lease = await parked(api)
    path = f"/callbacks/{lease.callback_token}"
    first = await api.call("POST", path, {"status": "SUCCESS", "data": 1})
    again = await api.call("POST", path, {"status": "FAILED", "data": 2})
    assert (again.status, again.body) == (200, first.body)
    assert (await api.good("GET", f"/runs/{lease.run_id}"))["result"] == 1
    said = await records(api, lease.run_id)
    assert [status for status, _ in said] == ["IGNORED", "RECEIVED"]
    assert "already" in said[0][1]


async def test_a_late_callback_is_told_the_standing_status(api: Api):
    """F22, as SPEC has it: 200 with what is stored."""
    lease = await parked(api)
    await api.good("POST", f"/runs/{lease.run_id}/cancel")
    told = await api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "SUCCESS"})
    assert told == {"run_id": lease.run_id, "final_status": "CANCELED"}
    assert (await records(api, lease.run_id))[0][0] == "IGNORED"


@pytest.mark.parametrize("token", ["x", "0" * 43, "../../x", "' OR 1=1 --", "x" * 5_000, "%F0%9F%94%94", "name:a"])
async def test_a_forged_token_finds_nothing_and_is_seen_by_operators(api_everywhere: Api, token):
    """F24."""
    from urllib.parse import quote

    await parked(api_everywhere)
    path = f"/callbacks/{quote(token, safe='%')}"
    assert await api_everywhere.bad("POST", path, {"status": "SUCCESS"}) == (404, "NOT_FOUND")
    (seen,) = (await api_everywhere.good("GET", "/callbacks"))["items"]
    assert (seen["status"], seen["reason"], seen["run_id"]) == ("IGNORED", "unknown token", None)


async def test_a_run_of_another_task_and_no_run_look_the_same(api: Api):
    """S28: foreign or unknown, the answer does not tell."""
    lease = await parked(api)
    await api.create(name="b")
    told = [
        await api.call("POST", "/callbacks", {"task_id": task, "run_id": run, "status": "SUCCESS"})
        for task, run in ((2, lease.run_id), (1, 424242), (99, lease.run_id))
    ]
    assert {(each.status, each.body["code"], each.body["message"]) for each in told} == {
        (404, "NOT_FOUND", "there is no run for this callback")
    }
    assert (await api.good("GET", f"/runs/{lease.run_id}"))["status"] == "CALLBACK_PENDING"
    assert len((await api.good("GET", "/callbacks"))["items"]) == 3


async def test_a_token_speaks_for_its_own_run_only(api: Api):
    """S17: the token of A cannot be turned on B."""
    one, other = await parked(api), await parked(api)
    body = {"status": "SUCCESS", "run_id": other.run_id, "task_id": other.task_id}
    told = await api.good("POST", f"/callbacks/{one.callback_token}", body)
    assert told["run_id"] == one.run_id
    assert (await api.good("GET", f"/runs/{other.run_id}"))["status"] == "CALLBACK_PENDING"


async def test_a_callback_token_has_256_bits_and_no_two_are_the_same(api: Api):
    """S17: 43 letters of base64 behind the moment at which it was made."""
    tokens = {str((await parked(api)).callback_token).partition(".")[2] for _ in range(5)}
    assert len(tokens) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in tokens)


async def test_the_token_is_in_no_answer(api_everywhere: Api):
    """S17."""
    api = api_everywhere
    lease = await parked(api)
    await api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "SUCCESS"})
    paths = ["/tasks", "/tasks/1", "/tasks/1/runs", "/runs", "/callbacks", "/stats", "//metrics", "/readyz"]
    paths += [f"/runs/{lease.run_id}{more}" for more in ("", "/attempts", "/log", "/callbacks")]
    for path in paths:
        assert str(lease.callback_token) not in (await api.call("GET", path)).text, path


async def test_not_done_yet_moves_the_deadline(api_everywhere: Api):
    api = api_everywhere
    lease = await sent(api, callback_timeout_sec=3_600)
    await api.park(lease, seconds=5)
    before = (await api.good("GET", f"/runs/{lease.run_id}"))["callback_deadline"]
    body = {"status": "RUNNING", "progress": {"current": 3, "total": 10}}
    told = await api.good("POST", f"/callbacks/{lease.callback_token}", body)
    assert told == {"run_id": lease.run_id, "final_status": None}
    run = await api.good("GET", f"/runs/{lease.run_id}")
    assert (run["status"], run["callback_deadline"] > before) == ("CALLBACK_PENDING", True)
    assert run["progress"] == body["progress"]


@pytest.mark.parametrize("kind", ["SYNC", "JOB"])
async def test_two_numbers_do_not_end_a_run_that_awaits_no_callback(api: Api, kind):
    fields = JOB if kind == "JOB" else {"name": "a", "target_url": "http://127.0.0.1:9/"}
    await api.good("POST", "/tasks", fields, 201)
    run_id = await api.trigger(1)
    body = {"task_id": 1, "run_id": run_id, "status": "SUCCESS"}
    assert await api.bad("POST", "/callbacks", body) == (409, "INVALID_STATE")
    lease = await api.claim("default" if kind == "JOB" else "http")
    assert await api.bad("POST", "/callbacks", body) == (409, "INVALID_STATE")
    assert (await api.good("GET", f"/runs/{run_id}"))["status"] == "RUNNING"
    await api.retry(lease)
    assert await api.bad("POST", "/callbacks", body) == (409, "INVALID_STATE")
    assert (await api.good("GET", f"/runs/{run_id}"))["status"] == "RETRYING"
    assert [status for status, _ in await records(api, run_id)] == ["IGNORED"] * 3


async def test_a_retried_run_is_ended_by_the_token_of_an_earlier_attempt(api: Api):
    policy = {"max_retries": 1, "initial_delay": 0, "retry_on": ["callback_failed"]}
    first = await parked(api, retry_policy=policy)
    await api.good("POST", f"/callbacks/{first.callback_token}", {"status": "FAILED"})
    await api.store.promote(10)
    second = await api.claim()
    await api.park(second)
    told = await api.good("POST", f"/callbacks/{first.callback_token}", {"status": "SUCCESS"})
    assert told == {"run_id": first.run_id, "final_status": "SUCCESS"}


async def test_a_callback_that_is_not_taken_says_so(api: Api):
    """What was never sent out cannot be done; the caller may come again."""
    await api.create(exec_type="ASYNC")
    run_id = await api.trigger(1)
    body = {"task_id": 1, "run_id": run_id, "status": "SUCCESS"}
    assert await api.bad("POST", "/callbacks", body) == (409, "INVALID_STATE")
    assert (await api.good("GET", f"/runs/{run_id}"))["status"] == "SCHEDULED"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_ARGUMENT"),
        ({"status": "success"}, "INVALID_ARGUMENT"),
        ({"status": 1}, "INVALID_ARGUMENT"),
        ([1], "INVALID_ARGUMENT"),
    ],
)
async def test_a_callback_without_a_status_is_refused(quick_api: Api, body, code):
    lease = await parked(quick_api)
    assert await quick_api.bad("POST", f"/callbacks/{lease.callback_token}", body) == (400, code)
    assert await quick_api.bad("POST", "/callbacks", body) == (400, code)


async def test_what_a_target_adds_does_not_cost_it_its_result(api_everywhere: Api):
    lease = await parked(api_everywhere)
    body = {"status": "SUCCESS", "finished": "2026", "error_message": ["odd\x00", "x" * 100_000], "data": "\x00"}
    told = await api_everywhere.good("POST", f"/callbacks/{lease.callback_token}", body)
    assert told["final_status"] == "SUCCESS"


async def test_a_large_result_is_kept_whole(api_everywhere: Api):
    lease = await parked(api_everywhere)
    data = "é" * 500_000
    body = {"status": "SUCCESS", "data": data}
    told = await api_everywhere.good(
        "POST",
        f"/callbacks/{lease.callback_token}",
        data=io.BytesIO(json.dumps(body, ensure_ascii=False).encode()),
        headers={"Content-Type": "application/json"},
    )
    assert told["final_status"] == "SUCCESS"
    assert (await api_everywhere.good("GET", f"/runs/{lease.run_id}"))["result"] == data


async def test_the_headers_of_a_callback_are_kept_without_secrets(api: Api):
    lease = await parked(api)
    headers = {"Authorization": "Bearer canary", "X-Request-Id": "7"}
    await api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "SUCCESS"}, headers=headers)
    (seen,) = (await api.good("GET", f"/runs/{lease.run_id}/callbacks"))["items"]
    assert (seen["headers"]["x-request-id"], seen["headers"]["authorization"]) == ("7", "***")
    assert seen["body"] == '{"status": "SUCCESS"}'


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_target_may_call_back_by_another_method(quick_api: Api, method):
    lease = await parked(quick_api, callback_method=method)
    assert (await quick_api.good(method, f"/callbacks/{lease.callback_token}", {"status": "SUCCESS"}))["run_id"]


async def test_calling_back_by_ids_can_be_switched_off():
    async with serving("memory://", callback=CallbackSettings(allow_id_mode=False)) as api:
        lease = await parked(api)
        body = {"task_id": lease.task_id, "run_id": lease.run_id, "status": "SUCCESS"}
        assert await api.bad("POST", "/callbacks", body) == (403, "FORBIDDEN")
        assert (await api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "SUCCESS"}))["run_id"]


async def test_of_many_callbacks_at_once_one_is_heard(api_everywhere: Api):
    api = api_everywhere
    lease = await parked(api)
    path = f"/callbacks/{lease.callback_token}"
    told = await asyncio.gather(*(api.call("POST", path, {"status": "SUCCESS", "data": n}) for n in range(10)))
    assert {each.status for each in told} == {200}
    said = [status for status, _ in await records(api, lease.run_id)]
    assert sorted(said) == ["IGNORED"] * 9 + ["RECEIVED"]


async def test_the_token_of_an_earlier_attempt_is_good_for_the_time_of_the_settings():
    async with serving("memory://", callback=CallbackSettings(token_ttl=1.0)) as api:
        old = await sent(api, timeout_seconds=0.1, callback_timeout_sec=1)
        await api.retry(old, 0)
        new = await api.claim()
        await api.park(new)
        async with asyncio.timeout(60):
            while True:
                told = await api.call("POST", f"/callbacks/{old.callback_token}", {"status": "RUNNING"})
                if told.status != 200:
                    break
                await asyncio.sleep(0.05)
        assert (told.status, told.code) == (409, "INVALID_STATE")
        reason = "the token is of an earlier attempt and older than callback.token_ttl"
        assert (await records(api, old.run_id))[0] == ("IGNORED", reason)
        answer = await api.good("POST", f"/callbacks/{new.callback_token}", {"status": "SUCCESS"})
        assert answer["final_status"] == "SUCCESS"


# Signed ones


async def call_signed(api: Api, lease: Lease, secret: str):
    content = b'{"status": "SUCCESS"}'
    headers = {"Content-Type": "application/json", **sign(secret, f"run_{lease.run_id}", int(time.time()), content)}
    return await api.call("POST", f"/callbacks/{lease.callback_token}", data=content, headers=headers)


async def test_a_signature_that_is_wrong_is_refused_with_its_reason_and_the_right_one_is_heard(api_everywhere: Api):
    lease = await parked(api_everywhere, secret="old-secret new-secret")
    told = await call_signed(api_everywhere, lease, "another-secret")
    assert (told.status, told.code) == (409, "INVALID_STATE")
    ((status, reason),) = await records(api_everywhere, lease.run_id)
    assert status == "IGNORED"
    assert reason is not None
    assert reason.startswith("its signature does not match")
    assert (await api_everywhere.good("GET", f"/runs/{lease.run_id}"))["status"] == "CALLBACK_PENDING"
    assert (await call_signed(api_everywhere, lease, "new-secret")).status == 200
    assert (await api_everywhere.good("GET", f"/runs/{lease.run_id}"))["status"] == "CALLBACK_SUCCESS"


async def test_an_old_signature_of_a_callback_is_refused(api: Api):
    """S37: right in every byte, and made more than five minutes ago."""
    lease, content = await parked(api, secret="the-secret"), b'{"status": "SUCCESS"}'
    headers = sign("the-secret", f"run_{lease.run_id}", int(time.time()) - 400, content)
    told = await api.call("POST", f"/callbacks/{lease.callback_token}", data=content, headers=headers)
    assert (told.status, told.code) == (409, "INVALID_STATE")
    assert (await api.good("GET", f"/runs/{lease.run_id}"))["status"] == "CALLBACK_PENDING"
    assert (await call_signed(api, lease, "the-secret")).status == 200


async def test_where_a_task_has_no_secret_a_signature_says_nothing(api: Api):
    assert (await call_signed(api, await parked(api), "whatever")).status == 200


@pytest.mark.parametrize("required", [False, True])
async def test_a_callback_that_is_not_signed_is_heard_unless_signatures_are_required(required):
    async with serving("memory://", callback=CallbackSettings(require_signature=required)) as api:
        lease = await parked(api, secret="the-secret")
        told = await api.call("POST", f"/callbacks/{lease.callback_token}", {"status": "SUCCESS"})
        assert told.status == (409 if required else 200)
        assert (await call_signed(api, lease, "the-secret")).status == 200


async def test_a_forged_token_is_refused_before_its_body_is_read(api: Api):
    """8 MiB are announced and 64 KiB are sent: the answer does not wait for the rest, and nothing of it is kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(b"POST /api/v1/callbacks/forged HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8388608\r\n\r\n")
    writer.write(b"[" * 65_536)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    writer.close()
    assert head.startswith(b"HTTP/1.1 404 ")
    (seen,) = (await api.good("GET", "/callbacks"))["items"]
    assert (seen["reason"], seen["body"]) == ("unknown token", "")


async def test_what_is_no_json_with_a_forged_token_is_not_found(api: Api):
    assert await api.bad("POST", "/callbacks/forged", data=b"[[[") == (404, "NOT_FOUND")
    assert await api.bad("POST", "/callbacks/forged") == (404, "NOT_FOUND")


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_callback_has_at_most_a_mebibyte(api: Api, says_so):
    lease = await parked(api)
    body = json.dumps({"status": "SUCCESS", "data": "x" * 1_048_576}).encode()

    async def pieces():
        yield body

    async with api.session.post(
        f"{api.root}/api/v1/callbacks/{lease.callback_token}", data=io.BytesIO(body) if says_so else pieces()
    ) as response:
        assert (response.status, (await response.json())["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert await api.bad("POST", "/callbacks", data=io.BytesIO(body)) == (413, "PAYLOAD_TOO_LARGE")
    assert await records(api, lease.run_id) == []


async def test_of_what_a_final_run_ignores_the_newest_ten_are_kept(api_everywhere: Api):
    api = api_everywhere
    lease = await parked(api)
    path = f"/callbacks/{lease.callback_token}"
    for number in range(15):
        await api.good("POST", path, {"status": "SUCCESS", "data": number})
    found = (await api.good("GET", f"/runs/{lease.run_id}/callbacks"))["items"]
    assert [each["status"] for each in found] == ["IGNORED"] * 10 + ["RECEIVED"]
    assert [json.loads(each["body"])["data"] for each in found] == [*range(14, 4, -1), 0]
