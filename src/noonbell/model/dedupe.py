"""What a publish says of others like it: `dedupe`."""

from __future__ import annotations

import enum
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.fields import meta

LONGEST = 2_592_000
"""Seconds: thirty days."""
PREFIX: Final = "dedupe:"
"""Of the keys under which runs of a rule are found: no caller names such a `key`."""


class DedupeMode(enum.StrEnum):
    KEY = "key"
    DEBOUNCE = "debounce"
    THROTTLE = "throttle"


class DedupeKeep(enum.StrEnum):
    FIRST = "first"
    LAST = "last"


class Dedupe(msgspec.Struct, frozen=True, kw_only=True):
    """Of several publishes with the same key, which make a run. See `policy.dedupe`."""

    noun: ClassVar[str] = "a dedupe"
    example: ClassVar[dict[str, Any]] = {"mode": "debounce", "key": "cart-7", "seconds": 5, "max_wait_seconds": 60}

    mode: Annotated[
        DedupeMode,
        meta(
            "key: none while a run of the key is not final. throttle: one in `seconds`. debounce: one for a burst, when"
            " there was none for `seconds`.",
            missing="key, throttle or debounce",
            examples=["debounce"],
        ),
    ]
    key: Annotated[
        str,
        meta(
            "What they have in common, within the task.",
            min_length=1,
            max_length=200,
            missing="a text",
            examples=["cart-7"],
        ),
    ]
    seconds: Annotated[float | None, meta("Of throttle and debounce.", ge=0.001, le=LONGEST, examples=[5])] = None
    keep: Annotated[
        DedupeKeep | None, meta("Which of them counts: of debounce the last by default, else the first.")
    ] = None
    max_wait_seconds: Annotated[
        float | None, meta("Of debounce: no burst is longer.", ge=0.001, le=LONGEST, examples=[60])
    ] = None

    @property
    def keeps(self) -> DedupeKeep:
        return self.keep or (DedupeKeep.LAST if self.mode is DedupeMode.DEBOUNCE else DedupeKeep.FIRST)

    @property
    def is_for_later(self) -> bool:
        """Whether the run that it makes does not start at once."""
        return self.mode is not DedupeMode.KEY and self.keeps is DedupeKeep.LAST

    @property
    def stored_key(self) -> str:
        """Under which its run has it. Each mode is apart from the others, and all from what callers name as `key`."""
        return f"{PREFIX}{self.mode}:{self.key}"
