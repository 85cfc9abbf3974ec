"""The pages of flows over real HTTP: the graph, the table beside it, time, the critical path; again from a step."""

from __future__ import annotations

import re
from typing import Any

from integration.api.serving import Api
from integration.web.asking import get, post, signed_in, status_of
from noonbell.model.failure_text import failure_text, said_by
from noonbell.model.request import ClaimRequest
from noonbell.model.run import RunBodies

STEPS: list[dict[str, Any]] = [
    {"id": "extract", "target_url": "http://127.0.0.1:9/x"},
    {"id": "parts", "needs": ["extract"], "foreach": [1, 2], "target_url": "http://127.0.0.1:9/{{ item }}"},
    {"id": "audit", "needs": ["extract"], "when": "1 > 2", "target_url": "http://127.0.0.1:9/a"},
    {"id": "load", "needs": ["parts"], "target_url": "http://127.0.0.1:9/l"},
    {"id": "page", "needs": ["load"], "on": "failure", "target_url": "http://127.0.0.1:9/p"},
]


async def flow(api: Api, steps: list[dict[str, Any]] = STEPS) -> tuple[int, int]:
    """The task, and a run of it that waits."""
    task = await api.create(name="nightly", target_url=None, steps=steps)
    return task, await api.trigger(task)


async def step(api: Api, status: str = "SUCCESS", **more: Any) -> None:
    """Carry out the next run of a step."""
    for _ in range(2):  # the first claim may start the flow
        claimed = await api.store.claim(ClaimRequest(worker_id="w1", queues=("http",), max=1))
        if claimed.leases:
            await api.finish(claimed.leases[0], status, **more)
            return
    raise AssertionError("no step waits")


def graph(text: str) -> dict[str, str]:
    """What the boxes of the graph say, by step."""
    found = re.search(r'<svg class="graph".*?</svg>', text, re.DOTALL)
    assert found is not None
    names = re.findall(r'class="step-name"[^>]*>(.*?)</text>', found[0])
    said = re.findall(r'class="step-says"[^>]*>(.*?)</text>', found[0])
    return dict(zip(names, said, strict=True))


async def test_a_flow_is_shown_before_it_starts_while_it_runs_and_when_it_is_over(everywhere):
    api = everywhere
    task, run = await flow(api)
    for lang in ("en", "zh"):
        await get(api, f"/tasks/{task}", lang)
        await get(api, f"/runs/{run}", lang)
    assert set(graph(await get(api, f"/runs/{run}")).values()) == {"Waiting"}
    await step(api)
    shown = graph(await get(api, f"/runs/{run}"))
    assert shown["extract"].startswith("Succeeded")
    assert shown["parts"] == "Running · 0/2"
    assert shown["audit"] == "Skipped"
    assert shown["load"] == "Waiting"
    await step(api)
    await step(api)
    await step(api, "FAILED", error_message="disk full")
    await step(api)
    text = await get(api, f"/runs/{run}")
    shown = graph(text)
    assert shown["parts"] == "Succeeded · 2/2"
    assert shown["load"].startswith("Failed")
    assert shown["page"].startswith("Succeeded")
    assert "Its condition was false." in text
    assert "disk full" in row(text, "load")
    assert "Critical path" in text
    for lang in ("en", "zh"):
        await get(api, f"/runs/{run}", lang)
    steps = {each["id"]: each for each in (await api.good("GET", f"/runs/{run}/graph"))["steps"]}
    load = await get(api, f"/runs/{steps['load']['run_id']}")
    assert f"step load of {run}" in load
    assert "http://127.0.0.1:9/l" in load
    assert "/replay" not in load
    assert await status_of(api, f"/runs/{steps['load']['run_id']}/replay") == 409
    items = await api.good("GET", f"/runs?parent_id={run}")
    item = next(each for each in items["items"] if each["item_index"] == 1)
    assert f"step parts, item 1 of {run}" in await get(api, f"/runs/{item['id']}")


def row(text: str, name: str) -> str:
    """What the table says of a step."""
    found = re.search(rf'<tr data-row="{name}".*?</tr>', text, re.DOTALL)
    assert found is not None, name
    return found[0]


async def failed(api: Api) -> tuple[int, int]:
    """The task, and a run of it that failed in `load`."""
    task, run = await flow(api)
    for status in ("SUCCESS", "SUCCESS", "SUCCESS", "FAILED", "SUCCESS"):
        await step(api, status)
    return task, run


async def test_a_flow_is_run_again_from_the_step_that_is_chosen(api: Api):
    _, run = await failed(api)
    text = await get(api, f"/runs/{run}")
    assert 'name="from_step" value="parts"' in row(text, "parts")
    status, place, _ = await post(api, f"/runs/{run}/retry", {"from_step": "parts"})
    assert status == 303
    again = int(place.rpartition("/")[2])
    await step(api)
    text = await get(api, f"/runs/{again}")
    assert f"kept from run {run}" in row(text, "extract")
    assert "1 of 2 items" in row(text, "parts")
    assert 'name="from_step"' not in text  # it is not over


async def test_an_unknown_step_to_begin_with_is_refused(api: Api):
    _, run = await failed(api)
    status, _, text = await post(api, f"/runs/{run}/retry", {"from_step": "nobody"})
    assert status == 400
    assert "nobody" in text


async def test_somebody_who_may_only_look_has_no_button_to_run_it_again(guarded: Api):
    viewer, admin = await signed_in(guarded, "viewer"), await signed_in(guarded)
    _, secret = await guarded.parts.access.create("caller", "operator", queues=[])
    asking = {"authorization": f"Bearer {secret}"}
    task = (await guarded.call("POST", "/tasks", {"name": "n", "steps": STEPS}, headers=asking)).body["id"]
    run = (await guarded.call("POST", f"/tasks/{task}/trigger", headers=asking)).body["run_id"]
    assert (await guarded.call("POST", f"/runs/{run}/cancel", headers=asking)).status == 200
    assert 'name="from_step"' in await get(guarded, f"/runs/{run}", headers=admin)
    assert 'name="from_step"' not in await get(guarded, f"/runs/{run}", headers=viewer)


async def test_failed_items_lead_to_their_runs(api: Api):
    _, run = await flow(api)
    for status in ("SUCCESS", "SUCCESS", "FAILED"):
        await step(api, status)
    text = await get(api, f"/runs/{run}")
    assert "2 of 2 items" in row(text, "parts")
    assert f"parent_id={run}&step=parts&status=FAILED%2CTIMEOUT%2CFAILED_TIMEOUT" in row(text, "parts")
    assert "The steps before it did not end as required." in row(text, "load")


async def test_a_long_flow_is_shown_in_pages(api: Api):
    chain = [
        {"id": f"s{n}", "needs": [f"s{n - 1}"] if n else [], "target_url": "http://127.0.0.1:9/"} for n in range(130)
    ]
    task, run = await flow(api, chain)
    for place in (f"/runs/{run}", f"/tasks/{task}"):
        first, second = await get(api, place), await get(api, f"{place}?step=100")
        assert (len(graph(first)), len(graph(second))) == (100, 30)
        assert "Steps 1 to 100 of 130" in first
        assert "Steps 101 to 130 of 130" in second
        assert f"{place}?step=100" in first
        await get(api, f"{place}?step=nonsense")


async def test_the_page_of_a_task_shows_its_steps_and_what_they_call(api: Api):
    task, _ = await flow(api)
    text = await get(api, f"/tasks/{task}")
    assert set(graph(text)) == {each["id"] for each in STEPS}
    assert "http://127.0.0.1:9/{{ item }}" in row(text, "parts")
    assert "1 > 2" in row(text, "audit")
    assert "on failure" in row(text, "page")
    plain = await api.create(name="plain")
    assert 'class="graph"' not in await get(api, f"/tasks/{plain}")


async def test_a_wrong_step_is_said_at_its_box_and_what_was_typed_is_still_there(api: Api):
    sent = {"name": "n", "kind": "flow", "when": "none", "timezone": "UTC", "enabled": "on"}
    wrong = '[{"id": "a", "job_type": "j", "when": "1 <"}, {"id": "b", "job_type": "j", "needs": ["c"]}]'
    status, _, text = await post(api, "/tasks/new", {**sent, "steps": wrong})
    assert status == 400
    said = re.search(r'id="p-steps".*?</p>', text, re.DOTALL)
    assert said is not None
    assert "steps[1].needs: names 'c', which is not a step" in said[0]
    assert wrong in text
    for unreadable in ("[", "{}", "3", '["a"]'):
        assert (await post(api, "/tasks/new", {**sent, "steps": unreadable}))[0] == 400
    right = '[{"id": "a", "job_type": "j", "when": "1 < 2"}]'
    assert (await post(api, "/tasks/new", {**sent, "steps": right}))[0] == 303


async def test_a_flow_that_runs_says_that_its_task_was_changed_meanwhile(api: Api):
    task, run = await flow(api)
    await step(api)
    text = await get(api, f"/runs/{run}")
    assert "It is running: run" in text
    assert "on worker" not in text
    assert "by now" not in text
    await api.good("PATCH", f"/tasks/{task}", {"steps": STEPS[:2]})
    text = await get(api, f"/runs/{run}")
    assert "These are the steps of v1, the version this run started with. The task is now at v2." in text
    assert set(graph(text)) == {each["id"] for each in STEPS}


async def test_a_flow_that_was_canceled_says_what_a_retry_keeps(api: Api):
    _, run = await flow(api)
    await step(api)
    await api.good("POST", f"/runs/{run}/cancel")
    assert "keeps the results of the others" in await get(api, f"/runs/{run}")


async def test_items_that_failed_where_they_may_are_told_of(api: Api):
    steps = [{"id": "parts", "foreach": [1, 2], "target_url": "http://127.0.0.1:9/{{ item }}", "allow_failure": True}]
    _, run = await flow(api, steps)
    for status in ("SUCCESS", "FAILED"):
        await step(api, status)
    text = await get(api, f"/runs/{run}")
    assert "Failed items are allowed here." in row(text, "parts")
    assert re.search(r'class="mark-ok"[^>]*height="2"', text)
    assert re.search(r'class="mark-bad"[^>]*height="2"', text)


async def test_only_the_run_of_a_flow_has_a_graph_and_a_step_names_the_run_that_has_it(api: Api):
    _, run = await flow(api)
    await step(api)
    extract = (await api.good("GET", f"/runs/{run}/graph"))["steps"][0]["run_id"]
    answer = await api.call("GET", f"/runs/{extract}/graph")
    assert (answer.status, answer.body["code"]) == (409, "INVALID_STATE")
    assert answer.body["message"] == f"run {extract} is step 'extract' of run {run}: that run has the graph"
    plain = await api.trigger(await api.create())
    assert (await api.call("GET", f"/runs/{plain}/graph")).status == 409


async def test_the_steps_of_a_flow_that_was_skipped_are_skipped_and_not_canceled(api: Api):
    first = await api.create(name="first")
    task = await api.create(
        name="nightly", target_url=None, steps=STEPS, overlap_action="SKIP", after={"tasks": [{"task": "first"}]}
    )
    for _ in range(2):
        await api.trigger(first)
        claimed = await api.store.claim(ClaimRequest(worker_id="w1", queues=("http",), max=10))
        for lease in claimed.leases:
            if lease.task_id == first:
                await api.finish(lease, "SUCCESS")
    (skipped,) = (await api.good("GET", f"/tasks/{task}/runs?status=SKIPPED"))["items"]
    graph_of = await api.good("GET", f"/runs/{skipped['id']}/graph")
    assert {each["status"] for each in graph_of["steps"]} == {"SKIPPED"}
    assert set(graph(await get(api, f"/runs/{skipped['id']}")).values()) == {"Skipped"}


async def test_the_graph_says_why_a_step_failed(everywhere: Api):
    api = everywhere
    _, run = await flow(api)
    for status in ("SUCCESS", "SUCCESS", "SUCCESS"):
        await step(api, status)
    await step(api, "FAILED", error_message="disk full\nin detail")
    steps = {each["id"]: each for each in (await api.good("GET", f"/runs/{run}/graph"))["steps"]}
    assert {name: each["message"] for name, each in steps.items() if each["message"]} == {
        "load": "disk full\nin detail"
    }
    assert steps["load"]["reason"] is None


async def test_a_step_says_why_it_failed_however_many_runs_came_after_it(api: Api):
    steps = [
        {"id": "first", "target_url": "http://127.0.0.1:9/x", "allow_failure": True},
        {"id": "parts", "needs": ["first"], "foreach": list(range(210)), "target_url": "http://127.0.0.1:9/y"},
    ]
    _, run = await flow(api, steps)
    await step(api, "FAILED", error_message="disk full")
    assert len((await api.good("GET", f"/runs?parent_id={run}&page_size=1000"))["items"]) == 211
    assert "disk full" in row(await get(api, f"/runs/{run}"), "first")
    again = (await api.good("POST", f"/runs/{run}/cancel"), await api.good("POST", f"/runs/{run}/retry"))[1]["run_id"]
    await api.store.claim(ClaimRequest(worker_id="w1", queues=("http",), max=1))
    assert "disk full" in row(await get(api, f"/runs/{again}"), "first")  # a run of the flow before


async def test_a_run_that_was_canceled_says_so_in_the_readers_language(everywhere: Api):
    api = everywhere
    _, run = await flow(api, STEPS[:2])
    await step(api)
    await api.good("POST", f"/runs/{run}/cancel")
    (part, *_) = (await api.good("GET", f"/runs?parent_id={run}&step=parts"))["items"]
    for each in (run, part["id"]):
        text = await get(api, f"/runs/{each}", "zh")
        assert "已取消" in text
        assert not re.search(r">\s*canceled\s*<", text)


async def test_why_a_step_or_a_flow_failed_is_told_in_chinese(everywhere: Api):
    """The input of a step and its condition, which are found to be wrong when its turn comes; and an error of a run."""
    api = everywhere
    task = await api.create(
        name="inputs",
        target_url=None,
        steps=[
            {"id": "first", "target_url": "http://127.0.0.1:9/x"},
            {"id": "reads", "needs": ["first"], "payload": ["{{ steps.first.result.file }}"], "job_type": "j"},
            {"id": "asks", "needs": ["first"], "when": "steps.first.result < 3", "job_type": "j"},
            {
                "id": "each",
                "needs": ["first"],
                "foreach": "{{ steps.first.result.names }}",
                "job_type": "j",
                "payload": "{{ item.id }}",
            },
        ],
    )
    run = await api.trigger(task)
    await step(api, response_code=200, bodies=RunBodies(response_body='{"names": [{"id": 1}, "a"]}'))
    text = await get(api, f"/runs/{run}", "zh")
    assert "steps.first.result.file 不存在：steps.first.result 中没有 'file'；其中有 names" in row(text, "reads")
    assert "steps.first.result 是对象，3 是数字；< 只能比较两个数字或两段文本" in row(text, "asks")
    assert "第 1 项：item.id 不存在：item 是文本" in row(text, "each")
    await api.good("POST", f"/runs/{run}/cancel")

    two = [{"id": "load", "target_url": "http://127.0.0.1:9/x"}]
    _, run = await flow(api, two)
    why = failure_text("took_longer", seconds=3)
    await step(api, "TIMEOUT", error_message=str(why), error_details={"kind": "timeout", **said_by(why)})
    assert "步骤 load 失败：耗时超过 3 秒" in await get(api, f"/runs/{run}", "zh")
    told = await api.good("GET", f"/runs/{run}")
    assert told["error_message"] == "step load failed: it took longer than 3 s"
    assert "step load failed: it took longer than 3 s" in await get(api, f"/runs/{run}")
