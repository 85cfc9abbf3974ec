"""What empties a queue, or fills it again: cancel what waits, remove what is over, run again what failed for good.

Each of the last two is shown with its number before it is done.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidArgument
from noonbell.model.access import Role
from noonbell.model.request import RunQuery
from noonbell.model.run import FINAL, SUCCEEDED, RunStatus
from noonbell.service.queues import DEAD, MOST_CLEANED
from noonbell.web.page import Page
from noonbell.web.queues.index import path_of
from noonbell.web.site import Site
from noonbell.web.visit import Visit

DAYS: Final = (0, 1, 7, 30, 90, 365)
KINDS: Final[dict[str, tuple[RunStatus, ...]]] = {
    "all": tuple(sorted(FINAL)),
    "succeeded": tuple(sorted(SUCCEEDED)),
    "failed": DEAD,
    "others": (RunStatus.CANCELED, RunStatus.SKIPPED),
}
"""What to remove, in words."""


async def drain(visit: Visit) -> Response:
    name = visit.piece("name")
    done = await visit.site.services.queues.drain(name, by=visit.actor)
    visit.subject, visit.details = f"/queues/{name}", {"canceled": done.changed}
    return visit.done(visit.words("queue.drained", name=name, n=done.changed), path_of(name))


# Run again what failed for good


async def ask_redrive(visit: Visit) -> Response:
    name = visit.piece("name")
    found = await visit.site.services.queues.redrive(name, RunQuery(), dry_run=True)
    return visit.page("queue_redrive.html", name=name, path=path_of(name), found=found, statuses=",".join(DEAD))


async def redrive(visit: Visit) -> Response:
    name = visit.piece("name")
    done = await visit.site.services.queues.redrive(name, RunQuery(), by=visit.actor)
    visit.subject, visit.details = f"/queues/{name}", {"matched": done.matched, "retried": done.changed}
    text = visit.words("queue.redriven", n=done.changed, matched=done.matched, left=done.matched - done.changed)
    if done.more:
        text = f"{text} {visit.words('queue.more')}"
    return visit.done(text, go=f"/runs?{urlencode({'queue': name, 'origin': 'retry'})}")


# Remove what is over


async def ask_clean(visit: Visit) -> Response:
    return await _clean_page(visit, _days(visit.query.get("days", "30")), _kind(visit.query.get("kind", "all")))


async def _clean_page(visit: Visit, days: int, kind: str, problem: str = "") -> Response:
    name = visit.piece("name")
    before = Instant(visit.now - days * 86_400 * SECOND)
    query = RunQuery(queue=name, status=KINDS[kind], until=before, page_size=1)
    return visit.page(
        "queue_clean.html",
        400 if problem else 200,
        name=name,
        path=path_of(name),
        count=(await visit.site.services.runs.page(query)).total or 0,
        most=MOST_CLEANED,
        days=days,
        kind=kind,
        choices=DAYS,
        kinds=list(KINDS),
        problem=problem,
    )


async def clean(visit: Visit) -> Response:
    """Only for whoever has typed the queue's name."""
    name, given = visit.piece("name"), await visit.fields()
    days, kind = _days(given.get("days", "")), _kind(given.get("kind", ""))
    if given.get("typed", "").strip() != name:
        return await _clean_page(visit, days, kind, visit.words("confirm.mistyped", name=name))
    wanted = {"older_than_days": days, "status": [str(status) for status in KINDS[kind]]}
    done = await visit.site.services.queues.clean(name, wanted)
    visit.subject, visit.details = f"/queues/{name}", {**wanted, "removed": done["removed"]}
    text = visit.words("queue.cleaned", n=done["removed"], name=name)
    if done["more"]:
        text = f"{text} {visit.words('queue.more')}"
    return visit.done(text, go=path_of(name))


def _days(text: str) -> int:
    if not text.isdecimal() or int(text) not in DAYS:
        raise InvalidArgument.field("days", f"is {text[:20]!r}; expected one of {', '.join(map(str, DAYS))}")
    return int(text)


def _kind(text: str) -> str:
    if text not in KINDS:
        raise InvalidArgument.field("kind", f"is {text[:20]!r}; expected one of {', '.join(KINDS)}")
    return text


def pages(site: Site) -> list[Page]:
    del site
    operator = Role.OPERATOR
    return [
        Page("/queues/{name}/drain", drain, "POST", operator, deed="drain_queue"),
        Page("/queues/{name}/redrive", ask_redrive, role=operator),
        Page("/queues/{name}/redrive", redrive, "POST", operator, deed="redrive_queue"),
        Page("/queues/{name}/clean", ask_clean, role=operator),
        Page("/queues/{name}/clean", clean, "POST", operator, deed="clean_queue"),
    ]
