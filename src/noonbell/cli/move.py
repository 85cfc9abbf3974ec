"""`noonbell move`: a store goes to another database while its nodes work. `noonbell backup` and `restore`: a whole store as
one file, and back. They need no server.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noonbell.cli.options import config_option, load_settings, say_default_store, span_option, store_option
from noonbell.cli.output import ProgressBar
from noonbell.cli.root import EXIT_FAILED
from noonbell.cli.store import as_it_is, check_up_to_date, missing_file, report_as_text

if TYPE_CHECKING:
    from noonbell.service.consistency import ConsistencyReport
    from noonbell.settings import Settings
    from noonbell.stores.moving import CutOver, Move
    from noonbell.stores.sql.store import SqlStore

_COMPARED = ("tasks", "slots", "runs", "skipped", "dropped", "cleaned", "holes", "doubles", "others")


@click.command("move")
@click.option("--from", "source", required=True, metavar="URL", help="The store to move.")
@click.option(
    "--to", "destination", metavar="URL", help="An empty database, or the destination of an interrupted move."
)
@click.option("--from-schema", metavar="NAME", help="store.schema of the source.")
@click.option("--from-prefix", metavar="TEXT", help="store.table_prefix of the source.")
@click.option("--to-schema", metavar="NAME", help="store.schema of the destination.")
@click.option("--to-prefix", metavar="TEXT", help="store.table_prefix of the destination.")
@span_option(
    "--drain",
    default="30s",
    help="How long running work may take to finish [30s]. Runs that have not finished by then are lost.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@click.option("--cancel", is_flag=True, help="Cancel an interrupted move: the source stays in use.")
def move_command(
    source: str,
    destination: str | None,
    from_schema: str | None,
    from_prefix: str | None,
    to_schema: str | None,
    to_prefix: str | None,
    drain: float,
    dry_run: bool,
    cancel: bool,
) -> int:
    """Move a store to another database of any kind while its nodes work.

    Copies everything in batches, then stops the source, copies what has changed since, and records the new address in
    the source: its nodes stop, and no longer start there. If interrupted, run the same command again to continue.
    """
    if dry_run and cancel:
        raise click.UsageError("--dry-run cannot be combined with --cancel")
    if destination is None and not cancel:
        raise click.UsageError("--to is missing: the address of the destination")
    origin = _Side(source, from_schema, from_prefix)
    goal = None if destination is None else _Side(destination, to_schema, to_prefix)
    if cancel:
        asyncio.run(_cancel(origin, goal))
        return 0
    assert goal is not None  # noqa: S101 - looked at above
    if dry_run:
        asyncio.run(_show(origin, goal))
        return 0
    return asyncio.run(_move(origin, goal, drain))


class _Side:
    """The source or the destination."""

    def __init__(self, url: str, schema: str | None, prefix: str | None) -> None:
        from noonbell.settings.kinds import shown_store_address

        given: dict[str, Any] = {"store__url": url, "store__schema": schema, "store__table_prefix": prefix}
        self._settings = load_settings((), **given).settings
        self._url = url
        self.address = shown_store_address(url)

    @contextlib.asynccontextmanager
    async def opened(self, *, must_exist: bool = False) -> AsyncIterator[SqlStore]:
        from noonbell.errors import NotFound
        from noonbell.wiring import make_store

        if must_exist:
            if (missing := missing_file(self._url)) is not None:
                raise NotFound(f"there is no file {missing}")
            async with as_it_is(
                self._settings, new=True
            ) as store:  # its nodes may be older: no step is taken under them
                check_up_to_date(await store.look_after_changes(_say), "--from")
        store = make_store(self._settings, new=True, connections=4)
        store.is_being_moved = True
        try:
            await store.open()
            yield store
        finally:
            await store.close()


async def _show(origin: _Side, goal: _Side) -> None:
    from noonbell.stores.moving import Move, row_counts

    async with contextlib.AsyncExitStack() as stack:
        source = await stack.enter_async_context(origin.opened(must_exist=True))
        destination = await stack.enter_async_context(goal.opened())
        state, _ = await Move(source, destination, to=goal.address).states()
        counts = await row_counts(source)
    for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        if count:
            click.echo(f"{count:>12}  {name}")
    done = "" if state.phase is None else f"; a move to {state.moved_to} was interrupted: {state.phase}"
    click.echo(f"{sum(counts.values()):>12}  rows from {origin.address} to {goal.address}{done}")
    _say("nothing was copied; run the command without --dry-run to copy")


async def _cancel(origin: _Side, goal: _Side | None) -> None:
    from noonbell.stores.moving import cancel

    async with contextlib.AsyncExitStack() as stack:
        source = await stack.enter_async_context(origin.opened(must_exist=True))
        destination = None if goal is None else await stack.enter_async_context(goal.opened())
        await cancel(source, destination)
    click.echo(f"canceled: {origin.address} stays in use; empty the destination before another move")


async def _move(origin: _Side, goal: _Side, drain: float) -> int:
    from noonbell.stores.moving import Move, rows_to_copy

    async with contextlib.AsyncExitStack() as stack:
        source = await stack.enter_async_context(origin.opened(must_exist=True))
        destination = await stack.enter_async_context(goal.opened())
        if await Move(source, destination, to=goal.address).is_done():
            click.echo(f"already moved to {goal.address}")
            return 0
        with shown_progress(await rows_to_copy(source)) as progress:
            move = Move(source, destination, to=goal.address, progress=progress)
            await move.begin()
            await move.copy()
        done = await _stop_and_cut_over(move, drain)
        copied = move.copied
        click.echo(f"copied {copied.total} rows while the source was in use, {copied.again} of them again")
        click.echo(_in_words(done))
        click.echo(f"moved to {goal.address}: start the nodes with that store.url")
        before, after = await _audit(source, "source"), await _audit(destination, "destination")
    return _compare(before, after)


async def _stop_and_cut_over(move: Move, drain: float) -> CutOver:
    _say("stopping the source")
    drained = await move.stop(drain)
    return await move.cut_over(drained)


def _in_words(done: CutOver) -> str:
    left = f"; {done.leases_left} runs had not ended and are lost" if done.leases_left else ""
    return f"drained for {done.drained_seconds:.1f} s{left}; pause {done.pause_seconds:.2f} s, in which {done.rows} rows were copied"


async def _audit(store: SqlStore, name: str) -> ConsistencyReport:
    from noonbell.service.consistency import audit

    _say(f"audit of the {name}")
    return await audit(store)


def _compare(before: ConsistencyReport, after: ConsistencyReport) -> int:
    figures = [(name, getattr(before, name), getattr(after, name)) for name in _COMPARED]
    for flaw in after.flaws:
        click.echo(f"{flaw.kind}: {flaw.message}")
    for name, was, is_now in figures:
        click.echo(f"{name:>8}  {was:>10}  {is_now:>10}{'' if was == is_now else '  differs'}")
    if all(was == is_now for _, was, is_now in figures):
        click.echo("audit: equal on both sides" + ("" if after.is_sound else ", including the flaws of the source"))
        return 0 if after.is_sound else EXIT_FAILED
    click.echo("audit: the sides differ; this is expected if nodes are already working on the destination")
    return EXIT_FAILED


@contextlib.contextmanager
def shown_progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Takes how many rows have been copied; by the end there may be more of them than were counted."""
    if total is None:
        _say("the rows could not be counted in time: no progress is shown")
        yield lambda _: None
        return
    with ProgressBar() as bar:
        yield lambda copied: bar.move(min(1.0, copied / max(1, total)))


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True)
    else:
        click.echo(text, err=True)


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@store_option
def backup_command(file: Path, files: tuple[str, ...], store: str | None) -> int:
    """Write a consistent snapshot of a store to FILE, which is a SQLite store; nodes may keep working.

    Ends with an audit of the copy. Exit code 1: the copy has the flaws that are listed, and so does the store.
    """
    from noonbell.cli.doctor import check_that_server_is_here
    from noonbell.errors import AlreadyExists, NotFound
    from noonbell.settings.kinds import shown_store_address

    loaded = load_settings(files, store__url=store)
    settings = loaded.settings
    if file.exists():
        raise AlreadyExists(f"{file} already exists; a backup does not overwrite files")
    missing = missing_file(settings.store.url)
    if missing is not None:
        raise NotFound(f"there is no file {missing}; give the store with --store")
    if loaded.origins["store.url"] == "default":
        asyncio.run(check_that_server_is_here(settings))
    part = file.with_name(f"{file.name}.part")
    for name in (part.name, f"{part.name}-wal", f"{part.name}-shm"):
        part.with_name(name).unlink(missing_ok=True)  # of a backup that was cut off
    rows, report = asyncio.run(_back_up(settings, part))
    part.rename(file)
    click.echo(f"{rows} rows of {shown_store_address(settings.store.url)} in {file}")
    return _told(report)


_SQLITE = b"SQLite format 3\0"
"""How every backup begins."""


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@store_option
@click.option(
    "--new-installation",
    is_flag=True,
    help="Give the store a new installation ID: for a copy that will run alongside its original.",
)
def restore_command(file: Path, files: tuple[str, ...], store: str | None, new_installation: bool) -> int:
    """Fill an empty store of any kind from FILE, a backup. If interrupted, run the same command again to continue.

    Ends with an audit of the store. Exit code 1: it has the flaws that are listed, and so does the backup.
    """
    from noonbell.errors import InvalidArgument, NotFound

    loaded = load_settings(files, store__url=store)
    settings = loaded.settings
    if not file.is_file():
        raise NotFound(f"there is no file {file}")
    with file.open("rb") as opened:
        if opened.read(len(_SQLITE)) != _SQLITE:
            raise InvalidArgument.field("FILE", f"{file} is no backup: noonbell backup FILE writes one")
    say_default_store(loaded)
    return _told(asyncio.run(_restore(settings, file, new_installation=new_installation)))


async def _back_up(settings: Settings, file: Path) -> tuple[int, ConsistencyReport]:
    from noonbell.service.consistency import audit
    from noonbell.stores.moving import backup, rows_to_copy

    async with as_it_is(settings) as source:
        check_up_to_date(await source.look_after_changes())
        async with _copy_in(file) as copy:
            with shown_progress(await rows_to_copy(source)) as progress:
                copied = await backup(source, copy, progress)
            return copied.total, await audit(copy)


async def _restore(settings: Settings, file: Path, *, new_installation: bool) -> ConsistencyReport:
    from noonbell.service.consistency import audit
    from noonbell.settings.kinds import shown_store_address
    from noonbell.stores.moving import restore, rows_to_copy
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
