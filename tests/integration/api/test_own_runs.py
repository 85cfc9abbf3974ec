"""A run whose target is the API that it belongs to, on a server that asks for no token."""

from __future__ import annotations

import pytest

from integration.api.serving import Api
from noonbell.model.task import TaskStatus


async def calls_itself(api: Api, **headers: str) -> tuple[int, int, dict[str, str]]:
    """The task that is to be disabled, a run, and the headers that the run's request has."""
    victim = await api.create(name="victim")
    run_id = await api.trigger(await api.create(name="caller"))
    return victim, run_id, {"X-Noonbell-Run": str(run_id), **headers}


async def status_of(api: Api, task_id: int) -> str:
    return str((await api.good("GET", f"/tasks/{task_id}"))["status"])


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_run_of_ours_without_a_token_is_refused(api: Api, method: str):
    victim, _, headers = await calls_itself(api)
    path = f"/tasks/{victim}" + ("/disable" if method == "POST" else "")
    assert await api.bad(method, path, headers=headers) == (403, "FORBIDDEN")
    assert await api.bad("GET", "/tasks", headers=headers) == (403, "FORBIDDEN")
    assert await status_of(api, victim) == TaskStatus.ENABLED


async def test_with_a_good_token_it_may(api: Api):
    victim, _, headers = await calls_itself(api)
    _, secret = await api.parts.access.create("self", "operator")
    wrong = {**headers, "Authorization": "Bearer nb_wrong"}
    assert await api.bad("POST", f"/tasks/{victim}/disable", headers=wrong) == (401, "UNAUTHORIZED")
    await api.good("POST", f"/tasks/{victim}/disable", headers={**headers, "Authorization": f"Bearer {secret}"})
    assert await status_of(api, victim) == TaskStatus.DISABLED


async def test_other_callers_and_open_calls_are_left_alone(api: Api):
    victim, run_id, headers = await calls_itself(api)
    for number in ("", "9007199254740991", "x", "-1", "1" * 40):  # of another installation, or no run at all
        await api.good("POST", f"/tasks/{victim}/disable", headers={"X-Noonbell-Run": number})
    await api.good("GET", "/healthz", headers=headers)
    task = (await api.good("GET", f"/runs/{run_id}"))["task_id"]
    told = {"task_id": task, "run_id": run_id, "status": "SUCCESS"}
    assert (await api.call("POST", "/callbacks", told, headers=headers)).status != 403
