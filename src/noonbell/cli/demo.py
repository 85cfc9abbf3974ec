"""`noonbell demo`: a dozen tasks with a week of history, to look around in."""

from __future__ import annotations

import asyncio
import sys
from typing import Self

import click

from noonbell.cli.options import load_settings

STORE = "sqlite:///noonbell-demo.db"


@click.command("demo")
@click.option("--store", metavar="URL", default=STORE, show_default=True, help="Where it is kept.")
@click.option("--port", metavar="PORT", default="8080", show_default=True, help="The port to listen on; 0: a free one.")
@click.option("--no-serve", is_flag=True, help="Only fill the store; targets answer while the demo serves.")
@click.option(
    "--clean", is_flag=True, help="Delete the tasks with the label demo=true and their history, nothing else."
)
@click.option("-y", "--yes", is_flag=True, help="Add the tasks to a store that is in use, without a history.")
def command(store: str, port: str, no_serve: bool, clean: bool, yes: bool) -> int:
    """Show a dozen tasks of every temper, with a week of history.

    Healthy, flaky, slow, overlapping, with callbacks and without, paused: all of them labelled demo=true.
    """
    quiet = {"logging__level": "error", "server__graceful_timeout": "1s"}
    settings = load_settings((), store__url=store, server__port=port, **quiet).settings
    from noonbell.demo import showing

    if clean:
        count = asyncio.run(showing.clean(settings))
        click.echo(f"deleted {count} task{'' if count == 1 else 's'} with the label demo=true")
        return 0
    with _Bar() as bar:
        return showing.show(settings, yes=yes, serves=not no_serve, say=bar.say, progress=bar.move)


class _Bar:
    """How far it is, on stderr, where somebody watches."""

    def __init__(self) -> None:
        self._is_watched, self._shown = sys.stderr.isatty(), -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def move(self, part: float) -> None:
        percent = int(part * 100)
        if self._is_watched and percent != self._shown:
            self._shown = percent
            click.echo(f"\r  {percent:>3} %  [{'#' * (percent // 4):<25}]", nl=False, err=True)

    def say(self, line: str) -> None:
        self._clear()
        click.echo(line)
        sys.stdout.flush()

    def _clear(self) -> None:
        if self._shown >= 0:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = -1
