"""Limits per key over HTTP and on the dashboard: what is refused, what a publisher may name, and what is told of who waits."""

from __future__ import annotations

from typing import Any

import pytest

from integration.api.serving import JOB, Api
from noonbell.model.request import ClaimRequest
from noonbell.model.worker import WorkerInfo


async def keyed(api: Api, **fields: Any) -> int:
    task = {**JOB, "name": "import", "concurrency_key": "payload.tenant", **fields}
    return int((await api.good("POST", "/tasks", task, 201))["id"])


async def under_way(api: Api) -> list[int]:
    claimed = await api.store.claim(ClaimRequest(worker_id="w", queues=("default",), max=100))
    return [int(lease.run_id) for lease in claimed.leases]


@pytest.mark.parametrize(
    "path", ["tenant", "payload", "payload.", "payload.a b", "steps.a.result", "$.tenant", "payload.a +"]
)
async def test_a_key_that_is_no_field_of_the_payload_is_refused(quick_api: Api, path: str):
    answer = await quick_api.call("POST", "/tasks", {**JOB, "name": "x", "concurrency_key": path})
    assert answer.status == 400
    assert "a field of the payload, such as payload.tenant" in answer.body["details"]["concurrency_key"]


async def test_a_task_shows_its_key_and_a_change_of_it(api_everywhere: Api):
    api = api_everywhere
    task = await keyed(api, max_per_key=3)
    shown = await api.good("GET", f"/tasks/{task}")
    assert (shown["concurrency_key"], shown["max_per_key"]) == ("payload.tenant", 3)
    await api.good("PATCH", f"/tasks/{task}", {"concurrency_key": None, "max_per_key": 1})
    shown = await api.good("GET", f"/tasks/{task}")
    assert (shown["concurrency_key"], shown["max_per_key"]) == (None, 1)


async def test_the_keys_of_a_task_say_who_waits_and_explain_says_it_of_a_run(quick_api: Api):
    api = quick_api
    task = await keyed(api)
    runs = [{"task": task, "payload": {"tenant": tenant}} for tenant in ("acme", "acme", "acme", "other")]
    published = [each["run_id"] for each in (await api.good("POST", "/runs/batch", {"runs": runs}))["runs"]]
    assert await under_way(api) == [published[0], published[3]]
    (line,) = (await api.good("GET", f"/tasks/{task}/keys"))["items"]
    assert line.pop("oldest_at").endswith("Z")
    assert line == {
        "key": "acme",
        "max_per_key": 1,
        "running": 1,
        "waiting": 2,
        "next_run_id": published[1],
        "blocking_run_id": published[0],
    }
    await api.store.register_worker(WorkerInfo(id="w", incarnation="a"))
    told = await api.good("GET", f"/runs/{published[2]}/explain")
    assert told["cause"] == "key_full"
    assert told["message"] == f"Run {published[2]} waits for its key acme: 1 of 1 running, 1 ahead of it."
    assert told["blocking_run_id"] == published[0]
    assert told["policy"] == {"concurrency_key": "payload.tenant", "max_per_key": 1}


async def test_a_publisher_names_the_key_and_a_retry_of_the_run_has_it(quick_api: Api):
    api = quick_api
    task = int((await api.good("POST", "/tasks", {**JOB, "name": "free"}, 201))["id"])
    first, second = [
        (await api.good("POST", f"/tasks/{task}/trigger", {"concurrency_key": "acme"}))["run_id"] for _ in range(2)
    ]
    assert await under_way(api) == [first]
    await api.good("POST", f"/runs/{first}/cancel")
    assert await under_way(api) == [second]
    again = (await api.good("POST", f"/runs/{first}/retry"))["run_id"]
    assert await under_way(api) == []
    await api.good("POST", f"/runs/{second}/cancel")
    assert await under_way(api) == [again]


async def test_the_page_of_a_task_lists_the_keys_that_wait(quick_api: Api):
    api = quick_api
    task = await keyed(api)
    for _ in range(3):
        await api.good("POST", f"/tasks/{task}/trigger", {"payload": {"tenant": "<acme>"}})
    await under_way(api)
    for lang, words in (("en", "Waiting keys"), ("zh", "等待中的键")):
        page = await api.call("GET", f"//tasks/{task}", headers={"accept": "text/html", "accept-language": lang})
        assert words in page.text
        assert "&lt;acme&gt;" in page.text
