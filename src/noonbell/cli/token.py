"""`noonbell token …`: made on the store itself, because whoever has the store needs no token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from noonbell.cli.deeds import ACTOR, deed
from noonbell.cli.options import config_option, load_settings, store_option
from noonbell.cli.output import ago, output_option, show_list, talk

if TYPE_CHECKING:
    from noonbell.service.access import Access

T = TypeVar("T")

COLUMNS = {
    "name": lambda token: token["name"],
    "role": lambda token: token["role"] + (f" ({', '.join(token['queues'])})" if token["queues"] else ""),
    "token": lambda token: token["token"],
    "created": lambda token: ago(token["created_at"]),
    "last used": lambda token: ago(token["used_at"]),
    "state": lambda token: (
        "revoked" if token["revoked_at"] else f"until {token['expires_at']}" if token["expires_at"] else "good"
    ),
}


@click.group("token")
def command() -> None:
    """Make, list and revoke API tokens; needs the store, not a server."""


@command.command("create")
@click.option(
    "--role", required=True, type=click.Choice(["viewer", "worker", "operator", "admin"]), help="What it may do."
)
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="A queue that a worker may claim from; may be given again."
)
@click.option("--name", required=True, metavar="NAME", help="Who or what it is for; the audit log shows it.")
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), help="Good for so many days [until it is revoked]."
)
@config_option
@store_option
def create(
    role: str, queues: tuple[str, ...], name: str, days: float | None, files: tuple[str, ...], store: str | None
) -> None:
    """Print a new token: shown now and never again."""
    seconds = None if days is None else days * 86_400

    async def work(access: Access) -> str:
        _, secret = await access.create(name, role, seconds=seconds, by=ACTOR, queues=queues)
        bound = {"queues": list(queues)} if queues else {}
        await access.note(deed("create_token", f"/tokens/{name}", role=role, **bound))
        return secret

    click.echo(_with_access(files, store, work))


@command.command("list")
@config_option
@store_option
@output_option
def list_tokens(files: tuple[str, ...], store: str | None, output: str) -> None:
    """List tokens; their secrets are nowhere to be had."""
    show_list(_with_access(files, store, lambda access: access.tokens(), must_exist=True), COLUMNS, output)


@command.command("revoke")
@click.argument("name")
@config_option
@store_option
def revoke(name: str, files: tuple[str, ...], store: str | None) -> None:
    """Make a token good for nothing, within seconds on every node."""

    async def work(access: Access) -> None:
        await access.revoke(name)
        await access.note(deed("revoke_token", f"/tokens/{name}"))

    _with_access(files, store, work, must_exist=True)
    talk(f"revoked {name}")


def _with_access(
    files: tuple[str, ...], url: str | None, work: Callable[[Access], Awaitable[T]], *, must_exist: bool = False
) -> T:
    from noonbell.cli.migrate import missing_file
    from noonbell.errors import NotFound
    from noonbell.service.access import Access
    from noonbell.wiring import make_store

    settings = load_settings(files, store__url=url).settings
    missing = missing_file(settings.store.url) if must_exist else None
    if missing is not None:
        raise NotFound(f"there is no file {missing}; name the server's store with --store or NOONBELL_STORE__URL")

    async def run() -> T:
        store = make_store(settings)
        try:
            await store.open()
            return await work(Access(store))
        finally:
            await store.close()

    return asyncio.run(run())
