"""`noonbell config`: what the settings are, where each comes from, and whether they hold."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import noonbell
from noonbell.cli.options import config_option, load_settings, store_option
from noonbell.cli.root import NounGroup
from noonbell.errors import InvalidArgument, SettingsError

if TYPE_CHECKING:
    from noonbell.settings import Loaded, Settings


@click.group("config", cls=NounGroup)
def config_command() -> None:
    """Show and check the settings."""


@config_command.command("show")
@config_option
@store_option
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("-o", "output", default="yaml", type=click.Choice(["yaml", "json"]), help="The format.")
def show(files: tuple[str, ...], store: str | None, origin: bool, output: str) -> None:
    """Print the settings in force; secrets are masked."""
    loaded = load_settings(files, store__url=store)
    if origin:
        click.echo(_with_origins(loaded, output))
    else:
        click.echo(_whole(loaded, output), nl=False)


@config_command.command("check")
@config_option
@store_option
def check(files: tuple[str, ...], store: str | None) -> None:
    """Check all settings, including tasks, jobs and alerts; prints one line for each problem."""
    loaded = load_settings(files, store__url=store)
    _check_declared(loaded.settings)
    chosen = sum(origin != "default" for origin in loaded.origins.values())
    click.echo(f"the settings are valid: {chosen} set, the rest at their defaults", err=True)


def _check_declared(settings: Settings) -> None:
    """SettingsError names every problem of the tasks, jobs and alerts that the files declare, as `serve` would."""
    from noonbell.alerts.service import read_declared
    from noonbell.cli.task_files import check_tasks
    from noonbell.service.service_levels import read_defaults

    problems: dict[str, Any] = {}
    for read in (
        lambda: check_tasks([dict(declared.fields) for declared in settings.tasks]),
        lambda: read_declared(settings.alerts),
        lambda: read_defaults(settings.sla),
        lambda: _check_jobs(settings),
    ):
        try:
            read()
        except (InvalidArgument, SettingsError) as error:
            problems |= error.details
    if problems:
        raise SettingsError.fields(problems)


def _check_jobs(settings: Settings) -> None:
    if not settings.jobs.jobs:
        return
    import asyncio

    from noonbell.wiring.declared_tasks import check_jobs

    asyncio.run(check_jobs(settings))


@config_command.command("reference")
def reference() -> None:
    """Print every key with its default and meaning, as Markdown."""
    click.echo(reference_table(), nl=False)


@config_command.command("systemd")
@click.argument("unit", type=click.Choice(["node", "worker"]), default="node")
def systemd(unit: str) -> None:
    """Print a systemd unit for a node or a worker; docs/how-to/run-under-systemd.md has the steps.

    The unit starts the same `noonbell` command that printed it.
    """
    name = "noonbell.service" if unit == "node" else "noonbell-worker@.service"
    text = _units().joinpath(name).read_text(encoding="utf-8")
    click.echo(text.replace(_IN_THE_UNIT, str(_own_command())), nl=False)


_IN_THE_UNIT = "/opt/noonbell/bin/noonbell"


def _units() -> Path:
    """In the package; in a source tree beside `src`."""
    package = Path(noonbell.__file__).parent
    inside = package / "deploy"
    return inside if inside.is_dir() else package.parents[1] / "deploy"


def _own_command() -> Path:
    """The command that is running; where it has no file, as in `python -c`, the one beside Python."""
    called = Path(sys.argv[0])
    return (
        called.absolute()
        if called.name == "noonbell" and called.is_file()
        else Path(sys.executable).with_name("noonbell")
    )


def _with_origins(loaded: Loaded, output: str) -> str:
    from noonbell.settings import plain

    values = plain(loaded.settings)
    if output == "json":
        told = {path: {"value": value, "origin": loaded.origins[path]} for path, value in values.items()}
        return json.dumps(told, ensure_ascii=False, indent=2)
    shown = {path: _short(value) for path, value in values.items()}
    wide, long = max(map(len, shown)), max(map(len, shown.values()))
    return "\n".join(f"{path:<{wide}}  {value:<{long}}  {loaded.origins[path]}" for path, value in shown.items())


def _whole(loaded: Loaded, output: str) -> str:
    from noonbell.settings import plain

    nested = _nested(plain(loaded.settings))
    if output == "json":
        return json.dumps(nested, ensure_ascii=False, indent=2) + "\n"
    from noonbell import yaml_text

    return yaml_text.write(nested)


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        place = whole
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return whole


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


def reference_table() -> str:
    """What stands between the markers of docs/reference/settings.md: a table for each section."""
    from noonbell.settings import KEYS

    sections: dict[str, list[str]] = {}
    for path, key in KEYS.items():
        section, _, name = path.rpartition(".")
        default = _short(key.kind.write(key.default))
        row = f"| `{name}` | `{default}` | {key.kind.takes} | {key.means} |"
        sections.setdefault(section or name, []).append(row)
    head = ["| key | default | takes | means |", "| --- | --- | --- | --- |"]
    return "\n\n".join("\n".join([f"### `{name}`", "", *head, *rows]) for name, rows in sections.items()) + "\n"
