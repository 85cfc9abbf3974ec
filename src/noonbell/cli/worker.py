"""`noonbell worker`: a worker process; and the workers that a server knows."""

from __future__ import annotations

from typing import Any

import click

from noonbell.cli.options import config_option, load_settings, store_option
from noonbell.cli.output import ago, output_option, show_list, talk
from noonbell.cli.remote import Remote, segment

COLUMNS = {
    "id": lambda worker: worker["id"],
    "state": lambda worker: worker["state"],
    "version": lambda worker: str(worker["version"]),
    "queues": lambda worker: ",".join(worker["queues"]),
    "running": lambda worker: f"{worker['running']}/{worker['concurrency']}",
    "heartbeat": lambda worker: ago(worker["last_heartbeat_at"]),
}


@click.group("worker", invoke_without_command=True, subcommand_metavar="[list | drain | resume | stop | set]")
@click.option(
    "--app", "location", metavar="MODULE:APP", help="The App whose jobs to execute; a file's path will do as well."
)
@click.option("--queues", metavar="A,B", help="The queues to claim from [those of the App's jobs].")
@click.option("--concurrency", metavar="N", help="How many jobs to execute side by side [4].")
@click.option("--worker-id", metavar="ID", help="Its name; no two may have the same [host-pid-random].")
@click.option("--version", "version", type=click.IntRange(0), default=0, help="What `min_worker_version` asks for [0].")
@store_option
@config_option
@click.pass_context
def command(
    context: click.Context,
    location: str | None,
    queues: str | None,
    concurrency: str | None,
    worker_id: str | None,
    version: int,
    store: str | None,
    files: tuple[str, ...],
) -> int | None:
    """Execute the jobs of an App; or list, drain and stop workers.

    With --app this is a worker process on the store. SIGTERM or Ctrl-C stops it gracefully: what runs may end, the rest
    is handed back.
    """
    if context.invoked_subcommand is not None:
        return None
    if location is None:
        raise click.UsageError("a worker needs --app MODULE:APP", context)
    settings = load_settings(files, store__url=store, jobs__worker_concurrency=concurrency).settings
    from noonbell.wiring import Badge, run_worker

    names = tuple(name for name in (part.strip() for part in (queues or "").split(",")) if name)
    return run_worker(settings, location, Badge(worker_id=worker_id, version=version, queues=names))


@command.command("list")
@output_option
def list_workers(output: str) -> None:
    """List workers with what they do."""
    show_list(Remote.of_environment().get("/workers")["items"], COLUMNS, output, name="id")


@command.command("drain")
@click.argument("worker_ids", nargs=-1, required=True)
def drain(worker_ids: tuple[str, ...]) -> None:
    """Let these workers finish what they have and take no more."""
    _each(worker_ids, "drain", "draining")


@command.command("resume")
@click.argument("worker_ids", nargs=-1, required=True)
def resume(worker_ids: tuple[str, ...]) -> None:
    """Let drained workers take runs again."""
    _each(worker_ids, "resume", "resumed")


@command.command("stop")
@click.argument("worker_ids", nargs=-1, required=True)
def stop(worker_ids: tuple[str, ...]) -> None:
    """End these workers: gracefully, as SIGTERM does. Those inside `noonbell serve` are drained instead."""
    _each(worker_ids, "stop", "stopping")


@command.command("set")
@click.argument("worker_id")
@click.option("--concurrency", type=click.IntRange(0), required=True, help="How many runs side by side; 0 takes none.")
def set_worker(worker_id: str, concurrency: int) -> None:
    """Change how much a worker takes, while it works."""
    changed: Any = Remote.of_environment().call("PATCH", f"/workers/{segment(worker_id)}", {"concurrency": concurrency})
    talk(f"{worker_id} takes {changed['concurrency']} at a time")


def _each(worker_ids: tuple[str, ...], verb: str, done: str) -> None:
    remote = Remote.of_environment()
    for worker_id in worker_ids:
        remote.post(f"/workers/{segment(worker_id)}/{verb}")
        talk(f"{done} {worker_id}")
