"""What a source holds: a text, JSON in a file, or rows of another system's database.

A database is SQLite, PostgreSQL or MySQL by its URL, read in one go and never written.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from noonbell.cli.importers.report import Refused
from noonbell.cli.options import text_of
from noonbell.errors import InvalidArgument, SettingsError, StoreUnavailable
from noonbell.settings.kinds import UnusableAddress, parse_server_address, sqlite_file

SCHEMES: Final = ("sqlite:", "postgresql:", "postgres:", "mysql:")
_TIMEOUT: Final = 10

Rows = list[dict[str, Any]]


def is_database(source: str) -> bool:
    return source.startswith(SCHEMES)


def rows_of(url: str, queries: Mapping[str, str]) -> dict[str, Rows]:
    """The rows of each query, by its name, from one transaction that cannot write. `url`: one that `is_database` accepts."""
    if url.startswith("sqlite:"):
        return _sqlite(url, queries)
    _check(url)
    return asyncio.run(_mysql(url, queries) if url.startswith("mysql:") else _postgres(url, queries))


def _check(url: str) -> None:
    """Also the parameters behind the `?`: one that is passed over might have been to encrypt the connection."""
    try:
        parse_server_address(url)
    except UnusableAddress as error:
        raise click.BadParameter(f"the address {error}", param_hint="SOURCE") from None
    except (ValueError, KeyError):
        raise click.BadParameter(
            "the address cannot be read; expected such as mysql://user:password@host:3306/database", param_hint="SOURCE"
        ) from None


def _sqlite(url: str, queries: Mapping[str, str]) -> dict[str, Rows]:
    file = sqlite_file(url) or ""
    if not Path(file).is_file():
        raise StoreUnavailable(f"there is no file {file}")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(Path(file).resolve()))}?mode=ro", uri=True)) as link:
            link.row_factory = sqlite3.Row
            link.execute("begin")
            return {name: [dict(row) for row in link.execute(query)] for name, query in queries.items()}
    except sqlite3.Error as error:
        raise StoreUnavailable(f"cannot read {file}: {error}") from None


def _lacks(driver: str, extra: str) -> InvalidArgument:
    return SettingsError.field(
        "SOURCE", f"needs the driver {driver}, which is not installed: pip install 'noonbell[{extra}]'"
    )


def _out_of_reach(url: str, error: Exception) -> StoreUnavailable:
    hosts = ", ".join(host for host, _ in parse_server_address(url).hosts) or "the database"
    return StoreUnavailable(f"cannot read from {hosts}: {str(error) or f'no answer within {_TIMEOUT} s'}")


async def _postgres(url: str, queries: Mapping[str, str]) -> dict[str, Rows]:
    try:
        import asyncpg
    except ModuleNotFoundError:
        raise _lacks("asyncpg", "postgres") from None
    try:
        link = await asyncpg.connect(url, timeout=_TIMEOUT)
    except (OSError, asyncpg.PostgresError, ValueError) as error:
        raise _out_of_reach(url, error) from None
    try:
        async with link.transaction(isolation="repeatable_read", readonly=True):
            return {name: [dict(row) for row in await link.fetch(query)] for name, query in queries.items()}
    except asyncpg.PostgresError as error:
        raise StoreUnavailable(f"cannot read its tables: {error}") from None
    finally:
        await link.close()


async def _mysql(url: str, queries: Mapping[str, str]) -> dict[str, Rows]:
    try:
        import asyncmy
        from asyncmy.cursors import DictCursor
        from asyncmy.errors import MySQLError

        from noonbell.stores.mysql import MysqlHosts
    except ModuleNotFoundError:
        raise _lacks("asyncmy", "mysql") from None
    try:
        async with asyncio.timeout(_TIMEOUT):  # connect_timeout ends with the connection, before a greeting has come
            link = await asyncmy.connect(**await MysqlHosts(url).find(), charset="utf8mb4")
    except (OSError, MySQLError) as error:
        raise _out_of_reach(url, error) from None
    found: dict[str, Rows] = {}
    try:
        async with link.cursor(cursor=DictCursor) as cursor:
            await cursor.execute("start transaction with consistent snapshot, read only")
            for name, query in queries.items():
                await cursor.execute(query)
                found[name] = [dict(row) for row in await cursor.fetchall()]
    except MySQLError as error:
        raise StoreUnavailable(f"cannot read its tables: {error}") from None
    finally:
        await link.ensure_closed()
    return found


def text_from(source: str) -> str:
    return text_of(source, "SOURCE")


def json_from(source: str) -> Any:
    """What a JSON file holds, also with `//` comments, or one object per line as mongoexport writes them."""
    text = text_from(source)
    try:
        return _json_of(text)
    except RecursionError:
        said = "is nested too deep"
    except ValueError as error:
        said = f"is no JSON: {error}"
    raise click.BadParameter(f"{source} {said}", param_hint="SOURCE")


def _json_of(text: str) -> Any:
    """ValueError says what is wrong with the text as it stands."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        plain = without_comments(text)
        for read in (json.loads, _by_lines):
            try:
                return read(plain)
            except json.JSONDecodeError:
                continue
        raise


def _by_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def without_comments(text: str) -> str:
    """JSON without `// …` outside of its strings, as documents show it."""
    lines: list[str] = []
    for line in text.splitlines():
        inside, place = False, 0
        while place < len(line):
            if line[place] == "\\":
                place += 1
            elif line[place] == '"':
                inside = not inside
            elif not inside and line.startswith("//", place):
                break
            place += 1
        lines.append(line[:place])
    return "\n".join(lines)


def rows_in(found: Any, noun: str) -> list[Any]:
    """The rows of a JSON file: a list of them, one, or a page `{"items": [...]}`. TypeError for anything else."""
    rows = found.get("items", found.get(noun, [found])) if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise TypeError(f"expected a list of {noun}")
    return rows


def whole_number(row: Mapping[str, Any], name: str, default: int = 0) -> int:
    """A field that is a whole number; Refused names it where it is something else."""
    value = row.get(name)
    if value is None or value == "":
        return default
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).lstrip("-").isdecimal():
        raise Refused(f"{name} is {value!r}; expected a whole number")
    return int(value)
