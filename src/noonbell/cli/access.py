"""`noonbell token …` and `noonbell secrets …`: API tokens, and the keys that seal secrets. Both work on the store itself.

A person with access to the store needs no token. The audit log names the user of the operating system instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from noonbell.cli.options import (
    config_option,
    expect_head_option,
    load_settings,
    say_default_store,
    span_option,
    store_option,
)
from noonbell.cli.output import ago, exact_span, moment_text, output_option, show_list, talk
from noonbell.cli.root import EXIT_FAILED, NounGroup

if TYPE_CHECKING:
    from noonbell.model.access import AuditAction, Head
    from noonbell.policy.audit_chain import LogState
    from noonbell.sealing import Sealer
    from noonbell.service.access import Access
    from noonbell.service.secrets import Rotated
    from noonbell.settings import Loaded
    from noonbell.stores.sql.store import SqlStore

AUDIT_ACTOR = "command line"


def audit_action(action: str, subject: str, **details: Any) -> AuditAction:
    """No token was shown: the line has the user of the operating system instead, where it has a name."""
    from noonbell.model.access import AuditAction

    with contextlib.suppress(OSError, KeyError, ImportError):
        details["user"] = getpass.getuser()
    return AuditAction(actor=AUDIT_ACTOR, action=action, subject=subject, details={"through": AUDIT_ACTOR, **details})


T = TypeVar("T")


def _scope(token: dict[str, Any]) -> str:
    """What a token is for, in brackets: labels as NAME=VALUE, queues as they are, job types with `()` behind them."""
    said = [f"{name}={value}" for name, value in (token["labels"] or {}).items()]
    said += [*(token["queues"] or ()), *(f"{name}()" for name in token["job_types"] or ())]
    return f" ({', '.join(said)})" if said else ""


COLUMNS = {
    "name": lambda token: token["name"],
    "role": lambda token: token["role"] + _scope(token),
    "token": lambda token: token["token"],
    "created": lambda token: ago(token["created_at"]),
    "last used": lambda token: ago(token["used_at"]),
    "state": lambda token: (
        "revoked"
        if token["revoked_at"]
        else f"until {moment_text(token['expires_at'])}"
        if token["expires_at"]
        else "good"
    ),
}


@click.group("token", cls=NounGroup)
def token_command() -> None:
    """Create, list and revoke API tokens; needs the store, not a server."""


@token_command.command("create")
@click.option(
    "--role", required=True, type=click.Choice(["viewer", "worker", "operator", "admin"]), help="What the token may do."
)
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only for tasks with this label; may be repeated."
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Only for this queue; a worker's token needs one. May be repeated.",
)
@click.option("--job-type", "job_types", multiple=True, metavar="NAME", help="Only for this job type; may be repeated.")
@click.option("--name", required=True, metavar="NAME", help="Who or what it is for; the audit log shows it.")
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), help="Valid for this many days [until it is revoked]."
)
@span_option("--expires", is_zero_allowed=False, help="The same as --days with a unit, such as 30d or 12h.")
@config_option
@store_option
def create(
    role: str,
    labels: tuple[str, ...],
    queues: tuple[str, ...],
    job_types: tuple[str, ...],
    name: str,
    days: float | None,
    expires: float | None,
    files: tuple[str, ...],
    store: str | None,
) -> None:
    """Create a token and print it: it is shown only once.

    Without --store, the server's own database file must already exist here. With --label, --queue or --job-type, the
    token can access only tasks that have all of them, and their runs.
    """
    from noonbell.cli.store import missing_file
    from noonbell.service.access import labels_of, scope_of
    from noonbell.settings.kinds import shown_store_address

    seconds = None if days is None else days * 86_400
    if expires is not None:
        if days is not None:
            raise click.UsageError("--days and --expires mean the same; use only one")
        seconds = expires
    wanted = labels_of(labels)

    async def work(access: Access) -> str:
        token, secret = await access.create(
            name, role, seconds=seconds, by=AUDIT_ACTOR, queues=queues, labels=wanted, job_types=job_types
        )
        await access.note(audit_action("create_token", f"/tokens/{name}", **scope_of(token)))
        return secret

    loaded = load_settings(files, store__url=store)
    _check_server(loaded)
    address, is_new = (
        shown_store_address(loaded.settings.store.url),
        missing_file(loaded.settings.store.url) is not None,
    )
    click.echo(_with_access(files, store, work))
    until = "" if seconds is None else f" for {exact_span(round(seconds) or seconds)}"
    talk(f"valid{until} for servers on {address}" + (" (newly created: no server has used it yet)" if is_new else ""))
    if loaded.origins["store.url"] == "default" and (server := os.environ.get("NOONBELL_URL")):
        talk(f"no store was given: if the server at {server} uses another one, give it with --store")


@token_command.command("list")
@config_option
@store_option
@output_option
def list_tokens(files: tuple[str, ...], store: str | None, output: str) -> None:
    """List tokens. Their secrets are not stored, so they cannot be shown."""
    show_list(_with_access(files, store, lambda access: access.tokens(), must_exist=True), COLUMNS, output)
    say_default_store(load_settings(files, store__url=store))


@token_command.command("revoke")
@click.argument("name")
@config_option
@store_option
def revoke(name: str, files: tuple[str, ...], store: str | None) -> None:
    """Revoke a token; every node rejects it within seconds."""

    async def work(access: Access) -> None:
        await access.revoke(name)
        await access.note(audit_action("revoke_token", f"/tokens/{name}"))

    loaded = load_settings(files, store__url=store)
    _check_server(loaded)
    _with_access(files, store, work, must_exist=True)
    say_default_store(loaded)
    talk(f"revoked {name}")


def _check_server(loaded: Loaded) -> None:
    """InvalidState where no store was named and the server works on another one, which would not know of this."""
    from noonbell.cli.doctor import check_that_server_is_here

    if loaded.origins["store.url"] == "default":
        asyncio.run(check_that_server_is_here(loaded.settings))


def _with_access(
    files: tuple[str, ...], url: str | None, work: Callable[[Access], Awaitable[T]], *, must_exist: bool = False
) -> T:
    from noonbell import sealing
    from noonbell.cli.store import missing_file
    from noonbell.errors import NotFound
    from noonbell.service.access import Access
    from noonbell.wiring import make_store

    loaded = load_settings(files, store__url=url)
    settings, is_named = loaded.settings, loaded.origins["store.url"] != "default"
    missing = missing_file(settings.store.url) if must_exist or not is_named else None
    if missing is not None:
        # A new file would hold a token that no server knows.
        raise NotFound(f"there is no file {missing}; give the server's store with --store or NOONBELL_STORE__URL")
    sealer = sealing.from_file(settings.secrets.key_file)

    async def run() -> T:
        store = make_store(settings)
        try:
            await store.open()
            access = Access(store, sealer)
            try:
                return await work(access)
            finally:
                await access.close()
        finally:
            await store.close()

    return asyncio.run(run())


@click.group("secrets", cls=NounGroup)
def secrets_command() -> None:
    """Create a key for secrets in the store; re-encrypt all of them."""


@secrets_command.command("key")
@click.argument("key_id", metavar="ID")
def new_key(key_id: str) -> None:
    """Print a new key named ID, as a line for a key file."""
    from noonbell.sealing import new_key_line

    click.echo(new_key_line(key_id))


@secrets_command.command("rotate")
@config_option
@store_option
@expect_head_option
def rotate(files: tuple[str, ...], store: str | None, heads: list[Head]) -> int:
    """Re-encrypt every secret with the first key of secrets.key_file; the other keys are then no longer needed.

    The audit log is checked with all keys, and its next entry, signed with the first one, records the result. Exit code
    1: the secrets are re-encrypted, but the audit log has been altered; keep the old keys until you know why.
    """
    from noonbell import sealing
    from noonbell.cli.doctor import check_default_store
    from noonbell.cli.store import missing_file
    from noonbell.errors import NotFound
    from noonbell.service.audit_log import in_words
    from noonbell.wiring import make_store

    loaded = load_settings(files, store__url=store)
    settings = loaded.settings
    sealer = sealing.from_file(settings.secrets.key_file)
    if (missing := missing_file(settings.store.url)) is not None:
        raise NotFound(f"there is no file {missing}; give the server's store with --store or NOONBELL_STORE__URL")
    check_default_store(loaded)

    async def run() -> tuple[Rotated, LogState]:
        opened = make_store(settings)
        try:
            await opened.open()
            return await _rotate(opened, sealer, heads)
        finally:
            await opened.close()

    done, log = asyncio.run(run())
    talk(
        f"encrypted with key {sealer.first}: {done.tasks} tasks, {done.versions} earlier versions, {done.channels}"
        " channels,"
        f" {done.subscriptions} subscriptions and {done.calls} calls;"
        " the rest already was"
    )
    for flaw in log.flaws:
        click.echo(in_words(flaw), err=True)
    if not log.is_sound:
        click.echo("keep the old keys: without them, older entries of the audit log can no longer be checked", err=True)
    return 0 if log.is_sound else EXIT_FAILED


async def _rotate(store: SqlStore, sealer: Sealer, expected: list[Head]) -> tuple[Rotated, LogState]:
    from noonbell.policy.audit_chain import CHECKED_TO, ROTATION
    from noonbell.service.access import Access
    from noonbell.service.secrets import rotate as seal_anew

    done = await seal_anew(store, sealer)
    access = Access(store, sealer)
    try:
        await access.audit_log.begin_signing()
        log = await access.audit_log.check(expected)
        checked = {CHECKED_TO: log.head.number} if log.is_sound and log.head is not None else {}
        await access.note(audit_action(ROTATION, "/secrets", key=sealer.first, rows=done.all, **checked))
    finally:
        await access.close()
    return done, log
