"""`noonbell doctor`: look the installation over, and say what to do."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from noonbell.cli.exits import EXIT_FAILED
from noonbell.cli.options import config_option, load_settings, store_option
from noonbell.cli.output import output_option, show_list, talk

if TYPE_CHECKING:
    from noonbell.service.doctor import Finding
    from noonbell.settings import Settings

_MARKS = {"well": "✔", "care": "!", "ill": "✖"}
_COLOURS = {"well": "green", "care": "yellow", "ill": "red"}


@click.command("doctor")
@config_option
@store_option
@output_option
def command(files: tuple[str, ...], store: str | None, output: str) -> int:
    """Look at settings, store, planner, workers, queues and server; exit code 1 if something is ill."""
    from noonbell.cli.output import is_colourful

    settings = load_settings(files, store__url=store).settings
    found = asyncio.run(_look(settings, files))
    if output == "table":
        for each in found:
            mark = _MARKS[each.mark]
            shown = click.style(mark, fg=_COLOURS[each.mark]) if is_colourful() else mark
            click.echo(f"{shown} {each.check:<10} {each.says}")
            if each.fix:
                click.echo(f"  {'':<10} → {each.fix}")
    else:
        rows = [{"check": each.check, "mark": each.mark, "says": each.says, "fix": each.fix} for each in found]
        show_list(rows, {}, output, name="check")
    ill = sum(each.mark == "ill" for each in found)
    talk(f"{ill} ill" if ill else "all is well enough")
    return EXIT_FAILED if ill else 0


async def _look(settings: Settings, files: tuple[str, ...]) -> list[Finding]:
    from noonbell.service.doctor import folder_of, look_at_machine, look_at_settings
    from noonbell.wiring import asks_for_tokens, is_loopback

    exposed = not is_loopback(settings.server.host)
    return [
        *look_at_settings(settings, files, asks_for_tokens=asks_for_tokens(settings), exposed=exposed),
        *look_at_machine(folder_of(settings.store.url)),
        *await _store(settings),
        _server(),
    ]


async def _store(settings: Settings) -> list[Finding]:
    """Its schema is left as it is: a doctor does not operate."""
    from noonbell.cli.migrate import as_it_is, missing_file
    from noonbell.clock import SystemClock
    from noonbell.errors import NoonbellError, SchemaMismatch
    from noonbell.service.doctor import Finding, Mark, look_at_dialects, look_at_store
    from noonbell.stores import migrations

    missing = missing_file(settings.store.url)
    if missing is not None:
        way = "noonbell serve makes it; if it should be there, say where with --store"
        return [Finding("store", Mark.CARE, f"there is no file {missing} yet", way)]
    try:
        async with as_it_is(settings) as store:
            schema = await store.look_after_changes()
            says = f"is at step {schema.step}, this version knows {migrations.LATEST}"
            if (back := migrations.cut_off(schema)) is not None:
                return [Finding("schema", Mark.ILL, "a way back was cut off", f"noonbell migrate --to {back}")]
            if migrations.missing(schema):
                return [Finding("schema", Mark.CARE, says, "noonbell migrate")]
            if schema.oldest_code > migrations.LATEST:
                return [Finding("schema", Mark.ILL, says, "upgrade Noonbell")]
            newer = schema.step > migrations.LATEST
            found = [
                Finding("schema", Mark.CARE, f"{says} and may work on it", "upgrade Noonbell")
                if newer
                else Finding(
                    "schema", Mark.WELL, f"at step {schema.step}, installation {await store.installation_id()}"
                )
            ]
            found += [each async for each in look_at_store(store, SystemClock().now)]
            return found + [each async for each in look_at_dialects(store, settings)]
    except SchemaMismatch as error:
        return [
            Finding("schema", Mark.ILL, error.message, "set store.table_prefix or store.schema, or name another store")
        ]
    except NoonbellError as error:
        return [Finding("store", Mark.ILL, error.message, "look at store.url, and whether the database runs")]


def _server() -> Finding:
    from noonbell.cli.remote import Remote
    from noonbell.errors import NoonbellError, StoreUnavailable
    from noonbell.service.doctor import Finding, Mark, finding
    from noonbell.version import __version__

    try:
        remote = Remote.of_environment()
        there = str(remote.get("/version")).removeprefix("v")
    except StoreUnavailable as error:
        asked = "NOONBELL_URL" in os.environ
        return Finding("server", Mark.ILL if asked else Mark.CARE, error.message, "")
    except NoonbellError as error:
        return Finding("server", Mark.CARE, error.message, "")
    if there != __version__:
        return Finding("server", Mark.CARE, f"is version {there}, this is {__version__}", "upgrade the older one")
    try:
        remote.get("/readyz")
    except NoonbellError as error:
        return finding("server", Mark.ILL, "node_stalled", why=error.message)
    return Finding("server", Mark.WELL, f"version {there} at {remote.url}")
