"""`expires_in_seconds` over HTTP, by the command line and in Python."""

from __future__ import annotations

import pytest

from integration.api.serving import JOB, Api
from noonbell import App
from noonbell.clock import SECOND
from noonbell.errors import InvalidArgument
from noonbell.model.task import TaskId


async def test_a_task_and_a_publish_say_when_a_run_expires(quick_api: Api):
    task = (await quick_api.good("POST", "/tasks", {**JOB, "name": "j", "expires_in_seconds": 60}, 201))["id"]
    assert (await quick_api.good("GET", f"/tasks/{task}"))["expires_in_seconds"] == 60
    plain = (await quick_api.good("POST", f"/tasks/{task}/trigger"))["run_id"]
    own = (await quick_api.good("POST", f"/tasks/{task}/trigger", {"expires_in_seconds": 5}))["run_id"]
    batch = {"runs": [{"task": task, "expires_in_seconds": 7, "delay_seconds": 100}]}
    delayed = (await quick_api.good("POST", "/runs/batch", batch))["runs"][0]["run_id"]
    spans = []
    for run_id in (plain, own, delayed):
        run = await quick_api.store.run(run_id)
        assert run is not None
        assert run.expires_at is not None
        spans.append((run.expires_at - run.run_at) / SECOND)
        assert (await quick_api.good("GET", f"/runs/{run_id}"))["expires_at"] is not None
    assert spans == [60, 5, 7]


@pytest.mark.parametrize("value", [0, -1, 1.5, "soon"])
async def test_what_is_no_span_is_refused(quick_api: Api, value: object):
    answer = await quick_api.call("POST", "/tasks", {**JOB, "name": "j", "expires_in_seconds": value})
    assert (answer.status, list(answer.body["details"])) == (400, ["expires_in_seconds"])


async def test_a_job_says_it_by_an_option():
    app = App()

    @app.job(expires_in_seconds=30)
    async def resize(width: int) -> None: ...

    asked = resize.request(width=3, expires_in_seconds=9).publication(TaskId(1))
    assert (asked.expires_in_seconds, asked.payload) == (9, {"width": 3})
    assert resize.declared.task["expires_in_seconds"] == 30
    with pytest.raises(InvalidArgument, match="expires_in_seconds"):
        resize.request(width=3, expires_in_seconds=0)
