"""Templates: escaped by default, strict about what is missing, with the few parts that every page uses."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from noonbell.version import __version__
from noonbell.web import assets, findings, times
from noonbell.web.activity import deeds
from noonbell.web.badges import badge, mark_of, tone_of, word_of
from noonbell.web.icons import icon
from noonbell.web.words import LANGUAGES

if TYPE_CHECKING:
    from noonbell.web.visit import Visit


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
    made.globals.update(icon=icon, tone_of=tone_of, mark_of=mark_of, languages=LANGUAGES, version=__version__)
    return made


def page(visit: Visit, template: str, view: dict[str, Any]) -> str:
    return environment().get_template(template).render({**_parts(visit), **view})


def _parts(visit: Visit) -> dict[str, Any]:
    words = visit.words

    def time(value: int | str | None, relative: bool = True) -> Markup:
        """The one way in which a moment is shown."""
        return Markup("–") if value is None else moment(visit, value, relative=relative)

    return {
        "visit": visit,
        "t": words,
        "url": visit.url,
        "asset": lambda name: visit.url(assets.address(name)),
        "time": time,
        "span": lambda seconds: times.span(seconds, words),
        "took": lambda value: times.milliseconds(value, words),
        "badge": lambda status: badge(str(status), words),
        "word_of": lambda status: word_of(str(status), words),
        "word_of_deed": lambda action: deeds.word_of_deed(action, words),
        "word_of_event": lambda type_: deeds.word_of_event(type_, words),
        "said_of": lambda finding: findings.said(finding, words),
        "flash": visit.take_flash(),
    }


def moment(visit: Visit, value: int | str, *, relative: bool) -> Markup:
    shown = times.shown(value, visit.now, visit.zone, visit.words)
    exact = Markup(
        '<time datetime="{iso}" title="{whole}\n{iso}" data-copy="{iso}">{local} <span class="offset">{offset}</span></time>',
    ).format(iso=shown.iso, whole=shown.whole, local=shown.local, offset=shown.offset)
    if not relative:
        return Markup('<span class="time">{}</span>').format(exact)
    return Markup('<span class="time"><span class="relative" data-at="{}">{}</span> {}</span>').format(
        shown.milliseconds, shown.relative, exact
    )
