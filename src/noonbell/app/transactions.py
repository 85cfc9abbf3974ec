"""What callers hand over as `transaction`: the driver's connection behind a session of SQLAlchemy or a connection of Django.

Neither is imported here: what is handed over tells by its class whose it is.
"""

from __future__ import annotations

from typing import Any, Final

from noonbell.errors import InvalidArgument

_SQLALCHEMY_ASYNC: Final = ("AsyncSession", "AsyncConnection", "async_scoped_session")


def is_from(given: object, package: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(given).__mro__)


def is_called(given: object, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(given).__mro__)


def is_bound_to_a_loop(connection: object) -> bool:
    """Of asyncpg or asyncmy, or of psycopg with asyncio: it may be used only in the event loop that it was opened in."""
    return any(is_from(connection, driver) for driver in ("asyncpg", "asyncmy")) or (
        is_from(connection, "psycopg") and is_called(connection, "AsyncConnection")
    )


def is_of_any_thread(connection: object) -> bool:
    """Of psycopg without asyncio: it may be used anywhere, while its caller waits."""
    return is_from(connection, "psycopg") and not is_called(connection, "AsyncConnection")


def driver_connection(given: Any) -> Any:
    """In the caller's thread. What needs an event loop is refused: `awaited_driver_connection` is for that."""
    if is_from(given, "django"):
        return _of_django(given)
    if not is_from(given, "sqlalchemy"):
        return given
    if is_called(given, *_SQLALCHEMY_ASYNC):
        raise InvalidArgument.field("transaction", f"is a {type(given).__name__}; await the async form with it")
    return _of_sqlalchemy(given)


async def awaited_driver_connection(given: Any) -> Any:
    if not (is_from(given, "sqlalchemy") and is_called(given, *_SQLALCHEMY_ASYNC)):
        return driver_connection(given)
    connection = given if is_called(given, "AsyncConnection") else await given.connection()
    if not connection.in_transaction():
        raise InvalidArgument.field("transaction", "is a connection without a transaction; begin one")
    # SQLAlchemy tells its driver of the transaction with the first statement, which this may be.
    await connection.exec_driver_sql("select 1")
    return (await connection.get_raw_connection()).driver_connection


def _of_sqlalchemy(given: Any) -> Any:
    connection = given if is_called(given, "Connection") else given.connection()
    if not connection.in_transaction():
        raise InvalidArgument.field("transaction", "is a connection without a transaction; begin one")
    return connection.connection.driver_connection


def _of_django(given: Any) -> Any:
    """`django.db.connection`, or one of `connections`."""
    if not getattr(given, "in_atomic_block", False):
        raise InvalidArgument.field("transaction", "is a connection of Django outside of transaction.atomic()")
    given.ensure_connection()
    return given.connection
