"""Options that several commands share, and the settings that they add up to."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from noonbell.cli.root import EXIT_FAILED

if TYPE_CHECKING:
    from noonbell.model.access import Head
    from noonbell.settings import Loaded

F = TypeVar("F", bound=Callable[..., Any])

config_option: Callable[[F], F] = click.option(
    "--config",
    "files",
    multiple=True,
    metavar="FILE",
    help="A settings file, YAML or TOML; may be repeated, later files win.",
)
store_option: Callable[[F], F] = click.option(
    "--store", metavar="URL", help="The store: sqlite:///FILE, postgresql://…, mysql://…"
)
new_option: Callable[[F], F] = click.option(
    "--new",
    is_flag=True,
    help="Create a store under store.table_prefix or store.schema next to the one already in the database.",
)


log_level_option: Callable[[F], F] = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Log level: logging.level of the settings [info].",
)


SPAN_FORMS: Final = "30s, 5m, 1h30m, or a number of seconds"
"""What every option that is a span of time takes; docs/reference/cli.md says the same."""


def seconds_in(text: str, *, is_zero_allowed: bool = True) -> float:
    """`30`, `30s`, `5m` and `1h30m` as seconds: the one rule for spans of time. ValueError says what was expected."""
    from noonbell.settings.kinds import seconds_of

    try:
        seconds = seconds_of(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not is_zero_allowed):
        least = "" if is_zero_allowed else ", above 0"
        raise ValueError(f"is {text!r}; expected {SPAN_FORMS}{least}")
    return seconds


_BARE: Final = "noonbell.bare_spans"
"""In the context of a command: the seconds of each option that got a bare number."""


def is_bare(text: str) -> bool:
    """Whether a span has no unit."""
    return not text.strip()[-1:].isalpha()


def say_bare_spans(**meant: str) -> None:
    """On stderr, what was understood of options that got a bare number: `starts in 2 s`. `meant`: by option, the words before it."""
    from noonbell.cli.output import exact_span, talk

    given = click.get_current_context().meta.get(_BARE, {})
    for option, words in meant.items():
        if option in given:
            talk(f"{words} {exact_span(given[option])}")


def span_option(*names: str, is_zero_allowed: bool = True, **more: Any) -> Callable[[F], F]:
    """An option that is a number of seconds, given as `30`, `30s`, `5m` or `1h30m`."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        try:
            seconds = seconds_in(value, is_zero_allowed=is_zero_allowed)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None
        if is_bare(value):
            context.meta.setdefault(_BARE, {})[parameter.name] = seconds
        return seconds

    return click.option(*names, metavar="SPAN", callback=read, **more)


def say_default_store(loaded: Loaded) -> None:
    """On stderr: which store is looked at, where nobody has named one. In each folder the default is another file."""
    from noonbell.cli.output import talk
    from noonbell.settings.kinds import shown_store_address

    if loaded.origins["store.url"] == "default":
        talk(f"no store was named: this is {shown_store_address(loaded.settings.store.url)}")


def zone_hint(name: str) -> str:
    """The end of an error about a time zone that is not known: names that are near, by the whole name or by the city."""
    import difflib
    from zoneinfo import available_timezones

    zones = sorted(available_timezones())
    by_city = {zone.rpartition("/")[2].lower(): zone for zone in zones}
    by_name = {zone.lower(): zone for zone in zones}
    asked = name.lower().replace(" ", "_")
    near = difflib.get_close_matches(asked, by_name, n=2, cutoff=0.8)
    cities = difflib.get_close_matches(asked.rpartition("/")[2], by_city, n=2, cutoff=0.8)
    found = list(dict.fromkeys(by_city[each] for each in cities)) or [by_name[each] for each in near]
    return f"; did you mean {' or '.join(found[:2])}?" if found else ""


def interval(text: str) -> dict[str, Any]:
    """`--every 10`, `10s`, `5m` or `1h30m` as a schedule, in the largest unit that divides it; as it stands where it has one unit."""
    from noonbell.when.interval import UNITS, from_short

    found = from_short(text)
    if found is not None and found["every"] > 0:
        return found
    try:
        seconds = seconds_in(text, is_zero_allowed=False)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--every") from None
    if seconds != round(seconds):
        said = f"is {text!r}, and a schedule has whole seconds; expected {SPAN_FORMS}, above 0"
        raise click.BadParameter(said, param_hint="--every")
    whole = round(seconds)
    # A bare number stays in seconds: who wrote 300 reads "every 300 seconds" back.
    unit = (
        "second"
        if text.strip().isdecimal()
        else max((u for u in UNITS if whole % UNITS[u] == 0), key=UNITS.__getitem__)
    )
    return {"type": "interval", "every": whole // UNITS[unit], "unit": unit}


def confirm(question: str, *, refused: str) -> None:
    """Say `refused` and end with exit code 1 unless the answer on stdin is yes.

    UsageError, naming --yes, where stdin is no terminal and holds no answer.
    """
    try:
        is_meant = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # ends the line of the question
        raise click.UsageError("there is no terminal to ask for confirmation; add --yes to confirm") from None
    if not is_meant:
        click.echo(refused, err=True)
        raise click.exceptions.Exit(EXIT_FAILED)


def text_of(file: str, hint: str = "-f") -> str:
    """What a file holds, without the mark that Windows puts before UTF-8; `-` is stdin. BadParameter names the option `hint`."""
    name = "stdin" if file == "-" else file
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise click.BadParameter(f"cannot read {name}: {error.strerror or error}", param_hint=hint) from None
    except UnicodeDecodeError as error:
        said = f"it is not UTF-8 at byte {error.start}; convert it first: iconv -f ENCODING -t UTF-8"
        raise click.BadParameter(f"cannot read {name}: {said}", param_hint=hint) from None


def open_for_writing(file: str, hint: str, mode: str = "w") -> IO[Any]:
    """`-` is stdout. BadParameter names the option `hint`. To be entered with `with`, which leaves stdout open."""
    try:
        return click.open_file(file, mode, encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"cannot write {file}: {error.strerror or error}", param_hint=hint) from None


def _heads(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> list[Head]:
    from noonbell.model.access import Head

    try:
        return [Head.read(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


expect_head_option: Callable[[F], F] = click.option(
    "--expect-head",
    "heads",
    multiple=True,
    metavar="N:HASH",
    callback=_heads,
    help="An entry that the audit log must have, from `audit log head` in the server's log; may be repeated.",
)


def quiet_hours(texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """`22:00-06:00`, `sat,sun 00:00-12:00`, or a JSON object with the fields of quiet hours. BadParameter names --quiet."""
    found = []
    for text in texts:
        if text.lstrip().startswith("{"):
            try:
                found.append(json.loads(text))
            except json.JSONDecodeError as error:
                raise click.BadParameter(f"is not JSON: {error}", param_hint="--quiet") from None
            continue
        days, _, span = text.strip().rpartition(" ")
        begin, dash, end = span.partition("-")
        if not dash:
            said = f"is {text!r}; expected 22:00-06:00, 'sat,sun 00:00-12:00', or a JSON object"
            raise click.BadParameter(said, param_hint="--quiet")
        hours: dict[str, Any] = {"from": begin, "to": end}
        found.append(hours | ({"days": [day.strip() for day in days.split(",")]} if days else {}))
    return found


quiet_option: Callable[[F], F] = click.option(
    "--quiet",
    multiple=True,
    metavar="HOURS",
    help="Quiet hours: 22:00-06:00, 'sat,sun 00:00-12:00', or as JSON; may be repeated.",
)


label_option = click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="A label of its workers, for `worker_labels` of tasks; may be repeated.",
)


def label_flags(labels: tuple[str, ...]) -> dict[str, Any]:
    """The setting that `--label` gives; none, where it was not given."""
    if not labels:
        return {}
    wrong = next((label for label in labels if not label.partition("=")[0] or "=" not in label), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not NAME=VALUE", param_hint="--label")
    return {"jobs__worker_labels": {name: value for name, _, value in (label.partition("=") for label in labels)}}


def load_settings(files: tuple[str, ...], **flags: Any) -> Loaded:
    """Flags are named `section__key`; None is one that was not given."""
    from noonbell.settings import load

    return load(files, os.environ, {name.replace("__", "."): value for name, value in flags.items()})
