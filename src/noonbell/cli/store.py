"""`noonbell migrate` and `audit`: the schema and the soundness of a store. They need no server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from noonbell.cli.options import (
    config_option,
    confirm,
    expect_head_option,
    load_settings,
    new_option,
    say_default_store,
    store_option,
)
from noonbell.cli.output import ProgressBar, talk
from noonbell.cli.root import EXIT_FAILED

if TYPE_CHECKING:
    from noonbell.model.access import Head
    from noonbell.service.consistency import ConsistencyReport
    from noonbell.settings import Settings
    from noonbell.stores.migrations.ownership import Found
    from noonbell.stores.sql.store import SqlStore


@click.command("migrate")
@config_option
@store_option
@click.option("--to", type=click.IntRange(0), metavar="N", help="The step to go to, forward or back [the newest].")
@click.option("--status", is_flag=True, help="Only show the schema's step.")
@click.option(
    "--new-installation",
    is_flag=True,
    help="Give the store a new installation ID: for a copy that will run alongside its original.",
)
@click.option("-y", "--yes", is_flag=True, help="Go back without asking for confirmation, although that removes data.")
@new_option
def migrate_command(
    files: tuple[str, ...],
    store: str | None,
    to: int | None,
    status: bool,
    new_installation: bool,
    yes: bool,
    new: bool,
) -> None:
    """Migrate the store's schema to a step, or show its step."""
    if new_installation and (status or to is not None):
        raise click.UsageError("--new-installation cannot be combined with --to or --status")
    from noonbell.cli.doctor import check_default_store

    loaded = load_settings(files, store__url=store)
    if status:
        say_default_store(loaded)
        asyncio.run(_show(loaded.settings))
        return
    check_default_store(loaded)
    asyncio.run(_go(loaded.settings, to, yes=yes, new=new, new_installation=new_installation))


async def _show(settings: Settings) -> None:
    from noonbell.stores import migrations

    found, taken = 0, frozenset[int]()
    if missing_file(settings.store.url) is None:
        async with as_it_is(settings) as store:
            schema = await store.look_after_changes(talk)
            found, taken = schema.step, schema.taken
    for step in migrations.STEPS:
        click.echo(f"{step.number:>4}  {'done' if step.number in taken else 'open'}  {step.title}")
    if len(migrations.STEPS) < migrations.LATEST:
        talk("numbers that are not listed are not steps")
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
        found = (await store.look_after_changes(talk)).step
        if wanted < found <= migrations.LATEST and not yes:
            _ask(found, wanted)
        with ProgressBar() as bar:
            taken = await store.migrate(wanted, bar.remark, bar.move)
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
    from noonbell.settings.kinds import sqlite_file

    file = sqlite_file(url)
    return None if file is None or Path(file).exists() else file


def _ask(found: int, wanted: int) -> None:
    loss = f"going back from step {found} to {wanted} removes what the steps between them hold"
    if not sys.stdin.isatty():
        raise click.UsageError(f"{loss}; add --yes to confirm")
    confirm(f"{loss}. Continue?", refused="nothing changed")


@asynccontextmanager
async def as_it_is(settings: Settings, *, new: bool = False) -> AsyncIterator[SqlStore]:
    """The store, open, its schema untouched: neither brought up to date nor refused for being newer.

    SchemaMismatch where the database holds something of others under one of our names.
    """
    from noonbell.wiring import make_store

    store = make_store(settings, new=new)

    async def look_only() -> None:
        (await store.look_after_changes(talk)).check_foreign()

    store._bring_up_to_date = look_only  # type: ignore[method-assign]
    try:
        await store.open()
        yield store
    finally:
        await store.close()


_EVERY = 100
"""Tasks between two words about the progress."""


@click.command("audit")
@config_option
@store_option
@click.option(
    "-o", "output", default="table", type=click.Choice(["table", "json"]), help="Output for people or for programs."
)
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
@expect_head_option
def audit_command(files: tuple[str, ...], store: str | None, output: str, quiet: bool, heads: list[Head]) -> int:
    """Check that every slot in a store has exactly one outcome, and that the audit log is intact; the store may be in
    use.

    Read-only. Exit code 0: both hold. 1: something is wrong, and it is listed.
    """
    loaded = load_settings(files, store__url=store)
    report, log = asyncio.run(_audit(loaded.settings, heads, quiet=quiet))
    say_default_store(loaded)
    if output == "json":
        click.echo(json.dumps({**_as_json(report), "log": log.shown}, ensure_ascii=False, indent=2))
    else:
        click.echo(report_as_text(report, log.words))
    return 0 if report.is_sound else EXIT_FAILED


class _Log(NamedTuple):
    """What was found out about the audit log, for programs and for people."""

    shown: dict[str, Any]
    words: str


async def _audit(settings: Settings, expected: list[Head], *, quiet: bool) -> tuple[ConsistencyReport, _Log]:
    from noonbell import sealing
    from noonbell.errors import NotFound
    from noonbell.service.audit_log import AuditLog, shown_state, state_in_words
    from noonbell.service.consistency import audit, check_log

    missing = missing_file(settings.store.url)
    if missing is not None:
        raise NotFound(f"there is no file {missing}; give the store with --store")
    sealer = sealing.from_file(settings.secrets.key_file)
    async with as_it_is(settings) as store:
        check_up_to_date(await store.look_after_changes())
        try:
            report = await audit(store, None if quiet else _progress)
            state = await check_log(AuditLog(store, sealer), report, expected)
            return report, _Log(shown_state(state, sealer.first), state_in_words(state, sealer.first))
        finally:
            if not quiet and sys.stderr.isatty():
                click.echo("\r\x1b[K", err=True, nl=False)


def check_up_to_date(found: Found, option: str = "--store") -> None:
    """`option` names the store."""
    from noonbell.errors import InvalidState, NotFound
    from noonbell.stores import migrations

    migrations.check(found)
    if found.step == 0:
        raise NotFound(f"there is no Noonbell store there; give its address with {option}")
    if migrations.missing(found):
        raise InvalidState(
            f"the store's schema is at step {found.step}; bring it up to date with `noonbell migrate` first"
        )


def _progress(report: ConsistencyReport) -> None:
    """A line that is written over on a terminal, a line now and then elsewhere."""
    if report.tasks % _EVERY:
        return
    text = f"{report.tasks} tasks, {report.slots} slots"
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
    else:
        click.echo(text, err=True)


def report_as_text(report: ConsistencyReport, log: str | None = None) -> str:
    """`log`: what was found out about the audit log."""
    lines = [f"{flaw.kind}: {flaw.message}" for flaw in report.flaws]
    told = report.holes + report.doubles + report.others
    if told > len(lines) and len(lines) >= 1000:
        lines.append(f"… and more; {told} in total")
    lines += [] if log is None else [log]
    lines.append(
        f"{report.tasks} tasks, {report.slots} slots: {report.runs} runs, {report.skipped} skipped,"
        f" {report.dropped} dropped, {report.cleaned} removed by retention"
    )
    lines.append(
        f"{report.holes} holes, {report.doubles} doubles" + (f", {report.others} other flaws" * (report.others > 0))
    )
    return "\n".join(lines)


def _as_json(report: ConsistencyReport) -> dict[str, Any]:
    figures = ("tasks", "slots", "runs", "skipped", "dropped", "cleaned", "holes", "doubles", "others")
    flaws = [
        {"kind": flaw.kind, "message": flaw.message, "task_id": flaw.task_id, "run_id": flaw.run_id}
        for flaw in report.flaws
    ]
    return {**{name: getattr(report, name) for name in figures}, "flaws": flaws}
