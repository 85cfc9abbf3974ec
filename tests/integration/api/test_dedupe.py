"""`dedupe` over HTTP: what is refused, and what a trigger and a batch are answered with."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from click.testing import CliRunner

from integration.api.serving import JOB, Api
from noonbell.cli.root import root

THROTTLE = {"mode": "throttle", "key": "k", "seconds": 60}
DEBOUNCE = {"mode": "debounce", "key": "k", "seconds": 60}


async def task_of(api: Api) -> int:
    return int((await api.good("POST", "/tasks", {**JOB, "name": "work"}, 201))["id"])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"dedupe": THROTTLE, "key": "k"}, "dedupe"),
        ({"dedupe": {"mode": "throttle", "key": "k"}}, "dedupe.seconds"),
        ({"dedupe": {"mode": "debounce", "key": "k"}}, "dedupe.seconds"),
        ({"dedupe": {"mode": "key", "key": "k", "seconds": 5}}, "dedupe.seconds"),
        ({"dedupe": {"mode": "key"}}, "dedupe.key"),
        ({"dedupe": {"key": "k"}}, "dedupe.mode"),
        ({"dedupe": {"mode": "often", "key": "k"}}, "dedupe.mode"),
        ({"dedupe": {"mode": "key", "key": ""}}, "dedupe.key"),
        ({"dedupe": {"mode": "key", "key": "k" * 201}}, "dedupe.key"),
        ({"dedupe": {**THROTTLE, "seconds": 0}}, "dedupe.seconds"),
        ({"dedupe": {**THROTTLE, "keep": "all"}}, "dedupe.keep"),
        ({"dedupe": {**THROTTLE, "max_wait_seconds": 90}}, "dedupe.max_wait_seconds"),
        ({"dedupe": {**DEBOUNCE, "max_wait_seconds": 5}}, "dedupe.max_wait_seconds"),
        ({"dedupe": DEBOUNCE, "delay_seconds": 5}, "delay_seconds"),
        ({"dedupe": THROTTLE, "run_at": "2030-01-01T00:00:00Z"}, "run_at"),
        ({"dedupe": {**THROTTLE, "odd": 1}}, "dedupe.odd"),
        ({"key": "dedupe:throttle:k"}, "key"),
    ],
)
async def test_what_contradicts_itself_is_refused_by_the_name_of_the_field(
    quick_api: Api, given: dict[str, Any], field: str
):
    task = await task_of(quick_api)
    answer = await quick_api.call("POST", f"/tasks/{task}/trigger", given)
    assert answer.status == 400
    assert list(answer.body["details"]) == [field]
    batch = await quick_api.call("POST", "/runs/batch", {"runs": [{"task": task, **given}]})
    assert list(batch.body["details"]) == [f"runs[0].{field}"]


async def test_a_throttled_trigger_makes_no_run_and_is_answered_with_the_standing_one(api_everywhere: Api):
    api = api_everywhere
    task = await task_of(api)
    first = await api.good("POST", f"/tasks/{task}/trigger", {"dedupe": THROTTLE})
    second = await api.good("POST", f"/tasks/{task}/trigger", {"dedupe": THROTTLE})
    assert (first["outcome"], second) == ("created", {"run_id": first["run_id"], "outcome": "exists"})
    runs = [{"task": task, "dedupe": THROTTLE}, {"task": task, "dedupe": DEBOUNCE}, {"task": task}]
    answers = (await api.good("POST", "/runs/batch", {"runs": runs}))["runs"]
    assert [answer["outcome"] for answer in answers] == ["exists", "created", "created"]
    assert (await api.good("GET", f"/tasks/{task}/runs"))["total"] == 3


async def test_the_command_line_says_that_no_run_was_made(api: Api, monkeypatch: pytest.MonkeyPatch):
    await task_of(api)
    monkeypatch.setenv("NOONBELL_URL", api.root)

    async def ask(*arguments: str) -> tuple[str, str]:
        answer = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, root, arguments)
        assert answer.exit_code == 0, answer.output
        return answer.stdout, answer.stderr

    throttled = ("trigger", "work", "--dedupe-key", "k", "--throttle", "60s")
    debounced = ("trigger", "work", "--dedupe-key", "k", "--debounce", "60s")
    called = ("call", "http://127.0.0.1:9000/", "--key", "k", "--delay", "60s")
    for asked, note in (
        (throttled, "there is a run of this key already"),
        (debounced, "the waiting run of this key was changed"),
        (
            ("trigger", "work", "--dedupe-key", "k", "--keep", "last"),
            "the waiting run of this key was changed",
        ),
        (called, "there is a run of this key already"),
    ):
        made, quiet = await ask(*asked)
        assert quiet == ""
        assert await ask(*asked) == (made, f"note: {note}; no new one was made\n")
