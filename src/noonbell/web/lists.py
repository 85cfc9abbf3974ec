"""What the lists of tasks and runs share: filters in the address, paging, the filter bar, changing many rows at once.

The filter bar reads `status:failed label:team=billing night`: known keys become the parameters of the API, everything
else is searched for in names. What is done with the rows that are ticked is done in the answer; all that a filter finds is
changed by a bulk operation (`web.bulk`). Views that are saved for everyone are found at their list; a browser keeps its own
besides (`static/lists.js`).
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import Response

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import InvalidArgument, Sentence
from noonbell.fields import from_query
from noonbell.fields.kinds import read_moment
from noonbell.fields.problems import ReadContext
from noonbell.model.view import SavedView, ViewedList
from noonbell.service.bulk_operations import BulkStep, Left
from noonbell.service.translation import Translator, catalogue
from noonbell.service.views import of_list
from noonbell.web.context import PageContext, merged, one_of
from noonbell.web.page import post
from noonbell.when import zones

_WORD: Final = re.compile(r'(?:(?P<key>[a-z_]+):)?(?P<value>"[^"]*"|[^\s"]*"[^"]*"|\S+)', re.IGNORECASE)
_SPAN: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SOME: Final = frozenset({"status"})
"""May be named more than once; any other key's last value wins."""


@dataclass(frozen=True, slots=True)
class Grammar:
    keys: Mapping[str, str]
    """What may be written before a colon, and the parameter it stands for."""
    rest: str
    """The parameter of words without a key."""

    def read(self, text: str, meaning: Callable[[str, str], str]) -> dict[str, str]:
        """The parameters that the text asks for. `meaning` says what a value of a parameter stands for."""
        found: dict[str, str] = {}
        words: list[str] = []
        for match in _WORD.finditer(text):
            key, value = (match["key"] or "").lower(), match["value"].replace('"', "")
            parameter = self.keys.get(key)
            if parameter is None:
                words.append(match[0].replace('"', ""))
            elif value:
                value = meaning(parameter, value)
                both = parameter in _SOME and parameter in found
                found[parameter] = f"{found[parameter]},{value}" if both else value
        if words:
            found[self.rest] = " ".join(words)
        return found

    def token(self, parameter: str, value: str) -> str:
        """The filter as it is typed."""
        quoted = f'"{value}"' if re.search(r"\s", value) else value
        if parameter == self.rest:
            return quoted
        key = next(key for key, each in self.keys.items() if each == parameter)
        return f"{key}:{quoted}"


TASK_GRAMMAR: Final = Grammar(
    {"status": "status", "label": "label", "queue": "queue", "by": "managed_by", "name": "name"}, rest="name"
)
RUN_GRAMMAR: Final = Grammar(
    {
        **{key: key for key in ("status", "task", "label", "queue", "worker", "origin", "key", "text", "search")},
        "after": "from",
        "before": "to",
        "parent": "parent_id",
        "step": "step",
    },
    rest="search",
)


def read_typed_moment(text: str, now: Instant, zone: str) -> str:
    """`24h` ago, a day or a time on the visitor's clock, or RFC 3339: the instant; as it is where it is none of these."""
    if span := _SPAN.fullmatch(text):
        return rfc3339(now - int(span[1]) * _UNITS[span[2]] * SECOND)
    whole = f"{text}T00:00:00" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text
    try:
        return rfc3339(read_moment(whole, zones.find(zone), minutes=True))
    except ValueError:
        return text


PAGE_SIZE: Final = 25
NEWEST_FIRST: Final = "-id"
OLDEST_FIRST: Final = "id"
RUN_ORDERS: Final = (NEWEST_FIRST, OLDEST_FIRST)
"""Orders of lists of runs: those that an index gives under every filter. An id grows with the time at which a run was made."""
DENSITIES: Final = ("comfortable", "compact")


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to. `known` are the names that it has, in the order of the bar."""

    query: Mapping[str, str]
    known: tuple[str, ...]
    problem: str = ""
    """Why the list cannot be narrowed so; then it is empty."""
    grammar: Grammar = TASK_GRAMMAR

    @property
    def active(self) -> dict[str, str]:
        return {name: self.query[name] for name in self.known if self.query.get(name)}

    def value(self, name: str) -> str:
        return self.query.get(name, "")

    def without(self, name: str) -> dict[str, Any]:
        return merged(self.query, **{name: None})

    @property
    def tokens(self) -> dict[str, str]:
        """Each active filter as it is typed."""
        return {name: self.grammar.token(name, value) for name, value in self.active.items()}

    @property
    def beside(self) -> dict[str, str]:
        """What the bar carries along beside its text."""
        return {name: value for name, value in self.active.items() if name != self.grammar.rest}

    def changed(self, **changes: Any) -> dict[str, Any]:
        return merged(self.query, **changes)


@dataclass(frozen=True, slots=True)
class Pager:
    """Links to other pages of a list. `total` is None where the rows were not counted."""

    first: dict[str, Any] | None = None
    previous: dict[str, Any] | None = None
    next: dict[str, Any] | None = None
    page: int = 1
    pages: int | None = None
    total: int | None = None
    is_rising: bool = False
    """The oldest come first."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What would be found if one of the filters were gone."""

    name: str
    token: str
    count: int
    is_more: bool = False
    """More than were counted."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The same list as a call of the API and as a command."""

    curl: str
    command: str


def density(ctx: PageContext) -> str:
    wanted = ctx.request.cookies.get("noonbell_density", DENSITIES[0])
    return wanted if wanted in DENSITIES else DENSITIES[0]


def copies(ctx: PageContext, room: str, active: Mapping[str, str]) -> Copies:
    server = str(ctx.request.base_url).rstrip("/")
    curl = curl_line(server, room, active, with_token=ctx.deps.asks_for_tokens)
    return Copies(curl, cli_line(room, active))


def typed(
    ctx: PageContext, path: str, known: tuple[str, ...], aliases: Mapping[str, str], usual: str = ""
) -> Response | None:
    """Where the text of a filter bar leads to: the same list with plain parameters. None: nothing was typed.

    `usual` is the order that needs no saying.
    """
    text = ctx.request.query_params.get("q")
    if text is None:
        return None
    grammar = RUN_GRAMMAR if path == "/runs" else TASK_GRAMMAR
    kept = {name: ctx.query[name] for name in (*known, "sort") if name != grammar.rest and name in ctx.query}
    if kept.get("sort") == usual:
        del kept["sort"]

    def meaning(parameter: str, value: str) -> str:
        if parameter == "status":
            return ",".join(aliases.get(each.casefold(), each) for each in value.split(","))
        if parameter in ("from", "to"):
            return read_typed_moment(value, ctx.now, ctx.zone.name)
        return value

    return ctx.redirect(ctx.link(path, **{**kept, **grammar.read(text[:2_000], meaning)}))


def status_aliases(statuses: Iterable[str], words: Translator, more: Mapping[str, str]) -> dict[str, str]:
    """What people may write for a status: its name, its word in their language, the name of a group."""
    found: dict[str, str] = {}
    for status in statuses:
        for each in (status, catalogue("en").get(f"status.{status}", ""), words(f"status.{status}")):
            found[each.replace(" ", "_").casefold()] = str(status)
    return {**found, **more}


def given_of(
    query: Mapping[str, str], struct: type[msgspec.Struct], allowed: tuple[str, ...], **defaults: Any
) -> dict[str, Any]:
    """The filters of a query string, as `struct` would have them; what belongs to the page alone is left out."""
    wanted = {name: query[name] for name in (*allowed, "page", "cursor", "sort") if query.get(name)}
    return {"page_size": PAGE_SIZE, **defaults, **from_query(struct, wanted.items())}


def run_sort(query: Mapping[str, str], at: ReadContext, orders: Sequence[str] = RUN_ORDERS) -> str:
    """The order that a list of runs is asked for."""
    wanted = query.get("sort") or NEWEST_FIRST
    if wanted not in orders:
        template = "is {value}; expected one of {words}: newest or oldest first"
        at.wrong("sort", Sentence(template, value=repr(wanted), words=", ".join(orders)))
        return NEWEST_FIRST
    return wanted


def pager_by_number(query: Mapping[str, str], page: int, total: int | None, size: int = PAGE_SIZE) -> Pager:
    pages = max(1, -(-(total or 0) // size))
    return Pager(
        previous={**query, "page": page - 1} if page > 1 else None,
        next={**query, "page": page + 1} if page < pages else None,
        page=page,
        pages=pages,
        total=total,
    )


def pager_by_cursor(query: Mapping[str, str], next_cursor: str | None) -> Pager:
    kept = {name: value for name, value in query.items() if name != "cursor"}
    return Pager(
        first=kept if "cursor" in query else None,
        next=None if next_cursor is None else {**kept, "cursor": next_cursor},
        is_rising=query.get("sort") == OLDEST_FIRST,
    )


OPTIONS: Final = {"tasks": ("status", "name", "label"), "runs": ("task", "status", "queue", "key", "from", "search")}
"""The filters that `noonbell task list` and `noonbell run list` have an option for."""


def api_address(room: str, active: Mapping[str, str]) -> str:
    """Behind `/api/v1`."""
    pairs = [(name, each) for name, value in active.items() for each in _each(name, value)]
    query = urlencode(pairs, quote_via=quote, safe=":=,")
    return f"/{room}?{query}" if query else f"/{room}"


def curl_line(server: str, room: str, active: Mapping[str, str], *, with_token: bool) -> str:
    token = ' -H "Authorization: Bearer $NOONBELL_TOKEN"' if with_token else ""
    return f"curl -s{token} {shlex.quote(f'{server}/api/v1{api_address(room, active)}')}"


def cli_line(room: str, active: Mapping[str, str]) -> str:
    """With the options that there are; a filter without one is asked for by `noonbell api`, which takes them all."""
    if not active.keys() <= {*OPTIONS[room]}:
        return f"noonbell api GET {shlex.quote(api_address(room, active))}"
    words = ["noonbell", "task" if room == "tasks" else "run", "list"]
    for name, value in active.items():
        option = "--since" if name == "from" else f"--{name}"
        words += [word for each in _each(name, value) for word in (option, shlex.quote(each))]
    return " ".join(words)


def _each(name: str, value: str) -> list[str]:
    return value.split(",") if name == "status" else [value]


MOST_TICKED: Final = 500


def act_of(ctx: PageContext, acts: Sequence[str]) -> str:
    return one_of("act", ctx.query.get("act", ""), acts)


def ids_of(texts: Sequence[str]) -> list[int]:
    """The ticked ones: `3`, or several in one text as `3,4,5`."""
    parts = [part for text in texts for part in text.split(",") if part]
    if len(parts) > MOST_TICKED or not all(part.isascii() and part.isdecimal() and len(part) < 17 for part in parts):
        raise InvalidArgument.field("ids", f"expected up to {MOST_TICKED} numbers")
    return [int(part) for part in dict.fromkeys(parts)]


def left_in_words(ctx: PageContext, left: Sequence[Left]) -> str:
    """`2 left out: no place free (2)`; nothing where none was."""
    if not left:
        return ""
    whys = Counter(each.why for each in left)
    listed = ", ".join(f"{ctx.words(f'bulk.why_{why}')} ({count})" for why, count in whys.most_common())
    return ctx.words("bulk.left", n=len(left), why=listed)


def bulk_text(ctx: PageContext, key: str, step: BulkStep) -> str:
    text = ctx.words(key, n=len(step.done), total=len(step.done) + len(step.left))
    return f"{text} {left_in_words(ctx, step.left)}".strip()


def bulk_start(kind: str, filters: Mapping[str, str], struct: type[msgspec.Struct], **more: Any) -> dict[str, Any]:
    """What starts a bulk operation for all that these filters find."""
    wanted = from_query(struct, filters.items())
    return {"kind": kind, **({"filter": wanted} if wanted else {"all": True}), **more}


def check_number(ctx: PageContext, given: dict[str, str], number: int) -> None:
    """What cannot be taken back is confirmed by typing how many it is."""
    if given.get("confirm", "").strip() != str(number):
        raise InvalidArgument.field("confirm", ctx.words("bulk.type_number", n=number))


@dataclass(frozen=True, slots=True)
class ListViews:
    shared: list[SavedView]
    """Empty for a token with a scope: filters name tasks and labels of others."""
    here: str
    """The query of the list that is shown."""


async def shared_views(ctx: PageContext, room: ViewedList) -> ListViews:
    return ListViews(await ctx.services.views.all(room) if ctx.sees_all else [], of_list(ctx.request.url.query))


async def save_view(ctx: PageContext) -> Response:
    given = await ctx.fields()
    saved = await ctx.services.views.save(
        given.get("list", ""), given.get("name", "").strip(), {"query": given.get("query", "")}, by=ctx.actor
    )
    ctx.subject, ctx.details = _view_subject(saved.list, saved.name), {"query": saved.query}
    return ctx.done(ctx.words("views.saved", name=saved.name), go=f"/{saved.list}?{saved.query}")


async def remove_view(ctx: PageContext) -> Response:
    given = await ctx.fields()
    room, name = given.get("list", ""), given.get("name", "")
    await ctx.services.views.remove(room, name)
    ctx.subject = _view_subject(room, name)
    return ctx.done(ctx.words("views.removed", name=name), go=f"/{room}?{of_list(given.get('query', ''))}")


def _view_subject(room: str, name: str) -> str:
    return f"/views/{room}/{name.replace('/', '%2F')}"


PAGES: Final = [post("/views", save_view, "save_view"), post("/views/remove", remove_view, "remove_view")]
