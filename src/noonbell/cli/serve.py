"""`noonbell serve`: a node in one process."""

from __future__ import annotations

import click

from noonbell.cli.options import config_option, load_settings, new_option, store_option


@click.command("serve")
@config_option
@store_option
@click.option("--host", metavar="ADDRESS", help="The address to listen on [127.0.0.1].")
@click.option("--port", metavar="PORT", help="The port to listen on; 0 takes a free one [8080].")
@click.option(
    "--app", "location", metavar="MODULE:APP", help="Execute the jobs of this App too; a file's path will do as well."
)
@click.option("--no-scheduler", is_flag=True, help="Do not plan: other nodes turn slots into runs.")
@click.option("--no-worker", is_flag=True, help="Do not execute: other nodes carry the runs out.")
@click.option("--no-api", is_flag=True, help="Do not listen: only plan and execute.")
@new_option
def command(
    files: tuple[str, ...],
    store: str | None,
    host: str | None,
    port: str | None,
    location: str | None,
    no_scheduler: bool,
    no_worker: bool,
    no_api: bool,
    new: bool,
) -> int:
    """Start scheduler, worker and API in one process; SIGTERM or Ctrl-C stops them gracefully."""
    settings = load_settings(files, store__url=store, server__host=host, server__port=port).settings
    from noonbell.wiring import run

    return run(settings, scheduler=not no_scheduler, worker=not no_worker, api=not no_api, location=location, new=new)
