"""Lists of runs: words are found in all that a run says, and what a filter finds is a file."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import json
import os
import re

import pytest
from click.testing import CliRunner

from integration.web.asking import get, post, status_of
from noonbell.cli.root import root
from noonbell.web import lists, run_list


async def invoices(api) -> tuple[int, list[int]]:
    task = (await api.good("POST", "/tasks", {"name": "invoices", "job_type": "invoice", "queue": "inv"}, 201))["id"]
    asked = ({"key": "INV-77"}, {"payload": {"customer": "ACME-4711"}}, {"payload": {"customer": "=1+1"}})
    runs = [(await api.good("POST", f"/tasks/{task}/trigger", fields))["run_id"] for fields in asked]
    return task, runs


async def test_words_are_found_in_key_and_payload_by_list_api_and_search_box(everywhere):
    api = everywhere
    _, (by_key, by_payload, other) = await invoices(api)
    for text, run in (("inv-77", by_key), ("acme-4711", by_payload)):
        page = await get(api, f"/runs?search={text}")
        assert f"/runs/{run}" in page
        assert f"/runs/{other}" not in page
        assert [each["id"] for each in (await api.good("GET", f"/runs?search={text}"))["items"]] == [run]
        told = await api.call("GET", f"//search?q={text}", allow_redirects=False)
        assert told.headers["location"].endswith(f"runs/{run}")
    typed = await api.call("GET", "//runs?q=ACME-4711", allow_redirects=False)
    assert typed.headers["location"].endswith("runs?search=ACME-4711")
    nothing = await api.call("GET", "//search?q=nothing-has-this", allow_redirects=False)
    assert nothing.headers["location"].endswith("runs?search=nothing-has-this")
    assert "inv-77" in (await get(api, "/runs")).lower(), "the key is not in the list"


async def test_a_nul_in_what_is_searched_for_is_left_out(everywhere):
    """No text in a database has one, and PostgreSQL refuses to look for it."""
    api = everywhere
    _, (run, *_) = await invoices(api)
    for path in (
        f"/runs/{run}?find=%00",
        "/palette?q=%00",
        "/palette?q=pause%20%00",
        "/suggest?for=tasks&key=name&text=%00",
        "/suggest?for=runs&key=label&text=%00",
    ):
        assert (await api.call("GET", f"/{path}", headers={"accept": "text/html"})).status == 200, path
    found = await api.call("GET", "//search?q=inv%00oices", allow_redirects=False)
    assert (found.status, found.headers["location"].endswith("tasks/1")) == (303, True)


async def test_runs_are_exported_with_the_filter_of_the_page_and_no_cell_is_a_formula(api, monkeypatch):
    task, runs = await invoices(api)
    await api.good("POST", f"/runs/{runs[0]}/cancel", {"reason": "=cmd()"})
    for path in (
        f"//runs/export?task={task}&format=csv",
        f"/runs/export?task={task}&format=csv",
        f"/runs/export?task={task}",
    ):
        told = await api.call("GET", path)
        assert told.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(told.text)))
        assert [int(row["id"]) for row in rows] == runs[::-1]
        assert (rows[-1]["status"], rows[-1]["key"], rows[-1]["task_name"]) == ("CANCELED", "INV-77", "invoices")
        assert all(not cell.startswith("=") for row in rows for cell in row.values())
    page = await get(api, "/runs?status=CANCELED")
    assert "/runs/export?format=ndjson&status=CANCELED" in page
    told = await api.call("GET", "//runs/export?format=ndjson&status=CANCELED")
    assert 'filename="noonbell-runs.ndjson"' in told.headers["content-disposition"]
    (line,) = told.text.splitlines()
    assert json.loads(line) == (await api.good("GET", "/runs?status=CANCELED"))["items"][0]
    monkeypatch.setenv("NOONBELL_URL", api.root)
    args = ["run", "export", "--format", "ndjson", "--search", "acme"]
    answer = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, root, args)
    assert [json.loads(each)["id"] for each in answer.output.splitlines()] == [runs[1]]
    assert await status_of(api, "/runs/export?format=xml") == 400
    assert (await api.call("GET", "/runs/export?format=xml")).status == 400
    assert (await api.call("GET", "/runs/export?task=1&from=yesterday")).status == 400


async def test_an_export_of_many_runs_has_each_of_them_once(api):
    task = (await api.good("POST", "/tasks", {"name": "many", "job_type": "x", "queue": "q"}, 201))["id"]
    made = await api.good("POST", "/runs/batch", {"runs": [{"task": task}] * 1_201})
    told = await api.call("GET", f"//runs/export?task={task}&format=ndjson")
    ids = [json.loads(line)["id"] for line in told.text.splitlines()]
    assert ids == sorted((each["run_id"] for each in made["runs"]), reverse=True)


async def test_a_list_says_how_many_runs_there_are_and_a_bulk_change_repeats_its_filter(everywhere, monkeypatch):
    api = everywhere
    task, runs = await invoices(api)
    await api.good("POST", f"/runs/{runs[0]}/cancel", {})
    count = '<span class="count" data-live="total">{}</span>'
    assert count.format(3) in await get(api, f"/runs?task={task}")
    assert count.format(1) in await get(api, f"/runs?task={task}&status=CANCELED")
    assert count.format("") in await get(api, "/runs?search=invoices"), "no index leads there"
    monkeypatch.setattr(run_list, "_TOTAL", 2)
    monkeypatch.setattr(lists, "PAGE_SIZE", 1)
    assert count.format("2+") in await get(api, f"/runs?task={task}")
    page = await get(api, f"/runs/bulk?act=retry&task={task}&status=CANCELED")
    assert f"<code>task:{task}</code>" in page
    assert "<code>status:CANCELED</code>" in page
    assert f'/runs/{runs[0]}"' in page
    assert "none, all runs" in await get(api, "/runs/bulk?act=retry")


async def test_selected_runs_that_have_ended_are_deleted_and_the_others_stay(everywhere):
    api = everywhere
    task, runs = await invoices(api)
    await api.good("POST", f"/runs/{runs[0]}/cancel", {})
    assert 'name="act" value="delete"' in await get(api, f"/runs?task={task}")
    status, went_to, _ = await post(api, "/runs/ticked", {"act": "delete", "id": f"{runs[0]},{runs[1]}"})
    assert (status, went_to) == (303, "/runs")
    assert sorted(run["id"] for run in (await api.good("GET", "/runs"))["items"]) == sorted(runs[1:])


@pytest.mark.parametrize("filtered", ["", "&status=CANCELED", "&text=invoices"])
async def test_a_list_of_runs_goes_from_the_oldest_on_where_its_heading_is_followed(everywhere, monkeypatch, filtered):
    api = everywhere
    task, runs = await invoices(api)
    for run in runs:
        await api.good("POST", f"/runs/{run}/cancel", {})
    monkeypatch.setattr(lists, "PAGE_SIZE", 2)
    first = await get(api, f"/runs?task={task}{filtered}")
    assert 'aria-sort="descending"' in first
    assert _listed(first) == sorted(runs, reverse=True)[:2]
    link = re.search(r'aria-sort="descending"><a\s+href="\./runs\?([^"]+)"', first)
    assert link is not None
    rising = await get(api, f"/runs?{html.unescape(link[1])}")
    assert 'aria-sort="ascending"' in rising
    assert '<input type="hidden" name="sort" value="id">' in rising
    assert _listed(rising) == sorted(runs)[:2]
    following = re.search(r'href="\./runs\?([^"]+)" rel="next"', rising)
    assert following is not None
    last = await get(api, f"/runs?{html.unescape(following[1])}")
    assert _listed(last) == sorted(runs)[2:]
    assert "Oldest" in last
    assert 'aria-sort="ascending"' in last


async def test_an_order_that_no_index_gives_is_refused_by_lists_of_runs(everywhere):
    api = everywhere
    await invoices(api)
    for path in ("/runs", "/calls"):
        assert "expected one of -id, id: newest or oldest first" in await get(api, f"{path}?sort=duration_ms")
    assert (await api.call("GET", "//runs/export?sort=id")).status == 400


def _listed(text: str) -> list[int]:
    return [int(each) for each in re.findall(r'<tr data-row="(\d+)"', text)]
