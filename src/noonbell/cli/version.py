"""`noonbell version`."""

from __future__ import annotations

import click

from noonbell.version import __version__


@click.command("version")
def command() -> None:
    """Print the version."""
    click.echo(f"noonbell {__version__}")
