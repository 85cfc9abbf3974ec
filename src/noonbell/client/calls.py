"""Every call of the API, by the name that its description has for it.

`tools/reference.py --write` makes the table from the endpoints.

Arguments without a name fill the path. Named ones are the query of a GET or DELETE and the body of anything else; `body=`
is a whole body, `query=` a query beside it, `if_match=` the version that a change expects. `from` is written `from_`.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from noonbell.client.transport import BASE, ClientRequest
from noonbell.errors import InvalidArgument

_PLACE = re.compile(r"\{(\w+)\}")
_QUERIED: Final = ("GET", "DELETE")


class Asker(Protocol):
    def _carry_out(self, ask: ClientRequest) -> Any: ...


class ApiCall:
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

    def ask(self, places: tuple[Any, ...], named: Mapping[str, Any]) -> ClientRequest:
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
        return ClientRequest(self.method, self.base + path, query, body, headers)


def _plain(value: Any) -> Any:
    """As a query says it."""
    return str(value).lower() if isinstance(value, bool) else value


class ApiCalls:
    """A method for each endpoint; and `call`, which takes the fields of a call as they are."""

    def _carry_out(self, ask: ClientRequest) -> Any:
        raise NotImplementedError

    def call(self, url: str, **fields: Any) -> Any:
        """One HTTP request, now or later, without a task: `call(url, body={…}, delay_seconds=30, key="mail-1")`."""
        return self._carry_out(ClientRequest("POST", f"{BASE}/calls", {}, {"url": url, **fields}, {}))

    def call_batch(self, calls: Sequence[Mapping[str, Any]]) -> Any:
        """Up to 10,000 of them in one transaction, each with its `url`."""
        return self._carry_out(ClientRequest("POST", f"{BASE}/calls/batch", {}, {"calls": list(calls)}, {}))

    # Endpoints: made by tools/reference.py
    # Tasks
    apply_tasks = ApiCall("POST", "/tasks/apply")
    create_task = ApiCall("POST", "/tasks")
    create_tasks = ApiCall("POST", "/tasks/batch")
    patch_tasks = ApiCall("PATCH", "/tasks/batch")
    delete_tasks = ApiCall("DELETE", "/tasks/batch")
    list_tasks = ApiCall("GET", "/tasks")
    enable_tasks = ApiCall("POST", "/tasks/enable")
    disable_tasks = ApiCall("POST", "/tasks/disable")
    get_task = ApiCall("GET", "/tasks/{id}")
    replace_task = ApiCall("PUT", "/tasks/{id}")
    patch_task = ApiCall("PATCH", "/tasks/{id}")
    delete_task = ApiCall("DELETE", "/tasks/{id}")
    enable_task = ApiCall("POST", "/tasks/{id}/enable")
    resume_task = ApiCall("POST", "/tasks/{id}/resume")
    disable_task = ApiCall("POST", "/tasks/{id}/disable")
    pause_task = ApiCall("POST", "/tasks/{id}/pause")
    reset_task = ApiCall("POST", "/tasks/{id}/reset")
    skip_slots = ApiCall("POST", "/tasks/{id}/skip")
    next_slots = ApiCall("GET", "/tasks/{id}/next")
    trigger_task = ApiCall("POST", "/tasks/{id}/trigger")
    list_runs_of_task = ApiCall("GET", "/tasks/{id}/runs")
    list_keys_of_task = ApiCall("GET", "/tasks/{id}/keys")
    list_slots = ApiCall("GET", "/tasks/{id}/slots")
    explain_task = ApiCall("GET", "/tasks/{id}/explain")
    timeline = ApiCall("GET", "/timeline")
    backfill_task = ApiCall("POST", "/tasks/{id}/backfill")

    # Runs
    explain_run = ApiCall("GET", "/runs/{run_id}/explain")
    list_runs = ApiCall("GET", "/runs")
    publish_runs = ApiCall("POST", "/runs/batch")
    cancel_runs = ApiCall("POST", "/runs/cancel")
    retry_runs = ApiCall("POST", "/runs/retry")
    get_run = ApiCall("GET", "/runs/{run_id}")
    cancel_run = ApiCall("POST", "/runs/{run_id}/cancel")
    retry_run = ApiCall("POST", "/runs/{run_id}/retry")
    get_graph = ApiCall("GET", "/runs/{run_id}/graph")
    promote_run = ApiCall("POST", "/runs/{run_id}/promote")
    list_attempts = ApiCall("GET", "/runs/{run_id}/attempts")
    read_log = ApiCall("GET", "/runs/{run_id}/log")
    list_callbacks_of_run = ApiCall("GET", "/runs/{run_id}/callbacks")

    # Schedules
    preview_schedule = ApiCall("POST", "/schedules/preview")

    # Stats
    stats = ApiCall("GET", "/stats")

    # Callbacks
    callback = ApiCall("POST", "/callbacks/{callback_token}")
    callback_by_ids = ApiCall("POST", "/callbacks")
    list_rejected_callbacks = ApiCall("GET", "/callbacks")

    # Calls
    make_call = ApiCall("POST", "/calls")
    make_calls = ApiCall("POST", "/calls/batch")

    # Queues
    list_queues = ApiCall("GET", "/queues")
    get_queue = ApiCall("GET", "/queues/{name}")
    limit_queue = ApiCall("PUT", "/queues/{name}")
    pause_queue = ApiCall("POST", "/queues/{name}/pause")
    resume_queue = ApiCall("POST", "/queues/{name}/resume")
    drain_queue = ApiCall("POST", "/queues/{name}/drain")
    clean_queue = ApiCall("POST", "/queues/{name}/clean")
    list_dead_runs = ApiCall("GET", "/queues/{name}/dead")
    redrive_queue = ApiCall("POST", "/queues/{name}/redrive")

    # Calendars
    list_calendars = ApiCall("GET", "/calendars")
    get_calendar = ApiCall("GET", "/calendars/{calendar}")
    save_calendar = ApiCall("PUT", "/calendars/{calendar}")
    delete_calendar = ApiCall("DELETE", "/calendars/{calendar}")
    preview_calendar = ApiCall("POST", "/calendars/{calendar}/preview")
    refresh_calendar = ApiCall("POST", "/calendars/{calendar}/refresh")
    list_calendar_days = ApiCall("GET", "/calendars/{calendar}/days")

    # Workers
    list_workers = ApiCall("GET", "/workers")
    get_worker = ApiCall("GET", "/workers/{worker_id}")
    change_worker = ApiCall("PATCH", "/workers/{worker_id}")
    drain_worker = ApiCall("POST", "/workers/{worker_id}/drain")
    stop_worker = ApiCall("POST", "/workers/{worker_id}/stop")
    resume_worker = ApiCall("POST", "/workers/{worker_id}/resume")

    # Worker protocol
    claim_runs = ApiCall("POST", "/workers/{worker_id}/claim")
    heartbeat = ApiCall("POST", "/workers/{worker_id}/heartbeat")
    settle_run = ApiCall("POST", "/runs/{run_id}/settle")
    report_progress = ApiCall("POST", "/runs/{run_id}/progress")
    write_log = ApiCall("POST", "/runs/{run_id}/log")
    extend_run = ApiCall("POST", "/runs/{run_id}/extend")

    # Jobs
    create_job = ApiCall("POST", "", base="/api/jobs")
    list_jobs = ApiCall("GET", "", base="/api/jobs")
    get_job = ApiCall("GET", "/{id}", base="/api/jobs")
    change_job = ApiCall("PUT", "/{id}", base="/api/jobs")
    delete_job = ApiCall("DELETE", "/{id}", base="/api/jobs")
    pause_job = ApiCall("POST", "/{id}/pause", base="/api/jobs")
    resume_job = ApiCall("POST", "/{id}/resume", base="/api/jobs")
    list_executions = ApiCall("GET", "/{id}/executions", base="/api/jobs")

    # Plans
    publish_plan = ApiCall("POST", "/plans")
    list_plans = ApiCall("GET", "/plans")
    get_plan = ApiCall("GET", "/plans/{plan_id}")
    remove_plan = ApiCall("DELETE", "/plans/{plan_id}")
    pause_plan = ApiCall("POST", "/plans/{plan_id}/pause")
    resume_plan = ApiCall("POST", "/plans/{plan_id}/resume")
    skip_plan = ApiCall("POST", "/plans/{plan_id}/skip")
    reset_plan = ApiCall("POST", "/plans/{plan_id}/reset")
    close_plan = ApiCall("POST", "/plans/{plan_id}/close")

    # Subscriptions
    subscriptions = ApiCall("GET", "/subscriptions")
    create_subscription = ApiCall("POST", "/subscriptions")
    subscription = ApiCall("GET", "/subscriptions/{subscription}")
    change_subscription = ApiCall("PATCH", "/subscriptions/{subscription}")
    remove_subscription = ApiCall("DELETE", "/subscriptions/{subscription}")
    test_subscription = ApiCall("POST", "/subscriptions/{subscription}/test")
    replay_subscription = ApiCall("POST", "/subscriptions/{subscription}/replay")
    subscription_deliveries = ApiCall("GET", "/subscriptions/{subscription}/deliveries")
    subscription_delivery = ApiCall("GET", "/subscriptions/{subscription}/deliveries/{delivery_id}")
    replay_delivery = ApiCall("POST", "/subscriptions/{subscription}/deliveries/{delivery_id}/replay")

    # Alerts
    alerts = ApiCall("GET", "/alerts")
    alert_rules = ApiCall("GET", "/alerts/rules")
    create_alert_rule = ApiCall("POST", "/alerts/rules")
    alert_rule = ApiCall("GET", "/alerts/rules/{rule}")
    change_alert_rule = ApiCall("PUT", "/alerts/rules/{rule}")
    remove_alert_rule = ApiCall("DELETE", "/alerts/rules/{rule}")
    alert_channels = ApiCall("GET", "/alerts/channels")
    create_alert_channel = ApiCall("POST", "/alerts/channels")
    alert_channel = ApiCall("GET", "/alerts/channels/{channel}")
    change_alert_channel = ApiCall("PUT", "/alerts/channels/{channel}")
    remove_alert_channel = ApiCall("DELETE", "/alerts/channels/{channel}")
    test_alert_channel = ApiCall("POST", "/alerts/channels/{channel}/test")
    alert_deliveries = ApiCall("GET", "/alerts/deliveries")

    # Access
    create_token = ApiCall("POST", "/tokens")
    list_tokens = ApiCall("GET", "/tokens")
    revoke_token = ApiCall("DELETE", "/tokens/{token}")
    audit_log = ApiCall("GET", "/audit")
    check_audit_log = ApiCall("GET", "/audit/check")

    # System
    get_pause = ApiCall("GET", "/pause")
    pause_all = ApiCall("POST", "/pause")
    resume_all = ApiCall("POST", "/resume")
    healthz = ApiCall("GET", "/healthz")
    version = ApiCall("GET", "/version")
    installation = ApiCall("GET", "/installation")
    livez = ApiCall("GET", "/livez")
    readyz = ApiCall("GET", "/readyz")
    metrics = ApiCall("GET", "/metrics", base="")
    # End of what is made
