"""One request of a page: who asks, in which language and zone, what was sent, and the ways to answer; and what the pages need
from the application: services, settings, sessions of signed-in browsers, counts for the menu.

Addresses are written relative to the page (`../tasks/1`), so the dashboard works under any prefix and behind any proxy
without a setting for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote, unquote_to_bytes, urlencode, urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from noonbell.alerts.service import Alerts
from noonbell.clock import SECOND, Instant, SystemClock
from noonbell.errors import InvalidArgument, ScheduleError
from noonbell.json_text import aside, joined
from noonbell.model.access import AuditAction, Role, Token
from noonbell.model.account import InstallationPause
from noonbell.model.request import TaskQuery
from noonbell.model.run import Outcome
from noonbell.model.task import TaskSpec
from noonbell.service import Services
from noonbell.service.access import Access
from noonbell.service.filters import ENCODED_SLASH, REQUEST_ID
from noonbell.service.oidc import SignIn, SignInAttempt
from noonbell.service.translation import Translator, language, wanted_language
from noonbell.settings import Settings
from noonbell.subscriptions.service import Subscriptions
from noonbell.web import i18n, render
from noonbell.web.i18n import TAGS
from noonbell.when import zones
from noonbell.when.zones import Zone

FLASH: Final = "noonbell_flash"
ROOMS: Final = {
    "overview": "/",
    **{
        name: f"/{name}" for name in ("tasks", "runs", "timeline", "calls", "queues", "workers", "activity", "settings")
    },
}
"""The entries of the menu, and where they are."""
THEMES: Final = ("auto", "light", "dark")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_MOST_FIELDS: Final = 2_000
MOST_BYTES: Final = 4 * 1024 * 1024
"""Of a form: a file of tasks of a million characters, most of them written as they are."""
MOST_ANONYMOUS_BYTES: Final = 64 * 1024
"""Of a form that needs no token."""
_PIECE: Final = 16 * 1024
_SLOWER: Final = 8
"""A form is taken apart in Python: an eighth of the bytes of JSON is large already."""
_LATE: Final = 10.0
"""Seconds that planning may be behind without being worth a banner."""


class PageContext:
    def __init__(self, request: Request, deps: Deps) -> None:
        self.request, self.deps = request, deps
        self.token: Token | None = None
        """The token of the request; None where no token is required."""
        self.now = Instant(0)
        """The store's clock; read once the request is authorized."""
        self.counts: Mapping[str, int] = {}
        """Numbers of tasks, queues and workers for the menu."""
        self.pause: InstallationPause | None = None
        """Who has paused everything, why and since when: every page says it first."""
        self.subject = ""
        """What was changed, for the audit log; else the address that was called."""
        self.action = ""
        """What the audit log calls the change, where the page alone does not say it."""
        self.details: dict[str, Any] = {}
        """More for the audit log: a reason, a count."""
        self.nothing_changed = False
        """Whether the form came to nothing: no line in the audit log."""
        self.most_bytes = MOST_BYTES
        """Of a form."""
        self._flash: str | None = None

    # Who and where

    @property
    def actor(self) -> str | None:
        return None if self.token is None else self.token.name

    @property
    def peer(self) -> str:
        return self.request.client.host if self.request.client is not None else ""

    @property
    def request_id(self) -> str:
        return str(self.request.scope.get(REQUEST_ID, ""))

    def may(self, role: str) -> bool:
        """Whether to show what only that role can do."""
        if not self.deps.asks_for_tokens:
            return True
        return self.token is not None and self.token.role.includes(Role(role))

    @property
    def sees_all(self) -> bool:
        """False: the token has a scope, and only the pages of its tasks and runs are there."""
        return self.token is None or self.token.scope is None

    @cached_property
    def rooms(self) -> dict[str, str]:
        """Those that the visitor may enter."""
        if not self.sees_all:
            return {name: ROOMS[name] for name in ("tasks", "runs")}
        return {name: path for name, path in ROOMS.items() if name != "activity" or self.may("admin")}

    @cached_property
    def path(self) -> str:
        """Of this page, from the dashboard's root."""
        path = str(self.request.scope["path"])
        return path.removeprefix(str(self.request.scope.get("root_path", ""))) or "/"

    @property
    def here(self) -> str:
        query = self.request.url.query
        path = quote(self.path.replace(ENCODED_SLASH, "%2F"), safe="/%")
        return f"{path}?{query}" if query else path

    @cached_property
    def root(self) -> str:
        """The dashboard's root, seen from this page."""
        return "../" * (self.path.count("/") - 1) or "./"

    def link(self, path: str, **query: Any) -> str:
        """An address from the dashboard's root, for `redirect` and `done`."""
        found = [(name, value) for name, value in query.items() if value not in (None, "")]
        return path.removeprefix("/") + (f"?{urlencode(found, doseq=True)}" if found else "")

    def url(self, path: str, **query: Any) -> str:
        """An address of the dashboard, for a page to link to."""
        return self.root + self.link(path, **query)

    @property
    def services(self) -> Services:
        return self.deps.services

    def piece(self, name: str) -> str:
        return str(self.request.path_params[name]).replace(ENCODED_SLASH, "/")

    # How it is to be shown

    @cached_property
    def words(self) -> Translator:
        return Translator(language(wanted_language(self.request.cookies, self.request.headers)))

    @property
    def lang_tag(self) -> str:
        return TAGS[self.words.lang]

    @cached_property
    def theme(self) -> str:
        wanted = self.request.cookies.get("noonbell_theme", "auto")
        return wanted if wanted in THEMES else "auto"

    @cached_property
    def zone(self) -> Zone:
        try:
            return zones.find(unquote(self.request.cookies.get("noonbell_zone", "UTC")))
        except ScheduleError:
            return zones.find("UTC")

    @property
    def has_zone(self) -> bool:
        """Whether the visitor has chosen a zone, or the browser has told its own."""
        return "noonbell_zone" in self.request.cookies

    @cached_property
    def alarm(self) -> str:
        """What every page has to say first: this node cannot do its work, or planning is late."""
        if not self.sees_all:
            return ""
        health = self.deps.health()
        if not health.get("ok", True):
            why = health.get("reason") or (health.get("store") or {}).get("error")
            return self.words("alarm.unwell", why=why or "–")
        lag = (health.get("planner") or {}).get("lag_seconds") or 0
        return self.words("alarm.late", span=i18n.span(int(lag), self.words)) if lag > _LATE else ""

    # What was asked for

    @cached_property
    def query(self) -> dict[str, str]:
        return {name: value.strip() for name, value in self.request.query_params.items() if value.strip()}

    def number(self, name: str, digits: int = 9) -> int | None:
        """A whole number of the query; None for anything else."""
        return whole_number(self.query.get(name, ""), digits)

    def wanted(self, name: str, longest: int = 255) -> str:
        """What is searched for by that name in the query: its beginning, without NULs, which no database is asked for."""
        return self.query.get(name, "").replace("\0", "")[:longest]

    async def form(self) -> list[tuple[str, str]]:
        """The fields of a form, in order, as they were sent."""
        body = await joined(self.request.stream(), self.most_bytes)
        try:
            return await aside(_fields, body, size=len(body) * _SLOWER)
        except (UnicodeDecodeError, ValueError):
            raise InvalidArgument("the form cannot be read; it must be UTF-8, with 2,000 fields at most") from None

    async def fields(self) -> dict[str, str]:
        """The same by name; the last of several wins."""
        return dict(await self.form())

    @property
    def wants_json(self) -> bool:
        """Our own script asks so: it shows the answer without leaving the page."""
        return "application/json" in self.request.headers.get("accept", "")

    # Answers

    def page(self, template: str, status: int = 200, **view: Any) -> Response:
        return HTMLResponse(render.page(self, template, view), status)

    def redirect(self, path: str) -> Response:
        return RedirectResponse(self.root + path.removeprefix("/"), 303)

    def done(
        self,
        text: str,
        to: str | None = None,
        *,
        go: str | None = None,
        undo: str | None = None,
        run: int | None = None,
    ) -> Response:
        """A change was made: say so where the visitor is (`to`, for browsers without scripts), or go elsewhere (`go`).

        `undo` is the address of the button that takes it back, `run` the run that was made.
        """
        if self.wants_json:
            if go is not None:
                self._flash = text
                return JSONResponse({"go": self.url(go)})
            made = {} if run is None else {"open": self.url(f"/runs/{run}")}
            return JSONResponse({"text": text, "undo": None if undo is None else self.url(undo), **made})
        self._flash = text
        return self.redirect(go or to or "/")

    def take_flash(self) -> str | None:
        """What the page before wanted to be said here."""
        text = self.request.cookies.get(FLASH)
        if text is None:
            return None
        self._flash = ""
        return unquote(text)[:500]

    async def note(self, actor: str | None, action: str, subject: str, details: dict[str, Any]) -> None:
        """A line of the audit log, where one is kept."""
        if self.deps.access is None:
            return
        entry = AuditAction(
            actor=actor, action=action, subject=subject, peer=self.peer, request_id=self.request_id, details=details
        )
        await self.deps.access.note(entry)

    def finish(self, answer: Response) -> None:
        """The headers that every page has."""
        answer.headers["content-security-policy"] = POLICY
        answer.headers["referrer-policy"] = "same-origin"
        answer.headers["cross-origin-opener-policy"] = "same-origin"
        answer.headers.setdefault("cache-control", "no-store")
        if self._flash:
            answer.set_cookie(FLASH, quote(self._flash), max_age=60, httponly=True, samesite="strict")
        elif self._flash == "":
            answer.delete_cookie(FLASH, httponly=True, samesite="strict")

    def keep(
        self, answer: Response, name: str, value: str, seconds: int, *, secret: bool, from_elsewhere: bool = False
    ) -> None:
        """A cookie for the folder that this address lies in: the dashboard's root, from an address right below it.

        `from_elsewhere`: it is sent along too when a link of another site leads here.
        """
        answer.set_cookie(
            name,
            value,
            max_age=seconds,
            path=None,
            httponly=secret,
            samesite="lax" if from_elsewhere else "strict",
            secure=self._is_https,
        )

    @property
    def _is_https(self) -> bool:
        """A header of the caller is enough: it makes the own cookie stricter, and nothing else.

        By the host of an https `server.public_url` a browser comes through a proxy, which may say nothing of it.
        """
        said = self.request.headers.get("x-forwarded-proto", "").strip().lower()
        if "https" in (self.request.url.scheme, said):
            return True
        public = urlsplit(self.deps.settings.server.public_url or "")
        return public.scheme == "https" and _host_name(self.request.headers.get("host", "")) == public.hostname


def whole_number(text: str, digits: int = 9) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= digits else None


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """`value`, if it is one of the choices; else InvalidArgument for the field `name`."""
    known = list(choices)
    if value not in known:
        raise InvalidArgument.field(name, f"is {value[:40]!r}; expected one of {', '.join(known)}")
    return value


def _host_name(host: str) -> str | None:
    """Of a `Host` header, without its port; None for what is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _fields(body: bytes) -> list[tuple[str, str]]:
    """As `urllib.parse.parse_qsl` reads them. Of a long field that one would make a list of every escape at once."""
    body.decode("utf-8")  # refuses what is not
    pairs = [each.partition(b"=") for each in body.split(b"&", _MOST_FIELDS) if each]
    if len(pairs) > _MOST_FIELDS:
        raise ValueError
    return [(_unquoted(name), _unquoted(value)) for name, _, value in pairs]


def _unquoted(text: bytes) -> str:
    pieces, start = [], 0
    while start < len(text):
        end = start + _PIECE
        if b"%" in text[end - 2 : end] and end < len(text):
            end = text.rindex(b"%", start, end)  # an escape is not cut in two
        pieces.append(unquote_to_bytes(text[start:end].replace(b"+", b" ")))
        start = end
    return b"".join(pieces).decode("utf-8", "replace")


def as_json(value: Any) -> str:
    """For a page to show: laid out, and with every digit that a number has."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def pretty(text: str | None) -> str:
    """A body as it is read best: JSON laid out, its numbers untouched; anything else as it came."""
    if not text or len(text) > 200_000 or text.lstrip()[:1] not in ("{", "["):
        return text or ""
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, RecursionError):
        return text


def merged(query: Mapping[str, str], **changes: Any) -> dict[str, Any]:
    """The query of a link that changes some of a list's filters; paging begins anew."""
    kept = {name: value for name, value in query.items() if name not in ("page", "cursor")}
    return {name: value for name, value in {**kept, **changes}.items() if value not in (None, "")}


COOKIE: Final = "noonbell_session"
SECONDS: Final = 12 * 3600
"""The longest that a session lasts."""

_MOST_ENDED: Final = 10_000
_COOKIE = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9a-f]{64})", re.ASCII)


class Sessions:
    """Sessions of browsers that signed in with a token: a signed cookie, bound to that token.

    The cookie names the token and when the session ends; the signature uses `auth.session_key`, or a key made when the
    process starts. Each request checks that the token is still valid, so revoking it ends its sessions within seconds, on
    every node. Signing out removes the cookie; this node refuses a copy of it from then on, other nodes until it expires do
    not.
    """

    def __init__(self, access: Access | None, key: str | None = None) -> None:
        self._access = access
        self._key = secrets.token_bytes(32) if key is None else hashlib.sha256(key.encode()).digest()
        self._now = SystemClock().now
        self._ended: dict[str, int] = {}
        """The marks of sessions that were ended before their time, and when that would have been; the oldest first."""

    def begin(self, token: Token) -> str:
        """A new cookie for a browser that has shown that token."""
        until = self._now() + SECONDS * SECOND
        return f"{token.id}.{until}.{self._sign(token.id, until)}"

    def seal(self, attempt: SignInAttempt) -> str:
        """For a cookie that only these sessions can have written."""
        text = base64.urlsafe_b64encode(msgspec.json.encode(attempt)).decode()
        return f"{text}.{self._mark(f'sign-in {text}')}"

    def opened(self, cookie: str) -> SignInAttempt | None:
        """The inverse; None for what `seal` did not make."""
        text, _, mark = cookie.rpartition(".")
        if not hmac.compare_digest(mark.encode(), self._mark(f"sign-in {text}").encode()):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=SignInAttempt)

    async def who(self, request: HTTPConnection) -> Token | None:
        """The token of the session; None without one, or after its end."""
        known = self._known(request)
        if known is None or self._access is None:
            return None
        return await self._access.by_id(known[0])

    def end(self, request: HTTPConnection) -> None:
        """Refuse this request's cookie from now on."""
        known = self._known(request)
        if known is None:
            return
        now = self._now()
        self._ended = {mark: until for mark, until in self._ended.items() if until > now}
        while len(self._ended) >= _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[known[2]] = known[1]

    def _known(self, request: HTTPConnection) -> tuple[int, int, str] | None:
        """The token, the end and the mark of a session that goes on."""
        found = _COOKIE.fullmatch(request.cookies.get(COOKIE, ""))
        if found is None:
            return None
        token_id, until, mark = int(found[1]), int(found[2]), found[3]
        is_ours = hmac.compare_digest(mark, self._sign(token_id, until))
        return (token_id, until, mark) if is_ours and until > self._now() and mark not in self._ended else None

    def _sign(self, token_id: int, until: int) -> str:
        return self._mark(f"session {token_id} {until}")

    def _mark(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


_FRESH: Final = 5 * SECOND


class Counts:
    """How many tasks, queues and workers there are, for the menu: counted at most once in a few seconds."""

    def __init__(self) -> None:
        self._counted_at = 0
        self._known: Mapping[str, int] = {}

    async def at(self, now: Instant, services: Services) -> Mapping[str, int]:
        """By menu entry."""
        if not 0 <= now - self._counted_at < _FRESH:
            self._counted_at = now  # before counting: requests that come meanwhile use the last counts
            tasks = await services.tasks.page(TaskQuery(page_size=1))
            queues, workers = await services.queues.count(), await services.store.workers()
            self._known = {"tasks": tasks.total or 0, "queues": queues, "workers": len(workers)}
        return self._known


TryCall: TypeAlias = Callable[[TaskSpec], Awaitable[Outcome]]
"""Call a task's HTTP target once, without a run: what "Test call" does before anything is saved."""


@dataclass(frozen=True, slots=True)
class Deps:
    services: Services
    settings: Settings
    health: Callable[[], Mapping[str, Any]]
    """What the node says of itself."""
    sessions: Sessions
    is_same_origin: Callable[[Headers], bool]
    """Whether the page that made a browser send a request came from where it is sent to."""
    access: Access | None = None
    """None: no token is required, and there is no audit log."""
    webhooks: Subscriptions | None = None
    alerts: Alerts | None = None
    asks_for_tokens: bool = False
    exposed: bool = False
    """Whether others than this machine can reach it."""
    try_call: TryCall | None = None
    sign_in: SignIn | None = None
    """With an OpenID provider; None: with tokens alone."""
    counts: Counts = field(default_factory=Counts)
