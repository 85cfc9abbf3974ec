"""Lists over HTTP stay short however long results, bodies and callbacks are, and the whole text has an address."""

from __future__ import annotations

from typing import Any

from integration.api.serving import JOB, Api
from noonbell.model.request import MOST_LISTED
from noonbell.model.run import RunBodies

COUNT = 20
LONG = "x" * (MOST_LISTED // COUNT + 1)
"""One byte more than a field may have in a list of COUNT."""
MOST_REST = 2_000 * COUNT
"""Bytes of an answer whose long fields are left out."""


async def listed(api: Api, path: str) -> tuple[dict[str, Any], int]:
    """The answer, and its bytes."""
    told = await api.call("GET", path)
    assert told.status == 200, told.text
    return told.body, len(told.text.encode())


async def test_attempts_with_large_bodies_are_listed_without_them_and_read_one_by_one(api_everywhere: Api):
    api = api_everywhere
    await api.create()
    run_id = await api.trigger(1)
    bodies = RunBodies(request_body=LONG, response_body=LONG, response_headers={"ETag": "2"})
    for _ in range(COUNT - 1):
        await api.retry(await api.claim(), 0, bodies=bodies, result=LONG)
    await api.finish(await api.claim(), "FAILED", bodies=bodies, error_details={"kind": "x", "text": LONG})

    answer, size = await listed(api, f"/runs/{run_id}/attempts")
    assert size < MOST_REST
    assert "next_after" not in answer
    assert [each["attempt"] for each in answer["items"]] == list(range(1, COUNT + 1))
    first, last = answer["items"][0], answer["items"][-1]
    assert first["omitted"] == {"result": len(LONG) + 2, "request_body": len(LONG), "response_body": len(LONG)}
    assert (first["result"], first["request_body"], first["response_body"]) == (None, None, None)
    assert first["response_headers"] == {"ETag": "2"}
    assert set(last["omitted"]) == {"error_details", "request_body", "response_body"}

    answer, _ = await listed(api, f"/runs/{run_id}/attempts?after=6&limit=1")
    (seventh,) = answer["items"]
    assert (seventh["attempt"], answer["next_after"]) == (7, 7)
    assert (seventh["result"], seventh["request_body"], seventh["response_body"]) == (LONG, LONG, LONG)
    assert "omitted" not in seventh
    run = await api.good("GET", f"/runs/{run_id}")
    assert (run["response_body"], run["error_details"]["text"]) == (LONG, LONG)
    assert "omitted" not in run


async def test_attempts_are_paged(api: Api):
    await api.create()
    run_id = await api.trigger(1)
    for number in range(5):
        await api.retry(await api.claim(), 0, bodies=RunBodies(response_body=f"{number}"))
    seen, after = [], 0
    while after is not None:
        page = await api.good("GET", f"/runs/{run_id}/attempts?after={after}&limit=2")
        seen.append([(each["attempt"], each["response_body"]) for each in page["items"]])
        after = page.get("next_after")
    assert seen == [[(1, "0"), (2, "1")], [(3, "2"), (4, "3")], [(5, "4")]]
    for wrong in ("limit=0", "limit=1001", "after=-1", "after=x"):
        assert await api.bad("GET", f"/runs/{run_id}/attempts?{wrong}") == (400, "INVALID_ARGUMENT")


async def test_large_callbacks_are_listed_without_their_bodies_and_read_one_by_one(api_everywhere: Api):
    api = api_everywhere
    await api.create(exec_type="ASYNC", callback_timeout_sec=300)
    run_id = await api.trigger(1)
    lease = await api.claim()
    await api.park(lease)
    for _ in range(COUNT):
        await api.good("POST", f"/callbacks/{lease.callback_token}", {"status": "RUNNING", "data": LONG})

    answer, size = await listed(api, f"/runs/{run_id}/callbacks")
    assert size < MOST_REST
    assert len(answer["items"]) == COUNT
    assert all(each["body"] == "" and each["omitted"]["body"] > len(LONG) for each in answer["items"])
    wanted = answer["items"][7]
    answer, _ = await listed(api, f"/runs/{run_id}/callbacks?limit=1&before={wanted['id'] + 1}")
    (alone,) = answer["items"]
    assert alone["id"] == wanted["id"]
    assert LONG in alone["body"]
    assert len(alone["body"].encode()) == wanted["omitted"]["body"]
    assert "omitted" not in alone
    assert await api.bad("GET", f"/runs/{run_id}/callbacks?before=0") == (400, "INVALID_ARGUMENT")


async def test_large_results_are_left_out_of_every_list_of_runs(api_everywhere: Api):
    api = api_everywhere
    await api.good("POST", "/tasks", JOB, 201)
    for _ in range(COUNT):
        await api.trigger(1)
        await api.finish(await api.claim("default"), "SUCCESS", result={"text": LONG})
    for path in ("/runs", "/tasks/1/runs", "//api/jobs/1/executions"):
        answer, size = await listed(api, f"{path}?page_size={COUNT}")
        assert size < MOST_REST, path
        assert [each["result"] for each in answer["items"]] == [None] * COUNT, path
        assert all(each["omitted"] == {"result": len(LONG) + len('{"text":""}')} for each in answer["items"]), path
    run = await api.good("GET", f"/runs/{answer['items'][0]['id']}")
    assert run["result"] == {"text": LONG}


async def test_what_a_list_has_room_for_is_there(api: Api):
    await api.create()
    run_id = await api.trigger(1)
    for _ in range(COUNT):
        await api.retry(await api.claim(), 0, bodies=RunBodies(response_body=LONG[1:]))
    answer, size = await listed(api, f"/runs/{run_id}/attempts")
    assert {each["response_body"] for each in answer["items"]} == {LONG[1:]}
    assert not any("omitted" in each for each in answer["items"])
    assert size < MOST_LISTED + MOST_REST
