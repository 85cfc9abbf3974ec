"""`worker_labels` over HTTP, by the worker protocol, in the settings and on the command line."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from integration.api.serving import JOB, Api
from integration.web.asking import get
from noonbell.cli.options import label_flags
from noonbell.cli.root import root
from noonbell.settings.kinds import labels


async def test_a_worker_by_the_api_gets_what_its_labels_fit(quick_api: Api):
    fields = {**JOB, "name": "train", "worker_labels": {"gpu": "a100"}}
    task = (await quick_api.good("POST", "/tasks", fields, 201))["id"]
    assert (await quick_api.good("GET", f"/tasks/{task}"))["worker_labels"] == {"gpu": "a100"}
    run_id = await quick_api.trigger(task)
    claim = {"queues": ["default"], "wait_seconds": 0}
    assert (await quick_api.good("POST", "/workers/w1/claim", claim))["runs"] == []
    explained = await quick_api.good("GET", f"/runs/{run_id}/explain")
    assert explained["cause"] == "no_worker"
    assert "has the labels gpu=a100." in explained["message"]
    (queue,) = (await quick_api.good("GET", "/queues"))["items"]
    assert [one["lack"] for one in queue["unserved"]] == ["labels"]
    assert "waits in default for a worker with its labels" in await get(quick_api, "/queues")
    assert "start a worker with the labels gpu=a100" in await get(quick_api, f"/runs/{run_id}")
    claim["labels"] = {"gpu": "a100", "zone": "eu"}
    (run,) = (await quick_api.good("POST", "/workers/w2/claim", claim))["runs"]
    assert run["run_id"] == run_id
    shown = {one["id"]: one["labels"] for one in (await quick_api.good("GET", "/workers"))["items"]}
    assert shown == {"w1": {}, "w2": {"gpu": "a100", "zone": "eu"}}
    assert "gpu=a100" in await get(quick_api, "/workers")


async def test_a_step_has_no_labels_of_its_own(quick_api: Api):
    steps = [{"id": "train", "job_type": "train", "worker_labels": {"gpu": "a100"}}]
    answer = await quick_api.call("POST", "/tasks", {"name": "flow", "steps": steps})
    assert answer.status == 400
    assert "steps[0].worker_labels" in answer.body["details"]


@pytest.mark.parametrize("wrong", [{"a=b": "c"}, {"": "c"}, {"a": 3}, ["a"]])
async def test_what_is_no_label_is_refused(quick_api: Api, wrong: object):
    answer = await quick_api.call("POST", "/tasks", {**JOB, "name": "train", "worker_labels": wrong})
    assert answer.status == 400
    assert any(name.startswith("worker_labels") for name in answer.body["details"])
    answer = await quick_api.call("POST", "/workers/w1/claim", {"labels": wrong, "wait_seconds": 0})
    assert answer.status == 400


def test_labels_are_read_from_settings_and_flags():
    assert labels.read({"gpu": "a100", "slots": 4}) == {"gpu": "a100", "slots": "4"}
    assert labels.read("gpu=a100, zone=eu") == {"gpu": "a100", "zone": "eu"}
    assert label_flags(()) == {}
    assert label_flags(("gpu=a100", "zone=eu=1")) == {"jobs__worker_labels": {"gpu": "a100", "zone": "eu=1"}}
    for wrong in ("gpu", {"a=b": "c"}, {"a": True}):
        with pytest.raises(ValueError):
            labels.read(wrong)


def test_a_label_without_a_value_is_refused_by_name():
    done = CliRunner().invoke(root, ["worker", "--app", "x:app", "--label", "gpu"])
    assert done.exit_code == 2
    assert "'gpu' is not NAME=VALUE" in done.output
