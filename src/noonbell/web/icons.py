"""Small pictures, drawn for a square of 16: lines in the colour of the text around them."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

PATHS: Final[dict[str, str]] = {
    # statuses: told apart by shape, not by colour alone
    "scheduled": "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8M8 4.5V8l2.4 1.6",
    "queued": "M3 4.5h10M3 8h10M3 11.5h10",
    "running": "M8 2a6 6 0 1 1-6 6",
    "callback": "M4.5 2h7M4.5 14h7M5 2c0 3.5 6 4.5 6 6s-6 2.500-6 6M11 2c0 3.500-6 4.500-6 6s6 2.500 6 6",
    "retrying": "M13 8a5 5 0 1 1-1.600-3.700M13 2.200v2.800h-2.800",
    "ok": "M3 8.500 6.500 12 13 4.500",
    "failed": "M5.200 1.800h5.600l3.400 3.400v5.600l-3.400 3.400H5.200l-3.400-3.400V5.200zM5.800 5.800l4.400 4.400M10.200 5.800l-4.400 4.400",
    "timeout": "M8 1.800a6.200 6.200 0 1 0 0 12.400A6.200 6.200 0 0 0 8 1.800M6 6l4 4M10 6l-4 4",
    "missed": "M8 1.800 14.200 8 8 14.200 1.800 8z",
    "skipped": "M3 8h10",
    "canceled": "M8 1.800a6.200 6.200 0 1 0 0 12.400A6.200 6.200 0 0 0 8 1.800M3.800 12.200l8.400-8.400",
    "paused": "M5.500 3v10M10.500 3v10",
    "warn": "M8 2 14.500 13.500h-13zM8 6.500v3M8 11.500v.2",
    # the rooms
    "overview": "M2 8.500 8 3l6 5.500M4 7.500V13h8V7.500",
    "tasks": "M2.500 3.500h2v2h-2zM7 4.500h7M2.500 10.500h2v2h-2zM7 11.500h7",
    "runs": "M5 3l8 5-8 5z",
    "timeline": "M2 3.500h6M5 8h7M9 12.500h5M2 1v14",
    "queues": "M2 4h12M2 8h9M2 12h6",
    "workers": "M3 3h10v4H3zM3 9h10v4H3zM5.500 5h.2M5.500 11h.2",
    "activity": "M2 8h3l2-5 3 10 2-5h2",
    "settings": "M8 5.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5M8 1.500v2M8 12.500v2M1.500 8h2M12.500 8h2M3.400 3.400l1.400 1.400"
    "M11.200 11.200l1.400 1.400M3.400 12.600l1.400-1.400M11.200 4.800l1.400-1.400",
    # acts
    "search": "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9M10.300 10.300 13.500 13.500",
    "copy": "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
    "close": "M4 4l8 8M12 4l-8 8",
    "next": "M6 3l5 5-5 5",
    "previous": "M10 3 5 8l5 5",
    "more": "M3 8h.1M8 8h.1M13 8h.1",
    "bell": "M4 11V7.500a4 4 0 0 1 8 0V11l1.500 1.500h-11zM6.800 14h2.400",
}


def icon(name: str) -> Markup:
    """Hidden from those who are read to: a word stands beside it."""
    return Markup('<svg class="icon icon-{}" viewBox="0 0 16 16" aria-hidden="true"><path d="{}"/></svg>').format(
        name, PATHS[name]
    )
