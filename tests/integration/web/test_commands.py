"""Commands on the pages: which workers run them, how one ended, and what a run waits for."""

from __future__ import annotations

import re
from typing import Any

from conformance.store.builders import claim, finish
from integration.api.serving import Api
from integration.web.asking import get, post
from noonbell.model.run import RunStatus
from noonbell.model.target_kind import COMMAND_TYPE
from noonbell.model.worker import WorkerInfo

NOON: dict[str, Any] = {"name": "noon", "target_url": None, "command": ["/bin/echo", "a b"]}


async def test_a_run_of_a_command_that_no_worker_takes_says_what_to_start(api: Api):
    await api.store.register_worker(WorkerInfo(id="any", incarnation="a"))
    run = await api.trigger(await api.create(**NOON))
    page = await get(api, f"/runs/{run}")
    assert 'data-advice="no_worker_commands"' in page
    assert "noonbell worker --queues default --commands allow.yaml" in page
    assert "--commands allow.yaml" in await get(api, "/queues/default")


async def test_a_worker_that_runs_commands_says_so(api: Api):
    await api.store.register_worker(WorkerInfo(id="one", incarnation="a", job_types=("resize", COMMAND_TYPE)))
    page = await get(api, "/workers")
    assert "Runs the commands that its own file allows." in page
    assert COMMAND_TYPE not in page


async def test_the_page_of_a_run_shows_the_command_and_how_it_ended(api: Api):
    task = await api.create(**NOON)
    for details, shown in (({"exit_code": 3}, ">3</span>"), ({"signal": "SIGKILL"}, ">SIGKILL</span>")):
        run = await api.trigger(task)
        (lease,) = await claim(api.store, job_types=(COMMAND_TYPE,))
        kind = next(iter(details))
        ended = finish(lease, RunStatus.FAILED, error_details={**details, "kind": kind}, error_message="it ended")
        await api.store.settle([ended])
        page = await get(api, f"/runs/{run}")
        assert shown in page
        assert "/bin/echo 'a b'" in page
        assert 'data-advice="command"' in page


def opened_pane(page: str) -> str:
    """Of the attempt's request, response, callback, log: the one that is shown first."""
    (found,) = re.findall(r'data-pane="(\w+)"\s+aria-current="true"', page)
    return str(found)


async def test_a_command_that_failed_opens_on_its_log(api: Api):
    run = await api.trigger(await api.create(**NOON))
    (lease,) = await claim(api.store, job_types=(COMMAND_TYPE,))
    assert await api.store.log(lease.run_id, lease.token, [("warning", "no disk")])
    details = {"exit_code": 3, "kind": "exit_code"}
    await api.store.settle([finish(lease, RunStatus.FAILED, error_details=details, error_message="it ended with 3")])
    assert opened_pane(await get(api, f"/runs/{run}")) == "log"


async def test_a_message_that_failed_opens_on_what_went_wrong_and_not_on_a_callback_that_never_comes(api: Api):
    message = {"url": "amqp://127.0.0.1:9/", "routing_key": "q", "callback": True}
    task = await api.create(name="orders", target_url=None, amqp=message)
    run = await api.trigger(task)
    (lease,) = await claim(api.store, queues=("target:amqp",))
    assert opened_pane(await get(api, f"/runs/{run}")) == "callback", "while it may still come"
    details = {"kind": "connection_refused"}
    await api.store.settle([finish(lease, RunStatus.FAILED, error_details=details, error_message="nothing listens")])
    assert opened_pane(await get(api, f"/runs/{run}")) == "response"


async def test_the_form_makes_a_command_and_the_audit_log_names_it(api: Api):
    given = {"name": "noon", "kind": "command", "command": '["/bin/echo", "a b"]', "when": "none", "shell": "false"}
    status, _, text = await post(api, "/tasks/new", {**given, "env": "API_KEY=known-to-few", "enabled": "on"})
    assert status == 303, text[-2000:]
    task = await api.good("GET", "/tasks/name:noon")
    assert (task["exec_type"], task["command"], task["env"]) == ("COMMAND", ["/bin/echo", "a b"], {"API_KEY": "***"})
    (entry,) = (await api.good("GET", "/audit?limit=1"))["items"]
    assert entry["details"]["command"] == "noon: /bin/echo 'a b'"
