"""What commands print: tables for people, JSON, YAML and lines for programs."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Self, TypeVar
from zoneinfo import ZoneInfo

import click

from noonbell.clock import SystemClock, to_datetime

F = TypeVar("F", bound=Callable[..., Any])

FORMATS: Final = ("table", "json", "yaml", "ndjson", "name")
Row = Mapping[str, Any]
Cell = Callable[[Row], str]

_COLOURS: Final = {
    "SUCCESS": "green",
    "CALLBACK_SUCCESS": "green",
    "FAILED": "red",
    "TIMEOUT": "red",
    "FAILED_TIMEOUT": "red",
    "ERROR": "red",
    "lost": "red",
    "RUNNING": "blue",
    "CALLBACK_PENDING": "magenta",
    "RETRYING": "yellow",
    "DISABLED": "yellow",
    "draining": "yellow",
}

output_option: Callable[[F], F] = click.option(
    "-o",
    "output",
    default=lambda: os.environ.get("NOONBELL_OUTPUT", "table"),
    type=click.Choice(FORMATS),
    help="table for people; json, yaml, ndjson, name for programs.",
)


def show_list(rows: Iterable[Row], columns: Mapping[str, Cell], output: str, *, name: str = "name") -> None:
    """A list. `name` is the field that `-o name` prints. An empty one is an empty table, or []."""
    if output == "ndjson":
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
        return
    found = list(rows)
    match output:
        case "json":
            click.echo(json.dumps(found, ensure_ascii=False, indent=2))
        case "yaml":
            click.echo(_yaml(found), nl=False)
        case "name":
            for row in found:
                click.echo(row[name])
        case _:
            shown = [shown_safely(row) for row in found]
            for line in table(list(columns), [[cell(row) for cell in columns.values()] for row in shown]):
                click.echo(line)


def show_one(
    value: Any, output: str, *, name: str = "name", lines: Callable[[Any], Iterable[str]] | None = None
) -> None:
    """One thing: as `lines` say it, or field by field."""
    match output:
        case "json":
            click.echo(json.dumps(value, ensure_ascii=False, indent=2))
        case "ndjson":
            click.echo(json.dumps(value, ensure_ascii=False))
        case "yaml":
            click.echo(_yaml(value), nl=False)
        case "name":
            click.echo(value[name])
        case _:
            for line in (lines or fields)(shown_safely(value, lines=True)):
                click.echo(line)


def fields(value: Mapping[str, Any]) -> list[str]:
    """A line for each field that says something."""
    said = {key: value[key] for key in value if value[key] not in (None, "", {}, [])}
    wide = max(map(len, said), default=0)
    return [f"{key:<{wide}}  {_value(key, each)}" for key, each in said.items()]


_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_MOMENTS: Final = ("_at", "_time", "at", "since", "until", "slot")
"""How the names of fields end that are moments."""


def _value(key: str, value: Any) -> str:
    if isinstance(value, str) and key.endswith(_MOMENTS) and _MOMENT.fullmatch(value):
        return ago(value)
    return _plain(value)


def explained(answer: Mapping[str, Any]) -> list[str]:
    """The answer of `explain`, for tasks and runs: its sentence, then what else it has."""
    cause = "" if answer["cause"] == "ran" else f"{answer['cause']}: "  # "It ran", the sentence says
    rest = {name: value for name, value in answer.items() if name not in ("message", "cause")}
    return [f"{cause}{answer['message']}", *fields(rest)]


def shown_safely(value: Any, *, lines: bool = False) -> Any:
    """What tasks and targets said, as a terminal may show it: nothing in it moves the cursor, sets a title or turns text
    around. `lines` lets line breaks and tabs stand.
    """
    match value:
        case str():
            kept = "\n\t" if lines else ""
            return value if value.isprintable() else "".join(c if c.isprintable() or c in kept else "�" for c in value)
        case Mapping():
            return {key: shown_safely(each, lines=lines) for key, each in value.items()}
        case list():
            return [shown_safely(each, lines=lines) for each in value]
        case _:
            return value


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they must be; a Chinese character counts as two."""
    lines = [[title.upper() for title in head], *rows]
    widths = [max(width(line[place]) for line in lines) for place in range(len(head))]
    return ["  ".join(_padded(cell, size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in lines]


def width(text: str) -> int:
    """The columns that a text takes in a terminal; colours take none."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in click.unstyle(text)
    )


def _padded(text: str, size: int) -> str:
    return text + " " * (size - width(text))


def coloured(status: str) -> str:
    colour = _COLOURS.get(status)
    return click.style(status, fg=colour) if colour and is_colourful() else status


def is_colourful() -> bool:
    if "NO_COLOR" in os.environ:
        return False
    return sys.stdout.isatty() or os.environ.get("CLICOLOR_FORCE", "0") != "0"


def ago(moment: str | None, now: datetime | None = None, *, past: str = "{} ago") -> str:
    """A time as people want it: how long ago or how soon, then the time itself in their zone."""
    if not moment:
        return "–"
    then = datetime.fromisoformat(moment)
    seconds = int(((now or to_datetime(SystemClock().now())) - then).total_seconds())
    near = "now" if seconds == 0 else past.format(_span(seconds)) if seconds > 0 else f"in {_span(-seconds)}"
    return f"{near} ({moment_text(moment)})"


def moment_text(moment: str) -> str:
    """`2026-11-15 18:00:00+00:00`, on the clock of NOONBELL_TZ or of the machine: how every sentence and table writes a moment.

    A column or a line that is a moment alone says before it how far away that is: `ago`. Programs get RFC 3339.
    """
    zone, then = os.environ.get("NOONBELL_TZ"), datetime.fromisoformat(moment)
    local = then.astimezone(ZoneInfo(zone)) if zone else then.astimezone()
    return local.replace(microsecond=0).isoformat(" ")


def next_fire(moment: str | None, now: datetime | None = None) -> str:
    """When a task fires next; a moment that has passed is one that no node has planned yet."""
    return ago(moment, now, past="due {} ago")


def cut(text: str, most: int) -> str:
    """The text, shortened to `most` characters with an ellipsis at its end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _span(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def exact_span(seconds: float) -> str:
    """A span that was asked for, without rounding: `2 s`, `1 h 30 m`, `250 ms`."""
    if seconds != round(seconds):
        return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"
    rest, told = round(seconds), list[str]()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, rest = divmod(rest, size)
        told += [f"{count} {unit}"] if count else []
    return " ".join(told) or "0 s"


def duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else _span(round(milliseconds / 1000))


def terminal_language() -> str:
    """`en` or `zh`: as the first variable that says something has it."""
    names = ("NOONBELL_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
    said = next(filter(None, map(os.environ.get, names)), "en")
    return "zh" if said.lower().startswith("zh") else "en"


def failure_said(ended: Row) -> str:
    """What went wrong with a run or an attempt, in the language of the terminal as far as Noonbell says it."""
    message = str(ended["error_message"] or "")
    if not message or terminal_language() == "en":
        return message
    from noonbell.service.translation import Translator, failure_words

    return failure_words(message, ended.get("error_details"), Translator(terminal_language()))


def talk(text: str) -> None:
    """For people only: never on stdout, where data is."""
    click.echo(text, err=True)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _yaml(value: Any) -> str:
    from noonbell import yaml_text

    return yaml_text.write(value)


class ProgressBar:
    """How far it is, on stderr: a bar that moves on a terminal, else a line for each quarter."""

    def __init__(self) -> None:
        self._on_terminal, self._shown = sys.stderr.isatty(), -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def move(self, part: float) -> None:
        percent = int(part * 100)
        if not self._on_terminal:
            percent -= percent % 25
        if percent == self._shown or (not self._on_terminal and percent == 0):
            return
        self._shown = percent
        if self._on_terminal:
            click.echo(f"\r  {percent:>3} %  [{'#' * (percent // 4):<25}]", nl=False, err=True)
        else:
            click.echo(f" {percent:>3} %", err=True)

    def say(self, line: str) -> None:
        self._clear()
        click.echo(line)
        sys.stdout.flush()

    def remark(self, line: str) -> None:
        """Beside the bar, on stderr; the bar comes back with its next move."""
        self._clear()
        click.echo(line, err=True)

    def _clear(self) -> None:
        if self._on_terminal and self._shown >= 0:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = -1
