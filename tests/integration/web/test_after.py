"""Tasks that run after others, in the dashboard: the boxes of the form, and on the pages of tasks and runs what they follow and
what follows them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from integration.api.serving import Api
from integration.web.asking import field, get, post
from integration.web.test_form_keeps import form_of, made, read
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Origin
from noonbell.model.task import TaskId
from noonbell.web.i18n import instant_from


async def ended(api: Api, task: int, status: str = "SUCCESS") -> int:
    """A run of the task, ended so."""
    run = await api.trigger(task)
    lease = await api.claim()
    assert lease.run_id == run
    await api.finish(lease, status)
    return run


async def of_slot(api: Api, task: int) -> int:
    """A run of the task for the first slot of 2020, ended well."""
    at = instant_from("2020-01-01T00:00:00Z")
    await api.store.publish([Publication(task_id=TaskId(task), origin=Origin.BACKFILL, scheduled_time=at)])
    lease = await api.claim()
    await api.finish(lease, "SUCCESS")
    return lease.run_id


def part(text: str, name: str) -> str:
    """The list with that mark; empty where the page has none."""
    found = re.search(rf"<ul [^>]*{name}.*?</ul>", text, re.DOTALL)
    return found[0] if found else ""


async def form_saved(api: Api, task: int, **fields: str) -> tuple[int, str]:
    status, _, text = await post(api, f"/tasks/{task}/edit", {**await form_of(api, task), **fields})
    return status, text


# The form


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        ({"tasks": [{"task": "extract"}]}, "extract"),
        (
            {
                "tasks": [{"task": "extract", "on": "any"}, {"task": "a:b", "on": "skipped"}],
                "join": "any",
                "same_slot": False,
                "within_seconds": 61,
            },
            "extract:any\r\na:b:skipped",
        ),
        ({"tasks": [{"task": "odd:failure"}, {"task": "12"}]}, "odd:failure:success\r\n12"),
    ],
    ids=["plain", "everything", "odd names"],
)
async def test_the_form_shows_what_a_task_runs_after_and_saves_it_as_it_was(
    api: Api, after: dict[str, Any], lines: str
):
    for name in ("extract", "a:b", "odd:failure", "12"):
        await api.create(name=name)
    before = await made(api, job_type="j", after=after)
    sent = await form_of(api, before["id"])
    assert sent["after_tasks"] == lines
    assert "after" not in sent["rest"]
    assert (await form_saved(api, before["id"]))[0] == 303
    assert (await read(api, before["id"]))["after"] == before["after"]
    # and once more from the lines alone: another box of it has changed
    assert (await form_saved(api, before["id"], after_within_seconds="99"))[0] == 303
    assert (await read(api, before["id"]))["after"] == {**before["after"], "within_seconds": 99}


async def test_a_new_task_is_made_to_follow_others_and_an_emptied_box_follows_none(api: Api):
    for name in ("extract", "check"):
        await api.create(name=name)
    sent = {"name": "load", "kind": "job", "job_type": "j", "when": "none", "timezone": "UTC", "enabled": "on"}
    boxes = {"after_tasks": " extract \r\n\r\ncheck:any", "after_join": "any", "after_same_slot": "false"}
    status, place, text = await post(api, "/tasks/new", {**sent, **boxes, "after_within_seconds": "60"})
    assert status == 303, text[-2000:]
    task = int(place.rpartition("/")[2])
    assert (await read(api, task))["after"] == {
        "tasks": [{"task": "extract", "on": "success"}, {"task": "check", "on": "any"}],
        "join": "any",
        "same_slot": False,
        "within_seconds": 60,
    }
    assert (await form_saved(api, task, after_tasks=""))[0] == 303
    assert (await read(api, task))["after"] is None


async def test_what_is_wrong_is_said_at_its_box(api: Api):
    extract = await api.create(name="extract")
    load = (await made(api, name="load", job_type="j", after={"tasks": [{"task": "extract"}]}))["id"]
    status, text = await form_saved(api, load, after_tasks="nobody")
    assert status == 400
    assert "'nobody'; there is no such task" in field(text, "after_tasks")
    status, text = await form_saved(api, extract, after_tasks="load")
    assert status == 400
    assert "makes a cycle: extract → load → extract" in field(text, "after_tasks")
    status, text = await form_saved(api, load, after_within_seconds="0")
    assert status == 400
    assert "is 0; expected" in field(text, "after_within_seconds")
    assert (await read(api, load))["after"]["tasks"] == [{"task": "extract", "on": "success"}]


async def test_the_versions_and_a_conflict_name_tasks_and_not_their_ids(api: Api):
    for name in ("extract", "check"):
        await api.create(name=name)
    load = (await made(api, name="load", job_type="j", after={"tasks": [{"task": "extract"}]}))["id"]
    mine = {**await form_of(api, load), "after_tasks": "check"}
    await api.good("PATCH", f"/tasks/{load}", {"after": {"tasks": [{"task": "extract"}, {"task": "check"}]}})
    told = await get(api, f"/tasks/{load}/versions")
    assert '"task": "check"' in told
    status, _, text = await post(api, f"/tasks/{load}/edit", mine)
    assert status == 412
    assert "After these tasks" in text
    assert "<code>extract</code>" in text  # what it was when the form was opened


# The pages


async def test_the_page_of_a_task_links_what_it_follows_and_what_follows_it(everywhere: Api):
    api = everywhere
    extract, check = [await api.create(name=name) for name in ("extract", "check")]
    upstreams = [{"task": "extract"}, {"task": "check", "on": "failure"}]
    load = await api.create(name="load", after={"tasks": upstreams, "within_seconds": 3600})
    text = await get(api, f"/tasks/{load}")
    found = part(text, "data-upstreams")
    assert re.search(rf'/tasks/{extract}">extract</a> <span class="muted">when it succeeds', found)
    assert re.search(rf'/tasks/{check}">check</a> <span class="muted">when it fails', found)
    assert "after extract and check (when it fails)" in text
    assert "it runs when the tasks it follows have ended" in text
    assert part(text, "data-waits") == part(text, "data-followers") == ""
    text = await get(api, f"/tasks/{check}")
    assert re.search(rf'/tasks/{load}">load</a> <span class="muted">when it fails', part(text, "data-followers"))
    assert "after extract and check (when it fails)" in await get(api, "/tasks")
    assert "在 extract 和 check (失败时) 之后" in await get(api, f"/tasks/{load}", "zh")


async def test_an_open_join_says_whom_it_waits_for_and_which_run_came(everywhere: Api):
    api = everywhere
    extract, check = [await api.create(name=name) for name in ("extract", "check")]
    load = await api.create(name="load", after={"tasks": [{"task": "extract"}, {"task": "check"}]})
    first = await of_slot(api, extract)
    waits = part(await get(api, f"/tasks/{load}"), "data-waits")
    assert "for check" in waits
    assert "2020-01-01" in waits
    assert f"/runs/{first}" in waits
    caused = part(await get(api, f"/runs/{first}"), "data-downstreams")
    assert "load waits for check" in caused
    second = await of_slot(api, check)
    text = await get(api, f"/tasks/{load}")
    assert part(text, "data-waits") == ""
    (run,) = (await api.good("GET", f"/tasks/{load}/runs"))["items"]
    assert run["upstream_run_ids"] == [first, second]
    for upstream in (first, second):
        caused = part(await get(api, f"/runs/{upstream}"), "data-downstreams")
        assert f'/runs/{run["id"]}"' in caused
        assert "load" in caused
    text = await get(api, f"/runs/{run['id']}")
    for upstream, name in ((first, "extract"), (second, "check")):
        assert f'/runs/{upstream}"' in part(text, "data-upstreams")
        assert name in part(text, "data-upstreams")
    await get(api, f"/runs/{run['id']}", "zh")


async def test_a_follower_that_was_switched_off_and_a_task_without_neighbours(api: Api):
    extract, check = [await api.create(name=name) for name in ("extract", "check")]
    assert 'data-live="around"' not in await get(api, f"/tasks/{extract}")
    load = await api.create(name="load", after={"tasks": [{"task": "extract"}, {"task": "check"}], "same_slot": False})
    run = await ended(api, extract)
    await api.good("POST", f"/tasks/{load}/disable")
    assert "load was paused: no run followed." in part(await get(api, f"/runs/{run}"), "data-downstreams")
    alone = await ended(api, await api.create(name="alone"))
    assert 'data-live="around"' not in await get(api, f"/runs/{alone}")
    failed = await ended(api, check, "FAILED")
    assert 'data-live="around"' not in await get(api, f"/runs/{failed}")


async def test_upstreams_that_are_gone_are_still_told_of(api: Api):
    extract, check = [await api.create(name=name) for name in ("extract", "check")]
    load = await api.create(name="load", after={"tasks": [{"task": "extract"}, {"task": "check"}]})
    assert (await api.call("DELETE", f"/tasks/{check}?force=true")).status == 200
    upstreams = part(await get(api, f"/tasks/{load}"), "data-upstreams")
    assert f'/tasks/{check}">{check}</a> <span class="muted">deleted' in upstreams
    sent = await form_of(api, load)
    assert sent["after_tasks"] == f"extract\r\n{check}"
    assert (await form_saved(api, load, description="new"))[0] == 303
    assert [each["task"] for each in (await read(api, load))["after"]["tasks"]] == ["extract", check]
    assert extract


# The runs of one step


async def test_the_box_of_a_foreach_leads_to_the_runs_of_its_items(everywhere: Api):
    api = everywhere
    steps = [
        {"id": "parts", "foreach": ["a", "b"], "target_url": "http://127.0.0.1:9/{{ item }}"},
        {"id": "beside", "target_url": "http://127.0.0.1:9/x"},
    ]
    run = await api.trigger(await api.create(name="nightly", target_url=None, steps=steps))
    leases = []
    for _ in range(2):  # the first claim may start the flow
        leases += [each.run_id for each in await claimed(api)]
    assert len(leases) == 3
    text = await get(api, f"/runs/{run}")
    place = f"/runs?parent_id={run}&step=parts"
    assert place in text
    shown = await get(api, place)
    assert "parts[0]" in shown
    assert "parts[1]" in shown
    assert ">beside<" not in shown
    found = await api.good("GET", f"/runs?parent_id={run}&step=parts")
    assert sorted(each["item_index"] for each in found["items"]) == [0, 1]
    assert found["total"] == 2
    status, code = await api.bad("GET", "/runs?step=parts")
    assert (status, code) == (400, "INVALID_ARGUMENT")


async def claimed(api: Api) -> list[Any]:
    return list((await api.store.claim(ClaimRequest(worker_id="w1", queues=("http",), max=10))).leases)


async def test_a_task_that_others_follow_is_deleted_after_a_word_more(api: Api):
    extract = await api.create(name="extract")
    load = await api.create(name="load", after={"tasks": [{"task": "extract"}]})
    path = f"/tasks/{extract}/delete"
    assert 'name="force"' not in await get(api, f"/tasks/{load}/delete")
    for lang in ("en", "zh"):
        text = await get(api, path, lang)
        assert f'/tasks/{load}">load</a>' in part(text, "data-followers")
        assert 'name="force"' in text
    status, _, text = await post(api, path, {"name": "extract"})
    assert status == 409
    assert "Other tasks run after it. Change those first" in text
    assert f'/tasks/{load}">load</a>' in part(text, "data-followers")
    assert (await post(api, path, {"name": "extract", "force": "on"}))[0] == 303
    assert (await api.call("GET", f"/tasks/{extract}")).status == 404
