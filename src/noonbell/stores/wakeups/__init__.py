"""Wake-ups: how a signal reaches whoever waits, in this process and in others. `make_wakeup` is the table of kinds.

Inside a process it is always direct. Between processes:

    PostgreSQL   LISTEN and NOTIFY on one connection; all signals since the last go out as one notification
    SQLite       the file's `data_version`, looked at while somebody waits
    MySQL        nothing pushes: whoever waits for work or events looks again after a quarter of a second
    Redis        for any store, where `wakeup.url` names one: see redis

A signal that gets lost (a connection breaks, a process dies between commit and signal) costs a poll, never a run.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from noonbell.errors import SettingsError
from noonbell.ports import Wakeup
from noonbell.settings import Settings
from noonbell.stores.sql.naming import Names
from noonbell.stores.wakeups.local import LocalWakeup
from noonbell.stores.wakeups.polled import PolledWakeup
from noonbell.stores.wakeups.postgres import CHANNEL, PostgresWakeup, channel_of, payloads
from noonbell.stores.wakeups.sqlite import SqliteWakeup


def _sqlite(url: str, _mark: str) -> Wakeup:
    return SqliteWakeup(unquote(url.removeprefix("sqlite://").removeprefix("/")))


def _postgres(url: str, mark: str) -> Wakeup:
    return PostgresWakeup(url, mark=mark)


_KINDS: dict[str, Callable[[str, str], Wakeup]] = {
    "memory": lambda _url, _mark: LocalWakeup(),
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "mysql": lambda _url, _mark: PolledWakeup(),
    "mariadb": lambda _url, _mark: PolledWakeup(),
}
"""By scheme. A new kind is a class and a line here."""


def wakeup_of(settings: Settings) -> Wakeup:
    """The wake-up that the settings name, not opened yet."""
    mark = Names(settings.store.schema, settings.store.table_prefix or "").mark
    return make_wakeup(settings.store.url, settings.wakeup.url, mark=mark)


def make_wakeup(store_url: str, wakeup_url: str | None = None, *, mark: str = "") -> Wakeup:
    """The wake-up that goes with a store, or the Redis at `wakeup_url`; not opened yet.

    `mark` tells a store with a schema or a prefix of its own from the others in the database (`Names.mark`).
    """
    if wakeup_url is not None:
        try:
            from noonbell.stores.wakeups.redis import RedisWakeup
        except ModuleNotFoundError:
            raise SettingsError.field(
                "wakeup.url", "needs the package redis, which is not installed: pip install 'noonbell[redis]'"
            ) from None
        return RedisWakeup(wakeup_url, mark=mark)
    scheme = urlsplit(store_url).scheme
    kind = _KINDS.get(scheme)
    if kind is None:
        raise SettingsError.field("store.url", f"is {store_url!r}; no wake-up is known for {scheme!r}")
    return kind(store_url, mark)


__all__ = [
    "CHANNEL",
    "LocalWakeup",
    "PolledWakeup",
    "PostgresWakeup",
    "SqliteWakeup",
    "channel_of",
    "make_wakeup",
    "payloads",
    "wakeup_of",
]
