"""XXL-JOB, from the tables `xxl_job_info` and `xxl_job_group` of its database, of version 2.0 and later.

An executor's handler becomes a job type, its group the queue. The table has no time zone: that of the admin's server is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import click

from noonbell.cli.importers.cron_text import cron_of, interval_of
from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries
from noonbell.cli.importers.sources import is_database, json_from, rows_of, whole_number
from noonbell.when.zones import find

_BLOCK: Final = {
    "SERIAL_EXECUTION": {"max_concurrency": 1, "concurrency_policy": "QUEUE"},
    "DISCARD_LATER": {"max_concurrency": 1, "concurrency_policy": "SKIP"},
    "COVER_EARLY": {"max_concurrency": 1, "overlap_action": "CANCEL_PREV"},
}
_RETRY: Final = {"strategy": "fixed", "initial_delay": 10}
"""Its admin looks for failed runs every 10 seconds."""
_MISFIRE: Final = {"DO_NOTHING": "SKIP", "FIRE_ONCE_NOW": "FIRE_ONCE"}


def read_xxl_job(rows: Sequence[Any], groups: Mapping[int, str], zone: str) -> Iterator[Imported]:
    return read_entries(
        (
            f"job {row.get('id', number)}" if isinstance(row, Mapping) else f"job {number}",
            _said(row),
            partial(_task, row, groups, zone),
        )
        for number, row in enumerate(rows, 1)
    )


def _said(row: Any) -> str:
    shown = row.get("job_desc") or row.get("executor_handler") or "" if isinstance(row, Mapping) else row
    return str(shown)[:200]


def _task(row: Any, groups: Mapping[int, str], zone: str, found: Findings) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise Refused("is not an object")
    glue = row.get("glue_type") or "BEAN"
    if glue != "BEAN":
        raise Refused(f"glue_type is {glue}: its source is kept in XXL-JOB; make a COMMAND task of that script")
    handler = row.get("executor_handler")
    if not handler:
        raise Refused("has no executor_handler")
    task: dict[str, Any] = {
        "name": str(row.get("job_desc") or handler),
        "timezone": zone,
        "job_type": str(handler),
        "payload": {"param": row.get("executor_param") or ""},
        "queue": groups.get(whole_number(row, "job_group"), "default"),
        "misfire_policy": _MISFIRE.get(str(row.get("misfire_strategy") or "DO_NOTHING"), "SKIP"),
        **_schedule(row, zone, found),
        "max_concurrency": 1,
        **_BLOCK.get(str(row.get("executor_block_strategy") or "SERIAL_EXECUTION"), {}),
        "retry_policy": {"max_retries": whole_number(row, "executor_fail_retry_count"), **_RETRY},
    }
    timeout = whole_number(row, "executor_timeout")
    if timeout > 0:
        task["timeout_seconds"] = timeout
    else:
        found.changes.append("executor_timeout 0 was no limit there; the default of jobs, 300 seconds, holds here")
    found.changes.append("the block strategy held for each executor; here it holds for the whole task")
    _route(row, task, found)
    if not row.get("trigger_status"):
        task["status"] = "DISABLED"
    if row.get("author"):
        task["labels"] = {"author": str(row["author"])[:63]}
    return task


def _schedule(row: Mapping[str, Any], zone: str, found: Findings) -> dict[str, Any]:
    kind = str(row.get("schedule_type") or ("CRON" if row.get("job_cron") else "NONE"))
    conf = str(row.get("schedule_conf") or row.get("job_cron") or "").strip()
    match kind:
        case "NONE":
            found.notes.append("has no schedule: it runs when it is triggered")
            return {}
        case "CRON":
            return cron_of(conf, "quartz", zone)
        case "FIX_RATE" if conf.isdigit() and int(conf) > 0:
            return {"schedule": {**interval_of(int(conf)), **_anchor(row)}}
        case "FIX_DELAY" if conf.isdigit() and int(conf) > 0:
            return {"schedule": {**interval_of(int(conf)), "mode": "fixed_delay"}}
        case _:
            raise Refused(f"schedule_type {kind} with {conf!r} is not known")


def _anchor(row: Mapping[str, Any]) -> dict[str, str]:
    """It goes on from its last run."""
    last = whole_number(row, "trigger_last_time")
    return {"anchor": datetime.fromtimestamp(last / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")} if last > 0 else {}


def _route(row: Mapping[str, Any], task: dict[str, Any], found: Findings) -> None:
    route = str(row.get("executor_route_strategy") or "FIRST")
    if route == "SHARDING_BROADCAST":
        task["fanout"] = {"workers": "all"}
        found.changes.append(
            "SHARDING_BROADCAST runs on every worker; a handler has its shard as `shard_index` and `shard_total` of its context"
        )
    elif route != "FIRST":
        found.notes.append(f"executor_route_strategy {route} is left out: a free worker claims the run")
    if row.get("child_jobid"):
        found.changes.append(f"child_jobid {row['child_jobid']} is left out; give those tasks `after` this one")
    if row.get("alarm_email"):
        found.notes.append("alarm_email is left out; alerts do that")


@click.command("xxl-job")
@click.argument("source")
@click.option(
    "--tz", default="Asia/Shanghai", show_default=True, metavar="ZONE", help="The zone that its admin runs in."
)
@import_options
def xxl_job_command(source: str, tz: str, **given: Any) -> int:
    """XXL-JOB: its database as mysql://user@host/xxl_job, or a JSON file of the rows of xxl_job_info."""
    zone = find(tz).name
    if is_database(source):
        tables = {
            "jobs": "select * from xxl_job_info order by id",
            "groups": "select id, app_name from xxl_job_group",
        }
        found = rows_of(source, tables)
        groups = {row["id"]: str(row["app_name"]) for row in found["groups"]}
        return finish(read_xxl_job(found["jobs"], groups, zone), "xxl-job", **given)
    rows = json_from(source)
    if not isinstance(rows, list):
        raise click.BadParameter(f"{source} has no list of rows", param_hint="SOURCE")
    return finish(read_xxl_job(rows, {}, zone), "xxl-job", **given)
