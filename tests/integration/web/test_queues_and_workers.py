"""Queues, workers and the log of what people did, over real HTTP."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime
from urllib.parse import quote

import pytest

from integration.api.serving import Api
from integration.support import execute, publish_many
from integration.web.asking import HTML, field, get, post, status_of
from noonbell.clock import from_datetime
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.sweeper import Sweeper
from noonbell.model.call import CALL_TYPE
from noonbell.model.task import TaskId
from noonbell.model.worker import PART_OF, SERVE, WorkerInfo, WorkerState
from noonbell.service.runs import csv_cell
from noonbell.stores.wakeups import LocalWakeup
from noonbell.web import activity
from noonbell.web.queues import QUEUE_ORDERS, WORKER_ORDERS

ODD = "a/b c?"


async def dead_run(api: Api, task: int) -> int:
    run = await api.trigger(task)
    await api.finish(await api.claim(), "FAILED", error_message="it was not to be")
    return run


# Queues


@pytest.mark.parametrize(("lang", "column"), [("en", "Ended per minute"), ("zh", "每分钟结束")])
async def test_the_line_beside_the_heading_names_the_column_that_it_explains(api, lang, column):
    await api.trigger(await api.create(name="a"))
    text = await get(api, "/queues", lang)
    assert re.search(rf'<p class="muted">{column}[:：]', text)
    assert re.search(rf"<th [^>]*>\s*(<[^>]+>)?{column}", text)


async def test_a_paused_queue_says_who_paused_it_and_why(everywhere):
    api = everywhere
    await api.trigger(await api.create(name="a"))
    assert (await post(api, "/queues/http/pause", {"reason": "the target moves"}))[:2] == (303, "/queues")
    for path in ("/queues", "/queues/http"):
        assert "“the target moves”" in await get(api, path)
    (entry,) = (await api.good("GET", "/audit?limit=1"))["items"]
    assert (entry["action"], entry["details"]["reason"]) == ("pause_queue", "the target moves")
    await post(api, "/queues/http/pause", {"reason": " "})  # from a page that was opened before
    assert "“the target moves”" in await get(api, "/queues"), "no reason leaves the one that there is"
    assert (await post(api, "/queues/http/resume", {"from": "queue"}))[:2] == (303, "/queues/http")
    assert "the target moves" not in await get(api, "/queues")


async def test_a_queue_with_any_name_can_be_opened_and_worked_on(api):
    await api.create(name="job", target_url=None, job_type="resize", queue=ODD)
    await api.trigger("name:job")
    path = f"/queues/{quote(ODD, safe='')}"
    text = await get(api, "/queues")
    assert f'href=".{path}"' in text
    assert f"1 run waits in {ODD}; no worker serves it." in text
    assert f"noonbell worker --app MODULE:APP --queues '{ODD}' --store" in text
    assert f"<h1>{ODD}</h1>" in await get(api, path)
    assert (await post(api, f"{path}/pause"))[0] == 303
    (queue,) = await api.store.queues()
    assert (queue.name, queue.paused) == (ODD, True)


async def test_a_queue_shows_how_many_runs_waited_and_where_nothing_was_counted(everywhere):
    api = everywhere
    assert "No samples in the last 24 hours." in await get(api, "/queues/pdf")
    await api.create(name="job", target_url=None, job_type="resize", queue="pdf")
    for _ in range(2):
        await api.trigger("name:job")
    await api.store.sample_queues()
    text = await get(api, "/queues/pdf")
    assert 'aria-label="At most 2 runs waited in pdf in 24 hours"' in text
    depth = text[text.index('data-live="depth"') : text.index('data-live="hourly"')]
    assert depth.count('class="mark-waiting"') == 2  # the column, and its key
    gaps = depth.count('fill="url(#hatch)"')
    assert gaps in (46, 47)  # all half hours but the one that was counted
    assert depth.count('<td colspan="3" class="muted">No samples</td>') == gaps
    empty = await get(api, "/queues/idle")
    assert 'aria-label="At most 0 runs waited in idle in 24 hours"' in empty


async def test_the_depth_of_a_queue_is_told_step_by_step_with_null_where_nothing_was_counted(everywhere):
    api = everywhere
    await api.create(name="job", target_url=None, job_type="resize", queue="pdf")
    await api.trigger("name:job")
    await api.store.sample_queues()
    told = await api.good("GET", "/queues/pdf/depth")
    assert (told["name"], told["by"], len(told["items"]) in (24, 25, 26)) == ("pdf", "hour", True)
    counted = [each for each in told["items"] if each["samples"]]
    assert [(each["samples"], each["waiting"], each["most_waiting"]) for each in counted] == [(1, 1.0, 1)]
    assert counted[0]["longest_wait_ms"] is not None
    gap = {"samples": 0, "waiting": None, "most_waiting": None, "longest_wait_ms": None}
    assert all(each.items() >= gap.items() for each in told["items"] if not each["samples"])
    assert len((await api.good("GET", "/queues/pdf/depth?by=minute"))["items"]) in (1440, 1441, 1442)
    old = await api.call("GET", "/queues/pdf/depth?by=minute&from=2020-01-01T00:00:00Z")
    assert (old.status, "by=hour goes back further" in old.body["details"]["from"]) == (400, True)
    turned = await api.call("GET", "/queues/pdf/depth?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z")
    assert (turned.status, "to" in turned.body["details"]) == (400, True)


async def test_limits_are_saved_shown_and_their_problems_said_at_the_field(api):
    given = {"concurrency": "4", "max": "10", "per_seconds": "60"}
    assert (await post(api, "/queues/pdf/limit", given))[:2] == (303, "/queues/pdf")
    assert "4 at a time · 10 starts in 60 s" in await get(api, "/queues")
    status, _, text = await post(api, "/queues/pdf/limit", {**given, "concurrency": "lots"})
    assert (status, "expected a whole number" in field(text, "concurrency")) == (400, True)
    assert "lots" in field(text, "concurrency")
    await post(api, "/queues/pdf/limit", {})
    assert "no limit" in await get(api, "/queues/pdf")


async def test_what_failed_for_good_is_listed_and_run_again_once(everywhere):
    api = everywhere
    task = await api.create(name="a")
    runs = [await dead_run(api, task) for _ in range(2)]
    text = await get(api, "/queues/http")
    assert all(f'href="../runs/{run}"' in text for run in runs)
    assert "Retry 2 runs?" in await get(api, "/queues/http/redrive")
    status, to, _ = await post(api, "/queues/http/redrive")
    assert (status, to) == (303, "/runs?queue=http&origin=retry")
    assert (await api.good("GET", "/runs?origin=retry"))["total"] == 2
    await post(api, "/queues/http/redrive")
    assert (await api.good("GET", "/runs?origin=retry"))["total"] == 2
    entries = (await api.good("GET", "/audit?limit=2"))["items"]
    assert [entry["details"]["retried"] for entry in entries] == [0, 2]


async def test_runs_are_removed_only_by_whoever_types_the_name_of_the_queue(everywhere):
    api = everywhere
    task = await api.create(name="a")
    for _ in range(3):
        await dead_run(api, task)
    await api.trigger(task)
    text = await get(api, "/queues/http/clean?days=0&kind=failed")
    assert "3 runs" in text
    assert "Delete 3" in text
    assert "0 runs" in await get(api, "/queues/http/clean?days=0&kind=succeeded")
    assert "0 runs" in await get(api, "/queues/http/clean")
    given = {"days": "0", "kind": "failed", "typed": "htpp"}
    status, _, text = await post(api, "/queues/http/clean", given)
    assert (status, "That is not http" in text) == (400, True)
    assert (await api.good("GET", "/runs"))["total"] == 4
    assert (await post(api, "/queues/http/clean", {**given, "typed": "http"}))[:2] == (303, "/queues/http")
    assert (await api.good("GET", "/runs"))["total"] == 1
    assert await status_of(api, "/queues/http/clean?days=-1") == 400
    assert await status_of(api, "/queues/http/clean?kind=running") == 400


async def test_what_waits_is_canceled(api):
    await api.trigger(await api.create(name="a"))
    assert (await post(api, "/queues/http/drain"))[:2] == (303, "/queues/http")
    assert (await api.good("GET", "/runs?status=CANCELED"))["total"] == 1


# Workers


async def register(api: Api, name: str, **more) -> WorkerInfo:
    return await api.store.register_worker(WorkerInfo(id=name, incarnation=name, **more))


async def test_the_worker_of_a_server_serves_the_calls_of_any_queue(everywhere):
    api = everywhere
    await api.good("POST", "/calls", {"url": "http://127.0.0.1:9000/", "queue": "lane"})
    alone = dict.fromkeys(("/queues", "/queues/lane"), "1 run waits in lane; no worker serves it.")
    alone |= {"/settings/diagnostics": "no worker serves queue lane (1 waiting)"}
    for path, said in alone.items():
        assert said in await get(api, path)
    await register(api, "server", queues=("http",), job_types=(CALL_TYPE,))
    for path in alone:
        assert "no worker serves" not in await get(api, path)
    assert re.search(r"<b>1</b><span>Workers", await get(api, "/queues/lane"))
    task = await api.create(name="job", target_url=None, job_type="resize", queue="lane")
    await api.trigger(task)
    for path, said in alone.items():
        assert said in await get(api, path)


async def test_job_types_that_no_worker_of_a_queue_knows_are_told_where_one_looks(everywhere):
    api = everywhere
    await register(api, "w1", job_types=("other",))
    task = await api.create(name="mail", exec_type="JOB", job_type="send_mial", target_url=None)
    run = await api.trigger(task)
    for path in ("/queues", "/queues/default"):
        text = await get(api, path)
        assert "1 run waits in default for a job type that none of its workers supports" in text
        assert "send_mial" in text
        assert f"/runs/{run}" in text
        assert "noonbell worker --app MODULE:APP --queues default" in text
        assert "no worker serves it" not in text
    for path in (f"/tasks/{task}", f"/runs/{run}"):
        text = await get(api, path)
        assert 'data-cause="no_worker"' in text
        assert "no connected worker of queue default supports job type send_mial" in text
        assert 'data-advice="no_worker_type"' in text
        assert "noonbell worker --app MODULE:APP --queues default" in text
    assert "wait for job types that none of its workers supports: send_mial (1)" in await get(api, "/")


async def test_an_older_version_is_marked_among_those_that_share_a_queue(api):
    await register(api, "old", version=3, queues=("pdf",))
    await register(api, "new", version=4, queues=("pdf", "default"))
    await register(api, "alone", version=1, queues=("mail",))
    rows = {row.split('"')[0]: row for row in (await get(api, "/workers")).split('<tr data-row="')[1:]}
    assert ["older than another" in rows[name] for name in ("old", "new", "alone")] == [True, False, False]


async def test_places_are_changed_and_several_are_drained_at_once(everywhere):
    api = everywhere
    for name in ("w/1", "w2", "w3"):
        await register(api, name)
    assert (await post(api, "/workers/w%2F1/change", {"concurrency": "7"}))[:2] == (303, "/workers")
    await post(api, "/workers/drain", [("id", "w/1"), ("id", "w2"), ("id", "gone")])
    found = {worker.id: worker for worker in await api.store.workers()}
    assert (found["w/1"].concurrency, found["w/1"].state, found["w2"].state, found["w3"].state) == (
        7,
        *(2 * [WorkerState.DRAINING]),
        WorkerState.RUNNING,
    )
    (drained, changed) = (await api.good("GET", "/audit?limit=2"))["items"]
    assert drained["details"]["workers"] == ["w/1", "w2"]
    assert (changed["subject"], changed["details"]["concurrency"]) == ("/workers/w/1", 7)
    assert (await post(api, "/workers/drain"))[0] == 400
    assert (await post(api, "/workers/w2/change", {"concurrency": "-1"}))[0] == 400


async def test_a_worker_inside_serve_is_offered_no_stop_and_refuses_one(api):
    await register(api, "alone")
    await api.store.register_worker(WorkerInfo(id="inside", incarnation="x", meta={PART_OF: SERVE}))
    text = await get(api, "/workers")
    assert "/workers/alone/stop" in text
    assert "/workers/inside/drain" in text
    assert "/workers/inside/stop" not in text
    status, _, said = await post(api, "/workers/inside/stop")
    assert status == 409
    assert "drain it" in said
    assert await api.bad("POST", "/workers/inside/stop") == (409, "INVALID_STATE")
    assert {one.id: one.state for one in await api.store.workers()}["inside"] is WorkerState.RUNNING


async def test_workers_and_overview_say_that_no_scheduler_is_running(api):
    await api.create(name="a")
    for page in ("/workers", "/"):
        assert "o scheduler is running on this store: schedules do not fire" in await get(api, page)
    await api.store.note_scheduler()
    for page in ("/workers", "/"):
        assert "scheduler is running" not in await get(api, page)


@pytest.mark.parametrize(("lang", "more"), [("en", "there may be more"), ("zh", "实际可能更多")])
async def test_where_not_all_that_lack_a_worker_were_looked_at_it_is_said(api, lang, more):
    await register(api, "w1", queues=("images",), job_types=("draw",))
    task = await api.create(name="resize", target_url=None, job_type="resize", queue="images", max_concurrency=None)
    for runs, is_least in ((3, False), (600, True)):
        spec = await api.store.task(TaskId(task))
        assert spec is not None
        await publish_many(api.store, spec, runs)
        assert (more in await get(api, "/queues/images", lang)) is is_least
        (found,) = (await api.good("GET", "/queues/images"))["unserved"]
        assert (found["count"], found["is_least"]) == (min(500, runs), is_least)


async def test_a_lost_worker_shows_what_was_taken_from_it(everywhere):
    api = everywhere
    await register(api, "w1", queues=("http",))
    run = await api.trigger(await api.create(name="a"))
    await api.claim()
    assert "runs was requeued" not in await get(api, "/workers")
    await execute(api.store, "update workers set heartbeat_at = heartbeat_at - 600000000")
    assert "1 run is still assigned to it" in await get(api, "/workers")
    await execute(api.store, "update live set expires_at = expires_at - 600000000, at = at - 600000000")
    sweeper = Sweeper(api.store, LocalWakeup(), tasks=TaskCache(api.store), draw=lambda: 0.5)
    await sweeper.tick()
    text = await get(api, "/workers")
    assert "Of the newest 1,000 runs, 1 was requeued:" in text
    assert f'href="./runs/{run}"' in text


async def test_a_lost_worker_is_forgotten_by_its_button_and_needs_no_attention_then(everywhere):
    api = everywhere
    await api.store.note_scheduler()
    await register(api, "w1", queues=("http",))
    button = 'action="./workers/w1/forget"'
    assert button not in await get(api, "/workers")
    assert (await post(api, "/workers/w1/forget"))[0] == 409
    await execute(api.store, "update workers set heartbeat_at = heartbeat_at - 600000000")
    assert button in await get(api, "/workers")
    assert 'action="../workers/w1/forget"' in await get(api, "/workers/w1")
    assert "no heartbeat from 1 of 1 workers: w1" in await get(api, "/")
    assert (await post(api, "/workers/w1/forget"))[:2] == (303, "/workers")
    assert "silent" not in await get(api, "/")
    assert await api.store.workers() == []
    (entry,) = (await api.good("GET", "/audit?limit=1"))["items"]
    assert (entry["action"], entry["subject"]) == ("forget_worker", "/workers/w1")
    assert "removed a lost worker" in await get(api, "/activity")


async def test_no_worker_at_all_says_that_http_needs_none_and_how_to_start_one(api):
    text = await get(api, "/workers")
    assert "HTTP tasks need no worker" in text
    assert "noonbell worker --app MODULE:APP --queues default --store memory" in text


# What people did


async def test_the_log_is_narrowed_by_who_what_which_task_and_when(everywhere):
    api = everywhere
    first, second = await api.create(name="a"), await api.create(name="b")
    await post(api, f"/tasks/{first}/disable")
    await api.trigger("name:a")
    await post(api, "/queues/pdf/pause", {"reason": "needle"})
    entries = (await api.good("GET", "/audit"))["items"]

    async def found(query: str) -> list[int]:
        text = await get(api, f"/activity?{query}")
        return [int(row.split('"')[0]) for row in text.split('<tr data-row="')[1:]]

    ids = [entry["id"] for entry in entries]
    assert await found("") == ids
    by = {entry["id"]: (entry["action"], entry["subject"]) for entry in entries}
    assert [by[each][0] for each in await found("task=a")] == ["trigger_task", "disable_task", "create_task"]
    assert [by[each][0] for each in await found(f"task={second}")] == ["create_task"]
    assert [by[each][0] for each in await found("action=queues")] == ["pause_queue"]
    assert len(await found("action=create_task")) == 2
    assert [by[each][0] for each in await found("text=needle")] == ["pause_queue"]
    assert await found("actor=nobody") == []
    assert await found("from=2020-01-01T00:00") == ids
    assert await found("to=2020-01-01T00:00:00Z") == []
    assert "expected" in await get(api, "/activity?from=yesterday")


async def test_an_entry_shows_what_a_task_was_before_and_after(api):
    task = await api.create(name="a", headers={"Authorization": "s3cret-one"})
    await api.good("PATCH", f"/tasks/{task}", {"timeout_seconds": 77, "headers": {"Authorization": "s3cret-two"}})
    (entry, *_) = (await api.good("GET", "/audit"))["items"]
    text = await get(api, f"/activity/{entry['id']}")
    row = text.split("timeout_seconds</th>")[1].split("</tr>")[0]
    assert "77" in row
    assert "s3cret" not in text
    assert f'href="../tasks/{task}/versions"' in text
    assert await status_of(api, "/activity/99") == 404
    assert await status_of(api, "/activity/x") == 404


async def test_the_log_is_exported_with_its_filters_and_no_cell_is_a_formula(api):
    await post(api, "/queues/pdf/pause", {"reason": "=1+1"})
    await api.create(name="a")
    told = await api.call("GET", "//activity.csv?action=queues")
    assert told.headers["content-type"].startswith("text/csv")
    assert "attachment" in told.headers["content-disposition"]
    (row,) = csv.DictReader(io.StringIO(told.text))
    assert (row["action"], row["subject"]) == ("pause_queue", "/queues/pdf")
    assert "=1+1" in row["details"]
    assert [csv_cell(text) for text in ("=1", "+1", "-1", "@a", "ok", None)] == ["'=1", "'+1", "'-1", "'@a", "ok", ""]


async def test_the_whole_log_is_exported_however_long_it_is(api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(activity, "_BATCH", 3)
    for number in range(10):
        await post(api, f"/queues/q{number}/pause", {})
    told = await api.call("GET", "//activity.csv")
    assert [row["subject"] for row in csv.DictReader(io.StringIO(told.text))] == [
        f"/queues/q{number}" for number in reversed(range(10))
    ]
    assert told.text.count("request_id") == 1


async def test_what_the_system_tells_of_is_listed_newest_first_and_in_pages(everywhere):
    api = everywhere
    task = await api.create(name="a")
    await register(api, "w9")
    await post(api, "/queues/pdf/pause")
    await api.trigger(task)
    await api.store.events(0)  # numbers what was written
    text = await get(api, "/activity?view=system")
    rows = [row.split("</tr>")[0] for row in text.split('<tr data-row="')[1:]]
    assert ["Queue paused" in rows[0], "w9" in rows[1], "Task created" in rows[2]] == [True, True, True]
    assert len(rows) == 3
    only = await get(api, "/activity?view=system&kind=worker")
    assert only.count("<tr data-row=") == 1
    before = rows[0].split(".")[0]
    assert (await get(api, f"/activity?view=system&before={before}")).count("<tr data-row=") == 2


async def test_the_page_of_a_worker_has_what_it_holds_and_how_busy_it_was(api):
    task = await api.create(name="busy")
    await api.trigger(task)
    await api.finish(await api.claim(), "SUCCESS")
    run = await api.trigger(task)
    await register(api, "w1", queues=("http",), concurrency=4)
    await api.claim()
    text = await get(api, "/workers/w1")
    assert f"/runs/{run}" in text
    assert "Utilization" in text
    assert "1 of 4 in use" in text
    ended = text.split('id="hourly"')[1]
    assert "<b>1</b><span>Runs ended</span>" in ended
    assert "lift that hour above 100 %" in ended
    of_queue = (await get(api, "/queues/http")).split('id="hourly"')[1]
    assert ("<b>1</b><span>Runs ended</span>" in of_queue, "above 100 %" in of_queue) == (True, False)
    assert 'workers/w1">w1</a>' in await get(api, "/workers")


async def test_a_worker_that_was_forgotten_leads_to_its_runs_and_an_unknown_one_nowhere(api):
    await register(api, "w1", queues=("http",), concurrency=4)
    await api.trigger(await api.create(name="busy"))
    await api.finish(await api.claim(), "SUCCESS")
    await api.store.remove_worker("w1", "w1")
    told = await api.call("GET", "//workers/w1", headers=HTML, allow_redirects=False)
    assert (told.status, told.headers["location"].partition("/runs")[2]) == (303, "?worker=w1")
    assert "busy" in await get(api, "/runs?worker=w1")
    assert await status_of(api, "/workers/w2") == 404


async def test_the_table_of_hours_is_left_out_where_nothing_ended(api):
    await register(api, "w1", queues=("http",), concurrency=4)
    for path in ("/workers/w1", "/queues/http"):
        assert "<table" not in (await get(api, path)).split('id="hourly"')[1].split("</section>")[0]


async def test_figures_of_a_queue_and_a_worker_are_told_hour_by_hour_and_agree_with_history(everywhere):
    api = everywhere
    task = await api.create(name="busy")
    await register(api, "w1", queues=("http",), concurrency=4)
    for status in ("SUCCESS", "SUCCESS", "FAILED"):
        await api.trigger(task)
        await api.finish(await api.claim(), status)
    rows = await api.store.fetch("select start_time, end_time, run_at, created_at from runs where end_time is not null")
    took = sum(end - start for start, end, *_ in rows)
    for path in ("/stats/queues/http", "/stats/workers/w1"):
        for by in ("hour", "day"):
            told = await api.good("GET", f"{path}?by={by}")
            total = told["total"]
            assert (total["runs"], total["failed"], total["success_ratio"]) == (3, 1, 0.6667)
            assert sum(each["runs"] for each in told["items"]) == 3
            assert total["duration_ms"]["most"] == max(end - start for start, end, *_ in rows) // 1000
            assert total["queue_time_ms"]["most"] == max(start - max(due, made) for start, _, due, made in rows) // 1000
    told = await api.good("GET", "/stats/workers/w1")
    assert (told["worker_id"], told["concurrency"]) == ("w1", 4)
    assert told["items"][0]["busy"] is None  # a day ago it had not started
    assert told["total"]["busy"] > 0
    ((started,),) = await api.store.fetch("select started_at from workers where id = 'w1'")
    until = from_datetime(datetime.fromisoformat(told["to"]))
    assert told["total"]["busy"] == pytest.approx(took / (4 * (until - started)), abs=0.001)
    # It starts again under its name, this very moment: what it did before is a share of the time before.
    await execute(api.store, "update workers set started_at = started_at + 60000000")
    for by in ("hour", "day"):
        again = (await api.good("GET", f"/stats/workers/w1?by={by}"))["total"]
        assert (again["runs"], 0 <= again["busy"] <= told["total"]["busy"]) == (3, True)
    assert "<b>3</b><span>Runs ended</span>" in await get(api, "/workers/w1")
    assert await api.bad("GET", "/stats/workers/nobody") == (404, "NOT_FOUND")
    assert await api.bad("GET", "/stats/queues/http?by=minute") == (400, "INVALID_ARGUMENT")
    old = await api.call("GET", "/stats/queues/http?from=2020-01-01T00:00:00Z")
    assert (old.status, "by=day goes back further" in old.body["details"]["from"]) == (400, True)


# Order


def names_in(text: str, table: str) -> list[str]:
    """Of the rows of a table, in their order."""
    return re.findall(
        r'<tr data-row="([^"]+)"', text.partition(f'data-live="{table}" data-rows')[2].partition("</table>")[0]
    )


async def test_queues_are_put_in_order_by_their_headings_and_turned_round(everywhere):
    api = everywhere
    for queue, runs in (("b", 2), ("c", 5), ("a", 1)):
        await api.create(name=queue, target_url=None, job_type="resize", queue=queue)
        for _ in range(runs):
            await api.trigger(f"name:{queue}")
    plain = await get(api, "/queues")
    assert "aria-sort" not in plain
    assert 'href="./queues?sort=-waiting"' in plain
    largest = await get(api, "/queues?sort=-waiting")
    assert names_in(largest, "queues")[:3] == ["c", "b", "a"]
    assert '<th scope="col" class="number" aria-sort="descending">' in largest
    assert 'href="./queues?sort=waiting"' in largest
    assert [name for name in names_in(await get(api, "/queues?sort=waiting"), "queues") if name in "abc"] == [
        "a",
        "b",
        "c",
    ]
    assert [name for name in names_in(await get(api, "/queues?sort=-name"), "queues") if name in "abc"] == [
        "c",
        "b",
        "a",
    ]
    assert await status_of(api, "/queues?sort=colour") == 400


@pytest.mark.parametrize("order", sorted(QUEUE_ORDERS))
async def test_queues_without_a_value_come_last_in_every_order(api, order):
    await api.create(name="one", target_url=None, job_type="resize", queue="one")
    await api.trigger("name:one")
    await api.good("POST", "/queues/idle/pause")
    for sign in ("", "-"):
        found = names_in(await get(api, f"/queues?sort={sign}{order}"), "queues")
        assert {"one", "idle"} <= set(found)
        if order == "oldest_at":
            assert found.index("one") < found.index("idle")


@pytest.mark.parametrize("order", sorted(WORKER_ORDERS))
async def test_workers_are_put_in_order_by_their_headings(api, order):
    for number, name in enumerate(("w2", "w3", "w1")):
        await api.store.register_worker(
            WorkerInfo(id=name, incarnation=name, queues=("default",), concurrency=9 - number, version=number)
        )
    rising = names_in(await get(api, f"/workers?sort={order}"), "workers")
    falling = names_in(await get(api, f"/workers?sort=-{order}"), "workers")
    assert set(rising) == set(falling) >= {"w1", "w2", "w3"}
    ours = [name for name in rising if name in ("w1", "w2", "w3")]
    if order in ("id", "version"):
        assert ours == (["w1", "w2", "w3"] if order == "id" else ["w2", "w3", "w1"])
        assert [name for name in falling if name in ours] == ours[::-1]
    assert 'aria-sort="ascending"' in await get(api, f"/workers?sort={order}")
    assert await status_of(api, "/workers?sort=colour") == 400
