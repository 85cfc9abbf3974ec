"""Quiet hours: stretches of the day in which runs do not start, or alerts are not sent."""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar

import msgspec

from noonbell.fields import meta as described

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""In the order of Python's weekdays."""
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]"


class QuietAction(enum.StrEnum):
    HOLD = "hold"
    """Until they end."""
    SKIP = "skip"


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "quiet hours"

    from_: Annotated[
        str,
        described(
            "When they begin, HH:MM.",
            pattern=_CLOCK,
            expected="a time of day, HH:MM",
            missing="when they begin, HH:MM",
            examples=["22:00"],
        ),
    ] = msgspec.field(name="from")
    to: Annotated[
        str,
        described(
            "When they end, HH:MM; not after `from`: on the next day.",
            pattern=_CLOCK,
            expected="a time of day, HH:MM",
            missing="when they end, HH:MM",
            examples=["06:00"],
        ),
    ]
    days: Annotated[
        tuple[Annotated[str, described(choices=DAYS)], ...],
        described("The days on which they begin; empty: every day.", max_length=7, examples=[["sat", "sun"]]),
    ] = ()
    timezone: Annotated[str | None, described("An IANA name or an offset. Null: that of the task; elsewhere UTC.")] = (
        None
    )
    what: Annotated[QuietAction, described("Hold until they end, or skip.")] = QuietAction.HOLD


MOST_QUIET = 20
"""Stretches of one task, queue or channel."""
LONGEST_SPREAD = 86_400
