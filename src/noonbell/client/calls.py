"""Every call of the API, by the name that its description has for it. A new endpoint is one line here.

Arguments without a name fill the path. Named ones are the query of a GET or DELETE and the body of anything else; `body=`
is a whole body, `query=` a query beside it, `if_match=` the version that a change expects. `from` is written `from_`.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from noonbell.client.wire import BASE, Ask
from noonbell.errors import InvalidArgument

_PLACE = re.compile(r"\{(\w+)\}")
_QUERIED: Final = ("GET", "DELETE")


class Asker(Protocol):
    def _carry_out(self, ask: Ask) -> Any: ...


class Call:
    """A method of the client, told by an address."""

    def __init__(self, method: str, path: str, *, base: str = BASE) -> None:
        self.method, self.path, self.base = method, path, base
        self._places = _PLACE.findall(path)
        self._name = ""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, client: Asker | None, owner: type[Any]) -> Callable[..., Any]:
        if client is None:
            return self  # type: ignore[return-value]

        def call(*places: Any, **named: Any) -> Any:
            return client._carry_out(self.ask(places, named))

        call.__name__ = self._name
        call.__doc__ = f"{self.method} {self.base}{self.path}"
        return call

    def ask(self, places: tuple[Any, ...], named: Mapping[str, Any]) -> Ask:
        if len(places) != len(self._places):
            what = ", ".join(self._places) or "no argument without a name"
            raise InvalidArgument(f"{self._name} takes {what}; {len(places)} were given")
        path = self.path
        for name, value in zip(self._places, places, strict=True):
            path = path.replace(f"{{{name}}}", urllib.parse.quote(str(value), safe=""), 1)
        rest = {name.removesuffix("_"): value for name, value in named.items()}
        body, query, version = rest.pop("body", None), rest.pop("query", {}), rest.pop("if_match", None)
        if self.method in _QUERIED:
            query = {**query, **{name: _plain(value) for name, value in rest.items()}}
        elif rest:
            body = {**(body or {}), **rest}
        headers = {} if version is None else {"if-match": f'"{version}"'}
        return Ask(self.method, self.base + path, query, body, headers)


def _plain(value: Any) -> Any:
    """As a query says it."""
    return str(value).lower() if isinstance(value, bool) else value


class Calls:
    # Tasks
    create_task = Call("POST", "/tasks")
    list_tasks = Call("GET", "/tasks")
    get_task = Call("GET", "/tasks/{id}")
    replace_task = Call("PUT", "/tasks/{id}")
    patch_task = Call("PATCH", "/tasks/{id}")
    delete_task = Call("DELETE", "/tasks/{id}")
    enable_task = Call("POST", "/tasks/{id}/enable")
    disable_task = Call("POST", "/tasks/{id}/disable")
    enable_tasks = Call("POST", "/tasks/enable")
    disable_tasks = Call("POST", "/tasks/disable")
    pause_task = Call("POST", "/tasks/{id}/pause")
    resume_task = Call("POST", "/tasks/{id}/resume")
    reset_task = Call("POST", "/tasks/{id}/reset")
    skip_slots = Call("POST", "/tasks/{id}/skip")
    next_slots = Call("GET", "/tasks/{id}/next")
    trigger_task = Call("POST", "/tasks/{id}/trigger")
    list_runs_of_task = Call("GET", "/tasks/{id}/runs")
    list_slots = Call("GET", "/tasks/{id}/slots")
    explain_task = Call("GET", "/tasks/{id}/explain")
    backfill_task = Call("POST", "/tasks/{id}/backfill")
    apply_tasks = Call("POST", "/tasks/apply")
    preview_schedule = Call("POST", "/schedules/preview")
    timeline = Call("GET", "/timeline")

    # Runs
    list_runs = Call("GET", "/runs")
    get_run = Call("GET", "/runs/{run_id}")
    publish_runs = Call("POST", "/runs/batch")
    cancel_run = Call("POST", "/runs/{run_id}/cancel")
    retry_run = Call("POST", "/runs/{run_id}/retry")
    promote_run = Call("POST", "/runs/{run_id}/promote")
    cancel_runs = Call("POST", "/runs/cancel")
    retry_runs = Call("POST", "/runs/retry")
    list_attempts = Call("GET", "/runs/{run_id}/attempts")
    read_log = Call("GET", "/runs/{run_id}/log")
    explain_run = Call("GET", "/runs/{run_id}/explain")

    # Queues
    list_queues = Call("GET", "/queues")
    get_queue = Call("GET", "/queues/{name}")
    limit_queue = Call("PUT", "/queues/{name}")
    pause_queue = Call("POST", "/queues/{name}/pause")
    resume_queue = Call("POST", "/queues/{name}/resume")
    drain_queue = Call("POST", "/queues/{name}/drain")
    clean_queue = Call("POST", "/queues/{name}/clean")
    list_dead_runs = Call("GET", "/queues/{name}/dead")
    redrive_queue = Call("POST", "/queues/{name}/redrive")

    # Workers, and what a worker calls itself
    list_workers = Call("GET", "/workers")
    get_worker = Call("GET", "/workers/{worker_id}")
    change_worker = Call("PATCH", "/workers/{worker_id}")
    drain_worker = Call("POST", "/workers/{worker_id}/drain")
    stop_worker = Call("POST", "/workers/{worker_id}/stop")
    resume_worker = Call("POST", "/workers/{worker_id}/resume")
    claim_runs = Call("POST", "/workers/{worker_id}/claim")
    heartbeat = Call("POST", "/workers/{worker_id}/heartbeat")
    settle_run = Call("POST", "/runs/{run_id}/settle")
    report_progress = Call("POST", "/runs/{run_id}/progress")
    write_log = Call("POST", "/runs/{run_id}/log")
    extend_run = Call("POST", "/runs/{run_id}/extend")

    # Callbacks
    callback = Call("POST", "/callbacks/{callback_token}")
    callback_by_ids = Call("POST", "/callbacks")
    list_callbacks_of_run = Call("GET", "/runs/{run_id}/callbacks")
    list_rejected_callbacks = Call("GET", "/callbacks")

    # Alerts
    alerts = Call("GET", "/alerts")
    alert_rules = Call("GET", "/alerts/rules")
    alert_rule = Call("GET", "/alerts/rules/{rule}")
    create_alert_rule = Call("POST", "/alerts/rules")
    change_alert_rule = Call("PUT", "/alerts/rules/{rule}")
    remove_alert_rule = Call("DELETE", "/alerts/rules/{rule}")
    alert_channels = Call("GET", "/alerts/channels")
    alert_channel = Call("GET", "/alerts/channels/{channel}")
    create_alert_channel = Call("POST", "/alerts/channels")
    change_alert_channel = Call("PUT", "/alerts/channels/{channel}")
    remove_alert_channel = Call("DELETE", "/alerts/channels/{channel}")
    test_alert_channel = Call("POST", "/alerts/channels/{channel}/test")
    alert_deliveries = Call("GET", "/alerts/deliveries")

    # Plans
    publish_plan = Call("POST", "/plans")
    list_plans = Call("GET", "/plans")
    get_plan = Call("GET", "/plans/{plan_id}")
    remove_plan = Call("DELETE", "/plans/{plan_id}")
    pause_plan = Call("POST", "/plans/{plan_id}/pause")
    resume_plan = Call("POST", "/plans/{plan_id}/resume")
    skip_plan = Call("POST", "/plans/{plan_id}/skip")
    reset_plan = Call("POST", "/plans/{plan_id}/reset")
    close_plan = Call("POST", "/plans/{plan_id}/close")

    # Jobs, in the words of another service
    create_job = Call("POST", "", base="/api/jobs")
    list_jobs = Call("GET", "", base="/api/jobs")
    get_job = Call("GET", "/{id}", base="/api/jobs")
    change_job = Call("PUT", "/{id}", base="/api/jobs")
    delete_job = Call("DELETE", "/{id}", base="/api/jobs")
    pause_job = Call("POST", "/{id}/pause", base="/api/jobs")
    resume_job = Call("POST", "/{id}/resume", base="/api/jobs")
    list_executions = Call("GET", "/{id}/executions", base="/api/jobs")

    # Who may, and who did
    create_token = Call("POST", "/tokens")
    list_tokens = Call("GET", "/tokens")
    revoke_token = Call("DELETE", "/tokens/{token}")
    audit_log = Call("GET", "/audit")

    # The server
    stats = Call("GET", "/stats")
    healthz = Call("GET", "/healthz")
    livez = Call("GET", "/livez")
    readyz = Call("GET", "/readyz")
    version = Call("GET", "/version")
    metrics = Call("GET", "/metrics", base="")
