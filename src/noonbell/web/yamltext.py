"""YAML that somebody typed into a page or uploaded."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any, Final

from noonbell.errors import InvalidArgument, InvalidJson
from noonbell.service.json_text import decoded
from noonbell.web import yaml_child

_INLINE: Final = 8_000
"""Characters: what is longer is read by a process of its own."""
_PROCESSOR_SECONDS = 10
_DEADLINE: Final = 30.0
"""Seconds: for a process that gets no processor time."""
_turns = asyncio.Semaphore(2)
"""Texts that are read at once; the others wait."""


async def read_yaml(text: str, most: int) -> Any:
    """What the text says, as JSON has it. InvalidArgument says what is wrong with it."""
    if len(text) > most:
        raise InvalidArgument(f"has {len(text):,} characters; expected {most:,} at most")
    try:
        found = yaml_child.to_json(text).encode() if len(text) <= _INLINE else await _read_aside(text)
        return await decoded(found)
    except InvalidJson as error:
        raise InvalidArgument(error.message) from None
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


async def _read_aside(text: str) -> bytes:
    async with _turns:
        return await _in_a_process(text)


async def _in_a_process(text: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", yaml_child.__file__, str(_PROCESSOR_SECONDS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_DEADLINE):
            found, _ = await process.communicate(text.encode("utf-8", "replace"))
    except TimeoutError:
        raise ValueError("takes too long to read") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode == 1:
        raise ValueError(found.decode())
    if process.returncode != 0:
        raise ValueError("takes too long to read")
    return found
