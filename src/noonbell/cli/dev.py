"""`noonbell dev`: everything in one process, to try things."""

from __future__ import annotations

import click

from noonbell.cli.options import load_settings


@click.command("dev")
@click.argument("location", metavar="[APP]", required=False)
@click.option("--store", metavar="URL", help="Keep everything there [a folder that is removed at the end].")
@click.option("--port", metavar="PORT", default="8080", show_default=True, help="The port to listen on; 0: a free one.")
@click.option("--no-reload", is_flag=True, help="Do not start anew when a file changes.")
@click.option("--own-store", is_flag=True, hidden=True, help="The store is nobody else's.")
def command(location: str | None, store: str | None, port: str, no_reload: bool, own_store: bool) -> int:
    """Try an App: server, worker and targets to call, reloaded when its files change.

    APP is a file such as app.py, or MODULE:APP. Without one, two samples run.
    """
    if not no_reload:
        from noonbell.wiring.reloading import watched

        return watched(location, store, port)
    settings = load_settings((), store__url=store, server__port=port, logging__level="warning").settings
    from noonbell.wiring.trying import run_dev

    return run_dev(settings, location, prune=own_store)
