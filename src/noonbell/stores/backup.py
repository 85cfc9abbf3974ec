"""A backup: one moment of a store of any kind, as a SQLite store in a file; and the way back into an empty store of any
kind.

The copy is read in one transaction of the database, so what nodes write meanwhile is not in it. The file is a store
itself: `noonbell audit` reads it. A store that is being filled says so, and nodes refuse to start on it; a restore that
was cut off goes on.
"""

from __future__ import annotations

import secrets

from noonbell.engine import failpoint
from noonbell.errors import InvalidState
from noonbell.stores.moving import CopiedRows, Progress, Reader, TableCopy, all_rows, apply, ask, check_empty
from noonbell.stores.sql import copying, ids, move_state
from noonbell.stores.sql.move_state import MovePhase, MoveState
from noonbell.stores.sql.statement import Execute, Row, Work
from noonbell.stores.sql.store import SqlStore


async def backup(source: SqlStore, copy: SqlStore, progress: Progress) -> CopiedRows:
    """Into `copy`, which is empty. `source` may be in use."""
    async with source.snapshot() as read:
        state: MoveState = await read(move_state.read)
        _check_complete(state)
        return await _fill(read, copy, state.installation, secrets.token_hex(8), progress)


async def restore(
    copy: SqlStore, destination: SqlStore, progress: Progress, *, new_installation: bool = False
) -> tuple[CopiedRows, str]:
    """From a backup into a store that is empty, or holds a part of the same backup; and which installation that store is now.

    No node has the destination open. `new_installation`: the store never is complete with the id of its original.
    """
    state = await ask(copy, move_state.read)
    _check_complete(state)
    installation = ids.random_installation() if new_installation else state.installation
    copied = await _fill(copy._read, destination, installation, state.token or state.installation, progress)
    return copied, installation


def _check_complete(state: MoveState) -> None:
    if state.phase is MovePhase.FILLING:
        raise InvalidState("the store is not complete: a move, a backup or a restore that fills it was cut off")


async def _fill(read: Reader, store: SqlStore, installation: str, token: str, progress: Progress) -> CopiedRows:
    there = await ask(store, move_state.read)
    if (there.phase, there.token) != (MovePhase.FILLING, token):
        if there.phase is not None:
            raise InvalidState("the destination takes part in a move or another restore; take a new database")
        await check_empty(store)
        await apply(store, move_state.write, MovePhase.FILLING, move_token=token)
    copy = TableCopy(read, store, progress)
    copy.token = token
    await copy.run()
    if copy.conflicts:
        name, key = copy.conflicts[0]
        raise InvalidState(f"the row {key} of the table {name} contradicts another row: the backup is damaged")
    small = {name: await all_rows(read, copying.tables()[name]) for name in copying.COPIED_AT_ONCE}
    await store._change_schema(lambda _: _finish(store, token, installation, small))
    failpoint.hit("K55")
    return copy.copied


def _finish(store: SqlStore, token: str, installation: str, small: dict[str, list[Row]]) -> Work[None]:
    yield from move_state.check_own(store.dialect, token, MovePhase.FILLING)
    for name, rows in small.items():
        yield from copying.replace_all(copying.tables()[name], rows)
    yield Execute("delete from move_progress")
    yield from move_state.write(None, id=installation)
