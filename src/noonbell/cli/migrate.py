"""`noonbell migrate`: the schema of the store, forward and back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from noonbell.cli.options import config_option, load_settings, store_option

if TYPE_CHECKING:
    from noonbell.settings import Settings


@click.command("migrate")
@config_option
@store_option
@click.option("--to", type=click.IntRange(0), metavar="N", help="The step to go to, forward or back [the newest].")
@click.option("--status", is_flag=True, help="Only show where the schema is.")
def command(files: tuple[str, ...], store: str | None, to: int | None, status: bool) -> None:
    """Bring the store's schema to a step, or show where it is."""
    settings = load_settings(files, store__url=store).settings
    asyncio.run(_show(settings) if status else _go(settings, to))


async def _show(settings: Settings) -> None:
    from noonbell.wiring import schema_step

    found, steps = await schema_step(settings)
    for number, title in steps:
        click.echo(f"{number:>4}  {'done' if number <= found else 'open'}  {title}")
    if found > len(steps):
        click.echo(f"{found:>4}  newer than this version of Noonbell: upgrade it", err=True)


async def _go(settings: Settings, to: int | None) -> None:
    from noonbell.wiring import migrate

    taken = await migrate(settings, to)
    if not taken:
        click.echo("nothing to do", err=True)
    for step in taken:
        click.echo(f"{'forward' if step > 0 else 'back'} {abs(step)}")
