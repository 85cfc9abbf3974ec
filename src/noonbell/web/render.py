"""Templates (escaped by default, strict about missing names) and static files.

All static files share one hash in their addresses, because scripts import each other by relative names; so browsers
may keep them for ever. An address with an old hash, from a page that was open during an update, gets the current file,
uncached.

JSON on pages folds: nested `<details>` that the browser opens and closes by mouse and by key, without a script. The text is read
so that every digit of a number and every doubled key stays as it was written. What is short, is no JSON, or has too many values
to be drawn one by one is shown as plain text.

How an answer goes over the wire: compressed, and not at all where the browser has the page already.

A page is known by a tag of what it says. What passes by itself is no part of it: the server's clock, and the words of how long
ago something was, which the browser counts on by itself. Live pages ask again each second; while nothing happens, they get
304 and no body.

Only answers to GET are compressed: what is shown once, such as a new token, is the answer to a form.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noonbell.alerts.wording import said_in_words
from noonbell.errors import ScheduleError
from noonbell.model.failure_text import SAID
from noonbell.service.translation import (
    LANGUAGES,
    Translator,
    counted,
    exchange_words,
    failure_words,
    problem_words,
    step_words,
)
from noonbell.version import __version__
from noonbell.web import i18n, recent
from noonbell.web.charts import badge, icon, mark_of, tone_of, word_of
from noonbell.web.error_text import headline
from noonbell.when import zones

if TYPE_CHECKING:
    from noonbell.web.context import PageContext


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("noonbell.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["headline"] = headline
    made.filters["counted"] = counted
    made.filters["coded"] = coded
    made.globals.update(
        icon=icon, tone_of=tone_of, mark_of=mark_of, modules=modules, languages=LANGUAGES, version=__version__
    )
    return made


def coded(text: str) -> Markup:
    """A sentence with what stands between backticks as code."""
    told = Markup("")
    for place, piece in enumerate(text.split("`")):
        told += Markup("<code>{}</code>").format(piece) if place % 2 else Markup.escape(piece)
    return told


def page(ctx: PageContext, template: str, view: dict[str, Any]) -> str:
    return environment().get_template(template).render({**_parts(ctx), **view, **_problems(view, ctx.words)})


def _problems(view: Mapping[str, Any], words: Translator) -> dict[str, Any]:
    """What is wrong with what was sent, in the reader's language: every page has it under these names."""
    found: dict[str, Any] = {
        name: problem_words(view[name], words) for name in ("problem", "preview_problem") if view.get(name)
    }
    if view.get("problems"):
        found["problems"] = {name: problem_words(each, words) for name, each in view["problems"].items()}
    if view.get("summary"):
        found["summary"] = [(name, problem_words(each, words)) for name, each in view["summary"]]
    return found


def _parts(ctx: PageContext) -> dict[str, Any]:
    words = ctx.words

    def time(value: int | str | None, relative: bool = True, zone: str = "") -> Markup:
        """The one way in which a moment is shown. `zone`: that of its task, which is told to who points at it."""
        return Markup("–") if value is None else moment(ctx, value, relative=relative, zone=zone)

    return {
        "ctx": ctx,
        "t": words,
        "url": ctx.url,
        "asset": lambda name: ctx.url(asset_address(name)),
        "time": time,
        "folding": lambda text: json_view(
            text, lambda n, is_object: words("json.keys" if is_object else "json.items", n=n)
        ),
        "in_zone": lambda value, name: in_zone(ctx, value, name),
        "span": lambda seconds: i18n.span(seconds, words),
        "step_words": lambda error: step_words(error, words),
        "took": lambda value: i18n.milliseconds(value, words),
        "badge": lambda status: badge(str(status), words),
        "word_of": lambda status: word_of(str(status), words),
        "word_of_action": lambda action: words.get(f"deed.{action}", action),
        "word_of_event": lambda type_: words.get(f"event.{type_}", type_),
        "plain": lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False),
        "failure": lambda run: headline(failure_words(run.error_message, run.error_details, words)),
        "delivery_said": lambda told: failure_words(told["error"], {SAID: told["said"]}, words),
        "exchange_said": lambda error: exchange_words(error, words),
        "alert_said": lambda alert: said_in_words(alert["code"], alert["facts"], alert["message"], words),
        "said_of": lambda finding: recent.finding_text(finding, words),
        "flash": ctx.take_flash(),
    }


def moment(ctx: PageContext, value: int | str, *, relative: bool, zone: str = "") -> Markup:
    shown = i18n.shown(value, ctx.now, ctx.zone, ctx.words)
    there = _there(ctx, value, zone) if zone else ""
    exact = Markup(
        '<time datetime="{iso}" title="{whole}\n{there}{iso}" data-copy="{iso}">{local} <span class="offset">{offset}</span></time>',
    ).format(iso=shown.iso, whole=shown.whole, there=there and f"{there}\n", local=shown.local, offset=shown.offset)
    if not relative:
        return Markup('<span class="time">{}</span>').format(exact)
    return Markup('<span class="time"><span class="relative" data-at="{}">{}</span> {}</span>').format(
        shown.milliseconds, shown.relative, exact
    )


def in_zone(ctx: PageContext, value: int | str, name: str) -> Markup:
    """The same moment on the clock of a task's zone; nothing where that is the reader's own."""
    there = _there(ctx, value, name)
    return Markup('<code class="nowrap">{}</code>').format(there) if there else Markup("")


def _there(ctx: PageContext, value: int | str, name: str) -> str:
    if name == ctx.zone.name:
        return ""
    try:
        told = i18n.shown(value, ctx.now, zones.find(name), ctx.words)
    except ScheduleError:  # its data are not on this machine: the page is there all the same
        return ""
    mine = i18n.shown(value, ctx.now, ctx.zone, ctx.words)
    return "" if told.local == mine.local else f"{told.local} {name}"


TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
_IMPORTED: Final = re.compile(rb'^import [^;]* from "\./([a-z]+\.js)";', re.MULTILINE)
FOR_EVER: Final = "public, max-age=31536000, immutable"


@cache
def asset_contents() -> dict[str, bytes]:
    found = files("noonbell.web").joinpath("static").iterdir()
    return {file.name: file.read_bytes() for file in found if file.name.rpartition(".")[2] in TYPES}


@cache
def fingerprint() -> str:
    whole = hashlib.sha256()
    for name, content in sorted(asset_contents().items()):
        whole.update(f"{name} {len(content)} ".encode() + content)
    return whole.hexdigest()[:12]


def asset_address(name: str) -> str:
    """Where a page finds it, from the dashboard's root."""
    if name not in asset_contents():
        raise LookupError(f"there is no static/{name}")
    return f"/static/{fingerprint()}/{name}"


async def serve_asset(request: Request) -> Response:
    name = str(request.path_params["name"])
    content = asset_contents().get(name)
    if content is None:
        raise HTTPException(404)
    kept = FOR_EVER if request.path_params["hash"] == fingerprint() else "no-cache"
    headers = {"cache-control": kept, "content-security-policy": "default-src 'none'; sandbox"}
    answer = Response(content, headers=headers, media_type=TYPES[name.rpartition(".")[2]])
    return compressed(request, answer, ready=_compressed_asset(name))


@cache
def _compressed_asset(name: str) -> bytes:
    return gzip.compress(asset_contents()[name], mtime=0)


@cache
def modules() -> list[str]:
    """The scripts that every page needs: the entry, and what it imports right away. Named in the page, they are fetched at once
    and not one after the other.
    """
    found = ["app.js"]
    for name in found:  # grows meanwhile
        found += [each.decode() for each in _IMPORTED.findall(asset_contents()[name]) if each.decode() not in found]
    return found[1:]


def asset_route() -> Route:
    return Route("/static/{hash}/{name}", serve_asset, methods=["GET"])


_SHORT: Final = 12
"""Lines: what has no more needs no folding."""
_MOST_VALUES: Final = 2_000
_DEEPEST: Final = 40
_OPEN: Final = 30
"""Members of an object or items of a list that is open at first, below the outermost."""


class _Number(str):
    """As it was written."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """Of an object: in their order, also those of the same name."""


class _TooMuchError(Exception):
    pass


def json_view(text: str, counted: Callable[[int, bool], str]) -> Markup:
    """`counted`: in words, how many members (True) or items (False) something has that may be folded."""
    plain = Markup('<pre class="body" tabindex="0"><code>{}</code></pre>').format(text)
    if text.count("\n") <= _SHORT or text[:1] not in ("{", "["):
        return plain
    try:
        found = json.loads(
            text, object_pairs_hook=_Members, parse_int=_Number, parse_float=_Number, parse_constant=_Number
        )
        drawn = _Drawing(counted).value(found, Markup(""), "", 0)
    except (ValueError, RecursionError, _TooMuchError):
        return plain
    return Markup('<div class="body json" tabindex="0">{}</div>').format(drawn)


class _Drawing:
    def __init__(self, counted: Callable[[int, bool], str]) -> None:
        self._counted, self._left = counted, _MOST_VALUES

    def value(self, value: Any, before: Markup, after: str, depth: int) -> Markup:
        """On a line, or on several that fold. `before`: its key; `after`: its comma."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise _TooMuchError
        if not isinstance(value, _Members | list) or not value:
            return Markup("<div>{}{}{}</div>").format(before, _scalar(value), after)
        is_object = isinstance(value, _Members)
        pairs = value if is_object else [("", each) for each in value]
        inner = Markup("").join(
            self.value(
                each,
                Markup('<span class="json-key">{}</span>: ').format(_quoted(key)) if is_object else Markup(""),
                "," if place < len(pairs) else "",
                depth + 1,
            )
            for place, (key, each) in enumerate(pairs, 1)
        )
        begin, end = ("{", "}") if is_object else ("[", "]")
        return Markup(
            '<details{}><summary>{}{}<span class="json-more"> {} {}{}</span></summary>'
            '<div class="json-in">{}</div><div>{}{}</div></details>'
        ).format(
            Markup(" open") if depth == 0 or len(pairs) <= _OPEN else "",
            before,
            begin,
            self._counted(len(pairs), is_object),
            end,
            after,
            inner,
            end,
            after,
        )


def _scalar(value: Any) -> Markup:
    if isinstance(value, _Number):
        return Markup('<span class="json-number">{}</span>').format(str(value))
    if isinstance(value, str):
        return Markup('<span class="json-text">{}</span>').format(_quoted(value))
    if isinstance(value, _Members):
        return Markup("{}")
    return escape("[]" if isinstance(value, list) else json.dumps(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_SMALLEST: Final = 1_000
"""Bytes: below that, compressing saves no packet."""
_LEVEL: Final = 5
_TEXTS: Final = ("text/", "application/json", "image/svg+xml", "application/manifest+json")
_TAG: Final = b' data-tag=""'
"""Where base.html leaves room for the tag, so that the first live refresh can name it."""
_PASSING: Final = re.compile(rb'data-now="\d+"|<span class="relative" data-at="-?\d+">[^<]*</span>')


def sent(request: Request, answer: Response) -> Response:
    """The answer as it is sent to that browser."""
    if request.method not in ("GET", "HEAD") or not hasattr(answer, "body"):
        return answer
    if answer.status_code == 200 and _TAG in answer.body and "set-cookie" not in answer.headers:
        tag = tag_of(bytes(answer.body))
        answer.headers["etag"] = f'W/"{tag}"'
        if _names(request.headers.get("if-none-match", ""), tag):
            return _unchanged(answer)
        replace_body(answer, bytes(answer.body).replace(_TAG, f' data-tag="{tag}"'.encode(), 1))
    return compressed(request, answer)


def tag_of(page: bytes) -> str:
    return hashlib.sha256(_PASSING.sub(b"", page)).hexdigest()[:20]


def _names(header: str, tag: str) -> bool:
    return any(each.strip().removeprefix("W/") == f'"{tag}"' for each in header[:1_000].split(","))


def _unchanged(answer: Response) -> Response:
    kept = {name: value for name, value in answer.headers.items() if name not in ("content-length", "content-type")}
    return Response(status_code=304, headers=kept)


def compressed(request: Request, answer: Response, ready: bytes | None = None) -> Response:
    """`ready`: the body, compressed already."""
    body = bytes(answer.body)
    if not answer.headers.get("content-type", "").startswith(_TEXTS) or len(body) < _SMALLEST:
        return answer
    answer.headers["vary"] = "Accept-Encoding"
    if takes_gzip(request.headers.get("accept-encoding", "")):
        replace_body(answer, gzip.compress(body, _LEVEL, mtime=0) if ready is None else ready)
        answer.headers["content-encoding"] = "gzip"
    return answer


def takes_gzip(header: str) -> bool:
    """Whether an `Accept-Encoding` names gzip with a weight above 0."""
    for each in header[:1_000].lower().split(","):
        name, *more = (part.strip() for part in each.split(";"))
        if name == "gzip":
            return not any(re.fullmatch(r"q=0(?:\.0{0,3})?", part) for part in more)
    return False


def replace_body(answer: Response, body: bytes) -> None:
    answer.body = body
    answer.headers["content-length"] = str(len(body))
