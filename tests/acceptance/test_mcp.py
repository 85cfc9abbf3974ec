"""`noonbell mcp`: the SDK's own client starts the command, and speaks to it over its standard input and output; a real server answers."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from integration.api.serving import JOB, Api, serving
from noonbell.cli.mcp import CHANGES, OF_ADMINS, READS
from noonbell.model.access import Role
from noonbell.settings import AuthSettings
from services.forked import COMMAND

if TYPE_CHECKING:  # the SDK takes a second to import, in every process that collects this file
    from mcp import Client


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://", auth=AuthSettings(enabled=True)) as api:
        for name, team in (("mine", "a"), ("theirs", "b")):
            await api.services.tasks.create(
                {**JOB, "name": name, "cron_expr": "0 3 * * *", "queue": "mail", "labels": {"team": team}}
            )
        yield api


def started(words: list[str], env: dict[str, str]) -> Client:
    from mcp import Client, StdioServerParameters

    return Client(StdioServerParameters(command=COMMAND, args=words, env=env))


@contextlib.asynccontextmanager
async def connected(api: Api, role: Role, *words: str, **scope: Any) -> AsyncIterator[Client]:
    _, secret = await api.parts.access.create(f"{role} {scope}"[:20].translate(_PLAIN), role, **scope)
    env = {**os.environ, "NOONBELL_URL": api.root, "NOONBELL_TOKEN": secret}
    async with started(["mcp", *words], env) as client:
        yield client


_PLAIN = str.maketrans(dict.fromkeys("{}':", "."))


async def told(client: Client, tool: str, /, **given: Any) -> Any:
    """A good answer. The client has checked it against the schema that the tool declares."""
    answer = await client.call_tool(tool, given)
    assert not answer.is_error, answer.content
    assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
    return answer.structured_content


async def refused(client: Client, tool: str, /, **given: Any) -> Any:
    answer = await client.call_tool(tool, given)
    assert answer.is_error
    return json.loads(answer.content[0].text)  # type: ignore[union-attr]


async def test_an_operator_looks_triggers_explains_pauses_and_resumes(api: Api):
    async with connected(api, Role.OPERATOR) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == [*READS, *CHANGES]
        assert {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint} == {
            *READS
        }
        assert tools["trigger_task"].input_schema["required"] == ["id"]
        assert "payload" in tools["trigger_task"].input_schema["properties"]
        assert all(tool.output_schema is not None for tool in tools.values())
        listed = await told(client, "list_tasks", label="team=a")
        assert [task["name"] for task in listed["items"]] == ["mine"]
        run_id = (await told(client, "trigger_task", id="name:mine", payload={"n": 1}))["run_id"]
        shown = await told(client, "get_run", run_id=run_id)
        assert (shown["payload"], shown["status"]) == ({"n": 1}, "SCHEDULED")
        assert (await told(client, "explain_run", run_id=run_id))["cause"] == "no_worker"
        assert [run["id"] for run in (await told(client, "list_runs", task="mine"))["items"]] == [run_id]
        assert (await told(client, "pause_task", id="name:mine"))["status"] == "DISABLED"
        assert (await told(client, "resume_task", id="name:mine"))["status"] == "ENABLED"
        assert (await told(client, "pause_queue", name="mail"))["paused"] is True
        assert (await told(client, "get_queue", name="mail"))["paused"] is True
        assert (await told(client, "resume_queue", name="mail"))["paused"] is False
        assert len((await told(client, "next_slots", id="name:mine", count=3))["next_fires"]) == 3
        for name in ("timeline", "stats", "list_queues", "list_workers"):
            await told(client, name)
        await told(client, "list_attempts", run_id=run_id)
        await told(client, "read_log", run_id=run_id)
        await told(client, "explain_task", id="name:mine")
        await api.services.runs.cancel(run_id)
        assert (await told(client, "retry_run", run_id=run_id))["retry_of_run_id"] == run_id
    entries = await api.parts.access.log(None, 20)
    assert {entry["actor"] for entry in entries} == {"operator .."}
    assert {"trigger_task", "pause_queue", "retry_run"} <= {entry["action"] for entry in entries}


async def test_a_viewer_has_no_tool_that_changes_and_the_server_refuses_it_all_the_same(api: Api):
    async with connected(api, Role.VIEWER) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [*READS]
        assert (await refused(client, "trigger_task", id="name:mine"))["code"] == "FORBIDDEN"
        assert (await refused(client, "audit_log"))["code"] == "FORBIDDEN"


async def test_an_admin_reads_the_audit_log_and_read_only_leaves_changes_out(api: Api):
    async with connected(api, Role.ADMIN, "--read-only") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [*READS, *OF_ADMINS]
        assert (await told(client, "audit_log", limit=5))["items"] == []
        assert (await refused(client, "trigger_task", id="name:mine"))["code"] == "NOT_FOUND"


async def test_a_scope_holds_and_what_is_wrong_is_named(api: Api):
    async with connected(api, Role.OPERATOR, labels={"team": "a"}) as client:
        assert [task["name"] for task in (await told(client, "list_tasks"))["items"]] == ["mine"]
        assert (await refused(client, "trigger_task", id="name:theirs"))["code"] == "NOT_FOUND"
        wrong = await refused(client, "trigger_task", id="name:mine", priorty=3)
        assert (wrong["code"], list(wrong["details"])) == ("INVALID_ARGUMENT", ["priorty"])
        assert (await refused(client, "get_task"))["details"] == {"id": "is missing"}


async def test_a_revoked_token_and_a_server_that_is_away_are_said_in_the_answer(api: Api):
    async with connected(api, Role.VIEWER) as client:
        await told(client, "list_tasks")
        await api.parts.access.revoke("viewer ..")
        assert (await refused(client, "list_tasks"))["code"] == "UNAUTHORIZED"
    from mcp.shared.exceptions import MCPError

    env = {**os.environ, "NOONBELL_URL": "http://127.0.0.1:9", "NOONBELL_TOKEN": "x"}
    async with started(["mcp"], env) as client:
        assert (await refused(client, "list_tasks"))["code"] == "UNAVAILABLE"
        with pytest.raises(MCPError, match="no server at") as ended:
            await client.list_tools()
        assert ended.value.error.data == {"code": "UNAVAILABLE"}
