"""Keys of other services that are understood here: each with the key it stands for, and how its value is turned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

_DSN = re.compile(
    r"(?:(?P<user>[^:@/]*)(?::(?P<password>.*))?@)?tcp\((?P<host>\[[^]]+\]|[^():]+)(?::(?P<port>\d+))?\)"
    r"/(?P<database>[^?/]+)(?:\?.*)?"
)


@dataclass(frozen=True, slots=True)
class Alias:
    path: str | None
    """The key it stands for; None: accepted, without effect."""
    turn: Callable[[Any], Any] = lambda value: value
    takes: str = ""


def url_from_dsn(dsn: Any) -> str:
    """`me:pw@tcp(db:3306)/cron?parseTime=True` → `mysql://me:pw@db:3306/cron`. ValueError if it is no such thing.

    Its parameters speak to the Go driver (character set, time zone) and are settled here.
    """
    found = _DSN.fullmatch(dsn) if isinstance(dsn, str) else None
    if found is None:
        raise ValueError("no DSN")
    user = quote(found["user"] or "root", safe="")
    password = f":{quote(found['password'], safe='')}" if found["password"] else ""
    return f"mysql://{user}{password}@{found['host']}:{found['port'] or 3306}/{quote(found['database'], safe='')}"


ALIASES: Mapping[str, Alias] = {
    "mysql.dsn": Alias("store.url", url_from_dsn, "a DSN such as user:password@tcp(127.0.0.1:3306)/cronjob"),
    "mysql.max_open_conns": Alias("store.pool_size"),
    "mysql.max_idle_conns": Alias(None),
    "mysql.conn_max_lifetime": Alias(None),
    "plan_exec_timeout": Alias("plans.exec_timeout"),
    "redis_addr": Alias(None),
    "redis_defdb": Alias(None),
}
