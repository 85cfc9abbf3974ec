"""The palette: everything that can be gone to or done, by a few letters. Answers with a list; the script shows it.

Each choice has an address to go to, or one to post to: the buttons of other pages, so it can do nothing that they cannot.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import JSONResponse, Response

from noonbell.errors import InvalidId
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task, TaskStatus
from noonbell.service import naming
from noonbell.web.badges import word_of
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.visit import THEMES, Visit
from noonbell.web.words import LANGUAGES

ROOMS: Final = (
    *(("overview", "/"), ("tasks", "/tasks"), ("runs", "/runs"), ("timeline", "/timeline"), ("queues", "/queues")),
    *(("workers", "/workers"), ("activity", "/activity"), ("settings", "/settings")),
)
VERBS: Final = ("run", "pause", "resume")
"""A text that begins with one of them, or with its word, asks for that act alone."""
_TASKS: Final = 7
_ACTED: Final = 2
"""So many of the tasks that are found have their acts listed too, unless one was asked for."""


async def choices(visit: Visit) -> Response:
    text = visit.query.get("q", "")[:255]
    verb, name = _verb(visit, text)
    found: list[dict[str, Any]] = []
    if verb:
        found += await _acts(visit, verb, name)
    found += await _run(visit, text)
    found += await _tasks(visit, text)
    found += _going(visit, text)
    found += _choosing(visit, text)
    return JSONResponse({"items": found, "none": visit.words("palette.none"), "zone": visit.words("palette.zone")})


def _verb(visit: Visit, text: str) -> tuple[str, str]:
    """The act that the text begins with, and the rest: `pause invo`, `暂停 invo`."""
    first, _, rest = text.partition(" ")
    for verb in VERBS:
        if first.casefold() in (verb, visit.words(f"act.{verb}").casefold()) and visit.may("operator"):
            return verb, rest.strip()
    return "", ""


async def _acts(visit: Visit, verb: str, name: str) -> list[dict[str, Any]]:
    status = {"pause": TaskStatus.ENABLED, "resume": TaskStatus.DISABLED}.get(verb)
    query = TaskQuery(name=name or None, status=status, page_size=_TASKS, sort="name")
    return [_act(visit, verb, task) for task in (await visit.site.services.store.tasks(query)).items]


def _act(visit: Visit, verb: str, task: Task) -> dict[str, Any]:
    path = {"run": "trigger", "pause": "disable", "resume": "enable"}[verb]
    return _choice(visit, "act", f"{visit.words(f'act.{verb}')}: {task.name}", post=f"/tasks/{task.id}/{path}")


async def _run(visit: Visit, text: str) -> list[dict[str, Any]]:
    try:
        run = await visit.site.services.store.run(naming.run_id(text))
    except InvalidId:
        return []
    if run is None:
        return []
    hint = f"{run.task_name} · {word_of(run.status, visit.words)}"
    return [_choice(visit, "go", visit.words("run.title", id=run.id), go=f"/runs/{run.id}", hint=hint)]


async def _tasks(visit: Visit, text: str) -> list[dict[str, Any]]:
    """Those with the text in their name; without a text, those that were changed last."""
    query = TaskQuery(name=text or None, page_size=_TASKS, sort="name" if text else "-updated_at")
    tasks = (await visit.site.services.store.tasks(query)).items
    found = [
        _choice(visit, "task", task.name, go=f"/tasks/{task.id}", hint=word_of(task.status, visit.words))
        for task in tasks
    ]
    if text and visit.may("operator"):
        for task in tasks[:_ACTED]:
            found.append(_act(visit, "run", task))
            if task.status in (TaskStatus.ENABLED, TaskStatus.DISABLED):
                found.append(_act(visit, "pause" if task.status is TaskStatus.ENABLED else "resume", task))
    return found


def _going(visit: Visit, text: str) -> list[dict[str, Any]]:
    rooms = [(name, path) for name, path in ROOMS if name != "activity" or visit.may("admin")]
    found = [(visit.words(f"nav.{name}"), path) for name, path in rooms]
    if visit.may("operator"):
        found.append((visit.words("task.new"), "/tasks/new"))
    return [_choice(visit, "go", label, go=path) for label, path in found if text.casefold() in label.casefold()]


def _choosing(visit: Visit, text: str) -> list[dict[str, Any]]:
    """Theme and language; zones are for the script, whose browser knows them all."""
    found = [("theme", name, visit.words(f"theme.{name}")) for name in THEMES]
    found += [("lang", code, name) for code, name in LANGUAGES.items()]
    return [
        _choice(visit, "set", f"{visit.words(f'pref.{field}')}: {label}", set=[field, value])
        for field, value, label in found
        if text.casefold() in f"{visit.words(f'pref.{field}')} {label}".casefold()
    ]


def _choice(visit: Visit, kind: str, label: str, **more: Any) -> dict[str, Any]:
    for name in ("go", "post"):
        if name in more:
            more[name] = visit.url(more[name])
    return {"kind": kind, "hint": visit.words(f"palette.{kind}"), "label": label, **more}


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/palette", choices)]
