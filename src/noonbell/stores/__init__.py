"""Stores: where everything is kept, and the wake-up that goes with each. `_KINDS` is the table of both."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from noonbell.clock import Clock
from noonbell.errors import SettingsError
from noonbell.ports import Wakeup
from noonbell.settings import Settings
from noonbell.settings.kinds import UnusableAddress, check_parameters, sqlite_file
from noonbell.stores.datagram_wakeups import DatagramWakeup, ListenerTable, SocketFolder
from noonbell.stores.sql.dialect import TableNames
from noonbell.stores.sql.store import SqlStore
from noonbell.stores.wakeups import LocalWakeup, PostgresWakeup, RedisWakeup


class WakeupOptions(NamedTuple):
    advertise: str | None = None
    """`cluster.advertise`."""
    pooled: bool = False
    """The address is that of a pooler in transaction mode."""


class StoreKind(NamedTuple):
    open: Callable[..., SqlStore]
    """(url, clock, schema, connections, table_prefix, new, network_disk, pooler) → a store, not opened yet. Imports its
    driver.
    """
    wakeup: Callable[[str, TableNames, WakeupOptions], Wakeup]
    """(url, names, options) → how its processes signal each other, not opened yet."""
    lanes: int = 2
    """Trips that a job worker has under way at a time: with fewer, it or the database waits for the other."""


def _memory(_url: str, clock: Clock | None, **_options: Any) -> SqlStore:
    from noonbell.stores.sqlite import MemoryStore

    return MemoryStore(clock)


def _sqlite(
    url: str, clock: Clock | None, *, table_prefix: str, new: bool, network_disk: bool, **_options: Any
) -> SqlStore:
    from noonbell.stores.sqlite import SqliteStore

    return SqliteStore(sqlite_file(url) or "", clock, table_prefix=table_prefix, new=new, network_disk=network_disk)


def _postgres(url: str, clock: Clock | None, *, network_disk: bool, **options: Any) -> SqlStore:
    from noonbell.stores.postgres import PostgresStore

    del network_disk
    return PostgresStore(url, clock, **options)


def _mysql(url: str, clock: Clock | None, *, schema: None, network_disk: bool, pooler: str, **options: Any) -> SqlStore:
    from noonbell.stores.mysql import MysqlStore

    del schema, network_disk, pooler
    return MysqlStore(url, clock, **options)


def _sqlite_wakeup(url: str, names: TableNames, _options: WakeupOptions) -> Wakeup:
    file = sqlite_file(url)
    return LocalWakeup() if file in (None, ":memory:") else DatagramWakeup(SocketFolder(file, names.mark))


def _mysql_wakeup(url: str, names: TableNames, options: WakeupOptions) -> Wakeup:
    return DatagramWakeup(ListenerTable(url, names, options.advertise))


def _postgres_wakeup(url: str, names: TableNames, options: WakeupOptions) -> Wakeup:
    return PostgresWakeup(url, mark=names.mark, pooled=options.pooled)


_POSTGRES = StoreKind(_postgres, _postgres_wakeup, lanes=3)
_MYSQL = StoreKind(_mysql, _mysql_wakeup)
_KINDS = {
    "memory": StoreKind(_memory, lambda _url, _names, _options: LocalWakeup()),
    "sqlite": StoreKind(_sqlite, _sqlite_wakeup),
    **dict.fromkeys(("postgresql", "postgres"), _POSTGRES),
    **dict.fromkeys(("mysql", "mariadb"), _MYSQL),
}
"""By the scheme of the URL."""


def _kind_of(url: str) -> StoreKind:
    kind = _KINDS.get(urlsplit(url).scheme)
    if kind is None:
        raise SettingsError.field(
            "store.url", f"is {url!r}; expected sqlite:///FILE, postgresql://…, mysql://… or memory://"
        )
    return kind


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    connections: int = 8,
    schema: str | None = None,
    table_prefix: str = "",
    new: bool = False,
    network_disk: bool = False,
    pooler: str = "none",
) -> SqlStore:
    """The store that a URL names, not opened yet. With a clock, that one rules instead of the database's.

    `connections` is the most that it keeps to a server, besides one for itself. `schema` (PostgreSQL) and `table_prefix`
    say where its tables are; `new`: they may be made beside those of a store that has neither. `network_disk`: a file of
    SQLite may be on a network file system. `pooler`: of PostgreSQL, as the setting.
    """
    kind = _kind_of(url)
    try:
        check_parameters(url)
    except UnusableAddress as error:
        raise SettingsError.field("store.url", str(error)) from None
    if schema is not None and kind is not _POSTGRES:
        raise SettingsError.field("store.schema", "is for PostgreSQL only; use store.table_prefix for other stores")
    return kind.open(
        url,
        clock,
        schema=schema,
        connections=connections,
        table_prefix=table_prefix,
        new=new,
        network_disk=network_disk,
        pooler=pooler,
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
        network_disk=kept.network_disk,
        pooler=kept.pooler,
    )


def lanes_of(settings: Settings) -> int:
    """How many trips to the store that the settings name a job worker has under way at a time."""
    return _kind_of(settings.store.url).lanes


def wakeup_of(settings: Settings) -> Wakeup:
    """The wake-up that the settings name, not opened yet."""
    names = TableNames(settings.store.schema, settings.store.table_prefix or "")
    return make_wakeup(
        settings.store.url,
        settings.wakeup.url,
        names=names,
        advertise=settings.cluster.advertise,
        pooled=settings.store.pooler != "none",
    )


def make_wakeup(
    store_url: str,
    wakeup_url: str | None = None,
    *,
    names: TableNames | None = None,
    advertise: str | None = None,
    pooled: bool = False,
) -> Wakeup:
    """The wake-up that goes with a store, or the Redis or PostgreSQL at `wakeup_url`; not opened yet.

    `names` tell a store with a schema or a prefix of its own from the others in the database. `advertise`: the address
    under which other hosts reach this one by UDP. `pooled`: the store's address is that of a pooler in transaction mode.
    """
    names = names or TableNames()
    if wakeup_url is None:
        return _kind_of(store_url).wakeup(store_url, names, WakeupOptions(advertise, pooled))
    if wakeup_url.startswith(("postgresql:", "postgres:")):
        return _postgres_wakeup(wakeup_url, names, WakeupOptions())
    if importlib.util.find_spec("redis") is None:
        raise SettingsError.field(
            "wakeup.url", "needs the package redis, which is not installed: pip install 'noonbell[redis]'"
        )
    return RedisWakeup(wakeup_url, mark=names.mark)
