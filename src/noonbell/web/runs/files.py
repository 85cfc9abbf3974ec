"""The texts of a run as files: whole, as they are kept, with secrets masked."""

from __future__ import annotations

from starlette.responses import Response

from noonbell.errors import NotFound
from noonbell.model.run import RunBodies
from noonbell.service.run_json import shown
from noonbell.web.page import Page
from noonbell.web.runs.run import found, payload_of
from noonbell.web.site import Site
from noonbell.web.visit import Visit, as_json


async def download(visit: Visit) -> Response:
    """A text of the run, whole, as it is kept; never as a page."""
    run, what = await found(visit), visit.piece("what")
    wanted = visit.query.get("attempt", "")
    number = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else None
    store = visit.site.services.store
    if what in ("request", "response"):
        kept = await store.bodies(run.id, number) or RunBodies()
        text = kept.request_body if what == "request" else kept.response_body
    else:
        values = {"payload": await payload_of(visit, run), "result": run.result, "raw": shown(run)}
        text = None if values.get(what) is None else as_json(values[what])
    if text is None:
        raise NotFound(visit.words("run.nothing_kept"))
    name = f"run-{run.id}{f'-attempt-{number}' if number else ''}-{what}.txt"
    headers = {"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"}
    return Response(text.encode("utf-8", "surrogatepass"), media_type="application/octet-stream", headers=headers)


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/runs/{run_id}/download/{what}", download)]
