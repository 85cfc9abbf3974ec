"""The table `tasks` of a cronjob service, read where it is."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote, urlsplit

from noonbell.errors import SettingsError, StoreUnavailable


def rows(url: str) -> list[dict[str, Any]]:
    """Every task that is not deleted, in order of its id."""
    return asyncio.run(_rows(url))


async def _rows(url: str) -> list[dict[str, Any]]:
    try:
        import asyncmy
        from asyncmy.cursors import DictCursor
        from asyncmy.errors import MySQLError
    except ModuleNotFoundError:
        raise SettingsError.field(
            "SOURCE", "needs the driver asyncmy, which is not installed: pip install 'noonbell[mysql]'"
        ) from None
    parts = urlsplit(url)
    try:
        link = await asyncmy.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            db=unquote(parts.path.lstrip("/")),
            connect_timeout=10,
        )
    except (OSError, MySQLError) as error:
        raise StoreUnavailable(f"cannot read from {parts.hostname}: {error}") from None
    try:
        async with link.cursor(cursor=DictCursor) as cursor:
            await cursor.execute("select * from tasks order by id")
            return [dict(row) for row in await cursor.fetchall()]
    except MySQLError as error:
        raise StoreUnavailable(f"cannot read its tasks: {error}") from None
    finally:
        await link.ensure_closed()
