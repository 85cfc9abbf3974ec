"""Lists, charts, reasons, safe addresses: the decisions of the pages, without a server."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from noonbell.clock import Instant
from noonbell.model.rollup import Figures
from noonbell.model.run import Origin, Run, RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.service.filters import read_filter
from noonbell.service.timeline import Load
from noonbell.stores import open_store
from noonbell.web import __file__ as web_file
from noonbell.web import charts, lists, recent, timeline_rows
from noonbell.web import run_timeline as run_time
from noonbell.web.context import merged, pretty
from noonbell.web.login import safe_path
from noonbell.web.render import asset_address, asset_contents, fingerprint
from noonbell.web.settings import file_size

T0 = 1_800_000_000_000_000


def run(number: int, status: str = "SUCCESS", ms: int = 100, **more) -> Run:
    start = Instant(T0 + number * 1_000_000)
    return Run(
        id=RunId(number),
        task_id=TaskId(1),
        task_name="t",
        task_version=1,
        origin=Origin.SCHEDULE,
        status=RunStatus(status),
        scheduled_time=start,
        run_at=start,
        created_at=start,
        updated_at=start,
        queue="http",
        start_time=start,
        end_time=Instant(start + ms * 1000),
        **more,
    )


def test_failures_are_the_tall_ones_and_the_oldest_stands_at_the_left():
    strip = charts.strip([run(3), run(2, "FAILED"), run(1, "SKIPPED")])
    assert [cell.run.id for cell in strip.cells] == [1, 2, 3]
    heights = [cell.height for cell in strip.cells]
    assert heights[0] < heights[2] < heights[1] == strip.height
    assert (strip.failed, strip.succeeded) == (1, 1)


def test_a_strip_of_nothing_is_a_strip():
    assert charts.strip([]).cells == []


def test_runs_are_counted_in_the_hour_that_they_ended_in():
    ended = [(0, Figures()), (1, Figures(counts={"SUCCESS": 1, "FAILED": 1})), (2, Figures(counts={"SKIPPED": 2}))]
    found = charts.hours(ended, {"waiting": 1})
    assert [counts for _, counts in found] == [{}, {"ok": 1, "bad": 1}, {"idle": 2, "waiting": 1}]
    bars = charts.bars(found)
    assert bars.most == 3
    assert [bar.mark for bar in bars.columns[1].bars] == ["ok", "bad"]
    assert [bar.mark for bar in bars.columns[2].bars] == ["idle", "waiting"], "what waits is not skipped"


def test_failures_that_differ_in_numbers_alone_are_one_reason():
    failed = [run(n, "FAILED", error_message=f"port {9000 + n} refused after {n} ms") for n in range(5, 0, -1)]
    (reason,) = recent.reasons([*failed, run(0)], [])
    assert (reason.count, reason.newest.id, reason.first.id) == (5, 5, 1)


def test_health_counts_what_was_decided_and_no_skips():
    figures = recent.health([run(1), run(2), run(3, "FAILED"), run(4, "SKIPPED")])
    assert (figures.ended, figures.success) == (3, 66.7)


def test_bars_of_a_run_stay_on_their_axis():
    bars = run_time.bars(run(1, ms=5000), [], [], T0 + 9_000_000)
    assert bars
    assert all(0 <= bar.x <= run_time.WIDTH and bar.x + bar.width <= run_time.WIDTH + 4 for bar in bars)


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("/tasks?name=a", "/tasks?name=a"),
        ("//evil.example/x", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("", "/"),
        ("/a\r\nset-cookie: b", "/"),
    ],
)
def test_a_redirect_stays_on_the_dashboard(given, safe):
    assert safe_path(given) == safe


def test_a_link_that_changes_a_filter_begins_at_the_first_page():
    assert merged({"name": "a", "page": "3", "cursor": "x"}, status="ERROR") == {"name": "a", "status": "ERROR"}
    assert merged({"name": "a"}, name=None) == {}


def test_the_pager_ends_where_the_list_does():
    assert lists.pager_by_number({}, 2, 50).next is None
    assert lists.pager_by_number({"name": "a"}, 1, 51).next == {"name": "a", "page": 2}
    assert lists.pager_by_cursor({"cursor": "x"}, None).first == {}


def test_json_is_laid_out_with_every_digit_it_had():
    assert pretty('{"a":9223372036854775807,"b":1.10}') == '{\n  "a": 9223372036854775807,\n  "b": 1.10\n}'
    assert pretty("{not json") == "{not json"
    assert pretty("[" * 5000) == "[" * 5000


def test_every_module_that_a_script_imports_is_served_and_nothing_is_loaded_from_elsewhere():
    names = set(asset_contents())
    assert asset_address("app.css") == f"/static/{fingerprint()}/app.css"
    for name in names:
        text = asset_contents()[name].decode()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        for line in text.splitlines():
            if line.startswith("import "):
                assert line.split('"./')[1].split('"')[0] in names


def test_tasks_that_meet_again_and_again_are_one_crowd_and_those_that_always_fire_are_none():
    names = {TaskId(number): f"t{number}" for number in range(1, 6)}
    daily = [86_400, 2 * 86_400]
    found = [daily, daily, daily, [86_400 + 7_200], list(range(60, 200_000, 60))]
    (crowd,) = timeline_rows.crowds(Load(dict(zip(names, found, strict=True)), {}, names, 5, 5))
    assert (crowd.minute, [name for _, name in crowd.names]) == (86_400_000_000, ["t1", "t2", "t3"])


def test_tasks_with_a_jitter_that_is_long_enough_for_all_that_meet_are_no_crowd():
    """Within half a minute they start in the same minute still, some seconds from each other."""
    names = {TaskId(number): f"t{number}" for number in range(1, 6)}
    slots = {task: [86_400 + 5 * task] for task in names}

    def found(jitters: dict[TaskId, int]) -> list[list[str]]:
        return [
            [name for _, name in each.names] for each in timeline_rows.crowds(Load(slots, {}, names, 5, 5, jitters))
        ]

    assert found({}) == [["t1", "t2", "t3", "t4", "t5"]]
    assert found(dict.fromkeys(names, 30)) == []
    assert found({TaskId(2): 30}) == [["t1", "t3", "t4", "t5"]]
    assert found(dict.fromkeys(names, 29)) == [["t1", "t2", "t3", "t4", "t5"]]


@pytest.mark.parametrize("name", ["plain.db", "with a blank.db", "what?.db"])
async def test_the_size_of_a_store_is_that_of_the_file_which_the_store_opens(tmp_path, name):
    url = f"sqlite:///{quote(str(tmp_path / name))}"
    store = open_store(url)
    await store.open()
    await store.close()
    assert (tmp_path / name).stat().st_size > 0
    assert file_size(url) == (tmp_path / name).stat().st_size
    assert file_size("postgresql://127.0.0.1/noonbell") is None


def test_the_events_that_each_page_listens_to_are_ones_that_the_stream_takes():
    pages = {path.name: path.read_text() for path in (Path(web_file).parent / "templates").glob("*.html")}
    asked = {name: re.findall(r"\btype=([\w.,]+)", text) for name, text in pages.items() if "block events" in text}
    wanted = {name: types for name, types in asked.items() if types}
    assert len(wanted) > 8
    for name, types in wanted.items():
        for each in types:
            assert read_filter({"type": each}).types == tuple(each.split(",")), name
