"""A visit: one request of a page with all that a page needs of it, and the ways to answer.

Addresses are written relative to the page (`../tasks/1`), so the dashboard works under any prefix, and behind any proxy,
without being told of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote, unquote_to_bytes, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument, ScheduleError
from noonbell.model.access import Role, Token
from noonbell.service.json_text import aside, joined
from noonbell.service.preview import language
from noonbell.web import render, times
from noonbell.web.site import Site
from noonbell.web.words import TAGS, Words
from noonbell.when import zones
from noonbell.when.zones import Zone

FLASH: Final = "noonbell_flash"
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
ENCODED_SLASH: Final = "\x00"
"""Stands in a path for `%2F`: the edge of the application sees to that."""


class Visit:
    def __init__(self, request: Request, site: Site) -> None:
        self.request, self.site = request, site
        self.token: Token | None = None
        """Who asks; None while nobody has to say."""
        self.now = Instant(0)
        """The store's clock, once it is known that the visitor may be here."""
        self.counts: Mapping[str, int] = {}
        """What there is in the rooms, as far as it is counted."""
        self.subject = ""
        """What was changed, for the audit log; else the address that was called."""
        self.deed = ""
        """What the audit log calls the change, where the page alone does not say it."""
        self.details: dict[str, Any] = {}
        """What else the audit log is to have of it: a reason, how many it was."""
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
        return str(self.request.scope.get("noonbell.request_id", ""))

    def may(self, role: str) -> bool:
        """Whether to show what only that role can do."""
        if not self.site.asks_for_tokens:
            return True
        return self.token is not None and self.token.role.includes(Role(role))

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

    def url(self, path: str, **query: Any) -> str:
        """An address of the dashboard, for a page to link to."""
        found = [(name, value) for name, value in query.items() if value not in (None, "")]
        return self.root + path.removeprefix("/") + (f"?{urlencode(found, doseq=True)}" if found else "")

    def piece(self, name: str) -> str:
        return str(self.request.path_params[name]).replace(ENCODED_SLASH, "/")

    # How it is to be shown

    @cached_property
    def words(self) -> Words:
        wanted = self.request.cookies.get("noonbell_lang") or self.request.headers.get("accept-language", "en")
        return Words(language(wanted[:100]))

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
        health = self.site.health()
        if not health.get("ok", True):
            why = health.get("reason") or (health.get("store") or {}).get("error")
            return self.words("alarm.unwell", why=why or "–")
        lag = (health.get("planner") or {}).get("lag_seconds") or 0
        return self.words("alarm.late", span=times.span(int(lag), self.words)) if lag > _LATE else ""

    # What was asked for

    @cached_property
    def query(self) -> dict[str, str]:
        return {name: value.strip() for name, value in self.request.query_params.items() if value.strip()}

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

    def done(self, text: str, to: str | None = None, *, go: str | None = None, undo: str | None = None) -> Response:
        """A change was made: say so where the visitor is (`to`, for browsers without scripts), or go elsewhere (`go`).

        `undo` is the address of the button that takes it back.
        """
        if self.wants_json:
            if go is not None:
                self._flash = text
                return JSONResponse({"go": self.url(go)})
            return JSONResponse({"text": text, "undo": None if undo is None else self.url(undo)})
        self._flash = text
        return self.redirect(go or to or "/")

    def take_flash(self) -> str | None:
        """What the page before wanted to be said here."""
        text = self.request.cookies.get(FLASH)
        if text is None:
            return None
        self._flash = ""
        return unquote(text)[:500]

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

    def keep(self, answer: Response, name: str, value: str, seconds: int, *, secret: bool) -> None:
        """A cookie for the folder that this address lies in: the dashboard's root, from an address right below it."""
        answer.set_cookie(
            name,
            value,
            max_age=seconds,
            path=None,
            httponly=secret,
            samesite="strict",
            secure=self._is_https,
        )

    @property
    def _is_https(self) -> bool:
        """A header of the caller is enough: it makes the own cookie stricter, and nothing else."""
        return "https" in (self.request.url.scheme, self.request.headers.get("x-forwarded-proto", "").strip().lower())


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
