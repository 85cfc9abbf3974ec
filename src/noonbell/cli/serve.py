"""`noonbell serve`: a node in one process; `dev`: the same, to try an App; `demo`: a dozen tasks with a week of history."""

from __future__ import annotations

import asyncio
import errno
import socket

import click

from noonbell.cli.options import (
    config_option,
    label_flags,
    label_option,
    load_settings,
    log_level_option,
    new_option,
    store_option,
)
from noonbell.cli.output import ProgressBar, talk
from noonbell.fields import counted


@click.command("serve")
@config_option
@store_option
@click.option("--host", metavar="ADDRESS", help="The address to listen on [127.0.0.1].")
@click.option("--port", metavar="PORT", help="The port to listen on; 0: a free one [8080].")
@click.option(
    "--app", "location", metavar="MODULE:APP", help="Execute the jobs of this App too; a file path works as well."
)
@click.option("--no-scheduler", is_flag=True, help="Do not plan: other nodes turn slots into runs.")
@click.option("--no-worker", is_flag=True, help="Do not execute: other nodes execute the runs.")
@click.option("--no-api", is_flag=True, help="Do not listen: only plan and execute.")
@label_option
@log_level_option
@new_option
def serve_command(
    files: tuple[str, ...],
    store: str | None,
    host: str | None,
    port: str | None,
    location: str | None,
    no_scheduler: bool,
    no_worker: bool,
    no_api: bool,
    labels: tuple[str, ...],
    log_level: str | None,
    new: bool,
) -> int:
    """Start scheduler, worker and API in one process; SIGTERM or Ctrl-C stops them gracefully."""
    flags = {"server__host": host, "server__port": port, "logging__level": log_level, **label_flags(labels)}
    settings = load_settings(files, store__url=store, **flags).settings
    from noonbell.wiring import run

    return run(settings, scheduler=not no_scheduler, worker=not no_worker, api=not no_api, location=location, new=new)


_USUAL = 8080


@click.command("dev")
@click.argument("location", metavar="[APP]", required=False)
@click.option("--store", metavar="URL", help="The store [in a folder that is removed at the end].")
@click.option(
    "--port", metavar="PORT", help="The port to listen on; 0: a free one [8080, or a free one if that is in use]."
)
@click.option("--no-reload", is_flag=True, help="Do not restart when a file changes.")
@click.option("--own-store", is_flag=True, hidden=True, help="The store is nobody else's.")
@click.option("--watched", is_flag=True, hidden=True, help="The process that reloads says how it ended.")
def dev_command(
    location: str | None, store: str | None, port: str | None, no_reload: bool, own_store: bool, watched: bool
) -> int:
    """Try an App: server, worker and targets to call, reloaded when its files change.

    APP is a file such as app.py, or MODULE:APP. Without one, two samples run.
    """
    port = port or _free_port()
    if not no_reload:
        from noonbell.wiring.dev import run_reloading

        return run_reloading(location, store, port)
    settings = load_settings((), store__url=store, server__port=port, logging__level="warning").settings
    from noonbell.wiring.dev import STOPPED, run_dev

    code = run_dev(settings, location, prune=own_store)
    if not watched:
        talk(STOPPED)
    return code


def _free_port() -> str:
    """8080; where that is taken, one that stays the same over reloads."""
    host = load_settings(()).settings.server.host
    try:
        socket.create_server((host, _USUAL)).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return str(_USUAL)  # the server says what is wrong
        with socket.create_server((host, 0)) as free:
            port = free.getsockname()[1]
        talk(f"port {_USUAL} is in use: listening on {port}")
        return str(port)
    return str(_USUAL)


STORE = "sqlite:///noonbell-demo.db"


@click.command("demo")
@click.option("--store", metavar="URL", default=STORE, show_default=True, help="The store.")
@click.option(
    "--port", metavar="PORT", help="The port to listen on; 0: a free one [8080, or a free one if that is in use]."
)
@click.option("--no-serve", is_flag=True, help="Only fill the store; targets respond only while the demo is running.")
@click.option(
    "--clean", is_flag=True, help="Delete the tasks with the label demo=true and their history, nothing else."
)
@click.option("-y", "--yes", is_flag=True, help="Add the tasks to a store that is in use, without history.")
def demo_command(store: str, port: str | None, no_serve: bool, clean: bool, yes: bool) -> int:
    """Start a server with a dozen sample tasks and a week of history.

    Healthy, flaky, slow, overlapping, paused, with callbacks and without: all of them are labeled demo=true.
    """
    quiet = {"logging__level": "error", "server__graceful_timeout": "1s"}
    settings = load_settings((), store__url=store, server__port=port or "8080", **quiet).settings
    from noonbell import demo

    if clean:
        count = asyncio.run(demo.clean(settings))
        click.echo(f"deleted {counted(count, 'task')} with the label demo=true")
        return 0
    with ProgressBar() as bar:
        return demo.show(settings, yes=yes, serves=not no_serve, any_port=port is None, say=bar.say, progress=bar.move)
