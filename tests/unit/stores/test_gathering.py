"""Calls that are carried out together: who goes at once, who waits, and who fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from noonbell.stores.sql.server_store import Gathering


async def doubled(numbers: Sequence[int]) -> list[int]:
    await asyncio.sleep(0)
    return [2 * number for number in numbers]


async def test_a_caller_that_calls_again_with_its_answer_goes_at_once():
    gathering = Gathering(doubled)

    async def one_after_the_other() -> list[int]:
        return [await gathering.add(number) for number in (1, 2, 3)]

    calling = asyncio.create_task(one_after_the_other())
    for _ in range(30):  # turns of the event loop: no time passes
        await asyncio.sleep(0)
    assert calling.done()
    assert await calling == [2, 4, 6]


async def test_those_who_come_meanwhile_go_together():
    batches: list[list[int]] = []
    is_under_way = asyncio.Event()

    async def noted(numbers: Sequence[int]) -> list[int]:
        batches.append(list(numbers))
        is_under_way.set()
        return await doubled(numbers)

    gathering = Gathering(noted)
    first = asyncio.create_task(gathering.add(0))
    await is_under_way.wait()
    assert await asyncio.gather(first, *(gathering.add(number) for number in range(1, 5))) == [0, 2, 4, 6, 8]
    assert batches == [[0], [1, 2, 3, 4]]
