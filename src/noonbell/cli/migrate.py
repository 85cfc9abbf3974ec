"""`noonbell migrate`: the schema of the store, forward and back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noonbell.cli.options import config_option, load_settings, new_option, store_option

if TYPE_CHECKING:
    from noonbell.settings import Settings
    from noonbell.stores.sql.store import SqlStore


@click.command("migrate")
@config_option
@store_option
@click.option("--to", type=click.IntRange(0), metavar="N", help="The step to go to, forward or back [the newest].")
@click.option("--status", is_flag=True, help="Only show where the schema is.")
@click.option(
    "--new-installation",
    is_flag=True,
    help="Give the store another installation id: for a copy that is to run beside its original.",
)
@click.option("-y", "--yes", is_flag=True, help="Go back without asking, although that removes data.")
@new_option
def command(
    files: tuple[str, ...],
    store: str | None,
    to: int | None,
    status: bool,
    new_installation: bool,
    yes: bool,
    new: bool,
) -> None:
    """Bring the store's schema to a step, or show where it is."""
    if new_installation and (status or to is not None):
        raise click.UsageError("--new-installation goes with neither --to nor --status")
    settings = load_settings(files, store__url=store).settings
    asyncio.run(_show(settings) if status else _go(settings, to, yes=yes, new=new, new_installation=new_installation))


async def _show(settings: Settings) -> None:
    from noonbell.stores import migrations

    found, taken = 0, frozenset[int]()
    if missing_file(settings.store.url) is None:
        async with as_it_is(settings) as store:
            schema = await store.look_after_changes(_say)
            found, taken = schema.step, schema.taken
    for step in migrations.STEPS:
        click.echo(f"{step.number:>4}  {'done' if step.number in taken else 'open'}  {step.title}")
    if found > migrations.LATEST:
        click.echo(f"{found:>4}  done  newer than this version of Noonbell")


async def _go(settings: Settings, to: int | None, *, yes: bool, new: bool, new_installation: bool) -> None:
    from noonbell.errors import InvalidArgument
    from noonbell.stores import migrations

    wanted = migrations.LATEST if to is None else to
    if wanted > migrations.LATEST:
        raise InvalidArgument.field(
            "--to", f"is {to}; this version of Noonbell knows the steps 0 to {migrations.LATEST}"
        )
    async with as_it_is(settings, new=new) as store:
        found = (await store.look_after_changes(_say)).step
        if wanted < found <= migrations.LATEST and not yes:
            _ask(found, wanted)
        taken = await store.migrate(wanted, _say)
        made = await store.new_installation() if new_installation else None
    if made is not None:
        click.echo(f"installation {made}")
    elif not taken:
        click.echo("nothing to do", err=True)
    for step in taken:
        click.echo(f"{'forward' if step > 0 else 'back'} {abs(step)}")


def missing_file(url: str) -> str | None:
    """The file of SQLite that is not there yet. Who only looks does not make it: with a slip in its name it would be an
    empty store, in which nothing is wrong.
    """
    kind, _, path = url.partition(":///")
    return path if kind == "sqlite" and not Path(path).exists() else None


def _say(text: str) -> None:
    click.echo(text, err=True)


def _ask(found: int, wanted: int) -> None:
    loss = f"going back from step {found} to {wanted} removes what the steps between them hold"
    if not sys.stdin.isatty():
        raise click.UsageError(f"{loss}; add --yes if that is meant")
    click.confirm(f"{loss}. Go on?", abort=True, err=True)


@asynccontextmanager
async def as_it_is(settings: Settings, *, new: bool = False) -> AsyncIterator[SqlStore]:
    """The store, open, its schema untouched: neither brought up to date nor refused for being newer.

    SchemaMismatch where the database holds something of others under one of our names.
    """
    from noonbell.wiring import make_store

    store = make_store(settings, new=new)

    async def look_only() -> None:
        (await store.look_after_changes(_say)).check_foreign()

    store._bring_up_to_date = look_only  # type: ignore[method-assign]
    try:
        await store.open()
        yield store
    finally:
        await store.close()
