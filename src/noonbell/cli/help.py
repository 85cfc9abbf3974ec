"""`noonbell help TOPIC`: what no single command can explain."""

from __future__ import annotations

import click

from noonbell.cli.exits import MEANINGS


@click.command("help")
@click.argument("topic", required=False, type=click.Choice(["exit-codes"]))
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> None:
    """Explain a topic."""
    if topic is None:
        assert ctx.parent is not None  # noqa: S101 - a command of the group has one
        click.echo(ctx.parent.get_help())
    else:
        for code, meaning in MEANINGS.items():
            click.echo(f"{code:>3}  {meaning}")
