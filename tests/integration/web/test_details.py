"""The pages of one task and of one run over real HTTP: parts, restoring, comparing, downloading, explaining; on each store."""

from __future__ import annotations

import re
from typing import Any

from integration.api.serving import Api, serving
from integration.support import execute
from integration.web.asking import get
from noonbell.model.run import RunBodies
from noonbell.settings import AuthSettings

PARTS = ("", "/runs", "/runs?show=failed", "/runs?show=slow", "/schedule", "/configuration", "/versions", "/activity")
RAW = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
"""A time as no page shows it."""


async def page(api: Api, path: str, lang: str = "en", status: int = 200) -> str:
    told = await api.call("GET", f"/{path}", headers={"accept": "text/html", "accept-language": lang})
    assert told.status == status, (path, told.text[-2000:])
    return told.text


async def post(api: Api, path: str, **fields: Any) -> tuple[int, str]:
    sent = {"origin": api.root, "accept": "application/json"}
    told = await api.call("POST", f"/{path}", data=fields, headers=sent)
    return told.status, told.text


def words(text: str) -> str:
    """What a reader sees of a page's main part, but for the texts that were sent; and nothing of its attributes."""
    sent = r"<pre.*?</pre>|<span class=\"json-\w+\">.*?</span>"
    main = re.sub(sent, "", re.search(r"<main.*</main>", text, re.DOTALL)[0], flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", main))


async def fail(api: Api, task: int, message: str, **more: Any) -> int:
    run = await api.trigger(task)
    await api.finish(await api.claim(), "FAILED", error_message=message, error_details={"kind": "http_5xx"}, **more)
    return run


async def test_every_part_of_a_task_answers_on_every_store(everywhere):
    api = everywhere
    on = await api.create(name="on", cron_expr="*/5 * * * *", labels={"team": "x"})
    off = await api.create(name="off", cron_expr="0 2 * * *")
    await api.good("POST", f"/tasks/{off}/disable")
    demand = await api.create(name="demand", target_url=None, job_type="resize", payload={"a": 1})
    await fail(api, on, "answered 503 in 9 ms")
    for task in (on, off, demand):
        for part in PARTS:
            for lang in ("en", "zh"):
                assert 'aria-current="page"' in await page(api, f"/tasks/{task}{part}", lang)
    assert "will not run: the task is paused" in await page(api, f"/tasks/{off}/schedule")
    assert "不会执行：任务已暂停" in await page(api, f"/tasks/{off}/schedule", "zh")
    await api.good("POST", f"/tasks/{on}/skip", {"count": 2})
    assert (await page(api, f"/tasks/{on}/schedule")).count('data-why="operator"') == 2
    await page(api, f"/tasks/{on}/runs?cursor=nonsense", status=400)


async def test_a_run_whose_request_was_sent_twice_says_so(api):
    task = await api.create(name="a")
    run = await api.trigger(task)
    kept = RunBodies(request_headers={"A": "1"}, response_headers={"B": "2"}, response_body="said")
    await api.finish(await api.claim(), "SUCCESS", response_code=200, bodies=kept, error_details={"resent": True})
    assert "sent a second time" in words(await page(api, f"/runs/{run}?show=response"))
    assert "发送了第二次" in words(await page(api, f"/runs/{run}?show=response", "zh"))
    (attempt,) = (await api.good("GET", f"/runs/{run}/attempts"))["items"]
    assert attempt["resent"] is True


async def test_the_runs_of_a_task_are_paged_and_narrowed(api):
    task = await api.create(name="a", max_concurrency=None)
    runs = [await api.trigger(task) for _ in range(52)]
    bad = await fail(api, task, "no")
    first = await page(api, f"/tasks/{task}/runs")
    assert first.count("data-row=") == 50
    older = re.search(r'href="([^"]*/runs\?[^"]*cursor=[^"]*)"', first)[1].replace("&amp;", "&").replace("../../", "/")
    assert (await page(api, older)).count("data-row=") == 3
    narrowed = await page(api, f"/tasks/{task}/runs?show=failed")
    assert re.findall(r'data-row="(\d+)"', narrowed) == [str(runs[0])] != [str(bad)]


async def test_why_it_fails_names_the_change_before_and_leads_to_its_diff(everywhere):
    api = everywhere
    task = await api.create(name="a")
    await api.trigger(task)
    await api.finish(await api.claim(), "SUCCESS")
    await api.good("PATCH", f"/tasks/{task}", {"timeout_seconds": 44})
    for number in (7, 8):
        await fail(api, task, f"answered 503 after {number} ms")
    text = await page(api, f"/tasks/{task}")
    assert "2×" in words(text)
    assert "Began with v2" in words(text)
    assert f"tasks/{task}/versions?v=2#v2" in text
    diff = await page(api, f"/tasks/{task}/versions?v=2")
    assert re.search(r'<li id="v2">\s*<details\s+open>', diff)
    assert "timeout_seconds" in diff


async def test_an_earlier_version_is_restored_with_its_secrets_and_the_task_stays_off(everywhere):
    api = everywhere
    task = await api.create(
        name="a", headers={"Authorization": "s3cret-one"}, timeout_seconds=11, cron_expr="0 2 * * *"
    )
    changes = {"headers": {"Authorization": "s3cret-two"}, "timeout_seconds": 22, "cron_expr": "0 3 * * *"}
    await api.good("PATCH", f"/tasks/{task}", changes)
    await api.good("POST", f"/tasks/{task}/disable")
    assert "s3cret" not in await page(api, f"/tasks/{task}/versions")
    status, told = await post(api, f"/tasks/{task}/versions/1/restore", seen="2")
    assert status == 412, told
    assert (await post(api, f"/tasks/{task}/versions/9/restore"))[0] == 404
    status, told = await post(api, f"/tasks/{task}/versions/1/restore", seen="3")
    assert status == 200, told
    stored = await api.services.tasks.get(task)
    assert (stored.version, stored.status, stored.spec.timeout_seconds) == (4, "DISABLED", 11)
    assert api.services.tasks.opened(stored).spec.headers == {"Authorization": "s3cret-one"}
    assert stored.spec.schedule["expr"] == "0 0 2 * * *"
    assert (await api.good("GET", "/audit"))["items"][0]["action"] == "replace_task"


async def test_a_version_of_a_task_that_a_file_manages_is_not_restored_here(api):
    task = await api.create(name="a", managed_by="file:x.yaml")
    await api.good("PATCH", f"/tasks/{task}", {"timeout_seconds": 44})
    assert "Restore this version" not in await page(api, f"/tasks/{task}/versions")
    assert (await post(api, f"/tasks/{task}/versions/1/restore"))[0] == 409


async def test_explanations_are_in_the_language_of_the_page_with_times_as_pages_have_them(everywhere):
    api = everywhere
    task = await api.create(name="a", cron_expr="0 2 * * *")
    run = await fail(api, task, "it was not to be")
    for path in (
        f"/runs/{run}",
        f"/tasks/{task}?at=2026-01-01T00:00",
        f"/tasks/{task}/schedule?at=2026-01-01T00:00:00Z",
    ):
        assert RAW.search(words(await page(api, path))) is None, path
    assert "The task did not exist at" in words(await page(api, f"/tasks/{task}?at=2026-01-01T00:00"))
    assert "该任务尚不存在" in words(await page(api, f"/tasks/{task}?at=2026-01-01T00:00", "zh"))
    assert "已执行" in words(await page(api, f"/runs/{run}", "zh"))
    assert "It ran" in (await api.good("GET", f"/runs/{run}/explain"))["message"]
    assert RAW.search((await api.good("GET", f"/runs/{run}/explain"))["message"])


async def test_a_run_is_compared_with_the_last_success_or_with_another(everywhere):
    api = everywhere
    task = await api.create(name="a")
    lonely = await fail(api, task, "no")
    assert "No earlier run succeeded (checked: the last 200)" in await page(api, f"/runs/{lonely}/compare")
    good = await api.trigger(task)
    kept = RunBodies(request_headers={"Authorization": "s3cret"}, response_body='{"rows":9223372036854775807,"a":1}')
    await api.finish(await api.claim(), "SUCCESS", response_code=200, bodies=kept)
    bad = await fail(api, task, "answered 503", response_code=503, bodies=RunBodies(response_body='{"rows":1,"a":1}'))
    for path in (f"/runs/{bad}/compare", f"/runs/{bad}/compare/{good}", f"/runs/{bad}/compare?with={good}"):
        text = await page(api, path)
        assert '"rows": 9223372036854775807' in text.replace("&#34;", '"'), path
        assert "answered 503" in text
        assert "s3cret" not in text
    await page(api, f"/runs/{bad}/compare/999999", status=404)
    await page(api, f"/runs/{bad}/compare/x", status=404)


async def test_a_long_body_is_shown_in_part_and_downloaded_whole_as_it_is_kept(everywhere):
    api = everywhere
    task = await api.create(name="a")
    run = await api.trigger(task)
    whole = "line\r\n" * 100_000
    await api.finish(await api.claim(), "SUCCESS", bodies=RunBodies(response_body=whole, request_body="a\r\nb"))
    text = await page(api, f"/runs/{run}")
    assert "The first 64 KB of 586 KB" in words(text)
    assert len(text) < 200_000
    assert 'data-copy="a&#13;&#10;b"' in text
    async with api.session.get(f"{api.root}/runs/{run}/download/response?attempt=1") as told:
        assert (await told.read()).decode() == whole
        assert told.headers["content-disposition"] == f'attachment; filename="run-{run}-attempt-1-response.txt"'
        assert told.headers["content-type"] == "application/octet-stream"
    for what in ("payload", "result", "nonsense", "..%2f"):
        await page(api, f"/runs/{run}/download/{what}", status=404)


async def test_a_log_of_thousands_is_shown_by_its_end_and_paged_back(everywhere):
    api = everywhere
    task = await api.create(name="a")
    run = await api.trigger(task)
    lease = await api.claim()
    for start in range(0, 2500, 500):
        lines = [("info", f"line {number}") for number in range(start + 1, start + 501)]
        await api.store.log(lease.run_id, lease.token, lines)
    text = await page(api, f"/runs/{run}?show=log")
    assert re.findall(r'data-line="(\d+)"', text)[0::999] == ["1501", "2500"]
    assert "show=log&amp;line=500#panes" in text
    text = await page(api, f"/runs/{run}?show=log&line=500")
    assert re.findall(r'data-line="(\d+)"', text)[0::999] == ["501", "1500"]
    assert "Earlier lines" in text
    assert "Later lines" in text


async def test_a_log_is_narrowed_by_level_and_text_and_leads_to_its_first_error(everywhere):
    api = everywhere
    run = await api.trigger(await api.create(name="a"))
    lease = await api.claim()
    lines = [("info", f"line {number}") for number in range(1, 1600)]
    lines[2], lines[800], lines[1500] = ("error", "disk is FULL"), ("warning", "slow"), ("error", "gave up")
    await api.store.log(lease.run_id, lease.token, lines)
    text = await page(api, f"/runs/{run}?show=log")
    assert "show=log&amp;line=0#line-3" in text, "the first error is on an earlier page"
    text = await page(api, f"/runs/{run}?show=log&line=0")
    assert 'href="#line-3"' in text
    assert 'id="line-3"' in text

    async def shown(query: str) -> list[str]:
        return re.findall(r'data-line="(\d+)"', await page(api, f"/runs/{run}?show=log&{query}"))

    assert await shown("level=warning") == ["3", "801", "1501"]
    assert await shown("level=error&find=full") == ["3"]
    assert await shown("find=nothing+says+this") == []
    assert len(await shown("find=line")) == 1000
    assert len(await shown("level=nonsense")) == 1000, "a level that is none narrows nothing"
    told = await api.good("GET", f"/runs/{run}/log?level=error&search=gave")
    assert [(line["seq"], line["message"]) for line in told["items"]] == [(1501, "gave up")]
    assert (await api.call("GET", f"/runs/{run}/log?level=loud")).status == 400


async def test_a_run_that_is_not_there_is_said_to_be_gone(api):
    for run in ("999", "x", "0"):
        told = await page(api, f"/runs/{run}", status=404)
        assert ("This run does not exist." in told, told.count("removed by retention")) == (True, 1)
    assert "可能已被清理" in await page(api, "/runs/999", "zh", status=404)


async def test_a_viewer_sees_no_audit_log_and_cannot_restore():
    async with serving("memory://", auth=AuthSettings(enabled=True, session_key="k" * 32)) as api:
        _, admin = await api.parts.access.create("boss", "admin")
        bearer = {"authorization": f"Bearer {admin}"}
        task = (
            await api.good("POST", "/tasks", {"name": "a", "target_url": "http://127.0.0.1:9/x"}, 201, headers=bearer)
        )["id"]
        await api.good("PATCH", f"/tasks/{task}", {"timeout_seconds": 44}, headers=bearer)
        for role, sees in (("viewer", False), ("operator", False), ("admin", True)):
            _, secret = await api.parts.access.create(role, role)
            api.session.cookie_jar.clear()
            sent = {"origin": api.root, "accept": "text/html"}
            told = await api.call("POST", "//login", data={"token": secret}, headers=sent, allow_redirects=False)
            cookie = told.headers["set-cookie"].split(";")[0]
            api.session.cookie_jar.clear()
            seen = await api.call("GET", f"//tasks/{task}/activity", headers={"accept": "text/html", "cookie": cookie})
            assert ("Audit log" in seen.text, "boss" in seen.text) == (sees, True), role
            told = await api.call(
                "POST", f"//tasks/{task}/versions/1/restore", data={}, headers={**sent, "cookie": cookie}
            )
            assert (told.status == 403) == (role == "viewer"), role


async def test_a_task_shows_of_the_audit_log_what_concerns_it_alone(everywhere):
    api = everywhere
    task, other = await api.create(name="a"), await api.create(name="b")
    for each, times in ((task, 2), (other, 3)):
        for _ in range(times):
            await api.trigger(each)
    text = await page(api, f"/tasks/{task}/activity")
    assert len(re.findall(r"<tr data-row", text)) == 3, "it was made, and started twice"
    assert "trigger_task" not in text


async def test_a_run_that_is_split_lists_its_parts_and_each_part_leads_back(everywhere):
    api = everywhere
    task = await api.create(name="a", target_url=None, job_type="resize", fanout={"workers": 2})
    run = await api.trigger(task)
    for worker in ("w1", "w2"):
        await api.good("POST", f"/workers/{worker}/claim", {"queues": ["default"], "max": 1, "wait_seconds": 0})
    text = await page(api, f"/runs/{run}")
    parts = re.findall(r'data-row="(\d+)"', text)
    assert len(parts) == 2
    assert "Parts" in words(text)
    assert f'href="../runs/{run}"' in await page(api, f"/runs/{parts[0]}")


async def test_the_success_of_the_overview_stays_what_it_was_when_a_task_is_deleted(everywhere):
    api = everywhere
    for name, status in (("kept", "SUCCESS"), ("gone", "FAILED")):
        task = await api.create(name=name)
        await api.trigger(task)
        await api.finish(await api.claim(), status)
    assert "50.0 %" in await get(api, "/")
    assert (await api.call("DELETE", f"/tasks/{task}")).status == 200
    assert "50.0 %" in await get(api, "/"), "what ended has ended"


async def test_the_page_of_a_run_that_a_pause_holds_back_leads_to_where_it_is_ended(api: Api):
    run = await api.trigger(await api.create(name="held"))
    await api.good("POST", "/pause", {})
    text = await get(api, f"/runs/{run}")
    assert 'data-advice="paused"' in text
    assert re.search(r'data-advice="paused">.*?<a href="[./]*">Overview</a>', text)


async def test_a_traceback_keeps_its_lines_and_folds_the_frames_of_noonbell(api):
    task = await api.create(name="a")
    own = '  File "/x/site-packages/noonbell/app/job.py", line 9, in run\n    yield\n'
    trace = f'{own}  File "/srv/jobs.py", line 12, in charge\n    row["total"]\n'
    run = await api.trigger(task)
    details = {"kind": "error", "traceback": trace}
    await api.finish(await api.claim(), "FAILED", error_message="KeyError: 'total'", error_details=details)
    text = (await page(api, f"/runs/{run}")).replace("&#34;", '"').replace("&#39;", "'")
    assert '    row["total"]</code></pre>' in text
    assert re.search(r'<details class="own-frames">\s*<summary>1 Noonbell frame', text)
    assert "\\n" not in re.sub(r'<div data-live="raw".*', "", text, flags=re.DOTALL)
    assert text.index("KeyError: 'total'</p>") < text.index('row["total"]')


async def test_the_timeline_of_a_run_and_its_attempt_say_the_same_duration(api):
    run = await fail(api, await api.create(name="a"), "answered 503")
    await execute(api.store, f"update runs set end_time = start_time + 702865 where id = {run}")
    told = words(await page(api, f"/runs/{run}"))
    assert told.count("702 ms") == 3, told
    assert "703 ms" not in told


async def test_an_error_of_several_lines_is_shown_in_lines_and_by_one_in_lists(api):
    task = await api.create(name="a")
    said = 'Traceback (most recent call last):\n  File "/srv/jobs.py", line 12, in charge\n    go()\nKeyError: total'
    run = await fail(api, task, said)
    text = (await page(api, f"/runs/{run}")).replace("&#34;", '"')
    assert '<p class="said cause-line">KeyError: total</p>' in text
    assert "in charge\n    go()</code></pre>" in text
    listed = words(await page(api, "/runs"))
    assert "KeyError: total" in listed
    assert "Traceback" not in listed


async def test_fire_times_are_told_in_the_zone_of_the_task_too(api):
    task = await api.create(name="night", cron_expr="30 2 1 1 *", timezone="Europe/Berlin")
    zones = {"cookie": "noonbell_zone=UTC"}
    for path in (f"/tasks/{task}", f"/tasks/{task}/schedule", f"/tasks/{task}/edit"):
        told = await api.call("GET", f"/{path}", headers={"accept": "text/html", **zones})
        text = words(told.text)
        assert "1 Jan 2027 01:30:00" in text, path
        assert "02:30:00 Europe/Berlin" in text, path
    berlin = {"accept": "text/html", "cookie": "noonbell_zone=Europe/Berlin"}
    told = await api.call("GET", f"//tasks/{task}", headers=berlin)
    assert "02:30:00 Europe/Berlin" not in words(told.text), "it is the reader's zone"
    for reader, is_told in (("UTC", True), ("Europe/Berlin", False)):
        headers = {"accept": "text/html", "cookie": f"noonbell_zone={reader}"}
        listed = re.findall(r'title="(2027[^"]*)"', (await api.call("GET", "//tasks", headers=headers)).text)
        assert ["1 Jan 2027 02:30:00 Europe/Berlin" in each.splitlines() for each in listed] == [is_told], "pointed at"
