"""What a queue says of its pause."""

from __future__ import annotations

from noonbell.clock import ManualClock
from noonbell.service import Services


async def test_a_queue_says_why_it_is_paused_also_after_its_clock_was_set_back(services: Services, clock: ManualClock):
    await services.queues.pause("mail", {"reason": "the vendor mends its API"}, by="ann")
    clock.advance(-60)
    queue = await services.queues.get("mail")
    assert (queue["paused"], queue["pause"]["reason"], queue["pause"]["by"]) == (
        True,
        "the vendor mends its API",
        "ann",
    )
    await services.queues.resume("mail", by="bob")
    assert (await services.queues.get("mail"))["pause"] is None
