"""Which session holds the lock that a statement waits for: asked of the server by another connection, meanwhile.

PostgreSQL knows it for every lock. MariaDB and MySQL know it for rows; for table locks MariaDB needs the plugin
`metadata_lock_info`, and without it the sessions of the same database that stand still are named as possible holders.
For SQLite the kernel's list of file locks is read, where there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

Ask = Callable[[str, Sequence[Any]], Awaitable[Sequence[Sequence[Any]]]]
"""Runs one query on a connection that does not wait, and returns its rows."""

_FIRST_LOOK: Final = 1.0
_FURTHER_LOOK: Final = 0.5
"""Seconds from the start of a call to the first look, and from each to the next."""
OWN: Final = "noonbell"
"""What our own sessions call themselves on PostgreSQL."""
_MOST: Final = 3

POSTGRES: Final = """
with recursive chain as (
    select pid from unnest(pg_blocking_pids($1)) as direct(pid)
    union
    select further.pid from chain cross join lateral unnest(pg_blocking_pids(chain.pid)) as further(pid)
)
select a.pid, a.usename::text, a.application_name, a.state,
       extract(epoch from clock_timestamp() - coalesce(a.xact_start, a.query_start))::float8
from chain join pg_stat_activity a on a.pid = chain.pid
order by cardinality(pg_blocking_pids(chain.pid)) > 0, a.xact_start limit 3
"""

_ROW_LOCKS: Final = {
    "mariadb": """
select p.id, p.user, p.host, p.command, p.time from information_schema.innodb_lock_waits w
join information_schema.innodb_trx r on r.trx_id = w.requesting_trx_id
join information_schema.innodb_trx b on b.trx_id = w.blocking_trx_id
join information_schema.processlist p on p.id = b.trx_mysql_thread_id
where r.trx_mysql_thread_id = %s order by b.trx_started limit 3""",
    "mysql": """
select p.id, p.user, p.host, p.command, p.time from performance_schema.data_lock_waits w
join information_schema.innodb_trx r on r.trx_id = w.requesting_engine_transaction_id
join information_schema.innodb_trx b on b.trx_id = w.blocking_engine_transaction_id
join information_schema.processlist p on p.id = b.trx_mysql_thread_id
where r.trx_mysql_thread_id = %s order by b.trx_started limit 3""",
}
_TABLE_LOCKS: Final = {
    "mariadb": """
select p.id, p.user, p.host, p.command, p.time from information_schema.metadata_lock_info m
join information_schema.processlist p on p.id = m.thread_id
where m.table_schema = database() and m.thread_id <> %s and p.state not like 'Waiting for%%'
  and m.lock_mode in ('MDL_SHARED_NO_READ_WRITE', 'MDL_SHARED_NO_WRITE', 'MDL_EXCLUSIVE', 'MDL_SHARED_READ_ONLY',
                      'MDL_BACKUP_FTWRL1', 'MDL_BACKUP_FTWRL2')
group by p.id order by p.time desc limit 3""",
    "mysql": """
select p.id, p.user, p.host, p.command, p.time from performance_schema.metadata_locks m
join performance_schema.threads t on t.thread_id = m.owner_thread_id
join information_schema.processlist p on p.id = t.processlist_id
where m.object_schema = database() and m.lock_status = 'GRANTED' and p.id <> %s
  and m.lock_type in ('SHARED_NO_READ_WRITE', 'SHARED_NO_WRITE', 'EXCLUSIVE', 'SHARED_READ_ONLY')
group by p.id, p.user, p.host, p.command, p.time order by p.time desc limit 3""",
}
_STANDING_STILL: Final = """
select id, user, host, command, time from information_schema.processlist
where db = database() and id <> %s and id <> connection_id() and time >= 2 and command <> 'Daemon'
  and coalesce(state, '') not like 'Waiting for%%'
order by command = 'Sleep', time desc limit 3"""


_ending: set[asyncio.Task[None]] = set()
"""Looks that were called off and have not ended yet."""


class LockWaits:
    """The calls of a store that take long enough to be looked after, and what each was found to wait for."""

    def __init__(self) -> None:
        self._waiting: list[Blocker] = []

    def one(self) -> Blocker:
        """For one call."""
        return Blocker(self._waiting)

    def holder(self) -> str:
        """Who holds the lock that a call waits for at this moment; empty if none is known to wait."""
        return next((blocker.found for blocker in self._waiting if blocker.found), "")


class Blocker:
    """What one call found out about the session that it waits for. Nothing is asked in its first second."""

    def __init__(self, waiting: list[Blocker] | None = None) -> None:
        self.found = ""
        self._waiting = [] if waiting is None else waiting

    def over(self) -> None:
        """The call has ended, after one try or several."""
        if self in self._waiting:
            self._waiting.remove(self)

    def looked_for(self, look: Callable[[str], Awaitable[str]]) -> _Watch:
        """Should what is done inside take long, `look` says who is in its way.

        It is given what was found before, and returns that where it finds nothing better.
        """
        return _Watch(self, look)

    def begin_to_look(self, look: Callable[[str], Awaitable[str]]) -> asyncio.Task[None]:
        if self not in self._waiting:
            self._waiting.append(self)
        return asyncio.create_task(self._look(look))

    async def _look(self, look: Callable[[str], Awaitable[str]]) -> None:
        while True:
            with contextlib.suppress(Exception):  # the caller learns of the lock all the same
                self.found = await look(self.found)
            await asyncio.sleep(_FURTHER_LOOK)


class _Watch:
    """A context around one try of a call. Written out, because nearly every one ends before the first look."""

    __slots__ = ("_blocker", "_look", "_task", "_timer")

    def __init__(self, blocker: Blocker, look: Callable[[str], Awaitable[str]]) -> None:
        self._blocker, self._look = blocker, look
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_FIRST_LOOK, self._begin)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._task is not None:  # not waited for: the server may hold still
            self._task.cancel()
            _ending.add(self._task)
            self._task.add_done_callback(_ending.discard)

    def _begin(self) -> None:
        self._task = self._blocker.begin_to_look(self._look)


async def on_postgres(ask: Ask, pid: int, before: str = "") -> str:
    """Sessions of ours stand in line for the same lock and may be named for a moment; another's is the better answer."""
    rows = await ask(POSTGRES, (pid,))
    others = [row for row in rows if row[2] != OWN]
    if before and not others:
        return before
    return _and(
        f"session {number} (user {user or 'unknown'}, application {application or 'unnamed'}, {state or 'state unknown'}"
        f"{'' if seconds is None else f' for {seconds:.0f} s'})"
        for number, user, application, state, seconds in others or rows
    )


async def on_mysql(ask: Ask, thread: int, kind: str, before: str = "") -> str:
    """`kind`: "mariadb" or "mysql"."""
    for sql, words in ((_ROW_LOCKS[kind], "{}"), (_TABLE_LOCKS[kind], "{}"), (_STANDING_STILL, "perhaps {}")):
        with contextlib.suppress(Exception):  # a plugin that is not there, a right that is missing: the next may answer
            rows = await ask(sql, (thread,))
            if rows:
                return words.format(
                    _and(
                        f"session {number} (user {user} at {host}, {str(command).lower()} for {seconds} s)"
                        for number, user, host, command, seconds in rows
                    )
                )
    return before


def on_sqlite(path: str) -> str:
    """The processes that lock the file or its `-shm`, by Linux's /proc/locks; empty where that cannot be read."""
    held = {_inode(f"{path}{end}") for end in ("", "-shm")} - {0}
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    pids: set[int] = set()
    for line in lines:
        fields = line.split()
        if "->" not in fields and len(fields) >= 6 and fields[3] == "WRITE":
            inode = int(fields[5].rpartition(":")[2])
            if inode in held and fields[4].isdigit() and int(fields[4]) not in (0, os.getpid()):
                pids.add(int(fields[4]))
    return _and(f"process {pid}{_command(pid)}" for pid in sorted(pids)[:_MOST])


def _inode(path: str) -> int:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def _command(pid: int) -> str:
    try:
        return f" ({Path(f'/proc/{pid}/comm').read_text(encoding='utf-8').strip()})"
    except (OSError, UnicodeDecodeError):
        return ""


def _and(sessions: Any) -> str:
    return " and ".join(sessions)
