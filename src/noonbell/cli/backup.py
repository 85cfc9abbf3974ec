"""`noonbell backup` and `restore`: a whole store as one file, and back. They need no server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noonbell.cli.move import shown_progress
from noonbell.cli.options import config_option, load_settings, store_option
from noonbell.cli.root import EXIT_FAILED
from noonbell.cli.store import as_it_is, check_up_to_date, missing_file, report_as_text

if TYPE_CHECKING:
    from noonbell.service.consistency import ConsistencyReport
    from noonbell.settings import Settings
    from noonbell.stores.sql.store import SqlStore


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@store_option
def backup_command(file: Path, files: tuple[str, ...], store: str | None) -> int:
    """Write one moment of a whole store into FILE, which is a SQLite store; nodes may go on meanwhile.

    Ends with an audit of the copy. Exit code 1: the copy has the flaws that are listed, and so has the store.
    """
    from noonbell.errors import AlreadyExists, NotFound

    settings = load_settings(files, store__url=store).settings
    if file.exists():
        raise AlreadyExists(f"{file} exists; a backup replaces no file")
    missing = missing_file(settings.store.url)
    if missing is not None:
        raise NotFound(f"there is no file {missing}; say where the store is with --store")
    part = file.with_name(f"{file.name}.part")
    for name in (part.name, f"{part.name}-wal", f"{part.name}-shm"):
        part.with_name(name).unlink(missing_ok=True)  # of a backup that was cut off
    rows, report = asyncio.run(_back_up(settings, part))
    part.rename(file)
    click.echo(f"{rows} rows in {file}")
    return _told(report)


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@store_option
@click.option(
    "--new-installation",
    is_flag=True,
    help="Give the store another installation id: for a copy that is to run beside its original.",
)
def restore_command(file: Path, files: tuple[str, ...], store: str | None, new_installation: bool) -> int:
    """Fill an empty store of any kind from FILE, a backup. Cut off, the same command goes on.

    Ends with an audit of the store. Exit code 1: it has the flaws that are listed, and so has the backup.
    """
    from noonbell.errors import NotFound

    settings = load_settings(files, store__url=store).settings
    if not file.is_file():
        raise NotFound(f"there is no file {file}")
    return _told(asyncio.run(_restore(settings, file, new_installation=new_installation)))


async def _back_up(settings: Settings, file: Path) -> tuple[int, ConsistencyReport]:
    from noonbell.service.consistency import audit
    from noonbell.stores.backup import backup
    from noonbell.stores.moving import rows_to_copy

    async with as_it_is(settings) as source:
        check_up_to_date(await source.look_after_changes())
        async with _copy_in(file) as copy:
            with shown_progress(await rows_to_copy(source)) as progress:
                copied = await backup(source, copy, progress)
            return copied.total, await audit(copy)


async def _restore(settings: Settings, file: Path, *, new_installation: bool) -> ConsistencyReport:
    from noonbell.service.consistency import audit
    from noonbell.settings.kinds import shown_store_address
    from noonbell.stores.backup import restore
    from noonbell.stores.moving import rows_to_copy
    from noonbell.wiring import make_store

    store = make_store(settings, new=True, connections=4)
    store.is_being_moved = True
    try:
        await store.open()
        async with _copy_in(file) as copy:
            with shown_progress(await rows_to_copy(copy)) as progress:
                copied, installation = await restore(copy, store, progress, new_installation=new_installation)
        click.echo(f"{copied.total} rows in {shown_store_address(settings.store.url)}")
        if new_installation:
            click.echo(f"installation {installation}")
        return await audit(store)
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def _copy_in(file: Path) -> AsyncIterator[SqlStore]:
    """The file of a backup, open."""
    from noonbell.stores import open_store

    copy = open_store(f"sqlite:///{str(file).replace('%', '%25')}", network_disk=True)
    copy.is_being_moved = True
    try:
        await copy.open()
        yield copy
    finally:
        await copy.close()


def _told(report: ConsistencyReport) -> int:
    click.echo(report_as_text(report))
    return 0 if report.is_sound else EXIT_FAILED
