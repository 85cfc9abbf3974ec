"""Middleware: what goes around every handler of an App, for what happens before it, after it, and when it raises.

A middleware is a generator function that yields once. The handler is called at the `yield`: its result is sent there, and
what it raises is raised there. The first that was declared is the outermost. Each runs where its handler runs: in the event
loop, in a thread, or in the process of a sandbox.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from typing import Any, TypeAlias

from noonbell.errors import InvalidArgument
from noonbell.targets.jobs.handler import Context

Middleware: TypeAlias = Callable[[Context], Iterator[None]]
"""Around every handler, async or not. In the event loop it must not block."""
AsyncMiddleware: TypeAlias = Callable[[Context], AsyncIterator[None]]
"""Around async handlers only: no event loop is there for the others."""


def checked(given: Any) -> Middleware | AsyncMiddleware:
    if not inspect.isgeneratorfunction(given) and not inspect.isasyncgenfunction(given):
        raise InvalidArgument(f"@app.middleware expects a function, async or not, with one yield, not {given!r}")
    return given  # type: ignore[no-any-return]


def called(around: Sequence[Middleware | AsyncMiddleware], context: Context, handler: Callable[[], Any]) -> Any:
    """The handler's result, with the middleware that is not async around it."""
    if not around:
        return handler()
    first, rest = around[0], around[1:]
    if inspect.isasyncgenfunction(first):
        return called(rest, context, handler)
    inside: Generator[None, Any, None] = first(context)  # type: ignore[assignment]
    _begin(first, inside)
    try:
        result = called(rest, context, handler)
    except BaseException as error:
        _throw(first, inside, error)
        return None
    _end(first, inside, result)
    return result


async def called_async(
    around: Sequence[Middleware | AsyncMiddleware], context: Context, handler: Callable[[], Awaitable[Any]]
) -> Any:
    """The same for an async handler, with all of them around it."""
    if not around:
        return await handler()
    first, rest = around[0], around[1:]
    if inspect.isasyncgenfunction(first):
        return await _called_within(first, first(context), rest, context, handler)
    inside: Generator[None, Any, None] = first(context)  # type: ignore[assignment]
    _begin(first, inside)
    try:
        result = await called_async(rest, context, handler)
    except BaseException as error:
        _throw(first, inside, error)
        return None
    _end(first, inside, result)
    return result


async def _called_within(
    named: Any,
    inside: AsyncGenerator[None, Any],
    rest: Sequence[Middleware | AsyncMiddleware],
    context: Context,
    handler: Callable[[], Awaitable[Any]],
) -> Any:
    try:
        await anext(inside)
    except StopAsyncIteration:
        raise _never(named) from None
    try:
        result = await called_async(rest, context, handler)
    except BaseException as error:
        try:
            await inside.athrow(error)
        except StopAsyncIteration:
            return None  # it has dealt with the error: the run succeeds, without a result
        raise _again(named) from None
    try:
        await inside.asend(result)
    except StopAsyncIteration:
        return result
    raise _again(named)


def _begin(named: Any, inside: Generator[None, Any, None]) -> None:
    try:
        next(inside)
    except StopIteration:
        raise _never(named) from None


def _throw(named: Any, inside: Generator[None, Any, None], error: BaseException) -> None:
    """Raises what the middleware makes of the error, as a rule the error itself; returns if it has dealt with it."""
    try:
        inside.throw(error)
    except StopIteration:
        return
    raise _again(named) from None


def _end(named: Any, inside: Generator[None, Any, None], result: Any) -> None:
    try:
        inside.send(result)
    except StopIteration:
        return
    raise _again(named)


def _never(named: Any) -> RuntimeError:
    return RuntimeError(f"middleware {named.__qualname__} returned before its yield: the handler was not called")


def _again(named: Any) -> RuntimeError:
    return RuntimeError(f"middleware {named.__qualname__} yields more than once")
