"""`noonbell worker`: a worker process; and the workers that a server knows."""

from __future__ import annotations

from typing import Any

import click

from noonbell.cli.api import Named, Remote, post_for_each, segment
from noonbell.cli.options import config_option, label_flags, label_option, load_settings, log_level_option, store_option
from noonbell.cli.output import ago, cut, output_option, show_list, talk
from noonbell.cli.root import NounGroup

COLUMNS = {
    "id": lambda worker: worker["id"],
    "state": lambda worker: worker["state"],
    "version": lambda worker: str(worker["version"]),
    "queues": lambda worker: ",".join(worker["queues"]),
    "labels": lambda worker: cut(",".join(f"{name}={value}" for name, value in worker["labels"].items()), _WIDEST),
    "job types": lambda worker: _types(worker["job_types"]),
    "running": lambda worker: f"{worker['running']}/{worker['concurrency']}",
    "heartbeat": lambda worker: ago(worker["last_heartbeat_at"]),
}

_WIDEST = 40


def _types(job_types: list[str] | None) -> str:
    """Those that it knows, cut to a column."""
    return cut("any" if job_types is None else ",".join(job_types) or "–", _WIDEST)


@click.group(
    "worker",
    cls=NounGroup,
    invoke_without_command=True,
    subcommand_metavar="[list | drain | resume | stop | set | forget]",
)
@click.option(
    "--app", "location", metavar="MODULE:APP", help="The App whose jobs to execute; a file path works as well."
)
@click.option(
    "--commands",
    metavar="FILE",
    help="Run COMMAND tasks too, only the programs that this YAML file allows [none].",
)
@click.option("--queues", metavar="A,B", help="The queues to claim from [those of the App's jobs].")
@click.option("--concurrency", metavar="N", help="How many jobs to execute at once [4].")
@click.option("--worker-id", metavar="ID", help="The worker's name, which must be unique [host-pid-random].")
@click.option(
    "--version",
    "version",
    type=click.IntRange(0),
    default=0,
    help="The worker's version, for `min_worker_version` of tasks [0].",
)
@label_option
@log_level_option
@store_option
@config_option
@click.pass_context
def worker_command(
    context: click.Context,
    location: str | None,
    commands: str | None,
    queues: str | None,
    concurrency: str | None,
    worker_id: str | None,
    version: int,
    labels: tuple[str, ...],
    log_level: str | None,
    store: str | None,
    files: tuple[str, ...],
) -> int | None:
    """Execute the jobs of an App, or commands; or list, drain and stop workers.

    With --app or --commands, this process is a worker on the store. SIGTERM or Ctrl-C stops it gracefully: runs that
    can finish do, the rest is handed back.
    """
    if context.invoked_subcommand is not None:
        return None
    if location is None and commands is None:
        raise click.UsageError("a worker needs --app MODULE:APP, or --commands FILE", context)
    flags = {"jobs__worker_concurrency": concurrency, "logging__level": log_level, **label_flags(labels)}
    settings = load_settings(files, store__url=store, **flags).settings
    from noonbell.wiring import WorkerOptions, run_worker

    names = tuple(name for name in (part.strip() for part in (queues or "").split(",")) if name)
    options = WorkerOptions(worker_id=worker_id, version=version, queues=names, commands=commands)
    return run_worker(settings, location, options)


@worker_command.command("list")
@output_option
def list_workers(output: str) -> None:
    """List workers and what they are doing."""
    found = Remote.of_environment().get("/workers")
    show_list(found["items"], COLUMNS, output, name="id")
    if not found.get("has_scheduler", True):
        talk("no scheduler is running on this store: schedules do not fire; start one with `noonbell serve`")


_WORKERS = Named("worker_ids", lambda worker_id: f"/workers/{segment(worker_id)}")
_STOP = "Stop these workers gracefully, as SIGTERM does. Those inside `noonbell serve` are drained instead."
_DRAIN = "Drain these workers: they finish their runs and take no more."
_RESUME = "Resume drained workers."
post_for_each(worker_command, "drain", _DRAIN, _WORKERS, lambda worker_id, _: talk(f"draining {worker_id}"))
post_for_each(worker_command, "resume", _RESUME, _WORKERS, lambda worker_id, _: talk(f"resumed {worker_id}"))
post_for_each(worker_command, "stop", _STOP, _WORKERS, lambda worker_id, _: talk(f"stopping {worker_id}"))


@worker_command.command("set")
@click.argument("worker_id")
@click.option("--concurrency", type=click.IntRange(0), required=True, help="How many runs at once; 0: none.")
def set_worker(worker_id: str, concurrency: int) -> None:
    """Change how many runs a worker takes at once, while it is running."""
    changed: Any = Remote.of_environment().call("PATCH", _WORKERS.address(worker_id), {"concurrency": concurrency})
    talk(f"{worker_id} takes {changed['concurrency']} runs at a time")


@worker_command.command("forget")
@click.argument("worker_ids", nargs=-1, required=True)
def forget_workers(worker_ids: tuple[str, ...]) -> None:
    """Remove lost workers from the list. Workers that are connected or still hold runs cannot be removed."""
    remote = Remote.of_environment()
    for worker_id in worker_ids:
        remote.call("DELETE", _WORKERS.address(worker_id))
        talk(f"removed {worker_id}")
