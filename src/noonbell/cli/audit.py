"""`noonbell audit`: every slot of a store has one outcome, and no row contradicts another. Needs no server."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from noonbell.cli.exits import EXIT_FAILED
from noonbell.cli.options import config_option, load_settings, store_option

if TYPE_CHECKING:
    from noonbell.service.audit import Report
    from noonbell.settings import Settings
    from noonbell.stores.migrations.ownership import Found

_EVERY = 100
"""Tasks between two words about the progress."""


@click.command("audit")
@config_option
@store_option
@click.option("-o", "output", default="table", type=click.Choice(["table", "json"]), help="For people or programs.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing about the progress.")
def command(files: tuple[str, ...], store: str | None, output: str, quiet: bool) -> int:
    """Check a whole store for holes and doubles; it may be in use meanwhile.

    Reads only. Exit code 0: every slot has one outcome. 1: something is wrong, and it is listed.
    """
    settings = load_settings(files, store__url=store).settings
    report = asyncio.run(_audit(settings, quiet=quiet))
    click.echo(json.dumps(_as_json(report), ensure_ascii=False, indent=2) if output == "json" else _as_text(report))
    return 0 if report.is_sound else EXIT_FAILED


async def _audit(settings: Settings, *, quiet: bool) -> Report:
    from noonbell.cli.migrate import as_it_is, missing_file
    from noonbell.errors import NotFound
    from noonbell.service.audit import audit, check_log

    missing = missing_file(settings.store.url)
    if missing is not None:
        raise NotFound(f"there is no file {missing}; say where the store is with --store")
    async with as_it_is(settings) as store:
        _check_schema(await store.look_after_changes())
        try:
            report = await audit(store, None if quiet else _progress)
            await check_log(store, report)
            return report
        finally:
            if not quiet and sys.stderr.isatty():
                click.echo("\r\x1b[K", err=True, nl=False)


def _check_schema(found: Found) -> None:
    from noonbell.errors import InvalidState, NotFound
    from noonbell.stores import migrations

    migrations.check(found)
    if found.step == 0:
        raise NotFound("there is no store of Noonbell there; say where it is with --store")
    if migrations.missing(found):
        raise InvalidState(
            f"the store's schema is at step {found.step}; bring it up to date with `noonbell migrate` first"
        )


def _progress(report: Report) -> None:
    """A line that is written over on a terminal, a line now and then elsewhere."""
    if report.tasks % _EVERY:
        return
    text = f"{report.tasks} tasks, {report.slots} slots"
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
    else:
        click.echo(text, err=True)


def _as_text(report: Report) -> str:
    lines = [f"{flaw.kind}: {flaw.message}" for flaw in report.flaws]
    told = report.holes + report.doubles + report.others
    if told > len(lines) and len(lines) >= 1000:
        lines.append(f"… and more; {told} in all")
    lines.append(
        f"{report.tasks} tasks, {report.slots} slots: {report.runs} runs, {report.skipped} skipped,"
        f" {report.dropped} dropped, {report.cleaned} removed by retention"
    )
    lines.append(
        f"{report.holes} holes, {report.doubles} doubles" + (f", {report.others} other flaws" * (report.others > 0))
    )
    return "\n".join(lines)


def _as_json(report: Report) -> dict[str, Any]:
    figures = ("tasks", "slots", "runs", "skipped", "dropped", "cleaned", "holes", "doubles", "others")
    flaws = [
        {"kind": flaw.kind, "message": flaw.message, "task_id": flaw.task_id, "run_id": flaw.run_id}
        for flaw in report.flaws
    ]
    return {**{name: getattr(report, name) for name in figures}, "flaws": flaws}
