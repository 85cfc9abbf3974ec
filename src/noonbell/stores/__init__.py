"""Stores: where everything is kept. `open_store` is the table of kinds."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from noonbell.clock import Clock
from noonbell.errors import SettingsError
from noonbell.stores.sql.store import SqlStore


def open_store(url: str, *, clock: Clock | None = None, connections: int = 8) -> SqlStore:
    """The store that a URL names, not opened yet. With a clock, that one rules instead of the database's.

    `connections` is the most that it keeps to a server, besides one for itself.
    """
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        from noonbell.stores.memory import MemoryStore

        return MemoryStore(clock)
    if scheme == "sqlite":
        from noonbell.stores.sqlite import SqliteStore

        return SqliteStore(unquote(url.removeprefix("sqlite://").removeprefix("/")), clock)
    if scheme in ("postgresql", "postgres"):
        from noonbell.stores.postgres import PostgresStore

        return PostgresStore(url, clock, connections=connections)
    if scheme in ("mysql", "mariadb"):
        from noonbell.stores.mysql import MysqlStore

        return MysqlStore(url, clock, connections=connections)
    raise SettingsError.field(
        "store.url", f"is {url!r}; expected sqlite:///FILE, postgresql://…, mysql://… or memory://"
    )
