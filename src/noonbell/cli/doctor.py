"""`noonbell doctor`: settings, machine, store and server of an installation, and what to do about each.

It looks at the store that the settings name. Where none is named, it looks at the SQLite file of the server that
answers on this machine, because `noonbell.db` is another file in each folder. It makes no file, and leaves the schema
as it is.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import urllib.parse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from noonbell.cli.options import config_option, load_settings, say_default_store, store_option
from noonbell.cli.output import output_option, show_list, talk, terminal_language
from noonbell.cli.root import EXIT_FAILED
from noonbell.cli.store import as_it_is, missing_file

if TYPE_CHECKING:
    from noonbell.service.doctor import Finding
    from noonbell.service.translation import Translator
    from noonbell.settings import Loaded, Settings
    from noonbell.stores.migrations.ownership import Found
    from noonbell.stores.sql.store import SqlStore

_MARKS = {"well": "✔", "note": "i", "care": "!", "ill": "✖"}
_COLOURS = {"well": "green", "note": "blue", "care": "yellow", "ill": "red"}


@click.command("doctor")
@config_option
@store_option
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="CHECK",
    help="A check, such as tasks, that does not affect the exit code; may be repeated.",
)
@output_option
def doctor_command(files: tuple[str, ...], store: str | None, ignored: tuple[str, ...], output: str) -> int:
    """Check settings, store, planner, workers, queues, tasks and server.

    Exit code 1: there is a problem (✖); a task whose last run failed is one. 0: there is none, but there may be
    warnings (!) and notes (i).
    """
    from noonbell.cli.output import is_colourful
    from noonbell.service.doctor import said
    from noonbell.service.translation import Translator

    found = asyncio.run(_look(load_settings(files, store__url=store), files))
    words = Translator(terminal_language())
    if output == "table":
        for each in found:
            mark = _MARKS[each.mark]
            shown = click.style(mark, fg=_COLOURS[each.mark]) if is_colourful() else mark
            says, fix = said(each.code, each.facts, words) if each.code else (each.says, each.fix)
            click.echo(f"{shown} {each.check:<10} {says}")
            if fix:
                click.echo(f"  {'':<10} → {fix}")
    else:
        rows = [{"check": each.check, "mark": each.mark, "says": each.says, "fix": each.fix} for each in found]
        show_list(rows, {}, output, name="check")
    talk(_summary(found, words))
    return EXIT_FAILED if any(each.mark == "ill" and each.check not in ignored for each in found) else 0


def _summary(found: list[Finding], words: Translator) -> str:
    """How many findings ask for something, and which they are."""
    marked = {mark: [each.check for each in found if each.mark == mark] for mark in ("ill", "care")}
    parts = [
        f"{words(f'doctor.{mark}', n=len(of))}{words.marks.colon}{words.marks.item.join(of)}"
        for mark, of in marked.items()
        if of
    ]
    return "; ".join(parts) or words("doctor.all_well")


async def _look(loaded: Loaded, files: tuple[str, ...]) -> list[Finding]:
    from noonbell.service.doctor import CheckStatus, Finding, folder_of, look_at_machine, look_at_settings
    from noonbell.settings.kinds import shown_store_address
    from noonbell.wiring import asks_for_tokens, is_loopback

    settings, named_by = loaded.settings, loaded.origins["store.url"]
    server = await asyncio.to_thread(_ask_server)
    if named_by == "default" and (file := _file_on_this_machine(server)) is not None:
        settings = replace(settings, store=replace(settings.store, url=file))
        named_by = f"the server at {server.url}"
    elif named_by == "default":
        named_by = "default, in this folder"
    address = shown_store_address(settings.store.url)
    found, installation = await _store(settings, server)
    return [
        *look_at_settings(
            settings, files, asks_for_tokens=asks_for_tokens(settings), exposed=not is_loopback(settings.server.host)
        ),
        *look_at_machine(folder_of(settings.store.url)),
        Finding("address", CheckStatus.WELL, f"{address} ({named_by})"),
        *found,
        _on_which_store(server, installation),
    ]


@dataclass(frozen=True, slots=True)
class _Server:
    """What the server at NOONBELL_URL, or at the default address, said of itself."""

    url: str
    finding: Finding
    store: str | None = None
    """Its address without passwords. None: no server answered, or it tells only admins."""
    installation_id: str | None = None


def _ask_server() -> _Server:
    from noonbell.cli.api import Remote
    from noonbell.errors import NoonbellError, StoreUnavailable
    from noonbell.service.doctor import CheckStatus, Finding, finding
    from noonbell.version import __version__

    try:
        remote = Remote.of_environment()
    except NoonbellError as error:
        return _Server("", Finding("server", CheckStatus.CARE, error.message))
    try:
        there = str(remote.get("/version")).removeprefix("v")
    except StoreUnavailable as error:
        asked = "NOONBELL_URL" in os.environ
        return _Server(remote.url, Finding("server", CheckStatus.ILL if asked else CheckStatus.CARE, error.message))
    except NoonbellError as error:
        return _Server(remote.url, Finding("server", CheckStatus.CARE, error.message))
    found = Finding("server", CheckStatus.WELL, f"version {there} at {remote.url}")
    if there != __version__:
        says = f"at {remote.url} is version {there}, this is {__version__}"
        found = Finding("server", CheckStatus.CARE, says, "upgrade the older one")
    else:
        try:
            remote.get("/readyz")
        except NoonbellError as error:
            found = finding("server", CheckStatus.ILL, "node_stalled", why=error.message)
    try:
        said = remote.get("/installation")
    except NoonbellError:  # an older server, or a token that is no admin's
        return _Server(remote.url, found)
    return _Server(remote.url, found, said["store"], said["installation_id"])


def _file_on_this_machine(server: _Server) -> str | None:
    """The address of the server's SQLite file, if this process can look at it."""
    from noonbell.settings.kinds import sqlite_file
    from noonbell.wiring import is_loopback

    file = None if server.store is None else sqlite_file(server.store)
    is_here = is_loopback(urllib.parse.urlsplit(server.url).hostname or "")
    return server.store if file is not None and is_here and os.access(file, os.R_OK) else None


def _on_which_store(server: _Server, installation: str | None) -> Finding:
    """What is said of the server, and whether the store that was looked at is its own."""
    from noonbell.service.doctor import CheckStatus

    found = server.finding
    if found.mark is not CheckStatus.WELL:
        return found
    if server.store is None:
        says = f"{found.says}; it reports its store only to an admin's token"
        return replace(found, says=says)
    if server.installation_id == installation:
        return replace(found, says=f"{found.says}, on this store")
    says = f"{found.says} uses another store, {server.store}"
    return replace(found, mark=CheckStatus.CARE, says=says, fix=_look_there(server))


def check_default_store(loaded: Loaded) -> None:
    """Before a command changes a store that was not named: say on stderr which one it is.

    InvalidState where a server says that it works on another one.
    """
    if loaded.origins["store.url"] == "default":
        asyncio.run(check_that_server_is_here(loaded.settings))
        say_default_store(loaded)


async def check_that_server_is_here(settings: Settings) -> None:
    """InvalidState where a server answers at NOONBELL_URL, or at the default address, and says that it works on another store:
    for who has named none, and would hardly mean a file that happens to be in this folder.
    """
    from noonbell.errors import InvalidState
    from noonbell.settings.kinds import shown_store_address

    server = await asyncio.to_thread(_ask_server)
    if server.installation_id is None:
        return
    here = await _installation(settings)
    if here != server.installation_id:
        mine = shown_store_address(settings.store.url)
        raise InvalidState(
            f"no store was named, and the server at {server.url} works on {server.store}, not on {mine};"
            " say which one with --store"
        )


async def _installation(settings: Settings) -> str | None:
    """None: there is no store, or nothing of ours in it."""
    if missing_file(settings.store.url) is not None:
        return None
    async with as_it_is(settings) as store:
        return await store.installation_id() if (await store.look_after_changes()).step else None


def _look_there(server: _Server) -> str:
    """How to look at the store of the server."""
    store = server.store or ""
    there = f"noonbell doctor --store {shlex.quote(store)}"
    if store.startswith("sqlite:"):
        return f"the server at {server.url} uses another: {there}"
    ways = "noonbell doctor --config FILE, with the server's settings"
    if "***" not in store and not store.startswith("memory:"):  # no password is left out
        ways = f"{there}; or --config FILE, with the server's settings"
    return f"the server at {server.url} uses {store}: {ways}; or {server.url}/settings/diagnostics"


async def _store(settings: Settings, server: _Server) -> tuple[list[Finding], str | None]:
    """What is found, and the id of the installation that it was found in."""
    from noonbell.errors import NoonbellError, SchemaMismatch
    from noonbell.service.doctor import CheckStatus, Finding

    missing = missing_file(settings.store.url)
    if missing is not None:
        says = f"does not exist: there is no file {missing}"
        way = "noonbell serve creates it; if it should already exist, give its address with --store"
        return [Finding("store", CheckStatus.CARE, says, way if server.store is None else _look_there(server))], None
    try:
        async with as_it_is(settings) as store:
            return await _open_store(store, settings)
    except SchemaMismatch as error:
        way = "set store.table_prefix or store.schema, or name another store"
        return [Finding("schema", CheckStatus.ILL, error.message, way)], None
    except NoonbellError as error:
        way = "check store.url, and that the database is running"
        return [Finding("store", CheckStatus.ILL, error.message, way)], None


async def _open_store(store: SqlStore, settings: Settings) -> tuple[list[Finding], str | None]:
    from noonbell.clock import SystemClock
    from noonbell.service.doctor import CheckStatus, Finding, look_at_dialects, look_at_services, look_at_store
    from noonbell.stores import migrations

    schema = await store.look_after_changes()
    if (unfit := _unfit(schema)) is not None:
        return [unfit], None
    installation = await store.installation_id()
    found = [Finding("schema", CheckStatus.WELL, f"at step {schema.step}, installation {installation}")]
    if schema.step > migrations.LATEST:
        says = f"is at step {schema.step}, this version knows {migrations.LATEST} and can work with it"
        found = [Finding("schema", CheckStatus.CARE, says, "upgrade Noonbell")]
    found += [each async for each in look_at_store(store, SystemClock().now)]
    found += [each async for each in look_at_dialects(store, settings)]
    found += [each async for each in look_at_services(store, settings)]
    return found, installation


def _unfit(schema: Found) -> Finding | None:
    """Why this version cannot read what is in the store."""
    from noonbell.service.doctor import CheckStatus, Finding
    from noonbell.stores import migrations

    if schema.step == 0:
        says = "the database exists, but has no Noonbell store"
        return Finding("schema", CheckStatus.CARE, says, "noonbell serve creates one; or give its address with --store")
    says = f"is at step {schema.step}, this version knows {migrations.LATEST}"
    if (back := migrations.cut_off(schema)) is not None:
        return Finding("schema", CheckStatus.ILL, "a downgrade was interrupted", f"noonbell migrate --to {back}")
    if migrations.missing(schema):
        return Finding("schema", CheckStatus.CARE, says, "noonbell migrate")
    if schema.oldest_code > migrations.LATEST:
        return Finding("schema", CheckStatus.ILL, says, "upgrade Noonbell")
    return None
