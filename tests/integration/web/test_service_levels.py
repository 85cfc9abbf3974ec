"""Service levels over HTTP: the answer, the pages in both languages, the file, what is refused, and the command line."""

from __future__ import annotations

import asyncio
import csv
import io
import os

import pytest
from click.testing import CliRunner

from integration.api.serving import Api, serving
from integration.web.asking import get
from noonbell.cli.root import root
from noonbell.errors import SettingsError
from noonbell.model.sla import Sla
from noonbell.service.service_levels import read_defaults

LEVEL = {"start_within_seconds": 3600, "finish_within_seconds": 0, "success_ratio": 0.5, "window": "1d"}


async def seed(api: Api) -> int:
    """Four runs, of which three fail; all of them end after their deadline of no time at all."""
    task = await api.create(name="report", labels={"team": "billing"}, sla=LEVEL, max_concurrency=None)
    await api.create(name="other", labels={"team": "other"})
    for status in ("FAILED", "FAILED", "FAILED", "SUCCESS"):
        await api.trigger(task)
        await api.finish(await api.claim(), status)
    until = asyncio.get_running_loop().time() + 30
    while (await api.store.sweep_sla(100)).looked_at or await open_watches(api):
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0.05)
    await api.store.fold_rollups(100)
    return task


async def open_watches(api: Api) -> int:
    ((count,),) = await api.store.fetch("select count(*) from sla_watches")  # type: ignore[attr-defined]
    return int(count)


async def test_the_answer_the_pages_and_the_file_agree(everywhere):
    api = everywhere
    task = await seed(api)
    found = await api.good("GET", "/stats/sla")
    (level,) = found["tasks"]
    assert (level["task_id"], level["runs"], level["success_ratio"]) == (task, 4, 0.25)
    assert level["sla"]["success_ratio"] == 0.5
    assert level["error_budget"] == {
        "window": "1d",
        "success_ratio": 0.25,
        "wanted": 0.5,
        "allowed": 2.0,
        "failed": 3,
        "left": -0.5,
    }
    assert level["breaches"] == {"finish_within_seconds": 4, "success_ratio": 1}
    assert found["total"]["runs"] == 4
    for query in ("task=report", "label=team=billing", "queue=http&by=hour", f"task={task}&by=day"):
        told = await api.good("GET", f"/stats/sla?{query}")
        assert task in {each["task_id"] for each in told["tasks"]}, query
        assert told["total"]["runs"] == 4
        assert sum(each["runs"] for each in told["points"]) == (4 if "by=" in query else 0)
    assert (await api.good("GET", "/stats/sla?label=team=other"))["total"]["runs"] == 0
    for lang, title in (("en", "Service levels"), ("zh", "服务水平")):
        page = await get(api, "/sla", lang)
        assert title in page
        assert "25.00 %" in page
        assert "-50 %" in page
        assert title in await get(api, f"/tasks/{task}", lang)
    written = await api.call("GET", "//sla.csv?by=hour")
    rows = list(csv.DictReader(io.StringIO(written.text)))
    assert [(row["task"], row["runs"], row["breaches_finish_within_seconds"]) for row in rows] == [("report", "4", "4")]
    run = found["breaches"][0]["run_id"] or found["breaches"][1]["run_id"]
    for lang, said in (("en", "It missed its service level"), ("zh", "未达到服务水平")):
        why = await api.good("GET", f"/runs/{run}/explain?lang={lang}")
        assert said in why["message"]
        assert said in await get(api, f"/runs/{run}", lang)


async def test_figures_are_of_what_matches_all_filters(everywhere):
    api = everywhere
    task = await seed(api)
    await api.trigger("name:other")
    await api.finish(await api.claim(), "SUCCESS")
    runs = {
        "task=no-such-task": 0,
        "task=987654": 0,
        f"task={task}&queue=default": 0,
        f"task={task}&label=team=other": 0,
    }
    runs |= {"label=team=billing&queue=http": 4, f"task={task}&queue=http": 4, "label=team=other&queue=http": 1}
    for query, count in (runs | {"queue=http": 5}).items():
        told = await api.good("GET", f"/stats/sla?by=day&{query}")
        assert told["total"]["runs"] == sum(point["runs"] for point in told["points"]) == count, query
        assert sum(each["runs"] for each in told["tasks"]) == count, query


async def test_of_many_tasks_the_first_are_listed_and_all_are_counted(api):
    for number in range(104):
        await api.create(name=f"t{number:03}", labels={"team": "many"}, sla=LEVEL)
    late = await api.trigger("name:t103")
    lease = await api.claim()
    assert lease.run_id == late
    await api.finish(lease, "SUCCESS")
    for query in ("label=team=many", ""):
        found = await api.good("GET", f"/stats/sla?{query}")
        assert (len(found["tasks"]), found["tasks_total"], found["total"]["runs"]) == (100, 104, 1)
    for lang, said in (("en", "The first 100 of 104 tasks"), ("zh", "共 104 个任务，按名称显示前 100 个")):
        text = await get(api, "/sla", lang)
        assert said in text
        assert '<span class="count">104</span>' in text
    written = await api.call("GET", "//sla.csv")
    assert [row["task"] for row in csv.DictReader(io.StringIO(written.text))] == ["t103"]


async def test_what_is_wrong_is_named_and_changes_nothing(api):
    wrong = {
        "sla.finish_by": {"finish_by": "25:00"},
        "sla.success_ratio": {"success_ratio": 1.5},
        "sla.window": {"window": "91d"},
        "sla.on_breach": {"on_breach": "panic"},
        "sla.start_within_seconds": {"start_within_seconds": -1},
        "sla.colour": {"colour": "red"},
    }
    for field, sla in wrong.items():
        told = await api.call("POST", "/tasks", {"name": "a", "target_url": "http://127.0.0.1/", "sla": sla})
        assert told.status == 400, field
        assert field in told.body["details"], told.body
    assert (await api.good("GET", "/tasks"))["total"] == 0
    for query in ("by=week", "label=team", "from=x", "colour=red"):
        assert (await api.call("GET", f"/stats/sla?{query}")).status == 400, query
    for path in ("/stats", "/stats/sla"):
        told = await api.call("GET", f"{path}?from=2190-01-01T00:00:00Z")
        assert (told.status, list(told.body["details"])) == (400, ["from"])


async def test_levels_of_labels_come_from_the_settings():
    async with serving("memory://", sla={"team=billing": {"start_within_seconds": 5}}) as api:
        task = await api.create(name="a", labels={"team": "billing"})
        (level,) = (await api.good("GET", "/stats/sla"))["tasks"]
        assert (level["task_id"], level["is_default"], level["sla"]["start_within_seconds"]) == (task, True, 5)
        await api.good("PATCH", f"/tasks/{task}", {"sla": {}})
        assert (await api.good("GET", f"/stats/sla?task={task}"))["tasks"][0]["sla"]["start_within_seconds"] is None


def test_settings_that_are_wrong_are_named():
    assert read_defaults({"a=b": {"finish_by": "06:00"}}) == {"a=b": Sla(finish_by="06:00")}
    wrong = {"sla.a": {"a": {}}, "sla.a=b": {"a=b": 7}, "sla.a=b.window": {"a=b": {"window": "x"}}}
    for field, declared in wrong.items():
        with pytest.raises(SettingsError) as refused:
            read_defaults(declared)
        assert list(refused.value.details) == [field]


async def test_the_command_line_tells_the_same(api, monkeypatch):
    await seed(api)
    monkeypatch.setenv("NOONBELL_URL", api.root)

    def ask(*arguments: str) -> str:
        answer = CliRunner(env=dict(os.environ)).invoke(root, ["stats", "sla", *arguments])
        assert answer.exit_code == 0, answer.output
        return answer.output

    table = await asyncio.to_thread(ask)
    assert "report" in table
    assert "-50 %" in table
    assert '"error_budget"' in await asyncio.to_thread(ask, "--task", "report", "--by", "day", "-o", "json")
    assert await asyncio.to_thread(ask, "--label", "team=billing", "-o", "name") == "report\n"
