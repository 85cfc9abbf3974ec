"""Random cron expressions and start times for the tests that compare two answers."""

from __future__ import annotations

from random import Random

from noonbell.when.zones import DAY, YEAR, OffsetSpan, find

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Kolkata",
)
SINCE = 1_704_067_200
"""2024-01-01T00:00:00Z"""

_LIMITS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
_NAMES = {
    "month": ("JAN", "feb", "Mar", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    "weekday": ("SUN", "mon", "Tue", "WED", "THU", "FRI", "SAT"),
}


def random_item(random: Random, field: str) -> str:
    low, high = _LIMITS[field]
    match random.randrange(8):
        case 0:
            return f"*/{random.randint(1, high)}"
        case 1 | 2:
            first = random.randint(low, high - 1)
            last = random.randint(first + 1, high)
            return f"{first}-{last}" + (f"/{random.randint(1, 9)}" if random.random() < 0.4 else "")
        case 3 if field in _NAMES:
            return random.choice(_NAMES[field])
        case 3:
            return f"{random.randint(low, high)}/{random.randint(1, high)}"
        case 4 if field == "day":
            return random.choice(("L", "LW"))
        case 4 if field == "weekday":
            return f"{random.randint(low, high)}{random.choice(('L', '#1', '#2', '#3', '#4', '#5'))}"
        case _:
            return str(random.randint(low, high))


def random_field(random: Random, field: str, stars: float) -> str:
    if random.random() < stars:
        return "*"
    return ",".join(random_item(random, field) for _ in range(random.choice((1, 1, 1, 2, 3))))


def random_expression(random: Random) -> str:
    """Five fields, with stars about as common as in real life."""
    stars = {"minute": 0.2, "hour": 0.4, "day": 0.6, "month": 0.75, "weekday": 0.6}
    return " ".join(random_field(random, field, chance) for field, chance in stars.items())


def clock_changes(name: str, start: int, stop: int) -> list[OffsetSpan]:
    """The stretches that begin with a change of offset."""
    zone = find(name)
    found: list[OffsetSpan] = []
    at = start
    while at < stop:
        held = zone.stretch(at)
        if held.start >= start and held.seen != held.start + held.offset:
            found.append(held)
        at = held.stop
    return found


def random_start(random: Random, changes: list[OffsetSpan]) -> int:
    """Anywhere in eight years; half of them shortly before a clock change, where there is one."""
    if changes and random.random() < 0.5:
        return random.choice(changes).start - random.choice((1, 1800, 7200, DAY, 2 * DAY)) - random.randrange(3600)
    return SINCE + random.randrange(8 * YEAR)
