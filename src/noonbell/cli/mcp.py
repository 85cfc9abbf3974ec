"""`noonbell mcp`: the API of a server as tools of the Model Context Protocol, over standard input and output.

Each tool is one call of the API, with the token of the environment: roles, scopes and the audit log hold as they do for every
other caller. What a tool takes and answers is read from the API's own description, which is made from the declarations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from noonbell import errors
from noonbell.cli.api import Remote, segment
from noonbell.version import __version__

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp_types import CallToolResult, Tool

READS: Final = (
    *("list_tasks", "get_task", "next_slots", "explain_task", "list_runs", "get_run", "explain_run", "list_attempts"),
    *("read_log", "list_queues", "get_queue", "list_workers", "timeline", "stats"),
)
CHANGES: Final = ("trigger_task", "retry_run", "pause_task", "resume_task", "pause_queue", "resume_queue")
"""For the role operator."""
OF_ADMINS: Final = ("audit_log",)
_INSTRUCTIONS: Final = (
    "Noonbell runs tasks on schedules. A task makes runs, a run has attempts. `explain_task` and `explain_run` say why"
    " something did or did not run. A task is named by its id, or as name:NAME. Times are RFC 3339."
)


@dataclass(frozen=True, slots=True)
class ApiTool:
    """One operation of the API's description."""

    name: str
    method: str
    path: str
    summary: str
    places: tuple[str, ...]
    """Arguments that stand in the path."""
    queries: tuple[str, ...]
    takes: Mapping[str, Any]
    answers: Mapping[str, Any] | None

    def call(self, remote: Remote, given: Mapping[str, Any]) -> Any:
        missing = [name for name in self.places if name not in given]
        if missing:
            raise errors.InvalidArgument.field(missing[0], "is missing")
        path = self.path
        for name in self.places:
            path = path.replace(f"{{{name}}}", segment(str(given[name])), 1)
        rest = {name: value for name, value in given.items() if name not in self.places and value is not None}
        if self.method == "GET":
            return remote.call("GET", path, query=rest)
        query = {name: rest.pop(name) for name in self.queries if name in rest}
        return remote.call(self.method, path, rest, query=query)


def tools_of(description: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, ApiTool]:
    """Those of the names that the server has, in their order."""
    found = {
        operation["operationId"]: (method.upper(), path, operation)
        for path, item in description["paths"].items()
        for method, operation in item.items()
    }
    schemas = description["components"]["schemas"]
    return {name: _tool(name, *found[name], schemas) for name in names if name in found}


def _tool(name: str, method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> ApiTool:
    parameters = [each for each in operation.get("parameters", ()) if each["in"] in ("path", "query")]
    fields = {
        each["name"]: {"description": each.get("description", ""), **each.get("schema", {})} for each in parameters
    }
    required = [each["name"] for each in parameters if each.get("required")]
    body = _json_of(operation.get("requestBody", {}))
    if body is not None:
        whole = schemas[body["$ref"].rpartition("/")[2]] if "$ref" in body else body
        fields |= whole.get("properties", {})
        required += whole.get("required", [])
    answer = _json_of(operation["responses"].get("200", {}))
    notes = operation.get("description", "")
    return ApiTool(
        name=name,
        method=method,
        path=path,
        summary=f"{operation['summary']}. {notes}".strip(),
        places=tuple(each["name"] for each in parameters if each["in"] == "path"),
        queries=tuple(each["name"] for each in parameters if each["in"] == "query"),
        takes=_alone({"type": "object", "properties": fields, "required": required}, schemas),
        answers=None if answer is None else _alone({"type": "object", **answer}, schemas),
    )


def _json_of(part: Mapping[str, Any]) -> dict[str, Any] | None:
    schema: dict[str, Any] | None = part.get("content", {}).get("application/json", {}).get("schema")
    return schema


_REF: Final = "#/components/schemas/"


def _alone(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with all that it refers to in its own `$defs`."""
    defs: dict[str, Any] = {}

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        ref = value.get("$ref")
        if isinstance(ref, str) and ref.startswith(_REF):
            name = ref.removeprefix(_REF)
            if name not in defs:
                defs[name] = {}  # it may refer to itself
                defs[name] = moved(schemas[name])
            return {**{key: moved(each) for key, each in value.items() if key != "$ref"}, "$ref": f"#/$defs/{name}"}
        return {key: moved(each) for key, each in value.items()}

    found: dict[str, Any] = moved(schema)
    return {**found, "$defs": defs} if defs else found


class McpTools:
    """The tools that the token of `remote` may use. Which those are is asked anew for each list: tokens are revoked."""

    def __init__(self, remote: Remote, *, read_only: bool) -> None:
        self._remote, self._read_only = remote, read_only
        self._description: Mapping[str, Any] | None = None

    def known(self) -> dict[str, ApiTool]:
        if self._description is None:
            self._description = self._remote.get("/openapi.json")
        names = READS if self._read_only else (*READS, *CHANGES)
        return tools_of(self._description or {}, (*names, *OF_ADMINS))

    def usable(self) -> dict[str, ApiTool]:
        known = self.known()
        beyond: tuple[str, ...] = () if self._may("POST", "/tasks/enable") else CHANGES
        beyond += () if self._may("GET", "/audit?limit=1") else OF_ADMINS
        return {name: tool for name, tool in known.items() if name not in beyond}

    def _may(self, method: str, path: str) -> bool:
        """Whether the role reaches. A change without a filter is refused by its fields, and only after the role was
        found enough.
        """
        try:
            self._remote.call(method, path, None if method == "GET" else {})
        except errors.Forbidden:
            return False
        except errors.InvalidArgument:
            pass
        return True

    def call(self, name: str, given: Mapping[str, Any]) -> Any:
        tool = self.known().get(name)
        if tool is None:
            raise errors.NotFound(f"there is no tool {name!r} here")
        return tool.call(self._remote, given)


def server_of(tools: McpTools) -> Server[Any]:
    import anyio.to_thread
    import mcp_types as types
    from mcp.server import Server
    from mcp.shared.exceptions import MCPError

    async def listed(context: object, params: object) -> types.ListToolsResult:
        del context, params
        try:
            found = await anyio.to_thread.run_sync(tools.usable)
        except errors.NoonbellError as error:  # any other kind is logged with its traceback
            raise MCPError(types.INTERNAL_ERROR, error.message, {"code": error.code}) from None
        return types.ListToolsResult(tools=[_shown(tool) for tool in found.values()])

    async def called(context: object, params: types.CallToolRequestParams) -> CallToolResult:
        del context
        try:
            answer = await anyio.to_thread.run_sync(tools.call, params.name, params.arguments or {})
        except errors.NoonbellError as error:
            text = json.dumps({"code": error.code, "message": error.message, "details": error.details})
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
        text = json.dumps(answer, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=answer if isinstance(answer, dict) else None,
        )

    return Server(
        "noonbell", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=listed, on_call_tool=called
    )


def _shown(tool: ApiTool) -> Tool:
    import mcp_types as types

    return types.Tool(
        name=tool.name,
        description=tool.summary,
        input_schema=dict(tool.takes),
        output_schema=None if tool.answers is None else dict(tool.answers),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.name not in CHANGES,
            destructive_hint=False,
            idempotent_hint=tool.name.startswith(("pause_", "resume_")),
            open_world_hint=False,
        ),
    )


@click.command("mcp")
@click.option("--read-only", is_flag=True, help="Only offer tools that change nothing, even if the token may do more.")
def mcp_command(*, read_only: bool) -> None:
    """Serve the API of NOONBELL_URL as tools of the Model Context Protocol, over standard input and output.

    The role and scope of the token in NOONBELL_TOKEN decide what the tools may do. Requires noonbell[mcp].
    """
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise errors.SettingsError.field("mcp", "is not installed; pip install 'noonbell[mcp]'") from None
    server = server_of(McpTools(Remote.of_environment(), read_only=read_only))

    async def serve() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)
