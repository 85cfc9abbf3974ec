"""`noonbell secrets …`: the keys that seal secrets in the store; works on the store itself."""

from __future__ import annotations

import asyncio

import click

from noonbell.cli.options import config_option, load_settings, store_option
from noonbell.cli.output import talk


@click.group("secrets")
def command() -> None:
    """Make a key for secrets in the store; seal them all anew."""


@command.command("key")
@click.argument("key_id", metavar="ID")
def new_key(key_id: str) -> None:
    """Print a line for a key file, with a new key of the name ID."""
    from noonbell.sealing import new_line

    click.echo(new_line(key_id))


@command.command("rotate")
@config_option
@store_option
def rotate(files: tuple[str, ...], store: str | None) -> None:
    """Seal every secret with the first key of secrets.key_file; then the other keys are not needed."""
    from noonbell import sealing
    from noonbell.cli.deeds import deed
    from noonbell.service.access import Access
    from noonbell.service.rotation import Rotated
    from noonbell.service.rotation import rotate as seal_anew
    from noonbell.wiring import make_store

    settings = load_settings(files, store__url=store).settings
    sealer = sealing.from_file(settings.secrets.key_file)

    async def run() -> Rotated:
        opened = make_store(settings)
        try:
            await opened.open()
            done = await seal_anew(opened, sealer)
            await Access(opened).note(deed("rotate_secrets", "/secrets", key=sealer.first, rows=done.all))
            return done
        finally:
            await opened.close()

    done = asyncio.run(run())
    talk(
        f"sealed with key {sealer.first}: {done.tasks} tasks, {done.versions} earlier versions and {done.channels} channels;"
        " the rest was so already"
    )
