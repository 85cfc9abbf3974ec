"""Every time that a page shows, wherever it stands: in a `<time>`, on an axis, in the title of a bar, in a label.

What is in a `<time>` says itself which instant it is. Of all else, the same page is read on two clocks: what is a time of
day on the one must be the same moment on the other, or say by the name of its zone that it is on no clock of the reader's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from playwright.async_api import Page

TOKYO: Final = ZoneInfo("Asia/Tokyo")
AHEAD: Final = 9 * 60
"""Minutes of Tokyo before UTC."""
_DAY: Final = 24 * 60
_CLOCK = re.compile(r"(?<![\d:.+\-−])([01]?\d|2[0-3]):([0-5]\d)(?!\d)")
_NAMES_ITS_ZONE = re.compile(r"\bUTC\b|\b[A-Z][A-Za-z_]+/[A-Z][A-Za-z_]+|T[\d:.]+(?:Z|[+-]\d\d:\d\d)")

READ: Final = """(async (path) => {
    const answer = path === null ? null : await fetch(path, {headers: {accept: "text/html"}});
    const whole = answer ? new DOMParser().parseFromString(await answer.text(), "text/html") : document;
    const main = whole.querySelector("main");
    if (!main) return {status: answer.status, loose: [], times: [], links: [], ticks: []}; // a file, no page
    // Not looked at: what is raw; axes and calendars, which are measured; a form, whose times are those of its own zone.
    const raw = "time[datetime], pre, code, textarea, script, style, option, .ticks svg, table.month";
    const isForm = (at) => at.closest("#task-form") && !at.closest("#preview");
    const near = "td, th, li, p, dd, summary, legend, h1, h2, .field";
    const loose = [];
    const note = (text, at) => {
        if (text.trim()) loose.push([text, /\\d:\\d/.test(text) && at.closest(near)?.textContent || text]);
    };
    const walk = document.createTreeWalker(main, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    while (walk.nextNode()) {
        const node = walk.currentNode;
        const at = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
        if (at.closest(raw) || isForm(at)) continue;
        if (node === at) {
            for (const name of ["title", "aria-label", "alt"]) note(at.getAttribute(name) ?? "", at);
            if (at.matches(".moment > input")) note(at.getAttribute("value") ?? "", at);
        } else note(node.nodeValue, at);
    }
    const times = [...main.querySelectorAll("time[datetime]")].map((each) => [each.getAttribute("datetime"), each.textContent]);
    const links = [...whole.querySelectorAll("a[href]")].map((each) => new URL(each.getAttribute("href"),
        new URL(path ?? location.href, location.href)).href);
    const span = main.querySelector("[data-since]")?.dataset;
    const ticks = span ? [...main.querySelectorAll(".ticks svg text")].map((each) => {
        const from = Number(span.since), to = Number(span.until);
        return [from + (to - from) * parseFloat(each.getAttribute("x")) / 100, each.textContent];
    }) : [];
    return {status: answer?.status ?? 200, loose, times, links, ticks};
})"""


@dataclass(frozen=True)
class Reading:
    status: int
    loose: list[tuple[str, str]]
    """A text that is in no `<time>`, and what stands around it."""
    times: list[tuple[str, str]]
    """The instant, and how it is shown."""
    ticks: list[tuple[float, str]]
    """Of an axis: the instant in milliseconds by its place, and what is written there."""
    links: list[str]


async def read(page: Page, path: str | None = None) -> Reading:
    """What a page of the same site says; without a path, the page that is open."""
    told: dict[str, Any] = await page.evaluate(f"(path) => {READ}(path)", path)
    pairs = {name: [(first, second) for first, second in told[name]] for name in ("loose", "times", "ticks")}
    return Reading(told["status"], pairs["loose"], pairs["times"], pairs["ticks"], told["links"])


def wrong_times(reading: Reading) -> list[str]:
    """What is in a `<time>` and not on Tokyo's clock."""
    found = []
    today = datetime.now(TOKYO).date()
    for iso, text in reading.times:
        local = datetime.fromisoformat(iso).astimezone(TOKYO)
        is_right = f"{local:%H:%M}" in text and "+09:00" in text
        if local.date() != today:
            is_right = is_right and re.search(rf"(?<!\d){local.day}(?!\d)", text.split(":")[0]) is not None
        found += [] if is_right else [f"{iso} is shown as {text!r}"]
    return found


def wrong_ticks(reading: Reading) -> list[str]:
    """What is written along an axis and is not what Tokyo's clock shows there; a place is good for half a minute."""
    found = []
    for milliseconds, text in reading.ticks:
        local = datetime.fromtimestamp(round(milliseconds / 60_000) * 60, TOKYO)
        near = [datetime.fromtimestamp(local.timestamp() + off * 60, TOKYO) for off in range(-6, 7)]
        if text not in {said for each in near for said in (f"{each:%H:%M}", f"{each.day} {each:%b}")}:
            found.append(f"{text!r} stands at {local}")
    return found


def wrong_texts(home: Reading, tokyo: Reading) -> list[str]:
    """Times of day in texts that do not go with the reader's clock, and do not say whose they go with."""
    if len(home.loose) != len(tokyo.loose):
        return [f"the page says {len(home.loose)} things on one clock and {len(tokyo.loose)} on the other"]
    found = []
    for (here, around), (there, _) in zip(home.loose, tokyo.loose, strict=True):
        ours, theirs = _minutes(here), _minutes(there)
        if not ours and not theirs:
            continue
        moved = len(ours) == len(theirs) and all(
            abs((b - a - AHEAD + 5) % _DAY - 5) <= 2 for a, b in zip(ours, theirs, strict=True)
        )
        stays = ours == theirs and _NAMES_ITS_ZONE.search(around) is not None
        if not moved and not stays:
            found.append(f"{here!r} becomes {there!r}")
    return found


def _minutes(text: str) -> list[int]:
    return [int(hour) * 60 + int(minute) for hour, minute in _CLOCK.findall(text)]
