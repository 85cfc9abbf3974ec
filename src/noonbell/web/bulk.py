"""Many at once: after a look at how many it would be; with scripts in steps, that can be watched and stopped.

A step is one POST that says what became of each, and where to go on. Without scripts one POST takes all steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from noonbell.errors import InvalidArgument
from noonbell.service.steps import Left, Step
from noonbell.web.visit import Visit

MOST_TICKED: Final = 500
MOST_STEPS: Final = 500
"""Without scripts: so many steps in one answer."""

Take = Callable[[str | None], Awaitable[Step]]


def act_of(visit: Visit, acts: Sequence[str]) -> str:
    act = visit.query.get("act", "")
    if act not in acts:
        raise InvalidArgument.field("act", f"is {act[:40]!r}; expected one of {', '.join(acts)}")
    return act


def ids_of(texts: Sequence[str]) -> list[int]:
    """The ticked ones: `3`, or several in one text as `3,4,5`."""
    parts = [part for text in texts for part in text.split(",") if part]
    if len(parts) > MOST_TICKED or not all(part.isascii() and part.isdecimal() and len(part) < 17 for part in parts):
        raise InvalidArgument.field("ids", f"expected up to {MOST_TICKED} numbers")
    return [int(part) for part in dict.fromkeys(parts)]


def left_in_words(visit: Visit, left: Sequence[Left]) -> str:
    """`2 left out: no place free (2)`; nothing where none was."""
    if not left:
        return ""
    whys = Counter(each.why for each in left)
    listed = ", ".join(f"{visit.words(f'bulk.why_{why}')} ({count})" for why, count in whys.most_common())
    return visit.words("bulk.left", n=len(left), why=listed)


def told(visit: Visit, key: str, step: Step) -> str:
    text = visit.words(key, n=len(step.done), total=len(step.done) + len(step.left))
    return f"{text} {left_in_words(visit, step.left)}".strip()


async def taken(visit: Visit, given: dict[str, str], take: Take, key: str, back: str) -> Response:
    """One step for our script; all of them for a browser without."""
    if visit.wants_json:
        step = await take(given.get("place") or None)
        return JSONResponse(_shown(visit, step))
    whole, place = Step(), None
    for _ in range(MOST_STEPS):
        step = await take(place)
        whole.done += step.done
        whole.left += step.left
        place = step.next
        if place is None:
            break
    return visit.done(told(visit, key, whole), go=back)


def _shown(visit: Visit, step: Step) -> dict[str, Any]:
    return {
        "done": [number for number, _ in step.done],
        "left": [{"id": each.id, "name": each.name, "why": visit.words(f"bulk.why_{each.why}")} for each in step.left],
        "next": step.next,
    }


def check_number(visit: Visit, given: dict[str, str], number: int) -> None:
    """What cannot be taken back is confirmed by typing how many it is."""
    if given.get("confirm", "").strip() != str(number):
        raise InvalidArgument.field("confirm", visit.words("bulk.type_number", n=number))
