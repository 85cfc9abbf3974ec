"""Every page of the dashboard by its name, on nodes on which something of each kind has happened.

One list, for the tests that judge every page and for `tools/pictures.py`, which takes its picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from acceptance.harness import ServerNode, Target, until

WORKER: Final = "pdf-1"
TABS: Final = ("runs", "schedule", "configuration", "versions", "activity")
PARTS: Final = ("tokens", "alerts", "subscriptions", "secrets", "retention", "diagnostics", "about")
LONG_NAME: Final = "a-name-that-nobody-would-type-twice-" + "and-that-goes-on-" * 6 + "until-here"


REACHING: Final[dict[str, dict[str, Any]]] = {
    "command": {
        "command": ["/usr/local/bin/backup", "--full", "two words"],
        "env": {"BACKUP_KEY": "hush", "TZ": "UTC"},
        "cwd": "/srv",
        "ok_codes": [0, 3],
        "queue": "ops",
    },
    "amqp": {
        "amqp": {
            "url": "amqp://shop:hush@127.0.0.1:9/",
            "exchange": "orders",
            "routing_key": "orders.created",
            "headers": {"Authorization": "Bearer hush", "kind": "order"},
            "properties": {"priority": 3},
            "reply": True,
        },
        "payload": {"order": 7},
    },
    "nats": {"nats": {"url": "nats://shop:hush@127.0.0.1:9", "subject": "orders.created", "jetstream": True}},
    "redis": {"redis": {"url": "redis://:hush@127.0.0.1:9/0", "stream": "orders", "maxlen": 1000}},
    "mqtt": {"mqtt": {"url": "mqtt://127.0.0.1:9", "topic": "orders/created", "qos": 2, "retain": True}},
    "grpc": {
        "grpc": {
            "address": "127.0.0.1:9",
            "method": "shop.Orders/Create",
            "metadata": {"authorization": "Bearer hush"},
            "tls": {"server_name": "shop.internal"},
        },
        "payload": {"order": 7},
    },
}
"""A task of each kind that reaches something else than HTTP. Nothing listens there, and nothing runs them."""
TIMES: Final[dict[str, Any]] = {
    "schedules": [
        {"type": "cron", "expr": "0 30 9 * * 1-5"},
        {"type": "monthly", "day": -1, "time": "18:00:00"},
    ],
    "exclude": [{"type": "cron", "expr": "0 30 9 1 1 *"}],
    "timezone": "Asia/Shanghai",
    "calendar": {"name": "china", "when_closed": "next_open_day"},
    "quiet": [
        {"from": "22:00", "to": "06:00"},
        {"from": "09:00", "to": "10:00", "days": ["mon", "tue"], "what": "skip"},
    ],
    "spread_seconds": 300,
    "dst": {"gap": "skip", "repeat": "both"},
}


@dataclass(frozen=True)
class Place:
    """A page and what to call its picture."""

    name: str
    path: str

    def on(self, made: Furnished) -> str:
        """Its path on that node."""
        return self.path.format(task=made.tasks, run=made.runs)


@dataclass(frozen=True)
class Furnished:
    """The ids of what was made: tasks by what they are, runs by how they ended, and a delivery of a webhook and a bulk operation among them."""

    tasks: dict[str, int]
    runs: dict[str, int]


def furnish(node: ServerNode, target: Target) -> Furnished:
    closed = {"closed_weekdays": [0, 6], "closed": ["2026-10-01/2026-10-07"], "open": ["2026-10-10"]}
    node.ask("PUT", "/calendars/china", {"timezone": "Asia/Shanghai", **closed})
    tasks = {
        "good": node.create(
            name="price-pull",
            cron_expr="0 2 * * *",
            timezone="Asia/Shanghai",
            target_url=target.url("/ok"),
            labels={"team": "billing", "owner": "ada"},
            description="Fetches the prices of the day before.",
            sla={"start_within_seconds": 60, "finish_by": "06:00", "success_ratio": 0.99},
        ),
        "bad": node.create(name="每日报表", cron_expr="30 2 * * 1-5", target_url=target.url("/status/503")),
        "late": node.create(
            name="sync-orders", exec_type="ASYNC", target_url=target.url("/accept/1"), sla={"finish_within_seconds": 0}
        ),
        "off": node.create(name=LONG_NAME, cron_expr="0 * * * *", target_url=target.url("/ok"), status="DISABLED"),
        "job": node.create(
            name="render-pdf", job_type="render", queue="pdf", payload={"pages": 120}, worker_timeout_ms=3_600_000
        ),
        "flow": node.create(name="nightly", steps=_steps(target), payload={"full": False}),
    }
    tasks |= {kind: node.create(name=f"to-{kind}", **fields) for kind, fields in REACHING.items()}
    tasks["times"] = node.create(name="closing", target_url=target.url("/ok"), **TIMES)
    upstreams = [{"task": tasks["good"]}, {"task": tasks["bad"], "on": "failure"}]
    tasks["after"] = node.create(
        name="price-report", target_url=target.url("/ok"), after={"tasks": upstreams, "same_slot": False}
    )
    flow = node.trigger(tasks["flow"])
    node.ask("PATCH", f"/tasks/{tasks['good']}", {"timeout_seconds": 7})
    node.ask("POST", "/alerts/channels", {"name": "hook", "url": target.url("/ok")}, expect=201)
    hook = {"name": "hook", "url": target.url("/ok"), "types": ["run"], "labels": {"team": "billing"}}
    node.ask("POST", "/subscriptions", hook, expect=201)
    delivery = node.ask("POST", "/subscriptions/hook/test")["delivery_id"]
    node.ask("POST", "/alerts/rules", {"name": "failures", "kind": "failed", "channels": ["hook"]}, expect=201)
    runs = {name: node.trigger(tasks[name]) for name in ("good", "bad", "late")}
    for name in ("good", "bad"):
        node.wait_for_run(runs[name])
    runs["again"] = node.trigger(tasks["good"])
    node.wait_for_run(runs["again"])
    runs["after"] = until(lambda: node.runs_of(tasks["after"]), "the report that follows both")[-1]["id"]
    node.wait_for_run(runs["late"], "CALLBACK_PENDING")
    node.call("POST", "/callbacks/not-the-token-that-was-given", {"status": "SUCCESS"})
    runs |= {"done": _job(node, tasks["job"], done=True), "job": _job(node, tasks["job"], done=False)}
    node.trigger(tasks["job"])
    node.wait_for_run(flow, "FAILED")
    runs |= _calls(node, target)
    steps = {step["id"]: step["run_id"] for step in node.ask("GET", f"/runs/{flow}/graph")["steps"]}
    runs |= {"flow": flow, "step": steps["load"], "delivery": delivery}
    operation = node.ask("POST", "/bulk", {"kind": "cancel_runs", "filter": {"task": "no-such-task"}})["id"]
    until(lambda: node.ask("GET", f"/bulk/{operation}")["status"] == "DONE", "the bulk operation to end")
    return Furnished(tasks, {**runs, "bulk": operation})


def _calls(node: ServerNode, target: Target) -> dict[str, int]:
    """One that was made and told, one that waits, and one behind its key."""
    asked = {"url": target.url("/ok"), "headers": {"Authorization": "Bearer hush"}, "labels": {"team": "billing"}}
    made = node.ask("POST", "/calls", {**asked, "body": {"to": "ada"}, "success_url": target.url("/ok")})["run_id"]
    later = {**asked, "delay_seconds": 3_600, "concurrency_key": "acme", "rate_key": "acme"}
    (first, *_) = node.ask("POST", "/calls/batch", {"calls": [later, later]})["calls"]
    node.wait_for_run(made, "SUCCESS")
    return {"call": made, "call-later": first["run_id"]}


def _steps(target: Target) -> list[dict[str, Any]]:
    """Of a flow with a step of each outcome."""
    return [
        {"id": "extract", "target_url": target.url("/ok")},
        {"id": "parts", "needs": ["extract"], "foreach": [1, 2, 3], "target_url": target.url("/ok?item={{ item }}")},
        {
            "id": "a_check_with_a_name_that_is_too_long_for_its_box",
            "needs": ["extract"],
            "target_url": target.url("/ok"),
        },
        {"id": "audit", "needs": ["extract"], "when": "payload.full", "target_url": target.url("/ok")},
        {"id": "load", "needs": ["parts", "extract"], "target_url": target.url("/status/503")},
        {"id": "page", "needs": ["load"], "on": "failure", "target_url": target.url("/ok")},
        {"id": "report", "needs": ["load", "audit"], "target_url": target.url("/ok")},
    ]


def _job(node: ServerNode, task_id: int, *, done: bool) -> int:
    """A run in the hands of a worker, with what it says of itself."""
    run_id = node.trigger(task_id)
    asked = {"queues": ["pdf"], "job_types": ["render"], "max": 1, "wait_seconds": 0, "version": 0}
    (run,) = until(lambda: node.ask("POST", f"/workers/{WORKER}/claim", asked)["runs"], "the job to be claimed")
    held: dict[str, Any] = {"worker_id": WORKER, "token": run["token"]}
    for level, message in (
        ("info", "opened 120 pages"),
        ("warning", "page 7 has no text"),
        ("error", "page 9: no font"),
    ):
        node.ask("POST", f"/runs/{run_id}/log", {**held, "level": level, "message": message})
    node.ask("POST", f"/runs/{run_id}/progress", {**held, "current": 86, "total": 120, "message": "page 86"})
    if done:
        node.ask("POST", f"/runs/{run_id}/settle", {**held, "outcome": "success", "result": {"bytes": 2**63 - 1}})
    return run_id


PAGES: Final = [
    Place("overview", "/"),
    Place("tasks", "/tasks"),
    Place("tasks-none", "/tasks?name=nothing"),
    Place("tasks-bulk", "/tasks/bulk?act=disable"),
    Place("tasks-change", "/tasks/bulk?act=change"),
    Place("tasks-import", "/tasks/import"),
    Place("task", "/tasks/{task[good]}"),
    Place("task-failing", "/tasks/{task[bad]}"),
    Place("task-paused", "/tasks/{task[off]}"),
    Place("task-job", "/tasks/{task[job]}"),
    Place("task-after", "/tasks/{task[after]}"),
    Place("task-after-edit", "/tasks/{task[after]}/edit"),
    Place("task-flow", "/tasks/{task[flow]}"),
    Place("task-flow-edit", "/tasks/{task[flow]}/edit"),
    *(Place(f"task-{tab}", "/tasks/{task[good]}/" + tab) for tab in TABS),
    Place("task-new", "/tasks/new"),
    Place("task-edit", "/tasks/{task[good]}/edit"),
    *(Place(f"task-{kind}-edit", f"/tasks/{{task[{kind}]}}/edit") for kind in (*REACHING, "times")),
    *(Place(f"task-{kind}", f"/tasks/{{task[{kind}]}}") for kind in ("command", "amqp", "grpc", "times")),
    Place("task-times-schedule", "/tasks/{task[times]}/schedule"),
    Place("task-amqp-configuration", "/tasks/{task[amqp]}/configuration"),
    Place("task-run", "/tasks/{task[job]}/run"),
    Place("task-delete", "/tasks/{task[off]}/delete"),
    Place("runs", "/runs"),
    Place("runs-failed", "/runs?status=FAILED,TIMEOUT,FAILED_TIMEOUT"),
    Place("runs-none", "/runs?text=nothing-like-this"),
    Place("runs-bulk", "/runs/bulk?act=retry"),
    Place("bulk", "/bulk"),
    Place("bulk-operation", "/bulk/{run[bulk]}"),
    Place("run", "/runs/{run[good]}"),
    Place("run-failed", "/runs/{run[bad]}"),
    Place("run-log", "/runs/{run[bad]}?show=log&level=error"),
    Place("run-callback", "/runs/{run[late]}"),
    Place("run-job", "/runs/{run[job]}"),
    Place("run-job-done", "/runs/{run[done]}"),
    Place("run-after", "/runs/{run[after]}"),
    Place("run-flow", "/runs/{run[flow]}"),
    Place("run-flow-items", "/runs?parent_id={run[flow]}&step=parts"),
    Place("run-flow-step", "/runs/{run[step]}"),
    Place("run-replay", "/runs/{run[good]}/replay"),
    Place("run-compare", "/runs/{run[good]}/compare/{run[again]}"),
    Place("run-compare-with", "/runs/{run[good]}/compare"),
    Place("timeline", "/timeline"),
    *(Place(f"timeline-{view}", f"/timeline?view={view}") for view in ("calendar", "load", "table")),
    Place("timeline-week", "/timeline?span=7d"),
    Place("timeline-backfill", "/timeline/backfill?task={task[good]}"),
    Place("calls", "/calls"),
    Place("call", "/runs/{run[call]}"),
    Place("call-later", "/runs/{run[call-later]}"),
    Place("calendars", "/calendars"),
    Place("calendar", "/calendars/china?from=2026-09-01"),
    Place("service-levels", "/sla"),
    Place("queues", "/queues"),
    Place("queue", "/queues/pdf"),
    Place("queue-redrive", "/queues/pdf/redrive"),
    Place("queue-clean", "/queues/pdf/clean"),
    Place("workers", "/workers"),
    Place("worker", f"/workers/{WORKER}"),
    Place("activity", "/activity"),
    Place("activity-filtered", "/activity?from=2020-01-01T16:05"),
    Place("activity-system", "/activity?view=system"),
    Place("activity-check", "/activity/check"),
    Place("activity-entry", "/activity/1"),
    Place("settings", "/settings"),
    *(Place(f"settings-{part}", f"/settings/{part}") for part in PARTS),
    Place("settings-new-channel", "/settings/new/channel"),
    *(
        Place(f"settings-new-channel-{kind}", f"/settings/new/channel?kind={kind}")
        for kind in ("email", "dingtalk", "telegram")
    ),
    Place("settings-new-mute", "/settings/new/mute"),
    Place("settings-new-rule", "/settings/new/rule"),
    Place("settings-channel", "/settings/channels/hook"),
    Place("settings-channel-remove", "/settings/channels/hook/remove"),
    Place("settings-new-subscription", "/settings/new/subscription"),
    Place("settings-subscription", "/settings/subscriptions/hook"),
    Place("settings-subscription-delivery", "/settings/subscriptions/hook/deliveries/{run[delivery]}"),
    Place("settings-subscription-edit", "/settings/subscriptions/hook/edit"),
    Place("settings-subscription-remove", "/settings/subscriptions/hook/remove"),
    Place("settings-rule", "/settings/rules/failures"),
    Place("settings-rule-remove", "/settings/rules/failures/remove"),
    Place("nowhere", "/nowhere"),
]
"""Of a node that was furnished; its ids go into the braces."""
FIRST: Final = [Place("first-overview", "/"), Place("first-tasks", "/tasks"), Place("first-runs", "/runs")]
"""Of a node on which nothing has happened."""
GUARDED: Final = [Place("login", "/login")]
"""Of a node that asks who comes, for somebody who has not said it."""
