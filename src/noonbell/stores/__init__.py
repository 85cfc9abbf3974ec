"""Stores: where everything is kept. `open_store` is the table of kinds."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from noonbell.clock import Clock
from noonbell.errors import SettingsError
from noonbell.settings import Settings
from noonbell.stores.sql.store import SqlStore


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    connections: int = 8,
    schema: str | None = None,
    table_prefix: str = "",
    new: bool = False,
) -> SqlStore:
    """The store that a URL names, not opened yet. With a clock, that one rules instead of the database's.

    `connections` is the most that it keeps to a server, besides one for itself. `schema` (PostgreSQL) and `table_prefix`
    say where its tables are; `new`: they may be made beside those of a store that has neither.
    """
    scheme = urlsplit(url).scheme
    if schema is not None and scheme not in ("postgresql", "postgres"):
        raise SettingsError.field(
            "store.schema", "is for PostgreSQL; other stores are kept apart by store.table_prefix"
        )
    if scheme == "memory":
        from noonbell.stores.memory import MemoryStore

        return MemoryStore(clock)
    if scheme == "sqlite":
        from noonbell.stores.sqlite import SqliteStore

        return SqliteStore(
            unquote(url.removeprefix("sqlite://").removeprefix("/")), clock, table_prefix=table_prefix, new=new
        )
    if scheme in ("postgresql", "postgres"):
        from noonbell.stores.postgres import PostgresStore

        return PostgresStore(url, clock, connections=connections, schema=schema, table_prefix=table_prefix, new=new)
    if scheme in ("mysql", "mariadb"):
        from noonbell.stores.mysql import MysqlStore

        return MysqlStore(url, clock, connections=connections, table_prefix=table_prefix, new=new)
    raise SettingsError.field(
        "store.url", f"is {url!r}; expected sqlite:///FILE, postgresql://…, mysql://… or memory://"
    )


def store_of(
    settings: Settings, *, clock: Clock | None = None, new: bool = False, connections: int | None = None
) -> SqlStore:
    """The store that the settings name, not opened yet. `connections`: instead of `store.pool_size`."""
    kept = settings.store
    return open_store(
        kept.url,
        clock=clock,
        connections=connections or kept.pool_size,
        schema=kept.schema,
        table_prefix=kept.table_prefix or "",
        new=new,
    )
