"""Tasks as a file, without a command line: the list as YAML, and YAML applied after a look at what it would change."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml
from starlette.responses import Response

from noonbell.errors import AlreadyExists, InvalidArgument, VersionConflict
from noonbell.model.access import Role
from noonbell.service.applying import Applying
from noonbell.service.writing import written
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tasks.index import read
from noonbell.web.visit import Visit, as_json
from noonbell.web.yamltext import read_yaml

OWNER: Final = "api"
"""What is imported here belongs to nobody's file: it is as if somebody had made it by hand."""
_LONGEST: Final = 1_000_000
_BATCH: Final = 500


async def export(visit: Visit) -> Response:
    """All that the filter of the list finds. Secrets are masked; a masked one that is imported here stays as it is."""
    filters, query = read(visit)
    if query is None:
        raise InvalidArgument(filters.problem)
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        wanted = msgspec.structs.replace(query, sort="name", page=1, page_size=_BATCH, cursor=cursor)
        page = await visit.site.services.tasks.page(wanted)
        found += [written(msgspec.to_builtins(task)) for task in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    text = yaml.safe_dump({"tasks": found}, sort_keys=False, allow_unicode=True, width=120)
    headers = {"content-disposition": 'attachment; filename="tasks.yaml"'}
    return Response(text, headers=headers, media_type="application/yaml; charset=utf-8")


async def ask(visit: Visit) -> Response:
    return _page(visit, "")


async def apply(visit: Visit) -> Response:
    """First what it would change; then, with `sure`, the change itself."""
    given = await visit.fields()
    text, adopt = given.get("text", "").replace("\r\n", "\n"), "adopt" in given
    applying = Applying(visit.site.services)
    is_sure = given.get("sure") == "1"
    try:
        declared = await declared_in(text)
        found = await applying.apply(OWNER, declared, by=visit.actor, adopt=adopt, dry_run=not is_sure)
    except (AlreadyExists, InvalidArgument, VersionConflict) as error:
        return _page(visit, text, 400, problem=error.message, adopt=adopt)
    if not is_sure:
        visit.deed = "check_tasks"
        return _page(visit, text, plan=found, adopt=adopt)
    visit.deed, visit.subject = "apply_tasks", "/tasks/import"
    told = visit.words("import.done", created=len(found["created"]), changed=len(found["changed"]))
    return visit.done(told, go="/tasks")


async def declared_in(text: str) -> list[dict[str, Any]]:
    """The tasks of a file."""
    try:
        document = await read_yaml(text, _LONGEST)
    except InvalidArgument as error:
        raise InvalidArgument(f"the text {error.message}") from None
    listed = document.get("tasks") if isinstance(document, dict) and set(document) == {"tasks"} else None
    if not isinstance(listed, list) or not all(isinstance(task, dict) for task in listed):
        raise InvalidArgument("expected `tasks:` with a list of tasks")
    return listed


def _page(visit: Visit, text: str, status: int = 200, **more: Any) -> Response:
    view = {"problem": "", "plan": None, "adopt": False, **more}
    return visit.page("task_import.html", status, text=text, as_json=as_json, **view)


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/tasks/export", export),
        Page("/tasks/import", ask, role=Role.OPERATOR),
        Page("/tasks/import", apply, "POST", Role.OPERATOR, deed="apply_tasks"),
    ]
